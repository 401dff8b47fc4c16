//go:build unix

package tree

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const firstErrno syscall.Errno = 1

func errnoName(e syscall.Errno) string { return unix.ErrnoName(e) }
