package lock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTheLockOfTheMachineHasAName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "@rackless-study", "rl123": "@rl123", "a/b": "", "@": "",
		strings.Repeat("a", 101): ""} {
		l, err := FromEnv(func(k string) string { return map[string]string{Variable: name}[k] })
		if (err != nil) != (want == "") || l.addr.Name != want {
			t.Errorf("%q: %v, %v; want %q", name, l, err, want)
		}
	}
}

func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	l, err := FromEnv(func(string) string { return fmt.Sprintf("rackless-lock-test-%d", os.Getpid()) })
	if err != nil {
		t.Fatal(err)
	}
	run, other := filepath.Join(t.TempDir(), "run"), t.TempDir()
	if by, err := l.Holder(); by != nil || err != nil {
		t.Fatalf("before any study %v holds the lock, %v", by, err)
	}
	unlock, err := l.Take(run)
	if err != nil {
		t.Fatal(err)
	}
	by, err := l.Holder()
	if err != nil || !strings.HasPrefix(by.String(), fmt.Sprintf("process %d of user ", os.Getpid())) {
		t.Errorf("the holder is %v, %v", by, err)
	}
	if _, err := l.Take(other); err == nil || !strings.Contains(err.Error(), "another study runs") {
		t.Errorf("a second study with other directories: %v", err)
	}
	for dir, want := range map[string]bool{run: true, other: false} {
		if got, err := HeldIn(dir); err != nil || got != want {
			t.Errorf("held in %s: %v, %v", dir, got, err)
		}
	}
	unlock()
	if unlock, err = l.Take(other); err != nil {
		t.Fatalf("after the study: %v", err)
	}
	unlock()
}

func TestALockIsSeenWithoutTakingIt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "study.lock")
	holds := func(want bool) {
		t.Helper()
		if got, err := holdsLock(path); err != nil || got != want {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	holds(false)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	holds(false)
	lock := func(how int) {
		t.Helper()
		if err := syscall.Flock(int(f.Fd()), how); err != nil {
			t.Fatal(err)
		}
	}
	lock(syscall.LOCK_SH)
	holds(false)
	lock(syscall.LOCK_EX)
	holds(true)
	lock(syscall.LOCK_UN)
	holds(false)
}

func TestParseLock(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF\n": "1234 5678 true",
		"12: FLOCK  ADVISORY  READ  1234 08:01:5678 0 EOF":  "  false",
		"3: POSIX  ADVISORY  WRITE 1 00:1a:7 0 EOF":         "  false",
		"1: -> FLOCK  ADVISORY  WRITE 99 08:01:5678 0 EOF":  "  false", "": "  false",
		"1: FLOCK ADVISORY WRITE 1 5678 0 EOF": "  false",
	} {
		pid, inode, ok := parseLock(line)
		if got := fmt.Sprint(pid, " ", inode, " ", ok); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
