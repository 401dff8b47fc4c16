package plan

import (
	"maps"
	"slices"
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
func Cost(terms []Term) int64 {
	var sum int64
	for _, t := range terms {
		sum += t.Cost
	}
	return sum
}

// Evaluate returns what a placement costs: the terms of each lab node in the order of the problem,
// then those of several. Terms of value 0 are there too, so that nothing is left to guess. The
// placement has to be one that keeps the rules; package plan/verify says whether it does.
//
// docs/planner.md defines each term; the comments here repeat it in a line.
func Evaluate(p *Problem, pl *Placement) []Term {
	e := newEvaluation(p, pl)
	var terms []Term
	own := make([]int64, len(p.Requests)) // what each lab node's devices and cores cost, for "unequal"
	for i := range p.Requests {
		r, n, w := &p.Requests[i], &pl.Nodes[i], p.Weights.Of(&p.Requests[i])
		add := func(name string, value, weight int64) {
			terms = append(terms, Term{Node: r.Name, Term: name, Value: value, Weight: weight, Cost: value * weight})
		}
		before := len(terms)
		if ports := n.ports(); len(n.GPUs) > 0 && len(ports) > 0 {
			steps, percent, measured := p.gpuNIC(n.GPUs, ports)
			add(TermGPUNICPath, steps, p.Weights.GPUNICPath)
			if measured {
				add(TermGPUNICMeasured, percent, p.Weights.GPUNICMeasured)
			}
		}
		if len(n.GPUs) > 1 {
			var steps int64
			for i, a := range n.GPUs {
				for _, b := range n.GPUs[i+1:] {
					steps += int64(p.Path(a, b).Steps)
				}
			}
			add(TermGPUGPUPath, steps, p.Weights.GPUGPUPath)
		}
		nodes := e.coresOn[i]
		if devices := n.devices(); len(devices) > 0 {
			var nearest, all int64
			for _, d := range devices {
				home := p.Devices[d].NUMANode
				if home == nil {
					continue
				}
				first := true
				var least int64
				for node, cores := range nodes {
					far := int64(p.Distance(node, *home))
					all += far * cores
					if first || far < least {
						least, first = far, false
					}
				}
				nearest += least
			}
			add(TermDeviceNearest, nearest, p.Weights.DeviceNearest)
			add(TermDeviceDistance, all, w.DeviceDistance)
		}
		add(TermNUMASpan, int64(len(nodes)-1), w.NUMASpan)
		if e.hybrid {
			add(TermEfficiencyCores, e.small[i], w.EfficiencyCores)
		}
		if ports := n.ports(); len(ports) > 0 {
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
	members := map[int][]int{}
	for i := range p.Requests {
		members[p.Requests[i].Class] = append(members[p.Requests[i].Class], i)
	}
	var terms []Term
	for _, class := range slices.Sorted(maps.Keys(members)) {
		if len(members[class]) < 2 {
			continue
		}
		t := Term{Term: TermUnequal, Weight: p.Weights.Unequal}
		least, most := own[members[class][0]], own[members[class][0]]
		for _, i := range members[class] {
			least, most = min(least, own[i]), max(most, own[i])
			t.Among = append(t.Among, p.Requests[i].Name)
		}
		t.Value = (most - least) / 100
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

// devices returns all devices of the lab node, a NIC once for each of its virtual functions.
func (n *NodePlacement) devices() []int { return append(slices.Clone(n.GPUs), n.ports()...) }

// nics returns the NICs that serve the lab node, each once, ascending.
func (n *NodePlacement) nics() []int {
	nics := n.ports()
	slices.Sort(nics)
	return slices.Compact(nics)
}

// An evaluation indexes a placement.
type evaluation struct {
	p       *Problem
	pl      *Placement
	hybrid  bool
	coresOn []map[int]int64 // of each lab node: cores by NUMA node
	small   []int64         // of each lab node: efficiency cores
	left    []int           // NUMA nodes with housekeeping cores
	owners  map[int]map[int]bool
}

// tenantOwner stands for tenants among the owners of an L3 cache.
const tenantOwner = -1

func newEvaluation(p *Problem, pl *Placement) *evaluation {
	e := &evaluation{p: p, pl: pl, small: make([]int64, len(pl.Nodes)), owners: map[int]map[int]bool{}}
	byID := make(map[int]*Core, len(p.Cores))
	given := map[int]bool{}
	own := func(c *Core, owner int) {
		if c.L3 < 0 {
			return
		}
		if e.owners[c.L3] == nil {
			e.owners[c.L3] = map[int]bool{}
		}
		e.owners[c.L3][owner] = true
	}
	for i := range p.Cores {
		c := &p.Cores[i]
		byID[c.ID] = c
		e.hybrid = e.hybrid || c.Efficiency
		if c.Tenant != "" {
			given[c.ID] = true
			own(c, tenantOwner)
		}
	}
	for i := range pl.Nodes {
		on := map[int]int64{}
		for _, id := range pl.Nodes[i].Cores {
			c := byID[id]
			given[id] = true
			on[c.NUMANode]++
			if c.Efficiency {
				e.small[i]++
			}
			own(c, i)
		}
		e.coresOn = append(e.coresOn, on)
	}
	left := map[int]bool{}
	for i := range p.Cores {
		if c := &p.Cores[i]; !given[c.ID] {
			left[c.NUMANode] = true
		}
	}
	e.left = slices.Sorted(maps.Keys(left))
	return e
}

// memory returns page-distances from the pages of lab node i to the nearest of its cores, and how
// many pages are not on the node that they are the share of, shares rounded down.
func (e *evaluation) memory(i int) (far, off int64) {
	have := map[int]int64{}
	for _, m := range e.pl.Nodes[i].Memory {
		have[m.NUMANode] += m.Pages
		var least int64 = -1
		for node := range e.coresOn[i] {
			if d := int64(e.p.Distance(node, m.NUMANode)); least < 0 || d < least {
				least = d
			}
		}
		far += least * m.Pages
	}
	var cores int64
	for _, n := range e.coresOn[i] {
		cores += n
	}
	for node, n := range e.coresOn[i] {
		off += max(0, wholeShare(e.p.Requests[i].Pages, n, cores)-have[node])
	}
	return far, off
}

// wholeShare returns the pages that go with n of all cores, rounded down. What rounding leaves over
// may be on any node: whose it is would depend on how nodes are numbered.
func wholeShare(pages, n, all int64) int64 {
	return pages/all*n + pages%all*n/all // divided first, so that no product overflows
}

// Shares splits pages among NUMA nodes in proportion to the cores on each: whole pages, what is
// left over goes to the largest remainders, of equal ones to the lowest node.
func Shares(pages int64, cores map[int]int64) map[int]int64 {
	var total int64
	for _, n := range cores {
		total += n
	}
	shares := make(map[int]int64, len(cores))
	left := pages
	nodes := slices.Sorted(maps.Keys(cores))
	for _, node := range nodes {
		shares[node] = wholeShare(pages, cores[node], total)
		left -= shares[node]
	}
	slices.SortStableFunc(nodes, func(a, b int) int {
		ra, rb := pages%total*cores[a]%total, pages%total*cores[b]%total
		switch {
		case ra > rb:
			return -1
		case ra < rb:
			return 1
		}
		return a - b
	})
	for _, node := range nodes[:left] {
		shares[node]++
	}
	return shares
}

// sharedPorts counts for each NIC that serves lab node i the other lab nodes that it serves.
func (e *evaluation) sharedPorts(i int) int64 {
	var others int64
	for _, d := range e.pl.Nodes[i].nics() {
		for j := range e.pl.Nodes {
			if j != i && slices.Contains(e.pl.Nodes[j].nics(), d) {
				others++
			}
		}
	}
	return others
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

// emulator returns the distance from lab node i to the nearest housekeeping core.
func (e *evaluation) emulator(i int) int64 {
	var least int64 = -1
	for node := range e.coresOn[i] {
		for _, left := range e.left {
			if d := int64(e.p.Distance(node, left)); least < 0 || d < least {
				least = d
			}
		}
	}
	return max(0, least)
}
