// Package atomicfile writes files that are there whole or not at all: a reader sees the old contents or the new
// ones, also after a power cut.
//
// That takes more than a rename. Without fsync a file system may put the new name on the disk before the contents,
// and a power cut in between leaves an empty file under a good name.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// WriteFile writes data to a file as [Write] does.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	return Write(path, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write replaces the contents of a file by what fill writes. An existing file keeps its mode, and a new one gets perm,
// less the umask. A symbolic link stays, and the file that it points to is replaced. What is not a regular file
// is an error: to write to a device such as /dev/null would be to put a file in its place.
func Write(path string, perm fs.FileMode, fill func(io.Writer) error) (err error) {
	old, err := os.Lstat(path)
	if err == nil && old.Mode()&fs.ModeSymlink != 0 {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			old, err = os.Stat(path)
		}
		if err != nil {
			return err // also of a link to nothing
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !old.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file, and cannot be replaced by one", path)
	}
	// The name is new each time, so that two writers do not share a file.
	tmp := fmt.Sprintf("%s.%.8s.new", path, rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	err = fill(f)
	if old != nil {
		err = errors.Join(err, f.Chmod(old.Mode().Perm()))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return Rename(tmp, path)
}

// Rename gives a complete file, link or directory another name. It forces the contents to the disk first and the new
// name afterwards. Like [os.Rename], it replaces a file.
func Rename(from, to string) error {
	if err := SyncTree(from); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
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
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, unix.EINVAL) { // which some network file systems say of a directory
		return err
	}
	return nil
}
