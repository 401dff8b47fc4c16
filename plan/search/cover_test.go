package search

import (
	"testing"

	"github.com/rackless/rackless/plan/plantest"
)

func fewestShares(sizes []int, tenant []bool, loose int, asked []int) int {
	owners := make([]int, len(sizes))
	best := -1
	var lab func(i int)
	var at func(i, cache, left int)
	lab = func(i int) {
		if i < len(asked) {
			at(i, 0, asked[i])
			return
		}
		shares := 0
		for k, n := range owners {
			if n > 1 || n == 1 && tenant[k] {
				shares += n
			}
		}
		if best < 0 || shares < best {
			best = shares
		}
	}
	at = func(i, cache, left int) {
		if cache == len(sizes) {
			if left <= loose {
				loose -= left
				lab(i + 1)
				loose += left
			}
			return
		}
		for n := min(left, sizes[cache]); n >= 0; n-- {
			if n > 0 {
				owners[cache]++
			}
			sizes[cache] -= n
			at(i, cache+1, left-n)
			sizes[cache] += n
			if n > 0 {
				owners[cache]--
			}
		}
	}
	lab(0)
	return best
}

func TestCoverIsNeverMoreThanTheFewestShares(t *testing.T) {
	t.Parallel()
	exact, below := 0, 0
	for seed := range uint64(6000) {
		r := plantest.NewRand(seed)
		var c covering
		var sizes, asked []int
		var tenant []bool
		even := r.In(1, 4)
		for range r.In(1, 4) {
			size, held := r.In(1, 4), r.Chance(20)
			if r.Chance(60) {
				size = even
			}
			sizes, tenant = append(sizes, size), append(tenant, held)
			c.add(held, size)
		}
		if r.Chance(20) {
			c.loose = r.In(1, 3)
		}
		for range r.In(1, 4) {
			asked = append(asked, r.In(1, 5))
		}
		want := fewestShares(sizes, tenant, c.loose, asked)
		if want < 0 {
			continue
		}
		c.finish()
		switch got := c.shares(asked); {
		case got > want:
			t.Fatalf("seed %d: caches %v (tenants %v), %d loose cores, lab nodes %v: at least %d shares, but "+
				"%d will do", seed, sizes, tenant, c.loose, asked, got, want)
		case got == want:
			exact++
		default:
			below++
		}
	}
	t.Logf("%d exact, %d below", exact, below)
	if exact < 9*below {
		t.Errorf("%d of %d are exact, want nine in ten", exact, exact+below)
	}
}

func TestCoverCountsWholePieces(t *testing.T) {
	t.Parallel()
	c := covering{own: []int{8, 8}, tenants: []int{7, 7, 7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 5}}
	c.finish()
	if got := c.shares([]int{38, 24, 23, 3, 4}); got != 13 {
		t.Errorf("%d shares, want 13", got)
	}
}

func TestSharedCachesAreProved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		mix  uint64
		want int64
	}{
		{"seven lab nodes on one NUMA node and four on the other", 70, 6800},
		{"twelve caches for twelve lab nodes, most of which do not fill theirs", 105, 17200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, p := mix(c.mix)
			if cost, ok := leastCost(t, p); !ok || cost != c.want {
				t.Errorf("Solve: cost %d, found %v, want %d", cost, ok, c.want)
			}
		})
	}
}
