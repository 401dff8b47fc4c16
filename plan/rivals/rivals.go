package rivals

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// A Rival is a system or a habit that places virtual machines on a host by rules of its own.
type Rival struct {
	ID   string
	Name string
}

// An Outcome is what a rival makes of a problem.
type Outcome struct {
	Rival     string          `json:"rival"`
	Placement *plan.Placement `json:"placement"`         // nil where it refuses
	Refused   string          `json:"refused,omitempty"` // its own reason, with the lab node that it stopped at
	Terms     []plan.Term     `json:"terms,omitempty"`   // of plan.Evaluate
	Cost      int64           `json:"cost"`              // in basis points, comparable with ours; 0 where it refuses
	// Broken lists the hard rules of ours that the placement breaks. Its cost is then that of the
	// nearest whole-core placement, rounded in its favour.
	Broken []string `json:"broken,omitempty"`
	Notes  []string `json:"notes,omitempty"` // what it needed to succeed: a wider flavor, memory from another node
}

// A system is a Rival with the code of its rules.
type system struct {
	Rival
	spread bool // the reserve comes from the NUMA nodes in turn; else it is the lowest cores
	// place puts request i on what is left of the host. An error is the rival's refusal.
	place func(h *host, i int) error
	// start may refuse the host before any lab node is placed. It may be nil.
	start func(h *host) error
}

// systems are in the order of docs/rivals.md: from no rule at all to the strictest.
var systems = []system{
	{Rival: Rival{"libvirt-default", "libvirt without pinning"}, place: (*host).floatAnywhere},
	{Rival: Rival{"hand-vcpupin", "vcpupin by hand, CPUs in numeric order"}, place: (*host).pinCPUs},
	{Rival: Rival{"hand-vcpupin-cores", "vcpupin by hand, cores in numeric order"}, place: (*host).pinCores},
	{Rival: Rival{"incus", "Incus, limits.cpu=N with limits.cpu.nodes=balanced"}, place: (*host).floatBalanced},
	nova("nova", "OpenStack Nova, hw:cpu_policy=dedicated, spread", false),
	nova("nova-pack", "OpenStack Nova, hw:cpu_policy=dedicated, pack", true),
	kubelet(bestEffort), kubelet(restricted), kubelet(singleNUMANode),
}

// All returns the rivals, always in the same order.
func All() []Rival { return lists.Map(systems, func(s system) Rival { return s.Rival }) }

// Place places the lab by the rules of one rival. An error says that there is no such rival or that
// the problem is not consistent. If a rival finds no place, the Outcome has Refused.
func Place(p *plan.Problem, id string) (*Outcome, error) {
	var ids []string
	for _, s := range systems {
		if s.ID == id {
			if err := valid(p); err != nil {
				return nil, fmt.Errorf("rivals: problem: %w", err)
			}
			return new(s.run(p)), nil
		}
		ids = append(ids, s.ID)
	}
	return nil, fmt.Errorf("rivals: no rival %q; there are %s", id, strings.Join(ids, ", "))
}

// Compare places the lab by the rules of every rival, in the order of All. All of them refuse a
// problem that is not consistent.
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
	if s.start != nil {
		if err := s.start(h); err != nil {
			return Outcome{Rival: s.ID, Refused: err.Error()}
		}
	}
	h.reserve(s.spread)
	for i := range p.Requests {
		if err := s.place(h, i); err != nil {
			return Outcome{Rival: s.ID, Refused: fmt.Sprintf("%s: %v", p.Requests[i].Name, err), Notes: h.notes}
		}
	}
	o := Outcome{Rival: s.ID, Placement: &plan.Placement{Nodes: h.placed}, Broken: h.brokenRules(), Notes: h.notes}
	o.Terms = plan.Evaluate(p, o.Placement)
	o.Cost = plan.Cost(o.Terms)
	return o
}

// maxVFs is the largest value of the 16-bit field TotalVFs (PCI Express base specification, SR-IOV
// extended capability).
const maxVFs = 1<<16 - 1

// valid checks the parts of a problem that the rivals and plan.Evaluate index by, so that a problem
// made by hand cannot make them panic.
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
