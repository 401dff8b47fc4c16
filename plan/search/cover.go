package search

import "slices"

// Counting L3 caches is the cheapest bound of what sharing them costs, and the only one that sees
// the machine as a whole. Mix 40 of the tests ("one-side") needs it: 400 is proved with it, 382 without.

// A covering says what L3 caches there are for some lab nodes.
type covering struct {
	own     []int // sizes of caches without a tenant: cores that can be given
	tenants []int // of those with one
	loose   int   // cores under no known cache

	ownSums, tenantSums []int // of the largest
	size, widest        int   // the largest without a tenant, and of all
	parts               []int
}

func (c *covering) add(tenant bool, size int) {
	switch {
	case size == 0:
	case tenant:
		c.tenants = append(c.tenants, size)
	default:
		c.own = append(c.own, size)
	}
}

// finish is called when all caches are there.
func (c *covering) finish() {
	slices.SortFunc(c.own, largestFirst)
	slices.SortFunc(c.tenants, largestFirst)
	c.ownSums, c.tenantSums = sums(c.own), sums(c.tenants)
	c.size = max(1, c.ownSums[min(1, len(c.own))])
	c.widest = max(c.size, c.tenantSums[min(1, len(c.tenants))])
}

// sums returns the sums of the first 0, 1, 2 ... numbers of a list.
func sums(list []int) []int {
	sums := make([]int, len(list)+1)
	for k, n := range list {
		sums[k+1] = sums[k] + n
	}
	return sums
}

// shares returns how many shares of L3 caches lab nodes with so many cores have at least. A share
// is a pair of a lab node and a cache that it does not have for itself.
//
// Two counts go together. A cache with one owner holds no more of it than it asks for: M of them
// hold the M largest parts at best, where lab nodes are cut into parts of the largest cache's size
// and what is left over. The others have to hold the rest, and have two owners each at least; those
// of tenants one. And each lab node has a piece in as many caches as it needs, and one more for
// each that cannot be whole in one: what is not in a cache of its own is a share.
func (c *covering) shares(asked []int) int {
	total, pieces, small, least := 0, 0, 0, c.widest
	c.parts = c.parts[:0]
	for _, n := range asked {
		total += n
		pieces += (n + c.widest - 1) / c.widest
		if n <= c.widest {
			small++
			least = min(least, n)
		}
		for k := 0; n >= c.size && k < len(c.own); k++ {
			c.parts = append(c.parts, c.size)
			n -= c.size
		}
		if n > 0 && n < c.size {
			c.parts = append(c.parts, n)
		}
	}
	slices.SortFunc(c.parts, largestFirst)
	// Sums of the largest parts take their place.
	sum := 0
	for k, n := range c.parts {
		sum += n
		c.parts[k] = sum
	}
	best := -1
	for full := range len(c.ownSums) {
		alone := len(c.own) - full
		owned := 0
		if k := min(alone, len(c.parts)); k > 0 {
			owned = c.parts[k-1]
		}
		have := c.loose + c.ownSums[full] + min(owned, c.ownSums[alone])
		used, _ := slices.BinarySearch(c.tenantSums, total-have)
		if used == len(c.tenantSums) {
			continue
		}
		n := 2*full + used
		if c.loose == 0 {
			// So many can be whole in one cache; the others have two pieces where one would do.
			whole := alone + (full+len(c.tenants))*(c.widest/least)
			n = max(n, pieces+max(0, small-whole)-alone)
		}
		if best < 0 || n < best {
			best = n
		}
	}
	return max(0, best) // where nothing is enough, there is no placement either
}

// coverage returns the covering of some pools that share no L3 cache with others.
func (m *model) coverage(within func(*pool) bool) *covering {
	c := &covering{}
	for _, q := range m.cells {
		if q.l3 < 0 && within(&m.pools[q.pool]) {
			c.loose += len(q.cores)
		}
	}
	for _, l := range m.l3s {
		if len(l.cells) == 0 {
			continue
		}
		first := &m.pools[m.cells[l.cells[0]].pool]
		node, pk, size := first.node, first.pkg, 0
		if !within(first) {
			continue
		}
		for _, k := range l.cells {
			size += len(m.cells[k].cores)
			pl := &m.pools[m.cells[k].pool]
			if pl.node != first.node {
				node = -1
			}
			if pl.pkg != first.pkg {
				pk = -1
			}
		}
		// What the host keeps of a node or package can be under other caches, unless all its cores are under this one.
		if node >= 0 {
			size = min(size, m.nodes[node].most())
		}
		if pk >= 0 {
			size = min(size, max(0, m.packages[pk].free-m.packages[pk].reserve))
		}
		c.add(l.tenant, size)
	}
	c.finish()
	return c
}

// cover counts the shares of all lab nodes on the whole host.
func (m *model) cover() int64 {
	asked := make([]int, len(m.requests))
	for i := range m.requests {
		asked[i] = m.requests[i].cores
	}
	return int64(m.coverage(func(*pool) bool { return true }).shares(asked))
}

// cover counts the shares of the lab nodes that are to be packed.
func (p *packer) cover() int {
	if p.covers[p.comp] == nil {
		p.covers[p.comp] = p.m.coverage(func(q *pool) bool { return q.comp == p.comp })
	}
	p.asked = p.asked[:0]
	for x, q := range p.items {
		if x > 0 && p.items[x-1].who == q.who {
			p.asked[len(p.asked)-1] += q.n
		} else {
			p.asked = append(p.asked, q.n)
		}
	}
	return p.covers[p.comp].shares(p.asked)
}

// sharesLeft is what lab nodes that are not placed yet cost at least for sharing caches, beside
// what those already placed cost.
func (t *tree) sharesLeft() int64 { return max(0, t.coverAll-t.s.l3) }
