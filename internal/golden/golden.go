// Package golden compares results of tests with files, and writes the files anew if a test runs with -update.
package golden

import (
	"flag"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/diff"
)

var update = flag.Bool("update", false, "write the golden files anew, instead of comparing with them")

// A T is the part of a testing.TB that Check needs.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Update reports whether to write the golden files, for tests that do not use Check.
func Update() bool { return *update }

// Check compares got with a file, or writes the file with -update.
func Check[Text string | []byte](t T, file string, got Text) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatalf("%v", err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatalf("%v", err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; to make it, run this test with -update", err)
	}
	if d := diff.Diff(file, want, "got", []byte(got)); d != nil {
		t.Errorf("%s differs; if the change is meant, run this test with -update:\n%s", file, d)
	}
}
