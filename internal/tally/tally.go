// Package tally stores the counts of tests so that "make test" can print them: go test shows nothing for tests that
// pass.
package tally

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Dir is the environment variable that names the directory for the counts. Where it is not set they are only logged.
const Dir = "RACKLESS_TALLY"

var (
	mu    sync.Mutex
	begun = map[string]bool{} // the files that this process writes to
)

// A T is what of a testing.TB is used.
type T interface {
	Helper()
	Name() string
	Log(args ...any)
	Errorf(format string, args ...any)
}

// Logf logs a line of what the test counted, and adds it to the test's own file, whose lines of an
// earlier run go. So the counts of a test whose result go test takes from its cache are those of
// the run that the result is of.
func Logf(t T, format string, args ...any) {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	t.Log(line)
	dir := os.Getenv(Dir)
	if dir == "" {
		return
	}
	if err := add(dir, t.Name(), line); err != nil {
		t.Errorf("what was counted cannot be kept: %v", err)
	}
}

func add(dir, test, line string) error {
	mu.Lock()
	defer mu.Unlock()
	top, _, _ := strings.Cut(test, "/")
	path := filepath.Join(dir, top)
	// Only the first line of a process replaces the file: the tests of one package run in one process, and
	// the counts of an earlier run must not be added to.
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !begun[path] {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return err
	}
	begun[path] = true
	_, err = fmt.Fprintf(f, "%s: %s\n", test, line)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
