package conflict

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// countedClash returns the smallest of the usual clashes, nil where every count goes up. Each is a
// proof: what is counted is needed wherever the lab nodes go. It costs no call of the solver, and its
// reasons are the ones that people find for themselves, by adding up a column. Of clashes of one size
// the first counts, devices before cores before memory.
func countedClash(p *plan.Problem) *plan.Clash {
	if !reserveFits(p) {
		return &plan.Clash{Parts: []string{plan.DemandReserve}, Affinity: -1}
	}
	all := p.DeviceClashes()
	try := func(requests []int, parts ...string) {
		if requests != nil {
			all = append(all, plan.Clash{Requests: requests, Parts: parts, Affinity: -1})
		}
	}
	free, _ := freeCores(p)
	if greedy := tooMany(p, plan.DemandCores, int64(free)); greedy != nil {
		try(greedy, plan.DemandCores)
	} else {
		try(tooMany(p, plan.DemandCores, int64(free-p.ReserveCores)), plan.DemandCores, plan.DemandReserve)
	}
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
		try(tooMany(p, plan.DemandMemory, pages*int64(p.PageBytes)), plan.DemandMemory)
	}
	if len(all) == 0 {
		return nil
	}
	best := slices.MinFunc(all, func(a, b plan.Clash) int { return cmp.Compare(len(a.Requests), len(b.Requests)) })
	return &best
}

// tooMany returns the fewest requests, the greediest first, that ask for more than there is for
// them; nil if there is enough.
func tooMany(p *plan.Problem, what string, there int64) []int {
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
		if sum > there {
			return slices.Sorted(slices.Values(order[:k+1]))
		}
	}
	return nil
}

// anyOf returns the devices of a kind that some of the requests could get, ascending.
func anyOf(p *plan.Problem, requests []int, what string) []int {
	var all []int
	for _, i := range requests {
		for _, w := range wantsOf(&p.Requests[i], what) {
			all = append(all, lists.Filter(w.Any, func(d int) bool { return d >= 0 && d < len(p.Devices) })...)
		}
	}
	return lists.Distinct(all)
}
