package plan

import (
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
)

// ProblemSchema names the JSON form of a Problem.
const ProblemSchema = "rackless/problem/v1"

// A Problem determines a placement completely. NUMA nodes, cores, packages and L3 caches have the host's numbers
// (topology.Host).
type Problem struct {
	Schema   string       `json:"schema"`
	Lab      string       `json:"lab"`
	Host     string       `json:"host"`
	Workload lab.Workload `json:"workload"`

	// HugepageBytes is for the whole lab's memory: 1 GiB or 2 MiB; 0 without hugepages.
	HugepageBytes uint64 `json:"hugepage_bytes"`
	// PageBytes is the unit in which memory is given, called a page below. It is a multiple of HugepageBytes and
	// divides the memory of each request.
	PageBytes uint64 `json:"page_bytes"`

	// ReserveCores are left for the host, out of the cores without a tenant.
	ReserveCores int `json:"reserve_cores"`

	NUMANodes []NUMANode `json:"numa_nodes"` // by ID
	Packages  []Package  `json:"packages"`   // by ID
	Cores     []Core     `json:"cores"`      // by ID
	Devices   []Device   `json:"devices"`    // by kind, then ID
	Paths     []PairPath `json:"paths"`      // GPU to NIC and GPU to GPU, every pair once
	Requests  []Request  `json:"requests"`   // in the order of the lab
	Affinity  []Affinity `json:"affinity,omitempty"`
	Weights   Weights    `json:"weights"`

	// Notes are assumptions about the host.
	Notes []string `json:"notes,omitempty"`
}

// A NUMANode has available resources.
type NUMANode struct {
	ID int `json:"id"`
	// Distances are SLIT distances to each node in the order of Problem.NUMANodes; 10 is local. If unknown, the
	// distance to another node is 20.
	Distances []int `json:"distances"`
	// Pages is the number of Problem.PageBytes available to the lab, or nil if unknown; then there is no limit.
	Pages *int64 `json:"pages"`
	// ReserveCores are left for the host.
	ReserveCores int `json:"reserve_cores,omitempty"`
}

// A Package is a socket.
type Package struct {
	ID int `json:"id"`
	// Busy is the reason for which the host keeps a core of this package, a device in use there or BusyByDefault; or
	// empty.
	Busy string `json:"busy,omitempty"`
}

// BusyByDefault applies because the lab names no number.
const BusyByDefault = "the host's own threads"

// A Core has its online threads, and a single owner.
type Core struct {
	ID       int   `json:"id"`
	CPUs     []int `json:"cpus"` // ascending, at least one
	NUMANode int   `json:"numa_node"`
	Package  int   `json:"package"` // -1 if unknown
	L3       int   `json:"l3"`      // -1 if unknown or missing
	// Efficiency is set for the small cores of hybrid machines.
	Efficiency bool `json:"efficiency,omitempty"`
	// Tenant holds the core, which is then not available and not housekeeping.
	Tenant string `json:"tenant,omitempty"`
	// Isolated means that all CPUs of the core are currently excluded from the host's scheduler.
	Isolated bool `json:"isolated,omitempty"`
}

// Kinds of devices.
const (
	KindGPU = "gpu"
	KindNIC = "nic"
)

// A Device is a GPU or NIC that a lab node may get: as a whole, or a NIC by virtual functions.
type Device struct {
	ID   string `json:"id"` // or the name in the host's source
	Kind string `json:"kind"`
	// NUMANode is nil if unknown; then no distance to it counts.
	NUMANode *int   `json:"numa_node"`
	Vendor   string `json:"vendor,omitempty"`
	Model    string `json:"model,omitempty"`
	// Bundle is the same number for devices that can only be given together, because of an IOMMU group or as functions
	// of one card.
	Bundle int `json:"bundle"`
	// Functions go with the device: its own, and all of its bundle except bridges. Empty if there are no addresses.
	Functions []string `json:"functions,omitempty"`
	// Whole reports whether the device may be given away. If not, Refused is the reason.
	Whole   bool   `json:"whole"`
	Refused string `json:"refused,omitempty"`
	// Group names the tie for messages, such as "IOMMU group 14"; Tenant holds the device. Both may be empty.
	Group  string `json:"group,omitempty"`
	Tenant string `json:"tenant,omitempty"`

	// RateMbps is a NIC's link rate, or 0 if the link is down. RateUnknown is set if the NIC is bound to vfio-pci or
	// the host does not tell. RDMA reports whether the NIC has or could have RDMA.
	RateMbps    int64 `json:"rate_mbps,omitempty"`
	RateUnknown bool  `json:"rate_unknown,omitempty"`
	RDMA        bool  `json:"rdma,omitempty"`
	// VFs is the number that may be given. A NIC given as a whole gives none.
	VFs int `json:"vfs,omitempty"`
	// FreeVFs are their indexes, ascending.
	FreeVFs []int `json:"free_vfs,omitempty"`
	// Net is the same number for ports joined by a cable or switch (links of the lab file), or 0 if the lab names no
	// link.
	Net int `json:"net,omitempty"`
}

// Card is an address, or "" if the ID is not one.
func (d *Device) Card() string {
	card, _, ok := strings.Cut(d.ID, ".")
	if !ok || !strings.Contains(card, ":") {
		return ""
	}
	return card
}

// A PairPath is between a GPU and a NIC, or between two GPUs. A and B are indexes in Problem.Devices. A is a GPU, and
// less than B if both are GPUs.
type PairPath struct {
	A     int    `json:"a"`
	B     int    `json:"b"`
	Class string `json:"class"` // as nvidia-smi prints it: NV, PIX, PXB, PHB, NODE, SYS
	// Steps is the class as a number: NV and PIX 0, PXB 1, PHB 2, NODE 3, SYS 4. If the host does not tell, the NUMA
	// nodes decide between NODE and SYS.
	Steps int `json:"steps"`
	// LossPercent is measured, relative to the best pair of the same study: 0 to 100, rounded up. It replaces Steps,
	// and is nil if there is no measurement.
	LossPercent *int `json:"loss_percent,omitempty"`
}

// classSteps has the order of nvidia-smi's legend. NVLink and one switch cost nothing, because nothing is nearer.
var classSteps = map[topology.PathClass]int{
	topology.PathNVLink: 0, topology.PathPIX: 0, topology.PathPXB: 1, topology.PathPHB: 2, topology.PathNODE: 3,
	topology.PathSYS: 4,
}

// SetClass returns false if the host does not tell the class and the NUMA nodes of the two decide.
func (q *PairPath) SetClass(c topology.PathClass, x, y *Device) bool {
	_, known := classSteps[c]
	if !known {
		c = topology.PathSYS
		if x.NUMANode != nil && y.NUMANode != nil && *x.NUMANode == *y.NUMANode {
			c = topology.PathNODE
		}
	}
	q.Class, q.Steps = c.String(), classSteps[c]
	return known
}

// A Request is of one lab node.
type Request struct {
	Name  string `json:"name"`
	VCPUs int    `json:"vcpus"`
	// Threads is the number of vCPUs per core: 1, or a power of two up to the threads of the host's cores. It divides
	// VCPUs.
	Threads int `json:"threads"`
	// Cores is VCPUs / Threads. Each must have at least Threads CPUs.
	Cores int `json:"cores"`
	// Pages is in Problem.PageBytes.
	Pages int64 `json:"pages"`
	// GuestNUMA is "auto", "on" or "off".
	GuestNUMA string `json:"guest_numa"`
	GPUs      []Want `json:"gpus,omitempty"`
	NICs      []Want `json:"nics,omitempty"`
	VFs       []Want `json:"vfs,omitempty"`
	// Class is the same for requests that differ only in name and have no affinity.
	Class int `json:"class"`
}

// A Want asks for Count different devices out of Any, or Count virtual functions of NICs out of Any, with several from
// one NIC if needed.
type Want struct {
	Count int `json:"count"`
	// indexes in Problem.Devices, ascending; for GPUs and NICs only devices with Whole, for VFs only devices with VFs
	Any  []int  `json:"any"`
	Text string `json:"text,omitempty"` // of the lab file: "2 of vendor nvidia", "0000:06:00.0"
}

// Values of Affinity.
const (
	Same      = "same"
	Different = "different"
)

// An Affinity ties lab nodes together or keeps them apart, pair by pair.
type Affinity struct {
	Requests []int `json:"requests"` // ascending, at least two
	// NUMA is Same (their cores are on the same set of NUMA nodes), Different (no NUMA node has cores of two of them),
	// or empty.
	NUMA string `json:"numa,omitempty"`
	// NIC is Same (each has the same set of NICs, whole or by VFs), Different (no NIC serves two of them), or empty.
	NIC string `json:"nic,omitempty"`
}

// A Placement has Nodes[i] for Requests[i].
type Placement struct {
	Nodes []NodePlacement `json:"nodes"`
}

// A NodePlacement is of one lab node.
type NodePlacement struct {
	Cores  []int      `json:"cores"`          // IDs of Problem.Cores, ascending
	Memory []NodePage `json:"memory"`         // by NUMA node, without entries of 0 pages
	GPUs   []int      `json:"gpus,omitempty"` // indexes in Problem.Devices, ascending
	NICs   []int      `json:"nics,omitempty"` // likewise
	VFs    []VFCount  `json:"vfs,omitempty"`  // by device
}

// NodePage is on a NUMA node.
type NodePage struct {
	NUMANode int   `json:"numa_node"`
	Pages    int64 `json:"pages"`
}

// VFCount is for a NIC.
type VFCount struct {
	Device int `json:"device"`
	Count  int `json:"count"`
}

// Distance is beyond local, from NUMA node a to b, by ID: 0 for the node itself. It panics for unknown IDs.
func (p *Problem) Distance(a, b int) int {
	node := func(id int) int { return slices.IndexFunc(p.NUMANodes, func(n NUMANode) bool { return n.ID == id }) }
	return p.NUMANodes[node(a)].Distances[node(b)] - 10
}

// Path is in either order, or nil if Paths lacks it.
func (p *Problem) Path(a, b int) *PairPath {
	return lists.Ref(p.Paths, func(q *PairPath) bool { return q.A == a && q.B == b || q.A == b && q.B == a })
}

// A Wiring tells which ports are on one card and, if the lab names links, which ports reach each other.
type Wiring struct {
	card []int // by device: the first NIC of its card, or -1 without others
	net  []int // by device: equal for ports that reach each other; nil without links
}

// Wiring returns nil if no card has two ports and the lab names no link.
func (p *Problem) Wiring() *Wiring {
	w := &Wiring{card: slices.Repeat([]int{-1}, len(p.Devices))}
	// A card counts only once its second port is found.
	cards, first, linked := false, map[string]int{}, false
	for d := range p.Devices {
		dev := &p.Devices[d]
		linked = linked || dev.Net > 0
		card := dev.Card()
		if dev.Kind != KindNIC || card == "" {
			continue
		}
		if o, known := first[card]; known {
			w.card[o], w.card[d], cards = o, o, true
		} else {
			first[card] = d
		}
	}
	for d := range p.Devices {
		if net := p.Devices[d].Net; linked && net > 0 {
			w.net = append(w.net, net)
		} else if linked {
			// Negative, unlike a link: each port without one has its own.
			w.net = append(w.net, -d-1) // virtual functions of one port reach each other
		}
	}
	if !cards && !linked {
		return nil
	}
	return w
}

// Card returns the representative of the device's card, or -1 if the device is the only NIC there.
func (w *Wiring) Card(d int) int {
	if w == nil {
		return -1
	}
	return w.card[d]
}

// Linked reports whether the lab names links.
func (w *Wiring) Linked() bool { return w != nil && w.net != nil }

// Between compares the ports of two lab nodes. cards counts cards on which both have ports but no common one. unlinked
// counts ports of the node with fewer ports that cannot reach a separate port of the other. It is symmetric.
func (w *Wiring) Between(a, b []int) (cards, unlinked int64) {
	on := func(of, ports []int, k int) int64 {
		return int64(lists.Count(ports, func(d int) bool { return of[d] == k }))
	}
	for x, d := range a {
		k := w.card[d]
		if k < 0 || on(w.card, a[:x], k) > 0 || on(w.card, b, k) == 0 {
			continue
		}
		if !slices.ContainsFunc(a, func(o int) bool { return w.card[o] == k && slices.Contains(b, o) }) {
			cards++
		}
	}
	if w.net == nil {
		return cards, 0
	}
	// Unpaired ports of the smaller node are unlinked.
	unlinked = int64(min(len(a), len(b)))
	for x, d := range a {
		if k := w.net[d]; on(w.net, a[:x], k) == 0 {
			unlinked -= min(on(w.net, a, k), on(w.net, b, k))
		}
	}
	return cards, unlinked
}
