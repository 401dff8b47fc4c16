package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Template is one template in the cache, as it is listed.
type Template struct {
	Key         string
	Dir         string
	Image       string // key of the image that it was booted from; "" if its manifest cannot be read
	QEMU        string // version
	Accelerator string
	CPUs        int
	Memory      int64 // bytes, as the guest sees it
	NICs        int
	Made        time.Time
	Disk        int64 // bytes that its files occupy; the memory file has holes
	Damaged     error // why it cannot be used; nil if it can
}

// ListTemplates returns the templates in a cache, by key. A cache that does not exist has none.
func ListTemplates(cache string) ([]Template, error) {
	dirs, err := os.ReadDir(cache)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Template
	for _, d := range dirs { // sorted by ReadDir
		if !d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			continue
		}
		t, err := listTemplate(filepath.Join(cache, d.Name()), d.Name())
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func listTemplate(dir, key string) (Template, error) {
	t := Template{Key: key, Dir: dir}
	files, err := os.ReadDir(dir)
	if err != nil {
		return t, err
	}
	for _, f := range files {
		fi, err := f.Info()
		if err != nil {
			return t, err
		}
		t.Disk += 512 * blocks(fi) // st_blocks counts 512 bytes whatever the file system
	}
	if b, err := os.ReadFile(filepath.Join(dir, "template.json")); err == nil {
		var info templateInfo
		if json.Unmarshal(b, &info) == nil { // else openTemplate says so below
			t.Image, t.QEMU, t.Accelerator = info.Image, info.QEMU, info.Accelerator
			t.CPUs, t.Memory, t.NICs, t.Made = info.CPUs, info.MemoryBytes, info.NICs, info.Made
		}
	}
	if _, err := openTemplate(dir, key); err != nil {
		t.Damaged = err
	}
	return t, nil
}

// RemoveTemplates deletes those templates of a cache that match, and returns them. Clones that run
// keep the memory that they have mapped.
func RemoveTemplates(ctx context.Context, cache string, match func(Template) bool) ([]Template, error) {
	all, err := ListTemplates(cache)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t Template) bool { return !match(t) })
	for i, t := range all {
		if err := removeTemplate(ctx, t); err != nil {
			return all[:i], fmt.Errorf("remove template %s: %w", t.Key, err)
		}
	}
	return all, nil
}

// removeTemplate waits for a process that makes the template just now.
func removeTemplate(ctx context.Context, t Template) error {
	unlock, err := lockFile(ctx, t.Dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	return os.RemoveAll(t.Dir)
}
