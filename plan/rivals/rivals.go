package rivals

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// A Rival is a tool or a manual method.
type Rival struct {
	ID   string
	Name string
}

// An Outcome is a rival's placement, or its refusal.
type Outcome struct {
	Rival     string          `json:"rival"`
	Placement *plan.Placement `json:"placement"`         // nil if the rival refuses
	Refused   string          `json:"refused,omitempty"` // with the lab node at which it stopped
	Terms     []plan.Term     `json:"terms,omitempty"`   // from plan.Evaluate
	Cost      int64           `json:"score"`             // 0 on refusal
	// Broken lists our hard rules that the placement breaks. The cost is then that of the nearest whole-core placement.
	Broken []string `json:"broken,omitempty"`
}

type system struct {
	Rival
	// An error of place is the rival's refusal.
	place func(h *host, i int) error
}

var systems = []system{
	{Rival: Rival{"libvirt-default", "libvirt without pinning"}, place: (*host).float},
	{Rival: Rival{"hand-vcpupin", "vcpupin by hand, CPUs in numeric order"}, place: (*host).pinCPUs},
	{Rival: Rival{"hand-vcpupin-cores", "vcpupin by hand, cores in numeric order"}, place: (*host).pinCores},
}

// All returns the rivals, always in the same order.
func All() []Rival { return lists.Map(systems, func(s system) Rival { return s.Rival }) }

// Compare has the order of All. If the problem is inconsistent, all rivals refuse it.
func Compare(p *plan.Problem) []Outcome {
	err := valid(p)
	var all []Outcome
	for _, s := range systems {
		o := Outcome{Rival: s.ID}
		if err != nil {
			o.Refused = fmt.Sprintf("problem: %v", err)
		} else {
			o = s.run(p)
		}
		all = append(all, o)
	}
	return all
}

func (s system) run(p *plan.Problem) Outcome {
	h := newHost(p)
	h.reserve()
	for i := range p.Requests {
		if err := s.place(h, i); err != nil {
			return Outcome{Rival: s.ID, Refused: fmt.Sprintf("%s: %v", p.Requests[i].Name, err)}
		}
	}
	o := Outcome{Rival: s.ID, Placement: &plan.Placement{Nodes: h.placed}, Broken: h.brokenRules()}
	o.Terms = plan.Evaluate(p, o.Placement)
	o.Cost = plan.Cost(o.Terms)
	return o
}

// maxVFs is the largest value of the 16-bit field TotalVFs (PCI Express base specification).
const maxVFs = 1<<16 - 1

// valid checks indexes, so that a problem made by hand cannot make the rivals or plan.Evaluate panic.
func valid(p *plan.Problem) error {
	if p == nil {
		return errors.New("none given")
	}
	if err := validHost(p); err != nil {
		return err
	}
	for _, r := range p.Requests {
		if r.Cores < 1 || r.Threads < 1 || r.VCPUs != r.Cores*r.Threads || r.Pages < 0 {
			return fmt.Errorf("request %q: %d vCPUs are not %d cores of %d threads, or %d pages are less than none",
				r.Name, r.VCPUs, r.Cores, r.Threads, r.Pages)
		}
		for _, w := range wants(&r) {
			for _, d := range w.Any {
				if d < 0 || d >= len(p.Devices) {
					return fmt.Errorf("request %q: device %d of %d", r.Name, d, len(p.Devices))
				}
			}
		}
	}
	for _, a := range p.Affinity {
		for _, i := range a.Requests {
			if i < 0 || i >= len(p.Requests) {
				return fmt.Errorf("affinity names request %d of %d", i, len(p.Requests))
			}
		}
	}
	return nil
}

func validHost(p *plan.Problem) error {
	nodes := map[int]bool{}
	for _, n := range p.NUMANodes {
		if len(n.Distances) != len(p.NUMANodes) {
			return fmt.Errorf("NUMA node %d has %d distances, want %d", n.ID, len(n.Distances), len(p.NUMANodes))
		}
		nodes[n.ID] = true
	}
	for _, c := range p.Cores {
		if !nodes[c.NUMANode] || len(c.CPUs) == 0 {
			return fmt.Errorf("core %d: NUMA node %d is not listed, or it has no CPUs", c.ID, c.NUMANode)
		}
	}
	pairs := lists.SetOf(p.Paths, func(q plan.PairPath) [2]int { return [2]int{min(q.A, q.B), max(q.A, q.B)} })
	for a, d := range p.Devices {
		if d.NUMANode != nil && !nodes[*d.NUMANode] {
			return fmt.Errorf("device %q: NUMA node %d is not listed", d.ID, *d.NUMANode)
		}
		if d.VFs < 0 || d.VFs > maxVFs {
			return fmt.Errorf("device %q: %d virtual functions, want 0 to %d", d.ID, d.VFs, maxVFs)
		}
		for b := a + 1; b < len(p.Devices); b++ {
			other := p.Devices[b]
			if (d.Kind == plan.KindGPU || other.Kind == plan.KindGPU) && !pairs[[2]int{a, b}] {
				return fmt.Errorf("no path between %q and %q", d.ID, other.ID)
			}
		}
	}
	return nil
}

// round makes whole cores: our cost model knows no others. Each NUMA node keeps its share of the vCPUs. Unshared cores
// with enough threads come first, in the rival's favour.
func (h *host) round(i int, cpus []int) []int {
	r := &h.p.Requests[i]
	on := map[int]int64{}
	own := map[int]int{}
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

// busy weighs other lab nodes rounded to a core most, then pins to its threads and the host's reserve.
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

// choose takes cores with too few threads last. If a node has too few cores, the nearest others give more.
func (h *host) choose(r *plan.Request, share map[int]int64, prefer func(a, b int) int) []int {
	byNode := map[int][]int{}
	for _, n := range h.nodes {
		byNode[n] = lists.Where(h.p.Cores, func(c plan.Core) bool { return c.Tenant == "" && c.NUMANode == n })
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
	h.handOut(h.nodes, take)
	slices.Sort(chosen)
	return chosen
}

// spread gives NUMA nodes shares in proportion to idle cores, or else to all, because the scheduler prefers idle CPUs.
func (h *host) spread(r *plan.Request) []int {
	idle, all := map[int]int64{}, map[int]int64{}
	for c := range h.p.Cores {
		n := h.p.Cores[c].NUMANode
		if h.p.Cores[c].Tenant != "" {
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
