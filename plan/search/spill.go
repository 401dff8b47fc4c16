package search

import (
	"slices"
)

// The cost of memory and L3 caches of a lab node alone beside the tenants is known as soon as its cores are, and is a
// lower bound. Otherwise splits that lose much memory would be tried one by one.
//
// pages.go has the case that needs it; mix 152 of the tests costs 1605 instead of 1406 without it.

type spill struct {
	clean  int
	dirty  []int
	simple bool // no other pool in these caches
}

func (m *model) findDirty() {
	m.spills = make([]spill, len(m.pools))
	for k := range m.pools {
		q := &m.spills[k]
		q.simple = len(m.comps[m.pools[k].comp].pools) == 1
		for _, c := range m.pools[k].cells {
			size := len(m.cells[c].cores)
			if l := m.cells[c].l3; l >= 0 && m.l3s[l].tenant {
				q.dirty = append(q.dirty, size)
			} else {
				q.clean += size
			}
		}
		slices.SortFunc(q.dirty, largestFirst)
	}
}

func (m *model) sharesL3(pl, n int) int64 {
	q := &m.spills[pl]
	if !q.simple {
		return 0
	}
	shares := int64(0)
	n -= q.clean
	for _, size := range q.dirty {
		if n <= 0 {
			break
		}
		n -= size
		shares++
	}
	return shares
}

// prepareSpill finds how many cores of each NUMA node can have local memory. If x of a lab node's cores are on a NUMA
// node, x/cores of its pages are due there; pages that do not fit pay for balance.
func (e *enumerator) prepareSpill() {
	e.perCore = 0
	if e.r.alone == nil {
		return
	}
	pages, cores := e.r.pages, int64(e.r.cores)
	e.perCore = scale * (pages / cores) * e.r.w.MemoryBalance
	for n := range e.perNode {
		q := &e.perNode[n]
		q.local = q.room
		if node := &e.s.m.nodes[n]; node.limited && e.perCore > 0 {
			q.local = min(q.room, int(min(node.pages/(pages/cores), cores))+1)
		}
	}
}

// spilled returns the minimum cost of memory and L3 caches of the cores given so far, which paid does not include.
// Shares are rounded as in plan.Shares.
func (e *enumerator) spilled() int64 {
	m := e.s.m
	var sum int64
	if w := m.p.Weights.L3Shared; e.caches && w > 0 {
		for _, pc := range e.c.cores {
			sum += scale * w * m.sharesL3(pc.pool, pc.n)
		}
	}
	if e.r.alone == nil {
		return sum
	}
	pages, total := e.r.pages, int64(e.r.cores)
	for k := 0; k < len(e.c.cores); {
		node, cores := m.pools[e.c.cores[k].pool].node, int64(0)
		for ; k < len(e.c.cores) && m.pools[e.c.cores[k].pool].node == node; k++ {
			cores += int64(e.c.cores[k].n)
		}
		if q := &m.nodes[node]; q.limited {
			share := pages/total*cores + pages%total*cores/total
			sum += scale * e.r.w.MemoryBalance * max(0, share-q.pages)
		}
	}
	return sum
}
