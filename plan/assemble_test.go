package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

func smallHost() *topology.Host {
	return &topology.Host{System: topology.System{Arch: "x86_64", CPUModel: "Intel(R) Xeon(R)"}}
}

func labOf(p *Problem) *lab.Lab {
	l := &lab.Lab{Name: p.Lab, Workload: p.Workload}
	for _, r := range p.Requests {
		l.Nodes = append(l.Nodes, lab.Node{Name: r.Name, CPUs: r.VCPUs, NICs: []lab.NIC{{Name: "eth0"}}})
	}
	return l
}

func assemble(p *Problem, h *topology.Host, nodes ...NodePlacement) *Plan {
	return Assemble(h, labOf(p), p, Outcome{Placement: Placement{Nodes: nodes}, Optimal: true})
}

func TestAssembleOrdersVirtualCPUsByGuestCell(t *testing.T) {
	t.Parallel()
	zero, one := 0, 1
	local := NodePlacement{Cores: []int{0, 1}, Memory: []NodePage{{0, 4}}, GPUs: []int{0}, NICs: []int{2}}
	gpuAndNIC := []NodeDevice{
		{ID: "0000:01:00.0", Kind: KindGPU, Functions: []string{"0000:01:00.0", "0000:01:00.1"}, NUMANode: &zero,
			Cell: &zero},
		{ID: "0000:02:00.0", Kind: KindNIC, Functions: []string{"0000:02:00.0"}, NUMANode: &zero, Cell: &zero},
	}
	const page = 1 << 30
	for _, tt := range []struct {
		name  string
		setup func(*Problem, *NodePlacement)
		vcpus []int
		cells []Cell
		cards []NodeDevice
	}{
		{"one NUMA node is one cell, with siblings side by side", func(*Problem, *NodePlacement) {}, []int{0, 8, 1, 9},
			[]Cell{{NUMANodes: []int{0}, VCPUs: 4, Bytes: 4 * page, Distances: []int{10}}}, gpuAndNIC},
		{"two NUMA nodes are two cells with the host's distances, and a device is on its own",
			func(_ *Problem, n *NodePlacement) {
				n.Cores, n.Memory, n.NICs = []int{1, 4}, []NodePage{{0, 2}, {1, 2}}, []int{3}
			}, []int{1, 9, 4, 12}, []Cell{
				{NUMANodes: []int{0}, VCPUs: 2, Bytes: 2 * page, Distances: []int{10, 21}},
				{Cell: 1, NUMANodes: []int{1}, FirstVCPU: 2, VCPUs: 2, Bytes: 2 * page, Distances: []int{21, 10}},
			}, []NodeDevice{gpuAndNIC[0], {ID: "0000:82:00.0", Kind: KindNIC, Functions: []string{"0000:82:00.0"},
				NUMANode: &one, Cell: &one}}},
		{"memory alone is a cell without CPUs", func(_ *Problem, n *NodePlacement) {
			n.Memory = []NodePage{{0, 3}, {1, 1}}
		}, []int{0, 8, 1, 9}, []Cell{
			{NUMANodes: []int{0}, VCPUs: 4, Bytes: 3 * page, Distances: []int{10, 21}},
			{Cell: 1, NUMANodes: []int{1}, FirstVCPU: 4, Bytes: page, Distances: []int{21, 10}},
		}, gpuAndNIC},
		{"cores without memory join the nearest cell with memory", func(_ *Problem, n *NodePlacement) {
			n.Cores = []int{0, 4}
		}, []int{0, 8, 4, 12},
			[]Cell{{NUMANodes: []int{0, 1}, VCPUs: 4, Bytes: 4 * page, Distances: []int{10}}}, gpuAndNIC},
		{"guest_numa off is one cell for all", func(p *Problem, n *NodePlacement) {
			p.Requests[0].GuestNUMA = "off"
			n.Cores, n.Memory = []int{0, 4}, []NodePage{{0, 2}, {1, 2}}
		}, []int{0, 8, 4, 12}, []Cell{{NUMANodes: []int{0, 1}, VCPUs: 4, Bytes: 4 * page, Distances: []int{10}}},
			gpuAndNIC},
		{"without SMT the siblings stay idle", func(p *Problem, _ *NodePlacement) {
			p.Requests[0].Threads, p.Requests[0].VCPUs = 1, 2
		}, []int{0, 1},
			[]Cell{{NUMANodes: []int{0}, VCPUs: 2, Bytes: 4 * page, Distances: []int{10}}}, gpuAndNIC},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, n := smallProblem(), local
			tt.setup(p, &n)
			node := assemble(p, smallHost(), n).Nodes[0]
			if diff := cmp.Diff(tt.vcpus, node.VCPUs); diff != "" {
				t.Errorf("virtual CPUs (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.cells, node.Cells); diff != "" {
				t.Errorf("cells (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.cards, node.Cards); diff != "" {
				t.Errorf("cards (-want +got)\n%s", diff)
			}
		})
	}
}

func TestAssembleKeepsEmulatorThreadsOffTheVirtualCPUs(t *testing.T) {
	t.Parallel()
	p, _ := twoNodes()
	p.Requests = append(p.Requests, p.Requests[0])
	p.Requests[2].Name = "vm02"
	pl := assemble(p, smallHost(),
		NodePlacement{Cores: []int{0, 1}, Memory: []NodePage{{0, 4}}},
		NodePlacement{Cores: []int{4, 5}, Memory: []NodePage{{1, 4}}},
		NodePlacement{Cores: []int{6, 7}, Memory: []NodePage{{1, 4}}})
	if got := pl.Housekeeping.CPUs.String(); got != "2-3,10-11" || pl.Housekeeping.Cores != 2 {
		t.Errorf("the host keeps CPUs %s, %d cores; want 2-3,10-11", got, pl.Housekeeping.Cores)
	}
	for i, want := range []string{"2,10", "3,11", "2,10"} {
		if got := pl.Nodes[i].EmulatorCPUs.String(); got != want {
			t.Errorf("%s has emulator CPUs %s, want %s: lab nodes take turns", pl.Nodes[i].Name, got, want)
		}
	}
}

func TestAssembleHandsOutVirtualFunctions(t *testing.T) {
	t.Parallel()
	p, _ := twoNodes()
	p.Devices[2].FreeVFs = []int{1, 2, 3}
	enabled, index := 2, 1
	pf, _ := topology.ParsePCIAddr("0000:02:00.0")
	vf, _ := topology.ParsePCIAddr("0000:02:00.3")
	h := smallHost()
	h.NICs = []topology.NIC{{Address: &pf, SRIOV: &topology.SRIOV{Enabled: &enabled,
		VFs: []topology.VF{{Index: index, Address: &vf}}}}}
	pl := assemble(p, h,
		NodePlacement{Cores: []int{0, 1}, Memory: []NodePage{{0, 4}}, VFs: []VFCount{{2, 1}}},
		NodePlacement{Cores: []int{4, 5}, Memory: []NodePage{{1, 4}}, VFs: []VFCount{{2, 1}}})
	if diff := cmp.Diff([]string{"0000:02:00.3"}, pl.Nodes[0].Devices); diff != "" {
		t.Errorf("one that exists goes by its address (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0000:02:00.0/vf2"}, pl.Nodes[1].Devices); diff != "" {
		t.Errorf("one to come goes by its PF (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]PFCount{{PF: "0000:02:00.0", Count: 3, Lab: 2}}, pl.VFs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAssembleGivesABundleWholeAndNamesEachFunctionOnce(t *testing.T) {
	t.Parallel()
	p := smallProblem()
	group := []string{"0000:01:00.0", "0000:01:00.1", "0000:81:00.0"}
	p.Devices[0].Functions, p.Devices[1].Functions = group, []string{"0000:81:00.0", "0000:01:00.0", "0000:01:00.1"}
	p.Devices[1].Bundle = 0
	n := NodePlacement{Cores: []int{0, 1}, Memory: []NodePage{{0, 4}}, GPUs: []int{0, 1}}
	if diff := cmp.Diff(group, assemble(p, smallHost(), n).Nodes[0].Devices); diff != "" {
		t.Errorf("both GPUs (-want +got)\n%s", diff)
	}
	n.GPUs = []int{1}
	if diff := cmp.Diff(p.Devices[1].Functions, assemble(p, smallHost(), n).Nodes[0].Devices); diff != "" {
		t.Errorf("one of them brings the other along (-want +got)\n%s", diff)
	}
}

func TestKernelArguments(t *testing.T) {
	t.Parallel()
	n := NodePlacement{Cores: []int{1, 4}, Memory: []NodePage{{0, 2}, {1, 2}}, GPUs: []int{0}}
	const isolated = "isolcpus=managed_irq,domain,1,4,9,12 nohz_full=1,4,9,12 rcu_nocbs=1,4,9,12"
	free := uint64(3)
	for _, tt := range []struct {
		name  string
		setup func(*Problem, *topology.Host)
		want  string
	}{
		{"Intel", func(*Problem, *topology.Host) {}, "intel_iommu=on iommu=pt " + isolated +
			" hugepagesz=1G hugepages=0:2,1:2"},
		{"AMD has its IOMMU on", func(_ *Problem, h *topology.Host) {
			h.System.CPUModel = "AMD EPYC 7551P"
		}, "iommu=pt " + isolated + " hugepagesz=1G hugepages=0:2,1:2"},
		{"unknown vendor", func(_ *Problem, h *topology.Host) {
			h.System.CPUModel = ""
		}, "iommu=pt " + isolated + " hugepagesz=1G hugepages=0:2,1:2"},
		{"a host bridge of Intel", func(_ *Problem, h *topology.Host) {
			h.System.CPUModel = "QEMU Virtual CPU version 2.5+"
			h.PCI = []topology.PCIDevice{{Class: new(topology.ID24(0x060000)), Vendor: new(topology.VendorIntel)}}
		}, "intel_iommu=on iommu=pt " + isolated + " hugepagesz=1G hugepages=0:2,1:2"},
		{"Arm", func(_ *Problem, h *topology.Host) {
			h.System.Arch = "aarch64"
		}, "iommu.passthrough=1 " + isolated + " hugepagesz=1G hugepages=0:2,1:2"},
		{"small pages", func(p *Problem, _ *topology.Host) {
			p.PageBytes, p.HugepageBytes = 2<<20, 2<<20
		}, "intel_iommu=on iommu=pt " + isolated + " hugepagesz=2M hugepages=0:2,1:2"},
		{"no hugepages", func(p *Problem, _ *topology.Host) {
			p.HugepageBytes = 0
		}, "intel_iommu=on iommu=pt " + isolated},
		{"pages that tenants hold are kept", func(_ *Problem, h *topology.Host) {
			h.NUMANodes = []topology.NUMANode{{ID: 1, Hugepages: []topology.HugepagePool{{SizeBytes: 1 << 30, Total: 8,
				Free: &free}}}}
		}, "intel_iommu=on iommu=pt " + isolated + " hugepagesz=1G hugepages=0:2,1:7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, h := smallProblem(), smallHost()
			tt.setup(p, h)
			pl := assemble(p, h, n)
			if got := strings.Join(pl.KernelArgs, " "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if len(pl.KernelWhy) != len(pl.KernelArgs) {
				t.Errorf("%d arguments, %d reasons", len(pl.KernelArgs), len(pl.KernelWhy))
			}
		})
	}
}

func TestEmulatorHasACoreOnEachNUMANodeOfHugepages(t *testing.T) {
	t.Parallel()
	host := smallHost()
	for n := range 2 {
		host.NUMANodes = append(host.NUMANodes, topology.NUMANode{ID: n, CPUs: topology.CPURange(4*n, 4*n+3).Union(
			topology.CPURange(4*n+8, 4*n+11))})
	}
	own := NodePlacement{Cores: []int{1, 5}, Memory: []NodePage{{0, 2}, {1, 2}}, GPUs: []int{0}, NICs: []int{2}}
	for _, tt := range []struct {
		name         string
		setup        func(*Problem, *NodePlacement)
		emulator, io string
	}{
		{"one on each", func(*Problem, *NodePlacement) {}, "0,4,8,12", "0,8"},
		{"memory on one", func(_ *Problem, n *NodePlacement) { n.Memory = []NodePage{{0, 4}} }, "0,8", "0,8"},
		{"no hugepages", func(p *Problem, _ *NodePlacement) { p.HugepageBytes = 0 }, "0,8", "0,8"},
		{"a core that the host does not isolate", func(p *Problem, _ *NodePlacement) {
			p.Cores[0].Isolated, p.Cores[4].Isolated = true, true
		}, "2,6,10,14", "2,10"},
		{"all of a node are isolated: one CPU of it", func(p *Problem, _ *NodePlacement) {
			for c := range 4 {
				p.Cores[c].Isolated = true
			}
		}, "0,4,12", "4,12"},
	} {
		p, n := smallProblem(), own
		tt.setup(p, &n)
		pl := assemble(p, host, n)
		got := &pl.Nodes[0]
		if got.EmulatorCPUs.String() != tt.emulator || got.IOThreadCPUs.String() != tt.io {
			t.Errorf("%s: emulator %s and I/O threads %s, want %s and %s", tt.name, got.EmulatorCPUs, got.IOThreadCPUs,
				tt.emulator, tt.io)
		}
		if pin := pl.EmulatorPin(got, host); !pin.Equal(got.EmulatorCPUs) {
			t.Errorf("%s: the domain has %s, the plan %s", tt.name, pin, got.EmulatorCPUs)
		}
	}
}
