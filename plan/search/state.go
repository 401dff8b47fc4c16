package search

import (
	"slices"

	"github.com/rackless/rackless/plan"
)

// A column is where one lab node goes, as far as its own cost knows.
type column struct {
	cores  []poolCount // by place
	gpus   []int       // ascending, as are nics
	nics   []int
	vfs    []plan.VFCount // by device
	own    int64          // what its devices and cores cost, as in plan.Evaluate up to "unequal"
	charge int64          // the prices of what it takes, in parts of 1/scale
}

type poolCount struct{ pool, n int }

func (c *column) copyFrom(d *column) {
	c.cores = append(c.cores[:0], d.cores...)
	c.gpus = append(c.gpus[:0], d.gpus...)
	c.nics = append(c.nics[:0], d.nics...)
	c.vfs = append(c.vfs[:0], d.vfs...)
	c.own, c.charge = d.own, d.charge
}

func (c *column) clone() *column {
	d := &column{}
	d.copyFrom(c)
	return d
}

// A state is a placement of some of the lab nodes, with what is left and what it costs. Every part
// of its cost can only grow when a lab node is added: so the cost of a state is a lower bound of
// all that can come of it.
type state struct {
	m *model

	poolLeft  []int
	nodeLeft  []int // cores that may still be given
	nodeFree  []int // cores not given, those to be left for the host included
	pkgLeft   []int
	owner     []int // of a bundle: 1 + the lab node that has it whole, 0 for nobody
	taken     []bool
	vfLeft    []int
	users     []int // of a NIC: lab nodes with virtual functions of it
	bundleVFs []int // virtual functions given of the NICs of a bundle
	demand    []int64

	at     []*column // of each lab node, nil where it is not placed
	placed int

	own, shared, unequal, memory, emulator, l3 int64
	charge                                     int64     // sum of the columns'
	crowd                                      int64     // sum of crowding
	crowding                                   [][]int64 // of a NIC with so many users: see tree.settle
	byVF                                       []int64   // of a bundle: what its NICs add to the bound as they are used
	whole                                      []int64   // of a bundle: its price

	compCost []int64     // of each component
	compAt   [][]portion // of each component, what lab nodes have there
	compLow  []bool      // compCost is a lower bound only
	packs    *packer
	flow     *flow
	shares   []share
	work     *meter
	saved    []scalars
	coarse   bool // L3 caches are not looked at: see tree.quick
}

// A portion is a lab node's cores in a place.
type portion struct{ who, pool, n int }

type scalars struct {
	own, shared, unequal, memory, emulator, l3, charge, crowd int64
}

func newState(m *model, work *meter) *state {
	s := &state{
		m:         m,
		poolLeft:  make([]int, len(m.pools)),
		nodeLeft:  make([]int, len(m.nodes)),
		nodeFree:  make([]int, len(m.nodes)),
		pkgLeft:   make([]int, len(m.packages)),
		owner:     make([]int, m.bundles),
		taken:     make([]bool, len(m.devices)),
		vfLeft:    make([]int, len(m.devices)),
		users:     make([]int, len(m.devices)),
		bundleVFs: make([]int, m.bundles),
		demand:    make([]int64, len(m.nodes)),
		at:        make([]*column, len(m.requests)),
		compCost:  make([]int64, len(m.comps)),
		compAt:    make([][]portion, len(m.comps)),
		compLow:   make([]bool, len(m.comps)),
		work:      work,
	}
	for i := range m.pools {
		s.poolLeft[i] = m.pools[i].free
	}
	for i := range m.nodes {
		s.nodeFree[i] = m.nodes[i].free
		s.nodeLeft[i] = max(0, m.nodes[i].free-m.nodes[i].reserve)
	}
	for i := range m.packages {
		s.pkgLeft[i] = m.packages[i].free - m.packages[i].reserve
	}
	for i := range m.devices {
		s.vfLeft[i] = m.devices[i].vfs
	}
	s.packs = newPacker(m, work)
	return s
}

// cost is what the placed lab nodes cost together.
func (s *state) cost() int64 {
	return s.own + s.shared + s.unequal + s.memory + s.emulator + s.l3
}

// room returns how many cores of a place a lab node may still get.
func (s *state) room(pl int) int {
	q := &s.m.pools[pl]
	left := min(s.poolLeft[pl], s.nodeLeft[q.node])
	if q.pkg >= 0 {
		left = min(left, s.pkgLeft[q.pkg])
	}
	return max(0, left)
}

// freeWhole reports whether lab node i may get the device whole.
func (s *state) freeWhole(i, d int) bool {
	b := s.m.devices[d].bundle
	return !s.taken[d] && (s.owner[b] == 0 || s.owner[b] == i+1) && s.bundleVFs[b] == 0
}

// untouched reports whether nobody has anything of the device's bundle.
func (s *state) untouched(d int) bool {
	b := s.m.devices[d].bundle
	return s.owner[b] == 0 && s.bundleVFs[b] == 0
}

// vfsFree returns how many virtual functions of the NIC may still be given.
func (s *state) vfsFree(d int) int {
	if s.taken[d] || s.owner[s.m.devices[d].bundle] != 0 {
		return 0
	}
	return s.vfLeft[d]
}

// still reports whether what is left has room for c.
func (s *state) still(i int, c *column) bool {
	for _, pc := range c.cores {
		if s.room(pc.pool) < pc.n {
			return false
		}
	}
	for _, d := range c.gpus {
		if !s.freeWhole(i, d) {
			return false
		}
	}
	for _, d := range c.nics {
		if !s.freeWhole(i, d) {
			return false
		}
	}
	for _, v := range c.vfs {
		if s.vfsFree(v.Device) < v.Count {
			return false
		}
	}
	return true
}

// fits reports whether lab node i may have c beside its peers.
func (s *state) fits(i int, c *column) bool {
	for _, q := range s.m.requests[i].peers {
		o := s.at[q.other]
		if o == nil {
			continue
		}
		if q.numa != "" && !s.m.related(q.numa, s.m.nodesOf(c), s.m.nodesOf(o)) {
			return false
		}
		if q.nic != "" && !s.m.related(q.nic, nicsOf(c), nicsOf(o)) {
			return false
		}
	}
	return true
}

// related reports whether two sorted sets are as the affinity asks.
func (m *model) related(how string, a, b []int) bool {
	if how == plan.Same {
		return slices.Equal(a, b)
	}
	for _, x := range a {
		if slices.Contains(b, x) {
			return false
		}
	}
	return true
}

// nodesOf returns the NUMA nodes of a column's cores, ascending.
func (m *model) nodesOf(c *column) []int {
	nodes := make([]int, 0, len(c.cores))
	for _, pc := range c.cores {
		nodes = append(nodes, m.pools[pc.pool].node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// nicsOf returns the NICs that serve a column, ascending.
func nicsOf(c *column) []int {
	nics := slices.Clone(c.nics)
	for _, v := range c.vfs {
		nics = append(nics, v.Device)
	}
	slices.Sort(nics)
	return slices.Compact(nics)
}

// placeSteps is how much more than a step it is to place a lab node.
const placeSteps = 10

// place puts lab node i at c, which has to fit what is left.
func (s *state) place(i int, c *column) {
	m := s.m
	s.work.steps += placeSteps + int64(len(m.comps))
	s.saved = append(s.saved, scalars{s.own, s.shared, s.unequal, s.memory, s.emulator, s.l3, s.charge, s.crowd})
	emptied := false
	for _, pc := range c.cores {
		q := &m.pools[pc.pool]
		s.poolLeft[pc.pool] -= pc.n
		s.nodeLeft[q.node] -= pc.n
		s.nodeFree[q.node] -= pc.n
		emptied = emptied || s.nodeFree[q.node] == 0
		if q.pkg >= 0 {
			s.pkgLeft[q.pkg] -= pc.n
		}
		s.compAt[q.comp] = append(s.compAt[q.comp], portion{i, pc.pool, pc.n})
	}
	for _, d := range c.gpus {
		s.takeWhole(i, d)
	}
	for _, d := range c.nics {
		s.takeWhole(i, d)
	}
	for _, v := range c.vfs {
		b := m.devices[v.Device].bundle
		s.vfLeft[v.Device] -= v.Count
		if s.crowding != nil {
			s.crowd -= s.bundleTerm(b)
		}
		s.bundleVFs[b] += v.Count
		// Both the newcomer and each of the others see one more.
		s.shared += 2 * int64(s.users[v.Device]) * m.p.Weights.NICShared
		if s.crowding != nil {
			table := s.crowding[v.Device]
			s.byVF[b] += table[s.users[v.Device]+1] - table[s.users[v.Device]]
			s.crowd += s.bundleTerm(b)
		}
		s.users[v.Device]++
	}
	s.charge += c.charge
	s.at[i] = c
	s.placed++
	s.own += c.own
	s.priceUnequal(i)
	s.priceMemory(i, c)
	s.priceEmulator(i, emptied)
	s.priceL3(c)
}

func (s *state) takeWhole(i, d int) {
	b := s.m.devices[d].bundle
	s.taken[d] = true
	if s.owner[b] == 0 {
		if s.crowding != nil {
			s.crowd -= s.bundleTerm(b)
		}
		s.owner[b] = i + 1
		if s.crowding != nil {
			s.crowd += s.bundleTerm(b)
		}
	}
}

// remove takes lab node i off again; it has to be the one that was placed last.
func (s *state) remove(i int) {
	m := s.m
	c := s.at[i]
	for _, pc := range c.cores {
		q := &m.pools[pc.pool]
		s.poolLeft[pc.pool] += pc.n
		s.nodeLeft[q.node] += pc.n
		s.nodeFree[q.node] += pc.n
		if q.pkg >= 0 {
			s.pkgLeft[q.pkg] += pc.n
		}
		s.compAt[q.comp] = s.compAt[q.comp][:len(s.compAt[q.comp])-1]
	}
	for _, d := range c.gpus {
		s.taken[d] = false
	}
	for _, d := range c.nics {
		s.taken[d] = false
	}
	// A bundle has one owner, so that it is free when any of its devices comes back.
	for _, d := range c.gpus {
		s.owner[m.devices[d].bundle] = 0
	}
	for _, d := range c.nics {
		s.owner[m.devices[d].bundle] = 0
	}
	for _, v := range c.vfs {
		s.vfLeft[v.Device] += v.Count
		s.bundleVFs[m.devices[v.Device].bundle] -= v.Count
		s.users[v.Device]--
		if s.crowding != nil {
			table := s.crowding[v.Device]
			s.byVF[m.devices[v.Device].bundle] -= table[s.users[v.Device]+1] - table[s.users[v.Device]]
		}
	}
	s.addDemand(i, c, -1)
	s.at[i] = nil
	s.placed--
	old := s.saved[len(s.saved)-1]
	s.saved = s.saved[:len(s.saved)-1]
	s.own, s.shared, s.unequal, s.memory, s.emulator, s.l3 = old.own, old.shared, old.unequal, old.memory, old.emulator,
		old.l3
	s.charge, s.crowd = old.charge, old.crowd
	for _, pc := range c.cores {
		s.compCost[m.pools[pc.pool].comp] = -1
	}
}

// priceUnequal adds what the spread within i's class costs more by i.
func (s *state) priceUnequal(i int) {
	w := s.m.p.Weights.Unequal
	if w == 0 {
		return
	}
	for _, members := range s.m.classes {
		if s.m.requests[members[0]].class != s.m.requests[i].class {
			continue
		}
		var least, most, before, after int64 = -1, -1, -1, -1
		for _, j := range members {
			if s.at[j] == nil {
				continue
			}
			own := s.at[j].own
			if least < 0 || own < least {
				least = own
			}
			most = max(most, own)
			if j != i {
				if before < 0 || own < before {
					before = own
				}
				after = max(after, own)
			}
		}
		s.unequal += w * ((most - least) / 100)
		if before >= 0 {
			s.unequal -= w * ((after - before) / 100)
		}
	}
}

// A share is a lab node's part of its memory that goes with its cores on a NUMA node.
type share struct {
	node  int
	cores int64
	pages int64
	whole int64 // of pages, what the cost counts: the share rounded down
}

// sharesOf splits lab node i's pages among the nodes of c as plan.Shares does. The result is good until the next call.
func (s *state) sharesOf(i int, c *column) []share {
	m := s.m
	s.shares = s.shares[:0]
	for _, pc := range c.cores {
		node := m.pools[pc.pool].node
		k := slices.IndexFunc(s.shares, func(x share) bool { return x.node == node })
		if k < 0 {
			k = len(s.shares)
			s.shares = append(s.shares, share{node: node})
		}
		s.shares[k].cores += int64(pc.n)
	}
	pages, total := m.requests[i].pages, int64(m.requests[i].cores)
	if len(s.shares) == 1 {
		s.shares[0].pages, s.shares[0].whole = pages, pages
		return s.shares
	}
	left := pages
	for k := range s.shares {
		x := &s.shares[k]
		x.pages = pages/total*x.cores + pages%total*x.cores/total
		x.whole = x.pages
		left -= x.pages
	}
	slices.SortFunc(s.shares, func(a, b share) int {
		ra, rb := pages%total*a.cores%total, pages%total*b.cores%total
		switch {
		case ra > rb:
			return -1
		case ra < rb:
			return 1
		}
		return m.nodes[a.node].id - m.nodes[b.node].id
	})
	for k := range left {
		s.shares[k].pages++
	}
	return s.shares
}

func (s *state) addDemand(i int, c *column, sign int64) {
	if !s.m.limited && !s.m.oddLocal {
		return
	}
	for _, x := range s.sharesOf(i, c) {
		s.demand[x.node] += sign * x.pages
	}
}

// priceMemory finds what the memory of all that is placed costs at least. Where everyone's share fits, that is nothing.
func (s *state) priceMemory(i int, c *column) {
	s.addDemand(i, c, 1)
	if !s.m.limited && !s.m.oddLocal {
		return
	}
	local := !s.m.oddLocal
	for n := range s.m.nodes {
		if q := &s.m.nodes[n]; q.limited && s.demand[n] > q.pages {
			local = false
			break
		}
	}
	if local {
		s.memory = 0
		return
	}
	if s.flow == nil {
		s.flow = newFlow(s)
	}
	s.memory = max(s.memory, s.flow.solve())
}

// priceEmulator adds lab node i's distance to housekeeping, and looks at the others again where a
// node has none left. Nodes with cores left so far count as having one in the end, so that the sum
// is a lower bound before all are placed.
func (s *state) priceEmulator(i int, emptied bool) {
	if !s.m.emulator || s.m.p.Weights.EmulatorDistance == 0 {
		return
	}
	if !emptied {
		s.emulator += s.emulatorOf(s.at[i]) * s.m.p.Weights.EmulatorDistance
		return
	}
	s.emulator = 0
	for _, c := range s.at {
		if c != nil {
			s.emulator += s.emulatorOf(c) * s.m.p.Weights.EmulatorDistance
		}
	}
}

func (s *state) emulatorOf(c *column) int64 {
	for _, pc := range c.cores {
		n := s.m.pools[pc.pool].node
		if s.nodeFree[n] > 0 && s.m.dist[n*len(s.m.nodes)+n] == 0 {
			return 0
		}
	}
	var least int64 = -1
	for _, pc := range c.cores {
		row := s.m.dist[s.m.pools[pc.pool].node*len(s.m.nodes):]
		for n := range s.m.nodes {
			if d := row[n]; s.nodeFree[n] > 0 && (least < 0 || d < least) {
				least = d
			}
		}
	}
	return max(0, least)
}

// priceL3 brings up to date what L3 caches cost that c's cores are near.
func (s *state) priceL3(c *column) {
	if s.m.p.Weights.L3Shared == 0 || s.coarse {
		return
	}
	for _, pc := range c.cores {
		s.compCost[s.m.pools[pc.pool].comp] = -1
	}
	var sum int64
	for k := range s.m.comps {
		if s.compCost[k] < 0 {
			s.compCost[k] = s.packs.bound(k, s.compAt[k]) * s.m.p.Weights.L3Shared
		}
		sum += s.compCost[k]
	}
	s.l3 = sum
}
