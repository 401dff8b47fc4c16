package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// A Status is how a step stands.
type Status string

// The statuses.
const (
	InPlace  Status = "in place" // nothing to do
	Pending  Status = "pending"  // it would be made
	Made     Status = "made"
	Boot     Status = "reboot"  // made, and in force after a reboot
	Waiting  Status = "waiting" // cannot be made before a reboot
	Restored Status = "restored"
	Kept     Status = "kept" // restored, but for what somebody else has changed since, which is left as it is
	Refused  Status = "refused"
	Failed   Status = "failed"
)

// A Result is what became of a step.
type Result struct {
	Step
	Kind    string
	Subject string
	Status  Status
	Before  State // what is there, or was before it was made
	Err     error
	Changed []Changed // of Kept: what was left
}

func resultOf(step Step) Result {
	return Result{Step: step, Kind: step.Op.Kind(), Subject: step.Op.Subject()}
}

// Survey says how each step stands, and changes nothing. Steps that guards would refuse are
// Refused, with the reason as Err.
func Survey(ctx context.Context, s *System, steps []Step) ([]Result, error) {
	ctx = withSeen(ctx)
	results := make([]Result, len(steps))
	for i, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		r := &results[i]
		*r = resultOf(step)
		state, err := step.Op.Read(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.What, err)
		}
		r.Before = state
		if r.Status, err = standing(ctx, s, &step, state); err != nil {
			return nil, fmt.Errorf("%s: %w", step.What, err)
		}
		if r.Status == Pending && step.Guard != nil {
			if err := step.Guard(ctx, s); err != nil {
				r.Status, r.Err = Refused, err
			}
		}
	}
	return results, nil
}

// standing says how a step stands before anything is done.
func standing(ctx context.Context, s *System, step *Step, state State) (Status, error) {
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

// Make makes all steps: it undoes what the journal knows of
// and no step wants, and makes what is missing, in order. progress, if not nil, is told about each
// step as it is begun and as it ends. Of what was undone, only the steps that are [Kept] are told, and come first.
//
// A step that cannot be made yet, because one before it needs a reboot, is Waiting, and so are
// those after it that are not Ready. The first error ends the work; what was made until then stays,
// and is in the journal. Make may be called again at any time, also after the process was killed or
// the machine lost its power.
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
	// All guards first: a machine is not left half prepared where it is known from the start that the rest is refused.
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

// A RefusedError lists why a machine is not changed at all.
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
	if r.Status, err = standing(ctx, s, step, state); err != nil || r.Status == Waiting {
		return err
	}
	// An op that was begun and never finished is made again even where it looks finished: Read need
	// not see every part of it.
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
			return j.done(s, step.Op, &now) // as far as it can be
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

// adopt enters a step that is in place already into the journal, if another step has brought it about.
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

// Adopt enters into the journal what it knows nothing of, though a step that it knows of has
// brought it about: where the machine went down in the midst of [Make], and came back with what
// that step is for, nobody has done so. [Rollback] takes it back then.
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

// brief shortens a state for a message.
func brief(state State) string {
	const most = 200
	if len(state) > most {
		return fmt.Sprintf("%.*q...", most, string(state))
	}
	return fmt.Sprintf("%q", string(state))
}

// RollbackOrder returns the order in which entries are undone: the last first, and those of
// [LateRestorer] after all others.
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

// Undone lists what a rollback of entries is going to undo, in its order.
func Undone(entries []*Entry) []Result {
	return lists.Map(RollbackOrder(entries), func(e *Entry) Result {
		return Result{Step: Step{Op: e.Op, What: e.What}, Kind: e.Op.Kind(), Subject: e.Op.Subject(), Status: Pending}
	})
}

// Rollback undoes everything that the journal knows of, in [RollbackOrder], and reads each
// thing back. What somebody else has changed since is left, if the op is a [Merger]: such a step is
// [Kept], and the journal forgets it. It goes on after a failure where it can: what remains is in the
// error, one line a thing, and in the journal, so that Rollback can be called again.
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

// restore undoes an entry, and returns what it has left because somebody else has changed it since. left is for
// [Undo.Left].
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

// isRestored reports whether what reads now is what was there before.
func isRestored(op Op, before, now State) bool {
	if r, ok := op.(Restorer); ok {
		return r.Restored(before, now)
	}
	return before == now
}
