package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// Schema names the JSON form of a Plan. Keys are added, never changed in meaning; a key that is renamed is still read
// by its former name.
const Schema = "rackless/plan/v1"

// A Plan assigns CPUs, memory and devices of a host to the nodes of a lab, in the host's own numbering, and lists the
// host settings that this needs.
type Plan struct {
	Schema   string       `json:"schema"`
	Lab      string       `json:"lab"`
	Workload lab.Workload `json:"workload"`
	Host     HostRef      `json:"host"`

	Optimal bool  `json:"optimal"` // true if no placement scores less
	Cost    int64 `json:"score"`   // sum of the scores of all terms; lower is better
	Bound   int64 `json:"bound"`   // no placement scores less; equal to the score if optimal
	// reason the search ended before a proof: "time limit 2s", "step limit 1000000"
	Stopped string `json:"stopped,omitempty"`
	Terms   []Term `json:"terms"`

	Housekeeping Housekeeping `json:"housekeeping"`
	Nodes        []Node       `json:"nodes"`     // in the order of the lab
	Hugepages    []Hugepages  `json:"hugepages"` // by NUMA node, for the lab nodes; pages of tenants are additional
	VFs          []PFCount    `json:"vfs"`       // required virtual functions by PF
	KernelArgs   []string     `json:"kernel_args"`
	// KernelWhy gives the reason for each kernel argument, in the same order.
	KernelWhy []string `json:"kernel_args_why"`

	Decisions []Decision `json:"decisions"` // of the host first, then of each lab node
	Advice    []Advice   `json:"advice"`    // changes to the host that would allow a better plan
	Notes     []string   `json:"notes"`     // assumptions about unknown properties of the host
}

// HostRef identifies the host of a plan. Only the machine from which it was read may be changed by the plan.
type HostRef struct {
	Name       string              `json:"name"` // source of the host's description: a file, or "this machine"
	Model      string              `json:"model,omitempty"`
	Provenance topology.Provenance `json:"provenance"`
}

// Housekeeping describes the CPUs that lab nodes do not get.
type Housekeeping struct {
	CPUs  topology.CPUSet `json:"cpus"`
	Cores int             `json:"cores"`
	// TenantCPUs are the CPUs of existing virtual machines; neither the host nor the lab uses them.
	TenantCPUs topology.CPUSet `json:"tenant_cpus,omitzero"`
}

// A Node is a placed lab node.
type Node struct {
	Name string `json:"name"`
	// VCPUs lists the host CPU of each virtual CPU in order. Virtual CPUs of one guest NUMA cell are consecutive, and
	// so are the threads of one core.
	VCPUs   []int `json:"vcpus"`
	Cores   int   `json:"cores"`
	Threads int   `json:"threads_per_core"`
	SMT     bool  `json:"smt"` // true if the guest sees siblings as threads of one core
	// Unpinned is true if virtual CPUs may run on any CPU of the host. VCPUs then only gives their number. The
	// planner never sets it; studies use it for comparison.
	Unpinned bool `json:"unpinned"`
	// EmulatorCPUs and IOThreadCPUs are housekeeping CPUs near the lab node. The former include those on each NUMA node
	// of its hugepages, see EmulatorPin.
	EmulatorCPUs topology.CPUSet `json:"emulator_cpus"`
	IOThreadCPUs topology.CPUSet `json:"iothread_cpus"`
	MemoryBytes  uint64          `json:"memory_bytes"`
	Memory       []NodeMemory    `json:"memory"` // memory by NUMA node of the host
	// Unbound is true if memory may come from any NUMA node of the host. Memory then only gives the page size and a
	// possible split. The planner never sets it; studies use it for comparison.
	Unbound   bool `json:"unbound"`
	GuestNUMA bool `json:"guest_numa"`
	// Cells are the guest's NUMA nodes in order; a single one if GuestNUMA is false.
	Cells []Cell `json:"cells"`
	// Devices are the addresses of all PCI functions of the node, in the order GPUs, NICs, VFs. A VF that does not
	// exist yet is named like "0000:41:00.0/vf3".
	Devices []string     `json:"devices"`
	Cards   []NodeDevice `json:"cards,omitempty"` // devices with their kind, model and location
	// names and addresses of the ports, in the order of NICs then VFs among Cards
	NICs []lab.NIC `json:"nics"`
}

// NodeMemory is memory of a lab node on a NUMA node of the host.
type NodeMemory struct {
	NUMANode  int    `json:"numa_node"`
	Bytes     uint64 `json:"bytes"`
	PageBytes uint64 `json:"page_bytes"` // size of a hugepage; 0 without hugepages
}

// A Cell is a NUMA node of the guest. Its number is the guest's.
type Cell struct {
	Cell int `json:"cell"`
	// NUMANodes are the host nodes behind the cell: usually one, or all of the lab node's if guest NUMA is off.
	NUMANodes []int `json:"numa_nodes"`
	// FirstVCPU and VCPUs are the first index and the number of its virtual CPUs. A cell may have memory alone.
	FirstVCPU int    `json:"first_vcpu"`
	VCPUs     int    `json:"vcpus"`
	Bytes     uint64 `json:"bytes"`
	// Distances are the SLIT distances to each cell in order, equal to the host's.
	Distances []int `json:"distances"`
}

// A NodeDevice is a device of a lab node.
type NodeDevice struct {
	ID        string   `json:"id"`   // ID of the device; for a VF, that of its PF
	Kind      string   `json:"kind"` // "gpu", "nic" or "vf"
	Model     string   `json:"model,omitempty"`
	VF        *int     `json:"vf,omitempty"`        // index of the virtual function
	Functions []string `json:"functions,omitempty"` // PCI functions of the device, itself first
	NUMANode  *int     `json:"numa_node,omitempty"` // NUMA node of the host
	Cell      *int     `json:"cell,omitempty"`      // guest cell of that NUMA node, or else the nearest
	// Peers are the IDs of the host's other ports that a cable (one) or a switch (several) joins with a NIC, by the
	// links of the lab file.
	Peers []string `json:"peers,omitempty"`
}

// KindVF is the kind of a NodeDevice that is a virtual function.
const KindVF = "vf"

// Hugepages are the pages that the lab needs on a NUMA node of the host.
type Hugepages struct {
	NUMANode  int    `json:"numa_node"`
	PageBytes uint64 `json:"page_bytes"`
	Count     int64  `json:"count"`
	// Held is the number of pages of this size already in use there by existing tenants, which the node must have in
	// addition.
	Held int64 `json:"held,omitempty"`
}

// A PFCount is the number of virtual functions that a PF must have, including existing ones in use.
type PFCount struct {
	PF    string `json:"pf"`
	Count int    `json:"count"`
	Lab   int    `json:"lab"` // number used by the lab
}

// A Decision is a choice of the planner with its reason.
type Decision struct {
	Node string `json:"node,omitempty"` // lab node; empty for the host
	// kind of choice: "devices", "cores", "memory", "guest_numa", "smt", "page_size", "emulator", "housekeeping", or
	// "isolation"
	What   string `json:"what"`
	Choice string `json:"choice"`
	// RunnerUp is the next best choice. RunnerUpCost is how much higher the score of the whole plan is with it, or
	// null if it is impossible.
	RunnerUp     string   `json:"runner_up,omitempty"`
	RunnerUpCost *int64   `json:"runner_up_score,omitempty"`
	Evidence     []string `json:"evidence"` // measurements, sources, facts of the host
}

// Advice is a change to the host that would allow a better plan.
type Advice struct {
	What string `json:"what"` // the change, such as "move NIC 0000:41:00.0 to a slot of NUMA node 0"
	Gain int64  `json:"gain"` // reduction of the plan's score
	Why  string `json:"why"`
}

// A Port is a network port with its device. Card is nil if the port is emulated.
type Port struct {
	lab.NIC
	Card *NodeDevice
}

// Ports has whole NICs first, then virtual functions; the remaining ports are emulated. All code uses this order,
// because another one would give a card its neighbour's address.
func (n *Node) Ports() []Port {
	ports := make([]Port, len(n.NICs))
	next := 0
	for i, nic := range n.NICs {
		ports[i].NIC = nic
	}
	for _, kind := range []string{KindNIC, KindVF} {
		for i := range n.Cards {
			if n.Cards[i].Kind == kind && next < len(ports) {
				ports[next].Card = &n.Cards[i]
				next++
			}
		}
	}
	return ports
}

// Topology returns the guest's sockets, cores per socket, and threads per core. If all cells with virtual CPUs have
// equally many, each is a socket, so that caches, cores and NUMA nodes nest as on the host. Otherwise equal is false
// and they share one socket, as with sub-NUMA clustering, because sockets must have equal sizes.
func (n *Node) Topology() (sockets, cores, threads int, equal bool) {
	threads, equal = 1, true
	if n.SMT {
		threads = n.Threads
	}
	size := 0
	for _, c := range n.Cells {
		if c.VCPUs == 0 {
			continue
		}
		sockets++
		equal = equal && (size == 0 || size == c.VCPUs)
		size = c.VCPUs
	}
	if !equal || sockets == 0 {
		sockets = 1
	}
	return sockets, len(n.VCPUs) / (sockets * threads), threads, equal
}

// CPUs are the host's. It skips numbers that are not CPUs, which a plan from a file may contain.
func (n *Node) CPUs() topology.CPUSet { return topology.ValidCPUs(n.VCPUs) }

// DeviceName returns "GPU 0000:06:00.0", or just the ID if it already contains the kind, as in a GPU matrix: "GPU0".
func DeviceName(kind, id string) string {
	if kind == KindGPU || kind == KindNIC {
		kind = strings.ToUpper(kind)
	}
	if strings.HasPrefix(id, kind) {
		return id
	}
	return kind + " " + id
}

// kernelArgs follows the kernel's Documentation/admin-guide/kernel-parameters.txt.
func (a *assembly) kernelArgs(pl *Plan) (args, why []string) {
	add := func(arg, reason string) { args, why = append(args, arg), append(why, reason) }
	if slices.ContainsFunc(pl.Nodes, func(n Node) bool { return len(n.Devices) > 0 }) {
		const why = "devices that the host keeps are not slowed down by the IOMMU"
		switch {
		case a.h.System.Arch == "aarch64":
			// The SMMU is on if the firmware describes one. iommu=pt is a parameter of x86 only.
			add("iommu.passthrough=1", why)
		case strings.Contains(a.h.System.CPUModel, "AMD"):
			// AMD's IOMMU is on by default if the firmware enables it, and amd_iommu has no value "on".
			add("iommu=pt", why)
		case a.h.System.Arch != "" && a.h.System.Arch != "x86_64":
		case a.h.HasIntelCPU():
			add("intel_iommu=on", "the IOMMU of Intel is off unless the kernel was built otherwise; other CPUs "+
				"ignore it")
			add("iommu=pt", why)
		default:
			add("iommu=pt", why+"; the vendor of the CPUs is not told: those of Intel need intel_iommu=on too")
		}
	}
	// The new arguments replace the old ones, and isolated tenants must stay isolated.
	if given := a.given().Union(isolatedTenants(a.h, pl)); !given.IsEmpty() {
		list := given.String()
		add("isolcpus=managed_irq,domain,"+list, "nothing of the host is scheduled on the CPUs of the lab nodes, nor "+
			"its managed interrupts")
		add("nohz_full="+list, "no timer tick while a virtual CPU runs alone")
		add("rcu_nocbs="+list, "the kernel's callbacks run on housekeeping CPUs")
	}
	if len(pl.Hugepages) == 0 {
		return args, why
	}
	size := "2M"
	if a.p.HugepageBytes == 1<<30 {
		size = "1G"
	}
	counts := lists.Map(lists.Filter(pl.Hugepages, func(n Hugepages) bool { return n.Count+n.Held > 0 }),
		func(n Hugepages) string { return fmt.Sprintf("%d:%d", n.NUMANode, n.Count+n.Held) })
	// Hugepages per node need Linux 5.16. A plain number is spread evenly over nodes, and a strict memory policy then
	// finds too few on its node.
	add("hugepagesz="+size, "the size of the pages that are set aside next")
	add("hugepages="+strings.Join(counts, ","), "pages are set aside while memory is still in one piece, on the NUMA "+
		"nodes that the lab nodes use")
	return args, why
}

func isolatedTenants(h *topology.Host, pl *Plan) topology.CPUSet {
	if h.CPUs.Isolated == nil {
		return topology.CPUSet{}
	}
	return h.CPUs.Isolated.Intersect(pl.Housekeeping.TenantCPUs)
}

// given includes idle siblings.
func (a *assembly) given() topology.CPUSet {
	return topology.UnionOf(a.pl.Nodes, func(n NodePlacement) topology.CPUSet {
		return topology.UnionOf(n.Cores, func(id int) topology.CPUSet { return topology.CPUs(a.Cores[id].CPUs...) })
	})
}
