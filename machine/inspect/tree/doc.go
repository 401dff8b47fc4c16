// Package tree provides the file systems from which a machine's /sys and /proc are read: [Mem] in memory, [Dir] with a
// captured tree, [Live], and [Recorder], which records for a snapshot. Each is an fs.FS whose root is the machine's
// root directory.
//
// Half of sysfs is symbolic links, so every tree follows them, and confines them as chroot(2) does: a hostile tree
// shows nothing of the machine that reads it. An entry that exists but cannot be read carries an error (see
// [Builder.Unreadable]).
package tree

import (
	"cmp"
	"io/fs"
	"path"
	"strings"
)

// FS has the methods of every tree. Names are valid for fs.ValidPath: "sys/devices/system", "." for the root.
type FS interface {
	fs.ReadFileFS
	fs.ReadDirFS
	fs.StatFS
	fs.ReadLinkFS
}

// maxLinks is Linux's own limit (path_resolution(7)).
const maxLinks = 40

// maxRead is against endless files. No file that describes a machine comes near it.
const maxRead = 64 << 20

// A byteFS need not copy a file's bytes.
type byteFS interface {
	Bytes(name string) ([]byte, error)
}

// Bytes is like fs.ReadFile without a copy if the tree is in memory. The caller must not modify the result.
func Bytes(fsys fs.FS, name string) ([]byte, error) {
	if t, ok := fsys.(byteFS); ok {
		return t.Bytes(name)
	}
	return fs.ReadFile(fsys, name)
}

// clean makes a name valid for fs.ValidPath: "./sys//cpu/" and "/sys/cpu" become "sys/cpu", and ".." never leaves the
// root. Clean names skip the cost of path.Clean.
func clean(name string) string {
	name = strings.TrimPrefix(name, "./")
	name = strings.TrimSuffix(name, "/")
	if fs.ValidPath(name) {
		return name
	}
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+name), "/"), ".")
}
