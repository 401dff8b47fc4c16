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
	if err != nil {
		t.Fatal(err)
	}
	if code := a.run(t.Context(), []string{"init", file}); code != exitUsage {
		t.Errorf("a second time: exit status %d", code)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("%v, %s", err, after)
	}
}
