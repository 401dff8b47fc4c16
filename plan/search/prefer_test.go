package search

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// evenHost returns a problem whose NUMA nodes are packages. inCache 0: the caches are not known.
func evenHost(nodes, cores, inCache int) *plan.Problem {
	p := &plan.Problem{PageBytes: 1 << 30, ReserveCores: 1, Weights: plan.DefaultWeights(lab.WorkloadCPUBandwidth)}
	for n := range nodes {
		row := slices.Repeat([]int{20}, nodes)
		row[n] = 10
		p.NUMANodes = append(p.NUMANodes, plan.NUMANode{ID: n, Distances: row})
		p.Packages = append(p.Packages, plan.Package{ID: n})
		for c := range cores {
			id := n*cores + c
			k := plan.Core{ID: id, CPUs: []int{id}, NUMANode: n, Package: n, L3: -1}
			if inCache > 0 {
				k.L3 = id / inCache
			}
			p.Cores = append(p.Cores, k)
		}
	}
	return p
}

func vms(cores ...int) []ask {
	var asks []ask
	for _, n := range cores {
		asks = append(asks, ask{Cores: n, Pages: 16})
	}
	return asks
}

func solved(t *testing.T, p *plan.Problem) *Result {
	t.Helper()
	r, err := Solve(t.Context(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.Cost(plan.Evaluate(p, &r.Placement)); got != r.Cost || !r.Optimal {
		t.Errorf("it costs %d, %d was said, proved: %t", got, r.Cost, r.Optimal)
	}
	return r
}

func TestEqualCostsSpreadOverNUMANodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p     *plan.Problem
		given []int
	}{
		{withAsks(evenHost(2, 24, 0), vms(4, 4)...), []int{4, 4}},
		{withAsks(evenHost(2, 24, 3), vms(6, 6, 6, 7)...), []int{12, 13}},
		{withAsks(evenHost(4, 8, 0), vms(2, 2, 2, 2)...), []int{2, 2, 2, 2}},
		{withAsks(evenHost(2, 8, 0), vms(3)...), []int{0, 3}},
	} {
		r := solved(t, tt.p)
		given := make([]int, len(tt.p.NUMANodes))
		for _, n := range r.Placement.Nodes {
			for _, id := range n.Cores {
				given[tt.p.Cores[id].NUMANode]++
			}
		}
		if slices.Sort(given); !slices.Equal(given, tt.given) {
			t.Errorf("%d lab nodes: %v cores by NUMA node, want %v", len(r.Placement.Nodes), given, tt.given)
		}
	}
}

// A lab node does not go beside a tenant if it costs the same elsewhere.
func TestTenantsCountAsLoad(t *testing.T) {
	t.Parallel()
	p := withAsks(evenHost(2, 16, 0), vms(4)...)
	for c := range 6 {
		p.Cores[c+2].Tenant = "other"
	}
	if r := solved(t, p); r.Placement.Nodes[0].Cores[0] < 16 {
		t.Errorf("cores %v, want some of NUMA node 1", r.Placement.Nodes[0].Cores)
	}
}

func TestFunctionsOfOneLabNodeGoToSeveralPorts(t *testing.T) {
	t.Parallel()
	for _, count := range []int{2, 3} {
		p := evenHost(2, 8, 0)
		zero := 0
		for d := range 2 {
			p.Devices = append(p.Devices, plan.Device{ID: fmt.Sprintf("0000:3b:00.%d", d), Kind: plan.KindNIC,
				NUMANode: &zero, Bundle: d, Whole: true, RateMbps: 100_000, RDMA: true, VFs: 8,
				FreeVFs: []int{0, 1, 2, 3, 4, 5, 6, 7}})
		}
		r := solved(t, withAsks(p, ask{Cores: 4, Pages: 16, VFs: count}))
		if vfs := r.Placement.Nodes[0].VFs; len(vfs) != 2 {
			t.Errorf("%d virtual functions: %v, want some of both ports", count, vfs)
		}
	}
}

func TestLabNodesHaveFewL3Caches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		p     *plan.Problem
		cores [][]int
	}{
		{"two whole ones", withAsks(evenHost(1, 64, 8), vms(16)...), [][]int{seq(8, 23)}},
		{"one whole one", withAsks(evenHost(1, 32, 4), vms(4)...), [][]int{seq(4, 7)}},
		{"two of each of two", withAsks(evenHost(1, 24, 3), vms(6, 6)...), [][]int{seq(3, 8), seq(9, 14)}},
		{"the rest of one", withAsks(evenHost(1, 16, 8), vms(7)...), [][]int{seq(1, 7)}},
		{"all but one", withAsks(evenHost(1, 16, 8), vms(15)...), [][]int{seq(1, 15)}},
		{"no caches known, no number left out", withAsks(evenHost(1, 12, 0), vms(4, 4)...),
			[][]int{seq(1, 4), seq(5, 8)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := solved(t, tt.p)
			for i, want := range tt.cores {
				if got := r.Placement.Nodes[i].Cores; !slices.Equal(got, want) {
					t.Errorf("lab node %d has cores %v, want %v", i, got, want)
				}
			}
		})
	}
}

func seq(first, last int) []int {
	var list []int
	for n := first; n <= last; n++ {
		list = append(list, n)
	}
	return list
}
