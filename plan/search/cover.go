package search

import (
	"slices"
)

// Counting L3 caches is the cheapest bound on the cost of sharing them, and the only one for the machine as a whole.
// Mix 40 of the tests ("one-side") needs it: 400 is proved with it, 382 without.

type covering struct {
	own     []int
	tenants []int
	loose   int // cores without a known cache

	ownSums, tenantSums []int // sums of the largest caches
	size, widest        int   // largest without a tenant, and largest of all
	parts               []int
	least, next         []int // scratch space of splitShares
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

// finish must be called after all caches are added.
func (c *covering) finish() {
	slices.SortFunc(c.own, largestFirst)
	slices.SortFunc(c.tenants, largestFirst)
	c.ownSums, c.tenantSums = sums(c.own), sums(c.tenants)
	c.size = max(1, c.ownSums[min(1, len(c.own))])
	c.widest = max(c.size, c.tenantSums[min(1, len(c.tenants))])
}

func sums(list []int) []int {
	sums := make([]int, len(list)+1)
	for k, n := range list {
		sums[k+1] = sums[k] + n
	}
	return sums
}

// shares returns a lower bound on the number of L3 cache shares: pairs of a lab node and a cache that it does not have
// to itself.
//
// It combines three counts. First, M caches with one owner each hold at most the M largest parts, if lab nodes are cut
// into parts of the largest cache's size and remainders; the other caches have at least two owners each, or one if they
// have a tenant. Second, each lab node has pieces in at least as many caches as its size requires, and one more if it
// cannot be whole in one. Third, splitShares counts whole pieces of each lab node.
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
	sum := 0
	for k, n := range c.parts {
		sum += n
		c.parts[k] = sum
	}
	split := c.splitShares(asked)
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
			whole := alone + (full+len(c.tenants))*(c.widest/least)
			n = max(n, pieces+max(0, small-whole)-alone, split[alone])
		}
		if best < 0 || n < best {
			best = n
		}
	}
	return max(0, best) // if no number is enough, there is no placement either
}

const maxSplitWork = 1 << 16

// splitShares returns lower bounds on the number of shares, by the number of caches that lab nodes have to themselves.
// The other cores of a lab node are in caches with a tenant or another owner, which leaves it at most a core less than
// the whole.
//
// The case that needs this: 38, 24, 23, 3 and 4 cores if 14 of 16 caches have a tenant, so that a piece has 7 cores
// at most. 13 shares are proved with it, 12 without.
func (c *covering) splitShares(asked []int) []int {
	c.least, c.next = zero(c.least, len(c.own)+1), zero(c.next, len(c.own)+1)
	piece := c.size - 1
	if len(c.tenants) > 0 {
		piece = max(piece, c.tenants[0])
	}
	if piece < 1 || len(asked)*len(c.least)*len(c.least) > maxSplitWork {
		return c.least
	}
	for _, n := range asked {
		for b := range c.next {
			c.next[b] = c.least[b] + (n+piece-1)/piece
			for a := 1; a <= b && c.size*(a-1) < n; a++ {
				rest := max(0, n-c.size*a)
				c.next[b] = min(c.next[b], c.least[b-a]+(rest+piece-1)/piece)
			}
		}
		c.least, c.next = c.next, c.least
	}
	return c.least
}

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
		// Cores that the host keeps can be in other caches, unless this cache has all of the node or package.
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

// cover returns a lower bound on the shares of all lab nodes on the whole host.
func (m *model) cover() int64 {
	asked := make([]int, len(m.requests))
	for i := range m.requests {
		asked[i] = m.requests[i].cores
	}
	return int64(m.coverage(func(*pool) bool { return true }).shares(asked))
}

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

func (t *tree) sharesLeft() int64 { return max(0, t.coverAll-t.s.l3) }
