// Package atomicfile writes files completely or not at all: a reader sees the old content or the new content, even
// after a power cut.
//
// That takes more than a rename. Without fsync a file system may put the new name on the disk before the contents,
// and a power cut in between leaves an empty file under a good name.
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

// WriteFile writes data to a file as [Write] does.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return Write(path, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write replaces the contents of a file by what fill writes, as [Create] does. An error of fill leaves the old ones.
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

// WriteJSON writes a value as JSON, for its owner alone, as [Write] does.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return WriteFile(path, data, 0o600)
}

// ReadJSON reads what WriteJSON has written. Its errors have the path.
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

// A File is a new file beside the one whose place it takes with Commit.
type File struct {
	*os.File
	path string      // where it goes to
	old  fs.FileInfo // what is there; nil if nothing is
}

// Create begins a file that takes the place of the one at path. An existing file keeps its mode, and a new one gets
// perm, less the umask. A symbolic link stays, and the file that it points to is replaced. What is not a regular file
// is an error: to write to a device such as /dev/null would be to put a file in its place.
func Create(path string, perm fs.FileMode) (*File, error) {
	old, err := os.Stat(path)
	switch link, linkErr := os.Lstat(path); {
	case err == nil && !old.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file, and cannot be replaced by one", path)
	case linkErr == nil && link.Mode()&fs.ModeSymlink != 0:
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err // also of a link to nothing
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	// The name is new each time, so that two writers do not share a file.
	tmp := fmt.Sprintf("%s.%.8s.new", path, rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			e.Path = path // which the user knows
		}
		return nil, err
	}
	return &File{f, path, old}, nil
}

// Commit closes the file and gives it its name. Where that fails, nothing has changed.
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

// Rename gives a complete file, link or directory another name. It forces the contents to the disk first and the new
// name afterwards. Like [os.Rename], it replaces a file.
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

// SyncTree forces a regular file, or all files and directories below a directory, to the disk.
func SyncTree(path string) error {
	return filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err // a link has no contents, and must not be followed
		}
		return SyncDir(p)
	})
}

// SyncDir forces the names in a directory to the disk.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" { // which cannot
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) { // which some network file systems say of a directory
		return err
	}
	return nil
}
