package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 50 * time.Millisecond

// errLocked is a lock that another process holds.
var errLocked = errors.New("locked by another process")

// lockFile takes an exclusive lock on a file, made if need be, waiting for whoever holds it. The
// file stays: removing it would race.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	l := flock.New(path, flock.SetPermissions(0o600))
	if _, err := l.TryLockContext(ctx, lockPoll); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { l.Close() }, nil
}

// tryLockFile is lockFile without waiting: a lock that another holds is errLocked.
func tryLockFile(path string) (unlock func(), err error) {
	l := flock.New(path, flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err == nil && !ok {
		err = errLocked
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { l.Close() }, nil
}

func netListen(path string) (net.Listener, error) { return net.Listen("unix", path) }

// lastLines returns the end of a log on one line, for an error message.
func lastLines(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return "(nothing)"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) > 3 {
		lines = lines[len(lines)-3:]
	}
	return strings.Join(lines, " | ")
}
