package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// A Term is one part of a plan's score. Cost is Value times Weight.
type Term struct {
	// Node is the lab node of the term; empty if the term is about several, named in Among.
	Node   string   `json:"node"`
	Among  []string `json:"among,omitempty"`
	Term   string   `json:"term"` // name of the term, such as "device_nearest"
	Value  int64    `json:"value"`
	Weight int64    `json:"weight"` // score per unit of Value
	Cost   int64    `json:"score"`
}

// Cost adds up the terms.
func Cost(terms []Term) int64 { return lists.Sum(terms, func(t Term) int64 { return t.Cost }) }

// Evaluate has terms of each lab node in the order of the problem, then terms about several nodes, also of value 0. The
// placement must satisfy the rules. docs/planner.md defines each term.
func Evaluate(p *Problem, pl *Placement) []Term { return NewLayout(p).evaluate(pl) }

// Cost is the sum of the terms of [Evaluate].
func (l *Layout) Cost(pl *Placement) int64 { return Cost(l.evaluate(pl)) }

func (l *Layout) evaluate(pl *Placement) []Term {
	e, p := newEvaluation(l, pl), l.p
	terms := make([]Term, 0, 20*len(pl.Nodes)) // maximum number per lab node
	own := make([]int64, len(p.Requests))      // by lab node, of devices and cores, for "unequal"
	for i := range p.Requests {
		r, n, w := &p.Requests[i], &pl.Nodes[i], p.Weights.Of(&p.Requests[i])
		add := func(name string, value, weight int64) {
			terms = append(terms, Term{Node: r.Name, Term: name, Value: value, Weight: weight, Cost: value * weight})
		}
		before, ports := len(terms), n.ports()
		if len(n.GPUs) > 0 && len(ports) > 0 {
			steps, percent, measured := p.gpuNIC(n.GPUs, ports)
			add(TermGPUNICPath, steps, p.Weights.GPUNICPath)
			if measured {
				add(TermGPUNICMeasured, percent, p.Weights.GPUNICMeasured)
			}
		}
		if len(n.GPUs) > 1 {
			var steps int64
			for i, a := range n.GPUs {
				steps += lists.Sum(n.GPUs[i+1:], func(b int) int64 { return int64(p.Path(a, b).Steps) })
			}
			add(TermGPUGPUPath, steps, p.Weights.GPUGPUPath)
		}
		if devices := append(slices.Clone(n.GPUs), ports...); len(devices) > 0 {
			nearest, all := e.deviceDistances(i, devices)
			if w.Hidden {
				nearest = all
			}
			add(TermDeviceNearest, nearest, w.DeviceNearest)
			add(TermDeviceDistance, all, w.DeviceDistance)
			add(TermDeviceShare, e.deviceShare(i, n.GPUs, ports)*int64(len(devices)), w.DeviceShare)
		}
		add(TermNUMASpan, int64(len(e.coresOn[i])-1), w.NUMASpan)
		add(TermCoreBalance, evenMissing(e.coresOn[i]), w.CoreBalance)
		if e.hybrid {
			add(TermEfficiencyCores, e.small[i], w.EfficiencyCores)
		}
		if len(ports) > 0 {
			var rate, plain int64
			for _, d := range ports {
				rate += p.Devices[d].RateSteps()
				if !p.Devices[d].RDMA {
					plain++
				}
			}
			add(TermNICRate, rate, p.Weights.NICRate)
			add(TermNICRDMA, plain, p.Weights.NICRDMA)
		}
		own[i] = Cost(terms[before:])

		if len(n.VFs) > 0 {
			add(TermNICShared, e.sharedPorts(i), p.Weights.NICShared)
		}
		if w := e.wiring; w != nil && len(ports) > 0 {
			cards, unlinked := e.between(i)
			if slices.ContainsFunc(ports, func(d int) bool { return w.Card(d) >= 0 }) {
				add(TermCardShared, cards, p.Weights.CardShared)
			}
			if w.Linked() {
				add(TermUnlinked, unlinked, p.Weights.Unlinked)
			}
		}
		far, off := e.memory(i)
		add(TermMemoryDistance, far, w.MemoryDistance)
		add(TermMemoryBalance, off, w.MemoryBalance)
		add(TermL3Shared, e.sharedL3(i), p.Weights.L3Shared)
		add(TermEmulatorDistance, e.emulator(i), p.Weights.EmulatorDistance)
	}
	return append(terms, p.unequal(own)...)
}

// unequal is the difference between the highest and the lowest cost in a class, in whole percent.
func (p *Problem) unequal(own []int64) []Term {
	names, costs := map[int][]string{}, map[int][]int64{} // keyed by class
	for i := range p.Requests {
		r := &p.Requests[i]
		names[r.Class], costs[r.Class] = append(names[r.Class], r.Name), append(costs[r.Class], own[i])
	}
	var terms []Term
	for _, class := range slices.Sorted(maps.Keys(names)) {
		if len(names[class]) < 2 {
			continue
		}
		t := Term{Term: TermUnequal, Among: names[class], Weight: p.Weights.Unequal}
		t.Value = (slices.Max(costs[class]) - slices.Min(costs[class])) / 100
		t.Cost = t.Value * t.Weight
		terms = append(terms, t)
	}
	return terms
}

// gpuNIC pairs each element of the larger side, or each GPU if both are equal, with the cheapest partner, with ties
// broken by order. It returns the steps of unmeasured pairs, and the percents of measured ones.
func (p *Problem) gpuNIC(gpus, ports []int) (steps, percent int64, measured bool) {
	from, to := gpus, ports
	if len(ports) > len(gpus) {
		from, to = ports, gpus
	}
	for _, a := range from {
		var best *PairPath
		for _, b := range to {
			if q := p.Path(a, b); best == nil || p.PairCost(q) < p.PairCost(best) {
				best = q
			}
		}
		if best.LossPercent != nil {
			measured = true
			percent += int64(*best.LossPercent)
		} else {
			steps += int64(best.Steps)
		}
	}
	return steps, percent, measured
}

// PairCost is for a GPU and a NIC, in basis points.
func (p *Problem) PairCost(q *PairPath) int64 {
	if q.LossPercent != nil {
		return int64(*q.LossPercent) * p.Weights.GPUNICMeasured
	}
	return int64(q.Steps) * p.Weights.GPUNICPath
}

// ports has each whole NIC, and the NIC of each virtual function.
func (n *NodePlacement) ports() []int {
	ports := slices.Clone(n.NICs)
	for _, v := range n.VFs {
		for range v.Count {
			ports = append(ports, v.Device)
		}
	}
	return ports
}

func (n *NodePlacement) nics() []int { return lists.Distinct(n.ports()) }

type evaluation struct {
	*Layout
	pl      *Placement
	hybrid  bool
	coresOn []map[int]int64 // per lab node, by NUMA node
	small   []int64         // per lab node
	left    map[int][]*Core // housekeeping cores by NUMA node
	owners  map[int]map[int]bool
}

const tenantOwner = -1

func newEvaluation(l *Layout, pl *Placement) *evaluation {
	e := &evaluation{Layout: l, pl: pl, small: make([]int64, len(pl.Nodes)), left: map[int][]*Core{},
		owners: map[int]map[int]bool{}}
	own := func(c *Core, owner int) {
		if c.L3 < 0 {
			return
		}
		if e.owners[c.L3] == nil {
			e.owners[c.L3] = map[int]bool{}
		}
		e.owners[c.L3][owner] = true
	}
	for i := range l.p.Cores {
		c := &l.p.Cores[i]
		e.hybrid = e.hybrid || c.Efficiency
		if c.Tenant != "" {
			own(c, tenantOwner)
		}
	}
	for i := range pl.Nodes {
		for _, id := range pl.Nodes[i].Cores {
			c := e.Cores[id]
			if c.Efficiency {
				e.small[i]++
			}
			own(c, i)
		}
		e.coresOn = append(e.coresOn, e.CoresOn(pl.Nodes[i].Cores))
	}
	for _, id := range e.Free(pl) {
		c := e.Cores[id]
		e.left[c.NUMANode] = append(e.left[c.NUMANode], c)
	}
	return e
}

func (e *evaluation) nearest(i, node int) int64 {
	least := int64(math.MaxInt64)
	for on := range e.coresOn[i] {
		least = min(least, int64(e.p.Distance(on, node)))
	}
	return least
}

func (e *evaluation) deviceDistances(i int, devices []int) (nearest, all int64) {
	for _, d := range devices {
		home := e.p.Devices[d].NUMANode
		if home == nil {
			continue
		}
		nearest += e.nearest(i, *home)
		for node, cores := range e.coresOn[i] {
			all += int64(e.p.Distance(node, *home)) * cores
		}
	}
	return nearest, all
}

// deviceShare returns the cores missing from shares in proportion to the devices (rounded down), times the largest
// distance between their NUMA nodes.
func (e *evaluation) deviceShare(i int, gpus, ports []int) int64 {
	shares, all := e.p.homes(gpus)
	homes, devices := e.p.homes(slices.Concat(gpus, ports))
	alone := e.p.Requests[i].GuestNUMA == "off" && len(gpus) > len(ports)
	if len(shares) == 0 || len(shares) == 1 && !alone {
		// GPUs on several NUMA nodes have most of the work. A guest that sees no NUMA nodes has no use for a few cores
		// beside its NIC.
		shares, all = homes, devices
	}
	var missing, far int64
	for node, n := range shares {
		missing += max(0, n*total(e.coresOn[i])/all-e.coresOn[i][node])
	}
	for node := range homes {
		for other := range homes {
			if other != node { // on one node, the distance to it is enough
				far = max(far, int64(e.p.Distance(node, other)))
			}
		}
	}
	return missing * far
}

// homes counts devices with a known NUMA node.
func (p *Problem) homes(devices []int) (homes map[int]int64, all int64) {
	homes = map[int]int64{}
	for _, d := range devices {
		if home := p.Devices[d].NUMANode; home != nil {
			homes[*home]++
			all++
		}
	}
	return homes, all
}

// evenMissing rounds shares down.
func evenMissing(cores map[int]int64) (missing int64) {
	even := total(cores) / int64(len(cores))
	for _, n := range cores {
		missing += max(0, even-n)
	}
	return missing
}

// memory returns the distances from pages to the nearest core, and the pages missing from shares in proportion to cores
// (rounded down).
func (e *evaluation) memory(i int) (far, off int64) {
	have := map[int]int64{}
	for _, m := range e.pl.Nodes[i].Memory {
		have[m.NUMANode] += m.Pages
		far += e.nearest(i, m.NUMANode) * m.Pages
	}
	cores := total(e.coresOn[i])
	for node, n := range e.coresOn[i] {
		off += max(0, wholeShare(e.p.Requests[i].Pages, n, cores)-have[node])
	}
	return far, off
}

func total(cores map[int]int64) (sum int64) {
	for _, n := range cores {
		sum += n
	}
	return sum
}

// wholeShare is rounded down. If the remainder had a node, the cost would depend on the numbering of nodes.
func wholeShare(pages, n, all int64) int64 {
	return pages/all*n + pages%all*n/all // so that no product overflows
}

// Shares splits whole pages in proportion to cores. The rest goes to the largest remainders, with ties broken by the
// lowest node.
func Shares(pages int64, cores map[int]int64) map[int]int64 {
	total := total(cores)
	shares := make(map[int]int64, len(cores))
	left := pages
	nodes := slices.Sorted(maps.Keys(cores))
	for _, node := range nodes {
		shares[node] = wholeShare(pages, cores[node], total)
		left -= shares[node]
	}
	slices.SortStableFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(pages%total*cores[b]%total, pages%total*cores[a]%total), cmp.Compare(a, b))
	})
	for _, node := range nodes[:left] {
		shares[node]++
	}
	return shares
}

func (e *evaluation) sharedPorts(i int) int64 {
	return lists.Sum(e.pl.Nodes[i].nics(), func(d int) int64 {
		serves := func(n NodePlacement) bool { return slices.Contains(n.nics(), d) }
		return int64(lists.Count(e.pl.Nodes, serves)) - 1 // minus itself
	})
}

func (e *evaluation) between(i int) (cards, unlinked int64) {
	for j := range e.pl.Nodes {
		if j != i {
			c, u := e.wiring.Between(e.pl.Nodes[i].ports(), e.pl.Nodes[j].ports())
			cards, unlinked = cards+c, unlinked+u
		}
	}
	return cards, unlinked
}

func (e *evaluation) sharedL3(i int) int64 {
	var shared int64
	for _, owners := range e.owners {
		if owners[i] && len(owners) > 1 {
			shared++
		}
	}
	return shared
}

// emulator is 0 without housekeeping cores.
func (e *evaluation) emulator(i int) int64 {
	if len(e.left) == 0 {
		return 0
	}
	least := int64(math.MaxInt64)
	for node := range e.left {
		least = min(least, e.nearest(i, node))
	}
	return least
}
