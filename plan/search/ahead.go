package search

import (
	"slices"
)

// The devices of a lab node are picked one by one; eight GPUs of sixteen can be chosen in 12,870 ways. The bounds here
// hold for any later choice: each GPU's cheapest partners among all (Gilmore 1962, Lawler 1963), the nearest home nodes
// of the remaining devices, and the number of devices that can be local to a given number of NUMA nodes.
//
// The case that needs this: one lab node with eight GPUs and eight NICs on largeShape of the tests. It is proved in
// about a thousand steps; otherwise the bound stays at 31800 of 56664 for millions of steps.

// outlookDevices and outlookNodes limit tables. Larger hosts get no outlook.
const (
	outlookDevices = 1024
	outlookNodes   = 256
)

type outlook struct {
	on      bool
	enough  bool
	left    []int   // by want
	avail   [][]int // by want and NUMA node
	nowhere []int   // by want, without a known NUMA node
	gone    []bool
	pairs   []int64 // by GPU: cost of its paths to the picked GPUs
	other   int64
	covered []int // by number of NUMA nodes with cores: most devices local to one of them
	homes   int   // devices with a known NUMA node, picked or still to be picked

	// For paths and ports together, see helpPaths:
	jointAt []int64 // by NUMA node with all cores
	joint   int64   // minimum of jointAt, or infinite if paths and ports are bounded separately
	help    []int64 // by port: most by which it makes paths cheaper
	free    []int   // by port: how many more times it can be picked
	now     []int64 // by picked GPU: cost of its path, at most secondPair

	sums  []int64 // scratch space
	cover []int   // scratch space
}

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
	o.gone, o.pairs = zero(o.gone, len(m.devices)), zero(o.pairs, len(m.devices))
	o.other = infinite
	for y := range e.r.wants {
		w := &e.r.wants[y]
		o.avail[y] = zero(o.avail[y], n)
		for _, d := range w.any {
			o.add(m, y, d, e.units(w, d))
			if h := m.devices[d].home; h >= 0 {
				o.other = min(o.other, e.nextMin[h])
			}
		}
	}
	o.other = finite(o.other)
	for _, g := range e.r.gpuList {
		o.gone[g] = !e.s.freeWhole(e.i, g)
	}
	e.s.work.steps += int64(n)
}

func (o *outlook) add(m *model, y, d, by int) {
	if h := m.devices[d].home; h >= 0 {
		o.avail[y][h] += by
	} else {
		o.nowhere[y] += by
	}
}

// take updates the outlook for a picked device or, with sign -1, for one put back. GPUs and NICs become unavailable to
// other wants too.
func (e *enumerator) take(d int, kind wantKind, sign int) {
	o, m := &e.out, e.s.m
	if !o.on {
		return
	}
	for y := range e.r.wants {
		if w := &e.r.wants[y]; w.kind == kind {
			if _, ok := slices.BinarySearch(w.any, d); ok {
				o.add(m, y, d, -sign)
			}
		}
	}
	if kind != wantGPU {
		return
	}
	o.gone[d] = sign > 0
	if e.r.gpus > 1 {
		for _, g := range e.r.gpuList {
			o.pairs[g] += int64(sign) * m.gpuPair(d, g)
		}
	}
}

// hide makes a device of want x unavailable or, with sign -1, available again.
func (e *enumerator) hide(x, at, sign int) {
	if !e.out.on {
		return
	}
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

// lookAhead returns a lower bound on the cost of paths, after k devices of want x are picked. It sets eff.
func (e *enumerator) lookAhead(x, k int) int64 {
	o, m := &e.out, e.s.m
	o.enough = true
	copy(e.eff, e.perNode)
	if !o.on {
		return 0
	}
	coming := -k
	for y := range e.r.wants {
		o.left[y] = 0
		if y >= x {
			o.left[y] = e.r.wants[y].count
		}
		coming += o.left[y]
	}
	if k > 0 {
		o.left[x] -= k
	}
	o.joint = infinite
	if coming > 0 {
		perCore, near := scale*e.r.w.PerCore(), scale*e.r.w.Nearest()
		joint := e.helpPaths()
		n := len(m.nodes)
		o.jointAt = zero(o.jointAt, n)
		e.s.work.steps += int64(n*(len(e.r.wants[len(e.r.wants)-1].any)+n)) / 64
		for a := range n {
			if e.perNode[a].room == 0 {
				continue
			}
			gpus, ok := o.reach(m, a, e.r.wants, true)
			ports, enough := o.reach(m, a, e.r.wants, false)
			if !ok || !enough {
				o.enough = false
				return 0
			}
			e.eff[a].near += near * (gpus + ports)
			if joint {
				o.jointAt[a] = e.portsAt(a)
				o.joint = min(o.joint, o.jointAt[a])
				ports = 0
			}
			e.eff[a].core += perCore * (gpus + ports)
		}
		// The cost of a node's paths and ports above the minimum is distributed over its cores.
		for a := range n {
			if joint && e.perNode[a].room > 0 {
				e.eff[a].core += (o.jointAt[a] - o.joint) / int64(e.r.cores)
			}
		}
	}
	e.coverage()
	if o.joint < infinite {
		return scale*e.gpusAhead() + o.joint
	}
	return scale * (e.gpusAhead() + e.pathsAhead())
}

// reach returns the minimum total distance from NUMA node a of the devices still to be picked: the GPUs, or the others.
// It returns false if there are not enough.
func (o *outlook) reach(m *model, a int, wants []want, gpus bool) (int64, bool) {
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
			have := min(o.avail[y][h], left)
			left -= have
			far += int64(have) * m.far(a, h)
		}
		if left > 0 {
			return 0, false
		}
	}
	return far, true
}

// coverage finds the most devices local to one NUMA node with cores, for each number of such nodes.
func (e *enumerator) coverage() {
	o := &e.out
	n := len(e.perNode)
	o.covered = zero(o.covered, n+1)
	o.homes = 0
	count := func(at []int, most int) {
		o.homes += most
		o.cover = o.cover[:0]
		for h, c := range at {
			if c > 0 && e.perNode[h].room > 0 {
				o.cover = append(o.cover, min(c, most))
			}
		}
		slices.SortFunc(o.cover, largestFirst)
		sum := 0
		for k := 1; k <= n; k++ {
			if k <= len(o.cover) {
				sum = min(most, sum+o.cover[k-1])
			}
			o.covered[k] += sum
		}
	}
	count(e.homeCount, len(e.homes))
	for y, left := range o.left {
		// Devices without a known NUMA node are local to every node.
		if left -= min(left, o.nowhere[y]); left > 0 {
			count(o.avail[y], left)
		}
	}
}

// away returns the minimum cost of devices without a local core if k NUMA nodes have cores. Without it, the case above
// is not proved.
func (e *enumerator) away(k int) int64 {
	if !e.out.on {
		return 0
	}
	k = min(k, len(e.out.covered)-1)
	return int64(max(0, e.out.homes-e.out.covered[k])) * e.out.other * e.r.w.Nearest() * scale
}

func addLargest(list []int64, k int) int64 {
	slices.Sort(list)
	return total(list[max(0, len(list)-k):])
}

func addSmallest(list []int64, k int) int64 {
	slices.Sort(list)
	return total(list[:min(k, len(list))])
}

func total(list []int64) (sum int64) {
	for _, v := range list {
		sum += v
	}
	return sum
}

// gpusAhead returns the minimum cost of the GPUs still to be picked: their paths to picked GPUs, half of the cheapest
// paths to each other (each path has two ends), and their cheapest ports.
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
			sum += 2 * e.r.minPair[g] // otherwise counted with the ports
		}
		o.sums = append(o.sums, sum)
	}
	if len(o.sums) < left {
		o.enough = false
		return 0
	}
	return (addSmallest(o.sums, left) + 1) / 2
}

func (e *enumerator) portsToCome() int { return e.r.ports - len(e.c.nics) - len(e.functions) }

// pathsAhead returns the minimum cost of paths between picked GPUs and ports. If each port pays for its path, it
// includes the ports still to be picked.
func (e *enumerator) pathsAhead() int64 {
	r, o, m := e.r, &e.out, e.s.m
	if r.gpus == 0 || r.ports == 0 {
		return 0
	}
	coming := e.portsToCome()
	if r.ports > r.gpus {
		if len(e.c.gpus) < r.gpus {
			return int64(r.ports) * r.leastPair
		}
		return int64(coming)*r.leastPair + e.pathCost()
	}
	now := e.pathCost()
	if coming == 0 {
		return now
	}
	var sum int64
	for _, g := range e.c.gpus {
		sum += min(e.bestPort(g), r.minPair[g])
	}
	if coming == r.ports || len(e.c.gpus) < r.gpus {
		return sum
	}
	// A later port saves at most as much as it would alone, because two ports save at most the sum of their separate
	// savings.
	o.sums = o.sums[:0]
	for y, left := range o.left {
		if r.wants[y].kind == wantGPU || left == 0 {
			continue
		}
		for _, d := range r.wants[y].any {
			help := int64(0)
			for _, g := range e.c.gpus {
				help += max(0, e.bestPort(g)-m.pair(g, d))
			}
			if help > 0 && e.units(&r.wants[y], d) > 0 {
				o.sums = append(o.sums, help)
			}
		}
	}
	return max(sum, now-addLargest(o.sums, coming))
}

// The ports nearest to the cores and the ports nearest to the GPUs may differ. If each GPU's path is counted with at
// most secondPair, a picked port saves its help and costs its distance, so the cheapest ports bound both together.
// secondPair may be any number; the least cost of a second best port works well.

// Without it, the bounds of 138 of 480 labs with one lab node of four to eight GPUs on largeShape of the tests, partly
// used, are up to a tenth lower.

// helpPaths reports whether the joint bound applies: each GPU pays for its best port, and ports are still to be picked.
func (e *enumerator) helpPaths() bool {
	o, r, m := &e.out, e.r, e.s.m
	if r.gpus == 0 || e.portsToCome() == 0 || r.ports > r.gpus {
		return false
	}
	o.help, o.free = zero(o.help, len(m.devices)), zero(o.free, len(m.devices))
	o.now = o.now[:0]
	for _, g := range e.c.gpus {
		o.now = append(o.now, min(r.secondPair, e.bestPort(g)))
	}
	for y, left := range o.left {
		if left == 0 || r.wants[y].kind == wantGPU {
			continue
		}
		for _, d := range r.wants[y].any {
			if o.free[d] = e.units(&r.wants[y], d); o.free[d] == 0 {
				continue
			}
			help := int64(0)
			for k, g := range e.c.gpus {
				help += max(0, o.now[k]-m.pair(g, d))
			}
			if open := r.gpus - len(e.c.gpus); open > 0 {
				o.sums = o.sums[:0]
				for _, g := range r.gpuList {
					if v := r.secondPair - m.pair(g, d); v > 0 && !o.gone[g] {
						o.sums = append(o.sums, v)
					}
				}
				help += addLargest(o.sums, open)
			}
			o.help[d] = help
		}
	}
	return true
}

// portsAt returns the minimum cost, scaled, of the paths and of the distance of ports still to be picked, with all
// cores on NUMA node a.
func (e *enumerator) portsAt(a int) int64 {
	o, r, m := &e.out, e.r, e.s.m
	sum := scale * (int64(r.gpus-len(e.c.gpus))*r.secondPair + total(o.now))
	each := scale * r.w.PerCore() * int64(r.cores)
	for y, left := range o.left {
		if left == 0 || r.wants[y].kind == wantGPU {
			continue
		}
		// A port saves only once; each further function of it only costs.
		o.sums = o.sums[:0]
		least := infinite
		for _, d := range r.wants[y].any {
			units := o.free[d]
			if units == 0 {
				continue
			}
			cost := int64(0)
			if h := m.devices[d].home; h >= 0 {
				cost = each * m.far(a, h)
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
			sum += finite(v)
		}
	}
	return sum
}
