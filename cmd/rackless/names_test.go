package main

import (
	"strings"
	"testing"
)

// They say the present name, and are not offered.
func TestFormerNames(t *testing.T) {
	for _, f := range formerNames {
		t.Run(f.old, func(t *testing.T) {
			a, _, _ := testApp(t)
			root := newRootCmd(a)
			old, rest, err := root.Find(strings.Fields(f.old))
			if err != nil || len(rest) > 0 || !old.Hidden {
				t.Fatalf("found %v, %q, %v; want a hidden command", old.CommandPath(), rest, err)
			}
			words := strings.Fields(f.now)
			if i := strings.Index(f.now, " --"); i >= 0 { // a flag took its place
				words = strings.Fields(f.now[:i])
			}
			now, rest, err := root.Find(words)
			if err != nil || len(rest) > 0 || now.Hidden {
				t.Errorf("%s is now %s: found %v, %q, %v", f.old, f.now, now.CommandPath(), rest, err)
			}
		})
	}
	a, _, stderr := testApp(t)
	a.run(t.Context(), []string{"fabric", "set", "--clear"})
	want := `rackless: "rackless fabric set" is now "rackless link set"; the old name goes with the next version`
	if !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("got %q, want it to begin with %q", stderr, want)
	}
}

func TestDefaultsOfFormerNamesCount(t *testing.T) {
	a, out, stderr := testApp(t)
	env := a.env
	a.env = func(name string) string {
		if name == "RACKLESS_SNAPSHOT_OUTPUT" {
			return "/nowhere/host.tar.zst"
		}
		return env(name)
	}
	if code := a.run(t.Context(), []string{"host", "snapshot"}); code != exitFailed ||
		!strings.Contains(stderr.String(), "/nowhere") {
		t.Errorf("status %d, %q, %q: want the file of the variable", code, out, stderr)
	}
}

// They are listed in the whole help too.
func TestEverydayCommandsExist(t *testing.T) {
	a, _, _ := testApp(t)
	root := newRootCmd(a)
	for _, e := range everyday {
		if c, _, err := root.Find([]string{e.name}); err != nil || c.Hidden {
			t.Errorf("%s: %v, %v; want a visible command", e.name, c, err)
		}
	}
}

// recommend became a flag of plan.
func TestDefaultsOfRecommendAreNotThoseOfPlan(t *testing.T) {
	a, out, stderr := testApp(t)
	env := a.env
	a.env = func(name string) string {
		if name == "RACKLESS_RECOMMEND_OUTPUT" {
			return "json"
		}
		return env(name)
	}
	if code := a.run(t.Context(), []string{"plan", pairLab, "--host", epycHost}); code != 0 ||
		strings.HasPrefix(out.String(), "{") {
		t.Errorf("status %d, %q, %.40q: want a plan as text", code, stderr, out)
	}
}
