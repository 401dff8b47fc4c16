package inspect

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

// Two bonded ports of a ConnectX-6 with one RDMA device.
const roceLAG = `
sys/class/net/bonding_masters = bond0
sys/class/net/bond0 -> ../../devices/virtual/net/bond0
sys/devices/virtual/net/bond0/mtu = 9000
sys/devices/virtual/net/bond0/bonding/mode = 802.3ad 4
sys/devices/virtual/net/bond0/bonding/xmit_hash_policy = layer3+4 1
sys/devices/virtual/net/bond0/bonding/slaves = ens1f1np1 ens1f0np0
sys/devices/virtual/net/bond0/bonding/active_slave =
sys/class/net/ens1f0np0 -> ../../devices/pci0000:15/0000:18:00.0/net/ens1f0np0
sys/devices/pci0000:15/0000:18:00.0/net/ens1f0np0/speed = 200000
sys/devices/pci0000:15/0000:18:00.0/net/ens1f0np0/carrier = 1
sys/devices/pci0000:15/0000:18:00.0/net/ens1f0np0/master -> ../../../../virtual/net/bond0
sys/class/net/ens1f1np1 -> ../../devices/pci0000:15/0000:18:00.1/net/ens1f1np1
sys/devices/pci0000:15/0000:18:00.1/net/ens1f1np1/speed = 200000
sys/devices/pci0000:15/0000:18:00.1/net/ens1f1np1/carrier = 1
sys/class/infiniband/mlx5_bond_0 -> ../../devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0
sys/devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0/ports/1/gids/3 = 0000:0000:0000:0000:0000:ffff:0a00:0001
sys/devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0/ports/1/gid_attrs/types/3 = RoCE v2
sys/devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/3 = bond0
`

func TestReadBonds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		tree string
		want []topology.Bond
	}{
		{
			name: "LACP over two ports with RoCE",
			tree: roceLAG,
			want: []topology.Bond{{
				Name: "bond0", Mode: "802.3ad", HashPolicy: "layer3+4", Members: []string{"ens1f0np0", "ens1f1np1"},
				SpeedMbps: new(int64(400000)), MTU: new(9000), RDMA: []string{"mlx5_bond_0"},
			}},
		},
		{
			name: "a bond that is down is known by the name of its RDMA device",
			tree: `
				sys/class/net/bond0/bonding/mode = active-backup 1
				sys/class/net/bond0/bonding/slaves = ens1
				sys/class/net/ens1 -> ../../devices/pci0000:15/0000:18:00.0/net/ens1
				sys/devices/pci0000:15/0000:18:00.0/net/ens1/carrier = 0
				sys/devices/pci0000:15/0000:18:00.0/net/ens1/speed = 25000
				sys/class/infiniband/mlx5_bond_0 -> ../../devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0
				sys/devices/pci0000:15/0000:18:00.0/infiniband/mlx5_bond_0/node_type = 1: CA`,
			want: []topology.Bond{{Name: "bond0", Mode: "active-backup", Members: []string{"ens1"},
				RDMA: []string{"mlx5_bond_0"}}},
		},
		{
			name: "only members that are up count",
			tree: `
				sys/class/net/bond1/bonding/mode = active-backup 1
				sys/class/net/bond1/bonding/xmit_hash_policy = layer2 0
				sys/class/net/bond1/bonding/active_slave = eth1
				sys/class/net/bond1/bonding/slaves = eth0 eth1
				sys/class/net/eth0/speed = 10000
				sys/class/net/eth0/carrier = 0
				sys/class/net/eth1/speed = 1000
				sys/class/net/eth1/carrier = 1`,
			want: []topology.Bond{{
				Name: "bond1", Mode: "active-backup", HashPolicy: "layer2", Members: []string{"eth0", "eth1"},
				Active:    "eth1",
				SpeedMbps: new(int64(1000)),
			}},
		},
		{
			name: "the sum is not known when one that is up does not tell its speed",
			tree: `
				sys/class/net/bond1/bonding/mode = balance-rr 0
				sys/class/net/bond1/bonding/slaves = eth0 eth1
				sys/class/net/eth0/speed = 10000
				sys/class/net/eth0/carrier = 1
				sys/class/net/eth1/speed = -1
				sys/class/net/eth1/carrier = 1`,
			want: []topology.Bond{{Name: "bond1", Mode: "balance-rr", Members: []string{"eth0", "eth1"}}},
		},
		{
			name: "a bond without members",
			tree: `
				sys/class/net/bonding_masters = bond0
				sys/class/net/bond0/bonding/mode = balance-rr 0
				sys/class/net/bond0/bonding/slaves =`,
			want: []topology.Bond{{Name: "bond0", Mode: "balance-rr", Members: []string{}}},
		},
		{
			name: "a list of bonds that names what is not there or lies elsewhere",
			tree: `
				sys/class/net/bonding_masters = bond7 ../../etc
				sys/class/net/eth0/mtu = 1500`,
		},
		{name: "no bonds", tree: `sys/class/net/eth0/mtu = 1500`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := deviceReader(t, deviceTree(t, tt.tree))
			r.readNICs()
			r.readBonds()
			if diff := cmp.Diff(tt.want, r.h.Bonds); diff != "" {
				t.Errorf("bonds (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]topology.Unread(nil), r.h.Unread); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBondIsMasterOfItsMembers(t *testing.T) {
	t.Parallel()
	r := deviceReader(t, deviceTree(t, roceLAG))
	r.readNICs()
	if got := r.h.NICs[0].Ports[0].Master; got != "bond0" {
		t.Errorf("master = %q; want %q", got, "bond0")
	}
}
