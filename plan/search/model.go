package search

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// A model is a Problem with indexes in place of IDs, and with counts of interchangeable cores.
type model struct {
	p *plan.Problem

	index    map[int]int // NUMA node ID to index of nodes
	nodes    []node
	near     [][]int // by NUMA node: all nodes by distance; nil if no request needs it
	dist     []int64 // see far
	pools    []pool
	cells    []cell
	comps    []component
	spills   []spill
	pairings []*pairing
	packages []pkg
	l3s      []l3
	devices  []device
	bundles  int
	requests []request
	classes  [][]int // with at least two requests; ascending

	wiring    *plan.Wiring
	onCard    [][]int
	cards     []int   // by first NIC of a card without virtual functions in use: its ports, else 0
	symmetric []int   // by device: the last interchangeable one before it, or -1
	pairCost  []int64 // see pair
	gpuCost   []int64 // see gpuPair

	free, asked int  // free: without a tenant
	emulator    bool // distances to housekeeping exist
	oddLocal    bool // some node's memory is farther than 10 from its cores
	limited     bool // some node has limited memory
}

type node struct {
	id      int
	free    int // cores without a tenant
	reserve int
	pages   int64 // unused if not limited
	limited bool
	pools   []int
}

func (n *node) most() int { return max(0, n.free-n.reserve) }

// A pool is a class of interchangeable free cores.
type pool struct {
	poolKey
	free  int
	cells []int
	comp  int
}

type poolKey struct {
	node, pkg  int // pkg is -1 if no rule depends on it
	threads    int // rounded down to a number that some request asks for
	efficiency bool
}

type cell struct {
	pool  int
	l3    int   // -1 if unknown
	cores []int // IDs, ascending
}

// An l3 has no cells if all of its cores belong to tenants.
type l3 struct {
	tenant bool
	cells  []int
}

// A component is a connected component of the graph of pools and L3 caches.
type component struct {
	pools  []int
	l3s    []int
	large  []int // free cores of the caches without tenants, descending
	single bool  // one L3 has all cores
}

// A pkg is a package of which the host keeps a core.
type pkg struct {
	free, reserve int
}

type device struct {
	home   int // node, or -1 if unknown
	bundle int
	whole  bool
	nic    bool
	vfs    int
	port   int64 // cost as a port: rate and RDMA
	card   int   // the first NIC of its card, or -1 without others
	net    int   // group of linked ports, or 0
}

const (
	// costLimit exceeds any cost, and sums of scaled costs fit an int64.
	costLimit  = 1 << 52
	maxDevices = 2048
)

func newModel(p *plan.Problem) (*model, error) {
	m := &model{p: p}
	for _, step := range []func() error{
		m.checkWeights, m.addNodes, m.addCores, m.addDevices, m.addRequests, m.addAffinity, m.checkRange,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	m.emulator = m.free > m.asked
	m.findRepresentatives()
	m.findSymmetries()
	m.findCards()
	m.prepareLookahead()
	m.priceMemory()
	return m, nil
}

func (m *model) addNodes() error {
	p := m.p
	n := len(p.NUMANodes)
	m.nodes = make([]node, n)
	m.dist = make([]int64, n*n)
	m.index = make(map[int]int, n)
	for i := range p.NUMANodes {
		q := &p.NUMANodes[i]
		if _, twice := m.index[q.ID]; twice {
			return fmt.Errorf("problem: NUMA node %d is there twice", q.ID)
		}
		m.index[q.ID] = i
		if len(q.Distances) != n {
			return fmt.Errorf("problem: NUMA node %d has %d distances, want %d, one to each node", q.ID,
				len(q.Distances), n)
		}
		for j, d := range q.Distances {
			if d < 10 || d > 1<<20 {
				return fmt.Errorf("problem: distance %d from NUMA node %d to %d is not in 10 to %d", d, q.ID,
					p.NUMANodes[j].ID, 1<<20)
			}
			m.dist[i*n+j] = int64(d - 10)
		}
		m.oddLocal = m.oddLocal || m.far(i, i) > 0
		m.nodes[i] = node{id: q.ID, reserve: max(0, q.ReserveCores)}
		if q.Pages != nil {
			if *q.Pages < 0 {
				return fmt.Errorf("problem: NUMA node %d has %d pages, want 0 or more", q.ID, *q.Pages)
			}
			m.nodes[i].pages, m.nodes[i].limited = *q.Pages, true
			m.limited = true
		}
	}
	return nil
}

func (m *model) far(a, b int) int64 { return m.dist[a*len(m.nodes)+b] }

type numbering[K comparable] map[K]int

func (n numbering[K]) of(key K) (number int, isNew bool) {
	number, known := n[key]
	if !known {
		number = len(n)
		n[key] = number
	}
	return number, !known
}

func (m *model) addCores() error {
	p := m.p
	busy := numbering[int]{} // package IDs
	ofNode := m.nodeOfPackage()
	for i := range p.Packages {
		if p.Packages[i].Busy == "" {
			continue
		}
		if n, ok := ofNode[p.Packages[i].ID]; ok {
			m.nodes[n].reserve = max(m.nodes[n].reserve, 1)
			continue
		}
		if _, isNew := busy.of(p.Packages[i].ID); isNew {
			m.packages = append(m.packages, pkg{})
		}
	}
	// The order in the problem must not matter.
	cores := make([]*plan.Core, len(p.Cores))
	for i := range p.Cores {
		cores[i] = &p.Cores[i]
	}
	slices.SortFunc(cores, func(a, b *plan.Core) int { return cmp.Compare(a.ID, b.ID) })
	l3s := numbering[int]{}
	l3Of := func(c *plan.Core) int {
		if c.L3 < 0 {
			return -1
		}
		l, isNew := l3s.of(c.L3)
		if isNew {
			m.l3s = append(m.l3s, l3{})
		}
		return l
	}
	for k, c := range cores {
		if k > 0 && c.ID == cores[k-1].ID {
			return fmt.Errorf("problem: core %d is there twice", c.ID)
		}
		if c.Tenant != "" && c.L3 >= 0 {
			m.l3s[l3Of(c)].tenant = true
		}
	}
	// Threads beyond the number that any request asks for do not matter, and fewer pools mean fewer columns.
	levels := lists.Distinct(lists.Map(p.Requests, func(r plan.Request) int { return r.Threads }))
	pools, cells := numbering[poolKey]{}, numbering[[2]int]{}
	for _, c := range cores {
		if c.Tenant != "" {
			continue
		}
		n, ok := m.index[c.NUMANode]
		if !ok {
			return fmt.Errorf("problem: core %d is on NUMA node %d, which is not there", c.ID, c.NUMANode)
		}
		m.nodes[n].free++
		m.free++
		key := poolKey{node: n, pkg: -1, efficiency: c.Efficiency}
		if b, ok := busy[c.Package]; ok {
			key.pkg = b
			m.packages[b].free++
			m.packages[b].reserve = 1
		}
		for _, level := range levels {
			if len(c.CPUs) >= level {
				key.threads = level
			}
		}
		k, isNew := pools.of(key)
		if isNew {
			m.pools = append(m.pools, pool{poolKey: key, comp: -1})
			m.nodes[n].pools = append(m.nodes[n].pools, k)
		}
		l := l3Of(c)
		x, isNew := cells.of([2]int{k, l})
		if isNew {
			m.cells = append(m.cells, cell{pool: k, l3: l})
			m.pools[k].cells = append(m.pools[k].cells, x)
			if l >= 0 {
				m.l3s[l].cells = append(m.l3s[l].cells, x)
			}
		}
		m.pools[k].free++
		m.cells[x].cores = append(m.cells[x].cores, c.ID)
	}
	for k := range m.pools {
		if m.pools[k].comp < 0 {
			m.addComponent(k)
		}
	}
	m.findDirty()
	return nil
}

// nodeOfPackage returns the NUMA node of each package whose free cores are those of one NUMA node. It returns nil if no
// package is busy.
func (m *model) nodeOfPackage() map[int]int {
	if !slices.ContainsFunc(m.p.Packages, func(k plan.Package) bool { return k.Busy != "" }) {
		return nil
	}
	nodes, packages := map[int][]int{}, map[int][]int{}
	for i := range m.p.Cores {
		c := &m.p.Cores[i]
		if n, ok := m.index[c.NUMANode]; ok && c.Tenant == "" {
			nodes[c.Package] = lists.Add(nodes[c.Package], n)
			packages[n] = lists.Add(packages[n], c.Package)
		}
	}
	one := map[int]int{}
	for id, on := range nodes {
		if len(on) == 1 && len(packages[on[0]]) == 1 {
			one[id] = on[0]
		}
	}
	return one
}

func (m *model) addComponent(start int) {
	c := component{}
	reach := func(pool int) {
		if m.pools[pool].comp < 0 {
			m.pools[pool].comp = len(m.comps)
			c.pools = append(c.pools, pool)
		}
	}
	reach(start)
	unknown := false
	for k := 0; k < len(c.pools); k++ {
		for _, x := range m.pools[c.pools[k]].cells {
			l := m.cells[x].l3
			if l < 0 {
				unknown = true
			} else if !slices.Contains(c.l3s, l) {
				c.l3s = append(c.l3s, l)
				for _, y := range m.l3s[l].cells {
					reach(m.cells[y].pool)
				}
			}
		}
	}
	slices.Sort(c.pools)
	slices.Sort(c.l3s)
	c.single = len(c.l3s) == 1 && !unknown || len(c.l3s) == 0
	for _, l := range c.l3s {
		size := lists.Sum(m.l3s[l].cells, func(x int) int { return len(m.cells[x].cores) })
		if !m.l3s[l].tenant {
			c.large = append(c.large, size)
		}
	}
	slices.SortFunc(c.large, largestFirst)
	m.comps = append(m.comps, c)
}

func largestFirst[T cmp.Ordered](a, b T) int { return cmp.Compare(b, a) }

func (m *model) addDevices() error {
	p := m.p
	n := len(p.Devices)
	if n > maxDevices {
		return fmt.Errorf("problem: %d devices, at most %d can be planned with", n, maxDevices)
	}
	m.devices = make([]device, n)
	m.wiring = p.Wiring()
	bundles := numbering[int]{}
	for i := range p.Devices {
		d := &p.Devices[i]
		v := device{home: -1, whole: d.Whole, nic: d.Kind == plan.KindNIC, card: m.wiring.Card(i), net: d.Net}
		v.bundle, _ = bundles.of(d.Bundle)
		if d.NUMANode != nil {
			var ok bool
			if v.home, ok = m.index[*d.NUMANode]; !ok {
				return fmt.Errorf("problem: device %q is on NUMA node %d, which is not there", d.ID, *d.NUMANode)
			}
		}
		if v.nic {
			v.vfs = max(0, d.VFs)
			v.port = d.RateSteps() * p.Weights.NICRate
			if !d.RDMA {
				v.port += p.Weights.NICRDMA
			}
		}
		m.devices[i] = v
	}
	m.bundles = len(bundles)
	m.pairCost = slices.Repeat([]int64{-1}, n*n)
	m.gpuCost = slices.Clone(m.pairCost)
	for i := range p.Paths {
		q := &p.Paths[i]
		if q.A < 0 || q.A >= n || q.B < 0 || q.B >= n || q.A == q.B {
			return fmt.Errorf("problem: path between devices %d and %d, of which there are %d", q.A, q.B, n)
		}
		if q.Steps < 0 || q.Steps > 1<<20 || q.LossPercent != nil && (*q.LossPercent < 0 || *q.LossPercent > 1<<20) {
			return fmt.Errorf("problem: path between devices %d and %d: steps or loss out of range", q.A, q.B)
		}
		// Of several paths the first counts, as in Problem.Path.
		if m.gpuPair(q.A, q.B) < 0 {
			pair, gpus := p.PairCost(q), int64(q.Steps)*p.Weights.GPUGPUPath
			m.pairCost[q.A*n+q.B], m.pairCost[q.B*n+q.A] = pair, pair
			m.gpuCost[q.A*n+q.B], m.gpuCost[q.B*n+q.A] = gpus, gpus
		}
	}
	return nil
}

// findCards finds the cards whose ports are only given whole, so that the number of lab nodes alone tells the cost of
// sharing one.
func (m *model) findCards() {
	m.cards = make([]int, len(m.devices))
	if m.p.Weights.CardShared == 0 {
		return
	}
	byVF := m.vfUsers() > 0
	for k, ports := range m.onCard {
		if !byVF || !slices.ContainsFunc(ports, func(d int) bool { return m.devices[d].vfs > 0 }) {
			m.cards[k] = len(ports)
		}
	}
}

func (m *model) cardsOf(c *column) func(yield func(k int) bool) {
	return func(yield func(k int) bool) {
		for x, d := range c.nics {
			k := m.devices[d].card
			again := slices.ContainsFunc(c.nics[:x], func(o int) bool { return m.devices[o].card == k })
			if k < 0 || m.cards[k] == 0 || again {
				continue
			}
			if !yield(k) {
				return
			}
		}
	}
}

func (m *model) pair(g, d int) int64 { return m.pairCost[g*len(m.devices)+d] }

func (m *model) gpuPair(g, h int) int64 { return m.gpuCost[g*len(m.devices)+h] }

func (m *model) checkWeights() error {
	w := &m.p.Weights
	for _, v := range []int64{w.GPUNICPath, w.GPUNICMeasured, w.GPUGPUPath, w.DeviceNearest, w.DeviceDistance,
		w.DeviceShare,
		w.MemoryDistance, w.MemoryBalance, w.CoreBalance, w.EfficiencyCores, w.NUMASpan, w.NUMASpanHidden, w.L3Shared,
		w.EmulatorDistance, w.NICRate, w.NICRDMA, w.NICShared, w.CardShared, w.Unlinked, w.Unequal} {
		if v < 0 || v > 1<<40 {
			return fmt.Errorf("problem: weight %d is not in 0 to %d", v, int64(1<<40))
		}
	}
	return nil
}

// checkRange rejects problems with costs that could exceed an int64, by a coarse estimate in floating point.
func (m *model) checkRange() error {
	w := &m.p.Weights
	same := func(cost int64) int64 { return cost }
	far, pair := lists.Max(m.dist, same), max(lists.Max(m.pairCost, same), lists.Max(m.gpuCost, same))
	port := lists.Max(m.devices, func(d device) int64 { return d.port })
	sum := 0.0
	for i := range m.requests {
		r := &m.requests[i]
		cores, devices, pages := float64(r.cores), float64(r.devices), float64(r.pages)
		own := float64(far)*devices*(float64(r.w.Nearest())+cores*float64(r.w.PerCore()+r.w.DeviceShare)) +
			cores*float64(r.w.NUMASpan+r.w.EfficiencyCores+r.w.CoreBalance) + float64(pair)*(devices*devices+devices) +
			float64(port)*devices
		sum += own*(1+float64(w.Unequal)/100) + pages*(float64(far)*float64(r.w.MemoryDistance)+
			float64(r.w.MemoryBalance)) + float64(w.L3Shared)*cores + float64(w.EmulatorDistance)*float64(far) +
			float64(w.NICShared+w.CardShared+w.Unlinked)*devices*float64(len(m.requests))
	}
	if sum > costLimit {
		return fmt.Errorf("problem: costs could come to %.3g, more than can be added up: lower weights, pages or "+
			"distances", sum)
	}
	return nil
}
