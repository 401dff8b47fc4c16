// Package variant rearranges the lab nodes of a plan for comparison in a study. The levels are taken from
// 6erun/vcpu_benchmarks, which measured pinning and guest NUMA on six hosts; wrong-numa is added.
package variant

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Levels of placement.
const (
	// neither pinned nor bound, with one guest NUMA node, as libvirt does by default
	Default   = "default"
	Pin       = "pin"          // memory from wherever the kernel takes it
	PinNUMA   = "pin+numa"     // with bound memory and visible NUMA nodes
	PinSMT    = "pin+numa+smt" // with all threads of the cores, shown as siblings
	WrongNUMA = "wrong-numa"   // as pin+numa, on another NUMA node than the plan's
)

// Levels has the plainest first.
func Levels() []string { return []string{Default, Pin, PinNUMA, PinSMT, WrongNUMA} }

// Of arranges a copy of the plan at a level. A lab node always has the cores of the plan, with one virtual CPU on each,
// or at pin+numa+smt on each thread. It returns an error if the host cannot provide the level. The copy has no cost.
func Of(p *plan.Plan, h *topology.Host, level string) (*plan.Plan, error) {
	if !slices.Contains(Levels(), level) {
		return nil, fmt.Errorf("placement %q: want one of %v", level, Levels())
	}
	v := copyOf(p)
	a := arranger{host: h, plan: v}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if err := a.arrange(n, level); err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if level == WrongNUMA {
		if err := a.misplace(); err != nil {
			return nil, err
		}
	}
	v.Notes = append(v.Notes, "arranged as level "+level+" of a study, not as planned")
	v.Hugepages = pools(v.Nodes, p.Hugepages)
	return v, nil
}

// Pages returns the plan with pages of this size, or without hugepages if it is 0.
func Pages(p *plan.Plan, bytes uint64) (*plan.Plan, error) {
	v := copyOf(p)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		for k, m := range n.Memory {
			if bytes > 0 && m.Bytes%bytes != 0 {
				return nil, fmt.Errorf("lab node %s: %d bytes on NUMA node %d are no whole pages of %d bytes", n.Name,
					m.Bytes, m.NUMANode, bytes)
			}
			n.Memory[k].PageBytes = bytes
		}
	}
	v.Hugepages = pools(v.Nodes, p.Hugepages)
	return v, nil
}

// copyOf copies as deeply as this package changes.
func copyOf(p *plan.Plan) *plan.Plan {
	v := *p
	v.Optimal, v.Cost, v.Bound, v.Terms = false, 0, 0, []plan.Term{}
	v.Nodes = slices.Clone(p.Nodes)
	v.Notes = slices.Clone(p.Notes)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		n.VCPUs, n.Memory = slices.Clone(n.VCPUs), slices.Clone(n.Memory)
		n.Cells, n.Cards = slices.Clone(n.Cells), slices.Clone(n.Cards)
	}
	return &v
}

// pools keeps pages held by others.
func pools(nodes []plan.Node, before []plan.Hugepages) []plan.Hugepages {
	all := []plan.Hugepages{}
	for _, n := range nodes {
		for _, m := range n.Memory {
			if m.PageBytes == 0 || m.Bytes == 0 {
				continue
			}
			at := slices.IndexFunc(all, samePool(m.NUMANode, m.PageBytes))
			if at < 0 {
				at = len(all)
				all = append(all, plan.Hugepages{NUMANode: m.NUMANode, PageBytes: m.PageBytes})
			}
			all[at].Count += int64(m.Bytes / m.PageBytes)
		}
	}
	for _, b := range before {
		if at := slices.IndexFunc(all, samePool(b.NUMANode, b.PageBytes)); at >= 0 {
			all[at].Held = b.Held
		}
	}
	slices.SortFunc(all, func(a, b plan.Hugepages) int { return cmp.Compare(a.NUMANode, b.NUMANode) })
	return all
}

func samePool(node int, bytes uint64) func(plan.Hugepages) bool {
	return func(p plan.Hugepages) bool { return p.NUMANode == node && p.PageBytes == bytes }
}

type arranger struct {
	host *topology.Host
	plan *plan.Plan
}

func (a *arranger) arrange(n *plan.Node, level string) error {
	threads := 1
	if level == PinSMT {
		var err error
		if threads, err = a.threads(n); err != nil {
			return err
		}
	}
	var vcpus []int
	for i := range n.Cells {
		c := &n.Cells[i]
		first := len(vcpus)
		var last *topology.Core
		for _, cpu := range n.VCPUs[c.FirstVCPU : c.FirstVCPU+c.VCPUs] {
			core, err := a.core(cpu)
			if err != nil {
				return err
			}
			if core != last {
				own := slices.Collect(core.CPUs.All())
				vcpus = append(vcpus, own[:min(threads, len(own))]...)
			}
			last = core
		}
		c.FirstVCPU, c.VCPUs = first, len(vcpus)-first
	}
	n.VCPUs, n.Threads, n.SMT = vcpus, threads, threads > 1
	switch level {
	case Default:
		n.Unpinned, n.Unbound = true, true
		n.EmulatorCPUs, n.IOThreadCPUs = topology.CPUSet{}, topology.CPUSet{}
		flatten(n)
	case Pin:
		n.Unbound = true
		flatten(n)
	default:
		if len(n.Memory) > 1 && !n.GuestNUMA {
			return fmt.Errorf("it is on %d NUMA nodes, and the lab keeps them from the guest: level %s shows them; "+
				"set guest_numa: on in the lab", len(n.Memory), level)
		}
	}
	return nil
}

func (a *arranger) core(cpu int) (*topology.Core, error) {
	core := a.host.Core(cpu)
	if core == nil {
		return nil, fmt.Errorf("CPU %d of the plan is on no core of the host", cpu)
	}
	return core, nil
}

func (a *arranger) threads(n *plan.Node) (int, error) {
	threads := 0
	for _, cpu := range n.VCPUs {
		core, err := a.core(cpu)
		if err != nil {
			return 0, err
		}
		have := core.CPUs.Len()
		if threads = cmp.Or(threads, have); have != threads {
			return 0, fmt.Errorf("its cores have %d and %d threads, and a guest's are all alike", threads, have)
		}
	}
	if threads < 2 {
		return 0, fmt.Errorf("its cores have one thread each: there are no siblings to show")
	}
	return threads, nil
}

func flatten(n *plan.Node) {
	n.GuestNUMA = false
	one := plan.Cell{VCPUs: len(n.VCPUs), Distances: []int{10}}
	for _, c := range n.Cells {
		one.NUMANodes = append(one.NUMANodes, c.NUMANodes...)
		one.Bytes += c.Bytes
	}
	slices.Sort(one.NUMANodes)
	n.Cells = []plan.Cell{one}
	for i := range n.Cards {
		if n.Cards[i].Cell != nil {
			n.Cards[i].Cell = new(0)
		}
	}
}
