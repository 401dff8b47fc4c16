package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInitWritesALabFileAndNeverOverwrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "try.yaml")
	a, out, _ := testApp(t)
	if code := a.run(t.Context(), []string{"init", file, "--emulated"}); code != 0 || !strings.Contains(out.String(),
		"next: rackless up "+file) {
		t.Fatalf("exit status %d: %s", code, out)
	}
	if code := a.run(t.Context(), []string{"lab", "check", file}); code != 0 {
		t.Errorf("lab check: exit status %d", code)
	}
	before, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(before), "\nname: try\n") {
		t.Fatalf("%v, %s", err, before)
	}
	if code := a.run(t.Context(), []string{"init", file}); code != exitUsage {
		t.Errorf("a second time: exit status %d", code)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("%v, %s", err, after)
	}
}

func TestALabIsCalledAsItsFileIfThatIsAName(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{"lab.yaml": "lab", "/x/my-pair.yml": "my-pair", "two words.yaml": "lab",
		"a: b.yaml": "lab", "null": "lab", ".yaml": "lab", "Über.yaml": "lab"} {
		if text := string(starter(file, false)); !strings.Contains(text, "\nname: "+want+"\n") {
			t.Errorf("%s: want %s in\n%s", file, want, text)
		}
	}
}
