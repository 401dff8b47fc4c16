package expect

import (
	"cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

// SideOf takes nil for an unknown node. The caller adds the active MTU of the RDMA port and stolen time.
func SideOf(ep bench.Endpoint, place bench.Place, node *facts.Node) Side {
	s := Side{Node: ep.Node, Device: ep.Device, Rate: ep.Wire.Rate, IPv6: ep.Wire.IPv6}
	if node == nil {
		return s
	}
	nic, d := node.RDMADevice(ep.Device)
	// Soft RoCE has no known limit: its rate is made up, and it has no PCIe link.
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

// Steal returns the share of busy time that the hypervisor took between two reads of /proc/stat, or nil if the CPUs
// were idle.
func Steal(before, after facts.CPUTime) *float64 {
	steal, busy := after.Steal-before.Steal, after.Busy-before.Busy
	if steal < 0 || busy < 0 || steal+busy == 0 {
		return nil
	}
	return new(steal / (steal + busy))
}
