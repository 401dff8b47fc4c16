package search

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

type column struct {
	cores  []poolCount
	gpus   []int // ascending, like nics
	nics   []int
	vfs    []plan.VFCount
	own    int64 // as in plan.Evaluate up to "unequal"
	charge int64 // in units of 1/scale
}

type poolCount struct{ pool, n int }

// set copies d into c, or into a new column if c is nil.
func (c *column) set(d *column) *column {
	if c == nil {
		c = &column{}
	}
	c.cores = append(c.cores[:0], d.cores...)
	c.gpus = append(c.gpus[:0], d.gpus...)
	c.nics = append(c.nics[:0], d.nics...)
	c.vfs = append(c.vfs[:0], d.vfs...)
	c.own, c.charge = d.own, d.charge
	return c
}

func (c *column) whole(yield func(d int) bool) {
	for _, list := range [...][]int{c.gpus, c.nics} {
		for _, d := range list {
			if !yield(d) {
				return
			}
		}
	}
}

// A state is a placement of some of the lab nodes, with its cost and the remaining host. No part of its cost can fall
// if a lab node is added: the spread within a class, the users of a port and of an L3 cache only grow, and free memory
// and housekeeping cores only shrink. So its cost is a lower bound for every placement that extends it.
type state struct {
	m *model

	poolLeft  []int
	nodeLeft  []int // can still be given
	nodeFree  []int // including the host's reserve
	pkgLeft   []int
	owner     []int // by bundle: 1 + the lab node that has it whole, or 0
	taken     []bool
	vfLeft    []int
	users     []int // by NIC: lab nodes with virtual functions
	cardUsers []int // by card
	bundleVFs []int // by bundle: virtual functions given
	demand    []int64

	at     []*column // nil if not placed
	placed int

	totals
	saved    []totals  // before each placed lab node
	crowding [][]int64 // by NIC and number of users: its part of the bound, see tree.applyPrices
	onCard   [][]int64 // the same by card
	byVF     []int64
	whole    []int64

	compCost []int64 // by component
	compAt   [][]portion
	compLow  []bool // compCost is only a lower bound
	packs    *packer
	flow     *flow
	shares   []share
	ports    []int
	others   []int
	work     *meter
	enough   int64 // cost of a useless placement, whose memory is not computed; 0 means no limit
	turn     int   // NUMA node from which dives start
	coarse   bool  // L3 caches are ignored
}

type portion struct{ who, pool, n int }

// totals are sums over all placed lab nodes, with terms as in plan.Evaluate.
type totals struct {
	own, shared, unequal, memory, emulator, l3 int64
	wired                                      int64 // card_shared and unlinked

	charge int64 // of the columns
	crowd  int64 // of bundleTerm
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
		cardUsers: make([]int, len(m.devices)),
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
		s.nodeFree[i], s.nodeLeft[i] = m.nodes[i].free, m.nodes[i].most()
	}
	for i := range m.packages {
		s.pkgLeft[i] = m.packages[i].free - m.packages[i].reserve
	}
	for i := range m.devices {
		s.vfLeft[i] = m.devices[i].vfs
	}
	s.packs = &packer{m: m, work: work, cache: map[string]packed{}, covers: make([]*covering, len(m.comps))}
	return s
}

func (s *state) cost() int64 {
	return s.own + s.shared + s.wired + s.unequal + s.memory + s.emulator + s.l3
}

// room considers the reserve of the NUMA node and the package.
func (s *state) room(pl int) int {
	q := &s.m.pools[pl]
	left := min(s.poolLeft[pl], s.nodeLeft[q.node])
	if q.pkg >= 0 {
		left = min(left, s.pkgLeft[q.pkg])
	}
	return max(0, left)
}

func (s *state) freeWhole(i, d int) bool {
	b := s.m.devices[d].bundle
	return !s.taken[d] && (s.owner[b] == 0 || s.owner[b] == i+1) && s.bundleVFs[b] == 0
}

func (s *state) untouched(d int) bool {
	b := s.m.devices[d].bundle
	return s.owner[b] == 0 && s.bundleVFs[b] == 0
}

func (s *state) vfsFree(d int) int {
	if s.taken[d] || s.owner[s.m.devices[d].bundle] != 0 {
		return 0
	}
	return s.vfLeft[d]
}

func (s *state) still(i int, c *column) bool {
	for d := range c.whole {
		if !s.freeWhole(i, d) {
			return false
		}
	}
	return !slices.ContainsFunc(c.cores, func(pc poolCount) bool { return s.room(pc.pool) < pc.n }) &&
		!slices.ContainsFunc(c.vfs, func(v plan.VFCount) bool { return s.vfsFree(v.Device) < v.Count })
}

// waiting returns the number and the cores of lab nodes not yet placed that must be on the NUMA nodes of lab node i.
func (s *state) waiting(i int) (others, cores int) {
	peers := s.m.requests[i].peers
	for k, q := range peers {
		if q.numa == plan.Same && s.at[q.other] == nil && !slices.ContainsFunc(peers[:k], func(o peer) bool {
			return o.numa == plan.Same && o.other == q.other
		}) {
			others++
			cores += s.m.requests[q.other].cores
		}
	}
	return others, cores
}

func (s *state) fits(i int, c *column) bool {
	if others, cores := s.waiting(i); others > 0 {
		for _, n := range s.m.nodesOf(c) {
			cores -= s.nodeLeft[n]
		}
		if cores > -s.m.requests[i].cores {
			return false
		}
	}
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

func (m *model) related(how string, a, b []int) bool {
	if how == plan.Same {
		return slices.Equal(a, b)
	}
	return !slices.ContainsFunc(a, func(x int) bool { return slices.Contains(b, x) })
}

func (m *model) nodesOf(c *column) []int {
	nodes := make([]int, 0, len(c.cores))
	for _, pc := range c.cores {
		nodes = append(nodes, m.pools[pc.pool].node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func nicsOf(c *column) []int {
	nics := lists.Map(c.vfs, func(v plan.VFCount) int { return v.Device })
	return lists.Distinct(append(nics, c.nics...))
}

const placeSteps = 10

// place places lab node i at c, which must fit. remove restores saved sums, so the last one placed goes first.
func (s *state) place(i int, c *column) {
	m := s.m
	s.work.steps += placeSteps + int64(len(m.comps))
	s.saved = append(s.saved, s.totals)
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
	for d := range c.whole {
		s.taken[d] = true
		b := m.devices[d].bundle
		s.recrowd(b, func() { s.owner[b] = i + 1 })
	}
	for _, v := range c.vfs {
		// The new user and each of the others share with one more.
		s.shared += 2 * int64(s.users[v.Device]) * m.p.Weights.NICShared
		b := m.devices[v.Device].bundle
		s.recrowd(b, func() { s.useVFs(v, b, 1) })
	}
	for k := range m.cardsOf(c) {
		s.cardUsers[k]++
		if s.onCard != nil {
			s.crowd += s.onCard[k][s.cardUsers[k]] - s.onCard[k][s.cardUsers[k]-1]
		}
	}
	s.charge += c.charge
	s.priceWiring(c)
	s.at[i] = c
	s.placed++
	s.own += c.own
	s.priceUnequal(i)
	s.priceEmulator(i, emptied)
	s.priceL3(c)
	s.priceMemory(i, c)
}

func (s *state) priceWiring(c *column) {
	w, weights := s.m.wiring, &s.m.p.Weights
	if w == nil || len(c.nics)+len(c.vfs) == 0 {
		return
	}
	s.ports = portsOf(c, s.ports[:0])
	for _, o := range s.at {
		if o != nil && len(o.nics)+len(o.vfs) > 0 {
			s.work.steps++
			s.others = portsOf(o, s.others[:0])
			cards, unlinked := w.Between(s.ports, s.others)
			s.wired += 2 * (cards*weights.CardShared + unlinked*weights.Unlinked)
		}
	}
}

// portsOf appends whole NICs, and one for each virtual function.
func portsOf(c *column, ports []int) []int {
	ports = append(ports, c.nics...)
	for _, v := range c.vfs {
		for range v.Count {
			ports = append(ports, v.Device)
		}
	}
	return ports
}

func (s *state) recrowd(b int, change func()) {
	if s.crowding == nil {
		change()
		return
	}
	s.crowd -= s.bundleTerm(b)
	change()
	s.crowd += s.bundleTerm(b)
}

func (s *state) useVFs(v plan.VFCount, b, sign int) {
	s.vfLeft[v.Device] -= sign * v.Count
	s.bundleVFs[b] += sign * v.Count
	before := s.users[v.Device]
	s.users[v.Device] += sign
	if s.crowding != nil {
		table := s.crowding[v.Device]
		s.byVF[b] += table[before+sign] - table[before]
	}
}

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
	for d := range c.whole {
		s.taken[d] = false
		s.owner[m.devices[d].bundle] = 0 // a bundle has one owner
	}
	for _, v := range c.vfs {
		s.useVFs(v, m.devices[v.Device].bundle, -1)
	}
	for k := range m.cardsOf(c) {
		s.cardUsers[k]--
	}
	s.addDemand(i, c, -1)
	s.at[i] = nil
	s.placed--
	s.totals = s.saved[len(s.saved)-1]
	s.saved = s.saved[:len(s.saved)-1]
	for _, pc := range c.cores {
		s.compCost[m.pools[pc.pool].comp] = -1 // usually in the packer's cache
	}
}

func (s *state) priceUnequal(i int) {
	w := s.m.p.Weights.Unequal
	if w == 0 {
		return
	}
	for _, members := range s.m.classes {
		if s.m.requests[members[0]].class == s.m.requests[i].class {
			s.unequal += w * (s.spread(members, -1) - s.spread(members, i))
		}
	}
}

// spread is in whole percent, and leaves one lab node out.
func (s *state) spread(members []int, without int) int64 {
	least, most := infinite, int64(0)
	for _, j := range members {
		if c := s.at[j]; c != nil && j != without {
			least, most = min(least, c.own), max(most, c.own)
		}
	}
	return max(0, most-least) / 100
}

type share struct {
	node  int
	cores int64
	pages int64
	whole int64 // rounded down
}

// sharesOf splits pages like plan.Shares. The result is valid until the next call.
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
		return cmp.Or(cmp.Compare(pages%total*b.cores%total, pages%total*a.cores%total),
			cmp.Compare(m.nodes[a.node].id, m.nodes[b.node].id))
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

// sharesFit reports whether every lab node's share of memory fits beside its cores, at no distance.
func (s *state) sharesFit() bool {
	if s.m.oddLocal {
		return false
	}
	for n := range s.m.nodes {
		if q := &s.m.nodes[n]; q.limited && s.demand[n] > q.pages {
			return false
		}
	}
	return true
}

// priceMemory computes a lower bound for all placed lab nodes.
func (s *state) priceMemory(i int, c *column) {
	s.addDemand(i, c, 1)
	if s.sharesFit() {
		s.memory = 0
		return
	}
	if s.enough > 0 && s.cost() >= s.enough {
		return
	}
	if s.flow == nil {
		s.flow = newFlow(s)
	}
	// The least cost cannot fall, but a flow that was cut short may return less.
	s.memory = max(s.memory, s.flow.solve())
}

// priceEmulator adds lab node i's distance to housekeeping, or computes all distances again if a node has no core left.
// It assumes that nodes with cores left keep one, so the sum is a lower bound until all lab nodes are placed.
func (s *state) priceEmulator(i int, emptied bool) {
	if !s.m.emulator || s.m.p.Weights.EmulatorDistance == 0 {
		return
	}
	w := s.m.p.Weights.EmulatorDistance
	if !emptied {
		s.emulator += s.emulatorOf(s.at[i]) * w
		return
	}
	s.emulator = 0
	for _, c := range s.at {
		if c != nil {
			s.emulator += s.emulatorOf(c) * w
		}
	}
}

func (s *state) emulatorOf(c *column) int64 {
	least := infinite
	for _, pc := range c.cores {
		a := s.m.pools[pc.pool].node
		if s.nodeFree[a] > 0 && s.m.far(a, a) == 0 {
			return 0
		}
		for n, free := range s.nodeFree {
			if free > 0 {
				least = min(least, s.m.far(a, n))
			}
		}
	}
	return finite(least)
}

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
			s.compCost[k] = int64(s.packs.bounds(k, s.compAt[k]).low) * s.m.p.Weights.L3Shared
		}
		sum += s.compCost[k]
	}
	s.l3 = sum
}
