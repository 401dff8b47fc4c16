package machinetest

import "os"

// Test is a part of *testing.T.
type Test interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Error(args ...any)
}

// MemoryDir returns a temporary directory, in memory if possible: thousands of syncs to a disk take minutes.
func MemoryDir(t Test) string {
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
