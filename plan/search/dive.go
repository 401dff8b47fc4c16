package search

import (
	"cmp"
	"slices"
)

// The cases that need dives: lab nodes that span many of the 64 small NUMA nodes of hwloc's
// 256ia64-64n2s2c. With dives two labs there are proved at once, in a few thousand steps; without
// them the enumerator does not find their best placements in millions.
//
// A dive makes placements of one lab node quickly, without looking at many: from each NUMA node,
// the devices nearest to it and to each other, and then cores in a few likely ways. So a search
// that is stopped has something to show, and the enumerator a limit to stay below.

// diveNodes bounds how many NUMA nodes are dived from.
const diveNodes = 16

// dive tries likely columns of lab node i beside those that are placed, until one brings the cost
// of the state, scaled, down to low. It returns the cheapest and that cost; nil where none fits.
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
			cost = now
			if best == nil {
				best = &column{}
			}
			best.copyFrom(c)
			e.limit = cost - base
		}
		t.s.remove(i)
		return false
	})
	anchors := e.anchors()
	for _, a := range anchors {
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

// anchors returns NUMA nodes with room, spread evenly where there are many.
func (e *enumerator) anchors() []int {
	var all []int
	for n := range e.perNode {
		if e.perNode[n].room > 0 {
			all = append(all, n)
		}
	}
	if len(all) <= diveNodes {
		return all
	}
	out := make([]int, 0, diveNodes)
	for k := range diveNodes {
		out = append(out, all[k*len(all)/diveNodes])
	}
	return out
}

// pickNear picks the devices of all wants, each the one that adds least: to what is picked already,
// and to its distance from NUMA node a. It reports whether there were enough.
func (e *enumerator) pickNear(a int) bool {
	m := e.s.m
	e.farNear(a)
	for x := range e.r.wants {
		w := &e.r.wants[x]
		for range w.count {
			best, least := -1, infinite
			for _, d := range w.any {
				if e.units(w, d) == 0 || e.tooFar(d) {
					continue
				}
				v := &m.devices[d]
				add := scale*v.port + e.price.bundle[v.bundle]
				if w.kind == wantVF {
					add = scale*v.port + e.price.vf[d]
					if e.count[d] == 0 {
						add += e.price.nic[d]
					}
				}
				if v.home >= 0 {
					add += e.far[v.home]
				}
				if w.kind == wantGPU {
					for _, g := range e.c.gpus {
						add += scale * m.gpuCost[g*len(m.devices)+d]
					}
					add += scale * e.r.minPair[d]
				} else {
					add -= scale * e.helps(d)
				}
				if add < least {
					best, least = d, add
				}
			}
			if e.s.work.add(int64(len(w.any))/8) || best < 0 {
				return false
			}
			if w.kind == wantVF {
				e.addVF(best)
			} else {
				e.addWhole(best, w.kind)
			}
			e.trail = append(e.trail, pick{best, w.kind})
		}
	}
	return true
}

// farNear estimates what a device at each NUMA node costs with the cores on those nearest to a.
func (e *enumerator) farNear(a int) {
	m := e.s.m
	n := len(m.nodes)
	e.far = zero(e.far, n)
	if m.near == nil {
		for h := range n {
			e.far[h] = scale * (m.p.Weights.DeviceNearest + int64(e.r.cores)*e.r.w.DeviceDistance) * m.dist[a*n+h]
		}
		return
	}
	nearest := zero(e.nearestTo, n)
	e.nearestTo = nearest
	for h := range n {
		nearest[h] = -1
	}
	left := e.r.cores
	for _, b := range m.near[a] {
		most := e.perNode[b].room
		if e.perCore > 0 {
			most = min(most, max(1, e.perNode[b].local-1))
		}
		give := min(left, most)
		if give <= 0 || e.perNode[b].room == 0 {
			continue
		}
		left -= give
		for h := range n {
			d := m.dist[b*n+h]
			if nearest[h] < 0 || d < nearest[h] {
				nearest[h] = d
			}
			e.far[h] += scale * e.r.w.DeviceDistance * int64(give) * d
		}
	}
	for h := range n {
		e.far[h] += scale * m.p.Weights.DeviceNearest * max(0, nearest[h])
	}
}

// helps returns how much cheaper the paths of the GPUs get by one more port d; where ports are more
// than GPUs, how cheap its own is.
func (e *enumerator) helps(d int) int64 {
	m := e.s.m
	n := len(m.devices)
	if len(e.c.gpus) == 0 {
		return 0
	}
	if e.r.ports > e.r.gpus {
		least := infinite
		for _, g := range e.c.gpus {
			least = min(least, m.pairCost[g*n+d])
		}
		return -least
	}
	var sum int64
	for _, g := range e.c.gpus {
		if len(e.c.nics)+len(e.functions) == 0 {
			sum -= m.pairCost[g*n+d] // the first port: the less its paths cost the better
		} else {
			sum += max(0, e.bestPort(g)-m.pairCost[g*n+d])
		}
	}
	return sum
}

// A pick is a device that a dive took.
type pick struct {
	device int
	kind   wantKind
}

// unpick puts all devices back.
func (e *enumerator) unpick() {
	for k := len(e.trail) - 1; k >= 0; k-- {
		q := e.trail[k]
		if q.kind == wantVF {
			e.dropVF(q.device, mark{})
		} else {
			e.dropWhole(q.device, q.kind, mark{})
		}
	}
	e.trail = e.trail[:0]
	e.paid, e.charge = 0, 0
}

// splitsNear tries a few ways to give the cores: on as few NUMA nodes as can be and some more,
// those with devices and those near a first, filled one after the other or evenly.
func (e *enumerator) splitsNear(a int) {
	m := e.s.m
	n := len(m.nodes)
	var nodes []int
	total, widest := 0, 0
	for k := range n {
		if e.perNode[k].room > 0 {
			nodes = append(nodes, k)
			total += e.perNode[k].room
			widest = max(widest, e.perNode[k].room)
		}
	}
	if total < e.r.cores {
		return
	}
	near := func(k int) int64 { return m.dist[a*n+k] }
	sortBy := func(keys ...func(k int) int64) []int {
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
	core := func(k int) int64 { return e.perNode[k].core }
	homes := func(k int) int64 { return -int64(e.homeCount[k]) }
	room := func(k int) int64 { return -int64(e.perNode[k].room) }
	orders := [][]int{sortBy(core, near)}
	if len(e.homes) > 0 {
		orders = append(orders, sortBy(homes, core, near))
	} else {
		orders = append(orders, sortBy(core, room, near))
	}
	for _, order := range orders {
		least, left := 0, e.r.cores
		for _, k := range order {
			if left <= 0 {
				break
			}
			left -= e.perNode[k].room
			least++
		}
		for s := max(1, least-2); s <= min(len(order), e.r.cores, least+4); s++ {
			e.give(order[:s], false)
			if s > 1 {
				e.give(order[:s], true)
			}
		}
		// Whole NUMA nodes, and what is left over on the one where it leaves the host a core, if there is one.
		e.giveWhole(order)
	}
}

// give yields the column with cores on all of nodes, evenly or the first ones filled first; first
// as many as memory is there for, then as there is room for.
func (e *enumerator) give(nodes []int, even bool) {
	left := e.r.cores
	give := make([]int, len(nodes))
	for k := range nodes {
		if left > 0 {
			give[k] = 1
			left--
		}
	}
	if left < 0 {
		return
	}
	for round := range 2 {
		for k := 0; k < len(nodes) && left > 0; k++ {
			q := &e.perNode[nodes[k]]
			most := q.room
			if round == 0 && e.perCore > 0 {
				most = min(most, max(1, q.local-1))
			}
			want := left
			if even && round == 0 {
				want = min(left, max(0, (left+len(nodes)-k-1)/(len(nodes)-k)))
			}
			if more := min(want, most-give[k]); more > 0 {
				give[k] += more
				left -= more
			}
		}
	}
	if left == 0 {
		e.yieldCores(nodes, give)
	}
}

// giveWhole fills NUMA nodes wholly, and gives the rest where it fits best.
func (e *enumerator) giveWhole(order []int) {
	left := e.r.cores
	var nodes, give []int
	last := -1
	for _, k := range order {
		room := e.perNode[k].room
		if room <= left && room == e.s.m.nodes[k].free {
			nodes, give = append(nodes, k), append(give, room)
			left -= room
		}
	}
	if left > 0 {
		for _, k := range order {
			// One core more than needed is for the host.
			if room := e.perNode[k].room; room > left && !slices.Contains(nodes, k) &&
				(last < 0 || room < e.perNode[last].room) {
				last = k
			}
		}
		if last < 0 {
			return
		}
		nodes, give = append(nodes, last), append(give, left)
	}
	e.yieldCores(nodes, give)
}

// yieldCores yields the column with so many cores on each of some NUMA nodes.
func (e *enumerator) yieldCores(nodes, give []int) {
	e.c.cores = e.c.cores[:0]
	paid, charge, spans := e.paid+scale*e.pathCost(), e.charge, 0
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
			return // its package keeps them
		}
		if give[k] > 0 {
			spans++
		}
	}
	e.s.work.add(int64(len(e.byCost)))
	e.done(paid, charge, spans)
}

// quickLabs is how many lab nodes make it worth having a placement before anything else is known.
const quickLabs = 64

// quick places all lab nodes by dives alone, hardest first, so that a search that is stopped early
// has something to show. One that fits nowhere any more goes first in the next try.
func (t *tree) quickPlacement() {
	if len(t.order) < quickLabs {
		return
	}
	order := slices.Clone(t.order)
	for range 4 {
		// Packing L3 caches takes most of the time; it is looked at once all have their places.
		t.s.coarse = true
		var found []*column
		for _, i := range order {
			e := t.enum(0)
			e.relaxed = false
			lowerBound := e.lowerBound(i, t.price)
			best, _ := t.dive(i, t.price, scale*t.s.cost()+lowerBound, e)
			if best == nil {
				break
			}
			t.s.place(i, best)
			found = append(found, best)
		}
		t.removeAll(order[:len(found)])
		t.s.coarse = false
		if len(found) == len(order) {
			for k, i := range order {
				t.s.place(i, found[k])
			}
			if cost, _ := t.s.leaf(); cost < t.cost {
				t.keep(cost)
			}
			t.removeAll(order)
			return
		}
		if t.work.stopped != "" {
			return
		}
		stuck := order[len(found)]
		copy(order[1:len(found)+1], order[:len(found)])
		order[0] = stuck
	}
}

// lift takes lab nodes off that were placed in an order.
func (t *tree) removeAll(order []int) {
	for k := len(order) - 1; k >= 0; k-- {
		t.s.remove(order[k])
	}
}
