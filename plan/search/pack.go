package search

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A packer says how the cores of lab nodes lie best under the L3 caches of a component, given how
// many cores each has of each pool. What it counts is pairs of a lab node and an L3 cache that it
// shares, with another lab node or a tenant.
type packer struct {
	m     *model
	work  *meter
	cache map[string]packed
	key   []byte

	comp   int
	items  []portion // to be packed, those of one lab node together, large lab nodes first
	rests  []rest    // what is left to pack before each item
	left   []int     // of each cell: free cores
	own    []int     // of each L3: lab nodes
	has    []int     // of each L3: the stack of its lab nodes' last, 1 + who
	give   []int     // of the present distribution: at item*len(cells)+cell
	best   []int
	low    int // proved
	high   int // found
	until  int64
	likely bool        // a cell is tried with all that goes into it, or with what is left over from full ones
	waste  []int       // least idle cores under caches of its own, by size of a lab node; -1 where that is impossible
	covers []*covering // of each component, nil where nobody asked
	asked  []int
}

// packed is what is known about one packing: between low and high shares.
type packed struct{ low, high int }

type rest struct{ labs, cores int }

// packSteps bounds the work on one packing; beyond it the bound counts.
const packSteps = 60000

// cacheLimit bounds the memory of remembered packings.
const cacheLimit = 1 << 16

// bounds returns between what the least shares of a component are: the same where they were found in time.
func (p *packer) bounds(k int, at []portion) packed {
	if n, ok := p.easy(k, at); ok {
		return packed{n, n}
	}
	return p.find(k, at, false)
}

// easy solves what needs no search.
func (p *packer) easy(k int, at []portion) (int, bool) {
	comp := &p.m.comps[k]
	if len(at) == 0 || len(comp.l3s) == 0 {
		return 0, true
	}
	if !comp.single {
		return 0, false
	}
	labs := 0
	for x := range at {
		if !slices.ContainsFunc(at[:x], func(q portion) bool { return q.who == at[x].who }) {
			labs++
		}
	}
	if labs == 1 && !p.m.l3s[comp.l3s[0]].tenant {
		return 0, true
	}
	return labs, true
}

// find searches for the least number of shares. With keep, p.best holds the distribution that has p.high of them.
func (p *packer) find(k int, at []portion, keep bool) packed {
	p.load(k, at)
	key := p.keyOf(k)
	if r, ok := p.cache[string(key)]; ok && !keep {
		return r
	}
	p.search()
	r := packed{p.low, p.high}
	if p.work.stopped != "" {
		return r // not all that can be known
	}
	if len(p.cache) >= cacheLimit {
		clear(p.cache)
	}
	p.cache[string(key)] = r
	return r
}

// load orders the lab nodes of a component, large ones first.
func (p *packer) load(k int, at []portion) {
	p.comp = k
	p.items = append(p.items[:0], at...)
	total := func(who int) int {
		n := 0
		for _, q := range at {
			if q.who == who {
				n += q.n
			}
		}
		return n
	}
	slices.SortFunc(p.items, func(a, b portion) int {
		if a.who == b.who {
			return cmp.Compare(a.pool, b.pool)
		}
		return cmp.Or(cmp.Compare(total(b.who), total(a.who)), cmp.Compare(a.who, b.who))
	})
}

// keyOf names a packing by component and demands; who is who does not matter. So packings that differ
// only in the names of lab nodes are searched once, which most of the tree's leaves profit from.
func (p *packer) keyOf(k int) []byte {
	p.key = binary.AppendUvarint(p.key[:0], uint64(k))
	for x, q := range p.items {
		first := byte(1) // of its lab node
		if x > 0 && p.items[x-1].who == q.who {
			first = 0
		}
		p.key = append(p.key, first)
		p.key = binary.AppendUvarint(p.key, uint64(q.pool))
		p.key = binary.AppendUvarint(p.key, uint64(q.n))
	}
	return p.key
}

// search runs branch and bound over the items.
func (p *packer) search() {
	p.reset()
	p.best = p.best[:0]
	p.prepare()
	// Cells are tried in two rounds. The first is exact. If it runs out of steps, the second finds a
	// good packing among few, and low stays what is proved.
	p.low, p.high = max(p.ahead(0), p.cover()), 1<<30
	p.until = p.work.steps + packSteps
	if !p.item(0, 0) {
		p.low = p.high
	} else if p.low < p.high {
		// There was too much to look at; the likely ways are far fewer. Mixes 35, 70, 105 and 159 of the tests
		// are proved only because one of these is as good as the bound.
		p.likely = true
		p.until = p.work.steps + packSteps
		p.item(0, 0)
		p.likely = false
		p.repack()
	}
}

// reset makes all cells free.
func (p *packer) reset() {
	m := p.m
	p.left, p.own, p.has = zero(p.left, len(m.cells)), zero(p.own, len(m.l3s)), zero(p.has, len(m.l3s))
	for _, pl := range m.comps[p.comp].pools {
		for _, c := range m.pools[pl].cells {
			p.left[c] = len(m.cells[c].cores)
		}
	}
	p.give = zero(p.give, len(p.items)*len(m.cells))
}

// prepare finds what is left before each item, and the idle cores that a lab node under caches of its own costs.
func (p *packer) prepare() {
	m := p.m
	comp := &m.comps[p.comp]
	p.rests = zero(p.rests, len(p.items)+1)
	for x := len(p.items) - 1; x >= 0; x-- {
		p.rests[x] = p.rests[x+1]
		p.rests[x].cores += p.items[x].n
		if x == 0 || p.items[x-1].who != p.items[x].who {
			p.rests[x].labs++
		}
	}
	p.waste = p.waste[:0]
	if len(comp.pools) > 1 {
		return
	}
	for _, c := range m.pools[comp.pools[0]].cells {
		if m.cells[c].l3 < 0 {
			return // cores under no known cache can be shared at no cost
		}
	}
	// The case that needs this: mix 258 of the tests. A lab node that is alone under its caches has all of their
	// cores, so that it wastes the difference to the next sum of cache sizes. reach[n] says that some caches
	// without tenants have n free cores together.
	free := m.pools[comp.pools[0]].free
	reach := make([]bool, free+1)
	reach[0] = true
	for _, c := range m.pools[comp.pools[0]].cells {
		if l := m.cells[c].l3; m.l3s[l].tenant {
			continue
		}
		size := len(m.cells[c].cores)
		for n := free; n >= size; n-- {
			reach[n] = reach[n] || reach[n-size]
		}
	}
	p.waste = zero(p.waste, free+1)
	next := -1
	for n := free; n >= 0; n-- {
		if reach[n] {
			next = n
		}
		p.waste[n] = max(-1, next-n)
	}
}

// ahead returns how many shares are to come at least when items from x on are still to be packed. A
// lab node has no share only if it is alone under all its caches; their idle cores are then lost to
// others, and there are only so many cores to lose.
func (p *packer) ahead(x int) int {
	if len(p.waste) == 0 {
		return 0
	}
	free := 0
	for _, c := range p.m.pools[p.m.comps[p.comp].pools[0]].cells {
		free += p.left[c]
	}
	idle := free - p.rests[x].cores
	shares := 0
	// Few lab nodes: picking the least waste again and again needs no sorting.
	var counts [64]int
	many := 0
	for _, q := range p.items[x:] {
		w := p.waste[q.n]
		switch {
		case w < 0:
			shares++
		case w >= len(counts):
			many++
		default:
			counts[w]++
		}
	}
	for w, n := range counts {
		if n == 0 || w == 0 {
			continue
		}
		fit := min(n, idle/w)
		shares += n - fit
		if idle -= fit * w; fit < n {
			idle = 0
		}
	}
	return shares + max(0, many-idle/len(counts))
}

// item packs items from x on, the shares so far given; it reports whether it was cut short.
func (p *packer) item(x, shares int) bool {
	if shares+p.ahead(x) >= p.high {
		return false
	}
	if x == len(p.items) {
		p.high = shares
		p.best = append(p.best[:0], p.give...)
		return false
	}
	return p.spread(x, 0, p.items[x].n, shares)
}

// spread gives n cores of item x to cells from position pos of its pool on.
func (p *packer) spread(x, pos, n, shares int) bool {
	if p.work.addHard(1) || p.work.steps > p.until {
		return true
	}
	if n == 0 {
		return p.item(x+1, shares)
	}
	if shares >= p.high || p.high == p.low {
		return false
	}
	m := p.m
	cells := m.pools[p.items[x].pool].cells
	if pos == len(cells) {
		return false
	}
	rest := 0 // what the cells to come can take: the others have to go here
	for _, c := range cells[pos+1:] {
		rest += p.left[c]
	}
	c := cells[pos]
	most := min(n, p.left[c])
	// Of cells in the same state the first gets the most.
	if pos > 0 {
		if b := cells[pos-1]; p.alike(x, b, c) {
			most = min(most, p.give[x*len(m.cells)+b])
		}
	}
	l := m.cells[c].l3
	for amount := most; amount >= max(0, n-rest); amount-- {
		if amount == 0 {
			return p.spread(x, pos+1, n, shares)
		}
		if p.likely && amount < most && amount != n%len(m.cells[c].cores) {
			continue
		}
		more, before := 0, 0
		if l >= 0 {
			before = p.has[l]
			if before != p.items[x].who+1 {
				more = p.joining(l)
				p.own[l]++
				p.has[l] = p.items[x].who + 1
			}
		}
		p.left[c] -= amount
		p.give[x*len(m.cells)+c] = amount
		cut := p.spread(x, pos+1, n-amount, shares+more)
		p.left[c] += amount
		p.give[x*len(m.cells)+c] = 0
		if l >= 0 && before != p.items[x].who+1 {
			p.own[l]--
			p.has[l] = before
		}
		if cut {
			return true
		}
	}
	return false
}

// joining returns how many shares there are more when one more lab node gets cores under a cache. The first owner of a
// cache shares with nobody; with the second both have a share, with each one more there is one more share. A tenant is
// an owner that has none itself.
func (p *packer) joining(l int) int {
	switch {
	case p.m.l3s[l].tenant || p.own[l] > 1:
		return 1
	case p.own[l] == 1:
		return 2
	}
	return 0
}

// alike reports whether two cells were in the same state before item x: as many free cores under
// caches with as many owners, and no other pool under these. Then swapping what they get changes
// nothing, and spread tries one of the two orders.
func (p *packer) alike(x, b, c int) bool {
	m := p.m
	lb, lc := m.cells[b].l3, m.cells[c].l3
	if lb < 0 || lc < 0 {
		return lb == lc && p.left[b]+p.give[x*len(m.cells)+b] == p.left[c]
	}
	if m.l3s[lb].tenant != m.l3s[lc].tenant || len(m.l3s[lb].cells) > 1 || len(m.l3s[lc].cells) > 1 {
		return false
	}
	given := p.give[x*len(m.cells)+b]
	own := p.own[lb]
	if given > 0 {
		own--
	}
	return p.left[b]+given == p.left[c] && own == p.own[lc]
}
