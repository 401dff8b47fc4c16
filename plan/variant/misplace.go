package variant

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// misplace exchanges places of lab nodes, so that the host need not be prepared again. If that is impossible, each gets
// housekeeping cores of the farthest NUMA node.
func (a *arranger) misplace() error {
	nodes := a.plan.Nodes
	for shift := 1; shift < len(nodes); shift++ {
		if a.exchange(shift) {
			return nil
		}
	}
	free := a.housekeeping()
	for i := range nodes {
		if err := a.move(&nodes[i], free); err != nil {
			return fmt.Errorf("lab node %s: no NUMA node is wrong for it: no other lab node of its size is on "+
				"another one, and %w", nodes[i].Name, err)
		}
	}
	return nil
}

// exchange returns false if two lab nodes cannot change places, or have a NUMA node in common.
func (a *arranger) exchange(shift int) bool {
	before := a.plan.Nodes
	after := slices.Clone(before)
	for i := range before {
		to := &before[(i+shift)%len(before)]
		if !sameForm(&before[i], to) || homes(&before[i]).Overlaps(homes(to)) {
			return false
		}
		n := &after[i]
		n.VCPUs, n.Memory, n.Cells = slices.Clone(to.VCPUs), slices.Clone(to.Memory), slices.Clone(to.Cells)
		n.EmulatorCPUs, n.IOThreadCPUs = to.EmulatorCPUs, to.IOThreadCPUs
		n.Cards = slices.Clone(n.Cards)
		a.cards(n)
	}
	a.plan.Nodes = after
	return true
}

// sameForm compares the number and the total of NUMA nodes, not their sizes.
func sameForm(a, b *plan.Node) bool {
	return a.Threads == b.Threads && a.GuestNUMA == b.GuestNUMA && a.MemoryBytes == b.MemoryBytes &&
		len(a.VCPUs) == len(b.VCPUs) && len(a.Cells) == len(b.Cells)
}

func homes(n *plan.Node) topology.CPUSet {
	return topology.UnionOf(n.Cells, func(c plan.Cell) topology.CPUSet { return topology.CPUs(c.NUMANodes...) })
}

// housekeeping leaves the first core of each NUMA node to the host.
func (a *arranger) housekeeping() map[int][]*topology.Core {
	free := map[int][]*topology.Core{}
	for i := range a.host.Cores {
		c := &a.host.Cores[i]
		if c.NUMANode != nil && !c.CPUs.IsEmpty() && c.CPUs.IsSubsetOf(a.plan.Housekeeping.CPUs) {
			free[*c.NUMANode] = append(free[*c.NUMANode], c)
		}
	}
	for node, cores := range free {
		free[node] = cores[1:]
	}
	return free
}

func (a *arranger) move(n *plan.Node, free map[int][]*topology.Core) error {
	if len(n.Cells) > 1 {
		return fmt.Errorf("it is on %d NUMA nodes itself", len(n.Cells))
	}
	home := n.Cells[0].NUMANodes[0]
	to, far := -1, 0
	for i := range a.host.NUMANodes {
		node := &a.host.NUMANodes[i]
		if homes(n).Contains(node.ID) || len(free[node.ID]) < len(n.VCPUs) || !room(node, n) {
			continue
		}
		if d := a.distance(home, node.ID); to < 0 || d > far {
			to, far = node.ID, d
		}
	}
	if to < 0 {
		return fmt.Errorf("no other NUMA node has %d cores that the host can spare, and memory for it", len(n.VCPUs))
	}
	for i := range n.VCPUs {
		n.VCPUs[i] = free[to][i].CPUs.Min()
	}
	free[to] = free[to][len(n.VCPUs):]
	n.Memory = []plan.NodeMemory{{NUMANode: to, Bytes: n.MemoryBytes, PageBytes: pageSize(n)}}
	n.Cells = []plan.Cell{{NUMANodes: []int{to}, VCPUs: len(n.VCPUs), Bytes: n.MemoryBytes, Distances: []int{10}}}
	a.plan.Notes = append(a.plan.Notes, fmt.Sprintf("lab node %s is on housekeeping cores of NUMA node %d, which are "+
		"not isolated", n.Name, to))
	return nil
}

func pageSize(n *plan.Node) uint64 {
	if len(n.Memory) == 0 {
		return 0
	}
	return n.Memory[0].PageBytes
}

func room(node *topology.NUMANode, n *plan.Node) bool {
	page := pageSize(n)
	if page == 0 {
		return node.FreeBytes != nil && *node.FreeBytes >= n.MemoryBytes
	}
	pool := topology.Pool(node.Hugepages, page)
	return pool != nil && pool.Free != nil && *pool.Free*page >= n.MemoryBytes
}

// distance is the largest one for NUMA nodes missing from the host's table.
func (a *arranger) distance(from, to int) int {
	n := a.host.NUMANode(from)
	k := slices.IndexFunc(a.host.NUMANodes, func(n topology.NUMANode) bool { return n.ID == to })
	if n == nil || k < 0 || k >= len(n.Distances) {
		return 254
	}
	return n.Distances[k]
}

func (a *arranger) cards(n *plan.Node) {
	for i := range n.Cards {
		if card := &n.Cards[i]; card.Cell != nil && card.NUMANode != nil {
			card.Cell = n.NearestCell(card.NUMANode, a.distance)
		}
	}
}
