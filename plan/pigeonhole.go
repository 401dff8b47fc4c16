package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// A Clash is a set of requests that ask for more of a kind than there is for them, wherever they go. All others can
// have theirs, and without any one of these these can too.
type Clash struct {
	Requests []int    // ascending
	Parts    []string // Demand constants: what was counted
	Affinity int      // index of Problem.Affinity that is needed for it, -1 for none
}

// DeviceClashes finds sets of requests that cannot have what they ask for of devices and NUMA
// nodes, by matching: Hall's theorem says that all can have theirs unless some have too little
// among them. Each kind is looked at alone, so that a problem without clashes may still have no
// placement.
func (p *Problem) DeviceClashes() []Clash {
	var all []Clash
	try := func(m *matching, affinity int, parts ...string) {
		if r := m.tooMany(); r != nil {
			all = append(all, Clash{r, parts, affinity})
		}
	}
	for what, wants := range p.wants {
		m := newMatching(p)
		for d := range p.Devices {
			m.capacity[d] = p.Gives(d, what)
		}
		for i := range p.Requests {
			for _, w := range wants(&p.Requests[i]) {
				m.ask(i, w.Count, w.Any)
			}
		}
		try(m, -1, what)
		if what != DemandVFs {
			try(p.bundleMatching(wants, what), -1, what)
		}
	}
	for k := range p.Affinity {
		a := &p.Affinity[k]
		if a.NUMA == Different {
			m := newMatching(p)
			at := p.nodesWithCores()
			for _, n := range at {
				m.capacity[n] = 1
			}
			for _, i := range a.Requests {
				m.ask(i, 1, at)
			}
			try(m, k)
		}
		if a.NIC == Different {
			m := newMatching(p)
			var parts []string
			for d := range p.Devices {
				m.capacity[d] = 1
			}
			for _, i := range a.Requests {
				r := &p.Requests[i]
				var any []int
				whole := 0
				for _, w := range r.NICs {
					any, whole, parts = append(any, w.Any...), whole+w.Count, append(parts, DemandNICs)
				}
				for _, w := range r.VFs {
					any, parts = append(any, w.Any...), append(parts, DemandVFs)
				}
				m.ask(i, whole+min(1, len(r.VFs)), any)
			}
			try(m, k, lists.Distinct(parts)...)
		}
	}
	return all
}

// wants goes through the kinds of devices, with what a request asks for of them.
func (p *Problem) wants(yield func(string, func(*Request) []Want) bool) {
	_ = yield(DemandGPUs, func(r *Request) []Want { return r.GPUs }) &&
		yield(DemandNICs, func(r *Request) []Want { return r.NICs }) &&
		yield(DemandVFs, func(r *Request) []Want { return r.VFs })
}

// Gives returns how often a device can be given for a kind of demand.
func (p *Problem) Gives(d int, what string) int {
	dev := &p.Devices[d]
	switch {
	case what == DemandVFs:
		return max(0, dev.VFs)
	case dev.Whole && (dev.Kind == KindGPU) == (what == DemandGPUs):
		return 1
	}
	return 0
}

// nodesWithCores returns the NUMA nodes, by index, on which a lab node can have a core.
func (p *Problem) nodesWithCores() []int {
	return lists.Where(p.NUMANodes, func(n NUMANode) bool {
		free := func(c Core) bool { return c.Tenant == "" && c.NUMANode == n.ID }
		return lists.Count(p.Cores, free) > n.ReserveCores
	})
}

// bundleMatching is about bundles: each goes to one lab node, and a lab node needs so many for its devices of a kind.
func (p *Problem) bundleMatching(wants func(*Request) []Want, what string) *matching {
	m := newMatching(p)
	for i := range p.Requests {
		size := map[int]int{} // of each bundle: devices that this one could have
		asked := 0
		var seen []int
		for _, w := range wants(&p.Requests[i]) {
			asked += w.Count
			for _, d := range w.Any {
				if p.Gives(d, what) > 0 && !slices.Contains(seen, d) {
					seen = append(seen, d)
					size[p.Devices[d].Bundle]++
				}
			}
		}
		bundles := slices.SortedFunc(maps.Keys(size), func(a, b int) int {
			return cmp.Or(cmp.Compare(size[b], size[a]), cmp.Compare(a, b))
		})
		count := 0
		for _, b := range bundles {
			m.capacity[b] = 1
			if asked > 0 {
				asked -= size[b]
				count++
			}
		}
		m.ask(i, count, bundles)
	}
	return m
}

// A matching gives places to requests.
type matching struct {
	capacity map[int]int // of places
	units    []matchUnit
	holders  map[int][]int // of a place: units
	tried    map[int]bool  // places, in the present try
}

type matchUnit struct {
	request, count int
	any            []int
}

func newMatching(p *Problem) *matching {
	return &matching{capacity: make(map[int]int, len(p.Devices)), holders: map[int][]int{}}
}

// ask adds a request for so many of some places.
func (m *matching) ask(request, count int, any []int) {
	if count > 0 {
		m.units = append(m.units, matchUnit{request, count, any})
	}
}

// tooMany returns requests of which the places do not suffice, few if it can be; nil where all have theirs.
func (m *matching) tooMany() []int {
	// Largest requests first, so that few lab nodes are named: "vm00 needs 5 GPUs, there are 4" instead of all eight.
	slices.SortStableFunc(m.units, func(a, b matchUnit) int { return cmp.Compare(b.count, a.count) })
	for u := range m.units {
		for range m.units[u].count {
			m.tried = map[int]bool{}
			if m.place(u) {
				continue
			}
			// All places that were tried are held by those who would have to make room, and cannot.
			requests := []int{m.units[u].request}
			for place := range m.tried {
				for _, h := range m.holders[place] {
					requests = append(requests, m.units[h].request)
				}
			}
			return lists.Distinct(requests)
		}
	}
	return nil
}

// place gives a unit one more place: a free one, or one whose holder finds another (Kuhn's method).
func (m *matching) place(u int) bool {
	for _, place := range m.units[u].any {
		if m.tried[place] || m.capacity[place] == 0 || slices.Contains(m.holders[place], u) && m.capacity[place] == 1 {
			continue
		}
		m.tried[place] = true
		if len(m.holders[place]) < m.capacity[place] {
			m.holders[place] = append(m.holders[place], u)
			return true
		}
		for k, h := range m.holders[place] {
			if h != u && m.place(h) {
				m.holders[place][k] = u
				return true
			}
		}
	}
	return false
}

// InfeasibleSchema names the JSON form of an Infeasible.
const InfeasibleSchema = "rackless/infeasible/v1"

// Infeasible is the error that says why a lab cannot be placed: a smallest set of what is asked for
// that conflicts, the facts of the host that it conflicts with, and the nearest that would fit.
// Package plan/conflict makes it.
type Infeasible struct {
	Schema string `json:"schema"`
	// Requests are what conflicts: leave any lab node of them out and the others can be placed. In
	// the order of the lab; what is of no lab node comes last.
	Requests []Demand `json:"requests"`
	// Facts are those of the host that stand in the way: without any one of them the requests could
	// be met, or without those marked Together.
	Facts []Fact `json:"facts"`
	// Message says all that in a sentence, without the names of files or hosts.
	Message string `json:"message"`
	// Nearest says what would fit, in a sentence.
	Nearest string `json:"nearest"`
	// Minimal is set where it was tried that no lab node can be left out of Requests. It is not
	// where time or steps ran out before.
	Minimal bool `json:"minimal"`
	// Stopped says what ended the search before it found a plan or a conflict: then nothing is ruled out.
	Stopped string `json:"stopped"`
}

// Error returns the message and, on a line of its own, the nearest that would fit.
func (e *Infeasible) Error() string { return e.Message + "\n" + e.Nearest }

// What a Demand asks for.
const (
	DemandCores    = "cores"    // Count: cores
	DemandMemory   = "memory"   // Count: bytes
	DemandGPUs     = "gpus"     // Count: GPUs
	DemandNICs     = "nics"     // Count: whole NICs
	DemandVFs      = "vfs"      // Count: virtual functions
	DemandSMT      = "smt"      // Count: threads that share a core
	DemandAffinity = "affinity" // of Among
	DemandReserve  = "reserve"  // Count: cores that the host keeps
)

// A Demand is a part of what is asked for.
type Demand struct {
	Node  string   `json:"node,omitempty"`  // the lab node; empty for affinity and reserve
	Among []string `json:"among,omitempty"` // the lab nodes of an affinity
	What  string   `json:"what"`            // a Demand constant
	Count int64    `json:"count,omitempty"` // how much, in the unit of What
	Text  string   `json:"text"`            // "2 GPUs"
}

// Kinds of facts.
const (
	FactTenant  = "tenant"  // a tenant holds cores or devices
	FactBundle  = "bundle"  // devices can only go together
	FactRefused = "refused" // a device is not given away
	FactVFs     = "vfs"     // a NIC has only so many virtual functions
	FactPackage = "package" // a package keeps a core for the host
	FactMemory  = "memory"  // a NUMA node can give only so much memory
)

// A Fact is something about the host that stands in the way.
type Fact struct {
	Kind     string   `json:"kind"`                // a Fact constant
	Tenant   string   `json:"tenant,omitempty"`    // of FactTenant
	Devices  []string `json:"devices,omitempty"`   // the devices that it is about
	NUMANode *int     `json:"numa_node,omitempty"` // of FactMemory
	Package  *int     `json:"package,omitempty"`   // of FactPackage
	// Together is set where no fact alone would have to change, but all of this kind that are marked.
	Together bool   `json:"together,omitempty"`
	Text     string `json:"text"` // "tenant web holds 0000:06:00.0"
}
