package search

import (
	"slices"

	"github.com/rackless/rackless/plan"
)

// scale is the number of price units per unit of cost.
const scale = 16

// infinite exceeds any scaled cost.
const infinite = int64(1) << 60

// An enumerator enumerates the columns of one lab node that fit the remaining host with a reduced cost below a limit.
// It picks devices one by one (this file), then cores (cores.go).
type enumerator struct {
	s     *state
	i     int
	r     *request
	price *prices
	// limit is in units of 1/scale, prices included. yield may lower it.
	limit int64
	yield func(c *column, reduced int64) (stop bool)
	// relaxed asks only for a lower bound. Different lab nodes try equally cheap devices and NUMA nodes in different
	// orders, so that the prices see equal lab nodes spread out.
	relaxed       bool
	basic         bool
	breakSymmetry bool
	group         int  // see keepNear
	exact         bool // cores must be on all NUMA nodes with room

	c         column // the partial column
	full      column // the yielded column: c in order
	functions []int
	picked    []bool
	count     []int // by NIC
	bundle    []int // by bundle: devices in c
	homes     []int // NUMA nodes of the devices in c, once for each port
	homeCount []int // by NUMA node
	mark
	cut bool // the work ran out

	perNode []nodeCost
	eff     []nodeCost // perNode plus the minimum for devices still to be picked
	homeMin []int64    // by NUMA node: least distance from a node with room
	nextMin []int64    // the same from another node, or infinite
	nearest int64
	out     outlook

	byCost  []poolCost // pools with available cores
	hybrid  bool       // byCost has efficiency cores
	caches  bool       // L3 caches shared with tenants are counted here, not in separate bounds
	apart   int64      // minimum cost of a device in c without a local core
	perCore int64      // minimum cost of a core without local memory
	rest    []int

	// For the split of cores, see shares.go:
	missing        int64 // cost of a core missing from the share of the devices in c
	share          []int // by NUMA node, if missing > 0
	shared         []int // NUMA nodes with a share
	due            int   // sum of share
	widths         []int // room of the NUMA nodes, descending
	open           []int
	within, beyond []segment

	// For a dive:
	trail     []pick
	far       []int64 // by NUMA node: estimated cost of a device
	nearestTo []int64 // scratch space of farNear
}

type mark struct {
	paid   int64 // paths, ports and prices
	charge int64 // the prices in paid
}

// nodeCost is for the devices picked so far.
type nodeCost struct {
	core   int64 // per core
	near   int64 // distances of all devices, with this node nearest
	memory int64 // memory cost per core, see pages.go
	folded int64 // the part already in core
	only   int64 // if all cores are here
	room   int
	local  int // most cores with local memory
}

func newEnumerator(s *state) *enumerator {
	m := s.m
	return &enumerator{
		s:         s,
		picked:    make([]bool, len(m.devices)),
		count:     make([]int, len(m.devices)),
		bundle:    make([]int, m.bundles),
		perNode:   make([]nodeCost, len(m.nodes)),
		eff:       make([]nodeCost, len(m.nodes)),
		homeCount: make([]int, len(m.nodes)),
		homeMin:   make([]int64, len(m.nodes)),
		nextMin:   make([]int64, len(m.nodes)),
	}
}

// run reports whether the enumeration was complete.
func (e *enumerator) run(i int, price *prices, limit int64, yield func(*column, int64) bool) bool {
	e.begin(i, price, limit, yield)
	if e.relaxed && e.out.on && e.r.devices > 2 {
		for _, a := range e.anchors() {
			stop := e.pickNear(a) && e.devicesDone()
			e.unpick()
			if stop || e.cut {
				return false
			}
		}
	}
	e.want(0, 0, 0)
	return !e.cut
}

// lowerBound returns the minimum cost of lab node i on the remaining host, or infinite if it does not fit.
func (e *enumerator) lowerBound(i int, price *prices) int64 {
	e.begin(i, price, infinite, nil)
	ahead := e.lookAhead(0, 0)
	if !e.out.enough {
		return infinite
	}
	return min(infinite, max(ahead+e.coreBound(), e.pairsBound()))
}

func (e *enumerator) begin(i int, price *prices, limit int64, yield func(*column, int64) bool) {
	m := e.s.m
	e.i, e.r, e.price, e.limit, e.yield = i, &m.requests[i], price, limit, yield
	e.mark, e.cut, e.nearest, e.missing = mark{}, false, 0, 0
	e.homes, e.functions = e.homes[:0], e.functions[:0]
	e.c.gpus, e.c.nics, e.c.vfs = e.c.gpus[:0], e.c.nics[:0], e.c.vfs[:0]
	for n := range m.nodes {
		q := &e.perNode[n]
		*q = e.nodeCost(n)
		for _, pl := range m.nodes[n].pools {
			if e.r.pools[pl] {
				q.room += e.s.room(pl)
			}
		}
		q.room = min(q.room, max(0, e.s.nodeLeft[n]))
	}
	e.keepNear()
	if e.r.devices > 0 {
		e.findHomeMin()
	}
	e.caches = len(m.requests) == 1 && !e.relaxed && yield != nil
	e.prepare()
	e.prepareSpill()
}

// keepNear excludes NUMA nodes that an affinity forbids, and on the others reserves a core for each lab node that must
// have one there too. group is the total number of cores of these lab nodes.
//
// The case that needs it: two lab nodes that take all 168 cores of the 24 NUMA nodes of 192em64t-24n8c2t and must be on
// the same nodes. Without it no search finds a placement: the first one fills NUMA nodes on which the other needs
// cores.
func (e *enumerator) keepNear() {
	m := e.s.m
	others, cores := e.s.waiting(e.i)
	e.group, e.exact = e.r.cores+cores, false
	for _, q := range e.r.peers {
		if o := e.s.at[q.other]; o != nil && q.numa != "" {
			on := m.nodesOf(o)
			e.exact = e.exact || q.numa == plan.Same
			for n := range e.perNode {
				if slices.Contains(on, n) != (q.numa == plan.Same) {
					e.perNode[n].room = 0
				}
			}
		}
	}
	for n := range e.perNode {
		e.perNode[n].room = max(0, min(e.perNode[n].room, e.s.nodeLeft[n]-others))
	}
}

func (e *enumerator) findHomeMin() {
	for h := range e.homeMin {
		e.nextMin[h] = infinite
		least := infinite
		for a := range e.perNode {
			if e.perNode[a].room == 0 {
				continue
			}
			d := e.s.m.far(a, h)
			least = min(least, d)
			if a != h {
				e.nextMin[h] = min(e.nextMin[h], d)
			}
		}
		e.homeMin[h] = finite(least)
	}
}

// want picks the devices of a want in ascending order, so that each set comes up once.
func (e *enumerator) want(x, k, from int) bool {
	if e.s.work.add(1 + int64(len(e.perNode))/4) {
		e.cut = true
		return true
	}
	if x == len(e.r.wants) {
		return e.devicesDone()
	}
	w := &e.r.wants[x]
	if k == w.count {
		next := 0
		// Two wants for the same devices are one, so that their order does not matter.
		if x+1 < len(e.r.wants) && e.r.wants[x+1].kind == w.kind && slices.Equal(e.r.wants[x+1].any, w.any) {
			next = from
		}
		return e.want(x+1, 0, next)
	}
	if k == 0 && x > 0 && from == 0 || k > 0 || x == 0 {
		ahead := e.lookAhead(x, k)
		if !e.out.enough || e.paid+ahead+e.coreBound() >= e.limit || e.paid+e.pairsBound() >= e.limit {
			return false
		}
	}
	at, stop := from, false
	for ; at < len(w.any); at++ {
		next := at // several can be of one NIC
		if w.kind != wantVF {
			if len(w.any)-at < w.count-k {
				break
			}
			next = at + 1
		}
		if d := e.candidate(w, at); e.units(w, d) > 0 && !e.redundant(d) {
			old := e.add(d, w.kind)
			stop = e.want(x, k+1, next)
			e.drop(d, w.kind, old)
			if stop {
				break
			}
		}
		e.hide(x, at, 1)
	}
	for at--; at >= from; at-- {
		e.hide(x, at, -1)
	}
	return stop
}

func (e *enumerator) candidate(w *want, at int) int {
	if e.relaxed {
		at = (at + e.i) % len(w.any)
	}
	return w.any[at]
}

// units is 0 for a NIC used the other way: whole devices and virtual functions exclude each other in a bundle.
func (e *enumerator) units(w *want, d int) int {
	if w.kind == wantVF {
		if e.bundle[e.s.m.devices[d].bundle] > 0 {
			return 0
		}
		return max(0, e.s.vfsFree(d)-e.count[d])
	}
	if e.picked[d] || !e.s.freeWhole(e.i, d) {
		return 0
	}
	return 1
}

func (e *enumerator) listOf(kind wantKind) *[]int {
	switch kind {
	case wantGPU:
		return &e.c.gpus
	case wantNIC:
		return &e.c.nics
	}
	return &e.functions
}

// add picks a device. It returns the mark that drop must restore.
func (e *enumerator) add(d int, kind wantKind) mark {
	old, v := e.mark, &e.s.m.devices[d]
	e.missing = 0
	var charge int64
	if kind == wantVF {
		charge = e.price.vf[d]
		if e.count[d] == 0 {
			charge += e.price.nic[d]
		}
		e.count[d]++
	} else {
		if e.bundle[v.bundle] == 0 {
			charge = e.price.bundle[v.bundle]
		}
		charge += e.cardPrice(d, kind)
		e.bundle[v.bundle]++
		e.picked[d] = true
	}
	if kind == wantGPU {
		for _, g := range e.c.gpus {
			e.paid += scale * e.s.m.gpuPair(g, d)
		}
	}
	e.paid += scale*v.port + charge
	e.charge += charge
	list := e.listOf(kind)
	*list = append(*list, d)
	e.addHome(v.home, 1)
	e.take(d, kind, 1)
	return old
}

func (e *enumerator) cardPrice(d int, kind wantKind) int64 {
	k := e.s.m.devices[d].card
	if kind != wantNIC || k < 0 || e.s.m.cards[k] == 0 ||
		slices.ContainsFunc(e.c.nics, func(o int) bool { return e.s.m.devices[o].card == k }) {
		return 0
	}
	return e.price.card[k]
}

func (e *enumerator) drop(d int, kind wantKind, old mark) {
	e.missing = 0
	v := &e.s.m.devices[d]
	if kind == wantVF {
		e.count[d]--
	} else {
		e.bundle[v.bundle]--
		e.picked[d] = false
	}
	list := e.listOf(kind)
	*list = (*list)[:len(*list)-1]
	e.addHome(v.home, -1)
	e.take(d, kind, -1)
	e.mark = old
}

// addHome adds a device at a NUMA node or, with sign -1, removes it.
func (e *enumerator) addHome(home, sign int) {
	if home < 0 {
		return
	}
	if sign > 0 {
		e.homes = append(e.homes, home)
	} else {
		e.homes = e.homes[:len(e.homes)-1]
	}
	e.homeCount[home] += sign
	near := int64(sign) * scale * e.r.w.Nearest()
	core := int64(sign) * scale * e.r.w.PerCore()
	e.nearest += near * e.homeMin[home]
	for a := range e.perNode {
		d := e.s.m.far(a, home)
		e.perNode[a].core += core * d
		e.perNode[a].near += near * d
	}
}

// bestPort returns the cost of the cheapest path from a GPU to a picked port. Without a picked port it returns more
// than any path costs, but small enough to be summed.
func (e *enumerator) bestPort(g int) int64 {
	row := e.s.m.pairCost[g*len(e.s.m.devices):]
	least := infinite / 1024
	for _, d := range e.c.nics {
		least = min(least, row[d])
	}
	for _, d := range e.functions {
		least = min(least, row[d])
	}
	return least
}

func (e *enumerator) bestGPU(d int) int64 {
	least := infinite
	for _, g := range e.c.gpus {
		least = min(least, e.s.m.pair(g, d))
	}
	return least
}

// pathCost returns the cost of the paths between the picked GPUs and ports. Each device on the larger side pays for its
// best partner.
func (e *enumerator) pathCost() int64 {
	var sum int64
	switch {
	case len(e.c.gpus) == 0 || e.r.ports == 0:
	case e.r.ports > e.r.gpus:
		for _, d := range e.c.nics {
			sum += e.bestGPU(d)
		}
		for _, d := range e.functions {
			sum += e.bestGPU(d)
		}
	default:
		for _, g := range e.c.gpus {
			sum += e.bestPort(g)
		}
	}
	return sum
}

func (e *enumerator) listVFs() {
	e.rest = append(e.rest[:0], e.functions...)
	slices.Sort(e.rest)
	e.c.vfs = e.c.vfs[:0]
	for _, d := range e.rest {
		if n := len(e.c.vfs); n > 0 && e.c.vfs[n-1].Device == d {
			e.c.vfs[n-1].Count++
		} else {
			e.c.vfs = append(e.c.vfs, plan.VFCount{Device: d, Count: 1})
		}
	}
}

func (e *enumerator) devicesReady() {
	e.findShares()
	e.listVFs()
	e.sortPools()
	least := infinite
	for _, h := range e.homes {
		least = min(least, e.nextMin[h])
	}
	e.apart = scale * e.r.w.Nearest() * finite(least)
}

// devicesDone continues with the cores. A relaxed run ends here.
func (e *enumerator) devicesDone() bool {
	paid := e.paid + scale*e.pathCost()
	e.lookAhead(len(e.r.wants), 0)
	e.findShares()
	core := e.coreBound()
	if paid+core >= e.limit {
		return false
	}
	e.devicesReady()
	if e.relaxed {
		e.fill(core)
		return e.yield(&e.c, paid+core)
	}
	e.c.cores = e.c.cores[:0]
	return e.spread(0, e.r.cores, -1, 0, paid, e.charge)
}
