package search

import (
	"cmp"
	"maps"
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
	k := slices.IndexFunc(p.Cores, func(c plan.Core) bool { return slices.Contains(c.CPUs, 0) })
	if k < 0 {
		return
	}
	boot := &p.Cores[k]
	owner := slices.IndexFunc(pl.Nodes, func(n plan.NodePlacement) bool { return slices.Contains(n.Cores, boot.ID) })
	if owner < 0 {
		return
	}
	taken := map[int]bool{} // once the host has the boot core
	for _, n := range pl.Nodes {
		for _, id := range n.Cores {
			taken[id] = id != boot.ID
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
		if c.Tenant != "" || taken[c.ID] || c == boot || len(c.CPUs) < p.Requests[owner].Threads || tried[k] {
			continue
		}
		if tried[k] = true; !spare(p, taken, c) {
			continue
		}
		if len(tried) > maxBootTries {
			return
		}
		was := pl.Nodes[owner]
		pl.Nodes[owner] = exchanged(p, pl, owner, boot.ID, c.ID)
		if sameNUMA(p, owner, was.Cores, pl.Nodes[owner].Cores) && plan.Cost(plan.Evaluate(p, pl)) == cost {
			return
		}
		pl.Nodes[owner] = was
	}
}

// spare reports whether the host can give c away too: the reserves of its NUMA node and package hold.
func spare(p *plan.Problem, taken map[int]bool, c *plan.Core) bool {
	node, pkg := 0, 0
	for i := range p.Cores {
		o := &p.Cores[i]
		if o.Tenant != "" || o == c || taken[o.ID] {
			continue
		}
		if o.NUMANode == c.NUMANode {
			node++
		}
		if o.Package == c.Package {
			pkg++
		}
	}
	return !slices.ContainsFunc(p.NUMANodes, func(n plan.NUMANode) bool {
		return n.ID == c.NUMANode && node < n.ReserveCores
	}) && !slices.ContainsFunc(p.Packages, func(k plan.Package) bool {
		return k.ID == c.Package && k.Busy != "" && pkg == 0
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
	used := map[int]int64{}
	for j := range pl.Nodes {
		for _, m := range pl.Nodes[j].Memory {
			if j != i {
				used[m.NUMANode] += m.Pages
			}
		}
	}
	var memory []plan.NodePage
	for k := range p.NUMANodes {
		node := &p.NUMANodes[k]
		pages := shares[node.ID]
		if pages == 0 {
			continue
		}
		if node.Pages != nil && used[node.ID]+pages > *node.Pages {
			return n // its memory stays where it is
		}
		memory = append(memory, plan.NodePage{NUMANode: node.ID, Pages: pages})
	}
	slices.SortFunc(memory, func(a, b plan.NodePage) int { return cmp.Compare(a.NUMANode, b.NUMANode) })
	n.Memory = memory
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
	bound := slices.ContainsFunc(p.Affinity, func(a plan.Affinity) bool {
		return a.NUMA != "" && slices.Contains(a.Requests, i)
	})
	sameNode := func(int64, int64) bool { return true } // whatever the counts are
	return !bound || maps.EqualFunc(coresOn(p, from), coresOn(p, to), sameNode)
}
