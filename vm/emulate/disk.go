package emulate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm"
)

const toolsLabel = "rackless"

// toolsSize is equal for all, so that a clone may have another disk than its template. The file is sparse.
const toolsSize = 1 * lab.GiB

// Tools are the contents of a host's second disk: this program, and files that the host would have to build.
type Tools struct {
	Program string            // path of the rackless program
	Files   map[string]string // path on the disk to path here
}

// MakeTools returns the path of the image of the second disk, which it makes unless one with these contents exists.
func MakeTools(ctx context.Context, dir string, t Tools, progress func(string)) (string, error) {
	key, err := t.key()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, key+".ext4")
	// For pruneTools.
	now := time.Now()
	if err := os.Chtimes(path, now, now); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := vm.Lock(ctx, dir, "", func() {})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	progress("write this rackless and the image of nested nodes to a disk")
	work := filepath.Join(dir, ".new")
	if err := os.RemoveAll(work); err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	tree := filepath.Join(work, "tree")
	if err := copyFile(filepath.Join(tree, "bin/rackless"), t.Program, 0o755); err != nil {
		return "", err
	}
	for to, from := range t.Files {
		if err := os.CopyFS(filepath.Join(tree, to), os.DirFS(from)); err != nil {
			return "", err
		}
	}
	img := filepath.Join(work, "img")
	if err := vm.RunTool(ctx, "mke2fs", "e2fsprogs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0",
		"-m", "0", "-L", toolsLabel, "-d", tree, img,
		strconv.FormatInt(int64(toolsSize/lab.KiB), 10)+"k"); err != nil {
		return "", err
	}
	if err := atomicfile.Rename(img, path); err != nil { // it is never verified again
		return "", err
	}
	return path, pruneTools(dir, now)
}

const toolsAge = 24 * time.Hour

// pruneTools removes the images of older builds. A running host keeps its open image.
func pruneTools(dir string, now time.Time) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".ext4" {
			continue
		}
		fi, err := f.Info()
		if err == nil && now.Sub(fi.ModTime()) > toolsAge {
			err = os.Remove(filepath.Join(dir, f.Name()))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (t Tools) key() (string, error) {
	h := sha256.New()
	add := func(to, from string) error {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d %o\n", to, fi.Size(), fi.Mode().Perm())
		_, err = io.Copy(h, f)
		return err
	}
	err := add("bin/rackless", t.Program)
	for _, to := range slices.Sorted(maps.Keys(t.Files)) {
		from := t.Files[to]
		err = errors.Join(err, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			rel, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			return add(filepath.Join(to, rel), path)
		}))
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), err
}

func copyFile(to, from string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
