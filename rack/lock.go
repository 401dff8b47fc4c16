package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Lock takes the lock of a lab: one process at a time changes it. waiting, if not nil, is called once
// if another holds it.
func Lock(ctx context.Context, d Dirs, name string, waiting func(holder string)) (unlock func(), err error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := OwnDir("running labs", d.Run); err != nil {
		return nil, err
	}
	return LockFile(ctx, "lab "+name, d.Lab(name), func(holder string) error {
		if waiting != nil {
			waiting(holder)
		}
		return nil
	})
}

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 50 * time.Millisecond

// LockFile takes the lock of what lies in a directory: a file beside it, so that the directory can
// go. While another process holds it, it waits; waiting is called once then, and an error of its ends
// the attempt. what is the owner of the directory, for messages.
func LockFile(ctx context.Context, what, dir string, waiting func(holder string) error) (unlock func(), err error) {
	path := dir + ".lock"
	for told := false; ; {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", what, err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && sameFile(f, path) {
			// For the message of a process that waits; the lock itself is the flock.
			if err := f.Truncate(0); err == nil {
				fmt.Fprintf(f, "%d\n", os.Getpid())
			}
			return func() {
				// The file goes while the lock is held: a waiter that opened it before sees that it is
				// gone and opens the next.
				os.Remove(path)
				f.Close()
			}, nil
		}
		text, _ := os.ReadFile(path) // empty if it cannot be read, which is said as it is
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
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: another rackless (process %s) works on it: %w", what, holder,
				context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}

// sameFile reports whether the path still leads to the open file.
func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// OwnDir makes a directory for this user only, and refuses one that another user could have made.
// holds is what lies there, for messages.
func OwnDir(holds, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory of %s: %w; set RACKLESS_RUN to one that can be written", holds, err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := checkOwner(holds, dir, fi); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// checkOwner refuses what is not a directory of this user's.
func checkOwner(holds, dir string, fi os.FileInfo) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("directory of %s: %s is not a directory of this user's: remove it or set RACKLESS_RUN", holds,
			dir)
	}
	return nil
}
