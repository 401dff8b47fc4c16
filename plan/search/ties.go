package search

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/plan"
)

// maxTieTries bounds the exchanges that are tried for all lab nodes together.
const maxTieTries = 64

// splitTies splits the cores of a lab node evenly over its NUMA nodes where that costs the same.
// Columns are tried with full NUMA nodes first, so that a tie would else end lopsided.
func splitTies(p *plan.Problem, pl *plan.Placement, cost int64) {
	l, tries := plan.NewLayout(p), 0
	for i := range pl.Nodes {
		for even := false; !even && tries < maxTieTries; {
			on := l.CoresOn(pl.Nodes[i].Cores)
			nodes := slices.SortedFunc(maps.Keys(on), func(a, b int) int {
				return cmp.Or(cmp.Compare(on[a], on[b]), cmp.Compare(a, b))
			})
			poor, rich := nodes[0], nodes[len(nodes)-1]
			even = true
			for n := (on[rich] - on[poor]) / 2; n > 0 && even && tries < maxTieTries; n /= 2 {
				tries++
				if next := moveCores(l, pl, i, int(n), rich, poor); next != nil && l.Spread(next, i) && l.Fits(next) &&
					plan.Cost(plan.Evaluate(p, next)) == cost {
					*pl, even = *next, false
				}
			}
		}
	}
}

// moveCores returns the placement with n cores of lab node i moved from a NUMA node to another one:
// the last ones, to cores whose L3 cache nobody else uses as far as there are such. It is nil where
// there are too few.
func moveCores(l *plan.Layout, pl *plan.Placement, i, n, from, to int) *plan.Placement {
	next := pl.Exchangeable()
	others := map[int]bool{} // L3 caches
	for j := range pl.Nodes {
		for _, id := range pl.Nodes[j].Cores {
			others[l.Cores[id].L3] = others[l.Cores[id].L3] || j != i
		}
	}
	free := slices.DeleteFunc(l.Free(pl), func(id int) bool { return l.Cores[id].NUMANode != to })
	slices.SortStableFunc(free, func(a, b int) int {
		return cmp.Compare(rank(others[l.Cores[a].L3]), rank(others[l.Cores[b].L3]))
	})
	if len(free) < n {
		return nil
	}
	q := &next.Nodes[i]
	left := n
	for k := len(q.Cores) - 1; left > 0; k-- {
		if l.Cores[q.Cores[k]].NUMANode == from {
			q.Cores = slices.Delete(q.Cores, k, k+1)
			left--
		}
	}
	q.Cores = append(q.Cores, free[:n]...)
	slices.Sort(q.Cores)
	return next
}

func rank(later bool) int {
	if later {
		return 1
	}
	return 0
}
