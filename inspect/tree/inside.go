package tree

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// These are the methods of a Directory where the kernel has no openat2. os.Root follows links too,
// but refuses absolute ones, those that lead out of the root, and long chains. Where it refuses,
// the links are resolved here, as openat2 would, and os.Root gets a name without any; should the
// tree change in between, it still holds.

// inside calls do with a name below the root: the given one, or, where os.Root refuses that, the one without links.
func inside[T any](d *Directory, op, name string, follow bool, do func(name string) (T, error)) (T, error) {
	var none T
	if !fs.ValidPath(name) {
		return none, pathError(op, name, fs.ErrInvalid)
	}
	v, err := do(name)
	if err != nil && !isPlain(err) {
		var resolved string
		resolved, err = resolve(name, follow, func(name string) (string, error) {
			target, err := d.inside.Readlink(name)
			return target, cause(err)
		})
		if err == nil {
			v, err = do(resolved)
		}
	}
	if err != nil {
		return none, pathError(op, name, cause(err))
	}
	return v, nil
}

// isPlain reports whether an error of os.Root is one of the kernel about the file itself, rather
// than a refusal to follow a link.
func isPlain(err error) bool {
	for _, plain := range []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrClosed, syscall.ENOTDIR, syscall.EINVAL} {
		if errors.Is(err, plain) {
			return true
		}
	}
	return false
}

// cause returns what went wrong without operation and name, which are those of a step and not of the caller.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (d *Directory) insideOpen(name string) (*os.File, error) {
	return inside(d, "open", name, true, func(name string) (*os.File, error) {
		return d.inside.OpenFile(name, os.O_RDONLY|openFlags, 0)
	})
}

func (d *Directory) insideReadFile(name string) ([]byte, error) {
	f, err := d.insideOpen(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, pathError("stat", name, cause(err))
	case info.IsDir():
		return nil, pathError("read", name, syscall.EISDIR)
	case !info.Mode().IsRegular():
		return nil, pathError("read", name, errNotRegular)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRead+1))
	if err == nil && len(b) > maxRead {
		err = syscall.EFBIG
	}
	if err != nil {
		return nil, pathError("read", name, cause(err))
	}
	return b, nil
}

func (d *Directory) insideReadDir(name string) ([]fs.DirEntry, error) {
	f, err := d.insideOpen(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := d.readDir(int(f.Fd()), name)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	return entries, nil
}

func (d *Directory) insideStat(op, name string, follow bool) (fs.FileInfo, error) {
	stat := d.inside.Lstat
	if follow {
		stat = d.inside.Stat
	}
	info, err := inside(d, op, name, follow, stat)
	if err != nil {
		return nil, err
	}
	return renamed{info, base(name)}, nil
}

// renamed is the information about a file that was reached by another name, through a link.
type renamed struct {
	fs.FileInfo
	name string
}

func (r renamed) Name() string { return r.name }

func (d *Directory) insideReadLink(name string) (string, error) {
	return inside(d, "readlink", name, false, d.inside.Readlink)
}
