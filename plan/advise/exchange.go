package advise

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/rackless/rackless/plan"
)

// Alternatives for cores and memory are found by exchange: a placement is changed at one point,
// checked against the rules and evaluated in full. What is found is the best of the changes tried,
// which a search might beat; texts say so.
//
// A search would have to be told "not these cores" and "not this memory", which a problem cannot say,
// and it would move other lab nodes as well: the answer would no longer be about this choice.

// A layout indexes a problem for exchanges.
type layout struct {
	p     *plan.Problem
	cores map[int]*plan.Core
}

func newLayout(p *plan.Problem) *layout {
	l := &layout{p: p, cores: make(map[int]*plan.Core, len(p.Cores))}
	for i := range p.Cores {
		l.cores[p.Cores[i].ID] = &p.Cores[i]
	}
	return l
}

// free returns the cores without an owner, by ID.
func (l *layout) free(pl *plan.Placement) []int {
	var given, free []int
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

// coresOn counts cores by NUMA node.
func (l *layout) coresOn(cores []int) map[int]int64 {
	on := map[int]int64{}
	for _, id := range cores {
		on[l.cores[id].NUMANode]++
	}
	return on
}

// mainNode returns the NUMA node with most cores of a lab node, the lowest of several.
func (l *layout) mainNode(n *plan.NodePlacement) int {
	on := l.coresOn(n.Cores)
	best := -1
	for _, node := range slices.Sorted(maps.Keys(on)) {
		if best < 0 || on[node] > on[best] {
			best = node
		}
	}
	return best
}

// fits reports whether a placement keeps the rules on cores and memory, 1 to 3 and 6 of
// docs/planner.md. Devices are not looked at: exchanges leave them where they are.
func (l *layout) fits(pl *plan.Placement) bool {
	held := map[int]bool{}
	for i := range pl.Nodes {
		for _, id := range pl.Nodes[i].Cores {
			if c := l.cores[id]; held[id] || c == nil || c.Tenant != "" || len(c.CPUs) < l.p.Requests[i].Threads {
				return false
			}
			held[id] = true
		}
	}
	free, onNode, onPackage := l.free(pl), map[int]int{}, map[int]int{}
	for _, id := range free {
		onNode[l.cores[id].NUMANode]++
		onPackage[l.cores[id].Package]++
	}
	if len(free) < l.p.ReserveCores {
		return false
	}
	for _, n := range l.p.NUMANodes {
		if onNode[n.ID] < n.ReserveCores {
			return false
		}
	}
	for _, k := range l.p.Packages {
		// A package of which tenants hold every core keeps none.
		usable := func(c plan.Core) bool { return c.Package == k.ID && c.Tenant == "" }
		if k.Busy != "" && onPackage[k.ID] == 0 && slices.ContainsFunc(l.p.Cores, usable) {
			return false
		}
	}
	return l.memoryFits(pl) && l.affine(pl)
}

func (l *layout) memoryFits(pl *plan.Placement) bool {
	used := l.pagesUsed(pl)
	for _, n := range l.p.NUMANodes {
		if n.Pages != nil && used[n.ID] > *n.Pages {
			return false
		}
	}
	for i := range pl.Nodes {
		var sum int64
		for _, m := range pl.Nodes[i].Memory {
			sum += m.Pages
		}
		if sum != l.p.Requests[i].Pages {
			return false
		}
	}
	return true
}

func (l *layout) pagesUsed(pl *plan.Placement) map[int]int64 {
	used := map[int]int64{}
	for _, n := range pl.Nodes {
		for _, m := range n.Memory {
			used[m.NUMANode] += m.Pages
		}
	}
	return used
}

// affine reports whether the affinities on NUMA nodes hold.
func (l *layout) affine(pl *plan.Placement) bool {
	for _, a := range l.p.Affinity {
		for k, i := range a.Requests {
			one := l.coresOn(pl.Nodes[i].Cores)
			for _, j := range a.Requests[k+1:] {
				two := l.coresOn(pl.Nodes[j].Cores)
				common := 0
				for node := range one {
					if two[node] > 0 {
						common++
					}
				}
				same := common == len(one) && common == len(two)
				if a.NUMA == plan.Different && common > 0 || a.NUMA == plan.Same && !same {
					return false
				}
			}
		}
	}
	return true
}

// spread puts the memory of lab node i where its cores are, as far as there is room, and the rest
// as near as there is. It reports whether all has found a place.
func (l *layout) spread(pl *plan.Placement, i int) bool {
	n := &pl.Nodes[i]
	n.Memory = nil
	used, on := l.pagesUsed(pl), l.coresOn(n.Cores)
	give, left := map[int]int64{}, l.p.Requests[i].Pages
	take := func(node *plan.NUMANode, want int64) {
		got := min(want, left)
		if node.Pages != nil {
			got = max(0, min(got, *node.Pages-used[node.ID]))
		}
		give[node.ID] += got
		used[node.ID] += got
		left -= got
	}
	// First each NUMA node its share, then the rest to the nearest that have room.
	shares := plan.Shares(left, on)
	order := make([]*plan.NUMANode, len(l.p.NUMANodes))
	far := map[int]int{}
	for k := range order {
		node := &l.p.NUMANodes[k]
		order[k], far[node.ID] = node, math.MaxInt
		for home := range on {
			far[node.ID] = min(far[node.ID], l.p.Distance(home, node.ID))
		}
		take(node, shares[node.ID])
	}
	slices.SortStableFunc(order, func(a, b *plan.NUMANode) int { return cmp.Compare(far[a.ID], far[b.ID]) })
	for _, node := range order {
		take(node, left)
	}
	for _, node := range l.p.NUMANodes {
		if give[node.ID] > 0 {
			n.Memory = append(n.Memory, plan.NodePage{NUMANode: node.ID, Pages: give[node.ID]})
		}
	}
	return left == 0
}

// clonePlacement returns a copy whose cores and memory can be changed.
func clonePlacement(pl *plan.Placement) *plan.Placement {
	c := &plan.Placement{Nodes: slices.Clone(pl.Nodes)}
	for i := range c.Nodes {
		c.Nodes[i].Cores, c.Nodes[i].Memory = slices.Clone(c.Nodes[i].Cores), slices.Clone(c.Nodes[i].Memory)
	}
	return c
}

// elsewhere is pl with the cores that lab node i has on NUMA node from replaced by others of NUMA
// node to: free ones and, where other is not negative, those of that lab node, which gets the
// given-up ones in return. It is nil if there are too few or a rule breaks.
func (l *layout) elsewhere(pl *plan.Placement, i, from, to, other int, freeFirst bool) *plan.Placement {
	next := clonePlacement(pl)
	n := &next.Nodes[i]
	var give, take []int // cores given up; cores taken
	for _, id := range n.Cores {
		if l.cores[id].NUMANode == from {
			give = append(give, id)
		}
	}
	wide := func(id, request int) bool { return len(l.cores[id].CPUs) >= l.p.Requests[request].Threads }
	useful := func(id, node int) bool {
		return len(take) < len(give) && l.cores[id].NUMANode == node && wide(id, i)
	}
	takeFree := func(node int) {
		for _, id := range l.free(pl) {
			if useful(id, node) {
				take = append(take, id)
			}
		}
	}
	if freeFirst {
		takeFree(to)
	}
	if other >= 0 {
		o := &next.Nodes[other]
		swapped := 0
		for k, id := range o.Cores {
			if useful(id, to) && wide(give[swapped], other) {
				take = append(take, id)
				o.Cores[k] = give[swapped]
				swapped++
			}
		}
		if swapped == 0 {
			return nil // the same as without it
		}
		slices.Sort(o.Cores)
		o.Memory = nil // both anew: each may stand in the other's way
	}
	if !freeFirst {
		takeFree(to)
	}
	for _, node := range l.p.NUMANodes { // a node smaller than what is given up
		if node.ID != from && node.ID != to {
			takeFree(node.ID)
		}
	}
	if len(take) < len(give) {
		return nil
	}
	n.Cores = append(slices.DeleteFunc(n.Cores, func(id int) bool { return l.cores[id].NUMANode == from }), take...)
	slices.Sort(n.Cores)
	if !l.spread(next, i) || other >= 0 && !l.spread(next, other) || !l.fits(next) {
		return nil
	}
	return next
}

// near returns the NUMA nodes by their distance from one, the nearest first.
func (l *layout) near(from int) []plan.NUMANode {
	nodes := slices.Clone(l.p.NUMANodes)
	slices.SortStableFunc(nodes, func(a, b plan.NUMANode) int {
		return cmp.Compare(l.p.Distance(from, a.ID), l.p.Distance(from, b.ID))
	})
	return nodes
}

// otherCores returns the cheapest of the placements tried in which lab node i has no core of the
// NUMA node that it has most on; nil if none keeps the rules.
func (o *oracle) otherCores(l *layout, i, tries int) (best *plan.Placement, cost int64) {
	pl := &o.base.Placement
	from := l.mainNode(&pl.Nodes[i])
	for _, to := range l.near(from) {
		if to.ID == from {
			continue
		}
		for other := -1; other < len(pl.Nodes); other++ { // -1: free cores alone
			orders := []bool{true, false}
			if other < 0 {
				orders = orders[:1]
			} else if other == i || l.coresOn(pl.Nodes[other].Cores)[to.ID] == 0 {
				continue
			}
			for _, freeFirst := range orders {
				if tries--; tries < 0 {
					return best, cost
				}
				if next := l.elsewhere(pl, i, from, to.ID, other, freeFirst); next != nil {
					if c := o.cost(next); best == nil || c < cost {
						best, cost = next, c
					}
				}
			}
		}
	}
	return best, cost
}

// otherMemory returns the cheapest placement of those in which all memory of lab node i is on one
// NUMA node, other than where it is; the nearest nodes are tried first.
func (o *oracle) otherMemory(l *layout, i, tries int) (best *plan.Placement, cost int64) {
	pl := &o.base.Placement
	for _, node := range l.near(l.mainNode(&pl.Nodes[i])) {
		if m := pl.Nodes[i].Memory; len(m) == 1 && m[0].NUMANode == node.ID {
			continue
		}
		next := clonePlacement(pl)
		next.Nodes[i].Memory = []plan.NodePage{{NUMANode: node.ID, Pages: l.p.Requests[i].Pages}}
		if !l.memoryFits(next) {
			continue
		}
		if tries--; tries < 0 {
			break
		}
		if c := o.cost(next); best == nil || c < cost {
			best, cost = next, c
		}
	}
	return best, cost
}

// A hostSwap is an exchange of a housekeeping core for one of a lab node.
type hostSwap struct {
	gives, takes int // cores that the host gives and takes
	node         int // index of the lab node
	cost         int64
}

// otherHousekeeping returns the cheapest exchange that gives the host a core of another NUMA node.
// Cores that differ in nothing are tried once: on a host of 128 cores there would be thousands of
// exchanges, and most of them the same.
func (o *oracle) otherHousekeeping(l *layout, tries int) *hostSwap {
	pl := &o.base.Placement
	type kind struct{ owner, node, l3, pkg int }
	kindOf := func(owner, id int) kind { c := l.cores[id]; return kind{owner, c.NUMANode, c.L3, c.Package} }
	var best *hostSwap
	seenFree := map[kind]bool{}
	for _, gives := range l.free(pl) {
		k := kindOf(-1, gives)
		if seenFree[k] {
			continue
		}
		seenFree[k] = true
		seen := map[kind]bool{}
		for i := range pl.Nodes {
			for at, takes := range pl.Nodes[i].Cores {
				k := kindOf(i, takes)
				if seen[k] || l.cores[takes].NUMANode == l.cores[gives].NUMANode {
					continue
				}
				seen[k] = true
				if tries--; tries < 0 {
					return best
				}
				next := clonePlacement(pl)
				next.Nodes[i].Cores[at] = gives
				slices.Sort(next.Nodes[i].Cores)
				if !l.spread(next, i) || !l.fits(next) {
					continue
				}
				if c := o.cost(next); best == nil || c < best.cost {
					best = &hostSwap{gives, takes, i, c}
				}
			}
		}
	}
	return best
}
