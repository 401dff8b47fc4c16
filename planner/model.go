package planner

import (
	"context"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/advise"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/topology"
)

// ModelChanges returns how the plan of a lab differs with a fitted model, which takes two searches; or why there is no
// plan.
func (q Query) ModelChanges(ctx context.Context, h *topology.Host, l *lab.Lab, m *build.Model) (differences []string,
	refused string, err error) {
	// With the weights that come with rackless, which is what plan uses without --model.
	before, err := q.Solve(ctx, h, l)
	if err == nil {
		q.Model, q.ModelFile = m, "the fitted model"
		var after *Planned
		if after, err = q.Solve(ctx, h, l); err == nil {
			return advise.Differences(before.Plan, after.Plan), "", nil
		}
	}
	if DoesNotFit(err) {
		return nil, err.Error(), nil
	}
	return nil, "", err
}
