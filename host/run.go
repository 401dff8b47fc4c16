package host

import (
	"context"
	"errors"

	"github.com/rackless/rackless/host/change"
)

// Make makes the steps of a preparation, with the journal that Open has returned, and closes it. A
// preparation that is refused before its first change leaves nothing.
func (s Store) Make(ctx context.Context, sys *change.System, j *change.Journal, steps []change.Step,
	report func(change.Result)) ([]change.Result, error) {
	results, err := change.Make(ctx, sys, j, steps, report)
	if _, refused := errors.AsType[*change.RefusedError](err); refused && len(results) > 0 && len(j.Entries()) == 0 {
		return results, errors.Join(err, s.Clear(j))
	}
	return results, errors.Join(err, j.Close())
}

// Rollback takes back what the journal holds, last first, and closes it. Once all of it is taken
// back, the host is prepared for nothing. stays is why pages that the boot has set aside may stay
// until the next one; nil if they do not.
func (s Store) Rollback(ctx context.Context, sys *change.System, j *change.Journal,
	report func(change.Result)) (results []change.Result, stays, err error) {
	// A rollback needs no more than the journal: without the plan it leaves to the next boot what the last one brought.
	if p, err := s.Load(); err == nil {
		stays = Adopt(ctx, sys, j, p)
	}
	if results, err = change.Rollback(ctx, sys, j, report); err != nil {
		return results, stays, errors.Join(err, j.Close())
	}
	return results, stays, s.Clear(j)
}
