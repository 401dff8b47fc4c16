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

// QEMU is Debian 13's backported emulator, unpacked but not installed, for labs that need a newer one.
var QEMU = QEMUOf(runtime.GOARCH)

// QEMUPackage returns an architecture's Debian package.
func QEMUPackage(arch string) string {
	if arch == arm64 {
		return "qemu-system-arm"
	}
	return "qemu-system-x86"
}

// QEMUOf returns the QEMU for an architecture, named as in Go. It runs on this machine.
func QEMUOf(arch string) *Kind { return QEMUOn(arch, runtime.GOARCH) }

// QEMUOn returns the QEMU for machines of arch. It runs on host.
func QEMUOn(arch, host string) *Kind {
	recipe := qemuRecipe(arch, host)
	return &Kind{name: "qemu", label: "QEMU", room: "400 MB",
		recipe: func(context.Context, Options) (Recipe, builder, error) { return recipe, buildQEMU, nil }}
}

// qemuRelease has backports of a QEMU with vfio-user.
const qemuRelease = "trixie"

// qemuName is not the program's name, which the dynamic loader has: the loader is the started process, and processes
// are found by program name (vm.Strays).
const qemuName = "qemu.elf"

// qemuRecipe must increase Format if buildQEMU makes a different image.
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
		Keep: []string{"usr/share/seabios/bios-256k.bin", "usr/share/qemu/kvmvapic.bin",
			"usr/share/qemu/linuxboot_dma.bin", "usr/share/qemu/pvh.bin"},
	}
	if arch == arm64 { // needs no firmware
		r.Backported, r.Keep = []string{"qemu"}, nil
	}
	return r
}

// Emulator runs with the image's loader and libraries, independent of this machine's C library.
func (i *Image) Emulator() vm.Emulator {
	return vm.Emulator{
		Path: filepath.Join(i.Dir, i.Recipe.Programs[0]),
		// QEMU's version.
		Version: i.KernelVer,
		Lead:    []string{"--library-path", i.Dir, filepath.Join(i.Dir, qemuName), "-L", i.Dir},
	}
}

// FindQEMU returns the installed QEMU, which the user updates, or if it is not suitable, one from the cache. vfioUser
// requires devices in other processes; arch is the machines'.
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
		return e, fmt.Errorf("%w; and rackless has no QEMU of its own: %w", err, other)
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

func versionOf(debs []string, name string) string {
	for _, d := range debs {
		if v, ok := strings.CutPrefix(d, name+"="); ok {
			return v
		}
	}
	return ""
}

// upstream returns 10.1.2 for 1:10.1.2+ds-1~bpo13+1.
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

// copyProgram copies the program with its libraries and firmware to out, without subdirectories, so that out serves as
// --library-path and -L.
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

// newApt has only the suites of a recipe at this machine's mirrors, in one component; kind is deb or deb-src.
// Signatures are checked against Debian's keys.
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
	// No package counts as installed.
	set("Dir::State::status", "/dev/null")
	set("Dir::Cache", filepath.Join(dir, "cache"))
	set("Dir::Etc::sourcelist", filepath.Join(dir, "sources.list"))
	set("Dir::Etc::sourceparts", "/dev/null")
	set("Dir::Etc::preferences", filepath.Join(dir, "preferences"))
	set("Dir::Etc::preferencesparts", "/dev/null")
	set("Dir::Log", dir)
	// So that a mistake cannot install packages here.
	set("Dir::Bin::dpkg", "/bin/false")
	set("APT::Architecture", cmp.Or(r.Arch, amd64))
	set("APT::Architectures", cmp.Or(r.Arch, amd64))
	set("APT::Install-Recommends", "false")
	set("Acquire::Languages", "none")
	// _apt may not write to this directory.
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

// mirrors returns a recipe's suites at the mirrors of targets, lines of "URI codename component".
func (r Recipe) mirrors(targets string) (sources []source, err error) {
	var archive, security string
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		switch {
		case len(f) != 3 || f[2] != "main" || strings.HasPrefix(f[0], "cdrom:"):
		case strings.HasSuffix(f[1], "-security"):
			security = f[0]
		// bookworm-updates determines the mirror only if there is no plain suite.
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
