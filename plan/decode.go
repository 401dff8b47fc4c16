package plan

import "encoding/json"

// Decode reads the JSON of a plan. It also takes the former key "cost" for "score".
func Decode(text []byte) (*Plan, error) {
	var p Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	var former struct {
		Cost  int64 `json:"cost"`
		Terms []struct {
			Cost int64 `json:"cost"`
		} `json:"terms"`
		Decisions []struct {
			RunnerUpCost *int64 `json:"runner_up_cost"`
		} `json:"decisions"`
	}
	if err := json.Unmarshal(text, &former); err != nil {
		return nil, err
	}
	if p.Cost == 0 {
		p.Cost = former.Cost
	}
	for i := range p.Terms {
		if p.Terms[i].Cost == 0 {
			p.Terms[i].Cost = former.Terms[i].Cost
		}
	}
	for i := range p.Decisions {
		if p.Decisions[i].RunnerUpCost == nil {
			p.Decisions[i].RunnerUpCost = former.Decisions[i].RunnerUpCost
		}
	}
	return &p, nil
}
