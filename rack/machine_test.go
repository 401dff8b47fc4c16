package rack

import (
	"testing"

	"github.com/rackless/rackless/lab"
)

func TestMemAvailable(t *testing.T) {
	got, err := memAvailable([]byte("MemTotal:       24684284 kB\nMemFree:        20634304 kB\nMemAvailable:   " +
		"22189424 kB\n"))
	if err != nil || got != 22189424*lab.KiB {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "MemTotal: 1 kB\n", "MemAvailable: many kB\n"} {
		if got, err := memAvailable([]byte(bad)); err == nil {
			t.Errorf("memAvailable(%q) = %v, want an error", bad, got)
		}
	}
}
