package advise

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// Alternatives for cores and memory are found by exchange. A search might find better ones, but a problem cannot
// exclude certain cores or memory, and other lab nodes would move.

// mainNode has most of a lab node's cores, the lowest of several.
func (o *oracle) mainNode(n *plan.NodePlacement) int {
	on := o.CoresOn(n.Cores)
	return slices.MaxFunc(slices.Sorted(maps.Keys(on)), func(a, b int) int { return cmp.Compare(on[a], on[b]) })
}

// elsewhere takes free cores and, unless other is negative, cores of lab node other in exchange. It returns nil if
// there are too few cores or the result breaks a rule.
func (o *oracle) elsewhere(pl *plan.Placement, i, from, to, other int, freeFirst bool) *plan.Placement {
	next := pl.Exchangeable()
	n := &next.Nodes[i]
	var take []int
	give := lists.Filter(n.Cores, func(id int) bool { return o.Cores[id].NUMANode == from })
	wide := func(id, request int) bool { return len(o.Cores[id].CPUs) >= o.p.Requests[request].Threads }
	useful := func(id, node int) bool { return len(take) < len(give) && o.Cores[id].NUMANode == node && wide(id, i) }
	takeFree := func(node int) {
		take = append(take, lists.Filter(o.Free(pl), func(id int) bool { return useful(id, node) })...)
	}
	if freeFirst {
		takeFree(to)
	}
	if other >= 0 {
		peer := &next.Nodes[other]
		swapped := 0
		for k, id := range peer.Cores {
			if useful(id, to) && wide(give[swapped], other) {
				take = append(take, id)
				peer.Cores[k] = give[swapped]
				swapped++
			}
		}
		if swapped == 0 {
			return nil // same result as without other
		}
		slices.Sort(peer.Cores)
		peer.Memory = nil // the old memory of one may block the other
	}
	if !freeFirst {
		takeFree(to)
	}
	for _, node := range o.p.NUMANodes {
		if node.ID != from && node.ID != to {
			takeFree(node.ID)
		}
	}
	if len(take) < len(give) {
		return nil
	}
	n.Cores = append(slices.DeleteFunc(n.Cores, func(id int) bool { return o.Cores[id].NUMANode == from }), take...)
	slices.Sort(n.Cores)
	if !o.Spread(next, i) || other >= 0 && !o.Spread(next, other) || !o.Fits(next) {
		return nil
	}
	return next
}

func (o *oracle) near(from int) []plan.NUMANode {
	nodes := slices.Clone(o.p.NUMANodes)
	slices.SortStableFunc(nodes, func(a, b plan.NUMANode) int {
		return cmp.Compare(o.p.Distance(from, a.ID), o.p.Distance(from, b.ID))
	})
	return nodes
}

// otherCores returns nil if no placement keeps the rules.
func (o *oracle) otherCores(i, tries int) (best *plan.Placement, cost int64) {
	pl := &o.base.Placement
	from := o.mainNode(&pl.Nodes[i])
	for _, to := range o.near(from) {
		if to.ID == from {
			continue
		}
		for other := -1; other < len(pl.Nodes); other++ { // -1: only free cores
			if other == i || other >= 0 && o.CoresOn(pl.Nodes[other].Cores)[to.ID] == 0 {
				continue
			}
			orders := []bool{true, false} // first free cores, or of the other lab node
			if other < 0 {
				orders = orders[:1]
			}
			for _, freeFirst := range orders {
				if tries--; tries < 0 {
					return best, cost
				}
				if next := o.elsewhere(pl, i, from, to.ID, other, freeFirst); next != nil {
					if c := o.Cost(next); best == nil || c < cost {
						best, cost = next, c
					}
				}
			}
		}
	}
	return best, cost
}

// otherMemory tries all memory on one other NUMA node, the nearest first.
func (o *oracle) otherMemory(i, tries int) (best *plan.Placement, cost int64) {
	pl := &o.base.Placement
	for _, node := range o.near(o.mainNode(&pl.Nodes[i])) {
		if m := pl.Nodes[i].Memory; len(m) == 1 && m[0].NUMANode == node.ID {
			continue
		}
		next := pl.Exchangeable()
		next.Nodes[i].Memory = []plan.NodePage{{NUMANode: node.ID, Pages: o.p.Requests[i].Pages}}
		if !o.MemoryFits(next) {
			continue
		}
		if tries--; tries < 0 {
			break
		}
		if c := o.Cost(next); best == nil || c < cost {
			best, cost = next, c
		}
	}
	return best, cost
}

type hostSwap struct {
	gives, takes int
	node         int
	cost         int64
}

// otherHousekeeping tries only one of several equivalent cores: a host of 128 cores would have thousands of exchanges.
func (o *oracle) otherHousekeeping(tries int) *hostSwap {
	pl := &o.base.Placement
	type kind struct{ owner, node, l3, pkg int }
	kindOf := func(owner, id int) kind { c := o.Cores[id]; return kind{owner, c.NUMANode, c.L3, c.Package} }
	var best *hostSwap
	seenFree := map[kind]bool{}
	for _, gives := range o.Free(pl) {
		k := kindOf(-1, gives)
		if seenFree[k] {
			continue
		}
		seenFree[k] = true
		seen := map[kind]bool{}
		for i := range pl.Nodes {
			for at, takes := range pl.Nodes[i].Cores {
				k := kindOf(i, takes)
				if seen[k] || o.Cores[takes].NUMANode == o.Cores[gives].NUMANode {
					continue
				}
				seen[k] = true
				if tries--; tries < 0 {
					return best
				}
				next := pl.Exchangeable()
				next.Nodes[i].Cores[at] = gives
				slices.Sort(next.Nodes[i].Cores)
				if !o.Spread(next, i) || !o.Fits(next) {
					continue
				}
				if c := o.Cost(next); best == nil || c < best.cost {
					best = &hostSwap{gives, takes, i, c}
				}
			}
		}
	}
	return best
}
