package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study/lock"
)

// others is another user's program on the same machine.
func others(t *testing.T, a *app, dir string) (*app, *strings.Builder) {
	t.Helper()
	env := map[string]string{"HOME": dir, "XDG_RUNTIME_DIR": filepath.Join(dir, "run"), "XDG_DATA_HOME": dir,
		lock.Variable: a.env(lock.Variable)}
	var said strings.Builder
	return &app{in: a.in, out: &said, err: &said, env: func(k string) string { return env[k] }, uid: 1000}, &said
}

func TestOneStudyAtATimeRunsOnAMachine(t *testing.T) {
	t.Parallel()
	a, _, _ := testApp(t)
	d, err := a.dirs()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := map[string]string{
		"pair.yaml":  "name: pair\nnodes:\n  vm00: {}\n  vm01: {}\n",
		"study.yaml": "name: s\nlab: pair.yaml\nfactors: {placement: [default, pin]}\nmeasure: [{test: iperf3}]\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, said := others(t, a, dir)
	run := func(args ...string) (int, string) {
		said.Reset()
		code := b.run(t.Context(), args)
		return code, said.String()
	}
	if by, err := b.studyHolder(); by != nil || err != nil {
		t.Fatalf("before any study %v holds the lock, %v", by, err)
	}
	unlock, err := a.lockStudies(d.Run)
	if err != nil {
		t.Fatal(err)
	}
	me := fmt.Sprintf("(process %d of user ", os.Getpid())
	study := filepath.Join(dir, "study.yaml")
	if code, got := run("study", "run", study); code != exitFailed ||
		!strings.HasPrefix(got, "rackless: another study runs on this machine "+me) ||
		!strings.HasSuffix(got, ", and two would measure each other; wait for it, or end it\n") {
		t.Errorf("another user's study: status %d, %s", code, got)
	}
	if code, got := run("study", "run", study, "--dry-run"); code != 0 {
		t.Errorf("what measures nothing: status %d, %s", code, got)
	}
	if code, got := run("bench", "pair"); code != exitFailed ||
		!strings.HasPrefix(got, "rackless: a study runs on this machine "+me) || !strings.Contains(got, "--anyway") {
		t.Errorf("bench beside a study: status %d, %s", code, got)
	}
	const noLab = "rackless: lab pair: no such lab is running"
	if code, got := run("bench", "pair", "--anyway"); code != exitFailed || !strings.HasPrefix(got, noLab) {
		t.Errorf("bench --anyway beside a study: status %d, %s", code, got)
	}
	unlock()
	if code, got := run("bench", "pair"); code != exitFailed || !strings.HasPrefix(got, noLab) {
		t.Errorf("bench after the study: status %d, %s", code, got)
	}
	// A refused study releases the machine's lock.
	e, err := b.dirs()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(e.Run, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(e.Run, "study.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.lockStudies(e.Run); err == nil {
		t.Error("a directory whose lock is held was locked")
	}
	for _, d := range []rack.Dirs{d, d} {
		unlock, err := a.lockStudies(d.Run)
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
}

func TestTheVariableOfTheLockIsKnown(t *testing.T) {
	if !slices.Contains(variables, lock.Variable) {
		t.Errorf("%q lacks %s", variables, lock.Variable)
	}
}
