//go:build unix

package userdirs

import (
	"io/fs"
	"syscall"
)

func ownerOf(fi fs.FileInfo) (uid int, known bool) {
	st, known := fi.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false
	}
	return int(st.Uid), true
}
