package diagnose

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/machine/topology"
)

// base is an EPYC 7551P with 32 cores in 4 NUMA nodes, a GPU on node 0 and one on node 1, a ConnectX-4 Lx with two
// ports on node 2 and one on node 3, and two tenants with a GPU each. Its only faults are Gen4 cards in Gen3 slots, and
// GPUs and NICs on different nodes. It is not completed, because cases change it first.
func base() *topology.Host {
	const isolated = "2-29,34-61"
	h := &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceTree, Name: "epyc-7551p"},
		System: topology.System{Vendor: "Supermicro", Product: "H11SSL-i", Arch: "x86_64",
			CPUModel: "AMD EPYC 7551P 32-Core Processor",
			InVM:     new(false)},
		Packages: []topology.Package{{ID: 0, CPUs: cpus("0-63")}},
		CPUs: topology.CPUStates{Present: new(cpus("0-63")), Online: cpus("0-63"), Offline: new(cpus("")),
			Isolated: new(cpus(isolated)), NoHzFull: new(cpus(isolated)), SMT: "on"},
		Memory: topology.Memory{TotalBytes: new(uint64(256 * gib)),
			Hugepages: []topology.HugepagePool{{SizeBytes: 2 << 20, Free: new(uint64(0))},
				{SizeBytes: gib, Total: 64, Free: new(uint64(0))}},
			DefaultHuge: new(uint64(gib)), SwapKnown: true, NUMABalancing: "0", THP: "madvise", KSM: "0"},
		Kernel: topology.Kernel{Release: "6.12.0",
			Cmdline: new("BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 ro iommu=pt isolcpus=" + isolated + " nohz_full=" +
				isolated + " rcu_nocbs=" + isolated +
				" default_hugepagesz=1G hugepagesz=1G hugepages=64"),
			Modules: []string{"mlx5_core", "mlx5_ib", "vfio", "vfio_pci"}, ModulesKnown: true},
		IOMMU:   topology.IOMMU{Enabled: new(true), Units: []string{"ivhd0", "ivhd1", "ivhd2", "ivhd3"}},
		Storage: []topology.Disk{{Name: "nvme0n1", PCI: new(address("0000:22:00.0")), Mounts: []string{"/", "/boot"}}},
		Routes:  []topology.Route{{Family: "ipv4", Netdev: "eno1", PCI: []string{"0000:01:00.0"}}},
		IRQs: []topology.IRQ{
			{Number: 90, CPUs: cpus("0"), Count: new(uint64(4711)), Device: "nvme0q1"},
			{Number: 130, CPUs: cpus("30"), Count: new(uint64(18823)), Device: "mlx5_comp0@pci:0000:61:00.0"},
			{Number: 131, CPUs: cpus("31"), Count: new(uint64(9120)), Device: "mlx5_comp1@pci:0000:61:00.0"},
			{Number: 132, CPUs: cpus("62"), Count: new(uint64(7000)), Device: "mlx5_comp2@pci:0000:61:00.0"},
			{Number: 133, CPUs: cpus("63"), Count: new(uint64(300)), Device: "mlx5_comp3@pci:0000:61:00.0"},
			{Number: 140, CPUs: cpus("8"), Count: new(uint64(99999)), Device: "0000:21:00.0"},
		},
	}
	for n := range 4 {
		distances := []int{16, 16, 16, 16}
		distances[n] = 10
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: n,
			CPUs:        cpus(fmt.Sprintf("%d-%d,%d-%d", 8*n, 8*n+7, 8*n+32, 8*n+39)),
			MemoryBytes: new(uint64(64 * gib)), Distances: distances,
			Hugepages: []topology.HugepagePool{{SizeBytes: 2 << 20, Free: new(uint64(0))},
				{SizeBytes: gib, Total: 16, Free: new(uint64(0))}}})
	}
	for c := range 32 {
		h.Cores = append(h.Cores, topology.Core{OSID: new(c), Package: new(0), NUMANode: new(c / 8),
			CPUs: topology.CPUs(c, c+32), Governor: "performance"})
	}
	basePCI(h)
	baseNICs(h)
	baseTenants(h)
	return h
}

const gib = 1 << 30

func basePCI(h *topology.Host) {
	port := func(addr, root string, node int, bus uint8, gts float64, lanes int) {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: address(addr), Root: root,
			Class:  new(topology.ID24(0x060400)),
			Vendor: new(topology.ID16(0x1022)), NUMANode: new(node), Driver: "pcieport", DriverKnown: true,
			Link: &topology.Link{SpeedGTs: new(gts), Width: new(lanes), MaxSpeedGTs: new(gts),
				MaxWidth: new(lanes)},
			Bridge:     &topology.Bridge{Secondary: bus, Subordinate: bus, Port: "root port"},
			IOMMUGroup: new(100 + int(bus))})
	}
	port("0000:00:01.1", "pci0000:00", 0, 0x06, 8, 16)
	port("0000:00:01.3", "pci0000:00", 0, 0x01, 5, 4)
	port("0000:00:01.5", "pci0000:00", 0, 0x02, 5, 1)
	port("0000:00:03.1", "pci0000:00", 0, 0x07, 8, 8)
	port("0000:20:01.1", "pci0000:20", 1, 0x22, 8, 4)
	port("0000:20:03.1", "pci0000:20", 1, 0x21, 8, 16)
	port("0000:40:03.1", "pci0000:40", 2, 0x41, 8, 8)
	port("0000:60:03.1", "pci0000:60", 3, 0x61, 8, 8)

	function := func(addr, parent string, node, class, vendor, device int, name, driver string,
		group int) *topology.PCIDevice {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: address(addr), Parent: new(address(parent)),
			Class:  new(topology.ID24(class)),
			Vendor: new(topology.ID16(vendor)), Device: new(topology.ID16(device)), DeviceName: name,
			NUMANode: new(node), LocalCPUs: new(h.NUMANodes[node].CPUs), Driver: driver, DriverKnown: true,
			IOMMUGroup:   new(group),
			ResetMethods: []string{"flr", "bus"}, ResetKnown: true, PowerState: "D0", D3Cold: new(true)})
		return &h.PCI[len(h.PCI)-1]
	}
	link := func(d *topology.PCIDevice, gts float64, lanes int, maxGTs float64, maxLanes int) {
		d.Link = &topology.Link{SpeedGTs: new(gts), Width: new(lanes), MaxSpeedGTs: new(maxGTs),
			MaxWidth: new(maxLanes)}
	}
	for i, at := range []struct {
		bus, port string
		node      int
	}{{"0000:06:00", "0000:00:01.1", 0}, {"0000:21:00", "0000:20:03.1", 1}} {
		g := function(at.bus+".0", at.port, at.node, 0x030000, 0x10de, 0x2204, "GA102 [GeForce RTX 3090]", "vfio-pci",
			10+i)
		link(g, 8, 16, 16, 16)
		// As large as the memory, and small enough for any guest.
		g.BARs = []topology.BAR{{Index: 0, SizeBytes: 16 << 20}, {Index: 1, SizeBytes: 16 * gib, Prefetchable: true,
			Bits64: true},
			{Index: 3, SizeBytes: 32 << 20, Prefetchable: true, Bits64: true}}
		g.BootVGA = new(false)
		a := function(at.bus+".1", at.port, at.node, 0x040300, 0x10de, 0x1aef, "GA102 High Definition Audio Controller",
			"vfio-pci", 10+i)
		link(a, 8, 16, 16, 16)
		h.GPUs = append(h.GPUs, topology.GPU{Address: new(g.Address), MemoryBytes: new(uint64(16 * gib))})
	}
	for i, at := range []struct {
		bus, port string
		node      int
	}{{"0000:41:00", "0000:40:03.1", 2}, {"0000:61:00", "0000:60:03.1", 3}} {
		for f := range 2 {
			n := function(fmt.Sprintf("%s.%d", at.bus, f), at.port, at.node, 0x020000, 0x15b3, 0x1015,
				"MT27710 Family [ConnectX-4 Lx]", "mlx5_core", 20+2*i+f)
			link(n, 8, 8, 8, 8)
			n.SRIOV = &topology.SRIOV{Total: new(8), Enabled: new(0), VFs: []topology.VF{}}
		}
	}
	nvme := function("0000:22:00.0", "0000:20:01.1", 1, 0x010802, 0x144d, 0xa808, "NVMe SSD Controller SM981/PM981",
		"nvme", 30)
	link(nvme, 8, 4, 8, 4)
	eth := function("0000:01:00.0", "0000:00:01.3", 0, 0x020000, 0x8086, 0x1521, "I350 Gigabit Network Connection",
		"igb", 31)
	link(eth, 5, 4, 5, 4)
	bmc := function("0000:02:00.0", "0000:00:01.5", 0, 0x030000, 0x1a03, 0x2000, "ASPEED Graphics Family", "ast", 32)
	bmc.BootVGA = new(true)
}

func baseNICs(h *topology.Host) {
	nic := func(addr, netdev, rdma string, up bool, ip string) {
		port := topology.Netdev{Name: netdev, MTU: new(4200), State: "down", Carrier: new(false), DevPort: new(0)}
		rp := topology.RDMAPort{Number: 1, State: "DOWN", PhysState: "Disabled", LinkLayer: "Ethernet"}
		if up {
			port.State, port.Carrier, port.SpeedMbps = "up", new(true), new(int64(25_000))
			rp.State, rp.PhysState, rp.RateGbps = "ACTIVE", "LinkUp", new(25.0)
			for i, g := range []string{"fe80:0000:0000:0000:526b:4bff:fe43:fe3a", ip} {
				for j, kind := range []string{"IB/RoCE v1", "RoCE v2"} {
					rp.GIDs = append(rp.GIDs, topology.GID{Index: 2*i + j, GID: g, Type: kind, Netdev: netdev})
				}
			}
		}
		h.NICs = append(h.NICs, topology.NIC{Address: new(address(addr)), Ports: []topology.Netdev{port},
			Devices: []topology.RDMADevice{{Name: rdma, NodeType: "1: CA", NodeGUID: "506b:4b03:0043:fe3a",
				Ports: []topology.RDMAPort{rp}}}})
	}
	nic("0000:41:00.0", "enp65s0f0np0", "mlx5_0", true, "0000:0000:0000:0000:0000:ffff:0a00:0001")
	nic("0000:41:00.1", "enp65s0f1np1", "mlx5_1", false, "")
	nic("0000:61:00.0", "enp97s0f0np0", "mlx5_2", true, "0000:0000:0000:0000:0000:ffff:0a00:0002")
	nic("0000:61:00.1", "enp97s0f1np1", "mlx5_3", false, "")
	h.NICs = append(h.NICs, topology.NIC{Address: new(address("0000:01:00.0")),
		Ports: []topology.Netdev{{Name: "eno1", MTU: new(1500), SpeedMbps: new(int64(1000)), State: "up",
			Carrier: new(true)}}})
}

func baseTenants(h *topology.Host) {
	for _, t := range []struct{ name, cpus, nodes, emulator, gpu string }{
		{"vm00", "2-7,34-39,16-23,48-55", "0,2", "0,32", "0000:06:00"},
		{"vm01", "8-15,40-47,24-29,56-61", "1,3", "30,62", "0000:21:00"},
	} {
		tenant := topology.Tenant{Name: t.name, State: "running", VCPUs: 28, EmulatorCPUs: new(cpus(t.emulator)),
			MemoryBytes: new(uint64(32 * gib)),
			Hugepages:   new(uint64(gib)), MemoryNodes: new(cpus(t.nodes)), MemoryMode: "strict",
			Devices: []topology.TenantDevice{{PCI: address(t.gpu + ".0"), Managed: true}, {PCI: address(t.gpu + ".1"),
				Managed: true}}}
		for c := range cpus(t.cpus).All() {
			tenant.Pins = append(tenant.Pins, topology.Pin{VCPU: len(tenant.Pins), CPUs: topology.CPUs(c)})
		}
		h.Tenants = append(h.Tenants, tenant)
	}
}

// laptop has no findings.
func laptop() *topology.Host {
	h := &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceLive, ThisSystem: true},
		System:     topology.System{Vendor: "LENOVO", Arch: "x86_64", InVM: new(false)},
		NUMANodes:  []topology.NUMANode{{ID: 0, CPUs: cpus("0-7"), MemoryBytes: new(uint64(16 * gib))}},
		CPUs: topology.CPUStates{Present: new(cpus("0-7")), Online: cpus("0-7"), Offline: new(cpus("")),
			Isolated: new(cpus("")),
			NoHzFull: new(cpus("")), SMT: "on"},
		Memory: topology.Memory{TotalBytes: new(uint64(16 * gib)), DefaultHuge: new(uint64(2 << 20)),
			Hugepages: []topology.HugepagePool{{SizeBytes: 2 << 20, Free: new(uint64(0))}},
			Swap:      []topology.Swap{{Path: "/dev/nvme0n1p3", SizeBytes: 8 * gib}}, SwapKnown: true,
			NUMABalancing: "0", THP: "always", KSM: "0"},
		Kernel: topology.Kernel{Cmdline: new("quiet splash"), ModulesKnown: true},
		IOMMU:  topology.IOMMU{Enabled: new(true)},
		PCI: []topology.PCIDevice{
			{Address: address("0000:00:02.0"), Root: "pci0000:00", Class: new(topology.ID24(0x030000)),
				Vendor: new(topology.VendorIntel),
				Driver: "i915", DriverKnown: true, IOMMUGroup: new(0), BootVGA: new(true), ResetKnown: true},
			{Address: address("0000:00:1f.0"), Root: "pci0000:00", Class: new(topology.ID24(0x060100)),
				IOMMUGroup: new(5)},
			{Address: address("0000:00:1f.6"), Root: "pci0000:00", Class: new(topology.ID24(0x020000)),
				Vendor: new(topology.VendorIntel),
				Driver: "e1000e", DriverKnown: true, IOMMUGroup: new(5)},
		},
		Routes: []topology.Route{{Family: "ipv4", Netdev: "eno1", PCI: []string{"0000:00:1f.6"}}},
	}
	for c := range 4 {
		h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(2*c, 2*c+1), Governor: "powersave"})
	}
	return h
}

func cpus(list string) topology.CPUSet {
	s, err := topology.ParseCPUSet(list)
	if err != nil {
		panic(err)
	}
	return s
}

func address(s string) topology.PCIAddr {
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		panic(err)
	}
	return a
}

func dev(h *topology.Host, addr string) *topology.PCIDevice {
	i := slices.IndexFunc(h.PCI, func(d topology.PCIDevice) bool { return d.Address == address(addr) })
	return &h.PCI[i]
}

func nicAt(h *topology.Host, addr string) *topology.NIC {
	i := slices.IndexFunc(h.NICs, func(n topology.NIC) bool { return n.Address != nil && *n.Address == address(addr) })
	return &h.NICs[i]
}

func port1(h *topology.Host, addr string) *topology.RDMAPort {
	return &nicAt(h, addr).Devices[0].Ports[0]
}

func tenant(h *topology.Host, name string) *topology.Tenant {
	i := slices.IndexFunc(h.Tenants, func(t topology.Tenant) bool { return t.Name == name })
	return &h.Tenants[i]
}

func withCmdline(h *topology.Host, line string) { h.Kernel.Cmdline = &line }

// without takes a bus prefix, such as "0000:06:".
func without(h *topology.Host, prefix string) {
	h.PCI = slices.DeleteFunc(h.PCI, func(d topology.PCIDevice) bool {
		return d.Address.String()[:len(prefix)] == prefix
	})
	h.GPUs = slices.DeleteFunc(h.GPUs, func(g topology.GPU) bool { return g.ID()[:len(prefix)] == prefix })
	h.NICs = slices.DeleteFunc(h.NICs, func(n topology.NIC) bool { return n.ID()[:len(prefix)] == prefix })
}
