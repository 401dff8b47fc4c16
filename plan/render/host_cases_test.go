package render

import (
	"fmt"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func withLab(t testing.TB, in Input, file string) Input {
	t.Helper()
	l, err := lab.Parse("lab.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	in.Lab, in.Plan.Lab, in.Plan.Workload = l, l.Name, l.Workload
	in.Plan.Optimal, in.Plan.Cost, in.Plan.Bound = true, 1240, 1240
	pages := map[int]int64{}
	page := uint64(0)
	for i := range in.Plan.Nodes {
		n := &in.Plan.Nodes[i]
		n.NICs = l.Nodes[i].NICs
		for _, m := range n.Memory {
			if page = m.PageBytes; page > 0 {
				pages[m.NUMANode] += int64(m.Bytes / page)
			}
		}
	}
	p := in.Plan
	p.Hugepages, p.VFs, p.Terms, p.Decisions, p.Advice, p.Notes = []plan.Hugepages{}, []plan.PFCount{}, []plan.Term{},
		[]plan.Decision{}, []plan.Advice{}, []string{}
	counts := ""
	for node := range 8 {
		if pages[node] > 0 {
			p.Hugepages = append(p.Hugepages, plan.Hugepages{NUMANode: node, PageBytes: page, Count: pages[node]})
			counts += fmt.Sprintf(",%d:%d", node, pages[node])
		}
	}
	v, err := newView(in)
	if err != nil {
		t.Fatal(err)
	}
	list := v.given.String()
	p.Housekeeping.CPUs = in.Host.CPUs.Online.Difference(v.given)
	p.KernelArgs = []string{"iommu=pt", "isolcpus=managed_irq,domain," + list, "nohz_full=" + list, "rcu_nocbs=" + list}
	p.KernelWhy = []string{
		"devices that the host keeps are not slowed down by the IOMMU",
		"nothing of the host is scheduled on the CPUs of the lab nodes, nor its managed interrupts",
		"no timer tick while a virtual CPU runs alone", "the kernel's callbacks run on housekeeping CPUs",
	}
	if counts != "" {
		size := map[uint64]string{gib: "1G", 2 * mib: "2M"}[page]
		p.KernelArgs = append(p.KernelArgs, "hugepagesz="+size, "hugepages="+counts[1:])
		p.KernelWhy = append(p.KernelWhy, "the size of the pages that are set aside next",
			"pages are set aside while memory is still in one piece")
	}
	return in
}

type hostCase struct {
	name string
	in   func(testing.TB) Input
}

func hostCases() []hostCase {
	return []hostCase{{"epyc-pair", hostEPYC}, {"h20-vfs", hostH20}, {"r740-vf", hostR740}}
}

// hostEPYC has whole NICs with unknown addresses, and kernel arguments of a manual plan.
func hostEPYC(t testing.TB) Input {
	return withLab(t, epycPair(t), "name: epyc-pair\nworkload: rdma-latency\nnodes:\n  vm: {count: 2, cpus: 28, "+
		"memory: 32GiB, gpus: 1}\n")
}

func dualSocket(cores int) *topology.Host {
	h := intelHost()
	h.System.Vendor, h.System.Arch = "Dell Inc.", "x86_64"
	h.CPUs = topology.CPUStates{Online: topology.CPURange(0, 4*cores-1), SMT: "on"}
	enabled := true
	h.IOMMU.Enabled = &enabled
	h.Kernel = topology.Kernel{Release: "6.8.0-45-generic",
		Cmdline: new("BOOT_IMAGE=/vmlinuz root=/dev/sda2 ro quiet isolcpus=2-5 hugepagesz=2M hugepages=512")}
	for s := range 2 {
		first := s * cores
		cpus := topology.CPURange(first, first+cores-1).Union(topology.CPURange(first+2*cores, first+3*cores-1))
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: s, CPUs: cpus, Distances: [][]int{{10, 21},
			{21, 10}}[s]})
		h.Packages = append(h.Packages, topology.Package{ID: s, CPUs: cpus})
		for c := first; c < first+cores; c++ {
			h.Cores = append(h.Cores, topology.Core{ID: c, Package: new(s), NUMANode: new(s),
				CPUs: topology.CPUs(c, c+2*cores)})
		}
	}
	return h
}

func addNIC(t testing.TB, h *topology.Host, address, netdev, mac string, mbps int64, node int) {
	t.Helper()
	a := addr(t, address)
	s := &topology.SRIOV{Total: new(16), Enabled: new(0), Offset: new(2), Stride: new(1), VFs: []topology.VF{}}
	h.PCI = append(h.PCI, topology.PCIDevice{
		Address: a, Class: new(topology.ID24(0x020000)), Vendor: new(topology.ID16(0x15b3)),
		Device: new(topology.ID16(0x1021)), Driver: "mlx5_core", SRIOV: s,
	})
	h.NICs = append(h.NICs, topology.NIC{
		Address: &a, Netdevs: []string{netdev}, RDMA: []string{"mlx5_0"}, Driver: "mlx5_core", SRIOV: s,
		SpeedMbps: &mbps, NUMANode: &node,
		Ports: []topology.Netdev{{Name: netdev, MAC: mac, DevPort: new(0)}},
	})
}

// hostH20 has a GPU and a virtual function of the same socket in each lab node. One node also has a whole NIC.
func hostH20(t testing.TB) Input {
	h := dualSocket(48)
	h.System.Product, h.System.CPUModel = "8-GPU server", "Intel(R) Xeon(R) Platinum 8469C"
	addNIC(t, h, "0000:12:00.0", "ens3np0", "b8:3f:d2:00:12:00", 400_000, 0)
	addNIC(t, h, "0000:91:00.0", "ens5np0", "b8:3f:d2:00:91:00", 400_000, 1)
	addNIC(t, h, "0000:a1:00.0", "ens6np0", "b8:3f:d2:00:a1:00", 200_000, 1)
	var shapes []shape
	given := []int{0, 0}
	for i := range 8 {
		s := i / 4
		gpu := fmt.Sprintf("0000:%02x:00.0", []int{0x08, 0x0e, 0x1c, 0x2a, 0x87, 0x8d, 0x9b, 0xa8}[i])
		h.PCI = append(h.PCI, topology.PCIDevice{
			Address: addr(t, gpu), Class: new(topology.ID24(0x030200)), Vendor: new(topology.ID16(0x10de)),
			Device: new(topology.ID16(0x2329)), Driver: "nvidia",
			BARs: []topology.BAR{{Index: 2, SizeBytes: 128 * gib, Bits64: true, Prefetchable: true}},
		})
		pf := []string{"0000:12:00.0", "0000:91:00.0"}[s]
		cards := []plan.NodeDevice{card("gpu", "GH100 [H20]", s, 0, gpu)}
		nics := 1
		if i == 7 {
			cards, nics = append(cards, card("nic", "MT2910 Family [ConnectX-7]", 1, 0, "0000:a1:00.0")), 2
		}
		cards = append(cards, vfCard(pf, given[s], s, 0, fmt.Sprintf("%s/vf%d", pf, given[s])))
		given[s]++
		first := 48*s + 1 + 10*(i%4)
		shapes = append(shapes, shape{
			name: fmt.Sprintf("vm%02d", i), threads: 2, page: gib, house: []int{48 * s, 48*s + 96}, nics: nics,
			cards: cards,
			cells: [][]home{{{s, siblings(first, first+9, 96), 64 * gib}}}, flat: true,
		})
	}
	in := withLab(t, input("h20-vfs", "h20", h, shapes...), "name: h20-vfs\nworkload: gpu-collective\nnodes:\n"+
		"  vm: {count: 7, cpus: 20, memory: 64GiB, gpus: 1}\n  vm07: {cpus: 20, memory: 64GiB, gpus: 1, nics: 2}\n")
	in.Plan.VFs = []plan.PFCount{{PF: "0000:12:00.0", Count: 4, Lab: 4}, {PF: "0000:91:00.0", Count: 4, Lab: 4}}
	return in
}

// hostR740 has one large guest, a virtual function, and an existing virtual machine.
func hostR740(t testing.TB) Input {
	h := dualSocket(24)
	h.System.Product, h.System.CPUModel = "PowerEdge R740", "Intel(R) Xeon(R) Gold 6248R CPU @ 3.00GHz"
	h.Kernel.Release = "5.14.0-503.el9.x86_64"
	h.Memory.DefaultHuge = new(uint64(2 * mib))
	addNIC(t, h, "0000:3b:00.0", "ens1f0np0", "0c:42:a1:00:3b:00", 100_000, 0)
	h.Tenants = []topology.Tenant{{Name: "build server", State: "running", VCPUs: 2}}
	in := withLab(t, input("r740", "r740", h, shape{
		name: "vm", threads: 1, page: 2 * mib, farther: 21, house: []int{0, 48}, nics: 1,
		cells: [][]home{{{0, span(2, 23), 72 * gib}}, {{1, span(24, 45), 72 * gib}}},
		cards: []plan.NodeDevice{vfCard("0000:3b:00.0", 3, 0, 0, "0000:3b:00.0/vf3")},
	}), "name: r740\nworkload: cpu-bandwidth\nfabric: {mtu: 9000}\nnodes:\n  vm: {cpus: 44, memory: 144GiB}\n")
	in.Plan.VFs = []plan.PFCount{{PF: "0000:3b:00.0", Count: 4, Lab: 1}}
	in.Plan.KernelArgs = append([]string{"intel_iommu=on"}, in.Plan.KernelArgs...)
	in.Plan.KernelWhy = append([]string{"the IOMMU of Intel is off unless the kernel was built otherwise"},
		in.Plan.KernelWhy...)
	return in
}
