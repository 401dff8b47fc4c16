package search

import (
	"cmp"
	"slices"
)

// What memory costs a lab node were it alone on the host bounds what it costs beside others. Two
// bounds go together: pageCost says what each core adds, wherever it is, and in all with all cores
// on one NUMA node; request.alone and aloneSpan say the same in all, by NUMA node and by how many of
// them have cores. A lab node with x cores on a NUMA node is due x/cores of its pages there, rounded
// down; each of them is there, or is missed, which costs the weight of balance.
//
// The case that needs request.alone, together with spill.go: mix 53 of the tests, on a machine of
// eight NUMA nodes ("milan-nps4"). Without both, its bound stays at 100 where the cost is 300.

// pageCost is what the memory of a lab node costs at least, in parts of 1/scale.
type pageCost struct {
	core   []int64 // by NUMA node: for each core there
	single []int64 // by NUMA node: in all, with all cores there
	least  int64   // what pages that are due nowhere pay, in all
}

// memoryCounts reports whether memory can cost anything at all.
func (m *model) memoryCounts() bool { return m.limited && !m.oddLocal }

// pagesOf works out what the memory of request r costs.
func (m *model) pagesOf(r *request) *pageCost {
	c := &pageCost{core: make([]int64, len(m.nodes)), single: make([]int64, len(m.nodes))}
	empty := func(b int) bool { return m.nodes[b].limited && m.nodes[b].pages == 0 }
	away := infinite
	for b := range m.nodes {
		if !empty(b) {
			away = min(away, scale*r.w.MemoryDistance*m.nearestCore(b))
		}
	}
	if away == infinite {
		away = 0 // no memory at all: such a problem has no placement with pages
	}
	for b := range m.nodes {
		if empty(b) {
			c.core[b] = r.pages / int64(r.cores) * (away + scale*r.w.MemoryBalance)
		}
		c.single[b] = scale * m.memoryAt(r, b)
	}
	c.least = r.pages % int64(r.cores) * away
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

// nodeCost returns what cores on a NUMA node cost before there are devices. A column that is
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

// costsMemory finds what each lab node's memory costs at least.
func (m *model) costsMemory() {
	if !m.memoryCounts() {
		return
	}
	for i := range m.requests {
		r := &m.requests[i]
		if i > 0 && m.requests[i-1].rep == r.rep {
			r.memory = m.requests[i-1].memory
			continue
		}
		c := m.pagesOf(r)
		if slices.Max(c.core) > 0 || slices.Max(c.single) > 0 {
			r.memory = c
		}
	}
}

// priceMemory finds what each lab node's memory costs at least were it alone on the host: where its
// cores are on one NUMA node exactly, where they are on several by how many pages can be next to
// them.
func (m *model) priceMemory() {
	if !m.limited {
		return
	}
	n := len(m.nodes)
	var caps []int64
	nearest := int64(-1)
	for a := range n {
		q := &m.nodes[a]
		if !q.limited {
			caps = append(caps, 1<<50)
		} else {
			caps = append(caps, q.pages)
		}
		for b := range n {
			if d := m.dist[a*n+b]; a != b && (nearest < 0 || d < nearest) {
				nearest = d
			}
		}
	}
	slices.SortFunc(caps, func(a, b int64) int { return cmp.Compare(b, a) })
	for i := range m.requests {
		r := &m.requests[i]
		if i > 0 && m.requests[i-1].rep == r.rep {
			r.alone, r.aloneSpan = m.requests[i-1].alone, m.requests[i-1].aloneSpan
			continue
		}
		if r.pages <= caps[n-1] && !m.oddLocal {
			continue
		}
		r.alone = make([]int64, n)
		for a := range n {
			r.alone[a] = m.memoryAt(r, a)
		}
		r.aloneSpan = make([]int64, n+1)
		left := r.pages
		for k := range n + 1 {
			// Of pages that are shared among k nodes, fewer than k are nobody's share.
			r.aloneSpan[k] = max(0, left-max(0, int64(k)-1))*r.w.MemoryBalance + left*max(0, nearest)*r.w.MemoryDistance
			if m.oddLocal {
				r.aloneSpan[k] = 0
			}
			if k < n {
				left -= min(left, caps[k])
			}
		}
	}
}

// memoryAt returns the least cost of a lab node's memory with all its cores on NUMA node a and nobody else there.
func (m *model) memoryAt(r *request, a int) int64 {
	n := len(m.nodes)
	order := make([]int, n)
	for b := range order {
		order[b] = b
	}
	price := func(b int) int64 {
		c := m.dist[a*n+b] * r.w.MemoryDistance
		if b != a {
			c += r.w.MemoryBalance
		}
		return c
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Compare(price(x), price(y)) })
	var sum int64
	left := r.pages
	for _, b := range order {
		give := left
		if m.nodes[b].limited {
			give = min(left, m.nodes[b].pages)
		}
		sum += give * price(b)
		left -= give
	}
	return sum
}
