package planner

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func epyc(t *testing.T, text string) (Query, *topology.Host, *lab.Lab) {
	t.Helper()
	h, name, err := Hosts{}.Read(t.Context(), "../../examples/hosts/epyc-7551p.ttar")
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Parse("lab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(name, "lab.yaml", l, "")
	if err != nil {
		t.Fatal(err)
	}
	return q, h, l
}

const twoNodes = "name: x\nnodes:\n  vm: {count: 2, cpus: 8, memory: 4GiB}\n"

func TestAPlanIsExplainedAndComparedWhereThatIsAsked(t *testing.T) {
	t.Parallel()
	q, h, l := epyc(t, twoNodes)
	r, err := q.Solve(t.Context(), h, l)
	if err != nil || !r.Plan.Optimal || len(r.Plan.Nodes) != 2 || len(r.Plan.Decisions)+len(r.Others) > 0 {
		t.Fatalf("got %+v, %v", r, err)
	}
	q.Explain, q.Compare = true, true
	if r, err = q.Solve(t.Context(), h, l); err != nil || len(r.Plan.Decisions) == 0 || len(r.Others) == 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Solve(ctx, h, l); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestWhatDoesNotFitHasAReason(t *testing.T) {
	t.Parallel()
	q, h, l := epyc(t, strings.Replace(twoNodes, "cpus: 8", "cpus: 32", 1))
	_, err := q.Solve(t.Context(), h, l)
	if _, ok := errors.AsType[*plan.Infeasible](err); !ok || !DoesNotFit(err) {
		t.Errorf("two nodes that do not fit together: %v", err)
	}
	q, h, l = epyc(t, strings.Replace(twoNodes, "cpus: 8", "cpus: 8, gpus: 9", 1))
	_, err = q.Solve(t.Context(), h, l)
	if _, ok := errors.AsType[*RequestError](err); !ok || !DoesNotFit(err) || !strings.HasPrefix(err.Error(),
		"lab.yaml:") {
		t.Errorf("a node that fits no host like this: %v", err)
	}
	if DoesNotFit(errors.New("the disk is full")) {
		t.Error("any error is taken for a lab that does not fit")
	}
}

func TestWhatStoppedASearchIsSaid(t *testing.T) {
	t.Parallel()
	q, h, l := epyc(t, twoNodes)
	q.Steps = 1
	if _, err := q.Solve(t.Context(), h, l); err == nil ||
		!strings.Contains(err.Error(), "no plan found within the limit of 1 steps, and none ruled out") {
		t.Errorf("got %v", err)
	}
	q.Steps, q.Limit = 0, time.Nanosecond
	if _, err := q.Solve(t.Context(), h, l); err == nil ||
		!strings.Contains(err.Error(), "no plan found within the time limit of 1ns, and none ruled out") {
		t.Errorf("got %v", err)
	}
}
