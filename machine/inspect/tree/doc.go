// Package tree provides the file systems from which a machine's /sys and /proc are read: a directory, this machine, an
// archive, a text. All are an fs.FS whose root is the machine's root directory.
//
//   - [Mem] holds a whole tree in memory: what [ReadArchive] and [ParseText] return, and what a [Builder] makes.
//   - [Dir] is a directory with a captured tree, and [Live] the machine itself.
//   - [Recorder] notes what is read from another one, for a snapshot.
//
// # Links
//
// Half of sysfs is symbolic links, so every tree here follows them, and confines them: a tree is
// its own "/", as after chroot(2). An absolute target starts at the tree's root, and ".." of the
// root is the root. A captured tree therefore reads the same wherever it lies, and a hostile one
// shows nothing of the machine that reads it.
//
// # What is there and cannot be read
//
// Sysfs has files that exist and refuse to be read. An entry can carry such an error (see
// [Builder.Unreadable]): Stat finds it, and reading it returns the error.
package tree

import (
	"cmp"
	"io/fs"
	"path"
	"strings"
)

// FS is what every tree of this package can do. Names are those of fs.ValidPath:
// "sys/devices/system", "." for the root.
type FS interface {
	fs.ReadFileFS
	fs.ReadDirFS
	fs.StatFS
	fs.ReadLinkFS
}

// maxLinks is how many symbolic links one name may lead through, Linux's own limit (path_resolution(7)).
const maxLinks = 40

// maxRead bounds a file read from a directory, for endless ones. Nothing of /sys and /proc that
// describes a machine comes near it.
const maxRead = 64 << 20

// byteFS is a tree that can show a file's bytes without copying them.
type byteFS interface {
	Bytes(name string) ([]byte, error)
}

// Bytes returns the content of a file, which the caller must not write to: it may be shared with
// other readers. It saves the copy that fs.ReadFile has to make where the tree is in memory, and is
// the same as fs.ReadFile elsewhere.
func Bytes(fsys fs.FS, name string) ([]byte, error) {
	if t, ok := fsys.(byteFS); ok {
		return t.Bytes(name)
	}
	return fs.ReadFile(fsys, name)
}

// clean makes a name of an archive one of fs.ValidPath: "./sys//cpu/" and "/sys/cpu" become
// "sys/cpu", and ".." never leaves the root. Names that are clean already, the usual case, are
// returned as they are, without the cost of path.Clean.
func clean(name string) string {
	name = strings.TrimPrefix(name, "./")
	name = strings.TrimSuffix(name, "/")
	if fs.ValidPath(name) {
		return name
	}
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+name), "/"), ".")
}
