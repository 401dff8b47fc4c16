package tree

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/trace"
)

// Directory is a directory as a tree: a captured machine or this machine's root. It is safe for concurrent use.
type Directory struct {
	// at is an O_PATH descriptor, or -1 for the machine's own root.
	at   int
	live bool
	path string // for --verbose
	// byStep is set without openat2: see openByStep.
	byStep bool
}

var (
	_ FS        = (*Directory)(nil)
	_ io.Closer = (*Directory)(nil)
)

// Dir opens a directory as a tree. Links are resolved inside of it. Close releases it.
//
// openat2(2) with RESOLVE_IN_ROOT confines names, even if the tree changes meanwhile. Before Linux 5.6, and in
// containers whose seccomp filter does not know the call, links are resolved here, which is slower.
func Dir(path string) (*Directory, error) { return openDirectory(path, true) }

func openDirectory(path string, useOpenat2 bool) (*Directory, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, pathError("open", path, err)
	}
	d := &Directory{at: fd, path: path, byStep: !useOpenat2}
	if !useOpenat2 {
		return d, nil
	}
	probe, err := d.open(".", unix.O_PATH)
	switch err {
	case nil:
		unix.Close(probe)
	case unix.ENOSYS, unix.EPERM, unix.EINVAL:
		// A seccomp filter may return any error: docker's returned EPERM.
		d.byStep = true
	default:
		unix.Close(fd)
		return nil, pathError("open", path, err)
	}
	return d, nil
}

// Live returns this machine. It need not be closed.
func Live() *Directory { return &Directory{at: -1, live: true, path: "/"} }

// Close releases the directory.
func (d *Directory) Close() error {
	if d.at < 0 {
		return nil
	}
	fd := d.at
	d.at = -1
	return unix.Close(fd)
}

// O_NONBLOCK: a FIFO without a writer or a terminal without a carrier would block forever. O_NOCTTY: a terminal must
// not become ours.
const openFlags = unix.O_NONBLOCK | unix.O_NOCTTY

func (d *Directory) open(name string, flags int) (int, error) {
	if flags |= unix.O_CLOEXEC; flags&unix.O_PATH == 0 {
		if flags&unix.O_DIRECTORY == 0 {
			flags |= openFlags // openat2 rejects flags that O_PATH ignores.
		}
		trace.Reads(filepath.Join(d.path, name))
	}
	switch {
	case !fs.ValidPath(name):
		return -1, fs.ErrInvalid
	case d.live:
		return retry(func() (int, error) { return unix.Open("/"+name, flags, 0) })
	case d.at < 0:
		return -1, fs.ErrClosed
	case d.byStep:
		return d.openByStep(name, flags)
	}
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_IN_ROOT}
	return retry(func() (int, error) { return unix.Openat2(d.at, name, &how) })
}

// A step's O_PATH descriptor stays valid even if the entry is renamed.
type step struct {
	fd    int
	name  string
	above *step
}

// openByStep is open without openat2. It never opens through a link but follows links itself, so that a concurrent
// change of the tree cannot lead outside.
func (d *Directory) openByStep(name string, flags int) (int, error) {
	open := func(at *step, element string, flags int) (int, error) {
		return retry(func() (int, error) { return unix.Openat(at.fd, element, flags|unix.O_NOFOLLOW, 0) })
	}
	var opened []int
	defer func() {
		for _, fd := range opened {
			unix.Close(fd)
		}
	}()
	up := func(at *step) *step { return cmp.Or(at.above, at) }
	enter := func(at *step, element string) (next *step, target string, isLink bool, err error) {
		fd, err := open(at, element, unix.O_PATH|unix.O_CLOEXEC)
		if err != nil {
			return nil, "", false, err
		}
		opened = append(opened, fd)
		target, err = readLink(fd)
		next = &step{fd, element, at}
		if err == unix.EINVAL {
			return next, "", false, nil
		}
		return next, target, true, err
	}
	at, err := follow(name, flags&unix.O_NOFOLLOW == 0, &step{fd: d.at, name: "."}, up, enter)
	if err != nil {
		return -1, err
	}
	return open(up(at), at.name, flags)
}

func readLink(fd int) (string, error) {
	var buf [4096]byte // PATH_MAX
	n, err := unix.Readlinkat(fd, "", buf[:])
	if err == unix.ENOENT {
		err = unix.EINVAL // the kernel's error for another kind
	}
	return string(buf[:max(n, 0)]), err
}

// retry repeats open after a signal, and if a concurrent rename kept the kernel from resolving ".." (openat2(2),
// EAGAIN).
func retry(open func() (int, error)) (int, error) {
	for again := 0; ; again++ {
		fd, err := open()
		if err == unix.EINTR || err == unix.EAGAIN && again < 128 {
			continue
		}
		return fd, err
	}
}

// ReadFile returns the content of a regular file.
//
// os.ReadFile registers the descriptor with the runtime's poller: if a sysfs driver returns EAGAIN, it would wait
// forever. Here EAGAIN is an ordinary error.
func (d *Directory) ReadFile(name string) ([]byte, error) {
	fd, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	defer unix.Close(fd)
	size := int64(-1)
	if !d.live {
		// A captured tree may be malicious, so only regular files are read. Its file sizes are right, unlike sysfs's
		// and procfs's.
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, pathError("stat", name, err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
		case unix.S_IFDIR:
			return nil, pathError("read", name, syscall.EISDIR)
		default:
			return nil, pathError("read", name, errNotRegular)
		}
		size = st.Size
	}
	b, err := readAll(fd, size, name)
	if err != nil {
		return nil, pathError("read", name, err)
	}
	return b, nil
}

var errNotRegular = errors.New("not a regular file")

// The kernel writes at most a page per sysfs file (Documentation/filesystems/sysfs.rst).
var buffers = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// readAll takes size -1 if it is unreliable.
func readAll(fd int, size int64, name string) ([]byte, error) {
	buf := buffers.Get().(*[8 << 10]byte)
	defer buffers.Put(buf)
	n, err := readFull(fd, buf[:], size, name)
	if err != nil {
		return nil, err
	}
	b := slices.Clone(buf[:n])
	if n < len(buf) {
		return b, nil
	}
	// The next buffer has the file's size if that is sane.
	want := max(4*len(buf), int(min(size+1, maxRead)))
	for {
		b = slices.Grow(b, max(want-len(b), len(b)))
		n, err := readFull(fd, b[len(b):cap(b)], size-int64(len(b)), name)
		if err != nil {
			return nil, err
		}
		filled := len(b)+n == cap(b)
		if b = b[:len(b)+n]; !filled {
			return b, nil
		}
		if len(b) > maxRead {
			return nil, syscall.EFBIG
		}
	}
}

// readFull reads until b is full or the file ends. It skips the final read of 0 bytes if the end is certain: at the
// size of a file on disk, and after a short read of a sysfs attribute, which the kernel returns in one piece. Files of
// procfs, and of file systems mounted below /sys, come in pieces of any length.
func readFull(fd int, b []byte, size int64, name string) (int, error) {
	whole := strings.HasPrefix(name, "sys/") && !strings.HasPrefix(name, "sys/kernel/") && !strings.HasPrefix(name,
		"sys/fs/")
	n := 0
	for n < len(b) {
		m, err := unix.Read(fd, b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += m
		if m == 0 || int64(n) == size && size > 0 || whole && n < len(b) && n < os.Getpagesize() {
			break
		}
	}
	return n, nil
}

// ReadDir returns the entries by name.
func (d *Directory) ReadDir(name string) ([]fs.DirEntry, error) {
	fd, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	// Package os may stat entries by the directory's path.
	f := os.NewFile(uintptr(fd), "/proc/self/fd/"+strconv.Itoa(fd))
	defer f.Close()
	entries, err := f.ReadDir(maxEntries + 1)
	if err == io.EOF {
		err = nil
	}
	if len(entries) > maxEntries {
		err = syscall.EFBIG
	}
	if err != nil {
		return nil, pathError("readdir", name, cause(err))
	}
	for i, e := range entries {
		entries[i] = dirEntry{e, d, name}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Open opens a file or directory. ReadFile and ReadDir cost less, but the result is an io.ReaderAt, for parts of a
// file.
func (d *Directory) Open(name string) (fs.File, error) {
	fd, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		if mode := modeOf(st.Mode); mode.IsRegular() || mode.IsDir() {
			// The runtime's poller must not get it; see ReadFile.
			err = unix.SetNonblock(fd, false)
		} else {
			err = errNotRegular
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, pathError("open", name, err)
	}
	return &diskFile{File: os.NewFile(uintptr(fd), name), tree: d, name: name}, nil
}

type diskFile struct {
	*os.File
	tree *Directory
	name string
	list *listing
}

// ReadDir implements fs.ReadDirFile.
func (f *diskFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if f.list == nil {
		entries, err := f.tree.ReadDir(f.name)
		f.list = &listing{entries, err}
	}
	return f.list.ReadDir(n)
}

// Stat follows links.
func (d *Directory) Stat(name string) (fs.FileInfo, error) { return d.stat("stat", name, 0) }

// Lstat does not follow a link at the end of name.
func (d *Directory) Lstat(name string) (fs.FileInfo, error) {
	return d.stat("lstat", name, unix.O_NOFOLLOW)
}

func (d *Directory) stat(op, name string, flags int) (fs.FileInfo, error) {
	info := &statInfo{name: base(name)}
	fd, err := d.open(name, unix.O_PATH|flags)
	if err == nil {
		err = unix.Fstat(fd, &info.st)
		unix.Close(fd)
	}
	if err != nil {
		return nil, pathError(op, name, err)
	}
	return info, nil
}

// ReadLink returns a link's target as written.
func (d *Directory) ReadLink(name string) (string, error) {
	var target string
	fd, err := d.open(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err == nil {
		target, err = readLink(fd)
		unix.Close(fd)
	}
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return target, nil
}

type statInfo struct {
	name string
	st   unix.Stat_t
}

func (s *statInfo) Name() string       { return s.name }
func (s *statInfo) Size() int64        { return s.st.Size }
func (s *statInfo) IsDir() bool        { return s.Mode().IsDir() }
func (s *statInfo) ModTime() time.Time { return time.Unix(s.st.Mtim.Unix()) }
func (s *statInfo) Sys() any           { return &s.st }

func (s *statInfo) Mode() fs.FileMode {
	mode := modeOf(s.st.Mode) | fs.FileMode(s.st.Mode&0o777)
	if s.st.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

var fileTypes = map[uint32]fs.FileMode{unix.S_IFDIR: fs.ModeDir, unix.S_IFLNK: fs.ModeSymlink,
	unix.S_IFIFO: fs.ModeNamedPipe, unix.S_IFSOCK: fs.ModeSocket, unix.S_IFBLK: fs.ModeDevice,
	unix.S_IFCHR: fs.ModeDevice | fs.ModeCharDevice}

func modeOf(mode uint32) fs.FileMode { return fileTypes[mode&unix.S_IFMT] }

type dirEntry struct {
	fs.DirEntry
	tree *Directory
	dir  string // containing directory
}

func (e dirEntry) Info() (fs.FileInfo, error) { return e.tree.Lstat(join(e.dir, e.Name())) }

const maxEntries = 1 << 20
