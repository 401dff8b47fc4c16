package search

import (
	"context"
	"slices"

	"github.com/rackless/rackless/plan"
)

// emit writes columns out as a placement: the least L3 sharing, the lowest core numbers to the
// first lab nodes, and the cheapest memory. Lab nodes that can be swapped get their columns in
// order. It works on its own account, so that a search that was stopped does not get in its way.
func (m *model) emit(best []*column) plan.Placement {
	s := newState(m, &meter{ctx: context.Background(), limit: 1 << 62})
	best = m.inOrder(best)
	for i, c := range best {
		s.place(i, c)
	}
	pl := plan.Placement{Nodes: make([]plan.NodePlacement, len(best))}
	next := make([]int, len(m.cells)) // of each cell: cores given
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

// inOrder gives the first of lab nodes that can be swapped the first of their columns, and so on.
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

// layout returns how a component's cores are given: portions of cells in place of places, the first lab nodes first.
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
	left := map[int]int{}
	for _, q := range at {
		n := q.n
		for _, c := range m.pools[q.pool].cells {
			if _, ok := left[c]; !ok {
				left[c] = len(m.cells[c].cores)
			}
			if g := min(n, left[c]); g > 0 {
				out = append(out, portion{q.who, c, g})
				left[c] -= g
				n -= g
			}
		}
	}
	return out
}

// span returns between what the shares of a component are known to be.
func (p *packer) span(k int, at []portion) (low, high int) {
	if n, ok := p.easy(k, at); ok {
		return n, n
	}
	r := p.find(k, at, false)
	return r.low, r.high
}

// pagesOf spreads the memory of all lab nodes.
func (s *state) pagesOf() [][]plan.NodePage {
	m := s.m
	out := make([][]plan.NodePage, len(s.at))
	if s.sharesFit() {
		for i, c := range s.at {
			shares := slices.SortedFunc(slices.Values(s.sharesOf(i, c)), func(a, b share) int {
				return m.nodes[a.node].id - m.nodes[b.node].id
			})
			for _, x := range shares {
				if x.pages > 0 {
					out[i] = append(out[i], plan.NodePage{NUMANode: m.nodes[x.node].id, Pages: x.pages})
				}
			}
		}
		return out
	}
	f := newFlow(s)
	f.solve()
	n := len(m.nodes)
	order := make([]int, n)
	for b := range order {
		order[b] = b
	}
	slices.SortFunc(order, func(a, b int) int { return m.nodes[a].id - m.nodes[b].id })
	for k, i := range f.who {
		for _, b := range order {
			if pages := f.in[k*n+b] + f.over[k*n+b]; pages > 0 {
				out[i] = append(out[i], plan.NodePage{NUMANode: m.nodes[b].id, Pages: pages})
			}
		}
	}
	return out
}
