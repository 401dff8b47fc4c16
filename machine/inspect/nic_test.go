package inspect

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

// deviceTree takes lines "PATH = VALUE", "PATH -> TARGET", "PATH ! ERROR", and "PATH/" for a directory. A value in
// double quotes is a Go string.
func deviceTree(t testing.TB, lines string) *tree.Mem {
	t.Helper()
	var b tree.Builder
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var err error
		if name, value, ok := strings.Cut(line, " ="); ok {
			value = strings.TrimPrefix(value, " ")
			if strings.HasPrefix(value, `"`) {
				if value, err = strconv.Unquote(value); err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
			} else {
				value += "\n"
			}
			err = b.File(name, []byte(value))
		} else if name, target, ok := strings.Cut(line, " -> "); ok {
			err = b.Link(name, target)
		} else if name, why, ok := strings.Cut(line, " ! "); ok {
			err = b.Unreadable(name, 0, tree.ErrorOf(why))
		} else if name, ok := strings.CutSuffix(line, "/"); ok {
			err = b.Dir(name)
		} else {
			t.Fatalf("line %q: want =, ->, ! or a directory", line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Mem()
}

func deviceFixture(t testing.TB, name string) *tree.Mem {
	t.Helper()
	b, err := os.ReadFile("testdata/devices/" + name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := tree.ParseText(b)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

func deviceReader(t testing.TB, m *tree.Mem, pci ...topology.PCIDevice) *reader {
	return &reader{ctx: t.Context(), fs: m, h: &topology.Host{PCI: pci}}
}

func pciAddr(t testing.TB, s string) *topology.PCIAddr {
	t.Helper()
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return &a
}

func pciFunction(t testing.TB, address string, class topology.ID24, vendor topology.ID16) topology.PCIDevice {
	t.Helper()
	return topology.PCIDevice{Address: *pciAddr(t, address), Class: &class, Vendor: &vendor}
}

// A ConnectX in switchdev mode: its uplink, a virtual function and its representor.
const switchdevNIC = `
sys/class/net/enp6s0f0np0 -> ../../devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0
sys/class/net/enp6s0f0r1 -> ../../devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0r1
sys/class/net/enp6s0f0v1 -> ../../devices/pci0000:00/0000:00:02.0/0000:06:00.3/net/enp6s0f0v1
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/device -> ../../../0000:06:00.0
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/address = b8:3f:d2:2a:1a:1c
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/mtu = 9000
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/speed = 100000
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/operstate = up
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/carrier = 1
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/dev_port = 0
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/phys_port_name = p0
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/phys_switch_id = 1c1a2a0003d23fb8
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0np0/master -> ../../../../../../virtual/net/bond0
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0r1/address = 5a:5c:5e:00:00:01
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0r1/operstate = down
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0r1/carrier ! EINVAL
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0r1/speed ! EINVAL
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0r1/phys_port_name = pf0vf1
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.0/net/enp6s0f0r1/phys_switch_id = 1c1a2a0003d23fb8
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.3/net/enp6s0f0v1/address = 00:00:00:00:00:00
sys/devices/pci0000:00/0000:00:02.0/0000:06:00.3/net/enp6s0f0v1/phys_port_name ! ENOTSUP
`

func TestReadNICs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		tree string
		pci  []topology.PCIDevice
		want []topology.NIC
	}{
		{
			name: "an uplink and its representor are one NIC, the virtual function another",
			tree: switchdevNIC,
			want: []topology.NIC{
				{Address: pciAddr(t, "0000:06:00.0"), Ports: []topology.Netdev{
					{
						Name: "enp6s0f0np0", MAC: "b8:3f:d2:2a:1a:1c", MTU: new(9000), SpeedMbps: new(int64(100000)),
						State:   "up",
						Carrier: new(true), DevPort: new(0), Master: "bond0", PhysPort: "p0",
						Switch: "1c1a2a0003d23fb8",
					},
					{Name: "enp6s0f0r1", MAC: "5a:5c:5e:00:00:01", State: "down", PhysPort: "pf0vf1",
						Switch: "1c1a2a0003d23fb8"},
				}},
				{Address: pciAddr(t, "0000:06:00.3"), Ports: []topology.Netdev{{Name: "enp6s0f0v1"}}},
			},
		},
		{
			name: "a virtio device stands on the function above it",
			tree: `
				sys/class/net/ens3 -> ../../devices/pci0000:00/0000:00:03.0/virtio0/net/ens3
				sys/devices/pci0000:00/0000:00:03.0/virtio0/net/ens3/speed = -1
				sys/devices/pci0000:00/0000:00:03.0/virtio0/net/ens3/mtu = 1500`,
			want: []topology.NIC{{Address: pciAddr(t, "0000:00:03.0"),
				Ports: []topology.Netdev{{Name: "ens3", MTU: new(1500)}}}},
		},
		{
			name: "what stands on no function is left out, and so is USB",
			tree: `
				sys/class/net/bonding_masters = bond0
				sys/class/net/lo -> ../../devices/virtual/net/lo
				sys/devices/virtual/net/lo/mtu = 65536
				sys/class/net/br0 -> ../../devices/virtual/net/br0
				sys/devices/virtual/net/br0/mtu = 1500
				sys/class/net/eth0 -> ../../devices/vif-0/net/eth0
				sys/devices/vif-0/net/eth0/mtu = 1500
				sys/class/net/enx0 -> ../../devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/net/enx0
				sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/net/enx0/mtu = 1500
				sys/class/net/tb0 -> ../../devices/pci0000:00/0000:00:0d.2/domain0/0-0/0-1/0-1.0/net/tb0
				sys/devices/pci0000:00/0000:00:0d.2/domain0/0-0/0-1/0-1.0/net/tb0/mtu = 65520`,
		},
		{
			name: "two ports of one function",
			tree: `
				sys/class/net/ens1 -> ../../devices/pci0000:80/0000:80:02.2/0000:82:00.0/net/ens1
				sys/devices/pci0000:80/0000:80:02.2/0000:82:00.0/net/ens1/dev_port = 0
				sys/class/net/ens1d1 -> ../../devices/pci0000:80/0000:80:02.2/0000:82:00.0/net/ens1d1
				sys/devices/pci0000:80/0000:80:02.2/0000:82:00.0/net/ens1d1/dev_port = 1`,
			want: []topology.NIC{{Address: pciAddr(t, "0000:82:00.0"), Ports: []topology.Netdev{
				{Name: "ens1", DevPort: new(0)}, {Name: "ens1d1", DevPort: new(1)},
			}}},
		},
		{
			name: "IPoIB numbers its ports in dev_id, and so do kernels without dev_port",
			tree: `
				sys/class/net/ib1 -> ../../devices/pci0000:80/0000:80:02.2/0000:82:00.0/net/ib1
				sys/devices/pci0000:80/0000:80:02.2/0000:82:00.0/net/ib1/address = ` +
				`80:00:00:03:fe:80:00:00:00:00:00:00:00:11:75:00:00:77:cf:c8
				sys/devices/pci0000:80/0000:80:02.2/0000:82:00.0/net/ib1/dev_port = 0
				sys/devices/pci0000:80/0000:80:02.2/0000:82:00.0/net/ib1/dev_id = 0x1
				sys/class/net/p1 -> ../../devices/pci0000:00/0000:03:00.0/net/p1
				sys/devices/pci0000:00/0000:03:00.0/net/p1/dev_id = 0x1`,
			want: []topology.NIC{
				{Address: pciAddr(t, "0000:03:00.0"), Ports: []topology.Netdev{{Name: "p1", DevPort: new(1)}}},
				{Address: pciAddr(t, "0000:82:00.0"), Ports: []topology.Netdev{
					{Name: "ib1", MAC: "80:00:00:03:fe:80:00:00:00:00:00:00:00:11:75:00:00:77:cf:c8", DevPort: new(1)},
				}},
			},
		},
		{
			name: "a dump of the PCI devices alone",
			tree: `
				sys/bus/pci/devices/0000:a2:00.0/net/enp162s0f0/mtu = 1500
				sys/bus/pci/devices/0000:00:03.0/virtio0/net/eth0/mtu = 1400
				sys/bus/pci/devices/0000:00:04.0/virtio1/block/vda/size = 8`,
			pci: []topology.PCIDevice{
				pciFunction(t, "0000:00:03.0", 0x020000, topology.VendorRedHat),
				pciFunction(t, "0000:00:04.0", 0x010000, topology.VendorRedHat),
				pciFunction(t, "0000:a2:00.0", 0x020000, topology.VendorBroadcom),
			},
			want: []topology.NIC{
				{Address: pciAddr(t, "0000:00:03.0"), Ports: []topology.Netdev{{Name: "eth0", MTU: new(1400)}}},
				{Address: pciAddr(t, "0000:a2:00.0"), Ports: []topology.Netdev{{Name: "enp162s0f0", MTU: new(1500)}}},
			},
		},
		{
			name: "a dump that followed the links has the address in uevent",
			tree: `
				sys/class/net/eth0/mtu = 1500
				sys/class/net/eth0/device/uevent = "DRIVER=igb\nPCI_CLASS=20000\nPCI_SLOT_NAME=0001:02:00.1\n"
				sys/class/net/eth1/device -> ../../../devices/pci0000:00/0000:00:1f.6/`,
			want: []topology.NIC{
				{Address: pciAddr(t, "0000:00:1f.6"), Ports: []topology.Netdev{{Name: "eth1"}}},
				{Address: pciAddr(t, "0001:02:00.1"), Ports: []topology.Netdev{{Name: "eth0", MTU: new(1500)}}},
			},
		},
		{
			name: "a function of a domain with five digits",
			tree: `
				sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:0e.0` +
				`/pci10000:e0/10000:e0:01.0/10000:e1:00.0/net/eth0
				sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:01.0/10000:e1:00.0/net/eth0/mtu = 1500`,
			want: []topology.NIC{{Address: pciAddr(t, "10000:e1:00.0"),
				Ports: []topology.Netdev{{Name: "eth0", MTU: new(1500)}}}},
		},
		{name: "a machine without devices", tree: `proc/cpuinfo = x`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.tree), tt.pci...)
			r.readNICs()
			if diff := cmp.Diff(tt.want, r.h.NICs); diff != "" {
				t.Errorf("NICs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNetdevSpeed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files string
		want  *int64
	}{
		{"a link that is up", "speed = 25000\ncarrier = 1\noperstate = up", new(int64(25000))},
		{"a dump with nothing but the speed", "speed = 10000", new(int64(10000))},
		{"a driver that does not know", "speed = -1\ncarrier = 1", nil},
		{"a driver that does not know, on an old kernel", "speed = 65535\ncarrier = 1", nil},
		{"a driver that does not know, on a kernel that prints it unsigned", "speed = 4294967295\ncarrier = 1", nil},
		{"zero is not a speed", "speed = 0\ncarrier = 1", nil},
		{"a link that is down keeps no speed", "speed = 10000\ncarrier = 0\noperstate = down", nil},
		{"a device that is off refuses", "speed ! EINVAL\ncarrier ! EINVAL\noperstate = down", nil},
		{"a driver without carrier that says it is down", "speed = 100\ncarrier ! EINVAL\noperstate = lowerlayerdown",
			nil},
		{"a driver that reports no state", "speed = 1000\noperstate = unknown", new(int64(1000))},
		{"a file that was empty in the dump", "speed =", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var lines strings.Builder
			for line := range strings.Lines(tt.files) {
				lines.WriteString("eth0/" + line)
			}
			r := deviceReader(t, deviceTree(t, lines.String()))
			if diff := cmp.Diff(tt.want, r.netdev("eth0").SpeedMbps); diff != "" {
				t.Errorf("speed (-want +got):\n%s", diff)
			}
			if len(r.h.Unread) > 0 {
				t.Errorf("unread = %v; want none", r.h.Unread)
			}
		})
	}
}

func TestFunctionIn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		path string
		want string
	}{
		{"sys/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0", "0000:00:03.0"},
		{"sys/devices/pci0000:00/0000:00:01.3/0000:01:00.2/0000:02:00.0/0000:03:00.0/net/enp3s0", "0000:03:00.0"},
		{"sys/devices/pci0000:06/0000:06:00.0/mlx5_core.sf.4/net/p0s4", "0000:06:00.0"},
		{"sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/net/usb0", ""},
		{"sys/devices/pci0000:00/0000:00:0d.2/domain0/0-0/net/thunderbolt0", ""},
		{"sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/000d3a1b-2c3d/net/eth0", ""},
		{"sys/devices/virtual/net/lo", ""},
		{"sys/devices/pci0000:zz/0000:zz:00.0/net/eth0", ""},
		{"", ""},
	}
	for _, tt := range tests {
		got := ""
		if a, ok := functionIn(tt.path); ok {
			got = a.String()
		}
		if got != tt.want {
			t.Errorf("functionIn(%q) = %q; want %q", tt.path, got, tt.want)
		}
	}
}

func TestUnreadableNetdevIsNoted(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceTree(t, `
		sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:03.0/net/eth0
		sys/devices/pci0000:00/0000:00:03.0/net/eth0/mtu = many
		sys/devices/pci0000:00/0000:00:03.0/net/eth0/carrier ! EACCES`))
	r.readNICs()
	want := []topology.Unread{
		{Path: "/sys/class/net/eth0/mtu", Why: `"many" is not a number`},
		{Path: "/sys/class/net/eth0/carrier", Why: "permission denied"},
	}
	if diff := cmp.Diff(want, r.h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

func quoteForTree(s string) string { return strconv.Quote(s) }
