package rivals

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rackless/rackless/plan"
)

// A Rival is a system or a habit that places virtual machines on a host by rules of its own.
type Rival struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Version string   `json:"version"` // of what was read
	Rules   []string `json:"rules"`   // the algorithm in steps, in our words
	Sources []string `json:"sources"` // where it is published
	Differs []string `json:"differs"` // what of ours it cannot express, and how that was filled in
}

// An Outcome is what a rival makes of a problem.
type Outcome struct {
	Rival     string          `json:"rival"`
	Placement *plan.Placement `json:"placement"`         // nil where it refuses
	Refused   string          `json:"refused,omitempty"` // its own reason, with the lab node that it stopped at
	Terms     []plan.Term     `json:"terms,omitempty"`   // of plan.Evaluate
	Cost      int64           `json:"cost"`              // in basis points, comparable with ours; 0 where it refuses
	// Broken lists the hard rules of ours that the placement breaks. Its cost is then of the
	// nearest whole-core placement, rounded in its favour.
	Broken []string `json:"broken,omitempty"`
	Notes  []string `json:"notes,omitempty"` // what it needed to come through: a wider flavor, memory from another node
}

// A system is a Rival with the code of its rules.
type system struct {
	Rival
	// place puts request i on what is left of the host. An error is the rival's refusal.
	place func(h *host, i int) error
	// start prepares the host: what is reserved, and for the whole lab what is refused from the outset. It may be nil.
	start func(h *host) error
}

// systems returns all rivals in the order of docs/rivals.md: from no rule at all to the strictest.
func systems() []system {
	return []system{
		libvirtDefault(), handCPUs(), handCores(), incus(), nova(false), nova(true),
		kubelet(bestEffort), kubelet(restricted), kubelet(singleNUMANode),
	}
}

// All returns the rivals, always in the same order.
func All() []Rival {
	var all []Rival
	for _, s := range systems() {
		all = append(all, s.Rival)
	}
	return all
}

// Place places the lab by the rules of one rival. An error says that there is no such rival or that
// the problem does not hold together; a rival that finds no place is an Outcome with Refused.
func Place(p *plan.Problem, id string) (*Outcome, error) {
	var ids []string
	for _, s := range systems() {
		if s.ID == id {
			if err := valid(p); err != nil {
				return nil, fmt.Errorf("rivals: %w", err)
			}
			o := s.run(p)
			return &o, nil
		}
		ids = append(ids, s.ID)
	}
	return nil, fmt.Errorf("rivals: no rival %q; there are %s", id, strings.Join(ids, ", "))
}

// Compare places the lab by the rules of every rival, in the order of All. A problem that does not
// hold together is refused by all of them.
func Compare(p *plan.Problem) []Outcome {
	err := valid(p)
	var all []Outcome
	for _, s := range systems() {
		if err != nil {
			all = append(all, Outcome{Rival: s.ID, Refused: err.Error()})
			continue
		}
		all = append(all, s.run(p))
	}
	return all
}

func (s system) run(p *plan.Problem) Outcome {
	h := newHost(p)
	o := Outcome{Rival: s.ID}
	if s.start != nil {
		if err := s.start(h); err != nil {
			o.Refused = err.Error()
			return o
		}
	}
	for i := range p.Requests {
		if err := s.place(h, i); err != nil {
			o.Refused = fmt.Sprintf("%s: %v", p.Requests[i].Name, err)
			o.Notes = h.notes
			return o
		}
	}
	o.Placement = &plan.Placement{Nodes: h.placed}
	o.Terms = plan.Evaluate(p, o.Placement)
	o.Cost = plan.Cost(o.Terms)
	o.Broken = h.brokenRules()
	o.Notes = h.notes
	return o
}

// maxVFs is what the 16-bit field TotalVFs can say (PCI Express base specification, SR-IOV extended capability).
const maxVFs = 1<<16 - 1

// valid says whether the parts of a problem fit together, as far as the rivals and plan.Evaluate depend on it.
func valid(p *plan.Problem) error {
	if p == nil {
		return errors.New("no problem given")
	}
	nodes := map[int]bool{}
	for _, n := range p.NUMANodes {
		if len(n.Distances) != len(p.NUMANodes) {
			return fmt.Errorf("problem: NUMA node %d has %d distances, want %d", n.ID, len(n.Distances),
				len(p.NUMANodes))
		}
		nodes[n.ID] = true
	}
	for _, c := range p.Cores {
		if !nodes[c.NUMANode] || len(c.CPUs) == 0 {
			return fmt.Errorf("problem: core %d: NUMA node %d is not listed, or it has no CPUs", c.ID, c.NUMANode)
		}
	}
	for _, d := range p.Devices {
		if d.NUMANode != nil && !nodes[*d.NUMANode] {
			return fmt.Errorf("problem: device %q: NUMA node %d is not listed", d.ID, *d.NUMANode)
		}
		if d.VFs < 0 || d.VFs > maxVFs {
			return fmt.Errorf("problem: device %q: %d virtual functions, want 0 to %d", d.ID, d.VFs, maxVFs)
		}
	}
	pairs := map[[2]int]bool{}
	for _, q := range p.Paths {
		pairs[[2]int{min(q.A, q.B), max(q.A, q.B)}] = true
	}
	for a, d := range p.Devices {
		for b := a + 1; b < len(p.Devices); b++ {
			if other := p.Devices[b]; (d.Kind == plan.KindGPU || other.Kind == plan.KindGPU) && !pairs[[2]int{a, b}] {
				return fmt.Errorf("problem: no path between %q and %q", d.ID, other.ID)
			}
		}
	}
	for _, r := range p.Requests {
		if r.Cores < 1 || r.Threads < 1 || r.VCPUs != r.Cores*r.Threads || r.Pages < 0 {
			return fmt.Errorf("problem: request %q: %d vCPUs are not %d cores of %d threads, or %d pages are less "+
				"than none", r.Name, r.VCPUs, r.Cores, r.Threads, r.Pages)
		}
		for _, w := range wants(&r) {
			for _, d := range w.Any {
				if d < 0 || d >= len(p.Devices) {
					return fmt.Errorf("problem: request %q: device %d of %d", r.Name, d, len(p.Devices))
				}
			}
		}
	}
	for _, a := range p.Affinity {
		for _, i := range a.Requests {
			if i < 0 || i >= len(p.Requests) {
				return fmt.Errorf("problem: affinity names request %d of %d", i, len(p.Requests))
			}
		}
	}
	return nil
}
