// Package lab reads the lab file: the short YAML document in which a user says which nodes a lab has.
//
// [Parse] decodes it strictly, fills in every default and checks every value, so that the rest of rackless only ever
// sees a complete [Lab]. The package is pure: it opens no file, asks no clock and keeps no state, and the same bytes
// always give the same Lab, down to the MAC addresses.
package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// The limits of version 1 of the lab file. The JSON schema is built from the same constants.
const (
	MaxFileSize = 1 << 20 // bytes; 500 nodes with every key written out take about 50 KiB
	MaxNodes    = 500     // after expansion of count; what one large host carries as TCG guests, with room to spare
	MaxName     = 20      // characters; names are part of unix socket paths, which end at 107 bytes

	// NICs and virtual functions of a node count together; a node on a real host may have neither.
	// The upper limits catch slips; what a driver can give is less (rack/emulated.Supported), and what a
	// host has is the planner's business.
	MinCPUs, MaxCPUs = 1, 4096
	MinNICs, MaxNICs = 0, 16
	MinGPUs, MaxGPUs = 0, 64

	// MaxNUMANode is the highest number of a NUMA node: the largest kernels are built for 1024 (CONFIG_NODES_SHIFT 10).
	MaxNUMANode = 1023
	// MaxRateMbps is the highest rate of a link that can be asked for, 10 Tb/s.
	MaxRateMbps = 10_000_000

	// MinMemory is what the built-in image needs to boot: 70 MB are there twice while it unpacks
	// itself. Nodes share what they do not write to.
	MinMemory = 256 * MiB
	// MaxMemory only catches slips of the unit; no single machine of 2026 gives more to one guest.
	MaxMemory = 16 * TiB

	// MinMTU is what IPv6 asks of every link (RFC 8200, section 5).
	MinMTU = 1280
	// MaxMTU is the largest that NICs commonly take.
	MaxMTU = 9216

	// MinPrefix and MaxPrefix bound the length of the fabric's subnet: from a whole /8 to the two addresses of a /30.
	MinPrefix, MaxPrefix = 8, 30
)

// The defaults that [Parse] fills in.
const (
	DefaultDriver   = DriverAuto
	DefaultWorkload = WorkloadMixed
	DefaultCPUs     = 1
	DefaultMemory   = 256 * MiB
	DefaultImage    = "builtin"
	DefaultNICs     = 1 // 0 for a node that asks for virtual functions
	DefaultGPUs     = 0
	DefaultVFs      = 0
	DefaultNIC      = NICAuto

	DefaultHugepages = HugepagesAuto
	DefaultTenants   = TenantsRead
	DefaultSetting   = Auto // of SMT and GuestNUMA

	DefaultSubnet = "10.0.0.0/24"

	// DefaultMTU is the smallest round value that lets RoCE use its largest payload. RDMA payloads are powers of two,
	// and 4096 bytes with the headers that the kernel reserves (see roceHeaders) need 4192. The usual 1500 leaves
	// only 1024, and the usual jumbo 9000 carries no more than 4200 does but makes every receive buffer larger.
	DefaultMTU = 4200
)

// A Lab is a lab file with nothing left open. It is what [Parse] returns and what every later stage reads.
//
// Its JSON form is stable. Two labs can be compared with reflect.DeepEqual, or with cmp and
// cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}).
type Lab struct {
	Name     string   `json:"name"`
	Driver   Driver   `json:"driver"`
	Workload Workload `json:"workload"`
	Fabric   Fabric   `json:"fabric"`
	Nodes    []Node   `json:"nodes"` // in the order of the file, counts expanded; never empty
	Slurm    *Slurm   `json:"slurm,omitempty"`
	VSphere  *VSphere `json:"vsphere,omitempty"` // of driver vsphere
	// Arch is the architecture of the nodes; "" stands for that of the machine that they run on.
	Arch Arch `json:"arch,omitempty"`
	// Home is HomeShared, or "" for HomeOwn.
	Home Home `json:"home,omitempty"`

	// What follows matters where nodes are placed on a real host.

	Reserve   Reserve    `json:"reserve,omitzero"`   // what the host keeps: host.reserve in the file
	Hugepages Hugepages  `json:"hugepages"`          // of all nodes
	Tenants   string     `json:"tenants"`            // TenantsRead, TenantsIgnore, or the path of a file
	Affinity  []Affinity `json:"affinity,omitempty"` // in the order of the file
	Links     [][]string `json:"links,omitempty"`    // ports of the host that reach each other, by address or name
}

// A Reserve is what the host keeps for itself. Absent parts are the planner's choice.
type Reserve struct {
	Cores  *int   `json:"cores,omitempty"`  // physical cores of the whole host, at least 1
	Memory *Bytes `json:"memory,omitempty"` // of the whole host, spread over its NUMA nodes by their size
	// by node; these count towards Cores and replace its share of Memory
	NUMA []NUMAReserve `json:"numa_nodes,omitempty"`
}

// A NUMAReserve is what the host keeps on one NUMA node.
type NUMAReserve struct {
	Node   int    `json:"node"`
	Cores  int    `json:"cores,omitempty"`
	Memory *Bytes `json:"memory,omitempty"`
}

// Hugepages says which pages back the memory of the nodes.
type Hugepages string

// The sizes of pages.
const (
	HugepagesAuto Hugepages = "auto" // 1 GiB where every node's memory is whole GiB and the host can, else 2 MiB
	Hugepages1GiB Hugepages = "1GiB"
	Hugepages2MiB Hugepages = "2MiB"
	HugepagesOff  Hugepages = "off"
)

// Values of Lab.Tenants; anything else is the path of a file.
const (
	TenantsRead   = "read"   // as the host has them
	TenantsIgnore = "ignore" // as if there were none
)

// pageSizes lists the values of Hugepages in the order in which messages and the schema name them.
func pageSizes() []Hugepages {
	return []Hugepages{HugepagesAuto, Hugepages1GiB, Hugepages2MiB, HugepagesOff}
}

// Arch is an architecture as Debian, Go and Kubernetes name it.
type Arch string

// The architectures of nodes.
const (
	ArchAMD64 Arch = "amd64"
	ArchARM64 Arch = "arm64"
)

func arches() []Arch { return []Arch{ArchAMD64, ArchARM64} }

// Home says where /home of the nodes with a disk is.
type Home string

// The places of /home.
const (
	HomeOwn    Home = "own"    // on the disk of each node
	HomeShared Home = "shared" // one directory of the lab, which goes with it
)

func homes() []Home { return []Home{HomeOwn, HomeShared} }

// HomeOf returns where /home of a node is.
func (l *Lab) HomeOf(n Node) Home {
	if l.Home == HomeShared && n.HasDisk() {
		return HomeShared
	}
	return HomeOwn
}

// A Setting is a choice that may be left to the planner.
type Setting string

// The settings.
const (
	Auto Setting = "auto"
	On   Setting = "on"
	Off  Setting = "off"
)

// choices lists the settings in the order in which messages and the schema name them.
func choices() []Setting { return []Setting{Auto, On, Off} }

// An Affinity ties nodes together or keeps them apart, pair by pair.
type Affinity struct {
	Nodes []string     `json:"nodes"`          // at least two
	NUMA  Togetherness `json:"numa,omitempty"` // whether their cores are on the same NUMA nodes, or on none in common
	NIC   Togetherness `json:"nic,omitempty"`  // whether they are on the same NIC ports, or on none in common
}

// Togetherness is what an Affinity asks for; empty asks for nothing.
type Togetherness string

// What an Affinity may ask for.
const (
	Same      Togetherness = "same"
	Different Togetherness = "different"
)

// togethernesses lists the values of Togetherness in the order in which messages and the schema name them.
func togethernesses() []Togetherness { return []Togetherness{Same, Different} }

// A DeviceRequest asks for devices of the host. An empty field asks for nothing.
type DeviceRequest struct {
	Count int `json:"count"` // at least 1; 1 where Address is set
	// PCI address, 0000:41:00.0; or the name that the host's source gives it, NIC0
	Address  string `json:"address,omitempty"`
	Vendor   string `json:"vendor,omitempty"`    // part of the vendor's name, or its number (0x10de), whatever the case
	Model    string `json:"model,omitempty"`     // part of the model's name, whatever the case
	NUMANode *int   `json:"numa_node,omitempty"` // where it hangs
	RateMbps int64  `json:"rate_mbps,omitempty"` // at least this rate of the link; of NICs and VFs
}

// A Fabric is the network between the nodes.
type Fabric struct {
	MTU    int          `json:"mtu"`    // bytes of IP packet, as in "ip link set mtu"
	Subnet netip.Prefix `json:"subnet"` // of the first NIC of every node; the others follow it
}

// RDMAPayload returns the largest RDMA payload in bytes that the fabric's MTU carries: the "active_mtu" of the nodes.
func (f Fabric) RDMAPayload() int { return rdmaPayload(f.MTU) }

// A Node is one machine of the lab.
type Node struct {
	Name   string `json:"name"`
	CPUs   int    `json:"cpus"`   // virtual CPUs
	Memory Bytes  `json:"memory"` // whole MiB
	Image  string `json:"image"`  // DefaultImage, that of a full node (Full), or the path of a disk image
	NICs   []NIC  `json:"nics"`   // ports that are whole NICs first, then those that are virtual functions
	GPUs   int    `json:"gpus"`   // GPUs passed through
	// What the NICs of an emulated node are; in a lab that is up, never NICAuto. Labs that were recorded before there
	// was a choice have virtio.
	NIC   NICModel `json:"nic,omitempty"`
	Setup []Step   `json:"setup,omitempty"` // what is done in the node once it is up, in this order

	// What follows matters where nodes are placed on a real host.

	AutoCPUs   bool    `json:"auto_cpus,omitempty"`   // the planner chooses; CPUs is what an emulated node gets
	AutoMemory bool    `json:"auto_memory,omitempty"` // likewise of Memory
	SMT        Setting `json:"smt"`                   // whether two virtual CPUs share a core, as siblings
	GuestNUMA  Setting `json:"guest_numa"`            // whether the node sees NUMA nodes
	VFs        int     `json:"vfs,omitempty"`         // of NICs, the last so many are virtual functions

	// What GPUs, NICs and VFs are asked for; the counts of each add up to GPUs, to len(NICs)-VFs and to VFs.
	GPURequests []DeviceRequest `json:"gpu_requests,omitempty"`
	NICRequests []DeviceRequest `json:"nic_requests,omitempty"`
	VFRequests  []DeviceRequest `json:"vf_requests,omitempty"`
}

// ShownNUMA returns what guest_numa is for a node: its own choice, or what auto stands for. Published figures decide
// that one: STREAM gains by it on hosts of several NUMA nodes, NCCL loses on some, and kernels of GPUs do not care. So
// NUMA nodes are hidden from nodes with GPUs, except where the workload's figure is the bandwidth of memory or of RDMA.
func (l *Lab) ShownNUMA(n *Node) Setting {
	if n.GuestNUMA == On || n.GuestNUMA == Off {
		return n.GuestNUMA
	}
	switch l.Workload {
	case WorkloadGPUCollective, WorkloadGPUCompute, WorkloadMixed, "":
		if n.GPUs > 0 {
			return Off
		}
	}
	return On
}

// A NIC is one port of a node on the fabric.
type NIC struct {
	Name string       `json:"name"` // in the guest: "eth0", "eth1" ...
	MAC  string       `json:"mac"`  // lower case with colons, unique in the lab
	Addr netip.Prefix `json:"addr"` // address with the length of its subnet, e.g. 10.0.0.1/24
}

// A NICModel is what an emulated NIC is to its node.
type NICModel string

// The models of emulated NICs.
const (
	// NICAuto is decided when the node comes up: a ConnectX-4 Lx where a QEMU can be had that emulates one, else
	// virtio. A node that runs keeps what it has.
	NICAuto        NICModel = "auto"
	NICConnectX4Lx NICModel = "connectx-4-lx" // a Mellanox ConnectX-4 Lx, which the node's mlx5 driver drives
	NICConnectX5   NICModel = "connectx-5"
	NICVirtio      NICModel = "virtio" // a virtio NIC; RDMA is computed by the node's kernel (rxe)
)

// nicModels lists the models in the order in which messages and the schema name them.
func nicModels() []NICModel { return []NICModel{NICAuto, NICConnectX4Lx, NICConnectX5, NICVirtio} }

// Title is the name of a model as people write it.
func (m NICModel) Title() string {
	return cmp.Or(map[NICModel]string{NICConnectX4Lx: "ConnectX-4 Lx", NICConnectX5: "ConnectX-5"}[m], string(m))
}

// ConnectX reports whether the NICs of the node are emulated ConnectX adapters.
func (n Node) ConnectX() bool { return n.NIC == NICConnectX4Lx || n.NIC == NICConnectX5 }

// A Driver says what makes the nodes.
type Driver string

// The drivers.
const (
	DriverAuto    Driver = "auto"    // decided when the lab comes up, by what the machine can do
	DriverQEMU    Driver = "qemu"    // QEMU processes started by rackless itself: no daemon, no root
	DriverLibvirt Driver = "libvirt" // domains that virsh and virt-manager show; needed for passthrough
	DriverVSphere Driver = "vsphere" // virtual machines of an ESXi host, through a vCenter or the host itself
)

// drivers lists the drivers in the order in which messages and the schema name them.
func drivers() []Driver { return []Driver{DriverAuto, DriverQEMU, DriverLibvirt, DriverVSphere} }

// A Workload says what the lab is for: placement and advice are weighted by it.
type Workload string

// The workloads.
const (
	WorkloadRDMALatency   Workload = "rdma-latency"
	WorkloadRDMABandwidth Workload = "rdma-bandwidth"
	WorkloadGPUCompute    Workload = "gpu-compute"
	WorkloadGPUCollective Workload = "gpu-collective"
	WorkloadCPUBandwidth  Workload = "cpu-bandwidth"
	WorkloadMixed         Workload = "mixed"
)

// Workloads lists the workloads in the order in which messages and the schema name them.
func Workloads() []Workload {
	return []Workload{WorkloadRDMALatency, WorkloadRDMABandwidth, WorkloadGPUCompute, WorkloadGPUCollective,
		WorkloadCPUBandwidth, WorkloadMixed}
}

// roceHeaders is what Linux takes off an Ethernet MTU before it looks for the RDMA payload that fits: GRH 40, UDP 8,
// BTH 12, XRC 4, atomic 28 and ICRC 4 bytes (iboe_get_mtu in include/rdma/ib_addr.h). The rxe driver takes off only 80
// (RXE_MAX_HDR_LENGTH); the larger figure holds for hardware and for rxe.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// rdmaPayload returns the largest RDMA payload, a power of two from 256 to 4096 bytes (InfiniBand specification,
// volume 1, PMTU), that fits an Ethernet MTU, or 0 where none does.
func rdmaPayload(mtu int) int {
	for payload := 4096; payload >= 256; payload /= 2 {
		if payload+roceHeaders <= mtu {
			return payload
		}
	}
	return 0
}

// RunBy returns the driver that runs the lab: the one that its file says. With "auto" a lab that asks for GPUs or
// virtual functions goes to a host that has them: an emulated device is no substitute for one that was asked for.
func (l *Lab) RunBy() Driver {
	switch {
	case l.Driver != DriverAuto && l.Driver != "":
		return l.Driver
	case slices.ContainsFunc(l.Nodes, func(n Node) bool { return n.GPUs+n.VFs > 0 }):
		return DriverLibvirt
	}
	return DriverQEMU
}

// NodeNames returns the names of all nodes.
func (l *Lab) NodeNames() []string { return lists.Map(l.Nodes, func(n Node) string { return n.Name }) }

// HostNames are the lines of /etc/hosts of every node. The first NIC of a node has its name, the
// others are NODE-NIC. NICs without an address have no name.
func (l *Lab) HostNames() []string {
	var lines []string
	for _, n := range l.Nodes {
		for i, nic := range n.NICs {
			name := n.Name
			if i > 0 {
				name += "-" + nic.Name
			}
			if nic.Addr.IsValid() {
				lines = append(lines, nic.Addr.Addr().String()+" "+name)
			}
		}
	}
	return lines
}

// Totals says how many CPUs and how much memory a lab has, as far as the file says it. Nodes that leave their size to
// the planner are not counted: what it chooses follows from the host.
func (l *Lab) Totals() (cpus, memory string) {
	const auto = " and what plan chooses"
	var n int
	var b Bytes
	unit, moreCPUs, moreMemory := "CPUs", "", ""
	for _, node := range l.Nodes {
		if node.AutoCPUs {
			moreCPUs = auto
		} else {
			n += node.CPUs
		}
		if node.AutoMemory {
			moreMemory = auto
		} else {
			b += node.Memory
		}
	}
	if n == 1 {
		unit = "CPU"
	}
	return fmt.Sprintf("%d %s%s", n, unit, moreCPUs), fmt.Sprintf("%v memory%s", b, moreMemory)
}

// VMName returns the name of a node's virtual machine on a host, under libvirt and in vSphere: "pair.vm00". Names of
// labs and nodes have no dot.
func VMName(labName, node string) string { return labName + "." + node }
