package search

import (
	"cmp"
	"slices"
)

// The case that needs this search: largeUnequal of the tests, 64 lab nodes of eleven sizes. With it the
// search proves 4000; without it the best placement found costs 4400.
//
// The linear program takes parts of patterns; a placement takes whole ones. Each pattern loses
// something against the one that gains most in its bin, and in a placement that is cheaper than
// the best one all losses together are below the slack. So few patterns come into question, and a
// search finds sets of them that hold all lab nodes.

// A candidate is a pattern of a group that comes into question.
type candidate struct {
	group, pattern int
	loss           int64
	amount         float64 // in the solution
	cores          int
	sizes          []sizeCount
}

type sizeCount struct{ size, n int }

// A rounding is the search.
type rounding struct {
	*master
	candidates [][]candidate // by their largest size, best first
	left       []int         // lab nodes by size
	free       []int         // bins by group
	cores      int           // of the lab nodes that are left
	room       int           // of the bins that are free
	taken      []candidate
	margin     int64 // what losses may come to
	limit      int64 // what they may come to now
	tries      int
}

const (
	// roundTries bounds how many placements are made, roundSearch the search for each of two limits.
	roundTries  = 8
	roundSearch = 1_000_000
	// maxChoices bounds the patterns that come into question.
	maxCandidates = 20_000
)

// round looks for whole patterns that make a cheaper placement.
func (p *master) round() {
	q := &rounding{master: p, candidates: make([][]candidate, len(p.sizes)), left: make([]int, len(p.sizes))}
	q.margin = p.slack - scale*p.fine/2 // costs are whole
	for c, members := range p.classes {
		if s := p.sizeOf[c]; s >= 0 {
			q.left[s] += len(members)
			q.cores += len(members) * p.sizes[s]
		}
	}
	count := 0
	for g, members := range p.groups {
		q.free = append(q.free, len(members))
		q.room += len(members) * p.bins[members[0]].room
		count += q.findCandidates(g)
		if count > maxCandidates {
			return
		}
	}
	for _, list := range q.candidates {
		slices.SortStableFunc(list, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(a.loss, b.loss), cmp.Compare(b.amount, a.amount), cmp.Compare(b.cores, a.cores))
		})
	}
	// First only what would be as cheap as the bound: that is little, so that the search goes far.
	beyond := (p.t.cost - p.t.root - 1) * scale * p.fine
	for _, limit := range []int64{q.margin - beyond, q.margin} {
		q.limit = min(limit, q.margin)
		end := p.t.work.budget(roundSearch)
		q.next(0)
		end()
		if p.t.proved() {
			break
		}
	}
}

// findCandidates lists the patterns of a group that come into question, and returns how many there are.
func (q *rounding) findCandidates(g int) int {
	u := &q.bins[q.groups[g][0]]
	list := u.table.list
	best, ranks := q.bestPattern(u)
	full := q.ranks(u, true)
	count := 0
	for x := 1; x < len(list); x++ {
		c := candidate{group: g, pattern: x, loss: q.gains[best] - q.gains[x]}
		if c.loss > q.margin {
			continue
		}
		whole, who := true, ranks
		if list[x].full {
			who = full
		}
		for y := x; y > 0 && whole; y = list[y].parent {
			z := &list[y]
			whole = who[z.size][z.nth-1].class >= 0
			c.cores += q.sizes[z.size]
			if k := len(c.sizes); k > 0 && c.sizes[k-1].size == z.size {
				c.sizes[k-1].n++
			} else {
				c.sizes = append(c.sizes, sizeCount{z.size, 1})
			}
		}
		if !whole {
			continue // of portions
		}
		for r, b := range q.basis {
			if b.group == g && b.pattern == x {
				c.amount = q.amount[r]
			}
		}
		s := c.sizes[len(c.sizes)-1].size
		q.candidates[s] = append(q.candidates[s], c)
		count++
	}
	q.t.work.add(int64(count) * int64(len(q.basis)) / 16)
	return count
}

// next is a depth-first search over sets of patterns. It gives the largest lab node that is left,
// with others, to a bin. It reports whether to stop.
func (q *rounding) next(loss int64) bool {
	t := q.t
	s := slices.IndexFunc(q.left, func(n int) bool { return n > 0 })
	if s < 0 {
		was := t.cost
		q.build()
		q.tries++
		q.margin -= (was - t.cost) * scale * q.fine
		q.limit = min(q.limit, q.margin)
		return t.proved() || q.tries >= roundTries || t.work.add(0)
	}
	if t.work.add(1 + int64(len(q.candidates[s]))/8) {
		return true
	}
	if q.cores > q.room {
		return false
	}
	for k := range q.candidates[s] {
		c := &q.candidates[s][k]
		u := &q.bins[q.groups[c.group][0]]
		if loss+c.loss > q.limit || q.free[c.group] == 0 || slices.ContainsFunc(c.sizes, func(x sizeCount) bool {
			return q.left[x.size] < x.n
		}) {
			continue
		}
		// Only now is the pattern worth packing, which may show that it loses more.
		if c.loss += q.share * int64(q.pack(u, c.pattern)); loss+c.loss > q.limit {
			continue
		}
		q.take(c, u, 1)
		q.taken = append(q.taken, *c)
		stop := q.next(loss + c.loss)
		q.taken = q.taken[:len(q.taken)-1]
		q.take(c, u, -1)
		if stop {
			return true
		}
	}
	return false
}

// take gives what a choice has to a bin, or takes it back with sign -1.
func (q *rounding) take(c *candidate, u *bin, sign int) {
	q.free[c.group] -= sign
	q.room -= sign * u.room
	q.cores -= sign * c.cores
	for _, x := range c.sizes {
		q.left[x.size] -= sign * x.n
	}
}

// build makes a placement of the patterns that are taken, and keeps it if it is the cheapest so
// far. Who fits no bin, or not the one meant, goes wherever there is room.
func (q *rounding) build() {
	t := q.t
	e := t.enum(0)
	var placed []int
	put := func(i int, within, near []bool) bool {
		e.within, e.near = within, near
		c := t.insert(i)
		e.within, e.near = nil, nil
		if c == nil {
			return false
		}
		t.s.place(i, c)
		placed = append(placed, i)
		return true
	}
	used := make([]int, len(q.groups))
	given := make([]int, len(q.classes))
	for _, c := range q.taken {
		u := &q.bins[q.groups[c.group][used[c.group]]]
		used[c.group]++
		here := make([]int, len(q.classes))
		for _, x := range c.sizes {
			for range x.n {
				// A pattern says sizes; which class of that size goes here is what gains most at the duals.
				best, gain := -1, -infinite
				for k, members := range q.classes {
					cost := u.cost(k, here[k])
					if q.sizeOf[k] == x.size && given[k] < len(members) && q.v[k]-cost > gain {
						best, gain = k, q.v[k]-cost
					}
				}
				if best < 0 {
					continue
				}
				i := q.classes[best][given[best]]
				if here[best] < u.local[best] && put(i, u.within, u.within) || put(i, u.within, nil) {
					here[best]++
					given[best]++
				}
			}
		}
	}
	for _, i := range t.order {
		if t.s.at[i] == nil && !put(i, nil, nil) {
			break
		}
	}
	if len(placed) == len(t.order) && t.work.stopped == "" {
		t.offer()
	}
	t.removeAll(placed)
}
