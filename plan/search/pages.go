package search

import (
	"cmp"
	"slices"
)

// Pages of a NUMA node can have a price as well. A lab node with x cores on a node is due x/cores
// of its pages there, rounded down; each of them is there and pays the node's price, or is missed,
// which costs the weight of balance, and pays the price of wherever it is. So memory costs at least
// so much a core, and that adds to what cores cost.

// pageCost is what the memory of a lab node costs at least, at given prices of pages, in parts of 1/scale.
type pageCost struct {
	core   []int64 // by NUMA node: for each core there
	single []int64 // by NUMA node: in all, with all cores there
	least  int64   // what pages that are due nowhere pay, in all
}

// memoryCounts reports whether memory can cost anything at all.
func (m *model) memoryCounts() bool { return m.limited && !m.oddLocal }

// pagesOf works out what request r's memory costs at prices of pages; nil prices are all 0.
func (m *model) pagesOf(r *request, price []int64) *pageCost {
	n := len(m.nodes)
	c := &pageCost{core: make([]int64, n), single: make([]int64, n)}
	of := func(b int) int64 {
		if price == nil {
			return 0
		}
		return price[b]
	}
	away := infinite
	for b := range m.nodes {
		if q := &m.nodes[b]; !q.limited || q.pages > 0 {
			away = min(away, of(b)+scale*r.w.MemoryDistance*m.nearestCore(b))
		}
	}
	if away == infinite {
		away = 0 // no memory at all: such a problem has no placement with pages
	}
	due := r.pages / int64(r.cores)
	for b := range m.nodes {
		each := away + scale*r.w.MemoryBalance
		if q := &m.nodes[b]; !q.limited || q.pages > 0 {
			each = min(each, of(b))
		}
		c.core[b] = due * each
	}
	c.least = r.pages % int64(r.cores) * away
	order := make([]int, n)
	for a := range m.nodes {
		each := func(b int) int64 {
			sum := scale*m.dist[a*n+b]*r.w.MemoryDistance + of(b)
			if b != a {
				sum += scale * r.w.MemoryBalance
			}
			return sum
		}
		for b := range order {
			order[b] = b
		}
		slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(each(x), each(y)) })
		left := r.pages
		for _, b := range order {
			give := left
			if m.nodes[b].limited {
				give = min(left, m.nodes[b].pages)
			}
			c.single[a] += give * each(b)
			left -= give
		}
	}
	return c
}

// nearestCore returns the distance of a NUMA node's memory to the nearest core that anybody may have.
func (m *model) nearestCore(b int) int64 {
	least := int64(-1)
	for a := range m.nodes {
		if d := m.dist[a*len(m.nodes)+b]; m.nodes[a].free > 0 && (least < 0 || d < least) {
			least = d
		}
	}
	return max(0, least)
}

// nodeCost returns what cores on a NUMA node cost before there are devices. A config that is
// yielded has to pay in full what it is counted with, and that is worked out for all lab nodes
// together; so only a relaxed run counts memory as a part of cores.
func (e *enumerator) nodeCost(n int) nodeCost {
	q := nodeCost{core: e.price.node[n]}
	switch {
	case e.memory == nil:
		if e.r.alone != nil {
			q.only = scale * e.r.alone[n]
		}
	case e.relaxed:
		q.folded = e.memory.core[n]
		q.core += q.folded
		q.only = max(0, e.memory.single[n]-int64(e.r.cores)*q.folded)
	default:
		q.memory = e.memory.core[n]
		q.only = e.memory.single[n]
	}
	return q
}

// tollPages works out what memory costs at the present prices of pages.
func (p *prices) tollPages(m *model) {
	p.pages = nil
	if p.page == nil {
		return
	}
	p.pages = make([]*pageCost, len(m.requests))
	for i := range m.requests {
		if i > 0 && m.requests[i-1].swap == m.requests[i].swap {
			p.pages[i] = p.pages[i-1]
			continue
		}
		p.pages[i] = m.pagesOf(&m.requests[i], p.page)
	}
}

// usePages adds the pages that a config uses in the relaxation at these prices.
func (m *model) usePages(r *request, c *config, price, used []int64) {
	best, away := -1, int64(0)
	for b := range m.nodes {
		if q := &m.nodes[b]; !q.limited || q.pages > 0 {
			if p := price[b] + scale*r.w.MemoryDistance*m.nearestCore(b); best < 0 || p < away {
				best, away = b, p
			}
		}
	}
	if best < 0 {
		return
	}
	due := r.pages / int64(r.cores)
	for _, pc := range c.cores {
		b := m.places[pc.place].node
		pages := due * int64(pc.n)
		if q := &m.nodes[b]; q.limited && q.pages == 0 || price[b] > away+scale*r.w.MemoryBalance {
			b = best
		}
		used[b] += pages
	}
}

// climbPages looks for prices of pages and for others that go with them. The root bound keeps what
// they prove; the tree works out memory as it goes and needs none of them.
func (t *tree) climbPages() {
	m := t.m
	if !m.memoryCounts() || t.proved() || t.best == nil || t.memoryOfBest() == 0 || !m.pagesInRange() {
		return
	}
	old, oldLeast := t.price, slices.Clone(t.least)
	t.price = old.clone()
	t.price.page = make([]int64, len(m.nodes))
	t.settle()
	t.climb()
	t.root = max(t.root, t.equalise(equalSteps))
	t.price = old
	t.settle()
	copy(t.least, oldLeast)
}

// memoryOfBest returns what the memory of the best placement costs.
func (t *tree) memoryOfBest() int64 {
	for _, i := range t.order {
		t.s.place(i, t.best[i])
	}
	cost := t.s.memory
	for k := len(t.order) - 1; k >= 0; k-- {
		t.s.remove(t.order[k])
	}
	return cost
}

// costsMemory finds what each lab node's memory costs at least before anything has a price.
func (m *model) costsMemory() {
	if !m.memoryCounts() {
		return
	}
	for i := range m.requests {
		r := &m.requests[i]
		if i > 0 && m.requests[i-1].swap == r.swap {
			r.memory = m.requests[i-1].memory
			continue
		}
		c := m.pagesOf(r, nil)
		if slices.Max(c.core) > 0 || slices.Max(c.single) > 0 {
			r.memory = c
		}
	}
}

// dearestPage returns a price that no page is worth more than.
func (m *model) dearestPage() int64 {
	var far, most int64
	for _, d := range m.dist {
		far = max(far, d)
	}
	for i := range m.requests {
		most = max(most, m.requests[i].w.MemoryBalance+far*m.requests[i].w.MemoryDistance)
	}
	return most * scale
}

// pagesInRange reports whether sums with prices of pages stay in the range of an int64.
func (m *model) pagesInRange() bool {
	var pages float64
	for i := range m.requests {
		pages += float64(m.requests[i].pages)
	}
	return pages*float64(m.dearestPage())*float64(len(m.nodes)) < 1<<58
}

// pagesPerCore returns how many pages go with a core on average, 1 at least.
func (m *model) pagesPerCore() int64 {
	var pages int64
	for i := range m.requests {
		pages += m.requests[i].pages / int64(m.requests[i].cores)
	}
	return max(1, pages/int64(len(m.requests)))
}
