package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// A Term is one part of a plan's cost. Cost is Value times Weight.
type Term struct {
	// Node is the lab node that the term is of; empty for what is of several, which Among names.
	Node   string   `json:"node"`
	Among  []string `json:"among,omitempty"`
	Term   string   `json:"term"` // a Term constant
	Value  int64    `json:"value"`
	Weight int64    `json:"weight"` // basis points
	Cost   int64    `json:"cost"`
}

// Cost adds up the terms.
func Cost(terms []Term) int64 { return lists.Sum(terms, func(t Term) int64 { return t.Cost }) }

// Evaluate returns what a placement costs: the terms of each lab node in the order of the problem,
// then those of several. Terms of value 0 are there too, so that nothing is left to guess. The
// placement has to be one that keeps the rules; package plan/verify says whether it does.
//
// docs/planner.md defines each term; the comments here repeat it in a line.
func Evaluate(p *Problem, pl *Placement) []Term { return NewLayout(p).evaluate(pl) }

// Cost returns what a placement costs, as the sum of what [Evaluate] returns.
func (l *Layout) Cost(pl *Placement) int64 { return Cost(l.evaluate(pl)) }

func (l *Layout) evaluate(pl *Placement) []Term {
	e, p := newEvaluation(l, pl), l.p
	terms := make([]Term, 0, 20*len(pl.Nodes)) // a lab node has at most that many
	own := make([]int64, len(p.Requests))      // what each lab node's devices and cores cost, for "unequal"
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
			add(TermDeviceNearest, nearest, p.Weights.DeviceNearest)
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

// unequal compares lab nodes of one class: whole percents between the dearest and the cheapest, by
// the terms of devices and cores.
func (p *Problem) unequal(own []int64) []Term {
	names, costs := map[int][]string{}, map[int][]int64{} // by class
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

// gpuNIC pairs GPUs with network ports. Each of the larger side goes with the cheapest partner of
// the other side, GPUs where both are equally many; of equally cheap ones the first counts. It
// returns the steps of the pairs that go by class, and the percents of the measured ones.
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

// PairCost returns what a GPU and a NIC on q's ends cost, in basis points.
func (p *Problem) PairCost(q *PairPath) int64 {
	if q.LossPercent != nil {
		return int64(*q.LossPercent) * p.Weights.GPUNICMeasured
	}
	return int64(q.Steps) * p.Weights.GPUNICPath
}

// ports returns the NIC of each network port of the lab node: whole ones, and once for each virtual function.
func (n *NodePlacement) ports() []int {
	ports := slices.Clone(n.NICs)
	for _, v := range n.VFs {
		for range v.Count {
			ports = append(ports, v.Device)
		}
	}
	return ports
}

// nics returns the NICs that serve the lab node, each once, ascending.
func (n *NodePlacement) nics() []int { return lists.Distinct(n.ports()) }

// An evaluation indexes a placement.
type evaluation struct {
	*Layout
	pl      *Placement
	hybrid  bool
	coresOn []map[int]int64      // of each lab node: cores by NUMA node
	small   []int64              // of each lab node: efficiency cores
	left    map[int][]*Core      // housekeeping cores by NUMA node
	owners  map[int]map[int]bool // of an L3 cache: lab nodes and tenantOwner
}

// tenantOwner stands for tenants among the owners of an L3 cache.
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

// nearest returns the distance from a NUMA node to the nearest core of lab node i.
func (e *evaluation) nearest(i, node int) int64 {
	least := int64(math.MaxInt64)
	for on := range e.coresOn[i] {
		least = min(least, int64(e.p.Distance(on, node)))
	}
	return least
}

// deviceDistances adds up the distances of devices to the nearest core of lab node i, and to all its cores.
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

// deviceShare returns how many cores of lab node i are missing from the NUMA nodes whose share they
// are, shares rounded down, times the largest distance between NUMA nodes of its devices.
func (e *evaluation) deviceShare(i int, gpus, ports []int) int64 {
	shares, all := e.p.homes(gpus)
	homes, devices := e.p.homes(slices.Concat(gpus, ports))
	if len(shares) < 2 {
		// GPUs on several NUMA nodes decide, since they have most of the work.
		shares, all = homes, devices
	}
	var missing, far int64
	for node, n := range shares {
		missing += max(0, n*total(e.coresOn[i])/all-e.coresOn[i][node])
	}
	for node := range homes {
		for other := range homes {
			if other != node { // all on one node: the distance to it says everything
				far = max(far, int64(e.p.Distance(node, other)))
			}
		}
	}
	return missing * far
}

// homes counts the devices on each NUMA node, and all whose NUMA node is known.
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

// evenMissing returns how many cores are missing where they would be spread evenly over the NUMA
// nodes that have some, shares rounded down.
func evenMissing(cores map[int]int64) (missing int64) {
	even := total(cores) / int64(len(cores))
	for _, n := range cores {
		missing += max(0, even-n)
	}
	return missing
}

// memory returns page-distances from the pages of lab node i to the nearest of its cores, and how
// many pages are not on the node that they are the share of, shares rounded down.
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

// total adds up cores on all NUMA nodes.
func total(cores map[int]int64) (sum int64) {
	for _, n := range cores {
		sum += n
	}
	return sum
}

// wholeShare returns the pages that go with n of all cores, rounded down. What rounding leaves over
// may be on any node: whose it is would depend on how nodes are numbered.
func wholeShare(pages, n, all int64) int64 {
	return pages/all*n + pages%all*n/all // divided first, so that no product overflows
}

// Shares splits pages among NUMA nodes in proportion to the cores on each: whole pages, what is
// left over goes to the largest remainders, of equal ones to the lowest node.
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

// sharedPorts counts for each NIC that serves lab node i the other lab nodes that it serves.
func (e *evaluation) sharedPorts(i int) int64 {
	return lists.Sum(e.pl.Nodes[i].nics(), func(d int) int64 {
		serves := func(n NodePlacement) bool { return slices.Contains(n.nics(), d) }
		return int64(lists.Count(e.pl.Nodes, serves)) - 1 // itself
	})
}

// between adds up what [Wiring.Between] says of lab node i and each other one.
func (e *evaluation) between(i int) (cards, unlinked int64) {
	for j := range e.pl.Nodes {
		if j != i {
			c, u := e.wiring.Between(e.pl.Nodes[i].ports(), e.pl.Nodes[j].ports())
			cards, unlinked = cards+c, unlinked+u
		}
	}
	return cards, unlinked
}

// sharedL3 counts the L3 caches that lab node i shares with another lab node or with a tenant.
func (e *evaluation) sharedL3(i int) int64 {
	var shared int64
	for _, owners := range e.owners {
		if owners[i] && len(owners) > 1 {
			shared++
		}
	}
	return shared
}

// emulator returns the distance from lab node i to the nearest housekeeping core; 0 where there is none.
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
