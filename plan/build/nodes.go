package build

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// SLIT distances where the host tells none: what firmware reports that measured nothing (ACPI
// specification, System Locality Information Table).
const (
	distanceLocal  = 10
	distanceRemote = 20
)

// addNodes takes the NUMA nodes of the host, or makes one of the whole machine, and the distances between them.
func (b *problemBuilder) addNodes() {
	b.nodeOf = map[int]int{}
	if len(b.host.NUMANodes) == 0 {
		b.note("the host does not tell its NUMA nodes: planned as one node")
		b.p.NUMANodes = []plan.NUMANode{{ID: 0, Distances: []int{distanceLocal}}}
		b.nodeOf[0] = 0
		return
	}
	// Distances are in the order of the host's list, which need not be that of the IDs in a host that no reader made.
	var order []int
	for i := range b.host.NUMANodes {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(b.host.NUMANodes[i].ID, b.host.NUMANodes[j].ID)
	})
	for at, i := range order {
		id := b.host.NUMANodes[i].ID
		if id < 0 || id >= topology.MaxCPUs { // a nodeset could not name it
			b.fail("", "", "%s: %d is no number of a NUMA node", b.name, id)
			return
		}
		if _, twice := b.nodeOf[id]; twice {
			b.fail("", "", "%s: NUMA node %d is listed twice", b.name, id)
			return
		}
		b.nodeOf[id] = at
		b.p.NUMANodes = append(b.p.NUMANodes, plan.NUMANode{ID: id})
	}
	for at, i := range order {
		b.p.NUMANodes[at].Distances = b.distances(&b.host.NUMANodes[i], order, at)
	}
}

// distances returns the row of node n, which is at place own of the problem; order gives the place
// in the host's list of each node of the problem.
func (b *problemBuilder) distances(n *topology.NUMANode, order []int, own int) []int {
	row := make([]int, len(order))
	known := len(n.Distances) == len(order)
	switch {
	case known:
	case n.Distances == nil && len(order) > 1:
		b.note("the host does not tell the distances between its NUMA nodes: taken as 10 within a node and 20 " +
			"to another")
	case n.Distances != nil:
		b.note("NUMA node %d: %d distances for %d nodes: taken as 10 within the node and 20 to another", n.ID,
			len(n.Distances), len(order))
	}
	for at, i := range order {
		switch {
		case at == own:
			row[at] = distanceLocal
			if known && n.Distances[i] != distanceLocal {
				b.note("NUMA node %d: distance %d to itself: taken as 10", n.ID, n.Distances[i])
			}
		case !known:
			row[at] = distanceRemote
		case n.Distances[i] < distanceLocal:
			// Below 10 is reserved by ACPI. It is no distance, so the other node is as far as one
			// that nothing is known of.
			b.note("NUMA node %d: distance %d to another node, less than 10: taken as 20", n.ID, n.Distances[i])
			row[at] = distanceRemote
		case n.Distances[i] > MaxDistance:
			b.note("NUMA node %d: distance %d, more than the 255 that ACPI has: taken as 255", n.ID, n.Distances[i])
			row[at] = MaxDistance
		default:
			row[at] = n.Distances[i]
		}
	}
	return row
}

// hostNode returns what the host says of node at of the problem; nil if the node stands for the whole machine.
func (b *problemBuilder) hostNode(at int) *topology.NUMANode {
	return b.host.NUMANode(b.p.NUMANodes[at].ID)
}

// nodeSet returns the number of node at of the problem, as nodesets have it.
func (b *problemBuilder) nodeSet(at int) topology.CPUSet { return topology.CPUs(b.p.NUMANodes[at].ID) }

// knownNode returns the number of a node of the problem that a device of the host stands on, or
// nil. On a machine of one node everything is on it, also what says -1, as the kernel does where
// firmware names no node.
func (b *problemBuilder) knownNode(node *int, what string) *int {
	if len(b.p.NUMANodes) == 1 {
		return new(b.p.NUMANodes[0].ID)
	}
	if node == nil {
		return nil
	}
	if _, ok := b.nodeOf[*node]; !ok {
		b.note("%s: NUMA node %d is none of the host's: taken as not known", what, *node)
		return nil
	}
	return new(*node)
}
