// Package statedir keeps the state of a lab or emulated host: a directory with state.json, and a lock file beside it.
package statedir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
)

const stateFile = "state.json"

// Read reads state.json. version points to the field with its version, and known is the wanted one.
func Read(dir, advice string, state any, version *int, known int) error {
	path := filepath.Join(dir, stateFile)
	trace.Reads(path)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, state); err != nil {
		return fmt.Errorf("%s: %w; %s", path, err, advice)
	}
	if *version != known {
		return fmt.Errorf("%s has version %d, this rackless knows %d; %s", path, *version, known, advice)
	}
	return nil
}

// Write replaces state.json atomically.
func Write(dir string, state any) error {
	b, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, stateFile), b, 0o600)
}

const lockPoll = 50 * time.Millisecond

// Lock locks a file beside the directory, so that the directory can go. It calls waiting once if another process holds
// the lock, and ends at its error.
func Lock(ctx context.Context, what, dir string, waiting func(holder string) error) (unlock func(), err error) {
	path := dir + ".lock"
	for told := false; ; {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", what, err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && sameFile(f, path) {
			// For the message of a waiting process; the lock itself is the flock.
			if err := f.Truncate(0); err == nil {
				fmt.Fprintf(f, "%d\n", os.Getpid())
			}
			return func() {
				// A waiter that opened the file before notices its removal, and opens the next.
				os.Remove(path)
				f.Close()
			}, nil
		}
		text, _ := os.ReadFile(path) // empty if unreadable, and reported as such
		holder := strings.TrimSpace(string(text))
		f.Close()
		switch {
		case err == nil: // the file was removed between opening and locking
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, fmt.Errorf("lock %s: %w", path, err)
		case !told:
			if err := waiting(holder); err != nil {
				return nil, err
			}
			told = true
		}
		if err := wait.For(ctx, lockPoll); err != nil {
			return nil, fmt.Errorf("%s: another rackless (process %s) works on it: %w", what, holder, err)
		}
	}
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// Own makes a directory for this user only, and refuses one that another user could have made.
func Own(holds, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory of %s: %w; set RACKLESS_RUN to one that can be written", holds, err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := CheckOwner(holds, dir, fi); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// CheckOwner refuses anything but a directory of this user.
func CheckOwner(holds, dir string, fi os.FileInfo) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("directory of %s: %s is not a directory of this user's: remove it or set RACKLESS_RUN", holds,
			dir)
	}
	return nil
}
