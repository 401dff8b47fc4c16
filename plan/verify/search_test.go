package verify

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

// The checker shares no code with the search.
func TestThePlansOfTheSearchPassTheChecker(t *testing.T) {
	t.Parallel()
	checked := 0
	rapid.Check(t, func(t *rapid.T) {
		h := drawHost(t)
		l := drawLab(t, h)
		p, err := build.Problem(h, l, build.Options{})
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
		if err := Plan(h, l, p, pl); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d plans", checked)
}

// One machine has known cores and addresses, and one is known only by its GPU matrix.
func TestTheCheckerJudgesPlansForRealMachines(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		file        string
		nodes, gpus int
	}{{"epyc-7551p.ttar", 2, 1}, {"h20.txt", 4, 2}} {
		h, err := inspect.ReadFile(context.Background(), "../../examples/hosts/"+m.file)
		if err != nil {
			t.Fatal(err)
		}
		l := &lab.Lab{Name: "real", Workload: lab.WorkloadMixed, Hugepages: lab.HugepagesAuto, Tenants: lab.TenantsRead}
		for i := range m.nodes {
			l.Nodes = append(l.Nodes, lab.Node{Name: fmt.Sprintf("vm%02d", i), CPUs: 8, Memory: 16 * lab.GiB,
				GPUs: m.gpus, NICs: []lab.NIC{{Name: "eth0"}},
				SMT: lab.Auto, GuestNUMA: lab.Auto})
		}
		p, err := build.Problem(h, l, build.Options{})
		if err != nil {
			t.Fatalf("%s: %v", m.file, err)
		}
		r, err := search.Solve(context.Background(), p, search.Options{Steps: 200_000})
		if err != nil {
			t.Fatalf("%s: %v", m.file, err)
		}
		pl := plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal,
			Stopped: r.Stopped})
		if err := Plan(h, l, p, pl); err != nil {
			t.Errorf("%s: %v", m.file, err)
		}
		a, b := &pl.Nodes[0], &pl.Nodes[1]
		a.Cards, b.Cards, a.Devices, b.Devices = b.Cards, a.Cards, b.Devices, a.Devices
		a.VCPUs[0]++
		if Plan(h, l, p, pl) == nil {
			t.Errorf("%s: no fault of a plan with a virtual CPU moved", m.file)
		}
	}
}
