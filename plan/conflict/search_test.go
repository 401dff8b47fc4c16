package conflict

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/search"
)

func solvable(ctx context.Context, p *plan.Problem) (bool, error) {
	_, err := search.Solve(ctx, p, search.Options{Steps: 200_000})
	if errors.Is(err, search.ErrInfeasible) {
		return false, nil
	}
	return err == nil, err
}

// Brute force checks the result.
func TestConflictBySearchIsOneByBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t).Problem
		ok, err := solvable(context.Background(), p)
		if err != nil {
			t.Skip(err)
		}
		if want := bruteFeasible(p); ok != want {
			t.Fatalf("the search says feasible: %t, brute force %t", ok, want)
		}
		if ok {
			return
		}
		got, err := Find(context.Background(), p, solvable)
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
				!bruteFeasible(derive(p, rest)) {
				t.Errorf("%v: request %d can be left out", got, set[k])
			}
		}
		if len(set) > 0 && bruteFeasible(derive(p, set)) {
			t.Errorf("%v: the set %v can be met", got, set)
		}
	})
}

// Without a named reason, with everything else removed, the rest must fit.
func TestEachReasonIsNeeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t).Problem
		if bruteFeasible(p) {
			return
		}
		c := newConflict(context.Background(), p, solvable)
		if c.left <= 0 || !c.minimal {
			return // some answers were unknown
		}
		if bruteFeasible(derive(p, c.set, c.drops...)) {
			t.Fatalf("%s: not all reasons are named", c.message())
		}
		needed := func(what string, e edit) {
			if len(c.set) > 0 && !bruteFeasible(derive(p, c.set, append(slices.Clone(c.drops), e)...)) {
				t.Errorf("%s: %s plays no part", c.message(), what)
			}
		}
		for what := range c.parts.all {
			needed(what, without(what, nil))
		}
		for _, k := range c.parts.affinity {
			needed(c.affinityText(k), withoutAffinity(k))
		}
		if c.parts.busy {
			needed("busy packages", withoutBusy)
		}
		if strings.Contains(c.message(), "0B to give") {
			t.Error(c.message())
		}
	})
}
