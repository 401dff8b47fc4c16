package tree

import (
	"encoding/binary"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A dirEntry is one entry of a directory of this machine.
type dirEntry struct {
	tree *Directory
	dir  string // that it is in
	name string
	mode fs.FileMode
}

func (e *dirEntry) Name() string               { return e.name }
func (e *dirEntry) Type() fs.FileMode          { return e.mode }
func (e *dirEntry) IsDir() bool                { return e.mode.IsDir() }
func (e *dirEntry) Info() (fs.FileInfo, error) { return e.tree.Lstat(join(e.dir, e.name)) }
func (e *dirEntry) String() string             { return fs.FormatDirEntry(e) }

// listings are buffers for getdents64(2). Go's own has 8 KiB; sysfs has directories of some hundred
// entries of 32 bytes.
var listings = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// maxEntries bounds the entries of one directory.
const maxEntries = 1 << 20

// readDir lists the open directory fd. It does not use os.File.ReadDir, which asks for an entry's
// type by its path, and so relative to the wrong directory, on the file systems that do not give it
// with the name.
func (d *Directory) readDir(fd int, name string) ([]fs.DirEntry, error) {
	buf := listings.Get().(*[32 << 10]byte)
	defer listings.Put(buf)
	var entries []dirEntry
	for {
		n, err := unix.Getdents(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		if entries, err = d.parseDirents(entries, buf[:n], fd, name); err != nil {
			return nil, err
		}
		if len(entries) > maxEntries {
			return nil, syscall.EFBIG
		}
	}
	slices.SortFunc(entries, func(a, b dirEntry) int { return strings.Compare(a.name, b.name) })
	out := make([]fs.DirEntry, len(entries))
	for i := range entries {
		out[i] = &entries[i]
	}
	return out, nil
}

// Offsets inside struct linux_dirent64 (getdents(2)): inode and position of 8 bytes each, length of
// the record, type, name ended by a zero.
const (
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

// parseDirents appends the entries that getdents64 wrote to b. The names share one string.
func (d *Directory) parseDirents(entries []dirEntry, b []byte, fd int, dir string) ([]dirEntry, error) {
	all := string(b)
	entries = slices.Grow(entries, len(b)/32)
	for at := 0; at+direntName < len(all); {
		length := int(binary.NativeEndian.Uint16(b[at+direntLength:]))
		if length <= direntName || at+length > len(all) {
			return nil, syscall.EBADMSG
		}
		name := all[at+direntName : at+length]
		if i := strings.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		mode := uint32(b[at+direntType]) << 12 // d_type is the type of stat(2), moved (include/linux/fs_types.h).
		at += length
		if name == "." || name == ".." {
			continue
		}
		if mode == unix.DT_UNKNOWN { // Some file systems give it for everything.
			var st unix.Stat_t
			if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				continue // gone since
			}
			mode = st.Mode
		}
		entries = append(entries, dirEntry{tree: d, dir: dir, name: name, mode: modeOf(mode)})
	}
	return entries, nil
}
