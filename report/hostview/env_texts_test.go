package hostview_test

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/report/hostview"
)

// The variables state only facts of the texts.
func TestVariablesFromTexts(t *testing.T) {
	t.Parallel()
	const gids = "DEV     PORT    INDEX   GID                                     IPv4            VER     DEV\n" +
		"mlx5_0  1       4       0000:0000:0000:0000:0000:ffff:c000:0215 192.0.2.21      v1      net1\n" +
		"mlx5_0  1       5       0000:0000:0000:0000:0000:ffff:c000:0215 192.0.2.21      v2      net1\n" +
		"mlx5_1  1       4       0000:0000:0000:0000:0000:ffff:c633:6413 198.51.100.19   v1      net2\n" +
		"mlx5_1  1       5       0000:0000:0000:0000:0000:ffff:c633:6413 198.51.100.19   v2      net2\n"
	const matrix = "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\t0-31\t0\nNIC0\tPIX\t X \n\n" +
		"NIC Legend:\n\n  NIC0: mlx5_0\n"
	const link = "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev "
	const lspci = "3b:00.0 Ethernet controller [0200]: Mellanox Technologies MT28908 Family [ConnectX-6] [15b3:101b]\n"
	tests := []struct {
		name, form, text string
		variables        string
		has, hasNot      string
	}{
		{"GIDs of RoCE tell the link layer and the index", hostview.NCCLEnv, gids, "NCCL_IB_GID_INDEX=5\n",
			"NCCL_IB_HCA is not set: the state of mlx5_0:1, mlx5_1:1 is not told", "InfiniBand"},
		{"the same for UCX", hostview.UCXEnv, gids, "UCX_IB_GID_INDEX=5\n", "# If all of them are up: " +
			"UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1", "InfiniBand"},
		{"the same for MVAPICH2", hostview.MVAPICHEnv, gids, "MV2_USE_RoCE=1\nMV2_DEFAULT_GID_INDEX=5\n",
			"MV2_IBA_HCA is not set", "InfiniBand"},
		{"a device that ibdev2netdev calls down", hostview.NCCLEnv, "mlx5_0 port 1 ==> ens1np0 (Down)\n" +
			"mlx5_1 port 1 ==> ens2np0 (Up)\n", "NCCL_IB_HCA==mlx5_1:1\n",
			"# Not mlx5_0:1: its network device ens1np0 is down.", "mlx5_0:1,"},
		{"only devices that are down", hostview.NCCLEnv,
			"mlx5_0 port 1 ==> ib0 (Down)\n", "", "No RDMA port is up", "=="},
		{"a matrix tells no state", hostview.NCCLEnv, matrix, "", "the state of mlx5_0 is not told", "is up:"},
		{"no port at all", hostview.NCCLEnv, "Architecture: x86_64\nCPU(s): 8\nOn-line CPU(s) list: 0-7\n", "",
			"No RDMA port is told", "is up"},
		{"an Ethernet controller by its name alone", hostview.NCCLEnv, "$ lspci -nn\n" + lspci +
			"$ rdma link\n" + link + "net7\n", "NCCL_IB_HCA==mlx5_0:1\n", "the GIDs of mlx5_0:1 are not told",
			"these ports are InfiniBand"},
		{"a network device of Ethernet", hostview.UCXEnv, link + "ens1np0\n", "UCX_NET_DEVICES=mlx5_0:1\n",
			"UCX_IB_TRAFFIC_CLASS is not set", "UCX_IB_SL"},
		{"nothing tells the link layer", hostview.OpenMPIEnv, link + "net7\n",
			"OMPI_MCA_pml=ucx\nUCX_NET_DEVICES=mlx5_0:1\n",
			"UCX_IB_GID_INDEX is not set: it is for RoCE, and whether mlx5_0:1 is RoCE or InfiniBand is not told",
			"are InfiniBand"},
		{"a LID is of InfiniBand", hostview.NCCLEnv, "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 13 " +
			"sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n", "NCCL_IB_HCA==mlx5_0:1\n",
			"these ports are InfiniBand",
			"no default route: "},
		{"the rate of a network device is the port's", hostview.NCCLEnv, link + "ens1np0\n" +
			"link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens2np0\n" +
			"Settings for ens1np0:\n\tSpeed: 25000Mb/s\n\tLink detected: yes\n" +
			"Settings for ens2np0:\n\tSpeed: 400000Mb/s\n\tLink detected: yes\n", "NCCL_IB_HCA==mlx5_1:1\n",
			"# Not mlx5_0:1: it has 25 Gb/s, and others have 400.", "There is no default route"},
		{"virtual functions of one card", hostview.NCCLEnv, "mlx5_0 port 1 ==> ibp75s0 (Up)\n" +
			"mlx5_1 port 1 ==> ibp75s0v0 (Up)\nmlx5_2 port 1 ==> ibp75s0v1 (Down)\n$ lspci\n" +
			"4b:00.0 Infiniband controller: Mellanox Technologies MT28908 Family [ConnectX-6]\n",
			"NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\n", "# Not mlx5_2:1: its network device ibp75s0v1 is down.", "IFNAME=="},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, err := inspect.ReadStream(t.Context(), strings.NewReader(test.text), "a.txt")
			if err != nil {
				t.Fatal(err)
			}
			var b, variables strings.Builder
			if err := hostview.NewDocument(h, nil).WriteEnv(&b, test.form); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if !strings.HasPrefix(line, "#") {
					variables.WriteString(line)
				}
			}
			if got := variables.String(); got != test.variables || !strings.Contains(b.String(), test.has) ||
				strings.Contains(b.String(), test.hasNot) {
				t.Errorf("variables %q, want %q, with %q and without %q, in:\n%s", got, test.variables, test.has,
					test.hasNot, b.String())
			}
		})
	}
}
