package search

import (
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// How the cores of a lab node are split over NUMA nodes has a cost of its own. Cores are missing
// from the share of the devices on a NUMA node (device_share), or from an even split
// (core_balance). Both are convex: with the linear price of a core they are filled exactly by
// taking the cheapest core first, where a core within the share of its NUMA node saves what is
// lost without it.

// findShares finds how many cores are due on each NUMA node with the devices picked, and what each
// missing one costs: nothing where all devices are on one NUMA node, or are not all picked yet.
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
		if k == 1 && len(e.shared) > 1 {
			break // GPUs on several NUMA nodes decide alone
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

// shareOf returns the cores that are due on a NUMA node.
func (e *enumerator) shareOf(node int) int {
	if e.missing == 0 {
		return 0
	}
	return e.share[node]
}

// splitCost returns what the split of the cores of a whole column costs, beside the price of each.
func (e *enumerator) splitCost(spans int) int64 {
	var cost int64
	if e.missing > 0 {
		for _, h := range e.shared {
			cost += e.missing * int64(max(0, e.share[h]-e.givenOn(h)))
		}
	}
	return cost + e.uneven(spans, e.r.cores, false)
}

// uneven returns what an uneven split costs at least with cores on so many NUMA nodes, of which
// given are given so far. The last of those that have some is open where it may get more.
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
	// Those still to be filled share what is left.
	missing += max(0, even*(nodes-have)-(e.r.cores-given))
	return scale * e.r.w.CoreBalance * int64(missing)
}

// unevenRoom returns what an uneven split over so many NUMA nodes costs at least because of the
// room on them: widths has that, largest first.
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

// findWidths sorts the room of the NUMA nodes, largest first.
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

// A segment is cores at one price.
type segment struct {
	cost  int64
	cores int
}

// missingAhead returns what left cores cost at least from position pos of byCost on with the share
// of devices, and what those given so far lack of it.
func (e *enumerator) missingAhead(pos, left int) int64 {
	// Due, and not given, on each NUMA node with devices.
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
	// Both are sorted, as byCost is.
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

// Before all devices are picked nobody knows the shares. But the weight of missing cores is not
// below that of their distance to devices, so that no split costs less than one by the shares: with
// s cores due for each GPU, s times the distances from each GPU to each device.

// An apartness is what devices cost that are apart, as seen from the cores that follow them.
type apartness struct {
	each  int64     // what a unit of distance from a GPU to a device costs at least, scaled
	half  [][]int64 // as pairing.half, with the distances between the GPUs, scaled
	ports [][]int64 // of a device: the k least distances to it from GPUs, added up, at k
}

// findApart prepares pairsBound for a request that picks several GPUs.
func (m *model) findApart(r *request) {
	if r.gpus < 2 || r.half == nil || r.w.DeviceShare < r.w.DeviceDistance {
		return
	}
	// Where all GPUs can be on one NUMA node, shares may go by all devices.
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
	if most < r.gpus {
		due = r.cores / r.gpus
	}
	if due == 0 {
		return
	}
	a := &apartness{each: scale * int64(due) * r.w.DeviceDistance, ports: make([][]int64, len(m.devices))}
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

// apart returns the distances between two devices, both ways; apartFrom returns that from the first to the second.
func (m *model) apart(a, b int) int64 { return m.apartFrom(a, b) + m.apartFrom(b, a) }

func (m *model) apartFrom(a, b int) int64 {
	x, y := m.devices[a].home, m.devices[b].home
	if x < 0 || y < 0 {
		return 0
	}
	return m.far(x, y)
}

// pairsBound returns what follows at least from the devices picked, beside what is paid for them,
// and from those to come, where cores follow the GPUs. It needs lookAhead.
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
		// Paths to those picked count whole, those to each other half, as each has two ends.
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
