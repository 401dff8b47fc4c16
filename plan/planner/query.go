package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/advise"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/conflict"
	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/plan/verify"
)

// DefaultLimit limits a search. Typical ones take milliseconds.
const DefaultLimit = 30 * time.Second

// A RequestError is in the input: a lab file, a model, a list of tenants, or a plan.
type RequestError struct{ Err error }

func (e *RequestError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *RequestError) Unwrap() error { return e.Err }

// request returns nil for nil.
func request(err error) error {
	if err == nil {
		return nil
	}
	return &RequestError{err}
}

// DoesNotFit reports whether an error of Solve means that the lab does not fit the host.
func DoesNotFit(err error) bool {
	var together *plan.Infeasible
	var alone build.RequestErrors
	return errors.As(err, &together) || errors.As(err, &alone)
}

// A StoppedError is for a search that ended before it found a plan or proved that there is no plan.
type StoppedError struct{ Why string }

func (e *StoppedError) Error() string {
	return "no plan found within the " + e.Why + ", and none ruled out: give it longer with --time-limit, which " +
		"counts no steps, or ask for less"
}

// Reason returns the reason for having no plan in a form for programs. It returns nil for other errors.
func Reason(err error) *plan.Infeasible {
	if reason, ok := errors.AsType[*plan.Infeasible](err); ok {
		return reason
	}
	reason := &plan.Infeasible{Schema: plan.InfeasibleSchema, Requests: []plan.Demand{}, Facts: []plan.Fact{}}
	if all, ok := errors.AsType[build.RequestErrors](err); ok {
		for _, e := range all {
			reason.Requests = append(reason.Requests, plan.Demand{Node: e.Node, What: e.Key, Text: e.What})
		}
		reason.Message = all.Error()
		return reason
	}
	if stopped, ok := errors.AsType[*StoppedError](err); ok {
		reason.Message, reason.Stopped = err.Error(), stopped.Why
		return reason
	}
	return nil
}

func threeDigits(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// A Query is for planning a lab.
type Query struct {
	build.Options
	File             string        // lab file, for messages
	ModelFile        string        // file of Options.Model, for messages
	Limit            time.Duration // of Solve in total
	Steps            int64         // of the search for the plan; 0 means search.DefaultSteps
	Explain, Compare bool          // reasons, and results of other methods
}

// New reads tenants and the model; "" means no model. Its errors are the caller's.
func New(hostName, file string, l *lab.Lab, modelFile string) (q Query, err error) {
	q = Query{Options: build.Options{HostName: hostName}, File: file, ModelFile: modelFile, Limit: DefaultLimit}
	if q.Model, err = readModel(modelFile); err != nil {
		return q, err
	}
	q.Tenants, err = readTenants(l.Tenants)
	return q, err
}

// Problem adds file names to the errors, because package plan does not know files.
func (q *Query) Problem(h *topology.Host, l *lab.Lab) (*plan.Problem, error) {
	p, err := build.Problem(without(l, h), l, q.Options)
	if err == nil {
		return p, nil
	}
	place := q.File + ": "
	if all, ok := errors.AsType[build.RequestErrors](err); ok && all[0].Key == "model" {
		place = q.ModelFile + ": "
	} else if ok && len(all) > 1 {
		place = q.File + ":\n"
	}
	return nil, request(fmt.Errorf("%s%w", place, err))
}

// A Planned is a plan with its inputs.
type Planned struct {
	Host   *topology.Host
	Lab    *lab.Lab
	Plan   *plan.Plan
	Others []rivals.Outcome // set if Query.Compare
}

// Solve finds and checks the plan. Its error is a *plan.Infeasible if the lab cannot be placed.
func (q *Query) Solve(ctx context.Context, h *topology.Host, l *lab.Lab) (*Planned, error) {
	h = without(l, h)
	p, err := q.Problem(h, l)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, q.Limit)
	defer cancel()
	// A plan that uses all of its own time is explained too.
	forPlan := q.Limit
	if q.Explain {
		forPlan = q.Limit * 2 / 3
	}
	solving, cancelSolving := context.WithTimeout(within, forPlan)
	defer cancelSolving()
	r, err := search.Solve(solving, p, search.Options{Steps: q.Steps})
	switch {
	case ctx.Err() != nil: // the user does not want a partial result, least of all as files
		return nil, ctx.Err()
	case errors.Is(err, search.ErrInfeasible):
		return nil, infeasible(within, q, p)
	case errors.Is(err, search.ErrStopped):
		if solving.Err() == nil {
			return nil, &StoppedError{fmt.Sprintf("limit of %d steps", cmp.Or(q.Steps, search.DefaultSteps))}
		}
		return nil, &StoppedError{fmt.Sprintf("time limit of %v", threeDigits(forPlan))}
	case err != nil:
		return nil, err
	}
	if r.Stopped == search.TimeLimit {
		r.Stopped = fmt.Sprintf("%s %v", r.Stopped, threeDigits(forPlan))
	}
	out := &Planned{Host: h, Lab: l}
	out.Plan = plan.Assemble(h, l, p, r.Outcome)
	if err := verify.Plan(h, l, p, out.Plan); err != nil {
		return nil, fmt.Errorf("the plan breaks its own rules, which is a fault of rackless: %w", err)
	}
	if q.Explain {
		solver := func(ctx context.Context, p *plan.Problem) (*search.Result, error) {
			return search.Solve(ctx, p, search.Options{Steps: explainSteps})
		}
		if out.Plan.Decisions, err = advise.Decisions(within, p, h, l, out.Plan, r, solver); err != nil {
			return nil, err
		}
		found, err := advise.Advice(within, p, h, r, solver)
		if err != nil {
			return nil, err
		}
		out.Plan.Advice = append(out.Plan.Advice, found...) // an empty list is [] in JSON
	}
	if q.Compare {
		out.Others = rivals.Compare(p)
	}
	return out, nil
}

// explainSteps limits each search for a runner-up, a few for each lab node.
const explainSteps = 1_000_000

func infeasible(ctx context.Context, q *Query, p *plan.Problem) error {
	reason, err := conflict.Find(ctx, p, func(ctx context.Context, p *plan.Problem) (bool, error) {
		return search.Fits(ctx, p, explainSteps)
	})
	if err != nil {
		return fmt.Errorf("%s cannot be placed on %s; looking for the reason: %w", q.File, p.Host, err)
	}
	return reason
}

// ModelChanges returns the effect of a fitted model on the plan, or the reason for having no plan.
func (q Query) ModelChanges(ctx context.Context, h *topology.Host, l *lab.Lab, m *build.Model) (differences []string,
	refused string, err error) {
	// The built-in weights, like plan without --model.
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

// without leaves out the virtual machines of l, which are no tenants beside themselves, and their template if it is
// off.
func without(l *lab.Lab, h *topology.Host) *topology.Host {
	if l.VSphere == nil {
		return h
	}
	other := *h
	other.Tenants = slices.DeleteFunc(slices.Clone(h.Tenants), func(t topology.Tenant) bool {
		return t.State == esxi.Off && t.Name == path.Base(l.VSphere.Template) ||
			slices.ContainsFunc(l.Nodes, func(n lab.Node) bool { return t.Name == lab.VMName(l.Name, n.Name) })
	})
	return &other
}
