package lab

import (
	"net/netip"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
)

// The types of this file are the lab file as the user wrote it: what is absent is nil. The JSON
// schema is made from them (schema_make_test.go): tags hold the names of the keys, and the comments of
// fields their descriptions. The tag "rule" names what reads a value (rules.go) where its type does not say all.

type file struct {
	// Name of the lab. It is part of socket paths and of the names of running things, so it is
	// short.
	Name string `json:"name" rule:"lab name"`
	// What makes the nodes. auto decides when the lab comes up.
	Driver *Driver `json:"driver,omitempty"`
	// What the lab is for; placement and advice are weighted by it.
	Workload *Workload `json:"workload,omitempty"`
	// What the host that the lab is placed on keeps. Emulated nodes do without.
	Host *fileHost `json:"host,omitempty"`
	// Pages behind the memory of all nodes on a real host. auto takes 1GiB where the memory of
	// every node is whole GiB and the host can, else 2MiB.
	Hugepages *Hugepages `json:"hugepages,omitempty"`
	// What is known about virtual machines that the host runs already: read takes them as the host has
	// them, ignore plans as if there were none, a path names a file that lists them.
	Tenants *string `json:"tenants,omitempty" rule:"tenants"`
	// The network between the nodes.
	Fabric *fileFabric `json:"fabric,omitempty"`
	// Nodes that are kept together or apart on a real host, pair by pair.
	Affinity []fileAffinity `json:"affinity,omitempty" rule:"affinity"`
	// Ports of a real host that a cable or a switch joins, by address or by a name such as mlx5_0: a list for each
	// cable or switch. A lab is planned on ports that reach each other. Absent: all ports reach each other.
	Links [][]string `json:"links,omitempty" rule:"links"`
	// Slurm on the nodes whose images have it, such as debian-12+slurm.
	Slurm *fileSlurm `json:"slurm,omitempty"`
	// Where in vSphere the nodes go, for driver vsphere.
	VSphere *VSphere `json:"vsphere,omitempty"`
	// Architecture of the nodes of an emulated lab. Absent: that of this machine. Another one is emulated without KVM.
	Arch *Arch `json:"arch,omitempty"`
	// /home of the full nodes: own is on the disk of each, shared is one directory of the lab for all of them.
	Home *Home `json:"home,omitempty"`
	// Settings for every node that does not have its own.
	Defaults *settings `json:"defaults,omitempty"`
	// The nodes by name, in the order in which they get their addresses.
	Nodes fileNodeList `json:"nodes" rule:"nodes"`
}

type fileHost struct {
	// What the host keeps for itself: a number of cores, or cores and memory. What is absent is the
	// planner's choice.
	Reserve *fileReserve `json:"reserve,omitempty"`
}

type fileReserve struct {
	// Physical cores of the whole host.
	Cores *int `json:"cores,omitempty" rule:"cores"`
	// Memory of the whole host, in whole MiB, spread over its NUMA nodes by their size.
	Memory *Bytes `json:"memory,omitempty" rule:"kept"`
	// What the host keeps of single NUMA nodes, by number. Cores count towards those of the whole
	// host; memory replaces the node's share.
	NUMA fileNUMAReserves `json:"numa_nodes,omitempty" rule:"numa_nodes"`
}

// fileNUMAReserves is a mapping by number in the file.
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
}

type fileSlurm struct {
	// Node with slurmctld. Absent: the first node with Slurm.
	Controller *string `json:"controller,omitempty" rule:"node"`
}

// VSphereScheme begins the names of hosts of vSphere: vsphere:// for all, vsphere://NAME for one.
const VSphereScheme = "vsphere://"

// VSphere says where in vSphere the nodes of a lab go, and what they are made from, in the names of the inventory.
// [Parse] fills in Clone and Passthrough.
type VSphere struct {
	// ESXi host that the nodes are placed on.
	Host string `json:"host" rule:"inventory"`
	// Virtual machine or template that the nodes are clones of.
	Template string `json:"template" rule:"inventory"`
	// Absent where there is one only.
	Datacenter string `json:"datacenter,omitempty" rule:"inventory"`
	// Folder of the nodes. Absent: that of the data centre.
	Folder string `json:"folder,omitempty" rule:"inventory"`
	// Datastore of the nodes' disks. Absent: that of the template.
	Datastore string `json:"datastore,omitempty" rule:"inventory"`
	// Resource pool of the nodes, such as CLUSTER/Resources/POOL. Absent: that of the host.
	ResourcePool string `json:"resource_pool,omitempty" rule:"inventory"`
	// Port groups at which each node has a network adapter: one of its template, or a new one.
	Networks []string `json:"networks,omitempty" rule:"names"`
	// Port group of the virtual functions. If it is of a distributed switch, the switch gets the MTU of the fabric.
	PortGroup string `json:"port_group,omitempty" rule:"inventory"`
	// How nodes get whole NICs and GPUs: static is the one of the plan, dynamic any of its kind that is free when the
	// node starts.
	Passthrough Passthrough `json:"passthrough,omitempty"`
	// full has disks of its own, linked lies on the disks of the template's snapshot.
	Clone Clone `json:"clone,omitempty"`
	// Settings of each node's virtual machine beside those of the plan, or in their place: cpu_shares, memory_shares,
	// secure_boot, and parameters of its configuration file, such as pciPassthru.64bitMMIOSizeGB.
	Settings map[string]string `json:"settings,omitempty" rule:"settings"`
	// Virtual switches to make, by their names. Absent: those of the port groups above are there.
	Switches map[string]*Switch `json:"switches,omitempty" rule:"switches"`
	// What each guest is told about itself when it starts the first time. Absent: nothing.
	Customize *Customize `json:"customize,omitempty" rule:"customize"`
	// How the host saves power: static is "High performance", dynamic "Balanced", low "Low power". Absent: as it is.
	PowerPolicy PowerPolicy `json:"power_policy,omitempty"`
	// Options of the host's modules by their names, as esxcli system module parameters set has them. They are in force
	// once the host has been restarted.
	Modules map[string]string `json:"modules,omitempty" rule:"modules"`
}

// Switch is a virtual switch that a lab makes with its port groups, and removes again. [Parse] fills in Kind, MTU and
// Hosts.
type Switch struct {
	// distributed is of a data centre and on several hosts, standard is of the host of the lab.
	Kind SwitchKind `json:"kind,omitempty"`
	// NICs of each host that lead out of the switch, such as vmnic3. Absent: none.
	Uplinks []string `json:"uplinks,omitempty" rule:"names"`
	// Port groups of the switch.
	PortGroups []string `json:"port_groups,omitempty" rule:"names"`
	// Absent: that of the fabric, but 1500 at least and 9000 at most.
	MTU int `json:"mtu,omitempty" rule:"switch mtu"`
	// VLAN of the port groups. Absent: none.
	VLAN int `json:"vlan,omitempty" rule:"vlan"`
	// Hosts of a distributed switch. Absent: that of the lab.
	Hosts []string `json:"hosts,omitempty" rule:"names"`
}

// Customize is what vSphere's customization tells a Linux guest: its name, which is the node's, and its addresses.
// SR-IOV adapters get those of the fabric. The one that is here is that of the adapter at the first of networks, or
// else of the template's first.
type Customize struct {
	// Domain of the nodes' names.
	Domain string `json:"domain" rule:"domain"`
	// Address of the first node, with the length of its subnet: the other nodes get the next ones. Or a list with one
	// for each node. Absent: by DHCP.
	Address []netip.Prefix `json:"address,omitempty" rule:"addresses"`
	// The router of that subnet.
	Gateway *netip.Addr `json:"gateway,omitempty" rule:"ip"`
	// Name servers.
	DNS []netip.Addr `json:"dns,omitempty" rule:"dns"`
}

type fileAffinity struct {
	// Names of nodes, vm00, or of entries with a count, vm: all of its nodes. Two at least.
	Nodes []nodeRef `json:"nodes" rule:"node names"`
	// same: their cores are on the same NUMA nodes. different: no NUMA node has cores of two of
	// them.
	NUMA *Togetherness `json:"numa,omitempty"`
	// same: their virtual functions are of the same NICs. different: no NIC serves two of them.
	NIC *Togetherness `json:"nic,omitempty"`
	at  place
}

// A nodeRef names a node where it is not made.
type nodeRef struct {
	name string
	at   place
}

// settings are the keys that a node and defaults share.
type settings struct {
	// Virtual CPUs of the node. auto leaves them to the planner; an emulated node has 1 then.
	CPUs *orAuto[int] `json:"cpus,omitempty" rule:"cpus"`
	// Memory of the node, in whole MiB and at least 256MiB. M and G are short for MiB and GiB. auto
	// leaves it to the planner; an emulated node has 256MiB then. A full node has 512MiB, and at
	// least 384MiB.
	Memory *orAuto[Bytes] `json:"memory,omitempty" rule:"memory"`
	// What the node boots: builtin, a small system; debian-12 or debian-13, a full Debian system
	// that is built once, with package sets as in debian-12+slurm+mpi; or the path of a disk image.
	Image *string `json:"image,omitempty" rule:"image"`
	// Ports of the node on the fabric that are whole NICs: a count, an address such as
	// 0000:41:00.0, a name such as NIC0, a selector, or a list of these. The default is 0 where the
	// node has vfs. The qemu driver emulates a count of them.
	NICs *fileDevices `json:"nics,omitempty" rule:"nics"`
	// What the NICs of an emulated node are: an emulated ConnectX, whose driver is mlx5, or virtio with
	// soft RoCE. auto is a ConnectX-4 Lx where a QEMU can be had that emulates one, else virtio; a node that
	// runs keeps what it has. Nodes on a real host have the host's NICs.
	NIC *NICModel `json:"nic,omitempty"`
	// GPUs passed through to the node: a count, an address such as 0000:06:00.0, a name such as
	// GPU0, a selector, or a list of these. The qemu driver cannot pass GPUs through.
	GPUs *fileDevices `json:"gpus,omitempty" rule:"gpus"`
	// Ports of the node that are virtual functions of the host's NICs: a count, the address or the
	// name of a NIC, a selector, or a list of these. The qemu driver has none.
	VFs *fileDevices `json:"vfs,omitempty" rule:"vfs"`
	// Whether two virtual CPUs share a core of a real host, as siblings.
	SMT *Setting `json:"smt,omitempty"`
	// Whether the node sees NUMA nodes, as those of the real host that it is on.
	GuestNUMA *Setting `json:"guest_numa,omitempty"`
	// Steps that set the node up when it is up: commands for its shell, which may run again. verify
	// names a step whose check fails.
	Setup *[]fileStep `json:"setup,omitempty" rule:"steps"`
}

type fileStep struct {
	// Commands that set the node up. They may run more than once.
	Run *string `json:"run" rule:"script"`
	// Commands that succeed where the node is as it should be: then run is left out. Without a check,
	// run is run once on each node that is started.
	Check *string `json:"check,omitempty" rule:"script"`
}

// orAuto is a value that can be left to the planner.
type orAuto[T any] struct {
	auto  bool
	value T // undefined with auto
}

// or returns the value, or the fallback if it is left to the planner.
func (v orAuto[T]) or(fallback T) T {
	if v.auto {
		return fallback
	}
	return v.value
}

// fileDevices are requests for devices of one kind; empty for a count of 0.
type fileDevices []fileDevice

type fileDevice struct {
	DeviceRequest
	at place
}

// count adds the requests up.
func (f fileDevices) count() int { return lists.Sum(f, func(r fileDevice) int { return r.Count }) }

// requests returns what a Node holds of them; nil for none.
func (f fileDevices) requests() []DeviceRequest {
	return lists.Map(f, func(r fileDevice) DeviceRequest { return r.DeviceRequest.clone() })
}

type fileNode struct {
	settings
	// Makes this many equal nodes: vm with a count of 16 is vm00 to vm15.
	Count *int `json:"count,omitempty" rule:"count"`
}

// fileNodeList is a mapping in the file; here it is a list, because the order decides who gets which address.
type fileNodeList []namedNode

type namedNode struct {
	name string
	node fileNode
}

const maxTokens = 30_000

type place = strictyaml.Place

// An Error is one fault of a lab file, with its place and what to do about it; Errors are all of one file.
type (
	Error  = strictyaml.Error
	Errors = strictyaml.Errors
)
