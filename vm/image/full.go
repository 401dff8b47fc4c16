package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/userfile"
)

// A full node is a Debian system on a disk. QEMU starts its kernel directly, so it needs no boot loader; rackless-node
// configures it through the setup port.

var fullReleases = map[string]string{"debian-12": "bookworm", "debian-13": "trixie"}

var fullPackages = []string{
	"busybox-static", "e2fsprogs", "ethtool", "fping", "ibverbs-providers", "ibverbs-utils", "infiniband-diags",
	"initramfs-tools", "iperf3", "iproute2", "iputils-ping", "kmod", "less", "libfabric-bin", "linux-image-amd64",
	"lz4", "mstflint", "netbase", "numactl", "openssh-client", "openssh-server", "pciutils", "perftest", "procps",
	"psmisc", "python3", "qemu-guest-agent", "rdma-core", "rdmacm-utils", "rsync", "stress-ng", "sysbench",
	"systemd-sysv", "tcpdump", "ucx-utils", "udev", "util-linux", "vim-tiny",
}

const setApps = "apps"

var fullSets = map[string][]string{
	setAI:   {"g++", "libcurl4", "libgloo-dev", "python3-numpy"}, // for Gloo, Mooncake and NIXL
	"apps":  {"gromacs", "hpcc", "lammps", "openfoam"},
	"gpu":   {"gcc", "hwloc-nox", "libc6-dev", "libibumad-dev", "libpci-dev", "librdmacm-dev", "make"},
	"mpich": {"gcc", "libc6-dev", "libmpich-dev", "mpich"},
	"mpi":   {"gcc", "libc6-dev", "libopenmpi-dev", "mpich", "openmpi-bin", "python3-mpi4py"},
	"slurm": {"dbus", "munge", "slurm-client", "slurm-wlm"},
	// for rdma-core's tests in Python, some of which need scapy, and fabtests, which gcc compiles
	"suites": {"gcc", "libc6-dev", "python3-pyverbs", "python3-scapy", "xz-utils"},
	"vfio":   nil, // another kernel and its settings
}

// setsOf returns the names of the package sets of a release, sorted.
func setsOf(release string) []string {
	all := slices.Sorted(maps.Keys(fullSets))
	if release != vfioRelease {
		all = slices.DeleteFunc(all, func(set string) bool { return set == setVFIO })
	}
	return all
}

// fullShared are files of the hosts' image that make booting fast on an emulated CPU.
var fullShared = []string{"etc/initramfs-tools/", "etc/systemd/journald.conf.d/", "etc/systemd/system/"}

// Full returns the image with a lab file's name, such as debian-13+slurm+mpi.
func Full(name string) *Kind {
	release, rest, _ := strings.Cut(name, "+")
	sets := strings.FieldsFunc(rest, func(r rune) bool { return r == '+' })
	sets = lists.Distinct(sets)
	canonical := strings.Join(append([]string{release}, sets...), "+")
	return &Kind{name: canonical, label: "the image " + canonical, room: "6 GB",
		recipe: func(context.Context, Options) (Recipe, builder, error) {
			r, err := fullRecipe(release, sets)
			return r, buildFull, err
		}}
}

// CheckArch refuses architectures without images.
func CheckArch(arch string) error {
	if arch != amd64 && arch != arm64 {
		return fmt.Errorf("no images for %q: want %s or %s", arch, amd64, arm64)
	}
	return nil
}

// Named returns the node image with a lab file's name; arch may be "".
func Named(name, arch string) (*Kind, error) {
	arch = cmp.Or(arch, runtime.GOARCH)
	if err := CheckArch(arch); err != nil {
		return nil, err
	}
	switch {
	case name == Node.name:
		return NodeOf(arch), nil
	case arch != amd64:
		return nil, fmt.Errorf("no image %q for %s: want %s", name, arch, Node.name)
	}
	k := Full(name)
	release, _, _ := strings.Cut(name, "+")
	if names := FullNames(); !slices.Contains(names, k.name) {
		return nil, fmt.Errorf("no image %q: want %s or %s, with any of the sets %s, as in debian-12+mpi+slurm", name,
			Node.name, strings.Join(slices.Sorted(maps.Keys(fullReleases)), " or "),
			strings.Join(setsOf(release), ", "))
	}
	return k, nil
}

// FullNames returns canonical names.
func FullNames() (names []string) {
	for release := range fullReleases {
		some := []string{release} // every subset, in order
		for _, set := range setsOf(release) {
			some = append(some, lists.Map(some, func(name string) string { return name + "+" + set })...)
		}
		names = append(names, some...)
	}
	slices.Sort(names)
	return names
}

func fullRecipe(release string, sets []string) (r Recipe, err error) {
	codename, ok := fullReleases[release]
	if !ok {
		return r, fmt.Errorf("image %s: not a release that full nodes can have", release)
	}
	packages := slices.Clone(fullPackages)
	for _, s := range sets {
		if !slices.Contains(setsOf(release), s) {
			return r, fmt.Errorf("image %s: no package set %q", release, s)
		}
		packages = append(packages, fullSets[s]...)
	}
	slices.Sort(packages)
	r = Recipe{Format: 1, Release: codename, Suites: suites(codename),
		Packages: slices.Compact(packages), DiskMiB: 8192, FilesDigest: treeDigest(filesOf(sets))}
	if slices.Contains(sets, setGPU) {
		r.Sources, r.Unpacked = gpuSources, gpuPlugins(sets)
	}
	if hasWheels(sets) {
		r.Wheels = gpuWheels
	}
	if slices.Contains(sets, setVFIO) {
		r.Suites, r.Backported = append(r.Suites, codename+"-backports"), vfioBackported
	}
	if slices.Contains(sets, setSuites) {
		r.OwnSources = suitesSources
	}
	return r, nil
}

// eachFullFile also adds the files of all nodes, and files shared with emulated hosts.
func eachFullFile(add func(name string, content []byte, mode int64) error) error {
	for _, kind := range []string{"host", "node", "full"} {
		err := eachFile(own(kind), func(name string, content []byte, mode int64) error {
			switch kind {
			case "host":
				if !slices.ContainsFunc(fullShared, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
					return nil
				}
			case "node":
				// sbin is a link here, and shutdown is systemd's.
				if base := path.Base(name); !strings.HasPrefix(base, "rackless-") {
					return nil
				}
				name = "usr/" + name
			}
			return add(name, content, mode)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	setAI     = "ai"
	setGPU    = "gpu"
	setSlurm  = "slurm"
	setSuites = "suites"
	setVFIO   = "vfio"
)

// suitesSources are compiled by suites/files/mnt/compile-suites. They are of the release of the image, so that the
// tests of rdma-core are those of its pyverbs.
var suitesSources = []string{"libfabric", "rdma-core"}

// SlurmFiles adds the files that start Slurm at each boot of a full node.
func SlurmFiles(add func(name string, content []byte, mode int64) error) error {
	return eachFile(own(setSlurm), add)
}

func filesOf(sets []string) tree {
	return func(add func(name string, content []byte, mode int64) error) error {
		err := eachFullFile(add)
		for _, set := range []string{setGPU, setSlurm, setSuites, setVFIO} {
			if err == nil && slices.Contains(sets, set) {
				err = eachFile(own(set), add)
			}
		}
		if err == nil && hasWheels(sets) {
			err = eachFile(own("wheels"), add)
		}
		return err
	}
}

func treeDigest(files tree) string {
	var all bytes.Buffer
	if err := writeTar(&all, files); err != nil { // embedded: cannot fail
		panic(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(all.Bytes()))
}

func buildFull(ctx context.Context, o Options, work, out string, img *Image) error {
	if err := checkTools(img.Name); err != nil {
		return err
	}
	targets, dump, err := askApt(ctx)
	if err != nil {
		return err
	}
	in := inputs{recipe: img.Recipe, options: aptOptions(dump)}
	if in.sources, err = in.recipe.mirrors(targets); err != nil {
		return err
	}
	img.Kernel, img.Initramfs, img.Disk = "vmlinux", "initrd", diskName
	if err := fetchFiles(ctx, o, work, in.recipe); err != nil {
		return err
	}
	o.progress("install Debian %s for full nodes (%d packages and what they need)", in.recipe.Release,
		len(in.recipe.Packages))
	files := filesOf(strings.Split(img.Name, "+")[1:])
	err = install(ctx, o, work, in, files, []string{"disk.tar", "vmlinuz", "initrd", "kernel", "packages"})
	if err != nil {
		return fmt.Errorf("install Debian %s for full nodes: %w", in.recipe.Release, err)
	}
	kernel, err := os.ReadFile(filepath.Join(work, "kernel"))
	if err != nil {
		return err
	}
	packages, err := os.ReadFile(filepath.Join(work, "packages"))
	if err != nil {
		return err
	}
	img.KernelVer, img.Packages = strings.TrimSpace(string(kernel)), strings.Fields(string(packages))
	if len(in.recipe.Backported) > 0 {
		if err := exportsDMABufs(img.KernelVer); err != nil {
			return err
		}
	}
	packed, err := userfile.Read(filepath.Join(work, "vmlinuz"), userfile.Kernel)
	if err != nil {
		return err
	}
	vmlinux, err := extractVmlinux(packed)
	if err != nil {
		return fmt.Errorf("kernel %s: %w", img.KernelVer, err)
	}
	if err := os.WriteFile(filepath.Join(out, img.Kernel), vmlinux, 0o644); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(work, "initrd"), filepath.Join(out, img.Initramfs)); err != nil {
		return err
	}
	o.progress("compress the disk")
	if _, err := run(ctx, command{name: "tar", dir: work, args: []string{"--extract", "--file", "disk.tar"}}); err !=
		nil {
		return err
	}
	_, err = run(ctx, command{name: "qemu-img", watch: o.watch, args: []string{
		"convert", "-p", "-f", "raw", "-O", "qcow2", "-c", "-o", "compression_type=zstd",
		filepath.Join(work, "disk.raw"), filepath.Join(out, diskName),
	}})
	return err
}

// fullArgs is explained at KernelArgs.
const fullArgs = "console=ttyS0 root=/dev/vda rw quiet panic=-1 net.ifnames=0 no_timer_check cryptomgr.notests " +
	"mitigations=off nokaslr audit=0 selinux=0 apparmor=0 random.trust_cpu=on pci=lastbus=0 systemd.show_status=no"

// IsFull reports whether the image is for full nodes, built by rackless or the user's own.
func (i *Image) IsFull() bool { return i.Disk != "" && i.Name != hostName }

// BootsItself reports whether the image is a user's, with its own boot loader. Kernel and arguments are fixed.
func (i *Image) BootsItself() bool { return i.Name == ownName }

// KernelArgs is the kernel's command line.
func (i *Image) KernelArgs() string {
	if i.IsFull() {
		return i.Recipe.inArch(fullArgs)
	}
	return i.Recipe.inArch(KernelArgs)
}
