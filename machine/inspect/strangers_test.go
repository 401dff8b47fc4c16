package inspect

import (
	"errors"
	"strings"
	"testing"
)

func TestTextsThatAreNotReadAreNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, is, instead string }{
		{"apiVersion: sriovnetwork.openshift.io/v1\nkind: SriovNetworkNodeState\nstatus:\n  interfaces:\n" +
			strings.Repeat("  - deviceID: \"1017\"\n    driver: mlx5_core\n    name: ens2f0\n", 4),
			"SR-IOV network operator", "lspci -vvv"},
		{"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n", "KubeVirt", "virsh dumpxml"},
		{"apiVersion: v1\nkind: Node\n", "Kubernetes", "lscpu"},
		{`{"policyName":"static","defaultCpuSet":"0-3","checksum":1}`, "CPU manager", "lscpu -e"},
		{"$ numastat -m\n\nPer-node system memory usage (in MBs):\n" +
			"Node 0  Total\nMemTotal  515478.25  515478.25\n",
			"numastat", "numactl -H"},
		{"enp5s0f0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 4096\n        inet 192.0.2.1\n",
			"ifconfig", "ip link"},
		{"eth0      Link encap:Ethernet  HWaddr 00:11:22:33:44:55\n", "ifconfig", "ip link"},
		{"# xl vcpu-list\nName                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)\n",
			"Xen", "virsh -c xen:///"},
		{"[node1:1234] MCW rank 0 bound to socket 0[core 0[hwt 0-1]]: [BB/BB]\n", "--report-bindings", "lscpu -e"},
		{"[node1:1234] Rank 0 bound to package[0][core:0]\n", "--report-bindings", "lscpu -e"},
		{"Name=gpu File=/dev/nvidia0 CPUs=48-63,176-191\n", "gres.conf", "topo -m"},
		{"NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-7]\n", "gres.conf", "topo -m"},
		{"NodeName=n1 CPUs=256 Boards=1 SocketsPerBoard=2\n", "slurmd -C", "lscpu -e"},
		{"[2022-06-10T09:46:22.044] error: _node_config_validate: gres/gpu: invalid GRES\n",
			"a log of Slurm", "lscpu -e"},
		{"2022-04-22T03:04:15.771Z| vmx| | I005: PCIPassthru: total number of pages needed\n", "vmware.log", "govc"},
		{"2024-01-01T00:00:00 cpu98:2097948)PCIEHP: 1564: 0000:a8:01.0: hotplug slot\n", "VMkernel", "govc"},
		{"qemu-kvm: cannot bind memory to host NUMA nodes: Operation not permitted\n",
			"a log of a program (memory may not be bound to NUMA nodes of the host)", "rackless explain"},
		{"config.version = \"8\"\nvirtualHW.version = \"19\"\n", ".vmx", "govc"},
	} {
		_, err := ReadStream(t.Context(), strings.NewReader(test.text), "a.txt")
		if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), test.is) ||
			!strings.Contains(err.Error(), test.instead) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%q: %v; want %q and %q", test.text, err, test.is, test.instead)
		}
	}
}

func TestATextThatIsNotReadBesideOneThatIs(t *testing.T) {
	t.Parallel()
	h, err := ReadStream(t.Context(), strings.NewReader("CPU(s): 8\nSocket(s): 1\nThread(s) per core: 1\n\n"+
		"enp5s0f0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 4096\n"), "a.txt")
	if err != nil || len(h.Unread) != 1 || !strings.Contains(h.Unread[0].Why, "ifconfig, which is not read") {
		t.Errorf("%v, %+v", err, h)
	}
}

// People quote ethtool's command line in several forms.
func TestTheDeviceOfAQuotedCommandLine(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"`ethtool -S eth0 |grep prio`", "$ ethtool -S eth0 | grep prio",
		"`ethtool -S eth0|grep " +
			"-E 'prio|discard'`:", "The counters are, by `ethtool -S eth0 | grep prio`:", "ethtool -S eth0 | grep prio",
		"root@node1:~# ethtool -S eth0|grep prio"} {
		h, err := ReadStream(t.Context(), strings.NewReader(command+"\n     rx_prio0_buf_discard: 88123\n     "+
			"rx_discards_phy: 93244\n     tx_prio3_pause: 12\n"), "a.txt")
		if err != nil || h.Netdev("eth0") == nil || h.Netdev("eth0").Counters["rx_discards_phy"] != 93244 {
			t.Errorf("%s: %v, %+v", command, err, h)
		}
	}
}
