package tree

import (
	"bytes"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/lists"
)

// Mem is an immutable tree in memory. It is safe for concurrent use.
type Mem struct {
	root *node
}

var _ FS = (*Mem)(nil)

// A node is its own fs.FileInfo and fs.DirEntry, so that listing a directory allocates only the list.
type node struct {
	name     string
	mode     fs.FileMode // type bits and permissions
	data     []byte
	target   string
	err      error   // of reading or listing
	hidden   bool    // err also applies to Lstat
	parent   *node   // nil for the whole tree's root
	children []*node // of a directory, by name

	// index is for building large directories.
	index map[string]*node
}

func (n *node) Name() string               { return n.name }
func (n *node) Size() int64                { return int64(len(n.data) + len(n.target)) }
func (n *node) Mode() fs.FileMode          { return n.mode }
func (n *node) Type() fs.FileMode          { return n.mode.Type() }
func (n *node) ModTime() time.Time         { return time.Time{} }
func (n *node) IsDir() bool                { return n.mode.IsDir() }
func (n *node) Sys() any                   { return nil }
func (n *node) Info() (fs.FileInfo, error) { return n, nil }
func (n *node) String() string             { return fs.FormatDirEntry(n) }

// child is half of the time of a file lookup: slices.BinarySearchFunc takes 1.5 times as long.
func (n *node) child(name string) *node {
	low, high := 0, len(n.children)
	for low < high {
		if middle := (low + high) / 2; n.children[middle].name < name {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < len(n.children) && n.children[low].name == name {
		return n.children[low]
	}
	return nil
}

// walk follows a link at the end of name only if last is set.
func (m *Mem) walk(name string, last bool) (*node, error) {
	up := func(at *node) *node {
		if at == m.root {
			return at // m.root has a parent after Chroot
		}
		return at.parent
	}
	return follow(name, last, m.root, up, func(at *node, element string) (*node, string, bool, error) {
		if !at.IsDir() {
			return nil, "", false, syscall.ENOTDIR
		}
		next := at.child(element)
		switch {
		case next == nil:
			return nil, "", false, fs.ErrNotExist
		case next.hidden:
			return nil, "", false, next.err
		}
		return next, next.target, next.mode&fs.ModeSymlink != 0, nil
	})
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// Bytes returns a file's content without a copy. The caller must not modify it.
func (m *Mem) Bytes(name string) ([]byte, error) {
	n, err := m.walk(name, true)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if n.IsDir() {
		return nil, pathError("read", name, syscall.EISDIR)
	}
	if n.err != nil {
		return nil, pathError("read", name, n.err)
	}
	return n.data[:len(n.data):len(n.data)], nil
}

// ReadFile returns a copy; Bytes avoids it.
func (m *Mem) ReadFile(name string) ([]byte, error) {
	b, err := m.Bytes(name)
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(b)), b...), nil
}

// ReadDir returns the entries by name.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := m.walk(name, true)
	if err == nil && !n.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = n.err
	}
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	return n.list(), nil
}

func (n *node) list() []fs.DirEntry {
	entries := make([]fs.DirEntry, len(n.children))
	for i, c := range n.children {
		entries[i] = c
	}
	return entries
}

// Stat follows links.
func (m *Mem) Stat(name string) (fs.FileInfo, error) { return m.info("stat", name, true) }

// Lstat does not follow a link at the end of name.
func (m *Mem) Lstat(name string) (fs.FileInfo, error) { return m.info("lstat", name, false) }

func (m *Mem) info(op, name string, last bool) (fs.FileInfo, error) {
	n, err := m.walk(name, last)
	if err != nil {
		return nil, pathError(op, name, err)
	}
	return n.called(base(name)), nil
}

// called differs from the node's own information after a link.
func (n *node) called(name string) fs.FileInfo {
	if name == n.name {
		return n
	}
	return renamed{n, name}
}

// renamed was reached through a link with another name.
type renamed struct {
	fs.FileInfo
	name string
}

func (r renamed) Name() string { return r.name }

// ReadLink returns a link's target as written.
func (m *Mem) ReadLink(name string) (string, error) {
	n, err := m.walk(name, false)
	if err == nil && n.mode&fs.ModeSymlink == 0 {
		err = syscall.EINVAL
	}
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return n.target, nil
}

// Open opens a file or directory.
func (m *Mem) Open(name string) (fs.File, error) {
	n, err := m.walk(name, true)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	info := n.called(base(name))
	switch {
	case n.IsDir():
		d := &openDir{info: info, path: name, listing: listing{left: n.list()}}
		if n.err != nil {
			d.err = pathError("readdir", name, n.err)
		}
		return d, nil
	case n.err != nil:
		return brokenFile{info, pathError("read", name, n.err)}, nil
	}
	return openFile{bytes.NewReader(n.data), info}, nil
}

// Chroot returns the tree below a directory. Entries outside of it are unreachable, and absolute links start there.
func (m *Mem) Chroot(name string) (*Mem, error) {
	n, err := m.walk(name, true)
	if err == nil && !n.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("chroot", name, err)
	}
	return &Mem{root: n}, nil
}

// At returns a tree of only m's directory dir, at path. m must not be used afterwards.
func (m *Mem) At(dir, path string) (*Mem, error) {
	n, err := m.walk(dir, true)
	if err != nil {
		return nil, pathError("move", dir, err)
	}
	for _, name := range slices.Backward(strings.Split(path, "/")) {
		up := &node{mode: fs.ModeDir | 0o555, children: []*node{n}}
		n.name, n.parent = name, up
		n = up
	}
	return &Mem{root: n}, nil
}

// FindRoots returns the sorted root directories of machines, which contain "sys" or "proc", at the smallest depth that
// has any and at most depth levels: archives often have a directory around the machine.
func FindRoots(fsys fs.FS, depth int) []string {
	return find(fsys, depth, func(_ string, entries []fs.DirEntry) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "sys" || e.Name() == "proc" })
	})
}

// FindParts is like FindRoots for directories that are a part of a machine. at is their place: "sys" or
// "sys/devices/system".
func FindParts(fsys fs.FS, depth int) (dirs []string, at string) {
	for _, part := range []struct{ at, holds string }{{"sys", "devices/system/cpu"},
		{"sys/devices/system", "cpu/cpu0"}} {
		dirs = find(fsys, depth, func(dir string, _ []fs.DirEntry) bool {
			info, err := fs.Stat(fsys, join(dir, part.holds))
			return err == nil && info.IsDir()
		})
		if dirs != nil {
			return dirs, part.at
		}
	}
	return nil, ""
}

// find returns directories at the smallest depth that has any.
func find(fsys fs.FS, depth int, is func(dir string, dirs []fs.DirEntry) bool) []string {
	level := []string{"."}
	for range depth {
		var found, next []string
		for _, dir := range level {
			entries, _ := fs.ReadDir(fsys, dir)
			entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() })
			if is(dir, entries) {
				found = append(found, dir)
				continue
			}
			next = append(next, lists.Map(entries, func(e fs.DirEntry) string { return join(dir, e.Name()) })...)
		}
		if found != nil {
			slices.Sort(found)
			return found
		}
		level = next
	}
	return nil
}

type openFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (f openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f openFile) Close() error               { return nil }

type brokenFile struct {
	info fs.FileInfo
	err  error
}

func (f brokenFile) Stat() (fs.FileInfo, error)        { return f.info, nil }
func (f brokenFile) Close() error                      { return nil }
func (f brokenFile) Read([]byte) (int, error)          { return 0, f.err }
func (f brokenFile) ReadAt([]byte, int64) (int, error) { return 0, f.err }

type openDir struct {
	info fs.FileInfo
	path string
	listing
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) { return 0, pathError("read", d.path, syscall.EISDIR) }

type listing struct {
	left []fs.DirEntry
	err  error // error of listing it
}

// ReadDir implements fs.ReadDirFile.
func (l *listing) ReadDir(n int) ([]fs.DirEntry, error) {
	out := l.left
	switch {
	case l.err != nil:
		return nil, l.err
	case n > 0 && len(out) == 0:
		return nil, io.EOF
	case n > 0:
		out = out[:min(n, len(out)):min(n, len(out))]
	}
	l.left = l.left[len(out):]
	return out, nil
}
