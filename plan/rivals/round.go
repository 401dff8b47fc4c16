package rivals

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/plan"
)

// round makes whole cores of the CPUs that request i was pinned to, as many as it asks for: our cost
// model knows whole cores only. Each NUMA node keeps its part of the vCPUs. If the rival split
// cores, there is a choice: those are taken first that no other lab node is on and that have enough
// threads, which costs the rival least. Pinning that fits our rules comes through unchanged.
func (h *host) round(i int, cpus []int) []int {
	r := &h.p.Requests[i]
	on := map[int]int64{}
	own := map[int]int{} // CPUs of the request on a core
	for _, c := range cpus {
		core := h.coreOf[c]
		on[h.p.Cores[core].NUMANode]++
		own[core]++
	}
	return h.choose(r, plan.Shares(int64(r.Cores), on), func(a, b int) int {
		return cmp.Or(cmp.Compare(min(own[b], 1), min(own[a], 1)), cmp.Compare(h.busy(a, i), h.busy(b, i)),
			cmp.Compare(own[b], own[a]))
	})
}

// busy says how much speaks against a core for request i: most of all lab nodes that were rounded
// to it, then those that are pinned to threads of it, and the host where it is reserved.
func (h *host) busy(core, i int) int {
	n := len(h.taken[core]) * (len(h.p.Requests) + 2)
	for _, c := range h.p.Cores[core].CPUs {
		if u, ok := h.user[c]; ok && u != i && !slices.Contains(h.taken[core], u) {
			n++
		}
	}
	if h.reserved[core] {
		n++
	}
	return n
}

// choose returns as many cores as r asks for: so many of each NUMA node, best first by prefer, then
// lowest. Cores with too few threads come last. What a node has too few of comes from the others,
// nearest first.
func (h *host) choose(r *plan.Request, share map[int]int64, prefer func(a, b int) int) []int {
	byNode := map[int][]int{}
	for c := range h.p.Cores {
		if h.p.Cores[c].Tenant == "" {
			n := h.p.Cores[c].NUMANode
			byNode[n] = append(byNode[n], c)
		}
	}
	few := func(c int) int { return min(len(h.p.Cores[c].CPUs), r.Threads) }
	for _, n := range h.nodes {
		slices.SortStableFunc(byNode[n], func(a, b int) int {
			return cmp.Or(cmp.Compare(few(b), few(a)), prefer(a, b), cmp.Compare(h.p.Cores[a].ID, h.p.Cores[b].ID))
		})
	}
	var chosen []int
	take := func(from, n int) {
		k := min(int(share[from]), len(byNode[n]))
		chosen = append(chosen, byNode[n][:k]...)
		byNode[n] = byNode[n][k:]
		share[from] -= int64(k)
	}
	for _, n := range h.nodes { // each its own before anybody takes from another
		take(n, n)
	}
	for _, from := range h.nodes {
		for _, n := range h.near(from, h.nodes) {
			take(from, n)
		}
	}
	slices.Sort(chosen)
	return chosen
}

// spread chooses cores for vCPUs that float over NUMA nodes: the scheduler looks for idle CPUs, so
// each node gets a share in proportion to the cores that are idle there. If nothing is idle, to
// all cores.
func (h *host) spread(r *plan.Request, nodes []int) []int {
	idle, all := map[int]int64{}, map[int]int64{}
	for c := range h.p.Cores {
		n := h.p.Cores[c].NUMANode
		if h.p.Cores[c].Tenant != "" || !slices.Contains(nodes, n) {
			continue
		}
		all[n]++
		if len(h.taken[c]) == 0 {
			idle[n]++
		}
	}
	if len(all) == 0 {
		return nil
	}
	if len(idle) == 0 {
		idle = all
	}
	return h.choose(r, plan.Shares(int64(r.Cores), idle), func(a, b int) int {
		return cmp.Compare(h.busy(a, -1), h.busy(b, -1))
	})
}
