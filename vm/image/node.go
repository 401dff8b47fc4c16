package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/internal/userfile"
)

// Node is a kernel and an initial file system.
var Node = NodeOf(runtime.GOARCH)

// NodeOf returns Node for Go's name of an architecture.
func NodeOf(arch string) *Kind {
	return &Kind{name: "builtin", label: "the image", room: "1 GB",
		recipe: func(_ context.Context, o Options) (Recipe, builder, error) {
			r, err := currentNodeRecipe(o, arch)
			return r, buildNode, err
		}}
}

// KernelArgs is the kernel command line of the built-in image. It turns off features that cost boot time and protect
// nothing in a disposable guest. The kernel's check of timer interrupts counts them in a short busy loop, and panics if
// the machine below had no time just then (Linux, arch/x86/kernel/apic/io_apic.c, timer_irq_works); QEMU's timer is
// known to work.
//
// By default the kernel unpacks the image into a tmpfs of half the free memory, and boots without the files that do not
// fit ("Initramfs unpacking failed: write error"): less than 70 MB fit in a node with 256 MiB. With another root it
// uses a ramfs, which has no limit (Linux, init/do_mounts.c, init_rootfs).
//
// After ACPI has named all buses, the kernel would search behind each of 255 possible bus numbers, up to lastbus
// (Linux, arch/x86/pci/legacy.c, pcibios_fixup_peer_bridges). These are 16,320 port accesses, each an exit under KVM,
// of 45,000 exits of a whole boot on an emulated host.
const KernelArgs = "console=ttyS0 loglevel=4 panic=-1 no_timer_check cryptomgr.notests mitigations=off nokaslr " +
	"audit=0 selinux=0 apparmor=0 random.trust_cpu=on rootfstype=ramfs pci=lastbus=0"

// ConnectXArg initializes adapters at boot.
const ConnectXArg = " rackless.nic=connectx"

// HideNUMAArg makes a node ignore NUMA nodes, because QEMU makes some for memory in different files.
const HideNUMAArg = " numa=off"

// IOMMUArg makes a node use its IOMMU for devices that vfio-pci hands out, and let all other devices reach memory by
// its own addresses: the memory of a GPU has no others outside of the guest.
const IOMMUArg = " intel_iommu=on iommu=pt"

func currentNodeRecipe(o Options, arch string) (Recipe, error) {
	release := cmp.Or(thisSystem().Codename, "unknown")
	if o.Kernel == "" {
		return nodeRecipe(release, arch, "linux-image-"+arch, ""), nil
	}
	b, err := userfile.Read(o.Kernel, userfile.Kernel)
	if err != nil {
		return Recipe{}, err
	}
	abs, err := filepath.Abs(o.Kernel)
	if err != nil {
		return Recipe{}, err
	}
	return nodeRecipe(release, arch, abs, fmt.Sprintf("%x", sha256.Sum256(b))), nil
}

func buildNode(ctx context.Context, o Options, work, out string, img *Image) error {
	r := img.Recipe
	img.Kernel, img.Initramfs = "vmlinux", "initramfs.cpio"
	root := filepath.Join(work, "root")
	a, err := nodeApt(ctx, o, filepath.Join(work, "apt"), r)
	if err != nil {
		return err
	}
	debs, err := a.resolve(ctx, r.Packages)
	if err != nil {
		return err
	}
	if r.KernelDigest == "" {
		name, err := a.kernelPackage(ctx, r.Kernel)
		if err != nil {
			return err
		}
		debs = append(debs, name)
	}
	o.progress("download %d Debian packages", len(debs))
	if err := a.fetch(ctx, o, work, root, debs); err != nil {
		return err
	}
	img.Packages = debs
	// Package scripts, which are not run, would link alternatives.
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
	vmlinux, err := userfile.Read(kernel, userfile.Kernel)
	if err != nil {
		return err
	}
	if r.Arch == "" && !bytes.HasPrefix(vmlinux, elfMagic) {
		if vmlinux, err = extractVmlinux(vmlinux); err != nil {
			return fmt.Errorf("kernel %s: %w", kernel, err)
		}
	}
	img.KernelVer = filepath.Base(modules)
	load, drivers, err := r.pickModules(modules)
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

func nodeApt(ctx context.Context, o Options, dir string, r Recipe) (apt, error) {
	if cmp.Or(r.Arch, amd64) == runtime.GOARCH {
		return apt{}, nil
	}
	o.progress("download the package lists of Debian %s for %s", r.Release, cmp.Or(r.Arch, amd64))
	r.Suites = suites(r.Release)
	return newApt(ctx, dir, r, "deb", "main")
}

func (r Recipe) pickModules(dir string) (load []module, drivers driverSet, err error) {
	all, err := readModules(dir)
	if err == nil {
		load, err = all.load(r.Modules, r.Optional)
	}
	if err == nil {
		drivers, err = all.drivers(r.Drivers, load)
	}
	return load, drivers, err
}

// mergeUsr links /bin, /lib and others into /usr, as packages from Debian 13 on need it. Directories that packages of
// Debian 12 fill stay.
func mergeUsr(root string) error {
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, err := os.Lstat(filepath.Join(root, d)); err == nil {
			continue
		}
		if err := os.Symlink("usr/"+d, filepath.Join(root, d)); err != nil {
			return err
		}
	}
	return nil
}

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
	// As in an unpacked package, or in one directory, before the machine's own.
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

type archive map[string]cpio.Record // by path

func (a archive) add(rec cpio.Record) {
	a.addDirs(rec.Name)
	a[rec.Name] = rec
}

func (a archive) addDirs(path string) {
	for d := filepath.Dir(path); d != "." && d != "/"; d = filepath.Dir(d) {
		if _, ok := a[d]; !ok {
			a[d] = cpio.Directory(d, 0o755)
		}
	}
}

func (a archive) file(path, content string, mode uint64) { a.add(cpio.StaticFile(path, content, mode)) }

func (a archive) link(path, target string) { a.add(cpio.Symlink(path, "/"+target)) }

// write writes an uncompressed cpio archive. It is deterministic: entries are sorted, directories before their
// contents, without times or owners.
func (a archive) write(w io.Writer) error {
	writer := cpio.Newc.Writer(w)
	for i, p := range slices.Sorted(maps.Keys(a)) {
		rec := a[p]
		rec.MTime, rec.UID, rec.GID = 0, 0, 0
		rec.Ino = uint64(i + 1)
		if err := writer.WriteRecord(rec); err != nil {
			return fmt.Errorf("cpio %s: %w", p, err)
		}
	}
	return cpio.WriteTrailer(writer)
}

func writeInitramfs(w io.Writer, root string, r Recipe, load []module, drivers driverSet) error {
	a := make(archive)
	if err := a.addPackaged(root, r); err != nil {
		return err
	}
	err := eachFile(own("node"), func(path string, content []byte, mode int64) error {
		a.file(path, r.inArch(string(content)), uint64(mode))
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.addModules(load, drivers); err != nil {
		return err
	}
	programs := slices.DeleteFunc(slices.Clone(r.Programs), func(p string) bool { return p == "busybox" })
	a.file("lib/programs", strings.Join(programs, "\n")+"\n", 0o644)
	// Expected directories without a packaged file.
	for _, d := range []string{"proc", "sys", "dev", "run", "tmp", "root", "usr/bin", "usr/sbin", "sbin", "bin"} {
		a.addDirs(d + "/x")
	}
	a.add(cpio.Symlink("init", "bin/busybox")) // busybox runs its init by this name
	// busybox' shell would prefer its own limited ip and ping, so use dash.
	sh, err := findProgram(root, "dash")
	if err != nil {
		return err
	}
	a.link("bin/sh", sh)
	a.add(cpio.CharDev("dev/console", 0o600, 5, 1))
	return a.write(w)
}

// addPackaged adds programs and kept files with their libraries. Kept files can be plug-ins, which need libraries too.
func (a archive) addPackaged(root string, r Recipe) error {
	all, err := r.packaged(root)
	if err != nil {
		return err
	}
	names := make(map[string]string) // from file to first name
	for _, path := range all {
		target, err := resolveIn(root, path) // never follows links to the host's files
		if err != nil {
			return err
		}
		// A library under two names must stay one file: libmlx5 is linked to, and opened as a plug-in of libibverbs.
		if first, ok := names[target]; ok {
			if first != path {
				a.link(path, first)
			}
			continue
		}
		names[target] = path
		b, err := os.ReadFile(filepath.Join(root, target)) // stored under the first name
		if err != nil {
			return err
		}
		fi, err := os.Stat(filepath.Join(root, target))
		if err != nil {
			return err
		}
		a.file(path, string(b), uint64(fi.Mode().Perm()))
		if filepath.Base(path) == "busybox" && path != "bin/busybox" {
			a.link("bin/busybox", path)
		}
	}
	return nil
}

func (r Recipe) packaged(root string) ([]string, error) {
	var paths []string
	for _, name := range r.Programs {
		p, err := findProgram(root, name)
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
	}
	for _, pattern := range r.Keep {
		found, err := findKept(root, pattern)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	return closure(root, paths)
}

func findKept(root, pattern string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(root, pattern))
	if err == nil && len(found) == 0 { // before Debian 13 in both /lib and /usr/lib
		found, err = filepath.Glob(filepath.Join(root, strings.TrimPrefix(pattern, "usr/")))
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no file of the packages matches %s", pattern)
	}
	for i, f := range found {
		if found[i], err = filepath.Rel(root, f); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (a archive) addModules(load []module, drivers driverSet) error {
	var order strings.Builder
	for _, m := range load {
		a.file("lib/modules/"+m.Name+".ko", string(m.Data), 0o644)
		if m.Optional {
			order.WriteString("-")
		}
		order.WriteString(m.Name + "\n")
	}
	a.file("lib/modules/load", order.String(), 0o644)
	for _, m := range drivers.modules {
		packed, err := pack(m.Data)
		if err != nil {
			return err
		}
		a.file("lib/modules/"+m.Name+".ko.gz", string(packed), 0o644)
	}
	a.file("lib/modules/drivers", drivers.table(), 0o644)
	return nil
}
