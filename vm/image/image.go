package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/vm"
)

// An Image is a directory of the cache: the disk of a host, or the kernel and initial file system of a node. Its JSON
// form is the manifest.
type Image struct {
	Name      string    `json:"name"` // of its kind: "builtin" for nodes, "host", "qemu"
	Key       string    `json:"key"`  // key of its recipe
	Dir       string    `json:"-"`
	Kernel    string    `json:"kernel,omitempty"`    // file name in Dir
	Initramfs string    `json:"initramfs,omitempty"` // file name in Dir
	Disk      string    `json:"disk,omitempty"`      // qcow2; hosts write to overlays of it
	Others    []string  `json:"others,omitempty"`    // further file names in Dir
	KernelVer string    `json:"kernel_ver"`          // "6.1.0-42-amd64"; for QEMU, its version
	Packages  []string  `json:"packages"`            // name=version of every package used
	Built     time.Time `json:"built"`
	Recipe    Recipe    `json:"recipe"`
	// Imported images come from an archive.
	Imported bool  `json:"imported,omitempty"`
	Sums     []sum `json:"files"` // of the files as built
}

// KernelPath is absolute.
func (i *Image) KernelPath() string { return filepath.Join(i.Dir, i.Kernel) }

// InitramfsPath is absolute.
func (i *Image) InitramfsPath() string { return filepath.Join(i.Dir, i.Initramfs) }

// DiskPath is absolute; do not write to it.
func (i *Image) DiskPath() string { return filepath.Join(i.Dir, i.Disk) }

// DiskSum is the SHA-256 as built.
func (i *Image) DiskSum() string {
	return lists.Find(i.Sums, func(s sum) bool { return s.Name == i.Disk }).SHA256
}

// Arch returns Go's name of the architecture.
func (i *Image) Arch() string {
	if i.Name == QEMU.name {
		if slices.Contains(i.Recipe.Programs, vm.Program(arm64)) {
			return arm64
		}
		return amd64
	}
	return cmp.Or(i.Recipe.Arch, amd64)
}

// Of returns the kind of an image of k, which depends on the architecture or on the user's disk.
func (k *Kind) Of(i *Image) *Kind {
	switch k.name {
	case Node.name:
		return NodeOf(i.Arch())
	case QEMU.name:
		return QEMUOn(i.Arch(), cmp.Or(i.Recipe.Arch, amd64))
	case ownName:
		return Own(i.Recipe.Disk)
	}
	return k
}

func (i *Image) files() []string {
	names := lists.Filter([]string{i.Kernel, i.Initramfs, i.Disk}, func(name string) bool { return name != "" })
	return append(names, i.Others...)
}

// Options need only Cache.
type Options struct {
	Cache string // made if missing
	// Kernel is a bzImage or vmlinux, named vmlinuz-VERSION, to use in nodes instead of Debian's. Its modules must be
	// in lib/modules/VERSION beside it or beside its directory, or in /lib/modules/VERSION.
	Kernel   string
	Progress func(step string) // reports steps; may be nil
	// Watch, if set, receives a function that describes the step's progress.
	Watch func(look func() string)

	build builder // for tests
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

// A Kind is one sort of image.
type Kind struct {
	name   string // name of its images
	label  string // in messages
	room   string // disk space needed for building
	recipe func(context.Context, Options) (Recipe, builder, error)
}

// A builder makes an image's files in out, inside work, which it owns, and records them in img.
type builder func(ctx context.Context, o Options, work, out string, img *Image) error

// CurrentKey returns the key of Ensure's image, cached or new.
func (k *Kind) CurrentKey(ctx context.Context, o Options, cached []*Image) (string, error) {
	r, _, err := k.recipe(ctx, o)
	if err != nil {
		return "", err
	}
	key := r.Key()
	if slices.ContainsFunc(cached, func(i *Image) bool { return i.Key == key }) {
		return key, nil
	}
	if i := slices.IndexFunc(cached, func(i *Image) bool { return i.serves(r) }); i >= 0 {
		return cached[i].Key, nil
	}
	return key, nil
}

// ImportFix is for machines that cannot build images.
const ImportFix = "import the image file of a release: rackless image import FILE --digest sha256:..."

// Ensure returns the image for the current recipe, and builds it if it is missing or damaged, once if two processes
// need it.
func (k *Kind) Ensure(ctx context.Context, o Options) (*Image, error) {
	r, build, err := k.recipe(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.build != nil {
		build = o.build
	}
	e := at(o.Cache, r.Key())
	img, err := k.find(ctx, e, r)
	if err == nil {
		return img, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrDamaged) {
		return nil, unusable(err)
	}
	if _, none := exec.LookPath("apt-get"); none != nil && o.build == nil {
		return nil, fmt.Errorf("%s is missing, and %s has no apt to build it with: %s",
			k.label, thisSystem().Name, ImportFix)
	}
	unlock, err := e.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if img, err := e.open(ctx, k.name); err == nil {
		return img, nil
	} else if errors.Is(err, ErrDamaged) {
		o.progress("the cached image %s is damaged (%v): building it again", e.key, err)
	}
	if err := vm.Sweep(o.Cache, buildPrefix); err != nil {
		return nil, unusable(err)
	}
	img = &Image{Name: k.name, Key: e.key, Recipe: r, Built: time.Now().UTC().Truncate(time.Second)}
	err = e.make(ctx, o, img, build)
	if isNoSpace(err) {
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
			err = syscall.ENOSPC
		}
		err = fmt.Errorf("build %s in %s: %w; free about %s there, or set RACKLESS_CACHE to a directory with "+
			"more space", k.label, o.Cache, err, k.room)
	}
	return img, err
}

// Find is Ensure without building. It returns os.ErrNotExist or ErrDamaged instead.
func (k *Kind) Find(ctx context.Context, o Options) (*Image, error) {
	r, _, err := k.recipe(ctx, o)
	if err != nil {
		return nil, err
	}
	return k.find(ctx, at(o.Cache, r.Key()), r)
}

// find may return an imported image that serves instead.
func (k *Kind) find(ctx context.Context, e entry, r Recipe) (*Image, error) {
	img, err := e.open(ctx, k.name)
	if !errors.Is(err, os.ErrNotExist) {
		return img, err
	}
	keys, listErr := vm.Keys(e.root)
	if listErr != nil {
		return img, listErr
	}
	for _, key := range keys {
		other := at(e.root, key)
		if found, err := other.manifest(); err != nil || found.Name != k.name || !found.serves(r) {
			continue
		}
		if found, err := other.open(ctx, k.name); err == nil {
			return found, nil
		}
	}
	return img, err
}

// serves accepts an imported image of another Debian release, because nodes do not depend on this machine's system.
func (i *Image) serves(r Recipe) bool {
	have := i.Recipe
	if i.Imported {
		have.Release = r.Release
	}
	return have.Key() == r.Key()
}

// make builds beside the image's place and moves it there when complete. The caller holds the lock.
func (e entry) make(ctx context.Context, o Options, img *Image, build builder) error {
	work, err := filepath.Abs(e.workDir())
	if err != nil {
		return err
	}
	if err := os.RemoveAll(work); err != nil { // left by a dead process
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

// List returns the intact images of the kind by key. damaged also has keys with an unreadable manifest, of any kind.
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
		case errors.Is(err, ErrDamaged):
			if img.Name == k.name || img.Name == "" {
				damaged = append(damaged, key)
			}
		case !errors.Is(err, errOtherKind):
			return nil, nil, err
		}
	}
	return images, damaged, nil
}
