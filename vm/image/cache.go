package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/vm"
)

// manifestName is the file in an image's directory that describes it.
const manifestName = "manifest.json"

// ErrDamaged marks an image whose files are not what its manifest says.
var ErrDamaged = errors.New("damaged")

// errOtherKind is an entry that holds an image of another kind than the one asked for: the kinds share one directory.
var errOtherKind = errors.New("an image of another kind")

// A sum is one file of an image as it was built.
type sum struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// An entry is the place of one image, whether it is there or not. A directory is moved there only
// when it is whole, so that what is there is either whole or was damaged later, which its sums show.
type entry struct{ root, key, dir string }

// at returns the entry of the image with the key in the cache's directory root.
func at(root, key string) entry { return entry{root: root, key: key, dir: filepath.Join(root, key)} }

// workDir is where the holder of the entry's lock makes the image. It is removed by [vm.Sweep] if its maker was killed.
func (e entry) workDir() string { return filepath.Join(e.root, buildPrefix+e.key) }

// open reads the manifest of an image of a kind and checks that all files are as they were built. An
// error is os.ErrNotExist, ErrDamaged, errOtherKind or something in the way; with it comes as much of
// the image as there was to read.
func (e entry) open(ctx context.Context, kind string) (*Image, error) {
	img, err := e.manifest()
	if err != nil {
		return img, err
	}
	if img.Name != kind {
		return img, errOtherKind
	}
	return img, img.check(ctx)
}

// manifest reads the manifest of an image, and nothing else of it.
func (e entry) manifest() (*Image, error) {
	img := &Image{Dir: e.dir}
	b, err := os.ReadFile(filepath.Join(e.dir, manifestName))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(e.dir); err == nil {
			return img, fmt.Errorf("%w: %s has no %s", ErrDamaged, e.dir, manifestName)
		}
	}
	if err != nil {
		return img, err
	}
	if err := json.Unmarshal(b, img); err != nil {
		return img, fmt.Errorf("%w: %s: %v", ErrDamaged, manifestName, err)
	}
	if img.Key != e.key {
		return img, fmt.Errorf("%w: %s is of another image", ErrDamaged, manifestName)
	}
	return img, nil
}

// check reads all files of an image through. On a file system that cannot be written, such as the disk by which an
// emulated host gets rackless, their sizes are enough: whoever made it has checked them, and it takes an emulated CPU
// 20 s.
func (i *Image) check(ctx context.Context) error {
	for _, name := range i.files() {
		if !slices.ContainsFunc(i.Sums, func(f sum) bool { return f.Name == name }) {
			return fmt.Errorf("%w: %s has no sum of %q", ErrDamaged, manifestName, name)
		}
	}
	sealed := cannotChange(filepath.Join(i.Dir, manifestName))
	for _, want := range i.Sums {
		path, have := filepath.Join(i.Dir, filepath.Base(want.Name)), want
		fi, err := os.Stat(path)
		if err == nil && (!sealed || fi.Size() != want.Size) {
			have, err = sumFile(ctx, path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err != nil || have != want {
			return fmt.Errorf("%w: %s is not what was built", ErrDamaged, want.Name)
		}
	}
	return nil
}

// commit moves a finished directory, which holds the files of the image, into the entry's place. The
// caller holds the lock.
func (e entry) commit(ctx context.Context, finished string, img *Image) error {
	for _, f := range img.files() {
		s, err := sumFile(ctx, filepath.Join(finished, f))
		if err != nil {
			return err
		}
		img.Sums = append(img.Sums, s)
	}
	b, err := json.MarshalIndent(img, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(finished, manifestName), b, 0o644); err != nil {
		return err
	}
	// A damaged image is replaced. QEMUs that use its files keep them open.
	if err := os.RemoveAll(e.dir); err != nil {
		return err
	}
	img.Dir = e.dir
	return atomicfile.Rename(finished, e.dir)
}

// unusable is an error of the cache's directory itself, with what to do.
func unusable(err error) error {
	return fmt.Errorf("image cache: %w; set RACKLESS_CACHE to a directory that can be written", err)
}

// isNoSpace reports whether the reason of an error is a full disk or quota. Programs that were run
// say it in words alone.
func isNoSpace(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		strings.Contains(err.Error(), "No space left on device"))
}

// buildPrefix begins the name of the directory in which an image is built; its key follows.
const buildPrefix = ".build-"

// lock makes the cache's directory and takes the entry's lock, waiting for another process that holds it.
func (e entry) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(e.root, 0o755); err != nil {
		return nil, unusable(err)
	}
	unlock, err = vm.Lock(ctx, e.root, e.key, func() {})
	switch {
	case err == nil:
		return unlock, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("lock %s.lock: another process builds this image: %w", e.dir, context.Cause(ctx))
	}
	return nil, unusable(err)
}

// Remove deletes the image with the key from the cache's directory root, whatever kind it is of, or
// what is left of it.
func Remove(ctx context.Context, root, key string) error {
	if key == "" || strings.ContainsAny(key, "/.") {
		return fmt.Errorf("image %q: not a key: see rackless image ls", key)
	}
	e := at(root, key)
	if _, err := os.Stat(e.dir); err != nil {
		return fmt.Errorf("image %s: not in the cache: see rackless image ls", key)
	}
	unlock, err := e.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return os.RemoveAll(e.dir)
}

// cannotChange reports whether a file is on a file system that cannot be written.
func cannotChange(path string) bool {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, syscall.EROFS)
}

// sumFile reads a file through. It ends early with ctx: an image may have a gigabyte.
func sumFile(ctx context.Context, path string) (sum, error) {
	f, err := os.Open(path)
	if err != nil {
		return sum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, untilDone{ctx, f})
	if ctx.Err() != nil {
		return sum{}, context.Cause(ctx)
	}
	if err != nil {
		return sum{}, fmt.Errorf("%s: %w", path, err)
	}
	return sum{Name: filepath.Base(path), Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// untilDone reads until its context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}
