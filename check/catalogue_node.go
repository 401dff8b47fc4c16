package check

import "github.com/rackless/rackless/diagnose"

// Identifiers of the checks of nodes. They are stable: scripts may depend on them.
const (
	IDLink     = "link"            // the network device is up and has a carrier
	IDMTU      = "link-mtu"        // its MTU is the lab's
	IDAddress  = "address"         // it has the lab's MAC address; the IP address shows in IDGID
	IDPort     = "rdma-port"       // the RDMA port is active on Ethernet
	IDIBMTU    = "rdma-active-mtu" // the RDMA MTU is the largest that the lab's MTU carries
	IDGID      = "rdma-gid"        // a RoCE v2 GID stands for the IPv4 address
	IDReach    = "reach"           // a peer answers at the full MTU, unfragmented
	IDTraffic  = "rdma-traffic"    // RDMA messages get through, and the device's counters show them
	IDIdentity = "identity"        // no two nodes share a name, an address or a random state

	IDGuestCPUs     = "guest-cpus"
	IDGuestSiblings = "guest-siblings"
	IDGuestNUMA     = "guest-numa"
	IDGuestDevices  = "guest-devices"
	IDGuestNode     = "guest-device-node"
	IDGuestLink     = "guest-link"
	IDGPUDirect     = "gpudirect"
)

// codeReach is the code of IDReach, whose findings are also made one by one.
const codeReach = "RL408"

// nodeChecks explains the checks of Lab and of Guests, by ID.
func nodeChecks() []diagnose.Check {
	const epyc = "EPYC lab"
	return []diagnose.Check{
		{
			ID: "RL401", Name: IDLink, Title: "link up", Severity: diagnose.Error,
			Summary: "The network device is up, and has a carrier. A node that does not answer at all is also " +
				"reported here.",
			Reads: []string{"/sys/class/net/NIC/operstate, carrier (in the node)"},
			Means: text("Nothing else works without. A device without a carrier is up and has nothing at its other "+
				"end: the switch of an emulated lab does not hold its port, or",
				"a cable is loose. operstate lags behind the carrier by up to a second."),
			Fix: "In the node: `ip link set NIC up`. Without a carrier: `rackless fabric LAB` shows the ports of " +
				"an emulated lab; else look at the cable and the switch.",
			Sources: []string{epyc + " (ethtool: Link detected)", "H20 guide (ip link)", "net/core/link_watch.c"},
		},
		{
			ID: "RL402", Name: IDMTU, Title: "link MTU", Severity: diagnose.Error,
			Summary: "The network device has the MTU of the lab.",
			Reads:   []string{"/sys/class/net/NIC/mtu (in the node)"},
			Means: text("The MTU of the link decides that of RDMA: 1500 leaves 1024 bytes of payload, 4200 carries "+
				"the full 4096. Ends that differ let small messages through",
				"and lose large ones, which looks like a hang."),
			Fix: "In the node: `ip link set NIC mtu MTU`. A virtual function takes no more than its physical " +
				"function has.",
			Sources: []string{epyc + " (jumbo frames)", "vSphere study (MTU 9000)", "NVIDIA/nccl#2135"},
		},
		{
			ID: "RL403", Name: IDAddress, Title: "MAC address", Severity: diagnose.Error,
			Summary: "The network device has the MAC address of the lab.",
			Reads:   []string{"/sys/class/net/NIC/address (in the node)"},
			Means: text("The node's address on the fabric belongs to this MAC. Another one means another device: the "+
				"guest named its devices in another order, or the address of",
				"a virtual function was not set before its driver came."),
			Fix: "In the node: `ip link set NIC address MAC`. Of a virtual function on the host: `ip link set PF " +
				"vf N mac MAC`, then bind it anew.",
			Sources: []string{"k8snetworkplumbingwg/sriov-network-operator#267",
				"openshift/sriov-network-operator#237"},
		},
		{
			ID: "RL404", Name: IDPort, Title: "RDMA port active", Severity: diagnose.Error,
			Summary: "The NIC has an RDMA device whose port is ACTIVE, with Ethernet below.",
			Reads:   []string{"/sys/class/infiniband/DEV/ports/1/state, link_layer (in the node)"},
			Means: text("What ibstat shows. A port is DOWN while its link is. No device at all: the driver's RDMA "+
				"part is not loaded (mlx5_ib), or soft RoCE has not been",
				"added. InfiniBand in place of Ethernet is a setting in the firmware of VPI cards (LINK_TYPE)."),
			Fix: "In the node: `ip link set NIC up`; without a device `modprobe mlx5_ib`, or of soft RoCE `rdma " +
				"link add rxe0 type rxe netdev NIC`.",
			Sources: []string{epyc + " (ibstat)", "vSphere study (LINK_TYPE_P1, ibv_devinfo)",
				"H20 guide (ibdev2netdev)", "aibrix/PrisKV#6"},
		},
		{
			ID: "RL405", Name: IDIBMTU, Title: "active IB MTU", Severity: diagnose.Error,
			Summary: "active_mtu is the largest RDMA payload that the MTU of the lab carries.",
			Reads:   []string{"ibv_devinfo -d DEV (in the node)"},
			Means: text("Sizes are powers of two from 256 to 4096 bytes, and the kernel takes the largest that fits "+
				"the link. With 1024 a message of 64 KiB is 64 packets in",
				"place of 16. Both ends have to agree, or messages above the smaller size fail with "+
					"IBV_WC_LOC_LEN_ERR or hang."),
			Fix: "In the node: `ip link set NIC mtu MTU`: it follows at once.",
			Sources: []string{epyc + " (active_mtu 4096)", "vSphere study (ibv_devinfo)",
				"NVIDIA/dgx-spark-playbooks#103", "tensorflow/tensorflow#9432"},
		},
		{
			ID: "RL406", Name: IDGID, Title: "RoCE v2 GID", Severity: diagnose.Error,
			Summary: "The GID table has an entry for the node's IPv4 address whose type is RoCE v2. The finding has " +
				"its index.",
			Reads: []string{"/sys/class/infiniband/DEV/ports/1/gids, gid_attrs (in the node)"},
			Means: text("Each address has a GID for RoCE v1 and one for v2, and tools take one by index (-x of "+
				"perftest). The index is often 3 and never sure: it differs between",
				"NICs, and with the order in which addresses came. A link-local or v1 GID ends with a timeout at "+
					"modify QP to RTR, or with completion error 12."),
			Fix:     "In the node: `ip addr add ADDRESS dev NIC`.",
			Sources: []string{epyc + " (GID index 3)", "linux-rdma/perftest#44", "NVIDIA/nccl#769", "NVIDIA/nccl#426"},
		},
		{
			ID: "RL407", Name: IDIdentity, Title: "nothing shared between nodes", Severity: diagnose.Error,
			Summary: "No two nodes share a host name, a machine-id, a MAC address, a GUID, a GID or a random number.",
			Reads: []string{"/proc/sys/kernel/hostname, /etc/machine-id, /proc/sys/kernel/random/uuid, " +
				"/sys/class/net, /sys/class/infiniband (in the nodes)"},
			Means: text("Nodes are copies of one image. Two with one MAC take each other's packets; two with one "+
				"machine-id get one address by DHCP; two with one state of the",
				"random generator make the same keys."),
			Fix:     "`rackless down LAB`, then up: nodes are told who they are when they start.",
			Sources: []string{"machine-id(5)", "Documentation/virt/vmgenid.rst"},
		},
		{
			ID: codeReach, Name: IDReach, Title: "peers answer at full MTU", Severity: diagnose.Error,
			Summary: "Every other node answers a ping that fills the MTU and must not be fragmented.",
			Reads:   []string{"fping -M -b SIZE PEER... (in the node)"},
			Means: text("A small ping proves little: a path with one smaller MTU in it drops what is larger, and TCP "+
				"falls to 0 after the handshake. RDMA is not fragmented by",
				"anybody on its way."),
			Fix: "Make the MTU the same on both nodes and everything between (RL402). If a peer is silent at " +
				"every size, see its own findings.",
			Sources: []string{epyc + " (ping)", "esnet/iperf#955", "NVIDIA/nccl#2013"},
		},
		{
			ID: "RL409", Name: IDTraffic, Title: "RDMA messages get through and are counted", Severity: diagnose.Error,
			Summary: "Messages go from every node to the next and back, and the packet counters of both RDMA " +
				"devices move.",
			Reads: []string{"ibv_rc_pingpong (in the nodes)",
				"/sys/class/infiniband/DEV/ports/1/hw_counters, counters (in the nodes)"},
			Means: text("The one check that does what the lab is for. Counters tell that the messages went through "+
				"this device, and not another with a way to the peer. Where",
				"another finding says that messages cannot get through, they are not sent."),
			Fix: "In both nodes `ip neigh` must show the other's MAC; compare GIDs (RL406) and MTU (RL405).",
			Sources: []string{epyc + " (ethtool -S: rdma counters, rdma stat show)", "vSphere study (ib_send_bw)",
				"linux-rdma/perftest#262"},
		},

		{
			ID: "RL410", Name: IDGuestCPUs, Title: "guest has the CPUs of the plan", Severity: diagnose.Error,
			Summary: "As many CPUs are online in the guest as the plan has virtual CPUs.",
			Reads:   []string{"/sys/devices/system/cpu/online (in the node)"},
			Means: text("Fewer are there when the guest's kernel is built for fewer, when the firmware of the guest "+
				"reaches 255 only, or when the domain is of an older plan.",
				"MPI ranks and benchmarks count CPUs, and results are then of another lab."),
			Fix: "Define the domain of the plan again, shut the node down and start it; in the guest `dmesg | " +
				"grep -i smp`.",
			Sources: []string{epyc + " (28 virtual CPUs)", "vSphere study (44 of 48 cores)"},
		},
		{
			ID: "RL411", Name: IDGuestSiblings, Title: "siblings in the guest are siblings on the host",
			Severity: diagnose.Warning,
			Summary: "CPUs that the guest takes for threads of one core are the virtual CPUs that the plan puts on " +
				"one core; without SMT each has a core of its own.",
			Reads: []string{"/sys/devices/system/cpu/cpu*/topology/core_id, physical_package_id (in the node)"},
			Means: text("The guest's scheduler fills cores before siblings. Siblings that are none, or pairs across "+
				"two cores, make it put two busy threads on one core. On AMD a",
				"guest sees no siblings without the CPU feature topoext."),
			Fix: "Define the domain of the plan again; on AMD its cpu element needs `<feature policy='require' " +
				"name='topoext'/>`.",
			Sources: []string{"pinning study (SMT siblings)", "kubevirt/kubevirt#11749", "open-mpi/hwloc#712"},
		},
		{
			ID: "RL412", Name: IDGuestNUMA, Title: "guest sees the NUMA nodes of the plan", Severity: diagnose.Error,
			Summary: "The guest has the plan's cells, with their CPUs, memory and distances; one node where guest " +
				"NUMA is off.",
			Reads: []string{"/sys/devices/system/node/node*/cpu*, meminfo, distance (in the node)"},
			Means: text("With NUMA nodes in the guest its memory bandwidth was 2 to 7 times as high on hosts of "+
				"several nodes; wrong ones are worse than none. Cells numbered as on",
				"the host, although the guest's CPUs are consecutive, tear cores in two."),
			Fix: "Define the domain of the plan again, shut the node down and start it. `numa=off` on the " +
				"guest's command line hides nodes.",
			Sources: []string{"pinning study (STREAM)", "open-mpi/hwloc#712"},
		},
		{
			ID: "RL413", Name: IDGuestDevices, Title: "guest has the devices of the plan", Severity: diagnose.Error,
			Summary: "The guest sees as many functions of each class and vendor as the plan gives it.",
			Reads:   []string{"/sys/bus/pci/devices/*/class, vendor (in the node)"},
			Means: text("A device that QEMU holds and the guest does not see has no room: the firmware's window for "+
				"64-bit memory is smaller than the BARs together",
				"(`BAR0 is 0M @ 0x0`), or a root port is missing."),
			Fix: "In the guest `dmesg | grep -i -e BAR -e pci`; for large GPUs a newer OVMF, or a larger window " +
				"(`opt/ovmf/X-PciMmio64Mb`).",
			Sources: []string{epyc + " (nvidia-smi, lspci)", "canonical/lxd#14381", "kubevirt/kubevirt#11093",
				"tianocore/edk2#12997"},
		},
		{
			ID: "RL414", Name: IDGuestNode, Title: "devices are on their NUMA nodes in the guest",
			Severity: diagnose.Warning,
			Summary:  "Where the guest sees several NUMA nodes, its GPUs and NICs are on those of the plan.",
			Reads:    []string{"/sys/bus/pci/devices/*/numa_node, /sys/class/net/NIC/device/numa_node (in the node)"},
			Means: text("NCCL, MPI and UCX choose NICs and cores by this file. -1 means that the device hangs on the "+
				"guest's first bus, which belongs to no node: every device",
				"seems equally far, and training was seen to be slower."),
			Fix: "The domain needs a pcie-expander-bus with the node for each cell that has devices: define the " +
				"domain of the plan again, shut the node down and start it.",
			Sources: []string{"kubevirt/kubevirt#13926", "OpenNebula/one#7077", "H20 guide (nvidia-smi topo -m)"},
		},
		{
			ID: "RL415", Name: IDGuestLink, Title: "PCIe link of the device, in the guest", Severity: diagnose.Warning,
			Summary: "Passed-through cards have the lanes, and NICs the speed, that card and slot can do on the host.",
			Reads:   []string{"/sys/bus/pci/devices/*/current_link_speed, current_link_width (in the node)"},
			Means: text("VFIO resets a card before the guest gets it, and on some boards the link trains at 2.5 GT/s "+
				"after that: the host's own check was right a moment before.",
				"GPUs lower the speed while they are idle, so only their lanes are judged. Virtual functions have no "+
					"link of their own."),
			Fix: "Shut the node down, train the link again at the port above on the host (RL003), and start the " +
				"node; a hook of libvirt can do that at each start.",
			Sources: []string{"6erun: its README and utils/qemu_hook.sh", "pinning study (a host at Gen 2 speed)"},
		},
		{
			ID: "RL416", Name: IDGPUDirect, Title: "NIC can reach GPU memory", Severity: diagnose.Warning,
			Summary: "A guest that has NVIDIA's driver, a GPU and an RDMA device also has nvidia_peermem, or the " +
				"open driver, which offers dma-buf.",
			Reads: []string{"/sys/module/nvidia_peermem, /sys/module/nv_peer_mem, /proc/driver/nvidia/version (in " +
				"the node)"},
			Means: text("Without one of them GPUDirect RDMA does not work: perftest says `Couldn't allocate MR` with "+
				"--use_cuda, and NCCL goes through host memory without a word.",
				"GPUs for consumers lack it whatever is loaded."),
			Fix: "In the guest: `modprobe nvidia-peermem`. The driver has to be built after the RDMA stack; with " +
				"the open driver use dma-buf (`--use_cuda_dmabuf`).",
			Sources: []string{"GPUDirect manual (lsmod | grep nv_peer_mem)", "linux-rdma/perftest#126",
				"linux-rdma/perftest#280", "NVIDIA/nccl#1939"},
		},
	}
}
