package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// lockFile takes an exclusive lock on a file, made if need be, waiting for whoever holds it. The file stays: removing it would race.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	for {
		unlock, err := tryLockFile(path)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tryLockFile is lockFile without waiting: a lock that another holds is EWOULDBLOCK.
func tryLockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil // closing releases it
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
