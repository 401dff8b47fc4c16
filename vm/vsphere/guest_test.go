//go:build linux

package vsphere

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// No more output is kept than the agent takes, and the program does not notice.
func TestOutputOfProgramsIsLimited(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for name, test := range map[string]struct {
		argv     []string
		input    string
		exit     int
		out, err string
	}{
		"output and status":     {[]string{"sh", "-c", "echo a; echo b >&2; exit 3"}, "", 3, "a\n", "b\n"},
		"input":                 {[]string{"cat"}, "x y\n", 0, "x y\n", ""},
		"arguments with quotes": {[]string{"printf", "%s.", "a b", "it's", "$HOME"}, "", 0, "a b.it's.$HOME.", ""},
		"as much as is kept": {[]string{"sh", "-c", "printf %01000d 7"}, "", 0, strings.Repeat("0", 999) + "7",
			""},
		"more than is kept": {[]string{"sh", "-c", "head -c 300000 /dev/zero && echo done >&2"}, "", 0, "",
			"done\n"},
		"a program that is missing": {[]string{"/no/such/program"}, "", 127, "", "?"},
		"a signal":                  {[]string{"sh", "-c", "echo a; kill -9 $$"}, "", 137, "a\n", "?"},
	} {
		base := filepath.Join(t.TempDir(), "a b")
		a := &guestArgs{Path: test.argv[0], Arg: test.argv[1:], Capture: true, Input: []byte(test.input)}
		if test.input != "" {
			if err := os.WriteFile(base+".in", a.Input, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", programLine(a, base, limit))
		err := cmd.Run()
		if ended, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok || ok && ended.ExitCode() != test.exit {
			t.Errorf("%s: %v, want exit status %d", name, err, test.exit)
		}
		for suffix, want := range map[string]string{".out": test.out, ".err": test.err} {
			got, err := os.ReadFile(base + suffix)
			switch {
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case name == "more than is kept" && suffix == ".out":
				if len(got) != limit+1 {
					t.Errorf("%s: %d bytes are kept, want one more than %d", name, len(got), limit)
				}
			case want != "?" && string(got) != want:
				t.Errorf("%s: %s is %q, want %q", name, suffix, got, want)
			}
		}
		if left, _ := filepath.Glob(base + ".[oe]"); len(left) > 0 {
			t.Errorf("%s: %v are left", name, left)
		}
	}
}
