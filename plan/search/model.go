package search

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/plan"
)

// A model is a Problem in the form in which it is searched: indexes in place of numbers, and cores
// that cannot be told apart counted.
type model struct {
	p *plan.Problem

	index    map[int]int // of NUMA node IDs
	nodes    []node      // in the order of Problem.NUMANodes
	near     [][]int     // of a NUMA node: all by distance from it; nil where no request needs that
	dist     []int64     // distance beyond local from node a to node b at a*len(nodes)+b
	pools    []pool
	cells    []cell
	comps    []component
	spills   []spill // of places
	pairings []pairing
	packages []pkg
	l3s      []l3
	devices  []device
	bundles  int
	requests []request
	classes  [][]int // requests that can be swapped, two at least; ascending

	symmetric []int   // of a device: the last one before it that could stand in its place, -1 for none
	pairCost  []int64 // of GPU and NIC at gpu*len(devices)+nic, -1 where there is no path
	gpuCost   []int64 // of two GPUs, likewise

	free, asked int  // cores that no tenant holds, and those asked for
	emulator    bool // whether a distance to housekeeping can be: some core will be left
	oddLocal    bool // some node's memory is not the nearest to its own cores
	limited     bool // some node's memory is limited
}

type node struct {
	id      int
	free    int   // cores that no tenant holds
	reserve int   // of them, to be left
	pages   int64 // that may be given; meaningless where unlimited
	limited bool
	pools   []int
}

// A place is the free cores of one NUMA node, package, thread count and size: all that own costs and counts depend on.
type pool struct {
	node, pkg  int // pkg is -1 where no rule depends on it
	threads    int
	efficiency bool
	free       int
	cells      []int
	comp       int
}

// A cell is the cores of a place under one L3 cache.
type cell struct {
	pool  int
	l3    int   // -1 where unknown
	cores []int // IDs, ascending
}

// An l3 is an L3 cache with a free core.
type l3 struct {
	tenant bool
	cells  []int
}

// A component is a set of places that share L3 caches with each other and with no other.
type component struct {
	pools  []int
	l3s    []int
	sizes  []int // free cores of each of l3s
	large  []int // free cores of those without tenants, largest first
	single bool  // one L3 holds all cores: nothing to pack
}

type pkg struct {
	free, reserve int
}

type device struct {
	home   int // node, -1 where unknown
	bundle int
	whole  bool
	nic    bool
	vfs    int
	port   int64 // what a port of it costs: rate and RDMA
}

type request struct {
	cores, threads int
	pages          int64
	class          int
	rep            int // the first request that this one can be swapped with, itself where there is none
	w              plan.NodeWeights
	wants          []want
	devices        int // asked for in all
	gpus, ports    int // likewise
	nics           int // of the ports, whole
	minPair        []int64
	leastGPUs      int64     // least path cost of two GPUs that it may get
	leastGPU       int64     // least of minPair over GPUs
	leastPort      int64     // likewise over ports
	secondPair     int64     // what the path of a GPU costs whose best port is another's, at most: see helpPaths
	peers          []peer    // what affinity says about this one and earlier or later ones
	pools          []bool    // where it may be
	alone          []int64   // what its memory costs at least with all cores on a NUMA node; nil where that is nothing
	aloneSpan      []int64   // likewise with cores on k NUMA nodes, at k
	outlook        bool      // whether the devices to come are looked at closely, see ahead.go
	gpuList        []int     // all GPUs that it may get
	half           [][]int64 // of a GPU of gpuList: its k cheapest paths to others of them, at k
	memory         *pageCost // the same by cores on each node; nil where that is nothing
}

// A want asks for count of any; of kind.
type want struct {
	kind  wantKind
	count int
	any   []int
}

type wantKind int

const (
	wantGPU wantKind = iota
	wantNIC
	wantVF
)

// A peer is another request in an affinity with this one.
type peer struct {
	other     int
	numa, nic string
}

// costLimit is more than any cost may come to, so that sums of scaled costs fit an int64.
const costLimit = 1 << 52

// maxDevices bounds the tables of paths.
const maxDevices = 2048

// newModel checks what the search relies on and indexes the problem.
func newModel(p *plan.Problem) (*model, error) {
	m := &model{p: p}
	if err := checkWeights(&p.Weights); err != nil {
		return nil, err
	}
	if err := m.addNodes(); err != nil {
		return nil, err
	}
	if err := m.addCores(); err != nil {
		return nil, err
	}
	if err := m.addDevices(); err != nil {
		return nil, err
	}
	if err := m.addRequests(); err != nil {
		return nil, err
	}
	if err := m.checkRange(); err != nil {
		return nil, err
	}
	m.emulator = m.free > m.asked
	m.priceMemory()
	m.costsMemory()
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
		m.oddLocal = m.oddLocal || m.dist[i*n+i] > 0
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

// nodeOf returns the index of the NUMA node of that ID, -1 where there is none.
func (m *model) nodeOf(id int) int {
	if i, ok := m.index[id]; ok {
		return i
	}
	return -1
}

// addCores counts free cores by what they differ in.
func (m *model) addCores() error {
	p := m.p
	// A core with more threads than anybody asks for is as good as one with just so many.
	var levels []int
	for i := range p.Requests {
		levels = append(levels, p.Requests[i].Threads)
	}
	slices.Sort(levels)
	levels = slices.Compact(levels)
	busy := map[int]int{} // package ID to index
	for i := range p.Packages {
		if p.Packages[i].Busy != "" {
			if _, twice := busy[p.Packages[i].ID]; !twice {
				busy[p.Packages[i].ID] = len(m.packages)
				m.packages = append(m.packages, pkg{})
			}
		}
	}
	type poolKey struct {
		node, pkg, threads int
		efficiency         bool
	}
	pools := map[poolKey]int{}
	l3s := map[int]int{}
	cells := map[[2]int]int{}
	order := make([]int, len(p.Cores))
	sorted := true
	for i := range order {
		order[i] = i
		sorted = sorted && (i == 0 || p.Cores[i-1].ID < p.Cores[i].ID)
	}
	if !sorted {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Cores[a].ID, p.Cores[b].ID) })
		for k := 1; k < len(order); k++ {
			if id := p.Cores[order[k]].ID; id == p.Cores[order[k-1]].ID {
				return fmt.Errorf("problem: core %d is there twice", id)
			}
		}
	}
	for _, k := range order {
		c := &p.Cores[k]
		if c.L3 < 0 || c.Tenant == "" {
			continue
		}
		i, ok := l3s[c.L3]
		if !ok {
			i = len(m.l3s)
			l3s[c.L3] = i
			m.l3s = append(m.l3s, l3{})
		}
		m.l3s[i].tenant = true
	}
	for _, k := range order {
		c := &p.Cores[k]
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
		pi, ok := pools[key]
		if !ok {
			pi = len(m.pools)
			pools[key] = pi
			m.pools = append(m.pools, pool{node: n, pkg: key.pkg, threads: key.threads, efficiency: key.efficiency})
			m.nodes[n].pools = append(m.nodes[n].pools, pi)
		}
		li := -1
		if c.L3 >= 0 {
			if li, ok = l3s[c.L3]; !ok {
				li = len(m.l3s)
				l3s[c.L3] = li
				m.l3s = append(m.l3s, l3{})
			}
		}
		ci, ok := cells[[2]int{pi, li}]
		if !ok {
			ci = len(m.cells)
			cells[[2]int{pi, li}] = ci
			m.cells = append(m.cells, cell{pool: pi, l3: li})
			m.pools[pi].cells = append(m.pools[pi].cells, ci)
			if li >= 0 {
				m.l3s[li].cells = append(m.l3s[li].cells, ci)
			}
		}
		m.pools[pi].free++
		m.cells[ci].cores = append(m.cells[ci].cores, c.ID)
	}
	m.connect()
	m.findDirty()
	return nil
}

// connect finds the components of places and L3 caches.
func (m *model) connect() {
	for i := range m.pools {
		m.pools[i].comp = -1
	}
	for start := range m.pools {
		if m.pools[start].comp >= 0 {
			continue
		}
		c := len(m.comps)
		comp := component{pools: []int{start}}
		m.pools[start].comp = c
		unknown := false
		for k := 0; k < len(comp.pools); k++ {
			for _, ci := range m.pools[comp.pools[k]].cells {
				l := m.cells[ci].l3
				if l < 0 {
					unknown = true
					continue
				}
				if slices.Contains(comp.l3s, l) {
					continue
				}
				comp.l3s = append(comp.l3s, l)
				for _, cj := range m.l3s[l].cells {
					if q := m.cells[cj].pool; m.pools[q].comp < 0 {
						m.pools[q].comp = c
						comp.pools = append(comp.pools, q)
					}
				}
			}
		}
		slices.Sort(comp.pools)
		slices.Sort(comp.l3s)
		comp.single = len(comp.l3s) == 1 && !unknown || len(comp.l3s) == 0
		for _, l := range comp.l3s {
			size := 0
			for _, ci := range m.l3s[l].cells {
				size += len(m.cells[ci].cores)
			}
			comp.sizes = append(comp.sizes, size)
			if !m.l3s[l].tenant {
				comp.large = append(comp.large, size)
			}
		}
		slices.SortFunc(comp.large, func(a, b int) int { return b - a })
		m.comps = append(m.comps, comp)
	}
}

func (m *model) addDevices() error {
	p := m.p
	n := len(p.Devices)
	if n > maxDevices {
		return fmt.Errorf("problem: %d devices, at most %d can be planned with", n, maxDevices)
	}
	m.devices = make([]device, n)
	bundles := map[int]int{}
	for i := range p.Devices {
		d := &p.Devices[i]
		b, ok := bundles[d.Bundle]
		if !ok {
			b = len(bundles)
			bundles[d.Bundle] = b
		}
		v := device{home: -1, bundle: b, whole: d.Whole, nic: d.Kind == plan.KindNIC}
		if d.NUMANode != nil {
			if v.home = m.nodeOf(*d.NUMANode); v.home < 0 {
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
	m.pairCost = make([]int64, n*n)
	m.gpuCost = make([]int64, n*n)
	for i := range m.pairCost {
		m.pairCost[i], m.gpuCost[i] = -1, -1
	}
	for i := range p.Paths {
		q := &p.Paths[i]
		if q.A < 0 || q.A >= n || q.B < 0 || q.B >= n || q.A == q.B {
			return fmt.Errorf("problem: path between devices %d and %d, of which there are %d", q.A, q.B, n)
		}
		if q.Steps < 0 || q.Steps > 1<<20 || q.LossPercent != nil && (*q.LossPercent < 0 || *q.LossPercent > 1<<20) {
			return fmt.Errorf("problem: path between devices %d and %d: steps or loss out of range", q.A, q.B)
		}
		// The first one counts where there are several, as in Problem.Path.
		if m.gpuCost[q.A*n+q.B] < 0 {
			pair, gpus := p.PairCost(q), int64(q.Steps)*p.Weights.GPUGPUPath
			m.pairCost[q.A*n+q.B], m.pairCost[q.B*n+q.A] = pair, pair
			m.gpuCost[q.A*n+q.B], m.gpuCost[q.B*n+q.A] = gpus, gpus
		}
	}
	return nil
}

func (m *model) addRequests() error {
	p := m.p
	m.requests = make([]request, len(p.Requests))
	members := map[int][]int{}
	var order []int
	for i := range p.Requests {
		q := &p.Requests[i]
		if q.Cores < 1 || q.Cores > 1<<20 || q.Threads < 1 || q.Pages < 0 {
			return fmt.Errorf("problem: request %q has %d cores, %d threads a core, %d pages: want at least 1, 1 and 0",
				q.Name, q.Cores, q.Threads, q.Pages)
		}
		r := request{cores: q.Cores, threads: q.Threads, pages: q.Pages, class: q.Class, w: p.Weights.Of(q)}
		for kind, wants := range [][]plan.Want{q.GPUs, q.NICs, q.VFs} {
			for _, w := range wants {
				if w.Count < 0 || w.Count > 1<<20 {
					return fmt.Errorf("problem: request %q wants %d devices (%q)", q.Name, w.Count, w.Text)
				}
				x := want{kind: wantKind(kind), count: w.Count}
				for _, d := range w.Any {
					if d < 0 || d >= len(m.devices) {
						return fmt.Errorf("problem: request %q wants device %d, of which there are %d", q.Name, d,
							len(m.devices))
					}
					v := &m.devices[d]
					if x.kind == wantVF && v.vfs > 0 || x.kind != wantVF && v.whole && v.nic == (x.kind == wantNIC) {
						x.any = append(x.any, d)
					}
				}
				slices.Sort(x.any)
				x.any = slices.Compact(x.any)
				r.devices += w.Count
				if x.kind == wantGPU {
					r.gpus += w.Count
				} else {
					r.ports += w.Count
				}
				if x.kind == wantNIC {
					r.nics += w.Count
				}
				if w.Count > 0 {
					r.wants = append(r.wants, x)
				}
			}
		}
		if err := m.checkPaths(&r, q.Name); err != nil {
			return err
		}
		r.pools = make([]bool, len(m.pools))
		for k := range m.pools {
			r.pools[k] = m.pools[k].threads >= r.threads
		}
		m.requests[i] = r
		m.asked += r.cores
		if members[q.Class] == nil {
			order = append(order, q.Class)
		}
		members[q.Class] = append(members[q.Class], i)
	}
	for _, class := range order {
		if len(members[class]) > 1 {
			m.classes = append(m.classes, members[class])
		}
	}
	if err := m.addAffinity(); err != nil {
		return err
	}
	m.findRepresentatives()
	m.findSymmetries()
	m.foresee()
	return nil
}

// findSwaps finds requests that can be swapped. Those of one class should be, but a class that is
// wrong must not make the search wrong.
func (m *model) findRepresentatives() {
	for i := range m.requests {
		m.requests[i].rep = i
	}
	for _, members := range m.classes {
		for k, i := range members {
			for _, j := range members[:k] {
				if m.requests[j].rep == j && m.interchangeable(&m.requests[i], &m.requests[j]) {
					m.requests[i].rep = j
					break
				}
			}
		}
	}
}

func (m *model) interchangeable(a, b *request) bool {
	return len(a.peers) == 0 && len(b.peers) == 0 && a.cores == b.cores && a.threads == b.threads &&
		a.pages == b.pages && a.w == b.w &&
		slices.EqualFunc(a.wants, b.wants, func(x, y want) bool {
			return x.kind == y.kind && x.count == y.count && slices.Equal(x.any, y.any)
		})
}

func (m *model) addAffinity() error {
	for k, a := range m.p.Affinity {
		for _, i := range a.Requests {
			if i < 0 || i >= len(m.requests) {
				return fmt.Errorf("problem: affinity %d names request %d, of which there are %d", k, i, len(m.requests))
			}
		}
		for _, i := range a.Requests {
			for _, j := range a.Requests {
				if i != j {
					m.requests[i].peers = append(m.requests[i].peers, peer{j, a.NUMA, a.NIC})
				}
			}
		}
	}
	return nil
}

// A pairing is what paths between some GPUs and some ports cost at least. Most requests ask for the
// same devices, and share one.
type pairing struct {
	gpus, ports []int
	several     bool // a lab node gets more than one of the GPUs
	// of a GPU or port: its cheapest path to one of the others, 0 where it has none
	minPair                        []int64
	leastGPUs, leastGPU, leastPort int64
}

// checkPaths makes sure that every path that the cost may ask for is there, and finds what a GPU or
// port costs at least.
func (m *model) checkPaths(r *request, name string) error {
	q := pairing{several: r.gpus > 1}
	for _, w := range r.wants {
		if w.kind == wantGPU {
			q.gpus = append(q.gpus, w.any...)
		} else {
			q.ports = append(q.ports, w.any...)
		}
	}
	k := slices.IndexFunc(m.pairings, func(o pairing) bool {
		return o.several == q.several && slices.Equal(o.gpus, q.gpus) && slices.Equal(o.ports, q.ports)
	})
	if k < 0 {
		if err := m.pair(&q, name); err != nil {
			return err
		}
		k = len(m.pairings)
		m.pairings = append(m.pairings, q)
	}
	o := &m.pairings[k]
	r.minPair, r.leastGPUs, r.leastGPU, r.leastPort = o.minPair, o.leastGPUs, o.leastGPU, o.leastPort
	return nil
}

func (m *model) pair(q *pairing, name string) error {
	n := len(m.devices)
	q.minPair = make([]int64, n)
	for i := range q.minPair {
		q.minPair[i] = -1
	}
	for _, g := range q.gpus {
		for _, d := range q.ports {
			c := m.pairCost[g*n+d]
			if c < 0 {
				return fmt.Errorf("problem: request %q: no path between devices %q and %q", name, m.p.Devices[g].ID,
					m.p.Devices[d].ID)
			}
			if q.minPair[g] < 0 || c < q.minPair[g] {
				q.minPair[g] = c
			}
			if q.minPair[d] < 0 || c < q.minPair[d] {
				q.minPair[d] = c
			}
		}
		for _, h := range q.gpus {
			if g != h && q.several && m.gpuCost[g*n+h] < 0 {
				return fmt.Errorf("problem: request %q: no path between devices %q and %q", name, m.p.Devices[g].ID,
					m.p.Devices[h].ID)
			}
		}
	}
	q.leastGPUs = least(q.gpus, func(g int) int64 {
		return least(q.gpus, func(h int) int64 { return m.gpuCost[g*n+h] })
	})
	pair := func(d int) int64 { return q.minPair[d] }
	q.leastGPU, q.leastPort = max(0, least(q.gpus, pair)), max(0, least(q.ports, pair))
	for i := range q.minPair {
		q.minPair[i] = max(0, q.minPair[i])
	}
	return nil
}

// least returns the least value of the list that is not negative, 0 where there is none.
func least(list []int, value func(int) int64) int64 {
	best := int64(-1)
	for _, x := range list {
		if v := value(x); v >= 0 && (best < 0 || v < best) {
			best = v
		}
	}
	return max(0, best)
}

func checkWeights(w *plan.Weights) error {
	for _, v := range []int64{w.GPUNICPath, w.GPUNICMeasured, w.GPUGPUPath, w.DeviceNearest, w.DeviceDistance,
		w.MemoryDistance, w.MemoryBalance,
		w.EfficiencyCores, w.NUMASpan, w.NUMASpanHidden, w.L3Shared, w.EmulatorDistance, w.NICRate, w.NICRDMA,
		w.NICShared, w.Unequal} {
		if v < 0 || v > 1<<40 {
			return fmt.Errorf("problem: weight %d is not in 0 to %d", v, int64(1<<40))
		}
	}
	return nil
}

// checkRange refuses problems whose cost could leave the range of an int64. The estimate is coarse,
// and in floating point since that cannot overflow.
func (m *model) checkRange() error {
	w := &m.p.Weights
	far := int64(0)
	for _, d := range m.dist {
		far = max(far, d)
	}
	pair := int64(0)
	for i := range m.pairCost {
		pair = max(pair, m.pairCost[i], m.gpuCost[i])
	}
	port := int64(0)
	for i := range m.devices {
		port = max(port, m.devices[i].port)
	}
	sum := 0.0
	count := float64(len(m.requests))
	for i := range m.requests {
		r := &m.requests[i]
		cores, devices, pages := float64(r.cores), float64(r.devices), float64(r.pages)
		own := float64(far)*devices*(float64(w.DeviceNearest)+cores*float64(r.w.DeviceDistance)) +
			cores*float64(r.w.NUMASpan+r.w.EfficiencyCores) + float64(pair)*(devices*devices+devices) +
			float64(port)*devices
		sum += own*(1+float64(w.Unequal)/100) + pages*(float64(far)*float64(r.w.MemoryDistance)+
			float64(r.w.MemoryBalance)) +
			float64(w.L3Shared)*cores + float64(w.EmulatorDistance)*float64(far) + float64(w.NICShared)*devices*count
	}
	if sum > costLimit {
		return fmt.Errorf("problem: costs could come to %.3g, more than can be added up: lower weights, pages or "+
			"distances", sum)
	}
	return nil
}

// l3Size returns how many free cores the first L3 cache of a place has, the usual size.
func (m *model) l3Size(pl int) int { return len(m.cells[m.pools[pl].cells[0]].cores) }
