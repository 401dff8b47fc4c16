// Package images lists and removes a user's node images and templates.
package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
)

// A Listing is the JSON of rackless image ls; see docs/json.md.
type Listing struct {
	Cache     string     `json:"cache"`
	Images    []Item     `json:"images"`    // by key
	Templates []Template `json:"templates"` // whose image is gone
}

// An Item is an image of nodes or a QEMU.
type Item struct {
	Key       string     `json:"key"`
	Name      string     `json:"name,omitempty"` // such as "builtin"
	State     string     `json:"state"`          // "whole" or "damaged"
	Current   bool       `json:"current"`        // up without --kernel would use it
	Arch      string     `json:"arch,omitempty"` // if not this machine's
	Release   string     `json:"release,omitempty"`
	Kernel    string     `json:"kernel,omitempty"` // version
	QEMU      string     `json:"qemu,omitempty"`   // version
	Bytes     int64      `json:"bytes"`            // on disk
	Built     *time.Time `json:"built,omitempty"`
	Templates []Template `json:"templates"`
}

// A Template is the saved state of a booted machine of one shape.
type Template struct {
	Key         string     `json:"key"`
	State       string     `json:"state"` // "whole" or "damaged"
	Accelerator string     `json:"accelerator,omitempty"`
	QEMU        string     `json:"qemu,omitempty"`
	CPUs        int        `json:"cpus"`
	Memory      int64      `json:"memory_bytes"`
	NICs        int        `json:"nics"`
	Bytes       int64      `json:"bytes"` // on disk
	Made        *time.Time `json:"made,omitempty"`
}

// Whole means that all files have the checksums of their build.
const (
	Whole   = "whole"
	Damaged = "damaged"
)

// List verifies every image, so it reads all bytes.
func List(ctx context.Context, d userdirs.Dirs) (Listing, error) {
	out := Listing{Cache: d.Cache, Images: []Item{}, Templates: []Template{}}
	kinds := slices.Concat([]*image.Kind{image.Node, image.QEMU}, lists.Map(image.FullNames(), image.Full),
		image.Bares(), []*image.Kind{image.Seeds, image.Own("")})
	for _, k := range kinds {
		if err := out.add(ctx, d, k); err != nil {
			return out, err
		}
	}
	slices.SortFunc(out.Images, func(a, b Item) int { return strings.Compare(a.Key, b.Key) })
	templates, err := vm.Cache{Dir: d.Templates()}.List()
	if err != nil {
		return out, err
	}
	for i := range out.Images {
		e := &out.Images[i]
		e.Templates = []Template{}
		if e.Bytes, err = diskUse(filepath.Join(d.Images(), e.Key)); err != nil {
			return out, err
		}
	}
	for _, t := range templates {
		entry := Template{Key: t.Key, State: Whole, Accelerator: t.Accelerator, QEMU: t.QEMU, CPUs: t.CPUs,
			Memory: t.Memory, NICs: t.NICs, Bytes: t.Disk}
		if t.Damaged != nil {
			entry.State = Damaged
		}
		if !t.Made.IsZero() {
			entry.Made = &t.Made
		}
		to := &out.Templates
		if i := slices.IndexFunc(out.Images, func(e Item) bool { return e.Key == t.Image }); i >= 0 {
			to = &out.Images[i].Templates
		}
		*to = append(*to, entry)
	}
	return out, nil
}

func (l *Listing) add(ctx context.Context, d userdirs.Dirs, k *image.Kind) error {
	images, damaged, err := k.List(ctx, d.Images())
	if err != nil || len(images)+len(damaged) == 0 {
		return err
	}
	current, err := k.CurrentKey(ctx, image.Options{}, images)
	if err != nil && !k.IsOwn() {
		return err
	}
	for _, i := range images {
		current, _ := k.Of(i).CurrentKey(ctx, image.Options{}, images) // a user's file may be gone
		item := Item{Key: i.Key, Name: i.Name, State: Whole, Current: i.Key == current, Release: i.Recipe.Release,
			Kernel: i.KernelVer, Built: &i.Built}
		if i.Arch() != runtime.GOARCH {
			item.Arch = i.Arch()
		}
		if k == image.QEMU {
			item.Kernel, item.QEMU = "", i.KernelVer
		}
		l.Images = append(l.Images, item)
	}
	// Any kind lists a damaged image, whose manifest may be damaged too.
	for _, key := range damaged {
		if !slices.ContainsFunc(l.Images, func(i Item) bool { return i.Key == key }) {
			l.Images = append(l.Images, Item{Key: key, State: Damaged, Current: key == current})
		}
	}
	return nil
}

// Keys includes damaged images. It reads none, so it is fast enough for a shell's completion.
func Keys(d userdirs.Dirs) ([]string, error) { return vm.Keys(d.Images()) }

// RemoveOptions control Remove.
type RemoveOptions struct {
	All           bool // instead of named keys
	TemplatesOnly bool // not the images
	// Users are the running labs by their image's key. Such images are not removed.
	Users map[string][]string
}

// Remove deletes images with their templates, and templates by their own keys. It returns the removed items ("template
// KEY", "image KEY"), also with an error.
func Remove(ctx context.Context, d userdirs.Dirs, keys []string, o RemoveOptions) (removed []string, err error) {
	have, err := List(ctx, d)
	if err != nil {
		return nil, err
	}
	templates := vm.Cache{Dir: d.Templates()}
	listed, err := templates.List()
	if err != nil {
		return nil, err
	}
	// Templates that have lost their image are removed too.
	if o.All {
		keys = append(keys, lists.Map(have.Images, func(i Item) string { return i.Key })...)
		keys = append(keys, lists.Map(have.Templates, func(t Template) string { return t.Key })...)
	}
	var named []string // keys of images
	// First, so that a typing error removes nothing.
	for _, key := range keys {
		if slices.ContainsFunc(have.Images, func(i Item) bool { return i.Key == key }) {
			named = append(named, key)
		} else if !slices.ContainsFunc(listed, func(t vm.Listed) bool { return t.Key == key }) {
			return nil, fmt.Errorf("image %s: not in the cache: see rackless image ls", key)
		}
	}
	// A running node keeps the files of its template open.
	if err := checkUnused(o.Users, named); err != nil {
		return nil, err
	}
	// After an error the rest is still listed below its image.
	lost, err := templates.Remove(ctx, func(t vm.Listed) bool {
		return slices.Contains(named, t.Image) || slices.Contains(keys, t.Key)
	})
	for _, t := range lost {
		removed = append(removed, "template "+t.Key)
	}
	if err != nil || o.TemplatesOnly {
		return removed, err
	}
	for _, key := range named {
		if err := image.Remove(ctx, d.Images(), key); err != nil {
			return removed, err
		}
		removed = append(removed, "image "+key)
	}
	return removed, nil
}

// checkUnused returns an error if running labs use an image, because up could repair them only after building it again.
func checkUnused(users map[string][]string, keys []string) error {
	var errs []error
	for _, key := range keys {
		for _, lab := range users[key] {
			errs = append(errs, fmt.Errorf("lab %s was made from image %s: rackless down %s first, or say --force",
				lab, key, lab))
		}
	}
	return errors.Join(errs...)
}

// diskUse expects no subdirectories.
func diskUse(dir string) (int64, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, f := range files {
		fi, err := f.Info()
		if err != nil {
			return 0, err
		}
		sum += fi.Size()
	}
	return sum, nil
}
