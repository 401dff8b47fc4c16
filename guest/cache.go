package guest

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
	"time"

	"github.com/gofrs/flock"
)

// The cache holds one directory an image, named by the key of its recipe, with a manifest of its files. A directory is moved into place
// only when it is whole, so that what is there is either whole or was damaged later, which its sums show.

const manifestName = "manifest.json"

// errDamaged marks an entry whose files are not what its manifest says.
var errDamaged = errors.New("damaged")

type manifest struct {
	Image
	Files []fileSum `json:"files"`
}

type fileSum struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// A cacheEntry is the place of one image.
type cacheEntry struct{ root, key, dir string }

func entry(root, key string) cacheEntry {
	return cacheEntry{root: root, key: key, dir: filepath.Join(root, key)}
}

// open returns the image if its files are as they were built; an error is os.ErrNotExist, errDamaged or something in the way.
func (e cacheEntry) open(ctx context.Context) (*Image, error) {
	b, err := os.ReadFile(filepath.Join(e.dir, manifestName))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(e.dir); err == nil {
			return nil, fmt.Errorf("%w: %s has no %s", errDamaged, e.dir, manifestName)
		}
	}
	if err != nil {
		return nil, err
	}
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %s: %v", errDamaged, manifestName, err)
	}
	if m.Key != e.key {
		return nil, fmt.Errorf("%w: %s is of another image", errDamaged, manifestName)
	}
	for _, name := range []string{m.Kernel, m.Initramfs} {
		if !slices.ContainsFunc(m.Files, func(f fileSum) bool { return f.Name == name }) {
			return nil, fmt.Errorf("%w: %s has no sum of %q", errDamaged, manifestName, name)
		}
	}
	for _, want := range m.Files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		have, err := sumFile(filepath.Join(e.dir, filepath.Base(want.Name)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err != nil || have != want {
			return nil, fmt.Errorf("%w: %s is not what was built", errDamaged, want.Name)
		}
	}
	img := m.Image
	img.Dir = e.dir
	return &img, nil
}

// commit moves a finished directory into the entry's place. The caller holds the lock.
func (e cacheEntry) commit(out string, img *Image, files []string) error {
	var sums []fileSum
	for _, f := range files {
		s, err := sumFile(filepath.Join(out, f))
		if err != nil {
			return err
		}
		sums = append(sums, s)
	}
	b, err := img.marshalManifest(sums)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, manifestName), b, 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(e.dir); err != nil {
		return err
	}
	return os.Rename(out, e.dir)
}

// cacheError is an error of the cache's directory itself, with what to do.
func cacheError(err error) error {
	return fmt.Errorf("image cache: %w; set RACKLESS_CACHE to a directory that can be written", err)
}

// isNoSpace reports whether the reason of an error is a full disk or quota. Programs that were run say it in words alone.
func isNoSpace(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), "No space left on device"))
}

// buildPrefix begins the name of the directory in which an image is built; its key follows.
const buildPrefix = ".build-"

// sweep removes what builders that were killed have left. The lock of an image tells whether one is at work.
func sweep(root string) error {
	left, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, d := range left {
		key, ok := strings.CutPrefix(d.Name(), buildPrefix)
		if !ok || !d.IsDir() {
			continue
		}
		unlock, free, err := entry(root, key).tryLock()
		if err != nil {
			return err
		}
		if !free {
			continue
		}
		err = os.RemoveAll(filepath.Join(root, d.Name()))
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// lock makes the cache's directory and takes the entry's lock, waiting for another process that holds it.
func (e cacheEntry) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(e.root, 0o755); err != nil {
		return nil, cacheError(err)
	}
	l := flock.New(e.lockPath())
	if _, err := l.TryLockContext(ctx, lockPoll); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("lock %s: another process builds this image: %w", e.lockPath(), context.Cause(ctx))
		}
		return nil, cacheError(err)
	}
	return func() { l.Close() }, nil // the file stays, since removing it would race with a waiter
}

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 50 * time.Millisecond

func (e cacheEntry) lockPath() string { return filepath.Join(e.root, e.key+".lock") }

// tryLock is lock without waiting. A lock that another holds is not ok.
func (e cacheEntry) tryLock() (unlock func(), ok bool, err error) {
	l := flock.New(e.lockPath())
	ok, err = l.TryLock()
	return func() { l.Close() }, ok, err
}

func sumFile(path string) (fileSum, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileSum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return fileSum{}, fmt.Errorf("%s: %w", path, err)
	}
	return fileSum{Name: filepath.Base(path), Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// List returns the images in the cache that are whole, by key. damaged holds the keys of those that are not.
func List(ctx context.Context, cache string) (images []*Image, damaged []string, err error) {
	dirs, err := os.ReadDir(cache)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, d := range dirs {
		if !d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			continue
		}
		img, err := entry(cache, d.Name()).open(ctx)
		switch {
		case err == nil:
			images = append(images, img)
		case errors.Is(err, errDamaged):
			damaged = append(damaged, d.Name())
		default:
			return nil, nil, err
		}
	}
	slices.SortFunc(images, func(a, b *Image) int { return strings.Compare(a.Key, b.Key) })
	return images, damaged, nil
}

// Remove deletes the image with the key, or what is left of it.
func Remove(ctx context.Context, cache, key string) error {
	if key == "" || strings.ContainsAny(key, "/.") {
		return fmt.Errorf("image %q: not a key: see rackless image ls", key)
	}
	e := entry(cache, key)
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
