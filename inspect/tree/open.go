package tree

import (
	"io"
	"io/fs"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open opens a file or directory, and nothing else. ReadFile and ReadDir cost less; a file of which
// only parts are wanted, such as the configuration space of a PCI function, is better opened: it is
// an io.ReaderAt.
func (d *Directory) Open(name string) (fs.File, error) {
	var fd int
	var err error
	if d.inside != nil {
		f, err := d.insideOpen(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return nil, pathError("open", name, err)
		}
	} else if fd, err = d.open(name, unix.O_RDONLY); err != nil {
		return nil, pathError("open", name, err)
	}
	f := &sysFile{tree: d, name: name, fd: fd}
	info, err := f.Stat()
	if err == nil && !d.live && !info.Mode().IsRegular() && !info.IsDir() {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, pathError("open", name, cause(err))
	}
	return f, nil
}

// sysFile is an open file or directory of this machine. Like ReadFile, it keeps clear of the runtime's poller.
type sysFile struct {
	tree *Directory
	name string

	mu     sync.Mutex
	fd     int // -1 when closed
	list   []fs.DirEntry
	listed bool
}

// with calls do with the descriptor, which cannot be closed meanwhile.
func (f *sysFile) with(op string, do func(fd int) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd < 0 {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if err := do(f.fd); err != nil {
		return pathError(op, f.name, err)
	}
	return nil
}

func (f *sysFile) Close() error {
	return f.with("close", func(fd int) error {
		f.fd = -1
		return unix.Close(fd)
	})
}

func (f *sysFile) Stat() (fs.FileInfo, error) {
	info := &statInfo{name: base(f.name)}
	err := f.with("stat", func(fd int) error { return unix.Fstat(fd, &info.st) })
	if err != nil {
		return nil, err
	}
	return info, nil
}

// again calls read until no signal disturbs it.
func again(read func() (int, error)) (int, error) {
	for {
		n, err := read()
		if err == unix.EINTR {
			continue
		}
		return max(n, 0), err
	}
}

func (f *sysFile) Read(b []byte) (n int, err error) {
	err = f.with("read", func(fd int) (err error) {
		n, err = again(func() (int, error) { return unix.Read(fd, b) })
		return err
	})
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

func (f *sysFile) ReadAt(b []byte, at int64) (n int, err error) {
	if at < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	for n < len(b) && err == nil {
		err = f.with("read", func(fd int) error {
			m, err := again(func() (int, error) { return unix.Pread(fd, b[n:], at+int64(n)) })
			n += m
			if err == nil && m == 0 {
				return io.EOF
			}
			return err
		})
	}
	if cause(err) == io.EOF {
		err = io.EOF
	}
	return n, err
}

func (f *sysFile) ReadDir(n int) ([]fs.DirEntry, error) {
	err := f.with("readdir", func(fd int) (err error) {
		if !f.listed {
			f.list, err = f.tree.readDir(fd, f.name)
			f.listed = err == nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.list
	if n > 0 {
		if len(out) == 0 {
			return nil, io.EOF
		}
		out = out[:min(n, len(out)):min(n, len(out))]
	}
	f.list = f.list[len(out):]
	return out, nil
}
