package search

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/plan"
)

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
	start    relaxation // see equal.go
	coverAll int64
	inexact  bool
	oracle   int64 // replaces oracleSteps unless 0
	basic    bool
}

// leastColumn is the cheapest column of a lab node alone, prices included.
type leastColumn struct {
	reduced int64
	column  *column // nil if none was found
	cut     bool    // reduced is only a bound
}

type level struct {
	column column
	least  []leastColumn
}

func newTree(m *model, work *meter) *tree {
	t := &tree{m: m, s: newState(m, work), work: work, price: newPrices(m), steer: newPrices(m), cost: infinite / scale}
	for i := range m.requests {
		t.order = append(t.order, i)
	}
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

// solve returns a proved bound and whether a placement was found.
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
		return 0, false
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
		t.recreate()
		return min(t.root, t.cost), t.best != nil
	}
	if len(t.order) > 1 {
		if t.ascend(); t.proved() {
			return t.cost, true
		}
	}
	t.improvePairs()
	t.exchange()
	if t.proved() {
		return t.cost, true
	}
	// Most trees are small. If this one is not, a better placement makes it smaller.
	if len(t.order) <= quickLabs/2 && t.tryAll(firstSteps) {
		return t.cost, t.best != nil
	}
	t.improveTriples()
	for steps := int64(4 * firstSteps); !t.proved() && t.work.stopped == ""; steps *= 4 {
		t.exchange()
		if t.proved() || t.tryAll(steps) {
			return t.cost, t.best != nil
		}
	}
	return min(t.root, t.cost), t.best != nil
}

const (
	// tinySteps limits a try at the tree before prices are found, which takes longer than a small tree.
	tinySteps  = 20_000
	tinyNodes  = 16
	firstSteps = 500_000
)

// tryAll searches the whole tree, in at most this many steps unless 0.
func (t *tree) tryAll(steps int64) bool {
	t.inexact = false
	if steps > 0 {
		defer t.work.budget(steps)()
	}
	return t.search(t.order) && !t.inexact
}

func (t *tree) proved() bool { return t.best != nil && t.cost <= t.root }

func (t *tree) different() bool {
	reps := 0
	for i := range t.m.requests {
		if t.m.requests[i].rep == i {
			reps++
		}
	}
	return reps > quickLabs/2
}

func up(scaled int64) int64 { return (scaled + scale - 1) / scale }

func (t *tree) enum(k int) *enumerator {
	for len(t.enums) <= k {
		t.enums = append(t.enums, newEnumerator(t.s))
	}
	return t.enums[k]
}

// cheapest finds the cheapest column of each lab node alone. It returns false if one has none.
func (t *tree) cheapest() bool {
	if len(t.order) == 1 {
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

const oracleSteps = 300_000

// cheapestOf finds the column of least reduced cost below limit, or returns infinite. If the work ran out, it returns
// the bound of the empty choice.
func (t *tree) cheapestOf(i int, price *prices, limit int64, e *enumerator) leastColumn {
	l := leastColumn{reduced: infinite}
	e.relaxed, e.breakSymmetry, e.basic = true, false, false // prices of interchangeable devices may differ
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

const refineSteps = 10_000_000

// refine searches once more for cheapest columns for which the work ran out. Mixes of 64 lab nodes have one or two with
// many devices: refine proves 25384 of 26702, instead of 20894.
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

// search reports whether it was complete.
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

// refresh updates the cheapest columns of the lab nodes from position k on. It returns false if they prove that no
// better placement can follow.
func (t *tree) refresh(order []int, k int) bool {
	least := t.depth[k].least
	t.work.steps += int64(len(order)-k) / 4
	// The sum of the cheapest columns can only rise, and only columns that no longer fit must be found again.
	slack := scale*(t.cost-t.sharesLeft()) - t.base()
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

func (t *tree) descend(order []int, k int) bool {
	if k == len(order) {
		exact := t.offer()
		t.inexact = t.inexact || !exact
		return t.work.stopped == ""
	}
	i := order[k]
	var after *column // of the previous interchangeable lab node, which must come first
	if k > 0 && t.m.requests[order[k-1]].rep == t.m.requests[i].rep {
		after = t.s.at[order[k-1]]
	}
	// A better placement lowers the limit for the remaining columns.
	e := t.enum(k)
	here := &t.depth[k].column
	var rest int64
	for _, j := range order[k+1:] {
		rest += t.depth[k].least[j].reduced
	}
	// The cost of the best placement, minus the placed lab nodes, the cheapest remaining columns and the least cost of
	// sharing L3 caches.
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

// offer keeps the placement if it is the cheapest so far. exact: its cost is the least for its columns.
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

// leaf counts the packing that was found, not its lower bound. exact: the cost is the least for these columns.
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

// compareColumns breaks the symmetry of interchangeable lab nodes: the earlier one gets the first column.
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
