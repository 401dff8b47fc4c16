package plan_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/search"
)

// TestThePlansOfTheSearchPassTheChecker has the checker, which shares no code with it, judge the
// search on drawn hosts and labs.
func TestThePlansOfTheSearchPassTheChecker(t *testing.T) {
	t.Parallel()
	checked := 0
	rapid.Check(t, func(t *rapid.T) {
		h := plan.DrawHost(t)
		l := plan.DrawLab(t, h)
		p, err := plan.New(h, l, plan.Options{})
		if err != nil {
			return
		}
		r, err := search.Solve(context.Background(), p, search.Options{Steps: 200_000})
		if errors.Is(err, search.ErrInfeasible) || errors.Is(err, search.ErrStopped) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		checked++
		pl := plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal,
			Stopped: r.Stopped})
		if err := plan.Check(h, l, p, pl); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d plans", checked)
}

// TestTheCheckerJudgesPlansForRealMachines takes one machine whose cores and addresses are known,
// and one that is known by its GPU matrix alone.
func TestTheCheckerJudgesPlansForRealMachines(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		file        string
		nodes, gpus int
	}{{"epyc-7551p.ttar", 2, 1}, {"h20.txt", 4, 2}} {
		h, err := inspect.ReadFile(context.Background(), "../examples/hosts/"+m.file)
		if err != nil {
			t.Fatal(err)
		}
		l := &lab.Lab{Name: "real", Workload: lab.WorkloadMixed, Hugepages: lab.HugepagesAuto, Tenants: lab.TenantsRead}
		for i := range m.nodes {
			l.Nodes = append(l.Nodes, lab.Node{Name: fmt.Sprintf("vm%02d", i), CPUs: 8, Memory: 16 * lab.GiB,
				GPUs: m.gpus, NICs: []lab.NIC{{Name: "eth0"}},
				SMT: lab.Auto, GuestNUMA: lab.Auto})
		}
		p, err := plan.New(h, l, plan.Options{})
		if err != nil {
			t.Fatalf("%s: %v", m.file, err)
		}
		r, err := search.Solve(context.Background(), p, search.Options{Steps: 200_000})
		if err != nil {
			t.Fatalf("%s: %v", m.file, err)
		}
		pl := plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal,
			Stopped: r.Stopped})
		if err := plan.Check(h, l, p, pl); err != nil {
			t.Errorf("%s: %v", m.file, err)
		}
		// The same plan with the GPUs of two lab nodes swapped is not the same.
		a, b := &pl.Nodes[0], &pl.Nodes[1]
		a.Cards, b.Cards, a.Devices, b.Devices = b.Cards, a.Cards, b.Devices, a.Devices
		a.VCPUs[0]++
		if plan.Check(h, l, p, pl) == nil {
			t.Errorf("%s: no fault of a plan with a virtual CPU moved", m.file)
		}
	}
}

// solvable asks the search.
func solvable(ctx context.Context, p *plan.Problem) (bool, error) {
	_, err := search.Solve(ctx, p, search.Options{Steps: 200_000})
	if errors.Is(err, search.ErrInfeasible) {
		return false, nil
	}
	return err == nil, err
}

// TestConflictBySearchIsOneByBruteForce asks the search what Conflict asks, and tries everything to judge the answer.
func TestConflictBySearchIsOneByBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := plan.DrawProblem(t)
		ok, err := solvable(context.Background(), p)
		if err != nil {
			t.Skip(err)
		}
		if want := plan.Brute(p); ok != want {
			t.Fatalf("the search says feasible: %t, brute force %t", ok, want)
		}
		if ok {
			return
		}
		got, err := plan.Conflict(context.Background(), p, solvable)
		if err != nil {
			t.Fatal(err)
		}
		var set []int
		for i := range p.Requests {
			if slices.ContainsFunc(got.Requests, func(d plan.Demand) bool { return d.Node == p.Requests[i].Name }) {
				set = append(set, i)
			}
		}
		for k := range set {
			if rest := slices.Delete(slices.Clone(set), k, k+1); got.Minimal && len(rest) > 0 &&
				!plan.Brute(plan.Derive(p, rest)) {
				t.Errorf("%v: request %d can be left out", got, set[k])
			}
		}
		if len(set) > 0 && plan.Brute(plan.Derive(p, set)) {
			t.Errorf("%v: the set %v can be met", got, set)
		}
	})
}
