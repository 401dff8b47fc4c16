// Package imagecache keeps images that take long to make: one directory an image, named by the key
// of its recipe, with a manifest of its files. A directory is moved into place only when it is
// whole, so that what is there is either whole or was damaged later, which its sums show. What an
// image is, and how it is made, is the caller's business.
package imagecache

import (
	"bytes"
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

// ManifestName is the file in an image's directory that describes it.
const ManifestName = "manifest.json"

// ErrDamaged marks an entry whose files are not what its manifest says.
var ErrDamaged = errors.New("damaged")

// ErrOtherKind is an entry that holds an image of another kind than the one asked for: the kinds share one directory.
var ErrOtherKind = errors.New("an image of another kind")

// A sum is one file of an image as it was built.
type sum struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// An Entry is the place of one image, whether it is there or not.
type Entry struct{ root, key, dir string }

// At returns the entry of the image with the key in the cache's directory root.
func At(root, key string) Entry {
	return Entry{root: root, key: key, dir: filepath.Join(root, key)}
}

// Dir is the directory of the finished image.
func (e Entry) Dir() string { return e.dir }

// WorkDir is where the holder of the entry's lock makes the image. It is removed by [Sweep] if its maker was killed.
func (e Entry) WorkDir() string { return filepath.Join(e.root, buildPrefix+e.key) }

// Open decodes the manifest into image and checks that all files are as they were built. image is a
// pointer to a struct whose JSON has the key as "key"; names looks at the decoded image and returns
// the files that it cannot do without, or [ErrOtherKind]. An error is os.ErrNotExist, ErrDamaged,
// that of names or something in the way.
func (e Entry) Open(ctx context.Context, image any, names func() ([]string, error)) error {
	b, err := os.ReadFile(filepath.Join(e.dir, ManifestName))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(e.dir); err == nil {
			return fmt.Errorf("%w: %s has no %s", ErrDamaged, e.dir, ManifestName)
		}
	}
	if err != nil {
		return err
	}
	var m struct {
		Key   string `json:"key"`
		Files []sum  `json:"files"`
	}
	if err := errors.Join(json.Unmarshal(b, &m), json.Unmarshal(b, image)); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrDamaged, ManifestName, err)
	}
	if m.Key != e.key {
		return fmt.Errorf("%w: %s is of another image", ErrDamaged, ManifestName)
	}
	required, err := names()
	if err != nil {
		return err
	}
	for _, name := range required {
		if !slices.ContainsFunc(m.Files, func(f sum) bool { return f.Name == name }) {
			return fmt.Errorf("%w: %s has no sum of %q", ErrDamaged, ManifestName, name)
		}
	}
	for _, want := range m.Files {
		have, err := sumFile(ctx, filepath.Join(e.dir, filepath.Base(want.Name)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err != nil || have != want {
			return fmt.Errorf("%w: %s is not what was built", ErrDamaged, want.Name)
		}
	}
	return nil
}

// Commit moves a finished directory, which holds the files, into the entry's place. image becomes
// the manifest; see [Entry.Open]. The caller holds the lock.
func (e Entry) Commit(ctx context.Context, finished string, image any, files ...string) error {
	var sums []sum
	for _, f := range files {
		s, err := sumFile(ctx, filepath.Join(finished, f))
		if err != nil {
			return err
		}
		sums = append(sums, s)
	}
	b, err := manifest(image, sums)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(finished, ManifestName), b, 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(e.dir); err != nil {
		return err
	}
	return os.Rename(finished, e.dir)
}

// manifest returns the JSON object of the image with one more member, the sums.
func manifest(image any, sums []sum) ([]byte, error) {
	head, err := json.Marshal(image)
	if err != nil {
		return nil, err
	}
	tail, err := json.Marshal(sums)
	if err != nil {
		return nil, err
	}
	object, ok := bytes.CutSuffix(head, []byte("}"))
	if !ok || len(object) < 2 { // at least the key
		return nil, fmt.Errorf("manifest of %T: not an object with a key: %s", image, head)
	}
	var out bytes.Buffer
	err = json.Indent(&out, slices.Concat(object, []byte(`,"files":`), tail, []byte("}")), "", "  ")
	return out.Bytes(), err
}

// Unusable is an error of the cache's directory itself, with what to do.
func Unusable(err error) error {
	return fmt.Errorf("image cache: %w; set RACKLESS_CACHE to a directory that can be written", err)
}

// IsNoSpace reports whether the reason of an error is a full disk or quota. Programs that were run
// say it in words alone.
func IsNoSpace(err error) bool {
	return err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		strings.Contains(err.Error(), "No space left on device"))
}

// buildPrefix begins the name of the directory in which an image is built; its key follows.
const buildPrefix = ".build-"

// Sweep removes what builders that were killed have left. The lock of an image tells whether one is at work.
func Sweep(root string) error {
	left, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, d := range left {
		key, ok := strings.CutPrefix(d.Name(), buildPrefix)
		if !ok || !d.IsDir() {
			continue
		}
		unlock, free, err := At(root, key).tryLock()
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

// Lock makes the cache's directory and takes the entry's lock, waiting for another process that holds it.
func (e Entry) Lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(e.root, 0o755); err != nil {
		return nil, Unusable(err)
	}
	l := flock.New(e.lockPath())
	if _, err := l.TryLockContext(ctx, lockPoll); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("lock %s: another process builds this image: %w", e.lockPath(), context.Cause(ctx))
		}
		return nil, Unusable(err)
	}
	return func() { l.Close() }, nil // the file stays, since removing it would race with a waiter
}

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 50 * time.Millisecond

func (e Entry) lockPath() string { return filepath.Join(e.root, e.key+".lock") }

// tryLock is Lock without waiting. A lock that another holds is not ok.
func (e Entry) tryLock() (unlock func(), ok bool, err error) {
	l := flock.New(e.lockPath())
	ok, err = l.TryLock()
	return func() { l.Close() }, ok, err
}

// Keys returns the keys of the images in the cache, whole or not, sorted. A cache that is not there has none.
func Keys(root string) ([]string, error) {
	dirs, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, d := range dirs {
		if d.IsDir() && !strings.HasPrefix(d.Name(), ".") {
			keys = append(keys, d.Name())
		}
	}
	return keys, nil
}

// Remove deletes the image with the key, or what is left of it.
func Remove(ctx context.Context, root, key string) error {
	if key == "" || strings.ContainsAny(key, "/.") {
		return fmt.Errorf("image %q: not a key: see rackless image ls", key)
	}
	e := At(root, key)
	if _, err := os.Stat(e.dir); err != nil {
		return fmt.Errorf("image %s: not in the cache: see rackless image ls", key)
	}
	unlock, err := e.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return os.RemoveAll(e.dir)
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
