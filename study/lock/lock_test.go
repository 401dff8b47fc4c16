package lock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// A child shares open files until exec, which takes a while on a busy machine.
func TestAChildThatStartsDoesNotHoldTheLock(t *testing.T) {
	t.Parallel()
	l, err := FromEnv(func(string) string { return fmt.Sprintf("rackless-child-test-%d", os.Getpid()) })
	if err != nil {
		t.Fatal(err)
	}
	listener, err := l.takeMachine()
	if err != nil {
		t.Fatal(err)
	}
	child, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	leaveMachine(listener)
	if by, err := l.Holder(); by != nil || err != nil {
		t.Errorf("after the study %v holds the lock, %v", by, err)
	}
	time.AfterFunc(50*time.Millisecond, func() { child.Close() })
	again, err := l.takeMachine()
	if err != nil {
		t.Fatal(err)
	}
	leaveMachine(again)
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
	run := t.TempDir()
	holds := func(want bool) {
		t.Helper()
		if got, err := HeldIn(run); err != nil || got != want {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	holds(false)
	f, err := os.Create(file(run))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	holds(false)
	lock := func(how int16) {
		t.Helper()
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: how}); err != nil {
			t.Fatal(err)
		}
	}
	lock(unix.F_RDLCK)
	holds(false)
	lock(unix.F_WRLCK)
	holds(true)
	holds(true)
	lock(unix.F_UNLCK)
	holds(false)
}
