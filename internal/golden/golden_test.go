package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder panics in Fatalf, so that Check ends as in a test.
type recorder struct{ said string }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// check returns what Check prints.
func check(file, got string, write bool) string {
	was := *update
	*update = write
	defer func() { *update = was }()
	r := new(recorder)
	func() {
		defer func() {
			if p := recover(); p != nil && p != r {
				panic(p)
			}
		}()
		Check(r, file, got)
	}()
	return r.said
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "below", "a.txt")
	if said := check(file, "1\n", false); !strings.Contains(said, "-update") {
		t.Errorf("no file: got %q, want how to make it", said)
	}
	if said := check(file, "1\n2\n", true); said != "" {
		t.Fatalf("write it: %s", said)
	}
	if said := check(file, "1\n2\n", false); said != "" {
		t.Errorf("the same text: %s", said)
	}
	if said := check(file, "1\n3\n", false); !strings.Contains(said, "\n 1\n-2\n+3\n") {
		t.Errorf("another line: got %q, want the difference", said)
	}
	if said := check(file, "1\n2", false); !strings.Contains(said, "No newline at end") {
		t.Errorf("the last line does not end: got %q", said)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "1\n2\n" {
		t.Errorf("comparing wrote %q, %v", b, err)
	}
}
