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

// A Cache is a directory of templates, each in a directory named by its key.
type Cache struct {
	Dir  string
	Note func(format string, args ...any) // is told what is being done
	// Used returns the keys of templates that machines stand on, by their disk; nil means that none
	// do. Clones keep the memory that they have mapped.
	Used func() ([]string, error)
}

// Ensure opens the template with the key, which make makes if the cache has none or a damaged one.
// Two processes that want the same one at once make it once.
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
	if t, err = c.use(key); err == nil { // another process made it while this one waited
		return t, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		c.Note("the cached template is damaged (%v): making it again", err)
	}
	// Before a template of some GiB is written: the rest of a killed one may be as large.
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

// use opens a template and notes that it is in use, for prune.
func (c Cache) use(key string) (*Template, error) {
	t, err := c.open(key)
	if err == nil {
		now := time.Now()
		// A cache that cannot be written to is not pruned either.
		_ = os.Chtimes(filepath.Join(t.Dir, fileManifest), now, now)
	}
	return t, err
}

// open reads a template and checks that it is as it was made. With an error it returns what could be
// read of the manifest.
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

// workPrefix begins the name of the directory in which a template is made; its key follows.
const workPrefix = ".t"

// Sweep removes what processes that were killed have left in a cache: the directories in which they worked, whose names
// are the prefix and a key. The lock of the key tells whether one is at work.
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

// removeIdle removes a directory of a cache unless another process has the lock of the key, to whom it belongs.
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

// templateAge is how long a template that no machine has been made from stays.
const templateAge = 7 * 24 * time.Hour

// prune removes templates but the one with the key: those which have not been used for long, as
// those of older images, and those that cannot be used, as those of another format. What a machine
// stands on stays.
func (c Cache) prune(keep string) error {
	used := []string{keep}
	if c.Used != nil {
		more, err := c.Used()
		if err != nil {
			return nil // which templates are in use cannot be told now
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

// isRecent reports whether a template can be used and was so lately.
func (c Cache) isRecent(key string) bool {
	t, err := c.open(key)
	if err != nil {
		return false
	}
	fi, err := os.Stat(filepath.Join(t.Dir, fileManifest))
	return err == nil && time.Since(fi.ModTime()) < templateAge
}

// Keys returns the keys in a cache of templates or images, whole or not, sorted. What is being made
// has a name with a dot. A cache that does not exist has none.
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

// A Listed is one template in a cache, as it is listed. Of a damaged one, only its key and its
// directory may be known.
type Listed struct {
	Template
	Disk    int64 // bytes that its files occupy; memory files have holes
	Damaged error // why it cannot be used; nil if it can
}

// List returns the templates in the cache, by key. A cache that does not exist has none.
func (c Cache) List() ([]Listed, error) {
	keys, err := Keys(c.Dir)
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, key := range keys {
		files, err := os.ReadDir(filepath.Join(c.Dir, key))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		t, damaged := c.open(key)
		t.Key = key
		l := Listed{Template: *t, Damaged: damaged}
		for _, f := range files {
			if s, err := StampOf(filepath.Join(c.Dir, key, f.Name())); err == nil { // else removed since
				l.Disk += s.Data
			}
		}
		all = append(all, l)
	}
	return all, nil
}

// Remove deletes those templates of the cache that match, and returns them. It waits for a process
// that makes one just now.
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

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 50 * time.Millisecond

func lockPath(cache, key string) string { return filepath.Join(cache, key+".lock") }

// lock takes the lock of a template, waiting for whoever holds it.
func (c Cache) lock(ctx context.Context, key string) (unlock func(), err error) {
	return Lock(ctx, c.Dir, key, func() {
		if c.Note != nil {
			c.Note("waiting for another rackless, which makes the template")
		}
	})
}

// Lock takes the lock of a key in a cache, waiting for whoever holds it, which waiting is told once. The file stays:
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
