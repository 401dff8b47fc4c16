package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/imagecache"
)

// tools are the programs that building takes, with their Debian packages. Those that work on the
// disk are the image's own.
var tools = []struct{ program, debian string }{
	{"mmdebstrap", "mmdebstrap"}, {"qemu-img", "qemu-utils"}, {"qemu-system-x86_64", "qemu-system-x86"},
}

// checkTools names what is missing on this machine.
func checkTools() error {
	var missing []string
	for _, t := range tools {
		if _, err := exec.LookPath(t.program); err != nil {
			missing = append(missing, t.debian)
		}
	}
	if os.Getuid() != 0 {
		if _, err := exec.LookPath("newuidmap"); err != nil {
			missing = append(missing, "uidmap")
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the image of emulated hosts cannot be built here: packages are missing; run: apt-get "+
			"install --no-install-recommends %s",
			strings.Join(missing, " "))
	}
	return nil
}

// build makes the image in a directory beside its place and moves it there when it is whole. The
// caller holds the entry's lock.
func build(ctx context.Context, o Options, in inputs) (*Image, error) {
	if err := checkTools(); err != nil {
		return nil, err
	}
	e := imagecache.At(o.Cache, in.recipe.Key())
	work, err := filepath.Abs(e.WorkDir())
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(work); err != nil { // whoever left it there is dead: this process has the lock
		return nil, err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)

	o.progress("install Debian %s for emulated hosts (%d packages and what they need)", in.recipe.Release,
		len(in.recipe.Packages))
	if err := install(ctx, work, in); err != nil {
		return nil, fmt.Errorf("install Debian %s for emulated hosts: %w", in.recipe.Release, err)
	}
	o.progress("boot it once, for grub-install and update-grub")
	img := &Image{Name: hostName, Key: in.recipe.Key(), Disk: diskName, Recipe: in.recipe,
		Built: time.Now().UTC().Truncate(time.Second)}
	if err := seal(ctx, work, img); err != nil {
		return nil, fmt.Errorf("the first boot of the image of emulated hosts: %w", err)
	}
	o.progress("compress the disk")
	out := filepath.Join(work, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return nil, err
	}
	// zstd unpacks fast enough for a boot not to feel it, and the sum of a file a third as large is
	// checked at every start.
	_, err = run(ctx, command{name: "qemu-img", args: []string{
		"convert", "-O", "qcow2", "-c", "-o", "compression_type=zstd", filepath.Join(work, diskName),
		filepath.Join(out, diskName),
	}})
	if err != nil {
		return nil, err
	}
	if err := e.Commit(ctx, out, img, img.Disk); err != nil {
		return nil, err
	}
	img.Dir = e.Dir()
	return img, nil
}

// install has mmdebstrap make the disk, the kernel and the initial file system in work.
func install(ctx context.Context, work string, in inputs) error {
	var tarball bytes.Buffer
	if err := writeTar(&tarball, files); err != nil {
		return err
	}
	for name, b := range map[string][]byte{"files.tar": tarball.Bytes(),
		"preferences": []byte(preferences(in.recipe))} {
		if err := os.WriteFile(filepath.Join(work, name), b, 0o644); err != nil {
			return err
		}
	}
	var sources strings.Builder
	for _, s := range in.sources {
		sources.WriteString(s.line())
	}
	env := []string{"RACKLESS_DISK_MIB=" + strconv.Itoa(in.recipe.DiskMiB)}
	mode, root := "unshare", os.Getuid() == 0
	if root {
		mode = "root"
		// gone with the rest if this is killed; without root, other users must get at it
		env = append(env, "TMPDIR="+work)
	}
	_, err := run(ctx, command{name: "mmdebstrap", args: installArgs(in, mode), dir: work, stdin: sources.String(),
		env: env, ownMounts: root})
	if root && errors.Is(err, syscall.EPERM) {
		err = fmt.Errorf("%w; a container has to let its root mount: give it CAP_SYS_ADMIN, or do this as another user",
			err)
	}
	return err
}

// installArgs returns the arguments of mmdebstrap, to be run in the work directory. The hooks copy
// by its own commands, which work across the name space's users, and by names that hold nothing for
// a shell to see.
func installArgs(in inputs, mode string) []string {
	args := []string{
		"--mode=" + mode, "--variant=minbase", "--format=null", "--include=" + strings.Join(in.recipe.Packages, ","),
		"--skip=cleanup", // of a root directory that is thrown away: what is cleaned must be so before the disk is made
		`--aptopt=APT::Install-Recommends "false";`, `--aptopt=Acquire::Languages "none";`,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*",
	}
	for _, o := range in.options {
		args = append(args, "--aptopt="+o)
	}
	download := func(name string) string { return "--customize-hook=download /mnt/out/" + name + " " + name }
	return append(args,
		`--setup-hook=mkdir -p "$1/etc/apt/preferences.d"`,
		"--setup-hook=upload preferences /etc/apt/preferences.d/rackless",
		"--customize-hook=tar-in files.tar /", `--customize-hook=chroot "$1" /mnt/customize.sh`,
		download(diskName), download("vmlinuz"), download("initrd"),
		"", "/dev/null", "-",
	)
}

// writeTar writes a tree as an archive owned by root, with the directory "files" as its root. The
// same tree gives the same bytes.
func writeTar(w io.Writer, tree fs.FS) error {
	tw := tar.NewWriter(w)
	err := fs.WalkDir(tree, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() { // directories come with what is in them
			return err
		}
		b, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		rel, ok := strings.CutPrefix(name, "files/")
		if !ok || path.Clean(rel) != rel {
			return fmt.Errorf("own file %q: not below files", name)
		}
		mode := int64(0o644)
		if bytes.HasPrefix(b, []byte("#!")) { // embed keeps no modes
			mode = 0o755
		}
		err = tw.WriteHeader(&tar.Header{Name: rel, Mode: mode, Size: int64(len(b)), Typeflag: tar.TypeReg,
			Format: tar.FormatUSTAR, ModTime: time.Unix(0, 0)})
		if err == nil {
			_, err = tw.Write(b)
		}
		return err
	})
	return errors.Join(err, tw.Close())
}
