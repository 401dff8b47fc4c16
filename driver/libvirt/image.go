package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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
	defined, err := c.hasPool(ctx, "--all")
	if err == nil && !defined {
		_, err = c.run(ctx, queryLimit, "pool-define-as", "--name", Pool, "--type", "dir", "--target", dir)
		if err == nil {
			_, err = c.run(ctx, queryLimit, "pool-build", "--pool", Pool)
		}
	}
	var active bool
	if err == nil {
		active, err = c.hasPool(ctx)
	}
	if err == nil && !active {
		_, err = c.run(ctx, queryLimit, "pool-start", "--pool", Pool)
	}
	return err
}

// hasPool reports whether the pool is among those that pool-list lists with options.
func (c *Conn) hasPool(ctx context.Context, options ...string) (bool, error) {
	out, err := c.run(ctx, queryLimit, append([]string{"pool-list", "--name"}, options...)...)
	return slices.Contains(strings.Fields(string(out)), Pool), err
}

// volume returns the path of a volume of the pool, "" if there is none.
func (c *Conn) volume(ctx context.Context, name string) (string, error) {
	out, err := c.run(ctx, queryLimit, "vol-path", "--pool", Pool, "--vol", name)
	if v, refused := errors.AsType[*virshError](err); refused && (strings.Contains(v.text, "failed to get vol") ||
		strings.Contains(v.text, "failed to get pool")) {
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

// uploadAll transfers the files, and says at the end that they are whole.
func (c *Conn) uploadAll(ctx context.Context, key string, files []string) error {
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		name := volumeName(key, f)
		left, err := c.volume(ctx, name)
		if err != nil {
			return err
		}
		if left != "" {
			if _, err := c.run(ctx, queryLimit, "vol-delete", "--pool", Pool, "--vol", name); err != nil {
				return err
			}
		}
		if _, err := c.run(ctx, queryLimit, "vol-create-as", "--pool", Pool, "--name", name, "--capacity",
			strconv.FormatInt(info.Size(), 10), "--format", "raw"); err != nil {
			return err
		}
		if _, err := c.run(ctx, uploadLimit, "vol-upload", "--pool", Pool, "--vol", name, "--file", f); err != nil {
			return err
		}
	}
	_, err := c.run(ctx, queryLimit, "vol-create-as", "--pool", Pool, "--name", whole(key), "--capacity", "0",
		"--format", "raw")
	return err
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
	if defined, err := c.hasPool(ctx, "--all"); err != nil || !defined {
		return err
	}
	active, err := c.hasPool(ctx)
	if err == nil && !active { // volumes are known of a pool that runs
		_, err = c.run(ctx, queryLimit, "pool-start", "--pool", Pool)
	}
	var volumes []byte
	if err == nil {
		volumes, err = c.run(ctx, queryLimit, "vol-list", "--pool", Pool)
	}
	// Their names have no spaces; each line is a name and a path, below two lines of titles.
	for line := range strings.Lines(string(volumes)) {
		if f := strings.Fields(line); err == nil && len(f) == 2 && strings.HasPrefix(f[1], "/") {
			_, err = c.run(ctx, queryLimit, "vol-delete", "--pool", Pool, "--vol", f[0])
		}
	}
	for _, command := range []string{"pool-destroy", "pool-delete", "pool-undefine"} {
		if err == nil {
			_, err = c.run(ctx, queryLimit, command, "--pool", Pool)
		}
	}
	return err
}
