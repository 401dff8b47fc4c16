package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
)

func TestWhoHoldsDevicesIsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for dir, files := range map[string]map[string]string{
		"10": {"3": "/dev/vfio/vfio", "4": "/dev/vfio/17", "5": "/dev/vfio/17", "6": "/dev/vfio/devices/vfio0"},
		"11": {"3": "/dev/vfio/vfio"},
		"12": {"0": "/dev/null"},
	} {
		fd := filepath.Join(root, "proc", dir, "fd")
		if err := os.MkdirAll(fd, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc", dir, "comm"), []byte("qemu-"+dir+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for name, to := range files {
			if err := os.Symlink(to, filepath.Join(fd, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := host.Users(&change.System{Root: root})
	want := []string{"qemu-10 (10): /dev/vfio/17 /dev/vfio/devices/vfio0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
