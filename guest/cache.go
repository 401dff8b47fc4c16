package guest

import (
	"context"
	"errors"

	"github.com/rackless/rackless/internal/imagecache"
)

// open returns the image if its files are as they were built; errors are those of imagecache.Entry.Open.
func open(ctx context.Context, cache, key string) (*Image, error) {
	e := imagecache.At(cache, key)
	img := &Image{Dir: e.Dir()}
	err := e.Open(ctx, img, func() ([]string, error) {
		if img.Name != builtinName {
			return nil, imagecache.ErrOtherKind
		}
		return []string{img.Kernel, img.Initramfs}, nil
	})
	if err != nil {
		return nil, err
	}
	return img, nil
}

// List returns the node images in the cache that are whole, by key. damaged holds the keys of those that are not.
func List(ctx context.Context, cache string) (images []*Image, damaged []string, err error) {
	keys, err := imagecache.Keys(cache)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		img, err := open(ctx, cache, key)
		switch {
		case err == nil:
			images = append(images, img)
		case errors.Is(err, imagecache.ErrOtherKind): // the image of an emulated host
		case errors.Is(err, imagecache.ErrDamaged):
			damaged = append(damaged, key)
		default:
			return nil, nil, err
		}
	}
	return images, damaged, nil
}

// Remove deletes the image with the key, or what is left of it.
func Remove(ctx context.Context, cache, key string) error { return imagecache.Remove(ctx, cache, key) }
