package search

import (
	"cmp"
	"slices"
)

// What the memory of a lab node costs were it alone on the host is a bound of what it costs beside
// others: they can only take pages away. Two bounds go together. pageCost says what each core adds,
// whatever node it is on. request.alone and aloneSpan say what all of the memory costs, by NUMA
// node and by how many nodes have cores. A lab node with x cores on a NUMA node is due x/cores of its
// pages there, rounded down. Each of these pages is there, or is missing, which costs the weight of
// balance.
//
// The cases that need all this: mixes 41, 141, 152, 178, 198, 205 and 274 of the tests, on machines
// of several NUMA nodes with little memory, lose their proofs without it. request.alone, together
// with spill.go, is needed by mix 53, on a machine of eight NUMA nodes ("milan-nps4"): without
// both, its bound stays at 100 where the cost is 300.

// pageCost is what the memory of a lab node costs at least, in parts of 1/scale.
type pageCost struct {
	core  []int64 // by NUMA node: for each core there
	least int64   // what the pages that rounding leaves over pay, in all
}

// priceMemory finds the bounds of all requests.
func (m *model) priceMemory() {
	if !m.limited {
		return
	}
	var caps []int64 // of all nodes, largest first
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
			continue // it fits any node
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
			// Of pages that are shared among k nodes, rounding leaves over fewer than k.
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

// pagesOf returns what each core adds to the cost of memory: nothing, but where its node has no memory at all.
func (m *model) pagesOf(r *request) *pageCost {
	c := &pageCost{core: make([]int64, len(m.nodes))}
	empty := func(b int) bool { return m.nodes[b].limited && m.nodes[b].pages == 0 }
	// A core on a node without memory has its pages on another one: they miss their share, and are
	// as far as the nearest core to any memory at least.
	away := infinite
	for b := range m.nodes {
		if !empty(b) {
			away = min(away, scale*r.w.MemoryDistance*m.nearestCore(b))
		}
	}
	away = finite(away) // no memory at all: such a problem has no placement with pages
	for b := range m.nodes {
		if empty(b) {
			c.core[b] = r.pages / int64(r.cores) * (away + scale*r.w.MemoryBalance)
		}
	}
	c.least = r.pages % int64(r.cores) * away
	return c
}

// nearestCore returns the distance of a NUMA node's memory to the nearest core that a lab node may have.
func (m *model) nearestCore(b int) int64 {
	least := infinite
	for a := range m.nodes {
		if m.nodes[a].free > 0 {
			least = min(least, m.far(a, b))
		}
	}
	return finite(least)
}

// memoryAt returns the least cost of a lab node's memory with all its cores on NUMA node a and
// nobody else there: the cheapest pages first.
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

// nodeCost returns what cores on a NUMA node cost before devices are picked. Only a relaxed run
// counts memory as a part of each core. In others a column that is yielded has to cost exactly what
// it is counted with, and memory is worked out for all lab nodes together (flow.go).
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
