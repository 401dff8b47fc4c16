package plan

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckPassesAPlanMadeByHand(t *testing.T) {
	t.Parallel()
	c := newCheckCase()
	if err := Check(c.h, c.l, c.p, c.pl); err != nil {
		t.Errorf("Check: %v, want no fault", err)
	}
}

func TestCheckPassesAPlanThatCameBackFromJSON(t *testing.T) {
	t.Parallel()
	c := newCheckCase()
	text, err := json.Marshal(c.pl)
	if err != nil {
		t.Fatal(err)
	}
	c.pl = new(Plan)
	if err := json.Unmarshal(text, c.pl); err != nil {
		t.Fatal(err)
	}
	if err := Check(c.h, c.l, c.p, c.pl); err != nil {
		t.Errorf("Check: %v, want no fault", err)
	}
}

func TestEvaluateAgreesWithThePlanMadeByHand(t *testing.T) {
	t.Parallel()
	c := newCheckCase()
	got := Evaluate(c.p, &Placement{Nodes: []NodePlacement{
		{Cores: []int{1, 2}, Memory: []NodePage{{0, 4}}, GPUs: []int{0, 1}, NICs: []int{3}},
		{Cores: []int{6, 7}, Memory: []NodePage{{1, 2}}, GPUs: []int{2}, VFs: []VFCount{{4, 2}}},
		{Cores: []int{4, 8}, Memory: []NodePage{{0, 1}, {1, 1}}, VFs: []VFCount{{4, 1}}},
		{Cores: []int{5, 9}, Memory: []NodePage{{0, 2}}, VFs: []VFCount{{4, 1}}},
	}})
	if diff := cmp.Diff(c.pl.Terms, got); diff != "" {
		t.Errorf("terms (-by hand +Evaluate):\n%s", diff)
	}
}
