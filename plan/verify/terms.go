package verify

import (
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

func (c *checker) terms() {
	var sum int64
	for _, t := range c.pl.Terms {
		sum += t.Cost
		if t.Cost != t.Value*t.Weight {
			c.fault("term %s: cost %d, want %d times %d, which is %d", termName(t), t.Cost, t.Value, t.Weight,
				t.Value*t.Weight)
		}
	}
	if sum != c.pl.Cost {
		c.fault("cost: have %d, the terms add up to %d", c.pl.Cost, sum)
	}
	if slices.Contains(c.nodes, nil) {
		return // others' terms depend on the missing lab node
	}
	want := c.recompute()
	have := map[string]plan.Term{}
	for _, t := range c.pl.Terms {
		name := termName(t)
		if _, twice := have[name]; twice {
			c.fault("term %s: it is there twice", name)
		}
		have[name] = t
	}
	for _, w := range want {
		name := termName(w)
		t, ok := have[name]
		delete(have, name)
		switch {
		case !ok:
			c.fault("term %s: it is missing, want %d times %d", name, w.Value, w.Weight)
		case t.Value != w.Value || t.Weight != w.Weight:
			c.fault("term %s: have %d times %d, want %d times %d", name, t.Value, t.Weight, w.Value, w.Weight)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		c.fault("term %s: want none", name)
	}
}

// termName escapes names, which may come from an untrusted source.
func termName(t plan.Term) string {
	if t.Node == "" {
		return words.Plain(t.Term) + " of [" + words.Plain(strings.Join(t.Among, " ")) + "]"
	}
	return words.Plain(t.Term) + " of " + words.Plain(t.Node)
}

// A footprint is the actual place of a lab node, not the one stated by the plan.
type footprint struct {
	cores map[int]int64
	nodes []int // NUMA nodes with cores
	small int64
	l3    []int
	pages map[int]int64
	ports []int
}

func (c *checker) footprint(i int) footprint {
	f := footprint{cores: map[int]int64{}, pages: map[int]int64{}, ports: c.found[i].ports()}
	for _, k := range c.found[i].cores {
		f.cores[k.node]++
		if k.small {
			f.small++
		}
		if k.l3 >= 0 {
			f.l3 = append(f.l3, k.l3)
		}
	}
	f.nodes, f.l3 = slices.Sorted(maps.Keys(f.cores)), sorted(f.l3)
	for _, m := range c.nodes[i].Memory {
		f.pages[m.NUMANode] += int64(m.Bytes / c.p.PageBytes)
	}
	return f
}

// recompute has the order of docs/planner.md. It omits terms that do not apply (the rate of NICs without a NIC), but
// not terms of value 0.
func (c *checker) recompute() []plan.Term {
	var all []plan.Term
	prints := make([]footprint, len(c.nodes))
	for i := range c.nodes {
		prints[i] = c.footprint(i)
	}
	paths := make(map[[2]int]*plan.PairPath, 2*len(c.p.Paths))
	for i := range c.p.Paths {
		q := &c.p.Paths[i]
		paths[[2]int{q.A, q.B}], paths[[2]int{q.B, q.A}] = q, q
	}
	own := make([]int64, len(c.nodes))
	w := &c.p.Weights
	for i := range c.nodes {
		r, f := &c.p.Requests[i], &prints[i]
		add := func(name string, value, weight int64) {
			all = append(all, plan.Term{Node: r.Name, Term: name, Value: value, Weight: weight, Cost: value * weight})
		}
		first := len(all)
		// Otherwise a missing or extra device, reported elsewhere, would change the weights of all others too.
		c.pathTerms(i, f, paths, add)
		asked := lists.Sum(slices.Concat(r.GPUs, r.NICs, r.VFs), func(w plan.Want) int64 { return int64(w.Count) })
		if devices := append(slices.Clone(c.found[i].gpus), f.ports...); len(devices) > 0 {
			nearest, mean := c.deviceDistances(f, devices)
			nearWeight, shareWeight := w.DeviceNearest, w.DeviceShare
			if r.GuestNUMA == "off" { // all cores count alike
				nearest, nearWeight = mean, part(w.DeviceNearest, int64(r.Cores))
				shareWeight += 2 * asked * w.DeviceNearest
			}
			add(plan.TermDeviceNearest, nearest, nearWeight)
			add(plan.TermDeviceDistance, mean, part(w.DeviceDistance, int64(r.Cores)*asked))
			add(plan.TermDeviceShare, c.shareMissing(i, f)*int64(len(devices)),
				part(shareWeight, int64(r.Cores)*asked))
		}
		span := w.NUMASpan
		if r.GuestNUMA == "off" {
			span = w.NUMASpanHidden
		}
		add(plan.TermNUMASpan, int64(len(f.nodes)-1), span)
		add(plan.TermCoreBalance, unevenness(f), part(w.CoreBalance, int64(r.Cores)))
		if c.m.hybrid {
			add(plan.TermEfficiencyCores, f.small, part(w.EfficiencyCores, int64(r.Cores)))
		}
		if len(f.ports) > 0 {
			var slow, plain int64
			for _, d := range f.ports {
				if !c.p.Devices[d].RateUnknown {
					slow += slowness(c.p.Devices[d].RateMbps)
				}
				if !c.p.Devices[d].RDMA {
					plain++
				}
			}
			add(plan.TermNICRate, slow, w.NICRate)
			add(plan.TermNICRDMA, plain, w.NICRDMA)
		}
		// "unequal" compares the terms up to here. Later terms depend on other lab nodes.
		own[i] += lists.Sum(all[first:], func(t plan.Term) int64 { return t.Cost })
		if len(c.found[i].vfs) > 0 {
			add(plan.TermNICShared, c.sharers(i, prints), w.NICShared)
		}
		if cards := c.cardsOf(f.ports); len(cards) > 0 {
			add(plan.TermCardShared, c.cardSharers(i, prints), w.CardShared)
		}
		if len(f.ports) > 0 && slices.ContainsFunc(c.p.Devices, func(d plan.Device) bool { return d.Net != 0 }) {
			add(plan.TermUnlinked, c.unreached(i, prints), w.Unlinked)
		}
		far, off := c.memoryTerms(i, f)
		add(plan.TermMemoryDistance, far, part(w.MemoryDistance, r.Pages))
		add(plan.TermMemoryBalance, off, part(w.MemoryBalance, r.Pages))
		add(plan.TermL3Shared, c.l3Sharers(i, prints), w.L3Shared)
		add(plan.TermEmulatorDistance, c.emulatorTerm(f), w.EmulatorDistance)
	}
	return append(all, c.inequality(own)...)
}

// part rounds half up, but to at least 1: otherwise a shortcoming of a large lab node would be free.
func part(whole, n int64) int64 {
	if whole == 0 || n <= 0 {
		return 0
	}
	q, rest := whole/n, whole%n
	if rest >= n-rest {
		q++
	}
	return max(q, 1)
}

func slowness(mbps int64) int64 {
	return int64(lists.Count([]int64{100, 25, 10, 1}, func(gbps int64) bool { return mbps < gbps*1000 }))
}

// pathTerms pairs each device of the larger side with its cheapest partner.
func (c *checker) pathTerms(i int, f *footprint, paths map[[2]int]*plan.PairPath, add func(string, int64, int64)) {
	gpus, w := c.found[i].gpus, &c.p.Weights
	path := func(a, b int) *plan.PairPath {
		q := paths[[2]int{a, b}]
		// A card that is in the plan twice, which is reported elsewhere, has no path to itself.
		if q == nil && a != b {
			c.fault("problem: no path between %s and %s", c.p.Devices[a].ID, c.p.Devices[b].ID)
		}
		return q
	}
	cost := func(q *plan.PairPath) int64 {
		if q.LossPercent != nil {
			return int64(*q.LossPercent) * w.GPUNICMeasured
		}
		return int64(q.Steps) * w.GPUNICPath
	}
	if len(gpus) > 0 && len(f.ports) > 0 {
		many, few := gpus, f.ports
		if len(few) > len(many) {
			many, few = few, many
		}
		var steps, percent int64
		measured := false
		for _, a := range many {
			var best *plan.PairPath
			for _, b := range few {
				if q := path(a, b); q != nil && (best == nil || cost(q) < cost(best)) {
					best = q
				}
			}
			switch {
			case best == nil:
			case best.LossPercent != nil:
				measured = true
				percent += int64(*best.LossPercent)
			default:
				steps += int64(best.Steps)
			}
		}
		add(plan.TermGPUNICPath, steps, w.GPUNICPath)
		if measured {
			add(plan.TermGPUNICMeasured, percent, w.GPUNICMeasured)
		}
	}
	if len(gpus) < 2 {
		return
	}
	var steps int64
	for k, b := range gpus {
		for _, a := range gpus[:k] {
			if q := path(a, b); q != nil {
				steps += int64(q.Steps)
			}
		}
	}
	add(plan.TermGPUGPUPath, steps, w.GPUGPUPath)
}

// deviceDistances counts 0 without a known NUMA node.
func (c *checker) deviceDistances(f *footprint, devices []int) (nearest, all int64) {
	for _, d := range devices {
		home := c.p.Devices[d].NUMANode
		if home == nil {
			continue
		}
		least, _ := c.m.nearest(f.nodes, *home)
		nearest += least
		for _, node := range f.nodes {
			all += f.cores[node] * int64(c.m.distance(node, *home)-localDistance)
		}
	}
	return nearest, all
}

// shareMissing goes by GPUs alone if they are on two NUMA nodes or more, or if the guest sees no NUMA nodes and has
// more GPUs than ports.
func (c *checker) shareMissing(i int, f *footprint) int64 {
	count := func(devices []int) (on map[int]int64, known int64) {
		on = map[int]int64{}
		for _, d := range devices {
			if home := c.p.Devices[d].NUMANode; home != nil {
				on[*home]++
				known++
			}
		}
		return on, known
	}
	on, known := count(c.found[i].gpus)
	every, all := count(slices.Concat(c.found[i].gpus, f.ports))
	alone := c.p.Requests[i].GuestNUMA == "off" && len(c.found[i].gpus) > len(f.ports)
	if len(on) == 0 || len(on) == 1 && !alone {
		on, known = every, all
	}
	lacking, apart := int64(0), 0
	for home, n := range on {
		lacking += max(0, int64(len(c.found[i].cores))*n/known-f.cores[home])
	}
	homes := slices.Sorted(maps.Keys(every))
	for k, home := range homes {
		for _, other := range homes[:k] {
			apart = max(apart, c.m.distance(home, other)-localDistance, c.m.distance(other, home)-localDistance)
		}
	}
	return lacking * int64(apart)
}

// unevenness is rounded down.
func unevenness(f *footprint) int64 {
	if len(f.nodes) == 0 {
		return 0
	}
	sum, lacking := int64(0), int64(0)
	for _, n := range f.cores {
		sum += n
	}
	for _, n := range f.cores {
		lacking += max(0, sum/int64(len(f.nodes))-n)
	}
	return lacking
}

// sharers counts two virtual functions of one NIC once: they share the port.
func (c *checker) sharers(i int, prints []footprint) int64 {
	var n int64
	for _, d := range sorted(prints[i].ports) {
		for j := range prints {
			if j != i && slices.Contains(prints[j].ports, d) {
				n++
			}
		}
	}
	return n
}

func (c *checker) cardsOf(ports []int) []string {
	var cards []string
	for _, d := range ports {
		card := c.p.Devices[d].Card()
		on := func(o plan.Device) bool { return o.Kind == plan.KindNIC && o.Card() == card }
		if card != "" && lists.Count(c.p.Devices, on) > 1 {
			cards = append(cards, card)
		}
	}
	return lists.Distinct(cards)
}

// cardSharers counts cards on which both have ports, if they have no port in common.
func (c *checker) cardSharers(i int, prints []footprint) int64 {
	var n int64
	for j := range prints {
		for _, card := range c.cardsOf(prints[i].ports) {
			on := func(ports []int) []int {
				return slices.DeleteFunc(sorted(ports), func(d int) bool { return c.p.Devices[d].Card() != card })
			}
			a, b := on(prints[i].ports), on(prints[j].ports)
			common := slices.ContainsFunc(a, func(d int) bool { return slices.Contains(b, d) })
			if j != i && len(b) > 0 && !common {
				n++
			}
		}
	}
	return n
}

// unreached counts the ports of the lab node with fewer that have no port of the other on the same link. Each port is
// matched at most once.
func (c *checker) unreached(i int, prints []footprint) int64 {
	var n int64
	for j := range prints {
		if j == i {
			continue
		}
		left := slices.Clone(prints[j].ports)
		few := min(len(prints[i].ports), len(left))
		for _, d := range prints[i].ports {
			k := slices.IndexFunc(left, func(o int) bool {
				return o == d || c.p.Devices[d].Net > 0 && c.p.Devices[o].Net == c.p.Devices[d].Net
			})
			if k >= 0 {
				left = slices.Delete(left, k, k+1)
				few--
			}
		}
		n += int64(few)
	}
	return n
}

// memoryTerms returns the distances of pages to the nearest core, and the pages missing from shares, rounded down.
func (c *checker) memoryTerms(i int, f *footprint) (far, off int64) {
	for node, pages := range f.pages {
		least, _ := c.m.nearest(f.nodes, node)
		far += least * pages
	}
	cores := int64(len(c.found[i].cores))
	for _, node := range f.nodes {
		// pages*n/cores without overflow: pages = q*cores + r.
		q, r := c.p.Requests[i].Pages/cores, c.p.Requests[i].Pages%cores
		off += max(0, q*f.cores[node]+r*f.cores[node]/cores-f.pages[node])
	}
	return far, off
}

// l3Sharers ignores cores of the host, which chooses its own load there, and that is small.
func (c *checker) l3Sharers(i int, prints []footprint) int64 {
	var n int64
	for _, l3 := range prints[i].l3 {
		if slices.ContainsFunc(c.m.cores, func(k *coreView) bool {
			return k.l3 == l3 && k.owner != i && (k.owner >= 0 || k.tenant != "")
		}) {
			n++
		}
	}
	return n
}

// emulatorTerm is 0 without a free core.
func (c *checker) emulatorTerm(f *footprint) int64 {
	free := lists.Map(lists.Filter(c.m.cores, func(k *coreView) bool { return k.owner < 0 && k.tenant == "" }),
		func(k *coreView) int { return k.node })
	far, _ := c.m.nearest(f.nodes, sorted(free)...)
	return far
}

// inequality is in whole percents. A benchmark between equal requests must not measure the placement.
func (c *checker) inequality(own []int64) []plan.Term {
	classes := numbersOf(c.p.Requests, func(r plan.Request) int { return r.Class })
	var terms []plan.Term
	for _, class := range classes {
		var names []string
		var costs []int64
		for i := range c.p.Requests {
			if c.p.Requests[i].Class == class {
				names, costs = append(names, c.p.Requests[i].Name), append(costs, own[i])
			}
		}
		if len(names) > 1 {
			t := plan.Term{Among: names, Term: plan.TermUnequal, Value: (slices.Max(costs) - slices.Min(costs)) / 100,
				Weight: c.p.Weights.Unequal}
			t.Cost = t.Value * t.Weight
			terms = append(terms, t)
		}
	}
	return terms
}
