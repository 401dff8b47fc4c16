package search

import (
	"cmp"
	"context"
	"slices"

	"github.com/rackless/rackless/plan"
)

// emit writes columns out as a placement: the least L3 sharing, the lowest core numbers to the
// first lab nodes, and the cheapest memory. Interchangeable lab nodes get their columns in
// order. It works on its own account, so that a search that was stopped does not get in its way.
func (m *model) emit(best []*column) plan.Placement {
	s := newState(m, &meter{ctx: context.Background(), limit: 1 << 62})
	best = m.inOrder(best)
	for i, c := range best {
		s.place(i, c)
	}
	pl := plan.Placement{Nodes: make([]plan.NodePlacement, len(best))}
	next := make([]int, len(m.cells)) // of each cell: cores given, the lowest numbers first
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

// inOrder gives the first of interchangeable lab nodes the first of their columns, and so on.
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

// layout returns how a component's cores are given: portions of cells in place of pools, the first lab nodes first.
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

// pagesOf spreads the memory of all lab nodes.
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
