package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

func TestWhatTextsDoNotTell(t *testing.T) {
	t.Parallel()
	const lspci = "$ lspci\n4b:00.0 Infiniband controller: Mellanox Technologies MT28908 Family [ConnectX-6]\n"
	const four = "08:00.0 Ethernet controller: Mellanox Technologies MT27500 Family [ConnectX-3]\n"
	mlxconfig := func(model string) string {
		return "\nDevice #1:\n----------\n\nDevice type:    " +
			model + "\nDevice:         /dev/mst/mt4099_pciconf0\n\n" +
			"Configurations:                              Next Boot\n         NUM_OF_VFS                          8\n"
	}
	nics := func(h *topology.Host) string {
		var out []string
		for i := range h.NICs {
			n := &h.NICs[i]
			at := "?"
			if n.Address != nil {
				at = n.Address.String()
			} else if n.PF != nil {
				at = "VF of " + n.PF.String()
			}
			out = append(out, at+" "+strings.Join(append(n.Netdevs, n.RDMA...), ","))
		}
		return strings.Join(out, "; ")
	}
	for _, test := range []struct {
		name, text string
		of         func(*topology.Host) string
		want       string
	}{
		{"a virtual function is not its physical function", "mlx5_2 port 1 ==> ibp75s0 (Up)\n" +
			"mlx5_19 port 1 ==> ibp75s0v7 (Down)\n" + lspci, nics,
			"0000:4b:00.0 ibp75s0,mlx5_2; VF of 0000:4b:00.0 ibp75s0v7,mlx5_19"},
		{"a name of a function that is not listed", "mlx5_2 port 1 ==> ibp84s0 (Up)\n" + lspci, nics,
			"0000:4b:00.0 ; ? ibp84s0,mlx5_2"},
		{"a function beside one that is not listed",
			"mlx5_2 port 1 ==> ibp84s0 (Up)\nmlx5_3 port 1 ==> ib3 (Up)\n" + lspci,
			nics, "0000:4b:00.0 ; ? ibp84s0,mlx5_2; ? ib3,mlx5_3"},
		{"a card of mlxconfig and lspci", four + mlxconfig("ConnectX3"), nics, "0000:08:00.0 "},
		{"cards of two models", four + mlxconfig("ConnectX6DX"), nics, "0000:08:00.0 ; ? "},
		{"two cards of a model", four + strings.Replace(four, "08", "09", 1) + mlxconfig("ConnectX3"), nics,
			"0000:08:00.0 ; 0000:09:00.0 ; ? "},
		{"nodes that are counted and not listed", "NUMA:\n  NUMA node(s):           9\n" +
			"  NUMA node0 CPU(s):      0-71\n  NUMA node1 CPU(s):\n", untold, "2 listed, 7 more"},
		{"all nodes", "NUMA node(s):           2\nNUMA node0 CPU(s):      0-3\nNUMA node1 CPU(s):      4-7\n", untold,
			"2 listed, 0 more"},
		{"the only node is number 1", "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNODE\t64-127\t1\n" +
			"NIC0\tNODE\t X \n", untold, "1 listed, 1 more"},
		{"a path between nodes", "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-63\t0\nNIC0\tSYS\t X \n",
			untold, "1 listed, 1 more"},
		{"one node", "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-63\t0\nNIC0\tPHB\t X \n", untold,
			"1 listed, 0 more"},
		{"the kinds of cores of lscpu -e", "CPU CORE MAXMHZ\n0 0 5500.0\n1 0 5500.0\n2 1 4300.0\n3 2 4300.0\n",
			kinds, "0-1 performance; 2 efficiency; 3 efficiency"},
		{"cores of equal clocks", "CPU CORE MAXMHZ\n0 0 5500.0\n1 0 5500.0\n2 1 5400.0\n", kinds, "0-1 ; 2 "},
		{"a table of CPUs that ends in a row", "CPU NODE CORE\n0 0 0\n1 0 1\n2 0\n", online, "cut off; cores"},
		{"a table of CPUs that ends with the second threads", "CPU NODE CORE\n0 0 0\n1 0 1\n2 0 2\n3 0 0\n", online,
			"cut off; cores 0,3"},
		{"such a table of lscpu -p", "# CPU,Core,Socket,Node\n0,0,0,0\n1,1,0,0\n2,0,0", online, "cut off; cores"},
		{"lscpu -p with more titles than columns", "# CPU,Core,Socket,Node,,L1d\n0,0,0,0\n1,1,0,0\n", online,
			"0-1; cores 0 1"},
		{"a table that ends within a socket", "CPU SOCKET CORE\n0 0 0\n1 0 1\n2 1 2\n", online, "cut off; cores"},
		{"a table that ends within a cache", "CPU CORE L1d:L1i:L2:L3\n0 0 0:0:0:0\n1 1 1:1:1:0\n2 2 2:2:2:1\n" +
			"3 3 3:3:3:1\n4 4 4:4:4:2\n", online, "cut off; cores"},
		{"sockets of different sizes", "CPU SOCKET CORE\n0 0 0\n1 1 1\n2 1 2\n", online, "0-2; cores 0 1 2"},
		{"a socket with offline CPUs", "CPU SOCKET CORE ONLINE\n0 0 0 yes\n1 0 1 yes\n2 1 2 yes\n3 - - no\n", online,
			"0-2; cores 0 1 2"},
		{"a whole table", "CPU NODE CORE\n0 0 0\n1 0 1\n2 0 0\n3 0 1\n", online, "0-3; cores 0,2 1,3"},
		{"second threads that are offline", "CPU NODE CORE ONLINE\n0 0 0 yes\n1 0 1 yes\n2 0 0 yes\n3 - - no\n",
			online, "0-2; cores 0,2 1"},
		{"cores with one thread after those with two", "CPU CORE\n0 0\n1 0\n2 1\n3 1\n4 2\n5 3\n", online,
			"0-5; cores 0-1 2-3 4 5"},
		{"a damaged row before others", "CPU NODE CORE\n0 0 0\n1 0\n2 0 2\n", online, "0,2; cores 0 2"},
		{"the CPUs of nodes that are not all listed",
			"available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 16 MB\n",
			online, "cut off; cores"},
		{"the CPUs of a node that lscpu counts and does not list", "NUMA node(s):  2\nNUMA node0 CPU(s):  0-3\n",
			online, "cut off; cores"},
		{"a cut table beside a whole list", "$ lscpu\nArchitecture: x86_64\nOn-line CPU(s) list: 0-3\n$ lscpu -e\n" +
			"CPU NODE CORE\n0 0 0\n1 0 1\n2 0\n", online, "0-3; cores"},
		{"a domain whose end is missing", "<domain type='kvm'>\n  <name>vm1</name>\n  <vcpu>4</vcpu>\n  <cputune>\n" +
			"    <vcpupin vcpu='0' cpuset='1'/>\n    <vcpu", func(h *topology.Host) string {
			return fmt.Sprint(h.Tenants[0].Cut)
		}, "true"},
	} {
		h, err := ReadStream(t.Context(), strings.NewReader(test.text), "a.txt")
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if got := test.of(h); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func untold(h *topology.Host) string {
	return fmt.Sprintf("%d listed, %d more", len(h.NUMANodes), h.UntoldNodes())
}

func online(h *topology.Host) string {
	out := h.CPUs.Online.String() + "; cores"
	if h.CPUs.Untold() {
		out = "cut off; cores"
	}
	for _, c := range h.Cores {
		out += " " + c.CPUs.String()
	}
	return out
}

func kinds(h *topology.Host) string {
	var out []string
	for _, c := range h.Cores {
		out = append(out, c.CPUs.String()+" "+c.Kind)
	}
	return strings.Join(out, "; ")
}
