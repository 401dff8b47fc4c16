package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
)

// A journal that lost its first step is refused. Its other steps can be undone, but rackless never claims that the host
// is in its original state.
func TestRollbackOfADamagedJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	store := host.Store{Dir: filepath.Join(dir, "state")}
	j, err := change.Open(store.Journal(), host.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	var steps []change.Step
	for _, path := range []string{first, second} {
		steps = append(steps, change.Step{Op: &change.File{Path: path, Mode: 0o600}, What: "write " + path})
	}
	if _, err := store.Make(t.Context(), &change.System{Root: "/"}, j, steps, nil); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(store.Journal())
	if err != nil {
		t.Fatal(err)
	}
	data[40] ^= 1
	if err := os.WriteFile(store.Journal(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"rollback --yes", exitFailed, []string{"journal is damaged: line 1 is missing or damaged",
			"undone: 1\n",
			"write " + second, "file " + first, "rackless rollback --what-is-known"}},
		{"rollback --dry-run", exitFailed, []string{"line 1 is missing or damaged", "write " + second}},
		{"prepare --resume", exitFailed, []string{"line 1 is missing or damaged"}},
		{"prepare --dry-run", exitFailed, []string{"line 1 is missing or damaged"}},
		{"rollback --what-is-known --yes", exitFaults,
			[]string{"this host may not be as it was: its journal was damaged",
				"line 1 is missing or damaged", "file " + first, "journal.damaged-"}},
	} {
		a, out, stderr := testApp(t)
		env := a.env
		a.env = func(name string) string {
			if name == "RACKLESS_STATE" {
				return store.Dir
			}
			return env(name)
		}
		if code := a.run(t.Context(), strings.Fields(c.args)); code != c.code {
			t.Errorf("%s: status %d, want %d", c.args, code, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s does not say %q:\n%s", c.args, want, stderr)
			}
		}
		if strings.Contains(out.String(), "as it was") {
			t.Errorf("%s: %s", c.args, out)
		}
	}
	if _, err := os.Stat(second); !os.IsNotExist(err) {
		t.Errorf("what is known was not taken back: %v", err)
	}
	kept, err := filepath.Glob(store.Journal() + ".damaged-*")
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept: %q, %v", kept, err)
	}
	if now, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(now, data) {
		t.Errorf("the damaged journal was not kept as it was: %v", err)
	}
}

func journalOf(t *testing.T, env map[string]string, ops ...change.Op) (a *app, out, stderr *bytes.Buffer) {
	t.Helper()
	store := host.Store{Dir: filepath.Join(t.TempDir(), "state")}
	j, err := change.Open(store.Journal(), host.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	var steps []change.Step
	for _, op := range ops {
		steps = append(steps, change.Step{Op: op, What: "change " + filepath.Base(op.Subject())})
	}
	if _, err := store.Make(t.Context(), &change.System{Root: "/"}, j, steps, nil); err != nil {
		t.Fatal(err)
	}
	a, out, stderr = testApp(t)
	old := a.env
	a.env = func(name string) string {
		if name == "RACKLESS_STATE" {
			return store.Dir
		}
		if text, ok := env[name]; ok {
			return text
		}
		return old(name)
	}
	return a, out, stderr
}

// rollback leaves such a value and reports it.
func TestRollbackSaysWhatSomebodyHasChangedSince(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"text", "json"} {
		dir := t.TempDir()
		raised, governor := filepath.Join(dir, "pages"), filepath.Join(dir, "governor")
		write := func(path, text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(raised, "4\n")
		write(governor, "schedutil\n")
		a, out, stderr := journalOf(t, nil, &change.Value{Path: raised, Want: "16"},
			&change.Value{Path: governor, Want: "performance"})
		write(raised, "64\n")
		if code := a.run(t.Context(), []string{"rollback", "--yes", "-o", form}); code != 0 {
			t.Errorf("status %d\n%s", code, stderr)
		}
		want := []string{"restored  change governor\nkept      change pages\n", "left  " + raised +
			": found 64, rackless had set 16; left as it is\n",
			"2 steps undone; 1 of them left what somebody has changed since prepare\n"}
		if form == "json" {
			want = []string{`"status": "kept"`, `"changed_since": [`, `"what": "` + raised, `"found": "64"`,
				`"set": "16"`}
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s does not say %q:\n%s", form, w, out)
			}
		}
		if strings.Contains(out.String(), "as it was") {
			t.Errorf("the host is not as it was: %s", out)
		}
		for path, want := range map[string]string{raised: "64\n", governor: "schedutil"} {
			if text, err := os.ReadFile(path); err != nil || string(text) != want {
				t.Errorf("%s is %q, want %q (%v)", path, text, want, err)
			}
		}
		out.Reset()
		if code := a.run(t.Context(), []string{"rollback", "--yes"}); code != 0 || out.String() != nothingToTakeBack {
			t.Errorf("again: status %d, %s%s", code, out, stderr)
		}
	}
}

// It would kill prepare or reset a machine that has the variable in its environment.
func TestAFaultIsRefusedOnThisMachine(t *testing.T) {
	t.Parallel()
	if vendor, err := os.ReadFile("/sys/class/dmi/id/sys_vendor"); err == nil && string(vendor) == "rackless\n" {
		t.Skip("this is an emulated host")
	}
	file := filepath.Join(t.TempDir(), "file")
	for _, fault := range []string{"kill:1", "reset:1:begun", "count"} {
		a, _, stderr := journalOf(t, map[string]string{"RACKLESS_FAULT": fault}, &change.File{Path: file, Mode: 0o600})
		for _, args := range []string{"rollback --yes", "rollback --dry-run", "prepare --yes", "prepare --dry-run",
			"prepare --resume"} {
			stderr.Reset()
			if code := a.run(t.Context(), strings.Fields(args)); code != exitUsage ||
				!strings.Contains(stderr.String(), "RACKLESS_FAULT="+fault+" kills prepare or resets the machine: "+
					"it is for tests on hosts of rackless emulate, and /sys/class/dmi/id/sys_vendor has ") {
				t.Errorf("%s with %s: status %d\n%s", args, fault, code, stderr)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s with %s has changed something: %v", args, fault, err)
			}
		}
	}
}
