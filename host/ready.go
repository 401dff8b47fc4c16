package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
)

// An UnfitError says why a lab cannot run on this host as it is, and what prepares the host for it.
type UnfitError struct{ error }

// Unwrap returns the reason.
func (e *UnfitError) Unwrap() error { return e.error }

// For returns for what the host is prepared, if that is lab l of the file, and the host still is as it was prepared; an
// [UnfitError] if not.
func (s Store) For(ctx context.Context, sys *change.System, m Machine, l *lab.Lab, file string) (*Prepared, error) {
	unfit := func(format string, args ...any) error { return &UnfitError{fmt.Errorf(format, args...)} }
	p, err := s.Load()
	switch {
	case errors.Is(err, ErrNotPrepared):
		return nil, unfit("%w: rackless prepare %s", err, file)
	case err != nil:
		return nil, err
	// Compared as YAML with its defaults, so that comments and the order of keys in the file do not count.
	case !bytes.Equal(p.Lab.YAML(), l.YAML()):
		var changes strings.Builder
		for _, c := range lab.Diff(p.Lab, l) {
			changes.WriteString("\n  " + c.String())
		}
		return nil, unfit("this host is prepared for lab %s as it was on %s, and %s says something else: "+
			"rackless rollback, then rackless prepare %s%s",
			p.Lab.Name, p.Made.Format(time.DateTime), file, file, changes.String())
	}
	// The host may have been changed since: nodes on pages or devices that are gone would fail one by one.
	survey, err := Survey(ctx, sys, p, m)
	if err != nil {
		return nil, err
	}
	for _, r := range survey {
		if r.Status != change.InPlace {
			return nil, unfit("this host is not as lab %s needs it (%s: %s): rackless prepare", l.Name, r.What, r.Status)
		}
	}
	return p, nil
}
