package search

import (
	"context"
	"testing"

	"github.com/rackless/rackless/internal/planfixture"
	"github.com/rackless/rackless/plan"
)

// unevenLabs returns a few lab nodes on a machine with several NUMA nodes, on which some have to
// share L3 caches, span, or do without memory or devices at hand.
func unevenLabs(seed uint64) *plan.Problem {
	r := planfixture.NewRand(seed)
	s := shape{Packages: r.In(1, 2), Nodes: r.In(1, 2), L3s: r.In(0, 2), Cores: r.In(1, 3), Threads: 2,
		GPUs: r.In(0, 2), NICs: r.In(0, 2), VFs: r.In(1, 2),
		Pages: int64(r.In(2, 6)), Far: 21, Reserve: r.In(0, 1), Busy: r.Chance(20), Tenants: r.In(0, 4) / 4,
		NodeReserve: r.In(0, 4) / 4, NoMemoryNodes: r.In(0, 3) / 3}
	p := s.Problem()
	p.Weights.L3Shared = int64(planfixture.Pick(r, 50, 100, 700))
	p.Weights.NUMASpan = int64(planfixture.Pick(r, 0, 20, 200))
	p.Weights.EmulatorDistance = int64(planfixture.Pick(r, 0, 20, 200))
	p.Weights.MemoryBalance = int64(planfixture.Pick(r, 0, 10, 1000))
	var asks []ask
	for range r.In(2, 4) {
		asks = append(asks, ask{Cores: r.In(1, 4), Pages: int64(r.In(0, 4)),
			GPUs: min(s.GPUs, r.In(0, 2)/2), VFs: min(s.NICs, r.In(0, 2)/2)})
	}
	return withAsks(p, asks...)
}

func TestAnyCreditsGiveABound(t *testing.T) {
	t.Parallel()
	tight, loose := 0, 0
	for seed := range uint64(4000) {
		p := unevenLabs(seed)
		if seed%2 == 0 {
			p = planfixture.Small(seed)
		}
		m, err := newModel(p)
		if err != nil {
			t.Fatal(err)
		}
		if !m.countsAllow() || len(m.requests) < 2 {
			continue
		}
		tr := newTree(m, &meter{ctx: context.Background(), limit: DefaultSteps})
		tr.applyPrices()
		a := tr.newPatternModel()
		cost, ok := int64(0), false
		if a != nil {
			cost, ok = leastCost(t, p)
		}
		if !ok {
			continue
		}
		r := planfixture.NewRand(seed)
		for range 4 {
			for n := range tr.price.node {
				tr.price.node[n] = int64(max(0, r.In(-400, 400))) * scale / 4
			}
			tr.applyPrices()
			if !tr.cheapest() {
				t.Fatalf("seed %d: a lab node fits nowhere, want cost %d", seed, cost)
			}
			// Whatever the best placement known costs, it may be dearer than the best.
			tr.best, tr.cost, tr.root = []*column{{}}, cost+int64(r.In(0, 2000)), 0
			if !a.reprice() {
				continue
			}
			q := a.start()
			if r.Chance(50) {
				for c := range a.classes {
					a.findSplits(c)
				}
			}
			for c := range q.v {
				q.v[c] = int64(r.In(-100, 1500)) * scale * q.fine
			}
			for s := range q.g {
				q.g[s] = int64(max(0, r.In(-200, 400))) * scale * q.fine
			}
			q.bestEntering()
			if r.Chance(30) {
				for k := range a.bins {
					for x := range a.bins[k].table.list {
						a.pack(&a.bins[k], x)
					}
				}
				q.bestEntering()
			}
			if tr.root > cost {
				t.Fatalf("seed %d: credits %v and %v prove %d, the least cost is %d", seed, q.v, q.g, tr.root, cost)
			}
			for enter := q.price(); enter != nil && q.enter(enter); enter = q.price() {
			}
			switch {
			case tr.root > cost:
				t.Fatalf("seed %d: the linear program proves %d, the least cost is %d", seed, tr.root, cost)
			case tr.root == cost:
				tight++
			default:
				loose++
			}
		}
	}
	t.Logf("%d linear programs prove the least cost, %d less", tight, loose)
	if tight < 400 {
		t.Errorf("%d linear programs prove the least cost, want 400", tight)
	}
}

func TestSharedCachesAreProved(t *testing.T) {
	t.Parallel()
	mix := func(seed uint64) *plan.Problem {
		_, p := mix(seed)
		return p
	}
	for _, c := range []struct {
		name string
		p    *plan.Problem
		want int64
	}{
		{"one of 12 cores with a GPU and three of 5 cores on each of 16 NUMA nodes: two and four would share less, " +
			"but leave no core to the host", largeMixed(), 35200},
		{"64 lab nodes of eleven sizes on 16 NUMA nodes", largeUnequal(1, 0), 4000},
		{"16 equal lab nodes on eight NUMA nodes, of which each has memory for two", mix(93), 800},
		{"seven lab nodes on one NUMA node and four on the other", mix(70), 6800},
		{"twelve caches for twelve lab nodes, most of which do not fill theirs", mix(105), 17200},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if cost, ok := leastCost(t, c.p); !ok || cost != c.want {
				t.Errorf("Solve: cost %d, found %v, want %d", cost, ok, c.want)
			}
		})
	}
}
