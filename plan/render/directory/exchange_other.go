//go:build !linux

package directory

import (
	"os"
	"syscall"
)

// exchange fails: it needs Linux.
func exchange(a, b string) error {
	if _, err := os.Lstat(b); err != nil {
		return err
	}
	return syscall.ENOSYS
}
