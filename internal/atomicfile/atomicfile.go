// Package atomicfile writes files completely or not at all. A rename alone is not enough: without fsync a power cut may
// leave an empty file under the final name.
package atomicfile

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/rackless/rackless/internal/trace"
)

// WriteFile is like [Write].
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return Write(path, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write is like [Create]. If fill fails, the old contents stay.
func Write(path string, perm fs.FileMode, fill func(io.Writer) error) error {
	f, err := Create(path, perm)
	if err != nil {
		return err
	}
	if err := fill(f); err != nil {
		return errors.Join(err, f.Discard())
	}
	return f.Commit()
}

// WriteJSON writes files that only the owner can read.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteFile(path, data, 0o600)
}

// ReadJSON reads a file of WriteJSON. Its errors contain the path.
func ReadJSON(path string, to any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// A File is a new file that Commit puts in the place of another.
type File struct {
	*os.File
	path string // final path
	old  fs.FileInfo
}

// Create begins a file that will replace the file at path, or a link's target. An existing file keeps its mode, and a
// new one gets perm, less the umask. Replacing a device such as /dev/null by a file would break it, so that is an
// error.
func Create(path string, perm fs.FileMode) (*File, error) {
	old, err := os.Stat(path)
	switch link, linkErr := os.Lstat(path); {
	case err == nil && !old.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file, and cannot be replaced by one", path)
	case linkErr == nil && link.Mode()&fs.ModeSymlink != 0:
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err // includes dangling links
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	// A random name, so that two writers do not share a file.
	tmp := fmt.Sprintf("%s.%.8s.new", path, rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			e.Path = path
		}
		return nil, err
	}
	return &File{f, path, old}, nil
}

// Commit closes and renames the file. On error nothing has changed.
func (f *File) Commit() (err error) {
	if f.old != nil {
		err = f.Chmod(f.old.Mode().Perm())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = Rename(f.Name(), f.path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// Discard closes and removes the file.
func (f *File) Discard() error { return errors.Join(f.Close(), os.Remove(f.Name())) }

// Rename syncs the contents before the rename and the directory after it. Like [os.Rename], it replaces a file.
func Rename(from, to string) error {
	if err := SyncTree(from); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	trace.Changes("write %s", to)
	return SyncDir(filepath.Dir(to))
}

// SyncTree syncs a file, or a whole directory.
func SyncTree(path string) error {
	return filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err // a link must not be followed
		}
		return SyncDir(p)
	})
}

// SyncDir syncs the names in a directory.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" { // Windows cannot sync directories
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) { // some network file systems return EINVAL for directories
		return err
	}
	return nil
}
