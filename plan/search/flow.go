package search

// A flow spreads the memory of the placed lab nodes over the NUMA nodes at least cost: a
// transportation problem with two arcs from each lab node to each NUMA node. The first carries up
// to the lab node's share there and costs the distance to the nearest of its cores; the second
// carries the rest and costs the weight of imbalance on top. Successive shortest paths solve it
// exactly, since a page is the unit.
type flow struct {
	s     *state
	who   []int   // lab nodes
	near  []int64 // of lab node k and NUMA node n at k*N+n: cost of a page within its share
	limit []int64 // the share
	in    []int64 // pages within the share
	over  []int64 // pages beyond it
	used  []int64 // pages on each NUMA node
	left  []int64 // pages of each lab node that lie nowhere yet

	cost    []int64 // of the shortest path to a vertex: lab nodes first, then NUMA nodes; -1 where there is none
	reached []bool
	from    []int
	queue   []int
	queued  []bool
}

func newFlow(s *state) *flow { return &flow{s: s} }

// solve returns the least cost of the memory of all placed lab nodes.
func (f *flow) solve() int64 {
	f.load()
	n := len(f.s.m.nodes)
	for k := range f.who {
		for f.left[k] > 0 {
			if !f.augment(k) {
				break
			}
		}
	}
	var sum int64
	for k, i := range f.who {
		// Pages that are nobody's share lie beyond one wherever they are: that is the same for
		// every placement, and costs nothing.
		beyond := -f.s.m.requests[i].pages
		for b := range n {
			x := k*n + b
			sum += f.near[x] * (f.in[x] + f.over[x])
			beyond += f.limit[x] + f.over[x]
		}
		sum += max(0, beyond) * f.s.m.requests[i].w.MemoryBalance
	}
	return sum
}

// load sets the problem up and puts what costs nothing in place.
func (f *flow) load() {
	s := f.s
	m := s.m
	n := len(m.nodes)
	f.who = f.who[:0]
	for i, c := range s.at {
		if c != nil {
			f.who = append(f.who, i)
		}
	}
	size := len(f.who) * n
	f.near, f.limit, f.in, f.over = zero(f.near, size), zero(f.limit, size), zero(f.in, size), zero(f.over, size)
	f.used, f.left = zero(f.used, n), zero(f.left, len(f.who))
	for k, i := range f.who {
		c := s.at[i]
		f.left[k] = m.requests[i].pages
		for b := range n {
			var least int64 = -1
			for _, pc := range c.cores {
				if d := m.dist[m.pools[pc.pool].node*n+b]; least < 0 || d < least {
					least = d
				}
			}
			f.near[k*n+b] = least * m.requests[i].w.MemoryDistance
		}
		for _, x := range s.sharesOf(i, c) {
			at := k*n + x.node
			f.limit[at] = x.whole
			if f.near[at] == 0 {
				give := min(x.whole, f.room(x.node))
				f.in[at] = give
				f.used[x.node] += give
				f.left[k] -= give
			}
		}
		s.work.addHard(int64(n))
	}
}

// room returns how many pages a NUMA node can still take.
func (f *flow) room(b int) int64 {
	q := &f.s.m.nodes[b]
	if !q.limited {
		return 1 << 62
	}
	return q.pages - f.used[b]
}

// augment moves pages of lab node k along the cheapest path to a NUMA node with room, pushing
// others' pages aside where that is cheaper.
func (f *flow) augment(k int) bool {
	m := f.s.m
	n, labs := len(m.nodes), len(f.who)
	f.cost, f.from = zero(f.cost, labs+n), zero(f.from, labs+n)
	f.reached, f.queued = zero(f.reached, labs+n), zero(f.queued, labs+n)
	f.queue = append(f.queue[:0], k)
	f.reached[k], f.queued[k] = true, true
	f.from[k] = -1
	relax := func(v, by int, cost int64) {
		if f.reached[v] && cost >= f.cost[v] {
			return
		}
		f.reached[v], f.cost[v], f.from[v] = true, cost, by
		if !f.queued[v] {
			f.queued[v] = true
			f.queue = append(f.queue, v)
		}
	}
	for head := 0; head < len(f.queue); head++ {
		v := f.queue[head]
		f.queued[v] = false
		if f.s.work.addHard(int64(n)/8 + 1) {
			return false
		}
		if v < labs {
			for b := range n {
				if q := &m.nodes[b]; q.limited && q.pages == 0 {
					continue
				}
				relax(labs+b, v, f.cost[v]+f.forward(v, b))
			}
			continue
		}
		b := v - labs
		for j := range labs {
			if x := j*n + b; f.in[x]+f.over[x] > 0 {
				relax(j, v, f.cost[v]-f.refund(j, b))
			}
		}
	}
	best := -1
	for b := range n {
		if v := labs + b; f.reached[v] && f.room(b) > 0 && (best < 0 || f.cost[v] < f.cost[best]) {
			best = v
		}
	}
	if best < 0 {
		return false
	}
	// The path ends at best; from there back to k, the narrowest step decides how much goes.
	amount := min(f.left[k], f.room(best-labs))
	for v := best; f.from[v] >= 0; v = f.from[v] {
		u := f.from[v]
		if u < labs {
			if x := u*n + v - labs; f.in[x] < f.limit[x] {
				amount = min(amount, f.limit[x]-f.in[x])
			}
		} else if x := v*n + u - labs; f.over[x] > 0 {
			amount = min(amount, f.over[x])
		} else {
			amount = min(amount, f.in[x])
		}
	}
	for v := best; f.from[v] >= 0; v = f.from[v] {
		u := f.from[v]
		if u < labs {
			if x := u*n + v - labs; f.in[x] < f.limit[x] {
				f.in[x] += amount
			} else {
				f.over[x] += amount
			}
		} else if x := v*n + u - labs; f.over[x] > 0 {
			f.over[x] -= amount
		} else {
			f.in[x] -= amount
		}
	}
	f.used[best-labs] += amount
	f.left[k] -= amount
	return true
}

// forward is the cost of one more page of lab node k on NUMA node b, refund what one less saves.
func (f *flow) forward(k, b int) int64 {
	x := k*len(f.s.m.nodes) + b
	if f.in[x] < f.limit[x] {
		return f.near[x]
	}
	return f.near[x] + f.s.m.requests[f.who[k]].w.MemoryBalance
}

func (f *flow) refund(k, b int) int64 {
	x := k*len(f.s.m.nodes) + b
	if f.over[x] > 0 {
		return f.near[x] + f.s.m.requests[f.who[k]].w.MemoryBalance
	}
	return f.near[x]
}

// zero returns a slice of n zeros, in s's memory where that is large enough.
func zero[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
