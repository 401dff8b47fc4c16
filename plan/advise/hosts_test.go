package advise

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/topology"
)

const examples = "../../examples"

func readHost(t testing.TB, name string) *topology.Host {
	t.Helper()
	h, err := inspect.ReadFile(context.Background(), filepath.Join(examples, "hosts", name))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func readLab(t testing.TB, name string) *lab.Lab {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(examples, name))
	if err != nil {
		t.Fatal(err)
	}
	return parseLab(t, string(data))
}

func parseLab(t testing.TB, text string) *lab.Lab {
	t.Helper()
	l, err := lab.Parse("lab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// edited is host and lab after edits in words.
func edited(t testing.TB, h *topology.Host, l *lab.Lab, edits ...string) (*topology.Host, *lab.Lab) {
	t.Helper()
	for _, s := range edits {
		e, err := ParseEdit(s)
		if err != nil {
			t.Fatal(err)
		}
		if h, l, err = e.Apply(h, l); err != nil {
			t.Fatal(err)
		}
	}
	return h, l
}

func solve(ctx context.Context, p *plan.Problem) (*search.Result, error) {
	return search.Solve(ctx, p, search.Options{Steps: 500_000})
}

// A solution is a lab on a host, planned.
type solution struct {
	h *topology.Host
	l *lab.Lab
	p *plan.Problem
	r *search.Result
	*plan.Plan
}

func planned(t testing.TB, h *topology.Host, l *lab.Lab) *solution {
	t.Helper()
	p, err := build.Problem(h, l, build.Options{HostName: "host"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := solve(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return &solution{h, l, p, r, plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound,
		Optimal: r.Optimal, Stopped: r.Stopped})}
}

func (s *solution) decide(t testing.TB) []plan.Decision {
	t.Helper()
	all, err := Decisions(context.Background(), s.p, s.h, s.l, s.Plan, s.r, solve)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (s *solution) advise(t testing.TB) []plan.Advice {
	t.Helper()
	all, err := Advice(context.Background(), s.p, s.h, s.l, s.r, solve)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// decision returns the one about something of a lab node.
func decision(t testing.TB, all []plan.Decision, node, what string) plan.Decision {
	t.Helper()
	for _, d := range all {
		if d.Node == node && d.What == what {
			return d
		}
	}
	t.Fatalf("no decision about %s of %q", what, node)
	return plan.Decision{}
}
