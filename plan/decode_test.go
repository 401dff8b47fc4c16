package plan_test

import (
	"testing"

	"github.com/rackless/rackless/plan"
)

func TestDecodeReadsTheFormerNamesOfKeys(t *testing.T) {
	for _, text := range []string{
		`{"score": 7, "terms": [{"term": "sys", "score": 0}, {"term": "phb", "score": 7}],
			"decisions": [{"what": "cores"}, {"what": "smt", "runner_up_score": 5}]}`,
		`{"cost": 7, "terms": [{"term": "sys", "cost": 0}, {"term": "phb", "cost": 7}],
			"decisions": [{"what": "cores"}, {"what": "smt", "runner_up_cost": 5}]}`,
	} {
		p, err := plan.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if p.Cost != 7 || p.Terms[0].Cost != 0 || p.Terms[1].Cost != 7 || p.Decisions[0].RunnerUpCost != nil ||
			p.Decisions[1].RunnerUpCost == nil || *p.Decisions[1].RunnerUpCost != 5 {
			t.Errorf("%s: decoded %+v", text, p)
		}
	}
	for _, text := range []string{`{"cost": "low"}`, `{"terms": {}}`, `{"terms": [1]}`, `[]`, ``} {
		if p, err := plan.Decode([]byte(text)); err == nil {
			t.Errorf("%s: decoded %+v, want an error", text, p)
		}
	}
	// Decode must not panic if a key stands twice.
	const twice = `{"terms": [{}, {}], "TERMS": [{}], "decisions": [{}, {}], "Decisions": null}`
	if p, err := plan.Decode([]byte(twice)); err != nil || len(p.Terms) != 1 {
		t.Errorf("decoded %+v, %v", p, err)
	}
}
