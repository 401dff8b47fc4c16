package plan

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/topology"
)

// GivenCPUs returns the CPUs that the plan takes from the host: those of the lab nodes, and those
// that share a core with them, since an idle sibling that the host used would slow the node down.
// A number that no CPU has is an error.
func (p *Plan) GivenCPUs(h *topology.Host) (topology.CPUSet, error) {
	var own topology.CPUSet
	for i := range p.Nodes {
		for _, c := range p.Nodes[i].VCPUs {
			if c < 0 || c >= topology.MaxCPUs {
				return own, fmt.Errorf("node %q: vcpus name CPU %d; want 0 to %d", p.Nodes[i].Name, c,
					topology.MaxCPUs-1)
			}
		}
		own = own.Union(topology.CPUs(p.Nodes[i].VCPUs...))
	}
	all := own
	for _, c := range h.Cores {
		if c.CPUs.Overlaps(own) {
			all = all.Union(c.CPUs)
		}
	}
	return all, nil
}

// EmulatorPin returns the CPUs that QEMU's own threads of a lab node may run on: its EmulatorCPUs,
// and for each NUMA node with memory of it on which none of these are the housekeeping CPUs there,
// or where the host keeps none there the last one of the lab node's own: as it is isolated, the
// kernel moves nothing there by itself.
//
// QEMU from 7.2 on clears hugepages by threads that it moves to the NUMA node of the pages. libvirt
// (seen with 9.0) has confined the process to the CPUs of the emulator pin by then, and a machine
// of which one has none on that node does not start: "Setting CPU affinity failed: Invalid
// argument".
func (p *Plan) EmulatorPin(n *Node, h *topology.Host) topology.CPUSet {
	pin := n.EmulatorCPUs
	if pin.IsEmpty() || h == nil {
		return pin
	}
	for _, m := range n.Memory {
		node := h.NUMANode(m.NUMANode)
		if node == nil || node.CPUs.Overlaps(pin) {
			continue
		}
		if kept := node.CPUs.Intersect(p.Housekeeping.CPUs); !kept.IsEmpty() {
			pin = pin.Union(kept)
		} else if own := slices.Collect(node.CPUs.Intersect(n.CPUs()).All()); len(own) > 0 {
			pin = pin.Union(topology.CPUs(slices.Max(own)))
		}
	}
	return pin
}
