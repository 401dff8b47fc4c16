package search

import (
	"cmp"
	"slices"
)

type poolCost struct {
	pool, node, room int
	core             int64 // per core, including prices
}

// coreBound returns a lower bound on the cost of the cores for the devices picked so far, or infinite if there are not
// enough cores. All cores are on one NUMA node, or each is on the cheapest node with room and each device next to its
// nearest; the latter split need not exist, but none is cheaper.
func (e *enumerator) coreBound() int64 {
	best := infinite
	total, widest, nodes := 0, 0, 0
	e.findWidths()
	for n := range e.eff {
		q := &e.eff[n]
		total += q.room
		widest = max(widest, q.room)
		nodes += min(1, q.room)
		if q.room >= e.r.cores {
			best = min(best, e.single(n))
		}
	}
	if total < e.r.cores {
		return infinite
	}
	if e.r.cores == 1 || nodes == 1 {
		return best
	}
	// Memory is counted either with the spanned nodes or with each core. Both bound the same cost, so only the larger
	// bound is valid, not their sum.
	fewest := e.fewest(widest)
	return min(best, max(e.several(fewest, true)+e.spreadCores(false), e.several(fewest, false)+e.spreadCores(true)))
}

// spreadCores returns the minimum cost of cores on several NUMA nodes, or infinite if only one has room.
func (e *enumerator) spreadCores(memory bool) int64 {
	var spread int64
	if memory {
		if e.r.memory == nil {
			return 0
		}
		spread = e.r.memory.least
	}
	spread += e.missing * int64(e.due)
	left := e.r.cores
	// This selects by increasing cost without sorting, because there are few distinct costs and it runs at each pick.
	for above, first := int64(0), true; left > 0; first = false {
		// Core prices are never negative.
		next, room, nodes := infinite, 0, 0
		for n := range e.eff {
			q := &e.eff[n]
			core := q.core - q.folded
			if memory {
				core = q.core + q.memory
			}
			if q.room == 0 {
				continue
			}
			due := min(q.room, e.shareOf(n))
			for _, s := range [...]segment{{core - e.missing, due}, {core, q.room - due}} {
				if s.cores == 0 || !first && s.cost <= above || s.cost > next {
					continue
				}
				if s.cost < next {
					next, room, nodes = s.cost, 0, 0
				}
				room += s.cores
				nodes++
			}
		}
		if nodes == 0 {
			return infinite
		}
		give := min(left, room)
		if first && nodes == 1 {
			give = min(give, left-1) // at least one core is elsewhere
		}
		spread += int64(give) * next
		left -= give
		above = next
	}
	return spread
}

func (e *enumerator) single(n int) int64 {
	q, m := &e.eff[n], e.s.m
	sum := int64(e.r.cores)*q.core + q.near + q.only
	if e.missing > 0 {
		sum += e.missing * int64(e.due-e.share[n])
	}
	if pools := m.nodes[n].pools; e.caches && len(pools) == 1 {
		sum += scale * m.p.Weights.L3Shared * m.sharesL3(pools[0], e.r.cores)
	}
	return sum
}

// several returns the minimum cost of spanning at least so many NUMA nodes. It tries all larger numbers too, because
// each node more costs a span but brings cores closer to memory and devices.
func (e *enumerator) several(nodes int, memory bool) int64 {
	best := infinite
	for k := nodes; k <= max(nodes, min(len(e.eff), e.r.cores)); k++ {
		span := int64(k-1) * scale * e.r.w.NUMASpan
		if span >= best {
			break
		}
		if memory && k < len(e.r.aloneSpan) {
			span += scale * e.r.aloneSpan[k]
		}
		span += e.unevenRoom(k)
		best = min(best, span+max(e.nearest, e.away(k)))
	}
	return best
}

// fewest returns the minimum number of NUMA nodes for the cores if one is not enough.
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

func (e *enumerator) fill(bound int64) {
	e.c.cores = e.c.cores[:0]
	only := -1
	for k := range e.eff {
		if n := (k + e.i) % len(e.eff); e.eff[n].room >= e.r.cores && e.single(n) == bound {
			only = n
			break
		}
	}
	left := e.r.cores
	for _, within := range []bool{true, false} { // first the share of devices, then the rest
		for _, q := range e.byCost {
			if only >= 0 && q.node != only {
				continue
			}
			k := slices.IndexFunc(e.c.cores, func(pc poolCount) bool { return pc.pool == q.pool })
			if k < 0 {
				k = len(e.c.cores)
				e.c.cores = append(e.c.cores, poolCount{pool: q.pool})
			}
			give := min(left, q.room-e.c.cores[k].n)
			if within {
				give = min(give, e.shareOf(q.node)-e.givenOn(q.node))
			}
			e.c.cores[k].n += max(0, give)
			left -= max(0, give)
		}
	}
	e.c.cores = slices.DeleteFunc(e.c.cores, func(pc poolCount) bool { return pc.n == 0 })
}

func (e *enumerator) sortPools() {
	m := e.s.m
	e.byCost = e.byCost[:0]
	e.hybrid = false
	for n := range e.perNode {
		if e.perNode[n].room == 0 {
			continue
		}
		for _, pl := range m.nodes[n].pools {
			room := e.s.room(pl)
			if !e.r.pools[pl] || room == 0 {
				continue
			}
			core := e.perNode[n].core
			if m.pools[pl].efficiency {
				core += scale * e.r.w.EfficiencyCores
				e.hybrid = true
			}
			e.byCost = append(e.byCost, poolCost{pl, n, room, core})
		}
	}
	slices.SortFunc(e.byCost, func(a, b poolCost) int {
		if a.node != b.node {
			return cmp.Or(cmp.Compare(e.perNode[a.node].core, e.perNode[b.node].core), cmp.Compare(a.node, b.node))
		}
		return cmp.Or(cmp.Compare(a.core, b.core), cmp.Compare(a.pool, b.pool))
	})
}

// spread gives left cores to the pools from position pos of byCost on. The pools of a node are adjacent, so that each
// node is counted once.
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
	if pos > 0 && e.exact && e.byCost[pos].node != e.byCost[pos-1].node && e.byCost[pos-1].node != node {
		return false // a NUMA node got no cores
	}
	plain, full := e.spreadBound(pos, left, node, spans)
	if paid+plain >= e.limit || paid+full+e.spilled() >= e.limit {
		return false
	}
	q := e.byCost[pos]
	room := min(q.room, e.perNode[q.node].room-e.givenOn(q.node), left)
	if pk := e.s.m.pools[q.pool].pkg; pk >= 0 {
		room = min(room, e.s.pkgLeft[pk]-e.givenIn(pk))
	}
	more := spans
	if q.node != node {
		more++
	}
	// Filling whole NUMA nodes gives a good column early, which lowers the limit for the rest.
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
		// Apart from memory and caches, fewer cores here are not cheaper.
		if plain, _ := e.spreadBound(pos+1, left-n+1, q.node, more); paid+int64(n-1)*q.core+plain >= e.limit {
			break
		}
	}
	return e.spread(pos+1, left, node, spans, paid, charge)
}

// likely splits are all that fit, all but one, the share of devices, whole L3 caches, or an even split in two.
func (e *enumerator) likely(q poolCost, n, room, left int) bool {
	if n >= room-1 || n == left/2 || n == (left+1)/2 || n == e.shareOf(q.node) {
		return true
	}
	m := e.s.m
	size := len(m.cells[m.pools[q.pool].cells[0]].cores) // usual number of cores per cache
	return n+size > room && (n%size == 0 || (left-n)%size == 0)
}

func (e *enumerator) givenOn(node int) int {
	return e.given(func(p *pool) bool { return p.node == node })
}

func (e *enumerator) givenIn(pk int) int { return e.given(func(p *pool) bool { return p.pkg == pk }) }

func (e *enumerator) given(match func(*pool) bool) int {
	sum := 0
	for _, pc := range e.c.cores {
		if match(&e.s.m.pools[pc.pool]) {
			sum += pc.n
		}
	}
	return sum
}

// spreadBound returns the minimum cost of left cores from position pos of byCost on. full also counts memory and L3
// caches: with fewer cores in a pool plain cannot fall, which ends the loop of spread, but full can.
func (e *enumerator) spreadBound(pos, left, node, spans int) (plain, full int64) {
	m := e.s.m
	// The sum is valid because the bounds count different costs: the cores on the cheapest remaining pools (sum), a
	// span for each additional NUMA node (more), and devices and memory, minimized over the number of nodes (best).
	need := left
	var sum int64
	core := infinite
	total, clean, dirtiest := 0, 0, 0 // available cores, cores in caches without a tenant, the largest other cache
	here, near := 0, 0                // on node: available cores, cores with local memory
	widest, nearest := 0, 0
	wide, at := 0, -1
	e.rest = e.rest[:0]
	for _, q := range e.byCost[pos:] {
		// Costs in byCost ascend, except for efficiency cores.
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
	if total < left || left > here && widest == 0 {
		return infinite, infinite
	}
	if e.hybrid {
		sum = int64(left) * core // byCost is not sorted then
	}
	more := 0
	if left > here {
		more = (left - here + widest - 1) / widest
	}
	span := scale * e.r.w.NUMASpan
	plain = sum + int64(spans+more-1)*span + e.nearest
	// Spanning more NUMA nodes than necessary may bring cores closer to memory and devices.
	best := infinite
	if e.perCore > 0 && node >= 0 {
		near = max(0, min(near-e.givenOn(node), here))
	}
	slices.SortFunc(e.rest, largestFirst)
	open, last := len(e.homes), -1
	for _, pc := range e.c.cores {
		if n := m.pools[pc.pool].node; n != last {
			open -= e.homeCount[n]
			last = n
		}
	}
	for t := more; t <= min(len(e.eff), left); t++ {
		cost := int64(spans+t-1) * span
		if cost >= best {
			break
		}
		if e.perCore > 0 {
			cost += e.perCore * int64(max(0, left-near-t*nearest))
		}
		cost += e.uneven(spans+t, e.r.cores-left, node >= 0)
		out := open
		for k := range min(t, len(e.rest)) {
			out -= e.rest[k]
		}
		cost += max(e.nearest, int64(max(0, out))*e.apart)
		best = min(best, cost)
	}
	if e.missing > 0 && !e.hybrid {
		sum = e.missingAhead(pos, left)
	}
	full = min(infinite, sum+best)
	if e.caches && left > clean && dirtiest > 0 {
		full += scale * m.p.Weights.L3Shared * int64((left-clean+dirtiest-1)/dirtiest)
	}
	return plain, full
}

func (e *enumerator) done(paid, charge int64, spans int) bool {
	m := e.s.m
	paid += int64(spans-1)*scale*e.r.w.NUMASpan + e.splitCost(spans)
	for _, h := range e.homes {
		least := infinite
		for _, pc := range e.c.cores {
			least = min(least, m.far(m.pools[pc.pool].node, h))
		}
		paid += scale * e.r.w.Nearest() * least
	}
	if paid+e.spilled() >= e.limit {
		return false
	}
	// Columns are ordered by pool, unlike byCost.
	c := e.full.set(&e.c)
	slices.SortFunc(c.cores, func(a, b poolCount) int { return cmp.Compare(a.pool, b.pool) })
	slices.Sort(c.gpus)
	slices.Sort(c.nics)
	c.own, c.charge = (paid-charge)/scale, charge
	return e.yield(c, paid)
}
