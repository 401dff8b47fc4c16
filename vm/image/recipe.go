package image

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// A Recipe is everything that decides what an image holds; of the versions of its packages, those
// are taken that the mirrors offer on the day. Two equal recipes name the same image. A kind of image
// has only some of the fields. All that it lacks must be left out of the JSON, or the keys of all
// images in all caches would change with each new field.
type Recipe struct {
	Format int `json:"format"` // raised when the builder itself changes what it makes from the same recipe
	// Release is the Debian release ("bookworm") whose packages apt offers on this machine.
	Release string `json:"release"`
	// Arch is the architecture of the packages as Debian and Go name it; empty means amd64.
	Arch string `json:"arch,omitempty"`
	// Suites are those that the packages of a host come from: "bookworm", "bookworm-security", ...
	Suites []string `json:"suites,omitempty"`
	// Kernel of a node is a Debian package, or the path of a kernel image; see KernelDigest.
	Kernel string `json:"kernel,omitempty"`
	// KernelDigest is the SHA-256 of the kernel image where Kernel is a path, else empty.
	KernelDigest string `json:"kernel_digest,omitempty"`

	Packages []string `json:"packages"` // Debian packages, with what they depend on and without what they recommend
	// Backported are source packages that come from the suite of backports, where Suites has it:
	// Debian 12's own QEMU is older than the one that rackless runs on.
	Backported []string `json:"backported,omitempty"`
	DiskMiB    int      `json:"disk_mib,omitempty"` // size of a host's disk; what is not used takes no room

	// The image of a node keeps some of what is in the packages:
	Programs []string `json:"programs,omitempty"` // names of programs, with the libraries that they need
	Keep     []string `json:"keep,omitempty"`     // glob patterns of further files (plug-ins, data)
	Links    []Link   `json:"links,omitempty"`    // that the packages' scripts would make, which are not run
	// kernel modules to load at boot, in this order, with what they depend on
	Modules  []string `json:"modules,omitempty"`
	Optional []string `json:"optional,omitempty"` // like Modules, but not every kernel has them: built in, or renamed
	// modules of hardware, kept packed and loaded where it is found; not every kernel has all
	Drivers []string `json:"drivers,omitempty"`

	// Disk is a user's disk image, by its absolute path, and DiskVersion tells whether it has changed.
	Disk        string `json:"disk,omitempty"`
	DiskVersion string `json:"disk_version,omitempty"`

	FilesDigest string `json:"files_digest"` // SHA-256 over the files that rackless itself adds
}

// A Link is a symbolic link in the build root. It is made where one file matches Target, a glob
// pattern relative to the root; other releases of Debian need it not.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// nodeRecipe returns the recipe of the image of nodes.
//
// The RDMA modules need help: rdma_rxe asks the crypto API for "crc32" by name, so that no
// dependency list mentions crc32_generic, and `rdma link add` then fails with "No such file or
// directory". Kernels from 6.15 on compute it in the library and have no such module, which is why
// it is optional.
//
// The image has 76 MB, and the smallest node 256 MiB, of which 107 are left; see KernelArgs.
func nodeRecipe(release, arch, kernel, kernelDigest string) Recipe {
	return Recipe{
		Format:       1,
		Release:      release,
		Arch:         recipeArch(arch),
		Kernel:       kernel,
		KernelDigest: kernelDigest,
		Packages: []string{
			"busybox-static", "dash", "ethtool", "fping", "ibverbs-providers", "ibverbs-utils", "infiniband-diags",
			"iperf3", "iproute2", "iputils-ping", "libfabric-bin", "mstflint", "netbase", "numactl", "perftest",
			"qemu-guest-agent", "rdmacm-utils", "stress-ng", "sysbench", "tcpdump", "ucx-utils",
		},
		Programs: []string{
			"bridge", "busybox", "dash", "dcb", "devlink", "ethtool", "fi_info", "fi_pingpong", "fping", "ib_atomic_bw",
			"ib_atomic_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat",
			"ibstat", "ibv_devices", "ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ip",
			"iperf3", "mstconfig", "mstflint", "numactl", "numastat", "ping", "qemu-ga", "raw_ethernet_bw", "rdma",
			"rping", "ss", "stress-ng", "sysbench", "tc", "tcpdump", "ucmatose", "ucx_info", "ucx_perftest",
		},
		Keep: []string{"usr/lib/*/libibverbs/*.so", "etc/libibverbs.d/*", "etc/protocols", "etc/services",
			"usr/share/mstflint/mlxconfig_dbs/mlxconfig_host.db", // what mstconfig knows of settings
			// opened by UCX by its name; the other transports are not needed
			"usr/lib/*/ucx/libuct_ib.so.0",
			// opened by the C library when a thread is cancelled, as rping does
			"usr/lib/*/libgcc_s.so.1",
		},
		// libfabric needs a library of InfiniPath cards, which Debian 12 chooses among "alternatives".
		Links: []Link{{Path: "usr/lib/libpsm_infinipath.so.1", Target: "usr/lib/libpsm1/libpsm_infinipath.so.1.*"}},
		Modules: []string{"virtio_pci", "virtio_console", "virtio_net", "virtio_rng", "rdma_rxe", "ib_uverbs",
			"rdma_ucm"},
		Optional: []string{"crc32_generic", "crc32-pclmul", "ib_umad", "af_packet", "8021q"},
		// NICs that people pass through: those with RDMA, and those of common boards. Together 12 MB, packed 4.
		Drivers: []string{
			"bnxt_en", "bnxt_re", "e1000e", "i40e", "iavf", "ice", "igb", "igbvf", "igc", "irdma", "ixgbe", "ixgbevf",
			"mlx4_core", "mlx4_en", "mlx4_ib", "mlx5_core", "mlx5_ib",
		},

		FilesDigest: filesDigest(own("node")),
	}
}

// recipeArch is an architecture as a recipe has it.
func recipeArch(arch string) string {
	if arch == amd64 {
		return ""
	}
	return arch
}

const amd64, arm64 = "amd64", "arm64"

// armWords are words of KernelArgs and of the files of nodes with what arm64 has in their place: its console, the
// number of the system call read, and no arguments of x86. Debian's kernel keeps 64 MiB for devices (CMA) there, which
// count as free and which most of the kernel cannot have.
var armWords = strings.NewReplacer("ttyS0", "ttyAMA0", `"0 0x0"`, `"63 0x0"`,
	" no_timer_check", " cma=0", " pci=lastbus=0", "")

// inArch returns a text for nodes of the recipe's architecture.
func (r Recipe) inArch(text string) string {
	if r.Arch == arm64 {
		return armWords.Replace(text)
	}
	return text
}

// hostRecipe returns the recipe of the image of hosts from the suites of a release.
func hostRecipe(release string, suites []string) Recipe {
	return Recipe{
		Format:  1,
		Release: release,
		Suites:  suites,
		Packages: []string{
			"dbus", "e2fsprogs", "ethtool", "fdisk", "grub-pc", "ibverbs-providers", "ibverbs-utils",
			"infiniband-diags", "initramfs-tools", "iproute2", "iputils-ping", "irqbalance", "kmod", "less",
			"libvirt-clients", "libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-daemon-system",
			"linux-image-amd64", "lz4", "mstflint", "netbase", "numactl", "ovmf", "pciutils", "perftest", "procps",
			"psmisc", "qemu-guest-agent", "qemu-system-x86", "qemu-utils", "rdma-core", "stress-ng", "systemd-sysv",
			"udev", "util-linux", "vim-tiny",
		},
		Backported: []string{"qemu", "seabios"},
		DiskMiB:    4096,

		FilesDigest: filesDigest(own("host")),
	}
}

// backports returns the suite that Backported packages come from; ok is false where the machine's apt has none.
func (r Recipe) backports() (suite string, ok bool) {
	suite = r.Release + "-backports"
	return suite, slices.Contains(r.Suites, suite)
}

// Key names the image that the recipe makes: 16 hexadecimal digits of the SHA-256 of its JSON.
func (r Recipe) Key() string {
	b, err := json.Marshal(r)
	if err != nil { // a struct of strings and ints
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// trees are what rackless adds to the images, a directory for each kind, in whose files all is laid
// out as in the root of the machine. Those in files/mnt make a disk and are not on it.
//
//go:embed all:node all:host all:full all:own all:slurm
var trees embed.FS

// own returns what rackless adds to images of a kind.
func own(kind string) fs.FS {
	tree, err := fs.Sub(trees, kind)
	if err != nil { // a constant
		panic(err)
	}
	return tree
}

// eachFile calls add with each of the files that rackless adds, by its path in the image, with its mode.
func eachFile(tree fs.FS, add func(path string, content []byte, mode int64) error) error {
	return fs.WalkDir(tree, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() { // directories come with what is in them
			return err
		}
		b, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		mode := int64(0o644) // embed keeps no modes
		if bytes.HasPrefix(b, []byte("#!")) {
			mode = 0o755
		}
		return add(strings.TrimPrefix(name, "files/"), b, mode)
	})
}

// filesDigest returns the SHA-256 over paths and contents of a tree, in hexadecimal.
func filesDigest(tree fs.FS) string {
	h := sha256.New()
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", path, len(b))
		h.Write(b)
		return nil
	})
	if err != nil { // embedded: cannot fail
		panic(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}
