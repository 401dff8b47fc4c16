// Package tally stores the counts of tests so that "make test" can print them: go test prints nothing for tests that
// pass.
package tally

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Dir is the variable with the directory for the counts. Without it, counts are only logged.
const Dir = "RACKLESS_TALLY"

var (
	mu    sync.Mutex
	begun = map[string]bool{}
)

// A T is the used part of testing.TB.
type T interface {
	Helper()
	Name() string
	Log(args ...any)
	Errorf(format string, args ...any)
}

// Logf adds a line to the test's own file, which keeps it if go test takes the result from its cache.
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
	// Only the first line of a process truncates the file: the tests of a package share one process.
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
