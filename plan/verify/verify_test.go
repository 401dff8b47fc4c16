package verify

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

func TestCheckPassesAPlanMadeByHand(t *testing.T) {
	t.Parallel()
	c := newCheckCase()
	if err := Plan(c.h, c.l, c.p, c.pl); err != nil {
		t.Errorf("Plan: %v, want no fault", err)
	}
}

func TestCheckPassesAPlanThatCameBackFromJSON(t *testing.T) {
	t.Parallel()
	c := newCheckCase()
	text, err := json.Marshal(c.pl)
	if err != nil {
		t.Fatal(err)
	}
	c.pl = new(plan.Plan)
	if err := json.Unmarshal(text, c.pl); err != nil {
		t.Fatal(err)
	}
	if err := Plan(c.h, c.l, c.p, c.pl); err != nil {
		t.Errorf("Plan: %v, want no fault", err)
	}
}

func TestEvaluateAgreesWithThePlanMadeByHand(t *testing.T) {
	t.Parallel()
	c := newCheckCase()
	got := plan.Evaluate(c.p, &plan.Placement{Nodes: []plan.NodePlacement{
		{Cores: []int{1, 2}, Memory: []plan.NodePage{{NUMANode: 0, Pages: 4}}, GPUs: []int{0, 1}, NICs: []int{3}},
		{Cores: []int{6, 7}, Memory: []plan.NodePage{{NUMANode: 1, Pages: 2}}, GPUs: []int{2},
			VFs: []plan.VFCount{{Device: 4, Count: 2}}},
		{Cores: []int{4, 8}, Memory: []plan.NodePage{{NUMANode: 0, Pages: 1}, {NUMANode: 1, Pages: 1}},
			VFs: []plan.VFCount{{Device: 4, Count: 1}}},
		{Cores: []int{5, 9}, Memory: []plan.NodePage{{NUMANode: 0, Pages: 2}},
			VFs: []plan.VFCount{{Device: 4, Count: 1}}},
	}})
	if diff := cmp.Diff(c.pl.Terms, got); diff != "" {
		t.Errorf("terms (-by hand +Evaluate):\n%s", diff)
	}
}
