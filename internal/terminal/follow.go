//go:build unix

package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// FollowSize reports columns and rows until stop is called: a serial line does not transmit them. It ignores errors,
// since a console of the wrong size still works.
func FollowSize(ctx context.Context, t *os.File, tell func(ctx context.Context, width,
	height int) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if width, height, err := term.GetSize(int(t.Fd())); err == nil {
				_ = tell(ctx, width, height)
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		cancel()
		<-done
	}
}
