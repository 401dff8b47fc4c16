package search

import (
	"cmp"
	"slices"
)

// The cost of a lab node's memory alone on the host is a lower bound on its cost beside others. Two bounds are
// combined: pageCost is per core, and request.alone and aloneSpan are the cost of the whole memory. A lab node with x
// cores on a NUMA node is due x/cores of its pages there, rounded down. Each due page is either there or missing, at
// the weight of balance.
//
// The cases that need all this: mixes 41, 141, 152, 178, 198, 205 and 274 of the tests, on machines of several NUMA
// nodes with little memory. request.alone, together with spill.go, is needed by mix 53, on a machine of eight NUMA
// nodes ("milan-nps4"): without both, its bound stays at 100 while the cost is 300.

// pageCost is in units of 1/scale.
type pageCost struct {
	core  []int64
	least int64
}

func (m *model) priceMemory() {
	if !m.limited {
		return
	}
	var caps []int64 // pages of all nodes, descending
	nearest := infinite
	for a := range m.nodes {
		pages := int64(1 << 50)
		if m.nodes[a].limited {
			pages = m.nodes[a].pages
		}
		caps = append(caps, pages)
		for b := range m.nodes {
			if a != b {
				nearest = min(nearest, m.far(a, b))
			}
		}
	}
	nearest = finite(nearest)
	slices.SortFunc(caps, largestFirst)
	for i := range m.requests {
		r := &m.requests[i]
		if r.rep != i {
			same := &m.requests[r.rep]
			r.alone, r.aloneSpan, r.memory = same.alone, same.aloneSpan, same.memory
			continue
		}
		if r.pages <= caps[len(caps)-1] && !m.oddLocal {
			continue // it fits on any node
		}
		for a := range m.nodes {
			r.alone = append(r.alone, m.memoryAt(r, a))
		}
		r.aloneSpan = make([]int64, len(m.nodes)+1)
		if m.oddLocal {
			continue
		}
		left := r.pages
		for k := range r.aloneSpan {
			// If pages are shared among k nodes, rounding leaves over fewer than k.
			r.aloneSpan[k] = max(0, left-max(0, int64(k)-1))*r.w.MemoryBalance + left*nearest*r.w.MemoryDistance
			if k < len(caps) {
				left -= min(left, caps[k])
			}
		}
		if c := m.pagesOf(r); slices.Max(c.core) > 0 || slices.Max(r.alone) > 0 {
			r.memory = c
		}
	}
}

// pagesOf returns the memory cost of each core. It is 0 unless the core's node has no memory.
func (m *model) pagesOf(r *request) *pageCost {
	c := &pageCost{core: make([]int64, len(m.nodes))}
	empty := func(b int) bool { return m.nodes[b].limited && m.nodes[b].pages == 0 }
	// A core on a node without memory has its pages on another one. They are missing from its share, and at least as
	// far as the core nearest to any memory.
	away := infinite
	for b := range m.nodes {
		if !empty(b) {
			away = min(away, scale*r.w.MemoryDistance*m.nearestCore(b))
		}
	}
	away = finite(away) // without any memory there is no placement with pages
	for b := range m.nodes {
		if empty(b) {
			c.core[b] = r.pages / int64(r.cores) * (away + scale*r.w.MemoryBalance)
		}
	}
	c.least = r.pages % int64(r.cores) * away
	return c
}

func (m *model) nearestCore(b int) int64 {
	least := infinite
	for a := range m.nodes {
		if m.nodes[a].free > 0 {
			least = min(least, m.far(a, b))
		}
	}
	return finite(least)
}

// memoryAt returns the least cost of the memory alone with all cores on NUMA node a.
func (m *model) memoryAt(r *request, a int) int64 {
	price := func(b int) int64 {
		c := m.far(a, b) * r.w.MemoryDistance
		if b != a {
			c += r.w.MemoryBalance
		}
		return c
	}
	var sum int64
	left := r.pages
	for _, b := range m.orderedNodes(func(x, y int) int { return cmp.Compare(price(x), price(y)) }) {
		give := left
		if m.nodes[b].limited {
			give = min(left, m.nodes[b].pages)
		}
		sum += give * price(b)
		left -= give
	}
	return sum
}

// nodeCost returns the cost of cores on a NUMA node before devices are picked. Only a relaxed run includes memory: the
// cost of a yielded column must be exact, and memory is computed for all lab nodes together (flow.go).
func (e *enumerator) nodeCost(n int) nodeCost {
	q := nodeCost{core: e.price.node[n]}
	if e.r.alone != nil {
		q.only = scale * e.r.alone[n]
	}
	if e.r.memory == nil {
		return q
	}
	if e.relaxed {
		q.folded = e.r.memory.core[n]
		q.core += q.folded
		q.only = max(0, q.only-int64(e.r.cores)*q.folded)
	} else {
		q.memory = e.r.memory.core[n]
	}
	return q
}
