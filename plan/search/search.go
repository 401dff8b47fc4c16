package search

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/plan"
)

// Options limit a search.
type Options struct {
	// Steps is how many units of work the search may take, [DefaultSteps] where it is 0. Steps are
	// counted, not timed, so that a search that was stopped stops at the same point again.
	Steps int64
}

// A Result is the best placement that was found.
type Result struct {
	// Outcome.Stopped is "step limit N", [TimeLimit], "cancelled", or a limit of a part of the search.
	plan.Outcome
	Cost  int64 // of Placement, by plan.Evaluate, in basis points
	Steps int64 // taken
}

// ErrInfeasible says that it is proved that no placement keeps the rules.
var ErrInfeasible = errors.New("no placement keeps all rules")

// ErrStopped says that the search was stopped before it found a placement, or the proof that there is none.
var ErrStopped = errors.New("search stopped before it found a placement")

// Fits reports whether there is a placement. An error means that it could not tell in so many steps.
func Fits(ctx context.Context, p *plan.Problem, steps int64) (bool, error) {
	_, err := Solve(ctx, p, Options{Steps: steps})
	if errors.Is(err, ErrInfeasible) {
		return false, nil
	}
	return err == nil, err
}

// Solve returns the cheapest placement of a problem. Errors are [ErrInfeasible], [ErrStopped], or
// about numbers in the problem that cannot be.
func Solve(ctx context.Context, p *plan.Problem, o Options) (*Result, error) {
	m, err := newModel(p)
	if err != nil {
		return nil, err
	}
	if !m.countsAllow() {
		return nil, ErrInfeasible
	}
	work := &meter{ctx: ctx, limit: o.Steps}
	if work.limit <= 0 {
		work.limit = DefaultSteps
	}
	t := newTree(m, work)
	bound, found := t.solve()
	if !found {
		if work.stopped != "" && len(p.DeviceClashes()) == 0 {
			return nil, fmt.Errorf("%w: %s", ErrStopped, work.stopped)
		}
		return nil, ErrInfeasible
	}
	r := &Result{Outcome: plan.Outcome{Placement: m.emit(t.best), Stopped: work.stopped}, Steps: work.steps}
	l := plan.NewLayout(p)
	r.Cost = l.Cost(&r.Placement)
	if ctx.Err() == nil { // who cancels has no time for what is nice to have
		splitTies(l, &r.Placement, r.Cost)
		keepForHost(l, p, &r.Placement, r.Cost)
	}
	r.Bound = min(bound, r.Cost)
	r.Optimal = r.Bound == r.Cost
	switch {
	case r.Optimal:
		r.Stopped = ""
	case r.Stopped == "":
		// the tree came to its end, with bounds in place of some packings
		r.Stopped = "limit of the packing of L3 caches"
	}
	return r, nil
}

// countsAllow reports whether counts alone allow a placement.
func (m *model) countsAllow() bool {
	if m.asked+max(0, m.p.ReserveCores) > m.free {
		return false
	}
	cores, pages, limited := 0, int64(0), true
	for i := range m.nodes {
		n := &m.nodes[i]
		if n.free < n.reserve {
			return false // nothing can be left that is not there
		}
		cores += n.most()
		pages += n.pages
		limited = limited && n.limited
	}
	pages -= lists.Sum(m.requests, func(r request) int64 { return r.pages })
	return m.asked <= cores && (pages >= 0 || !limited)
}

// DefaultSteps is the limit where Options.Steps is 0: about a second of work.
const DefaultSteps = 30_000_000

// TimeLimit is what stops a search whose context has a deadline.
const TimeLimit = "time limit"

// A meter counts steps and says when to stop. Steps and not time decide, so that a search does the
// same on any machine; the context ends it in between, and is looked at now and then only.
type meter struct {
	ctx     context.Context
	steps   int64
	limit   int64
	look    int64 // when to look at the context next
	stopped string
	// soft is where a part of the work gives up so that another gets its turn; the search as a whole goes on.
	soft int64
}

// budget bounds the part of the work that follows, until what it returns is called; a part of a part has no more than
// the whole.
func (w *meter) budget(n int64) (end func()) {
	whole := w.soft
	if until := w.steps + n; whole == 0 || until < whole {
		w.soft = until
	}
	return func() { w.soft = whole }
}

// lookEvery is how many steps pass between looks at the context: well under a millisecond.
const lookEvery = 8192

// add counts n steps and reports whether to stop, this part of the work or all of it.
func (w *meter) add(n int64) bool { return w.addHard(n) || w.soft > 0 && w.steps >= w.soft }

// addHard counts n steps and reports whether to stop all work.
func (w *meter) addHard(n int64) bool {
	w.steps += n
	if w.stopped != "" {
		return true
	}
	if w.steps >= w.look {
		w.look = w.steps + lookEvery
		switch err := w.ctx.Err(); {
		case errors.Is(err, context.DeadlineExceeded):
			w.stopped = TimeLimit
			return true
		case err != nil:
			w.stopped = "cancelled"
			return true
		}
	}
	if w.steps >= w.limit {
		w.stopped = fmt.Sprintf("step limit %d", w.limit)
		return true
	}
	return false
}
