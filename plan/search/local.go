package search

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// A good placement makes the tree smaller, and it is the result of a stopped search. The cases that need the local
// search: mixes 4, 9, 12 and 28 of the tests cost up to ten percent more without it.

// greedy places the lab nodes one by one, each at its least cost beside the earlier ones. One that does not fit goes
// first in the next attempt.
func (t *tree) greedy() {
	order := slices.Clone(t.order)
	for range order {
		placed, _ := t.try(order)
		if placed == 0 || placed == len(order) || t.work.stopped != "" {
			return
		}
		moveToFront(order, placed)
	}
}

const (
	againRounds = 2
	againSteps  = 10_000 // for each column
)

// greedyAgain places first the lab nodes with the largest cost above their cost alone: the squeaky wheel method (Joslin
// and Clements 1999). In one of the mixes of plan/planbench small lab nodes took the GPUs of a package that a lab node
// with four GPUs needs: 17776 instead of 19476.
func (t *tree) greedyAgain() {
	if t.best == nil || !t.different() {
		return
	}
	t.oracle = againSteps
	defer func() { t.oracle = 0 }()
	regret := make([]int64, len(t.m.requests)) // sum over all rounds, scaled
	order, last := t.order, t.best
	for round := 0; round < againRounds && t.work.stopped == "" && !t.proved(); round++ {
		for i, c := range last {
			regret[i] += scale*c.own + t.price.charge(t.m, c) - t.least[i].reduced
		}
		next := slices.Clone(t.order)
		slices.SortStableFunc(next, func(i, j int) int { return cmp.Compare(regret[j], regret[i]) })
		if slices.Equal(next, order) {
			return
		}
		order = next
		var placed int
		if placed, last = t.try(order); placed < len(order) {
			return
		}
	}
}

func (t *tree) try(order []int) (placed int, at []*column) {
	placed = t.placeAll(order, t.insert)
	if placed == len(order) {
		t.offer()
	}
	at = slices.Clone(t.s.at)
	t.removeAll(order[:placed])
	return placed, at
}

// insert returns lab node i's cheapest column beside the placed ones, or nil if it does not fit.
func (t *tree) insert(i int) *column {
	best := t.insertion(i)
	if best != nil {
		best.charge = t.price.charge(t.m, best)
	}
	return best
}

func (t *tree) insertion(i int) *column {
	e := t.enum(0)
	t.steerPorts()
	low := t.least[i].reduced
	if len(t.order) > 1 {
		low = t.cheapestOf(i, t.steer, infinite, e).reduced
	}
	if low == infinite {
		return nil
	}
	base := scale * t.s.cost()
	end := t.work.budget(cmp.Or(t.oracle, oracleSteps))
	best, cost := t.dive(i, t.steer, base+low, e)
	end()
	if best != nil && (len(t.order) == 1 || cost-base <= low) {
		return best
	}
	// The usual results cost the bound, or a span more.
	for _, limit := range []int64{low + 1, low + scale*t.m.p.Weights.NUMASpan + 1, infinite} {
		e.basic, e.breakSymmetry, e.relaxed = true, true, false
		end := t.work.budget(cmp.Or(t.oracle, oracleSteps))
		e.run(i, t.steer, min(limit, cost-base), func(c *column, _ int64) bool {
			if !t.s.fits(i, c) {
				return false
			}
			t.s.place(i, c)
			if now := scale * t.s.cost(); now < cost {
				best, cost = best.set(c), now
				e.limit = min(e.limit, cost-base)
			}
			t.s.remove(i)
			return cost-base <= low // no column can be cheaper
		})
		end()
		if best != nil && cost-base <= limit {
			break // all skipped columns cost more
		}
	}
	return best
}

// steerPorts sets the prices of NICs and cards to the known cost to their present users, which steers better than the
// relaxation's prices.
func (t *tree) steerPorts() {
	for d := range t.m.devices {
		t.steer.nic[d] = 2 * scale * t.m.p.Weights.NICShared * int64(t.s.users[d])
		t.steer.card[d] = 2 * scale * t.m.p.Weights.CardShared * int64(t.s.cardUsers[d])
	}
}

// A large neighbourhood search removes two or three lab nodes and places them again.
const (
	pairSteps     = 5_000_000 // for pairs
	tripleSteps   = 3_000_000 // for triples
	manySteps     = 9_000_000
	reinsertSteps = 20_000 // for one pair or triple
)

// improveTriples places three lab nodes again, in a fixed pseudorandom order. They can improve if no pair can: mixes
// 12, 28, 131, 201 and 298 of the tests cost up to 16 percent more without it.
func (t *tree) improveTriples() {
	n := len(t.order)
	if n < 4 || t.best == nil {
		return
	}
	until := t.work.steps + tripleSteps
	if n > tinyNodes {
		until += manySteps
	}
	draw := newDraw()
	for t.work.steps < until && t.work.stopped == "" && !t.proved() {
		who := []int{draw(n)}
		var near []int
		if draw(2) == 0 {
			near = t.neighbours(t.order[who[0]], draw)
		}
		for range 2 {
			k := draw(n)
			if len(near) > 0 {
				k = near[draw(len(near))]
			}
			who = lists.Add(who, k)
		}
		if len(who) < 3 {
			t.work.add(1)
			continue
		}
		slices.Sort(who)
		for k := range who {
			who[k] = t.order[who[k]]
		}
		t.reoptimise(who...)
	}
}

// neighbours are on a NUMA node of lab node i, in the best placement or in its cheapest column alone.
func (t *tree) neighbours(i int, draw func(int) int) []int {
	c := t.best[i]
	if l := t.least[i].column; l != nil && draw(2) == 0 {
		c = l
	}
	if len(c.cores) == 0 {
		return nil
	}
	at := t.m.pools[c.cores[draw(len(c.cores))].pool].node
	return lists.Where(t.order, func(j int) bool { return j != i && t.isAt(t.best[j], at) })
}

func (t *tree) isAt(c *column, node int) bool {
	if slices.Contains(t.m.nodesOf(c), node) {
		return true
	}
	for d := range c.whole {
		if t.m.devices[d].home == node {
			return true
		}
	}
	return slices.ContainsFunc(c.vfs, func(v plan.VFCount) bool { return t.m.devices[v.Device].home == node })
}

// newDraw returns a generator of numbers below n, always with the same sequence.
func newDraw() func(n int) int {
	x := uint64(1)
	return func(n int) int {
		x = x*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		return int(x >> 33 % uint64(n))
	}
}

// improvePairs goes on until no pair helps.
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

func (t *tree) reoptimise(who ...int) bool {
	before := t.cost
	var others []int
	for _, i := range t.order {
		if !slices.Contains(who, i) {
			others = append(others, i)
			t.best[i].charge = t.price.charge(t.m, t.best[i])
			t.s.place(i, t.best[i])
		}
	}
	fixed := t.best
	t.best = nil
	end := t.work.budget(reinsertSteps)
	t.basic = true
	t.search(who)
	t.basic = false
	end()
	if t.best == nil {
		t.best = fixed
	}
	t.removeAll(others)
	return t.cost < before
}
