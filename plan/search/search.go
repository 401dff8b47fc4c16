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
	// Steps limits the units of work; 0 means [DefaultSteps]. Work is counted, not timed, so that a stopped search
	// always stops at the same point.
	Steps int64
}

// A Result has the best placement.
type Result struct {
	// Outcome.Stopped is "step limit N", [TimeLimit], "cancelled", or a limit of a part of the search.
	plan.Outcome
	Cost  int64 // from plan.Evaluate, in basis points
	Steps int64 // units of work used
}

// ErrInfeasible is proved: no placement keeps the rules.
var ErrInfeasible = errors.New("no placement keeps all rules")

// ErrStopped means that neither a placement nor a proof that none exists was found in time.
var ErrStopped = errors.New("search stopped before it found a placement")

// Fits reports whether a placement exists. It returns an error if steps were too few to tell.
func Fits(ctx context.Context, p *plan.Problem, steps int64) (bool, error) {
	_, err := Solve(ctx, p, Options{Steps: steps})
	if errors.Is(err, ErrInfeasible) {
		return false, nil
	}
	return err == nil, err
}

// Solve returns the cheapest placement. The error is [ErrInfeasible], [ErrStopped], or about invalid numbers in the
// problem.
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
	if ctx.Err() == nil { // optional improvements
		if better := m.prefer(ctx, t.best, t.cost, t.work.steps); better != nil {
			next := m.emit(better)
			if cost := l.Cost(&next); cost <= r.Cost {
				r.Placement, r.Cost = next, cost
			}
		}
		worth := worthToHost(p)
		splitTies(l, &r.Placement, r.Cost)
		keepForHost(l, p, &r.Placement, r.Cost, worth)
		tidyCores(l, p, &r.Placement, r.Cost, worth)
	}
	r.Bound = min(bound, r.Cost)
	r.Optimal = r.Bound == r.Cost
	switch {
	case r.Optimal:
		r.Stopped = ""
	case r.Stopped == "":
		// bounds took the place of some packings
		r.Stopped = "limit of the packing of L3 caches"
	}
	return r, nil
}

func (m *model) countsAllow() bool {
	if m.asked+max(0, m.p.ReserveCores) > m.free {
		return false
	}
	cores, pages, limited := 0, int64(0), true
	for i := range m.nodes {
		n := &m.nodes[i]
		if n.free < n.reserve {
			return false // the reserve exceeds the free cores
		}
		cores += n.most()
		pages += n.pages
		limited = limited && n.limited
	}
	pages -= lists.Sum(m.requests, func(r request) int64 { return r.pages })
	return m.asked <= cores && (pages >= 0 || !limited)
}

// DefaultSteps is about a second of work.
const DefaultSteps = 30_000_000

// TimeLimit means that the context's deadline expired.
const TimeLimit = "time limit"

// A meter counts steps, not time, so that a search is the same on any machine. It checks the context every lookEvery
// steps.
type meter struct {
	ctx     context.Context
	steps   int64
	limit   int64
	look    int64 // next check of the context
	stopped string
	// soft ends a part of the work.
	soft int64
}

// budget limits the work until end is called. A nested part cannot exceed the limit around it.
func (w *meter) budget(n int64) (end func()) {
	whole := w.soft
	if until := w.steps + n; whole == 0 || until < whole {
		w.soft = until
	}
	return func() { w.soft = whole }
}

// lookEvery steps take well under a millisecond.
const lookEvery = 8192

// add reports whether to stop a part of the work, or all of it.
func (w *meter) add(n int64) bool { return w.addHard(n) || w.soft > 0 && w.steps >= w.soft }

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
