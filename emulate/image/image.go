package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/internal/imagecache"
)

// An Image is the disk that emulated hosts start from, in a directory of the cache.
type Image struct {
	Name      string    `json:"name"` // "host"
	Key       string    `json:"key"`  // of its recipe
	Dir       string    `json:"-"`
	Disk      string    `json:"disk"`       // file name in Dir: qcow2; hosts write to overlays of it
	KernelVer string    `json:"kernel_ver"` // e.g. "6.1.0-42-amd64"
	Packages  []string  `json:"packages"`   // name=version of every installed package
	Built     time.Time `json:"built"`
	Recipe    Recipe    `json:"recipe"`
}

// DiskPath returns the absolute path of the disk. It must not be written to: see Disk.
func (i *Image) DiskPath() string { return filepath.Join(i.Dir, i.Disk) }

const (
	hostName = "host" // Name of images of this package; other kinds share the cache
	diskName = "disk.qcow2"
)

// Options say where images are kept.
type Options struct {
	Cache    string            // directory of the images; made if need be
	Progress func(step string) // told what is being done; nil is allowed

	// nil means build; tests put something faster in its place
	build func(context.Context, Options, inputs) (*Image, error)
}

func (o Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// Ensure returns the image, building it, in minutes, if the cache has none, or a damaged one, for the recipe.
// Two processes that build the same image at once wait for each other; the second finds the first's.
func Ensure(ctx context.Context, o Options) (*Image, error) {
	in, err := currentInputs(ctx)
	if err != nil {
		return nil, err
	}
	e := imagecache.At(o.Cache, in.recipe.Key())
	img, err := open(ctx, e)
	if err == nil {
		return img, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, imagecache.ErrDamaged) {
		return nil, imagecache.Unusable(err)
	}
	unlock, err := e.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if img, err := open(ctx, e); err == nil { // another process built it while this one waited
		return img, nil
	} else if errors.Is(err, imagecache.ErrDamaged) {
		o.progress("the cached image %s is damaged (%v): building it again", e.Dir(), err)
	}
	if err := imagecache.Sweep(o.Cache); err != nil {
		return nil, imagecache.Unusable(err)
	}
	builder := o.build
	if builder == nil {
		builder = build
	}
	img, err = builder(ctx, o, in)
	if imagecache.IsNoSpace(err) {
		err = fmt.Errorf("build the image of emulated hosts in %s: %w; free about 4 GB there, or set RACKLESS_CACHE "+
			"to a directory with more space",
			o.Cache, err)
	}
	return img, err
}

// open returns the image if its files are as they were built; errors are those of imagecache.Entry.Open.
func open(ctx context.Context, e imagecache.Entry) (*Image, error) {
	img := &Image{Dir: e.Dir()}
	if err := img.read(ctx, e); err != nil {
		return nil, err
	}
	return img, nil
}

// read is open that fills an image as far as there is something to read.
func (i *Image) read(ctx context.Context, e imagecache.Entry) error {
	return e.Open(ctx, i, func() ([]string, error) {
		if i.Name != hostName {
			return nil, imagecache.ErrOtherKind
		}
		return []string{i.Disk}, nil
	})
}
