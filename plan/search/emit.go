package search

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// emit has its own limit of work, so that it is complete even if the search was stopped.
func (m *model) emit(best []*column) plan.Placement {
	s := newState(m, &meter{ctx: context.Background(), limit: 1 << 62})
	best = m.inOrder(best)
	for i, c := range best {
		s.place(i, c)
	}
	pl := plan.Placement{Nodes: make([]plan.NodePlacement, len(best))}
	next := make([]int, len(m.cells)) // by cell: cores given
	give := func(who, cell, n int) {
		cores := m.cells[cell].cores[next[cell]:]
		pl.Nodes[who].Cores = append(pl.Nodes[who].Cores, cores[:n]...)
		next[cell] += n
	}
	for k := range m.comps {
		for _, g := range s.packs.layout(k, s.compAt[k]) {
			give(g.who, g.pool, g.n)
		}
	}
	memory := s.pagesOf()
	for i, c := range best {
		q := &pl.Nodes[i]
		slices.Sort(q.Cores)
		q.Memory = memory[i]
		q.GPUs, q.NICs, q.VFs = slices.Clone(c.gpus), slices.Clone(c.nics), slices.Clone(c.vfs)
	}
	return pl
}

func (m *model) inOrder(best []*column) []*column {
	out := slices.Clone(best)
	theirs := make(map[int][]*column, len(best))
	for i, c := range best {
		theirs[m.requests[i].rep] = append(theirs[m.requests[i].rep], c)
	}
	for i := range best {
		k := m.requests[i].rep
		if i == k {
			slices.SortStableFunc(theirs[k], compareColumns)
		}
		out[i], theirs[k] = theirs[k][0], theirs[k][1:]
	}
	return out
}

func (p *packer) layout(k int, at []portion) []portion {
	var out []portion
	m := p.m
	if _, ok := p.easy(k, at); !ok && m.p.Weights.L3Shared > 0 {
		p.find(k, at, true)
		if len(p.best) > 0 {
			for x, q := range p.items {
				for c := range m.cells {
					if n := p.best[x*len(m.cells)+c]; n > 0 {
						out = append(out, portion{q.who, c, n})
					}
				}
			}
			slices.SortStableFunc(out, func(a, b portion) int { return a.who - b.who })
			return out
		}
	}
	given := make([]int, len(m.cells))
	for _, q := range at {
		n := q.n
		for _, c := range m.pools[q.pool].cells {
			if g := min(n, len(m.cells[c].cores)-given[c]); g > 0 {
				out = append(out, portion{q.who, c, g})
				given[c] += g
				n -= g
			}
		}
	}
	return out
}

func (s *state) pagesOf() [][]plan.NodePage {
	m := s.m
	out := make([][]plan.NodePage, len(s.at))
	add := func(i, node int, pages int64) {
		if pages > 0 {
			out[i] = append(out[i], plan.NodePage{NUMANode: m.nodes[node].id, Pages: pages})
		}
	}
	if s.sharesFit() {
		for i, c := range s.at {
			for _, x := range s.sharesOf(i, c) {
				add(i, x.node, x.pages)
			}
		}
	} else {
		f := newFlow(s)
		f.solve()
		for k, i := range f.who {
			for b := range m.nodes {
				add(i, b, f.at(k, b).in+f.at(k, b).over)
			}
		}
	}
	for _, pages := range out {
		slices.SortFunc(pages, func(a, b plan.NodePage) int { return cmp.Compare(a.NUMANode, b.NUMANode) })
	}
	return out
}

// maxKeepTries limits the exchanges tried for one core. The nearest cores are among the first candidates.
const maxKeepTries = 8

const maxKept = 64

// keepForHost leaves the most valuable cores to the host if that costs nothing. This is not a cost term, because costs
// must not depend on how CPUs are numbered or on an earlier layout.
func keepForHost(l *plan.Layout, p *plan.Problem, pl *plan.Placement, cost int64, worth map[int]int) {
	tried := 0
	for owner := range pl.Nodes {
		for _, id := range slices.Clone(pl.Nodes[owner].Cores) {
			if worth[id] == 0 {
				continue
			}
			if tried++; tried > maxKept {
				return
			}
			exchangeCore(l, p, pl, cost, owner, id, worth)
		}
	}
}

// worthToHost returns 2 for the core of CPU 0, 1 for a non-isolated core of a host that isolates CPUs, else 0. CPU 0
// boots the machine, and on x86 has timers and interrupts that cannot be moved: the kernel removes it from nohz_full
// (kernel/time/tick-sched.c). Lab nodes can use isolated cores without a reboot; the host's own work runs on the
// others.
func worthToHost(p *plan.Problem) map[int]int {
	isolates := slices.ContainsFunc(p.Cores, func(c plan.Core) bool { return c.Isolated })
	worth := map[int]int{}
	for i := range p.Cores {
		c := &p.Cores[i]
		switch {
		case slices.Contains(c.CPUs, 0):
			worth[c.ID] = 2
		case isolates && !c.Isolated:
			worth[c.ID] = 1
		}
	}
	return worth
}

func exchangeCore(l *plan.Layout, p *plan.Problem, pl *plan.Placement, cost int64, owner, id int, worth map[int]int) {
	// Only one core of each kind is tried.
	type kind struct {
		node, pkg, l3 int
		small         bool
	}
	tried := map[kind]bool{}
	candidates := l.Free(pl)
	slices.SortStableFunc(candidates, func(a, b int) int { return worth[a] - worth[b] })
	for _, free := range candidates {
		c := l.Cores[free]
		k := kind{c.NUMANode, c.Package, c.L3, c.Efficiency}
		if worth[free] >= worth[id] || tried[k] || len(tried) == maxKeepTries ||
			len(c.CPUs) < p.Requests[owner].Threads {
			continue
		}
		tried[k] = true
		next := pl.Exchangeable()
		n := &next.Nodes[owner]
		n.Cores[slices.Index(n.Cores, id)] = free
		slices.Sort(n.Cores)
		if l.Spread(next, owner) && l.Fits(next) && l.Cost(next) == cost {
			*pl = *next
			return
		}
	}
}

const maxTieTries = 64

// splitTies splits cores evenly if the cost stays the same: the search tries full NUMA nodes first, so ties end
// lopsided.
func splitTies(l *plan.Layout, pl *plan.Placement, cost int64) {
	tries := 0
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
				next := moveCores(l, pl, i, int(n), rich, poor)
				if next != nil && l.Spread(next, i) && l.Fits(next) && l.Cost(next) == cost {
					*pl, even = *next, false
				}
			}
		}
	}
}

// moveCores takes the last n cores, and prefers L3 caches without other lab nodes. It returns nil if there are too few.
func moveCores(l *plan.Layout, pl *plan.Placement, i, n, from, to int) *plan.Placement {
	next := pl.Exchangeable()
	others := map[int]bool{}
	for j := range pl.Nodes {
		for _, id := range pl.Nodes[j].Cores {
			others[l.Cores[id].L3] = others[l.Cores[id].L3] || j != i
		}
	}
	free := slices.DeleteFunc(l.Free(pl), func(id int) bool { return l.Cores[id].NUMANode != to })
	free = append(lists.Filter(free, func(id int) bool { return !others[l.Cores[id].L3] }),
		lists.Filter(free, func(id int) bool { return others[l.Cores[id].L3] })...)
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
