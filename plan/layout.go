package plan

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// A Layout checks and evaluates modified placements of a problem, for explanations and for the last steps of the
// search.
type Layout struct {
	p      *Problem
	Cores  map[int]*Core // by ID
	wiring *Wiring
}

// NewLayout is for one problem.
func NewLayout(p *Problem) *Layout {
	l := &Layout{p: p, Cores: make(map[int]*Core, len(p.Cores)), wiring: p.Wiring()}
	for i := range p.Cores {
		c := &p.Cores[i]
		l.Cores[c.ID] = c
	}
	return l
}

// Free cores have no owner.
func (l *Layout) Free(pl *Placement) []int {
	given, free := make([]int, 0, len(l.p.Cores)), make([]int, 0, len(l.p.Cores))
	for _, n := range pl.Nodes {
		given = append(given, n.Cores...)
	}
	slices.Sort(given)
	for _, c := range l.p.Cores {
		if _, taken := slices.BinarySearch(given, c.ID); !taken && c.Tenant == "" {
			free = append(free, c.ID)
		}
	}
	slices.Sort(free)
	return free
}

// CoresOn is by NUMA node.
func (l *Layout) CoresOn(cores []int) map[int]int64 {
	on := map[int]int64{}
	for _, id := range cores {
		on[l.Cores[id].NUMANode]++
	}
	return on
}

// Fits checks rules 1 to 3 and 6 of docs/planner.md. Exchanges do not move devices.
func (l *Layout) Fits(pl *Placement) bool {
	held := map[int]bool{}
	for i := range pl.Nodes {
		for _, id := range pl.Nodes[i].Cores {
			if c := l.Cores[id]; held[id] || c == nil || c.Tenant != "" || len(c.CPUs) < l.p.Requests[i].Threads {
				return false
			}
			held[id] = true
		}
	}
	// Rule 2.
	free, onNode, onPackage := l.Free(pl), map[int]int{}, map[int]int{}
	for _, id := range free {
		onNode[l.Cores[id].NUMANode]++
		onPackage[l.Cores[id].Package]++
	}
	if len(free) < l.p.ReserveCores || slices.ContainsFunc(l.p.NUMANodes, func(n NUMANode) bool {
		return onNode[n.ID] < n.ReserveCores
	}) {
		return false
	}
	for _, k := range l.p.Packages {
		// Tenants may hold all cores of a package.
		usable := func(c Core) bool { return c.Package == k.ID && c.Tenant == "" }
		if k.Busy != "" && onPackage[k.ID] == 0 && slices.ContainsFunc(l.p.Cores, usable) {
			return false
		}
	}
	return l.MemoryFits(pl) && l.affine(pl)
}

// MemoryFits checks each lab node and each NUMA node.
func (l *Layout) MemoryFits(pl *Placement) bool {
	used := l.PagesUsed(pl)
	if slices.ContainsFunc(l.p.NUMANodes, func(n NUMANode) bool { return n.Pages != nil && used[n.ID] > *n.Pages }) {
		return false
	}
	for i := range pl.Nodes {
		sum := lists.Sum(pl.Nodes[i].Memory, func(m NodePage) int64 { return m.Pages })
		if sum != l.p.Requests[i].Pages {
			return false
		}
	}
	return true
}

// PagesUsed is by NUMA node.
func (l *Layout) PagesUsed(pl *Placement) map[int]int64 {
	used := map[int]int64{}
	for _, n := range pl.Nodes {
		for _, m := range n.Memory {
			used[m.NUMANode] += m.Pages
		}
	}
	return used
}

func (l *Layout) affine(pl *Placement) bool {
	for _, a := range l.p.Affinity {
		for k, i := range a.Requests {
			one := l.CoresOn(pl.Nodes[i].Cores)
			for _, j := range a.Requests[k+1:] {
				two := l.CoresOn(pl.Nodes[j].Cores)
				common := lists.Count(slices.Collect(maps.Keys(one)), func(node int) bool { return two[node] > 0 })
				same := common == len(one) && common == len(two)
				if a.NUMA == Different && common > 0 || a.NUMA == Same && !same {
					return false
				}
			}
		}
	}
	return true
}

// Spread places memory in proportion to cores, and the rest on the nearest nodes. It reports whether all of it fits.
func (l *Layout) Spread(pl *Placement, i int) bool {
	n := &pl.Nodes[i]
	n.Memory = nil
	used, on := l.PagesUsed(pl), l.CoresOn(n.Cores)
	give, left := map[int]int64{}, l.p.Requests[i].Pages
	take := func(node *NUMANode, want int64) {
		got := min(want, left)
		if node.Pages != nil {
			got = max(0, min(got, *node.Pages-used[node.ID]))
		}
		give[node.ID] += got
		used[node.ID] += got
		left -= got
	}
	shares := Shares(left, on)
	order := make([]*NUMANode, len(l.p.NUMANodes))
	far := map[int]int{}
	for k := range order {
		node := &l.p.NUMANodes[k]
		order[k], far[node.ID] = node, math.MaxInt
		for home := range on {
			far[node.ID] = min(far[node.ID], l.p.Distance(home, node.ID))
		}
		take(node, shares[node.ID])
	}
	slices.SortStableFunc(order, func(a, b *NUMANode) int { return cmp.Compare(far[a.ID], far[b.ID]) })
	for _, node := range order {
		take(node, left)
	}
	for _, node := range l.p.NUMANodes {
		if give[node.ID] > 0 {
			n.Memory = append(n.Memory, NodePage{NUMANode: node.ID, Pages: give[node.ID]})
		}
	}
	return left == 0
}

// Exchangeable returns a copy with cores and memory that can be changed.
func (pl *Placement) Exchangeable() *Placement {
	c := &Placement{Nodes: slices.Clone(pl.Nodes)}
	for i := range c.Nodes {
		c.Nodes[i].Cores, c.Nodes[i].Memory = slices.Clone(c.Nodes[i].Cores), slices.Clone(c.Nodes[i].Memory)
	}
	return c
}

// GivenCPUs includes siblings on the same cores, because the host's use of one would slow the node down. It returns an
// error for a number that is not a CPU's.
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
	return own.Union(h.WholeCores(own)), nil
}

// NodeCPUs are the CPUs to which virtual CPUs are pinned.
func (p *Plan) NodeCPUs() topology.CPUSet {
	return topology.UnionOf(p.Nodes, func(n Node) topology.CPUSet { return n.CPUs() })
}

// PageSizes are in bytes, ascending.
func (p *Plan) PageSizes() []uint64 {
	used := lists.Filter(p.Hugepages, func(h Hugepages) bool { return h.PageBytes > 0 })
	return lists.Distinct(lists.Map(used, func(h Hugepages) uint64 { return h.PageBytes }))
}

// EmulatorPin returns the CPUs for QEMU's own threads of a lab node. They are its EmulatorCPUs and, for each NUMA node
// with its hugepages but without any of these, the housekeeping CPUs there. If there are no such CPUs, it is the last
// of the lab node's own CPUs there; because that CPU is isolated, the kernel moves no thread there by itself.
//
// QEMU since 7.2 clears hugepages in threads that it moves to the NUMA node of the pages. By then libvirt (seen with
// 9.0) has confined the process to the CPUs of the emulator pin. If no such CPU is on that NUMA node, the machine does
// not start: "Setting CPU affinity failed: Invalid argument".
func (p *Plan) EmulatorPin(n *Node, h *topology.Host) topology.CPUSet {
	pin := n.EmulatorCPUs
	if pin.IsEmpty() || h == nil {
		return pin
	}
	for _, m := range n.Memory {
		node := h.NUMANode(m.NUMANode)
		if m.PageBytes == 0 || node == nil || node.CPUs.Overlaps(pin) {
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
