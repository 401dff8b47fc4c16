package search

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
)

func solve(t testing.TB, p *plan.Problem) (int64, bool) {
	t.Helper()
	r, err := Solve(context.Background(), p, Options{})
	if errors.Is(err, ErrInfeasible) {
		return 0, false
	}
	if err != nil {
		t.Fatalf("Solve: %v", err)
	}
	if v := violation(p, &r.Placement); v != "" {
		t.Fatalf("Solve: %s", v)
	}
	if !r.Optimal {
		t.Fatalf("Solve: cost %d, bound %d, %q: not proved", r.Cost, r.Bound, r.Stopped)
	}
	return r.Cost, true
}

func TestSolvePublishedCases(t *testing.T) {
	t.Parallel()
	h20 := h20Shape()
	for _, c := range []struct {
		name string
		p    *plan.Problem
		want int64
	}{
		{"two lab nodes with a GPU and a NIC each fill an EPYC 7551P", epycPair(), -1},
		{"four lab nodes share an H20 with two GPUs and their NIC each", withAsks(h20.Problem(),
			times(4, ask{Cores: 22, Pages: 400, GPUs: 2, NICs: 1})...), -1},
		{"eight lab nodes share an H20 with a GPU and a virtual function each", withAsks(h20.Problem(),
			times(8, ask{Cores: 11, Pages: 200, GPUs: 1, VFs: 1})...), -1},
		{"one lab node takes 44 of 48 cores of an R740", withAsks(r740Shape().Problem(),
			ask{Cores: 44, Pages: 300, VFs: 1}), -1},
		{"sixty-four equal lab nodes find a cache of their own each", largeEqual(), 57600},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cost, ok := solve(t, c.p)
			if !ok || c.want >= 0 && cost != c.want {
				t.Errorf("cost %d, %v; want %d", cost, ok, c.want)
			}
		})
	}
}

func TestSolveRefusesWhatCountsForbid(t *testing.T) {
	t.Parallel()
	s := shape{Packages: 2, Nodes: 1, L3s: 1, Cores: 8, Threads: 2, GPUs: 2, NICs: 1, VFs: 2, Pages: 16}
	for _, c := range []struct {
		name string
		p    func() *plan.Problem
	}{
		{"more cores than there are", func() *plan.Problem {
			return withAsks(s.Problem(), times(3, ask{Cores: 6})...)
		}},
		{"cores that the host needs", func() *plan.Problem {
			q := s
			q.Reserve = 1
			return withAsks(q.Problem(), ask{Cores: 16})
		}},
		{"more memory than there is", func() *plan.Problem {
			return withAsks(s.Problem(), ask{Cores: 1, Pages: 33})
		}},
		{"more GPUs than there are", func() *plan.Problem {
			return withAsks(s.Problem(), times(3, ask{Cores: 1, GPUs: 1})...)
		}},
		{"two lab nodes in one bundle", func() *plan.Problem {
			q := s
			q.OneBundle = true
			return withAsks(q.Problem(), times(2, ask{Cores: 1, GPUs: 1})...)
		}},
		{"virtual functions of a NIC that went with its bundle", func() *plan.Problem {
			q := s
			q.OneBundle = true
			return withAsks(q.Problem(), ask{Cores: 1, GPUs: 1}, ask{Cores: 1, VFs: 1})
		}},
		{"lab nodes that must not meet", func() *plan.Problem {
			p := withAsks(s.Problem(), times(3, ask{Cores: 1})...)
			for i := range p.Requests {
				p.Requests[i].Class = i
			}
			p.Affinity = []plan.Affinity{{Requests: []int{0, 1, 2}, NUMA: plan.Different}}
			return p
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if r, err := Solve(context.Background(), c.p(), Options{}); !errors.Is(err,
				ErrInfeasible) {
				t.Errorf("Solve = %v, %v; want ErrInfeasible", r, err)
			}
		})
	}
}

func TestSolveRefusesImpossibleNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want string
		do   func(p *plan.Problem)
	}{
		{"distance 9", func(p *plan.Problem) { p.NUMANodes[0].Distances[1] = 9 }},
		{"1 distances", func(p *plan.Problem) { p.NUMANodes[0].Distances = []int{10} }},
		{"NUMA node 0 is there twice", func(p *plan.Problem) { p.NUMANodes[1].ID = 0 }},
		{"core 5 is there twice", func(p *plan.Problem) { p.Cores[6].ID = 5 }},
		{"NUMA node 77, which is not there", func(p *plan.Problem) { p.Cores[6].NUMANode = 77 }},
		{"has 0 cores", func(p *plan.Problem) { p.Requests[0].Cores = 0 }},
		{"wants device 99", func(p *plan.Problem) { p.Requests[0].GPUs[0].Any = []int{99} }},
		{"no path", func(p *plan.Problem) { p.Paths = nil }},
		{"weight -1", func(p *plan.Problem) { p.Weights.NUMASpan = -1 }},
		{"names request 9", func(p *plan.Problem) { p.Affinity = []plan.Affinity{{Requests: []int{0, 9}}} }},
		{"more than can be added up", func(p *plan.Problem) {
			p.Requests[0].Pages = 1 << 50
			p.Weights.MemoryDistance = 1 << 39
		}},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			p := epycPair()
			c.do(p)
			_, err := Solve(context.Background(), p, Options{})
			if err == nil || errors.Is(err, ErrInfeasible) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Solve: %v; want an error with %q", err, c.want)
			}
		})
	}
}

func TestAStoppedSearchStillBoundsTheCost(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		p := plantest.Small(seed)
		cost, found := solve(t, p)
		for _, steps := range []int64{1, 10, 50, 200, 1000, 5000} {
			r, err := Solve(context.Background(), p, Options{Steps: steps})
			switch {
			case errors.Is(err, ErrStopped):
			case errors.Is(err, ErrInfeasible):
				if found {
					t.Errorf("seed %d, %d steps: no placement, want cost %d", seed, steps, cost)
				}
			case err != nil:
				t.Errorf("seed %d, %d steps: %v", seed, steps, err)
			default:
				if v := violation(p, &r.Placement); v != "" {
					t.Errorf("seed %d, %d steps: %s", seed, steps, v)
				}
				if !found || r.Bound > cost || r.Cost < cost || r.Optimal != (r.Cost == r.Bound) || r.Optimal &&
					r.Cost != cost {
					t.Errorf("seed %d, %d steps: cost %d, bound %d, optimal %v; the least cost is %d", seed, steps,
						r.Cost, r.Bound, r.Optimal, cost)
				}
			}
		}
	}
}

func TestTheSameProblemGivesTheSamePlacement(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		_, p := mix(seed)
		a, errA := Solve(context.Background(), p, Options{Steps: 300_000})
		b, errB := Solve(context.Background(), p, Options{Steps: 300_000})
		if (errA == nil) != (errB == nil) {
			t.Fatalf("seed %d: %v, then %v", seed, errA, errB)
		}
		if d := cmp.Diff(a, b); d != "" {
			t.Errorf("seed %d (-first +second):\n%s", seed, d)
		}
	}
}

func TestEarlierLabNodesGetLowerCores(t *testing.T) {
	t.Parallel()
	p := withAsks(shape{Packages: 1, Nodes: 2, L3s: 2, Cores: 4, Threads: 2}.Problem(),
		times(3, ask{Cores: 4})...)
	r, err := Solve(context.Background(), p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got [][]int
	for _, n := range r.Placement.Nodes {
		got = append(got, n.Cores)
	}
	want := [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("cores (-want +got):\n%s", d)
	}
}

func TestACancelledSearchStops(t *testing.T) {
	t.Parallel()
	p := largeUnequal(1, 64)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	r, err := Solve(ctx, p, Options{Steps: 1 << 40})
	if err != nil && !errors.Is(err, ErrStopped) || err == nil && (r.Stopped != TimeLimit ||
		r.Bound > r.Cost) {
		t.Errorf("Solve = %+v, %v; want it stopped in time", r, err)
	}
}

func small(t *rapid.T) *plan.Problem { return plantest.Small(rapid.Uint64().Draw(t, "seed")) }

func TestMoreIsNeverWorse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := small(t)
		// The host keeps a core, as build.Problem ensures. Otherwise there may be no housekeeping core, and adding a
		// core would create a distance to one.
		p.ReserveCores = max(1, p.ReserveCores)
		before, ok := quick(t, p)
		if !ok {
			return
		}
		switch rapid.SampledFrom([]string{"pages", "core", "reserve", "vf"}).Draw(t, "more") {
		case "pages":
			for i := range p.NUMANodes {
				if n := &p.NUMANodes[i]; n.Pages != nil {
					more := *n.Pages + 1
					n.Pages = &more
					break
				}
			}
		case "core":
			// It neither shares nor reserves anything.
			p.Cores = append(p.Cores, plan.Core{ID: 1000, CPUs: []int{1000, 1001}, NUMANode: p.NUMANodes[0].ID,
				Package: -1, L3: 1000})
		case "reserve":
			p.ReserveCores = max(1, p.ReserveCores-1)
		case "vf":
			for i := range p.Devices {
				if p.Devices[i].VFs > 0 {
					p.Devices[i].VFs++
				}
			}
		}
		after, ok := quick(t, p)
		if !ok || after > before {
			t.Errorf("cost %d before, %d (%v) with more", before, after, ok)
		}
	})
}

func TestNamesDoNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := small(t)
		before, ok := quick(t, p)
		shift := rapid.IntRange(1, 50).Draw(t, "shift")
		for i := range p.Cores {
			p.Cores[i].ID = 500 - p.Cores[i].ID
			if p.Cores[i].L3 >= 0 {
				p.Cores[i].L3 = 90 - p.Cores[i].L3
			}
		}
		slices.SortFunc(p.Cores, func(a, b plan.Core) int { return a.ID - b.ID })
		// The order of NUMA nodes decides on which node odd pages are due.
		homes := map[int]int{}
		for i := range p.NUMANodes {
			homes[p.NUMANodes[i].ID] = 2*p.NUMANodes[i].ID + shift
		}
		for i := range p.Devices {
			if h := p.Devices[i].NUMANode; h != nil {
				id := homes[*h]
				p.Devices[i].NUMANode = &id
			}
		}
		for i := range p.NUMANodes {
			p.NUMANodes[i].ID = homes[p.NUMANodes[i].ID]
		}
		for i := range p.Cores {
			p.Cores[i].NUMANode = homes[p.Cores[i].NUMANode]
		}
		// Reverse the requests.
		n := len(p.Requests)
		slices.Reverse(p.Requests)
		for k := range p.Affinity {
			var turned []int
			for _, i := range p.Affinity[k].Requests {
				turned = append(turned, n-1-i)
			}
			slices.Sort(turned)
			p.Affinity[k].Requests = turned
		}
		after, okAfter := quick(t, p)
		if ok != okAfter || before != after {
			t.Errorf("cost %d (%v) before, %d (%v) with other names", before, ok, after, okAfter)
		}
	})
}

func quick(t *rapid.T, p *plan.Problem) (int64, bool) {
	r, err := Solve(context.Background(), p, Options{})
	if errors.Is(err, ErrInfeasible) {
		return 0, false
	}
	if err != nil || !r.Optimal {
		t.Fatalf("Solve = %+v, %v; want it proved", r, err)
	}
	return r.Cost, true
}

// FuzzSolve: Solve must not panic or break a rule, and must stop.
func FuzzSolve(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, int64(seed)-3, uint8(seed))
	}
	f.Add(uint64(1), int64(1)<<62, uint8(4))
	f.Fuzz(func(t *testing.T, seed uint64, value int64, where uint8) {
		p := plantest.Small(seed)
		hostile(p, int(seed>>32), value, where)
		r, err := Solve(context.Background(), p, Options{Steps: 200_000})
		if err != nil {
			return
		}
		if v := violation(p, &r.Placement); v != "" {
			t.Errorf("%s", v)
		}
		if r.Bound > r.Cost {
			t.Errorf("bound %d is above cost %d", r.Bound, r.Cost)
		}
	})
}

func hostile(p *plan.Problem, at int, v int64, where uint8) {
	at &= 0xffff
	node, core, req := &p.NUMANodes[at%len(p.NUMANodes)], &p.Cores[at%len(p.Cores)], &p.Requests[at%len(p.Requests)]
	switch where % 16 {
	case 0:
		node.Distances[at%len(node.Distances)] = int(v)
	case 1:
		node.Pages = &v
	case 2:
		node.ReserveCores = int(v)
	case 3:
		p.ReserveCores = int(v)
	case 4:
		req.Pages = v
	case 5:
		req.Cores = int(v)
	case 6:
		req.Threads = int(v)
	case 7:
		core.NUMANode = int(v)
	case 8:
		core.Package, core.L3 = int(v), int(v)
	case 9:
		p.Weights.NUMASpan, p.Weights.MemoryBalance = v, v
	case 10:
		p.Weights.Unequal, p.Weights.L3Shared = v, v
	case 11:
		if len(p.Devices) > 0 {
			d := &p.Devices[at%len(p.Devices)]
			d.VFs, d.Bundle, d.RateMbps = int(v), int(v), v
		}
	case 12:
		if len(p.Paths) > 0 {
			p.Paths[at%len(p.Paths)].Steps = int(v)
		}
	case 13:
		if len(p.Paths) > 0 {
			p.Paths[at%len(p.Paths)].A = int(v)
		}
	case 14:
		req.VFs = append(req.VFs, plan.Want{Count: int(v), Any: []int{int(v)}})
	case 15:
		p.Affinity = append(p.Affinity, plan.Affinity{Requests: []int{0, int(v)}, NUMA: plan.Same})
	}
}

func TestHugeProblemsStop(t *testing.T) {
	t.Parallel()
	s := shape{Packages: 8, Nodes: 8, L3s: 8, Cores: 8, Threads: 2, GPUs: 64, NICs: 64, VFs: 64, Pages: 512,
		Reserve: 16}
	r := plantest.NewRand(1)
	var asks []ask
	for range 500 {
		asks = append(asks, ask{Cores: r.In(1, 12), Pages: int64(r.In(1, 80)), VFs: r.Intn(3)})
	}
	p := withAsks(s.Problem(), asks...)
	res, err := Solve(context.Background(), p, Options{Steps: 2_000_000})
	if err != nil && !errors.Is(err, ErrStopped) {
		t.Fatal(err)
	}
	if err == nil {
		if v := violation(p, &res.Placement); v != "" {
			t.Error(v)
		}
	}
}
