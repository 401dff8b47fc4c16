package search

import (
	"context"
	"errors"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
)

// prepared returns the tree of a problem as ascend finds it, or nil if there is no placement.
func prepared(t *testing.T, p *plan.Problem) *tree {
	t.Helper()
	m, err := newModel(p)
	if err != nil {
		t.Fatal(err)
	}
	if !m.countsAllow() {
		return nil
	}
	tr := newTree(m, &meter{ctx: context.Background(), limit: DefaultSteps})
	tr.applyPrices()
	if !tr.cheapest() {
		return nil
	}
	tr.root = tr.bound(tr.least)
	tr.commonPortPrice()
	tr.greedy()
	if tr.best == nil {
		return nil
	}
	return tr
}

func leastCost(t *testing.T, p *plan.Problem) (int64, bool) {
	t.Helper()
	r, err := Solve(context.Background(), p, Options{})
	if errors.Is(err, ErrInfeasible) {
		return 0, false
	}
	if err != nil || !r.Optimal {
		t.Fatalf("Solve = %+v, %v; want it proved", r, err)
	}
	return r.Cost, true
}

func TestAnyPricesGiveABound(t *testing.T) {
	t.Parallel()
	tight, loose := 0, 0
	for seed := range uint64(1500) {
		p := plantest.Small(seed)
		cost, ok := leastCost(t, p)
		if !ok {
			continue
		}
		tr := prepared(t, p)
		if tr == nil {
			continue
		}
		r := plantest.NewRand(seed)
		for range 4 {
			draw := func(list []int64) {
				for k := range list {
					list[k] = int64(max(0, r.In(-400, 400))) * scale / 4
				}
			}
			draw(tr.price.node)
			draw(tr.price.bundle)
			draw(tr.price.vf)
			draw(tr.price.nic)
			draw(tr.price.card)
			tr.applyPrices()
			if !tr.cheapest() {
				t.Fatalf("seed %d: a lab node fits nowhere, want cost %d", seed, cost)
			}
			tr.root = 0
			b := tr.bound(tr.least)
			if b > cost {
				t.Fatalf("seed %d: bound %d at prices %+v, the least cost is %d", seed, b, tr.price, cost)
			}
			if e := tr.boundUnequal(equalSteps); e > cost {
				t.Fatalf("seed %d: bound %d with unequal at prices %+v, the least cost is %d", seed, e, tr.price, cost)
			}
			if b == cost {
				tight++
			} else {
				loose++
			}
		}
	}
	t.Logf("%d bounds are the least cost, %d below", tight, loose)
}

func equalLabs(seed uint64) *plan.Problem {
	r := plantest.NewRand(seed)
	s := shape{Packages: r.In(1, 2), Nodes: r.In(1, 2), L3s: r.In(0, 2), Cores: r.In(1, 3), Threads: 2,
		GPUs: r.In(0, 3), NICs: r.In(0, 2), VFs: r.In(1, 3),
		Pages: int64(r.In(1, 6)), PairsUnderSwitch: true, Far: 21}
	p := s.Problem()
	p.Weights.Unequal = int64(plantest.Pick(r, 1, 10, 50, 400))
	p.Weights.L3Shared = int64(plantest.Pick(r, 0, 50, 700))
	a := ask{Cores: r.In(1, 2), Pages: int64(r.In(0, 3)), GPUs: min(s.GPUs, r.In(0, 1)),
		VFs: min(s.NICs, r.In(0, 1))}
	return withAsks(p, times(r.In(2, 3), a)...)
}

func TestBoundsOfEqualLabNodes(t *testing.T) {
	t.Parallel()
	proved, open := 0, 0
	for seed := range uint64(1500) {
		p := equalLabs(seed)
		cost, ok := leastCost(t, p)
		if !ok {
			continue
		}
		tr := prepared(t, p)
		if tr == nil {
			continue
		}
		if cover := tr.m.cover() * p.Weights.L3Shared; cover > cost {
			t.Fatalf("seed %d: sharing L3 caches costs %d at least, all costs %d", seed, cover, cost)
		}
		tr.ascend()
		if tr.root > cost {
			t.Fatalf("seed %d: root bound %d, the least cost is %d", seed, tr.root, cost)
		}
		if tr.root == cost {
			proved++
		} else {
			open++
		}
	}
	t.Logf("%d proved at the root, %d not", proved, open)
	if proved < 2*open {
		t.Errorf("the root proves %d of %d, want two in three", proved, proved+open)
	}
}

func TestCoverCountsShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		shape shape
		asks  []ask
		want  int64
	}{
		{"a cache for each", shape{Packages: 1, Nodes: 1, L3s: 4, Cores: 8, Threads: 2},
			times(4, ask{Cores: 5}), 0},
		{"five cores under caches of eight leave three that two lab nodes more have to share",
			shape{Packages: 1, Nodes: 1, L3s: 4, Cores: 8, Threads: 2},
			times(5, ask{Cores: 5}), 4},
		{"full caches have one owner where sizes are right", shape{Packages: 2, Nodes: 2, L3s: 4, Cores: 8,
			Threads: 2},
			times(8, ask{Cores: 16}), 0},
		{"all of a cache that is shared", shape{Packages: 1, Nodes: 1, L3s: 1, Cores: 8, Threads: 2},
			times(2, ask{Cores: 4}), 2},
		{"no caches known", shape{Packages: 1, Nodes: 1, L3s: 0, Cores: 8, Threads: 2},
			times(1, ask{Cores: 8}), 0},
		{"a core that the host keeps", shape{Packages: 1, Nodes: 2, L3s: 1, Cores: 8, Threads: 2,
			Busy: true}, times(1, ask{Cores: 8}), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := newModel(withAsks(c.shape.Problem(), c.asks...))
			if err != nil {
				t.Fatal(err)
			}
			if got := m.cover(); got != c.want {
				t.Errorf("cover() = %d, want %d", got, c.want)
			}
		})
	}
}

func TestPublishedCasesAreProvedAtTheRoot(t *testing.T) {
	t.Parallel()
	h20 := h20Shape()
	for _, c := range []struct {
		name string
		p    *plan.Problem
	}{
		{"eight lab nodes with a GPU each, of which four have their NIC under the same switch", gpusApart()},
		{"eight with a virtual function each", withAsks(h20.Problem(),
			times(8, ask{Cores: 11, Pages: 200, GPUs: 1, VFs: 1})...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tr := prepared(t, c.p)
			tr.ascend()
			tr.improvePairs()
			if !tr.proved() {
				t.Errorf("cost %d, root bound %d", tr.cost, tr.root)
			}
		})
	}
}

// gpusApart has every other GPU under a switch with a NIC.
func gpusApart() *plan.Problem {
	s := h20Shape()
	p := withAsks(s.Problem(), times(8, ask{Cores: 11, Pages: 200, GPUs: 1, VFs: 1})...)
	for i := range p.Paths {
		q := &p.Paths[i]
		if p.Devices[q.B].Kind != plan.KindNIC {
			continue
		}
		switch nic := q.B - 8; {
		case q.A/4 != nic/2:
			q.Steps = 4
		case q.A == 2*nic+1:
			q.Steps = 0
		default:
			q.Steps = 3
		}
	}
	return p
}

func TestMemoryOnFewNodesIsProved(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{22, 144, 147} {
		name, p := mix(seed)
		if _, ok := leastCost(t, p); !ok {
			t.Errorf("%d %s: no placement", seed, name)
		}
	}
}

// Two lab nodes share a card, or one has a port without RDMA.
func TestCardsAreInTheBound(t *testing.T) {
	t.Parallel()
	p := evenHost(2, 8, 0)
	p.Weights = plan.DefaultWeights(lab.WorkloadRDMABandwidth)
	zero := 0
	for d, id := range []string{"0000:3b:00.0", "0000:3b:00.1", "0000:5e:00.0"} {
		p.Devices = append(p.Devices, plan.Device{ID: id, Kind: plan.KindNIC, NUMANode: &zero, Bundle: d, Whole: true,
			RateMbps: 100_000, RDMA: d < 2})
	}
	tr := prepared(t, withAsks(p, times(2, ask{Cores: 2, Pages: 16, NICs: 1})...))
	if tr.root != 0 || tr.cost != 1000 {
		t.Errorf("before prices of cards: cost %d, bound %d; want 1000 and 0", tr.cost, tr.root)
	}
	if tr.commonCardPrice(); tr.root != 1000 {
		t.Errorf("with them the bound is %d, want 1000", tr.root)
	}
}

// The lab node of 13 cores makes room beside the card.
func TestALabNodeIsSplitToMakeRoom(t *testing.T) {
	t.Parallel()
	p := evenHost(8, 16, 8)
	p.Weights = plan.DefaultWeights(lab.WorkloadRDMABandwidth)
	zero := 0
	for i := range p.NUMANodes {
		for j := range p.NUMANodes {
			if i/4 == j/4 && i != j {
				p.NUMANodes[i].Distances[j] = 12
			} else if i != j {
				p.NUMANodes[i].Distances[j] = 32
			}
		}
	}
	for d, id := range []string{"0000:3b:00.0", "0000:3b:00.1", "0000:5e:00.0"} {
		p.Devices = append(p.Devices, plan.Device{ID: id, Kind: plan.KindNIC, NUMANode: &zero, Bundle: d, Whole: true,
			RateMbps: 100_000, RDMA: d < 2})
	}
	asks := []ask{{Cores: 13, Pages: 16, NICs: 1}, {Cores: 3, Pages: 16, NICs: 1}}
	r := solved(t, withAsks(p, append(asks, vms(30, 12, 12, 14)...)...))
	if r.Cost != 1240 {
		t.Errorf("it costs %d, want 1240", r.Cost)
	}
}
