package advise

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
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

func with(l *lab.Lab, change func(n *lab.Node)) *lab.Lab {
	l = deepCopy(l)
	for i := range l.Nodes {
		change(&l.Nodes[i])
	}
	return l
}

func moved(t testing.TB, h *topology.Host, moves ...move) *topology.Host {
	t.Helper()
	for _, m := range moves {
		if h = m.apply(h); h == nil {
			t.Fatalf("%+v cannot be made", m)
		}
	}
	return h
}

func without(t testing.TB, h *topology.Host, id string) *topology.Host {
	t.Helper()
	h = deepCopy(h)
	at, err := topology.ParsePCIAddr(id)
	if err != nil {
		t.Fatal(err)
	}
	gone := func(a *topology.PCIAddr) bool { return a != nil && a.SameDevice(at) }
	h.GPUs = slices.DeleteFunc(h.GPUs, func(g topology.GPU) bool { return gone(g.Address) })
	h.NICs = slices.DeleteFunc(h.NICs, func(n topology.NIC) bool { return gone(n.Address) || gone(n.PF) })
	h.PCI = slices.DeleteFunc(h.PCI, func(d topology.PCIDevice) bool { return gone(&d.Address) || gone(d.PF) })
	regroup(h)
	return h
}

func solve(ctx context.Context, p *plan.Problem) (*search.Result, error) {
	return search.Solve(ctx, p, search.Options{Steps: 500_000})
}

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
	all, err := Advice(context.Background(), s.p, s.h, s.r, solve)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

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
