package topology

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Schema identifies the JSON form. Keys may be added, but never removed or redefined.
const Schema = "rackless/host/v1"

// A Host is one machine. Each list has an order, so that the same machine gives the same bytes.
type Host struct {
	Provenance Provenance `json:"provenance"`
	System     System     `json:"system,omitzero"`
	Packages   []Package  `json:"packages,omitempty"`   // by ID
	NUMANodes  []NUMANode `json:"numa_nodes,omitempty"` // by ID
	// NodeCount is the source's number of NUMA nodes, if it lists fewer.
	NodeCount *int        `json:"numa_node_count,omitempty"`
	L3        []L3        `json:"l3,omitempty"`    // by ID
	Cores     []Core      `json:"cores,omitempty"` // by ID
	CPUs      CPUStates   `json:"cpus,omitzero"`
	Memory    Memory      `json:"memory,omitzero"`
	Kernel    Kernel      `json:"kernel,omitzero"`
	PCI       []PCIDevice `json:"pci,omitempty"` // by address
	IOMMU     IOMMU       `json:"iommu,omitzero"`
	GPUs      []GPU       `json:"gpus,omitempty"` // by address, then in the source's order
	NICs      []NIC       `json:"nics,omitempty"` // by address, then in the source's order
	Bonds     []Bond      `json:"bonds,omitempty"`
	// Switches are virtual, by name.
	Switches []VirtualSwitch `json:"virtual_switches,omitempty"`
	Storage  []Disk          `json:"storage,omitempty"` // by name
	// Routes is nil if no table was read.
	Routes  []Route  `json:"default_routes,omitempty"`
	IRQs    []IRQ    `json:"irqs,omitempty"` // of isolated CPUs and RDMA NICs only; by number
	Tenants []Tenant `json:"tenants,omitempty"`

	// Reported are paths stated by a tool, which the PCI tree may not show. Host.Path prefers them.
	Reported []Path `json:"reported_paths,omitempty"`

	// Unread lists facts that exist but could not be read or understood, without missing files.
	Unread []Unread `json:"unread,omitempty"`
	// Contradictions are between the host's sources. The host has the first value of each.
	Contradictions []Contradiction `json:"contradictions,omitempty"`
	// Inferred are facts that follow from others, such as the function of a named device.
	Inferred []string `json:"inferred,omitempty"`
}

// A Contradiction is between two sources.
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
	// SourceTree is a directory or archive with /sys and /proc: a snapshot, hwloc-gather-topology, ghw.
	SourceTree      = "tree"
	SourceHwloc     = "hwloc-xml"  // version 1, 2 or 3
	SourceNCCL      = "nccl-xml"   // NCCL's or RCCL's topology dump
	SourceTopo      = "nvidia-smi" // topo -m
	SourceLspci     = "lspci"      // lspci -vvnn or -tv
	SourceTexts     = "texts"      // about parts of a machine: lscpu, ibstat, ...
	SourceVSphere   = "vsphere"    // live or from govc object.save
	SourceSynthetic = "synthetic"  // made from a description
)

// Provenance is the source of a Host. A plan may change only the machine that the host was read from.
type Provenance struct {
	Kind       string `json:"kind"`           // a Source constant
	Name       string `json:"name,omitempty"` // file, or the snapshot's own name
	ThisSystem bool   `json:"this_system"`    // read live from this machine
	Tool       string `json:"tool,omitempty"` // "hwloc 2.9.0"
	// Emulated is set if the machine is virtual with emulated devices.
	Emulated bool `json:"emulated,omitempty"`
	// Filled names the parts that the source could fill, as Parts does.
	Filled []string `json:"filled,omitempty"`
}

// An Unread is a fact that could not be read.
type Unread struct {
	Path string `json:"path"` // below the root, or the command
	Why  string `json:"why"`
}

// System is the whole machine.
type System struct {
	Vendor   string `json:"vendor,omitempty"`    // DMI sys_vendor
	Product  string `json:"product,omitempty"`   // DMI product_name
	Board    string `json:"board,omitempty"`     // DMI board_name
	BIOS     string `json:"bios,omitempty"`      // DMI bios_version and bios_date
	Arch     string `json:"arch,omitempty"`      // output of uname -m
	CPUModel string `json:"cpu_model,omitempty"` // of the first CPU
	// Hypervisor is "kvm", "vmware", ...; empty on bare metal and if unknown.
	Hypervisor string `json:"hypervisor,omitempty"`
	InVM       *bool  `json:"in_vm,omitempty"` // the CPU's hypervisor flag
	// RDMACore is the version of rdma-core ("44.0"), or empty.
	RDMACore string `json:"rdma_core,omitempty"`
}

// IsVirtual reports whether any sign of a virtual machine exists: omitted findings about a real machine's links cost
// less than false ones about an emulator's.
func (h *Host) IsVirtual() bool {
	return h.System.InVM != nil && *h.System.InVM || h.System.Hypervisor != "" || h.Provenance.Emulated
}

// HasIntelCPU reports whether the CPU's model or a host bridge is Intel's.
func (h *Host) HasIntelCPU() bool {
	model := h.System.CPUModel
	return strings.Contains(model, "Intel") || strings.Contains(model, "Xeon") ||
		slices.ContainsFunc(h.PCI, func(d PCIDevice) bool {
			return d.Class != nil && d.Class.Sub() == SubHostBridge && d.Vendor != nil && *d.Vendor == VendorIntel
		})
}

// A Package is a socket's processor.
type Package struct {
	// ID is the kernel's physical_package_id (hwloc: P#), or a free number if that is missing or a duplicate.
	ID    int    `json:"id"`
	CPUs  CPUSet `json:"cpus,omitzero"`
	Model string `json:"model,omitempty"`
	Dies  []Die  `json:"dies,omitempty"` // by ID; if the kernel distinguishes them
}

// A Die is silicon in a package, if the kernel names it.
type Die struct {
	ID   int    `json:"id"` // unique only inside its package
	CPUs CPUSet `json:"cpus"`
}

// A NUMANode is memory, with the closest CPUs, if any.
type NUMANode struct {
	ID   int    `json:"id"`   // may have gaps
	CPUs CPUSet `json:"cpus"` // online CPUs; may be empty
	// MemoryBytes is MemTotal; 0 means a node without memory.
	MemoryBytes *uint64 `json:"memory_bytes,omitempty"`
	FreeBytes   *uint64 `json:"free_bytes,omitempty"`
	// Distances is the SLIT row, in the order of Host.NUMANodes; 10 is local.
	Distances []int          `json:"distances,omitempty"`
	Hugepages []HugepagePool `json:"hugepages,omitempty"` // by size
	// Kind is "dram", "hbm", "cxl", "nvdimm" or "gpu", or empty if unknown.
	Kind string `json:"kind,omitempty"`
	// MemoryMode is the source's word, such as "cache".
	MemoryMode string `json:"memory_mode,omitempty"`
	// GPU is the device with this memory.
	GPU *PCIAddr `json:"gpu,omitempty"`
}

// UnmarshalJSON rejects an ID that a CPUSet cannot contain.
func (n *NUMANode) UnmarshalJSON(text []byte) error {
	type plain NUMANode
	if err := json.Unmarshal(text, (*plain)(n)); err != nil {
		return err
	}
	return bounded("id of a NUMA node", n.ID, MaxCPUs-1)
}

// A HugepagePool has one size, of a node or the machine. Counts are in pages.
type HugepagePool struct {
	SizeBytes uint64  `json:"size_bytes"`
	Total     uint64  `json:"total"`
	Free      *uint64 `json:"free,omitempty"`
	// Reserved pages are not yet allocated; the kernel counts them for the machine, not per node.
	Reserved *uint64 `json:"reserved,omitempty"`
	Surplus  *uint64 `json:"surplus,omitempty"`
}

// An L3 has the CPUs that share it (on AMD a core complex).
type L3 struct {
	ID        int     `json:"id"` // 0, 1, ... by lowest CPU
	CPUs      CPUSet  `json:"cpus"`
	SizeBytes *uint64 `json:"size_bytes,omitempty"`
}

// KindPerformance and the other are of hybrid machines.
const (
	KindPerformance = "performance"
	KindEfficiency  = "efficiency"
)

// A Core has at least one online CPU.
type Core struct {
	ID       int    `json:"id"`              // 0, 1, ... by lowest CPU
	OSID     *int   `json:"os_id,omitempty"` // unique at most inside a package
	Package  *int   `json:"package,omitempty"`
	Die      *int   `json:"die,omitempty"`
	NUMANode *int   `json:"numa_node,omitempty"`
	L3       *int   `json:"l3,omitempty"` // ID of Host.L3
	CPUs     CPUSet `json:"cpus"`         // its online threads
	Kind     string `json:"kind,omitempty"`
	MaxKHz   *int64 `json:"max_khz,omitempty"`
	Governor string `json:"governor,omitempty"` // scaling_governor of its first CPU
}

// CPUStates are sets of CPUs by treatment in the kernel; nil is unknown.
type CPUStates struct {
	Present *CPUSet `json:"present,omitempty"`
	Online  CPUSet  `json:"online,omitzero"`
	// Cut is set if a source has lost its end, so that there may be other CPUs.
	Cut      bool    `json:"cut_off,omitempty"`
	Offline  *CPUSet `json:"offline,omitempty"`
	Isolated *CPUSet `json:"isolated,omitempty"`  // /sys/devices/system/cpu/isolated
	NoHzFull *CPUSet `json:"nohz_full,omitempty"` // /sys/devices/system/cpu/nohz_full
	SMT      string  `json:"smt,omitempty"`       // on, off, forceoff, notsupported, notimplemented
}

// Untold reports whether there may be more CPUs.
func (s *CPUStates) Untold() bool { return s.Cut && s.Online.IsEmpty() }

// Memory is the whole machine's.
type Memory struct {
	TotalBytes     *uint64        `json:"total_bytes,omitempty"`     // managed by the kernel
	AvailableBytes *uint64        `json:"available_bytes,omitempty"` // MemAvailable
	Hugepages      []HugepagePool `json:"hugepages,omitempty"`       // of the machine, by size
	DefaultHuge    *uint64        `json:"default_hugepage_bytes,omitempty"`
	Swap           []Swap         `json:"swap,omitempty"` // in the order of /proc/swaps
	SwapKnown      bool           `json:"swap_known,omitempty"`
	// NUMABalancing is "0", "1", "2" (memory tiering).
	NUMABalancing string `json:"numa_balancing,omitempty"`
	THP           string `json:"thp,omitempty"` // always, madvise or never
	KSM           string `json:"ksm,omitempty"` // /sys/kernel/mm/ksm/run: "0" or "1"
}

// A Swap is in use.
type Swap struct {
	Path      string `json:"path"`
	SizeBytes uint64 `json:"size_bytes"`
	UsedBytes uint64 `json:"used_bytes"`
}

// Kernel has the requested parameters and their effective values.
type Kernel struct {
	Release string  `json:"release,omitempty"`
	Cmdline *string `json:"cmdline,omitempty"` // /proc/cmdline without its newline
	// Asked lists relevant parameters, in the order of the command line.
	Asked []KernelParameter `json:"asked,omitempty"`
	// Modules are the loaded ones that matter here, sorted.
	Modules []string `json:"modules,omitempty"`
	// ModulesKnown is set if the list could be read, so that an unlisted module is not loaded.
	ModulesKnown bool `json:"modules_known,omitempty"`
	// Messages report faults, by their first line.
	Messages []KernelMessage `json:"messages,omitempty"`
}

// A KernelMessage reports a fault of a device, see package message.
type KernelMessage struct {
	Kind string `json:"kind"` // such as mlx5-command-timeout
	// Device is a PCI address or the kernel's name, or empty.
	Device string   `json:"device,omitempty"`
	Part   string   `json:"part,omitempty"`  // such as "BAR 1"
	Line   string   `json:"line"`            // the first, without its stamp
	Count  int      `json:"count"`           // of lines
	Codes  []string `json:"codes,omitempty"` // such as those of Xids, in order
}

// PeerMemory returns the loaded module that lets RDMA devices register NVIDIA's GPU memory, or "". nv_peer_mem is from
// before 2021.
func (k *Kernel) PeerMemory() string {
	for _, m := range k.Modules {
		switch strings.ReplaceAll(m, "-", "_") {
		case "nvidia_peermem", "nv_peer_mem":
			return m
		}
	}
	return ""
}

// A KernelParameter is as requested, with its effective value.
type KernelParameter struct {
	Name    string  `json:"name"` // "isolcpus"
	Asked   string  `json:"asked"`
	InForce *string `json:"in_force,omitempty"`
	Source  string  `json:"source,omitempty"` // of InForce
}

// An IRQ has the CPUs that may serve it.
type IRQ struct {
	Number int     `json:"number"`
	CPUs   CPUSet  `json:"cpus"`             // effective_affinity_list, else smp_affinity_list
	Count  *uint64 `json:"count,omitempty"`  // since boot, on all CPUs
	Device string  `json:"device,omitempty"` // PCI address of the owner, or else the handlers
}

// A Disk is a block device.
type Disk struct {
	Name      string   `json:"name"` // nvme0n1
	PCI       *PCIAddr `json:"pci,omitempty"`
	NUMANode  *int     `json:"numa_node,omitempty"`
	SizeBytes *uint64  `json:"size_bytes,omitempty"`
	Model     string   `json:"model,omitempty"`
	// Mounts are through partitions, RAID, LVM and encryption: "/", "[SWAP]". The host needs a disk with mounts.
	Mounts []string `json:"mounts,omitempty"`
}

// A Route is a default one of the main table.
type Route struct {
	Family  string `json:"family"` // "ipv4" or "ipv6"
	Netdev  string `json:"netdev"`
	Gateway string `json:"gateway,omitempty"`
	Metric  *int   `json:"metric,omitempty"`
	// PCI has the functions of Netdev, through bridges, bonds and VLANs.
	PCI []string `json:"pci,omitempty"`
}

// A Tenant is an existing virtual machine.
type Tenant struct {
	Name  string `json:"name"`
	UUID  string `json:"uuid,omitempty"`
	State string `json:"state,omitempty"` // libvirt's word: running, shut off
	VCPUs int    `json:"vcpus,omitempty"`
	// Pins are the host CPUs of virtual CPUs; an unlisted one may run on Floating.
	Pins []Pin `json:"pins,omitempty"`
	// Cut is set if the end of the description is missing.
	Cut bool `json:"cut_off,omitempty"`
	// Absent virtual CPUs are missing at the start, and can be hot-plugged later.
	Absent       *CPUSet `json:"absent_vcpus,omitempty"`
	EmulatorCPUs *CPUSet `json:"emulator_cpus,omitempty"`
	IOThreadCPUs *CPUSet `json:"iothread_cpus,omitempty"` // of all pinned I/O threads
	// FreeIOThreads are not pinned.
	FreeIOThreads int     `json:"unpinned_iothreads,omitempty"`
	Floating      *CPUSet `json:"floating_cpus,omitempty"` // cpuset of <vcpu>; nil: all
	MemoryBytes   *uint64 `json:"memory_bytes,omitempty"`
	// Hugepages is the page size; 0: the host's default; nil: none.
	Hugepages *uint64 `json:"hugepage_bytes,omitempty"`
	// PagesAtStart is set if starting the machine allocates its hugepages, as in Proxmox VE.
	PagesAtStart bool           `json:"hugepages_at_start,omitempty"`
	MemoryNodes  *CPUSet        `json:"memory_nodes,omitempty"` // numatune nodeset
	MemoryMode   string         `json:"memory_mode,omitempty"`  // numatune mode: strict, preferred, interleave
	Devices      []TenantDevice `json:"devices,omitempty"`
	// GuestThreads is per core.
	GuestThreads  int  `json:"guest_threads,omitempty"`
	GuestNodes    *int `json:"guest_numa_nodes,omitempty"`
	GuestSwitches *int `json:"guest_switches,omitempty"`
	// GuestExpanders is the number of expander buses, which tell the guest the NUMA node of their devices.
	GuestExpanders *int `json:"guest_expanders,omitempty"`
	// Cells are the guest's NUMA nodes, if described one by one.
	Cells []TenantCell `json:"guest_cells,omitempty"`
}

// A TenantCell is a guest's NUMA node; nil is unknown.
type TenantCell struct {
	VCPUs       CPUSet  `json:"vcpus"`
	MemoryBytes *uint64 `json:"memory_bytes,omitempty"`
	Hugepages   *uint64 `json:"hugepage_bytes,omitempty"` // as in Tenant
	MemoryNodes *CPUSet `json:"memory_nodes,omitempty"`   // host nodes
	MemoryMode  string  `json:"memory_mode,omitempty"`
}

// Pinned returns all CPUs in Pins.
func (t *Tenant) Pinned() CPUSet {
	return UnionOf(t.Pins, func(p Pin) CPUSet { return p.CPUs })
}

// UnmarshalJSON rejects virtual CPUs that a CPUSet cannot contain.
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

// A Pin is for one virtual CPU.
type Pin struct {
	VCPU int    `json:"vcpu"`
	CPUs CPUSet `json:"cpus"`
}

// A TenantDevice is a host device.
type TenantDevice struct {
	PCI     PCIAddr `json:"pci"`
	Managed bool    `json:"managed"` // libvirt binds and unbinds it
	// Virtual means an unknown virtual function of PCI.
	Virtual bool `json:"virtual,omitempty"`
	// Whole means all functions of the device.
	Whole bool `json:"whole,omitempty"`
}
