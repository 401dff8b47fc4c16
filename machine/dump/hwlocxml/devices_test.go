package hwlocxml

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func hostBridge(buses string, inside ...string) string {
	return object("Bridge", fmt.Sprintf(`bridge_type="0-1" depth="0" bridge_pci=%q`, buses), inside...)
}

func bridge(address, buses string, inside ...string) string {
	return object("Bridge", fmt.Sprintf(
		`bridge_type="1-1" bridge_pci=%q pci_busid=%q pci_type="0604 [8086:3c03] [0000:0000] 07" `+
			`pci_link_speed="0.000000"`,
		buses, address), inside...)
}

func device(address, class string, inside ...string) string {
	return object("PCIDev", fmt.Sprintf(
		`pci_busid=%q pci_type="%s [10de:20b0] [10de:134f] a1" pci_link_speed="0.000000"`, address, class), inside...)
}

func osDevice(name string, kind int, inside ...string) string {
	return object("OSDev", fmt.Sprintf(`name=%q osdev_type="%d"`, name, kind), inside...)
}

func twoNodes(machine, first, second string) string {
	return object("Machine", nodes("0xf", "0x3"),
		object("Package", `os_index="0" `+nodes("0x3", "0x1"), numa(0, "0x3", ""), first),
		object("Package", `os_index="1" `+nodes("0xc", "0x2"), numa(1, "0xc", ""), second), machine)
}

func tree(h *topology.Host) []string {
	var lines []string
	for i := range h.PCI {
		d := &h.PCI[i]
		line := d.Address.String()
		if d.Parent != nil {
			line += " below " + d.Parent.String()
		}
		if d.ParentUnknown {
			line += " below ?"
		}
		line += fmt.Sprintf(" root %q", d.Root)
		if d.NUMANode != nil {
			line += fmt.Sprintf(" node %d by %s", *d.NUMANode, d.NUMASource)
		}
		if d.Bridge != nil {
			line += fmt.Sprintf(" leads to %02x-%02x", d.Bridge.Secondary, d.Bridge.Subordinate)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestPCITree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file   string
		want   []string
		unread []string
	}{
		"a root bus, a port and a switch": {v2(twoNodes("", hostBridge("0000:[00-05]", device("0000:00:02.0", "0300"),
			bridge("0000:00:03.0", "0000:[01-05]", bridge("0000:01:00.0", "0000:[02-05]",
				bridge("0000:02:01.0", "0000:[05-05]", device("0000:05:00.0", "0302"))))), "")),
			[]string{
				`0000:00:02.0 root "pci0000:00" node 0 by local_cpulist`,
				`0000:00:03.0 root "pci0000:00" node 0 by local_cpulist leads to 01-05`,
				`0000:01:00.0 below 0000:00:03.0 root "pci0000:00" node 0 by local_cpulist leads to 02-05`,
				`0000:02:01.0 below 0000:01:00.0 root "pci0000:00" node 0 by local_cpulist leads to 05-05`,
				`0000:05:00.0 below 0000:02:01.0 root "pci0000:00" node 0 by local_cpulist`,
			}, nil},
		"bridges were filtered out": {v2(twoNodes("", hostBridge("0000:[00-05]", device("0000:05:00.0", "0302")),
			device("0000:85:00.0", "0302"))),
			[]string{`0000:05:00.0 below ? root "pci0000:00" node 0 by local_cpulist`,
				`0000:85:00.0 below ? root "" node 1 by local_cpulist`}, nil},
		"a device on a bus of another bridge": {v2(twoNodes(hostBridge("0000:[00-05]", device("0001:00:00.0", "0302"),
			bridge("0000:00:01.0", "0000:[04-05]", device("0000:09:00.0", "0302"))), "", "")),
			[]string{`0000:00:01.0 root "pci0000:00" leads to 04-05`, `0000:09:00.0 below ? root ""`,
				`0001:00:00.0 below ? root ""`}, nil},
		"below the machine the node is not known": {v2(twoNodes(hostBridge("0000:[00-00]",
			device("0000:00:02.0", "0300")), "", "")),
			[]string{`0000:00:02.0 root "pci0000:00"`}, nil},
		"below a group of two nodes it is not known": {v2(twoNodes(object("Group", nodes("0x6", "0x3"),
			hostBridge("0000:[00-00]", device("0000:00:02.0", "0300"))), "", "")),
			[]string{`0000:00:02.0 root "pci0000:00"`}, nil},
		"a part of a node is the node": {v2(twoNodes("", object("Group", nodes("0x1", "0x1"),
			hostBridge("0000:[00-00]", device("0000:00:02.0", "0300"))), "")),
			[]string{`0000:00:02.0 root "pci0000:00" node 0 by local_cpulist`}, nil},
		"the only node": {v2(object("Machine", nodes("0x1", "0x1"), numa(0, "0x1", ""),
			hostBridge("0000:[00-00]", device("0000:00:02.0", "0300")))),
			[]string{`0000:00:02.0 root "pci0000:00" node 0 by only node`}, nil},
		"of two nodes that are shown one may be near a third": {v2(object("Machine", nodes("0x3", "0x7"),
			numa(0, "0x1", ""), numa(1, "0x2", ""),
			object("Group", nodes("0x1", "0x5"), device("0000:00:03.0", "0300")), object("Package", nodes("0x1", "0x1"),
				device("0000:00:04.0", "0300")))),
			[]string{`0000:00:03.0 below ? root ""`, `0000:00:04.0 below ? root "" node 0 by local_cpulist`},
			[]string{"complete_nodeset also has NUMA nodes 2, which are not described: not allowed to whoever made " +
				"the dump"}},
		"the only node that is shown": {v2(object("Machine", nodes("0x1", "0x3"), numa(0, "0x1", ""),
			device("0000:00:02.0", "0300"),
			object("Group", nodes("0x1", "0x3"), device("0000:00:03.0", "0300")), object("Package", nodes("0x1", "0x1"),
				device("0000:00:04.0", "0300")))),
			[]string{`0000:00:02.0 below ? root "" node 0 by only node`,
				`0000:00:03.0 below ? root "" node 0 by only node`, `0000:00:04.0 below ? root "" node 0 by only node`},
			[]string{"complete_nodeset also has NUMA nodes 1, which are not described: not allowed to whoever made " +
				"the dump"}},
		"domains of 32 bits": {v2(twoNodes("", hostBridge("10000:[e0-e1]", bridge("10000:e0:02.0", "10000:[e1-e1]",
			device("10000:e1:00.0", "0108"))), "")),
			[]string{`10000:e0:02.0 root "pci10000:e0" node 0 by local_cpulist leads to e1-e1`,
				`10000:e1:00.0 below 10000:e0:02.0 root "pci10000:e0" node 0 by local_cpulist`}, nil},
		"an address that cannot be read": {v2(twoNodes(device("0000:00:20.0", "0300", osDevice("eth0", 2)), "", "")),
			nil,
			[]string{`PCI address "0000:00:20.0": device "20" is not 00 to 1f; ` +
				`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`}},
		"an address twice": {v2(twoNodes(device("0000:00:02.0", "0300")+device("0000:00:02.0", "0200"), "", "")),
			[]string{`0000:00:02.0 below ? root ""`},
			[]string{"second function at 0000:00:02.0; the first is at line 3"}},
		"buses that cannot be read": {v2(twoNodes(hostBridge("0000:[05-00]", device("0000:00:02.0", "0300"),
			bridge("0000:00:03.0", "zz:[1]", device("0000:01:00.0", "0300"))), "", "")),
			[]string{`0000:00:02.0 below ? root ""`, `0000:00:03.0 below ? root ""`, `0000:01:00.0 below ? root ""`},
			[]string{`bridge_pci "0000:[05-00]" is not domain:[first bus-last bus] in hexadecimal`,
				`bridge_pci "zz:[1]" is not domain:[first bus-last bus] in hexadecimal`}},
		"a bridge at no address": {v2(twoNodes(hostBridge("0000:[00-01]", bridge("here", "0000:[01-01]",
			device("0000:01:00.0", "0300"))), "", "")),
			[]string{`0000:01:00.0 below ? root ""`},
			[]string{`PCI address "here": no bus; ` +
				`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`}},
		"a bridge twice": {v2(twoNodes(hostBridge("0000:[00-02]", bridge("0000:00:01.0", "0000:[01-01]"),
			bridge("0000:00:01.0", "0000:[02-02]", device("0000:02:00.0", "0300"))), "", "")),
			[]string{`0000:00:01.0 root "pci0000:00" leads to 01-01`, `0000:02:00.0 below ? root ""`},
			[]string{"second function at 0000:00:01.0; the first is at line 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := read(t, c.file)
			if diff := gocmp.Diff(c.want, tree(h)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var unread []string
			for _, u := range h.Unread {
				unread = append(unread, u.Why)
			}
			if diff := gocmp.Diff(c.unread, unread); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPathsWhereBridgesAreMissing(t *testing.T) {
	t.Parallel()
	h := read(t, v2(twoNodes("",
		hostBridge("0000:[00-09]", device("0000:05:00.0", "0302"), device("0000:06:00.0", "0200"),
			device("0000:00:1f.0", "0200"))+hostBridge("0000:[20-20]", device("0000:20:00.0", "0200")),
		device("0000:85:00.0", "0302")+device("0000:86:00.0", "0200"))))
	for _, c := range []struct {
		a, b string
		want topology.PathClass
	}{
		{"0000:05:00.0", "0000:06:00.0", topology.PathUnknown}, // one bridge, several, or the root bus
		{"0000:05:00.0", "0000:00:1f.0", topology.PathUnknown},
		{"0000:05:00.0", "0000:20:00.0", topology.PathNODE},
		{"0000:05:00.0", "0000:86:00.0", topology.PathSYS},
		{"0000:85:00.0", "0000:86:00.0", topology.PathUnknown}, // the root is unknown
	} {
		if got := h.Path(c.a, c.b).Class; got != c.want {
			t.Errorf("%s to %s: got %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

func TestTooManyFunctions(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range maxPCI + 1 {
		fmt.Fprintf(&many, `<object type="PCIDev" pci_busid="%04x:%02x:00.0"/>`, i>>8, i&0xff)
	}
	_, err := Parse([]byte(v2(object("Machine", "", many.String()))), "t.xml")
	if want := "t.xml:3: object PCIDev: more than 16384 PCI functions"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestTypesOfFunctions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ attrs, want, unread string }{
		"before version 3": {`pci_type="0302 [10de:1eb8] [10de:12a2] a1"`,
			"0x030200 0x10de:0x1eb8 0x10de:0x12a2 0xa1", ""},
		"version 3": {`pci_type="0108 [144d:a822] [1014:0621] 01 02"`,
			"0x010802 0x144d:0xa822 0x1014:0x0621 0x01", ""},
		"no subsystem": {`pci_type="0604 [1014:03dc] [0000:0000] 00"`, "0x060400 0x1014:0x03dc - 0x00", ""},
		"none":         {``, "-", ""},
		"three fields": {`pci_type="0302 [10de:1eb8] a1"`, "-",
			`pci_type "0302 [10de:1eb8] a1" has 3 fields; at least 4 are wanted`},
		"an ID too long": {`pci_type="0302 [10de:1eb80] [10de:12a2] a1"`, "-",
			`pci_type "0302 [10de:1eb80] [10de:12a2] a1" is not class [vendor:device] [vendor:device] ` +
				`revision in hexadecimal`},
		"a class of another one": {`pci_type="030200 [10de:1eb8] [10de:12a2] a1"`, "-",
			`pci_type "030200 [10de:1eb8] [10de:12a2] a1" is not class [vendor:device] [vendor:device] ` +
				`revision in hexadecimal`},
	} {
		h := read(t, v2(twoNodes(object("PCIDev", `pci_busid="0000:01:00.0" `+c.attrs), "", "")))
		d, got := h.PCI[0], "-"
		if d.Class != nil {
			sub := "-"
			if d.SubsystemVendor != nil {
				sub = d.SubsystemVendor.String() + ":" + d.SubsystemDevice.String()
			}
			got = fmt.Sprintf("%s %s:%s %s %s", d.Class, d.Vendor, d.Device, sub, d.Revision)
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		why := ""
		if len(h.Unread) > 0 {
			why = h.Unread[0].Why
		}
		if why != c.unread {
			t.Errorf("%s: unread %q, want %q", name, why, c.unread)
		}
	}
	h := read(t, v2(twoNodes(object("PCIDev", `pci_busid="0000:01:00.0"`, info("PCIVendor", "Intel"),
		info("PCIDevice", "I350"), info("PCISlot", "4"))+
		object("PCIDev", `pci_busid="0000:02:00.0" name="Intel I210"`), "", "")))
	if d := h.PCI[0]; d.VendorName != "Intel" || d.DeviceName != "I350" || d.Slot != "4" ||
		h.PCI[1].DeviceName != "Intel I210" {
		t.Errorf("got names %q %q, slot %q and name %q", d.VendorName, d.DeviceName, d.Slot, h.PCI[1].DeviceName)
	}
}

func TestLinksThatAreClear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  string
		speed float64 // 0 for no link
		width int
		bare  float64 // the rate, if only that is known
	}{
		{"0.000000", 0, 0, 0},
		{"0.250000", 2.5, 1, 0},
		{"0.500000", 0, 0, 0.5}, // 2.5 x2, 5 x1
		{"0.984615", 8, 1, 0},
		{"4.000000", 0, 0, 4},          // 2.5 x16, 5 x8
		{"8.000000", 5, 16, 0},         // not 2.5 x32
		{"15.753846", 0, 0, 15.753846}, // 8 x16, 16 x8, 32 x4
		{"31.507692", 0, 0, 31.507692}, // 16 x16, 32 x8
		{"63.015385", 0, 0, 63.015385}, // 32 x16, 64 x8
		{"126.030769", 64, 16, 0},
		{"0.615385", 0, 0, 0.615385}, // some versions use the line coding of 8 GT/s for 5 GT/s
		{"31.000000", 0, 0, 31},
		{"-1", 0, 0, 0},
		{"1e300", 0, 0, 0},
		{"NaN", 0, 0, 0},
	} {
		h := read(t, v2(twoNodes(object("PCIDev", fmt.Sprintf(`pci_busid="0000:01:00.0" pci_link_speed=%q`, c.rate)),
			"", "")))
		link := h.PCI[0].Link
		if c.speed == 0 && link != nil || c.speed != 0 && (link == nil || *link.SpeedGTs != c.speed ||
			*link.Width != c.width) {
			t.Errorf("%s: got %+v, want %v GT/s on %d lanes", c.rate, link, c.speed, c.width)
		}
		if bare := h.PCI[0].LinkGBps; c.bare == 0 && bare != nil || c.bare != 0 && (bare == nil || *bare != c.bare) {
			t.Errorf("%s: rate %v, want %v", c.rate, bare, c.bare)
		}
	}
	h := read(t, v2(twoNodes(object("PCIDev", `pci_busid="0000:01:00.0" pci_link_speed="8.000000"`,
		osDevice("nvml0", 1)), "", "")))
	if h.PCI[0].Link != nil {
		t.Errorf("got %+v: below NVML the number is the GPU's maximum", h.PCI[0].Link)
	}
	h = read(t, v2(twoNodes(object("PCIDev", `pci_busid="0000:01:00.0" pci_link_speed="fast"`), "", "")))
	if want := `pci_link_speed "fast" is not a number`; len(h.Unread) != 1 || h.Unread[0].Why != want {
		t.Errorf("got %+v, want %s", h.Unread, want)
	}
}

func TestNetworkDevices(t *testing.T) {
	t.Parallel()
	address := topology.PCIAddr{Bus: 1}
	zero, one, lid := 0, 1, 932
	inside := func(network, fabric int) string {
		return device("0000:01:00.0", "0207",
			osDevice("ib0", network, info("Address", "80:00:02:09"), info("Port", "2")),
			osDevice("mlx4_0", fabric, info("NodeGUID", "0002:c903:00f9:bfa0"), info("Port1State", "4"),
				info("Port1LID", "0x3a4"), info("Port1LMC", "0"),
				info("Port1GID0", "fe80::1"), info("Port1GID3", "fe80::2"), info("Port2State", "9"),
				info("Port2LID", "0x0"), info("Port", "1"),
				info("PortxState", "4"), info("Port0State", "4"), info("Port300State", "4"), info("Port2GIDx", "no")))
	}
	want := []topology.NIC{{
		Address: &address, Netdevs: []string{"ib0"}, RDMA: []string{"mlx4_0"}, NUMANode: &zero,
		Ports: []topology.Netdev{{Name: "ib0", MAC: "80:00:02:09", DevPort: &one}},
		Devices: []topology.RDMADevice{{Name: "mlx4_0", NodeGUID: "0002:c903:00f9:bfa0", Ports: []topology.RDMAPort{
			{Number: 1, State: "ACTIVE", LID: &lid, GIDs: []topology.GID{{Index: 0, GID: "fe80::1"},
				{Index: 3, GID: "fe80::2"}}}, {Number: 2},
		}}},
	}}
	for name, file := range map[string]string{
		"versions 1 and 2 number the types":                 v2(twoNodes("", inside(2, 3), "")),
		"version 3 has bits, and a fabric is a network too": v3(twoNodes("", inside(16, 48), "")),
	} {
		if diff := gocmp.Diff(want, read(t, file).NICs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	h := read(t, v2(twoNodes(osDevice("vif1", 2)+osDevice("vif0", 2), "", osDevice("rxe0", 3))))
	want = []topology.NIC{
		{Name: "rxe0", NUMANode: &one, Netdevs: []string{}, RDMA: []string{"rxe0"},
			Devices: []topology.RDMADevice{{Name: "rxe0"}}},
		{Name: "vif0", Netdevs: []string{"vif0"}, RDMA: []string{}, Ports: []topology.Netdev{{Name: "vif0"}}},
		{Name: "vif1", Netdevs: []string{"vif1"}, RDMA: []string{}, Ports: []topology.Netdev{{Name: "vif1"}}},
	}
	if diff := gocmp.Diff(want, h.NICs); diff != "" {
		t.Errorf("without PCI (-want +got):\n%s", diff)
	}
}

func TestDisks(t *testing.T) {
	t.Parallel()
	address := topology.PCIAddr{Bus: 1}
	zero, size := 0, uint64(940000000000)
	want := []topology.Disk{{Name: "nvme0n1", PCI: &address, NUMANode: &zero, SizeBytes: &size, Model: "Disk 1"},
		{Name: "pmem0"}, {Name: "sda"}}
	body := func(block int, sizeText string) string {
		return twoNodes(osDevice("sda", block, info("Size", "much"))+osDevice("pmem0", block)+osDevice("st0", block,
			info("Type", "Tape"))+osDevice("dax0.0", block),
			device("0000:01:00.0", "0108", osDevice("nvme0n1", block, info("Size", sizeText), info("Model", "Disk 1 "),
				info("SerialNumber", "SECRET"))), "")
	}
	for name, file := range map[string]string{"version 1": v1(body(0, "917968750")),
		"version 2": v2(body(0, "917968750")), "version 3": v3(body(1, "917968750KiB"))} {
		h := read(t, file)
		if diff := gocmp.Diff(want, h.Storage); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(h.Unread) != 1 || h.Unread[0].Why != `size "much" is not a number of KiB` {
			t.Errorf("%s: got %+v", name, h.Unread)
		}
	}
}

func TestOddDevices(t *testing.T) {
	t.Parallel()
	h := read(t, v2(twoNodes(object("OSDev", `name="eth0"`)+object("OSDev", `osdev_type="2"`)+osDevice("later", 77)+
		osDevice("dma0", 4), "", "")))
	want := []topology.Unread{
		{Path: "t.xml:3: object OSDev", Why: `name "" with osdev_type "2": both are wanted, the type as a number`},
		{Path: "t.xml:3: object OSDev", Why: `name "eth0" with osdev_type "": both are wanted, the type as a number`},
	}
	if diff := gocmp.Diff(want, h.Unread); diff != "" || len(h.NICs) != 0 {
		t.Errorf("got %d NICs; -want +got:\n%s", len(h.NICs), diff)
	}
}

func TestGPUs(t *testing.T) {
	t.Parallel()
	subtype := func(name, sub string, kind int, inside ...string) string {
		return object("OSDev", fmt.Sprintf(`name=%q subtype=%q osdev_type="%d"`, name, sub, kind), inside...)
	}
	address, functions := topology.PCIAddr{Bus: 1}, []topology.PCIAddr{{Bus: 1}}
	zero, three, four := 0, 3, uint64(4<<30)
	full := topology.GPU{Address: &address, Functions: functions, Kind: topology.GPUDiscrete, Name: "card1",
		Index: &three, Vendor: "NVIDIA Corporation", Model: "A100",
		NUMANode: &zero, MemoryBytes: &four, UUID: "GPU-1"}
	nvidia := info("GPUVendor", "NVIDIA Corporation") + info("GPUModel", "A100")
	for name, c := range map[string]struct {
		file string
		want []topology.GPU
	}{
		"several libraries know one": {v2(twoNodes("", device("0000:01:00.0", "0302", osDevice("card1", 1),
			osDevice("renderD128", 1),
			subtype("opencl0d0", "OpenCL", 5, nvidia, info("OpenCLDeviceType", "GPU"), info("OpenCLGlobalMemorySize",
				"1")),
			subtype("cuda7", "CUDA", 5, nvidia, info("CUDAGlobalMemorySize", "4194304")),
			subtype("nvml3", "NVML", 1, nvidia, info("NVIDIAUUID", "GPU-1"), info("NVIDIASerial", "SECRET"))), "")),
			[]topology.GPU{full}},
		"version 3": {v3(twoNodes("", device("0000:01:00.0", "0302", osDevice("card1", 4), subtype("cuda0", "CUDA", 12,
			nvidia, info("CUDAGlobalMemorySize", "4194304KiB")),
			subtype("nvml3", "NVML", 12, nvidia, info("NVIDIAUUID", "GPU-1"))), "")), []topology.GPU{full}},
		"version 1 has the library in an info": {v1(twoNodes("", device("0000:01:00.0", "0302", osDevice("card1", 1),
			osDevice("cuda0", 5, nvidia, info("CoProcType", "CUDA"), info("CUDAGlobalMemorySize", "4194304")),
			osDevice("nvml3", 1, nvidia, info("NVIDIAUUID", "GPU-1"))), "")), []topology.GPU{full}},
		"an AMD GPU": {v2(twoNodes("", device("0000:01:00.0", "0380",
			subtype("rsmi3", "RSMI", 1, info("GPUVendor", "AMD"), info("GPUModel", "MI250"), info("AMDUUID", "4a7c"),
				info("RSMIVRAMSize", "4194304")),
			subtype("opencl0d0", "OpenCL", 5, info("OpenCLDeviceType", "GPU"), info("OpenCLGlobalMemorySize", "1"))),
			"")),
			[]topology.GPU{{Address: &address, Functions: functions, Kind: topology.GPUDiscrete, Index: &three,
				Vendor: "AMD", Model: "MI250", NUMANode: &zero, MemoryBytes: &four, UUID: "4a7c"}}},
		"an Intel GPU": {v2(twoNodes("", device("0000:01:00.0", "0380", subtype("ze0", "LevelZero", 5,
			info("GPUVendor", "Intel"), info("LevelZeroHBMSize", "2097152"), info("LevelZeroDDRSize", "2097152"))),
			"")),
			[]topology.GPU{{Address: &address, Functions: functions, Kind: topology.GPUDiscrete, Vendor: "Intel",
				NUMANode: &zero, MemoryBytes: &four}}},
		"without PCI only management libraries count": {v2(twoNodes("", subtype("nvml3", "NVML", 1, nvidia)+
			subtype("cuda0", "CUDA", 5, nvidia)+osDevice("card0", 1), "")),
			[]topology.GPU{{Name: "nvml3", Index: &three, Vendor: "NVIDIA Corporation", Model: "A100",
				NUMANode: &zero}}},
		"OpenCL on the processor, Xeon Phi and displays are none": {v2(twoNodes(subtype("opencl0d0", "OpenCL", 5,
			info("OpenCLDeviceType", "CPU"))+device("0000:01:00.0", "0b40",
			osDevice("mic0", 5, info("CoProcType", "MIC"))), osDevice(":0.0", 1), "")), nil},
		"no library": {v2(twoNodes("", device("0000:01:00.0", "0302"), "")),
			[]topology.GPU{{Address: &address, Functions: functions, Kind: topology.GPUDiscrete, NUMANode: &zero}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := gocmp.Diff(c.want, read(t, c.file).GPUs); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestMemoryOfCoherentGPUs(t *testing.T) {
	t.Parallel()
	h := read(t, v2(object("Machine", nodes("0x1", "0x3"), numa(0, "0x1", ""), numa(1, "0x1", `subtype="GPUMemory"`,
		info("PCIBusID", "0009:01:00.0")), device("0009:01:00.0", "0302", osDevice("nvml0", 1)))))
	if len(h.GPUs) != 1 || h.GPUs[0].MemoryNode == nil || *h.GPUs[0].MemoryNode != 1 || h.NUMANodes[1].GPU == nil {
		t.Errorf("got %+v and node %+v, want them to name each other", h.GPUs, h.NUMANodes[1])
	}
}

func TestNVLinks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate uint64
		want int
	}{{0, 0}, {20000, 1}, {80000, 4}, {100000, 4}, {25000, 1}, {50000, 2}, {300000, 12}, {450000, 18}, {900000, 36},
		{925000, 0}, {30000, 0}, {1, 0}} {
		if got := nvLinks(c.rate); got != c.want {
			t.Errorf("%d MB/s: got %d links, want %d", c.rate, got, c.want)
		}
	}
	gpu := func(bus, index int) string {
		return device(fmt.Sprintf("0000:%02x:00.0", bus), "0302",
			object("OSDev", fmt.Sprintf(`name="nvml%d" subtype="NVML" osdev_type="1" gp_index="%d"`, index, 100+index)))
	}
	matrix := func(tag, indexes, values string) string {
		return fmt.Sprintf(`<%s nbobjs="%d" kind="9" name="NVLinkBandwidth" type="OSDev" indexing="gp">`+
			`<indexes length="1">%s</indexes><u64values length="1">%s</u64values></%s>`,
			tag, len(strings.Fields(indexes)), indexes, values, tag)
	}
	machine := twoNodes("", gpu(2, 1)+gpu(1, 0), gpu(0x81, 2))
	type links struct {
		Paths []string
		Total []int
	}
	for name, c := range map[string]struct {
		matrix string
		want   links
	}{
		"GPUs": {matrix("distances2", "100 101 102",
			"1000000 50000 0 50000 1000000 25000 0 25000 1000000"),
			links{[]string{"0000:01:00.0 0000:02:00.0 NV2", "0000:02:00.0 0000:81:00.0 NV1"}, []int{2, 3, 1}}},
		"the other order": {matrix("distances2", "101 100", "1000000 50000 50000 1000000"),
			links{[]string{"0000:01:00.0 0000:02:00.0 NV2"}, []int{2, 2, -1}}},
		"GPUs and packages": {matrix("distances2hetero", "OSDev:100 Package:3 OSDev:101",
			"1000000 40000 20000 40000 1000000 0 20000 0 1000000"), links{[]string{"0000:01:00.0 0000:02:00.0 NV1"},
			[]int{3, 1, -1}}},
		"a rate of no link": {matrix("distances2", "100 101", "1000000 53125 53125 1000000"),
			links{[]string{"0000:01:00.0 0000:02:00.0 NV"}, []int{-1, -1, -1}}},
		"objects not there": {matrix("distances2", "100 999", "1000000 25000 25000 1000000"),
			links{nil, []int{1, -1, -1}}},
		"another name": {strings.Replace(matrix("distances2", "100 101", "1 25000 25000 1"), "NVLinkBandwidth",
			"XGMIHops", 1), links{nil, []int{-1, -1, -1}}},
		"no links": {matrix("distances2", "100 101", "1000000 0 0 1000000"), links{nil, []int{-1, -1, -1}}},
		"twice the same one": {strings.Repeat(matrix("distances2", "100 101", "1000000 25000 25000 1000000"), 2),
			links{[]string{"0000:01:00.0 0000:02:00.0 NV1"}, []int{1, 1, -1}}},
	} {
		h := read(t, v2(machine+c.matrix))
		var got links
		for _, p := range h.Reported {
			got.Paths = append(got.Paths, p.A+" "+p.B+" "+p.Label())
		}
		for _, g := range h.GPUs {
			n := -1
			if g.NVLinks != nil {
				n = *g.NVLinks
			}
			got.Total = append(got.Total, n)
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, err := Parse([]byte(v2(machine+matrix("distances2", "100 101", "1"))), "t.xml")
	if want := "t.xml:3: distances2: 2 indexes and 1 values; 2 objects have 2 and 4"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
