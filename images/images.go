// Package images lists and removes what the cache of a user holds: node images, and the templates
// made of them.
package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/image"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

// A Listing is what the cache holds. As JSON it is what rackless image ls prints, see docs/json.md.
type Listing struct {
	Cache     string     `json:"cache"`
	Images    []Item     `json:"images"`    // by key
	Templates []Template `json:"templates"` // of images that are no longer there
}

// An Item is a node image.
type Item struct {
	Key       string     `json:"key"`
	Name      string     `json:"name,omitempty"`
	State     string     `json:"state"`   // "whole" or "damaged"
	Current   bool       `json:"current"` // up without --kernel would use it
	Release   string     `json:"release,omitempty"`
	Kernel    string     `json:"kernel,omitempty"` // version
	Bytes     int64      `json:"bytes"`            // on disk
	Built     *time.Time `json:"built,omitempty"`
	Templates []Template `json:"templates"`
}

// A Template is a booted machine of one shape, made of an image.
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

// The two states of what is in the cache.
const (
	Whole   = "whole"
	Damaged = "damaged"
)

// List reads the cache.
func List(ctx context.Context, d rack.Dirs) (Listing, error) {
	out := Listing{Cache: d.Cache, Images: []Item{}, Templates: []Template{}}
	images, damaged, err := image.Node.List(ctx, d.Images())
	if err != nil {
		return out, err
	}
	current, err := image.Node.CurrentRecipe(ctx, image.Options{})
	if err != nil {
		return out, err
	}
	for _, i := range images {
		out.Images = append(out.Images, Item{Key: i.Key, Name: i.Name, State: Whole, Current: i.Key == current.Key(),
			Release: i.Recipe.Release, Kernel: i.KernelVer, Built: &i.Built})
	}
	for _, key := range damaged {
		out.Images = append(out.Images, Item{Key: key, State: Damaged, Current: key == current.Key()})
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

// Keys returns the keys of the images in the cache, whole or not: List reads every byte of them.
func Keys(d rack.Dirs) ([]string, error) { return vm.Keys(d.Images()) }

// RemoveOptions say what Remove deletes.
type RemoveOptions struct {
	All           bool // everything that is in the cache, and not what is named
	TemplatesOnly bool // the templates of the images, and not the images
	Force         bool // also what running labs were made from
}

// Remove deletes images with their templates, and templates that are named by their own keys. It
// returns what is gone: "template KEY", "image KEY".
func Remove(ctx context.Context, d rack.Dirs, keys []string, o RemoveOptions) (gone []string, err error) {
	have, err := List(ctx, d)
	if err != nil {
		return nil, err
	}
	templates := vm.Cache{Dir: d.Templates()}
	listed, err := templates.List()
	if err != nil {
		return nil, err
	}
	if o.All {
		for _, i := range have.Images {
			keys = append(keys, i.Key)
		}
		for _, t := range have.Templates {
			keys = append(keys, t.Key)
		}
	}
	var named []string // images
	// Names are checked before anything is removed.
	for _, key := range keys {
		if slices.ContainsFunc(have.Images, func(i Item) bool { return i.Key == key }) {
			named = append(named, key)
		} else if !slices.ContainsFunc(listed, func(t vm.Listed) bool { return t.Key == key }) {
			return nil, fmt.Errorf("image %s: not in the cache: see rackless image ls", key)
		}
	}
	if !o.Force {
		if err := checkUnused(d, named); err != nil {
			return nil, err
		}
	}
	// Templates first: what is left after an error is still listed below its image.
	removed, err := templates.Remove(ctx, func(t vm.Listed) bool {
		return slices.Contains(named, t.Image) || slices.Contains(keys, t.Key)
	})
	for _, t := range removed {
		gone = append(gone, "template "+t.Key)
	}
	if err != nil || o.TemplatesOnly {
		return gone, err
	}
	for _, key := range named {
		if err := image.Remove(ctx, d.Images(), key); err != nil {
			return gone, err
		}
		gone = append(gone, "image "+key)
	}
	return gone, nil
}

// checkUnused refuses images that running labs were made from.
func checkUnused(d rack.Dirs, keys []string) error {
	racks, err := rack.OpenAll(d)
	errs := []error{err}
	for _, r := range racks {
		if slices.Contains(keys, r.State.Image) {
			errs = append(errs, fmt.Errorf("lab %s was made from image %s: rackless down %s first, or say --force",
				r.Lab.Name, r.State.Image, r.Lab.Name))
		}
	}
	return errors.Join(errs...)
}

// diskUse adds up the files of a directory.
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
