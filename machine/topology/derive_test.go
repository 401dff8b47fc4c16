package topology

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNUMANodeThatTheDeviceDoesNotState(t *testing.T) {
	t.Parallel()
	type node struct {
		ID     int
		Source string
	}
	nodes := func(n int) []NUMANode {
		out := []NUMANode{{ID: 0, CPUs: CPURange(0, 7)}, {ID: 1, CPUs: CPURange(8, 15)}, {ID: 2}}
		return out[:n]
	}
	for _, tt := range []struct {
		name  string
		nodes int
		lines string
		local map[string]CPUSet
		want  map[string]node
	}{
		{
			"what the device says counts", 2, "01:00.0 0302 node 1", map[string]CPUSet{"01:00.0": CPURange(0, 7)},
			map[string]node{"01:00.0": {1, ""}},
		},
		{
			"the CPUs of one node", 2, "01:00.0 0302", map[string]CPUSet{"01:00.0": CPURange(8, 15)},
			map[string]node{"01:00.0": {1, "local_cpulist"}},
		},
		{
			"some CPUs of one node", 2, "01:00.0 0302", map[string]CPUSet{"01:00.0": CPURange(8, 11)},
			map[string]node{"01:00.0": {1, "local_cpulist"}},
		},
		{
			"all CPUs of the machine are no place", 2, "01:00.0 0302", map[string]CPUSet{"01:00.0": CPURange(0, 15)},
			map[string]node{},
		},
		{
			"no CPUs are no place, though a node without CPUs has all of them", 3, "01:00.0 0302",
			map[string]CPUSet{"01:00.0": {}},
			map[string]node{},
		},
		{
			"the nearest bridge that says", 2, "01:00.0 0604 node 0\n02:00.0 0604 below 01:00.0\n03:00.0 0302 below " +
				"02:00.0\n04:00.0 0302", nil,
			map[string]node{"01:00.0": {0, ""}, "02:00.0": {0, "parent"}, "03:00.0": {0, "parent"}},
		},
		{
			"a bridge that comes after what is behind it, and knows by its CPUs", 2,
			"01:00.0 0302 below 05:00.0\n05:00.0 0604",
			map[string]CPUSet{"05:00.0": CPURange(8, 15)},
			map[string]node{"01:00.0": {1, "parent"}, "05:00.0": {1, "local_cpulist"}},
		},
		{
			"a machine with one node", 1, "01:00.0 0302\n02:00.0 0302", map[string]CPUSet{"02:00.0": CPURange(0, 7)},
			map[string]node{"01:00.0": {0, "only node"}, "02:00.0": {0, "only node"}},
		},
		{"a machine without nodes", 0, "01:00.0 0302", nil, map[string]node{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := machine(t, 0, tt.lines)
			h.NUMANodes = nodes(tt.nodes)
			for i := range h.PCI {
				if set, ok := tt.local[strings.TrimPrefix(h.PCI[i].Address.String(), "0000:")]; ok {
					h.PCI[i].LocalCPUs = &set
				}
			}
			h.Complete()
			h.Complete()
			got := map[string]node{}
			for _, d := range h.PCI {
				if d.NUMANode != nil {
					got[strings.TrimPrefix(d.Address.String(), "0000:")] = node{*d.NUMANode, d.NUMASource}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, g := range h.GPUs {
				if want, ok := tt.want[strings.TrimPrefix(g.Address.String(), "0000:")]; ok != (g.NUMANode != nil) ||
					ok && *g.NUMANode != want.ID {
					t.Errorf("GPU %v: node %v, want %v", g.Address, g.NUMANode, want)
				}
			}
		})
	}
}

func TestLinkIsJoinedToThePortAbove(t *testing.T) {
	t.Parallel()
	link := func(speed float64, width int) *Link { return &Link{SpeedGTs: &speed, Width: &width} }
	for _, tt := range []struct {
		name         string
		port, device string
		want         bool
	}{
		{"a device below a root port", "root port", "", true},
		{"the upstream port of a switch below a root port", "root port", "upstream port", true},
		{"the downstream port of a switch leads down, not up", "upstream port", "downstream port", false},
		{"a device below a whole switch, whose link is its upper one", PortSwitch, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := machine(t, 1, "00:01.0 0604 on pci0000:00\n01:00.0 0604 below 00:01.0")
			h.PCI[0].Link, h.PCI[0].Bridge = link(16, 8), &Bridge{Secondary: 1, Subordinate: 1, Port: tt.port}
			h.PCI[1].Link = link(8, 4)
			if tt.device != "" {
				h.PCI[1].Bridge = &Bridge{Port: tt.device}
			}
			h.Complete()
			var want *PortLink
			if tt.want {
				want = &PortLink{Address: PCIAddr{Device: 1}, SpeedGTs: new(16.0), Width: new(8)}
			}
			if diff := cmp.Diff(want, h.PCI[1].Link.Port); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if h.PCI[1].Root != "pci0000:00" {
				t.Errorf("root %q, want that of the port", h.PCI[1].Root)
			}
		})
	}
}

func TestFunctionsAreSortedAndListedOnce(t *testing.T) {
	t.Parallel()
	h := machine(t, 1, "02:00.0 0200 node 0\n01:00.0 0302\n02:00.0 0302\n00:1f.0 0601")
	h.Complete()
	var got []string
	for _, d := range h.PCI {
		got = append(got, d.Address.String()+" "+d.Class.String())
	}
	want := []string{"0000:00:1f.0 0x060100", "0000:01:00.0 0x030200", "0000:02:00.0 0x020000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVirtualFunctionsAndTheirPhysicalOneKnowEachOther(t *testing.T) {
	t.Parallel()
	const lines = "01:00.0 0200\n01:00.2 0200\n01:00.3 0200\n02:00.0 0200"
	vfs := []VF{{0, &PCIAddr{Bus: 1, Function: 2}}, {1, &PCIAddr{Bus: 1, Function: 3}}}
	pf := &PCIAddr{Bus: 1}
	for _, tt := range []struct {
		name  string
		edit  func(h *Host)
		sriov *SRIOV
		pfs   [4]*PCIAddr
	}{
		{"neither says", func(*Host) {}, nil, [4]*PCIAddr{}},
		{
			"the physical function says", func(h *Host) {
				h.PCI[0].SRIOV = &SRIOV{VFs: []VF{vfs[1], vfs[0], {Index: 2}, {3, &PCIAddr{Bus: 9}}}}
			},
			&SRIOV{VFs: []VF{vfs[0], vfs[1], {Index: 2}, {3, &PCIAddr{Bus: 9}}}}, [4]*PCIAddr{1: pf, 2: pf},
		},
		{"the virtual ones say", func(h *Host) {
			h.PCI[1].PF, h.PCI[2].PF = pf, pf
		}, &SRIOV{VFs: vfs}, [4]*PCIAddr{1: pf, 2: pf}},
		{
			"the virtual ones say, of one that knows how many there may be",
			func(h *Host) { h.PCI[0].SRIOV, h.PCI[1].PF, h.PCI[2].PF = &SRIOV{Total: new(8)}, pf, pf },
			&SRIOV{Total: new(8), VFs: vfs}, [4]*PCIAddr{1: pf, 2: pf},
		},
		{"no virtual ones are an empty list", func(h *Host) {
			h.PCI[0].SRIOV = &SRIOV{}
		}, &SRIOV{VFs: []VF{}}, [4]*PCIAddr{}},
		{
			"a function that is said to be its own", func(h *Host) {
				h.PCI[0].SRIOV, h.PCI[0].PF = &SRIOV{VFs: []VF{{0, pf}}}, nil
			},
			&SRIOV{VFs: []VF{{0, pf}}}, [4]*PCIAddr{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := machine(t, 1, lines)
			tt.edit(h)
			h.Complete()
			h.Complete()
			if diff := cmp.Diff(tt.sriov, h.PCI[0].SRIOV); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for i, want := range tt.pfs {
				if diff := cmp.Diff(want, h.PCI[i].PF); diff != "" {
					t.Errorf("physical function of %v (-want +got):\n%s", h.PCI[i].Address, diff)
				}
			}
			if n := len(h.NICs); n != 4 {
				t.Errorf("%d NICs, want 4", n)
			}
		})
	}
}

func TestIOMMUGroupsAreCollected(t *testing.T) {
	t.Parallel()
	h := machine(t, 1, "01:00.1 0403\n01:00.0 0302\n02:00.0 0200\n03:00.0 0200")
	h.PCI[0].IOMMUGroup, h.PCI[1].IOMMUGroup, h.PCI[2].IOMMUGroup = new(7), new(7), new(3)
	h.IOMMU.Groups = []IOMMUGroup{{ID: 7, Type: "DMA-FQ", Devices: []PCIAddr{{Bus: 1, Function: 1}},
		Reserved: []string{"x"}}, {ID: 9, Devices: []PCIAddr{}}}
	h.Complete()
	h.Complete()
	want := IOMMU{Enabled: new(true), Groups: []IOMMUGroup{
		{ID: 3, Devices: []PCIAddr{{Bus: 2}}},
		{ID: 7, Type: "DMA-FQ", Devices: []PCIAddr{{Bus: 1}, {Bus: 1, Function: 1}}, Reserved: []string{"x"}},
		{ID: 9, Devices: []PCIAddr{}},
	}}
	if diff := cmp.Diff(want, h.IOMMU); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	none := machine(t, 1, "01:00.0 0302")
	none.IOMMU.Enabled = new(false)
	none.Complete()
	if diff := cmp.Diff(IOMMU{Enabled: new(false)}, none.IOMMU); diff != "" {
		t.Errorf("without groups (-want +got):\n%s", diff)
	}
}

func TestKindsOfGPUs(t *testing.T) {
	t.Parallel()
	vendor := func(v ID16) func(*Host) { return func(h *Host) { h.PCI[0].Vendor = &v } }
	for _, tt := range []struct {
		name, lines string
		edit        func(h *Host)
		want        string // "none" if not a GPU
	}{
		{"a card", "01:00.0 0302 below 00:01.0 on pci0000:00", vendor(VendorNVIDIA), GPUDiscrete},
		{"a card that a virtual machine sees on its root bus", "00:05.0 0302 on pci0000:00", vendor(VendorNVIDIA),
			GPUDiscrete},
		{"graphics inside of an Intel processor", "00:02.0 0300 on pci0000:00", vendor(VendorIntel), GPUIntegrated},
		{"a card of Intel", "03:00.0 0300 below 00:01.0 on pci0000:00", vendor(VendorIntel), GPUDiscrete},
		{"a card of Intel in a dump without bridges", "03:00.0 0300 on pci0000:00 cut", vendor(VendorIntel),
			GPUDiscrete},
		{
			"graphics inside of an AMD processor, beside the processor's own functions",
			"04:00.0 0300 below 00:08.1\n04:00.2 1080 below 00:08.1",
			func(h *Host) { h.PCI[0].Vendor, h.PCI[1].Vendor = new(VendorAMD), new(ID16(0x1022)) }, GPUIntegrated,
		},
		{
			"a card of AMD, beside its own audio", "04:00.0 0300 below 00:08.1\n04:00.1 0403 below 00:08.1",
			func(h *Host) { h.PCI[0].Vendor, h.PCI[1].Vendor = new(VendorAMD), new(VendorAMD) }, GPUDiscrete,
		},
		{"the screen of a management controller", "02:00.0 0300", vendor(0x1a03), GPUDisplay},
		{"the screen of a virtual machine", "00:01.0 0300", vendor(VendorRedHat), GPUDisplay},
		{
			"the display controller of an emulated host stands in for a GPU", "06:00.0 0380 below 05:00.0",
			func(h *Host) { h.PCI[0].Vendor, h.System.Vendor = new(ID16(0x1234)), VendorEmulated }, GPUStandIn,
		},
		{
			"the GPU of an emulated node is a virtio GPU and no screen", "06:00.0 0302 below 05:00.0",
			func(h *Host) { h.PCI[0].Vendor, h.PCI[0].Device = new(VendorRedHat), new(ID16(0x1050)) }, GPUStandIn,
		},
		{
			"the GPU of an emulated host has the ids of a card, and not its subsystem", "06:00.0 0302 below 05:00.0",
			func(h *Host) {
				d := &h.PCI[0]
				d.Vendor, d.Device = new(VendorNVIDIA), new(ID16(0x2329))
				d.SubsystemVendor, d.SubsystemDevice = new(VendorRedHat), new(ID16(0x4c01))
			}, GPUStandIn,
		},
		{
			"the card itself", "06:00.0 0302 below 05:00.0",
			func(h *Host) {
				d := &h.PCI[0]
				d.Vendor, d.Device = new(VendorNVIDIA), new(ID16(0x2329))
				d.SubsystemVendor, d.SubsystemDevice = new(VendorNVIDIA), new(ID16(0x198b))
			}, GPUDiscrete,
		},
		{"that of any other virtual machine is a screen", "06:00.0 0380 below 05:00.0", vendor(0x1234), GPUDisplay},
		{
			"the VGA of an emulated host is a screen", "00:01.0 0300",
			func(h *Host) { h.PCI[0].Vendor, h.System.Vendor = new(ID16(0x1234)), VendorEmulated }, GPUDisplay,
		},
		{
			"a virtual function", "01:00.4 0302\n01:00.0 0302",
			func(h *Host) { h.PCI[0].Vendor, h.PCI[0].PF = new(VendorAMD), &PCIAddr{Bus: 1} }, GPUVirtual,
		},
		{"an accelerator of AMD is a GPU in all but class", "01:00.0 1200 below 00:01.0", vendor(VendorAMD),
			GPUDiscrete},
		{"an accelerator of another vendor is none", "01:00.0 1200 below 00:01.0", vendor(VendorIntel), "none"},
		{"a GPU whose vendor is not known", "01:00.0 0302", func(*Host) {}, ""},
		{"a NIC", "01:00.0 0200", vendor(VendorMellanox), "none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := machine(t, 1, tt.lines)
			address := h.PCI[0].Address
			tt.edit(h)
			h.Complete()
			got := "none"
			for _, g := range h.GPUs {
				if *g.Address == address {
					got = g.Kind
				}
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestGPUTakesWhatItsFunctionKnows(t *testing.T) {
	t.Parallel()
	h := machine(t, 2, "01:00.0 0302 node 1\n01:00.1 0403 node 1\n01:00.2 0c03\n01:01.0 0200\n02:00.0 0302")
	d := &h.PCI[0]
	d.Vendor, d.VendorName, d.DeviceName, d.Driver = new(VendorNVIDIA), "NVIDIA Corporation", "GH100", "nvidia"
	d.BARs = []BAR{
		{Index: 0, SizeBytes: 16 << 20}, {Index: 2, SizeBytes: 128 << 30, Prefetchable: true, Bits64: true},
		{Index: 4, SizeBytes: 32 << 20, Prefetchable: true}, {Index: 6, SizeBytes: 1 << 40, Prefetchable: true},
	}
	h.GPUs = []GPU{{Name: "GPU7"}, {Address: &PCIAddr{Bus: 2}, Driver: "vfio-pci", Kind: "stated", Model: "stated"}}
	h.Complete()
	h.Complete()
	want := []GPU{
		{
			Address: &PCIAddr{Bus: 1}, Functions: []PCIAddr{{Bus: 1}, {Bus: 1, Function: 1}, {Bus: 1, Function: 2}},
			Kind:   GPUDiscrete,
			Vendor: "NVIDIA Corporation", Model: "GH100", NUMANode: new(1), Driver: "nvidia",
			BAR1Bytes: new(uint64(128 << 30)),
		},
		{Address: &PCIAddr{Bus: 2}, Functions: []PCIAddr{{Bus: 2}}, Kind: "stated", Model: "stated",
			Driver: "vfio-pci"},
		{Name: "GPU7"},
	}
	if diff := cmp.Diff(want, h.GPUs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNICTakesWhatItsFunctionAndItsPortsKnow(t *testing.T) {
	t.Parallel()
	h := machine(t, 2, "01:00.0 0200 node 1\n02:00.0 0207\n03:00.0 0c06")
	h.PCI[0].DeviceName, h.PCI[0].Driver, h.PCI[0].SRIOV = "ConnectX-5", "mlx5_core", &SRIOV{Total: new(8)}
	h.NICs = []NIC{
		{Name: "NIC9"},
		{
			Address: &PCIAddr{Bus: 1},
			Ports: []Netdev{{Name: "eth1", SpeedMbps: new(int64(25000))},
				{Name: "eth0", SpeedMbps: new(int64(100000))}, {Name: "eth2"}},
			Devices: []RDMADevice{{Name: "mlx5_1"}, {Name: "mlx5_0"}},
		},
		{
			Address: &PCIAddr{Bus: 2},
			Devices: []RDMADevice{{Name: "mlx5_2", Ports: []RDMAPort{{Number: 1, State: "DOWN", RateGbps: new(10.0)},
				{Number: 2, State: "ACTIVE", RateGbps: new(200.0)}}}},
		},
	}
	h.Complete()
	h.Complete()
	var got []NIC
	for _, n := range h.NICs {
		n.Ports, n.Devices = nil, nil
		got = append(got, n)
	}
	want := []NIC{
		{
			Address: &PCIAddr{Bus: 1}, Model: "ConnectX-5", Netdevs: []string{"eth0", "eth1", "eth2"},
			RDMA:      []string{"mlx5_0", "mlx5_1"},
			SpeedMbps: new(int64(100000)), NUMANode: new(1), Driver: "mlx5_core", SRIOV: &SRIOV{Total: new(8),
				VFs: []VF{}},
		},
		{Address: &PCIAddr{Bus: 2}, Netdevs: []string{}, RDMA: []string{"mlx5_2"}, SpeedMbps: new(int64(200000))},
		{Address: &PCIAddr{Bus: 3}, Netdevs: []string{}, RDMA: []string{}},
		{Name: "NIC9", Netdevs: []string{}, RDMA: []string{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCoresAndCachesAreNumberedByTheirLowestCPU(t *testing.T) {
	t.Parallel()
	h := &Host{
		Packages:  []Package{{ID: 1}, {ID: 0}},
		NUMANodes: []NUMANode{{ID: 0, CPUs: CPUs(0, 1, 4, 5)}, {ID: 3, CPUs: CPUs(2, 3, 6, 7)}},
		L3:        []L3{{CPUs: CPUs(2, 3, 6, 7)}, {CPUs: CPUs(0, 1, 4, 5)}},
		Cores: []Core{{CPUs: CPUs(3, 7)}, {CPUs: CPUs(1, 5)}, {CPUs: CPUs(2, 6), NUMANode: new(1)},
			{CPUs: CPUs(0, 4)}, {CPUs: CPUs(9)}},
	}
	h.Complete()
	h.Complete()
	want := []Core{
		{ID: 0, CPUs: CPUs(0, 4), L3: new(0), NUMANode: new(0)},
		{ID: 1, CPUs: CPUs(1, 5), L3: new(0), NUMANode: new(0)},
		{ID: 2, CPUs: CPUs(2, 6), L3: new(1), NUMANode: new(1)},
		{ID: 3, CPUs: CPUs(3, 7), L3: new(1), NUMANode: new(3)},
		{ID: 4, CPUs: CPUs(9)},
	}
	if diff := cmp.Diff(want, h.Cores); diff != "" {
		t.Errorf("cores (-want +got):\n%s", diff)
	}
	if h.Packages[0].ID != 0 || h.L3[1].ID != 1 || !h.L3[0].CPUs.Equal(CPUs(0, 1, 4, 5)) {
		t.Errorf("packages %v, caches %v", h.Packages, h.L3)
	}
}

func TestTheRestIsSorted(t *testing.T) {
	t.Parallel()
	h := machine(t, 2, "01:00.0 0108 node 1\n02:00.0 0108")
	h.Storage = []Disk{{Name: "sdb"}, {Name: "nvme1n1", PCI: &PCIAddr{Bus: 2}},
		{Name: "nvme0n1", PCI: &PCIAddr{Bus: 1}}, {Name: "pmem0", NUMANode: new(0), PCI: &PCIAddr{Bus: 1}}}
	h.Bonds = []Bond{{Name: "bond1"}, {Name: "bond0"}}
	h.IRQs = []IRQ{{Number: 10}, {Number: 9}}
	h.Tenants = []Tenant{{Name: "b"}, {Name: "a"}}
	h.Unread = []Unread{{"/b", "x"}, {"/a", "y"}, {"/a", "x"}, {"/b", "x"}}
	h.Complete()
	once, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	want := []Disk{
		{Name: "nvme0n1", PCI: &PCIAddr{Bus: 1}, NUMANode: new(1)}, {Name: "nvme1n1", PCI: &PCIAddr{Bus: 2}},
		{Name: "pmem0", PCI: &PCIAddr{Bus: 1}, NUMANode: new(0)}, {Name: "sdb"},
	}
	if diff := cmp.Diff(want, h.Storage); diff != "" {
		t.Errorf("disks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Unread{{"/a", "x"}, {"/a", "y"}, {"/b", "x"}}, h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
	if h.Bonds[0].Name != "bond0" || h.IRQs[0].Number != 9 || h.Tenants[0].Name != "a" {
		t.Errorf("bonds %v, interrupts %v, tenants %v", h.Bonds, h.IRQs, h.Tenants)
	}
	h.Complete()
	if again, err := json.Marshal(h); err != nil || string(again) != string(once) {
		t.Errorf("the second time:\n%s\nthe first:\n%s", again, once)
	}
}

func TestBridges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		class  *ID24
		bridge *Bridge
		want   bool
	}{
		{"by class", new(ID24(0x060400)), nil, true},
		{"by class, semi-transparent", new(ID24(0x060940)), nil, true},
		{"by its header, whatever its class", new(ID24(0x088000)), &Bridge{}, true},
		{"a host bridge leads to no bus of PCI", new(ID24(0x060000)), nil, false},
		{"a function without a class", nil, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := PCIDevice{Class: tt.class, Bridge: tt.bridge}
			if got := d.IsBridge(); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
			if d.IsGPU() || d.IsNIC() {
				t.Error("is a GPU or a NIC")
			}
		})
	}
}

func TestCoresArePartsOfPackagesAndDies(t *testing.T) {
	t.Parallel()
	h := &Host{
		Packages: []Package{
			{ID: NoID, CPUs: CPURange(4, 5)},
			{ID: 0, CPUs: CPURange(0, 3), Dies: []Die{{ID: 7, CPUs: CPURange(0, 1)}, {ID: 8, CPUs: CPURange(2, 3)}}},
			{ID: 0, CPUs: CPURange(6, 7)},
		},
		Cores: []Core{{CPUs: CPUs(6, 7)}, {CPUs: CPUs(4, 5)}, {CPUs: CPUs(2, 3)}, {CPUs: CPUs(0, 1)}, {CPUs: CPUs(8)}},
	}
	for range 2 {
		h.Complete()
		var got []string
		for _, c := range h.Cores {
			where := "in no package"
			if c.Package != nil {
				where = fmt.Sprintf("in package %d", *c.Package)
			}
			if c.Die != nil {
				where += fmt.Sprintf(", die %d", *c.Die)
			}
			got = append(got, fmt.Sprintf("%s %s", c.CPUs, where))
		}
		want := []string{"0-1 in package 0, die 7", "2-3 in package 0, die 8", "4-5 in package 1", "6-7 in package 2",
			"8 in no package"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestMemoryOfGraceGPUs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		sizes []uint64 // in GiB; only the first has CPUs
		want  int
	}{
		{"one GPU", []uint64{479, 95, 0, 0, 0, 0, 0, 0, 0}, 8},
		{"the GPU is given away, and none has memory", []uint64{479, 0, 0, 0, 0, 0, 0, 0, 0}, 8},
		{"CXL", []uint64{479, 95}, 0},
		{"eight of CXL", []uint64{479, 95, 95, 95, 95, 95, 95, 95, 95}, 0},
	} {
		h := &Host{}
		for i, size := range test.sizes {
			n := NUMANode{ID: i, MemoryBytes: new(size << 30)}
			if i == 0 {
				n.CPUs = CPURange(0, 71)
			}
			h.NUMANodes = append(h.NUMANodes, n)
		}
		h.Complete()
		h.Complete()
		got := 0
		for _, n := range h.NUMANodes {
			if n.Kind == KindGPUMemory {
				got++
			}
		}
		said := min(1, test.want) * min(1, int(test.sizes[1]))
		if got != test.want || len(h.Inferred) != said {
			t.Errorf("%s: %d nodes are a GPU's, want %d; inferred %q, want %d", test.name, got, test.want, h.Inferred,
				said)
		}
	}
}

func TestMemoryOfPOWER9GPUs(t *testing.T) {
	t.Parallel()
	h := &Host{System: System{CPUModel: "POWER9, altivec supported"}, NUMANodes: []NUMANode{
		{ID: 0, CPUs: CPURange(0, 7)}, {ID: 8}, {ID: 254, MemoryBytes: new(uint64(16 << 30))},
		{ID: 255, MemoryBytes: new(uint64(16 << 30))}}}
	h.Complete()
	var got []string
	for _, n := range h.NUMANodes {
		got = append(got, n.Kind)
	}
	if diff := cmp.Diff([]string{"", "", "gpu", "gpu"}, got); diff != "" || len(h.Inferred) != 2 {
		t.Errorf("kinds (-want +got):\n%s\ninferred %q", diff, h.Inferred)
	}
}
