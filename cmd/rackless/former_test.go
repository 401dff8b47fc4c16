package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each also says its present spelling on standard error.
func TestFormerFlags(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, tt := range []struct{ old, now, says string }{
		{"plan " + pairLab + " --snapshot " + epycHost, "plan " + pairLab + " --host " + epycHost,
			"--snapshot is now --host"},
		{"export nova " + pairLab + " --snapshot " + epycHost, "export nova " + pairLab + " --host " + epycHost,
			"--snapshot is now --host"},
		{"inspect --snapshot " + epycHost, "inspect --host " + epycHost, "--snapshot is now --host"},
		{"inspect --root testdata", "inspect testdata", "--root is now --host"},
	} {
		a, old, said := testApp(t)
		oldCode := a.run(t.Context(), strings.Fields(tt.old))
		want := "rackless: " + tt.says + "; the old name goes with the next version\n"
		if !strings.HasPrefix(said.String(), want) {
			t.Errorf("%s: said %q, want %q", tt.old, said, want)
		}
		a, now, said := testApp(t)
		if code := a.run(t.Context(), strings.Fields(tt.now)); !strings.Contains(tt.old, "--root") &&
			(code != oldCode || now.String() != old.String()) {
			t.Errorf("%s: status %d, %d before, and prints something else\n%s", tt.now, code, oldCode, said)
		}
		if strings.Contains(said.String(), "is now") {
			t.Errorf("%s: said %q", tt.now, said)
		}
	}
	a, _, said := testApp(t)
	if code := a.run(t.Context(), []string{"host", "snapshot", "-o", file("host.tar.zst")}); code != 0 ||
		!strings.HasPrefix(said.String(), "rackless: -o is now --out;") {
		t.Errorf("status %d, %q", code, said)
	}
	if _, err := os.Stat(file("host.tar.zst")); err != nil {
		t.Error(err)
	}
	// A default for a former flag counts, unless the present one is given.
	for _, args := range []string{"plan " + pairLab, "plan " + pairLab + " --host " + epycHost} {
		a, out, said := testApp(t)
		env := a.env
		a.env = func(name string) string {
			if name == "RACKLESS_PLAN_SNAPSHOT" {
				return map[bool]string{true: "/nowhere", false: epycHost}[strings.Contains(args, "--host")]
			}
			return env(name)
		}
		if code := a.run(t.Context(), strings.Fields(args)); code != 0 || !strings.Contains(out.String(), "vm00") {
			t.Errorf("%s: status %d, %q", args, code, said)
		}
	}
}
