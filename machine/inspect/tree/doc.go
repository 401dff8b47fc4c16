// Package tree provides the file systems from which a machine's /sys and /proc are read: a directory, this machine,
// an archive, a text. Each is an fs.FS whose root is the machine's root directory.
//
//   - [Mem] holds a whole tree in memory. It is the result of [ReadArchive], [ParseText] and [Builder].
//   - [Dir] is a directory with a captured tree, and [Live] the machine itself.
//   - [Recorder] records everything read from another tree, for a snapshot.
//
// # Links
//
// Half of sysfs is symbolic links, so every tree here follows them, and confines them: a tree is its own "/", as
// after chroot(2). An absolute target starts at the tree's root, and ".." of the root is the root. A captured tree
// therefore reads the same wherever it is stored, and a hostile one shows nothing of the machine that reads it.
//
// # Unreadable entries
//
// Sysfs has files that exist but cannot be read. An entry can carry such an error (see [Builder.Unreadable]): Stat
// succeeds, and reading the entry returns the error.
package tree

import (
	"cmp"
	"io/fs"
	"path"
	"strings"
)

// FS has the methods of every tree of this package. Names are valid for fs.ValidPath: "sys/devices/system", "." for
// the root.
type FS interface {
	fs.ReadFileFS
	fs.ReadDirFS
	fs.StatFS
	fs.ReadLinkFS
}

// maxLinks limits the symbolic links in the resolution of one name, to Linux's own limit (path_resolution(7)).
const maxLinks = 40

// maxRead limits a file read from a directory, against endless files. No file in /sys and /proc that describes a
// machine comes near it.
const maxRead = 64 << 20

// byteFS is a tree that can return a file's bytes without copying them.
type byteFS interface {
	Bytes(name string) ([]byte, error)
}

// Bytes is like fs.ReadFile, but does not copy the content if the tree is in memory. The caller must not modify the
// result, which may be shared.
func Bytes(fsys fs.FS, name string) ([]byte, error) {
	if t, ok := fsys.(byteFS); ok {
		return t.Bytes(name)
	}
	return fs.ReadFile(fsys, name)
}

// clean makes a name in an archive valid for fs.ValidPath: "./sys//cpu/" and "/sys/cpu" become "sys/cpu", and ".."
// never leaves the root. Clean names, the usual case, are returned unchanged, without the cost of path.Clean.
func clean(name string) string {
	name = strings.TrimPrefix(name, "./")
	name = strings.TrimSuffix(name, "/")
	if fs.ValidPath(name) {
		return name
	}
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+name), "/"), ".")
}
