// Package directory keeps the artefacts of a plan in their own directory, with checksums: it replaces only an earlier
// plan that has not been changed.
package directory

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
)

// A directory is known to be of a plan, and untouched since, by these two files: then it may be replaced.
const (
	planFile = "plan.json"
	sumsFile = "SHA256SUMS"
)

// WithSums adds the file with the checksums of the others, in the form of sha256sum, which passes
// over lines that begin with #.
func WithSums(files []render.Artifact, made string) []render.Artifact {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n# sha256sum -c %s says what has been changed since.\n", strings.Join(strings.Fields(made),
		" "), sumsFile)
	for _, f := range files {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(f.Data), f.Path)
	}
	return append(files[:len(files):len(files)], render.Artifact{Path: sumsFile, Mode: 0o644, Data: b.Bytes()})
}

// Write makes dir a directory with these files and nothing else. They are written beside
// it and put in its place in one step, so that it holds the earlier plan or this one, whole,
// whatever comes between. What is there is replaced only if it is an earlier plan that nobody has
// touched; else the error is a *RefusedError.
func Write(dir string, files []render.Artifact) (err error) {
	dir, err = destination(dir)
	if err != nil {
		return &RefusedError{err}
	}
	old, err := replaceable(dir)
	if err != nil {
		return &RefusedError{err}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".rackless-plan-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }() // with the earlier plan in it, if all went well
	fresh := filepath.Join(work, "plan")
	if err := os.Mkdir(fresh, 0o755); err != nil { // not work itself, which only its owner may enter
		return err
	}
	if err := writeBelow(fresh, files); err != nil {
		return err
	}
	if old != nil {
		if err := os.Chmod(fresh, old.Mode().Perm()); err != nil {
			return err
		}
	}
	return putInPlace(fresh, dir, exchange)
}

// A RefusedError says why a directory is not written to.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// destination returns the directory that a path stands for, absolute and without links, as far as it is there.
func destination(path string) (string, error) {
	if path == "" {
		return "", errors.New("no directory is named")
	}
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	// A link stays where it is, and what it points to is replaced.
	if _, err := os.Lstat(dir); err == nil {
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return "", err
		}
	}
	// Whoever stands in a directory that is replaced, stands in one that is gone.
	here, err := os.Getwd()
	if err == nil {
		here, err = filepath.EvalSymlinks(here)
	}
	if err != nil {
		return "", err
	}
	if inside, err := filepath.Rel(dir, here); err == nil && filepath.IsLocal(inside) {
		return "", fmt.Errorf("%s is the current directory, or holds it, and cannot be replaced: name a "+
			"directory in it", path)
	}
	return dir, nil
}

// writeBelow writes files below a directory.
func writeBelow(dir string, files []render.Artifact) error {
	root, err := os.OpenRoot(dir) // no path of an artefact leads out of it
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range files {
		if err := root.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(f.Path, f.Data, f.Mode.Perm()); err != nil {
			return err
		}
	}
	return nil
}

// putInPlace makes fresh the directory dir. What was dir is then where fresh was, or gone. The two
// change places by swap, which is a parameter so that tests can be on a file system that cannot do
// it (NFS, and what knows no flags of renameat2): there dir is missing for a moment, and is never
// lost.
func putInPlace(fresh, dir string, swap func(a, b string) error) error {
	if err := atomicfile.SyncTree(fresh); err != nil {
		return err
	}
	err := swap(fresh, dir)
	switch {
	case err == nil:
		return atomicfile.SyncDir(filepath.Dir(dir))
	case errors.Is(err, fs.ErrNotExist): // dir, since fresh is there
		return atomicfile.Rename(fresh, dir)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EOPNOTSUPP):
	default:
		return err
	}
	aside := filepath.Dir(fresh) + ".old" // as unique as the temporary directory, and not removed with it
	if err := atomicfile.Rename(dir, aside); err != nil {
		return err
	}
	if err := atomicfile.Rename(fresh, dir); err != nil {
		if back := atomicfile.Rename(aside, dir); back != nil {
			return fmt.Errorf("%w; the earlier plan is in %s now: %w", err, aside, back)
		}
		return err
	}
	return os.RemoveAll(aside)
}

// replaceable returns what is at dir now, nil where there is nothing, and an error where it is
// anything but an empty directory or an earlier plan as it was written: what somebody has put there
// or changed by hand is not for this program to delete.
func replaceable(dir string) (fs.FileInfo, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return info, nil
	}
	sums, err := readSums(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: there is something else than a plan in it: name a new directory", dir)
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == sumsFile {
			return err
		}
		sum, ours := sums[filepath.ToSlash(name)]
		if !ours || !e.Type().IsRegular() {
			return fmt.Errorf("%s: %q is not of the plan that was written there: move it away, or name a new directory",
				dir, name)
		}
		data, err := userfile.Read(path, userfile.Document)
		if err != nil {
			return err
		}
		if fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			return fmt.Errorf("%s: %q has been changed since it was written: move it away, or name a new directory",
				dir, name)
		}
		return nil
	})
	return info, err
}

// readSums reads the checksums of a directory that holds a plan.
func readSums(dir string) (map[string]string, error) {
	var marker struct {
		Schema string `json:"schema"`
	}
	data, err := userfile.Read(filepath.Join(dir, planFile), userfile.Document)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &marker); err != nil {
		return nil, err
	}
	if marker.Schema != plan.Schema {
		return nil, fmt.Errorf("schema %q", marker.Schema)
	}
	if data, err = userfile.Read(filepath.Join(dir, sumsFile), userfile.Document); err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  "); ok {
			sums[name] = sum
		}
	}
	return sums, nil
}
