package machinetest

import "os"

// A Test is what MemoryDir needs of a *testing.T.
type Test interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Error(args ...any)
}

// MemoryDir returns a directory of the test's own, in memory where there is one: what is forced to a disk a thousand
// times takes minutes there.
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
