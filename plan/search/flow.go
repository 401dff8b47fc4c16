package search

import (
	"slices"
)

// A flow distributes the memory of the placed lab nodes over the NUMA nodes at least cost, as a transportation problem
// with two arcs from each lab node to each NUMA node. The first carries up to the lab node's share there and costs the
// distance to its nearest core; the second carries the rest and adds the weight of imbalance. Successive shortest paths
// solve it exactly, because a page is the unit.
type flow struct {
	s    *state
	who  []int
	arcs []arcs // lab node k to NUMA node b at k*N+b
	used []int64
	left []int64 // by lab node

	vertices []vertex // lab nodes first, then NUMA nodes
	queue    []int
}

type arcs struct {
	near  int64
	limit int64 // the share
	in    int64 // pages within the share
	over  int64 // pages beyond it
}

type vertex struct {
	cost            int64
	from            int // vertex before it on that path, or -1
	reached, queued bool
}

func newFlow(s *state) *flow { return &flow{s: s} }

func (f *flow) at(k, b int) *arcs { return &f.arcs[k*len(f.used)+b] }

func (f *flow) solve() int64 {
	f.load()
	for k := range f.who {
		for f.left[k] > 0 && f.augment(k) {
		}
	}
	var sum int64
	for k, i := range f.who {
		// Pages in no share are beyond a share wherever they are, and their number is fixed, so they cost nothing.
		r := &f.s.m.requests[i]
		beyond := -r.pages
		for b := range f.used {
			a := f.at(k, b)
			sum += a.near * (a.in + a.over)
			beyond += a.limit + a.over
		}
		sum += max(0, beyond) * r.w.MemoryBalance
	}
	return sum
}

// load places all pages that cost nothing.
func (f *flow) load() {
	s, m := f.s, f.s.m
	n := len(m.nodes)
	f.who = f.who[:0]
	for i, c := range s.at {
		if c != nil {
			f.who = append(f.who, i)
		}
	}
	f.arcs, f.used, f.left = zero(f.arcs, len(f.who)*n), zero(f.used, n), zero(f.left, len(f.who))
	for k, i := range f.who {
		c := s.at[i]
		f.left[k] = m.requests[i].pages
		for b := range n {
			least := infinite
			for _, pc := range c.cores {
				least = min(least, m.far(m.pools[pc.pool].node, b))
			}
			f.at(k, b).near = least * m.requests[i].w.MemoryDistance
		}
		for _, x := range s.sharesOf(i, c) {
			a := f.at(k, x.node)
			a.limit = x.whole
			if a.near == 0 {
				a.in = min(x.whole, f.room(x.node))
				f.used[x.node] += a.in
				f.left[k] -= a.in
			}
		}
		s.work.addHard(int64(n))
	}
}

func (f *flow) room(b int) int64 {
	q := &f.s.m.nodes[b]
	if !q.limited {
		return 1 << 62
	}
	return q.pages - f.used[b]
}

// augment moves pages of lab node k along the cheapest path to a NUMA node with room, displacing others' pages if that
// is cheaper.
func (f *flow) augment(k int) bool {
	best := f.shortestPath(k)
	if best < 0 {
		return false
	}
	node := best - len(f.who)
	amount := min(f.left[k], f.room(node))
	for v := best; f.vertices[v].from >= 0; v = f.vertices[v].from {
		_, _, most := f.step(f.vertices[v].from, v)
		amount = min(amount, most)
	}
	for v := best; f.vertices[v].from >= 0; v = f.vertices[v].from {
		pages, sign, _ := f.step(f.vertices[v].from, v)
		*pages += sign * amount
	}
	f.used[node] += amount
	f.left[k] -= amount
	return true
}

// step returns the page count that a path changes, the sign of the change, and its maximum. Steps from a NUMA node
// first remove the pages beyond the share.
func (f *flow) step(u, v int) (pages *int64, sign, most int64) {
	labs := len(f.who)
	if u < labs {
		a := f.at(u, v-labs)
		if a.in < a.limit {
			return &a.in, 1, a.limit - a.in
		}
		return &a.over, 1, 1 << 62
	}
	a := f.at(v, u-labs)
	if a.over > 0 {
		return &a.over, -1, a.over
	}
	return &a.in, -1, a.in
}

// shortestPath uses Bellman-Ford, because displacing pages may save cost. It returns the vertex of the nearest NUMA
// node with room, or -1.
func (f *flow) shortestPath(k int) int {
	labs := len(f.who)
	f.vertices = zero(f.vertices, labs+len(f.used))
	f.vertices[k] = vertex{from: -1, reached: true, queued: true}
	f.queue = append(f.queue[:0], k)
	relax := func(v, by int, cost int64) {
		q := &f.vertices[v]
		if q.reached && cost >= q.cost {
			return
		}
		if !q.queued {
			f.queue = append(f.queue, v)
		}
		*q = vertex{cost: cost, from: by, reached: true, queued: true}
	}
	for head := 0; head < len(f.queue); head++ {
		v := f.queue[head]
		f.vertices[v].queued = false
		if f.s.work.addHard(int64(len(f.used))/8 + 1) {
			return -1
		}
		cost := f.vertices[v].cost
		if v < labs {
			for b := range f.used {
				if q := &f.s.m.nodes[b]; !q.limited || q.pages > 0 {
					relax(labs+b, v, cost+f.price(v, b, f.at(v, b).in >= f.at(v, b).limit))
				}
			}
			continue
		}
		for j := range labs {
			if a := f.at(j, v-labs); a.in+a.over > 0 {
				relax(j, v, cost-f.price(j, v-labs, a.over > 0))
			}
		}
	}
	best := -1
	for b := range f.used {
		v := labs + b
		if f.vertices[v].reached && f.room(b) > 0 && (best < 0 || f.vertices[v].cost < f.vertices[best].cost) {
			best = v
		}
	}
	return best
}

func (f *flow) price(k, b int, beyond bool) int64 {
	cost := f.at(k, b).near
	if beyond {
		cost += f.s.m.requests[f.who[k]].w.MemoryBalance
	}
	return cost
}

func zero[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}
