package texts

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func read(t *testing.T, text string) (*topology.Host, Text) {
	t.Helper()
	found := Split([]byte(text), "a.txt", Kinds)
	if len(found) != 1 {
		t.Fatalf("%d texts found in %.60q", len(found), text)
	}
	h, err := found[0].Read()
	if err != nil {
		t.Fatal(err)
	}
	return h, found[0]
}

func asJSON(t *testing.T, h *topology.Host) string {
	t.Helper()
	h.Provenance = topology.Provenance{}
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(string(b), `{"provenance":{"kind":"","this_system":false},`)
}

// Only x86 has a flag for it.
func TestLscpuTellsVirtualMachines(t *testing.T) {
	real, virtual := new(false), new(true)
	for _, test := range []struct {
		text, hypervisor string
		inVM             *bool
	}{
		{"Architecture: x86_64\nFlags: fpu vme\n", "", real},
		{"Architecture: i686\nFlags: fpu hypervisor\n", "", virtual},
		{"Architecture: x86_64\nFlags: fpu hypervisor lahf_lm\nHypervisor vendor: Microsoft\nVirtualization " +
			"type: full\n",
			"hyper-v", virtual},
		{"Architecture: x86_64\nFlags: fpu hypervisor\nHypervisor vendor: Xen\nVirtualization type: none\n", "", nil},
		{"Architecture: x86_64\n", "", nil},
		{"Architecture: aarch64\nFlags: fp asimd evtstrm\n", "", nil},
		{"Architecture: aarch64\nFlags: fp asimd\nBIOS Vendor ID: QEMU\nBIOS Model name: virt-7.2\n", "qemu", virtual},
		{"Architecture: aarch64\nFlags: fp asimd\nBIOS Vendor ID: Ampere(R)\n", "", nil},
		{"Architecture: ppc64le\nHypervisor vendor: pHyp\nVirtualization type: para\n", "phyp", virtual},
		{"Architecture: ppc64le\nVirtualization type: para\n", "", virtual},
		{"Architecture: s390x\nFlags: esan3 zarch\nHypervisor vendor: IBM\nVirtualization type: full\n", "z/vm",
			virtual},
		{"Architecture: riscv64\n", "", nil},
	} {
		h, _ := read(t, test.text+"CPU(s): 1\n")
		if diff := cmp.Diff(test.inVM, h.System.InVM); diff != "" || h.System.Hypervisor != test.hypervisor {
			t.Errorf("%q: hypervisor %q, want %q; in a VM (-want +got):\n%s", test.text, h.System.Hypervisor,
				test.hypervisor, diff)
		}
	}
}

func TestEachKindIsToldAndRead(t *testing.T) {
	for _, test := range []struct{ kind, text, want string }{
		{"lscpu", `Architecture: x86_64
CPU(s): 8
On-line CPU(s) list: 0-6
Off-line CPU(s) list: 7
Thread(s) per core: 2
Socket(s): 2
Model name: Some CPU
Hypervisor vendor: KVM
NUMA node0 CPU(s): 0-3
NUMA node1 CPU(s): 4-6
`, `"system":{"arch":"x86_64","cpu_model":"Some CPU","hypervisor":"kvm","in_vm":true},` +
			`"packages":[{"id":0,"cpus":"0-3","model":"Some CPU"},{"id":1,"cpus":"4-6","model":"Some CPU"}],` +
			`"numa_nodes":[{"id":0,"cpus":"0-3"},{"id":1,"cpus":"4-6"}],"cpus":{"online":"0-6","offline":"7",` +
			`"smt":"on"}}`},
		{"lscpu", `{"lscpu":[{"field":"Architecture:","data":"aarch64","children":[{"field":"CPU(s):","data":"2"}]}]}`,
			`"system":{"arch":"aarch64"},"cpus":{"online":"0-1"}}`},
		{"lscpu -e", "CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE\n  0    0      0    0 0:0:0:0          yes\n" +
			"  1    0      0    0 0:0:0:0          yes\n  2    -      -    - -                 no\n",
			`"packages":[{"id":0,"cpus":"0-1"}],"numa_nodes":[{"id":0,"cpus":"0-1"}],"l3":[{"id":0,"cpus":"0-1"}],` +
				`"cores":[{"id":0,"cpus":"0-1"}],"cpus":{"online":"0-1","offline":"2"}}`},
		{"lscpu -p", "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,1,,0,0,0,0\n1,0,0,1,,0,0,0,0\n",
			`"packages":[{"id":0,"cpus":"0-1"}],"numa_nodes":[{"id":1,"cpus":"0-1"}],"l3":[{"id":0,"cpus":"0-1"}],` +
				`"cores":[{"id":0,"cpus":"0-1"}],"cpus":{"online":"0-1"}}`},
		{"numactl -H", "node 0 cpus: 0 1\nnode 0 size: 16 MB\nnode 2 cpus:\nnode 2 size: 0 MB\nnode distances:\nnode " +
			"  0   2\n" +
			"  0:  10  17\n  2:  17  10\n",
			`"numa_nodes":[{"id":0,"cpus":"0-1","memory_bytes":16777216,"distances":[10,17]},` +
				`{"id":2,"cpus":"","memory_bytes":0,"distances":[17,10]}],"cpus":{"online":"0-1"}}`},
		{"amd-smi", "WEIGHT TABLE:\n             0000:03:00.0 0000:0c:00.0\n0000:03:00.0 0            40\n" +
			"0000:0c:00.0 40           0\nLINK TYPE TABLE:\n             0000:03:00.0 0000:0c:00.0\n" +
			"0000:03:00.0 SELF         XGMI\n0000:0c:00.0 XGMI         SELF\n",
			`"gpus":[{"address":"0000:03:00.0","kind":"discrete","index":0,"vendor":"Advanced Micro Devices, ` +
				`Inc. [AMD/ATI]",` +
				`"nvlinks":1},{"address":"0000:0c:00.0","kind":"discrete","index":1,` +
				`"vendor":"Advanced Micro Devices, Inc. [AMD/ATI]","nvlinks":1}],` +
				`"reported_paths":[{"a":"0000:03:00.0","b":"0000:0c:00.0","class":"NV"}]}`},
		{"IOMMU groups", "lrwxrwxrwx 1 root root 0 May  1 10:00 /sys/kernel/iommu_groups/7/devices/0000:00:1f.0 " +
			"-> ../x\n" +
			"/sys/kernel/iommu_groups/13/devices/0000:01:00.0\n",
			`"pci":[{"address":"0000:00:1f.0","parent_unknown":true,"iommu_group":7},` +
				`{"address":"0000:01:00.0","parent_unknown":true,"iommu_group":13}]}`},
		{"rocm-smi", `{"system": {"(Topology) Hops between DRM devices 0 and 1": "3", ` +
			`"(Topology) Link type between DRM devices 0 and 1": "PCIE"}, "card0": {"(Topology) Numa Node": "0"}, ` +
			`"card1": {"(Topology) Numa Node": "1"}}`,
			`"gpus":[{"kind":"discrete","name":"GPU0","index":0,"vendor":"Advanced Micro Devices, Inc. [AMD/ATI]",` +
				`"numa_node":0},{"kind":"discrete","name":"GPU1","index":1,` +
				`"vendor":"Advanced Micro Devices, Inc. [AMD/ATI]","numa_node":1}],` +
				`"reported_paths":[{"a":"GPU0","b":"GPU1","class":"SYS"}]}`},
		{"ibv_devinfo", "hca_id:\tmlx5_0\n\tfw_ver:\t\t16.35.2000\n\tnode_guid:\t98:03:9b:03:00:8f:c1:a2\n" +
			"\t\tport:\t1\n" +
			"\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tactive_mtu:\t\t1024 (3)\n\t\t\tport_lid:\t\t0\n" +
			"\t\t\tlink_layer:\t\tEthernet\n\t\t\tactive_width:\t\t4X (2)\n\t\t\tactive_speed:\t\t25.0 Gbps (32)\n" +
			"\t\t\tphys_state:\t\tLINK_UP (5)\n\t\t\tGID[  0]:\t\tfe80::9a03:9bff:fe8f:c1a2, RoCE v1\n" +
			"\t\t\tGID[  3]:\t\t::ffff:10.0.0.1, RoCE v2\n",
			`"nics":[{"name":"mlx5_0","netdevs":null,"rdma":null,"rdma_devices":[{"name":"mlx5_0",` +
				`"firmware":"16.35.2000",` +
				`"node_guid":"9803:9b03:008f:c1a2","ports":[{"number":1,"state":"ACTIVE","phys_state":"LinkUp",` +
				`"link_layer":"Ethernet","rate_gbps":100,"active_mtu":1024,"gids":[{"index":0,` +
				`"gid":"fe80:0000:0000:0000:9a03:9bff:fe8f:c1a2","type":"IB/RoCE v1"},{"index":3,` +
				`"gid":"0000:0000:0000:0000:0000:ffff:0a00:0001","type":"RoCE v2"}]}]}]}]}`},
		{"ibstat", "CA 'mlx5_0'\n\tFirmware version: 28.39.1002\n\tNode GUID: 0x946dae0300cde72c\n\tPort 1:\n" +
			"\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tBase lid: 75\n\t\tLink layer: " +
			"InfiniBand\n",
			`"nics":[{"name":"mlx5_0","netdevs":null,"rdma":null,"rdma_devices":[{"name":"mlx5_0",` +
				`"firmware":"28.39.1002",` +
				`"node_guid":"946d:ae03:00cd:e72c","ports":[{"number":1,"state":"ACTIVE","phys_state":"LinkUp",` +
				`"link_layer":"InfiniBand","rate_gbps":400,"lid":75}]}]}]}`},
		{"ibdev2netdev", "0000:5e:00.0 mlx5_0 (MT4119 - MCX555A-ECAT) CX555A - ConnectX-5 QSFP28 fw " +
			"16.26.4012 port 1 " +
			"(ACTIVE) ==> ib0 (Up)\nmlx5_1 port 1 ==> eth1 (Down)\n",
			`"nics":[{"address":"0000:5e:00.0","name":"mlx5_0","netdevs":null,"rdma":null,"ports":[{"name":"ib0",` +
				`"state":"up"}],"rdma_devices":[{"name":"mlx5_0","firmware":"16.26.4012","ports":[{"number":1,` +
				`"state":"ACTIVE"}]}]},{"name":"mlx5_1","netdevs":null,"rdma":null,"ports":[{"name":"eth1",` +
				`"state":"down"}],` +
				`"rdma_devices":[{"name":"mlx5_1","ports":[{"number":1}]}]}]}`},
		{"dmesg", "[    5.1] mlx5_core 0000:65:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe " +
			"x4 link at " +
			"0000:17:00.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n[    5.2] usb 1-1: new device\n" +
			"Nov 26 08:00:01 node1 kernel: pci 0000:b1:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8 GT/s " +
			"x4 link at " +
			"0000:b0:02.0 (capable of 63.008 Gb/s with 8 GT/s x8 link)\n",
			`"pci":[{"address":"0000:65:00.0","parent_unknown":true,"link":{"max_speed_gts":16,"max_width":16},` +
				`"path_limit":{"at":"0000:17:00.0","speed_gts":8,"width":4}},{"address":"0000:b1:00.0",` +
				`"parent_unknown":true,` +
				`"link":{"max_speed_gts":8,"max_width":8},"path_limit":{"at":"0000:b0:02.0","speed_gts":8,` +
				`"width":4}}]}`},
		{"rdma link", "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eno33 \n2/1: rxe0/1: state DOWN " +
			"physical_state DISABLED\n",
			`"nics":[{"name":"mlx5_0","netdevs":null,"rdma":null,"ports":[{"name":"eno33"}],"rdma_devices":[{` +
				`"name":"mlx5_0","ports":[{"number":1,"state":"ACTIVE","phys_state":"LinkUp"}]}]},{"name":"rxe0",` +
				`"netdevs":null,"rdma":null,"rdma_devices":[{"name":"rxe0","ports":[{"number":1,"state":"DOWN",` +
				`"phys_state":"Disabled"}]}]}]}`},
		{"rdma link", `[{"ifindex":0,"ifname":"irdma0","port":1,"state":"ACTIVE","physical_state":"LINK_UP",` +
			`"netdev":"e0"}]`,
			`"nics":[{"name":"irdma0","netdevs":null,"rdma":null,"ports":[{"name":"e0"}],` +
				`"rdma_devices":[{"name":"irdma0",` +
				`"ports":[{"number":1,"state":"ACTIVE","phys_state":"LinkUp"}]}]}]}`},
		{"rdma dev", "0: mlx5_0: node_type ca fw 20.38.1002 node_guid 0c42:a103:0065:1eb2 sys_image_guid " +
			"0c42:a103:0065:1eb2 adaptive-moderation on \n1: rxe0: node_type ca node_guid 5054:00ff:fe12:3456\n",
			`"nics":[{"name":"mlx5_0","netdevs":null,"rdma":null,"rdma_devices":[{"name":"mlx5_0",` +
				`"firmware":"20.38.1002",` +
				`"node_guid":"0c42:a103:0065:1eb2"}]},{"name":"rxe0","netdevs":null,"rdma":null,` +
				`"rdma_devices":[{"name":"rxe0",` +
				`"node_guid":"5054:00ff:fe12:3456"}]}]}`},
		{"rdma dev", `[{"ifindex":0,"ifname":"mlx5_0","node_type":"ca","fw":"20.38.1002"}]`,
			`"nics":[{"name":"mlx5_0","netdevs":null,"rdma":null,"rdma_devices":[{"name":"mlx5_0",` +
				`"firmware":"20.38.1002"}]}]}`},
		{"ip link", `[{"ifname":"lo","link_type":"loopback","operstate":"UNKNOWN"},{"ifname":"eth0",` +
			`"flags":["UP"],"mtu":9000,` +
			`"operstate":"DOWN","link_type":"ether","address":"b8:3f:d2:00:00:01"}]`,
			`"nics":[{"name":"eth0","netdevs":null,"rdma":null,"ports":[{"name":"eth0",` +
				`"mac":"b8:3f:d2:00:00:01","mtu":9000,` +
				`"state":"down","carrier":false}]}]}`},
		{"show_gids", "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\n" +
			"mlx5_0\t1\t0\tfe80:0000:0000:0000:0ac0:ebff:fe21:03da\t\t\tv1\trdma0\n" +
			"mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:c0a8:d3f2\t192.168.211.242  \tv2\trdma0\nn_gids_found=2\n",
			`"nics":[{"name":"mlx5_0","netdevs":null,"rdma":null,"ports":[{"name":"rdma0"}],"rdma_devices":[{` +
				`"name":"mlx5_0","ports":[{"number":1,"gids":[{"index":0,` +
				`"gid":"fe80:0000:0000:0000:0ac0:ebff:fe21:03da",` +
				`"type":"IB/RoCE v1","netdev":"rdma0"},{"index":3,"gid":"0000:0000:0000:0000:0000:ffff:c0a8:d3f2",` +
				`"type":"RoCE v2","netdev":"rdma0"}]}]}]}]}`},
		{"ip link", "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq master bond0 state UP mode " +
			"DEFAULT\n" +
			"    link/ether b8:3f:d2:11:22:33 brd ff:ff:ff:ff:ff:ff\n3: bond0: <UP> mtu 1500 qdisc noqueue state UP\n" +
			"4: eth0.5@eth0: <UP> mtu 1500 qdisc noqueue state UP\n    link/ether b8:3f:d2:11:22:33\n",
			`"nics":[{"name":"eth0","netdevs":null,"rdma":null,"ports":[{"name":"eth0","mac":"b8:3f:d2:11:22:33",` +
				`"mtu":9000,"state":"up","carrier":true,"master":"bond0"}]}]}`},
		{"ip -br link", "$ ip -br link\nlo      UNKNOWN    00:00:00:00:00:00 <LOOPBACK,UP,LOWER_UP> \n" +
			"eth0    DOWN       b8:3f:d2:11:22:33 <NO-CARRIER,BROADCAST,MULTICAST,UP> \n" +
			"eth0.5@eth0  UP    b8:3f:d2:11:22:33 <BROADCAST,UP,LOWER_UP> \n",
			`"nics":[{"name":"eth0","netdevs":null,"rdma":null,"ports":[{"name":"eth0","mac":"b8:3f:d2:11:22:33",` +
				`"state":"down","carrier":false}]}]}`},
		{"ip -br link", "ens1f0           UP             10.0.0.1/24 fe80::1/64 \n",
			`"nics":[{"name":"ens1f0","netdevs":null,"rdma":null,"ports":[{"name":"ens1f0","state":"up"}]}]}`},
		{"ip -br link", "ens1f0           UP             10.0.0.1/24 fe80::1/64 \nib0              DOWN           \n",
			`"nics":[{"name":"ens1f0","netdevs":null,"rdma":null,"ports":[{"name":"ens1f0","state":"up"}]},` +
				`{"name":"ib0","netdevs":null,"rdma":null,"ports":[{"name":"ib0","state":"down"}]}]}`},
		{"ethtool -i", "$ ethtool -i eth5\ndriver: mlx5_core\nversion: 5.8\nfirmware-version: 22.35.1012 " +
			"(MT_0000000436)\n" +
			"bus-info: 0000:c1:00.1\n",
			`"nics":[{"address":"0000:c1:00.1","netdevs":null,"rdma":null,"driver":"mlx5_core",` +
				`"firmware":"22.35.1012",` +
				`"ports":[{"name":"eth5"}]}]}`},
		{"mlnx_qos", "[root@n1 ~]# mlnx_qos -i eth5\nDCBX mode: OS controlled\nPriority trust state: dscp\n" +
			"PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     0   0   0   1   0   0   " +
			"0   0   \n" +
			"\tbuffer      0   0   0   1   0   0   0   0   \n",
			`"nics":[{"name":"eth5","netdevs":null,"rdma":null,"ports":[{"name":"eth5","qos":{"trust":"dscp",` +
				`"pfc":[3],"buffers":[0,0,0,1,0,0,0,0]}}]}]}`},
		{"mlxconfig q", "Device #1:\n----------\n\nDevice type:        ConnectX7\nDevice:             " +
			"0000:18:00.0\n\n" +
			"Configurations:                  Default   Current   Next Boot\n*       SRIOV_EN                 " +
			"False(0)  False(0)  True(1)\n" +
			"        NUM_OF_VFS               0         8         8\n",
			`"nics":[{"address":"0000:18:00.0","model":"ConnectX-7","netdevs":null,"rdma":null,` +
				`"firmware_settings":{"NUM_OF_VFS":"8","SRIOV_EN":"True(1)"}}],` +
				`"unread":[{"path":"a.txt:8","why":"SRIOV_EN is False(0) now and ` +
				`True(1) after the ` +
				`next reset of the firmware"}]}`},
		{"qm config", `root@pve:~# qm config 101
affinity: 0-3
agent: 1
boot: order=scsi0
cores: 4
hostpci0: 0000:01:00,pcie=1
hostpci1: mapping=nic
hugepages: 1024
memory: 8192
name: gpu-vm
numa: 1
numa0: cpus=0-3,hostnodes=1,memory=8192,policy=bind
sockets: 2

[before-upgrade]
cores: 2
name: old
memory: 512
`, `"tenants":[{"name":"gpu-vm","vcpus":8,"emulator_cpus":"0-3","floating_cpus":"0-3","memory_bytes":8589934592,` +
			`"hugepage_bytes":1073741824,"hugepages_at_start":true,"memory_nodes":"1","memory_mode":"strict",` +
			`"devices":[{"pci":"0000:01:00.0","managed":true,"whole":true}],"guest_numa_nodes":1,` +
			`"guest_switches":0,"guest_expanders":0,"guest_cells":[{"vcpus":"0-3","memory_bytes":8589934592,` +
			`"hugepage_bytes":1073741824,"memory_nodes":"1","memory_mode":"strict"}]}],"unread":[{"path":"a.txt:7",` +
			`"why":"hostpci1: \"mapping=nic\" is not a PCI ` +
			`address; which ` +
			`device a mapping stands for is in another file"}]}`},
		{"nvidia-smi -L or nvlink --status", "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n" +
			"\t Link 1: <inactive>\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n",
			`"gpus":[{"kind":"discrete","name":"GPU0","index":0,"vendor":"NVIDIA Corporation",` +
				`"model":"NVIDIA H100 80GB HBM3","uuid":"GPU-1","nvlinks":1},{"kind":"discrete","name":"GPU1",` +
				`"index":1,` +
				`"vendor":"NVIDIA Corporation","model":"NVIDIA H100 80GB HBM3","uuid":"GPU-2","nvlinks":0}]}`},
		{"nvidia-smi -q", `==============NVSMI LOG==============

Timestamp                                 : Thu Nov 26 10:00:00 2026
Driver Version                            : 535.104.05
CUDA Version                              : 12.2

Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA A100-PCIE-40GB
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU UUID                              : GPU-1
    VBIOS Version                         : 92.00.25
    PCI
        Bus                               : 0x3B
        Device Id                         : 0x20F110DE
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : 8x
    FB Memory Usage
        Total                             : 40960 MiB
    BAR1 Memory Usage
        Total                             : 65536 MiB
`, `"pci":[{"address":"0000:3b:00.0","parent_unknown":true,"class":"0x030200","vendor":"0x10de","device":"0x20f1",` +
			`"device_name":"NVIDIA A100-PCIE-40GB","driver":"nvidia","driver_known":true,` +
			`"link":{"speed_gts":2.5,"width":8,` +
			`"max_speed_gts":16,"max_width":16}}],"gpus":[{"address":"0000:3b:00.0","kind":"discrete","index":0,` +
			`"vendor":"NVIDIA Corporation","model":"NVIDIA A100-PCIE-40GB","memory_bytes":42949672960,` +
			`"driver_version":` +
			`"535.104.05","uuid":"GPU-1","vbios":"92.00.25","mig":"Disabled","persistence_mode":true,` +
			`"bar1_bytes":68719476736}]}`},
		{"ethtool -S", "$ ethtool -S eth1\nNIC statistics:\n     rx_packets: 12\n     rx_discards_phy: 3\n" +
			"     rx_crc_errors_phy: 0\n",
			`"nics":[{"name":"eth1","netdevs":null,"rdma":null,"ports":[{"name":"eth1",` +
				`"counters":{"rx_discards_phy":3}}]}]}`},
		{"ethtool -S", "     rx_out_of_buffer: 7\n     rx_discards_phy: 0\n     tx_discards_phy: 0\n",
			`"nics":[{"name":"unnamed","netdevs":null,"rdma":null,"ports":[{"name":"unnamed","counters":{` +
				`"rx_out_of_buffer":7}}]}],"unread":[{"path":"a.txt:1","why":"which network device this is, is ` +
				`not told: ` +
				`ethtool -S NETDEV names it above its text"}]}`},
		{"rdma statistic", "link mlx5_0/1 rx_write_requests 5 out_of_sequence 2 \n    rnr_nak_retry_err 1\n",
			`"nics":[{"name":"mlx5_0","netdevs":null,"rdma":null,"rdma_devices":[{"name":"mlx5_0",` +
				`"ports":[{"number":1,` +
				`"counters":{"out_of_sequence":2,"rnr_nak_retry_err":1}}]}]}]}`},
		{"virsh vcpuinfo", "# virsh vcpuinfo vm1\nVCPU:           0\nCPU:            2\nState:          running\n" +
			"CPU Affinity:   --y-\n\nVCPU:           1\nCPU Affinity:   yyyy\n\nVCPU:           2\n" +
			"CPU Affinity:   0-1 (out of 4)\n\nVCPU:           3\nCPU Affinity:   0-3 (out of 4)\n",
			`"tenants":[{"name":"vm1","state":"running","vcpus":4,"pins":[{"vcpu":0,"cpus":"2"},{"vcpu":2,` +
				`"cpus":"0-1"}]}]}`},
		{"virsh vcpupin", "$ virsh vcpupin vm1\n VCPU   CPU Affinity\n----------------------\n 0      4\n 1      5,7\n",
			`"tenants":[{"name":"vm1","vcpus":2,"pins":[{"vcpu":0,"cpus":"4"},{"vcpu":1,"cpus":"5,7"}]}]}`},
		{"virsh emulatorpin", "$ virsh emulatorpin vm1\nemulator: CPU Affinity\n-----------------\n       *: 0-3\n",
			`"tenants":[{"name":"vm1","emulator_cpus":"0-3"}]}`},
		{"mst status", "MST modules:\n------------\n    MST PCI module is not loaded\nPCI devices:\n------------\n" +
			"DEVICE_TYPE             MST                           PCI       RDMA            NET         NUMA\n" +
			"ConnectX7(rev:0)        /dev/mst/mt4129_pciconf0      18:00.0   mlx5_0          net-ibp24s0   0 \n\n" +
			"BlueField3(rev:1)       /dev/mst/mt41692_pciconf0     ca:00.0                   net-p0,net-pf0hpf  -1\n",
			`"nics":[{"address":"0000:18:00.0","name":"/dev/mst/mt4129_pciconf0","netdevs":null,"rdma":null,` +
				`"numa_node":0,"ports":[{"name":"ibp24s0"}],"rdma_devices":[{"name":"mlx5_0"}]},` +
				`{"address":"0000:ca:00.0","name":"/dev/mst/mt41692_pciconf0","netdevs":null,"rdma":null,` +
				`"ports":[{"name":"p0"},{"name":"pf0hpf"}]}]}`},
		{"mst status", "/dev/mst/mt4119_pciconf0         - PCI configuration cycles access.\n" +
			"     domain:bus:dev.fn=0000:5e:00.0 addr.reg=88 data.reg=92 cr_bar.gw_offset=-1\n", `"nics":[{"address":` +
			`"0000:5e:00.0","name":"/dev/mst/mt4119_pciconf0","netdevs":null,"rdma":null}]}`},
		{"ibv_devices", "    device          \t   node GUID\n    ------          \t----------------\n" +
			"    mlx5_0          \t946dae0300cde72c\n",
			`"nics":[{"name":"mlx5_0","netdevs":null,"rdma":null,"rdma_devices":[{"name":"mlx5_0",` +
				`"node_guid":"946d:ae03:00cd:e72c"}]}]}`},
		{"virsh dominfo", "Id:             3\nName:           vm1\nOS Type:        hvm\nState:          running\n" +
			"CPU(s):         8\nCPU time:       1.4s\nMax memory:     1024 KiB\n",
			`"tenants":[{"name":"vm1","state":"running","vcpus":8,"memory_bytes":1048576}]}`},
		{"virsh vcpupin", "$ virsh -c qemu:///system vcpupin --domain vm1\n VCPU   CPU Affinity\n----\n 0      4\n",
			`"tenants":[{"name":"vm1","vcpus":1,"pins":[{"vcpu":0,"cpus":"4"}]}]}`},
		{"virsh numatune", "$ virsh numatune vm1\nnuma_mode      : strict\nnuma_nodeset   : 1\n",
			`"tenants":[{"name":"vm1","memory_nodes":"1","memory_mode":"strict"}]}`},
	} {
		h, text := read(t, test.text)
		if text.Kind.Name != test.kind {
			t.Errorf("%s is taken for %s", test.kind, text.Kind.Name)
		}
		if diff := cmp.Diff(test.want, asJSON(t, h)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.kind, diff)
		}
	}
}

func TestPiecesAreRead(t *testing.T) {
	const port = `"nics":[{"name":"unnamed","netdevs":null,"rdma":null,"rdma_devices":[{"name":"unnamed",` +
		`"ports":[{"number":1,`
	untold := func(kind string) string {
		return `,"unread":[{"path":"a.txt:1","why":"which RDMA device this is, is not told: ` + kind +
			` names it in its first line"}]}`
	}
	for _, test := range []struct{ kind, text, want string }{
		{"ibstat", "\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 200\n\t\tBase lid: 12\n",
			port + `"state":"ACTIVE","phys_state":"LinkUp","rate_gbps":200,"lid":12}]}]}]` + untold("ibstat")},
		{"ibstat", "State: Down\nPhysical state: Polling\nRate: 40\n",
			port + `"state":"DOWN","phys_state":"Polling"}]}]}]` + untold("ibstat")},
		{"ibstat", "Port 1: State: Active Physical state: LinkUp Rate: 100 Base lid: 0 Link layer: Ethernet\n", port +
			`"state":"ACTIVE","phys_state":"LinkUp","link_layer":"Ethernet","rate_gbps":100}]}]}]` + untold("ibstat")},
		{"ibstat", "CA: 'mlx5_3'\nPort 2:\nState: Initializing\n",
			`"nics":[{"name":"mlx5_3","netdevs":null,"rdma":null,` +
				`"rdma_devices":[{"name":"mlx5_3","ports":[{"number":2,"state":"INIT"}]}]}]}`},
		{"ibv_devinfo", "fw_ver: 26.33.1048\nport: 1\nstate: PORT_ACTIVE (4)\nactive_mtu: 1024 (3)\n",
			`"nics":[{"name":"unnamed","netdevs":null,"rdma":null,"rdma_devices":[{"name":"unnamed",` +
				`"firmware":"26.33.1048",` +
				`"ports":[{"number":1,"state":"ACTIVE","active_mtu":1024}]}]}]` + untold("ibv_devinfo")},
		{"ibv_devinfo", "hca_id:\tefa_0\n\ttransport:\t\t\tunspecified (4)\n\tnode_guid:\t\t\t0000:0000:0000:0000\n",
			`"nics":[{"name":"efa_0","netdevs":null,"rdma":null,"rdma_devices":[{"name":"efa_0",` +
				`"node_type":"7: unspecified","node_guid":"0000:0000:0000:0000"}]}]}`},
		{"ibv_devinfo", "port: 1 state: PORT_ACTIVE (4) max_mtu: 4096 (5) active_mtu: 4096 (5) link_layer: " +
			"Ethernet\n", port +
			`"state":"ACTIVE","link_layer":"Ethernet","active_mtu":4096}]}]}]` + untold("ibv_devinfo")},
		{"ibv_devinfo", "$ ibv_devinfo -d mlx5_1 | grep state\n\t\tstate: PORT_DOWN (1)\n",
			`"nics":[{"name":"mlx5_1","netdevs":null,"rdma":null,` +
				`"rdma_devices":[{"name":"mlx5_1","ports":[{"number":1,"state":"DOWN"}]}]}]}`},
		{"qm config", "cores: 8\nmemory: 32768\n",
			`"tenants":[{"name":"a machine of Proxmox VE","vcpus":8,"memory_bytes":34359738368}]}`},
		{"qm config", "hostpci0: 0000:81:00,pcie=1\n", `"tenants":[{"name":"a machine of Proxmox VE","vcpus":1,` +
			`"devices":[` +
			`{"pci":"0000:81:00.0","managed":true,"whole":true}]}]}`},
		{"qm config", "hostpci0: 0000:81:00.4,mdev=nvidia-63\nargs: -device vfio-pci,host=82:00.0,x-vga=on -device " +
			`{"driver":"vfio-pci","host":"0001:01:00.1"} -device vfio-pci,sysfsdev=/sys/bus/pci/devices/0000:83:00.0` +
			"\nmemory: 4096\n", `"tenants":[{"name":"a machine of Proxmox VE","vcpus":1,"memory_bytes":4294967296,` +
			`"devices":[{"pci":"0000:82:00.0","managed":false},{"pci":"0001:01:00.1","managed":false},` +
			`{"pci":"0000:83:00.0","managed":false}]}]}`},
		{"lscpu", "NUMA node0 CPU(s):     0-3\nNUMA node1 CPU(s):     4-7\n",
			`"numa_nodes":[{"id":0,"cpus":"0-3"},{"id":1,"cpus":"4-7"}],"cpus":{"online":"0-7"}}`},
		{"lscpu", "Thread(s) per core: 2\nCore(s) per socket: 4\nSocket(s): 1\n",
			`"packages":[{"id":0,"cpus":"0-7"}],"cpus":{"online":"0-7","smt":"on"}}`},
		{"numactl -H", "available: 2 nodes (0-1)\nnode 0 size: 16 MB\n",
			`"numa_nodes":[{"id":0,"cpus":"","memory_bytes":16777216}],"numa_node_count":2,` +
				`"unread":[{"path":"a.txt:1","why":"the CPUs of node 0 are missing"},` +
				`{"path":"a.txt:1","why":"2 nodes are available, and the text has 1"}]}`},
		{"numactl -H", "node distances:\nnode   0   1 \n  0:  10  21 \n  1:  21  10 \n",
			`"numa_nodes":[{"id":0,"cpus":"","distances":[10,21]},{"id":1,"cpus":"","distances":[21,10]}]}`},
		{"ethtool", "$ ethtool eth1 | grep -i speed\n\tSpeed: 25000Mb/s\n",
			`"nics":[{"name":"eth1","netdevs":null,"rdma":null,` +
				`"ports":[{"name":"eth1","speed_mbps":25000}]}]}`},
		{"ethtool -i", "firmware-version: 22.39.1002 (MT_0000000436)\nexpansion-rom-version: \n" +
			"bus-info: 0000:c1:00.0\n",
			`"nics":[{"address":"0000:c1:00.0","netdevs":null,"rdma":null,"firmware":"22.39.1002"}]}`},
		{"virsh vcpuinfo", "CPU:            2\nCPU Affinity:   --y-\n\nVCPU:           4\nCPU Affinity:   y---\n",
			`"tenants":[{"name":"a domain without a name","vcpus":5,"pins":[{"vcpu":3,"cpus":"2"},{"vcpu":4,` +
				`"cpus":"0"}]}]}`},
		{"mlxconfig q", "PCI device:     5e:00.0\nConfigurations:    Current\n         NUM_OF_VFS        8     \n",
			`"nics":[{"address":"0000:5e:00.0","netdevs":null,"rdma":null,"firmware_settings":{"NUM_OF_VFS":"8"}}]}`},
		{"mlxconfig q", "# mlxconfig -d 81:00.0 q | grep NUM_OF\n         NUM_OF_VFS                  8           \n",
			`"nics":[{"address":"0000:81:00.0","netdevs":null,"rdma":null,"firmware_settings":{"NUM_OF_VFS":"8"}}]}`},
		{"rocm-smi", "===== Concise Info =====\nGPU  Temp (DieEdge)  AvgPwr  SCLK    MCLK     Fan  Perf  PwrCap " +
			" VRAM%  GPU%  \n" +
			"0    39.0c           36.0W   800Mhz  1600Mhz  0%   auto  560.0W    0%   0%    \n=====\n",
			amdGPU("GPU0", 0, ``)},
		{"rocm-smi", "Device  Node  IDs              Temp        Power     Partitions    SCLK    MCLK    Fan  " +
			"Perf  PwrCap  VRAM%  " +
			"GPU%\n              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)\n=====\n" +
			"0       2     0x74a1,   28851  41.0°C      140.0W    NPS1, SPX, 0  132Mhz  900Mhz  0%   auto  " +
			"750.0W  0%     0%\n",
			amdGPU("GPU0", 0, `,"model":"Aqua Vanjaram [Instinct MI300X]","compute_partition":"SPX"`)},
		{"rocm-smi", "== ROCm System Management Interface ==\nGPU[1]\t\t: Card Series: \t\tAMD Instinct MI300X\n",
			amdGPU("GPU1", 1, `,"model":"AMD Instinct MI300X"`)},
		{"amd-smi", "GPU: 0\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n        DEVICE_ID: 0x74a1\n   " +
			" NUMA:\n" +
			"        NODE: 1\n    VRAM:\n        SIZE: 16 MB\n", amdGPU("GPU0", 0,
			`,"model":"AMD Instinct MI300X","numa_node":1,"memory_bytes":16777216`)},
		{"amd-smi", "| AMD-SMI 26.0.0     amdgpu version: 6.14.14  ROCm version: 7.0.0    |\n" +
			"| 0000:75:00.0    AMD Instinct MI355X | 0 %      43 °C   0          174/1400 W |\n" +
			"|   3       0       5        SPX/NPS1 | 0 %        N/A               283/16 MB |\n",
			strings.Replace(amdGPU("", 3, `,"model":"AMD Instinct MI355X","memory_bytes":16777216,`+
				`"compute_partition":"SPX"`),
				`{"kind"`, `{"address":"0000:75:00.0","kind"`, 1)},
		{"amd-smi", `[{"gpu":0,"bdf":"0000:0C:00.0","links":[{"gpu":0,"link_type":"SELF"},{"gpu":1,` +
			`"link_type":"XGMI","num_hops":1}]},` +
			`{"gpu":1,"bdf":"0000:22:00.0","links":[]}]`, `"gpus":[{"address":"0000:0c:00.0","kind":"discrete",` +
			`"index":0,` +
			`"vendor":"Advanced Micro Devices, Inc. [AMD/ATI]","nvlinks":1},{"address":"0000:22:00.0",` +
			`"kind":"discrete",` +
			`"index":1,"vendor":"Advanced Micro Devices, Inc. [AMD/ATI]","nvlinks":1}],` +
			`"reported_paths":[{"a":"0000:0c:00.0","b":"0000:22:00.0","class":"NV"}]}`},
	} {
		h, text := read(t, test.text)
		if text.Kind.Name != test.kind {
			t.Errorf("%s is taken for %s", test.kind, text.Kind.Name)
		}
		if diff := cmp.Diff(test.want, asJSON(t, h)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.kind, diff)
		}
	}
	for _, text := range []string{"Rate: 5 of them\n", "cores: 8\n", "Port 1:\n", "port: 1\nhost: a\n", "state: down\n",
		"Speed: 3200 MT/s\n", "CPU(s):         8\nCPU time:       1.4s\nMax memory:     1024 KiB\n",
		"Channel parameters for eth1:\nPre-set maximums:\nRX:\t\t63\nTX:\t\t63\nCurrent hardware settings:\nRX:\t\t8\n",
		"supports-color: yes\n"} {
		if found := Split([]byte(text), "a.txt", Kinds); len(found) > 0 {
			t.Errorf("%q is taken for %s", text, found[0].Kind.Name)
		}
	}
}

func amdGPU(name string, index int, more string) string {
	if name != "" {
		name = `"name":"` + name + `",`
	}
	return fmt.Sprintf(`"gpus":[{"kind":"discrete",%s"index":%d,"vendor":"Advanced Micro Devices, Inc. [AMD/ATI]"%s}]}`,
		name, index, more)
}

func TestRecordedTexts(t *testing.T) {
	file := func(name string) *topology.Host {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		h, _ := read(t, string(b))
		return h
	}
	h := file("lscpu.txt")
	if len(h.Packages) != 2 || len(h.Cores) != 64 || h.Packages[1].CPUs.String() != "32-63" ||
		h.System.CPUModel != "AMD EPYC 9374F 32-Core Processor" || *h.System.InVM {
		t.Errorf("lscpu: %+v", h)
	}
	if h := file("lscpu-e.txt"); len(h.Cores) != 64 || len(h.L3) != 16 || len(h.NUMANodes) != 2 {
		t.Errorf("lscpu -e: %d cores, %d caches", len(h.Cores), len(h.L3))
	}
	h = file("numactl.txt")
	if n := h.NUMANodes[1]; *n.MemoryBytes != 193477<<20 || n.Distances[0] != 32 || n.CPUs.String() != "32-63" {
		t.Errorf("numactl: %+v", n)
	}
	h = file("ibv_devinfo.txt")
	if p := h.NICs[0].Devices[0].Ports[0]; p.State != "DOWN" || *p.ActiveMTU != 1024 || p.LinkLayer != "Ethernet" ||
		p.RateGbps != nil {
		t.Errorf("ibv_devinfo: %+v", p)
	}
	h = file("ibstat.txt")
	if _, d := h.RDMADevice("mlx5_0"); d == nil || *d.Port(1).RateGbps != 400 || *d.Port(1).LID != 75 {
		t.Errorf("ibstat: %+v", d)
	}
	if h := file("ibstatus.txt"); *h.NICs[0].Devices[0].Ports[0].RateGbps != 200 {
		t.Errorf("ibstatus: %+v", h.NICs[0])
	}
	if d := file("ethtool.txt").Netdev("eth1"); *d.SpeedMbps != 1000 || !*d.Carrier {
		t.Errorf("ethtool: %+v", d)
	}
	if n := file("ethtool-i.txt").NICs[0]; n.Address.String() != "0000:00:03.0" || n.Driver != "virtio_net" {
		t.Errorf("ethtool -i: %+v", n)
	}
}

func rocmTable(title, value string, n int) string {
	out := "==================== " + title + " between two GPUs ====================\n     "
	for i := range n {
		out += fmt.Sprintf("  GPU%-9d", i)
	}
	for i := range n {
		out += fmt.Sprintf("\nGPU%d  ", i)
		for j := range n {
			cell := value
			if i == j {
				cell = "0"
			}
			out += fmt.Sprintf("%-13s", cell)
		}
	}
	return out + "\n\n"
}

func rocmText() string {
	return "=================== ROCm System Management Interface ===================\n" + rocmTable("Weight", "72", 4) +
		rocmTable("Hops", "3", 4) + rocmTable("Link Type", "PCIE", 4) + "========== Numa Nodes ==========\n" +
		"GPU[0]\t\t: (Topology) Numa Node: 0\nGPU[0]\t\t: (Topology) Numa Affinity: 0\n" +
		"GPU[1]\t\t: (Topology) Numa Node: 0\nGPU[1]\t\t: (Topology) Numa Affinity: 0\n"
}

func TestNVLinks(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     map[int]int
	}{
		{"a bridge uses 2 of 3 links", "GPU 0: NVIDIA H100 PCIe (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: " +
			"26.562 GB/s\n\t Link 2: <inactive>\n", map[int]int{0: 2}},
		{"a GPU without links is not listed", "GPU 0: NVIDIA L40S (UUID: GPU-1)\nGPU 1: NVIDIA H100\n\t Link 0: " +
			"<inactive>\n", map[int]int{1: 0}},
		{"a link before any GPU", "Link 0: 25.781 GB/s\n", map[int]int{}},
		{"nothing", "", map[int]int{}},
	} {
		if diff := cmp.Diff(tt.want, NVLinks(tt.in)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestMatricesOfROCm(t *testing.T) {
	h, _ := read(t, rocmText())
	if p := h.Path("GPU0", "GPU3"); len(h.GPUs) != 4 || p.Class != topology.PathSYS || *h.GPUs[1].NUMANode != 0 ||
		h.GPUs[2].NUMANode != nil || len(h.Contradictions) != 1 {
		t.Errorf("%d GPUs, %+v, %+v", len(h.GPUs), p, h.Contradictions)
	}
}

// Near misses are of no kind.
func TestOtherTextsAreOfNoKind(t *testing.T) {
	for _, text := range []string{
		"name: x\nmemory: 4096\nreplicas: 2\n",
		"arch: amd64\ncores: 4\nmemory: 2048\nostype: debian\nrootfs: local:subvol-101\n",
		"The available: 2 nodes were full.\n",
		"node: 0 cpus\nlink up\n",
		"# CPU usage\n1,2,3\n",
		"driver:\n",
		`{"pci": 1`,
		"==> results\n1: one\n2: two\n",
		"<devices><device/></devices>\n",
		"GPU 0: a graphics card\n",
		"rx_packets: 3\n",
		"link to the page 1 2\n",
		"VCPU: many\n",
	} {
		for _, found := range Split([]byte(text), "", Kinds) {
			if _, err := found.Read(); err == nil {
				t.Errorf("%q is read as %s", text, found.Kind.Name)
			}
		}
	}
}

// Output of unsupported tools is not added to the text above.
func TestTextsOfToolsThatAreNotRead(t *testing.T) {
	t.Parallel()
	const above = "Architecture: x86_64\nCPU(s): 2\n"
	want, _ := read(t, above)
	for _, test := range []struct{ command, text string }{
		{"lshw", "node1\n    description: Rack Mount Chassis\n  *-core\n     *-cpu:0\n          product: Some CPU\n"},
		{"lshw -json", `[{"id":"n","class":"system","product":"R750 (SKU)"}]` + "\n"},
		{"dmidecode", "# dmidecode 3.2\nHandle 0x0400, DMI type 4, 48 bytes\nProcessor Information\n\tModel name: X\n"},
		{"lsmod", "Module                  Size  Used by\nmlx5_ib               397312  0\n"},
		{"lstopo", "Machine (126GB total)\n  Package L#0\n    NUMANode L#0 (P#0 63GB)\n"},
		{"mlxlink -d mlx5_0", "Operational Info\nState            : Active\nSpeed            : IB-HDR\n"},
		{"ethtool -k eth1", "Features for eth1:\nrx-checksumming: on\n"},
		{"ethtool -g eth1", "Ring parameters for eth1:\nPre-set maximums:\nRX:\t\t8192\n"},
		{"ethtool -m eth1", "\tIdentifier          : 0x11 (QSFP28)\n"},
		{"virsh capabilities", "<capabilities>\n<host>\n<topology>\n<cells num='1'/>\n</topology>\n</host>\n" +
			"</capabilities>\n"},
		{"virsh nodedev-dumpxml pci_0000_5e_00_1", "<device>\n<name>pci_0000_5e_00_1</name>\n</device>\n"},
	} {
		if found := Split([]byte(test.text), "a.txt", Kinds); len(found) != 0 {
			t.Errorf("%s is read as %s", test.command, found[0].Kind.Name)
		}
		for _, heading := range []string{test.command, "### " + test.command, "$ " + test.command} {
			got, text := read(t, above+heading+"\n"+test.text)
			if text.Text != above {
				t.Errorf("%q: the text is %q, want %q", heading, text.Text, above)
			}
			if diff := cmp.Diff(asJSON(t, want), asJSON(t, got)); diff != "" {
				t.Errorf("%s below lscpu (-want +got):\n%s", test.command, diff)
			}
		}
	}
}

// A result can be completed and printed.
func FuzzRead(f *testing.F) {
	for i, k := range Kinds {
		f.Add(uint8(i), strings.Join(k.Heads, " 1\n"))
	}
	for _, name := range []string{"numactl.txt", "ethtool-i.txt", "ethtool.txt"} {
		if b, err := os.ReadFile("testdata/" + name); err == nil {
			f.Add(uint8(4), string(b[:min(len(b), 1500)]))
		}
	}
	f.Add(uint8(4), rocmText())
	f.Fuzz(func(t *testing.T, kind uint8, text string) {
		if len(text) > 4096 {
			return
		}
		found := Split([]byte(text), "", Kinds)
		found = append(found, Text{Kind: Kinds[int(kind)%len(Kinds)], Subject: "eth0", Text: text})
		for _, one := range found {
			h, err := one.Read()
			if err != nil {
				continue
			}
			h.Complete()
			if _, err := json.Marshal(h); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestNVIDIATables(t *testing.T) {
	t.Parallel()
	const table = "+------+\n| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: " +
		"12.4     |\n" +
		"| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n" +
		"|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |\n" +
		"| N/A   30C    P0             62W /  400W |       4MiB /  81920MiB |      0%      Default |\n" +
		"|   1  Tesla V100-SXM2...  Off  | 00000000:0A:00.0 Off |                    0 |\n"
	h, _ := read(t, table)
	got := ""
	for _, g := range h.GPUs {
		got += fmt.Sprint(g.Address, " ", g.Model, " ", g.DriverVer, " ", *g.PersistMode, "; ")
	}
	if want := "0000:07:00.0 NVIDIA A100-SXM4-80GB 550.54.15 true; 0000:0a:00.0  550.54.15 false; "; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	h, _ = read(t, "$ nvidia-smi --query-gpu=index,name,pci.bus_id,pcie.link.gen.max --format=csv\n"+
		"index, name, pci.bus_id, pcie.link.gen.max, pcie.link.width.current\n"+
		"0, NVIDIA L20, 00000000:3B:00.0, 4, 8\n1, NVIDIA L20, [Unknown], 4, 8\n2, cut\n")
	if len(h.GPUs) != 1 || h.GPUs[0].Model != "NVIDIA L20" || *h.PCI[0].Link.MaxSpeedGTs != 16 ||
		*h.PCI[0].Link.Width != 8 {
		t.Errorf("read %+v", h.GPUs)
	}
}
