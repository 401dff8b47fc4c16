package search

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/plan"
)

func violation(p *plan.Problem, pl *plan.Placement) string {
	if v := coresWrong(p, pl); v != "" {
		return v
	}
	if v := memoryWrong(p, pl); v != "" {
		return v
	}
	if v := devicesWrong(p, pl, len(pl.Nodes)); v != "" {
		return v
	}
	for _, a := range p.Affinity {
		for _, i := range a.Requests {
			for _, j := range a.Requests {
				if i >= j {
					continue
				}
				if v := apart(a.NUMA, numaOf(p, &pl.Nodes[i]), numaOf(p, &pl.Nodes[j])); v != "" {
					return fmt.Sprintf("NUMA nodes of %d and %d: %s", i, j, v)
				}
				if v := apart(a.NIC, placedNICs(&pl.Nodes[i]), placedNICs(&pl.Nodes[j])); v != "" {
					return fmt.Sprintf("NICs of %d and %d: %s", i, j, v)
				}
			}
		}
	}
	return ""
}

func apart(how string, a, b []int) string {
	switch how {
	case plan.Same:
		if !slices.Equal(a, b) {
			return fmt.Sprintf("%v and %v are not the same", a, b)
		}
	case plan.Different:
		for _, x := range a {
			if slices.Contains(b, x) {
				return fmt.Sprintf("%v and %v are not different", a, b)
			}
		}
	}
	return ""
}

func numaOf(p *plan.Problem, n *plan.NodePlacement) []int {
	var nodes []int
	for _, id := range n.Cores {
		for _, c := range p.Cores {
			if c.ID == id {
				nodes = append(nodes, c.NUMANode)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func placedNICs(n *plan.NodePlacement) []int {
	nics := slices.Clone(n.NICs)
	for _, v := range n.VFs {
		nics = append(nics, v.Device)
	}
	slices.Sort(nics)
	return slices.Compact(nics)
}

func coresWrong(p *plan.Problem, pl *plan.Placement) string {
	owner := map[int]int{}
	for i := range pl.Nodes {
		r := &p.Requests[i]
		if len(pl.Nodes[i].Cores) != r.Cores {
			return fmt.Sprintf("lab node %d has %d cores, want %d", i, len(pl.Nodes[i].Cores), r.Cores)
		}
		for _, id := range pl.Nodes[i].Cores {
			k := slices.IndexFunc(p.Cores, func(c plan.Core) bool { return c.ID == id })
			if k < 0 {
				return fmt.Sprintf("core %d is not there", id)
			}
			if c := p.Cores[k]; c.Tenant != "" || len(c.CPUs) < r.Threads {
				return fmt.Sprintf("core %d cannot go to lab node %d", id, i)
			}
			if _, twice := owner[id]; twice {
				return fmt.Sprintf("core %d is given twice", id)
			}
			owner[id] = i
		}
	}
	left, onNode := 0, map[int]int{}
	free, kept := map[int]int{}, map[int]int{}
	for _, c := range p.Cores {
		if c.Tenant != "" {
			continue
		}
		free[c.Package]++
		if _, given := owner[c.ID]; !given {
			left++
			onNode[c.NUMANode]++
			kept[c.Package]++
		}
	}
	if left < p.ReserveCores {
		return fmt.Sprintf("%d cores are left, want %d", left, p.ReserveCores)
	}
	for _, n := range p.NUMANodes {
		if onNode[n.ID] < n.ReserveCores {
			return fmt.Sprintf("%d cores are left on NUMA node %d, want %d", onNode[n.ID], n.ID, n.ReserveCores)
		}
	}
	for _, q := range p.Packages {
		if q.Busy != "" && free[q.ID] > 0 && kept[q.ID] == 0 {
			return fmt.Sprintf("no core is left on package %d", q.ID)
		}
	}
	return ""
}

func memoryWrong(p *plan.Problem, pl *plan.Placement) string {
	used := map[int]int64{}
	for i := range pl.Nodes {
		var sum int64
		for _, m := range pl.Nodes[i].Memory {
			if m.Pages <= 0 {
				return fmt.Sprintf("lab node %d has %d pages on NUMA node %d", i, m.Pages, m.NUMANode)
			}
			used[m.NUMANode] += m.Pages
			sum += m.Pages
		}
		if sum != p.Requests[i].Pages {
			return fmt.Sprintf("lab node %d has %d pages, want %d", i, sum, p.Requests[i].Pages)
		}
	}
	for _, n := range p.NUMANodes {
		if n.Pages != nil && used[n.ID] > *n.Pages {
			return fmt.Sprintf("%d pages are used of %d on NUMA node %d", used[n.ID], *n.Pages, n.ID)
		}
		delete(used, n.ID)
	}
	if len(used) > 0 {
		return fmt.Sprintf("memory is on NUMA nodes that are not there: %v", used)
	}
	return ""
}

func counts(r *plan.Request) (gpus, nics, vfs int) {
	for _, w := range r.GPUs {
		gpus += w.Count
	}
	for _, w := range r.NICs {
		nics += w.Count
	}
	for _, w := range r.VFs {
		vfs += w.Count
	}
	return gpus, nics, vfs
}

func devicesWrong(p *plan.Problem, pl *plan.Placement, nodes int) string {
	whole, bundle, vfs := map[int]int{}, map[int]int{}, map[int]int{}
	for i := range nodes {
		n := &pl.Nodes[i]
		for _, d := range slices.Concat(n.GPUs, n.NICs) {
			if !p.Devices[d].Whole {
				return fmt.Sprintf("device %d is not to be given away", d)
			}
			if _, twice := whole[d]; twice {
				return fmt.Sprintf("device %d is given twice", d)
			}
			whole[d] = i
			b := p.Devices[d].Bundle
			if o, ok := bundle[b]; ok && o != i {
				return fmt.Sprintf("bundle %d goes to lab nodes %d and %d", b, o, i)
			}
			bundle[b] = i
		}
		for _, v := range n.VFs {
			vfs[v.Device] += v.Count
		}
		if !wantsMet(&p.Requests[i], n, true) {
			return fmt.Sprintf("lab node %d does not get the devices that it wants", i)
		}
	}
	for d := range p.Devices {
		if vfs[d] > max(0, p.Devices[d].VFs) {
			return fmt.Sprintf("%d virtual functions of device %d are given, it has %d", vfs[d], d, p.Devices[d].VFs)
		}
		if _, gone := bundle[p.Devices[d].Bundle]; gone && vfs[d] > 0 {
			return fmt.Sprintf("device %d went away with its bundle, and gives virtual functions", d)
		}
	}
	return ""
}

func wantsMet(r *plan.Request, n *plan.NodePlacement, virtual bool) bool {
	var functions []int
	for _, v := range n.VFs {
		for range v.Count {
			functions = append(functions, v.Device)
		}
	}
	return handOut(r.GPUs, n.GPUs) && handOut(r.NICs, n.NICs) && (!virtual || handOut(r.VFs, functions))
}

func handOut(wants []plan.Want, devices []int) bool {
	left := make([]int, len(wants))
	total := 0
	for i, w := range wants {
		left[i] = w.Count
		total += w.Count
	}
	if total != len(devices) {
		return false
	}
	var give func(k int) bool
	give = func(k int) bool {
		if k == len(devices) {
			return true
		}
		for i, w := range wants {
			if left[i] > 0 && slices.Contains(w.Any, devices[k]) {
				left[i]--
				if give(k + 1) {
					return true
				}
				left[i]++
			}
		}
		return false
	}
	return give(0)
}
