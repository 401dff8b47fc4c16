package expect

import (
	"cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

// SideOf gathers what is known about one end: from its endpoint, and from what its node says of itself
// in full, which may be nil. place is where the tool ran. The active MTU of the RDMA port and
// stolen time are not in there: they are the caller's to add.
func SideOf(ep bench.Endpoint, place bench.Place, node *facts.Node) Side {
	s := Side{Node: ep.Node, Device: ep.Device, Rate: ep.Wire.Rate, IPv6: ep.Wire.IPv6}
	if node == nil {
		return s
	}
	nic, d := node.RDMADevice(ep.Device)
	// Of soft RoCE nothing here limits a figure: its rate is made up, and it has no PCIe link.
	if d == nil || topology.IsSoftRDMA(d.Name) {
		return s
	}
	for _, g := range d.Port(1).GIDs {
		if g.Index != ep.GIDIndex {
			continue
		}
		if net := node.Netdev(g.Netdev); net != nil {
			s.MTU = *cmp.Or(net.MTU, new(0))
		}
		if bond := node.Bond(g.Netdev); bond != nil {
			s.Bond = bond.Members
		}
	}
	if nic.Address != nil {
		if f := topology.NewTree(&node.Host).Device(*nic.Address); f != nil {
			s.PCI = bench.PCILink{Address: f.Address.String(), Link: *cmp.Or(f.Link, &topology.Link{})}
			s.NUMANode = f.NUMANode
		}
	}
	if s.NUMANode != nil {
		if n := node.NUMANode(*s.NUMANode); n != nil {
			s.Near = n.CPUs
		}
	}
	s.CPUNodes = nodesOf(place, node)
	return s
}

// nodesOf lists the NUMA nodes with CPUs of a place, in rising order; nil where that cannot be told.
func nodesOf(place bench.Place, node *facts.Node) []int {
	var all []int
	set, err := topology.ParseCPUSet(place.CPUs)
	if err != nil {
		return nil
	}
	for _, n := range node.NUMANodes {
		if place.CPUs == "" && !n.CPUs.IsEmpty() || set.Overlaps(n.CPUs) {
			all = append(all, n.ID)
		}
	}
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
