package compare_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/machine/topology/compare"
)

func addr(s string) *topology.PCIAddr {
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		panic(err)
	}
	return &a
}

func function(s string, class topology.ID24, vendor topology.ID16) topology.PCIDevice {
	return topology.PCIDevice{Address: *addr(s), Class: &class, Vendor: &vendor}
}

func named(name string, ports ...string) topology.NIC {
	n := topology.NIC{Name: name}
	if strings.HasPrefix(name, "mlx") {
		n.Devices = []topology.RDMADevice{{Name: name}}
	}
	for _, p := range ports {
		n.Ports = append(n.Ports, topology.Netdev{Name: p})
	}
	return n
}

func nics(h *topology.Host) []string {
	var out []string
	for i := range h.NICs {
		n := &h.NICs[i]
		out = append(out, fmt.Sprintf("%s: %v %v", n.ID(), n.RDMA, n.Netdevs))
	}
	return out
}

func TestNICsAreJoinedByAddressesAndNames(t *testing.T) {
	lspci := &topology.Host{PCI: []topology.PCIDevice{
		function("5e:00.0", 0x020000, topology.VendorMellanox), function("5e:00.1", 0x020000, topology.VendorMellanox),
		function("af:00.0", 0x020000, topology.VendorMellanox),
	}}
	lspci.Complete()
	driver := topology.NIC{Address: addr("af:00.0"), Ports: []topology.Netdev{{Name: "ens5"}}, Firmware: "1.2"}
	h := compare.Join([]compare.Part{
		{Source: "lspci", Host: lspci},
		{Source: "ibstat", Host: &topology.Host{NICs: []topology.NIC{named("mlx5_2"), named("mlx5_0"),
			named("mlx5_1")}}},
		// One text links the RDMA to the network device, another that to the function.
		{Source: "ibdev2netdev", Host: &topology.Host{NICs: []topology.NIC{named("mlx5_2", "ens5"),
			named("mlx5_0", "enp94s0f0np0"), named("mlx5_1", "enp94s0f1np1")}}},
		{Source: "ethtool -i", Host: &topology.Host{NICs: []topology.NIC{driver}}},
	})
	want := []string{"0000:5e:00.0: [mlx5_0] [enp94s0f0np0]", "0000:5e:00.1: [mlx5_1] [enp94s0f1np1]",
		"0000:af:00.0: [mlx5_2] [ens5]"}
	if diff := cmp.Diff(want, nics(h)); diff != "" {
		t.Error(diff)
	}
	if len(h.Contradictions) != 0 || len(h.Inferred) != 2 || h.NICs[2].Firmware != "1.2" {
		t.Errorf("%v %v %+v", h.Contradictions, h.Inferred, h.NICs[2])
	}
}

func TestRDMADevicesAreCountedOffOnlyWhereAllAreThere(t *testing.T) {
	join := func(names ...string) *topology.Host {
		lspci := &topology.Host{PCI: []topology.PCIDevice{function("18:00.0", 0x020700, topology.VendorMellanox),
			function("3a:00.0", 0x020700, topology.VendorMellanox)}}
		lspci.Complete()
		stat := &topology.Host{}
		for _, name := range names {
			stat.NICs = append(stat.NICs, named(name))
		}
		return compare.Join([]compare.Part{{Source: "lspci", Host: lspci}, {Source: "ibstat", Host: stat}})
	}
	if diff := cmp.Diff([]string{"0000:18:00.0: [mlx5_2] []", "0000:3a:00.0: [mlx5_10] []"},
		nics(join("mlx5_10", "mlx5_2"))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"0000:18:00.0: [mlx4_0] []", "0000:3a:00.0: [mlx4_1] []"},
		nics(join("mlx4_0", "mlx4_1"))); diff != "" {
		t.Error(diff)
	}
	if h := join("mlx4_0", "mlx5_0"); len(h.NICs) != 4 || len(h.Inferred) != 1 {
		t.Errorf("of two drivers: %v %v", nics(h), h.Inferred)
	}
	h := join("mlx5_0")
	if len(h.NICs) != 3 || len(h.Inferred) != 1 || !strings.Contains(h.Inferred[0], "is not told") {
		t.Errorf("%v %v", nics(h), h.Inferred)
	}
}

func TestPathsFollowGPUsToTheirFunctions(t *testing.T) {
	parts := func(gpus int) []compare.Part {
		lspci := &topology.Host{}
		for _, a := range []string{"05:00.0", "26:00.0"} {
			lspci.PCI = append(lspci.PCI, function(a, 0x120000, topology.VendorAMD))
		}
		lspci.Complete()
		smi := &topology.Host{Reported: []topology.Path{{A: "GPU0", B: "GPU1", Class: topology.PathNVLink}}}
		for i := range gpus {
			smi.GPUs = append(smi.GPUs, topology.GPU{Name: fmt.Sprintf("GPU%d", i), Index: &i, NUMANode: &i,
				Vendor: "Advanced Micro Devices, Inc. [AMD/ATI]"})
		}
		return []compare.Part{{Source: "lspci", Host: lspci}, {Source: "rocm-smi", Host: smi}}
	}
	h := compare.Join(parts(2))
	if p := h.Path("0000:05:00.0", "0000:26:00.0"); len(h.GPUs) != 2 || p.Class != topology.PathNVLink ||
		*h.PCI[1].NUMANode != 1 {
		t.Errorf("%d GPUs, %+v", len(h.GPUs), p)
	}
	h = compare.Join(parts(3))
	if len(h.GPUs) != 2 || len(h.Reported) != 0 || len(h.Contradictions) != 1 {
		t.Errorf("%d GPUs, %v, %v", len(h.GPUs), h.Reported, h.Contradictions)
	}
}

func TestContradictionsAreNamedAndTheFirstValueIsKept(t *testing.T) {
	host := func(model, cpus string, memory uint64) *topology.Host {
		set, err := topology.ParseCPUSet(cpus)
		if err != nil {
			t.Fatal(err)
		}
		return &topology.Host{System: topology.System{CPUModel: model},
			NUMANodes: []topology.NUMANode{{ID: 1, CPUs: set, MemoryBytes: &memory}}}
	}
	h := compare.Join([]compare.Part{{Source: "a", Host: host("X", "0-3", 100<<30)},
		{Source: "b", Host: host("x", "0-3", 99<<30)},
		{Source: "c", Host: host("Y", "4-7", 200<<30)}})
	var got []string
	for _, c := range h.Contradictions {
		got = append(got, fmt.Sprintf("%s: %s by %s, %s by %s", c.Fact, c.Value, c.Source, c.Other, c.By))
	}
	want := []string{"system.cpu_model: X by a, Y by c", "numa_nodes[1].cpus: 0-3 by a, 4-7 by c",
		"numa_nodes[1].memory_bytes: 107374182400 by a, 214748364800 by c"}
	if diff := cmp.Diff(want, got); diff != "" || h.System.CPUModel != "X" {
		t.Error(diff)
	}
}

func TestAStatedNodeOutweighsADerivedOne(t *testing.T) {
	derived, stated := function("18:00.0", 0x020000, topology.VendorMellanox), function("18:00.0", 0x020000,
		topology.VendorMellanox)
	derived.NUMANode, derived.NUMASource, derived.ParentUnknown = new(0), "only node", true
	stated.NUMANode, stated.Parent = new(1), addr("17:01.0")
	h := compare.Join([]compare.Part{{Source: "a", Host: &topology.Host{PCI: []topology.PCIDevice{derived}}},
		{Source: "b", Host: &topology.Host{PCI: []topology.PCIDevice{stated}}}})
	if d := h.PCI[0]; *d.NUMANode != 1 || d.ParentUnknown || d.Parent == nil || len(h.Contradictions) != 0 {
		t.Errorf("%+v %v", d, h.Contradictions)
	}
}

func rdmaHost(address, firmware string, mtu int, gids ...topology.GID) *topology.Host {
	n := topology.NIC{Address: addr(address), Firmware: firmware,
		Ports: []topology.Netdev{{Name: "eth0", MTU: &mtu, MAC: address}},
		Devices: []topology.RDMADevice{{Name: "mlx5_0", NodeGUID: address,
			Ports: []topology.RDMAPort{{Number: 1, GIDs: gids}}}}}
	h := &topology.Host{NICs: []topology.NIC{n}}
	h.Complete()
	return h
}

func TestDiffSaysWhatMakesTheDifference(t *testing.T) {
	gid := func(i int, s, kind string) topology.GID { return topology.GID{Index: i, GID: s, Type: kind} }
	v4 := func(last string) string { return "0000:0000:0000:0000:0000:ffff:0a00:00" + last }
	const local = "fe80:0000:0000:0000:9a03:9bff:fe8f:c1a2"
	a := rdmaHost("18:00.0", "28.39", 9000, gid(0, local, "IB/RoCE v1"), gid(3, v4("01"), "RoCE v2"))
	b := rdmaHost("3a:00.0", "28.41", 1500, gid(0, local, "IB/RoCE v1"), gid(3, local, "RoCE v2"),
		gid(5, v4("02"), "RoCE v2"))
	var got []string
	for _, d := range compare.Diff(a, b) {
		got = append(got, d.Part+": "+d.Text()+" "+strings.Join(d.Things, ", "))
	}
	want := []string{
		"order: function: 0000:18:00.0 in A, 0000:3a:00.0 in B eth0, mlx5_0",
		"nics: address: IPv4 in A, link-local in B mlx5_0 rdma_devices[mlx5_0] ports[1] gids[3]",
		"nics: firmware: 28.39 in A, 28.41 in B mlx5_0",
		"nics: mtu: 9000 in A, 1500 in B mlx5_0 ports[eth0]",
		"nics: only in B mlx5_0 rdma_devices[mlx5_0] ports[1] gids[5]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c := rdmaHost("18:00.0", "28.39", 9000, gid(0, local, "IB/RoCE v1"), gid(3, v4("77"), "RoCE v2"))
	c.NICs[0].Ports[0].MAC, c.NICs[0].Devices[0].NodeGUID = "other", "other"
	if d := compare.Diff(a, c); len(d) != 0 {
		t.Errorf("%+v", d)
	}
	if d := compare.Diff(a, &topology.Host{System: topology.System{Vendor: "x"}}); len(d) != 0 {
		t.Errorf("%+v", d)
	}
}

func TestDiffPutsThingsThatDifferAlikeTogether(t *testing.T) {
	host := func(gts float64) *topology.Host {
		h := &topology.Host{}
		for i := range 30 {
			h.PCI = append(h.PCI, topology.PCIDevice{Address: topology.PCIAddr{Bus: uint8(i)},
				Link: &topology.Link{SpeedGTs: new(gts)}})
		}
		return h
	}
	d := compare.Diff(host(16), host(32))
	if len(d) != 1 || d[0].Count != 30 || len(d[0].Things) != 16 || d[0].Fact != "link.speed_gts" {
		t.Errorf("%+v", d)
	}
}

// Artificial switches stay above existing devices.
func TestDevicesOfAnotherMachineAreLeftOut(t *testing.T) {
	made := topology.PCIDevice{Address: *addr("ffff:ff:01.0"), Bridge: &topology.Bridge{}}
	file := func(gpu string) *topology.Host {
		below := function(gpu, 0x030200, topology.VendorNVIDIA)
		below.Parent = &made.Address
		h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceNCCL},
			PCI: []topology.PCIDevice{made, below}, GPUs: []topology.GPU{{Address: addr(gpu)}}}
		h.Complete()
		return h
	}
	for _, tt := range []struct {
		gpu  string
		kind string
		want string
	}{
		{"3b:00.0", topology.SourceTree, "2 functions, 1 GPUs, 0 contradictions"},
		{"5e:00.0", topology.SourceTree, "1 functions, 1 GPUs, 1 contradictions"},
		{"5e:00.0", topology.SourceTexts, "3 functions, 2 GPUs, 0 contradictions"}, // lspci -s shows single functions
	} {
		whole := &topology.Host{Provenance: topology.Provenance{Kind: tt.kind},
			PCI: []topology.PCIDevice{function("3b:00.0", 0x030200, topology.VendorNVIDIA)}}
		whole.Complete()
		h := compare.Join([]compare.Part{{Source: "sysfs", Host: whole}, {Source: "file", Host: file(tt.gpu)}})
		got := fmt.Sprintf("%d functions, %d GPUs, %d contradictions", len(h.PCI), len(h.GPUs), len(h.Contradictions))
		if got != tt.want {
			t.Errorf("%s of %s: %s; want %s", tt.gpu, tt.kind, got, tt.want)
		}
	}
}

// libvirt in a container sees no IOMMU, but groups prove that there is one.
func TestAnIOMMUWithGroupsIsThere(t *testing.T) {
	t.Parallel()
	for _, group := range []*int{new(7), nil} {
		device := function("41:00.0", 0x020000, topology.VendorMellanox)
		device.IOMMUGroup = group
		h := compare.Join([]compare.Part{
			{Source: "dmesg", Host: &topology.Host{IOMMU: topology.IOMMU{Enabled: new(false)}}},
			{Source: "IOMMU groups", Host: &topology.Host{PCI: []topology.PCIDevice{device}}},
		})
		if *h.IOMMU.Enabled != (group != nil) || (len(h.Contradictions) == 1) != (group != nil) {
			t.Errorf("with group %v: enabled is %v, contradictions %+v", group, *h.IOMMU.Enabled, h.Contradictions)
		}
		if group != nil && (h.Contradictions[0].By != "dmesg" ||
			!strings.HasPrefix(h.Contradictions[0].Source, "IOMMU groups: 0000:41:00.0 is in IOMMU group 7")) {
			t.Errorf("contradiction is %+v", h.Contradictions[0])
		}
	}
}
