package rivals

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/plan"
)

// A host is what is left of a problem's host while the lab nodes of a rival are placed one after another.
type host struct {
	p     *plan.Problem
	nodes []int // IDs of NUMA nodes, ascending

	coreOf   map[int]int   // CPU to index of Problem.Cores
	reserved map[int]bool  // indexes of cores kept for the host
	user     map[int]int   // CPU to the request that is pinned to it
	taken    map[int][]int // index of core to the requests that are placed on it, by the rounded placement
	pages    map[int]int64 // by NUMA node: what is left
	gone     []int         // by device: 1 + the request that has it whole
	vfs      []int         // by device: virtual functions left
	// lastNamed is, by bundle, the last request that asks for a device of it by name, so that nothing else will do.
	lastNamed map[int]int
	floats    []int   // requests whose vCPUs float
	floatsOn  [][]int // for each of them the NUMA nodes
	placed    []plan.NodePlacement
	notes     []string

	instances map[int]int  // incus: instances by NUMA node
	memory    []memoryNode // kubelet: the memory manager's book, by index of nodes
	allowed   int          // nova: fitting attempts left for the whole lab
}

// unlimited stands for memory whose size is not known. Sums of it over all nodes stay far from overflow.
const unlimited = int64(1) << 52

func newHost(p *plan.Problem) *host {
	h := &host{
		p: p, coreOf: map[int]int{}, reserved: map[int]bool{}, user: map[int]int{}, taken: map[int][]int{},
		pages: map[int]int64{},
		gone:  make([]int, len(p.Devices)), vfs: make([]int, len(p.Devices)), instances: map[int]int{},
		lastNamed: map[int]int{},
	}
	for _, n := range p.NUMANodes {
		h.nodes = append(h.nodes, n.ID)
		h.pages[n.ID] = unlimited
		if n.Pages != nil {
			h.pages[n.ID] = min(max(*n.Pages, 0), unlimited)
		}
	}
	slices.Sort(h.nodes)
	for i := range p.Cores {
		for _, c := range p.Cores[i].CPUs {
			h.coreOf[c] = i
		}
	}
	for i := range p.Devices {
		h.vfs[i] = p.Devices[i].VFs
	}
	for i := range p.Requests {
		for _, w := range wants(&p.Requests[i]) {
			if w.kind == wantVF || w.Count < len(w.Any) {
				continue
			}
			for _, d := range w.Any {
				h.lastNamed[p.Devices[d].Bundle] = i
			}
		}
	}
	return h
}

// reserve keeps cores for the host as an operator would who is asked for Problem.ReserveCores:
// first what is asked of single NUMA nodes, then a core in each package with devices in use, then
// the lowest cores. With spread the rest comes from the NUMA nodes in turn, as guides for NUMA
// hosts say.
func (h *host) reserve(spread bool) {
	order := make([]int, 0, len(h.p.Cores)) // by CPU number, as an operator writes a list
	for i := range h.p.Cores {
		if h.p.Cores[i].Tenant == "" {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(h.p.Cores[a].CPUs[0], h.p.Cores[b].CPUs[0]) })

	onNode, onPackage := map[int]int{}, map[int]int{}
	keep := func(i int) {
		h.reserved[i] = true
		onNode[h.p.Cores[i].NUMANode]++
		onPackage[h.p.Cores[i].Package]++
	}
	for _, n := range h.p.NUMANodes {
		for _, i := range order {
			if c := &h.p.Cores[i]; c.NUMANode == n.ID && onNode[n.ID] < n.ReserveCores && !h.reserved[i] {
				keep(i)
			}
		}
	}
	for _, pkg := range h.p.Packages {
		for _, i := range order {
			if h.p.Cores[i].Package == pkg.ID && pkg.Busy != "" && onPackage[pkg.ID] == 0 {
				keep(i)
			}
		}
	}
	for len(h.reserved) < h.p.ReserveCores && len(h.reserved) < len(order) {
		best := -1
		for _, i := range order {
			if h.reserved[i] {
				continue
			}
			if best < 0 || spread && onNode[h.p.Cores[i].NUMANode] < onNode[h.p.Cores[best].NUMANode] {
				best = i
			}
		}
		keep(best)
	}
}

// threads is how many CPUs the largest core has.
func (h *host) threads() int {
	most := 1
	for i := range h.p.Cores {
		most = max(most, len(h.p.Cores[i].CPUs))
	}
	return most
}

// free says whether a rival that pins may take a CPU: nobody has it, and its core is not the host's or a tenant's.
func (h *host) free(cpu int) bool {
	i, ok := h.coreOf[cpu]
	if !ok || h.reserved[i] || h.p.Cores[i].Tenant != "" {
		return false
	}
	_, used := h.user[cpu]
	return !used
}

// coresOn counts the cores of a placement by NUMA node.
func (h *host) coresOn(cores []int) map[int]int64 {
	on := map[int]int64{}
	for _, i := range cores {
		on[h.p.Cores[i].NUMANode]++
	}
	return on
}

var errNoPages = errors.New("not enough memory")

// touch takes pages as Linux gives them where each thread touches its share first: from the
// thread's own NUMA node, and when that is used up from the nearest of the allowed ones. It takes
// nothing where all of them together have too few.
func (h *host) touch(pages int64, cores []int, allowed []int) ([]plan.NodePage, error) {
	var there int64
	for _, n := range allowed {
		there += h.pages[n]
	}
	if there < pages {
		return nil, fmt.Errorf("%w: %d pages of %s on NUMA nodes %s, %d asked for", errNoPages, there,
			words.Exact(h.p.PageBytes), numbers(allowed), pages)
	}
	shares := plan.Shares(pages, h.coresOn(cores))
	got := map[int]int64{}
	take := func(n int, want int64) int64 {
		have := min(want, h.pages[n])
		h.pages[n] -= have
		got[n] += have
		return want - have
	}
	over := map[int]int64{}
	for _, n := range h.nodes {
		if !slices.Contains(allowed, n) {
			over[n] = shares[n]
			continue
		}
		over[n] = take(n, shares[n])
	}
	for _, from := range h.nodes {
		for _, n := range h.near(from, allowed) {
			over[from] = take(n, over[from])
		}
	}
	return h.pageList(got), nil
}

// pageList makes the list that a placement holds.
func (h *host) pageList(got map[int]int64) []plan.NodePage {
	var list []plan.NodePage
	for _, n := range h.nodes {
		if got[n] > 0 {
			list = append(list, plan.NodePage{NUMANode: n, Pages: got[n]})
		}
	}
	return list
}

// near returns nodes by their distance from one, of equally far ones the lowest first.
func (h *host) near(from int, nodes []int) []int {
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(h.p.Distance(from, a), h.p.Distance(from, b)), cmp.Compare(a, b))
	})
	return nodes
}

// put records where request i goes. Cores are indexes of Problem.Cores.
func (h *host) put(n plan.NodePlacement, cores []int) {
	i := len(h.placed)
	for _, c := range cores {
		h.taken[c] = append(h.taken[c], i)
		n.Cores = append(n.Cores, h.p.Cores[c].ID)
	}
	slices.Sort(n.Cores)
	slices.Sort(n.GPUs)
	slices.Sort(n.NICs)
	h.placed = append(h.placed, n)
}

func (h *host) note(format string, args ...any) {
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
}
