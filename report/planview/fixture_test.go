package planview

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/advise"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

func written(t *testing.T, write func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type planned struct {
	host    *topology.Host
	lab     *lab.Lab
	problem *plan.Problem
	plan    *plan.Plan
}

func example(t *testing.T, hostFile, labFile string, change func(l *lab.Lab)) *planned {
	t.Helper()
	dir := filepath.Join("..", "..", "examples")
	h, err := inspect.ReadFile(t.Context(), filepath.Join(dir, "hosts", hostFile))
	if err != nil {
		t.Fatal(err)
	}
	h.Provenance.Name = hostFile
	data, err := os.ReadFile(filepath.Join(dir, labFile))
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Parse(labFile, data)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(l)
	}
	return planOf(t, h, l)
}

// solve searches until the proof, because golden files must be reproducible.
func solve(ctx context.Context, p *plan.Problem) (*search.Result, error) {
	return search.Solve(ctx, p, search.Options{Steps: 3_000_000})
}

func planOf(t *testing.T, h *topology.Host, l *lab.Lab) *planned {
	t.Helper()
	ctx := context.Background()
	p, err := build.Problem(h, l, build.Options{HostName: h.Provenance.Name})
	if err != nil {
		t.Fatal(err)
	}
	r, err := solve(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	pl := plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal,
		Stopped: r.Stopped})
	if pl.Decisions, err = advise.Decisions(ctx, p, h, l, pl, r, solve); err != nil {
		t.Fatal(err)
	}
	if pl.Advice, err = advise.Advice(ctx, p, h, r, solve); err != nil {
		t.Fatal(err)
	}
	return &planned{h, l, p, pl}
}
