package hostview

import (
	"fmt"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// The hosts are built here, so that changes of a reader do not change golden files. Real machines are in
// corpus_test.go.

type hostCase struct {
	name     string
	host     *topology.Host
	findings []finding.Finding
}

func hostCases() []hostCase {
	return []hostCase{
		{"epyc-4-nodes", epyc(), epycFindings()},
		{"laptop-hybrid", laptop(), nil},
		{"dgx-8gpu-10nic", dgx(), dgxFindings()},
		{"grid-64-nodes", grid64(), nil},
		{"matrix-only", matrixOnly(), nil},
		{"memory-only-nodes", memoryOnly(), nil},
		{"arm-128vfs", armVFs(), armFindings()},
		{"nothing", nothing(), nil},
	}
}

func addr(s string) topology.PCIAddr {
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		panic(err)
	}
	return a
}

func set(list string) topology.CPUSet {
	s, err := topology.ParseCPUSet(list)
	if err != nil {
		panic(err)
	}
	return s
}

const gib = 1 << 30

// link runs at generation gen with lanes lanes, and could at mostGen with most.
func link(gen, lanes, mostGen, most int) *topology.Link {
	gts := func(g int) *float64 { return new([]float64{0, 2.5, 5, 8, 16, 32, 64}[g]) }
	return &topology.Link{SpeedGTs: gts(gen), Width: new(lanes), MaxSpeedGTs: gts(mostGen), MaxWidth: new(most)}
}

func port(h *topology.Host, at, parent, root string, node int, secondary, subordinate uint8, l *topology.Link) {
	d := topology.PCIDevice{
		Address: addr(at), Root: root, Class: new(topology.ID24(0x060400)), Vendor: new(topology.VendorAMD),
		NUMANode: new(node), Link: l,
		Driver: "pcieport", DriverKnown: true, Bridge: &topology.Bridge{Secondary: secondary, Subordinate: subordinate,
			Port: "root port"},
	}
	if parent != "" {
		d.Parent = new(addr(parent))
		d.Bridge.Port = "downstream port"
	}
	h.PCI = append(h.PCI, d)
}

// function returns a pointer that is valid until the next call.
func function(h *topology.Host, at, parent, root string, node int, class topology.ID24, vendor, device topology.ID16,
	name string, l *topology.Link) *topology.PCIDevice {
	d := topology.PCIDevice{
		Address: addr(at), Root: root, Class: new(class), Vendor: new(vendor), Device: new(device), DeviceName: name,
		Link: l, DriverKnown: true,
	}
	if node >= 0 {
		d.NUMANode = new(node)
	}
	if parent != "" {
		d.Parent = new(addr(parent))
	}
	h.PCI = append(h.PCI, d)
	return &h.PCI[len(h.PCI)-1]
}

// epyc has four nodes with two GPUs and two dual-port NICs on a node each, and two virtual machines on isolated CPUs.
func epyc() *topology.Host {
	h := &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceTree, Name: "epyc.tar.zst"},
		System: topology.System{Vendor: "Supermicro", Product: "AS-1023US-TR4", Arch: "x86_64",
			CPUModel: "AMD EPYC 7551P 32-Core Processor", InVM: new(false)},
		Packages: []topology.Package{{ID: 0, CPUs: set("0-63"), Model: "AMD EPYC 7551P 32-Core Processor"}},
		CPUs: topology.CPUStates{Online: set("0-63"), Isolated: new(set("2-29,34-61")),
			NoHzFull: new(set("2-29,34-61")), SMT: "on"},
		Memory: topology.Memory{TotalBytes: new(uint64(250 * gib)), SwapKnown: true, NUMABalancing: "0", THP: "madvise",
			Hugepages: []topology.HugepagePool{{SizeBytes: gib, Total: 64, Free: new(uint64(20))}}},
		Kernel: topology.Kernel{Release: "6.8.0-45-generic", Cmdline: new("iommu=pt isolcpus=2-29,34-61 hugepages=64"),
			Asked: []topology.KernelParameter{
				{Name: "iommu", Asked: "pt"}, {Name: "isolcpus", Asked: "2-29,34-61", InForce: new("2-29,34-61"),
					Source: "/sys/devices/system/cpu/isolated"},
				{Name: "hugepages", Asked: "64", InForce: new("64"),
					Source: "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"}}},
		Storage: []topology.Disk{{Name: "nvme0n1", PCI: new(addr("0000:01:00.0")), NUMANode: new(0),
			SizeBytes: new(uint64(1920383410176)), Model: "SAMSUNG MZQLB1T9HAJR-00007",
			Mounts: []string{"/", "/boot/efi"}}},
		Routes: []topology.Route{{Family: "ipv4", Netdev: "eno1", Gateway: "192.0.2.1",
			PCI: []string{"0000:02:00.0"}}},
		Tenants: []topology.Tenant{
			{Name: "vm00", State: "running", VCPUs: 2, Pins: []topology.Pin{{VCPU: 0, CPUs: set("2")},
				{VCPU: 1, CPUs: set("34")}}, MemoryBytes: new(uint64(32 * gib)), MemoryNodes: new(set("0,2")),
				Devices: []topology.TenantDevice{{PCI: addr("0000:06:00.0"), Managed: true},
					{PCI: addr("0000:41:00.0"), Managed: true}}},
			{Name: "scratch", State: "shut off"},
		},
	}
	for n := range 4 {
		distances := []int{16, 16, 16, 16}
		distances[n] = 10
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: n,
			CPUs:        set(fmt.Sprintf("%d-%d,%d-%d", 8*n, 8*n+7, 8*n+32, 8*n+39)),
			MemoryBytes: new(uint64(67108864000)), FreeBytes: new(uint64(31 * gib)), Distances: distances,
			Hugepages: []topology.HugepagePool{{SizeBytes: 2 << 20, Total: 0, Free: new(uint64(0))},
				{SizeBytes: gib, Total: 16, Free: new(uint64(5))}}})
	}
	for c := range 32 {
		h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(c, c+32), Package: new(0), NUMANode: new(c / 8),
			Governor: "performance"})
	}
	for x := range 8 {
		h.L3 = append(h.L3, topology.L3{CPUs: set(fmt.Sprintf("%d-%d,%d-%d", 4*x, 4*x+3, 4*x+32, 4*x+35)),
			SizeBytes: new(uint64(8 << 20))})
	}
	port(h, "0000:00:01.1", "", "pci0000:00", 0, 1, 1, link(3, 4, 3, 4))
	port(h, "0000:00:01.2", "", "pci0000:00", 0, 2, 2, link(2, 1, 3, 4))
	port(h, "0000:00:03.1", "", "pci0000:00", 0, 6, 6, link(3, 16, 3, 16))
	port(h, "0000:00:07.1", "", "pci0000:00", 0, 7, 7, link(3, 16, 3, 16))
	port(h, "0000:20:03.1", "", "pci0000:20", 1, 0x21, 0x21, link(1, 16, 3, 16))
	port(h, "0000:20:07.1", "", "pci0000:20", 1, 0x22, 0x22, link(3, 16, 3, 16))
	port(h, "0000:40:03.1", "", "pci0000:40", 2, 0x41, 0x41, link(3, 8, 3, 16))
	port(h, "0000:60:03.1", "", "pci0000:60", 3, 0x61, 0x61, link(3, 8, 3, 16))
	function(h, "0000:00:00.0", "", "pci0000:00", 0, 0x060000, topology.VendorAMD, 0x1450, "Family 17h Root Complex",
		nil)
	function(h, "0000:07:00.3", "0000:00:07.1", "pci0000:00", 0, 0x0c0330, topology.VendorAMD, 0x145f,
		"USB 3.0 Host controller", nil).Driver = "xhci_hcd"
	nvme := function(h, "0000:01:00.0", "0000:00:01.1", "pci0000:00", 0, 0x010802, 0x144d, 0xa808,
		"NVMe SSD Controller SM981/PM981/PM983", link(3, 4, 3, 4))
	nvme.Driver, nvme.IOMMUGroup = "nvme", new(11)
	boot := function(h, "0000:02:00.0", "0000:00:01.2", "pci0000:00", 0, 0x020000, topology.VendorIntel, 0x1521,
		"I350 Gigabit Network Connection", link(2, 1, 2, 4))
	boot.Driver, boot.IOMMUGroup = "igb", new(12)
	for i, at := range []string{"0000:06:00", "0000:21:00"} {
		parent, root, l := "0000:00:03.1", "pci0000:00", link(3, 16, 4, 16)
		if i == 1 {
			parent, root, l = "0000:20:03.1", "pci0000:20", link(1, 16, 4, 16)
		}
		g := function(h, at+".0", parent, root, i, 0x030000, topology.VendorNVIDIA, 0x2204, "GA102 [GeForce RTX 3090]",
			l)
		g.Driver, g.IOMMUGroup = "vfio-pci", new(14+i)
		g.BARs = []topology.BAR{{Index: 0, SizeBytes: 16 << 20}, {Index: 1, SizeBytes: 256 << 20, Prefetchable: true,
			Bits64: true}}
		a := function(h, at+".1", parent, root, i, 0x040300, topology.VendorNVIDIA, 0x1aef,
			"GA102 High Definition Audio Controller", l)
		a.Driver, a.IOMMUGroup = "vfio-pci", new(14+i)
	}
	for i, at := range []string{"0000:41:00", "0000:61:00"} {
		parent := []string{"0000:40:03.1", "0000:60:03.1"}[i]
		for f := range 2 {
			n := function(h, fmt.Sprintf("%s.%d", at, f), parent, []string{"pci0000:40", "pci0000:60"}[i], 2+i,
				0x020000, topology.VendorMellanox, 0x1015, "MT27710 Family [ConnectX-4 Lx]", link(3, 8, 3, 8))
			n.Driver, n.IOMMUGroup = "mlx5_core", new(37+2*i+f)
			n.SRIOV = &topology.SRIOV{Total: new(8), Enabled: new(0), VFs: []topology.VF{}}
			name := fmt.Sprintf("enp%ds0f%dnp%d", []int{65, 97}[i], f, f)
			p := topology.Netdev{Name: name, MTU: new(4200), State: "up", Carrier: new(true),
				SpeedMbps: new(int64(25000))}
			if f == 1 {
				p = topology.Netdev{Name: name, MTU: new(1500), State: "down", Carrier: new(false)}
			}
			h.NICs = append(h.NICs, topology.NIC{Address: new(n.Address), Ports: []topology.Netdev{p},
				Devices: []topology.RDMADevice{{Name: fmt.Sprintf("mlx5_%d", 2*i+f)}}})
		}
	}
	h.NICs = append(h.NICs, topology.NIC{Address: new(addr("0000:02:00.0")),
		Ports: []topology.Netdev{{Name: "eno1", MTU: new(1500), State: "up", SpeedMbps: new(int64(1000))}}})
	h.Unread = []topology.Unread{{Path: "/sys/kernel/debug/x86/pti_enabled", Why: "permission denied"}}
	h.Complete()
	return h
}

func epycFindings() []finding.Finding {
	return []finding.Finding{
		{ID: "RL003", Severity: finding.Warning, Subject: "0000:21:00.0", Title: "PCIe link below its maximum",
			Evidence: "/sys/bus/pci/devices/0000:21:00.0: current_link_speed=2.5 GT/s max_link_speed=16.0 GT/s; " +
				"/sys/bus/pci/devices/0000:20:03.1: max_link_speed=8.0 GT/s",
			Consequence: "Copies to and from the GPU run at a quarter of what the slot can do.",
			Fix: "Put load on the GPU and look again: an idle GPU lowers its link to save power. If it " +
				"stays, reseat the card."},
		{ID: "RL010", Severity: finding.Info, Subject: "0000:06:00.0",
			Title:       "GPU and nearest NIC are on different NUMA nodes",
			Evidence:    "numa_node=0; 0000:41:00.0: numa_node=2",
			Consequence: "RDMA from GPU memory crosses the interconnect.", Fix: "Move the NIC to a slot of node 0."},
		{ID: "RL040", Severity: finding.Error, Subject: "node 3", Title: "Hugepages are missing",
			Evidence: "nr_hugepages=16", Consequence: "A VM will not start.", Fix: "Reserve them at boot."},
	}
}

// laptop has one node, two kinds of cores and an integrated GPU.
func laptop() *topology.Host {
	h := &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceLive, Name: "/", ThisSystem: true},
		System: topology.System{Vendor: "LENOVO", Product: "21CBCTO1WW", Arch: "x86_64",
			CPUModel: "12th Gen Intel(R) Core(TM) i7-1260P"},
		Packages: []topology.Package{{ID: 0, CPUs: set("0-15")}},
		NUMANodes: []topology.NUMANode{{ID: 0, CPUs: set("0-15"), MemoryBytes: new(uint64(33333333333)),
			Distances: []int{10}}},
		L3:   []topology.L3{{CPUs: set("0-15"), SizeBytes: new(uint64(18 << 20))}},
		CPUs: topology.CPUStates{Online: set("0-15"), SMT: "on"},
		Memory: topology.Memory{TotalBytes: new(uint64(33333333333)),
			Swap: []topology.Swap{{Path: "/swapfile", SizeBytes: 8 * gib}}, SwapKnown: true, THP: "madvise"},
		Kernel: topology.Kernel{Release: "6.12.9"},
		IOMMU:  topology.IOMMU{Enabled: new(false)},
		Storage: []topology.Disk{{Name: "nvme0n1", PCI: new(addr("0000:04:00.0")),
			SizeBytes: new(uint64(1000204886016)), Mounts: []string{"/", "/boot", "[SWAP]"}}},
		Routes: []topology.Route{{Family: "ipv4", Netdev: "wlp0s20f3", Gateway: "198.51.100.1", Metric: new(600),
			PCI: []string{"0000:00:14.3"}}},
	}
	for c := range 4 {
		h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(2*c, 2*c+1), Package: new(0),
			Kind: topology.KindPerformance})
	}
	for c := range 8 {
		h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(8 + c), Package: new(0),
			Kind: topology.KindEfficiency})
	}
	port(h, "0000:00:06.0", "", "pci0000:00", 0, 4, 4, link(4, 4, 4, 4))
	for i := range h.PCI {
		h.PCI[i].NUMANode = nil
	}
	function(h, "0000:00:02.0", "", "pci0000:00", -1, 0x030000, topology.VendorIntel, 0x46a6,
		"Alder Lake-P GT2 [Iris Xe Graphics]", nil).Driver = "i915"
	function(h, "0000:00:14.3", "", "pci0000:00", -1, 0x028000, topology.VendorIntel, 0x51f0,
		"Alder Lake-P PCH CNVi WiFi", nil).Driver = "iwlwifi"
	function(h, "0000:00:14.0", "", "pci0000:00", -1, 0x0c0330, topology.VendorIntel, 0x51ed,
		"Alder Lake PCH USB 3.2 xHCI Host Controller", nil)
	function(h, "0000:00:1f.3", "", "pci0000:00", -1, 0x040100, topology.VendorIntel, 0x51c8,
		"Alder Lake PCH-P High Definition Audio Controller", nil)
	function(h, "0000:04:00.0", "0000:00:06.0", "pci0000:00", -1, 0x010802, 0x15b7, 0x5011,
		"WD PC SN810 / Black SN850 NVMe SSD", link(4, 4, 4, 4)).Driver = "nvme"
	h.NICs = []topology.NIC{{Address: new(addr("0000:00:14.3")),
		Ports: []topology.Netdev{{Name: "wlp0s20f3", MTU: new(1500), State: "up"}}}}
	h.Complete()
	return h
}

// dgx has two nodes, four PCIe switches with two GPUs and two NICs each, two more NICs, eight disks, and NVLink between
// all GPUs.
func dgx() *topology.Host {
	h := &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceTree, Name: "dgx"},
		System: topology.System{Vendor: "NVIDIA", Product: "DGXH100", Arch: "x86_64",
			CPUModel: "Intel(R) Xeon(R) Platinum 8480C"},
		CPUs:   topology.CPUStates{Online: set("0-223")},
		Memory: topology.Memory{TotalBytes: new(uint64(2164 * gib))},
		IOMMU:  topology.IOMMU{Enabled: new(true)},
	}
	for p := range 2 {
		cpus := set(fmt.Sprintf("%d-%d,%d-%d", 56*p, 56*p+55, 112+56*p, 112+56*p+55))
		h.Packages = append(h.Packages, topology.Package{ID: p, CPUs: cpus, Model: "Intel(R) Xeon(R) Platinum 8480C"})
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: p, CPUs: cpus, MemoryBytes: new(uint64(1082 * gib)),
			Distances: [][]int{{10, 21}, {21, 10}}[p]})
		h.L3 = append(h.L3, topology.L3{CPUs: cpus, SizeBytes: new(uint64(105 << 20))})
		for c := range 56 {
			h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(56*p+c, 112+56*p+c), Package: new(p)})
		}
	}
	gpu, nic := 0, 0
	addNIC := func(at, parent, root string, node, speed int) {
		n := function(h, at, parent, root, node, 0x020700, topology.VendorMellanox, 0x1021,
			"MT2910 Family [ConnectX-7]", link(5, 16, 5, 16))
		n.Driver = "mlx5_core"
		h.NICs = append(h.NICs, topology.NIC{Address: new(n.Address), SpeedMbps: new(int64(speed)),
			Devices: []topology.RDMADevice{{Name: fmt.Sprintf("mlx5_%d", nic)}},
			Ports:   []topology.Netdev{{Name: fmt.Sprintf("ibp%ds0", n.Address.Bus), MTU: new(4092), State: "up"}}})
		nic++
	}
	for s := range 4 {
		base := uint8(0x15 + 0x30*s)
		node := s / 2
		root := fmt.Sprintf("pci0000:%02x", base-1)
		rp, up := fmt.Sprintf("0000:%02x:01.0", base-1), fmt.Sprintf("0000:%02x:00.0", base)
		port(h, rp, "", root, node, base, base+0x20, link(5, 16, 5, 16))
		port(h, up, rp, root, node, base+1, base+0x20, link(5, 16, 5, 16))
		h.PCI[len(h.PCI)-1].Bridge.Port = "upstream port"
		h.PCI[len(h.PCI)-1].DeviceName = "PEX890xx PCIe Gen 5 Switch"
		for k := range 5 {
			down := fmt.Sprintf("0000:%02x:%02x.0", base+1, k)
			bus := base + 2 + uint8(k)
			lanes := 16
			if k == 4 {
				lanes = 4
			}
			port(h, down, up, root, node, bus, bus, link(5, lanes, 5, lanes))
			at := fmt.Sprintf("0000:%02x:00.0", bus)
			switch k {
			case 0, 2:
				g := function(h, at, down, root, node, 0x030200, topology.VendorNVIDIA, 0x2330,
					"GH100 [H100 SXM5 80GB]", link(5, 16, 5, 16))
				g.Driver = "nvidia"
				h.GPUs = append(h.GPUs, topology.GPU{Address: new(g.Address), Index: new(gpu),
					Name: fmt.Sprintf("nvidia%d", gpu), MemoryBytes: new(uint64(80 * gib)),
					BAR1Bytes: new(uint64(128 * gib)), NVLinks: new(18)})
				gpu++
			case 1, 3:
				addNIC(at, down, root, node, 400000)
			case 4:
				d := function(h, at, down, root, node, 0x010802, 0x144d, 0xa824, "NVMe SSD Controller PM173X",
					link(4, 4, 4, 4))
				d.Driver = "nvme"
				h.Storage = append(h.Storage, topology.Disk{Name: fmt.Sprintf("nvme%dn1", s), PCI: new(d.Address),
					SizeBytes: new(uint64(3840755982336))})
			}
		}
	}
	port(h, "0000:00:1c.0", "", "pci0000:00", 0, 3, 3, link(4, 8, 4, 16))
	addNIC("0000:03:00.0", "0000:00:1c.0", "pci0000:00", 0, 200000)
	addNIC("0000:03:00.1", "0000:00:1c.0", "pci0000:00", 0, 200000)
	port(h, "0000:00:1c.4", "", "pci0000:00", 0, 4, 5, link(1, 1, 1, 1))
	port(h, "0000:04:00.0", "0000:00:1c.4", "pci0000:00", 0, 5, 5, nil)
	function(h, "0000:05:00.0", "0000:04:00.0", "pci0000:00", 0, 0x030000, 0x1a03, 0x2000, "ASPEED Graphics Family",
		nil).Driver = "ast"
	h.Complete()
	for i := range h.GPUs {
		for j := range h.GPUs[:i] {
			if a, b := &h.GPUs[j], &h.GPUs[i]; a.Kind != topology.GPUDisplay && b.Kind != topology.GPUDisplay {
				h.Reported = append(h.Reported, topology.Path{A: a.ID(), B: b.ID(), Class: topology.PathNVLink,
					Links: 18})
			}
		}
	}
	return h
}

func dgxFindings() []finding.Finding {
	out := []finding.Finding{{ID: "RL031", Severity: finding.Error, Subject: "host",
		Title: "The peer-memory module is not loaded", Evidence: "/proc/modules: no nvidia_peermem",
		Consequence: "Copies go through memory.",
		Fix:         "modprobe nvidia_peermem"}}
	for s := range 4 {
		out = append(out, finding.Finding{ID: "RL023", Severity: finding.Warning,
			Subject: fmt.Sprintf("0000:%02x:00.0", 0x16+0x30*s), Title: "ACS redirects peer-to-peer traffic",
			Evidence: "ACSCtl: ReqRedir+", Consequence: "Copies take a detour.",
			Fix: "Turn ACS off on the switch's ports, or ATS on."})
		out = append(out, finding.Finding{ID: "RL023", Severity: finding.Warning,
			Subject: fmt.Sprintf("0000:%02x:00.0", 0x17+0x30*s), Title: "ACS redirects peer-to-peer traffic",
			Evidence: "ACSCtl: ReqRedir+", Consequence: "Copies take a detour.",
			Fix: "Turn ACS off on the switch's ports, or ATS on."})
	}
	return append(out,
		finding.Finding{ID: "RL002", Severity: finding.Warning, Subject: "0000:03:00.0,0000:03:00.1",
			Title: "PCIe link is narrower than it could be", Evidence: "current_link_width=8 max_link_width=16",
			Consequence: "It is slow.", Fix: "Move the card."},
		finding.Finding{ID: "RL003", Severity: finding.Warning, Subject: "0000:03:00.0",
			Title: "PCIe link is slower than it could be", Evidence: "current_link_speed=16",
			Consequence: "It is slow.", Fix: "Move the card."},
		finding.Finding{ID: "RL084", Severity: finding.Info, Subject: "0000:03:00.0", Title: "MTU",
			Evidence: "mtu=1500", Consequence: "It is slow.", Fix: "Set 4200."})
}

// grid64 has 64 nodes with four CPUs, two per package.
func grid64() *topology.Host {
	h := &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceHwloc, Name: "256ia64-64n2s2c.xml", Tool: "hwloc 2.9.0",
			Filled: []string{"packages", "numa_nodes", "cores"}},
		CPUs: topology.CPUStates{Online: set("0-255")},
	}
	for n := range 64 {
		distances := make([]int, 64)
		for m := range distances {
			distances[m] = 10 + 12*min(1, n^m) + 3*((n^m)>>3)
		}
		cpus := topology.CPURange(4*n, 4*n+3)
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: n, CPUs: cpus, MemoryBytes: new(uint64(16 * gib)),
			Distances: distances})
		if n%2 == 0 {
			h.Packages = append(h.Packages, topology.Package{ID: n / 2, CPUs: topology.CPURange(4*n, 4*n+7)})
		}
		for c := range 4 {
			h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(4*n + c), Package: new(n / 2)})
		}
	}
	h.Complete()
	return h
}

// matrixOnly has no addresses, no memory, and some missing cells.
func matrixOnly() *topology.Host {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTopo, Name: "topo.txt",
		Filled: []string{"gpus", "nics", "reported_paths"}}}
	for n := range 2 {
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: n,
			CPUs: set(fmt.Sprintf("%d-%d,%d-%d", 48*n, 48*n+47, 96+48*n, 143+48*n))})
	}
	for g := range 8 {
		h.GPUs = append(h.GPUs, topology.GPU{Name: fmt.Sprintf("GPU%d", g), Index: new(g), NUMANode: new(g / 4),
			CPUAffinity: &h.NUMANodes[g/4].CPUs})
		for o := range g {
			h.Reported = append(h.Reported, topology.Path{A: fmt.Sprintf("GPU%d", o), B: fmt.Sprintf("GPU%d", g),
				Class: topology.PathNVLink, Links: 1 + (g^o)%2})
		}
	}
	for n := range 4 {
		h.NICs = append(h.NICs, topology.NIC{Name: fmt.Sprintf("NIC%d", n),
			Devices: []topology.RDMADevice{{Name: fmt.Sprintf("mlx5_bond_%d", n)}}})
		for g := range 8 {
			class := topology.PathSYS
			switch {
			case n == 3 && g == 7:
				continue // a missing cell
			case g == 2*n:
				class = topology.PathPIX
			case g/4 == n/2:
				class = topology.PathNODE
			}
			h.Reported = append(h.Reported, topology.Path{A: fmt.Sprintf("GPU%d", g), B: fmt.Sprintf("NIC%d", n),
				Class: class})
		}
	}
	h.Complete()
	return h
}

// memoryOnly has nodes without CPUs (CXL, high-bandwidth memory) or without memory, a gap in the numbers, and devices
// on a missing node.
func memoryOnly() *topology.Host {
	h := &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceTree, Name: "cxl"},
		System: topology.System{Vendor: "To Be Filled By O.E.M.", Product: "To Be Filled By O.E.M.",
			Hypervisor: "kvm", InVM: new(true)},
		Packages: []topology.Package{{ID: 0, CPUs: set("0-7")}, {ID: 1, CPUs: set("8-15")}},
		NUMANodes: []topology.NUMANode{
			{ID: 0, CPUs: set("0-7"), MemoryBytes: new(uint64(64 * gib)), Distances: []int{10, 21, 14, 14, 24},
				Kind: "dram"},
			{ID: 1, CPUs: set("8-15"), MemoryBytes: new(uint64(0)), Distances: []int{21, 10, 24, 24, 14}},
			{ID: 2, MemoryBytes: new(uint64(128 * gib)), Distances: []int{14, 24, 10, 16, 26}, Kind: "cxl"},
			{ID: 4, MemoryBytes: new(uint64(16 * gib)), Distances: []int{14, 24, 16, 10, 26}, Kind: "hbm",
				MemoryMode: "cache"},
			{ID: 8, MemoryBytes: nil},
		},
		CPUs: topology.CPUStates{Online: set("0-15"), Offline: new(set("16-31"))},
	}
	for c := range 16 {
		h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(c), Package: new(c / 8)})
	}
	function(h, "0000:00:04.0", "", "pci0000:00", -1, 0x030000, 0x1af4, 0x1050, "Virtio 1.0 GPU",
		nil).Driver = "virtio-pci"
	function(h, "0000:00:05.0", "", "pci0000:00", -1, 0x020000, 0x1af4, 0x1041, "Virtio 1.0 network device",
		nil).Driver = "virtio-pci"
	function(h, "0000:00:06.0", "", "pci0000:00", -1, 0x030200, topology.VendorNVIDIA, 0x20b5, "", nil)
	h.Complete()
	return h
}

// armVFs has CPUs that alternate between two nodes, and 128 virtual functions.
func armVFs() *topology.Host {
	h := &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceTree, Name: "arm.tree"},
		System: topology.System{Vendor: "GIGABYTE", Product: "R181-T90", Arch: "aarch64",
			CPUModel: "ThunderX2 99xx"},
		Packages: []topology.Package{{ID: 36, CPUs: set("0-126:2")}, {ID: 3180, CPUs: set("1-127:2")}},
		CPUs:     topology.CPUStates{Online: set("0-127"), SMT: "on", Isolated: new(set("64-127"))},
		IOMMU:    topology.IOMMU{Enabled: new(true)},
	}
	for n := range 2 {
		cpus := set(fmt.Sprintf("%d-%d:2", n, 126+n))
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: n, CPUs: cpus, MemoryBytes: new(uint64(130 * gib)),
			Distances: [][]int{{10, 20}, {20, 10}}[n]})
		h.L3 = append(h.L3, topology.L3{CPUs: cpus})
	}
	for c := range 128 {
		h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(c), Package: new([]int{36, 3180}[c%2])})
	}
	port(h, "0000:10:01.0", "", "pci0000:10", 1, 0x11, 0x15, link(3, 16, 3, 16))
	pf := function(h, "0000:11:00.0", "0000:10:01.0", "pci0000:10", 1, 0x020000, topology.VendorMellanox, 0x1019,
		"MT28800 Family [ConnectX-5 Ex]", link(3, 16, 4, 16))
	pf.Driver, pf.SRIOV = "mlx5_core", &topology.SRIOV{Total: new(128), Enabled: new(128)}
	for i := range 128 {
		at := topology.PCIAddr{Bus: uint8(0x11 + (i+2)/256), Device: uint8((i + 2) / 8 % 32),
			Function: uint8((i + 2) % 8)}
		pf.SRIOV.VFs = append(pf.SRIOV.VFs, topology.VF{Index: i, Address: &at})
	}
	vfs := pf.SRIOV.VFs
	for _, vf := range vfs {
		function(h, vf.Address.String(), "0000:10:01.0", "pci0000:10", 1, 0x020000, topology.VendorMellanox, 0x101a,
			"MT28800 Family [ConnectX-5 Ex Virtual Function]", nil)
	}
	for i := range 12 {
		rp := fmt.Sprintf("0000:00:%02x.0", i+1)
		port(h, rp, "", "pci0000:00", 0, uint8(i+1), uint8(i+1), link(3, 4, 3, 4))
		d := function(h, fmt.Sprintf("0000:%02x:00.0", i+1), rp, "pci0000:00", 0, 0x010802, 0x144d, 0xa824,
			"NVMe SSD Controller PM173X", link(3, 4, 4, 4))
		h.Storage = append(h.Storage, topology.Disk{Name: fmt.Sprintf("nvme%dn1", i), PCI: new(d.Address),
			SizeBytes: new(uint64(3840755982336)), Mounts: map[bool][]string{true: {"/"}}[i == 7]})
	}
	h.NICs = []topology.NIC{{Address: new(addr("0000:11:00.0")),
		Ports:   []topology.Netdev{{Name: "enp17s0np0", MTU: new(9000), SpeedMbps: new(int64(100000))}},
		Devices: []topology.RDMADevice{{Name: "mlx5_0"}}}}
	h.Complete()
	return h
}

func armFindings() []finding.Finding {
	var out []finding.Finding
	for i := range 12 {
		out = append(out, finding.Finding{ID: "RL003", Severity: finding.Info, Subject: fmt.Sprintf("0000:%02x:00.0",
			i+1), Title: "The slot is slower than the device", Evidence: "max_link_speed=16 GT/s, port 8 GT/s",
			Consequence: "It is slow.", Fix: "None is needed for a disk."})
	}
	return out
}

func nothing() *topology.Host {
	h := &topology.Host{}
	h.Complete()
	return h
}
