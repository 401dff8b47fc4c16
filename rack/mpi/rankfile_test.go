package mpi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestRankfilesOfRuns(t *testing.T) {
	o := Options{Lab: "x", Nodes: []Node{node("a", "mlx5_0", 3, 2), node("b", "mlx5_0", 3, 1)}, Ranks: 2,
		Program: []string{"p"}}
	if text, err := o.Rankfile(); err != nil || !strings.HasSuffix(text, ".\nrank 0=a slot=0\nrank 1=a slot=1\n") {
		t.Errorf("%s, %v", text, err)
	}
	o.Ranks, o.Oversubscribe = 4, true
	if _, err := o.Rankfile(); err == nil || !strings.Contains(err.Error(), "more ranks than CPUs") {
		t.Error(err)
	}
}

func TestARunWritesItsRankfile(t *testing.T) {
	text := "rank 0=a slot=0 # 100 % of \"a\" \\n\n"
	argv := writing(text, []string{"printf", "%s.", "one two", "three"})
	if argv[3] != rankfilePath(text) || argv[3] == rankfilePath("") {
		t.Errorf("%q", argv)
	}
	argv[3] = filepath.Join(t.TempDir(), "ranks")
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	got, readErr := os.ReadFile(argv[3])
	if string(out) != "one two.three." || string(got) != text || err != nil || readErr != nil {
		t.Errorf("%q, %q, %v, %v", out, got, err, readErr)
	}
}
