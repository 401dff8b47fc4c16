package vm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/lab"
)

func TestMemoryAvailable(t *testing.T) {
	read := func(meminfo string) (lab.Bytes, error) {
		t.Helper()
		proc := t.TempDir()
		if err := os.WriteFile(filepath.Join(proc, "meminfo"), []byte(meminfo), 0o600); err != nil {
			t.Fatal(err)
		}
		return memoryAvailable(proc)
	}
	got, err := read("MemTotal:       24684284 kB\nMemFree:        20634304 kB\nMemAvailable:   22189424 kB\n")
	if err != nil || got != 22189424*lab.KiB {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "MemTotal: 1 kB\n", "MemAvailable: many kB\n"} {
		if got, err := read(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, got)
		}
	}
	if got, err := memoryAvailable(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Errorf("no /proc: %v, want an error", got)
	}
}
