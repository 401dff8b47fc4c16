package search

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// The cases that need this linear program: largeMixed of the tests, where counting caches proves
// 33200 of 35200, and mixes 70, 93 and 105 of TestSharedCachesAreProved.
//
// Which lab nodes share L3 caches is decided NUMA node by NUMA node, by what set of lab nodes is
// there. Counting caches on the whole host (cover.go) does not see that a lab node has to be near
// its devices, or that four of a size fit a NUMA node well and five do not; prices (bound.go) see
// each lab node alone. In between is the linear program that chooses what each NUMA node contains.
//
// A bin is a set of NUMA nodes that share L3 caches with each other and with no others: one NUMA
// node usually. A lab node is at home in a bin or spans several, with a portion in each. Let v be
// any duals of lab nodes, and g >= 0 of portions by their cores. A set S of lab nodes and
// portions that fits bin u gains the sum of its duals, less what its lab nodes cost at home
// there at least, less what S pays together: shares of L3 caches, pages that are missing,
// housekeeping far away. With most(u) the largest gain in u,
//
//	cost >= sum over lab nodes of min(v, least cost of spanning with the g of the portions) - sum over u of most(u)
//
// because in any placement those at home cost, together with what bins pay, their v and the g of
// the portions there less the gains, and who spans brings the g of its portions. A portion may be
// counted with fewer cores than it has: with cores taken off a lab node no cache gets another
// owner, and no bin gets fuller. What a lab node costs is at the prices of the relaxation, so that
// cores, devices and ports are seen as there. The best v and g are the dual solution of the linear
// program (master.go).

// A bin is such a set of NUMA nodes.
type bin struct {
	within []bool // by NUMA node
	room   int    // cores that lab nodes can have
	pool   int    // its only pool; -1 where there are several
	caches *covering
	pages  int64 // of memory; -1 where that is no matter or there are several NUMA nodes
	table  *patternTable
	lone   int64 // what housekeeping costs a lab node at home where the bin is full, fine

	// By class: what a member at home costs beyond base, fine; the same with a device that is
	// elsewhere; and how many can have all their devices here.
	least, away []int64
	local       []int
}

// cost is what the nth member of a class at home costs, counted from 0.
func (u *bin) cost(class, nth int) int64 {
	return words.Either(nth < u.local[class], u.least[class], u.away[class])
}

// A patternTable has all sets of sizes that can be in a bin. Bins that are alike share it.
type patternTable struct {
	of   *bin // one of those
	list []pattern
}

// A pattern is what its parent is and one more of a size.
type pattern struct {
	parent int
	size   int // index
	nth    int // of this size
	shares int // at least
	exact  bool
	full   bool // no core is left
}

// maxPatterns bounds a table. 43,000 patterns are all that 32 cores have.
const maxPatterns = 50_000

// A patternModel is what the linear program is about.
type patternModel struct {
	t       *tree
	bins    []bin
	binOf   []int   // of a NUMA node
	groups  [][]int // of bins that are alike in all
	classes [][]int // of interchangeable lab nodes
	sizes   []int   // of lab nodes and portions, largest first; a portion counts with the next one that is not larger
	sizeOf  []int   // of a class: index; -1 where no bin is large enough
	due     []int64 // by size: pages that go with the cores, at least
	room    int     // of the largest bin

	// At the present prices, and where fine is said in parts of 1/(scale*fine) of a basis point.
	fine int64
	// what a placement costs less beyond base than that if it is cheaper than the best one, fine;
	// nothing is counted dearer
	gap  int64
	base []int64 // of a class: what a member costs at least, scaled
	// of a class: what a member costs beyond base on 2, 3 ... NUMA nodes, fine; the last one is for
	// more, too
	span [][]int64
	// of a class: the ways to span that cost less than beside, which is what all others cost at least
	// beyond base, fine
	splits [][]split
	beside []int64
	known  []bool // whether that was looked for
	share  int64  // what a share of an L3 cache costs, fine
	page   int64  // what a page costs at least that is not where it is due, fine

	v, g  []int64 // duals by class and by size, fine
	gains []int64 // of patterns, as the last call of bestPattern found them
	sums  []int64 // scratch of bestPattern: gains before what all pay together
	pages []int64 // likewise: pages due
}

// A split is how the cores of a lab node that spans are split.
type split struct {
	cost  int64 // the least beyond base, fine
	parts []int // sizes of its portions, ascending
}

// splitSteps bounds the work on the splits of one lab node, and splitShares what they may cost more than the
// cheapest, in shares of L3 caches.
const (
	splitSteps  = 1_600_000
	splitShares = 4
)

// maxSpan bounds how many portions of a lab node are told apart.
const maxSpan = 6

// newPatternModel finds bins and lists what they can contain; nil where there is no choice or too much of it.
func (t *tree) newPatternModel() *patternModel {
	m := t.m
	a := &patternModel{t: t, bins: m.bins()}
	if len(a.bins) < 2 || m.p.Weights.L3Shared == 0 {
		return nil
	}
	a.binOf = make([]int, len(m.nodes))
	for k := range a.bins {
		a.room = max(a.room, a.bins[k].room)
		for n, in := range a.bins[k].within {
			if in {
				a.binOf[n] = k
			}
		}
	}
	var asked []int
	for i := range m.requests {
		r := &m.requests[i]
		k := slices.IndexFunc(a.classes, func(members []int) bool { return m.requests[members[0]].rep == r.rep })
		if k >= 0 {
			a.classes[k] = append(a.classes[k], i)
			continue
		}
		a.classes = append(a.classes, []int{i})
		if r.cores <= a.room {
			asked = append(asked, r.cores)
		}
	}
	if asked == nil || !a.chooseSizes(asked) {
		return nil
	}
	a.sizeOf = lists.Map(a.classes, func(members []int) int {
		return slices.Index(a.sizes, m.requests[members[0]].cores)
	})
	for k := range a.bins {
		u := &a.bins[k]
		if x := slices.IndexFunc(a.bins[:k], func(o bin) bool { return m.samePatterns(&o, u) }); x >= 0 {
			u.table = a.bins[x].table
		} else {
			u.table = a.list(u)
		}
	}
	if t.work.add(0) {
		return nil // lists may have gaps
	}
	return a
}

// bins finds the bins.
func (m *model) bins() []bin {
	group := make([]int, len(m.nodes))
	for n := range group {
		group[n] = n
	}
	for k := range m.comps {
		pools := m.comps[k].pools
		for _, pl := range pools {
			from, to := group[m.pools[pl].node], group[m.pools[pools[0]].node]
			for n := range group {
				if group[n] == from {
					group[n] = to
				}
			}
		}
	}
	counts := m.limited && !m.oddLocal
	var bins []bin
	for g := range group {
		if group[g] != g {
			continue
		}
		u := bin{within: make([]bool, len(m.nodes)), pool: -1, pages: -1}
		var nodes, pools []int
		for n := range group {
			if group[n] == g {
				u.within[n] = true
				u.room += m.nodes[n].most()
				nodes, pools = append(nodes, n), append(pools, m.nodes[n].pools...)
			}
		}
		if u.room == 0 {
			continue
		}
		if len(pools) == 1 {
			u.pool = pools[0]
		}
		if q := &m.nodes[nodes[0]]; len(nodes) == 1 && counts && q.limited {
			u.pages = q.pages
		}
		u.caches = m.coverage(func(q *pool) bool { return u.within[q.node] })
		bins = append(bins, u)
	}
	return bins
}

// samePatterns reports whether two bins can contain the same, with as many shares. Most hosts are
// made of equal NUMA nodes, so that one table serves them all.
func (m *model) samePatterns(a, b *bin) bool {
	if a.room != b.room || a.caches.loose != b.caches.loose || !slices.Equal(a.caches.own, b.caches.own) ||
		!slices.Equal(a.caches.tenants, b.caches.tenants) {
		return false
	}
	if a.pool < 0 || b.pool < 0 {
		return a.pool == b.pool
	}
	return slices.Equal(m.comps[m.pools[a.pool].comp].large, m.comps[m.pools[b.pool].comp].large)
}

// chooseSizes takes all sizes up to the largest one that is asked for or, where patterns would be
// too many, those that are and 1. It reports false where even those are.
func (a *patternModel) chooseSizes(asked []int) bool {
	// With all sizes a portion can be counted with the cores that it has; with fewer sizes it counts
	// with the next smaller one, which is still a bound.
	for n := slices.Max(asked); n > 0; n-- {
		a.sizes = append(a.sizes, n)
	}
	if !a.countable() {
		a.sizes = append(asked, 1)
		slices.SortFunc(a.sizes, largestFirst)
		if a.sizes = slices.Compact(a.sizes); !a.countable() {
			return false
		}
	}
	least := infinite // pages for each core
	for i := range a.t.m.requests {
		r := &a.t.m.requests[i]
		least = min(least, r.pages/int64(r.cores))
	}
	for _, size := range a.sizes {
		a.due = append(a.due, least*int64(size))
	}
	return true
}

// countable reports whether there are few enough patterns. It counts multisets of sizes by their
// sum, as one counts the ways to pay an amount with coins.
func (a *patternModel) countable() bool {
	ways := make([]int, a.room+1) // to have so many cores
	ways[0] = 1
	for _, size := range a.sizes {
		for n := size; n <= a.room; n++ {
			ways[n] = min(ways[n]+ways[n-size], maxPatterns)
		}
	}
	return lists.Sum(ways, func(n int) int { return n }) <= maxPatterns
}

// list lists the patterns of a bin, each after its parent. Sizes are added largest first, so that
// each multiset of sizes comes up once.
func (a *patternModel) list(u *bin) *patternTable {
	table := &patternTable{of: u, list: []pattern{{exact: true}}}
	var asked []int
	var add func(parent, left int)
	add = func(parent, left int) {
		from := table.list[parent]
		for s := from.size; s < len(a.sizes); s++ {
			if a.sizes[s] > left || len(asked) == len(a.t.m.requests) || a.t.work.add(2+int64(len(asked))/2) {
				continue
			}
			q := pattern{parent: parent, size: s, nth: 1, full: left == a.sizes[s]}
			if s == from.size {
				q.nth += from.nth
			}
			asked = append(asked, a.sizes[s])
			if q.shares, q.exact = a.oneCache(u, len(asked)); !q.exact {
				q.shares = u.caches.shares(asked)
			}
			table.list = append(table.list, q)
			add(len(table.list)-1, left-a.sizes[s])
			asked = asked[:len(asked)-1]
		}
	}
	add(0, u.room)
	return table
}

// oneCache returns how many shares so many owners have in a bin with one L3 cache, or none.
func (a *patternModel) oneCache(u *bin, owners int) (int, bool) {
	if u.pool < 0 || !a.t.m.comps[a.t.m.pools[u.pool].comp].single {
		return 0, false
	}
	at := make([]portion, owners)
	for k := range at {
		at[k].who = k
	}
	return a.t.s.packs.easy(a.t.m.pools[u.pool].comp, at)
}

// pack finds the shares of a pattern that were only counted so far, and returns how many more there
// are. Packing all patterns of a table would take most of the time; only those are packed that the
// linear program or the rounding wants to use.
func (a *patternModel) pack(u *bin, x int) int {
	table := u.table
	c := &table.list[x]
	if c.exact || u.pool < 0 {
		return 0
	}
	c.exact = true
	var at []portion
	for ; x > 0; x = table.list[x].parent {
		at = append(at, portion{len(at), table.of.pool, a.sizes[table.list[x].size]})
	}
	old := c.shares
	c.shares = max(old, a.t.s.packs.bounds(a.t.m.pools[table.of.pool].comp, at).low)
	return c.shares - old
}

// reprice finds what everything costs at the present prices. It reports whether there was enough work for that.
func (a *patternModel) reprice() bool {
	t, m := a.t, a.t.m
	// beyond is what a placement that is no cheaper than the best one costs above the cheapest
	// columns of all lab nodes. Costs are cut off there: what is dearer is in no placement that
	// matters.
	beyond := scale*t.cost - t.s.crowd + t.price.fixed
	for _, l := range t.least {
		beyond -= l.reduced
	}
	if beyond <= 0 || beyond > 1<<46 {
		return false
	}
	// Duals are whole numbers, so that what they prove is exact: as fine as the range of an int64 allows.
	for a.fine = 1024; beyond > 1<<46/a.fine; {
		a.fine /= 2
	}
	a.gap = beyond * a.fine
	a.share, a.page = a.refine(m.p.Weights.L3Shared), a.gap
	for i := range m.requests {
		a.page = min(a.page, a.refine(m.requests[i].w.MemoryBalance))
	}
	// What it costs to be at home in a bin, to have a device elsewhere, or to span is the least
	// reduced cost with the enumerator confined to just that.
	e := t.enum(0)
	defer func() { e.within, e.beyond, e.spanning = nil, nil, 0 }()
	for k := range a.bins {
		u := &a.bins[k]
		u.lone = a.refine(m.lone(u))
		u.least, u.away, u.local = zero(u.least, len(a.classes)), zero(u.away, len(a.classes)),
			zero(u.local, len(a.classes))
	}
	a.base, a.span = zero(a.base, len(a.classes)), make([][]int64, len(a.classes))
	a.splits, a.beside = make([][]split, len(a.classes)), zero(a.beside, len(a.classes))
	a.known = zero(a.known, len(a.classes))
	for c, members := range a.classes {
		i := members[0]
		r := &m.requests[i]
		a.base[c] = t.least[i].reduced
		// cost is what the enumerator is asked for, infinite where there is none.
		cost := func() int64 {
			if t.work.add(int64(len(m.nodes) + len(m.devices)/4)) {
				return 0
			}
			l := t.cheapestOf(i, t.price, infinite, e)
			if l.reduced == infinite {
				return infinite
			}
			return min(beyond, max(0, l.reduced-a.base[c])) * a.fine
		}
		for e.spanning = 2; e.spanning <= min(r.cores, len(a.bins), maxSpan); e.spanning++ {
			a.span[c] = append(a.span[c], cost())
		}
		e.spanning = 0
		for k := range a.bins {
			u := &a.bins[k]
			e.within = u.within
			u.least[c], u.local[c] = cost(), m.localTo(r, u)
			// Only so many can have their devices here: largeMixed is not proved without knowing that.
			if u.away[c] = u.least[c]; u.least[c] < infinite && u.local[c] < min(len(members), u.room/r.cores) {
				e.beyond = u.within
				u.away[c] = max(u.least[c], cost())
				e.beyond = nil
			}
		}
		e.within = nil
		if t.work.add(0) {
			return false
		}
	}
	a.groups = a.groups[:0]
	for k := range a.bins {
		u := &a.bins[k]
		g := slices.IndexFunc(a.groups, func(g []int) bool {
			o := &a.bins[g[0]]
			return o.table == u.table && o.lone == u.lone && o.pages == u.pages &&
				slices.Equal(o.least, u.least) && slices.Equal(o.away, u.away) && slices.Equal(o.local, u.local)
		})
		if g < 0 {
			g = len(a.groups)
			a.groups = append(a.groups, nil)
		}
		a.groups[g] = append(a.groups[g], k)
	}
	return true
}

// findSplits lists how lab nodes of a class with devices span. What that costs follows from where the devices are: with
// the least cost of any split alone, four GPUs are served as well by three cores and one as by one on each NUMA node.
// It reports whether that is new.
func (a *patternModel) findSplits(c int) bool {
	t, i := a.t, a.classes[c][0]
	if a.known[c] || t.m.requests[i].devices == 0 {
		return false
	}
	a.known[c] = true
	e := t.enum(0)
	within := min(splitShares*scale*t.m.p.Weights.L3Shared, a.gap/a.fine)
	least := map[string]split{}
	e.relaxed, e.breakSymmetry, e.basic, e.spanning = false, false, false, 2
	defer t.work.budget(splitSteps)()
	defer func() { e.spanning = 0 }()
	if !e.run(i, t.price, a.base[c]+within, func(col *column, reduced int64) bool {
		q := split{max(0, reduced-a.base[c]) * a.fine, a.partsOf(col)}
		key := fmt.Sprint(q.parts)
		if old, ok := least[key]; len(q.parts) > 1 && (!ok || q.cost < old.cost) {
			least[key] = q
		}
		return false
	}) {
		return false
	}
	a.beside[c] = within * a.fine
	for _, key := range slices.Sorted(maps.Keys(least)) {
		a.splits[c] = append(a.splits[c], least[key])
	}
	return true
}

// partsOf returns the sizes of a column's portions, ascending.
func (a *patternModel) partsOf(c *column) []int {
	cores := make([]int, len(a.bins))
	for _, pc := range c.cores {
		cores[a.binOf[a.t.m.pools[pc.pool].node]] += pc.n
	}
	parts := lists.Map(lists.Filter(cores, func(n int) bool { return n > 0 }), func(n int) int {
		return slices.IndexFunc(a.sizes, func(size int) bool { return size <= n })
	})
	slices.Sort(parts)
	return parts
}

// spanCost returns what a lab node of a class costs at least with its cores in portions of these sizes.
func (a *patternModel) spanCost(c int, parts []int) int64 {
	if q := lists.Ref(a.splits[c], func(q *split) bool { return slices.Equal(q.parts, parts) }); q != nil {
		return q.cost
	}
	return max(a.beside[c], a.span[c][min(len(parts)-2, len(a.span[c])-1)])
}

// refine returns a cost in fine parts, not more than the gap.
func (a *patternModel) refine(cost int64) int64 {
	return min(cost, a.gap/(scale*a.fine)) * scale * a.fine
}

// lone returns what a lab node at home in a bin pays at least for housekeeping where the bin has no
// core left. largeMixed and two of largeUnequal lose their proofs without it, since full bins look
// as good as others then.
func (m *model) lone(u *bin) int64 {
	if !m.emulator {
		return 0
	}
	least := infinite
	for a := range m.nodes {
		if !u.within[a] {
			continue
		}
		if m.nodes[a].reserve > 0 {
			return 0 // there is one left
		}
		for b := range m.nodes {
			if !u.within[b] && m.nodes[b].free > 0 {
				least = min(least, m.far(a, b))
			}
		}
	}
	return finite(least) * m.p.Weights.EmulatorDistance
}

// localTo returns how many lab nodes like r can have all their devices in a bin, at most.
func (m *model) localTo(r *request, u *bin) int {
	fit := len(m.requests)
	for _, w := range r.wants {
		here := 0
		for _, d := range w.any {
			switch h := m.devices[d].home; {
			case h >= 0 && !u.within[h]:
			case w.kind == wantVF:
				here += m.devices[d].vfs
			default:
				here++
			}
		}
		fit = min(fit, here/w.count)
	}
	return fit
}

// A member is a lab node of a class or a portion, whose class is -1, as a part of a pattern.
type member struct {
	class int
	gain  int64
}

// ranks returns for each size the lab nodes and portions that gain most in a bin, best first, before
// what all pay together; full says that no core is left then. The k-th of a size in a pattern gains
// what stands at k, so that the gain of a pattern is that of its parent and one number more.
func (a *patternModel) ranks(u *bin, full bool) [][]member {
	out := make([][]member, len(a.sizes))
	for c, members := range a.classes {
		s := a.sizeOf[c]
		if s < 0 {
			continue
		}
		for k := range min(len(members), u.room/a.sizes[s]) {
			cost := u.cost(c, k)
			if cost == infinite {
				break
			}
			if full {
				cost += u.lone
			}
			out[s] = append(out[s], member{c, a.v[c] - cost})
		}
	}
	for s, size := range a.sizes {
		for range min(len(a.t.m.requests), u.room/size) {
			out[s] = append(out[s], member{-1, a.g[s]})
		}
		slices.SortStableFunc(out[s], func(x, y member) int { return cmp.Compare(y.gain, x.gain) })
	}
	return out
}

// bestPattern returns the pattern of a bin that gains most, and its members by size. The gains of
// all are in a.gains then.
func (a *patternModel) bestPattern(u *bin) (best int, ranks [][]member) {
	ranks, full := a.ranks(u, false), a.ranks(u, true)
	list := u.table.list
	a.gains, a.sums, a.pages = zero(a.gains, len(list)), zero(a.sums, len(list)), zero(a.pages, len(list))
	for x := 1; x < len(list); x++ {
		c := &list[x]
		a.sums[x] = a.sums[c.parent] + ranks[c.size][c.nth-1].gain
		now := a.sums[x]
		if c.full && u.lone > 0 {
			now = 0
			for y := x; y > 0; y = list[y].parent {
				now += full[list[y].size][list[y].nth-1].gain
			}
		}
		now -= a.share * int64(c.shares)
		if u.pages >= 0 && a.page > 0 {
			// Who is due more pages than the bin has has paid for those already. Mix 93 of the tests is not proved
			// without this term.
			a.pages[x] = a.pages[c.parent] + min(u.pages, a.due[c.size])
			now -= a.page * min(a.gap/a.page, max(0, a.pages[x]-u.pages))
		}
		if a.gains[x] = now; now > a.gains[best] {
			best = x
		}
	}
	a.t.work.add(int64(len(list)) / 8)
	if list[best].full {
		ranks = full
	}
	return best, ranks
}

// cheapestSpan returns by how many portions of which sizes a member of a class spans at least cost:
// with their g, infinite where it cannot span, and without. It is a knapsack problem, solved by
// dynamic programming over cores and portions.
func (a *patternModel) cheapestSpan(c int) (parts []int, reduced, cost int64) {
	cores := a.t.m.requests[a.classes[c][0]].cores
	longest := len(a.span[c]) + 1
	type last struct {
		cost int64
		size int
	}
	// rows[k][n] is for n cores or more in k portions; the last row, for more portions as well,
	// adds len(a.sizes) where the row stays the same. "Or more", because a portion may count with fewer cores than it
	// has: from gives the most that a portion of size s can stand for, which is one less than the next larger size.
	rows := make([][]last, longest+1)
	from := func(n, s int) int {
		if s == 0 {
			return max(0, n-a.room)
		}
		return max(0, n-a.sizes[s-1]+1)
	}
	for k := range rows {
		rows[k] = make([]last, cores+1)
		for n := range rows[k] {
			q := &rows[k][n]
			if *q = (last{infinite, -1}); k == 0 {
				if n == 0 {
					q.cost = 0
				}
				continue
			}
			for s, size := range a.sizes {
				if size >= cores || size > n {
					continue
				}
				x := from(n, s)
				if now := rows[k-1][x].cost + a.g[s]; now < q.cost {
					*q = last{now, s}
				}
				if k == longest && x < n && rows[k][x].cost+a.g[s] < q.cost {
					*q = last{rows[k][x].cost + a.g[s], s + len(a.sizes)}
				}
			}
		}
	}
	a.t.work.add(int64(len(rows)*cores*len(a.sizes)) / 16)
	reduced = infinite
	k := 0
	for x, span := range a.span[c] {
		if span < infinite {
			span = max(span, a.beside[c])
		}
		if now := span + rows[x+2][cores].cost; span < infinite && now < reduced {
			reduced, cost, k = now, span, x+2
		}
	}
	best := -1
	for x, q := range a.splits[c] {
		now := q.cost
		for _, s := range q.parts {
			now += a.g[s]
		}
		if now < reduced {
			reduced, cost, best = now, q.cost, x
		}
	}
	if best >= 0 {
		return a.splits[c][best].parts, reduced, cost
	}
	for n := cores; k > 0; {
		s := rows[k][n].size
		if s < len(a.sizes) {
			k--
		}
		s %= len(a.sizes)
		parts = append(parts, s)
		n = from(n, s)
	}
	return parts, reduced, cost
}
