package conduct_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rackless/rackless/study/conduct"
)

// A full disk loses no finished run, and the study continues once there is space.
func TestAFullDiskEndsAStudyAndLosesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("mounting a small file system takes root")
		}
		t.Skip("mounting a small file system takes root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("rackless-test", dir, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount a small file system: %v", err)
		}
		t.Skipf("mount a small file system: %v", err) // containers may forbid it even to root
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path, ballast := filepath.Join(dir, "s.db"), filepath.Join(dir, "ballast")
	c, f := again(t, path, text)
	f.apply = func(n int) error {
		if n == 7 {
			if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the disk is not full: %v", err)
			}
		}
		return nil
	}
	err := c.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := c.DB.Close(); err != nil {
		t.Error(err)
	}
	c, f = again(t, path, text)
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.n >= 24 {
		t.Errorf("%d runs were made again", f.n)
	}
	rec, err := conduct.Load(t.Context(), c.DB, "fake")
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	for _, o := range rec.Data.Runs {
		if o.Status == "done" {
			done++
		}
		if (o.Status == "done") != (len(o.Values) > 0) {
			t.Errorf("run %d: %s with %d figures", o.Run, o.Status, len(o.Values))
		}
	}
	if done != 24 {
		t.Errorf("%d runs, want 24", done)
	}
}
