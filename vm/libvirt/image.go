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

	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/vm/image"
)

// Pool is libvirt's storage pool for node images.
const Pool = "rackless"

// poolDir is readable to QEMU's own user, unlike a home directory.
const poolDir = "/var/lib/libvirt/rackless"

// uploadLimit is for a file of some 70 MB.
const uploadLimit = 10 * time.Minute

// Install makes the image available to libvirt, and returns the boot configuration. A session on this machine uses it
// in place; otherwise kernel and initial file system are uploaded to Pool, where files stay until Uninstall.
func (c *Conn) Install(ctx context.Context, img *image.Image) (*render.Boot, error) {
	switch {
	case c.system():
		return c.install(ctx, img, poolDir)
	case c.Local():
		return &render.Boot{Kernel: img.KernelPath(), Initramfs: img.InitramfsPath(), Args: img.KernelArgs()}, nil
	}
	return nil, fmt.Errorf("install image %s at %s: in a session of another machine it is not known where to: use "+
		"/system there", img.Key, c.URI)
}

// InstallSeed makes a disk that a node reads once available, and returns its path. It replaces one of the same name.
func (c *Conn) InstallSeed(ctx context.Context, name, file string) (string, error) {
	if c.Local() && !c.system() {
		return file, nil
	}
	if !c.system() {
		return "", fmt.Errorf("install %s at %s: in a session of another machine it is not known where to: use "+
			"/system there", name, c.URI)
	}
	return c.installSeed(ctx, name, file, poolDir)
}

func (c *Conn) installSeed(ctx context.Context, name, file, dir string) (path string, err error) {
	pool, err := c.ensurePool(ctx, dir)
	if err == nil {
		path, err = ask(ctx, c, uploadLimit, func(l *api.Libvirt) (string, error) {
			if err := uploadFile(ctx, l, pool, name, file); err != nil {
				return "", err
			}
			vol, err := l.StorageVolLookupByName(pool, name)
			if err != nil {
				return "", err
			}
			return l.StorageVolGetPath(vol)
		})
	}
	if err != nil {
		err = fmt.Errorf("install %s at %s: %w", name, c.URI, err)
	}
	return path, err
}

// whole names the empty volume that marks a complete image, because an interrupted upload leaves a volume of full size.
func whole(key string) string { return key + "-whole" }

func (c *Conn) install(ctx context.Context, img *image.Image, dir string) (*render.Boot, error) {
	pool, err := c.ensurePool(ctx, dir)
	var paths []string
	if err == nil {
		paths, err = ask(ctx, c, uploadLimit, func(l *api.Libvirt) ([]string, error) {
			return upload(ctx, l, pool, img.Key, img.KernelPath(), img.InitramfsPath())
		})
	}
	if err != nil {
		return nil, fmt.Errorf("install image %s at %s: %w", img.Key, c.URI, err)
	}
	return &render.Boot{Kernel: paths[0], Initramfs: paths[1], Args: img.KernelArgs()}, nil
}

func (c *Conn) ensurePool(ctx context.Context, dir string) (api.StoragePool, error) {
	text, err := (&libvirtxml.StoragePool{Type: "dir", Name: Pool,
		Target: &libvirtxml.StoragePoolTarget{Path: dir}}).Marshal()
	if err != nil {
		return api.StoragePool{}, err
	}
	return ask(ctx, c, queryLimit, func(l *api.Libvirt) (api.StoragePool, error) {
		pool, err := l.StoragePoolLookupByName(Pool)
		if refused(err, api.ErrNoStoragePool) {
			if pool, err = l.StoragePoolDefineXML(text, 0); err == nil {
				err = l.StoragePoolBuild(pool, 0)
			}
		}
		if err == nil {
			err = startPool(l, pool)
		}
		return pool, err
	})
}

func startPool(l *api.Libvirt, pool api.StoragePool) error {
	active, err := l.StoragePoolIsActive(pool)
	if err == nil && active == 0 {
		err = l.StoragePoolCreate(pool, 0)
	}
	return err
}

// upload returns the paths of an image's volumes, made unless complete. When ctx ends it closes the files, which ends
// the upload.
func upload(ctx context.Context, l *api.Libvirt, pool api.StoragePool, key string, files ...string) ([]string, error) {
	_, err := l.StorageVolLookupByName(pool, whole(key))
	present := err == nil
	if err != nil && !refused(err, api.ErrNoStorageVol) {
		return nil, err
	}
	var paths []string
	// The mark is last.
	for _, f := range files {
		name := key + "-" + filepath.Base(f)
		if !present {
			if err := uploadFile(ctx, l, pool, name, f); err != nil {
				return nil, err
			}
		}
		vol, err := l.StorageVolLookupByName(pool, name)
		if refused(err, api.ErrNoStorageVol) {
			return nil, fmt.Errorf("pool %s has no volume %s, and %s says that it is whole: virsh vol-delete %s %s, "+
				"and again", Pool, name, whole(key), whole(key), Pool)
		}
		if err != nil {
			return nil, err
		}
		path, err := l.StorageVolGetPath(vol)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	if !present {
		_, err = createVolume(l, pool, whole(key), 0)
		return paths, err
	}
	return paths, nil
}

// uploadFile replaces a volume left by an interrupted upload.
func uploadFile(ctx context.Context, l *api.Libvirt, pool api.StoragePool, name, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	info, err := f.Stat()
	if err != nil {
		return err
	}
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

// Uninstall removes the images and the pool, if any, unless a domain of rackless needs them. It must not run between
// another client's Install and definition of domains.
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
	if err := c.tell(ctx, queryLimit, removePool); err != nil {
		return fmt.Errorf("remove pool %s at %s: %w", Pool, c.URI, err)
	}
	return nil
}

func removePool(l *api.Libvirt) error {
	pool, err := l.StoragePoolLookupByName(Pool)
	if refused(err, api.ErrNoStoragePool) {
		return nil
	}
	if err == nil {
		err = startPool(l, pool) // lists volumes only of a running pool
	}
	var volumes []api.StorageVol
	if err == nil {
		volumes, _, err = l.StoragePoolListAllVolumes(pool, 1, 0)
	}
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
}
