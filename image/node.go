package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/internal/userfile"
)

// Node is the image of the nodes of labs: a kernel and an initial file system.
var Node = &Kind{name: "builtin", label: "the image", room: "1 GB",
	recipe: func(_ context.Context, o Options) (Recipe, builder, error) {
		r, err := currentNodeRecipe(o)
		return r, buildNode, err
	}}

// KernelArgs is the command line of the built-in image's kernel. What it turns off costs boot time,
// most of all under emulation, and protects nothing in a throw-away guest: self-tests of the crypto
// code, mitigations, address randomisation. The kernel's check that timer interrupts arrive counts
// them in a short busy loop, and panics where the machine below had no time for the guest just then
// (Linux, arch/x86/kernel/apic/io_apic.c, timer_irq_works): QEMU's timer is known to work.
//
// The kernel would unpack the image into a tmpfs of half the memory that is free beside the packed
// one, and boot without what no longer fits ("Initramfs unpacking failed: write error"): less than
// 70 MB in a node with 256 MiB. A root of another kind than tmpfs is a ramfs, which has no limit
// (Linux, init/do_mounts.c, init_rootfs).
const KernelArgs = "console=ttyS0 loglevel=4 panic=-1 no_timer_check cryptomgr.notests mitigations=off nokaslr " +
	"audit=0 selinux=0 apparmor=0 random.trust_cpu=on rootfstype=ramfs"

// currentNodeRecipe decides the release and the kernel from what this machine offers.
func currentNodeRecipe(o Options) (Recipe, error) {
	osRelease, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return Recipe{}, err
	}
	_, release := system(string(osRelease))
	release = cmp.Or(release, "unknown")
	if o.Kernel == "" {
		return nodeRecipe(release, "linux-image-amd64", ""), nil
	}
	b, err := userfile.Read(o.Kernel, userfile.Kernel)
	if err != nil {
		return Recipe{}, err
	}
	sum := sha256.Sum256(b)
	abs, err := filepath.Abs(o.Kernel)
	if err != nil {
		return Recipe{}, err
	}
	return nodeRecipe(release, abs, hex.EncodeToString(sum[:])), nil
}

// buildNode makes the image of nodes: packages are unpacked, and what the recipe names is taken out.
func buildNode(ctx context.Context, o Options, work, out string, img *Image) error {
	r := img.Recipe
	img.Kernel, img.Initramfs = "vmlinux", "initramfs.cpio"
	root := filepath.Join(work, "root")
	debs, err := resolve(ctx, r.Packages)
	if err != nil {
		return err
	}
	if r.KernelDigest == "" {
		name, err := kernelPackage(ctx, r.Kernel)
		if err != nil {
			return err
		}
		debs = append(debs, name)
	}
	o.progress("download %d Debian packages", len(debs))
	archives := filepath.Join(work, "debs")
	if err := download(ctx, archives, debs); err != nil {
		return err
	}
	o.progress("unpack %d Debian packages", len(debs))
	if err := unpack(ctx, archives, root); err != nil {
		return err
	}
	img.Packages = debs
	if err := mergeUsr(root); err != nil {
		return err
	}
	for _, l := range r.Links {
		if err := l.make(root); err != nil {
			return err
		}
	}

	o.progress("extract the kernel")
	kernel, modules, err := findKernel(root, r)
	if err != nil {
		return err
	}
	bz, err := userfile.Read(kernel, userfile.Kernel)
	if err != nil {
		return err
	}
	vmlinux := bz
	if !bytes.HasPrefix(bz, []byte{0x7f, 'E', 'L', 'F'}) {
		vmlinux, err = extractVmlinux(bz)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", kernel, err)
		}
	}
	img.KernelVer = filepath.Base(modules)
	mods, err := readModules(modules)
	if err != nil {
		return fmt.Errorf("kernel modules: %w", err)
	}
	load, err := mods.load(r.Modules, r.Optional)
	if err != nil {
		return fmt.Errorf("kernel modules: %w", err)
	}
	drivers, err := mods.drivers(r.Drivers, load)
	if err != nil {
		return fmt.Errorf("kernel modules: %w", err)
	}

	o.progress("write the initial file system")
	if err := os.WriteFile(filepath.Join(out, img.Kernel), vmlinux, 0o644); err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := writeInitramfs(&buf, root, r, load, drivers); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, img.Initramfs), buf.Bytes(), 0o644)
}

// mergeUsr makes the links from /bin, /lib and the like into /usr that an installed Debian has and
// that packages from Debian 13 on rely on. Directories that the packages of Debian 12 still fill
// stay as they are.
func mergeUsr(root string) error {
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		_, err := os.Lstat(filepath.Join(root, d))
		if err == nil {
			continue
		}
		if err := os.Symlink("usr/"+d, filepath.Join(root, d)); err != nil {
			return err
		}
	}
	return nil
}

// make makes the link in the build root.
func (l Link) make(root string) error {
	found, err := filepath.Glob(filepath.Join(root, l.Target))
	if err != nil || len(found) != 1 {
		return err
	}
	target, err := filepath.Rel(root, found[0])
	if err != nil {
		return err
	}
	return os.Symlink("/"+target, filepath.Join(root, l.Path))
}

// findKernel returns the paths of the kernel image and of its module directory.
func findKernel(root string, r Recipe) (kernel, modules string, err error) {
	if r.KernelDigest == "" {
		found, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
		if err != nil || len(found) != 1 {
			return "", "", fmt.Errorf("the kernel package holds %d kernels, want 1 (%v)", len(found), err)
		}
		version := strings.TrimPrefix(filepath.Base(found[0]), "vmlinuz-")
		for _, lib := range []string{"lib/modules", "usr/lib/modules"} {
			dir := filepath.Join(root, lib, version)
			if _, err := os.Stat(dir); err == nil {
				return found[0], dir, nil
			}
		}
		return "", "", fmt.Errorf("no modules of %s in the kernel package", version)
	}
	version, ok := strings.CutPrefix(filepath.Base(r.Kernel), "vmlinuz-")
	if !ok {
		return "", "", fmt.Errorf("kernel %s: name it vmlinuz-VERSION so that its modules can be found in "+
			"/lib/modules/VERSION", r.Kernel)
	}
	// Beside the kernel, as in an unpacked package (boot/vmlinuz-V, lib/modules/V) or in one
	// directory, before the machine's own.
	here := filepath.Dir(r.Kernel)
	tried := []string{
		filepath.Join(here, "lib/modules", version), filepath.Join(here, "../lib/modules", version),
		filepath.Join(here, "../usr/lib/modules", version), filepath.Join("/lib/modules", version),
	}
	for _, dir := range tried {
		if _, err := os.Stat(dir); err == nil {
			return r.Kernel, dir, nil
		}
	}
	return "", "", fmt.Errorf("kernel %s: no modules of it in %s", r.Kernel, strings.Join(tried, ", "))
}

// writeInitramfs writes the initial file system as an uncompressed cpio archive: rackless' own
// files, the programs with their libraries, the kept files and the modules. The same input gives
// the same bytes: entries are sorted and carry no times or owners.
func writeInitramfs(w io.Writer, root string, r Recipe, load []module, drivers driverSet) error {
	recs := make(map[string]cpio.Record) // by path
	addDirs := func(path string) {
		for d := filepath.Dir(path); d != "." && d != "/"; d = filepath.Dir(d) {
			if _, ok := recs[d]; !ok {
				recs[d] = cpio.Directory(d, 0o755)
			}
		}
	}
	add := func(path string, rec cpio.Record) {
		addDirs(path)
		recs[path] = rec
	}

	var paths []string
	for _, name := range r.Programs {
		p, err := findProgram(root, name)
		if err != nil {
			return err
		}
		paths = append(paths, p)
	}
	programs, err := closure(root, paths)
	if err != nil {
		return err
	}
	var keep []string
	for _, pattern := range r.Keep {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err == nil && len(found) == 0 { // before Debian 13, libraries are in /lib and in /usr/lib
			found, err = filepath.Glob(filepath.Join(root, strings.TrimPrefix(pattern, "usr/")))
		}
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("no file of the packages matches %s", pattern)
		}
		for _, f := range found {
			rel, err := filepath.Rel(root, f)
			if err != nil {
				return err
			}
			keep = append(keep, rel)
		}
	}
	kept, err := closure(root, keep) // plug-ins need libraries too
	if err != nil {
		return err
	}
	names := make(map[string]string) // of a file of the root, the first that it got in the image
	for _, path := range slices.Concat(programs, kept) {
		target, err := resolveIn(root, path) // through links, which lead to the root's files and never to the host's
		if err != nil {
			return err
		}
		// One library under two names must stay one: libmlx5 is linked to, and opened as a plug-in of libibverbs.
		if first, ok := names[target]; ok {
			if first != path {
				add(path, cpio.Symlink(path, "/"+first))
			}
			continue
		}
		names[target] = path
		b, err := os.ReadFile(filepath.Join(root, target)) // the guest gets it under the first name
		if err != nil {
			return err
		}
		fi, err := os.Stat(filepath.Join(root, target))
		if err != nil {
			return err
		}
		add(path, cpio.StaticFile(path, string(b), uint64(fi.Mode().Perm())))
		if filepath.Base(path) == "busybox" && path != "bin/busybox" {
			add("bin/busybox", cpio.Symlink("bin/busybox", "/"+path))
		}
	}

	err = eachFile(own("node"), func(path string, content []byte, mode int64) error {
		add(path, cpio.StaticFile(path, string(content), uint64(mode)))
		return nil
	})
	if err != nil {
		return err
	}

	var order strings.Builder
	for _, m := range load {
		path := "lib/modules/" + m.Name + ".ko"
		add(path, cpio.StaticFile(path, string(m.Data), 0o644))
		if m.Optional {
			order.WriteString("-")
		}
		order.WriteString(m.Name + "\n")
	}
	add("lib/programs", cpio.StaticFile("lib/programs", strings.Join(slices.DeleteFunc(slices.Clone(r.Programs),
		func(p string) bool {
			return p == "busybox"
		}), "\n")+"\n", 0o644))
	add("lib/modules/load", cpio.StaticFile("lib/modules/load", order.String(), 0o644))
	for _, m := range drivers.modules {
		packed, err := pack(m.Data)
		if err != nil {
			return err
		}
		path := "lib/modules/" + m.Name + ".ko.gz"
		add(path, cpio.StaticFile(path, string(packed), 0o644))
	}
	add("lib/modules/drivers", cpio.StaticFile("lib/modules/drivers", drivers.table(), 0o644))
	for _, d := range []string{"proc", "sys", "dev", "run", "tmp", "root", "usr/bin", "usr/sbin", "sbin", "bin"} {
		addDirs(d + "/x")
	}
	add("init", cpio.Symlink("init", "bin/busybox")) // an init that finds itself called init is busybox init
	// Not busybox' shell, which prefers its own small ip and ping to the real ones beside it: a
	// user must get what is asked for.
	sh, err := findProgram(root, "dash")
	if err != nil {
		return err
	}
	add("bin/sh", cpio.Symlink("bin/sh", "/"+sh))
	add("dev/console", cpio.CharDev("dev/console", 0o600, 5, 1))

	writer := cpio.Newc.Writer(w)
	// Sorted, so that parents come before what is in them.
	for i, p := range slices.Sorted(maps.Keys(recs)) {
		rec := recs[p]
		rec.MTime, rec.UID, rec.GID = 0, 0, 0
		rec.Ino = uint64(i + 1)
		if err := writer.WriteRecord(rec); err != nil {
			return fmt.Errorf("cpio %s: %w", p, err)
		}
	}
	return cpio.WriteTrailer(writer)
}
