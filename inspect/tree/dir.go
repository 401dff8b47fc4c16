package tree

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Directory is a directory of this machine as a tree: one that a machine was captured into, or the
// machine's own root. Any number of goroutines may read it at once.
type Directory struct {
	name string
	// at is a descriptor of the directory (O_PATH), -1 for the machine's own root, which needs none.
	at   int
	live bool
	// inside is used where the kernel has no openat2.
	inside *os.Root
}

var (
	_ FS        = (*Directory)(nil)
	_ io.Closer = (*Directory)(nil)
)

// Dir opens a directory as a tree. Links are resolved inside of it. Close releases it.
//
// The kernel confines the names, with openat2(2) and RESOLVE_IN_ROOT: one call a file, and no way
// out for a tree that changes meanwhile. Before Linux 5.6, and in containers whose seccomp filter
// does not know the call, the links are read here and os.Root guards the rest: slower, with the
// same result.
func Dir(path string) (*Directory, error) { return openDirectory(path, true) }

func openDirectory(path string, useOpenat2 bool) (*Directory, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, pathError("open", path, err)
	}
	d := &Directory{name: path, at: fd}
	if useOpenat2 {
		probe, err := d.openat2(".", unix.O_PATH)
		if err == nil {
			unix.Close(probe)
			return d, nil
		}
		// A seccomp filter answers what it likes: EPERM is docker's, before it knew openat2.
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) {
			unix.Close(fd)
			return nil, pathError("open", path, err)
		}
	}
	unix.Close(fd)
	d.at = -1
	if d.inside, err = os.OpenRoot(path); err != nil {
		return nil, err
	}
	return d, nil
}

// Live returns the machine that runs this program. Its links lead where the kernel says. It need not be closed.
func Live() *Directory { return &Directory{name: "/", at: -1, live: true} }

// Close releases the directory. Names can no longer be read.
func (d *Directory) Close() error {
	switch {
	case d.inside != nil:
		return d.inside.Close()
	case d.at >= 0:
		fd := d.at
		d.at = -1
		return unix.Close(fd)
	}
	return nil
}

// openFlags are those of every open. O_NONBLOCK: a FIFO without a writer, or a terminal without a
// carrier, would wait for ever. O_NOCTTY: a terminal must not become ours.
const openFlags = unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// open opens name for reading, or with O_PATH.
func (d *Directory) open(name string, flags int) (int, error) {
	if !fs.ValidPath(name) {
		return -1, fs.ErrInvalid
	}
	switch {
	case d.live:
		return retry(func() (int, error) { return unix.Open("/"+name, openFlags|flags, 0) })
	case d.at >= 0:
		return d.openat2(name, flags)
	}
	return -1, fs.ErrClosed
}

func (d *Directory) openat2(name string, flags int) (int, error) {
	if flags&unix.O_PATH != 0 {
		flags |= unix.O_CLOEXEC // openat2 refuses flags that O_PATH ignores
	} else {
		flags |= openFlags
	}
	how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_IN_ROOT}
	return retry(func() (int, error) { return unix.Openat2(d.at, name, &how) })
}

// retry calls open again when a signal came, and when a rename anywhere kept the kernel from being
// sure about a ".." (openat2(2), EAGAIN).
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
// It does not use os.ReadFile: the runtime would put the descriptor into its poller, and a driver
// of sysfs that answers EAGAIN would then be waited for without end. Here EAGAIN is an error as any
// other.
func (d *Directory) ReadFile(name string) ([]byte, error) {
	if d.inside != nil {
		return d.insideReadFile(name)
	}
	fd, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	defer unix.Close(fd)
	size := int64(-1)
	if !d.live {
		// A captured tree may have been planted: nothing but files is read. What it says of its
		// size is right, unlike sysfs and procfs.
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

// errNotRegular is the error of reading a device, a FIFO or a socket of a tree.
var errNotRegular = errors.New("not a regular file")

// buffers are of one sysfs file each: the kernel writes at most a page (Documentation/filesystems/sysfs.rst).
var buffers = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// readAll reads fd to its end. size is what the file system says it has, -1 where that is not to be believed.
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
	// Long: the buffer was filled. It grows by doubling, from the size where that is known and sane.
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

// readFull reads until b is full or the file ends. It stops without asking once more where the end
// is known: at the size of a file on a disk, and after a short read of an attribute of sysfs, which
// the kernel gives whole. Files of procfs come in pieces of any length, so they are asked until
// they say that they are at their end; the same goes for the file systems mounted below /sys.
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

// ReadDir returns what is in a directory, by name.
func (d *Directory) ReadDir(name string) ([]fs.DirEntry, error) {
	if d.inside != nil {
		return d.insideReadDir(name)
	}
	fd, err := d.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	defer unix.Close(fd)
	entries, err := d.readDir(fd, name)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	return entries, nil
}

// Stat describes what name stands for, through links.
func (d *Directory) Stat(name string) (fs.FileInfo, error) { return d.stat("stat", name, 0) }

// Lstat is Stat that does not follow a link at the end of name.
func (d *Directory) Lstat(name string) (fs.FileInfo, error) {
	return d.stat("lstat", name, unix.O_NOFOLLOW)
}

func (d *Directory) stat(op, name string, flags int) (fs.FileInfo, error) {
	var st unix.Stat_t
	switch {
	case !fs.ValidPath(name):
		return nil, pathError(op, name, fs.ErrInvalid)
	case d.inside != nil:
		return d.insideStat(op, name, flags == 0)
	case d.live:
		at := 0
		if flags != 0 {
			at = unix.AT_SYMLINK_NOFOLLOW
		}
		if err := unix.Fstatat(unix.AT_FDCWD, "/"+name, &st, at); err != nil {
			return nil, pathError(op, name, err)
		}
	default:
		fd, err := d.open(name, unix.O_PATH|flags)
		if err != nil {
			return nil, pathError(op, name, err)
		}
		defer unix.Close(fd)
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, pathError(op, name, err)
		}
	}
	return &statInfo{name: base(name), st: st}, nil
}

// ReadLink returns the target of a link as it is written.
func (d *Directory) ReadLink(name string) (string, error) {
	if d.inside != nil {
		return d.insideReadLink(name)
	}
	if !fs.ValidPath(name) {
		return "", pathError("readlink", name, fs.ErrInvalid)
	}
	var buf [4096]byte // PATH_MAX
	var n int
	var err error
	if d.live {
		n, err = unix.Readlink("/"+name, buf[:])
	} else {
		var fd int
		if fd, err = d.open(name, unix.O_PATH|unix.O_NOFOLLOW); err == nil {
			n, err = unix.Readlinkat(fd, "", buf[:])
			unix.Close(fd)
			if err == unix.ENOENT {
				err = syscall.EINVAL // what an empty name says of something that is not a link
			}
		}
	}
	if err != nil {
		return "", pathError("readlink", name, err)
	}
	return string(buf[:n]), nil
}

// statInfo is the fs.FileInfo of a stat(2).
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
	mode := fs.FileMode(s.st.Mode & 0o777)
	if s.st.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	switch s.st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	return mode
}
