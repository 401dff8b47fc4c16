package inspect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

// A ConnectX-7 on RoCE: link-local and IPv4 address, each as version 1 and 2, so that RoCE v2 over IPv4 has index 3;
// and a GID after a hole.
var roceDevice = strings.ReplaceAll(`
sys/class/infiniband/mlx5_0 -> ../../devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0
sys/class/net/eth2 -> ../../devices/pci0000:15/0000:15:01.0/0000:18:00.0/net/eth2
sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/net/eth2/speed = 400000
sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/net/eth2/operstate = up
sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0/node_type = 1: CA
sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0/fw_ver = 28.39.1002
sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0/node_guid = a088:c203:00ad:eab8
sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0/board_id = MT_0000000838
PORT/state = 4: ACTIVE
PORT/phys_state = 5: LinkUp
PORT/link_layer = Ethernet
PORT/rate = 400 Gb/sec (4X NDR)
PORT/lid = 0x0
PORT/gids/0 = fe80:0000:0000:0000:a288:c2ff:fead:eab8
PORT/gids/1 = fe80:0000:0000:0000:a288:c2ff:fead:eab8
PORT/gids/2 = 0000:0000:0000:0000:0000:ffff:0a00:0001
PORT/gids/3 = 0000:0000:0000:0000:0000:ffff:0a00:0001
PORT/gids/4 = 0000:0000:0000:0000:0000:0000:0000:0000
PORT/gids/17 = 2001:0db8:0000:0000:0000:0000:0000:0011
PORT/gids/255 = 0000:0000:0000:0000:0000:0000:0000:0000
PORT/gid_attrs/types/0 = IB/RoCE v1
PORT/gid_attrs/types/1 = RoCE v2
PORT/gid_attrs/types/2 = IB/RoCE v1
PORT/gid_attrs/types/3 = RoCE v2
PORT/gid_attrs/types/4 ! EACCES
PORT/gid_attrs/types/17 = RoCE v2
PORT/gid_attrs/types/255 ! EACCES
PORT/gid_attrs/ndevs/0 = eth2
PORT/gid_attrs/ndevs/1 = eth2
PORT/gid_attrs/ndevs/2 = eth2
PORT/gid_attrs/ndevs/3 = eth2
PORT/gid_attrs/ndevs/17 ! EINVAL
PORT/counters/symbol_error = 18446744073709551615
PORT/counters/link_downed = 2
PORT/counters/port_rcv_errors = 0
PORT/counters/port_rcv_data ! EACCES
PORT/counters/port_xmit_discards = N/A (no PMA)
PORT/counters/VL15_dropped ! EINVAL
PORT/hw_counters/np_cnp_sent = 1009
PORT/hw_counters/out_of_sequence = 7
PORT/hw_counters/resp_cqe_flush_error = 99
PORT/hw_counters/lifespan = 10
`, "PORT", "sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0/infiniband/mlx5_0/ports/1")

func TestReadRDMAOnRoCE(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceTree(t, roceDevice))
	r.readNICs()
	link4, v4 := "fe80:0000:0000:0000:a288:c2ff:fead:eab8", "0000:0000:0000:0000:0000:ffff:0a00:0001"
	want := []topology.NIC{{
		Address:  pciAddr(t, "0000:18:00.0"),
		Firmware: "28.39.1002",
		Ports:    []topology.Netdev{{Name: "eth2", SpeedMbps: new(int64(400000)), State: "up"}},
		Devices: []topology.RDMADevice{{
			Name: "mlx5_0", NodeType: "1: CA", Firmware: "28.39.1002", NodeGUID: "a088:c203:00ad:eab8",
			Board: "MT_0000000838",
			Ports: []topology.RDMAPort{{
				Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet", RateGbps: new(400.0),
				GIDs: []topology.GID{
					{Index: 0, GID: link4, Type: "IB/RoCE v1", Netdev: "eth2"},
					{Index: 1, GID: link4, Type: "RoCE v2", Netdev: "eth2"},
					{Index: 2, GID: v4, Type: "IB/RoCE v1", Netdev: "eth2"},
					{Index: 3, GID: v4, Type: "RoCE v2", Netdev: "eth2"},
					{Index: 17, GID: "2001:0db8:0000:0000:0000:0000:0000:0011", Type: "RoCE v2"},
				},
				Counters: map[string]uint64{"symbol_error": 1<<64 - 1, "link_downed": 2, "np_cnp_sent": 1009,
					"out_of_sequence": 7},
			}},
		}},
	}}
	if diff := cmp.Diff(want, r.h.NICs); diff != "" {
		t.Errorf("NICs (-want +got):\n%s", diff)
	}
	// Files that must not be read fail with EACCES.
	if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
	r.h.Complete()
	if got := r.h.NICs[0]; !cmp.Equal(got.Netdevs, []string{"eth2"}) || !cmp.Equal(got.RDMA, []string{"mlx5_0"}) ||
		*got.SpeedMbps != 400000 {
		t.Errorf("completed NIC has netdevs %v, RDMA %v, %d Mb/s; want eth2, mlx5_0, 400000", got.Netdevs, got.RDMA,
			*got.SpeedMbps)
	}
}

// rxe is not a child of its network device.
func TestReadSoftwareRoCE(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceFixture(t, "rxe-on-virtio-and-bond.txt"), pciFunction(t, "0000:00:03.0", 0x020000,
		topology.VendorRedHat))
	r.readNICs()
	r.readBonds()
	r.h.Complete()
	port := func(link, v4, netdev string) []topology.RDMAPort {
		// The kernel made this rate from virtio's unknown speed.
		return []topology.RDMAPort{{Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "Ethernet",
			GIDs: []topology.GID{
				{Index: 0, GID: link, Type: "RoCE v2", Netdev: netdev}, {Index: 1, GID: v4, Type: "RoCE v2",
					Netdev: netdev},
			}}}
	}
	want := []topology.NIC{
		{
			Address: pciAddr(t, "0000:00:03.0"), Netdevs: []string{"eth0"}, RDMA: []string{"rxe0"},
			Ports: []topology.Netdev{
				{Name: "eth0", MAC: "52:54:00:ca:ee:be", MTU: new(4200), State: "up", Carrier: new(true),
					DevPort: new(0)},
			},
			Devices: []topology.RDMADevice{{
				Name: "rxe0", NodeType: "1: CA", NodeGUID: "5054:00ff:feca:eebe",
				Ports: port("fe80:0000:0000:0000:5054:00ff:feca:eebe", "0000:0000:0000:0000:0000:ffff:0a00:0001",
					"eth0"),
			}},
		},
		{
			Name: "bond0", Netdevs: []string{"bond0"}, RDMA: []string{"rxe1"},
			Ports: []topology.Netdev{
				{Name: "bond0", MAC: "e6:3d:89:89:fd:1a", MTU: new(1500), State: "up", Carrier: new(true),
					DevPort: new(0)},
			},
			Devices: []topology.RDMADevice{{
				Name: "rxe1", NodeType: "1: CA", NodeGUID: "e43d:89ff:fe89:fd1a",
				Ports: port("fe80:0000:0000:0000:e43d:89ff:fe89:fd1a", "0000:0000:0000:0000:0000:ffff:0a09:0001",
					"bond0"),
			}},
		},
	}
	if diff := cmp.Diff(want, r.h.NICs); diff != "" {
		t.Errorf("NICs (-want +got):\n%s", diff)
	}
	bonds := []topology.Bond{{
		Name: "bond0", Mode: "802.3ad", HashPolicy: "layer3+4", Members: []string{"dummy0", "dummy1"}, MTU: new(1500),
		RDMA: []string{"rxe1"},
	}}
	if diff := cmp.Diff(bonds, r.h.Bonds); diff != "" {
		t.Errorf("bonds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

func TestReadRDMAOfProcfsFixture(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceFixture(t, "procfs-classes.txt"))
	r.readNICs()
	port := func(n int, gbps float64, phys string) topology.RDMAPort {
		return topology.RDMAPort{Number: n, State: "ACTIVE", PhysState: phys, LinkLayer: "InfiniBand", RateGbps: &gbps,
			Lanes: 4}
	}
	mlx5 := port(1, 25, "ACTIVE")
	mlx5.Lanes = 1
	mlx5.Counters = map[string]uint64{
		"duplicate_request": 41, "local_ack_timeout_err": 131, "out_of_sequence": 1, "packet_seq_err": 1,
		"req_cqe_error":  3481,
		"resp_cqe_error": 8109, "roce_adp_retrans": 99, "roce_adp_retrans_to": 4, "roce_slow_restart_cnps": 131,
	}
	want := map[string][]topology.RDMADevice{
		"hfi1_0": {{
			Name: "hfi1_0", Firmware: "1.27.0", Board: "HPE 100Gb 1-port OP101 QSFP28 x16 PCIe Gen3 with Intel " +
				"Omni-Path Adapter",
			Ports: []topology.RDMAPort{port(1, 100, "LinkUp")},
		}},
		"mlx4_0": {{
			Name: "mlx4_0", Firmware: "2.31.5050", Board: "SM_1141000001000",
			Ports: []topology.RDMAPort{port(1, 40, "LinkUp"), port(2, 40, "LinkUp")},
		}},
		"mlx5_0": {{
			Name: "mlx5_0", Firmware: "14.28.2006", NodeGUID: "0a7f:bc12:45ef:d23b", Board: "SM_2001000001034",
			Ports: []topology.RDMAPort{mlx5},
		}},
	}
	got := map[string][]topology.RDMADevice{}
	var netdevs []string
	for _, n := range r.h.NICs {
		if n.Address == nil {
			got[n.Name] = n.Devices
		}
		for _, p := range n.Ports {
			netdevs = append(netdevs, n.ID()+" "+p.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("RDMA devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"0000:00:1f.6 eth0"}, netdevs); diff != "" {
		t.Errorf("network devices (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

func TestWhereRDMADevicesStand(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		tree string
		pci  []topology.PCIDevice
		want []string // NIC: devices
	}{
		{
			name: "software RoCE of older kernels is a child of the function",
			tree: `
				sys/class/infiniband/rxe0 -> ../../devices/pci0000:00/0000:00:03.0/virtio0/infiniband/rxe0
				sys/devices/pci0000:00/0000:00:03.0/virtio0/infiniband/rxe0/parent = eth0`,
			want: []string{"0000:00:03.0: rxe0"},
		},
		{
			name: "iWARP in software has no parent file, but a GID that names the network device",
			tree: `
				sys/class/net/ens1 -> ../../devices/pci0000:00/0000:03:00.0/net/ens1
				sys/devices/pci0000:00/0000:03:00.0/net/ens1/mtu = 1500
				sys/class/infiniband/siw0 -> ../../devices/virtual/infiniband/siw0
				sys/devices/virtual/infiniband/siw0/ports/1/gids/0 = 5254:0000:0001:0000:0000:0000:0000:0000
				sys/devices/virtual/infiniband/siw0/ports/1/gid_attrs/ndevs/0 = ens1`,
			want: []string{"0000:03:00.0: siw0"},
		},
		{
			name: "an RDMA device on a device without a function is a NIC by that name",
			tree: `
				sys/class/net/lo -> ../../devices/virtual/net/lo
				sys/devices/virtual/net/lo/mtu = 65536
				sys/class/infiniband/siw_lo -> ../../devices/virtual/infiniband/siw_lo
				sys/devices/virtual/infiniband/siw_lo/parent = lo`,
			want: []string{"lo: siw_lo"},
		},
		{
			name: "a device of a co-processor's bus stands alone",
			tree: `sys/class/infiniband/scif0 -> ../../devices/scif_dma_0/infiniband/scif0`,
			want: []string{"scif0: scif0"},
		},
		{
			name: "a parent that would lead out of the class is not followed",
			tree: `
				sys/class/infiniband/rxe0 -> ../../devices/virtual/infiniband/rxe0
				sys/devices/virtual/infiniband/rxe0/parent = ../../etc`,
			want: []string{"rxe0: rxe0"},
		},
		{
			name: "a dump of the PCI devices alone",
			tree: `sys/bus/pci/devices/0000:18:00.0/infiniband/mlx5_0/node_type = 1: CA`,
			pci: []topology.PCIDevice{
				pciFunction(t, "0000:00:1f.2", 0x010601, topology.VendorIntel), pciFunction(t, "0000:18:00.0", 0x020700,
					topology.VendorMellanox),
			},
			want: []string{"0000:18:00.0: mlx5_0"},
		},
		{
			name: "the device of a bond is on the function of its first member",
			tree: `
				sys/class/net/bond0 -> ../../devices/virtual/net/bond0
				sys/class/infiniband/mlx5_bond_0 -> ../../devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0
				sys/devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0/ports/1/gids/3 = ` +
				`0000:0000:0000:0000:0000:ffff:0a00:0001
				sys/devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/3 = bond0`,
			want: []string{"0000:18:00.0: mlx5_bond_0"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.tree), tt.pci...)
			r.readNICs()
			var got []string
			for _, n := range r.h.NICs {
				for _, d := range n.Devices {
					got = append(got, n.ID()+": "+d.Name)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRDMAPort(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		files  string
		want   topology.RDMAPort
		unread []topology.Unread
	}{
		{
			name: "InfiniBand with a LID",
			files: `
				p/state = 4: ACTIVE
				p/phys_state = 5: LinkUp
				p/link_layer = InfiniBand
				p/rate = 200 Gb/sec (4X HDR)
				p/lid = 0x33bf
				p/gids/0 = fe80:0000:0000:0000:0015:5dff:fd34:11eb
				p/gids/1 = fe80:0000:0000:0000:0000:0000:0000:0000
				p/gid_attrs/types/0 = IB/RoCE v1
				p/gid_attrs/ndevs/0 ! EINVAL`,
			want: topology.RDMAPort{
				State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "InfiniBand", RateGbps: new(200.0), Lanes: 4,
				LID:  new(0x33bf),
				GIDs: []topology.GID{{GID: "fe80:0000:0000:0000:0015:5dff:fd34:11eb", Type: "IB/RoCE v1"}},
			},
		},
		{
			name: "a port that is down keeps no rate: mlx5 says 40",
			files: `
				p/state = 1: DOWN
				p/phys_state = 3: Disabled
				p/link_layer = Ethernet
				p/rate = 40 Gb/sec (4X QDR)
				p/lid = 0xffff`,
			want: topology.RDMAPort{State: "DOWN", PhysState: "Disabled", LinkLayer: "Ethernet"},
		},
		{
			name: "a slow InfiniBand port keeps its rate",
			files: `
				p/state = 2: INIT
				p/link_layer = InfiniBand
				p/rate = 2.5 Gb/sec (1X SDR)`,
			want: topology.RDMAPort{State: "INIT", LinkLayer: "InfiniBand", RateGbps: new(2.5), Lanes: 1},
		},
		{
			name: "what is not understood is noted",
			files: `
				p/rate = fast
				p/gids/0 = here
				p/counters/symbol_error = some`,
			unread: []topology.Unread{
				{Path: "/p/counters/symbol_error", Why: `"some" is not a number`},
				{Path: "/p/gids/0", Why: `"here" is not a GID`},
				{Path: "/p/rate", Why: `"fast" is not a rate; want the form "100 Gb/sec (4X EDR)"`},
			},
		},
		{name: "a port of which nothing is known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.files))
			if diff := cmp.Diff(tt.want, r.rdmaPort("p", 0)); diff != "" {
				t.Errorf("port (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.unread, r.h.Unread); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIsTrouble(t *testing.T) {
	t.Parallel()
	yes := strings.Fields(`symbol_error link_downed link_error_recovery port_rcv_errors port_xmit_discards
		local_link_integrity_errors excessive_buffer_overrun_errors VL15_dropped out_of_sequence out_of_buffer
		packet_seq_err local_ack_timeout_err rnr_nak_retry_err np_cnp_sent rp_cnp_handled np_ecn_marked_roce_packets
		duplicate_request implied_nak_seq_err req_cqe_error roce_adp_retrans rx_icrc_encapsulated roce_slow_restart
		to_retransmits missing_resp res_oos_drop_count cnpSent RxECNMrkd ip4InDiscards rx_drops
		retrans_timeout_events unresponsive_remote_events retry_exceeded_err out_of_seq_request rcvd_rnr_err`)
	no := strings.Fields(`port_rcv_data port_xmit_packets port_xmit_wait lifespan rx_write_requests
		rx_dct_connect ack_deferred sent_pkts rcvd_pkts rdma_sends unicast_rcv_packets resp_cqe_flush_error
		req_cqe_flush_error active_qps bytes_transferred interrupts`)
	for _, name := range yes {
		if !topology.IsTrouble(name) {
			t.Errorf("IsTrouble(%q) = false; want true", name)
		}
	}
	for _, name := range no {
		if topology.IsTrouble(name) {
			t.Errorf("IsTrouble(%q) = true; want false", name)
		}
	}
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want float64
		err  string
	}{
		{"100 Gb/sec (4X EDR)", 100, ""},
		{"2.5 Gb/sec (1X SDR)", 2.5, ""},
		{"1600 Gb/sec (8X XDR)", 1600, ""},
		{"56 Gb/sec", 56, ""},
		{"", 0, `"" is not a rate; want the form "100 Gb/sec (4X EDR)"`},
		{"100", 0, `"100" is not a rate; want the form "100 Gb/sec (4X EDR)"`},
		{"-1 Gb/sec", 0, `"-1 Gb/sec" is not a rate; want the form "100 Gb/sec (4X EDR)"`},
		{"NaN Gb/sec", 0, `"NaN Gb/sec" is not a rate; want the form "100 Gb/sec (4X EDR)"`},
		{"Inf Gb/sec", 0, `"Inf Gb/sec" is not a rate; want the form "100 Gb/sec (4X EDR)"`},
	}
	for _, tt := range tests {
		got, err := parseRate(tt.in)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("parseRate(%q) = %v, %q; want %v, %q", tt.in, got, text, tt.want, tt.err)
		}
	}
}

func FuzzRDMAPort(f *testing.F) {
	f.Add("4: ACTIVE", "100 Gb/sec (4X EDR)", "fe80:0000:0000:0000:0015:5dff:fd34:11eb", "18446744073709551615")
	f.Add("1: DOWN", "2.5 Gb/sec (1X SDR)", "0000:0000:0000:0000:0000:0000:0000:0000", "N/A (no PMA)")
	f.Add("::", "-0 Gb/sec", "fe80::1%eth0", "-1")
	f.Fuzz(func(t *testing.T, state, rate, gid, counter string) {
		var lines strings.Builder
		for _, file := range [][2]string{{"state", state}, {"rate", rate}, {"gids/0", gid},
			{"counters/symbol_error", counter}} {
			lines.WriteString("p/" + file[0] + " = " + quoteForTree(file[1]) + "\n")
		}
		r := deviceReader(t, deviceTree(t, lines.String()))
		port := r.rdmaPort("p", 1)
		if port.RateGbps != nil && !(*port.RateGbps > 0) {
			t.Errorf("rate %v of %q; want a positive number or none", *port.RateGbps, rate)
		}
		for _, g := range port.GIDs {
			if strings.Trim(g.GID, "0:") == "" {
				t.Errorf("GID %q of %q; want none for zero", g.GID, gid)
			}
		}
		for name, v := range port.Counters {
			if v == 0 {
				t.Errorf("counter %s is listed with 0", name)
			}
		}
	})
}
