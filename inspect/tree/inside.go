package tree

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// These are the methods of a Directory where the kernel has no openat2. os.Root refuses absolute links and those that lead out of the root, so
// the links are resolved first, as openat2 would, and os.Root gets names without any. Should the tree change in between, it still holds.

// insideName returns the name without links.
func (d *Directory) insideName(op, name string, follow bool) (string, error) {
	resolved, err := resolve(name, follow, func(name string) (string, error) {
		target, err := d.inside.Readlink(name)
		if err != nil {
			return "", cause(err)
		}
		return target, nil
	})
	if err != nil {
		return "", pathError(op, name, err)
	}
	return resolved, nil
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
	resolved, err := d.insideName("open", name, true)
	if err != nil {
		return nil, err
	}
	f, err := d.inside.OpenFile(resolved, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, pathError("open", name, cause(err))
	}
	return f, nil
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
	resolved, err := d.insideName(op, name, follow)
	if err != nil {
		return nil, err
	}
	info, err := d.inside.Lstat(resolved)
	if err != nil {
		return nil, pathError(op, name, cause(err))
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
	resolved, err := d.insideName("readlink", name, false)
	if err != nil {
		return "", err
	}
	target, err := d.inside.Readlink(resolved)
	if err != nil {
		return "", pathError("readlink", name, cause(err))
	}
	return target, nil
}
