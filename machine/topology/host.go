package topology

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Schema names the JSON form of a Host. Keys are added, never changed in meaning or removed.
const Schema = "rackless/host/v1"

// A Host is one machine. Lists are in the order that the doc comment of each gives, so that the
// same machine gives the same bytes.
type Host struct {
	Provenance Provenance  `json:"provenance"`
	System     System      `json:"system,omitzero"`
	Packages   []Package   `json:"packages,omitempty"`   // by ID
	NUMANodes  []NUMANode  `json:"numa_nodes,omitempty"` // by ID
	L3         []L3        `json:"l3,omitempty"`         // by ID
	Cores      []Core      `json:"cores,omitempty"`      // by ID
	CPUs       CPUStates   `json:"cpus,omitzero"`
	Memory     Memory      `json:"memory,omitzero"`
	Kernel     Kernel      `json:"kernel,omitzero"`
	PCI        []PCIDevice `json:"pci,omitempty"` // by address
	IOMMU      IOMMU       `json:"iommu,omitzero"`
	GPUs       []GPU       `json:"gpus,omitempty"` // by address, else by name as its source ordered them
	NICs       []NIC       `json:"nics,omitempty"` // by address, else by name as its source ordered them
	Bonds      []Bond      `json:"bonds,omitempty"`
	// Switches are those of a hypervisor, by name.
	Switches []VirtualSwitch `json:"virtual_switches,omitempty"`
	Storage  []Disk          `json:"storage,omitempty"` // by name
	Routes   []Route         `json:"default_routes,omitempty"`
	IRQs     []IRQ           `json:"irqs,omitempty"` // those that matter: of isolated CPUs and of RDMA NICs; by number
	Tenants  []Tenant        `json:"tenants,omitempty"`

	// Reported are paths that a tool stated (nvidia-smi topo -m) and that the PCI tree, where there
	// is one, need not show: NVLink, or a machine known by its matrix alone. Host.Path prefers
	// them.
	Reported []Path `json:"reported_paths,omitempty"`

	// Unread lists what was there and could not be read or understood. What is missing altogether is not listed.
	Unread []Unread `json:"unread,omitempty"`
	// Contradictions are facts that the sources of the host tell differently. The host has the first value of each.
	Contradictions []Contradiction `json:"contradictions,omitempty"`
	// Inferred are facts that no source states and that follow from others: which function a name stands for.
	Inferred []string `json:"inferred,omitempty"`
}

// A Contradiction is a fact that two sources of a host tell differently.
type Contradiction struct {
	Fact   string `json:"fact"`   // "numa_nodes[1].cpus"
	Value  string `json:"value"`  // the one that the host has
	Source string `json:"source"` // which says so: "lscpu (cpus.txt)"
	Other  string `json:"other"`
	By     string `json:"by"` // who says the other
}

// Kinds of sources of a Host.
const (
	SourceLive = "live" // the machine that runs rackless
	// a directory or archive with /sys and /proc of a machine: a snapshot, hwloc-gather-topology,
	// ghw
	SourceTree      = "tree"
	SourceHwloc     = "hwloc-xml"  // hwloc's XML, version 1 or 2
	SourceNCCL      = "nccl-xml"   // NCCL's or RCCL's topology dump
	SourceTopo      = "nvidia-smi" // the text of nvidia-smi topo -m
	SourceLspci     = "lspci"      // the text of lspci -vvnn or lspci -tv
	SourceTexts     = "texts"      // texts of tools that tell a part each: lscpu, ibstat, lspci, ...
	SourceVSphere   = "vsphere"    // vCenter's or ESXi's account of a host, live or from govc object.save
	SourceSynthetic = "synthetic"  // made from a description; no such machine was read
)

// Provenance is where a Host comes from. Only the machine that a host was read from may be changed by a plan for it.
type Provenance struct {
	Kind       string `json:"kind"`           // a Source constant
	Name       string `json:"name,omitempty"` // file, or what the snapshot calls itself
	ThisSystem bool   `json:"this_system"`    // read live from the machine that runs rackless
	Tool       string `json:"tool,omitempty"` // what wrote the dump, with its version: "hwloc 2.9.0"
	// Emulated is set where the machine is known to be a virtual one with emulated devices.
	Emulated bool `json:"emulated,omitempty"`
	// Filled names the parts of the model that the source could fill, as Parts does.
	Filled []string `json:"filled,omitempty"`
}

// An Unread is a fact that was there and could not be had.
type Unread struct {
	Path string `json:"path"` // file below the root, or the command
	Why  string `json:"why"`
}

// System is the machine as a whole.
type System struct {
	Vendor   string `json:"vendor,omitempty"`    // DMI sys_vendor
	Product  string `json:"product,omitempty"`   // DMI product_name
	Board    string `json:"board,omitempty"`     // DMI board_name
	BIOS     string `json:"bios,omitempty"`      // DMI bios_version and bios_date
	Arch     string `json:"arch,omitempty"`      // as uname -m prints it
	CPUModel string `json:"cpu_model,omitempty"` // of the first CPU
	// "kvm", "vmware", ...; empty on bare metal and where it is not known
	Hypervisor string `json:"hypervisor,omitempty"`
	InVM       *bool  `json:"in_vm,omitempty"` // the CPU's hypervisor flag
	// RDMACore is the version of rdma-core whose library programs load ("44.0"); empty where it is not known.
	RDMACore string `json:"rdma_core,omitempty"`
}

// IsVirtual reports whether the machine is a virtual one. Any sign will do: to be silent about a real machine's links
// costs less than findings on an emulator's.
func (h *Host) IsVirtual() bool {
	return h.System.InVM != nil && *h.System.InVM || h.System.Hypervisor != "" || h.Provenance.Emulated
}

// A Package is what sits in a socket.
type Package struct {
	// ID is the physical_package_id of the kernel (hwloc: P#). Where the kernel gives none, or the
	// same to two packages, it is a free number.
	ID    int    `json:"id"`
	CPUs  CPUSet `json:"cpus,omitzero"`
	Model string `json:"model,omitempty"`
	Dies  []Die  `json:"dies,omitempty"` // by ID; only where the kernel tells them apart
}

// A Die is a piece of silicon inside a package, where the kernel names it.
type Die struct {
	ID   int    `json:"id"` // die_id; unique inside its package
	CPUs CPUSet `json:"cpus"`
}

// A NUMANode is a memory node, with the CPUs closest to it, if any.
type NUMANode struct {
	ID   int    `json:"id"`   // the kernel's number; numbers may have gaps
	CPUs CPUSet `json:"cpus"` // online CPUs; empty where the node has none
	// MemoryBytes is MemTotal of the node. 0 is a node without memory.
	MemoryBytes *uint64 `json:"memory_bytes,omitempty"`
	FreeBytes   *uint64 `json:"free_bytes,omitempty"`
	// Distances is the SLIT row: relative cost from this node to each node, in the order of
	// Host.NUMANodes; 10 is local.
	Distances []int          `json:"distances,omitempty"`
	Hugepages []HugepagePool `json:"hugepages,omitempty"` // by size
	// Kind is "dram", "hbm", "cxl", "nvdimm" or "gpu" where it is known or can be told; empty otherwise.
	Kind string `json:"kind,omitempty"`
	// MemoryMode is how the source said a special memory is used, such as "cache".
	MemoryMode string `json:"memory_mode,omitempty"`
	// GPU is the device whose own memory this is.
	GPU *PCIAddr `json:"gpu,omitempty"`
}

// UnmarshalJSON refuses a number that no CPUSet, which holds nodes as well, can hold.
func (n *NUMANode) UnmarshalJSON(text []byte) error {
	type plain NUMANode
	if err := json.Unmarshal(text, (*plain)(n)); err != nil {
		return err
	}
	return bounded("id of a NUMA node", n.ID, MaxCPUs-1)
}

// A HugepagePool is the hugepages of one size, of a node or of the whole machine. Counts are in pages.
type HugepagePool struct {
	SizeBytes uint64  `json:"size_bytes"`
	Total     uint64  `json:"total"`
	Free      *uint64 `json:"free,omitempty"`
	// promised and not yet taken; the kernel counts it for the machine, not per node
	Reserved *uint64 `json:"reserved,omitempty"`
	Surplus  *uint64 `json:"surplus,omitempty"`
}

// An L3 is a level-3 cache and the CPUs that share it (on AMD a core complex).
type L3 struct {
	ID        int     `json:"id"` // 0, 1, ... by lowest CPU
	CPUs      CPUSet  `json:"cpus"`
	SizeBytes *uint64 `json:"size_bytes,omitempty"`
}

// Kinds of cores of hybrid machines.
const (
	KindPerformance = "performance"
	KindEfficiency  = "efficiency"
)

// A Core is a physical core. Only cores with at least one online CPU are listed.
type Core struct {
	ID       int    `json:"id"`              // 0, 1, ... by lowest CPU (hwloc: L# where objects are not reordered)
	OSID     *int   `json:"os_id,omitempty"` // core_id of the kernel: unique inside a package at best
	Package  *int   `json:"package,omitempty"`
	Die      *int   `json:"die,omitempty"`
	NUMANode *int   `json:"numa_node,omitempty"`
	L3       *int   `json:"l3,omitempty"` // ID of Host.L3
	CPUs     CPUSet `json:"cpus"`         // its online threads
	Kind     string `json:"kind,omitempty"`
	MaxKHz   *int64 `json:"max_khz,omitempty"`
	Governor string `json:"governor,omitempty"` // scaling_governor of its first CPU
}

// CPUStates are sets of CPUs by what the kernel does with them. A nil pointer is a set that the kernel did not tell.
type CPUStates struct {
	Present  *CPUSet `json:"present,omitempty"`
	Online   CPUSet  `json:"online,omitzero"`
	Offline  *CPUSet `json:"offline,omitempty"`
	Isolated *CPUSet `json:"isolated,omitempty"`  // /sys/devices/system/cpu/isolated
	NoHzFull *CPUSet `json:"nohz_full,omitempty"` // /sys/devices/system/cpu/nohz_full
	SMT      string  `json:"smt,omitempty"`       // smt/control: on, off, forceoff, notsupported, notimplemented
}

// Memory is the memory of the whole machine.
type Memory struct {
	TotalBytes     *uint64        `json:"total_bytes,omitempty"`     // MemTotal: what the kernel manages
	AvailableBytes *uint64        `json:"available_bytes,omitempty"` // MemAvailable
	Hugepages      []HugepagePool `json:"hugepages,omitempty"`       // of the machine, by size
	DefaultHuge    *uint64        `json:"default_hugepage_bytes,omitempty"`
	Swap           []Swap         `json:"swap,omitempty"` // in use, as /proc/swaps lists them
	SwapKnown      bool           `json:"swap_known,omitempty"`
	// /proc/sys/kernel/numa_balancing: "0", "1", "2" (memory tiering)
	NUMABalancing string `json:"numa_balancing,omitempty"`
	THP           string `json:"thp,omitempty"` // always, madvise or never
	KSM           string `json:"ksm,omitempty"` // /sys/kernel/mm/ksm/run: "0" or "1"
}

// A Swap is a swap area in use.
type Swap struct {
	Path      string `json:"path"`
	SizeBytes uint64 `json:"size_bytes"`
	UsedBytes uint64 `json:"used_bytes"`
}

// Kernel is what runs, what it was asked for on its command line, and what came of it.
type Kernel struct {
	Release string  `json:"release,omitempty"`
	Cmdline *string `json:"cmdline,omitempty"` // /proc/cmdline without its newline
	// Asked lists parameters that matter here, in the order of the command line, with what is in force.
	Asked []KernelParameter `json:"asked,omitempty"`
	// loaded ones that matter here (vfio, nvidia, mlx5, peer memory, ...), sorted
	Modules []string `json:"modules,omitempty"`
	// ModulesKnown is set where the list of modules could be read, so that a module not listed is not loaded.
	ModulesKnown bool `json:"modules_known,omitempty"`
}

// PeerMemory returns the loaded module that lets RDMA devices register memory of NVIDIA's GPUs, or "". nv_peer_mem is
// that of before 2021, from outside of the driver.
func (k *Kernel) PeerMemory() string {
	for _, m := range k.Modules {
		switch strings.ReplaceAll(m, "-", "_") {
		case "nvidia_peermem", "nv_peer_mem":
			return m
		}
	}
	return ""
}

// A KernelParameter is one parameter as it was asked for, and what the kernel says is in force.
type KernelParameter struct {
	Name    string  `json:"name"` // "isolcpus"
	Asked   string  `json:"asked"`
	InForce *string `json:"in_force,omitempty"`
	Source  string  `json:"source,omitempty"` // the file that InForce was read from
}

// An IRQ is an interrupt and where it may be served.
type IRQ struct {
	Number int     `json:"number"`
	CPUs   CPUSet  `json:"cpus"`             // effective_affinity_list, else smp_affinity_list
	Count  *uint64 `json:"count,omitempty"`  // served since boot, on all CPUs
	Device string  `json:"device,omitempty"` // the actions of /proc/irq/N, or PCI address of the function that owns it
}

// A Disk is a block device, or what is mounted from one.
type Disk struct {
	Name      string   `json:"name"` // nvme0n1
	PCI       *PCIAddr `json:"pci,omitempty"`
	NUMANode  *int     `json:"numa_node,omitempty"`
	SizeBytes *uint64  `json:"size_bytes,omitempty"`
	Model     string   `json:"model,omitempty"`
	// Mounts are where its file systems are, through partitions, RAID, LVM and encryption: "/",
	// "/boot", "[SWAP]". A disk with mounts is one that the host needs.
	Mounts []string `json:"mounts,omitempty"`
}

// A Route is a default route of the main table.
type Route struct {
	Family  string `json:"family"` // "ipv4" or "ipv6"
	Netdev  string `json:"netdev"`
	Gateway string `json:"gateway,omitempty"`
	Metric  *int   `json:"metric,omitempty"`
	// addresses of the functions behind Netdev, through bridges, bonds and VLANs
	PCI []string `json:"pci,omitempty"`
}

// A Tenant is a virtual machine that is there already, with what it holds.
type Tenant struct {
	Name  string `json:"name"`
	UUID  string `json:"uuid,omitempty"`
	State string `json:"state,omitempty"` // libvirt's word: running, shut off
	VCPUs int    `json:"vcpus,omitempty"`
	// Pins are the CPUs that each virtual CPU may run on; a CPU not listed floats over Floating.
	Pins []Pin `json:"pins,omitempty"`
	// Absent are the virtual CPUs that the machine starts without. They can be plugged in later.
	Absent       *CPUSet `json:"absent_vcpus,omitempty"`
	EmulatorCPUs *CPUSet `json:"emulator_cpus,omitempty"`
	IOThreadCPUs *CPUSet `json:"iothread_cpus,omitempty"` // of all I/O threads that are pinned
	// FreeIOThreads is the number of I/O threads that are not pinned.
	FreeIOThreads int     `json:"unpinned_iothreads,omitempty"`
	Floating      *CPUSet `json:"floating_cpus,omitempty"` // cpuset of <vcpu>; nil: all
	MemoryBytes   *uint64 `json:"memory_bytes,omitempty"`
	// page size that backs it; 0 the host's default; nil: none
	Hugepages *uint64 `json:"hugepage_bytes,omitempty"`
	// PagesAtStart is set where the start of the machine sets its hugepages aside, as that of Proxmox VE does.
	PagesAtStart bool           `json:"hugepages_at_start,omitempty"`
	MemoryNodes  *CPUSet        `json:"memory_nodes,omitempty"` // numatune nodeset
	MemoryMode   string         `json:"memory_mode,omitempty"`  // numatune mode: strict, preferred, interleave
	Devices      []TenantDevice `json:"devices,omitempty"`
	// What the guest sees: threads of a core, NUMA nodes, and switches of PCI Express.
	GuestThreads  int  `json:"guest_threads,omitempty"`
	GuestNodes    *int `json:"guest_numa_nodes,omitempty"`
	GuestSwitches *int `json:"guest_switches,omitempty"`
	// GuestExpanders is the number of buses that tell the guest the NUMA node of the devices on them.
	GuestExpanders *int `json:"guest_expanders,omitempty"`
	// Cells are the NUMA nodes that the guest sees, where they are described one by one.
	Cells []TenantCell `json:"guest_cells,omitempty"`
}

// A TenantCell is a NUMA node that a guest sees. What is not known of it is nil.
type TenantCell struct {
	VCPUs       CPUSet  `json:"vcpus"`
	MemoryBytes *uint64 `json:"memory_bytes,omitempty"`
	Hugepages   *uint64 `json:"hugepage_bytes,omitempty"` // as that of Tenant
	MemoryNodes *CPUSet `json:"memory_nodes,omitempty"`   // of the host, which hold its memory
	MemoryMode  string  `json:"memory_mode,omitempty"`
}

// Pinned returns all CPUs that virtual CPUs of the tenant are pinned to.
func (t *Tenant) Pinned() CPUSet {
	return UnionOf(t.Pins, func(p Pin) CPUSet { return p.CPUs })
}

// UnmarshalJSON refuses virtual CPUs that no CPUSet can hold.
func (t *Tenant) UnmarshalJSON(text []byte) error {
	type plain Tenant
	if err := json.Unmarshal(text, (*plain)(t)); err != nil {
		return err
	}
	errs := []error{bounded("vcpus of tenant "+strconv.Quote(t.Name), t.VCPUs, MaxCPUs)}
	for _, p := range t.Pins {
		errs = append(errs, bounded("a vcpu among the pins of tenant "+strconv.Quote(t.Name), p.VCPU, MaxCPUs-1))
	}
	return errors.Join(errs...)
}

// A Pin is where one virtual CPU may run.
type Pin struct {
	VCPU int    `json:"vcpu"`
	CPUs CPUSet `json:"cpus"`
}

// A TenantDevice is a host device that a tenant holds.
type TenantDevice struct {
	PCI     PCIAddr `json:"pci"`
	Managed bool    `json:"managed"` // libvirt binds and unbinds it
	// It is one of the virtual functions of PCI, and which is not told.
	Virtual bool `json:"virtual,omitempty"`
	// Whole is set where all functions of the device go with PCI.
	Whole bool `json:"whole,omitempty"`
}
