package search

import (
	"cmp"
	"slices"
)

// The devices of a lab node are picked one by one. What those to come cost at least decides how
// many choices have to be looked at: with eight GPUs of sixteen there are 12,870. The bounds here
// count what is certain wherever they come from: each GPU's cheapest partners among all (Gilmore
// 1962, Lawler 1963), the nearest homes of what is still there, and how many devices can have a
// core next to them on so many NUMA nodes.
//
// The case that needs this: one lab node with eight GPUs and eight NICs on planfixture.Large. It is
// proved in about a thousand steps; without the outlook on devices to come, the bound stays at 31800
// of 56664 for millions.

// outlookDevices and outlookNodes bound the tables of an outlook; where there is more, weaker bounds have to do.
const (
	outlookDevices = 1024
	outlookNodes   = 256
)

// An outlook is what an enumerator knows of the devices that are still to be picked.
type outlook struct {
	on          bool
	avail       [][]int // of a want, by NUMA node: what may still be picked there
	nowhere     []int   // of a want: likewise, at no known NUMA node
	at          []int   // by NUMA node: devices picked there
	gone        []bool  // GPUs that can no longer be picked
	pairs       []int64 // of a GPU: paths to those that are picked
	other       int64   // least distance of a device to another NUMA node with room
	left        []int   // of a want: devices to come
	joint       int64   // least over NUMA nodes of jointAt; infinite where paths and ports are not looked at together
	jointAt     []int64 // what paths cost and the distance of ports to come, with the cores on a NUMA node
	help        []int64 // of a port: how much cheaper paths get by it, at most
	free        []int   // of a port: how often it can still be picked
	now         []int64 // of the GPUs picked: what their paths cost with the ports picked, secondPair at most
	sums        []int64
	cover       []int
	covered     []int // by how many NUMA nodes have cores: how many devices are next to one, at most
	homes       int   // devices whose NUMA node is known, those to come included
	countsAllow bool  // there are enough devices left
}

// foresee prepares what the bounds need once for all requests.
func (m *model) foresee() {
	n := len(m.nodes)
	if n > outlookNodes {
		return
	}
	several := false
	for i := range m.requests {
		r := &m.requests[i]
		if r.rep != i {
			r.gpuList, r.half, r.outlook = m.requests[r.rep].gpuList, m.requests[r.rep].half,
				m.requests[r.rep].outlook
			r.secondPair = m.requests[r.rep].secondPair
			continue
		}
		total := 0
		for _, w := range r.wants {
			total += len(w.any)
			if w.kind == wantGPU {
				r.gpuList = append(r.gpuList, w.any...)
			}
		}
		slices.Sort(r.gpuList)
		r.gpuList = slices.Compact(r.gpuList)
		r.outlook = r.devices >= 2 && total <= outlookDevices && len(r.gpuList)*r.gpus <= outlookDevices
		if !r.outlook {
			continue
		}
		several = true
		r.secondPair = m.secondPair(r)
		var costs []int64
		for _, g := range r.gpuList {
			costs = costs[:0]
			for _, h := range r.gpuList {
				if g != h && r.gpus > 1 {
					costs = append(costs, m.gpuCost[g*len(m.devices)+h])
				}
			}
			slices.Sort(costs)
			sum := int64(0)
			row := make([]int64, r.gpus)
			for k := 1; k < r.gpus; k++ {
				if k <= len(costs) {
					sum += costs[k-1]
				}
				row[k] = sum
			}
			r.half = append(r.half, row)
		}
	}
	if !several {
		return
	}
	m.near = make([][]int, n)
	for a := range n {
		row := make([]int, n)
		for b := range row {
			row[b] = b
		}
		slices.SortStableFunc(row, func(x, y int) int { return cmp.Compare(m.dist[a*n+x], m.dist[a*n+y]) })
		m.near[a] = row
	}
}

// secondPair returns the least that a GPU's second best port costs. Any number would do for the
// bounds; this one tells good ports from others.
func (m *model) secondPair(r *request) int64 {
	least := int64(-1)
	for _, g := range r.gpuList {
		best, second := infinite, infinite
		for _, w := range r.wants {
			if w.kind == wantGPU {
				continue
			}
			for _, d := range w.any {
				switch c := m.pairCost[g*len(m.devices)+d]; {
				case c < best:
					best, second = c, best
				case c < second:
					second = c
				}
			}
		}
		if second < infinite && (least < 0 || second < least) {
			least = second
		}
	}
	return max(0, least)
}

// prepare looks at what there is for all wants.
func (e *enumerator) prepare() {
	o, m := &e.out, e.s.m
	o.on = e.r.outlook
	if !o.on {
		return
	}
	n := len(m.nodes)
	for len(o.avail) < len(e.r.wants) {
		o.avail = append(o.avail, nil)
	}
	o.nowhere, o.left = zero(o.nowhere, len(e.r.wants)), zero(o.left, len(e.r.wants))
	o.at, o.gone, o.pairs = zero(o.at, n), zero(o.gone, len(m.devices)), zero(o.pairs, len(m.devices))
	o.other = infinite
	for y := range e.r.wants {
		w := &e.r.wants[y]
		o.avail[y] = zero(o.avail[y], n)
		for _, d := range w.any {
			o.add(m, y, d, e.units(w, d))
			h := m.devices[d].home
			if h < 0 {
				continue
			}
			for a := range n {
				if a != h && e.perNode[a].room > 0 {
					o.other = min(o.other, m.dist[a*n+h])
				}
			}
		}
	}
	for _, g := range e.r.gpuList {
		o.gone[g] = !e.s.freeWhole(e.i, g)
	}
	if o.other == infinite {
		o.other = 0
	}
	e.s.work.steps += int64(n)
}

// units is how often a device can be picked for a want.
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

// add counts devices of a want in, or out.
func (o *outlook) add(m *model, y, d, by int) {
	if h := m.devices[d].home; h >= 0 {
		o.avail[y][h] += by
	} else {
		o.nowhere[y] += by
	}
}

// take notes that a device was picked, with sign -1 that it was put back. GPUs and NICs are gone for other wants too.
func (e *enumerator) take(d int, kind wantKind, sign int) {
	o, m := &e.out, e.s.m
	if !o.on {
		return
	}
	for y := range e.r.wants {
		w := &e.r.wants[y]
		if w.kind != kind {
			continue
		}
		if _, ok := slices.BinarySearch(w.any, d); ok {
			o.add(m, y, d, -sign)
		}
	}
	if h := m.devices[d].home; h >= 0 {
		o.at[h] += sign
	}
	if kind != wantGPU {
		return
	}
	o.gone[d] = sign > 0
	if e.r.gpus > 1 {
		row := m.gpuCost[d*len(m.devices):]
		for _, g := range e.r.gpuList {
			o.pairs[g] += int64(sign) * row[g]
		}
	}
}

// look finds what follows from the devices to come, once k of want x are picked: what paths cost,
// and for each NUMA node what its cores cost more.
func (e *enumerator) lookAhead(x, k int) int64 {
	o, m := &e.out, e.s.m
	n := len(m.nodes)
	o.countsAllow = true
	copy(e.eff, e.perNode)
	if !o.on {
		return e.ahead()
	}
	coming := 0
	o.joint = infinite
	for y := range e.r.wants {
		o.left[y] = 0
		if y >= x {
			o.left[y] = e.r.wants[y].count
		}
	}
	if x < len(e.r.wants) {
		o.left[x] -= k
	}
	for _, left := range o.left {
		coming += left
	}
	if coming > 0 {
		perCore, near := scale*e.r.w.DeviceDistance, scale*m.p.Weights.DeviceNearest
		functions := e.helpPaths()
		o.jointAt = zero(o.jointAt, n)
		e.s.work.steps += int64(n*(len(e.r.wants[len(e.r.wants)-1].any)+n)) / 64
		for a := range n {
			if e.perNode[a].room == 0 {
				continue
			}
			gpus, ok := o.reach(m, a, e.r.wants, true)
			ports, countsAllow := o.reach(m, a, e.r.wants, false)
			if !ok || !countsAllow {
				o.countsAllow = false
				return 0
			}
			e.eff[a].near += near * (gpus + ports)
			if functions {
				o.jointAt[a] = e.portsAt(a)
				o.joint = min(o.joint, o.jointAt[a])
				ports = 0
			}
			e.eff[a].core += perCore * (gpus + ports)
		}
		if o.joint < infinite {
			for a := range n {
				if e.perNode[a].room > 0 {
					e.eff[a].core += (o.jointAt[a] - o.joint) / int64(e.r.cores)
				}
			}
		}
	}
	o.coverage(e)
	if o.joint < infinite {
		return scale*e.gpusAhead() + o.joint
	}
	return scale * (e.gpusAhead() + e.pathsAhead())
}

// reach returns how far the GPUs to come, or the other devices, are from NUMA node a together, at
// least; false where there are not enough.
func (o *outlook) reach(m *model, a int, wants []want, gpus bool) (int64, bool) {
	n := len(m.nodes)
	far := int64(0)
	for y, left := range o.left {
		if left == 0 || gpus != (wants[y].kind == wantGPU) {
			continue
		}
		left -= o.nowhere[y]
		for _, h := range m.near[a] {
			if left <= 0 {
				break
			}
			if have := o.avail[y][h]; have > 0 {
				have = min(have, left)
				left -= have
				far += int64(have) * m.dist[a*n+h]
			}
		}
		if left > 0 {
			return 0, false
		}
	}
	return far, true
}

// coverage finds how many devices can have a core next to them at most where so many NUMA nodes have cores.
func (o *outlook) coverage(e *enumerator) {
	n := len(e.perNode)
	o.covered = zero(o.covered, n+1)
	o.homes = 0
	count := func(of func(h int) int, most int) {
		o.cover = o.cover[:0]
		for h := range n {
			if c := of(h); c > 0 && e.perNode[h].room > 0 {
				o.cover = append(o.cover, min(c, most))
			}
		}
		slices.Sort(o.cover)
		sum := 0
		for k := 1; k <= n; k++ {
			if k <= len(o.cover) {
				sum = min(most, sum+o.cover[len(o.cover)-k])
			}
			o.covered[k] += sum
		}
	}
	picked := 0
	for _, c := range o.at {
		picked += c
	}
	o.homes = picked
	count(func(h int) int { return o.at[h] }, picked)
	for y, left := range o.left {
		// Those at no known NUMA node are near to everything.
		if left -= min(left, o.nowhere[y]); left > 0 {
			o.homes += left
			count(func(h int) int { return o.avail[y][h] }, left)
		}
	}
}

// away returns what devices cost at least that have no core next to them where k NUMA nodes have cores.
func (e *enumerator) away(k int) int64 {
	if !e.out.on {
		return 0
	}
	k = min(k, len(e.out.covered)-1)
	return int64(max(0, e.out.homes-e.out.covered[k])) * e.out.other * e.s.m.p.Weights.DeviceNearest * scale
}

// gpusAhead returns what the GPUs to come cost at least: their paths to those picked, half of the
// cheapest paths to each other, and their cheapest ports.
func (e *enumerator) gpusAhead() int64 {
	o := &e.out
	left := e.r.gpus - len(e.c.gpus)
	if left == 0 {
		return 0
	}
	o.sums = o.sums[:0]
	for x, g := range e.r.gpuList {
		if o.gone[g] {
			continue
		}
		sum := 2*o.pairs[g] + e.r.half[x][left-1]
		if o.joint == infinite && e.r.ports > 0 && e.r.ports <= e.r.gpus {
			sum += 2 * e.r.minPair[g] // else counted with the ports
		}
		o.sums = append(o.sums, sum)
	}
	if len(o.sums) < left {
		o.countsAllow = false
		return 0
	}
	slices.Sort(o.sums)
	var sum int64
	for _, s := range o.sums[:left] {
		sum += s
	}
	return (sum + 1) / 2
}

// pathsAhead returns what the paths between GPUs that are picked and ports cost at least, and those
// of ports to come where each of them pays.
func (e *enumerator) pathsAhead() int64 {
	r, o, m := e.r, &e.out, e.s.m
	if r.gpus == 0 || r.ports == 0 {
		return 0
	}
	n := len(m.devices)
	coming := 0
	for y, left := range o.left {
		if r.wants[y].kind != wantGPU {
			coming += left
		}
	}
	if r.ports > r.gpus {
		if len(e.c.gpus) < r.gpus {
			return int64(r.ports) * r.leastPort
		}
		best := func(d int) int64 {
			least := infinite
			for _, g := range e.c.gpus {
				least = min(least, m.pairCost[g*n+d])
			}
			return least
		}
		sum := int64(coming) * r.leastPort
		for _, d := range e.c.nics {
			sum += best(d)
		}
		for _, d := range e.functions {
			sum += best(d)
		}
		return sum
	}
	// Each GPU pays for its best port: one that is picked, or the best that there is.
	var sum, now int64
	for _, g := range e.c.gpus {
		least := e.bestPort(g)
		now += least
		if coming > 0 {
			least = min(least, r.minPair[g])
		}
		sum += least
	}
	if coming == 0 || coming == r.ports || len(e.c.gpus) < r.gpus {
		return sum
	}
	// No port to come can help more than on its own beside those picked.
	o.sums = o.sums[:0]
	for y, left := range o.left {
		if r.wants[y].kind == wantGPU || left == 0 {
			continue
		}
		for _, d := range r.wants[y].any {
			help := int64(0)
			for _, g := range e.c.gpus {
				help += max(0, e.bestPort(g)-m.pairCost[g*n+d])
			}
			if help > 0 && e.units(&r.wants[y], d) > 0 {
				o.sums = append(o.sums, help)
			}
		}
	}
	slices.Sort(o.sums)
	for k := 1; k <= min(coming, len(o.sums)); k++ {
		now -= o.sums[len(o.sums)-k]
	}
	return max(sum, now)
}

// bestPort returns the cost of the cheapest path from a GPU to a port that is picked, infinite where none is.
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

// hide takes the device at a position of want x out of what is still there, with sign -1 back in.
func (e *enumerator) hide(x, at, sign int) {
	w := &e.r.wants[x]
	d := e.candidate(w, at)
	units := e.units(w, d)
	if units == 0 {
		return
	}
	e.out.add(e.s.m, x, d, -sign*units)
	if w.kind == wantGPU && w.count == e.r.gpus {
		e.out.gone[d] = sign > 0
	}
}

// candidate returns the device at a position of a want.
func (e *enumerator) candidate(w *want, at int) int {
	if e.relaxed {
		return w.any[(at+e.i)%len(w.any)]
	}
	return w.any[at]
}

// Ports that are near to the cores and ports that are near to the GPUs may not be the same. With
// each GPU's path counted at secondPair at most, a port that is picked saves what its help says and
// costs its distance, and then the cheapest ports to come bound both together.

// helpPaths finds what each port would save. It reports whether that makes sense: each GPU pays for
// its best port, and ports are still to come.
func (e *enumerator) helpPaths() bool {
	o, r, m := &e.out, e.r, e.s.m
	coming := 0
	for y, left := range o.left {
		if r.wants[y].kind != wantGPU {
			coming += left
		}
	}
	if r.gpus == 0 || coming == 0 || r.ports > r.gpus {
		return false
	}
	n := len(m.devices)
	o.help, o.free = zero(o.help, n), zero(o.free, n)
	o.now = o.now[:0]
	for _, g := range e.c.gpus {
		o.now = append(o.now, min(r.secondPair, e.bestPort(g)))
	}
	open := r.gpus - len(e.c.gpus)
	for y, left := range o.left {
		if left == 0 || r.wants[y].kind == wantGPU {
			continue
		}
		for _, d := range r.wants[y].any {
			help := int64(0)
			if o.free[d] = e.units(&r.wants[y], d); o.free[d] == 0 {
				continue
			}
			for k, g := range e.c.gpus {
				help += max(0, o.now[k]-m.pairCost[g*n+d])
			}
			if open > 0 {
				o.sums = o.sums[:0]
				for _, g := range r.gpuList {
					if v := r.secondPair - m.pairCost[g*n+d]; v > 0 && !o.gone[g] {
						o.sums = append(o.sums, v)
					}
				}
				slices.Sort(o.sums)
				for k := 1; k <= min(open, len(o.sums)); k++ {
					help += o.sums[len(o.sums)-k]
				}
			}
			o.help[d] = help
		}
	}
	return true
}

// portsAt returns what paths and the distance of the ports to come cost at least with all cores on NUMA node a, scaled.
func (e *enumerator) portsAt(a int) int64 {
	o, r, m := &e.out, e.r, e.s.m
	n := len(m.nodes)
	sum := int64(r.gpus-len(e.c.gpus)) * r.secondPair
	for _, v := range o.now {
		sum += v
	}
	sum *= scale
	each := scale * r.w.DeviceDistance * int64(r.cores)
	for y, left := range o.left {
		if left == 0 || r.wants[y].kind == wantGPU {
			continue
		}
		// Each port helps once; its other functions only cost.
		o.sums = o.sums[:0]
		least := infinite
		for _, d := range r.wants[y].any {
			units := o.free[d]
			if units == 0 {
				continue
			}
			cost := int64(0)
			if h := m.devices[d].home; h >= 0 {
				cost = each * m.dist[a*n+h]
			}
			if units > 1 {
				least = min(least, cost)
			}
			o.sums = append(o.sums, cost-scale*o.help[d])
		}
		slices.Sort(o.sums)
		for k := range left {
			v := least
			if k < len(o.sums) {
				v = min(v, o.sums[k])
			}
			if v < infinite {
				sum += v
			}
		}
	}
	return sum
}
