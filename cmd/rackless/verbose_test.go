package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The result does not depend on --verbose.
func TestVerboseSaysWhatIsReadRunAndChanged(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan")
	svg := filepath.Join(t.TempDir(), "host.svg")
	for line, want := range map[string]string{
		"lab check " + pairLab:     "read    " + pairLab,
		"inspect " + epycHost:      "read    " + epycHost,
		"inspect -o json":          "read    /proc/cpuinfo",
		"inspect / -o json":        "read    /proc/cpuinfo",
		"explain RL003":            "",
		"lab diff " + pairLab:      "read    " + pairLab,
		"snapshot --output " + svg: "change  write " + svg,
		"study ls":                 "",
		"plan --out " + plan + " --host " + epycHost + " " + pairLab: "change  write " + plan,
	} {
		t.Run(line, func(t *testing.T) {
			a, out, stderr := testApp(t)
			if code := a.run(t.Context(), append(strings.Fields(line), "--verbose")); code != 0 && code != exitFaults {
				t.Fatalf("status %d: %s", code, stderr)
			}
			if strings.Contains(out.String(), want) && want != "" {
				t.Errorf("it is in the result:\n%s", out)
			}
			if !strings.Contains("\n"+stderr.String(), "\n"+want) {
				t.Errorf("no %q in\n%s", want, stderr)
			}
			told := 0
			for said := range strings.Lines(stderr.String()) {
				if regexp.MustCompile(`^(read    |run     |change  )\S`).MatchString(said) {
					told++
				}
			}
			if (told > 0) != (want != "") {
				t.Errorf("%d lines are told, want some where there is something to tell: %q\n%s", told, want, stderr)
			}
		})
	}
}

// --verbose would be incomplete otherwise.
func TestEveryPlaceThatRunsAProgramTellsOfIt(t *testing.T) {
	n := 0
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
			strings.HasSuffix(filepath.Dir(path), "test") || // tests' programs do not belong to rackless
			strings.HasPrefix(path, "../../hack/") { // not part of rackless
			return err
		}
		b, err := os.ReadFile(path)
		if runs := strings.Count(string(b), "exec.Command"); runs > strings.Count(string(b), "trace.Runs(") {
			t.Errorf("%s runs programs in %d places: call trace.Runs before each", path, runs)
		} else {
			n += runs
		}
		return err
	})
	if err != nil || n < 10 {
		t.Errorf("%d places found, %v", n, err)
	}
}
