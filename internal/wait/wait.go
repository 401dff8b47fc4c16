// Package wait waits for a time, or polls until a condition holds.
package wait

import (
	"context"
	"time"
)

// For waits for a time. If ctx ends first, it returns the cause of that.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Until calls look until it reports true or an error, with a pause after each call. If ctx ends first, it returns the
// cause of that.
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
