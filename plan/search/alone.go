package search

import (
	"cmp"
	"slices"
)

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
		if i > 0 && m.requests[i-1].swap == r.swap {
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
