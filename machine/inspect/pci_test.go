package inspect

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/inspect/pci"
	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

func readFunctions(t testing.TB, m fs.FS, live bool) ([]topology.PCIDevice, []topology.Unread) {
	t.Helper()
	r := &reader{ctx: t.Context(), fs: m, live: live, h: &topology.Host{}}
	r.readPCI()
	return r.h.PCI, r.h.Unread
}

// functions takes lines "PATH CLASS".
func functions(lines string) string {
	var out strings.Builder
	for line := range strings.Lines(lines) {
		dir, class, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		address := dir[strings.LastIndexByte(dir, '/')+1:]
		fmt.Fprintf(&out, "sys/devices/%s/class = %s\nsys/bus/pci/devices/%s -> ../../../devices/%s\n", dir, class,
			address, dir)
	}
	return out.String()
}

// stand returns "ADDRESS parent ADDRESS root BUS", and "cut" if the parent is unknown.
func stand(found []topology.PCIDevice) []string {
	var out []string
	for _, d := range found {
		s := d.Address.String()
		if d.Parent != nil {
			s += " below " + d.Parent.String()
		}
		if d.Root != "" {
			s += " on " + d.Root
		}
		if d.ParentUnknown {
			s += " cut"
		}
		out = append(out, s)
	}
	return out
}

func TestPCITree(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		lines string
		want  []string
	}{
		{
			"a switch below a root port",
			functions(`
				pci0000:40/0000:40:01.1 0x060400
				pci0000:40/0000:40:01.1/0000:41:00.0 0x060400
				pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:04.0 0x060400
				pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:04.0/0000:43:00.0 0x030200`),
			[]string{
				"0000:40:01.1 on pci0000:40", "0000:41:00.0 below 0000:40:01.1 on pci0000:40",
				"0000:42:04.0 below 0000:41:00.0 on pci0000:40", "0000:43:00.0 below 0000:42:04.0 on pci0000:40",
			},
		},
		{
			"disks behind Intel's VMD are on a root bus of its own",
			functions(`
				pci0000:5d/0000:5d:05.5 0x010400
				pci0000:5d/0000:5d:05.5/pci10000:00/10000:00:02.0 0x060400
				pci0000:5d/0000:5d:05.5/pci10000:00/10000:00:02.0/10000:01:00.0 0x010802`),
			[]string{"0000:5d:05.5 on pci0000:5d", "10000:00:02.0 on pci10000:00",
				"10000:01:00.0 below 10000:00:02.0 on pci10000:00"},
		},
		{
			"Hyper-V passes functions through its bus",
			functions(`LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/` +
				`47505500-0001-0000-3130-444531444234/pci0001:00/0001:00:00.0 0x030200`),
			[]string{"0001:00:00.0 on pci0001:00"},
		},
		{
			"root buses of Arm machines are devices of the platform",
			functions(`
				platform/3f000000.pcie/pci0000:00/0000:00:01.0 0x060400
				platform/3f000000.pcie/pci0000:00/0000:00:01.0/0000:01:00.0 0x020000`),
			[]string{"0000:00:01.0 on pci0000:00", "0000:01:00.0 below 0000:00:01.0 on pci0000:00"},
		},
		{
			"links may be absolute",
			"sys/devices/pci0000:00/0000:00:01.0/class = 0x020000\nsys/bus/pci/devices/0000:00:01.0 -> " +
				"/sys/devices/pci0000:00/0000:00:01.0",
			[]string{"0000:00:01.0 on pci0000:00"},
		},
		{
			"links that lead nowhere still show the tree",
			"sys/bus/pci/devices/0000:03:00.0 -> ../../../devices/pci0000:00/0000:00:01.0/0000:03:00.0",
			[]string{"0000:03:00.0 below 0000:00:01.0 on pci0000:00"},
		},
		{
			"a link to something else is not believed",
			"sys/bus/pci/devices/0000:03:00.0 -> " +
				"../../../devices/pci0000:00/0000:00:01.0\nsys/devices/pci0000:00/0000:00:01.0/class = 0x060400",
			[]string{"0000:03:00.0 cut"},
		},
		{
			"links in a loop",
			"sys/bus/pci/devices/0000:03:00.0 -> 0000:04:00.0\nsys/bus/pci/devices/0000:04:00.0 -> 0000:03:00.0",
			[]string{"0000:03:00.0 cut", "0000:04:00.0 cut"},
		},
		{
			"without links, the bridges' bus numbers show the tree",
			config("0000:00:1c.0", express.with(header(1, 4)).with(space{0x08: 0x060400_00})) +
				config("0000:01:00.0", express.with(header(2, 4)).with(space{0x08: 0x060400_00})) +
				config("0000:02:08.0", express.with(header(4, 4)).with(space{0x08: 0x060400_00})) +
				config("0000:04:00.0", express) + config("0000:00:1f.0", express),
			[]string{
				"0000:00:1c.0 on pci0000:00", "0000:00:1f.0 on pci0000:00",
				"0000:01:00.0 below 0000:00:1c.0 on pci0000:00",
				"0000:02:08.0 below 0000:01:00.0 on pci0000:00", "0000:04:00.0 below 0000:02:08.0 on pci0000:00",
			},
		},
		{
			"virtual functions on a bus that no bridge leads to are below the nearest that spans it",
			config("0000:00:1c.0", express.with(header(1, 2)).with(space{0x08: 0x060400_00})) + config("0000:01:00.0",
				express) + config("0000:02:10.0", express),
			[]string{"0000:00:1c.0 on pci0000:00", "0000:01:00.0 below 0000:00:1c.0 on pci0000:00",
				"0000:02:10.0 below 0000:00:1c.0 on pci0000:00"},
		},
		{
			"a bus with a host bridge or a root port is a root bus",
			config("0000:40:00.0", express.with(space{0x08: 0x060000_00})) + config("0000:40:04.0", express) +
				config("0000:80:01.0", express.with(header(0x81, 0x81)).with(space{0x08: 0x060400_00,
					0x60: 0x0142_00_10})) +
				config("0000:81:00.0", express),
			[]string{
				"0000:40:00.0 on pci0000:40", "0000:40:04.0 on pci0000:40", "0000:80:01.0 on pci0000:80",
				"0000:81:00.0 below 0000:80:01.0 on pci0000:80",
			},
		},
		{
			"a part of a machine, without its bridges",
			config("0000:3b:00.0", express) + config("0000:00:04.0", express),
			[]string{"0000:00:04.0 on pci0000:00", "0000:3b:00.0 cut"},
		},
		{
			"bridges in a circle, and one that is behind itself",
			config("0000:05:00.0", express.with(header(6, 6))) + config("0000:06:00.0", express.with(header(5, 5))) +
				config("0000:07:00.0", express.with(header(7, 7))),
			[]string{"0000:05:00.0 cut", "0000:06:00.0 below 0000:05:00.0", "0000:07:00.0 cut"},
		},
		{
			"without a list of the bus, the root buses are walked",
			`sys/devices/pci0000:00/0000:00:01.0/class = 0x060400
			sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/class = 0x020000
			sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/subsystem -> ../../../../bus/pci
			sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/loop -> ../../../pci0000:00
			sys/devices/platform/soc/pci0001:00/0001:00:00.0/class = 0x020000
			sys/devices/pci0000:00/0000:00:05.5/pci10000:00/10000:00:02.0/class = 0x060400
			sys/devices/virtual/pci0009:00/0009:00:00.0/class = 0x020000`,
			[]string{
				"0000:00:01.0 on pci0000:00", "0000:00:05.5 on pci0000:00",
				"0000:01:00.0 below 0000:00:01.0 on pci0000:00",
				"0001:00:00.0 on pci0001:00", "10000:00:02.0 on pci10000:00",
			},
		},
		{"no PCI at all", "sys/devices/system/cpu/online = 0", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, unread := readFunctions(t, deviceTree(t, tt.lines), false)
			if diff := cmp.Diff(tt.want, stand(found)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, u := range unread {
				if !strings.Contains(tt.name, "loop") {
					t.Errorf("unread: %v", u)
				}
			}
		})
	}
}

func config(address string, s space) string {
	return fmt.Sprintf("sys/bus/pci/devices/%s/config = %q\n", address, s.bytes(256))
}

func TestReadPCIOfABrokenBus(t *testing.T) {
	t.Parallel()
	m := deviceTree(t, `
		sys/bus/pci/devices/0000:00:01.0/class = 0x020000
		sys/bus/pci/devices/0000:00:01.8/class = 0x020000
		sys/bus/pci/devices/lspci.txt = hello
		sys/bus/pci/devices/0000:00:02.0/class = network
		sys/bus/pci/devices/0000:00:02.0/vendor = 0x15b3a
		sys/bus/pci/devices/0000:00:02.0/numa_node = two
		sys/bus/pci/devices/0000:00:02.0/local_cpulist = 5-2
		sys/bus/pci/devices/0000:00:02.0/max_link_width = 8
		sys/bus/pci/devices/0000:00:02.0/max_link_speed = fast
		sys/bus/pci/devices/0000:00:02.0/resource = 0x0
		sys/bus/pci/devices/0000:00:02.0/iommu_group -> ../../../../kernel/iommu_groups/none
		sys/bus/pci/devices/0000:00:02.0/physfn -> ../nowhere
		sys/bus/pci/devices/0000:00:03.0/class ! EACCES`)
	found, unread := readFunctions(t, m, false)
	if diff := cmp.Diff([]string{"0000:00:01.0 on pci0000:00", "0000:00:02.0 on pci0000:00",
		"0000:00:03.0 on pci0000:00"}, stand(found)); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
	if d := found[1]; d.Class != nil || d.Vendor != nil || d.NUMANode != nil || d.LocalCPUs != nil ||
		d.IOMMUGroup != nil || d.PF != nil || d.BARs != nil {
		t.Errorf("what cannot be understood is not known: %+v", d)
	}
	want := []string{
		`/sys/bus/pci/devices/0000:00:01.8 PCI address "0000:00:01.8": function "8" is not 0 to 7; ` +
			`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`,
		`/sys/bus/pci/devices/0000:00:02.0/class "network" is not a number of 24 bits in hexadecimal`,
		`/sys/bus/pci/devices/0000:00:02.0/iommu_group "none" is not the number of a group`,
		`/sys/bus/pci/devices/0000:00:02.0/local_cpulist CPU list "5-2": at byte 0: range 5-2 runs backwards`,
		`/sys/bus/pci/devices/0000:00:02.0/max_link_speed "fast" is not a link speed`,
		`/sys/bus/pci/devices/0000:00:02.0/numa_node "two" is not a number`,
		`/sys/bus/pci/devices/0000:00:02.0/physfn PCI address "nowhere": no bus; ` +
			`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`,
		`/sys/bus/pci/devices/0000:00:02.0/resource line 1: "0x0": want a first address, a last address and flags`,
		`/sys/bus/pci/devices/0000:00:02.0/vendor "0x15b3a" is not a number of 16 bits in hexadecimal`,
		`/sys/bus/pci/devices/0000:00:03.0/class permission denied`,
		`/sys/bus/pci/devices/lspci.txt PCI address "lspci.txt": no bus; ` +
			`want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1`,
	}
	var got []string
	for _, u := range unread {
		got = append(got, u.Path+" "+u.Why)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

const below = "sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0"

func functionFacts(lines string) string {
	var out strings.Builder
	out.WriteString("sys/bus/pci/devices/0000:41:00.0 -> ../../../devices/pci0000:40/0000:40:01.1/0000:41:00.0\n")
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if !strings.HasPrefix(line, "sys/") {
			line = below + "/" + line
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

func TestFunctionFiles(t *testing.T) {
	t.Parallel()
	where := func(d topology.PCIDevice) topology.PCIDevice {
		d.Address = topology.PCIAddr{Bus: 0x41}
		d.Parent, d.Root = &topology.PCIAddr{Bus: 0x40, Device: 1, Function: 1}, "pci0000:40"
		return d
	}
	for _, tt := range []struct {
		name  string
		lines string
		live  bool
		want  topology.PCIDevice
	}{
		{
			"a GPU with everything a new kernel tells",
			`
			class = 0x030200
			vendor = 0x10de
			device = 0x2330
			subsystem_vendor = 0x10de
			subsystem_device = 0x16c1
			revision = 0xa1
			numa_node = 1
			local_cpulist = 48-95,144-191
			local_cpus = ff
			current_link_speed = 32.0 GT/s PCIe
			current_link_width = 16
			max_link_speed = 32.0 GT/s PCIe
			max_link_width = 16
			driver -> ../../../../bus/pci/drivers/nvidia
			driver_override = (null)
			iommu_group -> ../../../../kernel/iommu_groups/37
			reset_method = flr bus
			power_state = D0
			d3cold_allowed = 1
			boot_vga = 0
			enable = 1
			resource = 0x0000018000000000 0x0000019fffffffff 0x000000000014220c
			sys/bus/pci/slots/7/address = 0000:41:00
			sys/bus/pci/slots/8/address = 0000:42:00
			sys/bus/pci/drivers/vfio-pci/
			`,
			false,
			topology.PCIDevice{
				Class: new(topology.ID24(0x030200)), Vendor: new(topology.ID16(0x10de)),
				Device:          new(topology.ID16(0x2330)),
				SubsystemVendor: new(topology.ID16(0x10de)), SubsystemDevice: new(topology.ID16(0x16c1)),
				Revision:  new(topology.ID8(0xa1)),
				ClassName: "3D controller", VendorName: "NVIDIA Corporation", DeviceName: "GH100 [H100 SXM5 80GB]",
				Slot:     "7",
				NUMANode: new(1), LocalCPUs: new(topology.CPURange(48, 95).Union(topology.CPURange(144, 191))),
				IOMMUGroup: new(37), Driver: "nvidia", DriverKnown: true, Candidates: []string{"vfio-pci"},
				Link: &topology.Link{SpeedGTs: new(32.0), Width: new(16), MaxSpeedGTs: new(32.0),
					MaxWidth: new(16)},
				BARs:         []topology.BAR{{Index: 0, SizeBytes: 128 << 30, Prefetchable: true, Bits64: true}},
				ResetMethods: []string{"flr", "bus"}, ResetKnown: true, PowerState: "D0", D3Cold: new(true),
				BootVGA: new(false), Enabled: new(true),
			},
		},
		{
			"a function of a kernel of 2012: no link, no revision, a mask of CPUs",
			"class = 0x010400\nvendor = 0x1000\ndevice = 0x0079\nnuma_node = -1\nlocal_cpus = " +
				"0000,000000ff,ffffffff\nenable =\nuevent = DRIVER=megaraid_sas\n",
			false,
			topology.PCIDevice{
				Class: new(topology.ID24(0x010400)), Vendor: new(topology.ID16(0x1000)),
				Device:    new(topology.ID16(0x0079)),
				ClassName: "RAID bus controller", VendorName: "Broadcom / LSI",
				DeviceName: "MegaRAID SAS 2108 [Liberator]",
				LocalCPUs:  new(topology.CPURange(0, 39)), DriverKnown: true,
			},
		},
		{
			"on a live machine uevent says who it is",
			"uevent = \"DRIVER=virtio-pci\\nPCI_CLASS=20000\\nPCI_ID=1AF4:1041\\nPCI_SUBSYS_ID=1AF4:1100\\n" +
				"PCI_SLOT_NAME=0000:41:00.0\\n\"",
			true,
			topology.PCIDevice{
				Class: new(topology.ID24(0x020000)), Vendor: new(topology.ID16(0x1af4)),
				Device:          new(topology.ID16(0x1041)),
				SubsystemVendor: new(topology.ID16(0x1af4)), SubsystemDevice: new(topology.ID16(0x1100)),
				ClassName: "Ethernet controller", VendorName: "Red Hat, Inc.", DeviceName: "Virtio 1.0 network device",
				DriverKnown: true,
			},
		},
		{
			"in a dump the files count, and uevent fills in",
			"class = 0x030000\nuevent = " +
				"\"PCI_CLASS=20000\\nPCI_ID=10DE:2204\\nPCI_SUBSYS_ID=0000:0000\\nPCI_ID=junk\\nnonsense\\n\"",
			false,
			topology.PCIDevice{
				Class: new(topology.ID24(0x030000)), Vendor: new(topology.ID16(0x10de)),
				Device:    new(topology.ID16(0x2204)),
				ClassName: "VGA compatible controller", VendorName: "NVIDIA Corporation",
				DeviceName: "GA102 [GeForce RTX 3090]", DriverKnown: true,
			},
		},
		{
			"a function inside of the processor has files of a link and no link",
			"class = 0x088000\nmax_link_width = 255\nmax_link_speed = Unknown\ncurrent_link_width = " +
				"0\ncurrent_link_speed = Unknown\n",
			false,
			topology.PCIDevice{Class: new(topology.ID24(0x088000)), ClassName: "System peripheral"},
		},
		{
			"a link that is down keeps what it could be",
			"class = 0x020000\nmax_link_width = 8\nmax_link_speed = 8 GT/s\ncurrent_link_width = " +
				"0\ncurrent_link_speed = 2.5 GT/s\n",
			false,
			topology.PCIDevice{
				Class: new(topology.ID24(0x020000)), ClassName: "Ethernet controller",
				Link: &topology.Link{MaxSpeedGTs: new(8.0), MaxWidth: new(8)},
			},
		},
		{
			"speeds that are not those of PCI Express are not speeds of a link",
			"class = 0x020000\nmax_link_width = 1\nmax_link_speed = 133 MHz PCI-X\ncurrent_link_width = " +
				"1\ncurrent_link_speed = Unknown speed\n",
			false,
			topology.PCIDevice{
				Class: new(topology.ID24(0x020000)), ClassName: "Ethernet controller",
				Link: &topology.Link{Width: new(1), MaxWidth: new(1)},
			},
		},
		{
			"a file that the device refuses to answer is not known",
			"class = 0x020000\ncurrent_link_width ! EINVAL\nmax_link_width = 4\nmax_link_speed ! EIO\nresource ! " +
				"ENODEV\n",
			false,
			topology.PCIDevice{Class: new(topology.ID24(0x020000)), ClassName: "Ethernet controller",
				Link: &topology.Link{MaxWidth: new(4)}},
		},
		{
			"an override, a sleeping function, and one that nobody enabled",
			"class = 0x030000\ndriver_override = vfio-pci\npower_state = D3hot\nenable = 0\nd3cold_allowed = " +
				"0\nboot_vga = 1\nlabel = Onboard VGA\n",
			false,
			topology.PCIDevice{
				Class: new(topology.ID24(0x030000)), ClassName: "VGA compatible controller", Override: "vfio-pci",
				PowerState: "D3hot",
				Enabled:    new(false), D3Cold: new(false), BootVGA: new(true), Slot: "Onboard VGA",
			},
		},
		{
			"a function without a driver, on a live machine",
			"class = 0x020000\npower_state = unknown\nenable = 2\n", true,
			topology.PCIDevice{Class: new(topology.ID24(0x020000)), ClassName: "Ethernet controller", DriverKnown: true,
				Enabled: new(true)},
		},
		{
			"a slot may be a whole bus",
			"class = 0x020000\nsys/bus/pci/slots/P1-C3/address = 0000:41\nsys/bus/pci/slots/empty/address = ", false,
			topology.PCIDevice{Class: new(topology.ID24(0x020000)), ClassName: "Ethernet controller", Slot: "P1-C3"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, unread := readFunctions(t, deviceTree(t, functionFacts(tt.lines)), tt.live)
			if diff := cmp.Diff([]topology.PCIDevice{where(tt.want)}, found); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(unread) > 0 {
				t.Errorf("unread: %v", unread)
			}
		})
	}
}

func TestSRIOVFiles(t *testing.T) {
	t.Parallel()
	vf := func(index int, device, function uint8) topology.VF {
		return topology.VF{Index: index, Address: &topology.PCIAddr{Bus: 0x41, Device: device, Function: function}}
	}
	const pf = "class = 0x020000\nsriov_totalvfs = 8\nsriov_numvfs = 2\nsriov_drivers_autoprobe = 1\n"
	const others = `
		sys/bus/pci/devices/0000:41:00.2 -> ../../../devices/pci0000:40/0000:40:01.1/0000:41:00.2
		sys/devices/pci0000:40/0000:40:01.1/0000:41:00.2/class = 0x020000
		sys/bus/pci/devices/0000:41:00.3 -> ../../../devices/pci0000:40/0000:40:01.1/0000:41:00.3
		sys/devices/pci0000:40/0000:40:01.1/0000:41:00.3/class = 0x020000
		`
	for _, tt := range []struct {
		name  string
		lines string
		want  *topology.SRIOV
		pf    string // of the function itself
	}{
		{
			"links to virtual functions, the tenth after the second",
			pf + "virtfn10 -> ../0000:41:01.4\nvirtfn2 -> ../0000:41:00.4\nsriov_offset = 2\nsriov_stride = 1\n",
			&topology.SRIOV{
				Total: new(8), Enabled: new(2), Offset: new(2), Stride: new(1), Autoprobe: new(true),
				VFs: []topology.VF{vf(2, 0, 4), vf(10, 1, 4)},
			},
			"",
		},
		{
			"no links: the rule of the specification finds those that are there",
			pf + "sriov_offset = 2\nsriov_stride = 1\n" + others,
			&topology.SRIOV{
				Total: new(8), Enabled: new(2), Offset: new(2), Stride: new(1), Autoprobe: new(true),
				VFs: []topology.VF{vf(0, 0, 2), vf(1, 0, 3)},
			},
			"",
		},
		{
			"no links and no functions", pf + "sriov_offset = 2\nsriov_stride = 1\n",
			&topology.SRIOV{Total: new(8), Enabled: new(2), Offset: new(2), Stride: new(1), Autoprobe: new(true),
				VFs: []topology.VF{}}, "",
		},
		{
			"numbers that lead beyond the last bus", pf + "sriov_offset = 65535\nsriov_stride = 65535\n",
			&topology.SRIOV{Total: new(8), Enabled: new(2), Offset: new(65535), Stride: new(65535),
				Autoprobe: new(true), VFs: []topology.VF{}}, "",
		},
		{
			"a virtual function", "class = 0x020000\nphysfn -> ../0000:41:00.1\n", nil, "0000:41:00.1",
		},
		{
			"an old kernel shows the capability alone",
			fmt.Sprintf("class = 0x020000\nconfig = %q\n", express.with(space{
				0x100: 1<<16 | 0x0010, 0x108: 1, 0x10c: 8 << 16, 0x110: 2, 0x114: 1<<16 | 2,
			}).bytes(4096)) + others,
			&topology.SRIOV{Total: new(8), Enabled: new(2), Offset: new(2), Stride: new(1),
				VFs: []topology.VF{vf(0, 0, 2), vf(1, 0, 3)}}, "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, unread := readFunctions(t, deviceTree(t, functionFacts(tt.lines)), false)
			if diff := cmp.Diff(tt.want, found[0].SRIOV); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := found[0].PF; tt.pf == "" && got != nil || tt.pf != "" && (got == nil || got.String() != tt.pf) {
				t.Errorf("physical function %v, want %q", got, tt.pf)
			}
			if len(unread) > 0 {
				t.Errorf("unread: %v", unread)
			}
		})
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	const link = "max_link_width = 16\n"
	dirs := []string{
		"pci0000:40/0000:40:01.1", "pci0000:40/0000:40:01.1/0000:41:00.0",
		"pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:04.0",
		"pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:04.0/0000:43:00.0",
		"pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:04.0/0000:43:00.0/0000:44:00.0",
	}
	for _, tt := range []struct {
		name  string
		size  int // of config
		links string
		want  []string
	}{
		{"capabilities that root may read", 256, link,
			[]string{pci.PortRoot, pci.PortUpstream, pci.PortDownstream, pci.PortBridge, pci.PortBridge}},
		{
			// The last two are bridges to conventional PCI and back, without a driver. By their place they could be a
			// switch.
			"a user has the links, the drivers and the place of each", 64, link,
			[]string{pci.PortRoot, pci.PortUpstream, pci.PortDownstream, "", ""},
		},
		{"a user on an old kernel has nothing", 64, "", []string{"", "", "", "", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			lines := ""
			for i, kind := range []uint32{0x42, 0x52, 0x62, 0x72, 0x82} {
				s := express.with(header(uint32(0x41+i), 0x45)).with(space{0x60: kind<<16 | 0x10})
				lines += functions(dirs[i] + " 0x060400")
				lines += fmt.Sprintf("sys/devices/%s/config = %q\n", dirs[i], s.bytes(tt.size))
				if tt.links != "" {
					lines += "sys/devices/" + dirs[i] + "/" + tt.links
				}
				if i < 3 {
					lines += "sys/devices/" + dirs[i] + "/driver -> ../bus/pci/drivers/pcieport\n"
				} else {
					lines += "sys/devices/" + dirs[i] + "/uevent = \n"
				}
			}
			found, _ := readFunctions(t, deviceTree(t, lines), false)
			var got []string
			for _, d := range found {
				got = append(got, d.Bridge.Port)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSleepingFunctionsAreNotWoken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, lines string
		want        bool // its configuration space is read
	}{
		{"awake", "power_state = D0\nmax_link_width = 8\n", true},
		{"in D3hot it answers", "power_state = D3hot\nmax_link_width = 8\n", true},
		{"in D3cold reading would wake it", "power_state = D3cold\nmax_link_width = 8\n", false},
		{"suspended, on a kernel that does not say how deep", "power/runtime_status = suspended\n", false},
		{"active, on a kernel that does not say how deep", "power/runtime_status = active\n", true},
	} {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, live %t", tt.name, live), func(t *testing.T) {
				t.Parallel()
				lines := functionFacts(fmt.Sprintf("class = 0x030000\nvendor = 0x10de\ndevice = 0x2204\nconfig = %q\n",
					bytesOf(0xff)) + tt.lines)
				found, _ := readFunctions(t, deviceTree(t, lines), live)
				if found[0].Dead != tt.want {
					t.Errorf("configuration space read: %t, want %t", found[0].Dead, tt.want)
				}
			})
		}
	}
}

func bytesOf(b byte) []byte {
	return slices.Repeat([]byte{b}, 64)
}

func TestLiveConfigIsReadOnlyWhereItIsNeeded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, lines string
		want        pci.Part
	}{
		{"a GPU with a link", "class = 0x030000\nvendor = 0x10de\ndevice = 0x2204\nrevision = 0xa1\nmax_link_width = " +
			"16\npower_state = D0\n", pci.Capabilities},
		{"a GPU of an old kernel", "class = 0x030000\nvendor = 0x10de\ndevice = 0x2204\n",
			pci.Identity | pci.Capabilities | pci.LinkState},
		{"a NIC of conventional PCI, as in virtual machines",
			"class = 0x020000\nvendor = 0x1af4\ndevice = 0x1041\npower_state = D0\n", pci.Identity},
		{"a bridge", "class = 0x060400\nvendor = 0x8086\ndevice = 0x1\nrevision = 0x01\nmax_link_width = " +
			"16\npower_state = D0\n", pci.Buses | pci.Capabilities},
		{"a disk", "class = 0x010802\nvendor = 0x8086\ndevice = 0x1\nmax_link_width = 4\npower_state = D0\n", 0},
		{"a host bridge", "class = 0x060000\nvendor = 0x8086\ndevice = 0x1\n", 0},
		{"what does not say what it is", "power_state = D0\n", pci.Identity | pci.Buses},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := &reader{ctx: t.Context(), fs: deviceTree(t, functionFacts(tt.lines)), live: true, h: &topology.Host{}}
			f := functionDir{reader: r, dir: below, names: r.dir(below)}
			var d topology.PCIDevice
			f.identity(&d)
			f.link(&d)
			if got := f.configNeeds(&d); got != tt.want {
				t.Errorf("parts %04b, want %04b", got, tt.want)
			}
		})
	}
}

func TestWhatIsAbsentFromTheWholeTreeIsNotKnown(t *testing.T) {
	t.Parallel()
	const two = `
		sys/bus/pci/devices/0000:00:01.0/class = 0x020000
		sys/bus/pci/devices/0000:00:02.0/class = 0x020000
		sys/bus/pci/devices/0000:00:03.0/class = 0x060000
		`
	for _, tt := range []struct {
		name, lines   string
		driver, reset bool // known for the second function
	}{
		{"nothing is there", "", false, false},
		{"another function has a driver", "sys/bus/pci/devices/0000:00:01.0/driver -> ../../../drivers/e1000e", true,
			false},
		{"another function can be reset", "sys/bus/pci/devices/0000:00:01.0/reset_method = pm", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			found, _ := readFunctions(t, deviceTree(t, two+tt.lines), false)
			if d := found[1]; d.DriverKnown != tt.driver || d.ResetKnown != tt.reset || d.ResetMethods != nil {
				t.Errorf("driver known %t, reset known %t %v; want %t, %t", d.DriverKnown, d.ResetKnown, d.ResetMethods,
					tt.driver, tt.reset)
			}
			if found[2].ResetKnown {
				t.Error("nobody looks whether a host bridge can be reset")
			}
		})
	}
}

func TestSixtyFourBridgesDeep(t *testing.T) {
	t.Parallel()
	var b tree.Builder
	dir := "sys/devices/pci0000:00"
	for bus := range 64 {
		address := fmt.Sprintf("0000:%02x:00.0", bus)
		dir += "/" + address
		for name, content := range map[string]string{
			"class": "0x060400", "config": string(express.with(header(uint32(bus+1), 64)).bytes(64)),
			"max_link_width": "4",
		} {
			if err := b.File(dir+"/"+name, []byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Link("sys/bus/pci/devices/"+address, "../../../"+strings.TrimPrefix(dir, "sys/")); err != nil {
			t.Fatal(err)
		}
	}
	h, err := Read(t.Context(), Source{Name: "deep", FS: b.Mem()})
	if err != nil {
		t.Fatal(err)
	}
	up := topology.NewTree(h).Ancestors(h.PCI[63].Address)
	if len(up) != 63 || up[62].Address != (topology.PCIAddr{}) {
		t.Errorf("%d bridges above the last, want 63", len(up))
	}
	if port := h.PCI[63].Bridge.Port; port != pci.PortUpstream {
		t.Errorf("the last is a %q, want %q", port, pci.PortUpstream)
	}
}

func TestReadPCIEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &reader{ctx: ctx, fs: deviceTree(t, config("0000:00:01.0", express)), h: &topology.Host{}}
	r.readPCI()
	if len(r.h.PCI) > 0 {
		t.Errorf("read %d functions", len(r.h.PCI))
	}
}
