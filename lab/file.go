package lab

import (
	"net/netip"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
)

// The types in this file mirror the lab file as the user wrote it: absent keys are nil. The JSON schema is generated
// from them, with the field comments as descriptions. The tag "rule" names the decoding rule (rules.go).

type file struct {
	// Name of the lab. It becomes part of socket paths and of process names, so it is short.
	Name string `json:"name" rule:"lab name"`
	// Software that makes the nodes. auto decides when the lab comes up.
	Driver *Driver `json:"driver,omitempty"`
	// Purpose of the lab. Placement and advice are weighted by it.
	Workload *Workload `json:"workload,omitempty"`
	// Host on which the lab is placed. Emulated nodes need no host.
	Host *fileHost `json:"host,omitempty"`
	// Pages behind the memory of all nodes on a real host. auto takes 1GiB if the memory of every node is whole GiB
	// and the host supports it, else 2MiB.
	Hugepages *Hugepages `json:"hugepages,omitempty"`
	// Virtual machines that the host runs already: read takes them from the host, ignore plans as if it ran none, and
	// a path names a file that lists them.
	Tenants *string `json:"tenants,omitempty" rule:"tenants"`
	// The network between the nodes.
	Fabric *fileFabric `json:"fabric,omitempty"`
	// Nodes that are kept together or apart on a real host, pair by pair.
	Affinity []fileAffinity `json:"affinity,omitempty" rule:"affinity"`
	// Ports of a real host that are joined, one list per cable or switch, by address or by a name such as mlx5_0. A
	// lab is planned on ports that reach each other. Absent: all ports reach each other.
	Links [][]string `json:"links,omitempty" rule:"links"`
	// Slurm on the nodes whose images have it, such as debian-12+slurm.
	Slurm *fileSlurm `json:"slurm,omitempty"`
	// Place of the nodes in vSphere, for driver vsphere.
	VSphere *VSphere `json:"vsphere,omitempty"`
	// Architecture of the nodes of an emulated lab, by default that of this machine. Any other is emulated without
	// KVM.
	Arch *Arch `json:"arch,omitempty"`
	// /home of the full nodes: own is on the disk of each node, shared is one directory for the whole lab.
	Home *Home `json:"home,omitempty"`
	// Traffic between the nodes for rackless simulate, as in a file of a simulation. Other commands ignore it.
	Traffic []any `json:"traffic,omitempty" rule:"traffic"`
	// Rates, switch and NICs of that simulation. Other commands ignore it.
	Simulation map[string]any `json:"simulation,omitempty" rule:"simulation"`
	// Settings for every node without its own.
	Defaults *settings `json:"defaults,omitempty"`
	// The nodes by name, in the order in which they get their addresses.
	Nodes fileNodeList `json:"nodes" rule:"nodes"`
}

type fileHost struct {
	// Cores and memory that the host keeps for itself, or just a number of cores. The planner chooses absent parts.
	Reserve *fileReserve `json:"reserve,omitempty"`
}

type fileReserve struct {
	// Physical cores of the whole host.
	Cores *int `json:"cores,omitempty" rule:"cores"`
	// Memory of the whole host, in whole MiB, spread over its NUMA nodes in proportion to their size.
	Memory *Bytes `json:"memory,omitempty" rule:"kept"`
	// Cores and memory that the host keeps on single NUMA nodes, by number. Cores count towards the cores of the
	// whole host; memory replaces the node's share.
	NUMA fileNUMAReserves `json:"numa_nodes,omitempty" rule:"numa_nodes"`
}

type fileNUMAReserves []fileNUMAReserve

type fileNUMAReserve struct {
	node int
	// Physical cores of this NUMA node.
	Cores *int `json:"cores,omitempty" rule:"cores"`
	// Memory of this NUMA node, in whole MiB.
	Memory *Bytes `json:"memory,omitempty" rule:"kept"`
}

type fileFabric struct {
	// Bytes of an IP packet on the fabric. RDMA payloads are powers of two: 4200 is the smallest
	// round value that carries 4096 bytes, 1500 carries only 1024.
	MTU *int `json:"mtu,omitempty" rule:"mtu"`
	// IPv4 subnet of the first NICs: the n-th node has the n-th address. The second NICs get the
	// next subnet of the same size, and so on.
	Subnet *netip.Prefix `json:"subnet,omitempty" rule:"subnet"`
	// Switches of an emulated lab. leaf-spine: the nodes are at leaves, and each leaf has a link to each spine. Absent:
	// one switch.
	Topology *FabricTopology `json:"topology,omitempty"`
	// Number of leaves, with topology.
	Leaves *int `json:"leaves,omitempty" rule:"leaves"`
	// Number of spines, with topology.
	Spines *int `json:"spines,omitempty" rule:"spines"`
	// Rate of each link between a leaf and a spine, such as 25Gb/s. Absent: that of the fastest NIC in the lab, or no
	// limit if no NIC has a rate.
	Rate *int64 `json:"rate,omitempty" rule:"link rate"`
}

type fileSlurm struct {
	// Node with slurmctld. Absent: the first node with Slurm.
	Controller *string `json:"controller,omitempty" rule:"node"`
}

// VSphereScheme begins the names of hosts of vSphere: vsphere:// for all, vsphere://NAME for one.
const VSphereScheme = "vsphere://"

// VSphere is the place and the source of a lab's nodes, with names from the inventory. [Parse] fills in Clone and
// Passthrough.
type VSphere struct {
	// ESXi host that runs the nodes.
	Host string `json:"host" rule:"inventory"`
	// Virtual machine or template to clone.
	Template string `json:"template" rule:"inventory"`
	// Datacenter of the host. May be absent if there is only one.
	Datacenter string `json:"datacenter,omitempty" rule:"inventory"`
	// Folder of the nodes. Absent: that of the datacenter.
	Folder string `json:"folder,omitempty" rule:"inventory"`
	// Datastore of the nodes' disks. Absent: that of the template.
	Datastore string `json:"datastore,omitempty" rule:"inventory"`
	// Resource pool of the nodes, such as CLUSTER/Resources/POOL. Absent: that of the host.
	ResourcePool string `json:"resource_pool,omitempty" rule:"inventory"`
	// Port groups to which each node is connected, with a network adapter of its template or a new one.
	Networks []string `json:"networks,omitempty" rule:"names"`
	// Port group of the virtual functions. If it belongs to a distributed switch, the switch gets the MTU of the
	// fabric.
	PortGroup string `json:"port_group,omitempty" rule:"inventory"`
	// Choice of whole NICs and GPUs: static takes the device of the plan, dynamic any free device of the same kind
	// when the node starts.
	Passthrough Passthrough `json:"passthrough,omitempty"`
	// full copies the template's disks, linked shares the disks of the template's snapshot.
	Clone Clone `json:"clone,omitempty"`
	// Settings of each node's virtual machine, added to the plan's or replacing them: cpu_shares, memory_shares,
	// secure_boot, and parameters of its configuration file, such as pciPassthru.64bitMMIOSizeGB.
	Settings map[string]string `json:"settings,omitempty" rule:"settings"`
	// Virtual switches to make, by name. Absent: the port groups above exist already.
	Switches map[string]*Switch `json:"switches,omitempty" rule:"switches"`
	// Guest customization at the first start. Absent: none.
	Customize *Customize `json:"customize,omitempty" rule:"customize"`
	// Power policy of the host: static is "High performance", dynamic "Balanced", low "Low power". Absent: unchanged.
	PowerPolicy PowerPolicy `json:"power_policy,omitempty"`
	// Options of the host's kernel modules by module name, as in esxcli system module parameters set. They take
	// effect after a restart of the host.
	Modules map[string]string `json:"modules,omitempty" rule:"modules"`
}

// Switch is a virtual switch that the lab creates and removes again. [Parse] fills in Kind, MTU and Hosts.
type Switch struct {
	// distributed belongs to a datacenter and spans hosts, standard belongs to the host of the lab.
	Kind SwitchKind `json:"kind,omitempty"`
	// NICs of each host that connect the switch to the outside, such as vmnic3. Absent: none.
	Uplinks []string `json:"uplinks,omitempty" rule:"names"`
	// Port groups of the switch.
	PortGroups []string `json:"port_groups,omitempty" rule:"names"`
	// MTU of the switch. Absent: that of the fabric, but 1500 at least and 9000 at most.
	MTU int `json:"mtu,omitempty" rule:"switch mtu"`
	// VLAN of the port groups. Absent: none.
	VLAN int `json:"vlan,omitempty" rule:"vlan"`
	// Hosts of a distributed switch. Absent: only the host of the lab.
	Hosts []string `json:"hosts,omitempty" rule:"names"`
}

// Customize configures vSphere's customization of Linux guests. Address is that of the adapter at the first of
// Networks, or else of the template's first adapter; SR-IOV adapters get the fabric's addresses.
type Customize struct {
	// Domain of the nodes' names.
	Domain string `json:"domain" rule:"domain"`
	// Address of the first node with its prefix length (the other nodes get the next ones), or a list with one
	// address for each node. Absent: DHCP.
	Address []netip.Prefix `json:"address,omitempty" rule:"addresses"`
	// Router of that subnet.
	Gateway *netip.Addr `json:"gateway,omitempty" rule:"ip"`
	// Name servers.
	DNS []netip.Addr `json:"dns,omitempty" rule:"dns"`
}

type fileAffinity struct {
	// Names of nodes, such as vm00, or of entries with a count: vm stands for all of its nodes. Two at least.
	Nodes []nodeRef `json:"nodes" rule:"node names"`
	// same: on the same NUMA nodes. different: no NUMA node has cores of two of them.
	NUMA *Togetherness `json:"numa,omitempty"`
	// same: virtual functions of the same NICs. different: no NIC serves two of them.
	NIC *Togetherness `json:"nic,omitempty"`
	at  place
}

type nodeRef struct {
	name string
	at   place
}

type settings struct {
	// Virtual CPUs of the node. auto leaves them to the planner; an emulated node then has 1.
	CPUs *orAuto[int] `json:"cpus,omitempty" rule:"cpus"`
	// Memory of the node, in whole MiB, at least 256MiB; M and G are short for MiB and GiB. auto leaves it to the
	// planner, with 256MiB for an emulated node. A full node has 512MiB by default and needs 384MiB.
	Memory *orAuto[Bytes] `json:"memory,omitempty" rule:"memory"`
	// System that the node boots: builtin, a small system; debian-12 or debian-13, a full Debian system that is built
	// once, with package sets as in debian-12+slurm+mpi; or the path of a disk image.
	Image *string `json:"image,omitempty" rule:"image"`
	// Fabric ports of the node that are whole NICs: a count, an address such as 0000:41:00.0, a name such as NIC0, a
	// selector, or a list of these. The default is 1, or 0 if the node has vfs. The qemu driver emulates a count of
	// them, or a list such as [{count: 2, numa_node: 0}, {count: 2, numa_node: 1}].
	NICs *fileDevices `json:"nics,omitempty" rule:"nics"`
	// Model of an emulated node's NICs: an emulated ConnectX, driven by mlx5, or virtio with soft RoCE. auto is a
	// ConnectX-4 Lx if a QEMU that emulates it is available, else virtio; a running node keeps its model. Nodes on a
	// real host have the host's NICs.
	NIC *NICModel `json:"nic,omitempty"`
	// GPUs of the node, passed through on a real host: a count, an address such as 0000:06:00.0, a name such as
	// GPU0, a selector, or a list of these. The qemu driver emulates a count of them, or {count: 2, memory: 1GiB,
	// beside: eth1, path: sys}, for nodes with the package set gpu.
	GPUs *fileDevices `json:"gpus,omitempty" rule:"gpus"`
	// Machine on which an emulated node is modelled: h20, a server with 8 GPUs and 4 NICs in 2 NUMA nodes, or
	// h20-small, a GPU of it with 2 NICs at a 200th of its rates. It decides nics and gpus, and gives the defaults of
	// cpus, memory, image and nic.
	Profile *ProfileName `json:"profile,omitempty"`
	// Fabric ports of the node that are virtual functions of the host's NICs: a count, the address or the name of a
	// NIC, a selector, or a list of these. The qemu driver has none.
	VFs *fileDevices `json:"vfs,omitempty" rule:"vfs"`
	// Whether two virtual CPUs share a core of a real host, as hardware threads of it.
	SMT *Setting `json:"smt,omitempty"`
	// Whether the node sees the NUMA nodes of the real host on which it runs.
	GuestNUMA *Setting `json:"guest_numa,omitempty"`
	// Steps that set the node up once it has booted: commands for its shell, which may run again. verify reports a
	// step if its check fails.
	Setup *[]fileStep `json:"setup,omitempty" rule:"steps"`
}

type fileStep struct {
	// Commands that set the node up. They may run more than once.
	Run *string `json:"run" rule:"script"`
	// Commands that succeed if the node is set up already; then run is skipped. Without a check, run is run once
	// after each start of the node.
	Check *string `json:"check,omitempty" rule:"script"`
}

type orAuto[T any] struct {
	auto  bool
	value T
}

func (v orAuto[T]) or(fallback T) T {
	if v.auto {
		return fallback
	}
	return v.value
}

// fileDevices is empty for a count of 0.
type fileDevices []fileDevice

type fileDevice struct {
	DeviceRequest
	at place
}

func (f fileDevices) count() int { return lists.Sum(f, func(r fileDevice) int { return r.Count }) }

func (f fileDevices) requests() []DeviceRequest {
	return lists.Map(f, func(r fileDevice) DeviceRequest { return r.DeviceRequest.clone() })
}

type fileNode struct {
	settings
	// Number of equal nodes to make: vm with a count of 16 is vm00 to vm15.
	Count *int `json:"count,omitempty" rule:"count"`
	// Leaf of an emulated node, from 0, with a topology of the fabric. Absent: the nodes are at the leaves in turn.
	Leaf *int `json:"leaf,omitempty" rule:"leaf"`
}

// The order of the nodes decides their addresses.
type fileNodeList []namedNode

type namedNode struct {
	name string
	node fileNode
}

const maxTokens = 30_000

type place = strictyaml.Place

// An Error is one fault of a lab file. Errors has all faults of one file.
type (
	Error  = strictyaml.Error
	Errors = strictyaml.Errors
)
