// Package verify is the independent checker of plans. It implements the rules of docs/planner.md a second time, from
// the host, and shares only types with the search, plan.Evaluate and plan.Assemble.
package verify

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Plan checks a plan by the rules of docs/planner.md alone. It returns nil if they all hold, or else all faults
// (errors.Join), one line each, with the lab node, the fault, the actual and the expected value.
//
// It reads the host again, and uses the problem only if the host does not tell. It trusts the problem on requests,
// their possible devices, capacities, paths and weights. A difference between host and problem is a fault too.
//
// Plan accepts any content, also from a file. With a newer host it names the tenants that have moved onto the plan's
// CPUs or devices.
func Plan(h *topology.Host, l *lab.Lab, p *plan.Problem, pl *plan.Plan) error {
	switch {
	case h == nil:
		return errors.New("plan: check: no host")
	case l == nil:
		return errors.New("plan: check: no lab")
	case p == nil:
		return errors.New("plan: check: no problem")
	case pl == nil:
		return errors.New("plan: check: no plan")
	case p.PageBytes == 0:
		return errors.New("plan: check: the problem has pages of 0 bytes")
	case len(p.Requests) != len(l.Nodes):
		return fmt.Errorf("plan: check: the problem has %d requests, the lab %d nodes", len(p.Requests), len(l.Nodes))
	}
	for i := range p.Requests {
		if p.Requests[i].Name != l.Nodes[i].Name {
			return fmt.Errorf("plan: check: request %d of the problem is of %q, the lab has %q there", i,
				p.Requests[i].Name, l.Nodes[i].Name)
		}
	}
	c := &checker{h: h, l: l, p: p, pl: pl}
	c.readMachine()
	c.header()
	c.align()
	c.vcpus()
	c.housekeeping()
	c.memory()
	c.cells()
	c.devices()
	c.affinity()
	c.kernelArgs()
	c.proof()
	c.terms()
	return c.err()
}

// The checks of CPUs mark the owners of cores, the checks of devices the owners of cards; terms use these marks.
type checker struct {
	h  *topology.Host
	l  *lab.Lab
	p  *plan.Problem
	pl *plan.Plan
	m  machineView

	// nodes and found are by request: its node in the plan, or nil, and its actual place.
	nodes []*plan.Node
	found []finding
	index map[string]int

	faults []error
	more   int // number of faults beyond maxFaults
}

type finding struct {
	cores []*coreView
	gpus  []int // indexes in Problem.Devices, ascending
	nics  []int // indexes too
	vfs   []int // NIC of each, ascending
}

// ports has whole NICs, then a NIC for each virtual function, as the terms count.
func (f *finding) ports() []int { return append(slices.Clone(f.nics), f.vfs...) }

const maxFaults = 200

func (c *checker) fault(format string, args ...any) {
	if len(c.faults) >= maxFaults {
		c.more++
		return
	}
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

func (c *checker) of(i int, format string, args ...any) {
	c.fault("lab node %q: %s", c.p.Requests[i].Name, fmt.Sprintf(format, args...))
}

func (c *checker) err() error {
	if c.more > 0 {
		c.faults = append(c.faults, fmt.Errorf("and %d faults more", c.more))
	}
	return errors.Join(c.faults...)
}

// name is a text for no owner if i is negative.
func (c *checker) name(i int) string {
	if i < 0 {
		return "nobody"
	}
	return fmt.Sprintf("lab node %q", c.p.Requests[i].Name)
}

// header catches a plan of another workload, which would fail in every term.
func (c *checker) header() {
	for _, x := range []struct{ what, have, want string }{{"schema", c.pl.Schema, plan.Schema},
		{"lab", c.pl.Lab, c.l.Name}, {"workload", string(c.pl.Workload), string(c.l.Workload)}} {
		if x.have != x.want {
			c.fault("%s: have %q, want %q", x.what, x.have, x.want)
		}
	}
}

// align makes lab nodes indexes of requests. A missing node is nil, and of two with one name only one counts.
func (c *checker) align() {
	c.nodes = make([]*plan.Node, len(c.p.Requests))
	c.found = make([]finding, len(c.p.Requests))
	c.index = make(map[string]int, len(c.p.Requests))
	for i := range c.p.Requests {
		c.index[c.p.Requests[i].Name] = i
	}
	last := -1
	for k := range c.pl.Nodes {
		n := &c.pl.Nodes[k]
		i, ok := c.index[n.Name]
		switch {
		case !ok:
			c.fault("nodes: %q is not a node of the lab", n.Name)
		case c.nodes[i] != nil:
			c.of(i, "it is in the plan twice")
		default:
			if i < last {
				c.of(i, "it stands after %q; lab nodes come in the order of the lab", c.p.Requests[last].Name)
			}
			c.nodes[i], last = n, max(last, i)
		}
	}
	for i, n := range c.nodes {
		if n == nil {
			c.of(i, "it is not in the plan")
		}
	}
}

func (c *checker) placed() iter.Seq2[int, *plan.Node] {
	return func(yield func(int, *plan.Node) bool) {
		for i, n := range c.nodes {
			if n != nil && !yield(i, n) {
				return
			}
		}
	}
}

// affinity checks rule 6, by the lab and by the problem. Each pair is checked once, although usually both name it.
func (c *checker) affinity() {
	seen := map[string]bool{}
	each := func(requests []int, numa, nic string) {
		for k, i := range requests {
			for _, j := range requests[k+1:] {
				key := fmt.Sprint(min(i, j), max(i, j), numa, nic)
				if i == j || seen[key] || min(i, j) < 0 || max(i, j) >= len(c.nodes) || c.nodes[i] == nil ||
					c.nodes[j] == nil {
					continue
				}
				seen[key] = true
				c.together(i, j, "NUMA nodes", numa, c.nodesOf(i), c.nodesOf(j))
				c.together(i, j, "NICs", nic, c.nicsOf(i), c.nicsOf(j))
			}
		}
	}
	for _, a := range c.l.Affinity {
		var requests []int
		for _, name := range a.Nodes {
			if i, ok := c.index[name]; ok {
				requests = append(requests, i)
			}
		}
		each(requests, string(a.NUMA), string(a.NIC))
	}
	for _, a := range c.p.Affinity {
		each(a.Requests, a.NUMA, a.NIC)
	}
}

// together compares sets, so the number of cores on a node does not matter.
func (c *checker) together(i, j int, what, asked string, a, b []string) {
	both := fmt.Sprintf("affinity: %s of %q and %q", what, c.p.Requests[i].Name, c.p.Requests[j].Name)
	switch asked {
	case plan.Same:
		if !slices.Equal(a, b) {
			c.fault("%s: have [%s] and [%s], want the same", both, strings.Join(a, " "), strings.Join(b, " "))
		}
	case plan.Different:
		for _, x := range a {
			if slices.Contains(b, x) {
				c.fault("%s: both have %s, want none in common", both, x)
			}
		}
	}
}

func (c *checker) nodesOf(i int) []string {
	return lists.Map(numbersOf(c.found[i].cores, (*coreView).numaNode),
		func(node int) string { return fmt.Sprint(node) })
}

func (c *checker) nicsOf(i int) []string {
	return lists.Map(sorted(c.found[i].ports()), func(d int) string { return c.p.Devices[d].ID })
}

func numbersOf[T any](list []T, number func(T) int) []int {
	return sorted(lists.Map(list, number))
}

func sorted(numbers []int) []int { return slices.Compact(slices.Sorted(slices.Values(numbers))) }

// proof cannot repeat the proof itself.
func (c *checker) proof() {
	pl := c.pl
	if pl.Bound > pl.Cost {
		c.fault("bound: have %d, above the cost of %d; a bound is never more than a cost that was reached", pl.Bound,
			pl.Cost)
	}
	switch {
	case pl.Optimal && pl.Bound != pl.Cost:
		c.fault("optimal: it is claimed with a bound of %d and a cost of %d; want them equal", pl.Bound, pl.Cost)
	case pl.Optimal && pl.Stopped != "":
		c.fault("optimal: it is claimed although the search was stopped: %q", pl.Stopped)
	case !pl.Optimal && pl.Stopped == "" && pl.Bound == pl.Cost:
		c.fault("optimal: have false, although the bound is the cost and nothing stopped the search; want true")
	case !pl.Optimal && pl.Stopped == "":
		c.fault("stopped: have nothing; a plan that is not proved optimal says what ended the search")
	}
}
