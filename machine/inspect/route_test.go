package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

const (
	routes4 = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	100	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
eth1	00000000	00000000	0001	0	0	0	00000000	0	0	0
eth2	00000000	010200C0	0002	0	0	0	00000000	0	0	0
*	00000000	00000000	0200	0	0	0	00000000	0	0	0
tun0	00000000	0100000A	0003	0	0	50	00000080	0	0	0
`
	none6   = "00000000000000000000000000000000 00 " // any destination or source
	routes6 = "fd000000000000000000000000000000 40 " + none6 +
		"00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n" +
		none6 + none6 + "fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth0\n" +
		none6 + none6 + "00000000000000000000000000000000 00000001 00000003 00000000 00000001     wg0\n" +
		none6 + none6 + "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n" +
		none6 + "fd000000000000000000000000000000 40 " +
		"fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth5\n"
)

func TestParseRoutes4(t *testing.T) {
	t.Parallel()
	want := []topology.Route{
		{Family: "ipv4", Netdev: "eth0", Gateway: "192.0.2.1", Metric: new(100)},
		{Family: "ipv4", Netdev: "eth1", Metric: new(0)},
	}
	if diff := cmp.Diff(want, parseRoutes4(routes4, false)); diff != "" {
		t.Errorf("little endian (-want +got):\n%s", diff)
	}
	want[0].Gateway = "1.2.0.192"
	if diff := cmp.Diff(want, parseRoutes4(routes4, true)); diff != "" {
		t.Errorf("big endian (-want +got):\n%s", diff)
	}
	if got := parseRoutes4("eth0 00000000 xyz 0003 0 0 many 00000000\n\neth0 00000000\n", false); len(got) != 1 ||
		got[0].Gateway != "" || got[0].Metric != nil {
		t.Errorf("what cannot be understood is not known: %+v", got)
	}
}

func TestParseRoutes6(t *testing.T) {
	t.Parallel()
	want := []topology.Route{
		{Family: "ipv6", Netdev: "eth0", Gateway: "fd00::1", Metric: new(1024)},
		{Family: "ipv6", Netdev: "wg0", Metric: new(1)},
	}
	if diff := cmp.Diff(want, parseRoutes6(routes6)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func port(name, dir string) string {
	return fmt.Sprintf("sys/class/net/%[1]s -> ../../devices/%[2]s/net/%[1]s\nsys/devices/%[2]s/net/%[1]s/device -> "+
		"../../../%[3]s\n",
		name, dir, dir[strings.LastIndexByte(dir, '/')+1:])
}

func virtual(name string, entries ...string) string {
	out := fmt.Sprintf("sys/class/net/%[1]s -> ../../devices/virtual/net/%[1]s\nsys/devices/virtual/net/%[1]s/mtu "+
		"= 1500\n", name)
	for _, e := range entries {
		out += "sys/devices/virtual/net/" + name + "/" + e + "\n"
	}
	return out
}

func TestReadRoutes(t *testing.T) {
	t.Parallel()
	ports := port("eth0", "pci0000:00/0000:00:03.0/virtio2") + port("eth1", "pci0000:40/0000:41:00.0") + port("eth2",
		"pci0000:40/0000:41:00.1")
	to := func(netdev string) string {
		return fmt.Sprintf("proc/net/route = \"Iface Destination\\n%s 00000000 010200C0 0003 0 0 0 00000000 0 0 "+
			"0\\n\"\n", netdev)
	}
	for _, tt := range []struct {
		name, lines string
		want        []string
	}{
		{"a NIC", ports + to("eth1"), []string{"0000:41:00.0"}},
		{"a device of virtio is of the function below it", ports + to("eth0"), []string{"0000:00:03.0"}},
		{"a bond", ports + virtual("bond0", "lower_eth1 -> ../../x", "lower_eth2 -> ../../x") + to("bond0"),
			[]string{"0000:41:00.0", "0000:41:00.1"}},
		{"a bond, as old kernels tell it", ports + virtual("bond0", "bonding/slaves = eth2 eth1") + to("bond0"),
			[]string{"0000:41:00.0", "0000:41:00.1"}},
		{
			"a bridge on a VLAN on a bond",
			ports + virtual("bond0", "lower_eth2 -> ../../x") + virtual("bond0.7", "lower_bond0 -> ../bond0") +
				virtual("br0", "lower_bond0.7 -> ../bond0.7") + to("br0"),
			[]string{"0000:41:00.1"},
		},
		{
			"a bridge on a VLAN, as old kernels tell it",
			ports + virtual("br0", "brif/eth1.7 -> ../../eth1.7") + virtual("eth1.7") + to("br0") +
				"proc/net/vlan/config = \"VLAN Dev name | VLAN ID\\nName-Type: " +
				"VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\\neth1.7         | 7  | eth1\\n\"\n",
			[]string{"0000:41:00.0"},
		},
		{"devices in a circle", virtual("a", "lower_b -> ../b") + virtual("b", "lower_a -> ../a") + to("a"), nil},
		{"a tunnel stands on nothing", ports + virtual("wg0") + to("wg0"), nil},
		{"a device that is not there", to("eth9"), nil},
		{"a name that is no name", to("../../etc"), nil},
		{
			"a bridge of Open vSwitch has the address of its port",
			ports + virtual("ovs-system") + virtual("br-ex", "address = 02:00:00:00:00:02") + to("br-ex") + `
			sys/devices/pci0000:40/0000:41:00.0/net/eth1/address = 02:00:00:00:00:01
			sys/devices/pci0000:40/0000:41:00.0/net/eth1/master -> ../../../../virtual/net/ovs-system
			sys/devices/pci0000:40/0000:41:00.1/net/eth2/address = 02:00:00:00:00:02
			sys/devices/pci0000:40/0000:41:00.1/net/eth2/master -> ../../../../virtual/net/ovs-system`,
			[]string{"0000:41:00.1"},
		},
		{
			"a bridge of Open vSwitch with an address of its own may use any port",
			ports + virtual("ovs-system") + virtual("br-ex", "address = 02:00:00:00:00:09") + to("br-ex") + `
			sys/devices/pci0000:40/0000:41:00.0/net/eth1/master -> ../../../../virtual/net/ovs-system
			sys/devices/pci0000:40/0000:41:00.1/net/eth2/master -> ../../../../virtual/net/ovs-system`,
			[]string{"0000:41:00.0", "0000:41:00.1"},
		},
		{"a directory instead of a link", to("eth3") +
			"sys/class/net/eth3/device -> ../../../devices/pci0000:00/0000:00:19.0\n", []string{"0000:00:19.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.lines))
			r.readRoutes()
			if len(r.h.Routes) != 1 {
				t.Fatalf("%d routes", len(r.h.Routes))
			}
			if diff := cmp.Diff(tt.want, r.h.Routes[0].PCI); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(r.h.Unread) > 0 {
				t.Errorf("unread: %v", r.h.Unread)
			}
		})
	}
}

func TestReadRoutesOfBothFamilies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, lines string }{
		{"a live machine", fmt.Sprintf("proc/net -> self/net\nproc/self -> 17\nproc/17/net/route = "+
			"%q\nproc/17/net/ipv6_route = %q\n", routes4, routes6)},
		{"a dump with directories", fmt.Sprintf("proc/net/route = %q\nproc/net/ipv6_route = %q\n", routes4, routes6)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.lines))
			r.readRoutes()
			want := []topology.Route{
				{Family: "ipv4", Netdev: "eth1", Metric: new(0)},
				{Family: "ipv4", Netdev: "eth0", Gateway: "192.0.2.1", Metric: new(100)},
				{Family: "ipv6", Netdev: "wg0", Metric: new(1)},
				{Family: "ipv6", Netdev: "eth0", Gateway: "fd00::1", Metric: new(1024)},
			}
			if diff := cmp.Diff(want, r.h.Routes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsBigEndian(t *testing.T) {
	t.Parallel()
	for arch, want := range map[string]bool{"x86_64": false, "aarch64": false, "ppc64le": false, "riscv64": false,
		"": false, "s390x": true, "ppc64": true} {
		if got := isBigEndian(arch); got != want {
			t.Errorf("isBigEndian(%q) = %t, want %t", arch, got, want)
		}
	}
}

func FuzzParseRoutes(f *testing.F) {
	f.Add(routes4)
	f.Add(routes6)
	f.Add("eth0 00000000 0 0003 0 0 -1 00000000\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Count(text, "\n") + 1
		for _, routes := range [][]topology.Route{parseRoutes4(text, false), parseRoutes4(text, true),
			parseRoutes6(text)} {
			if len(routes) > lines {
				t.Errorf("%d routes of %d lines", len(routes), lines)
			}
			for _, r := range routes {
				if r.Netdev == "" || r.Metric != nil && *r.Metric < 0 || r.Gateway == "0.0.0.0" || r.Gateway == "::" {
					t.Errorf("route %+v", r)
				}
			}
		}
	})
}
