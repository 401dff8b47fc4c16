package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/rackless/rackless/internal/atomicfile"
)

// A Cache is a directory of templates by key.
type Cache struct {
	Dir  string
	Note func(format string, args ...any) // reports progress
	// Used returns the keys of templates whose disks are in use by machines; nil means none. Clones keep the memory
	// that they have mapped.
	Used func() ([]string, error)
}

// Ensure opens the template with the key, and calls make if it is missing or damaged.
func (c Cache) Ensure(ctx context.Context, key string, make func() (*Template, error)) (*Template, error) {
	t, err := c.use(key)
	if err == nil {
		return t, nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := c.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if t, err = c.use(key); err == nil {
		return t, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		c.Note("the cached template is damaged (%v): making it again", err)
	}
	// Leftovers of a killed process may be some GiB.
	if err := Sweep(c.Dir, workPrefix); err != nil {
		return nil, err
	}
	if t, err = make(); err == nil {
		err = c.prune(key)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w; free space there or set RACKLESS_CACHE", err)
	}
	return t, err
}

func (c Cache) use(key string) (*Template, error) {
	t, err := c.open(key)
	if err == nil {
		now := time.Now()
		// A read-only cache is not pruned either.
		_ = os.Chtimes(filepath.Join(t.Dir, fileManifest), now, now)
	}
	return t, err
}

// open checks that a template is unchanged. On error it returns the readable part of the manifest.
func (c Cache) open(key string) (*Template, error) {
	t := &Template{Dir: filepath.Join(c.Dir, key)}
	err := atomicfile.ReadJSON(filepath.Join(t.Dir, fileManifest), t)
	if err != nil {
		return t, err
	}
	if t.Format != templateFormat {
		return t, fmt.Errorf("made by another version of rackless (format %d, this one makes %d)", t.Format,
			templateFormat)
	}
	if t.state, err = os.ReadFile(filepath.Join(t.Dir, fileState)); err != nil {
		return t, fmt.Errorf("incomplete: %v", err)
	}
	if sum := sha256.Sum256(t.state); t.Key != key || hex.EncodeToString(sum[:]) != t.StateSHA256 {
		return t, errors.New("state is not what was written")
	}
	for _, want := range t.Files {
		have, err := StampOf(filepath.Join(t.Dir, filepath.Base(want.Name)))
		if err != nil {
			return t, fmt.Errorf("incomplete: %v", err)
		}
		if have.Size != want.Size || have.Modified != want.Modified || have.Data < want.Data {
			return t, fmt.Errorf("%s is not what was written", want.Name)
		}
	}
	return t, nil
}

const workPrefix = ".t"

// Sweep removes the work directories of killed processes from a cache; their names are prefix and key. The key's lock
// tells whether a process still works there.
func Sweep(cache, prefix string) error {
	left, err := os.ReadDir(cache)
	if err != nil {
		return err
	}
	for _, d := range left {
		if key, ok := strings.CutPrefix(d.Name(), prefix); ok && d.IsDir() {
			if err := removeIdle(cache, key, d.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeIdle(cache, key, dir string) error {
	l := flock.New(lockPath(cache, key))
	defer l.Close()
	if ok, err := l.TryLock(); err != nil {
		return fmt.Errorf("lock %s: %w", l.Path(), err)
	} else if !ok {
		return nil
	}
	return os.RemoveAll(filepath.Join(cache, dir))
}

const templateAge = 7 * 24 * time.Hour

// prune removes old and unusable templates, except the one with the key and any in use by machines.
func (c Cache) prune(keep string) error {
	used := []string{keep}
	if c.Used != nil {
		more, err := c.Used()
		if err != nil {
			return nil // the templates in use are unknown now
		}
		used = append(used, more...)
	}
	keys, err := Keys(c.Dir)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if slices.Contains(used, key) || c.isRecent(key) {
			continue
		}
		if err := removeIdle(c.Dir, key, key); err != nil {
			return err
		}
	}
	return nil
}

func (c Cache) isRecent(key string) bool {
	t, err := c.open(key)
	if err != nil {
		return false
	}
	fi, err := os.Stat(filepath.Join(t.Dir, fileManifest))
	return err == nil && time.Since(fi.ModTime()) < templateAge
}

// Keys returns the sorted keys of templates or images in a cache, intact or not. A missing cache is empty.
func Keys(cache string) ([]string, error) {
	dirs, err := os.ReadDir(cache)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var keys []string
	for _, d := range dirs {
		if d.IsDir() && !strings.HasPrefix(d.Name(), ".") {
			keys = append(keys, d.Name())
		}
	}
	return keys, err
}

// A Listed describes a template. If it is damaged, only its key and directory may be known.
type Listed struct {
	Template
	Disk    int64 // bytes that its files occupy; memory files have holes
	Damaged error
}

// List returns the templates by key.
func (c Cache) List() ([]Listed, error) {
	keys, err := Keys(c.Dir)
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, key := range keys {
		files, err := os.ReadDir(filepath.Join(c.Dir, key))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		t, damaged := c.open(key)
		t.Key = key
		l := Listed{Template: *t, Damaged: damaged}
		for _, f := range files {
			if s, err := StampOf(filepath.Join(c.Dir, key, f.Name())); err == nil { // otherwise removed meanwhile
				l.Disk += s.Data
			}
		}
		all = append(all, l)
	}
	return all, nil
}

// Remove deletes and returns the matching templates. It waits for a process that is making one.
func (c Cache) Remove(ctx context.Context, match func(Listed) bool) ([]Listed, error) {
	all, err := c.List()
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t Listed) bool { return !match(t) })
	for i, t := range all {
		unlock, err := c.lock(ctx, t.Key)
		if err == nil {
			err = os.RemoveAll(t.Dir)
			unlock()
		}
		if err != nil {
			return all[:i], fmt.Errorf("remove template %s: %w", t.Key, err)
		}
	}
	return all, nil
}

const lockPoll = 50 * time.Millisecond

func lockPath(cache, key string) string { return filepath.Join(cache, key+".lock") }

func (c Cache) lock(ctx context.Context, key string) (unlock func(), err error) {
	return Lock(ctx, c.Dir, key, func() {
		if c.Note != nil {
			c.Note("waiting for another rackless, which makes the template")
		}
	})
}

// Lock takes the lock of a key, and calls waiting once if another process holds it. The lock file stays, because
// removing it would race.
func Lock(ctx context.Context, cache, key string, waiting func()) (unlock func(), err error) {
	path := lockPath(cache, key)
	l := flock.New(path)
	ok, err := l.TryLock()
	if err == nil && !ok {
		waiting()
		_, err = l.TryLockContext(ctx, lockPoll)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { l.Close() }, nil
}
