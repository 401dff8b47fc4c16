package emulate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProfilesAreFoundByNameOrFile(t *testing.T) {
	t.Parallel()
	first := Builtin()[0].Name
	if p, err := Find(first); err != nil || p.Name != first {
		t.Errorf("%s: %v, %v", first, p, err)
	}
	file := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(file, Source(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := Find(file); err != nil || p.Name != first {
		t.Errorf("%s: %v, %v", file, p, err)
	}
	for arg, want := range map[string]string{
		first + "x":     "did you mean " + first + "?",
		"no-such-thing": "; there are ",
		"./none.yaml":   "no such file",
	} {
		if _, err := Find(arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}
