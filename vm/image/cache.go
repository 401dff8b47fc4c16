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

const manifestName = "manifest.json"

// ErrDamaged means that files do not match the manifest.
var ErrDamaged = errors.New("damaged")

// errOtherKind is possible because the kinds share one directory.
var errOtherKind = errors.New("an image of another kind")

type sum struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// An entry is the place of an image, which may be missing. A directory is moved there only when complete.
type entry struct{ root, key, dir string }

func at(root, key string) entry { return entry{root: root, key: key, dir: filepath.Join(root, key)} }

// workDir is the lock holder's. [vm.Sweep] removes it if its maker was killed.
func (e entry) workDir() string { return filepath.Join(e.root, buildPrefix+e.key) }

// open verifies all files of an image. The error is os.ErrNotExist, ErrDamaged, errOtherKind or an I/O error, and comes
// with as much as could be read.
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

// check only compares sizes on a read-only file system: an emulated host gets rackless on such a disk, verified by its
// maker, and a full check takes 20 s on an emulated CPU.
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

// commit moves a finished directory to the entry's place. The caller holds the lock.
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
	// Running QEMUs keep the files of a damaged image open.
	if err := os.RemoveAll(e.dir); err != nil {
		return err
	}
	img.Dir = e.dir
	return atomicfile.Rename(finished, e.dir)
}

func unusable(err error) error {
	return fmt.Errorf("image cache: %w; set RACKLESS_CACHE to a directory that can be written", err)
}

// isNoSpace also finds a full disk or quota in text, as programs report it.
func isNoSpace(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		strings.Contains(err.Error(), "No space left on device"))
}

const buildPrefix = ".build-"

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

// Remove deletes an image of any kind from the cache directory root, even if incomplete.
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

func cannotChange(path string) bool {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, syscall.EROFS)
}

// sumFile stops if ctx is done: an image may have a gigabyte.
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
