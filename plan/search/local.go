package search

import "slices"

// A good placement makes the tree smaller, and it is all that there is where the search is stopped.
// The cases that need the local search: mixes 4, 9, 12 and 28 of the tests, too large to be proved,
// which cost up to ten percent more without it.

// greedy places the lab nodes one by one, each at what costs least beside those before it. One that
// fits nowhere goes first in the next try.
func (t *tree) greedy() {
	order := slices.Clone(t.order)
	for range order {
		stuck := t.greedyIn(order)
		if stuck <= 0 || t.work.stopped != "" {
			return
		}
		i := order[stuck]
		copy(order[1:stuck+1], order[:stuck])
		order[0] = i
	}
}

// greedyIn places the lab nodes in an order. It returns the position of the first one that does not
// fit, -1 where all do.
func (t *tree) greedyIn(order []int) int {
	stuck := -1
	placed := 0
	for k, i := range order {
		c := t.insert(i)
		if c == nil {
			stuck = k
			break
		}
		t.s.place(i, c)
		placed++
	}
	if stuck < 0 {
		if cost, _ := t.s.leaf(); cost < t.cost && t.work.stopped == "" {
			t.keep(cost)
		}
	}
	for k := placed - 1; k >= 0; k-- {
		t.s.remove(order[k])
	}
	return stuck
}

// insert returns where lab node i costs least beside those that are placed, nil where it fits
// nowhere. It looks among the columns that are as cheap as can be first: else it could lose its
// time with dear ones of the first devices.
func (t *tree) insert(i int) *column {
	e := t.enum(0)
	// What a NIC's other users will suffer is known, and steers better as a price.
	for d := range t.m.devices {
		t.steer.nic[d] = 2 * scale * t.m.p.Weights.NICShared * int64(t.s.users[d])
	}
	low := t.least[i].reduced
	if len(t.order) > 1 {
		low = t.cheapestAt(i, t.steer, infinite, e).reduced
	}
	if low == infinite {
		return nil
	}
	base := scale * t.s.cost()
	t.work.budget(oracleSteps)
	best, cost := t.dive(i, t.steer, base+low, e)
	t.work.endBudget()
	if best != nil && (len(t.order) == 1 || cost-base <= low) {
		best.charge = t.price.charge(t.m, best)
		return best // the tree looks at all the others
	}
	for _, limit := range []int64{low + 1, low + scale*t.m.p.Weights.NUMASpan + 1, infinite} {
		e.basic, e.breakSymmetry, e.relaxed = true, true, false
		t.work.budget(oracleSteps)
		e.run(i, t.steer, min(limit, cost-base), func(c *column, _ int64) bool {
			if !t.s.fits(i, c) {
				return false
			}
			t.s.place(i, c)
			if now := scale * t.s.cost(); now < cost {
				cost = now
				if best == nil {
					best = &column{}
				}
				best.copyFrom(c)
				e.limit = min(e.limit, cost-base)
			}
			t.s.remove(i)
			return cost-base <= low // nothing can be cheaper
		})
		t.work.endBudget()
		if best != nil && cost-base <= limit {
			break // all that were left out cost more
		}
	}
	if best != nil {
		best.charge = t.price.charge(t.m, best)
	}
	return best
}

// tripleSteps bounds what is spent on three at a time.
const tripleSteps = 3_000_000

// shuffle takes three lab nodes off at a time, in an order that is fixed but without a pattern, for
// as long as the work allows.
func (t *tree) improveTriples() {
	n := len(t.order)
	if n < 4 || t.best == nil {
		return
	}
	until := t.work.steps + tripleSteps
	x := uint64(1)
	draw := func() int {
		x = x*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		return int(x >> 33 % uint64(n))
	}
	for t.work.steps < until && t.work.stopped == "" && !t.proved() {
		a, b, c := draw(), draw(), draw()
		if a == b || b == c || a == c {
			t.work.add(1)
			continue
		}
		who := []int{a, b, c}
		slices.Sort(who)
		for k := range who {
			who[k] = t.order[who[k]]
		}
		t.reoptimise(who...)
	}
}

// improve takes a few lab nodes off and places them again as well as possible beside the others, until no pair helps.
func (t *tree) improvePairs() {
	if t.best == nil {
		return
	}
	n := len(t.order)
	until := t.work.steps + pairSteps
	for better := true; better && !t.proved() && t.work.stopped == ""; {
		better = false
		for a := range n {
			for b := range a {
				if t.reoptimise(t.order[b], t.order[a]) {
					better = true
				}
				if t.proved() || t.work.stopped != "" || t.work.steps > until {
					return
				}
			}
		}
	}
}

// pairSteps bounds what is spent on pairs.
const pairSteps = 6_000_000

// roundSteps bounds the work of placing a few lab nodes again.
const roundSteps = 20_000

// again places some lab nodes of the best placement again; it reports whether that helped.
func (t *tree) reoptimise(who ...int) bool {
	before := t.cost
	for _, i := range t.order {
		if !slices.Contains(who, i) {
			t.best[i].charge = t.price.charge(t.m, t.best[i])
			t.s.place(i, t.best[i])
		}
	}
	fixed := t.best
	t.best = nil
	t.work.budget(roundSteps)
	t.basic = true
	t.search(who)
	t.basic = false
	t.work.endBudget()
	if t.best == nil {
		t.best = fixed
	}
	for k := len(t.order) - 1; k >= 0; k-- {
		if i := t.order[k]; !slices.Contains(who, i) {
			t.s.remove(i)
		}
	}
	return t.cost < before
}
