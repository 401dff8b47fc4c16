// Package wait waits for a duration, or polls until a condition holds.
package wait

import (
	"context"
	"time"
)

// For returns the cause if ctx is done before d.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Until calls look until it returns true or an error, with a pause after each call, or until ctx is done.
func Until(ctx context.Context, pause time.Duration, look func() (bool, error)) error {
	for {
		if there, err := look(); there || err != nil {
			return err
		}
		if err := For(ctx, pause); err != nil {
			return err
		}
	}
}
