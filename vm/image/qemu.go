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

// QEMU is the emulator of Debian 13's backports with its loader and its libraries, for labs that need a newer one than
// the machine has. It is unpacked and not installed.
var QEMU = QEMUOf(runtime.GOARCH)

// QEMUPackage is Debian's package with the QEMU for machines of an architecture.
func QEMUPackage(arch string) string {
	if arch == arm64 {
		return "qemu-system-arm"
	}
	return "qemu-system-x86"
}

// QEMUOf is the QEMU for machines of an architecture, which is named as in Go. It runs on this machine.
func QEMUOf(arch string) *Kind { return QEMUOn(arch, runtime.GOARCH) }

// QEMUOn is the QEMU for machines of an architecture that runs on a host of another, or of the same.
func QEMUOn(arch, host string) *Kind {
	recipe := qemuRecipe(arch, host)
	return &Kind{name: "qemu", label: "QEMU", room: "400 MB",
		recipe: func(context.Context, Options) (Recipe, builder, error) { return recipe, buildQEMU, nil }}
}

// qemuRelease is the release of Debian whose backports have a QEMU with vfio-user.
const qemuRelease = "trixie"

// qemuName is the name of the emulator in the image. The dynamic loader has that of the recipe's program: the loader is
// what is started, and processes are found by the name of their program; see vm.Strays.
const qemuName = "qemu.elf"

// qemuRecipe is what the image is made of. Format is to be raised when buildQEMU makes another image of the same
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
		// The firmware of a q35 machine that starts a kernel directly.
		Keep: []string{"usr/share/seabios/bios-256k.bin", "usr/share/qemu/kvmvapic.bin",
			"usr/share/qemu/linuxboot_dma.bin", "usr/share/qemu/pvh.bin"},
	}
	if arch == arm64 { // which starts a kernel without firmware
		r.Backported, r.Keep = []string{"qemu"}, nil
	}
	return r
}

// Emulator returns how the QEMU of an image is started. It runs by the loader and the libraries of the image, whatever
// C library this machine has.
func (i *Image) Emulator() vm.Emulator {
	return vm.Emulator{
		Path: filepath.Join(i.Dir, i.Recipe.Programs[0]),
		// An image has one field for a version. In this one it is that of QEMU.
		Version: i.KernelVer,
		Lead:    []string{"--library-path", i.Dir, filepath.Join(i.Dir, qemuName), "-L", i.Dir},
	}
}

// FindQEMU returns the installed QEMU, or where there is none that will do, one in the cache. The installed one comes
// first: it is the one that the user updates, and nothing has to be downloaded. vfioUser asks for one that connects to
// devices in other processes; arch is the architecture of the machines.
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

// buildQEMU unpacks QEMU and keeps what it needs, all in one directory.
func buildQEMU(ctx context.Context, o Options, work, out string, img *Image) error {
	r := img.Recipe
	o.progress("download the package lists of Debian 13 (16 MB)")
	a, err := newApt(ctx, filepath.Join(work, "apt"), r)
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
	if err := img.gather(root, out, r); err != nil {
		return err
	}
	if cmp.Or(r.Arch, amd64) != runtime.GOARCH { // and cannot be asked here
		img.KernelVer = upstream(version)
		return nil
	}
	made := Image{Dir: out, Recipe: r}
	img.KernelVer, err = made.Emulator().AskVersion()
	return err
}

// versionOf returns the version of a package among those that apt names, as NAME=VERSION.
func versionOf(debs []string, name string) string {
	for _, d := range debs {
		if v, ok := strings.CutPrefix(d, name+"="); ok {
			return v
		}
	}
	return ""
}

// upstream returns what a Debian version says of the program: 10.1.2 for 1:10.1.2+ds-1~bpo13+1.
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

// gather copies the program with its libraries and its firmware from root to the directory out, under their last names.
// All are in one directory without subdirectories, so that it serves as the path of libraries (--library-path) and of
// firmware (-L).
func (i *Image) gather(root, out string, r Recipe) error {
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

// newApt makes a configuration in dir that knows the suites of a recipe alone, at the mirrors of this machine, and
// gets their lists. Signatures are checked against Debian's keys.
func newApt(ctx context.Context, dir string, r Recipe) (apt, error) {
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
		list.WriteString(s.line())
	}
	set := func(key, value string) { options = append(options, key+" "+strconv.Quote(value)+";") }
	set("Dir::State", dir)
	set("Dir::State::lists", "lists")
	// No package counts as installed, so that all dependencies are part of the answer.
	set("Dir::State::status", "/dev/null")
	set("Dir::Cache", filepath.Join(dir, "cache"))
	set("Dir::Etc::sourcelist", filepath.Join(dir, "sources.list"))
	set("Dir::Etc::sourceparts", "/dev/null")
	set("Dir::Etc::preferences", filepath.Join(dir, "preferences"))
	set("Dir::Etc::preferencesparts", "/dev/null")
	set("Dir::Log", dir)
	// What a mistake could install here would be another release's: dpkg is out of reach.
	set("Dir::Bin::dpkg", "/bin/false")
	set("APT::Architecture", cmp.Or(r.Arch, amd64))
	set("APT::Architectures", cmp.Or(r.Arch, amd64))
	set("APT::Install-Recommends", "false")
	set("Acquire::Languages", "none")
	// As root: the user _apt may not write into this directory.
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

// mirrors returns the suites of a recipe at the mirrors of Debian in lines of "URI codename component", which may be of
// other suites.
func (r Recipe) mirrors(targets string) (sources []source, err error) {
	var archive, security string
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		switch {
		case len(f) != 3 || f[2] != "main" || strings.HasPrefix(f[0], "cdrom:"):
		case strings.HasSuffix(f[1], "-security"):
			security = f[0]
		// A suite with a hyphen, such as bookworm-updates, names the mirror too, but only where no plain one does.
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
