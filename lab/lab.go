// Package lab reads the lab file: a short YAML document that describes the nodes of a lab. The package is pure: the
// same bytes always give the same [Lab], down to the MAC addresses.
package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// The limits of the lab file. The JSON schema uses the same constants.
const (
	MaxFileSize = 1 << 20 // bytes; 500 nodes with every key written out take about 50 KiB
	MaxNodes    = 500     // more TCG guests than one large host can run
	MaxName     = 20      // characters; unix socket paths have at most 107 bytes

	// The upper limits only catch typing errors: drivers have lower ones (rack/emulated.Supported). MaxNICs limits the
	// sum of a node's NICs and virtual functions.
	MinCPUs, MaxCPUs = 1, 4096
	MinNICs, MaxNICs = 0, 16
	MinGPUs, MaxGPUs = 0, 64

	// MaxNUMANode: the largest kernels are built for 1024 (CONFIG_NODES_SHIFT 10).
	MaxNUMANode = 1023
	// MaxRateMbps is for selectors: 10 Tb/s.
	MaxRateMbps = 10_000_000

	// MinMemory is enough to boot the built-in image, which exists twice (2 x 70 MB) while it unpacks itself.
	MinMemory = 256 * MiB
	// MaxMemory only catches wrong units.
	MaxMemory = 16 * TiB

	// MinMTU is the smallest that IPv6 allows (RFC 8200, section 5).
	MinMTU = 1280
	// MaxMTU is the largest that most NICs support.
	MaxMTU = 9216

	// MinPrefix and MaxPrefix limit the fabric's subnet: from a whole /8 to the two addresses of a /30.
	MinPrefix, MaxPrefix = 8, 30
)

// The defaults of [Parse].
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

	// DefaultMTU is the smallest round value that lets RoCE use its largest payload: 4096 bytes with the headers that
	// the kernel reserves (see roceHeaders) need 4192. The usual 1500 leaves only 1024, and 9000 makes every receive
	// buffer larger.
	DefaultMTU = 4200
)

// A Lab is a complete, valid lab file, as returned by [Parse].
//
// Its JSON form is stable. Two labs can be compared with reflect.DeepEqual, or with cmp and
// cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}).
type Lab struct {
	Name     string   `json:"name"`
	Driver   Driver   `json:"driver"`
	Workload Workload `json:"workload"`
	Fabric   Fabric   `json:"fabric"`
	Nodes    []Node   `json:"nodes"` // counts expanded; never empty
	Slurm    *Slurm   `json:"slurm,omitempty"`
	VSphere  *VSphere `json:"vsphere,omitempty"` // for driver vsphere
	// Arch is "" for that of the machine that runs the nodes.
	Arch Arch `json:"arch,omitempty"`
	// Home is HomeShared, or "" for HomeOwn.
	Home Home `json:"home,omitempty"`

	// For nodes on a real host.

	Reserve   Reserve    `json:"reserve,omitzero"`   // host.reserve in the file
	Hugepages Hugepages  `json:"hugepages"`          // of all nodes
	Tenants   string     `json:"tenants"`            // TenantsRead, TenantsIgnore, or the path of a file
	Affinity  []Affinity `json:"affinity,omitempty"` // in the order of the file
	Links     [][]string `json:"links,omitempty"`    // host's ports that reach each other, by address or name
}

// A Reserve is the part of a host that nodes do not get. The planner chooses absent parts.
type Reserve struct {
	Cores  *int   `json:"cores,omitempty"`  // at least 1
	Memory *Bytes `json:"memory,omitempty"` // spread over NUMA nodes in proportion to their size
	// cores count towards Cores and memory replaces the node's share of Memory
	NUMA []NUMAReserve `json:"numa_nodes,omitempty"`
}

// A NUMAReserve is of one NUMA node.
type NUMAReserve struct {
	Node   int    `json:"node"`
	Cores  int    `json:"cores,omitempty"`
	Memory *Bytes `json:"memory,omitempty"`
}

// Hugepages is the size of pages of the nodes' memory.
type Hugepages string

// The sizes of pages.
const (
	HugepagesAuto Hugepages = "auto" // 1 GiB if all memory is whole GiB and the host supports it, else 2 MiB
	Hugepages1GiB Hugepages = "1GiB"
	Hugepages2MiB Hugepages = "2MiB"
	HugepagesOff  Hugepages = "off"
)

// Any other value of Lab.Tenants is the path of a file.
const (
	TenantsRead   = "read"   // read them from the host
	TenantsIgnore = "ignore" // plan as if there were no other VMs
)

func pageSizes() []Hugepages {
	return []Hugepages{HugepagesAuto, Hugepages1GiB, Hugepages2MiB, HugepagesOff}
}

// Arch is named as in Debian, Go and Kubernetes.
type Arch string

// The architectures of nodes.
const (
	ArchAMD64 Arch = "amd64"
	ArchARM64 Arch = "arm64"
)

func arches() []Arch { return []Arch{ArchAMD64, ArchARM64} }

// Home is the place of /home of nodes with a disk.
type Home string

// The places of /home.
const (
	HomeOwn    Home = "own"
	HomeShared Home = "shared" // one directory, removed with the lab
)

func homes() []Home { return []Home{HomeOwn, HomeShared} }

// HomeOf returns the place of /home of a node.
func (l *Lab) HomeOf(n Node) Home {
	if l.Home == HomeShared && n.HasDisk() {
		return HomeShared
	}
	return HomeOwn
}

// A Setting may be left to the planner.
type Setting string

// The settings.
const (
	Auto Setting = "auto"
	On   Setting = "on"
	Off  Setting = "off"
)

func choices() []Setting { return []Setting{Auto, On, Off} }

// An Affinity ties nodes together or keeps them apart, pair by pair.
type Affinity struct {
	Nodes []string     `json:"nodes"`          // at least two
	NUMA  Togetherness `json:"numa,omitempty"` // on the same NUMA nodes, or on none in common
	NIC   Togetherness `json:"nic,omitempty"`  // on the same NIC ports, or on none in common
}

// Togetherness may be "": neither.
type Togetherness string

// Values of Togetherness.
const (
	Same      Togetherness = "same"
	Different Togetherness = "different"
)

func affinityValues() []Togetherness { return []Togetherness{Same, Different} }

// A DeviceRequest has empty fields that match any device.
type DeviceRequest struct {
	Count int `json:"count"` // at least 1; 1 if Address is set
	// PCI address (0000:41:00.0) or the name in the description of the host (NIC0)
	Address  string `json:"address,omitempty"`
	Vendor   string `json:"vendor,omitempty"`    // part of the name, in any case, or its number (0x10de)
	Model    string `json:"model,omitempty"`     // part of the name, in any case
	NUMANode *int   `json:"numa_node,omitempty"` // NUMA node of the device
	RateMbps int64  `json:"rate_mbps,omitempty"` // minimum, for NICs and VFs

	// For emulated GPUs. Memory is a power of two.
	Memory Bytes   `json:"memory,omitempty"` // 0 means that of the model
	Beside string  `json:"beside,omitempty"` // the node's NIC to which Path leads; empty means its first
	Path   GPUPath `json:"path,omitempty"`   // empty means GPUPathPIX
	// Personality decides which driver of the node takes them; empty means PersonalityVirtio.
	Personality GPUPersonality `json:"personality,omitempty"`
}

// ForEmulated returns the first key that only emulated GPUs have, or "".
func (r DeviceRequest) ForEmulated() string {
	switch {
	case r.Memory > 0:
		return "memory"
	case r.Beside != "":
		return "beside"
	case r.Path != "":
		return "path"
	case r.Personality != "":
		return "personality"
	}
	return ""
}

// A GPUPath is between an emulated GPU and a NIC, by the names of nvidia-smi topo -m.
type GPUPath string

// Values of GPUPath.
const (
	GPUPathPIX GPUPath = "pix" // behind one PCIe switch
	GPUPathPXB GPUPath = "pxb" // behind a second switch behind the switch of the NIC
	GPUPathPHB GPUPath = "phb" // through the host bridge
	// through another host bridge of the same NUMA node
	GPUPathNode GPUPath = "node"
	GPUPathSYS  GPUPath = "sys" // through another NUMA node
)

func gpuPaths() []GPUPath {
	return []GPUPath{GPUPathPIX, GPUPathPXB, GPUPathPHB, GPUPathNode, GPUPathSYS}
}

// Limits for an emulated GPU.
const MinGPUMemory, MaxGPUMemory = 16 * MiB, 64 * GiB

// A Fabric is the network between the nodes.
type Fabric struct {
	MTU    int          `json:"mtu"`    // as in "ip link set mtu"
	Subnet netip.Prefix `json:"subnet"` // of first NICs; the next subnets are for the others

	// Of several switches in an emulated lab; Topology is "" for one.
	Topology FabricTopology `json:"topology,omitempty"`
	Leaves   int            `json:"leaves,omitempty"`
	Spines   int            `json:"spines,omitempty"`
	// RateMbps is of each link between switches; 0 means that of the fastest NIC, or no limit if none has a rate.
	RateMbps int64 `json:"rate_mbps,omitempty"`
}

// RDMAPayload is in bytes: the "active_mtu" of the nodes.
func (f Fabric) RDMAPayload() int { return rdmaPayload(f.MTU) }

// A Node is one machine of the lab.
type Node struct {
	Name string `json:"name"`
	// Profile is of an emulated node, or "". It decides the requests below.
	Profile ProfileName `json:"profile,omitempty"`

	CPUs   int    `json:"cpus"`   // virtual CPUs
	Memory Bytes  `json:"memory"` // whole MiB
	Image  string `json:"image"`  // DefaultImage, the name of a full node's image, or the path of a disk image
	NICs   []NIC  `json:"nics"`   // whole ones first, then virtual functions
	GPUs   int    `json:"gpus"`   // GPUs passed through, or emulated
	// never NICAuto in a running lab; labs recorded before the field existed have virtio
	NIC   NICModel `json:"nic,omitempty"`
	Setup []Step   `json:"setup,omitempty"` // run in this order once the node is up
	Leaf  *int     `json:"leaf,omitempty"`  // with a topology of the fabric

	// For nodes on a real host.

	AutoCPUs   bool    `json:"auto_cpus,omitempty"`   // by the planner; an emulated node gets CPUs
	AutoMemory bool    `json:"auto_memory,omitempty"` // likewise for Memory
	SMT        Setting `json:"smt"`                   // two virtual CPUs share a core
	GuestNUMA  Setting `json:"guest_numa"`
	VFs        int     `json:"vfs,omitempty"` // the last ones of NICs

	// Their counts add up to GPUs, to len(NICs)-VFs and to VFs.
	GPURequests []DeviceRequest `json:"gpu_requests,omitempty"`
	NICRequests []DeviceRequest `json:"nic_requests,omitempty"`
	VFRequests  []DeviceRequest `json:"vf_requests,omitempty"`
}

// ShownNUMA resolves auto. According to published figures, STREAM gains from visible NUMA nodes, NCCL loses on some
// hosts, and GPU kernels do not care. So auto hides them from nodes with GPUs, unless memory or RDMA bandwidth is
// measured.
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

// A NICModel is of an emulated NIC.
type NICModel string

// The models of emulated NICs.
const (
	// NICAuto is resolved when the node comes up: a ConnectX-4 Lx if a QEMU that emulates it is available, else virtio.
	NICAuto        NICModel = "auto"
	NICConnectX4Lx NICModel = "connectx-4-lx" // driven by the node's mlx5 driver
	NICConnectX5   NICModel = "connectx-5"
	NICConnectX6   NICModel = "connectx-6"
	NICConnectX7   NICModel = "connectx-7"
	NICVirtio      NICModel = "virtio" // the node's kernel implements RDMA in software (rxe)
)

func nicModels() []NICModel {
	return []NICModel{NICAuto, NICConnectX4Lx, NICConnectX5, NICConnectX6, NICConnectX7, NICVirtio}
}

// Title returns the model's usual name.
func (m NICModel) Title() string {
	return cmp.Or(map[NICModel]string{NICConnectX4Lx: "ConnectX-4 Lx", NICConnectX5: "ConnectX-5",
		NICConnectX6: "ConnectX-6", NICConnectX7: "ConnectX-7"}[m], string(m))
}

// ConnectX reports whether the NICs are emulated ConnectX adapters.
func (n Node) ConnectX() bool { return strings.HasPrefix(string(n.NIC), "connectx-") }

// A Driver makes the nodes.
type Driver string

// The drivers.
const (
	DriverAuto    Driver = "auto"    // by the machine's abilities
	DriverQEMU    Driver = "qemu"    // no daemon, no root
	DriverLibvirt Driver = "libvirt" // visible in virsh and virt-manager; needed for passthrough
	DriverVSphere Driver = "vsphere" // through a vCenter or the ESXi host itself
)

func drivers() []Driver { return []Driver{DriverAuto, DriverQEMU, DriverLibvirt, DriverVSphere} }

// A Workload weights placement and advice.
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

// Workloads has the order of messages and of the schema.
func Workloads() []Workload {
	return []Workload{WorkloadRDMALatency, WorkloadRDMABandwidth, WorkloadGPUCompute, WorkloadGPUCollective,
		WorkloadCPUBandwidth, WorkloadMixed}
}

// roceHeaders is the number of bytes that Linux subtracts from an Ethernet MTU to find the RDMA payload: GRH 40, UDP 8,
// BTH 12, XRC 4, atomic 28 and ICRC 4 (iboe_get_mtu in include/rdma/ib_addr.h). The rxe driver subtracts only 80
// (RXE_MAX_HDR_LENGTH); the larger figure is safe for hardware and for rxe.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// rdmaPayload returns a power of two from 256 to 4096 bytes (InfiniBand specification, volume 1, PMTU), or 0 if none
// fits.
func rdmaPayload(mtu int) int {
	for payload := 4096; payload >= 256; payload /= 2 {
		if payload+roceHeaders <= mtu {
			return payload
		}
	}
	return 0
}

// HasGPUs is true if any node has a GPU.
func (l *Lab) HasGPUs() bool {
	return slices.ContainsFunc(l.Nodes, func(n Node) bool { return n.GPUs > 0 })
}

// EmulatesGPUs reports whether the node's GPUs can only be emulated ones.
func (n Node) EmulatesGPUs() bool {
	return n.Has("gpu") || n.Has(setVFIO) ||
		slices.ContainsFunc(n.GPURequests, func(r DeviceRequest) bool { return r.ForEmulated() != "" })
}

// RunBy resolves "auto" to libvirt if the lab asks for GPUs or virtual functions, because an emulated device is no
// substitute for them, and to qemu otherwise. The image set gpu and its keys say that emulated GPUs are wanted.
func (l *Lab) RunBy() Driver {
	switch {
	case l.Driver != DriverAuto && l.Driver != "":
		return l.Driver
	case slices.ContainsFunc(l.Nodes, func(n Node) bool { return n.GPUs > 0 && !n.EmulatesGPUs() || n.VFs > 0 }):
		return DriverLibvirt
	}
	return DriverQEMU
}

// NodeNames are in the order of the lab.
func (l *Lab) NodeNames() []string { return lists.Map(l.Nodes, func(n Node) string { return n.Name }) }

// HostNames returns the lines of /etc/hosts. A node's first NIC has the node's name, the others NODE-NIC; NICs without
// an address have no line.
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

// Totals does not count nodes that leave their size to the planner.
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

// VMName returns "pair.vm00". Names of labs and nodes have no dot.
func VMName(labName, node string) string { return labName + "." + node }
