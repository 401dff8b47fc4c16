package search

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// An exchange keeps the devices of two lab nodes of the best placement and moves cores between two NUMA nodes. One lab
// node gives some cores on the first and gets as many on the second; the other does the reverse or nothing, or both
// leave the first.
//
// The case that needs exchanges: two lab nodes with 84 cores each on 192em64t-24n8c2t, on the same NUMA nodes. The
// likely splits cost 50102; exchanging a few cores lowers that.

const exchangeSteps = 2_000_000

func (t *tree) exchange() {
	if t.best == nil {
		return
	}
	defer t.work.budget(exchangeSteps)()
	for better := true; better && !t.proved(); {
		better = false
		for x, i := range t.order {
			for _, j := range t.order[x:] {
				spans := len(t.m.nodesOf(t.best[i])) > 1 || len(t.m.nodesOf(t.best[j])) > 1
				if spans && t.exchangeOf(i, j) {
					better = true
				}
				if t.work.add(1) || t.proved() {
					return
				}
			}
		}
	}
}

// exchangeOf tries exchanges between lab nodes i and j, which may be the same.
func (t *tree) exchangeOf(i, j int) bool {
	var others []int
	for _, k := range t.order {
		if k != i && k != j {
			others = append(others, k)
			t.best[k].charge = t.price.charge(t.m, t.best[k])
			t.s.place(k, t.best[k])
		}
	}
	defer t.removeAll(others)
	before := t.cost
	same := slices.ContainsFunc(t.m.requests[i].peers, func(q peer) bool { return q.other == j && q.numa == plan.Same })
	for same && t.together(i, j) {
	}
	for again := true; again && !t.work.add(0); {
		again = false
		mine, other := t.coresOn(i), t.coresOn(j)
		for a := range mine {
			for b := range mine {
				if a == b || mine[a] == 0 && (i == j || other[a] == 0) {
					continue
				}
				if t.moves(i, j, a, b, mine, other) {
					again = true
					mine, other = t.coresOn(i), t.coresOn(j)
				}
			}
		}
	}
	return t.cost < before
}

func (t *tree) coresOn(i int) []int {
	on := make([]int, len(t.m.nodes))
	for _, pc := range t.best[i].cores {
		on[t.m.pools[pc.pool].node] += pc.n
	}
	return on
}

func (t *tree) moves(i, j, a, b int, mine, other []int) bool {
	move := func(k, l int) bool {
		now, next := slices.Clone(mine), slices.Clone(other)
		now[a], now[b] = now[a]-k, now[b]+k
		next[a], next[b] = next[a]-l, next[b]+l
		return t.rebuild(i, j, now, next)
	}
	if i == j {
		return mine[a] > 0 && (move(1, 0) || mine[a] > 1 && move(mine[a], 0))
	}
	if most := min(mine[a], other[b]); most > 0 && (move(1, -1) || most > 1 && move(most, -most)) {
		return true
	}
	return a != b && mine[a]+other[a] > 0 && move(mine[a], other[a])
}

func (t *tree) rebuild(i, j int, mine, other []int) bool {
	before := t.cost
	c := t.withCores(i, 0, mine)
	if c == nil {
		return false
	}
	t.s.place(i, c)
	if d := c; i == j {
		t.offer()
	} else if d = t.withCores(j, 1, other); d != nil {
		t.s.place(j, d)
		t.offer()
		t.s.remove(j)
	}
	t.s.remove(i)
	return t.cost < before
}

func (t *tree) withCores(i, depth int, on []int) *column {
	var out *column
	e := t.withDevices(i, depth, func(c *column, _ int64) bool {
		if t.s.fits(i, c) {
			out = out.set(c)
		}
		return true
	})
	defer e.unpick()
	var nodes, give []int
	for n, cores := range on {
		if cores > e.perNode[n].room {
			return nil
		}
		if cores > 0 {
			nodes, give = append(nodes, n), append(give, cores)
		}
	}
	e.yieldCores(nodes, give)
	return out
}

// withDevices prepares an enumerator with lab node i's devices in the best placement. The caller must call unpick.
func (t *tree) withDevices(i, depth int, yield func(*column, int64) bool) *enumerator {
	e := t.enum(depth)
	e.relaxed, e.basic, e.breakSymmetry = false, false, false
	e.begin(i, t.price, infinite, yield)
	t.work.steps += placeSteps
	c := t.best[i]
	for kind, list := range [][]int{c.gpus, c.nics} {
		for _, d := range list {
			e.pick(d, wantKind(kind))
		}
	}
	for _, v := range c.vfs {
		for range v.Count {
			e.pick(v.Device, wantVF)
		}
	}
	e.devicesReady()
	return e
}

// together tries other NUMA nodes for two lab nodes that must be on the same ones: one less, one more, or another in
// place of each.
func (t *tree) together(i, j int) bool {
	before := t.cost
	mine, other := t.coresOn(i), t.coresOn(j)
	outside := func(some []int) []int {
		free := lists.Where(t.s.nodeLeft, func(left int) bool { return left > 1 })
		return slices.DeleteFunc(free, func(n int) bool { return slices.Contains(some, n) })
	}
	in := lists.Where(mine, func(cores int) bool { return cores > 0 })
	out := outside(in)
	costs := [2][]int64{t.coreCosts(i), t.coreCosts(j)}
	try := func(without, with int) {
		on := lists.Filter(in, func(n int) bool { return n != without })
		if with >= 0 {
			on = append(on, with)
		}
		cost := t.cost
		clear(mine)
		clear(other)
		if t.splitTogether(i, j, on, costs, mine, other) && t.rebuild(i, j, mine, other) && t.cost < cost {
			in, out = slices.Clone(on), outside(on)
		}
	}
	try(-1, -1)
	for _, a := range slices.Clone(in) {
		try(a, -1)
		for _, b := range slices.Clone(out) {
			try(a, b)
		}
	}
	return t.cost < before
}

func (t *tree) coreCosts(i int) []int64 {
	e := t.withDevices(i, 0, nil)
	costs := make([]int64, len(e.perNode))
	for n := range costs {
		costs[n] = e.perNode[n].core
	}
	e.unpick()
	return costs
}

// splitTogether gives cores on all of on, each lab node first on nodes of largest advantage.
func (t *tree) splitTogether(i, j int, on []int, costs [2][]int64, mine, other []int) bool {
	left := [2]int{t.m.requests[i].cores - len(on), t.m.requests[j].cores - len(on)}
	if left[0] < 0 || left[1] < 0 {
		return false
	}
	slices.SortStableFunc(on, func(a, b int) int {
		return cmp.Compare(costs[0][a]-costs[1][a], costs[0][b]-costs[1][b])
	})
	give := func(to []int, who, n int) {
		more := min(left[who], t.s.nodeLeft[n]-mine[n]-other[n])
		to[n] += more
		left[who] -= more
	}
	for _, n := range on {
		mine[n], other[n] = 1, 1
	}
	for _, n := range on {
		give(mine, 0, n)
	}
	for _, n := range slices.Backward(on) {
		give(other, 1, n)
	}
	return left[0] == 0 && left[1] == 0
}
