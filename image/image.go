package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/vm"
)

// An Image is what a machine boots, in a directory of the cache: the disk of a host, or the kernel and
// initial file system of a node. As JSON it is the manifest.
type Image struct {
	Name      string    `json:"name"` // of its kind: "builtin" for nodes, "host" for hosts, "qemu"
	Key       string    `json:"key"`  // of its recipe
	Dir       string    `json:"-"`
	Kernel    string    `json:"kernel,omitempty"`    // file name in Dir
	Initramfs string    `json:"initramfs,omitempty"` // file name in Dir
	Disk      string    `json:"disk,omitempty"`      // file name in Dir: qcow2; hosts write to overlays of it
	Others    []string  `json:"others,omitempty"`    // further file names in Dir
	KernelVer string    `json:"kernel_ver"`          // e.g. "6.1.0-42-amd64"; of QEMU, its own version
	Packages  []string  `json:"packages"`            // name=version of every package that files are from
	Built     time.Time `json:"built"`
	Recipe    Recipe    `json:"recipe"`
	Sums      []sum     `json:"files"` // of the files, as they were built
}

// KernelPath returns the absolute path of the kernel.
func (i *Image) KernelPath() string { return filepath.Join(i.Dir, i.Kernel) }

// InitramfsPath returns the absolute path of the initial file system.
func (i *Image) InitramfsPath() string { return filepath.Join(i.Dir, i.Initramfs) }

// DiskPath returns the absolute path of the disk. It must not be written to: see Disk.
func (i *Image) DiskPath() string { return filepath.Join(i.Dir, i.Disk) }

// DiskSum returns the SHA-256 of the disk, as it was built.
func (i *Image) DiskSum() string {
	for _, s := range i.Sums {
		if s.Name == i.Disk {
			return s.SHA256
		}
	}
	return ""
}

// files are those that the image cannot do without.
func (i *Image) files() []string {
	var names []string
	for _, name := range []string{i.Kernel, i.Initramfs, i.Disk} {
		if name != "" {
			names = append(names, name)
		}
	}
	return append(names, i.Others...)
}

// Options say where images are kept. The zero value is useful with Cache set.
type Options struct {
	Cache string // directory of the images; made if need be
	// Kernel is a kernel image (bzImage or vmlinux), named vmlinuz-VERSION, for nodes to use instead of
	// Debian's package. Its modules must be in lib/modules/VERSION beside it or beside its
	// directory, or in /lib/modules/VERSION.
	Kernel   string
	Progress func(step string) // told what is being done; nil is allowed
	// Watch is given what says how far that is, as often as it is asked; nil is allowed.
	Watch func(look func() string)

	build builder // nil means that of the kind; tests put something faster in its place
}

func (o Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

func (o Options) watch(look func() string) {
	if o.Watch != nil {
		o.Watch(look)
	}
}

// A Kind is one sort of image: what it is made from here and now, and how.
type Kind struct {
	name  string // of its images
	label string // in messages
	room  string // that building takes
	// recipe returns the recipe to follow, and what follows it.
	recipe func(context.Context, Options) (Recipe, builder, error)
}

// A builder makes the files of an image in the directory out, and notes in img what they are. It has
// the directory work, in which out is, for itself.
type builder func(ctx context.Context, o Options, work, out string, img *Image) error

// CurrentRecipe returns the recipe that Ensure would follow now. Its Key names the image.
func (k *Kind) CurrentRecipe(ctx context.Context, o Options) (Recipe, error) {
	r, _, err := k.recipe(ctx, o)
	return r, err
}

// Ensure returns the image, building it if the cache has none, or a damaged one, for the recipe. Two
// processes that build the same image at once wait for each other; the second finds the first's.
func (k *Kind) Ensure(ctx context.Context, o Options) (*Image, error) {
	r, build, err := k.recipe(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.build != nil {
		build = o.build
	}
	e := at(o.Cache, r.Key())
	img, err := e.open(ctx, k.name)
	if err == nil {
		return img, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, errDamaged) {
		return nil, unusable(err)
	}
	unlock, err := e.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if img, err := e.open(ctx, k.name); err == nil { // another process built it while this one waited
		return img, nil
	} else if errors.Is(err, errDamaged) {
		// Building again takes a minute: the user is told why it is not the cached one.
		o.progress("the cached image %s is damaged (%v): building it again", e.key, err)
	}
	if err := sweep(o.Cache); err != nil {
		return nil, unusable(err)
	}
	img = &Image{Name: k.name, Key: e.key, Recipe: r, Built: time.Now().UTC().Truncate(time.Second)}
	err = e.make(ctx, o, img, build)
	if isNoSpace(err) {
		err = fmt.Errorf("build %s in %s: %w; free about %s there, or set RACKLESS_CACHE to a directory with "+
			"more space", k.label, o.Cache, err, k.room)
	}
	return img, err
}

// make builds an image in a directory beside its place and moves it there when it is whole. The
// caller holds the entry's lock.
func (e entry) make(ctx context.Context, o Options, img *Image, build builder) error {
	work, err := filepath.Abs(e.workDir())
	if err != nil {
		return err
	}
	if err := os.RemoveAll(work); err != nil { // whoever left it there is dead: this process has the lock
		return err
	}
	defer os.RemoveAll(work)
	out := filepath.Join(work, "out")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Mkdir(out, 0o755)); err != nil {
		return err
	}
	if err := build(ctx, o, work, out, img); err != nil {
		return err
	}
	return e.commit(ctx, out, img)
}

// List returns the images of the kind in the cache that are whole, by key. damaged holds the keys of
// those that are not, and of those whose manifest cannot be read any more: they may be of any kind.
func (k *Kind) List(ctx context.Context, cache string) (images []*Image, damaged []string, err error) {
	keys, err := vm.Keys(cache)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		img, err := at(cache, key).open(ctx, k.name)
		switch {
		case err == nil:
			images = append(images, img)
		case errors.Is(err, errDamaged):
			if img.Name == k.name || img.Name == "" {
				damaged = append(damaged, key)
			}
		case !errors.Is(err, errOtherKind):
			return nil, nil, err
		}
	}
	return images, damaged, nil
}
