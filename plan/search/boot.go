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
	k := slices.IndexFunc(p.Cores, func(c plan.Core) bool { return slices.Contains(c.CPUs, 0) })
	if k < 0 {
		return
	}
	boot := &p.Cores[k]
	owner := slices.IndexFunc(pl.Nodes, func(n plan.NodePlacement) bool { return slices.Contains(n.Cores, boot.ID) })
	if owner < 0 {
		return
	}
	// Cores of one NUMA node and one L3 are alike: one of each is tried.
	type kind struct {
		node, pkg, l3 int
		small         bool
	}
	tried := map[kind]bool{}
	l := plan.NewLayout(p)
	for _, id := range l.Free(pl) {
		c := l.Cores[id]
		k := kind{c.NUMANode, c.Package, c.L3, c.Efficiency}
		if tried[k] || len(tried) == maxBootTries || len(c.CPUs) < p.Requests[owner].Threads {
			continue
		}
		tried[k] = true
		next := pl.Exchangeable()
		n := &next.Nodes[owner]
		n.Cores[slices.Index(n.Cores, boot.ID)] = id
		slices.Sort(n.Cores)
		if l.Spread(next, owner) && l.Fits(next) && plan.Cost(plan.Evaluate(p, next)) == cost {
			*pl = *next
			return
		}
	}
}
