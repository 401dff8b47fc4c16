package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// Schema names the JSON form of a Plan. Keys are added, never changed in meaning or removed.
const Schema = "rackless/plan/v1"

// A Plan is where the nodes of a lab go on a host, in the host's own numbers, and what the host has to be for it.
type Plan struct {
	Schema   string       `json:"schema"`
	Lab      string       `json:"lab"`
	Workload lab.Workload `json:"workload"`
	Host     HostRef      `json:"host"`

	Optimal bool  `json:"optimal"` // Cost is proved to be the least
	Cost    int64 `json:"cost"`    // the sum of Terms[].Cost, in basis points
	Bound   int64 `json:"bound"`   // no placement costs less; equal to Cost where Optimal
	// what ended the search before the proof: "time limit 2s", "step limit 1000000"
	Stopped string `json:"stopped,omitempty"`
	Terms   []Term `json:"terms"`

	Housekeeping Housekeeping `json:"housekeeping"`
	Nodes        []Node       `json:"nodes"`     // in the order of the lab
	Hugepages    []Hugepages  `json:"hugepages"` // by NUMA node; those of the lab nodes, what tenants hold comes on top
	VFs          []PFCount    `json:"vfs"`       // by PF: how many virtual functions it has to have
	KernelArgs   []string     `json:"kernel_args"`
	// KernelWhy gives the reason of each of KernelArgs.
	KernelWhy []string `json:"kernel_args_why"`

	Decisions []Decision `json:"decisions"` // of the host first, then of each lab node
	Advice    []Advice   `json:"advice"`    // what would make the host better
	Notes     []string   `json:"notes"`     // what was assumed because the host does not tell
}

// HostRef says which host a plan is for. Only the machine that it was read from may be changed by it.
type HostRef struct {
	Name       string              `json:"name"` // what it was read from: a file, or "this machine"
	Model      string              `json:"model,omitempty"`
	Provenance topology.Provenance `json:"provenance"`
}

// Housekeeping is what the host keeps.
type Housekeeping struct {
	CPUs  topology.CPUSet `json:"cpus"`
	Cores int             `json:"cores"`
	// TenantCPUs are those of virtual machines that were there before; they belong to neither side.
	TenantCPUs topology.CPUSet `json:"tenant_cpus,omitzero"`
}

// A Node is one lab node, placed.
type Node struct {
	Name string `json:"name"`
	// VCPUs lists the host CPU of each virtual CPU in order. Virtual CPUs of one guest NUMA cell
	// are consecutive, and so are siblings.
	VCPUs   []int `json:"vcpus"`
	Cores   int   `json:"cores"`
	Threads int   `json:"threads_per_core"`
	SMT     bool  `json:"smt"` // siblings are shown to the guest as such
	// Unpinned is set where virtual CPUs may run on any CPU of the host: VCPUs then only says how
	// many there are. No planner makes such nodes; studies compare with them.
	Unpinned bool `json:"unpinned"`
	// EmulatorCPUs and IOThreadCPUs are housekeeping CPUs near the lab node.
	EmulatorCPUs topology.CPUSet `json:"emulator_cpus"`
	IOThreadCPUs topology.CPUSet `json:"iothread_cpus"`
	MemoryBytes  uint64          `json:"memory_bytes"`
	Memory       []NodeMemory    `json:"memory"` // by NUMA node
	// Unbound is set where memory may come from any NUMA node of the host: Memory then says which
	// pages it is made of, and where there is room. As Unpinned, for studies.
	Unbound   bool `json:"unbound"`
	GuestNUMA bool `json:"guest_numa"`
	// Cells are the guest's NUMA nodes in order; one where GuestNUMA is false.
	Cells []Cell `json:"cells"`
	// Devices are the addresses of all functions that go to it, in the order GPUs, NICs, VFs; a VF
	// that does not exist yet is named "0000:41:00.0/vf3".
	Devices []string     `json:"devices"`
	Cards   []NodeDevice `json:"cards,omitempty"` // the same, with what they are
	// the ports' names and addresses, in the order of NICs then VFs among Cards
	NICs []lab.NIC `json:"nics"`
}

// NodeMemory is memory of a lab node on a NUMA node of the host.
type NodeMemory struct {
	NUMANode  int    `json:"numa_node"`
	Bytes     uint64 `json:"bytes"`
	PageBytes uint64 `json:"page_bytes"` // 0: no hugepages
}

// A Cell is a NUMA node of the guest. It is numbered as the guest sees it.
type Cell struct {
	Cell int `json:"cell"`
	// NUMANodes are the host's nodes that it stands for: one, or all of the lab node's where guest NUMA is off.
	NUMANodes []int `json:"numa_nodes"`
	// FirstVCPU and VCPUs are its virtual CPUs; a cell of memory alone has none.
	FirstVCPU int    `json:"first_vcpu"`
	VCPUs     int    `json:"vcpus"`
	Bytes     uint64 `json:"bytes"`
	// Distances are to each cell in order, as the host's.
	Distances []int `json:"distances"`
}

// A NodeDevice is a device of a lab node.
type NodeDevice struct {
	ID        string   `json:"id"`   // of Problem.Devices; of a VF its PF
	Kind      string   `json:"kind"` // "gpu", "nic" or "vf"
	Model     string   `json:"model,omitempty"`
	VF        *int     `json:"vf,omitempty"`        // index of the virtual function
	Functions []string `json:"functions,omitempty"` // all that go with it; the first is the device itself
	NUMANode  *int     `json:"numa_node,omitempty"` // of the host
	Cell      *int     `json:"cell,omitempty"`      // of the guest: the one that stands for NUMANode, else the nearest
}

// KindVF is the kind of a NodeDevice that is a virtual function.
const KindVF = "vf"

// Hugepages are pages that a NUMA node of the host has to have for the lab.
type Hugepages struct {
	NUMANode  int    `json:"numa_node"`
	PageBytes uint64 `json:"page_bytes"`
	Count     int64  `json:"count"`
	// Held is how many more of these pages are in use there, by tenants that were there before: the
	// node has to keep them.
	Held int64 `json:"held,omitempty"`
}

// A PFCount is how many virtual functions a PF has to have: those of the lab, and those that are in use already.
type PFCount struct {
	PF    string `json:"pf"`
	Count int    `json:"count"`
	Lab   int    `json:"lab"` // of them, for the lab
}

// A Decision is a choice with its reason.
type Decision struct {
	Node string `json:"node,omitempty"` // empty: of the host
	// "devices", "cores", "memory", "guest_numa", "smt", "page_size", "emulator", "housekeeping",
	// "isolation"
	What   string `json:"what"`
	Choice string `json:"choice"`
	// RunnerUp is the next best choice; RunnerUpCost how much more the whole plan would cost with
	// it, in basis points, nil where it would not be possible.
	RunnerUp     string   `json:"runner_up,omitempty"`
	RunnerUpCost *int64   `json:"runner_up_cost,omitempty"`
	Evidence     []string `json:"evidence"` // measurements, sources, facts of the host
}

// Advice is a change to the host that would make a better plan possible.
type Advice struct {
	What string `json:"what"` // "move NIC 0000:41:00.0 to a slot of NUMA node 0"
	Gain int64  `json:"gain"` // basis points that the whole plan would cost less
	Why  string `json:"why"`
}

// A Port is a network port of a lab node with the device that it is; Card is nil where the plan has none, and the port
// is emulated.
type Port struct {
	lab.NIC
	Card *NodeDevice
}

// Ports pairs the ports of a lab node with what they are: whole NICs first, then virtual functions, and what is left
// over is emulated. Names and addresses of ports are counted in this order everywhere: another one would give a card
// the address of its neighbour.
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

// Topology returns the sockets of the guest, the cores of each and the threads of each core. A cell that has virtual
// CPUs is a socket, where all of them have as many: then caches, cores and NUMA nodes nest in the guest as on the host.
// Sockets are all of one size, so unequal cells share one socket, as with sub-NUMA clustering; equal is false then.
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

// CPUs returns the host CPUs of the virtual CPUs. Numbers that no CPU has, in a plan from a file,
// are left out.
func (n *Node) CPUs() topology.CPUSet { return topology.ValidCPUs(n.VCPUs) }

// DeviceName returns "GPU 0000:06:00.0", or the ID alone if it names the kind, as the names of a
// GPU matrix do: "GPU0".
func DeviceName(kind, id string) string {
	if kind == KindGPU || kind == KindNIC {
		kind = strings.ToUpper(kind)
	}
	if strings.HasPrefix(id, kind) {
		return id
	}
	return kind + " " + id
}

// kernelArgs returns what the kernel of the host has to be started with, and the reason of each. Sources: the kernel's
// Documentation/admin-guide/kernel-parameters.txt.
func (a *assembly) kernelArgs(pl *Plan) (args, why []string) {
	add := func(arg, reason string) { args, why = append(args, arg), append(why, reason) }
	if slices.ContainsFunc(pl.Nodes, func(n Node) bool { return len(n.Devices) > 0 }) {
		const why = "devices that the host keeps are not slowed down by the IOMMU"
		switch {
		case a.h.System.Arch == "aarch64":
			// The SMMU is on where the firmware describes one; iommu=pt is a parameter of x86.
			add("iommu.passthrough=1", why)
		case strings.Contains(a.h.System.CPUModel, "AMD"):
			// On by default wherever the firmware has it on, and amd_iommu has no "on".
			add("iommu=pt", why)
		case a.h.System.Arch == "" || a.h.System.Arch == "x86_64":
			add("intel_iommu=on", "the IOMMU of Intel is off unless the kernel was built otherwise; other CPUs "+
				"ignore it")
			add("iommu=pt", why)
		}
	}
	// What tenants have isolated now must stay so: the new arguments take the place of the old ones.
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
	// Per node since Linux 5.16: a plain number is spread evenly, and a strict memory policy then
	// finds too few on its node.
	add("hugepagesz="+size, "the size of the pages that are set aside next")
	add("hugepages="+strings.Join(counts, ","), "pages are set aside while memory is still in one piece, on the NUMA "+
		"nodes that the lab nodes use")
	return args, why
}

// isolatedTenants returns the CPUs of tenants that are isolated as the host runs now.
func isolatedTenants(h *topology.Host, pl *Plan) topology.CPUSet {
	if h.CPUs.Isolated == nil {
		return topology.CPUSet{}
	}
	return h.CPUs.Isolated.Intersect(pl.Housekeeping.TenantCPUs)
}

// given returns all CPUs of cores that lab nodes have, idle siblings too.
func (a *assembly) given() topology.CPUSet {
	return topology.UnionOf(a.pl.Nodes, func(n NodePlacement) topology.CPUSet {
		return topology.UnionOf(n.Cores, func(id int) topology.CPUSet { return topology.CPUs(a.Cores[id].CPUs...) })
	})
}
