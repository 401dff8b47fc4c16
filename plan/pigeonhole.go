package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
)

// A Clash asks for more of a resource than there is. Without any one of its requests, the remaining ones fit.
type Clash struct {
	Requests []int    // ascending
	Parts    []string // Demand constants
	Affinity int      // index in Problem.Affinity, or -1
}

// DeviceClashes finds conflicts by matching: by Hall's theorem, all requests can be satisfied unless a subset has too
// few choices. It treats each resource separately, so a problem without clashes may still be infeasible.
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

func (p *Problem) wants(yield func(string, func(*Request) []Want) bool) {
	_ = yield(DemandGPUs, func(r *Request) []Want { return r.GPUs }) &&
		yield(DemandNICs, func(r *Request) []Want { return r.NICs }) &&
		yield(DemandVFs, func(r *Request) []Want { return r.VFs })
}

// Gives returns how often a device can satisfy a kind of demand.
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

func (p *Problem) nodesWithCores() []int {
	return lists.Where(p.NUMANodes, func(n NUMANode) bool {
		free := func(c Core) bool { return c.Tenant == "" && c.NUMANode == n.ID }
		return lists.Count(p.Cores, free) > n.ReserveCores
	})
}

// bundleMatching gives a lab node several bundles if one has too few devices of a kind.
func (p *Problem) bundleMatching(wants func(*Request) []Want, what string) *matching {
	m := newMatching(p)
	for i := range p.Requests {
		size := map[int]int{} // devices usable by this request
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

type matching struct {
	capacity map[int]int // by place
	units    []matchUnit
	holders  map[int][]int // units by place
	tried    map[int]bool  // in the current search
}

type matchUnit struct {
	request, count int
	any            []int
}

func newMatching(p *Problem) *matching {
	return &matching{capacity: make(map[int]int, len(p.Devices)), holders: map[int][]int{}}
}

func (m *matching) ask(request, count int, any []int) {
	if count > 0 {
		m.units = append(m.units, matchUnit{request, count, any})
	}
}

// tooMany returns nil if all can be satisfied.
func (m *matching) tooMany() []int {
	// "vm00 needs 5 GPUs, there are 4" instead of all eight.
	slices.SortStableFunc(m.units, func(a, b matchUnit) int { return cmp.Compare(b.count, a.count) })
	for u := range m.units {
		for range m.units[u].count {
			m.tried = map[int]bool{}
			if m.place(u) {
				continue
			}
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

// place uses Kuhn's algorithm.
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

// Infeasible is the error for a lab that cannot be placed. Package plan/conflict makes it.
type Infeasible struct {
	Schema string `json:"schema"`
	// Requests are irreducible. Demands without a lab node come last.
	Requests []Demand `json:"requests"`
	// Facts prevent a placement: without any one of them, or without all marked Together, the requests could be
	// satisfied.
	Facts []Fact `json:"facts"`
	// Message is a sentence without names of files or hosts.
	Message string `json:"message"`
	// Nearest is the nearest request that would fit, in a sentence.
	Nearest string `json:"nearest"`
	// Minimal means that no lab node can be left out of Requests. It is false if time or steps ran out.
	Minimal bool `json:"minimal"`
	// Stopped is the reason for which the search ended before it found a plan or a conflict. A plan may then exist.
	Stopped string `json:"stopped"`
}

// Error returns Message and, on a second line, Nearest.
func (e *Infeasible) Error() string { return e.Message + "\n" + e.Nearest }

// Kinds of demands.
const (
	DemandCores    = "cores"    // Count: cores
	DemandMemory   = "memory"   // Count: bytes
	DemandGPUs     = "gpus"     // Count: GPUs
	DemandNICs     = "nics"     // Count: whole NICs
	DemandVFs      = "vfs"      // Count: virtual functions
	DemandSMT      = "smt"      // Count: threads per core
	DemandAffinity = "affinity" // between the nodes in Among
	DemandReserve  = "reserve"  // Count: cores
)

// A Demand is one requirement of the lab.
type Demand struct {
	Node  string   `json:"node,omitempty"`  // empty for affinity and reserve
	Among []string `json:"among,omitempty"` // lab nodes of an affinity
	What  string   `json:"what"`            // a Demand constant
	Count int64    `json:"count,omitempty"` // in the unit of its kind
	Text  string   `json:"text"`            // "2 GPUs"
}

// Kinds of facts.
const (
	FactTenant  = "tenant"
	FactBundle  = "bundle"
	FactRefused = "refused"
	FactVFs     = "vfs"
	FactPackage = "package"
	FactMemory  = "memory"
)

// A Fact prevents a placement.
type Fact struct {
	Kind     string   `json:"kind"`                // a Fact constant
	Tenant   string   `json:"tenant,omitempty"`    // for FactTenant
	Devices  []string `json:"devices,omitempty"`   // devices concerned
	NUMANode *int     `json:"numa_node,omitempty"` // for FactMemory
	Package  *int     `json:"package,omitempty"`   // for FactPackage
	// Together means that changing this fact alone is not enough, but changing all marked facts of this kind is.
	Together bool   `json:"together,omitempty"`
	Text     string `json:"text"` // "tenant web holds 0000:06:00.0"
}
