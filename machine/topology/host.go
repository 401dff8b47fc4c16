package topology

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Schema identifies the JSON form of a Host. Keys may be added, but never removed or redefined.
const Schema = "rackless/host/v1"

// A Host is one machine. The comment of each list gives its order, so that the same machine gives the same bytes.
type Host struct {
	Provenance Provenance `json:"provenance"`
	System     System     `json:"system,omitzero"`
	Packages   []Package  `json:"packages,omitempty"`   // by ID
	NUMANodes  []NUMANode `json:"numa_nodes,omitempty"` // by ID
	// NodeCount is the number of NUMA nodes that the source counts, if it lists fewer.
	NodeCount *int        `json:"numa_node_count,omitempty"`
	L3        []L3        `json:"l3,omitempty"`    // by ID
	Cores     []Core      `json:"cores,omitempty"` // by ID
	CPUs      CPUStates   `json:"cpus,omitzero"`
	Memory    Memory      `json:"memory,omitzero"`
	Kernel    Kernel      `json:"kernel,omitzero"`
	PCI       []PCIDevice `json:"pci,omitempty"` // by address
	IOMMU     IOMMU       `json:"iommu,omitzero"`
	GPUs      []GPU       `json:"gpus,omitempty"` // by address, then the others in the source's order
	NICs      []NIC       `json:"nics,omitempty"` // by address, then the others in the source's order
	Bonds     []Bond      `json:"bonds,omitempty"`
	// Switches are a hypervisor's virtual switches, by name.
	Switches []VirtualSwitch `json:"virtual_switches,omitempty"`
	Storage  []Disk          `json:"storage,omitempty"` // by name
	// Routes is nil if no routing table was read.
	Routes  []Route  `json:"default_routes,omitempty"`
	IRQs    []IRQ    `json:"irqs,omitempty"` // of isolated CPUs and RDMA NICs only; by number
	Tenants []Tenant `json:"tenants,omitempty"`

	// Reported are paths stated by a tool (nvidia-smi topo -m), which the PCI tree may not show: NVLinks, or a
	// machine known only by its matrix. Host.Path prefers them.
	Reported []Path `json:"reported_paths,omitempty"`

	// Unread lists facts that exist but could not be read or understood. Missing files are not listed.
	Unread []Unread `json:"unread,omitempty"`
	// Contradictions are facts on which the host's sources disagree. The host has the first value of each.
	Contradictions []Contradiction `json:"contradictions,omitempty"`
	// Inferred are facts that no source states but that follow from others, such as the function of a named device.
	Inferred []string `json:"inferred,omitempty"`
}

// A Contradiction is a fact on which two sources of a host disagree.
type Contradiction struct {
	Fact   string `json:"fact"`   // "numa_nodes[1].cpus"
	Value  string `json:"value"`  // the host's value
	Source string `json:"source"` // source of Value: "lscpu (cpus.txt)"
	Other  string `json:"other"`
	By     string `json:"by"` // source of the other value
}

// Kinds of sources of a Host.
const (
	SourceLive = "live" // the machine that runs rackless
	// a directory or archive with a machine's /sys and /proc: a snapshot, hwloc-gather-topology, ghw
	SourceTree      = "tree"
	SourceHwloc     = "hwloc-xml"  // hwloc's XML, version 1, 2 or 3
	SourceNCCL      = "nccl-xml"   // NCCL's or RCCL's topology dump
	SourceTopo      = "nvidia-smi" // the text of nvidia-smi topo -m
	SourceLspci     = "lspci"      // the text of lspci -vvnn or lspci -tv
	SourceTexts     = "texts"      // tools' texts about parts of a machine: lscpu, ibstat, lspci, ...
	SourceVSphere   = "vsphere"    // vCenter's or ESXi's description of a host, live or from govc object.save
	SourceSynthetic = "synthetic"  // made from a description, not from a machine
)

// Provenance is the source of a Host. A plan for a host may change only the machine that the host was read from.
type Provenance struct {
	Kind       string `json:"kind"`           // a Source constant
	Name       string `json:"name,omitempty"` // file, or the snapshot's own name
	ThisSystem bool   `json:"this_system"`    // read live from the machine that runs rackless
	Tool       string `json:"tool,omitempty"` // program that wrote the dump, with its version: "hwloc 2.9.0"
	// Emulated is set if the machine is known to be virtual with emulated devices.
	Emulated bool `json:"emulated,omitempty"`
	// Filled names the parts of the model that the source could fill, as Parts does.
	Filled []string `json:"filled,omitempty"`
}

// An Unread is a fact that exists but could not be read.
type Unread struct {
	Path string `json:"path"` // file below the root, or the command
	Why  string `json:"why"`
}

// System describes the machine as a whole.
type System struct {
	Vendor   string `json:"vendor,omitempty"`    // DMI sys_vendor
	Product  string `json:"product,omitempty"`   // DMI product_name
	Board    string `json:"board,omitempty"`     // DMI board_name
	BIOS     string `json:"bios,omitempty"`      // DMI bios_version and bios_date
	Arch     string `json:"arch,omitempty"`      // output of uname -m
	CPUModel string `json:"cpu_model,omitempty"` // of the first CPU
	// "kvm", "vmware", ...; empty on bare metal and if unknown
	Hypervisor string `json:"hypervisor,omitempty"`
	InVM       *bool  `json:"in_vm,omitempty"` // the CPU's hypervisor flag
	// RDMACore is the version of the rdma-core library that programs load ("44.0"), or empty if unknown.
	RDMACore string `json:"rdma_core,omitempty"`
}

// IsVirtual reports whether the machine is virtual. Any sign suffices, because omitted findings about a real
// machine's links cost less than false findings about an emulator's.
func (h *Host) IsVirtual() bool {
	return h.System.InVM != nil && *h.System.InVM || h.System.Hypervisor != "" || h.Provenance.Emulated
}

// HasIntelCPU reports whether the CPUs are known to be Intel's, by their model or a host bridge.
func (h *Host) HasIntelCPU() bool {
	model := h.System.CPUModel
	return strings.Contains(model, "Intel") || strings.Contains(model, "Xeon") ||
		slices.ContainsFunc(h.PCI, func(d PCIDevice) bool {
			return d.Class != nil && d.Class.Sub() == SubHostBridge && d.Vendor != nil && *d.Vendor == VendorIntel
		})
}

// A Package is the processor in a socket.
type Package struct {
	// ID is the kernel's physical_package_id (hwloc: P#). If the kernel gives none, or the same to two packages, it
	// is a free number.
	ID    int    `json:"id"`
	CPUs  CPUSet `json:"cpus,omitzero"`
	Model string `json:"model,omitempty"`
	Dies  []Die  `json:"dies,omitempty"` // by ID; only if the kernel distinguishes them
}

// A Die is a piece of silicon inside a package, if the kernel names it.
type Die struct {
	ID   int    `json:"id"` // die_id; unique only inside its package
	CPUs CPUSet `json:"cpus"`
}

// A NUMANode is a memory node, with the CPUs closest to it, if any.
type NUMANode struct {
	ID   int    `json:"id"`   // the kernel's number; may have gaps
	CPUs CPUSet `json:"cpus"` // online CPUs; may be empty
	// MemoryBytes is the node's MemTotal. 0 means a node without memory.
	MemoryBytes *uint64 `json:"memory_bytes,omitempty"`
	FreeBytes   *uint64 `json:"free_bytes,omitempty"`
	// Distances is the SLIT row: the relative cost from this node to each node, in the order of Host.NUMANodes; 10 is
	// local.
	Distances []int          `json:"distances,omitempty"`
	Hugepages []HugepagePool `json:"hugepages,omitempty"` // by size
	// Kind is "dram", "hbm", "cxl", "nvdimm" or "gpu", or empty if unknown.
	Kind string `json:"kind,omitempty"`
	// MemoryMode is the source's word for the use of special memory, such as "cache".
	MemoryMode string `json:"memory_mode,omitempty"`
	// GPU is the device that has this memory.
	GPU *PCIAddr `json:"gpu,omitempty"`
}

// UnmarshalJSON rejects an ID that a CPUSet, which also holds nodes, cannot contain.
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
	// reserved but not yet allocated; the kernel counts it for the machine, not per node
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
	ID       int    `json:"id"`              // 0, 1, ... by lowest CPU (hwloc: L# if objects are not reordered)
	OSID     *int   `json:"os_id,omitempty"` // the kernel's core_id: unique at most inside a package
	Package  *int   `json:"package,omitempty"`
	Die      *int   `json:"die,omitempty"`
	NUMANode *int   `json:"numa_node,omitempty"`
	L3       *int   `json:"l3,omitempty"` // ID of Host.L3
	CPUs     CPUSet `json:"cpus"`         // its online threads
	Kind     string `json:"kind,omitempty"`
	MaxKHz   *int64 `json:"max_khz,omitempty"`
	Governor string `json:"governor,omitempty"` // scaling_governor of its first CPU
}

// CPUStates are sets of CPUs by their treatment in the kernel. A nil pointer is an unknown set.
type CPUStates struct {
	Present *CPUSet `json:"present,omitempty"`
	Online  CPUSet  `json:"online,omitzero"`
	// Cut is set if a source of the CPUs has lost its end, so that there may be others than those it lists.
	Cut      bool    `json:"cut_off,omitempty"`
	Offline  *CPUSet `json:"offline,omitempty"`
	Isolated *CPUSet `json:"isolated,omitempty"`  // /sys/devices/system/cpu/isolated
	NoHzFull *CPUSet `json:"nohz_full,omitempty"` // /sys/devices/system/cpu/nohz_full
	SMT      string  `json:"smt,omitempty"`       // smt/control: on, off, forceoff, notsupported, notimplemented
}

// Untold reports whether the machine may have more CPUs than its sources list.
func (s *CPUStates) Untold() bool { return s.Cut && s.Online.IsEmpty() }

// Memory is the memory of the whole machine.
type Memory struct {
	TotalBytes     *uint64        `json:"total_bytes,omitempty"`     // MemTotal: memory managed by the kernel
	AvailableBytes *uint64        `json:"available_bytes,omitempty"` // MemAvailable
	Hugepages      []HugepagePool `json:"hugepages,omitempty"`       // of the machine, by size
	DefaultHuge    *uint64        `json:"default_hugepage_bytes,omitempty"`
	Swap           []Swap         `json:"swap,omitempty"` // in use, in the order of /proc/swaps
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

// Kernel is the running kernel, its requested parameters and their effective values.
type Kernel struct {
	Release string  `json:"release,omitempty"`
	Cmdline *string `json:"cmdline,omitempty"` // /proc/cmdline without its newline
	// Asked lists relevant parameters with their effective values, in the order of the command line.
	Asked []KernelParameter `json:"asked,omitempty"`
	// loaded modules that matter here (vfio, nvidia, mlx5, peer memory, ...), sorted
	Modules []string `json:"modules,omitempty"`
	// ModulesKnown is set if the list of modules could be read, so that an unlisted module is not loaded.
	ModulesKnown bool `json:"modules_known,omitempty"`
	// Messages are the messages of the kernel log that report faults, by their first line.
	Messages []KernelMessage `json:"messages,omitempty"`
}

// A KernelMessage is a message that reports a fault of a device or of a part of it, see package message.
type KernelMessage struct {
	Kind string `json:"kind"` // such as mlx5-command-timeout
	// Device is a PCI address or the kernel's name of the device, or empty if the message names none.
	Device string   `json:"device,omitempty"`
	Part   string   `json:"part,omitempty"`  // such as "BAR 1"
	Line   string   `json:"line"`            // the first one, without its stamp
	Count  int      `json:"count"`           // of lines
	Codes  []string `json:"codes,omitempty"` // numbers in the lines, such as those of Xids, in order
}

// PeerMemory returns the loaded module that lets RDMA devices register memory of NVIDIA's GPUs, or "". nv_peer_mem is
// the out-of-tree one from before 2021.
func (k *Kernel) PeerMemory() string {
	for _, m := range k.Modules {
		switch strings.ReplaceAll(m, "-", "_") {
		case "nvidia_peermem", "nv_peer_mem":
			return m
		}
	}
	return ""
}

// A KernelParameter is one parameter as requested, with its effective value.
type KernelParameter struct {
	Name    string  `json:"name"` // "isolcpus"
	Asked   string  `json:"asked"`
	InForce *string `json:"in_force,omitempty"`
	Source  string  `json:"source,omitempty"` // file that InForce was read from
}

// An IRQ is an interrupt with the CPUs that may serve it.
type IRQ struct {
	Number int     `json:"number"`
	CPUs   CPUSet  `json:"cpus"`             // effective_affinity_list, else smp_affinity_list
	Count  *uint64 `json:"count,omitempty"`  // served since boot, on all CPUs
	Device string  `json:"device,omitempty"` // PCI address of the owner, or else the handlers in /proc/interrupts
}

// A Disk is a block device with its mounts.
type Disk struct {
	Name      string   `json:"name"` // nvme0n1
	PCI       *PCIAddr `json:"pci,omitempty"`
	NUMANode  *int     `json:"numa_node,omitempty"`
	SizeBytes *uint64  `json:"size_bytes,omitempty"`
	Model     string   `json:"model,omitempty"`
	// Mounts are the mount points of its file systems, through partitions, RAID, LVM and encryption: "/", "/boot",
	// "[SWAP]". The host needs a disk with mounts.
	Mounts []string `json:"mounts,omitempty"`
}

// A Route is a default route of the main table.
type Route struct {
	Family  string `json:"family"` // "ipv4" or "ipv6"
	Netdev  string `json:"netdev"`
	Gateway string `json:"gateway,omitempty"`
	Metric  *int   `json:"metric,omitempty"`
	// addresses of the PCI functions of Netdev, through bridges, bonds and VLANs
	PCI []string `json:"pci,omitempty"`
}

// A Tenant is an existing virtual machine and the resources that it uses.
type Tenant struct {
	Name  string `json:"name"`
	UUID  string `json:"uuid,omitempty"`
	State string `json:"state,omitempty"` // libvirt's word: running, shut off
	VCPUs int    `json:"vcpus,omitempty"`
	// Pins are the host CPUs that each virtual CPU may run on. An unlisted virtual CPU may run on Floating.
	Pins []Pin `json:"pins,omitempty"`
	// Cut is set if the end of the description is missing, so that an element that it lacks may exist.
	Cut bool `json:"cut_off,omitempty"`
	// Absent are the virtual CPUs that the machine starts without. They can be hot-plugged later.
	Absent       *CPUSet `json:"absent_vcpus,omitempty"`
	EmulatorCPUs *CPUSet `json:"emulator_cpus,omitempty"`
	IOThreadCPUs *CPUSet `json:"iothread_cpus,omitempty"` // of all pinned I/O threads
	// FreeIOThreads is the number of I/O threads that are not pinned.
	FreeIOThreads int     `json:"unpinned_iothreads,omitempty"`
	Floating      *CPUSet `json:"floating_cpus,omitempty"` // cpuset of <vcpu>; nil: all
	MemoryBytes   *uint64 `json:"memory_bytes,omitempty"`
	// page size of its memory; 0: the host's default; nil: no hugepages
	Hugepages *uint64 `json:"hugepage_bytes,omitempty"`
	// PagesAtStart is set if starting the machine also allocates its hugepages, as in Proxmox VE.
	PagesAtStart bool           `json:"hugepages_at_start,omitempty"`
	MemoryNodes  *CPUSet        `json:"memory_nodes,omitempty"` // numatune nodeset
	MemoryMode   string         `json:"memory_mode,omitempty"`  // numatune mode: strict, preferred, interleave
	Devices      []TenantDevice `json:"devices,omitempty"`
	// The guest's view: threads per core, NUMA nodes, and switches of PCI Express.
	GuestThreads  int  `json:"guest_threads,omitempty"`
	GuestNodes    *int `json:"guest_numa_nodes,omitempty"`
	GuestSwitches *int `json:"guest_switches,omitempty"`
	// GuestExpanders is the number of expander buses, which tell the guest the NUMA node of their devices.
	GuestExpanders *int `json:"guest_expanders,omitempty"`
	// Cells are the guest's NUMA nodes, if they are described one by one.
	Cells []TenantCell `json:"guest_cells,omitempty"`
}

// A TenantCell is a guest's NUMA node. Unknown facts are nil.
type TenantCell struct {
	VCPUs       CPUSet  `json:"vcpus"`
	MemoryBytes *uint64 `json:"memory_bytes,omitempty"`
	Hugepages   *uint64 `json:"hugepage_bytes,omitempty"` // as in Tenant
	MemoryNodes *CPUSet `json:"memory_nodes,omitempty"`   // host nodes that hold its memory
	MemoryMode  string  `json:"memory_mode,omitempty"`
}

// Pinned returns all CPUs that virtual CPUs of the tenant are pinned to.
func (t *Tenant) Pinned() CPUSet {
	return UnionOf(t.Pins, func(p Pin) CPUSet { return p.CPUs })
}

// UnmarshalJSON rejects virtual CPUs that a CPUSet cannot contain.
func (t *Tenant) UnmarshalJSON(text []byte) error {
	type plain Tenant
	if err := json.Unmarshal(text, (*plain)(t)); err != nil {
		return err
	}
	errs := []error{bounded("vcpus of VM "+strconv.Quote(t.Name), t.VCPUs, MaxCPUs)}
	for _, p := range t.Pins {
		errs = append(errs, bounded("a vcpu among the pins of VM "+strconv.Quote(t.Name), p.VCPU, MaxCPUs-1))
	}
	return errors.Join(errs...)
}

// A Pin is the set of host CPUs for one virtual CPU.
type Pin struct {
	VCPU int    `json:"vcpu"`
	CPUs CPUSet `json:"cpus"`
}

// A TenantDevice is a host device that a tenant uses.
type TenantDevice struct {
	PCI     PCIAddr `json:"pci"`
	Managed bool    `json:"managed"` // libvirt binds and unbinds it
	// Virtual is set if the device is an unknown one of PCI's virtual functions.
	Virtual bool `json:"virtual,omitempty"`
	// Whole is set if all functions of the device are assigned with PCI.
	Whole bool `json:"whole,omitempty"`
}
