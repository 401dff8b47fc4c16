package rivals

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

// A host is the remaining capacity.
type host struct {
	p     *plan.Problem
	nodes []int // IDs of NUMA nodes, ascending

	coreOf    map[int]int   // CPU to index of Problem.Cores
	reserved  map[int]bool  // kept for the host
	user      map[int]int   // CPU to the request
	taken     map[int][]int // core index to the requests, as rounded
	pages     map[int]int64 // remaining pages by NUMA node
	gone      []int         // by device: 1 + the request that has it whole, else 0
	vfs       []int         // by device: remaining virtual functions
	lastNamed map[int]int
	floats    []int
	placed    []plan.NodePlacement
}

// unlimited is for memory of unknown size. Its sum over all nodes does not overflow.
const unlimited = int64(1) << 52

func newHost(p *plan.Problem) *host {
	h := &host{
		p: p, coreOf: map[int]int{}, reserved: map[int]bool{}, user: map[int]int{}, taken: map[int][]int{},
		pages: map[int]int64{}, gone: make([]int, len(p.Devices)), lastNamed: map[int]int{},
	}
	for _, n := range p.NUMANodes {
		h.nodes = append(h.nodes, n.ID)
		h.pages[n.ID] = unlimited
		if n.Pages != nil {
			h.pages[n.ID] = min(max(*n.Pages, 0), unlimited)
		}
	}
	slices.Sort(h.nodes)
	for i, c := range p.Cores {
		for _, cpu := range c.CPUs {
			h.coreOf[cpu] = i
		}
	}
	h.vfs = lists.Map(p.Devices, func(d plan.Device) int { return d.VFs })
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

// reserve works as an operator would: first the cores requested on single NUMA nodes, then a core in each package with
// devices in use, then the lowest cores.
func (h *host) reserve() {
	order := lists.Where(h.p.Cores, func(c plan.Core) bool { return c.Tenant == "" })
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(h.p.Cores[a].CPUs[0], h.p.Cores[b].CPUs[0]) })

	onNode, onPackage := map[int]int{}, map[int]int{}
	keep := func(i int) {
		h.reserved[i] = true
		onNode[h.p.Cores[i].NUMANode]++
		onPackage[h.p.Cores[i].Package]++
	}
	for _, n := range h.p.NUMANodes {
		for _, i := range order {
			if h.p.Cores[i].NUMANode == n.ID && onNode[n.ID] < n.ReserveCores && !h.reserved[i] {
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
	// The nodes' reserves may add up to more than ReserveCores, and tenants may leave fewer cores.
	for _, i := range order {
		if len(h.reserved) < h.p.ReserveCores && !h.reserved[i] {
			keep(i)
		}
	}
}

func (h *host) threads() int {
	return max(1, lists.Max(h.p.Cores, func(c plan.Core) int { return len(c.CPUs) }))
}

func (h *host) free(cpu int) bool {
	if i, ok := h.coreOf[cpu]; !ok || h.reserved[i] || h.p.Cores[i].Tenant != "" {
		return false
	}
	_, used := h.user[cpu]
	return !used
}

// touch takes pages as Linux does if each thread touches its share first: from the thread's NUMA node, and then from
// the nearest allowed one.
func (h *host) touch(pages int64, cores []int, allowed []int) ([]plan.NodePage, error) {
	there := lists.Sum(allowed, func(n int) int64 { return h.pages[n] })
	if there < pages {
		return nil, fmt.Errorf("not enough memory: %d pages of %s on NUMA nodes %s, %d asked for", there,
			words.Exact(h.p.PageBytes), numbers(allowed), pages)
	}
	on := map[int]int64{}
	for _, i := range cores {
		on[h.p.Cores[i].NUMANode]++
	}
	shares := plan.Shares(pages, on)
	got := map[int]int64{}
	take := func(from, n int) {
		k := min(shares[from], h.pages[n])
		h.pages[n] -= k
		got[n] += k
		shares[from] -= k
	}
	h.handOut(allowed, take)
	var list []plan.NodePage
	for _, n := range h.nodes {
		if got[n] > 0 {
			list = append(list, plan.NodePage{NUMANode: n, Pages: got[n]})
		}
	}
	return list, nil
}

func (h *host) handOut(some []int, take func(from, n int)) {
	for _, n := range some {
		take(n, n)
	}
	for _, from := range h.nodes {
		for _, n := range h.near(from, some) {
			take(from, n)
		}
	}
}

func (h *host) near(from int, nodes []int) []int {
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b int) int {
		return cmp.Or(cmp.Compare(h.p.Distance(from, a), h.p.Distance(from, b)), cmp.Compare(a, b))
	})
	return nodes
}

// put takes indexes of Problem.Cores; the placement holds their IDs.
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
