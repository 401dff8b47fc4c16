package hostfixture

import (
	"os"
	"testing"
)

// MemoryDir returns a directory of the test's own, in memory where there is one: what is forced to a disk a thousand
// times takes minutes there.
func MemoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rackless-test")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
