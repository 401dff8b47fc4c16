package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// A Status is the status of a step.
type Status string

// Statuses of a step.
const (
	InPlace  Status = "in place"
	Pending  Status = "pending"
	Made     Status = "made"
	Boot     Status = "reboot"  // done, and in effect after a reboot
	Waiting  Status = "waiting" // cannot be done before a reboot
	Restored Status = "restored"
	Kept     Status = "kept" // restored, except for later changes by others
	Refused  Status = "refused"
	Failed   Status = "failed"
)

// A Result is the outcome of a step.
type Result struct {
	Step
	Kind    string
	Subject string
	Status  Status
	Before  State // the present state, or the state before the step
	Err     error
	Changed []Changed // of Kept
}

func resultOf(step Step) Result {
	return Result{Step: step, Kind: step.Op.Kind(), Subject: step.Op.Subject()}
}

// Survey changes nothing. Steps that their guards would refuse are Refused, and steps that cannot be read are Failed,
// with the reason as Err. The error names all Failed steps.
func Survey(ctx context.Context, s *System, steps []Step) ([]Result, error) {
	ctx = withSeen(ctx)
	results := make([]Result, len(steps))
	var errs []error
	for i, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		r := &results[i]
		*r = resultOf(step)
		var err error
		if r.Before, err = step.Op.Read(ctx, s); err == nil {
			r.Status, err = statusOf(ctx, s, &step, r.Before)
		}
		if err != nil {
			r.Status, r.Err = Failed, err
			errs = append(errs, fmt.Errorf("%s: %w", step.What, err))
			continue
		}
		if r.Status == Pending && step.Guard != nil {
			if err := step.Guard(ctx, s); err != nil {
				r.Status, r.Err = Refused, err
			}
		}
	}
	return results, errors.Join(errs...)
}

func statusOf(ctx context.Context, s *System, step *Step, state State) (Status, error) {
	if step.Op.Done(state) {
		if step.Boot && step.InForce != nil {
			if ok, err := step.InForce(ctx, s); err != nil || !ok {
				return Boot, err
			}
		}
		return InPlace, nil
	}
	if step.Ready != nil {
		if ok, err := step.Ready(ctx, s); err != nil || !ok {
			return Waiting, err
		}
	}
	return Pending, nil
}

// Make first undoes ops in the journal that no step wants, then makes the missing steps in order. progress, if set, is
// called as each step begins and ends. Undone ops appear in the results only if they are [Kept].
//
// Steps that need a reboot are Waiting. Make stops at the first error; finished steps stay. It may be called again at
// any time, even after a kill or a power cut.
func Make(ctx context.Context, s *System, j *Journal, steps []Step, progress func(Result)) ([]Result, error) {
	if progress == nil {
		progress = func(Result) {}
	}
	wanted := map[opKey]bool{}
	for _, step := range steps {
		key := keyOf(step.Op)
		if wanted[key] {
			return nil, fmt.Errorf("two steps are about %s %s", key.kind, key.subject)
		}
		wanted[key] = true
	}
	var results []Result
	for _, e := range RollbackOrder(j.Entries()) {
		if wanted[e.key()] {
			continue
		}
		r := resultOf(Step{Op: e.Op, What: e.What})
		r.Before, r.Status = e.Before, Kept
		var err error
		if r.Changed, err = restore(ctx, s, j, e, len(results) > 0); err != nil {
			return results, fmt.Errorf("%s: %w", e.What, err)
		}
		if len(r.Changed) > 0 {
			results = append(results, r)
			progress(r)
		}
	}
	// All guards run first, so that a refusal does not leave the machine half prepared.
	survey, err := Survey(ctx, s, steps)
	if err != nil {
		return survey, err
	}
	refusals := lists.Map(lists.Filter(survey, func(r Result) bool { return r.Status == Refused }),
		func(r Result) error { return fmt.Errorf("%s: %w", r.What, r.Err) })
	if len(refusals) > 0 {
		return survey, &RefusedError{refusals}
	}
	for _, step := range steps {
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		r := resultOf(step)
		if err := makeStep(ctx, s, j, &step, &r, progress); err != nil {
			r.Status, r.Err = Failed, err
			results = append(results, r)
			progress(r)
			return results, fmt.Errorf("%s: %w", step.What, err)
		}
		results = append(results, r)
		progress(r)
	}
	return results, nil
}

// A RefusedError lists the reasons why no change was made.
type RefusedError struct{ Reasons []error }

func (e *RefusedError) Error() string {
	return "refused, and nothing was changed:\n" + errors.Join(e.Reasons...).Error()
}

func (e *RefusedError) Unwrap() []error { return e.Reasons }

func makeStep(ctx context.Context, s *System, j *Journal, step *Step, r *Result, progress func(Result)) error {
	state, err := step.Op.Read(ctx, s)
	if err != nil {
		return err
	}
	r.Before = state
	e := j.find(keyOf(step.Op))
	if r.Status, err = statusOf(ctx, s, step, state); err != nil || r.Status == Waiting {
		return err
	}
	// Do a begun op again even if it looks done: Read need not see every part of it.
	if r.Status != Pending && (e == nil || e.Done) {
		if r.Status == InPlace && e == nil && step.Before != nil {
			return adopt(ctx, s, j, step, state)
		}
		if e != nil && e.boot != bootID(s) {
			return j.done(s, step.Op, nil)
		}
		return nil
	}
	if step.Guard != nil {
		if err := step.Guard(withSeen(ctx), s); err != nil {
			return err
		}
	}
	r.Status = Pending
	progress(*r)
	before := state
	if e != nil {
		before = e.Before
	}
	if err := j.begin(s, step, before); err != nil {
		return err
	}
	if err := step.Op.Do(ctx, s); err != nil {
		if e, ok := errors.AsType[RebootError](err); ok && e.NeedsReboot() {
			r.Status, r.Err = Waiting, err
			now, err := step.Op.Read(ctx, s)
			if err != nil {
				return err
			}
			return j.done(s, step.Op, &now) // as far as possible now
		}
		return err
	}
	now, err := step.Op.Read(ctx, s)
	if err != nil {
		return err
	}
	if !step.Op.Done(now) {
		return fmt.Errorf("it was made, and reads back as %s", brief(now))
	}
	if err := j.done(s, step.Op, &now); err != nil {
		return err
	}
	r.Status = Made
	if step.Boot {
		r.Status = Boot
		if step.InForce != nil {
			if ok, err := step.InForce(ctx, s); err == nil && ok {
				r.Status = Made
			}
		}
	}
	return nil
}

func adopt(ctx context.Context, s *System, j *Journal, step *Step, now State) error {
	before, ours, err := step.Before(ctx, s)
	if err != nil || !ours {
		return err
	}
	if err := j.begin(s, step, before); err != nil {
		return err
	}
	return j.done(s, step.Op, &now)
}

// Adopt records steps that are in effect because of another step, so that [Rollback] undoes them: the machine went down
// during [Make] and booted with that other step in effect.
func Adopt(ctx context.Context, s *System, j *Journal, steps []Step) error {
	for i := range steps {
		step := &steps[i]
		if step.Before == nil || j.find(keyOf(step.Op)) != nil {
			continue
		}
		state, err := step.Op.Read(ctx, s)
		if err == nil && step.Op.Done(state) {
			err = adopt(ctx, s, j, step, state)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.What, err)
		}
	}
	return nil
}

func brief(state State) string {
	const most = 200
	if len(state) > most {
		return fmt.Sprintf("%.*q...", most, string(state))
	}
	return fmt.Sprintf("%q", string(state))
}

// RollbackOrder returns the latest entries first, and [LateRestorer] ops after all others.
func RollbackOrder(entries []*Entry) []*Entry {
	var all, late []*Entry
	for _, e := range slices.Backward(entries) {
		if l, ok := e.Op.(LateRestorer); ok && l.RestoredLate() {
			late = append(late, e)
		} else {
			all = append(all, e)
		}
	}
	return append(all, late...)
}

// Undone returns a result for each entry that a rollback will undo, in its order.
func Undone(entries []*Entry) []Result {
	return lists.Map(RollbackOrder(entries), func(e *Entry) Result {
		return Result{Step: Step{Op: e.Op, What: e.What}, Kind: e.Op.Kind(), Subject: e.Op.Subject(), Status: Pending}
	})
}

// Rollback undoes all entries in [RollbackOrder]. It continues after a failure if it can. The remaining steps are in
// the error, one per line, and in the journal, so that it can be called again.
func Rollback(ctx context.Context, s *System, j *Journal, progress func(Result)) ([]Result, error) {
	if progress == nil {
		progress = func(Result) {}
	}
	var results []Result
	var errs []error
	left := false
	for _, e := range RollbackOrder(j.Entries()) {
		if ctx.Err() != nil {
			return results, errors.Join(append(errs, context.Cause(ctx))...)
		}
		r := resultOf(Step{Op: e.Op, What: e.What})
		r.Before, r.Status = e.Before, Pending
		progress(r)
		r.Status = Restored
		var err error
		if r.Changed, err = restore(ctx, s, j, e, left && len(errs) == 0); err != nil {
			r.Status, r.Err = Failed, err
			errs = append(errs, fmt.Errorf("%s remains (%s %s): %w", e.What, r.Kind, r.Subject, err))
		}
		if err == nil && len(r.Changed) > 0 {
			r.Status, left = Kept, true
		}
		results = append(results, r)
		progress(r)
	}
	return results, errors.Join(errs...)
}

func restore(ctx context.Context, s *System, j *Journal, e *Entry, left bool) ([]Changed, error) {
	u, err := e.undo(ctx, s, left)
	if err != nil {
		return nil, err
	}
	want, changed := u.Before, []Changed(nil)
	if m, ok := e.Op.(Merger); ok {
		if want, changed, err = m.Merge(ctx, s, u); err != nil {
			return nil, err
		}
	}
	if err := j.event(s, eventRestoring, e.Op, ""); err != nil {
		return nil, err
	}
	if err := e.Op.Restore(ctx, s, want); err != nil {
		return nil, err
	}
	now, err := e.Op.Read(ctx, s)
	if err != nil {
		return nil, err
	}
	if !isRestored(e.Op, want, now) {
		return nil, fmt.Errorf("it was %s before, and reads %s now", brief(want), brief(now))
	}
	var said []string
	for _, c := range changed {
		said = append(said, c.String())
	}
	return changed, j.event(s, eventRestored, e.Op, strings.Join(said, "; "))
}

func isRestored(op Op, before, now State) bool {
	if r, ok := op.(Restorer); ok {
		return r.Restored(before, now)
	}
	return before == now
}
