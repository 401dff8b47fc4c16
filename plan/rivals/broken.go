package rivals

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/plan"
)

// brokenRules lists the hard rules of ours that the finished placement breaks, in a fixed order.
func (h *host) brokenRules() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	p := h.p

	// Whose each core is, by the placement and by the CPUs that it was made of.
	owners := make([][]int, len(p.Cores))
	for c := range p.Cores {
		owners[c] = slices.Clone(h.taken[c])
		for _, cpu := range p.Cores[c].CPUs {
			if u, ok := h.user[cpu]; ok {
				owners[c] = append(owners[c], u)
			}
		}
		slices.Sort(owners[c])
		owners[c] = slices.Compact(owners[c])
	}
	h.floating(add)
	for i := range h.placed {
		for j := i + 1; j < len(h.placed); j++ {
			if h.floatTogether(i, j) {
				continue // said already
			}
			var both []int
			for c := range owners {
				if slices.Contains(owners[c], i) && slices.Contains(owners[c], j) {
					both = append(both, p.Cores[c].ID)
				}
			}
			if len(both) > 0 {
				add("%s and %s share %s", p.Requests[i].Name, p.Requests[j].Name, coreList(both))
			}
		}
	}
	for i := range h.placed {
		var few, host []int
		for c := range owners {
			if !slices.Contains(owners[c], i) {
				continue
			}
			if len(p.Cores[c].CPUs) < p.Requests[i].Threads {
				few = append(few, p.Cores[c].ID)
			}
			if h.reserved[c] {
				host = append(host, p.Cores[c].ID)
			}
		}
		if len(few) > 0 {
			add("%s asks for %d threads a core, %s have fewer", p.Requests[i].Name, p.Requests[i].Threads,
				coreList(few))
		}
		if len(host) > 0 {
			add("%s shares %s with the host", p.Requests[i].Name, coreList(host))
		}
		if got := len(h.placed[i].Cores); got < p.Requests[i].Cores {
			add("%s has %d of %d cores", p.Requests[i].Name, got, p.Requests[i].Cores)
		}
	}
	h.reserveKept(owners, add)
	h.affinityKept(add)
	return list
}

// floating names the lab nodes whose vCPUs are not pinned, those that float over common NUMA nodes together.
func (h *host) floating(add func(string, ...any)) {
	if len(h.floats) == 0 {
		return
	}
	var done []int
	for a, i := range h.floats {
		if slices.Contains(done, i) {
			continue
		}
		var names []string
		for _, j := range h.floats[a:] {
			if i == j || h.floatTogether(i, j) {
				names = append(names, h.p.Requests[j].Name)
				done = append(done, j)
			}
		}
		if len(names) > 1 {
			add("%s float over the same CPUs", nameList(names))
		}
	}
	var names []string
	for _, i := range h.floats {
		names = append(names, h.p.Requests[i].Name)
	}
	verb := "float"
	if len(names) == 1 {
		verb = "floats"
	}
	add("%s %s over the host's CPUs too: nothing is kept for it", nameList(names), verb)
}

func (h *host) floatTogether(i, j int) bool {
	a, b := slices.Index(h.floats, i), slices.Index(h.floats, j)
	if a < 0 || b < 0 {
		return false
	}
	return slices.ContainsFunc(h.floatsOn[a], func(n int) bool { return slices.Contains(h.floatsOn[b], n) })
}

// reserveKept checks what is left for the host: in all, by NUMA node and by package.
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

// affinityKept checks what the lab asks of lab nodes together. None of the rivals can be told.
func (h *host) affinityKept(add func(string, ...any)) {
	numa := make([][]int, len(h.placed))
	nics := make([][]int, len(h.placed))
	node := map[int]int{}
	for _, c := range h.p.Cores {
		node[c.ID] = c.NUMANode
	}
	for i, n := range h.placed {
		for _, c := range n.Cores {
			numa[i] = append(numa[i], node[c])
		}
		nics[i] = slices.Clone(n.NICs)
		for _, v := range n.VFs {
			nics[i] = append(nics[i], v.Device)
		}
		for _, s := range []*[]int{&numa[i], &nics[i]} {
			slices.Sort(*s)
			*s = slices.Compact(*s)
		}
	}
	for _, a := range h.p.Affinity {
		for k, i := range a.Requests {
			for _, j := range a.Requests[k+1:] {
				for _, of := range []struct {
					want, what string
					sets       [][]int
				}{{a.NUMA, "NUMA nodes", numa}, {a.NIC, "NICs", nics}} {
					x, y := of.sets[i], of.sets[j]
					common := slices.ContainsFunc(x, func(v int) bool { return slices.Contains(y, v) })
					if of.want == plan.Same && !slices.Equal(x, y) || of.want == plan.Different && common {
						add("%s and %s are not on %s %s", h.p.Requests[i].Name, h.p.Requests[j].Name, of.want, of.what)
					}
				}
			}
		}
	}
}

// nameList writes names, the first four of many.
func nameList(names []string) string {
	const most = 4
	if len(names) == 1 {
		return names[0]
	}
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

func coreList(ids []int) string {
	if len(ids) == 1 {
		return "core " + numbers(ids)
	}
	return "cores " + numbers(ids)
}

// numbers writes numbers as Linux writes lists of CPUs: 0-3,8. Unlike topology.CPUSet it takes any number.
func numbers(ids []int) string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var parts []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		part := fmt.Sprint(ids[i])
		if j > i {
			part += fmt.Sprintf("-%d", ids[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}
