package verify

import (
	"fmt"
	"net/netip"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// A checkCase was written by hand.
//
// The host has two packages, NUMA nodes 0 and 1, with 6 cores each; core c has the CPUs c and c+12; three cores share
// an L3. On node 0 are GPU 06:00.0 with its audio function 06:00.1 and GPU 07:00.0, tied by IOMMU group 14, and NIC
// 05:00.0; on node 1 GPU 81:00.0 and NIC 41:00.0 with virtual functions. Tenant web has core 3 and virtual function 0.
// The host boots from an NVMe disk on node 0.
type checkCase struct {
	h  *topology.Host
	l  *lab.Lab
	p  *plan.Problem
	pl *plan.Plan
}

const checkGiB = 1 << 30

func newCheckCase() *checkCase {
	return &checkCase{checkHost(), checkLab(), checkProblem(), checkPlan()}
}

func checkAddr(s string) topology.PCIAddr {
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		panic(err)
	}
	return a
}

func checkHost() *topology.Host {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceSynthetic, Name: "two packages"}}
	h.CPUs.Online = topology.CPURange(0, 23)
	for node := range 2 {
		cpus := topology.CPURange(6*node, 6*node+5).Union(topology.CPURange(12+6*node, 12+6*node+5))
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: node, CPUs: cpus,
			MemoryBytes: new(uint64(16 * checkGiB)),
			Distances:   [][]int{{10, 21}, {21, 10}}[node]})
		h.Packages = append(h.Packages, topology.Package{ID: node, CPUs: cpus})
	}
	for c := range 12 {
		h.Cores = append(h.Cores, topology.Core{ID: c, Package: new(c / 6), NUMANode: new(c / 6), L3: new(c / 3),
			CPUs: topology.CPUs(c, c+12)})
	}
	pci := func(addr string, class topology.ID24, node, group int) {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: checkAddr(addr), Class: &class, NUMANode: &node,
			IOMMUGroup: &group})
	}
	pci("0000:00:01.0", 0x060400, 0, 14)
	pci("0000:01:00.0", 0x010802, 0, 1)
	pci("0000:05:00.0", 0x020000, 0, 5)
	pci("0000:06:00.0", 0x030200, 0, 14)
	pci("0000:06:00.1", 0x040300, 0, 14)
	pci("0000:07:00.0", 0x030200, 0, 14)
	pci("0000:41:00.0", 0x020000, 1, 41)
	pci("0000:41:00.2", 0x020000, 1, 42)
	pci("0000:41:00.3", 0x020000, 1, 43)
	pci("0000:81:00.0", 0x030200, 1, 81)
	pf := checkAddr("0000:41:00.0")
	for i := range h.PCI {
		if a := h.PCI[i].Address; a.Bus == 0x41 && a.Function > 1 {
			h.PCI[i].PF = &pf
		}
	}
	gpu := func(addr string, node int, functions ...topology.PCIAddr) {
		a := checkAddr(addr)
		h.GPUs = append(h.GPUs, topology.GPU{Address: &a, Functions: append([]topology.PCIAddr{a}, functions...),
			NUMANode: &node})
	}
	gpu("0000:06:00.0", 0, checkAddr("0000:06:00.1"))
	gpu("0000:07:00.0", 0)
	gpu("0000:81:00.0", 1)
	h.NICs = []topology.NIC{
		{Address: new(checkAddr("0000:05:00.0")), NUMANode: new(0), Netdevs: []string{"p5"}},
		{Address: &pf, NUMANode: new(1), Netdevs: []string{"p41"}, SRIOV: &topology.SRIOV{Total: new(6),
			Enabled: new(2), VFs: []topology.VF{
				{Index: 0, Address: new(checkAddr("0000:41:00.2"))},
				{Index: 1, Address: new(checkAddr("0000:41:00.3"))}}}},
	}
	h.Storage = []topology.Disk{{Name: "nvme0n1", PCI: new(checkAddr("0000:01:00.0")), Mounts: []string{"/"}}}
	h.Tenants = []topology.Tenant{{Name: "web", VCPUs: 2,
		Pins:    []topology.Pin{{VCPU: 0, CPUs: topology.CPUs(3)}, {VCPU: 1, CPUs: topology.CPUs(15)}},
		Devices: []topology.TenantDevice{{PCI: checkAddr("0000:41:00.2")}}}}
	return h
}

func checkNICs(node, ports int) []lab.NIC {
	var nics []lab.NIC
	for k := range ports {
		nics = append(nics, lab.NIC{Name: fmt.Sprintf("eth%d", k), MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", node, k),
			Addr: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/24", k, node+1))})
	}
	return nics
}

func checkLab() *lab.Lab {
	node := func(i, cpus int, memory lab.Bytes, ports, vfs, gpus int, smt lab.Setting) lab.Node {
		return lab.Node{Name: fmt.Sprintf("vm%02d", i), CPUs: cpus, Memory: memory, NICs: checkNICs(i, ports), VFs: vfs,
			GPUs: gpus,
			SMT:  smt, GuestNUMA: lab.Auto}
	}
	return &lab.Lab{
		Name: "pair", Workload: lab.WorkloadMixed, Hugepages: lab.HugepagesAuto, Tenants: lab.TenantsRead,
		Reserve: lab.Reserve{Cores: new(2), NUMA: []lab.NUMAReserve{{Node: 1, Cores: 1}}},
		Nodes: []lab.Node{
			node(0, 4, 4*lab.GiB, 1, 0, 2, lab.On), node(1, 2, 2*lab.GiB, 2, 2, 1, lab.Off),
			node(2, 4, 2*lab.GiB, 1, 1, 0, lab.Auto), node(3, 4, 2*lab.GiB, 1, 1, 0, lab.Auto)},
		Affinity: []lab.Affinity{{Nodes: []string{"vm00", "vm01"}, NUMA: lab.Different, NIC: lab.Different}},
	}
}

func checkProblem() *plan.Problem {
	p := &plan.Problem{
		Schema: plan.ProblemSchema, Lab: "pair", Host: "two packages", Workload: lab.WorkloadMixed, PageBytes: checkGiB,
		HugepageBytes: 1 << 30, ReserveCores: 2,
		NUMANodes: []plan.NUMANode{
			{ID: 0, Distances: []int{10, 21}, Pages: new(int64(14))},
			{ID: 1, Distances: []int{21, 10}, Pages: new(int64(14)), ReserveCores: 1}},
		Packages: []plan.Package{{ID: 0, Busy: "disk nvme0n1 (/)"}, {ID: 1}},
		Devices: []plan.Device{
			{ID: "0000:06:00.0", Kind: plan.KindGPU, NUMANode: new(0), Bundle: 0, Functions: []string{"0000:06:00.0",
				"0000:06:00.1", "0000:07:00.0"}, Whole: true},
			{ID: "0000:07:00.0", Kind: plan.KindGPU, NUMANode: new(0), Bundle: 0, Functions: []string{"0000:07:00.0",
				"0000:06:00.0", "0000:06:00.1"}, Whole: true},
			{ID: "0000:81:00.0", Kind: plan.KindGPU, NUMANode: new(1), Bundle: 1, Functions: []string{"0000:81:00.0"},
				Whole: true},
			{ID: "0000:05:00.0", Kind: plan.KindNIC, NUMANode: new(0), Bundle: 2, Functions: []string{"0000:05:00.0"},
				Whole: true, RateMbps: 100_000, RDMA: true},
			{ID: "0000:41:00.0", Kind: plan.KindNIC, NUMANode: new(1), Bundle: 3, Functions: []string{"0000:41:00.0"},
				Refused: "of its virtual function 0 (0000:41:00.2): VM web holds it", RateMbps: 25_000, RDMA: true,
				VFs: 5, FreeVFs: []int{1, 2, 3, 4, 5}}},
		Paths: []plan.PairPath{
			{A: 0, B: 1, Class: "PXB", Steps: 1}, {A: 0, B: 2, Class: "SYS", Steps: 4},
			{A: 1, B: 2, Class: "SYS", Steps: 4},
			{A: 0, B: 3, Class: "PHB", Steps: 2}, {A: 1, B: 3, Class: "PHB", Steps: 2},
			{A: 2, B: 3, Class: "SYS", Steps: 4},
			{A: 0, B: 4, Class: "SYS", Steps: 4}, {A: 1, B: 4, Class: "SYS", Steps: 4},
			{A: 2, B: 4, Class: "NODE", Steps: 3}},
		Requests: []plan.Request{
			{Name: "vm00", VCPUs: 4, Threads: 2, Cores: 2, Pages: 4, GuestNUMA: "auto", Class: 0,
				GPUs: []plan.Want{{Count: 2, Any: []int{0, 1, 2}, Text: "2"}},
				NICs: []plan.Want{{Count: 1, Any: []int{3}, Text: "1"}}},
			{Name: "vm01", VCPUs: 2, Threads: 1, Cores: 2, Pages: 2, GuestNUMA: "auto", Class: 1,
				GPUs: []plan.Want{{Count: 1, Any: []int{0, 1, 2}, Text: "1"}},
				VFs:  []plan.Want{{Count: 2, Any: []int{4}, Text: "2"}}},
			{Name: "vm02", VCPUs: 4, Threads: 2, Cores: 2, Pages: 2, GuestNUMA: "auto", Class: 2,
				VFs: []plan.Want{{Count: 1, Any: []int{4}, Text: "1"}}},
			{Name: "vm03", VCPUs: 4, Threads: 2, Cores: 2, Pages: 2, GuestNUMA: "auto", Class: 2,
				VFs: []plan.Want{{Count: 1, Any: []int{4}, Text: "1"}}}},
		Affinity: []plan.Affinity{{Requests: []int{0, 1}, NUMA: plan.Different, NIC: plan.Different}},
		Weights:  plan.DefaultWeights(lab.WorkloadMixed),
	}
	for c := range 12 {
		p.Cores = append(p.Cores, plan.Core{ID: c, CPUs: []int{c, c + 12}, NUMANode: c / 6, Package: c / 6, L3: c / 3})
	}
	p.Cores[3].Tenant = "web"
	return p
}

// checkPlan was computed by hand from docs/planner.md. vm00 is on node 0, vm01 on node 1, and vm02 and vm03 have a core
// on each; the memory of vm03 is all on node 0, so that its guest has one cell.
func checkPlan() *plan.Plan {
	memory := func(pages ...uint64) []plan.NodeMemory {
		var all []plan.NodeMemory
		for node, n := range pages {
			if n > 0 {
				all = append(all, plan.NodeMemory{NUMANode: node, Bytes: n * checkGiB, PageBytes: checkGiB})
			}
		}
		return all
	}
	vf := func(index, cell int, name string) plan.NodeDevice {
		return plan.NodeDevice{ID: "0000:41:00.0", Kind: plan.KindVF, VF: &index, Functions: []string{name},
			NUMANode: new(1),
			Cell:     &cell}
	}
	pl := &plan.Plan{
		Schema: plan.Schema, Lab: "pair", Workload: lab.WorkloadMixed, Host: plan.HostRef{Name: "two packages"},
		Optimal: true,
		Housekeeping: plan.Housekeeping{CPUs: topology.CPUs(0, 10, 11, 12, 22, 23), Cores: 3,
			TenantCPUs: topology.CPUs(3,
				15)},
		Nodes: []plan.Node{{
			Name: "vm00", VCPUs: []int{1, 13, 2, 14}, Cores: 2, Threads: 2, SMT: true,
			EmulatorCPUs: topology.CPUs(0, 12), IOThreadCPUs: topology.CPUs(0, 12), MemoryBytes: 4 * checkGiB,
			Memory:  memory(4),
			Cells:   []plan.Cell{{NUMANodes: []int{0}, VCPUs: 4, Bytes: 4 * checkGiB, Distances: []int{10}}},
			Devices: []string{"0000:06:00.0", "0000:06:00.1", "0000:07:00.0", "0000:05:00.0"},
			Cards: []plan.NodeDevice{
				{ID: "0000:06:00.0", Kind: plan.KindGPU, Functions: []string{"0000:06:00.0", "0000:06:00.1"},
					NUMANode: new(0), Cell: new(0)},
				{ID: "0000:07:00.0", Kind: plan.KindGPU, Functions: []string{"0000:07:00.0"}, NUMANode: new(0),
					Cell: new(0)},
				{ID: "0000:05:00.0", Kind: plan.KindNIC, Functions: []string{"0000:05:00.0"}, NUMANode: new(0),
					Cell: new(0)}},
			NICs: checkNICs(0, 1),
		}, {
			Name: "vm01", VCPUs: []int{6, 7}, Cores: 2, Threads: 1,
			EmulatorCPUs: topology.CPUs(10, 22), IOThreadCPUs: topology.CPUs(10, 22), MemoryBytes: 2 * checkGiB,
			Memory:  memory(0, 2),
			Cells:   []plan.Cell{{NUMANodes: []int{1}, VCPUs: 2, Bytes: 2 * checkGiB, Distances: []int{10}}},
			Devices: []string{"0000:81:00.0", "0000:41:00.3", "0000:41:00.0/vf2"},
			Cards: []plan.NodeDevice{
				{ID: "0000:81:00.0", Kind: plan.KindGPU, Functions: []string{"0000:81:00.0"}, NUMANode: new(1),
					Cell: new(0)},
				vf(1, 0, "0000:41:00.3"), vf(2, 0, "0000:41:00.0/vf2")},
			NICs: checkNICs(1, 2),
		}, {
			Name: "vm02", VCPUs: []int{4, 16, 8, 20}, Cores: 2, Threads: 2, SMT: true,
			EmulatorCPUs: topology.CPUs(0, 12), IOThreadCPUs: topology.CPUs(0, 12), MemoryBytes: 2 * checkGiB,
			Memory: memory(1, 1), GuestNUMA: true,
			Cells: []plan.Cell{
				{Cell: 0, NUMANodes: []int{0}, VCPUs: 2, Bytes: checkGiB, Distances: []int{10, 21}},
				{Cell: 1, NUMANodes: []int{1}, FirstVCPU: 2, VCPUs: 2, Bytes: checkGiB, Distances: []int{21, 10}}},
			Devices: []string{"0000:41:00.0/vf3"}, Cards: []plan.NodeDevice{vf(3, 1, "0000:41:00.0/vf3")},
			NICs: checkNICs(2, 1),
		}, {
			Name: "vm03", VCPUs: []int{5, 17, 9, 21}, Cores: 2, Threads: 2, SMT: true,
			EmulatorCPUs: topology.CPUs(11, 23), MemoryBytes: 2 * checkGiB, Memory: memory(2),
			Cells:   []plan.Cell{{NUMANodes: []int{0, 1}, VCPUs: 4, Bytes: 2 * checkGiB, Distances: []int{10}}},
			Devices: []string{"0000:41:00.0/vf4"}, Cards: []plan.NodeDevice{vf(4, 0, "0000:41:00.0/vf4")},
			NICs: checkNICs(3, 1),
		}},
		Hugepages: []plan.Hugepages{{NUMANode: 0, PageBytes: checkGiB, Count: 7}, {NUMANode: 1, PageBytes: checkGiB,
			Count: 3}},
		VFs: []plan.PFCount{{PF: "0000:41:00.0", Count: 5, Lab: 4}},
		KernelArgs: []string{"iommu=pt", "isolcpus=managed_irq,domain,1-2,4-9,13-14,16-21",
			"nohz_full=1-2,4-9,13-14,16-21", "hugepagesz=1G", "hugepages=0:7,1:3"},
		KernelWhy: []string{"", "", "", "", ""},
	}
	term := func(node, name string, value, weight int64) {
		t := plan.Term{Node: node, Term: name, Value: value, Weight: weight, Cost: value * weight}
		if node == "" {
			t.Among = []string{"vm02", "vm03"}
		}
		pl.Terms = append(pl.Terms, t)
		pl.Cost += t.Cost
	}
	term("vm00", plan.TermGPUNICPath, 2+2, 600)  // both GPUs to the one NIC, PHB
	term("vm00", plan.TermGPUGPUPath, 1, 150)    // PXB
	term("vm00", plan.TermDeviceNearest, 0, 200) //
	term("vm00", plan.TermDeviceDistance, 0, 17) // 100 over 2 cores and 3 devices
	term("vm00", plan.TermDeviceShare, 0, 33)    // all devices are on one node
	term("vm00", plan.TermNUMASpan, 0, 200)
	term("vm00", plan.TermCoreBalance, 0, 0)
	term("vm00", plan.TermNICRate, 0, 200)
	term("vm00", plan.TermNICRDMA, 0, 2000)
	term("vm00", plan.TermMemoryDistance, 0, 75) // 300 over 4 pages
	term("vm00", plan.TermMemoryBalance, 0, 250)
	term("vm00", plan.TermL3Shared, 0, 100) // L3 0 is only shared with housekeeping
	term("vm00", plan.TermEmulatorDistance, 0, 20)
	term("vm01", plan.TermGPUNICPath, 3+3, 600) // two ports, each to the one GPU, NODE
	term("vm01", plan.TermDeviceNearest, 0, 200)
	term("vm01", plan.TermDeviceDistance, 0, 17)
	term("vm01", plan.TermDeviceShare, 0, 33)
	term("vm01", plan.TermNUMASpan, 0, 200)
	term("vm01", plan.TermCoreBalance, 0, 0)
	term("vm01", plan.TermNICRate, 1+1, 200) // 25 Gb/s
	term("vm01", plan.TermNICRDMA, 0, 2000)
	term("vm01", plan.TermNICShared, 2, 300) // with vm02 and vm03
	term("vm01", plan.TermMemoryDistance, 0, 150)
	term("vm01", plan.TermMemoryBalance, 0, 500)
	term("vm01", plan.TermL3Shared, 1, 100) // L3 2 with vm02
	term("vm01", plan.TermEmulatorDistance, 0, 20)
	for _, vm := range []string{"vm02", "vm03"} {
		term(vm, plan.TermDeviceNearest, 0, 200)
		term(vm, plan.TermDeviceDistance, 11, 50) // distance from the core on node 0
		term(vm, plan.TermDeviceShare, 0, 100)
		term(vm, plan.TermNUMASpan, 1, 200)
		term(vm, plan.TermCoreBalance, 0, 0)
		term(vm, plan.TermNICRate, 1, 200)
		term(vm, plan.TermNICRDMA, 0, 2000)
		term(vm, plan.TermNICShared, 2, 300)
		term(vm, plan.TermMemoryDistance, 0, 150)
		if vm == "vm02" {
			term(vm, plan.TermMemoryBalance, 0, 500)
			term(vm, plan.TermL3Shared, 2, 100) // L3 1 with vm03 and web, L3 2 with vm01
		} else {
			term(vm, plan.TermMemoryBalance, 1, 500) // the page missing on node 1
			term(vm, plan.TermL3Shared, 1, 100)      // L3 1 with vm02 and web; L3 3 is only shared with housekeeping
		}
		term(vm, plan.TermEmulatorDistance, 0, 20)
	}
	term("", plan.TermUnequal, 0, 10)
	pl.Bound = pl.Cost
	return pl
}
