package bench

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/topology"
)

// SideOf gathers what is known of one end: from its endpoint, and from what its node says of itself
// in full, which may be nil. place is where the tool ran. The active MTU of the RDMA port and
// stolen time are not in there: they are the caller's to add.
func SideOf(ep Endpoint, place Place, node *facts.Node) Side {
	s := Side{Node: ep.Node, Device: ep.Device, Rate: ep.Wire.Rate, IPv6: ep.Wire.IPv6}
	if node == nil {
		return s
	}
	d := node.RDMA[ep.Device]
	if d == nil || d.Soft() {
		return s
	}
	for _, g := range d.GIDs {
		if net := node.Net[g.NetDev]; g.Index == ep.GIDIndex && net != nil {
			s.MTU, s.Bond = net.MTU, net.Members
		}
	}
	if f := node.PCI[d.PCI]; f != nil {
		s.PCI, s.NUMANode = PCILink{Address: d.PCI, Link: *cmp.Or(f.Link, &topology.Link{})}, f.NUMANode
	}
	if s.NUMANode != nil && node.NUMA[*s.NUMANode] != nil {
		s.Near = node.NUMA[*s.NUMANode].CPUs
	}
	s.CPUNodes = nodesOf(place, node)
	return s
}

// nodesOf lists the NUMA nodes with CPUs of a place, in rising order; nil where that cannot be told.
func nodesOf(place Place, node *facts.Node) []int {
	var all []int
	for id, n := range node.NUMA {
		if place.CPUs == "" {
			if n.CPUs.Len() > 0 {
				all = append(all, id)
			}
			continue
		}
		set, err := topology.ParseCPUSet(place.CPUs)
		if err != nil {
			return nil
		}
		if set.Overlaps(n.CPUs) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}

// Steal is the share of the time in which a node's CPUs had work and were not let run, between two
// looks at its /proc/stat; nil where they did nothing.
func Steal(before, after facts.CPUTime) *float64 {
	steal, busy := after.Steal-before.Steal, after.Busy-before.Busy
	if steal < 0 || busy < 0 || steal+busy == 0 {
		return nil
	}
	return new(steal / (steal + busy))
}

// GPU returns the number of the GPU whose memory a test uses; ok is false where it uses main memory.
func (e Engine) GPU() (number string, ok bool) {
	p, _ := e.plugin.(perftest)
	return p.gpu, p.gpu != ""
}
