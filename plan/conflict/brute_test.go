package conflict

import (
	"slices"

	"github.com/rackless/rackless/plan"
)

// Rules 1 to 6 of docs/planner.md form three independent groups: memory (only its sum counts), cores, and devices.
func bruteFeasible(p *plan.Problem) bool {
	return bruteMemory(p) && bruteCores(p) && bruteDevices(p)
}

func bruteMemory(p *plan.Problem) bool {
	var asked, there int64
	for i := range p.Requests {
		asked += p.Requests[i].Pages
	}
	for _, n := range p.NUMANodes {
		if n.Pages == nil {
			return true
		}
		there += *n.Pages
	}
	return asked <= there
}

type coreKind struct{ node, pkg, threads int }

func bruteCores(p *plan.Problem) bool {
	free := map[coreKind]int{}
	had := map[int]bool{}
	for i := range p.Cores {
		if c := &p.Cores[i]; c.Tenant == "" {
			free[coreKind{c.NUMANode, c.Package, len(c.CPUs)}]++
			had[c.Package] = true
		}
	}
	var kinds []coreKind
	for k := range free {
		kinds = append(kinds, k)
	}
	on := make([]map[int]int, len(p.Requests))
	apart := func(i int) bool {
		for _, a := range p.Affinity {
			for _, j := range a.Requests {
				if a.NUMA == "" || j >= i || !slices.Contains(a.Requests, i) {
					continue
				}
				for _, n := range p.NUMANodes {
					x, y := on[i][n.ID] > 0, on[j][n.ID] > 0
					if a.NUMA == plan.Same && x != y || a.NUMA == plan.Different && x && y {
						return false
					}
				}
			}
		}
		return true
	}
	kept := func() bool {
		all, byNode, byPackage := 0, map[int]int{}, map[int]int{}
		for k, n := range free {
			all += n
			byNode[k.node] += n
			byPackage[k.pkg] += n
		}
		for _, n := range p.NUMANodes {
			if byNode[n.ID] < n.ReserveCores {
				return false
			}
		}
		for _, k := range p.Packages {
			if k.Busy != "" && had[k.ID] && byPackage[k.ID] == 0 {
				return false
			}
		}
		return all >= p.ReserveCores
	}
	var place func(i, kind, left int) bool
	place = func(i, kind, left int) bool {
		if i == len(p.Requests) {
			return kept()
		}
		if kind == 0 && on[i] == nil {
			on[i] = map[int]int{}
			left = p.Requests[i].Cores
			defer func() { on[i] = nil }()
		}
		if left == 0 {
			return apart(i) && place(i+1, 0, 0)
		}
		if kind == len(kinds) {
			return false
		}
		k := kinds[kind]
		most := 0
		if k.threads >= p.Requests[i].Threads {
			most = min(left, free[k])
		}
		for n := most; n >= 0; n-- {
			free[k] -= n
			on[i][k.node] += n
			ok := place(i, kind+1, left-n)
			free[k] += n
			on[i][k.node] -= n
			if ok {
				return true
			}
		}
		return false
	}
	return place(0, 0, 0)
}

func bruteDevices(p *plan.Problem) bool {
	owner := map[int]int{}
	bundle := map[int]int{}
	inBundle := map[int]int{}
	vfs := map[int]int{}
	nics := make([]map[int]int, len(p.Requests))
	for i := range nics {
		nics[i] = map[int]int{}
	}
	fine := func() bool {
		for d := range vfs {
			if _, given := bundle[p.Devices[d].Bundle]; given && vfs[d] > 0 {
				return false
			}
		}
		for _, a := range p.Affinity {
			for k, i := range a.Requests {
				for _, j := range a.Requests[:k] {
					for d := range p.Devices {
						x, y := nics[i][d] > 0, nics[j][d] > 0
						if a.NIC == plan.Same && x != y || a.NIC == plan.Different && x && y {
							return false
						}
					}
				}
			}
		}
		return true
	}
	type unit struct {
		request int
		any     []int
		vf      bool
	}
	var units []unit
	for i := range p.Requests {
		r := &p.Requests[i]
		for k, wants := range [][]plan.Want{r.GPUs, r.NICs, r.VFs} {
			for _, w := range wants {
				for range w.Count {
					units = append(units, unit{i, w.Any, k == 2})
				}
			}
		}
	}
	var place func(u int) bool
	place = func(u int) bool {
		if u == len(units) {
			return fine()
		}
		i := units[u].request
		for _, d := range units[u].any {
			dev := &p.Devices[d]
			if units[u].vf {
				if vfs[d] == dev.VFs {
					continue
				}
				vfs[d]++
				nics[i][d]++
				ok := place(u + 1)
				vfs[d]--
				nics[i][d]--
				if ok {
					return true
				}
				continue
			}
			_, taken := owner[d]
			other, tied := bundle[dev.Bundle]
			if !dev.Whole || taken || tied && other != i {
				continue
			}
			owner[d], bundle[dev.Bundle] = i, i
			inBundle[dev.Bundle]++
			if dev.Kind == plan.KindNIC {
				nics[i][d]++
			}
			ok := place(u + 1)
			delete(owner, d)
			if inBundle[dev.Bundle]--; inBundle[dev.Bundle] == 0 {
				delete(bundle, dev.Bundle)
			}
			if dev.Kind == plan.KindNIC {
				nics[i][d]--
			}
			if ok {
				return true
			}
		}
		return false
	}
	return place(0)
}
