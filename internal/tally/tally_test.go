package tally

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLinesOfATestReplaceThoseOfAnEarlierRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, t.Name())
	if err := os.WriteFile(file, []byte("an earlier run\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(Dir, dir)
	Logf(t, "%d cuts", 21)
	t.Run("sub", func(t *testing.T) { Logf(t, "%d kills", 42) })
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := t.Name() + ": 21 cuts\n" + t.Name() + "/sub: 42 kills\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWithoutADirectoryNothingIsWritten(t *testing.T) {
	t.Setenv(Dir, "")
	t.Chdir(t.TempDir())
	Logf(t, "nothing")
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}
