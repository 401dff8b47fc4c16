package topology_test

import (
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

func TestNamesOfVirtualFunctions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, pf string
		vf       int
	}{
		{"ibp75s0v7", "ibp75s0", 7},
		{"enp1s0f0v3", "enp1s0f0", 3},
		{"enp1s0f0np0v12", "enp1s0f0np0", 12},
		{"enP2p1s0v0", "enP2p1s0", 0},
		{"ens1f0v2", "ens1f0", 2},
		{"rocep75s0v7", "rocep75s0", 7},
		{"enp1s0f0", "", 0},
		{"enp1s0f0npf0vf3", "", 0},
		{"vlan7", "", 0},
		{"mlx5_7", "", 0},
		{"env3", "", 0},
	} {
		pf, vf, ok := topology.VFInName(c.name)
		if pf != c.pf || vf != c.vf || ok != (c.pf != "") {
			t.Errorf("%s: %q, %d, %t; want %q and %d", c.name, pf, vf, ok, c.pf, c.vf)
		}
	}
}

func TestLinkLayerFollowsFromOtherFacts(t *testing.T) {
	t.Parallel()
	address := topology.PCIAddr{Bus: 0x3b}
	for _, c := range []struct {
		name  string
		port  topology.RDMAPort
		net   topology.Netdev
		class topology.ID24
		kind  string // node type
		dev   string
		want  string
	}{
		{name: "as stated", port: topology.RDMAPort{LinkLayer: "InfiniBand"}, class: 0x020000, want: "InfiniBand"},
		{name: "RoCE v2",
			port: topology.RDMAPort{GIDs: []topology.GID{{GID: "fe80::1", Type: "RoCE v2"}}}, class: 0x020700,
			want: "Ethernet"},
		{name: "an address in a GID of version 1",
			port: topology.RDMAPort{GIDs: []topology.GID{{GID: "::ffff:192.0.2.1",
				Type: "IB/RoCE v1"}}}, want: "Ethernet"},
		{name: "a GID of InfiniBand",
			port: topology.RDMAPort{GIDs: []topology.GID{{GID: "fe80::1", Type: "IB/RoCE v1"}}}},
		{name: "a LID", port: topology.RDMAPort{LID: new(7)}, want: "InfiniBand"},
		{name: "IPoIB by name",
			net: topology.Netdev{Name: "ibp59s0", SpeedMbps: new(int64(200_000))}, want: "InfiniBand"},
		{name: "IPoIB by address",
			net: topology.Netdev{Name: "net1", MAC: "00:00:10:29:fe:80:00:00:00:00:00:00:94:6d:ae:" +
				"03:00:cd:e7:2c"}, want: "InfiniBand"},
		{name: "Ethernet by name", net: topology.Netdev{Name: "ens1np0"}, want: "Ethernet"},
		{name: "Ethernet by address", net: topology.Netdev{Name: "net1", MAC: "94:6d:ae:cd:e7:2c"}, want: "Ethernet"},
		{name: "the rate of ethtool",
			net: topology.Netdev{Name: "net1", SpeedMbps: new(int64(25_000))}, want: "Ethernet"},
		{name: "a name alone", net: topology.Netdev{Name: "net1"}},
		{name: "an Ethernet controller", class: 0x020000, want: "Ethernet"},
		{name: "an InfiniBand controller", class: 0x020700, want: "InfiniBand"},
		{name: "an adapter of Amazon", class: 0x020000, kind: "7: unspecified"},
		{name: "a device of a bond", dev: "mlx5_bond_0", want: "Ethernet"},
		{name: "another class", class: 0x028000},
	} {
		h := &topology.Host{PCI: []topology.PCIDevice{{Address: address, Class: &c.class}}}
		n := &topology.NIC{Address: &address}
		if c.net.Name != "" {
			n.Ports = []topology.Netdev{c.net}
		}
		c.port.Number = 1
		if got := h.LinkLayer(n, &topology.RDMADevice{Name: c.dev, NodeType: c.kind}, &c.port); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
