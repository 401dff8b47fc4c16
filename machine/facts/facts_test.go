package facts

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/machine/topology"
)

const facts = `hostname vm00
machine-id 0123456789abcdef0123456789abcdef
boot-id 9699f52e-3c6c-408a-a849-33b21e86d74a
uuid 5a5a5a5a-0000-4000-8000-000000000000
kernel 6.1.0-42-amd64
uptime 12.34 10.00
net/eth0/mac 52:54:00:aa:00:01
net/eth0/mtu 4200
net/eth0/operstate up
net/eth0/carrier 1
rdma/rxe0/node_guid 5054:00ff:feaa:0001
rdma/rxe0/parent eth0
rdma/rxe0/1/state 4: ACTIVE
rdma/rxe0/1/link_layer Ethernet
rdma/rxe0/1/rate 2.5 Gb/sec (1X SDR)
rdma/rxe0/1/gid/0 fe80:0000:0000:0000:5054:00ff:feaa:0001 eth0 RoCE v2
rdma/rxe0/1/gid/1 0000:0000:0000:0000:0000:ffff:0a00:0001 eth0 IB/RoCE v1
rdma/rxe0/1/gid/3 0000:0000:0000:0000:0000:ffff:0a00:0001 eth0 RoCE v2
rdma/rxe0/1/counter/sent_pkts 18446744073709551615
rdma/rxe0/1/port_counter/port_xmit_packets 7
rdma/rxe0/2/state 1: DOWN
cpus/online 0-3
cpu/0/package 0
cpu/0/core 0
cpu/1/package 0
cpu/1/core 0
node/0/cpus 0,1
node/0/distance 10 16
node/0/meminfo Node 0 MemTotal:        7825624 kB
node/1/cpus 
pci/0000:06:00.0/class 0x030000
pci/0000:06:00.0/vendor 0x10de
pci/0000:06:00.0/numa_node -1
pci/0000:06:00.0/current_link_speed 2.5 GT/s PCIe
pci/0000:06:00.0/current_link_width 16
pci/0000:06:00.0/max_link_speed Unknown
pci/0000:06:00.0/max_link_width 255
net/eth0/class 0x020000
net/eth0/numa_node 1
net/bond0/members eth1 eth2
rdma/mlx5_bond_0/pci 0000:41:00.0
nvidia NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build
module/nvidia_peermem
something/new 1
`

var sets = cmp.Comparer(topology.CPUSet.Equal)

func TestParse(t *testing.T) {
	got, err := Parse([]byte(facts))
	if err != nil {
		t.Fatal(err)
	}
	four := "0000:0000:0000:0000:0000:ffff:0a00:0001"
	want := &Node{
		Hostname: "vm00", MachineID: "0123456789abcdef0123456789abcdef", UUID: "5a5a5a5a-0000-4000-8000-000000000000",
		BootID: "9699f52e-3c6c-408a-a849-33b21e86d74a",
		NVIDIA: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build",
		Cards:  map[string]*int{"eth0": new(1)},
		Counters: map[string]Counters{"rxe0": {HW: map[string]uint64{"sent_pkts": 1<<64 - 1},
			Port: map[string]uint64{"port_xmit_packets": 7}}},
		Host: topology.Host{
			CPUs:  topology.CPUStates{Online: topology.CPURange(0, 3)},
			Cores: []topology.Core{{OSID: new(0), Package: new(0), CPUs: topology.CPUs(0, 1)}},
			NUMANodes: []topology.NUMANode{{CPUs: topology.CPUs(0, 1), Distances: []int{10, 16},
				MemoryBytes: new(uint64(7825624 << 10))}, {ID: 1}},
			PCI: []topology.PCIDevice{{Address: topology.PCIAddr{Bus: 6},
				Class: new(topology.ID24(0x030000)), Vendor: new(topology.VendorNVIDIA),
				Link: &topology.Link{SpeedGTs: new(2.5), Width: new(16)}}},
			NICs: []topology.NIC{
				{Name: "bond0", Ports: []topology.Netdev{{Name: "bond0"}}},
				{Name: "eth0", NUMANode: new(1),
					Ports: []topology.Netdev{{Name: "eth0", MAC: "52:54:00:aa:00:01", MTU: new(4200), State: "up",
						Carrier: new(true)}},
					Devices: []topology.RDMADevice{{Name: "rxe0", NodeGUID: "5054:00ff:feaa:0001",
						Ports: []topology.RDMAPort{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet",
							GIDs: []topology.GID{
								{GID: "fe80:0000:0000:0000:5054:00ff:feaa:0001", Type: "RoCE v2", Netdev: "eth0"},
								{Index: 1, GID: four, Type: "IB/RoCE v1", Netdev: "eth0"},
								{Index: 3, GID: four, Type: "RoCE v2", Netdev: "eth0"},
							}}}}}},
				{Name: "mlx5_bond_0", Address: &topology.PCIAddr{Bus: 0x41},
					Devices: []topology.RDMADevice{{Name: "mlx5_bond_0"}}},
			},
			Bonds:  []topology.Bond{{Name: "bond0", Members: []string{"eth1", "eth2"}}},
			Kernel: topology.Kernel{Release: "6.1.0-42-amd64", Modules: []string{"nvidia_peermem"}},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Node{}), sets); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	_, d := got.RDMADevice("rxe0")
	for addr, want := range map[string]int{"10.0.0.1": 3, "::ffff:10.0.0.1": 3, "fe80::5054:ff:feaa:1": 0,
		"10.0.0.2": -1, "::": -1} {
		i, ok := d.Port(1).RoCEv2Index(netip.MustParseAddr(addr))
		if ok != (want >= 0) || ok && i != want {
			t.Errorf("RoCE v2 index of %s: got %d, %v, want %d", addr, i, ok, want)
		}
	}
}

func TestParseWhatThatAreWrong(t *testing.T) {
	for line, want := range map[string]string{
		"net/eth0/mtu many":                                    `rackless-facts: "net/eth0/mtu many": strconv.Atoi`,
		"net/eth0/mtu":                                         "invalid syntax",
		"rdma/rxe0/1/counter/sent_pkts -1":                     "invalid syntax",
		"rdma/rxe0/1/gid/0 fe80::1":                            "want gid, network device and type",
		"rdma/rxe0/1/gid fe80::1 eth0 x":                       "want gid, network device and type",
		"rdma/rxe0/1/gid/x fe80::1 eth0 x":                     "invalid syntax",
		"rdma/rxe0/1/gid/0 nonsense eth0 x":                    "unable to parse IP",
		"cpus/online 3-1":                                      "runs backwards",
		"cpu/x/core 1":                                         "invalid syntax",
		"cpu/1/core":                                           "invalid syntax",
		"node/x/cpus 0":                                        "invalid syntax",
		"node/0/cpus 0,,1":                                     "empty item",
		"node/0/distance 10 far":                               "invalid syntax",
		"node/0/meminfo Node 0 MemFree: 1 kB":                  "want Node N MemTotal",
		"node/0/meminfo Node 0 MemTotal: 99999999999999999 kB": "value out of range",
		"pci/0000:06:00.0/numa_node none":                      "invalid syntax",
		"pci/06:00.0x/class 0x030000":                          "06:00.0x",
		"pci/0000:06:00.0/class display":                       "display",
		"net/eth0/numa_node":                                   "invalid syntax",
		"rdma/rxe0/1/port_counter/x y":                         "invalid syntax",
		"hostname " + strings.Repeat("x", 1<<17):               "token too long",
	} {
		if _, err := Parse([]byte("hostname vm00\n" + line + "\n")); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("%.60s: got %v, want %s", line, err, want)
		}
	}
	f, err := Parse([]byte("cpu/-1/core 0\ncpu/1099511627776/core 0\ncpu/5/core 7\n"))
	if err != nil || len(f.Cores) != 1 || f.Cores[0].CPUs.String() != "5" || *f.Cores[0].OSID != 7 {
		t.Errorf("CPUs that no kernel has: %+v, %v", f, err)
	}
	if f, err := Parse(nil); err != nil || f.Hostname != "" || len(f.NICs) != 0 {
		t.Errorf("nothing: %+v, %v", f, err)
	}
}

func FuzzParse(f *testing.F) {
	for part := range slices.Chunk(strings.SplitAfter(facts, "\n"), 8) {
		f.Add([]byte(strings.Join(part, "")))
	}
	f.Add([]byte("rdma/rxe0/1/gid/0 fe80::1%eth0 eth0 RoCE v2\n"))
	f.Add([]byte("rdma//1/counter\nnet///\n/\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse(b)
		if (got == nil) == (err == nil) && !strings.Contains(err.Error(), "too long") {
			t.Fatalf("got %v, %v", got, err)
		}
		if got == nil {
			return
		}
		for _, d := range got.RDMADevices() {
			p := d.Port(1)
			for _, g := range p.GIDs {
				if i, ok := p.RoCEv2Index(g.Addr()); g.IsV2() && (!ok || i > g.Index && i != g.Index &&
					len(p.GIDs) == 1) {
					t.Errorf("%s: index of %v is %d, %v", d.Name, g, i, ok)
				}
			}
		}
	})
}
func TestRatesOfPorts(t *testing.T) {
	for _, tt := range []struct {
		rate, device string
		want         float64
	}{
		{"25 Gb/sec (1X EDR)", "", 25},
		{"100 Gb/sec (4X EDR)", "", 100},
		{"2.5 Gb/sec (1X SDR)", "", 2.5},
		{"2.5 Gb/sec (1X SDR)", "rxe0", 0}, // soft RoCE
		{"100 Gb/sec (4X EDR)", "rxe0", 0},
		{"", "", 0},
		{"NaN Gb/sec", "", 0},
		{"25 Mb/sec", "", 0},
		{"fast", "", 0},
	} {
		got := 0.0
		if rate := portRate(tt.rate, tt.device, ""); rate != nil {
			got = *rate
		}
		if got != tt.want {
			t.Errorf("%q of %q: %g, want %g", tt.rate, tt.device, got, tt.want)
		}
	}
}
