package wait

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	t.Parallel()
	broken, ended := errors.New("broken"), errors.New("ended")
	for name, test := range map[string]struct {
		look func(calls int) (bool, error)
		want error
		more bool
	}{
		"it is there at once":        {look: func(int) (bool, error) { return true, nil }},
		"it comes":                   {look: func(calls int) (bool, error) { return calls > 2, nil }, more: true},
		"a look fails":               {look: func(int) (bool, error) { return false, broken }, want: broken},
		"the context ends meanwhile": {look: func(int) (bool, error) { return false, nil }, want: ended, more: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			calls := 0
			err := Until(ctx, time.Millisecond, func() (bool, error) {
				if calls++; calls == 5 {
					cancel(ended)
				}
				return test.look(calls)
			})
			if !errors.Is(err, test.want) || err != nil && test.want == nil || test.more != (calls > 1) {
				t.Errorf("got %v after %d calls, want %v", err, calls, test.want)
			}
			if err := For(ctx, 0); err != nil && !errors.Is(err, ended) {
				t.Error(err)
			}
		})
	}
}
