package verify

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

// drawHost has everything that terms and rules use.
func drawHost(t *rapid.T) *topology.Host {
	shape := rapid.SampledFrom([]string{
		"pack:1 numa:1 l3:2 core:4 pu:2", "pack:2 numa:2 l3:2 core:2 pu:2", "pack:2 numa:1 l3:2 core:3 pu:1",
		"pack:1 numa:4 core:3 pu:2", "numa:2 pack:1 core:4 pu:4",
	}).Draw(t, "shape")
	h, err := synthetic.Host(shape)
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.NUMANodes {
		if rapid.IntRange(0, 9).Draw(t, "memory known") > 0 {
			h.NUMANodes[i].MemoryBytes = new(uint64(rapid.IntRange(0, 24).Draw(t, "GiB")) * checkGiB)
		}
		if rapid.IntRange(0, 5).Draw(t, "hugepages in use") == 0 {
			h.NUMANodes[i].Hugepages = []topology.HugepagePool{{SizeBytes: 2 << 20, Total: 9, Free: new(uint64(4))},
				{SizeBytes: checkGiB, Total: 2, Free: new(uint64(1))}}
		}
		h.NUMANodes[i].Distances = nil
		if rapid.IntRange(0, 4).Draw(t, "distances known") > 0 {
			for k := range h.NUMANodes {
				d := 10
				if k != i {
					d = rapid.IntRange(9, 40).Draw(t, "distance")
				}
				h.NUMANodes[i].Distances = append(h.NUMANodes[i].Distances, d)
			}
		}
	}
	for i := range h.Cores {
		if i%4 == 3 && rapid.IntRange(0, 3).Draw(t, "small") == 0 {
			h.Cores[i].Kind = topology.KindEfficiency
			h.Cores[i].CPUs = topology.CPUs(h.Cores[i].CPUs.Min())
		}
	}
	at := func(bus int, function uint8) topology.PCIAddr {
		return topology.PCIAddr{Bus: uint8(bus), Function: function}
	}
	node := func() *int {
		if rapid.IntRange(0, 5).Draw(t, "node known") == 0 {
			return nil
		}
		return new(rapid.IntRange(0, len(h.NUMANodes)-1).Draw(t, "node"))
	}
	function := func(a topology.PCIAddr, class topology.ID24, node *int) {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: a, Class: &class, NUMANode: node,
			IOMMUGroup: new(rapid.IntRange(0, 20).Draw(t, "group"))})
	}
	bus := 1
	for range rapid.IntRange(0, 5).Draw(t, "gpus") {
		a, n := at(bus, 0), node()
		g := topology.GPU{Address: &a, Functions: []topology.PCIAddr{a}, Kind: topology.GPUDiscrete, NUMANode: n}
		function(a, 0x030200, n)
		if rapid.Bool().Draw(t, "audio") {
			g.Functions = append(g.Functions, at(bus, 1))
			function(at(bus, 1), 0x040300, n)
		}
		h.GPUs = append(h.GPUs, g)
		bus++
	}
	for range rapid.IntRange(0, 4).Draw(t, "nics") {
		a, n := at(bus, 0), node()
		nic := topology.NIC{Address: &a, NUMANode: n, Netdevs: []string{fmt.Sprintf("p%d", bus)}, RDMA: []string{}}
		nic.SpeedMbps = new(rapid.SampledFrom([]int64{100, 1000, 10_000, 25_000, 99_999, 100_000, 400_000}).Draw(t,
			"speed"))
		function(a, 0x020000, n)
		if rapid.Bool().Draw(t, "rdma") {
			nic.RDMA = []string{fmt.Sprintf("mlx5_%d", bus)}
		}
		if total := rapid.IntRange(0, 4).Draw(t, "vfs"); total > 0 {
			nic.SRIOV = &topology.SRIOV{Total: &total, Enabled: new(0), VFs: []topology.VF{}}
			h.PCI[len(h.PCI)-1].SRIOV = nic.SRIOV
			for v := range rapid.IntRange(0, total).Draw(t, "vfs there") {
				nic.SRIOV.VFs = append(nic.SRIOV.VFs, topology.VF{Index: v, Address: new(at(bus, uint8(1+v)))})
				*nic.SRIOV.Enabled++
				function(at(bus, uint8(1+v)), 0x020000, n)
				h.PCI[len(h.PCI)-1].PF = &a
				h.PCI[len(h.PCI)-1].IOMMUGroup = new(100 + len(h.PCI))
			}
		}
		h.NICs = append(h.NICs, nic)
		bus++
	}
	if rapid.Bool().Draw(t, "disk") {
		function(at(bus, 0), 0x010802, new(0))
		h.Storage = []topology.Disk{{Name: "nvme0n1", PCI: new(at(bus, 0)), Mounts: []string{"/"}}}
	}
	if rapid.Bool().Draw(t, "tenant") {
		first := rapid.IntRange(0, len(h.Cores)-1).Draw(t, "tenant core")
		tenant := topology.Tenant{Name: "web", VCPUs: 1, MemoryBytes: new(uint64(checkGiB)),
			Pins: []topology.Pin{{CPUs: h.Cores[first].CPUs}}}
		if len(h.PCI) > 0 {
			tenant.Devices = []topology.TenantDevice{{PCI: h.PCI[rapid.IntRange(0, len(h.PCI)-1).Draw(t,
				"tenant device")].Address}}
		}
		h.Tenants = []topology.Tenant{tenant}
	}
	var online topology.CPUSet
	for i := range h.Cores {
		online = online.Union(h.Cores[i].CPUs)
	}
	h.CPUs.Online = online
	h.Complete()
	return h
}

// No lab node alone asks for more than the host has.
func drawLab(t *rapid.T, h *topology.Host) *lab.Lab {
	nics, vfs := 0, 0
	for i := range h.NICs {
		if h.NICs[i].PF == nil {
			nics++
		}
		if s := h.NICs[i].SRIOV; s != nil {
			vfs++
		}
	}
	l := &lab.Lab{Name: "drawn", Workload: rapid.SampledFrom([]lab.Workload{lab.WorkloadMixed, lab.WorkloadRDMALatency,
		lab.WorkloadCPUBandwidth}).Draw(t, "workload"),
		Hugepages: rapid.SampledFrom([]lab.Hugepages{lab.HugepagesAuto, lab.Hugepages2MiB, lab.HugepagesOff}).Draw(t,
			"pages"), Tenants: lab.TenantsRead}
	for i := range rapid.IntRange(1, 3).Draw(t, "lab nodes") {
		n := lab.Node{Name: fmt.Sprintf("vm%02d", i), CPUs: rapid.IntRange(1, 6).Draw(t, "cpus"),
			Memory:    lab.Bytes(rapid.IntRange(1, 8).Draw(t, "memory")) * lab.GiB,
			GPUs:      rapid.IntRange(0, min(2, len(h.GPUs))).Draw(t, "node gpus"),
			VFs:       rapid.IntRange(0, min(2, vfs)).Draw(t, "node vfs"),
			SMT:       rapid.SampledFrom([]lab.Setting{lab.Auto, lab.Off}).Draw(t, "smt"),
			GuestNUMA: rapid.SampledFrom([]lab.Setting{lab.Auto, lab.On, lab.Off}).Draw(t, "guest numa")}
		n.NICs = checkNICs(i, n.VFs+rapid.IntRange(0, min(1, nics)).Draw(t, "node nics"))
		l.Nodes = append(l.Nodes, n)
	}
	return l
}

// drawPlacement keeps the rules but is otherwise arbitrary. It returns false if it was unlucky.
func drawPlacement(t *rapid.T, p *plan.Problem) (*plan.Placement, bool) {
	pl := &plan.Placement{}
	var free []int
	for i := range p.Cores {
		if p.Cores[i].Tenant == "" {
			free = append(free, i)
		}
	}
	free = rapid.Permutation(free).Draw(t, "cores")
	pages := map[int]int64{}
	for _, n := range p.NUMANodes {
		pages[n.ID] = 1 << 40
		if n.Pages != nil {
			pages[n.ID] = *n.Pages
		}
	}
	bundles, used, vfs := map[int]int{}, map[int]bool{}, map[int]int{}
	for i := range p.Requests {
		r := &p.Requests[i]
		var n plan.NodePlacement
		for range r.Cores {
			k := slices.IndexFunc(free, func(c int) bool { return len(p.Cores[c].CPUs) >= r.Threads })
			if k < 0 {
				return nil, false
			}
			n.Cores = append(n.Cores, p.Cores[free[k]].ID)
			free = slices.Delete(free, k, k+1)
		}
		slices.Sort(n.Cores)
		for left := r.Pages; left > 0; {
			node := rapid.SampledFrom(p.NUMANodes).Draw(t, "memory on").ID
			take := min(pages[node], left, max(1, r.Pages*int64(rapid.IntRange(1, 4).Draw(t, "quarters"))/4))
			if take == 0 {
				return nil, false
			}
			pages[node] -= take
			left -= take
			at := slices.IndexFunc(n.Memory, func(m plan.NodePage) bool { return m.NUMANode == node })
			if at < 0 {
				n.Memory = append(n.Memory, plan.NodePage{NUMANode: node, Pages: 0})
				at = len(n.Memory) - 1
			}
			n.Memory[at].Pages += take
		}
		slices.SortFunc(n.Memory, func(a, b plan.NodePage) int { return a.NUMANode - b.NUMANode })
		for kind, wants := range [][]plan.Want{r.GPUs, r.NICs, r.VFs} {
			for _, w := range wants {
				for range w.Count {
					d := rapid.SampledFrom(w.Any).Draw(t, "device")
					owner, tied := bundles[p.Devices[d].Bundle]
					if kind == 2 {
						if vfs[d]++; vfs[d] > p.Devices[d].VFs {
							return nil, false
						}
						at := slices.IndexFunc(n.VFs, func(v plan.VFCount) bool { return v.Device == d })
						if at < 0 {
							n.VFs = append(n.VFs, plan.VFCount{Device: d, Count: 0})
							at = len(n.VFs) - 1
						}
						n.VFs[at].Count++
						continue
					}
					if used[d] || tied && owner != i {
						return nil, false
					}
					used[d], bundles[p.Devices[d].Bundle] = true, i
					if kind == 0 {
						n.GPUs = append(n.GPUs, d)
					} else {
						n.NICs = append(n.NICs, d)
					}
				}
			}
		}
		slices.Sort(n.GPUs)
		slices.Sort(n.NICs)
		slices.SortFunc(n.VFs, func(a, b plan.VFCount) int { return a.Device - b.Device })
		pl.Nodes = append(pl.Nodes, n)
	}
	for d := range vfs {
		if _, given := bundles[p.Devices[d].Bundle]; given {
			return nil, false
		}
	}
	left := map[int]int{}
	for _, k := range free {
		left[p.Cores[k].Package]++
	}
	for _, k := range p.Packages {
		if k.Busy != "" && left[k.ID] == 0 {
			return nil, false
		}
	}
	return pl, len(free) >= p.ReserveCores
}

// TestCheckAgreesWithEvaluateAndAssemble compares two independent implementations of docs/planner.md.
func TestCheckAgreesWithEvaluateAndAssemble(t *testing.T) {
	t.Parallel()
	checked := 0
	one := func(t *rapid.T) {
		h := drawHost(t)
		l := drawLab(t, h)
		p, err := build.Problem(h, l, build.Options{})
		if err != nil {
			return
		}
		for k := range p.Paths {
			if q := &p.Paths[k]; p.Devices[q.B].Kind == plan.KindNIC && rapid.IntRange(0, 2).Draw(t, "measured") == 0 {
				q.LossPercent = new(rapid.IntRange(0, 60).Draw(t, "loss"))
			}
		}
		pl, ok := drawPlacement(t, p)
		if !ok {
			return
		}
		checked++
		made := plan.Assemble(h, l, p, plan.Outcome{Placement: *pl, Stopped: "nobody searched"})
		if err := Plan(h, l, p, made); err != nil {
			text, _ := json.Marshal(made)
			t.Fatalf("faults of a plan without any:\n%v\n%s", err, text)
		}
	}
	for range 10 { // four in five draws give no placement
		rapid.Check(t, one)
	}
	t.Logf("%d plans", checked)
}

// Arguments of Plan are omitted or mixed up.
func TestCheckSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	c := newCheckCase()
	short := checkLab()
	short.Nodes = short.Nodes[:2]
	other := checkLab()
	other.Nodes[1].Name = "vm07"
	for _, m := range []struct {
		h    *topology.Host
		l    *lab.Lab
		p    *plan.Problem
		pl   *plan.Plan
		want string
	}{
		{nil, c.l, c.p, c.pl, "no host"}, {c.h, nil, c.p, c.pl, "no lab"}, {c.h, c.l, nil, c.pl, "no problem"},
		{c.h, c.l, c.p, nil, "no plan"},
		{c.h, c.l, &plan.Problem{}, c.pl, "the problem has pages of 0 bytes"},
		{c.h, short, c.p, c.pl, "the problem has 4 requests, the lab 2 nodes"},
		{c.h, other, c.p, c.pl, `request 1 of the problem is of "vm01", the lab has "vm07" there`},
	} {
		if err := Plan(m.h, m.l, m.p, m.pl); err == nil || !strings.Contains(err.Error(), m.want) {
			t.Errorf("got %v, want %q", err, m.want)
		}
	}
	if err := Plan(c.h, c.l, c.p, &plan.Plan{}); err == nil {
		t.Error("an empty plan has no fault")
	}
}

func TestCheckStopsCountingFaults(t *testing.T) {
	t.Parallel()
	c := newCheckCase()
	for i := range 10 * maxFaults {
		c.pl.Nodes[0].VCPUs = append(c.pl.Nodes[0].VCPUs, 1000+i)
	}
	lines := strings.Split(Plan(c.h, c.l, c.p, c.pl).Error(), "\n")
	if len(lines) != maxFaults+1 || !strings.HasPrefix(lines[maxFaults], "and ") {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// FuzzCheckPlan edits a plan, because go test takes a minute to minimize an input of some KiB.
func FuzzCheckPlan(f *testing.F) {
	plans := [][]byte{}
	add := func(pl *plan.Plan) {
		if text, err := json.Marshal(pl); err == nil {
			f.Add(uint8(len(plans)), uint16(0), uint8(0), "")
			plans = append(plans, text)
		}
	}
	add(checkPlan())
	for _, m := range checkMutations {
		c := newCheckCase()
		m.mutate(c)
		add(c.pl)
	}
	h, l, p := checkHost(), checkLab(), checkProblem()
	f.Fuzz(func(t *testing.T, which uint8, at uint16, cut uint8, put string) {
		text := plans[int(which)%len(plans)]
		i := int(at) % len(text)
		text = slices.Concat(text[:i], []byte(put), text[min(i+int(cut), len(text)):])
		pl := new(plan.Plan)
		if json.Unmarshal(text, pl) != nil {
			return
		}
		err := Plan(h, l, p, pl)
		if err != nil && strings.Contains(err.Error(), "%!") {
			t.Errorf("a message is not well formed:\n%v", err)
		}
	})
}
