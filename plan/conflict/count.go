package conflict

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/plan"
)

// A clash is a set of requests that cannot be met because counts do not go up, whatever goes where.
type clash struct {
	requests []int    // ascending
	parts    []string // Demand constants: what was counted
}

// countedClash returns the smallest of the usual clashes, nil where every count goes up. Each is a
// proof: what is counted is needed wherever the lab nodes go. It costs no call of the solver, and its
// reasons are the ones that people find for themselves, by adding up a column. Of clashes of one size
// the first counts, devices before cores before memory.
func countedClash(p *plan.Problem) *clash {
	if !reserveFits(p) {
		return &clash{parts: []string{plan.DemandReserve}}
	}
	var best *clash
	try := func(requests []int, parts ...string) {
		if requests != nil && (best == nil || len(requests) < len(best.requests)) {
			best = &clash{requests, parts}
		}
	}
	devices := []string{plan.DemandGPUs, plan.DemandNICs, plan.DemandVFs}
	for _, what := range devices {
		try(tooMany(p, what, func(requests []int) int64 {
			var there int64
			for _, d := range anyOf(p, requests, what) {
				if what == plan.DemandVFs {
					there += int64(p.Devices[d].VFs)
				} else {
					there++
				}
			}
			return there
		}), what)
	}
	for _, what := range devices[:2] {
		try(tooFewBundles(p, what), what)
	}
	free, _ := freeCores(p)
	spare := int64(free - p.ReserveCores)
	try(tooMany(p, plan.DemandCores, func([]int) int64 { return spare }), plan.DemandCores, plan.DemandReserve)
	var pages int64
	known := true
	for _, n := range p.NUMANodes {
		if n.Pages == nil {
			known = false
		} else {
			pages += max(0, *n.Pages)
		}
	}
	if known {
		try(tooMany(p, plan.DemandMemory, func([]int) int64 { return pages * int64(p.PageBytes) }), plan.DemandMemory)
	}
	return best
}

// tooMany returns the fewest requests, the greediest first, that ask for more than there is for
// them; nil if there is enough.
func tooMany(p *plan.Problem, what string, there func(requests []int) int64) []int {
	var order []int
	for i := range p.Requests {
		if amount(p, &p.Requests[i], what) > 0 {
			order = append(order, i)
		}
	}
	// The greediest first, so that few lab nodes are named: "vm00 needs 5 GPUs, there are 4" and not all eight.
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(amount(p, &p.Requests[b], what), amount(p, &p.Requests[a], what))
	})
	var sum int64
	for k, i := range order {
		sum += amount(p, &p.Requests[i], what)
		if sum > there(order[:k+1]) {
			return slices.Sorted(slices.Values(order[:k+1]))
		}
	}
	return nil
}

// tooFewBundles returns requests for devices of which each needs a bundle of its own, and there are
// fewer; nil if there are enough.
func tooFewBundles(p *plan.Problem, what string) []int {
	var order []int
	for i := range p.Requests {
		if amount(p, &p.Requests[i], what) == 0 {
			continue
		}
		order = append(order, i)
		bundles := map[int]bool{}
		for _, d := range anyOf(p, order, what) {
			bundles[p.Devices[d].Bundle] = true
		}
		if len(order) > len(bundles) {
			return order
		}
	}
	return nil
}

// anyOf returns the devices of a kind that some of the requests could get, ascending.
func anyOf(p *plan.Problem, requests []int, what string) []int {
	var all []int
	for _, i := range requests {
		for _, w := range wantsOf(&p.Requests[i], what) {
			for _, d := range w.Any {
				if d >= 0 && d < len(p.Devices) {
					all = append(all, d)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
