package search

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// The split of a lab node's cores over NUMA nodes costs device_share and core_balance. Both are convex, so together
// with the linear price of a core they are minimized exactly by taking the cheapest core first, if a core within the
// share of its NUMA node is cheaper by the cost of a missing one.

// findShares finds how many cores are due on each NUMA node for the picked devices, and the cost of each missing one, 0
// if all devices are on one NUMA node. add and drop reset it to 0.
func (e *enumerator) findShares() {
	m := e.s.m
	e.missing = 0
	if e.r.w.DeviceShare == 0 || len(e.homes) < 2 {
		return
	}
	far := int64(0)
	for _, h := range e.homes {
		for _, o := range e.homes {
			if o != h {
				far = max(far, m.far(h, o))
			}
		}
	}
	e.missing = scale * e.r.w.DeviceShare * int64(e.r.devices) * far
	if e.missing == 0 {
		return
	}
	e.share = zero(e.share, len(m.nodes))
	e.shared, e.due = e.shared[:0], 0
	all := 0
	for k, list := range [][]int{e.c.gpus, e.c.nics, e.functions} {
		if k == 1 && (len(e.shared) > 1 || len(e.shared) == 1 && e.r.sharesByGPU()) {
			break // GPUs alone decide
		}
		for _, d := range list {
			h := m.devices[d].home
			if h < 0 {
				continue
			}
			if e.share[h]++; e.share[h] == 1 {
				e.shared = append(e.shared, h)
			}
			all++
		}
	}
	for _, h := range e.shared {
		e.share[h] = e.share[h] * e.r.cores / all
		e.due += e.share[h]
	}
}

// sharesByGPU reports whether GPUs alone have shares also if they are on one NUMA node.
func (r *request) sharesByGPU() bool { return r.w.Hidden && r.gpus > r.ports }

func (e *enumerator) shareOf(node int) int {
	if e.missing == 0 {
		return 0
	}
	return e.share[node]
}

// splitCost comes in addition to the price of each core.
func (e *enumerator) splitCost(spans int) int64 {
	var cost int64
	if e.missing > 0 {
		for _, h := range e.shared {
			cost += e.missing * int64(max(0, e.share[h]-e.givenOn(h)))
		}
	}
	return cost + e.uneven(spans, e.r.cores, false)
}

// uneven returns the minimum cost of an uneven split, with given cores given so far. If open, the last node with cores
// may get more.
func (e *enumerator) uneven(nodes, given int, open bool) int64 {
	if e.r.w.CoreBalance == 0 || nodes < 2 {
		return 0
	}
	even := e.r.cores / nodes
	missing, have := 0, 0
	for k := 0; k < len(e.c.cores); {
		node, n := e.s.m.pools[e.c.cores[k].pool].node, 0
		for ; k < len(e.c.cores) && e.s.m.pools[e.c.cores[k].pool].node == node; k++ {
			n += e.c.cores[k].n
		}
		if have++; open && k == len(e.c.cores) {
			have--
			given -= n
			break
		}
		missing += max(0, even-n)
	}
	missing += max(0, even*(nodes-have)-(e.r.cores-given))
	return scale * e.r.w.CoreBalance * int64(missing)
}

// unevenRoom returns the minimum cost of an uneven split that follows from the room of NUMA nodes.
func (e *enumerator) unevenRoom(nodes int) int64 {
	if e.r.w.CoreBalance == 0 || nodes > len(e.widths) {
		return 0
	}
	missing := 0
	for _, room := range e.widths[:nodes] {
		missing += max(0, e.r.cores/nodes-room)
	}
	return scale * e.r.w.CoreBalance * int64(missing)
}

func (e *enumerator) findWidths() {
	e.widths = e.widths[:0]
	if e.r.w.CoreBalance == 0 {
		return
	}
	for n := range e.eff {
		e.widths = append(e.widths, e.eff[n].room)
	}
	slices.SortFunc(e.widths, largestFirst)
}

type segment struct {
	cost  int64
	cores int
}

// missingAhead returns the minimum cost of left cores from position pos of byCost on, including the cost of cores
// missing from the share of devices.
func (e *enumerator) missingAhead(pos, left int) int64 {
	e.open = zero(e.open, len(e.perNode))
	var cost int64
	for _, h := range e.shared {
		e.open[h] = max(0, e.share[h]-e.givenOn(h))
		cost += e.missing * int64(e.open[h])
	}
	e.within, e.beyond = e.within[:0], e.beyond[:0]
	for _, q := range e.byCost[pos:] {
		due := min(q.room, e.open[q.node])
		e.open[q.node] -= due
		if due > 0 {
			e.within = append(e.within, segment{q.core - e.missing, due})
		}
		if q.room > due {
			e.beyond = append(e.beyond, segment{q.core, q.room - due})
		}
	}
	for x, y := 0, 0; left > 0; {
		var q segment
		switch {
		case x < len(e.within) && (y == len(e.beyond) || e.within[x].cost <= e.beyond[y].cost):
			q = e.within[x]
			x++
		case y < len(e.beyond):
			q = e.beyond[y]
			y++
		default:
			return infinite
		}
		give := min(left, q.cores)
		cost += int64(give) * q.cost
		left -= give
	}
	return cost
}

// The shares are unknown until all devices are picked. But a missing core weighs at least as much as its distance to
// devices, so no split costs less than the one by shares: with s cores due for each GPU, s times the distances from
// each GPU to each device.

type apartness struct {
	each  int64     // per unit of distance, scaled
	half  [][]int64 // like pairing.half, with distances, scaled
	ports [][]int64 // by device: sums of the k least distances to it from GPUs, at k
}

func (m *model) findApart(r *request) {
	if r.gpus < 2 || r.half == nil {
		return
	}
	at, most := make([]int, len(m.nodes)), 0
	for _, g := range r.gpuList {
		if h := m.devices[g].home; h < 0 {
			most = r.gpus
		} else {
			at[h]++
			most = max(most, at[h])
		}
	}
	due := r.cores / r.devices
	if most < r.gpus || r.sharesByGPU() {
		due = r.cores / r.gpus
	}
	weight := min(r.w.DeviceShare, r.w.PerCore())
	if due == 0 || weight == 0 {
		return
	}
	a := &apartness{each: scale * int64(due) * weight, ports: make([][]int64, len(m.devices))}
	for _, g := range r.gpuList {
		var costs []int64
		for _, h := range r.gpuList {
			if h != g {
				costs = append(costs, scale*m.gpuPair(g, h)+a.each*m.apart(g, h))
			}
		}
		a.half = append(a.half, cheapest(costs, r.gpus))
	}
	for _, d := range r.portList {
		a.ports[d] = cheapest(lists.Map(r.gpuList, func(g int) int64 { return m.apartFrom(g, d) }), r.gpus)
	}
	r.apart = a
}

func (m *model) apart(a, b int) int64 { return m.apartFrom(a, b) + m.apartFrom(b, a) }

func (m *model) apartFrom(a, b int) int64 {
	x, y := m.devices[a].home, m.devices[b].home
	if x < 0 || y < 0 {
		return 0
	}
	return m.far(x, y)
}

// pairsBound returns a lower bound on the further cost of all devices if cores follow the GPUs. It must be called after
// lookAhead.
func (e *enumerator) pairsBound() int64 {
	r, o, m := e.r, &e.out, e.s.m
	a := r.apart
	if a == nil || !o.on {
		return 0
	}
	left := r.gpus - len(e.c.gpus)
	sum := scale * e.pathsAhead()
	for k, g := range e.c.gpus {
		for _, h := range e.c.gpus[:k] {
			sum += a.each * m.apart(g, h)
		}
	}
	o.sums = o.sums[:0]
	for x, g := range r.gpuList {
		if left == 0 || o.gone[g] {
			continue
		}
		// Paths to each other count half, because each has two ends.
		cost := 2*scale*o.pairs[g] + a.half[x][left-1]
		for _, h := range e.c.gpus {
			cost += 2 * a.each * m.apart(g, h)
		}
		if r.ports > 0 && r.ports <= r.gpus {
			cost += 2 * scale * r.minPair[g]
		}
		o.sums = append(o.sums, cost)
	}
	sum += (addSmallest(o.sums, left) + 1) / 2
	port := func(d int) int64 {
		far := a.ports[d][left]
		for _, g := range e.c.gpus {
			far += m.apartFrom(g, d)
		}
		return a.each * far
	}
	for _, list := range [][]int{e.c.nics, e.functions} {
		for _, d := range list {
			sum += port(d)
		}
	}
	for y, n := range o.left {
		if n == 0 || r.wants[y].kind == wantGPU {
			continue
		}
		o.sums = o.sums[:0]
		for _, d := range r.wants[y].any {
			for range min(n, e.units(&r.wants[y], d)) {
				o.sums = append(o.sums, port(d))
			}
		}
		sum += addSmallest(o.sums, n)
	}
	near, rooms := infinite, 0
	for n := range e.eff {
		if e.eff[n].room > 0 {
			rooms++
		}
		if e.eff[n].room >= r.cores {
			near = min(near, e.eff[n].near)
		}
	}
	if rooms > 1 && r.cores > 1 {
		near = min(near, e.several(2, false))
	}
	return sum + finite(near)
}
