package libvirt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	api "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/render"
)

// Pool is libvirt's storage pool of the images that nodes boot.
const Pool = "rackless"

// poolDir is where the pool is on a machine. QEMU runs there as a user of its own, which could not
// read an image in somebody's home directory.
const poolDir = "/var/lib/libvirt/rackless"

// uploadLimit bounds the transfer of one file of an image, some 70 MB.
const uploadLimit = 10 * time.Minute

// Install makes the image available where libvirt is, and returns how nodes boot it there. In a
// session of this machine the image is used where it is. Otherwise kernel and initial file system
// become volumes of Pool, through libvirt's own connection, on whatever machine that is; what is
// there already stays, and images of other keys stay beside it until Uninstall.
func (c *Conn) Install(ctx context.Context, img *guest.Image) (*render.Boot, error) {
	switch {
	case c.system():
		return c.install(ctx, img, poolDir)
	case c.Local():
		return &render.Boot{Kernel: img.KernelPath(), Initramfs: img.InitramfsPath(), Args: guest.KernelArgs}, nil
	}
	return nil, fmt.Errorf("install image %s at %s: in a session of another machine it is not known where to: use "+
		"/system there", img.Key, c.URI)
}

// whole names the empty volume that says that an image is whole: an upload that was broken off
// leaves a volume of full size, too.
func whole(key string) string { return key + "-whole" }

func (c *Conn) install(ctx context.Context, img *guest.Image, dir string) (*render.Boot, error) {
	files := []string{img.KernelPath(), img.InitramfsPath()}
	paths := make([]string, len(files))
	err := c.ensurePool(ctx, dir)
	if err == nil {
		var done string
		done, err = c.volume(ctx, whole(img.Key))
		if err == nil && done == "" {
			err = c.uploadAll(ctx, img.Key, files)
		}
	}
	for i, f := range files {
		if err == nil {
			paths[i], err = c.volume(ctx, volumeName(img.Key, f))
		}
		if err == nil && paths[i] == "" {
			err = fmt.Errorf("pool %s has no volume %s, and %s says that it is whole: virsh vol-delete %s %s, "+
				"and again", Pool, volumeName(img.Key, f), whole(img.Key), whole(img.Key), Pool)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("install image %s at %s: %w", img.Key, c.URI, err)
	}
	return &render.Boot{Kernel: paths[0], Initramfs: paths[1], Args: guest.KernelArgs}, nil
}

func volumeName(key, file string) string { return key + "-" + filepath.Base(file) }

// ensurePool makes the pool unless it is there, and starts it unless it runs.
func (c *Conn) ensurePool(ctx context.Context, dir string) error {
	pool, there, err := c.pool(ctx)
	if err == nil && !there {
		pool, err = ask(ctx, c, queryLimit, func(l *api.Libvirt) (api.StoragePool, error) {
			text, err := (&libvirtxml.StoragePool{Type: "dir", Name: Pool,
				Target: &libvirtxml.StoragePoolTarget{Path: dir}}).Marshal()
			if err != nil {
				return api.StoragePool{}, err
			}
			return l.StoragePoolDefineXML(text, 0)
		})
		if err == nil {
			err = c.tell(ctx, queryLimit, func(l *api.Libvirt) error { return l.StoragePoolBuild(pool, 0) })
		}
	}
	if err == nil {
		err = c.startPool(ctx, pool)
	}
	return err
}

// pool returns the pool, and whether it is there.
func (c *Conn) pool(ctx context.Context) (pool api.StoragePool, there bool, err error) {
	pool, err = ask(ctx, c, queryLimit, func(l *api.Libvirt) (api.StoragePool, error) {
		return l.StoragePoolLookupByName(Pool)
	})
	if refused(err, api.ErrNoStoragePool) {
		return pool, false, nil
	}
	return pool, err == nil, err
}

// startPool starts the pool unless it runs.
func (c *Conn) startPool(ctx context.Context, pool api.StoragePool) error {
	return c.tell(ctx, queryLimit, func(l *api.Libvirt) error {
		active, err := l.StoragePoolIsActive(pool)
		if err == nil && active == 0 {
			err = l.StoragePoolCreate(pool, 0)
		}
		return err
	})
}

// volume returns the path of a volume of the pool, "" if there is none.
func (c *Conn) volume(ctx context.Context, name string) (string, error) {
	pool, there, err := c.pool(ctx)
	if err != nil || !there {
		return "", err
	}
	path, err := ask(ctx, c, queryLimit, func(l *api.Libvirt) (string, error) {
		vol, err := l.StorageVolLookupByName(pool, name)
		if err != nil {
			return "", err
		}
		return l.StorageVolGetPath(vol)
	})
	if refused(err, api.ErrNoStorageVol) {
		return "", nil
	}
	return path, err
}

// uploadAll transfers the files, and says at the end that they are whole.
func (c *Conn) uploadAll(ctx context.Context, key string, files []string) error {
	pool, _, err := c.pool(ctx)
	for _, f := range files {
		if err == nil {
			err = c.upload(ctx, pool, volumeName(key, f), f)
		}
	}
	if err == nil {
		err = c.tell(ctx, queryLimit, func(l *api.Libvirt) error {
			_, err := createVolume(l, pool, whole(key), 0)
			return err
		})
	}
	return err
}

// upload makes a volume of a file, in place of one that an upload that was broken off has left.
func (c *Conn) upload(ctx context.Context, pool api.StoragePool, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() // and the upload with it, if ctx ends before it does
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return c.tell(ctx, uploadLimit, func(l *api.Libvirt) error {
		left, err := l.StorageVolLookupByName(pool, name)
		if err == nil {
			err = l.StorageVolDelete(left, 0)
		}
		if err != nil && !refused(err, api.ErrNoStorageVol) {
			return err
		}
		vol, err := createVolume(l, pool, name, uint64(info.Size()))
		if err != nil {
			return err
		}
		return l.StorageVolUpload(vol, f, 0, uint64(info.Size()), 0)
	})
}

func createVolume(l *api.Libvirt, pool api.StoragePool, name string, bytes uint64) (api.StorageVol, error) {
	text, err := (&libvirtxml.StorageVolume{
		Name: name, Capacity: &libvirtxml.StorageVolumeSize{Value: bytes},
		Target: &libvirtxml.StorageVolumeTarget{Format: &libvirtxml.StorageVolumeTargetFormat{Type: "raw"}},
	}).Marshal()
	if err != nil {
		return api.StorageVol{}, err
	}
	return l.StorageVolCreateXML(pool, text, 0)
}

// Uninstall removes the images and the pool, unless libvirt has a domain of rackless: it would find
// nothing to boot when it is started again. What is not there is no error. Nobody may be between
// Install and the definition of domains meanwhile.
func (c *Conn) Uninstall(ctx context.Context) error {
	if !c.system() { // Install has made no pool
		return nil
	}
	return c.uninstall(ctx)
}

func (c *Conn) uninstall(ctx context.Context) error {
	domains, err := c.List(ctx)
	if err != nil || slices.ContainsFunc(domains, func(d Domain) bool { return d.Node != nil }) {
		return err
	}
	if err := c.removePool(ctx); err != nil {
		return fmt.Errorf("remove pool %s at %s: %w", Pool, c.URI, err)
	}
	return nil
}

func (c *Conn) removePool(ctx context.Context) error {
	pool, there, err := c.pool(ctx)
	if err != nil || !there {
		return err
	}
	if err := c.startPool(ctx, pool); err != nil { // volumes are known of a pool that runs
		return err
	}
	return c.tell(ctx, queryLimit, func(l *api.Libvirt) error {
		volumes, _, err := l.StoragePoolListAllVolumes(pool, 1, 0)
		for _, v := range volumes {
			if err == nil {
				err = l.StorageVolDelete(v, 0)
			}
		}
		if err == nil {
			err = l.StoragePoolDestroy(pool)
		}
		if err == nil {
			err = l.StoragePoolDelete(pool, 0)
		}
		if err == nil {
			err = l.StoragePoolUndefine(pool)
		}
		return err
	})
}
