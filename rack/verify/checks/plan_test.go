package checks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

type fataler interface {
	Helper()
	Fatal(...any)
}

var hostJSON sync.Map

func exampleHost(t fataler, name string) *topology.Host {
	t.Helper()
	data, ok := hostJSON.Load(name)
	if !ok {
		h, err := inspect.ReadFile(contextOf(t), filepath.Join("../../..", "examples", "hosts", name))
		if err != nil {
			t.Fatal(err)
		}
		if data, err = json.Marshal(h); err != nil {
			t.Fatal(err)
		}
		hostJSON.Store(name, data)
	}
	h := &topology.Host{}
	if err := json.Unmarshal(data.([]byte), h); err != nil {
		t.Fatal(err)
	}
	return h
}

func planned(t fataler, h *topology.Host, file string, text []byte) (p *plan.Plan, ok bool) {
	t.Helper()
	l, err := lab.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}
	problem, err := build.Problem(h, l, build.Options{HostName: "host"})
	if err != nil {
		return nil, false
	}
	r, err := search.Solve(contextOf(t), problem, search.Options{Steps: 20000})
	if err != nil {
		return nil, false
	}
	return plan.Assemble(h, l, problem, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal,
		Stopped: r.Stopped}), true
}

func prepare(t fataler, p *plan.Plan, h *topology.Host) {
	t.Helper()
	line := ""
	if h.Kernel.Cmdline != nil {
		line = *h.Kernel.Cmdline + " "
	}
	line += strings.Join(p.KernelArgs, " ")
	h.Kernel.Cmdline = &line
	given := given(p, h)
	h.CPUs.Isolated = &given
	// The boot CPU keeps the tick.
	h.CPUs.NoHzFull = new(given.Difference(topology.CPUs(0)))
	for i := range h.Cores {
		if h.Cores[i].Governor != "" {
			h.Cores[i].Governor = "performance"
		}
	}
	h.IRQs = nil
	for _, want := range p.Hugepages {
		for i := range h.NUMANodes {
			if n := &h.NUMANodes[i]; n.ID == want.NUMANode {
				n.Hugepages = slices.DeleteFunc(n.Hugepages, func(p topology.HugepagePool) bool {
					return p.SizeBytes == want.PageBytes
				})
				n.Hugepages = append(n.Hugepages, topology.HugepagePool{SizeBytes: want.PageBytes,
					Total: uint64(want.Count + want.Held), Free: new(uint64(want.Count))})
			}
		}
	}
	h.IOMMU.Enabled = new(true)
	for _, pf := range p.VFs {
		makeVFs(t, h, pf)
	}
	for i := range p.Nodes {
		for _, id := range p.Nodes[i].Devices {
			d := deviceOf(t, p, h, id)
			d.Driver, d.DriverKnown = "vfio-pci", true
			if d.Link != nil { // one example has a degraded link
				trained := best(d.Link)
				d.Link.SpeedGTs, d.Link.Width = trained.SpeedGTs, trained.Width
			}
			if d.IOMMUGroup == nil {
				d.IOMMUGroup = new(1000 + int(d.Address.Bus)*256 + int(d.Address.Device)*8 + int(d.Address.Function))
			}
		}
	}
}

func given(p *plan.Plan, h *topology.Host) topology.CPUSet {
	var all topology.CPUSet
	for i := range p.Nodes {
		for c := range h.Cores {
			if h.Cores[c].CPUs.Overlaps(topology.CPUs(p.Nodes[i].VCPUs...)) {
				all = all.Union(h.Cores[c].CPUs)
			}
		}
	}
	return all
}

func makeVFs(t fataler, h *topology.Host, want plan.PFCount) {
	t.Helper()
	a, err := topology.ParsePCIAddr(want.PF)
	if err != nil {
		t.Fatal(err)
	}
	pf := find(h, a)
	if pf == nil || pf.SRIOV == nil {
		t.Fatal("no SR-IOV at " + want.PF)
	}
	pf.SRIOV.Enabled, pf.SRIOV.VFs = new(want.Count), nil
	node, vendor := pf.NUMANode, pf.Vendor
	for i := range want.Count {
		// Any address will do.
		at := topology.PCIAddr{Domain: a.Domain, Bus: a.Bus, Device: uint8(10 + i/8 + 8*int(a.Function)),
			Function: uint8(i % 8)}
		pf.SRIOV.VFs = append(pf.SRIOV.VFs, topology.VF{Index: i, Address: &at})
		h.PCI = append(h.PCI, topology.PCIDevice{Address: at, PF: &a, Class: new(topology.ID24(0x020000)),
			Vendor: vendor, NUMANode: node,
			IOMMUGroup: new(5000 + int(a.Function)*100 + i), Driver: "mlx5_core", DriverKnown: true})
		pf = find(h, a) // it may have moved
	}
	for i := range h.NICs {
		if n := &h.NICs[i]; n.Address != nil && *n.Address == a {
			for k := range n.Ports {
				n.Ports[k].State, n.Ports[k].Carrier = "up", new(true)
			}
		}
	}
}

func find(h *topology.Host, a topology.PCIAddr) *topology.PCIDevice {
	for i := range h.PCI {
		if h.PCI[i].Address == a {
			return &h.PCI[i]
		}
	}
	return nil
}

func deviceOf(t fataler, p *plan.Plan, h *topology.Host, id string) *topology.PCIDevice {
	t.Helper()
	a, err := newHostCheck(p, h, nil, nil).address(id)
	if err != nil {
		t.Fatal(err)
	}
	d := find(h, a)
	if d == nil {
		t.Fatal("no " + id)
	}
	return d
}

func quiet(p *plan.Plan, h *topology.Host) *facts.Running {
	keep := h.CPUs.Online.Difference(given(p, h))
	busy := topology.CPUs(given(p, h).Min())
	run := &facts.Running{
		Threads: []facts.Thread{
			{PID: 1, TID: 1, Name: "systemd", Allowed: keep, LastCPU: keep.Min()},
			{PID: 17, TID: 17, Name: "ksoftirqd/2", Kernel: true, Fixed: true, Allowed: busy, LastCPU: busy.Min()},
			// Load is not balanced onto isolated CPUs.
			{PID: 60, TID: 60, Name: "khugepaged", Kernel: true, Allowed: h.CPUs.Online, LastCPU: keep.Min()},
			// It slept on a CPU that it may no longer use.
			{PID: 900, TID: 901, Name: "dockerd", Allowed: keep, LastCPU: busy.Min()},
		},
		Interrupts: []facts.Interrupt{
			{Number: 24, CPUs: topology.CPUs(keep.Min()), Counts: map[int]uint64{keep.Min(): 4711, busy.Min(): 3},
				Action: "nvme0q1"},
			// managed: it served nothing there
			{Number: 25, CPUs: busy, Counts: map[int]uint64{keep.Min(): 4711}, Action: "nvme0q2"},
			{Number: 26, CPUs: busy, Counts: map[int]uint64{busy.Min(): 99}, Action: "vfio-msix[0](0000:41:00.0)"},
		},
		Cgroups: []facts.Cgroup{
			{Path: "init.scope", CPUs: h.CPUs.Online, Partition: "member", Populated: true},
			{Path: "machine.slice", CPUs: h.CPUs.Online, Partition: "member", Populated: true},
			{Path: "system.slice", CPUs: h.CPUs.Online, Partition: "member", Populated: true},
		},
		Workqueues: &keep,
		HugeMounts: []facts.HugeMount{{Path: "/dev/hugepages", PageBytes: 2 << 20},
			{Path: "/dev/hugepages1G", PageBytes: 1 << 30}},
	}
	return run
}

type planCase struct {
	p   *plan.Plan
	h   *topology.Host
	run *facts.Running
	own []int
}

// epyc has two lab nodes, each with a GPU, a NIC and memory of two NUMA nodes, on 32 cores.
func epyc(t *testing.T) *planCase { return newPlanCase(t, "epyc-7551p.ttar", "epyc-pair.yaml") }

// r740 has eight lab nodes with one virtual function each.
func r740(t *testing.T) *planCase { return newPlanCase(t, "r740.ttar", "r740-eight.yaml") }

func newPlanCase(t *testing.T, host, labFile string) *planCase {
	t.Helper()
	h := exampleHost(t, host)
	text, err := os.ReadFile(filepath.Join("../../..", "examples", labFile))
	if err != nil {
		t.Fatal(err)
	}
	p, ok := planned(t, h, labFile, text)
	if !ok {
		t.Fatalf("%s cannot be planned on %s", labFile, host)
	}
	prepare(t, p, h)
	return &planCase{p: p, h: h, run: quiet(p, h)}
}

func (c *planCase) host() []finding.Finding {
	return append(Host(c.p, c.h, c.run, c.own...), Journal(nil, nil))
}

func notOK(all []finding.Finding) []string {
	var out []string
	for _, f := range all {
		if f.Status != finding.OK {
			out = append(out, fmt.Sprintf("%s %s | %s | %s", f.Status, f.ID, f.Subject, f.Have))
		}
	}
	return out
}
