package build_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/plan/verify"
)

type solved struct {
	h  *topology.Host
	l  *lab.Lab
	p  *plan.Problem
	r  *search.Result
	pl *plan.Plan
}

type solver interface {
	tester
	Context() context.Context
}

// solve checks each plan: no fault, a cost that is the sum of its terms, and the same plan after reading it back.
func solve(t solver, h *topology.Host, l *lab.Lab, o build.Options, s search.Options) (*solved, error) {
	t.Helper()
	p, err := build.Problem(h, l, o)
	if err != nil {
		return nil, err
	}
	r, err := search.Solve(t.Context(), p, s)
	if err != nil {
		return &solved{h: h, l: l, p: p}, err
	}
	pl := plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal,
		Stopped: r.Stopped})
	c := &solved{h, l, p, r, pl}
	c.judge(t)
	return c, nil
}

func (c *solved) judge(t tester) {
	t.Helper()
	if err := verify.Plan(c.h, c.l, c.p, c.pl); err != nil {
		t.Errorf("the check of its own plan:\n%v", err)
	}
	if got := plan.Cost(c.pl.Terms); got != c.pl.Cost || c.r.Cost != c.pl.Cost {
		t.Errorf("the plan costs %d, its terms add up to %d, the search says %d", c.pl.Cost, got, c.r.Cost)
	}
	if c.pl.Bound > c.pl.Cost || c.pl.Optimal != (c.pl.Bound == c.pl.Cost) || c.pl.Optimal == (c.pl.Stopped != "") {
		t.Errorf("cost %d, bound %d, optimal %v, stopped %q: want a proof, or what stopped it", c.pl.Cost, c.pl.Bound,
			c.pl.Optimal, c.pl.Stopped)
	}
	text := planJSON(t, c.pl)
	var back plan.Plan
	if err := json.Unmarshal(text, &back); err != nil {
		t.Errorf("reading the plan back: %v", err)
		return
	}
	if err := verify.Plan(c.h, c.l, c.p, &back); err != nil {
		t.Errorf("the check of the plan read back from its JSON:\n%v", err)
	}
	if again := planJSON(t, &back); !bytes.Equal(text, again) {
		t.Errorf("the plan read back from its JSON gives other JSON:\n%s\n%s", text, again)
	}
}

func planJSON(t tester, pl *plan.Plan) []byte {
	t.Helper()
	text, err := json.Marshal(pl)
	if err != nil {
		t.Fatalf("plan as JSON: %v", err)
	}
	return text
}

func proved(t solver, h *topology.Host, l *lab.Lab, o build.Options) *solved {
	t.Helper()
	c, err := solve(t, h, l, o, search.Options{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	if !c.pl.Optimal {
		t.Errorf("cost %d, bound %d after %d steps (%s); want it proved", c.pl.Cost, c.pl.Bound, c.r.Steps,
			c.pl.Stopped)
	}
	return c
}

func labFile(t testing.TB, name string) *lab.Lab {
	t.Helper()
	path := filepath.Join("..", "..", "examples", name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parseLab(t, string(text))
}

func parseLab(t testing.TB, text string) *lab.Lab {
	t.Helper()
	l, err := lab.Parse("lab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (c *solved) ids(lists ...[]int) []string {
	all := []string{}
	for _, list := range lists {
		for _, d := range list {
			all = append(all, c.p.Devices[d].ID)
		}
	}
	slices.Sort(all)
	return all
}

func (c *solved) nodesOf(i int) (nodes []int, cores map[int]int) {
	cores = map[int]int{}
	for _, id := range c.r.Placement.Nodes[i].Cores {
		k := slices.IndexFunc(c.p.Cores, func(k plan.Core) bool { return k.ID == id })
		node := c.p.Cores[k].NUMANode
		if cores[node] == 0 {
			nodes = append(nodes, node)
		}
		cores[node]++
	}
	slices.Sort(nodes)
	return nodes, cores
}

func (c *solved) value(node, term string) int64 {
	for _, k := range c.pl.Terms {
		if k.Node == node && k.Term == term {
			return k.Value
		}
	}
	return 0
}

func (c *solved) sum(term string) int64 {
	var sum int64
	for _, k := range c.pl.Terms {
		if k.Term == term {
			sum += k.Cost
		}
	}
	return sum
}

func fromJSON[T any](t tester, v *T) *T {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%T as JSON: %v", v, err)
	}
	back := new(T)
	if err := json.Unmarshal(text, back); err != nil {
		t.Fatalf("%T from JSON: %v", v, err)
	}
	return back
}
