package search

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// A dive finds a few placements of one lab node quickly: from each NUMA node, it takes the devices nearest to that node
// and to each other, and then cores in a few likely ways. So a stopped search has a result, and the enumerator has a
// limit to stay below.
//
// The cases that need dives: lab nodes that span many of the 64 small NUMA nodes of hwloc's 256ia64-64n2s2c. Two labs
// there are proved in a few thousand steps; otherwise the best placements are not found in millions.

const diveNodes = 16

// dive tries likely columns of lab node i, until the scaled cost of the state is at most low. It returns nil if none
// fits.
func (t *tree) dive(i int, price *prices, low int64, e *enumerator) (*column, int64) {
	var best *column
	cost, base := infinite, scale*t.s.cost()
	e.relaxed, e.breakSymmetry, e.basic = false, false, false
	e.begin(i, price, infinite, func(c *column, _ int64) bool {
		if !t.s.fits(i, c) || !t.s.still(i, c) {
			return false
		}
		t.s.place(i, c)
		if now := scale * t.s.cost(); now < cost {
			best, cost = best.set(c), now
			e.limit = cost - base
			t.s.enough = cost / scale
		}
		t.s.remove(i)
		return false
	})
	defer func() { t.s.enough = 0 }()
	anchors := e.anchors()
	for k := range anchors {
		a := anchors[(k+t.s.turn)%len(anchors)]
		if t.work.stopped != "" || cost <= low {
			break
		}
		if e.pickNear(a) {
			e.devicesReady()
			e.splitsNear(a)
		}
		e.unpick()
	}
	return best, cost
}

// anchors returns NUMA nodes with room, or a sample on large hosts.
func (e *enumerator) anchors() []int {
	all := lists.Where(e.perNode, func(q nodeCost) bool { return q.room > 0 })
	if len(all) <= diveNodes {
		return all
	}
	for k := range diveNodes {
		all[k] = all[k*len(all)/diveNodes]
	}
	return all[:diveNodes]
}

// pickNear picks the devices of all wants, each time the one that adds least cost. It reports whether there were
// enough.
func (e *enumerator) pickNear(a int) bool {
	e.farNear(a)
	for x := range e.r.wants {
		w := &e.r.wants[x]
		for range w.count {
			best, least := -1, infinite
			for _, d := range w.any {
				if e.units(w, d) == 0 {
					continue
				}
				if add := e.adds(d, w.kind); add < least {
					best, least = d, add
				}
			}
			if e.s.work.add(int64(len(w.any))/8) || best < 0 {
				return false
			}
			e.pick(best, w.kind)
		}
	}
	return true
}

func (e *enumerator) adds(d int, kind wantKind) int64 {
	m := e.s.m
	v := &m.devices[d]
	add := scale * v.port
	if kind == wantVF {
		add += e.price.vf[d]
		if e.count[d] == 0 {
			add += e.price.nic[d]
		}
	} else {
		add += e.price.bundle[v.bundle] + e.cardPrice(d, kind)
	}
	if v.home >= 0 {
		add += e.far[v.home]
	}
	if kind != wantGPU {
		return add - scale*e.helps(d)
	}
	for _, g := range e.c.gpus {
		add += scale * m.gpuPair(g, d)
	}
	return add + scale*e.r.minPair[d]
}

func (e *enumerator) farNear(a int) {
	m := e.s.m
	n := len(m.nodes)
	e.far = zero(e.far, n)
	if m.near == nil {
		for h := range n {
			e.far[h] = scale * (e.r.w.Nearest() + int64(e.r.cores)*e.r.w.PerCore()) * m.far(a, h)
		}
		return
	}
	e.nearestTo = zero(e.nearestTo, n)
	for h := range n {
		e.nearestTo[h] = infinite
	}
	left := e.r.cores
	for _, b := range m.near[a] {
		give := min(left, e.withMemory(&e.perNode[b]))
		if give <= 0 {
			continue
		}
		left -= give
		for h := range n {
			d := m.far(b, h)
			e.nearestTo[h] = min(e.nearestTo[h], d)
			e.far[h] += scale * e.r.w.PerCore() * int64(give) * d
		}
	}
	for h := range n {
		e.far[h] += scale * e.r.w.Nearest() * finite(e.nearestTo[h])
	}
}

// withMemory returns the number of cores of a NUMA node that can have local memory, or one if there is room but no
// memory.
func (e *enumerator) withMemory(q *nodeCost) int {
	if e.perCore > 0 {
		return min(q.room, max(1, q.local-1))
	}
	return q.room
}

// helps returns the saving on GPU paths by one more port d. If there are more ports than GPUs, it returns the negative
// cost of the port's own best path.
func (e *enumerator) helps(d int) int64 {
	if len(e.c.gpus) == 0 {
		return 0
	}
	if e.r.ports > e.r.gpus {
		return -e.bestGPU(d)
	}
	first := len(e.c.nics)+len(e.functions) == 0
	var sum int64
	for _, g := range e.c.gpus {
		if cost := e.s.m.pair(g, d); first {
			sum -= cost // cheaper paths are better
		} else {
			sum += max(0, e.bestPort(g)-cost)
		}
	}
	return sum
}

type pick struct {
	device int
	kind   wantKind
}

func (e *enumerator) pick(d int, kind wantKind) {
	e.add(d, kind)
	e.trail = append(e.trail, pick{d, kind})
}

func (e *enumerator) unpick() {
	for _, q := range slices.Backward(e.trail) {
		e.drop(q.device, q.kind, mark{})
	}
	e.trail = e.trail[:0]
	e.mark = mark{}
}

// splitsNear gives cores on as few NUMA nodes as possible and a few more, starting with nodes with devices or near a.
func (e *enumerator) splitsNear(a int) {
	if lists.Sum(e.perNode, func(q nodeCost) int { return q.room }) < e.r.cores {
		return
	}
	nodes := lists.Where(e.perNode, func(q nodeCost) bool { return q.room > 0 })
	type key func(k int) int64
	sortBy := func(keys ...key) []int {
		order := slices.Clone(nodes)
		slices.SortStableFunc(order, func(x, y int) int {
			for _, key := range keys {
				if c := cmp.Compare(key(x), key(y)); c != 0 {
					return c
				}
			}
			return 0
		})
		return order
	}
	near := func(k int) int64 { return e.s.m.far(a, k) }
	core := func(k int) int64 { return e.perNode[k].core }
	homes := func(k int) int64 { return -int64(e.homeCount[k]) }
	room := func(k int) int64 { return -int64(e.perNode[k].room) }
	second := []key{core, room, near}
	if len(e.homes) > 0 {
		second = []key{homes, core, near}
	}
	for _, order := range [][]int{sortBy(core, near), sortBy(second...)} {
		e.giveShares(slices.Clone(order))
		least, left := 0, e.group
		for ; left > 0 && least < len(order); least++ {
			left -= e.s.nodeLeft[order[least]]
		}
		first, last := max(1, least-2), min(len(order), e.r.cores, least+4)
		if e.exact {
			first = len(order)
			last = min(first, e.r.cores)
		}
		for s := first; s <= last; s++ {
			e.give(order[:s], false)
			if s > 1 {
				e.give(order[:s], true)
			}
		}
	}
}

// give starts with cores with local memory. There must be at least as many cores as nodes.
func (e *enumerator) give(nodes []int, even bool) {
	left := e.r.cores - len(nodes)
	give := slices.Repeat([]int{1}, len(nodes))
	for round := range 2 {
		for k, node := range nodes {
			q := &e.perNode[node]
			most, want := q.room, left
			if round == 0 {
				most = e.withMemory(q)
				if even {
					want = (left + len(nodes) - k - 1) / (len(nodes) - k)
				}
			}
			more := max(0, min(want, most-give[k]))
			give[k] += more
			left -= more
		}
	}
	if left == 0 {
		e.yieldCores(nodes, give)
	}
}

func (e *enumerator) giveShares(order []int) {
	if e.missing == 0 {
		return
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(e.shareOf(y), e.shareOf(x)) })
	var give []int
	left := e.r.cores
	for _, node := range order {
		give = append(give, min(e.perNode[node].room, e.shareOf(node)))
		left -= give[len(give)-1]
	}
	used := 0
	for k, node := range order {
		more := min(left, e.perNode[node].room-give[k])
		give[k] += more
		left -= more
		if give[k] > 0 {
			order[used], give[used] = node, give[k]
			used++
		}
	}
	if left == 0 {
		e.yieldCores(order[:used], give[:used])
	}
}

func (e *enumerator) yieldCores(nodes, give []int) {
	e.c.cores = e.c.cores[:0]
	paid, charge := e.paid+scale*e.pathCost(), e.charge
	for k, node := range nodes {
		left := give[k]
		for _, q := range e.byCost {
			if q.node != node || left == 0 {
				continue
			}
			n := min(left, q.room)
			if pk := e.s.m.pools[q.pool].pkg; pk >= 0 {
				n = min(n, e.s.pkgLeft[pk]-e.givenIn(pk))
			}
			if n <= 0 {
				continue
			}
			e.c.cores = append(e.c.cores, poolCount{q.pool, n})
			paid += int64(n) * q.core
			charge += int64(n) * e.price.node[node]
			left -= n
		}
		if left > 0 {
			return // its package keeps the rest
		}
	}
	e.s.work.add(int64(len(e.byCost)))
	e.done(paid, charge, len(nodes))
}

// quickLabs is the number of lab nodes from which on a quick placement is made first.
const quickLabs = 64

// quickPlacement gives a search that is stopped early a result. A lab node that does not fit goes first in the next
// attempt.
func (t *tree) quickPlacement() {
	if len(t.order) < quickLabs {
		return
	}
	order := slices.Clone(t.order)
	for range 4 {
		t.s.coarse = true
		stuck := t.placeAll(order, func(i int) *column {
			e := t.enum(0)
			e.relaxed = false
			best, _ := t.dive(i, t.price, scale*t.s.cost()+e.lowerBound(i, t.price), e)
			return best
		})
		found := slices.Clone(t.s.at)
		t.removeAll(order[:stuck])
		t.s.coarse = false
		if stuck == len(order) {
			for _, i := range order {
				t.s.place(i, found[i])
			}
			// Solve computes the cost again.
			if cost, _ := t.s.leaf(); cost < t.cost {
				t.keep(cost)
			}
			t.removeAll(order)
			return
		}
		if t.work.stopped != "" {
			return
		}
		moveToFront(order, stuck)
	}
}

// placeAll stops at the first that does not fit.
func (t *tree) placeAll(order []int, insert func(i int) *column) int {
	for k, i := range order {
		c := insert(i)
		if c == nil {
			return k
		}
		t.s.place(i, c)
	}
	return len(order)
}

func (t *tree) removeAll(order []int) {
	for _, i := range slices.Backward(order) {
		t.s.remove(i)
	}
}

func moveToFront(order []int, k int) {
	i := order[k]
	copy(order[1:k+1], order[:k])
	order[0] = i
}
