package search

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/plan"
)

// scale is how much finer prices are than costs, so that whole numbers will do for both.
const scale = 16

// infinite is more than any scaled cost.
const infinite = int64(1) << 60

// prices are what the relaxation asks for what lab nodes compete for, in parts of 1/scale. See bound.go.
type prices struct {
	node   []int64 // a core of a NUMA node
	bundle []int64 // a bundle, taken whole
	vf     []int64 // a virtual function of a NIC
	nic    []int64 // being one more lab node with virtual functions of a NIC
	fixed  int64   // what all that there is comes to
}

func newPrices(m *model) *prices {
	return &prices{node: make([]int64, len(m.nodes)), bundle: make([]int64, m.bundles),
		vf: make([]int64, len(m.devices)), nic: make([]int64, len(m.devices))}
}

// An enumerator goes through the columns of one lab node that fit what a state has left and cost less than a limit.
type enumerator struct {
	s     *state
	i     int
	r     *request
	price *prices
	// limit is in parts of 1/scale, prices included; yield may lower it. A column at or above it is not wanted.
	limit int64
	yield func(c *column, reduced int64) (stop bool)
	// relaxed asks for a lower bound only: of the cores of a column, bound says what they cost at
	// least, and where. Of equally cheap devices and NUMA nodes each lab node finds other ones
	// first, so that prices see equal lab nodes side by side.
	relaxed bool
	// basic leaves out most ways to split cores, but the ones that are likely to be good.
	basic    bool
	within   []bool // NUMA nodes that may give cores; nil for all
	near     []bool // NUMA nodes that may give devices; nil for all
	beyond   []bool // asks for a device of which it is known that it is at none of these NUMA nodes; nil for none
	spanning int    // asks for cores on so many NUMA nodes at least
	// interchangeable devices leaves out columns that differ from another one in the names of devices only.
	breakSymmetry bool

	c       column
	picked  []bool // devices of c
	count   []int  // virtual functions of c by NIC
	bundle  []int  // of a bundle: how many devices of c are in it
	memory  *pageCost
	homes   []int // of the devices of c, once for each port
	paid    int64 // device cost so far: paths, ports and prices
	charge  int64 // the part of paid that is prices
	perNode []nodeCost
	homeMin []int64 // of a NUMA node: least distance to it from one with cores left
	nearest int64   // sum of homeMin over homes, weighed
	hybrid  bool

	byCost []poolCost
	cut    bool

	out       outlook
	eff       []nodeCost // perNode with what the devices to come add at least
	functions []int      // NICs of the virtual functions of c, in the order in which they were picked
	trail     []pick     // of a dive: devices of c in the order in which they were picked
	far       []int64    // of a dive: what a device at a NUMA node costs, about
	nearestTo []int64    // scratch of farNear
	rest      []int      // scratch of spreadBound
	homeCount []int      // of a NUMA node: devices of c there
	caches    bool       // L3 caches shared with tenants count here; else bounds beside those here do that
	apart     int64      // what a device of c costs at least that has no core next to it
	perCore   int64      // what a core costs at least whose memory is elsewhere
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

type poolCost struct {
	pool, node, room int
	core             int64 // each core, prices included
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

// floor returns what lab node i costs at least in what is left, without looking at any choice;
// infinite where it does not fit.
func (e *enumerator) lowerBound(i int, price *prices) int64 {
	e.begin(i, price, infinite, nil)
	ahead := e.lookAhead(0, 0)
	if !e.out.countsAllow {
		return infinite
	}
	return min(infinite, ahead+e.coreBound())
}

// begin sets the enumerator up for lab node i in what is left.
func (e *enumerator) begin(i int, price *prices, limit int64, yield func(*column, int64) bool) {
	m := e.s.m
	e.i, e.r, e.price, e.limit, e.yield = i, &m.requests[i], price, limit, yield
	e.paid, e.charge, e.cut = 0, 0, false
	e.memory = e.r.memory
	e.homes = e.homes[:0]
	e.c.gpus, e.c.nics, e.c.vfs = e.c.gpus[:0], e.c.nics[:0], e.c.vfs[:0]
	for n := range m.nodes {
		e.perNode[n] = e.nodeCost(n)
		for _, pl := range m.nodes[n].pools {
			if e.r.pools[pl] {
				e.perNode[n].room += e.s.room(pl)
			}
		}
		e.perNode[n].room = min(e.perNode[n].room, max(0, e.s.nodeLeft[n]))
		if e.within != nil && !e.within[n] {
			e.perNode[n].room = 0
		}
	}
	e.nearest = 0
	if e.r.devices > 0 {
		e.findHomeMin()
	}
	e.caches = len(m.requests) == 1 && !e.relaxed && yield != nil
	e.functions = e.functions[:0]
	e.prepare()
	e.prepareSpill()
}

func (e *enumerator) findHomeMin() {
	n := len(e.s.m.nodes)
	for h := range n {
		least := int64(-1)
		for a := range n {
			if d := e.s.m.dist[a*n+h]; e.perNode[a].room > 0 && (least < 0 || d < least) {
				least = d
			}
		}
		e.homeMin[h] = max(0, least)
	}
}

// want picks the k-th device of want x out of those from position from on.
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
	if k == 0 && x > 0 && from == 0 || k > 0 || x == 0 {
		ahead := e.lookAhead(x, k)
		if !e.out.countsAllow || e.paid+ahead+e.coreBound() >= e.limit {
			return false
		}
	}
	hidden := from
	defer func() {
		for ; e.out.on && hidden > from; hidden-- {
			e.hide(x, hidden-1, -1)
		}
	}()
	for at := from; at < len(w.any); at++ {
		// What was tried is not picked any more.
		for ; e.out.on && hidden < at; hidden++ {
			e.hide(x, hidden, 1)
		}
		d := e.candidate(w, at)
		if e.tooFar(d) {
			continue
		}
		if w.kind == wantVF {
			if e.s.vfsFree(d) <= e.count[d] || e.bundle[e.s.m.devices[d].bundle] > 0 || e.redundant(w, d, at) {
				continue
			}
			old := e.addVF(d)
			stop := e.want(x, k+1, at)
			e.dropVF(d, old)
			if stop {
				return true
			}
			continue
		}
		if len(w.any)-at < w.count-k {
			break
		}
		if e.picked[d] || !e.s.freeWhole(e.i, d) || e.redundant(w, d, at) {
			continue
		}
		old := e.addWhole(d, w.kind)
		stop := e.want(x, k+1, at+1)
		e.dropWhole(d, w.kind, old)
		if stop {
			return true
		}
	}
	return false
}

// hasTwin reports whether an earlier device would do just as well as d.
func (e *enumerator) redundant(w *want, d, at int) bool {
	t := e.s.m.symmetric[d]
	if t < 0 || !e.breakSymmetry {
		return false
	}
	// d stands for itself once its twin, which comes first, is in use.
	return e.s.untouched(t) && e.s.untouched(d) && !e.picked[t] && e.count[t] == 0
}

// tooFar reports whether a device is known to be at a NUMA node that may give none.
func (e *enumerator) tooFar(d int) bool {
	h := e.s.m.devices[d].home
	return e.near != nil && h >= 0 && !e.near[h]
}

type mark struct{ paid, charge int64 }

func (e *enumerator) addWhole(d int, kind wantKind) mark {
	m := e.s.m
	old := mark{e.paid, e.charge}
	v := &m.devices[d]
	if kind == wantGPU {
		for _, g := range e.c.gpus {
			e.paid += scale * m.gpuCost[g*len(m.devices)+d]
		}
		e.c.gpus = append(e.c.gpus, d)
	} else {
		e.c.nics = append(e.c.nics, d)
		e.paid += scale * v.port
	}
	e.picked[d] = true
	if e.bundle[v.bundle] == 0 {
		e.paid += e.price.bundle[v.bundle]
		e.charge += e.price.bundle[v.bundle]
	}
	e.bundle[v.bundle]++
	e.addHome(v.home, 1)
	e.take(d, kind, 1)
	return old
}

func (e *enumerator) dropWhole(d int, kind wantKind, old mark) {
	v := &e.s.m.devices[d]
	if kind == wantGPU {
		e.c.gpus = e.c.gpus[:len(e.c.gpus)-1]
	} else {
		e.c.nics = e.c.nics[:len(e.c.nics)-1]
	}
	e.picked[d] = false
	e.bundle[v.bundle]--
	e.addHome(v.home, -1)
	e.take(d, kind, -1)
	e.paid, e.charge = old.paid, old.charge
}

func (e *enumerator) addVF(d int) mark {
	m := e.s.m
	old := mark{e.paid, e.charge}
	v := &m.devices[d]
	price := e.price.vf[d]
	if e.count[d] == 0 {
		price += e.price.nic[d]
	}
	e.paid += scale*v.port + price
	e.charge += price
	e.count[d]++
	e.functions = append(e.functions, d)
	e.addHome(v.home, 1)
	e.take(d, wantVF, 1)
	return old
}

func (e *enumerator) dropVF(d int, old mark) {
	e.count[d]--
	e.functions = e.functions[:len(e.functions)-1]
	e.addHome(e.s.m.devices[d].home, -1)
	e.take(d, wantVF, -1)
	e.paid, e.charge = old.paid, old.charge
}

// addHome counts a device at a NUMA node in, or out with sign -1.
func (e *enumerator) addHome(home int, sign int64) {
	if home < 0 {
		return
	}
	m := e.s.m
	if sign > 0 {
		e.homes = append(e.homes, home)
	} else {
		e.homes = e.homes[:len(e.homes)-1]
	}
	e.nearest += sign * scale * m.p.Weights.DeviceNearest * e.homeMin[home]
	n := len(m.nodes)
	core, near := sign*scale*e.r.w.DeviceDistance, sign*scale*m.p.Weights.DeviceNearest
	for a := range n {
		d := m.dist[a*n+home]
		e.perNode[a].core += core * d
		e.perNode[a].near += near * d
	}
}

// ahead returns what paths will cost at least with the devices picked so far and those to come.
// Each of the larger side pays for its best partner, and each two GPUs for their path.
func (e *enumerator) ahead() int64 {
	r := e.r
	have := int64(len(e.c.gpus))
	all := int64(r.gpus)
	sum := (all*(all-1) - have*(have-1)) / 2 * r.leastGPUs
	// Of the pairs that are left, those between a GPU that is picked and one that is not were
	// counted at the least as well.
	if r.gpus == 0 || r.ports == 0 {
		return sum * scale
	}
	if r.ports > r.gpus {
		for _, d := range e.c.nics {
			sum += r.minPair[d]
		}
		return (sum + int64(r.ports-len(e.c.nics))*r.leastPort) * scale
	}
	for _, g := range e.c.gpus {
		sum += r.minPair[g]
	}
	return (sum + (all-have)*r.leastGPU) * scale
}

// coreBound returns what the cores will cost at least with the devices picked so far, infinite
// where there are not enough. Either they are all on one NUMA node, or they span several: then each
// core is on the cheapest node with room, and each device next to the nearest one.
func (e *enumerator) coreBound() int64 {
	best := infinite
	total, widest := 0, 0
	for n := range e.eff {
		q := &e.eff[n]
		total += q.room
		widest = max(widest, q.room)
		if q.room >= e.r.cores && e.spanning < 2 {
			best = min(best, e.single(n))
		}
	}
	if total < e.r.cores {
		return infinite
	}
	if e.r.cores == 1 {
		return best
	}
	fewest := max(e.fewest(widest), e.spanning)
	return min(best, max(e.several(fewest, true)+e.spreadCores(false), e.several(fewest, false)+e.spreadCores(true)))
}

// spreadCores returns what cores on several NUMA nodes cost at least by themselves, with their part
// of the memory or without; infinite where only one node has room.
func (e *enumerator) spreadCores(memory bool) int64 {
	var spread int64
	if memory {
		if e.memory == nil {
			return 0 // the other bound is as good
		}
		spread = e.memory.least
	}
	left := e.r.cores
	for above, first := int64(0), true; left > 0; first = false {
		// The cheapest nodes above that; prices of cores are never negative.
		next, room, nodes := infinite, 0, 0
		for n := range e.eff {
			q := &e.eff[n]
			core := q.core - q.folded
			if memory {
				core = q.core + q.memory
			}
			if q.room == 0 || !first && core <= above || core > next {
				continue
			}
			if core < next {
				next, room, nodes = core, 0, 0
			}
			room += q.room
			nodes++
		}
		if nodes == 0 {
			return infinite
		}
		give := min(left, room)
		if first && nodes == 1 {
			give = min(give, left-1) // one core at least is elsewhere
		}
		spread += int64(give) * next
		left -= give
		above = next
	}
	return spread
}

// single returns what the cores cost at least when they are all on NUMA node n, and the memory.
func (e *enumerator) single(n int) int64 {
	q := &e.eff[n]
	sum := int64(e.r.cores)*q.core + q.near + q.only
	m := e.s.m
	if w := m.p.Weights.L3Shared; e.caches && w > 0 && len(m.nodes[n].pools) == 1 {
		sum += scale * w * m.sharesL3(m.nodes[n].pools[0], e.r.cores)
	}
	return sum
}

// several returns what it costs at least to span NUMA nodes, at least so many, with the memory that
// can then be near if asked for, and the devices that have no core next to them.
func (e *enumerator) several(nodes int, memory bool) int64 {
	best := infinite
	for k := nodes; k <= max(nodes, min(len(e.eff), e.r.cores)); k++ {
		span := int64(k-1) * scale * e.r.w.NUMASpan
		if span >= best {
			break
		}
		if memory && e.r.alone != nil && k < len(e.r.aloneSpan) {
			span += scale * e.r.aloneSpan[k]
		}
		best = min(best, span+max(e.nearest, e.away(k)))
	}
	return best
}

// fewest returns how many NUMA nodes the cores need at least when one is not enough.
func (e *enumerator) fewest(widest int) int {
	nodes, left := 0, e.r.cores
	for size := widest; left > 0; {
		next := 0
		for n := range e.eff {
			room := e.eff[n].room
			if room == size && left > 0 {
				nodes++
				left -= room
			}
			if room < size {
				next = max(next, room)
			}
		}
		size = next
	}
	return max(2, nodes)
}

// fill puts the cores where coreBound found them.
func (e *enumerator) fill(bound int64) {
	e.c.cores = e.c.cores[:0]
	only := -1
	for k := range e.eff {
		n := (k + e.i) % len(e.eff)
		if q := &e.eff[n]; q.room >= e.r.cores && e.single(n) == bound {
			only = n
			break
		}
	}
	left := e.r.cores
	for _, q := range e.byCost {
		if only >= 0 && q.node != only {
			continue
		}
		if give := min(left, q.room); give > 0 {
			e.c.cores = append(e.c.cores, poolCount{q.pool, give})
			left -= give
		}
	}
}

// pathCost returns what the pairs of GPUs and ports cost.
func (e *enumerator) pathCost() int64 {
	if len(e.c.gpus) == 0 || e.r.ports == 0 {
		return 0
	}
	m := e.s.m
	n := len(m.devices)
	var sum int64
	if e.r.ports > e.r.gpus {
		best := func(d int) int64 {
			least := infinite
			for _, g := range e.c.gpus {
				least = min(least, m.pairCost[g*n+d])
			}
			return least
		}
		for _, d := range e.c.nics {
			sum += best(d)
		}
		for _, v := range e.c.vfs {
			sum += int64(v.Count) * best(v.Device)
		}
		return sum
	}
	for _, g := range e.c.gpus {
		least := infinite
		for _, d := range e.c.nics {
			least = min(least, m.pairCost[g*n+d])
		}
		for _, v := range e.c.vfs {
			least = min(least, m.pairCost[g*n+v.Device])
		}
		sum += least
	}
	return sum
}

// devicesReady lines the places up for the devices that are picked.
func (e *enumerator) devicesReady() {
	e.listVFs()
	e.lineUp()
	clear(e.homeCount)
	for _, h := range e.homes {
		e.homeCount[h]++
	}
	e.findApart()
}

// listVFs counts the virtual functions that are picked by NIC.
func (e *enumerator) listVFs() {
	e.c.vfs = e.c.vfs[:0]
	for _, d := range e.functions {
		at, ok := slices.BinarySearchFunc(e.c.vfs, d, func(v plan.VFCount, d int) int {
			return cmp.Compare(v.Device, d)
		})
		if ok {
			e.c.vfs[at].Count++
		} else {
			e.c.vfs = slices.Insert(e.c.vfs, at, plan.VFCount{Device: d, Count: 1})
		}
	}
}

// devicesDone goes on to the cores.
func (e *enumerator) devicesDone() bool {
	if e.beyond != nil && !slices.ContainsFunc(e.homes, func(h int) bool { return !e.beyond[h] }) {
		return false
	}
	e.listVFs()
	paid := e.paid + scale*e.pathCost()
	e.lookAhead(len(e.r.wants), 0)
	core := e.coreBound()
	if paid+core >= e.limit {
		return false
	}
	if e.relaxed {
		e.lineUp()
		e.fill(core)
		return e.yield(&e.c, paid+core)
	}
	e.devicesReady()
	e.c.cores = e.c.cores[:0]
	return e.spread(0, e.r.cores, -1, 0, paid, e.charge)
}

// findApart finds what a device costs at least that has no core next to it.
func (e *enumerator) findApart() {
	n := len(e.perNode)
	least := infinite
	for _, h := range e.homes {
		for a := range n {
			if a != h && e.perNode[a].room > 0 {
				least = min(least, e.s.m.dist[a*n+h])
			}
		}
	}
	e.apart = 0
	if least < infinite {
		e.apart = scale * e.s.m.p.Weights.DeviceNearest * least
	}
}

// lineUp sorts the places by what a core there costs, those of one NUMA node together.
func (e *enumerator) lineUp() {
	m := e.s.m
	e.byCost = e.byCost[:0]
	e.hybrid = false
	for n := range e.perNode {
		if e.perNode[n].room == 0 {
			continue
		}
		for _, pl := range m.nodes[n].pools {
			if room := e.s.room(pl); e.r.pools[pl] && room > 0 {
				core := e.perNode[n].core
				if m.pools[pl].efficiency {
					core += scale * e.r.w.EfficiencyCores
					e.hybrid = true
				}
				e.byCost = append(e.byCost, poolCost{pl, n, room, core})
			}
		}
	}
	slices.SortFunc(e.byCost, func(a, b poolCost) int {
		if a.node != b.node {
			if c := cmp.Compare(e.perNode[a.node].core, e.perNode[b.node].core); c != 0 {
				return c
			}
			return cmp.Compare(a.node, b.node)
		}
		if c := cmp.Compare(a.core, b.core); c != 0 {
			return c
		}
		return cmp.Compare(a.pool, b.pool)
	})
}

// spread gives left cores to the places from position pos of the line on. node is the last NUMA
// node that got any, spans how many have.
func (e *enumerator) spread(pos, left, node, spans int, paid, charge int64) bool {
	if e.s.work.add(1 + int64(len(e.byCost))/16) {
		e.cut = true
		return true
	}
	if left == 0 {
		return e.done(paid, charge, spans)
	}
	if pos == len(e.byCost) {
		return false
	}
	plain, full := e.spreadBound(pos, left, node, spans)
	if paid+plain >= e.limit || paid+full+e.spilled() >= e.limit {
		return false
	}
	q := e.byCost[pos]
	room := min(q.room, e.s.nodeLeft[q.node], left)
	pk := e.s.m.pools[q.pool].pkg
	for _, pc := range e.c.cores {
		o := &e.s.m.pools[pc.pool]
		if o.node == q.node {
			room = min(room, e.s.nodeLeft[q.node]-e.givenOn(q.node))
		}
		if pk >= 0 && o.pkg == pk {
			room = min(room, e.s.pkgLeft[pk]-e.givenIn(pk))
		}
	}
	more := spans
	if q.node != node {
		more++
	}
	for n := room; n > 0; n-- {
		if e.basic && !e.likely(q, n, room, left) {
			continue
		}
		e.c.cores = append(e.c.cores, poolCount{q.pool, n})
		stop := e.spread(pos+1, left-n, q.node, more, paid+int64(n)*q.core, charge+int64(n)*e.price.node[q.node])
		e.c.cores = e.c.cores[:len(e.c.cores)-1]
		if stop {
			return true
		}
		// Fewer here are no cheaper, memory and caches aside.
		if plain, _ := e.spreadBound(pos+1, left-n+1, q.node, more); paid+int64(n-1)*q.core+plain >= e.limit {
			break
		}
	}
	return e.spread(pos+1, left, node, spans, paid, charge)
}

// likely reports whether n of left cores in a place with so much room make a split worth trying
// first: all that go, all but one, whole L3 caches, or an even split in two.
func (e *enumerator) likely(q poolCost, n, room, left int) bool {
	if n >= room-1 || n == left/2 || n == (left+1)/2 {
		return true
	}
	size := e.s.m.l3Size(q.pool)
	return size > 0 && (n%size == 0 && n+size > room || (left-n)%size == 0 && n+size > room)
}

func (e *enumerator) givenOn(node int) int {
	sum := 0
	for _, pc := range e.c.cores {
		if e.s.m.pools[pc.pool].node == node {
			sum += pc.n
		}
	}
	return sum
}

func (e *enumerator) givenIn(pk int) int {
	sum := 0
	for _, pc := range e.c.cores {
		if e.s.m.pools[pc.pool].pkg == pk {
			sum += pc.n
		}
	}
	return sum
}

// spreadBound returns what left cores cost at least from position pos of the line on, spans and the
// distance of devices to the nearest included; full counts memory and L3 caches as well.
func (e *enumerator) spreadBound(pos, left, node, spans int) (plain, full int64) {
	need := left
	var sum int64
	here, widest, total := 0, 0, 0
	near, nearest, clean := 0, 0, 0 // as here and widest, of cores with their memory
	wide, at, dirtiest := 0, -1, 0
	core := infinite
	m := e.s.m
	e.rest = e.rest[:0]
	for _, q := range e.byCost[pos:] {
		// The line goes up in cost, but for efficiency cores.
		give := min(need, q.room)
		sum += int64(give) * q.core
		need -= give
		core = min(core, q.core)
		total += q.room
		if sp := &m.spills[q.pool]; sp.simple {
			clean += min(q.room, sp.clean)
			if len(sp.dirty) > 0 {
				dirtiest = max(dirtiest, sp.dirty[0])
			}
		} else {
			clean += q.room
		}
		if q.node == node {
			here += q.room
			near = e.perNode[q.node].local
			continue
		}
		if q.node != at {
			at, wide = q.node, 0
			nearest = max(nearest, e.perNode[q.node].local)
			if c := e.homeCount[q.node]; c > 0 {
				e.rest = append(e.rest, c)
			}
		}
		wide += q.room
		widest = max(widest, wide)
	}
	if total < left {
		return infinite, infinite
	}
	if e.hybrid {
		sum = int64(left) * core
	}
	more := 0
	if left > here {
		if widest == 0 {
			return infinite, infinite
		}
		more = (left - here + widest - 1) / widest
	}
	span := scale * e.r.w.NUMASpan
	plain = sum + int64(spans+more-1)*span + e.nearest
	// Going on to more NUMA nodes than that has a price, but brings cores next to memory and devices.
	best := infinite
	if e.perCore > 0 && node >= 0 {
		near = max(0, min(near-e.givenOn(node), here))
	}
	e.sortRest()
	open, last := len(e.homes), -1
	for _, pc := range e.c.cores {
		if n := m.pools[pc.pool].node; n != last {
			open -= e.homeCount[n]
			last = n
		}
	}
	for t := more; t <= len(e.eff); t++ {
		cost := int64(spans+t-1) * span
		if cost >= best || t > left {
			break
		}
		if e.perCore > 0 {
			cost += e.perCore * int64(max(0, left-near-t*nearest))
		}
		out := open
		for k := range min(t, len(e.rest)) {
			out -= e.rest[k]
		}
		cost += max(e.nearest, int64(max(0, out))*e.apart)
		best = min(best, cost)
	}
	full = sum + best
	if w := m.p.Weights.L3Shared; e.caches && w > 0 && left > clean && dirtiest > 0 {
		full += scale * w * int64((left-clean+dirtiest-1)/dirtiest)
	}
	return plain, full
}

// sortRest puts the counts of devices that NUMA nodes still could be next to in order, largest first; there are few.
func (e *enumerator) sortRest() {
	for i := 1; i < len(e.rest); i++ {
		for k := i; k > 0 && e.rest[k] > e.rest[k-1]; k-- {
			e.rest[k], e.rest[k-1] = e.rest[k-1], e.rest[k]
		}
	}
}

// done yields the column.
func (e *enumerator) done(paid, charge int64, spans int) bool {
	m := e.s.m
	paid += int64(spans-1) * scale * e.r.w.NUMASpan
	n := len(m.nodes)
	for _, h := range e.homes {
		least := infinite
		for _, pc := range e.c.cores {
			least = min(least, m.dist[m.pools[pc.pool].node*n+h])
		}
		paid += scale * m.p.Weights.DeviceNearest * least
	}
	if paid+e.spilled() >= e.limit {
		return false
	}
	// The line is by cost; a column is by place.
	c := &e.c
	saved := slices.Clone(c.cores)
	slices.SortFunc(c.cores, func(a, b poolCount) int { return cmp.Compare(a.pool, b.pool) })
	gpus, nics := c.gpus, c.nics
	if !slices.IsSorted(gpus) {
		c.gpus = slices.Sorted(slices.Values(gpus))
	}
	if !slices.IsSorted(nics) {
		c.nics = slices.Sorted(slices.Values(nics))
	}
	c.own, c.charge = (paid-charge)/scale, charge
	stop := e.yield(c, paid)
	c.cores = append(c.cores[:0], saved...)
	c.gpus, c.nics = gpus, nics
	return stop
}
