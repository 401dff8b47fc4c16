package conflict

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// An edit may change the lists of its problem but not the memory that their elements point to.
type edit func(*plan.Problem)

// derive applies edits to the whole problem, because they use its indexes. Requests may differ after a cut, so classes
// are recomputed.
func derive(p *plan.Problem, keep []int, edits ...edit) *plan.Problem {
	q := *p
	q.NUMANodes, q.Packages, q.Cores = slices.Clone(p.NUMANodes), slices.Clone(p.Packages), slices.Clone(p.Cores)
	q.Devices, q.Requests, q.Affinity = slices.Clone(p.Devices), slices.Clone(p.Requests), slices.Clone(p.Affinity)
	for _, e := range edits {
		e(&q)
	}
	place := map[int]int{}
	for k, i := range keep {
		place[i] = k
	}
	q.Requests = lists.Map(keep, func(i int) plan.Request { return q.Requests[i] })
	var affinity []plan.Affinity
	for _, a := range q.Affinity {
		members := lists.Filter(a.Requests, func(i int) bool { return slices.Contains(keep, i) })
		a.Requests = lists.Map(members, func(i int) int { return place[i] })
		if len(members) > 1 {
			affinity = append(affinity, a)
		}
	}
	q.Affinity = affinity
	classes := map[string]int{}
	for i := range q.Requests {
		r := q.Requests[i]
		r.Name = ""
		key := fmt.Sprintf("%+v", r) // includes the old class
		if _, known := classes[key]; !known {
			classes[key] = len(classes)
		}
		q.Requests[i].Class = classes[key]
	}
	return &q
}

// without reduces the demand of all lab nodes if names is nil.
func without(what string, names []string) edit {
	if what == plan.DemandReserve {
		return reserveOf(0)
	}
	return func(p *plan.Problem) {
		atMost(what, names, least(what))(p)
		if what == plan.DemandCores && names == nil {
			moreCores(p)
		}
	}
}

func least(what string) int64 {
	if what == plan.DemandCores || what == plan.DemandSMT {
		return 1
	}
	return 0
}

// ownCores works like smt: off.
func ownCores(names []string) edit {
	return func(p *plan.Problem) {
		for i := range p.Requests {
			if r := &p.Requests[i]; slices.Contains(names, r.Name) {
				r.Threads, r.Cores = 1, r.VCPUs
			}
		}
	}
}

func evenCores(names []string) edit {
	return func(p *plan.Problem) {
		for i := range p.Requests {
			if r := &p.Requests[i]; slices.Contains(names, r.Name) {
				r.VCPUs++
				r.Threads, r.Cores = 2, r.VCPUs/2
			}
		}
	}
}

// moreCores is the only way to see whether cores are relevant if every request asks for one.
func moreCores(p *plan.Problem) {
	threads, next := 1, 0
	var nodes []int
	for _, k := range p.Cores {
		threads = max(threads, len(k.CPUs))
		next = max(next, k.ID+1)
		nodes = lists.Add(nodes, k.NUMANode)
	}
	cpu := 1 << 20 // above any host's
	for _, node := range nodes {
		for range len(p.Requests) + p.ReserveCores {
			k := plan.Core{ID: next, NUMANode: node, Package: -1, L3: -1}
			for range threads {
				k.CPUs = append(k.CPUs, cpu)
				cpu++
			}
			p.Cores = append(p.Cores, k)
			next++
		}
	}
}

func withoutAffinity(k int) edit { return func(p *plan.Problem) { p.Affinity[k] = plan.Affinity{} } }

func withoutBusy(p *plan.Problem) {
	for i := range p.Packages {
		p.Packages[i].Busy = ""
	}
}

// atMost limits all lab nodes if names is nil.
func atMost(what string, names []string, most int64) edit {
	return func(p *plan.Problem) {
		for i := range p.Requests {
			r := &p.Requests[i]
			if names != nil && !slices.Contains(names, r.Name) {
				continue
			}
			switch what {
			case plan.DemandCores:
				r.Cores = min(r.Cores, int(most))
			case plan.DemandSMT:
				r.Threads = min(r.Threads, int(most))
			case plan.DemandMemory:
				r.Pages = min(r.Pages, most)
			default:
				list := wantList(r, what)
				*list = cutWants(*list, most)
			}
			r.VCPUs = r.Cores * r.Threads
		}
	}
}

func cutWants(wants []plan.Want, most int64) []plan.Want {
	var out []plan.Want
	for _, w := range wants {
		w.Count = int(min(int64(w.Count), most))
		if most -= int64(w.Count); w.Count > 0 {
			out = append(out, w)
		}
	}
	return out
}

// reserveOf limits the reserve. A number in the lab file replaces the default of one in each package.
func reserveOf(cores int) edit {
	return func(p *plan.Problem) {
		p.ReserveCores = min(p.ReserveCores, cores)
		for i := range p.Packages {
			if p.Packages[i].Busy == plan.BusyByDefault {
				p.Packages[i].Busy = ""
			}
		}
		for i := range p.NUMANodes {
			p.NUMANodes[i].ReserveCores = min(p.NUMANodes[i].ReserveCores, cores)
		}
	}
}

func withoutTenant(name string) edit {
	return func(p *plan.Problem) {
		for i := range p.Cores {
			if p.Cores[i].Tenant == name {
				p.Cores[i].Tenant = ""
			}
		}
		for d := range p.Devices {
			if p.Devices[d].Tenant == name {
				give(p, d)
			}
		}
	}
}

func givable(d int) edit { return func(p *plan.Problem) { give(p, d) } }

func give(p *plan.Problem, d int) {
	dev := &p.Devices[d]
	if dev.Whole {
		return
	}
	dev.Whole, dev.Refused = true, ""
	for i := range p.Requests {
		list := wantList(&p.Requests[i], demandOf(dev.Kind))
		wants := slices.Clone(*list)
		for k := range wants {
			if wouldTake(p, &wants[k], d) {
				wants[k].Any = slices.Sorted(slices.Values(append(slices.Clone(wants[k].Any), d)))
			}
		}
		*list = wants
	}
}

// wouldTake guesses from all others of the kind, or one of the same vendor and model: refused devices are removed from
// wants when a problem is built.
func wouldTake(p *plan.Problem, w *plan.Want, d int) bool {
	dev := &p.Devices[d]
	if w.Text == dev.ID {
		return true
	}
	all := true
	for o := range p.Devices {
		other := &p.Devices[o]
		if o == d || other.Kind != dev.Kind || !other.Whole {
			continue
		}
		listed := slices.Contains(w.Any, o)
		if listed && other.Vendor == dev.Vendor && other.Model == dev.Model {
			return true
		}
		all = all && listed
	}
	return all && len(w.Any) > 0
}

func unbundle(bundle int) edit {
	return func(p *plan.Problem) {
		next := lists.Max(p.Devices, func(d plan.Device) int { return d.Bundle + 1 })
		for d := range p.Devices {
			if dev := &p.Devices[d]; dev.Bundle == bundle {
				dev.Bundle, dev.Functions = next, []string{dev.ID}
				next++
			}
		}
	}
}

func manyVFs(d int) edit {
	return func(p *plan.Problem) {
		dev := &p.Devices[d]
		dev.VFs = int(lists.Sum(p.Requests, func(r plan.Request) int64 { return amount(p, &r, plan.DemandVFs) }))
		dev.FreeVFs = make([]int, dev.VFs)
		for v := range dev.VFs {
			dev.FreeVFs[v] = v
		}
	}
}

func unlimitedMemory(k int) edit { return func(p *plan.Problem) { p.NUMANodes[k].Pages = nil } }

func notBusy(k int) edit { return func(p *plan.Problem) { p.Packages[k].Busy = "" } }
