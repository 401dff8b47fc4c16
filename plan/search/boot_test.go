package search

import (
	"slices"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

func twoNodes(cores int) *plan.Problem {
	p := &plan.Problem{
		PageBytes: 2 << 20, ReserveCores: 1, Weights: plan.DefaultWeights(lab.WorkloadMixed),
		NUMANodes: []plan.NUMANode{{ID: 0, Distances: []int{10, 20}}, {ID: 1, Distances: []int{20, 10}}},
		Requests:  []plan.Request{{Name: "vm", VCPUs: cores, Threads: 1, Cores: cores, Pages: 8, GuestNUMA: "auto"}},
	}
	for c := range 8 {
		p.Cores = append(p.Cores, plan.Core{ID: c, CPUs: []int{c}, NUMANode: c / 4, Package: c / 4, L3: -1})
	}
	return p
}

func TestTheCoreOfCPU0StaysWithTheHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setup func(*plan.Problem)
		cores int
		keeps bool
	}{
		{"another core of its NUMA node does as well", func(*plan.Problem) {}, 2, true},
		{"and one of another NUMA node", func(*plan.Problem) {}, 4, true},
		{"with the memory that follows", func(*plan.Problem) {}, 7, true},
		{"not where all others are taken", func(p *plan.Problem) { p.ReserveCores = 0 }, 8, false},
		{"not where it would cost", func(p *plan.Problem) {
			zero := 0
			p.Devices = []plan.Device{{ID: "gpu", Kind: plan.KindGPU, NUMANode: &zero, Whole: true}}
			p.Requests[0].GPUs = []plan.Want{{Count: 1, Any: []int{0}}}
		}, 4, false},
		{"not where the other NUMA node keeps its own", func(p *plan.Problem) {
			p.NUMANodes[1].ReserveCores = 1
		}, 7, false},
		{"not where the other package needs its last", func(p *plan.Problem) {
			p.Packages = []plan.Package{{ID: 1, Busy: "disk"}}
		}, 7, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := twoNodes(tt.cores)
			tt.setup(p)
			r, err := Solve(t.Context(), p, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if keeps := !slices.Contains(r.Placement.Nodes[0].Cores, 0); keeps != tt.keeps {
				t.Errorf("cores %v: the host keeps core 0: %t, want %t", r.Placement.Nodes[0].Cores, keeps, tt.keeps)
			}
			if got := plan.Cost(plan.Evaluate(p, &r.Placement)); got != r.Cost {
				t.Errorf("it costs %d, and %d was said", got, r.Cost)
			}
		})
	}
}

func TestCoresThatAreNotIsolatedStayWithTheHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		isolated []int
		cores    int
		free     []int
	}{
		{"one on each NUMA node", []int{1, 2, 3, 5, 6, 7}, 6, []int{0, 4}},
		{"one in the midst", []int{1, 2, 3, 4, 6, 7}, 6, []int{0, 5}},
		{"CPU 0, though it is isolated", []int{0, 1, 2, 3, 4, 5}, 5, []int{0, 6, 7}},
		{"the one beside CPU 0 as well", []int{2, 3, 4, 5, 6, 7}, 2, []int{0, 1}},
		{"no more than the lab node leaves", []int{1, 2, 3}, 7, []int{0}},
		{"nothing is isolated", nil, 6, []int{0, 7}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := twoNodes(tt.cores)
			for _, id := range tt.isolated {
				p.Cores[id].Isolated = true
			}
			r, err := Solve(t.Context(), p, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if free := plan.NewLayout(p).Free(&r.Placement)[:len(tt.free)]; !slices.Equal(free, tt.free) {
				t.Errorf("the host keeps %v, want %v", free, tt.free)
			}
			if got := plan.Cost(plan.Evaluate(p, &r.Placement)); got != r.Cost {
				t.Errorf("it costs %d, and %d was said", got, r.Cost)
			}
		})
	}
}
