package search

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/plan"
)

// A tree is a branch and bound over the lab nodes.
type tree struct {
	m        *model
	s        *state
	work     *meter
	price    *prices
	steer    *prices // prices used by insert
	order    []int   // all lab nodes, hardest first
	least    []leastColumn
	enums    []*enumerator
	depth    []level
	best     []*column
	cost     int64
	root     int64      // proved lower bound
	start    relaxation // state before the subgradient method, see equal.go
	coverAll int64      // proved cost of sharing L3 caches, from cover
	inexact  bool
	oracle   int64 // replaces oracleSteps unless 0
	basic    bool  // try only likely splits of cores
}

// leastColumn is the cheapest column of a lab node alone, prices included.
type leastColumn struct {
	reduced int64
	column  *column // nil if none was found
	cut     bool    // the work ran out, so reduced is only a bound
}

// A level holds the data of one depth of the tree.
type level struct {
	column column
	least  []leastColumn
}

func newTree(m *model, work *meter) *tree {
	t := &tree{m: m, s: newState(m, work), work: work, price: newPrices(m), steer: newPrices(m), cost: infinite / scale}
	for i := range m.requests {
		t.order = append(t.order, i)
	}
	// Hardest first, with interchangeable lab nodes adjacent.
	slices.SortStableFunc(t.order, func(a, b int) int {
		x, y := &m.requests[a], &m.requests[b]
		return cmp.Or(
			cmp.Compare(y.nics, x.nics), // a NIC with virtual functions in use cannot be given whole
			cmp.Compare(y.devices, x.devices), cmp.Compare(y.cores, x.cores), cmp.Compare(x.rep, y.rep))
	})
	t.coverAll = m.cover() * m.p.Weights.L3Shared
	t.enums = []*enumerator{newEnumerator(t.s)}
	t.least = make([]leastColumn, len(m.requests))
	return t
}

// solve returns a proved bound and whether a placement was found. The steps go from cheap to expensive, and the
// search ends as soon as cost and bound meet.
func (t *tree) solve() (int64, bool) {
	t.applyPrices()
	t.quickPlacement()
	if !t.cheapest() {
		return 0, false // some lab node does not fit even alone
	}
	t.root = t.bound(t.least)
	if len(t.order) > 1 {
		t.commonPortPrice()
		t.refine()
	}
	t.greedy()
	t.greedyAgain()
	if t.best == nil && len(t.m.p.DeviceClashes()) > 0 {
		return 0, false // counted late, because most labs have a placement
	}
	if t.proved() {
		return t.cost, true
	}
	if n := len(t.order); n > 1 && n <= tinyNodes {
		t.improvePairs()
		if t.proved() || t.tryAll(tinySteps) {
			return t.cost, t.best != nil
		}
	}
	if t.different() {
		// Prices and exchanges of two or three do not help within their limits.
		t.recreate()
		return min(t.root, t.cost), t.best != nil
	}
	if len(t.order) > 1 {
		// A single lab node has no competitors.
		if t.ascend(); t.proved() {
			return t.cost, true
		}
	}
	t.improvePairs()
	t.exchange()
	if t.proved() {
		return t.cost, true
	}
	// Most trees are small. If this one is not, a better placement makes it smaller. Trees of many lab nodes are
	// large.
	if len(t.order) <= quickLabs/2 && t.tryAll(firstSteps) {
		return t.cost, t.best != nil
	}
	t.improveTriples()
	// Try with increasing limits, because a better placement from exchanges makes the tree smaller.
	for steps := int64(4 * firstSteps); !t.proved() && t.work.stopped == ""; steps *= 4 {
		t.exchange()
		if t.proved() || t.tryAll(steps) {
			return t.cost, t.best != nil
		}
	}
	return min(t.root, t.cost), t.best != nil
}

const (
	// tinySteps limits a try at the tree before prices are found, for up to tinyNodes lab nodes: searching a small
	// tree takes less time than finding prices.
	tinySteps = 20_000
	tinyNodes = 16
	// firstSteps limits the first try with prices.
	firstSteps = 500_000
)

// tryAll searches the whole tree, in at most this many steps unless 0. It reports whether the best placement is
// proved.
func (t *tree) tryAll(steps int64) bool {
	t.inexact = false
	if steps > 0 {
		defer t.work.budget(steps)()
	}
	return t.search(t.order) && !t.inexact
}

// proved reports whether the best placement costs no more than the bound.
func (t *tree) proved() bool { return t.best != nil && t.cost <= t.root }

// different reports whether there are many lab nodes with different requests.
func (t *tree) different() bool {
	reps := 0
	for i := range t.m.requests {
		if t.m.requests[i].rep == i {
			reps++
		}
	}
	return reps > quickLabs/2
}

// up converts a scaled bound to a cost, rounding up.
func up(scaled int64) int64 { return (scaled + scale - 1) / scale }

func (t *tree) enum(k int) *enumerator {
	for len(t.enums) <= k {
		t.enums = append(t.enums, newEnumerator(t.s))
	}
	return t.enums[k]
}

// cheapest finds the cheapest column of each lab node alone at the present prices. It returns false if one has none.
func (t *tree) cheapest() bool {
	if len(t.order) == 1 {
		// Prices do not matter here, and the tree examines all columns anyway.
		t.least[0] = leastColumn{reduced: t.enum(0).lowerBound(0, t.price)}
		return t.least[0].reduced < infinite
	}
	for k, i := range t.order {
		if k > 0 && t.m.requests[t.order[k-1]].rep == t.m.requests[i].rep {
			t.least[i] = t.least[t.order[k-1]]
			continue
		}
		t.least[i] = t.cheapestOf(i, t.price, infinite, t.enum(0))
		if t.least[i].reduced == infinite {
			return false
		}
	}
	return true
}

// oracleSteps limits the search for one cheapest column.
const oracleSteps = 300_000

// cheapestOf solves the pricing problem of lab node i: it finds the column of least reduced cost below limit on the
// remaining host, or returns infinite. If the work ran out, it returns the bound of the empty choice.
func (t *tree) cheapestOf(i int, price *prices, limit int64, e *enumerator) leastColumn {
	l := leastColumn{reduced: infinite}
	e.relaxed, e.breakSymmetry, e.basic = true, false, false // prices may differ between interchangeable devices
	defer func() { e.relaxed = false }()
	defer t.work.budget(cmp.Or(t.oracle, oracleSteps))()
	if !e.run(i, price, limit, func(c *column, reduced int64) bool {
		l.reduced, l.column = reduced, l.column.set(c)
		e.limit = reduced
		return false
	}) {
		l.reduced, l.cut = min(l.reduced, e.lowerBound(i, price)), true
	}
	return l
}

// refineSteps limits the work on all cheapest columns that were not found in oracleSteps.
const refineSteps = 10_000_000

// refine searches again, once, for cheapest columns for which the work ran out. Mixes of 64 lab nodes have one or two
// with many devices, otherwise bounded only by the empty choice: refine proves 25384 of 26702, instead of 20894.
func (t *tree) refine() {
	defer t.work.budget(refineSteps)()
	t.oracle = refineSteps
	defer func() { t.oracle = 0 }()
	for k, i := range t.order {
		if k > 0 && t.m.requests[t.order[k-1]].rep == t.m.requests[i].rep {
			t.least[i] = t.least[t.order[k-1]]
		} else if t.least[i].cut {
			if l := t.cheapestOf(i, t.price, infinite, t.enum(0)); !l.cut {
				t.least[i] = l
			}
		}
	}
	t.root = max(t.root, t.bound(t.least))
}

// search tries all columns of the lab nodes in order beside the placed ones. It reports whether it was complete.
func (t *tree) search(order []int) bool {
	for len(t.depth) <= len(order) {
		t.depth = append(t.depth, level{least: make([]leastColumn, len(t.m.requests))})
	}
	copy(t.depth[0].least, t.least)
	if len(order) < len(t.order) && !t.refresh(order, 0) {
		return true
	}
	return t.descend(order, 0)
}

// refresh updates the cheapest columns of the lab nodes from position k on for the remaining host. A column that
// still fits is still the cheapest. It returns false if they prove that no better placement can follow.
func (t *tree) refresh(order []int, k int) bool {
	least := t.depth[k].least
	t.work.steps += int64(len(order)-k) / 4
	// A column that no longer fits is replaced by a more expensive one. So the sum of the cheapest columns can only
	// rise, and only columns that no longer fit must be found again.
	slack := scale*(t.cost-t.sharesLeft()) - t.base() // most that the remaining lab nodes may cost together
	var sum int64
	for _, i := range order[k:] {
		sum += least[i].reduced
	}
	if sum >= slack {
		return false
	}
	for x, i := range order[k:] {
		if l := &least[i]; l.column != nil && !t.s.still(i, l.column) {
			old := l.reduced
			now := leastColumn{}
			// Interchangeable lab nodes are adjacent, and have the same cheapest column.
			if x > 0 && t.m.requests[order[k+x-1]].rep == t.m.requests[i].rep {
				now = least[order[k+x-1]]
			} else {
				now = t.cheapestOf(i, t.price, slack-sum+old, t.enum(len(order)))
				if now.reduced == infinite {
					return false
				}
			}
			if now.column == nil || now.reduced < old {
				continue // the work ran out
			}
			*l = now
			sum += now.reduced - old
			if sum >= slack {
				return false
			}
		}
	}
	return true
}

// base returns a lower bound on the cost of the placed lab nodes, prices included. The cost of shared ports is in
// crowd, together with their earnings, and must not be counted twice.
func (t *tree) base() int64 {
	s := t.s
	return scale*(s.cost()-s.shared) + s.charge + s.crowd - t.price.fixed
}

// descend places the lab nodes from position k on. It reports whether it was complete.
func (t *tree) descend(order []int, k int) bool {
	if k == len(order) {
		exact := t.offer()
		t.inexact = t.inexact || !exact
		return t.work.stopped == ""
	}
	i := order[k]
	var after *column // column of the previous interchangeable lab node, which must come first
	if k > 0 && t.m.requests[order[k-1]].rep == t.m.requests[i].rep {
		after = t.s.at[order[k-1]]
	}
	// The cost of the best placement limits the columns of this depth. A better placement found below lowers the
	// limit for the remaining columns.
	e := t.enum(k)
	here := &t.depth[k].column
	var rest int64
	for _, j := range order[k+1:] {
		rest += t.depth[k].least[j].reduced
	}
	// The limit for columns of this depth is the cost of the best placement, minus the placed lab nodes, minus the
	// cheapest columns of the remaining ones, minus the least cost of sharing L3 caches.
	base := t.base() + rest + scale*t.sharesLeft()
	whole := true
	e.breakSymmetry, e.basic = true, t.basic
	done := e.run(i, t.price, scale*t.cost-base, func(c *column, _ int64) bool {
		if after != nil && compareColumns(c, after) < 0 || !t.s.fits(i, c) {
			return false
		}
		here.set(c)
		t.s.place(i, here)
		if t.base()+rest+scale*t.sharesLeft() < scale*t.cost {
			copy(t.depth[k+1].least, t.depth[k].least)
			if t.refresh(order, k+1) {
				whole = t.descend(order, k+1) && whole
			}
		}
		t.s.remove(i)
		e.limit = scale*t.cost - base
		return !whole || t.proved()
	})
	return done && whole
}

func (t *tree) keep(cost int64) {
	t.cost = cost
	t.best = t.best[:0]
	for _, c := range t.s.at {
		t.best = append(t.best, new(column).set(c))
	}
}

// offer keeps the present placement if it is the cheapest so far. It reports whether its cost is known to be the
// least for its columns.
func (t *tree) offer() (exact bool) {
	cost, exact := t.s.leaf()
	if t.work.stopped != "" {
		return false // the cost may be incomplete
	}
	if cost < t.cost {
		t.keep(cost)
	}
	return exact
}

// leaf returns the cost of a complete state, and whether it is the least for its columns. The state counts lower
// bounds of packings, but a placement pays for the packing that was found.
func (s *state) leaf() (cost int64, exact bool) {
	cost, exact = s.cost(), true
	for k := range s.m.comps {
		if r := s.packs.bounds(k, s.compAt[k]); r.low < r.high {
			cost += int64(r.high-r.low) * s.m.p.Weights.L3Shared
			exact = s.m.p.Weights.L3Shared == 0
		}
	}
	return cost, exact
}

// compareColumns orders columns by pools and then by devices. Of interchangeable lab nodes the earlier one gets the
// first column, which breaks their symmetry.
func compareColumns(a, b *column) int {
	if c := slices.CompareFunc(a.cores, b.cores, func(x, y poolCount) int {
		return cmp.Or(cmp.Compare(x.pool, y.pool), cmp.Compare(y.n, x.n))
	}); c != 0 {
		return c
	}
	if c := slices.Compare(a.gpus, b.gpus); c != 0 {
		return c
	}
	if c := slices.Compare(a.nics, b.nics); c != 0 {
		return c
	}
	return slices.CompareFunc(a.vfs, b.vfs, func(x, y plan.VFCount) int {
		return cmp.Or(cmp.Compare(x.Device, y.Device), cmp.Compare(y.Count, x.Count))
	})
}
