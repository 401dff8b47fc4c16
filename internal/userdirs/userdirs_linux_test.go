package userdirs

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// It is not taken for an empty one.
func TestDirectoriesThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if os.Getuid() == 0 { // root reads everything
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Fatal(err)
		}
		defer unix.SetfsuidRetUid(0)
	}
	for _, d := range []string{dir, filepath.Join(dir, "below")} {
		err := Dirs{Run: d, Cache: d, Data: d}.Check(os.Getuid())
		if err == nil || !strings.Contains(err.Error(), "may not read "+d+": ") ||
			!strings.HasSuffix(err.Error(), ", or set RACKLESS_RUN to another directory") {
			t.Errorf("%s: %v", d, err)
		}
	}
}
