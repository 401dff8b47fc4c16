package hostview

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

// rdmaHost has a GPU and a NIC below one switch, a second NIC elsewhere, and a slow management NIC.
func rdmaHost() *topology.Host {
	address := func(s string) topology.PCIAddr {
		a, err := topology.ParsePCIAddr(s)
		if err != nil {
			panic(err)
		}
		return a
	}
	bridge := func(s string, parent *topology.PCIAddr) topology.PCIDevice {
		return topology.PCIDevice{Address: address(s), Parent: parent, Class: new(topology.ID24(0x060400)),
			Bridge: &topology.Bridge{Port: topology.PortSwitch}}
	}
	port, up := address("10:00.0"), address("11:00.0")
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceSynthetic, Name: "a test"},
		PCI:    []topology.PCIDevice{bridge("10:00.0", nil), bridge("11:00.0", &port), bridge("11:01.0", &port)},
		Routes: []topology.Route{{Family: "ipv4", Netdev: "eno1"}}}
	below := address("11:01.0")
	h.PCI = append(h.PCI, topology.PCIDevice{Address: address("12:00.0"), Parent: &up,
		Class: new(topology.ID24(0x030200)), Vendor: new(topology.ID16(topology.VendorNVIDIA))})
	for i, n := range []struct {
		at     string
		parent *topology.PCIAddr
		gbps   float64
		gid    string
		index  int
	}{{"13:00.0", &below, 200, "::ffff:10.0.0.1", 3}, {"40:00.0", nil, 200, "::ffff:10.0.1.1", 3},
		{"50:00.0", nil, 25, "::ffff:192.0.2.1", 1}} {
		a := address(n.at)
		h.PCI = append(h.PCI, topology.PCIDevice{Address: a, Parent: n.parent, Class: new(topology.ID24(0x020000)),
			Vendor: new(topology.ID16(topology.VendorMellanox))})
		h.NICs = append(h.NICs, topology.NIC{Address: &a, Netdevs: []string{[]string{"eth0", "eth1", "eno1"}[i]},
			Devices: []topology.RDMADevice{{Name: "mlx5_" + string(rune('0'+i)), Ports: []topology.RDMAPort{{Number: 1,
				State: "ACTIVE", LinkLayer: "Ethernet", RateGbps: &n.gbps,
				GIDs: []topology.GID{{Index: n.index - 1, GID: n.gid, Type: "IB/RoCE v1"},
					{Index: n.index, GID: n.gid, Type: "RoCE v2"}}}}}}})
	}
	h.Complete()
	return h
}

func TestVariablesForLibraries(t *testing.T) {
	t.Parallel()
	differ := func(h *topology.Host) { h.NICs[1].Devices[0].Ports[0].GIDs[1].Index = 5 }
	tests := []struct {
		name, form string
		set        func(*topology.Host)
		variables  string
		reasons    []string
	}{
		{name: "NCCL", form: NCCLEnv, variables: "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_IB_GID_INDEX=3\n" +
			"NCCL_SOCKET_IFNAME==eno1\n", reasons: []string{
			"# Not mlx5_2:1: it has 25 Gb/s, and others have 200; the default route goes over it.",
			"# Nearest to GPU 0000:12:00.0: mlx5_0:1 (P", "NCCL_TOPO_FILE is not needed"}},
		{name: "UCX", form: UCXEnv, variables: "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1\nUCX_IB_GID_INDEX=3\n"},
		{name: "Open MPI", form: OpenMPIEnv, variables: "OMPI_MCA_pml=ucx\nUCX_NET_DEVICES=mlx5_0:1,mlx5_1:1\n" +
			"UCX_IB_GID_INDEX=3\nOMPI_MCA_oob_tcp_if_include=eno1\n"},
		{name: "MVAPICH2", form: MVAPICHEnv, set: func(h *topology.Host) { h.GPUs[0].Driver = "nvidia" },
			variables: "MV2_IBA_HCA=mlx5_0:mlx5_1\nMV2_USE_RoCE=1\nMV2_USE_CUDA=1\nMV2_DEFAULT_GID_INDEX=3\n"},
		{name: "MVAPICH2 on InfiniBand", form: MVAPICHEnv, set: func(h *topology.Host) {
			for i := range h.NICs {
				h.NICs[i].Devices[0].Ports[0].LinkLayer = "InfiniBand"
			}
		}, variables: "MV2_IBA_HCA=mlx5_0:mlx5_1\n"},
		{name: "GIDs that differ", form: NCCLEnv, set: differ, variables: "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\n" +
			"NCCL_IB_ROCE_VERSION_NUM=2\nNCCL_IB_ADDR_FAMILY=AF_INET\nNCCL_SOCKET_IFNAME==eno1\n",
			reasons: []string{"mlx5_0:1 has 3 (10.0.0.1), mlx5_1:1 has 5 (10.0.1.1)"}},
		{name: "GIDs that differ, for UCX", form: UCXEnv, set: differ,
			variables: "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1\n"},
		{name: "no address", form: UCXEnv, set: func(h *topology.Host) {
			port := &h.NICs[0].Devices[0].Ports[0]
			port.GIDs = port.GIDs[:1]
		}, variables: "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1\n",
			reasons: []string{"is known of mlx5_0:1. Give each port"}},
		{name: "GIDs that no source tells", form: UCXEnv,
			set:       func(h *topology.Host) { h.NICs[0].Devices[0].Ports[0].GIDs = nil },
			variables: "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1\n",
			reasons:   []string{"UCX_IB_GID_INDEX is not set: the GIDs of mlx5_0:1 are not told"}},
		{name: "InfiniBand, and no default route", form: NCCLEnv, set: func(h *topology.Host) {
			h.Routes = []topology.Route{}
			for i := range h.NICs {
				h.NICs[i].Devices[0].Ports[0].LinkLayer = "InfiniBand"
			}
		}, variables: "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_SOCKET_IFNAME==eth0,eth1\n",
			reasons: []string{"these ports are InfiniBand", "There is no default route"}},
		{name: "no routing table was read", form: NCCLEnv, set: func(h *topology.Host) { h.Routes = nil },
			variables: "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_IB_GID_INDEX=3\n",
			reasons:   []string{"NCCL_SOCKET_IFNAME is not set: no default route was read"}},
		{name: "a port that is down", form: UCXEnv, set: func(h *topology.Host) {
			h.NICs[1].Devices[0].Ports[0].State = "DOWN"
		}, variables: "UCX_NET_DEVICES=mlx5_0:1\nUCX_IB_GID_INDEX=3\n", reasons: []string{"# Not mlx5_1:1: it is " +
			"DOWN."}},
		{name: "CPUs, limits and classes", form: UCXEnv, set: func(h *topology.Host) {
			h.NUMANodes = []topology.NUMANode{{CPUs: topology.CPURange(0, 7)},
				{ID: 1, CPUs: topology.CPURange(8, 15)}}
			h.NICs[1].NUMANode = new(1)
		}, variables: "UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1\nUCX_IB_GID_INDEX=3\n",
			reasons: []string{"Processes that use mlx5_1:1 belong on CPUs 8-15 (NUMA node 1).", `"ulimit -l"`,
				"UCX_IB_TRAFFIC_CLASS is not set: the switches say"}},
		{name: "nothing up", form: NCCLEnv, set: func(h *topology.Host) { h.NICs = nil },
			reasons: []string{"No RDMA port is told, so there is nothing to set"}},
		{name: "all down", form: NCCLEnv, set: func(h *topology.Host) {
			for i := range h.NICs {
				h.NICs[i].Devices[0].Ports[0].State = "DOWN"
			}
		}, reasons: []string{"No RDMA port is up"}},
		{name: "a guest without a switch", form: NCCLEnv, set: func(h *topology.Host) {
			h.System.InVM = new(true)
			for i := range h.PCI {
				h.PCI[i].Bridge = nil
			}
		}, variables: "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\nNCCL_IB_GID_INDEX=3\nNCCL_SOCKET_IFNAME==eno1\n",
			reasons: []string{"NCCL_TOPO_FILE is worth having here"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := rdmaHost()
			if test.set != nil {
				test.set(h)
			}
			var b strings.Builder
			if err := NewDocument(h, nil).WriteEnv(&b, test.form); err != nil {
				t.Fatal(err)
			}
			var variables strings.Builder
			for line := range strings.Lines(b.String()) {
				if !strings.HasPrefix(line, "#") {
					variables.WriteString(line)
				}
			}
			if diff := cmp.Diff(test.variables, variables.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, reason := range test.reasons {
				if !strings.Contains(b.String(), reason) {
					t.Errorf("no %q in:\n%s", reason, b.String())
				}
			}
		})
	}
}
