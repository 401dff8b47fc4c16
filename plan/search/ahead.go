package search

import "slices"

// The devices of a lab node are picked one by one. What those to come cost at least decides how
// many choices have to be looked at: with eight GPUs of sixteen there are 12,870. The bounds here
// count what is certain wherever they come from: each GPU's cheapest partners among all (Gilmore
// 1962, Lawler 1963), the nearest homes of what is still there, and how many devices can have a
// core next to them on so many NUMA nodes.
//
// The case that needs this: one lab node with eight GPUs and eight NICs on largeShape of the tests. It is
// proved in about a thousand steps; without the outlook on devices to come, the bound stays at 31800
// of 56664 for millions.

// outlookDevices and outlookNodes bound the tables of an outlook. Where there is more than any host of today has, the
// devices to come count nothing.
const (
	outlookDevices = 1024
	outlookNodes   = 256
)

// An outlook is what an enumerator knows of the devices that are still to be picked.
type outlook struct {
	on      bool
	enough  bool    // there are enough devices left
	left    []int   // of a want: devices to come
	avail   [][]int // of a want, by NUMA node: what may still be picked there
	nowhere []int   // of a want: likewise, at no known NUMA node
	gone    []bool  // GPUs that can no longer be picked
	pairs   []int64 // of a GPU: paths to those that are picked
	other   int64   // least distance of a device to another NUMA node with room
	covered []int   // by how many NUMA nodes have cores: how many devices are next to one, at most
	homes   int     // devices whose NUMA node is known, those to come included

	// Of paths and ports together, see helpPaths:
	jointAt []int64 // what paths cost and the distance of ports to come, with the cores on a NUMA node
	joint   int64   // the least of them; infinite where the two are not looked at together
	help    []int64 // of a port: how much cheaper paths get by it, at most
	free    []int   // of a port: how often it can still be picked
	now     []int64 // of the GPUs picked: what their paths cost with the ports picked, secondPair at most

	sums  []int64 // scratch
	cover []int   // likewise
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

// add counts devices of a want in, or out.
func (o *outlook) add(m *model, y, d, by int) {
	if h := m.devices[d].home; h >= 0 {
		o.avail[y][h] += by
	} else {
		o.nowhere[y] += by
	}
}

// take notes that a device was picked, with sign -1 that it was put back. GPUs and NICs are gone for
// other wants too. These counts are kept up to date because lookAhead, which needs them, is called at
// each pick.
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

// hide takes the device at a position of want x out of what is still there, with sign -1 back in.
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

// lookAhead is the bound of a partial choice of devices. It finds what follows from the devices to
// come, once k of want x are picked: it returns what paths cost, and sets eff to what cores cost on
// each NUMA node.
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
		perCore, near := scale*e.r.w.DeviceDistance, scale*m.p.Weights.DeviceNearest
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
		// What a node's paths and ports cost beyond the least is shared out among its cores.
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

// reach returns how far the GPUs to come, or the other devices, are from NUMA node a together, at
// least: the nearest ones first. It is false where there are not enough.
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

// coverage finds how many devices can have a core next to them at most where so many NUMA nodes have
// cores: those of the nodes with most devices.
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
		// Those at no known NUMA node are near to everything.
		if left -= min(left, o.nowhere[y]); left > 0 {
			count(o.avail[y], left)
		}
	}
}

// away returns what devices cost at least that have no core next to them where k NUMA nodes have cores. Without it one
// lab node with eight GPUs and eight NICs on largeShape of the tests loses its proof.
func (e *enumerator) away(k int) int64 {
	if !e.out.on {
		return 0
	}
	k = min(k, len(e.out.covered)-1)
	return int64(max(0, e.out.homes-e.out.covered[k])) * e.out.other * e.s.m.p.Weights.DeviceNearest * scale
}

// addLargest adds up the k largest numbers of a list, and sorts it; addSmallest does so with the smallest.
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

// gpusAhead returns what the GPUs to come cost at least: their paths to those picked, half of the
// cheapest paths to each other (each of these has two ends), and their cheapest ports.
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
		o.enough = false
		return 0
	}
	return (addSmallest(o.sums, left) + 1) / 2
}

// portsToCome returns how many ports are still to be picked.
func (e *enumerator) portsToCome() int { return e.r.ports - len(e.c.nics) - len(e.functions) }

// pathsAhead returns what the paths between GPUs that are picked and ports cost at least, and those
// of ports to come where each of them pays.
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
	// Each GPU pays for its best port: one that is picked, or the best that there is.
	var sum int64
	for _, g := range e.c.gpus {
		sum += min(e.bestPort(g), r.minPair[g])
	}
	if coming == r.ports || len(e.c.gpus) < r.gpus {
		return sum
	}
	// No port to come can help more than on its own beside those picked: what two ports save together
	// is no more than the sum of what each saves.
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

// Ports that are near to the cores and ports that are near to the GPUs may not be the same. With
// each GPU's path counted at secondPair at most, a port that is picked saves what its help says and
// costs its distance, and then the cheapest ports to come bound both together. Any number would do
// for secondPair; the least cost of a second best port tells good ports from others.

// One lab node of four to eight GPUs on a partly used machine needs this: on largeShape of the tests, 138 of 480 such
// labs end with a bound that is up to a tenth lower without it.

// helpPaths finds what each port would save. It reports whether that makes sense: each GPU pays for
// its best port, and ports are still to come.
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

// portsAt returns what paths and the distance of the ports to come cost at least with all cores on NUMA node a, scaled.
func (e *enumerator) portsAt(a int) int64 {
	o, r, m := &e.out, e.r, e.s.m
	sum := scale * (int64(r.gpus-len(e.c.gpus))*r.secondPair + total(o.now))
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
