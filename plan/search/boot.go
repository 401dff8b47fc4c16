package search

import (
	"slices"

	"github.com/rackless/rackless/plan"
)

// maxBootTries bounds the exchanges that are tried. Cores come in their order, and the nearest to
// that of CPU 0 are among the first.
const maxBootTries = 8

// keepBootCore leaves the core of CPU 0 to the host where that costs nothing. CPU 0 boots the
// machine, and on x86 has timers and interrupts that cannot be moved: the kernel takes it out of
// nohz_full again (kernel/time/tick-sched.c). It is no term of the cost, because a cost must not
// depend on how CPUs are numbered.
func keepBootCore(p *plan.Problem, pl *plan.Placement, cost int64) {
	boot := slices.IndexFunc(p.Cores, func(c plan.Core) bool { return slices.Contains(c.CPUs, 0) })
	if boot < 0 {
		return
	}
	owner := slices.IndexFunc(pl.Nodes, func(n plan.NodePlacement) bool {
		return slices.Contains(n.Cores, p.Cores[boot].ID)
	})
	if owner < 0 {
		return
	}
	given := map[int]bool{}
	for _, n := range pl.Nodes {
		for _, id := range n.Cores {
			given[id] = true
		}
	}
	// Cores of one NUMA node and one L3 are alike: one of each is tried.
	type kind struct {
		node, pkg, l3 int
		small         bool
	}
	tried := map[kind]bool{}
	for i := range p.Cores {
		c := &p.Cores[i]
		k := kind{c.NUMANode, c.Package, c.L3, c.Efficiency}
		if c.Tenant != "" || given[c.ID] || len(c.CPUs) < p.Requests[owner].Threads || tried[k] {
			continue
		}
		if tried[k] = true; !spare(p, given, c, &p.Cores[boot]) {
			continue
		}
		if len(tried) > maxBootTries {
			return
		}
		was := pl.Nodes[owner]
		pl.Nodes[owner] = exchanged(p, pl, owner, p.Cores[boot].ID, c.ID)
		if sameNUMA(p, owner, was.Cores, pl.Nodes[owner].Cores) && plan.Cost(plan.Evaluate(p, pl)) == cost {
			return
		}
		pl.Nodes[owner] = was
	}
}

// spare reports whether the host can give c away once it has got in: the reserves of its NUMA node and package hold.
func spare(p *plan.Problem, given map[int]bool, c, in *plan.Core) bool {
	node, pkg := 0, 0
	for i := range p.Cores {
		o := &p.Cores[i]
		if o.Tenant != "" || o.ID == c.ID || given[o.ID] && o.ID != in.ID {
			continue
		}
		if o.NUMANode == c.NUMANode {
			node++
		}
		if o.Package == c.Package {
			pkg++
		}
	}
	for i := range p.NUMANodes {
		if n := &p.NUMANodes[i]; n.ID == c.NUMANode && node < n.ReserveCores {
			return false
		}
	}
	return pkg > 0 || !slices.ContainsFunc(p.Packages, func(k plan.Package) bool {
		return k.ID == c.Package && k.Busy != ""
	})
}

// exchanged returns lab node i with another core, and with its memory in the shares that follow,
// where there is room for them.
func exchanged(p *plan.Problem, pl *plan.Placement, i, out, in int) plan.NodePlacement {
	n := pl.Nodes[i]
	n.Cores = slices.Clone(n.Cores)
	n.Cores[slices.Index(n.Cores, out)] = in
	slices.Sort(n.Cores)
	shares := plan.Shares(p.Requests[i].Pages, coresOn(p, n.Cores))
	var memory []plan.NodePage
	for k := range p.NUMANodes {
		node := &p.NUMANodes[k]
		if shares[node.ID] == 0 {
			continue
		}
		used := shares[node.ID]
		for j := range pl.Nodes {
			for _, m := range pl.Nodes[j].Memory {
				if j != i && m.NUMANode == node.ID {
					used += m.Pages
				}
			}
		}
		if node.Pages != nil && used > *node.Pages {
			return n // its memory stays where it is
		}
		memory = append(memory, plan.NodePage{NUMANode: node.ID, Pages: shares[node.ID]})
	}
	n.Memory = memory
	slices.SortFunc(n.Memory, func(a, b plan.NodePage) int { return a.NUMANode - b.NUMANode })
	return n
}

// coresOn counts cores by NUMA node.
func coresOn(p *plan.Problem, ids []int) map[int]int64 {
	on := map[int]int64{}
	for i := range p.Cores {
		if _, ok := slices.BinarySearch(ids, p.Cores[i].ID); ok {
			on[p.Cores[i].NUMANode]++
		}
	}
	return on
}

// sameNUMA reports whether lab node i may go from one set of cores to another: it is in no affinity
// for NUMA nodes, or stays on the same ones.
func sameNUMA(p *plan.Problem, i int, from, to []int) bool {
	if !slices.ContainsFunc(p.Affinity, func(a plan.Affinity) bool {
		return a.NUMA != "" && slices.Contains(a.Requests, i)
	}) {
		return true
	}
	a, b := coresOn(p, from), coresOn(p, to)
	for node := range a {
		if b[node] == 0 {
			return false
		}
	}
	return len(a) == len(b)
}
