// Package directory keeps the artefacts of a plan in a separate directory with checksums. It replaces only an earlier
// plan without changes.
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

// These two files show that a directory belongs to a plan and is unmodified.
const (
	planFile = "plan.json"
	sumsFile = "SHA256SUMS"
)

// WithSums adds checksums in the format of sha256sum, which skips lines that begin with #.
func WithSums(files []render.Artifact, made string) []render.Artifact {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n# sha256sum -c %s says what has been changed since.\n", strings.Join(strings.Fields(made),
		" "), sumsFile)
	for _, f := range files {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(f.Data), f.Path)
	}
	return append(files[:len(files):len(files)], render.Artifact{Path: sumsFile, Mode: 0o644, Data: b.Bytes()})
}

// Write makes dir a directory with exactly these files, in one step, so that dir is always whole. It replaces only an
// unmodified plan; otherwise the error is a *RefusedError.
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
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }() // contains the earlier plan on success
	fresh := filepath.Join(work, "plan")
	if err := os.Mkdir(fresh, 0o755); err != nil { // only its owner may enter work itself
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

// A RefusedError gives the reason for not writing.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// destination resolves the links of the existing part.
func destination(path string) (string, error) {
	if path == "" {
		return "", errors.New("no directory is named")
	}
	dir, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(dir); err == nil {
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return "", err
		}
	}
	// Replacing the current directory would leave this process and its shell in a removed one.
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

func writeBelow(dir string, files []render.Artifact) error {
	root, err := os.OpenRoot(dir) // artefact paths cannot lead out of it
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

// putInPlace makes fresh the directory dir. The former dir is then at the path of fresh, or removed. swap fails on NFS
// and other file systems without the flags of renameat2; there, dir is missing for a moment but never lost.
func putInPlace(fresh, dir string, swap func(a, b string) error) error {
	if err := atomicfile.SyncTree(fresh); err != nil {
		return err
	}
	err := swap(fresh, dir)
	switch {
	case err == nil:
		return atomicfile.SyncDir(filepath.Dir(dir))
	case errors.Is(err, fs.ErrNotExist): // fresh exists
		return atomicfile.Rename(fresh, dir)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EOPNOTSUPP):
	default:
		return err
	}
	aside := filepath.Dir(fresh) + ".old" // as unique as the temporary directory, but stays
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

// replaceable returns nil if dir does not exist, and an error unless it is empty or an unmodified plan: user files must
// not be deleted.
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
