package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/rackless/rackless/internal/lists"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Host is the image of emulated hosts, made without root: mmdebstrap installs the packages, and files/mnt/customize.sh
// makes the file system from inside. Then QEMU boots the system once, because grub-install and update-grub need the
// real disk; so an image that does not boot never reaches the cache.
//
// A host boots from an overlay of the disk, by SeaBIOS and GRUB in the boot sector.
var Host = &Kind{name: hostName, label: "the image of emulated hosts", room: "4 GB",
	recipe: func(ctx context.Context, _ Options) (Recipe, builder, error) {
		in, err := currentInputs(ctx)
		return in.recipe, in.buildHost, err
	}}

const diskName, hostName = "disk.qcow2", "host"

// tools are needed here, by Debian package. Programs that work on the disk come from the image.
var tools = []struct{ program, debian string }{
	{"mmdebstrap", "mmdebstrap"}, {"qemu-img", "qemu-utils"}, {"qemu-system-x86_64", "qemu-system-x86"},
}

// MissingTools returns the Debian packages missing for building Host. look is exec.LookPath.
func MissingTools(look func(string) (string, error)) (packages []string) {
	for _, t := range tools {
		if _, err := look(t.program); err != nil {
			packages = append(packages, t.debian)
		}
	}
	if os.Getuid() != 0 {
		if _, err := look("newuidmap"); err != nil {
			packages = append(packages, "uidmap")
		}
	}
	return packages
}

func checkTools(what string) error {
	if missing := MissingTools(exec.LookPath); len(missing) > 0 {
		return fmt.Errorf("%s cannot be built here: packages are missing; run: apt-get install "+
			"--no-install-recommends %s", what, strings.Join(missing, " "))
	}
	return nil
}

func (in inputs) buildHost(ctx context.Context, o Options, work, out string, img *Image) error {
	if err := checkTools("the image of emulated hosts"); err != nil {
		return err
	}
	img.Disk = diskName
	o.progress("install Debian %s for emulated hosts (%d packages and what they need)", in.recipe.Release,
		len(in.recipe.Packages))
	if err := install(ctx, o, work, in, eachHostFile, []string{diskName, "vmlinuz", "initrd"}); err != nil {
		return fmt.Errorf("install Debian %s for emulated hosts: %w", in.recipe.Release, err)
	}
	o.progress("boot it once, for grub-install and update-grub")
	if err := seal(ctx, o, work, img); err != nil {
		return fmt.Errorf("the first boot of the image of emulated hosts: %w", err)
	}
	o.progress("compress the disk")
	// zstd does not slow boots down, and the file, hashed at every start, is a third as large.
	_, err := run(ctx, command{name: "qemu-img", watch: o.watch, args: []string{
		"convert", "-p", "-O", "qcow2", "-c", "-o", "compression_type=zstd", filepath.Join(work, diskName),
		filepath.Join(out, diskName),
	}})
	return err
}

type tree func(add func(name string, content []byte, mode int64) error) error

func eachHostFile(add func(name string, content []byte, mode int64) error) error {
	return eachFile(own("host"), add)
}

func install(ctx context.Context, o Options, work string, in inputs, files tree, made []string) error {
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
		sources.WriteString(s.line("deb", "main"))
	}
	// Otherwise an initial file system with all drivers is made before the files limit them.
	env := []string{"RACKLESS_DISK_MIB=" + strconv.Itoa(in.recipe.DiskMiB), "INITRD=No"}
	mode, root := "unshare", os.Getuid() == 0
	if root {
		mode = "root"
		// Removed with work. Without root, other users need access.
		env = append(env, "TMPDIR="+work)
	}
	_, err := run(ctx, command{name: "mmdebstrap", args: installArgs(in, mode, made), dir: work,
		stdin: sources.String(), env: env, ownMounts: root, watch: o.watch})
	if root && errors.Is(err, syscall.EPERM) {
		err = fmt.Errorf("%w; a container has to let its root mount: give it CAP_SYS_ADMIN, or do this as another user",
			err)
	}
	return err
}

// installArgs is for mmdebstrap in the work directory, whose own copy commands work across the name space's users.
// Names need no shell quoting.
func installArgs(in inputs, mode string, made []string) []string {
	args := []string{
		"--mode=" + mode, "--variant=minbase", "--format=null", "--include=" + strings.Join(in.recipe.Packages, ","),
		"--skip=cleanup", // cleaning must precede making the disk
		`--aptopt=APT::Install-Recommends "false";`, `--aptopt=Acquire::Languages "none";`,
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		// A power cut discards the image anyway.
		"--dpkgopt=force-unsafe-io",
	}
	args = append(args, lists.Map(in.options, func(o string) string { return "--aptopt=" + o })...)
	args = append(args, `--setup-hook=mkdir -p "$1/etc/apt/preferences.d"`, "--setup-hook=upload preferences "+
		"/etc/apt/preferences.d/rackless", "--customize-hook=tar-in files.tar /")
	for _, name := range in.recipe.fetched() {
		args = append(args, "--customize-hook=upload "+name+" /mnt/"+name)
	}
	if len(in.recipe.Sources) > 0 {
		args = append(args, `--customize-hook=chroot "$1" /mnt/compile`)
	}
	if len(in.recipe.OwnSources) > 0 {
		args = append(args, `--customize-hook=chroot "$1" /mnt/compile-suites`)
	}
	if len(in.recipe.Wheels) > 0 {
		args = append(args, `--customize-hook=chroot "$1" /mnt/install-wheels`)
	}
	args = append(args, `--customize-hook=chroot "$1" /mnt/customize.sh`)
	for _, name := range made {
		args = append(args, "--customize-hook=download /mnt/out/"+name+" "+name)
	}
	return append(args, "", "/dev/null", "-")
}

// writeTar is deterministic; root owns all.
func writeTar(w io.Writer, files tree) error {
	tw := tar.NewWriter(w)
	err := files(func(name string, content []byte, mode int64) error {
		err := tw.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg,
			Format: tar.FormatUSTAR, ModTime: time.Unix(0, 0)})
		if err == nil {
			_, err = tw.Write(content)
		}
		return err
	})
	return errors.Join(err, tw.Close())
}
