package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/vm"
)

// QEMU is the emulator of Debian 13's backports with its loader and libraries, for labs that need a newer one than
// the machine's. It is unpacked but not installed.
var QEMU = QEMUOf(runtime.GOARCH)

// QEMUPackage returns the Debian package of the emulator for an architecture.
func QEMUPackage(arch string) string {
	if arch == arm64 {
		return "qemu-system-arm"
	}
	return "qemu-system-x86"
}

// QEMUOf returns the QEMU for machines of an architecture, named as in Go. It runs on this machine.
func QEMUOf(arch string) *Kind { return QEMUOn(arch, runtime.GOARCH) }

// QEMUOn returns the QEMU for machines of one architecture that runs on hosts of another or the same one.
func QEMUOn(arch, host string) *Kind {
	recipe := qemuRecipe(arch, host)
	return &Kind{name: "qemu", label: "QEMU", room: "400 MB",
		recipe: func(context.Context, Options) (Recipe, builder, error) { return recipe, buildQEMU, nil }}
}

// qemuRelease is a Debian release whose backports contain a QEMU with vfio-user.
const qemuRelease = "trixie"

// qemuName is the emulator's file name in the image. The dynamic loader has the name of the recipe's program, because
// the loader is the started process, and processes are found by program name; see vm.Strays.
const qemuName = "qemu.elf"

// qemuRecipe returns the recipe of the image. Increase Format if buildQEMU makes a different image from the same
// recipe.
func qemuRecipe(arch, host string) Recipe {
	r := Recipe{
		Format:  1,
		Release: qemuRelease,
		Arch:    recipeArch(host),
		Suites: []string{qemuRelease, qemuRelease + "-updates", qemuRelease + "-backports",
			qemuRelease + "-security"},
		Packages:   []string{QEMUPackage(arch)},
		Programs:   []string{vm.Program(arch)},
		Backported: []string{"qemu", "seabios"},
		// Firmware for a q35 machine that starts a kernel directly.
		Keep: []string{"usr/share/seabios/bios-256k.bin", "usr/share/qemu/kvmvapic.bin",
			"usr/share/qemu/linuxboot_dma.bin", "usr/share/qemu/pvh.bin"},
	}
	if arch == arm64 { // it starts a kernel without firmware
		r.Backported, r.Keep = []string{"qemu"}, nil
	}
	return r
}

// Emulator returns the emulator of the image. It runs with the image's loader and libraries, independent of this
// machine's C library.
func (i *Image) Emulator() vm.Emulator {
	return vm.Emulator{
		Path: filepath.Join(i.Dir, i.Recipe.Programs[0]),
		// KernelVer is the only version field; in this image it holds QEMU's version.
		Version: i.KernelVer,
		Lead:    []string{"--library-path", i.Dir, filepath.Join(i.Dir, qemuName), "-L", i.Dir},
	}
}

// FindQEMU returns the installed QEMU, or if there is no suitable one, a QEMU from the cache. The installed one has
// priority because the user updates it and it needs no download. vfioUser requires support for devices in other
// processes; arch is the architecture of the machines.
func FindQEMU(ctx context.Context, o Options, arch string, vfioUser bool) (e vm.Emulator, err error) {
	e.Path, e.Version, err = vm.FindFor(arch)
	if err == nil {
		if !vfioUser || e.HasVFIOUser() {
			return e, nil
		}
		err = fmt.Errorf("a ConnectX needs QEMU 10.1 or newer with vfio-user, and the installed one is %s", e.Version)
	}
	img, other := QEMUOf(arch).Ensure(ctx, o)
	if other != nil {
		return e, fmt.Errorf("%w; no other can be had: %w", err, other)
	}
	return img.Emulator(), nil
}

func buildQEMU(ctx context.Context, o Options, work, out string, img *Image) error {
	r := img.Recipe
	o.progress("download the package lists of Debian 13 (16 MB)")
	a, err := newApt(ctx, filepath.Join(work, "apt"), r, "deb", "main")
	if err != nil {
		return err
	}
	debs, size, err := a.resolveSize(ctx, r.Packages)
	if err != nil {
		return err
	}
	version := versionOf(debs, r.Packages[0])
	o.progress("download QEMU %s of Debian 13 and its libraries (%d packages, %d MB); nothing is installed", version,
		len(debs), size/1e6)
	root := filepath.Join(work, "root")
	if err := a.fetch(ctx, o, work, root, debs); err != nil {
		return err
	}
	img.Packages = debs
	if err := img.copyProgram(root, out, r); err != nil {
		return err
	}
	if cmp.Or(r.Arch, amd64) != runtime.GOARCH { // cannot be run here
		img.KernelVer = upstream(version)
		return nil
	}
	made := Image{Dir: out, Recipe: r}
	img.KernelVer, err = made.Emulator().AskVersion()
	return err
}

// versionOf returns the version of a package in a list of NAME=VERSION.
func versionOf(debs []string, name string) string {
	for _, d := range debs {
		if v, ok := strings.CutPrefix(d, name+"="); ok {
			return v
		}
	}
	return ""
}

// upstream returns the program's version in a Debian version: 10.1.2 for 1:10.1.2+ds-1~bpo13+1.
func upstream(version string) string {
	v := version
	if _, after, epoch := strings.Cut(version, ":"); epoch {
		v = after
	}
	if i := strings.IndexAny(v, "+-~"); i >= 0 {
		v = v[:i]
	}
	return v
}

// copyProgram copies the program with its libraries and firmware from root to out, under their base names. out has no
// subdirectories, so it serves as the path of libraries (--library-path) and of firmware (-L).
func (i *Image) copyProgram(root, out string, r Recipe) error {
	program, err := findProgram(root, r.Programs[0])
	if err != nil {
		return err
	}
	files, err := closure(root, []string{program})
	if err != nil {
		return err
	}
	for _, pattern := range r.Keep {
		found, err := findKept(root, pattern)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, f := range files {
		name := filepath.Base(f)
		switch {
		case f == program:
			name = qemuName
		case strings.HasPrefix(name, "ld-linux"):
			name = r.Programs[0]
		}
		if slices.Contains(i.Others, name) {
			continue // the loader has two names
		}
		target, err := resolveIn(root, f)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(filepath.Join(root, target))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), b, 0o755); err != nil {
			return err
		}
		i.Others = append(i.Others, name)
	}
	return nil
}

// newApt makes a configuration in dir with only the suites of a recipe, at this machine's mirrors, and fetches their
// lists: of packages (kind deb) or sources (deb-src), in one component. Signatures are checked against Debian's keys.
func newApt(ctx context.Context, dir string, r Recipe, kind, component string) (apt, error) {
	targets, dump, err := askApt(ctx)
	if err != nil {
		return apt{}, err
	}
	sources, err := r.mirrors(targets)
	if err != nil {
		return apt{}, err
	}
	options := aptOptions(dump)
	a := apt{filepath.Join(dir, "apt.conf")}
	var list strings.Builder
	for _, s := range sources {
		list.WriteString(s.line(kind, component))
	}
	set := func(key, value string) { options = append(options, key+" "+strconv.Quote(value)+";") }
	set("Dir::State", dir)
	set("Dir::State::lists", "lists")
	// No package counts as installed, so the answer includes all dependencies.
	set("Dir::State::status", "/dev/null")
	set("Dir::Cache", filepath.Join(dir, "cache"))
	set("Dir::Etc::sourcelist", filepath.Join(dir, "sources.list"))
	set("Dir::Etc::sourceparts", "/dev/null")
	set("Dir::Etc::preferences", filepath.Join(dir, "preferences"))
	set("Dir::Etc::preferencesparts", "/dev/null")
	set("Dir::Log", dir)
	// A mistake could install packages of another release here, so dpkg is out of reach.
	set("Dir::Bin::dpkg", "/bin/false")
	set("APT::Architecture", cmp.Or(r.Arch, amd64))
	set("APT::Architectures", cmp.Or(r.Arch, amd64))
	set("APT::Install-Recommends", "false")
	set("Acquire::Languages", "none")
	// Root keeps its own user, because _apt may not write to this directory.
	set("APT::Sandbox::User", "")
	err = os.MkdirAll(filepath.Join(dir, "lists", "partial"), 0o755)
	for name, text := range map[string]string{"apt.conf": strings.Join(options, "\n") + "\n",
		"sources.list": list.String(), "preferences": preferences(r)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	if err != nil {
		return a, err
	}
	if _, err := a.run(ctx, "", "apt-get", "--quiet", "--error-on=any", "update"); err != nil {
		return a, fmt.Errorf("get the package lists of Debian %s: %w", r.Release, err)
	}
	return a, nil
}

// mirrors returns the suites of a recipe at Debian's mirrors. targets are lines of "URI codename component", possibly
// of other suites.
func (r Recipe) mirrors(targets string) (sources []source, err error) {
	var archive, security string
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		switch {
		case len(f) != 3 || f[2] != "main" || strings.HasPrefix(f[0], "cdrom:"):
		case strings.HasSuffix(f[1], "-security"):
			security = f[0]
		// A suite with a hyphen, such as bookworm-updates, determines the mirror only if there is no plain suite.
		case archive == "" || !strings.Contains(f[1], "-"):
			archive = f[0]
		}
	}
	if archive == "" {
		return nil, fmt.Errorf("this machine's apt knows no mirror of Debian: %s", ImportFix)
	}
	for _, suite := range r.Suites {
		switch {
		case !strings.HasSuffix(suite, "-security"):
			sources = append(sources, source{archive, suite})
		case security != "":
			sources = append(sources, source{security, suite})
		}
	}
	return sources, nil
}
