package rack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
)

// Steps without a check run once on a node. Failures name their step.
func TestSetup(t *testing.T) {
	dir := t.TempDir()
	d := Dirs{Run: filepath.Join(dir, "run")}
	parse := func(steps string) *lab.Lab {
		t.Helper()
		steps = strings.ReplaceAll(steps, "DIR", dir)
		l, err := lab.Parse("lab.yaml", []byte("name: steps\ndefaults: {setup: "+steps+"}\nnodes: {vm: {count: 2}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		l.Driver = fakeDriver
		return l
	}
	up := func(l *lab.Lab) (steps []string, err error) {
		r, err := Up(t.Context(), d, l, Options{Progress: func(e Event) {
			if e.End {
				steps = append(steps, e.Step)
			}
		}})
		if r != nil {
			r.Close()
		}
		return steps, err
	}
	runs := func() string {
		t.Helper()
		b, _ := os.ReadFile(filepath.Join(dir, "vm01.log"))
		return strings.ReplaceAll(string(b), "\n", " ")
	}
	const once = "echo once >>DIR/$NODE.log"
	const kept = "{run: 'echo made >>DIR/$NODE.log; touch DIR/$NODE', check: 'test -e DIR/$NODE'}"
	two := parse("[" + once + ", " + kept + "]")
	for i, want := range []string{"nodes setup", "nodes"} {
		steps, err := up(two)
		if err != nil || strings.Join(steps, " ") != want || runs() != "once made " {
			t.Fatalf("up %d: %v, steps %q, it ran %s", i, err, steps, runs())
		}
	}
	if err := os.Remove(filepath.Join(dir, "vm01")); err != nil {
		t.Fatal(err)
	}
	if _, err := up(two); err != nil || runs() != "once made made " {
		t.Errorf("a step that was undone: %v, it ran %s", err, runs())
	}
	for step, want := range map[string]string{
		"echo no such thing; exit 7": "setup: step 2 (echo no such thing; exit 7): it ended with status 7: no such " +
			"thing; lab steps is up without it: rackless up tries again",
		"{run: 'true', check: 'false'}": "step 2 (true): it was run, but its check still ends with status 1",
	} {
		_, err := up(parse("[echo new >>DIR/$NODE.log, " + step + "]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", step, err)
		}
	}
	if got := runs(); got != "once made made new " {
		t.Errorf("it ran %s", got)
	}
	if r, err := Open(d, "steps"); err != nil || !r.State.Ready {
		t.Errorf("the lab is gone: %v", err)
	}
	if _, err := Down(t.Context(), d, "steps"); err != nil {
		t.Error(err)
	}
}
