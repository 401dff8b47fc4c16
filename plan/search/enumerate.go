package search

import (
	"slices"

	"github.com/rackless/rackless/plan"
)

// scale is how much finer prices are than costs, so that whole numbers will do for both.
const scale = 16

// infinite is more than any scaled cost.
const infinite = int64(1) << 60

// An enumerator goes through the columns of one lab node that fit what a state has left and whose
// reduced cost is below a limit. With relaxed it solves the pricing problem: it finds a lower bound
// of the least reduced cost. It picks devices one by one (this file), then cores (cores.go).
type enumerator struct {
	s     *state
	i     int
	r     *request
	price *prices
	// limit is in parts of 1/scale, prices included; yield may lower it. A column at or above it is not wanted.
	limit int64
	yield func(c *column, reduced int64) (stop bool)
	// relaxed asks for a lower bound only: of the cores of a column, coreBound says what they cost at
	// least, and where. Of equally cheap devices and NUMA nodes each lab node finds other ones
	// first, so that prices see equal lab nodes side by side.
	relaxed bool
	// basic leaves out most ways to split cores, but the ones that are likely to be good.
	basic bool
	// breakSymmetry leaves out columns that differ from another one in the names of devices only.
	breakSymmetry bool
	group         int  // see keepNear
	exact         bool // cores have to be on all NUMA nodes that may give some

	c         column // what is picked so far
	full      column // what is yielded: c in order
	functions []int  // NICs of the virtual functions of c, in the order in which they were picked
	picked    []bool // devices of c
	count     []int  // virtual functions of c by NIC
	bundle    []int  // of a bundle: how many devices of c are in it
	homes     []int  // of the devices of c, once for each port
	homeCount []int  // of a NUMA node: devices of c there
	mark
	cut bool // work ran out

	perNode []nodeCost
	eff     []nodeCost // perNode with what the devices to come add at least
	homeMin []int64    // of a NUMA node: least distance to it from one with room; no core can be nearer
	nextMin []int64    // likewise from another one; infinite where there is none
	nearest int64      // sum of homeMin over homes, weighed
	out     outlook

	byCost  []poolCost // the pools that cores can be given from
	hybrid  bool       // there are efficiency cores among them
	caches  bool       // L3 caches shared with tenants count here; else bounds beside those here do that
	apart   int64      // what a device of c costs at least that has no core next to it
	perCore int64      // what a core costs at least whose memory is elsewhere
	rest    []int      // scratch of listVFs and spreadBound

	// Of how cores are split, see shares.go:
	missing        int64 // what a core costs that is missing from the share of the devices of c
	share          []int // of a NUMA node: cores due there, with missing
	shared         []int // NUMA nodes with a share
	due            int   // the sum of share
	widths         []int // room of the NUMA nodes, largest first
	open           []int // scratch of missingAhead, as are these:
	within, beyond []segment

	// Of a dive:
	trail     []pick  // devices of c in the order in which they were picked
	far       []int64 // what a device at a NUMA node costs, about
	nearestTo []int64 // scratch of farNear
}

// A mark is what the devices of a partial choice cost.
type mark struct {
	paid   int64 // paths, ports and prices
	charge int64 // the part of paid that is prices
}

// nodeCost is what cores on a NUMA node cost with the devices picked so far.
type nodeCost struct {
	core   int64 // each core
	near   int64 // all devices, were they served from here
	memory int64 // what memory adds to each core, see pages.go
	folded int64 // what of that is in core already
	only   int64 // what memory adds where all cores are here
	room   int
	local  int // how many cores can have all their memory here at most, where memory counts
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

// run enumerates lab node i. It reports whether it went through all.
func (e *enumerator) run(i int, price *prices, limit int64, yield func(*column, int64) bool) bool {
	e.begin(i, price, limit, yield)
	if e.relaxed && e.out.on && e.r.devices > 2 {
		// A good limit first: there may be many choices.
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

// lowerBound is the bound of the empty choice: it returns what lab node i costs at least in what is
// left, without looking at any choice; infinite where it does not fit.
func (e *enumerator) lowerBound(i int, price *prices) int64 {
	e.begin(i, price, infinite, nil)
	ahead := e.lookAhead(0, 0)
	if !e.out.enough {
		return infinite
	}
	return min(infinite, max(ahead+e.coreBound(), e.pairsBound()))
}

// begin sets the enumerator up for lab node i in what is left.
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

// keepNear takes away the NUMA nodes that affinity leaves no choice about, and on the others a core
// for each lab node that has to have one there too. group is how many cores those and this one ask
// for together.
//
// The case that needs it: two lab nodes that take all 168 cores of the 24 NUMA nodes of
// 192em64t-24n8c2t and have to be on the same ones. Without it no search finds a placement: the
// first one fills NUMA nodes on which the other needs cores.
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

// want picks the k-th device of want x out of those from position from on. Devices of a want are
// picked in ascending order, so that each set of them comes up once.
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
		// Two wants out of the same devices are one; only then does the order of wants not matter.
		if x+1 < len(e.r.wants) && e.r.wants[x+1].kind == w.kind && slices.Equal(e.r.wants[x+1].any, w.any) {
			next = from
		}
		return e.want(x+1, 0, next)
	}
	// Between two wants out of the same devices nothing was picked since the bound was last found.
	if k == 0 && x > 0 && from == 0 || k > 0 || x == 0 {
		ahead := e.lookAhead(x, k)
		if !e.out.enough || e.paid+ahead+e.coreBound() >= e.limit || e.paid+e.pairsBound() >= e.limit {
			return false
		}
	}
	at, stop := from, false
	for ; at < len(w.any); at++ {
		next := at // several virtual functions can be of one NIC
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
		// What was tried is not picked any more: all sets with it are done. The bounds of those to
		// come get better by it.
		e.hide(x, at, 1)
	}
	for at--; at >= from; at-- {
		e.hide(x, at, -1)
	}
	return stop
}

// candidate returns the device at a position of a want.
func (e *enumerator) candidate(w *want, at int) int {
	if e.relaxed {
		at = (at + e.i) % len(w.any)
	}
	return w.any[at]
}

// units is how often a device can be picked for a want. A NIC serves either as a whole or by virtual
// functions, and so does all of its bundle.
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

// listOf returns the list of devices that were picked for a kind of want.
func (e *enumerator) listOf(kind wantKind) *[]int {
	switch kind {
	case wantGPU:
		return &e.c.gpus
	case wantNIC:
		return &e.c.nics
	}
	return &e.functions
}

// add picks a device for a kind of want. It returns what drop has to restore.
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

// drop puts the device back that was picked last.
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

// addHome counts a device at a NUMA node in, or out with sign -1. It keeps perNode up to date with
// each pick: what cores on a node cost depends on the devices alone.
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
	near := int64(sign) * scale * e.s.m.p.Weights.DeviceNearest
	core := int64(sign) * scale * e.r.w.DeviceDistance
	e.nearest += near * e.homeMin[home]
	for a := range e.perNode {
		d := e.s.m.far(a, home)
		e.perNode[a].core += core * d
		e.perNode[a].near += near * d
	}
}

// bestPort returns the cost of the cheapest path from a GPU to a port that is picked. Where none is,
// that is more than any path costs, and little enough to be added up.
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

// bestGPU returns the cost of the cheapest path from a port to a GPU that is picked.
func (e *enumerator) bestGPU(d int) int64 {
	least := infinite
	for _, g := range e.c.gpus {
		least = min(least, e.s.m.pair(g, d))
	}
	return least
}

// pathCost returns what the paths between the GPUs and ports that are picked cost: each of the
// larger side pays for its best partner.
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

// listVFs counts the virtual functions that are picked by NIC.
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

// devicesReady prepares giving cores to the devices that are picked.
func (e *enumerator) devicesReady() {
	e.findShares()
	e.listVFs()
	e.sortPools()
	least := infinite
	for _, h := range e.homes {
		least = min(least, e.nextMin[h])
	}
	e.apart = scale * e.s.m.p.Weights.DeviceNearest * finite(least)
}

// devicesDone goes on to the cores. A relaxed run ends here: coreBound is at most what any split of
// the cores costs, and fill makes a column for the relaxation to count what it takes.
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
