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

// A Problem is one instance of the planner's problem: what there is, what is asked for and what
// each shortcoming costs. Nothing that is not in here decides a placement. NUMA nodes, cores,
// packages and L3 caches are named by the numbers of the host's topology (topology.Host).
type Problem struct {
	Schema   string       `json:"schema"`
	Lab      string       `json:"lab"`
	Host     string       `json:"host"`
	Workload lab.Workload `json:"workload"`

	// HugepageBytes is the size of the hugepages behind the memory of the whole lab: 1 GiB or 2 MiB; 0 for none.
	HugepageBytes uint64 `json:"hugepage_bytes"`
	// PageBytes is the step in which memory is given, and what "pages" counts below: a multiple of
	// HugepageBytes that divides what each lab node asks for.
	PageBytes uint64 `json:"page_bytes"`

	// ReserveCores is how many cores have to be left for the host, of all that no tenant holds.
	ReserveCores int `json:"reserve_cores"`

	NUMANodes []NUMANode `json:"numa_nodes"` // by ID
	Packages  []Package  `json:"packages"`   // by ID
	Cores     []Core     `json:"cores"`      // by ID
	Devices   []Device   `json:"devices"`    // by kind, then ID
	Paths     []PairPath `json:"paths"`      // GPU to NIC and GPU to GPU, every pair of Devices of these kinds once
	Requests  []Request  `json:"requests"`   // in the order of the lab
	Affinity  []Affinity `json:"affinity,omitempty"`
	Weights   Weights    `json:"weights"`

	// Notes say what was assumed because the host does not tell.
	Notes []string `json:"notes,omitempty"`
}

// A NUMANode is a NUMA node with what may be given of it.
type NUMANode struct {
	ID int `json:"id"`
	// Distances are to each node in the order of Problem.NUMANodes; 10 is local. Where the host
	// does not tell, another node is 20 away.
	Distances []int `json:"distances"`
	// Pages is how many pages of Problem.PageBytes the lab may have here; nil where the memory is
	// not known, and then no limit is checked.
	Pages *int64 `json:"pages"`
	// ReserveCores is how many of its free cores have to be left for the host.
	ReserveCores int `json:"reserve_cores,omitempty"`
}

// A Package is a socket.
type Package struct {
	ID int `json:"id"`
	// Busy is why the host keeps a core of this package (a device that it uses hangs there); empty where it need not.
	Busy string `json:"busy,omitempty"`
}

// A Core is a physical core with its online threads. It goes as a whole to one owner.
type Core struct {
	ID       int   `json:"id"`
	CPUs     []int `json:"cpus"` // ascending, at least one
	NUMANode int   `json:"numa_node"`
	Package  int   `json:"package"` // -1 where it is not known
	L3       int   `json:"l3"`      // -1 where it is not known or there is none
	// Efficiency is set for the small cores of hybrid machines.
	Efficiency bool `json:"efficiency,omitempty"`
	// Tenant is who holds the core already; such a core goes to nobody and is not housekeeping.
	Tenant string `json:"tenant,omitempty"`
	// Isolated is set where the host's scheduler puts nothing on any CPU of the core as the host runs now.
	Isolated bool `json:"isolated,omitempty"`
}

// Kinds of devices.
const (
	KindGPU = "gpu"
	KindNIC = "nic"
)

// A Device is a GPU or a network function that a lab node may get: whole, or a NIC by virtual functions.
type Device struct {
	ID   string `json:"id"` // PCI address, or the name that the host's source gave it
	Kind string `json:"kind"`
	// NUMANode is where it is; nil where it is not known, and then no distance to it counts.
	NUMANode *int   `json:"numa_node"`
	Vendor   string `json:"vendor,omitempty"`
	Model    string `json:"model,omitempty"`
	// Bundle is the same number for devices that can only go together: IOMMU groups and functions
	// of one card, joined. A bundle goes to one lab node or stays.
	Bundle int `json:"bundle"`
	// Functions are the PCI functions that go to the lab node with it: its own, and all of its
	// bundle but bridges. Empty without addresses.
	Functions []string `json:"functions,omitempty"`
	// Whole says that the device may be given away; Refused is why not.
	Whole   bool   `json:"whole"`
	Refused string `json:"refused,omitempty"`
	// Group is what ties its bundle together, for messages: "IOMMU group 14"; Tenant is who holds
	// it. Both are empty where there is none, or it is not known.
	Group  string `json:"group,omitempty"`
	Tenant string `json:"tenant,omitempty"`

	// Of NICs: RateMbps is the rate of its link, 0 where it is down. RateUnknown says that nobody
	// knows: the NIC is bound to vfio-pci, or the host's source does not tell. RDMA says that it
	// has or could have RDMA.
	RateMbps    int64 `json:"rate_mbps,omitempty"`
	RateUnknown bool  `json:"rate_unknown,omitempty"`
	RDMA        bool  `json:"rdma,omitempty"`
	// VFs is how many virtual functions of it may be given. A NIC that is given whole gives none.
	VFs int `json:"vfs,omitempty"`
	// FreeVFs are the indexes of those virtual functions, ascending; VFs of them.
	FreeVFs []int `json:"free_vfs,omitempty"`
	// Net is the same number for ports that a cable or a switch joins (links of the lab file), 0 where none is named.
	Net int `json:"net,omitempty"`
}

// Card returns the address of the card that the device is a function of, "" if the ID is no address.
func (d *Device) Card() string {
	card, _, ok := strings.Cut(d.ID, ".")
	if !ok || !strings.Contains(card, ":") {
		return ""
	}
	return card
}

// A PairPath is what lies between a GPU and a NIC, or between two GPUs. A and B are indexes of
// Problem.Devices; A is a GPU, and less than B where both are.
type PairPath struct {
	A     int    `json:"a"`
	B     int    `json:"b"`
	Class string `json:"class"` // as nvidia-smi prints it: NV, PIX, PXB, PHB, NODE, SYS
	// Steps is the class as a number: NV and PIX 0, PXB 1, PHB 2, NODE 3, SYS 4. Where the host
	// does not tell, the NUMA nodes decide between NODE and SYS.
	Steps int `json:"steps"`
	// LossPercent is what was measured between the two instead, against the best pair of the same
	// study: 0 to 100, rounded up. nil: not measured.
	LossPercent *int `json:"loss_percent,omitempty"`
}

// classSteps are the path classes as numbers, in the order of nvidia-smi's legend. NVLink and one
// switch cost nothing, because nothing is nearer.
var classSteps = map[topology.PathClass]int{
	topology.PathNVLink: 0, topology.PathPIX: 0, topology.PathPXB: 1, topology.PathPHB: 2, topology.PathNODE: 3,
	topology.PathSYS: 4,
}

// SetClass sets Class and Steps of the path between x and y. It reports false where the host does
// not tell the class: then the NUMA nodes of the two decide.
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

// A Request is what a lab node asks for.
type Request struct {
	Name  string `json:"name"`
	VCPUs int    `json:"vcpus"`
	// Threads is how many vCPUs share a core: 1, or a power of two up to the threads of the host's
	// cores. VCPUs is a multiple of it.
	Threads int `json:"threads"`
	// Cores is VCPUs / Threads. Only cores with at least Threads CPUs will do.
	Cores int `json:"cores"`
	// Pages is the memory, in Problem.PageBytes.
	Pages int64 `json:"pages"`
	// GuestNUMA is "auto", "on" or "off".
	GuestNUMA string `json:"guest_numa"`
	GPUs      []Want `json:"gpus,omitempty"`
	NICs      []Want `json:"nics,omitempty"`
	VFs       []Want `json:"vfs,omitempty"`
	// Class is the same number for requests that differ in the name only and are in no affinity:
	// such lab nodes can be swapped.
	Class int `json:"class"`
}

// A Want asks for Count different devices out of Any: for VFs, for Count virtual functions of NICs
// out of Any, several of one NIC if need be.
type Want struct {
	Count int `json:"count"`
	// indexes of Problem.Devices, ascending; for GPUs and NICs only devices that are Whole, for VFs
	// only those with VFs
	Any  []int  `json:"any"`
	Text string `json:"text,omitempty"` // as the lab file asks: "2 of vendor nvidia", "0000:06:00.0"
}

// Values of Affinity.
const (
	Same      = "same"
	Different = "different"
)

// An Affinity ties lab nodes together or keeps them apart, pair by pair.
type Affinity struct {
	Requests []int `json:"requests"` // indexes of Problem.Requests, ascending, at least two
	// NUMA is Same: their cores are on the same set of NUMA nodes; Different: no NUMA node has
	// cores of two of them; or empty.
	NUMA string `json:"numa,omitempty"`
	// NIC is Same: whole NICs and NICs of VFs of each are the same set; Different: no NIC serves two of them; or empty.
	NIC string `json:"nic,omitempty"`
}

// A Placement answers a Problem: Nodes[i] is where Requests[i] goes.
type Placement struct {
	Nodes []NodePlacement `json:"nodes"`
}

// A NodePlacement is where one lab node goes.
type NodePlacement struct {
	Cores  []int      `json:"cores"`          // IDs of Problem.Cores, ascending
	Memory []NodePage `json:"memory"`         // by NUMA node, none with 0 pages
	GPUs   []int      `json:"gpus,omitempty"` // indexes of Problem.Devices, ascending
	NICs   []int      `json:"nics,omitempty"` // likewise
	VFs    []VFCount  `json:"vfs,omitempty"`  // by device
}

// NodePage is pages of a NUMA node.
type NodePage struct {
	NUMANode int   `json:"numa_node"`
	Pages    int64 `json:"pages"`
}

// VFCount is virtual functions of a NIC.
type VFCount struct {
	Device int `json:"device"`
	Count  int `json:"count"`
}

// Distance returns the SLIT distance beyond local from NUMA node a to b, by ID: 0 for the node
// itself. Unknown IDs are a slip of the caller and panic.
func (p *Problem) Distance(a, b int) int {
	node := func(id int) int { return slices.IndexFunc(p.NUMANodes, func(n NUMANode) bool { return n.ID == id }) }
	return p.NUMANodes[node(a)].Distances[node(b)] - 10
}

// Path returns the pair of devices a and b, in any order; nil where Paths has none.
func (p *Problem) Path(a, b int) *PairPath {
	return lists.Ref(p.Paths, func(q *PairPath) bool { return q.A == a && q.B == b || q.A == b && q.B == a })
}

// A Wiring says which ports are on one card and, where the lab names links, which reach each other.
type Wiring struct {
	card []int // of a device: the first NIC of its card, -1 where it is alone there
	net  []int // of a device: the same number for ports that reach each other; nil without links
}

// Wiring returns how the ports of the problem hang together; nil where no card has two and no link is named.
func (p *Problem) Wiring() *Wiring {
	w := &Wiring{card: slices.Repeat([]int{-1}, len(p.Devices))}
	// A card counts only once a second of its ports is found: until then its first port is alone.
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
			// Below 0, so that it is no number of a link; each port without one has its own.
			w.net = append(w.net, -d-1) // virtual functions of one port reach each other
		}
	}
	if !cards && !linked {
		return nil
	}
	return w
}

// Card returns what stands for the card of a device, -1 where it is the only NIC there.
func (w *Wiring) Card(d int) int {
	if w == nil {
		return -1
	}
	return w.card[d]
}

// Linked reports whether the lab names links.
func (w *Wiring) Linked() bool { return w != nil && w.net != nil }

// Between compares the ports of two lab nodes: cards counts those of which both have ports, but none in common;
// unlinked the ports of the one with fewer that have no port of the other to reach. It is symmetric. A port that both
// have counts for neither: both lab nodes are then on that card already.
func (w *Wiring) Between(a, b []int) (cards, unlinked int64) {
	// How many of the ports are of group k, in the sense of of.
	on := func(of, ports []int, k int) int64 {
		return int64(lists.Count(ports, func(d int) bool { return of[d] == k }))
	}
	for x, d := range a {
		// Each card counts once, at its first port in a.
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
	// Among the ports that reach each other, as many pairs can be made as the node with fewer of them has. The ports of
	// the smaller node that are in no pair are unlinked.
	unlinked = int64(min(len(a), len(b)))
	for x, d := range a {
		if k := w.net[d]; on(w.net, a[:x], k) == 0 {
			unlinked -= min(on(w.net, a, k), on(w.net, b, k))
		}
	}
	return cards, unlinked
}
