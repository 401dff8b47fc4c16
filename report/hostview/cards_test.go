package hostview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func cardText(c card) string {
	out := c.Kind + ": " + c.Title
	for i, l := range c.Lines {
		if i < c.Strong {
			l = "*" + l
		}
		out += " | " + l
	}
	for _, m := range c.Marks {
		out += " !" + m.ID
	}
	return out
}

// cardOf puts a star before bold lines.
func cardOf(t *testing.T, h *topology.Host, id string, findings ...finding.Finding) string {
	t.Helper()
	h.Complete()
	out := ""
	for _, g := range newScene(newView(NewDocument(h, findings))).Groups {
		for _, r := range g.Rooms {
			for _, b := range r.Blocks {
				walk(b.Branches, func(b branch) {
					for _, c := range b.Cards {
						if c.ID == id {
							out += cardText(c)
						}
					}
				})
			}
		}
	}
	return out
}

func TestACardSaysWhatIsKnownOfAGPU(t *testing.T) {
	const at = "0000:06:00.0"
	base := func(change func(*topology.Host, *topology.PCIDevice)) *topology.Host {
		h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
		d := function(h, at, "", "pci0000:00", 0, 0x030200, topology.VendorNVIDIA, 0x2330, "GH100 [H100 SXM5 80GB]",
			nil)
		d.DriverKnown = false
		change(h, d)
		return h
	}
	for _, tt := range []struct {
		name   string
		change func(*topology.Host, *topology.PCIDevice)
		want   string
	}{
		{"its model", func(*topology.Host, *topology.PCIDevice) {}, "gpu: GPU0 06:00.0 | H100 SXM5 80GB"},
		{"no name but its IDs", func(_ *topology.Host, d *topology.PCIDevice) {
			d.DeviceName = ""
		}, "gpu: GPU0 06:00.0 | 10de:2330"},
		{"driver and group", func(_ *topology.Host, d *topology.PCIDevice) {
			d.Driver, d.IOMMUGroup = "nvidia", new(7)
		}, "gpu: GPU0 06:00.0 | H100 SXM5 80GB | nvidia · group 7"},
		{"no driver is bound", func(_ *topology.Host, d *topology.PCIDevice) {
			d.DriverKnown = true
		}, "gpu: GPU0 06:00.0 | H100 SXM5 80GB"},
		{"memory and BAR", func(h *topology.Host, d *topology.PCIDevice) {
			h.GPUs = []topology.GPU{{Address: new(addr(at)), MemoryBytes: new(uint64(80 * gib)),
				BAR1Bytes: new(uint64(128 * gib))}}
		}, "gpu: GPU0 06:00.0 | H100 SXM5 80GB | 80 GiB · BAR 128 GiB"},
		{"NVLinks", func(h *topology.Host, d *topology.PCIDevice) {
			h.GPUs = []topology.GPU{{Address: new(addr(at)), MemoryBytes: new(uint64(80 * gib)),
				BAR1Bytes: new(uint64(128 * gib)), NVLinks: new(18)}}
		}, "gpu: GPU0 06:00.0 | H100 SXM5 80GB | 80 GiB · 18 NVLinks | BAR 128 GiB"},
		{"XGMI", func(h *topology.Host, d *topology.PCIDevice) {
			d.Vendor = new(topology.VendorAMD)
			h.GPUs = []topology.GPU{{Address: new(addr(at)), NVLinks: new(7)}}
		}, "gpu: GPU0 06:00.0 | H100 SXM5 80GB | XGMI x7"},
		{"a controller of a board", func(_ *topology.Host, d *topology.PCIDevice) {
			d.Vendor, d.DeviceName, d.Driver = new(topology.ID16(0x1a03)), "ASPEED Graphics Family", "ast"
		},
			"screen: Screen 06:00.0 | ASPEED Graphics Family · ast"},
		{"a domain that is not the first", func(h *topology.Host, d *topology.PCIDevice) {
			h.PCI[0].Address.Domain = 0x10000
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, cardOf(t, base(tt.change), at)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	h := base(func(h *topology.Host, d *topology.PCIDevice) { h.PCI[0].Address.Domain = 0x10000 })
	if got := cardOf(t, h, "10000:06:00.0"); got != "gpu: GPU0 10000:06:00.0 | H100 SXM5 80GB" {
		t.Errorf("got %s", got)
	}
	h = base(func(h *topology.Host, d *topology.PCIDevice) {
		function(h, "0000:06:00.1", "", "pci0000:00", 0, 0x040300, topology.VendorNVIDIA, 1, "Audio", nil)
	})
	if got := cardOf(t, h, at); got != "gpu: GPU0 06:00.0 | H100 SXM5 80GB | + 1 function" {
		t.Errorf("got %s", got)
	}
}

func TestACardSaysWhatIsKnownOfANIC(t *testing.T) {
	const at = "0000:41:00.0"
	base := func(n topology.NIC, routes ...topology.Route) *topology.Host {
		h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}, Routes: routes}
		function(h, at, "", "pci0000:40", 0, 0x020000, topology.VendorMellanox, 0x1015,
			"MT27710 Family [ConnectX-4 Lx]", nil)
		n.Address = new(addr(at))
		h.NICs = []topology.NIC{n}
		return h
	}
	for _, tt := range []struct {
		name string
		host *topology.Host
		want string
	}{
		{"its model", base(topology.NIC{}), "nic: NIC0 41:00.0 | ConnectX-4 Lx"},
		{"names, speed and MTU", base(topology.NIC{Ports: []topology.Netdev{{Name: "eth0", MTU: new(4200),
			SpeedMbps: new(int64(25000))}}, Devices: []topology.RDMADevice{{Name: "mlx5_0"}}}),
			"nic: NIC0 41:00.0 | eth0 · mlx5_0 | 25 Gb/s · MTU 4200 | ConnectX-4 Lx"},
		{"ports that differ", base(topology.NIC{Ports: []topology.Netdev{{Name: "a", MTU: new(1500)},
			{Name: "b", MTU: new(9000)}}}), "nic: NIC0 41:00.0 | a,b | MTU 1500-9000 | ConnectX-4 Lx"},
		{"no link", base(topology.NIC{Ports: []topology.Netdev{{Name: "a", Carrier: new(false)}}}),
			"nic: NIC0 41:00.0 | a | down | ConnectX-4 Lx"},
		{"a link of one port of two is not down",
			base(topology.NIC{Ports: []topology.Netdev{{Name: "a", State: "down"}, {Name: "b", State: "up"}}}),
			"nic: NIC0 41:00.0 | a,b | ConnectX-4 Lx"},
		{"virtual functions", base(topology.NIC{SRIOV: &topology.SRIOV{Total: new(8), Enabled: new(4)}}),
			"nic: NIC0 41:00.0 | 4 of 8 VFs · ConnectX-4 Lx"},
		{"virtual functions, of how many is not known", base(topology.NIC{SRIOV: &topology.SRIOV{Enabled: new(4)}}),
			"nic: NIC0 41:00.0 | 4 VFs · ConnectX-4 Lx"},
		{"a driver of another owner", base(topology.NIC{Driver: "vfio-pci"}),
			"nic: NIC0 41:00.0 | vfio-pci · ConnectX-4 Lx"},
		{"what the host is reached by", base(topology.NIC{Ports: []topology.Netdev{{Name: "eth0"}}},
			topology.Route{Netdev: "eth0", PCI: []string{at}}),
			"nic: NIC0 41:00.0 | *default route | eth0 | ConnectX-4 Lx"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, cardOf(t, tt.host, at)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	h := base(topology.NIC{Ports: []topology.Netdev{{Name: "eth0"}}, Devices: []topology.RDMADevice{{Name: "mlx5_0"}}})
	if got := cardOf(t, h, at, finding.Finding{ID: "RL091", Subject: "mlx5_0"},
		finding.Finding{ID: "RL084", Subject: "eth0,eth1"}); !strings.HasSuffix(got, " !RL084 !RL091") {
		t.Errorf("got %s", got)
	}
}

func TestACardSaysWhatIsKnownOfADisk(t *testing.T) {
	const at = "0000:01:00.0"
	base := func(class topology.ID24, disks ...topology.Disk) *topology.Host {
		h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
		function(h, at, "", "pci0000:00", 0, class, 0x144d, 0xa808, "NVMe SSD Controller SM981", nil)
		for _, d := range disks {
			d.PCI = new(addr(at))
			h.Storage = append(h.Storage, d)
		}
		return h
	}
	for _, tt := range []struct {
		name string
		host *topology.Host
		want string
	}{
		{"a controller of which no disk is known", base(0x010802), "disk: Storage 01:00.0 | NVMe SSD Controller SM981"},
		{"a SATA controller of which no disk is known", base(0x010601), ""},
		{"a disk", base(0x010802, topology.Disk{Name: "nvme0n1", SizeBytes: new(uint64(1 << 40))}),
			"disk: nvme0n1 01:00.0 | 1 TiB · SM981"},
		{"a disk that the host needs", base(0x010601, topology.Disk{Name: "sda", Mounts: []string{"/", "[SWAP]"},
			Model: "X"}), "disk: sda 01:00.0 | *holds /, [SWAP] | X"},
		{"many disks", base(0x010400, topology.Disk{Name: "sda", SizeBytes: new(uint64(gib))},
			topology.Disk{Name: "sdb", SizeBytes: new(uint64(gib))},
			topology.Disk{Name: "sdc", SizeBytes: new(uint64(gib))}),
			"disk: sda and 2 more 01:00.0 | 3 GiB · SM981"},
		{"a size that is not known is not counted as none",
			base(0x010400, topology.Disk{Name: "sda", SizeBytes: new(uint64(gib))}, topology.Disk{Name: "sdb"}),
			"disk: sda, sdb 01:00.0 | SM981"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, cardOf(t, tt.host, at)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestOtherAcceleratorsAreDrawn(t *testing.T) {
	h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
	d := function(h, "0000:05:00.0", "", "pci0000:00", 0, 0x120000, topology.VendorIntel, 0x0b25, "Data Accelerator",
		nil)
	d.Driver = "idxd"
	if got := cardOf(t, h, "0000:05:00.0"); got != "other: 05:00.0 | Data Accelerator | class 0x120000 · idxd" {
		t.Errorf("got %s", got)
	}
}

func TestVirtualFunctionsWithoutTheirPhysicalOneAreDrawn(t *testing.T) {
	h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0}}}
	function(h, "0000:05:00.1", "", "pci0000:00", 0, 0x020000, topology.VendorMellanox, 0x101a, "",
		nil).PF = new(addr("0000:99:00.0"))
	if got := cardOf(t, h, "0000:05:00.1"); got != "nic: VF 05:00.1 | 15b3:101a" {
		t.Errorf("got %s", got)
	}
}

func TestCountsOfVirtualFunctions(t *testing.T) {
	pf := addr("0000:41:00.0")
	v := &view{vfs: map[topology.PCIAddr]int{pf: 3}}
	for _, tt := range []struct {
		addr *topology.PCIAddr
		s    *topology.SRIOV
		want string
	}{
		{nil, nil, "-"}, {&pf, nil, "3"}, {nil, &topology.SRIOV{}, "0"}, {nil, &topology.SRIOV{Total: new(8)},
			"0 of 8"},
		{&pf, &topology.SRIOV{Total: new(8), Enabled: new(4)}, "4 of 8"},
		{nil, &topology.SRIOV{VFs: make([]topology.VF, 5)}, "5"},
	} {
		if got := v.vfText(&topology.NIC{Address: tt.addr, SRIOV: tt.s}, nil); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt, got, tt.want)
		}
	}
}

// They come from the source, else the kernel, else the node.
func TestAffinityIsTheNearestThatIsKnown(t *testing.T) {
	h := &topology.Host{NUMANodes: []topology.NUMANode{{ID: 0, CPUs: set("0-3")}, {ID: 1, CPUs: set("4-7")}}}
	function(h, "0000:01:00.0", "", "pci0000:00", 1, 0x020000, topology.VendorIntel, 1, "",
		nil).LocalCPUs = new(set("4-5"))
	function(h, "0000:02:00.0", "", "pci0000:00", 1, 0x020000, topology.VendorIntel, 1, "", nil)
	h.Complete()
	v := newView(NewDocument(h, nil))
	for _, tt := range []struct {
		name   string
		stated *topology.CPUSet
		addr   *topology.PCIAddr
		node   *int
		want   string
	}{
		{"stated", new(set("6")), new(addr("0000:01:00.0")), new(1), "6"},
		{"the kernel's", nil, new(addr("0000:01:00.0")), new(1), "4-5"},
		{"the node's", nil, new(addr("0000:02:00.0")), new(1), "4-7"},
		{"a node that is not there", nil, nil, new(9), "?"},
		{"nothing", nil, nil, nil, "?"},
	} {
		if got := setText(v.affinity(tt.stated, tt.addr, tt.node), 20); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
