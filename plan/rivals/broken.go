package rivals

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

// brokenRules lists them because the cost alone would favor a rival: sharing a core costs nothing in our terms.
func (h *host) brokenRules() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	p := h.p

	// By the rounded placement and by the CPUs actually pinned. They differ if pins were rounded to whole cores.
	owners := make([][]int, len(p.Cores))
	for c, core := range p.Cores {
		owners[c] = slices.Clone(h.taken[c])
		for _, cpu := range core.CPUs {
			if u, ok := h.user[cpu]; ok {
				owners[c] = append(owners[c], u)
			}
		}
	}
	coresWhere := func(i int, has func(c int) bool) (ids []int) {
		for c := range owners {
			if slices.Contains(owners[c], i) && has(c) {
				ids = append(ids, p.Cores[c].ID)
			}
		}
		return ids
	}
	h.floating(add)
	for i := range h.placed {
		for j := i + 1; j < len(h.placed); j++ {
			if slices.Contains(h.floats, i) && slices.Contains(h.floats, j) {
				continue // reported by floating
			}
			both := coresWhere(i, func(c int) bool { return slices.Contains(owners[c], j) })
			if len(both) > 0 {
				add("%s and %s share %s", p.Requests[i].Name, p.Requests[j].Name, coreList(both))
			}
		}
	}
	for i, n := range h.placed {
		r := &p.Requests[i]
		if few := coresWhere(i, func(c int) bool { return len(p.Cores[c].CPUs) < r.Threads }); len(few) > 0 {
			add("%s asks for %d threads a core, %s have fewer", r.Name, r.Threads, coreList(few))
		}
		if host := coresWhere(i, func(c int) bool { return h.reserved[c] }); len(host) > 0 {
			add("%s shares %s with the host", r.Name, coreList(host))
		}
		if len(n.Cores) < r.Cores {
			add("%s has %d of %d cores", r.Name, len(n.Cores), r.Cores)
		}
	}
	h.reserveKept(owners, add)
	h.affinityKept(add)
	return list
}

func (h *host) floating(add func(string, ...any)) {
	if len(h.floats) == 0 {
		return
	}
	names := lists.Map(h.floats, func(i int) string { return h.p.Requests[i].Name })
	verb := "floats"
	if len(names) > 1 {
		add("%s float over the same CPUs", nameList(names))
		verb = "float"
	}
	add("%s %s over the host's CPUs too: nothing is kept for it", nameList(names), verb)
}

func (h *host) reserveKept(owners [][]int, add func(string, ...any)) {
	left, onNode, onPackage := 0, map[int]int{}, map[int]int{}
	for c := range owners {
		if core := &h.p.Cores[c]; core.Tenant == "" && len(owners[c]) == 0 {
			left++
			onNode[core.NUMANode]++
			onPackage[core.Package]++
		}
	}
	if left < h.p.ReserveCores {
		add("the host keeps %d of %d reserved cores", left, h.p.ReserveCores)
	}
	for _, n := range h.p.NUMANodes {
		if onNode[n.ID] < n.ReserveCores {
			add("the host keeps %d of %d reserved cores on NUMA node %d", onNode[n.ID], n.ReserveCores, n.ID)
		}
	}
	for _, pkg := range h.p.Packages {
		if pkg.Busy != "" && onPackage[pkg.ID] == 0 {
			add("the host keeps no core of package %d: %s", pkg.ID, pkg.Busy)
		}
	}
}

func overlap(a, b []int) bool {
	return slices.ContainsFunc(a, func(v int) bool { return slices.Contains(b, v) })
}

// affinityKept may fail because rivals have no way to be told of affinities.
func (h *host) affinityKept(add func(string, ...any)) {
	node := map[int]int{}
	for _, c := range h.p.Cores {
		node[c.ID] = c.NUMANode
	}
	var numa, nics [][]int // by lab node
	for _, n := range h.placed {
		nodes := lists.Map(n.Cores, func(c int) int { return node[c] })
		ports := lists.Map(n.VFs, func(v plan.VFCount) int { return v.Device })
		numa, nics = append(numa, lists.Distinct(nodes)), append(nics, lists.Distinct(append(ports, n.NICs...)))
	}
	check := func(i, j int, want, what string, x, y []int) {
		if want == plan.Same && !slices.Equal(x, y) || want == plan.Different && overlap(x, y) {
			add("%s and %s are not on %s %s", h.p.Requests[i].Name, h.p.Requests[j].Name, want, what)
		}
	}
	for _, a := range h.p.Affinity {
		for k, i := range a.Requests {
			for _, j := range a.Requests[k+1:] {
				check(i, j, a.NUMA, "NUMA nodes", numa[i], numa[j])
				check(i, j, a.NIC, "NICs", nics[i], nics[j])
			}
		}
	}
}

func nameList(names []string) string { return words.Names(names, 4) }

func coreList(ids []int) string {
	if len(ids) == 1 {
		return "core " + numbers(ids)
	}
	return "cores " + numbers(ids)
}

// numbers formats 0-3,8. Unlike topology.CPUSet it accepts any number.
func numbers(ids []int) string {
	ids = lists.Distinct(slices.Clone(ids))
	var parts []string
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0]+n {
			n++
		}
		part := fmt.Sprint(ids[0])
		if n > 1 {
			part += fmt.Sprintf("-%d", ids[n-1])
		}
		parts = append(parts, part)
		ids = ids[n:]
	}
	return strings.Join(parts, ",")
}
