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

// A Recipe determines an image, except that packages have the mirrors' versions of the day. Unused fields must be
// omitted from the JSON: otherwise each new field would change the keys of cached images.
type Recipe struct {
	Format int `json:"format"` // increased if the builder makes another image
	// Release is that of this machine's apt, such as "bookworm".
	Release string `json:"release"`
	// Arch is named as in Debian and Go; "" means amd64.
	Arch string `json:"arch,omitempty"`
	// Suites are a host's: "bookworm", "bookworm-security", ...
	Suites []string `json:"suites,omitempty"`
	// Kernel is a Debian package or the path of a kernel image, for nodes.
	Kernel string `json:"kernel,omitempty"`
	// KernelDigest is the SHA-256 if Kernel is a path, or "".
	KernelDigest string `json:"kernel_digest,omitempty"`

	Packages []string `json:"packages"` // dependencies are added, recommended packages are not
	// Backported are source packages, if Suites has backports: Debian 12's own QEMU is too old for rackless.
	Backported []string `json:"backported,omitempty"`
	// Sources are source packages to compile, of the release sourcesRelease.
	Sources []string `json:"sources,omitempty"`
	// OwnSources are like Sources, of the release of the packages.
	OwnSources []string `json:"own_sources,omitempty"`
	// Unpacked are packages of contrib, without dependencies.
	Unpacked []string `json:"unpacked,omitempty"`
	// Wheels are of PyPI: "nixl-cu12==1.5.1".
	Wheels  []string `json:"wheels,omitempty"`
	DiskMiB int      `json:"disk_mib,omitempty"` // unused space takes no room

	// A node's image keeps only parts of the packages:
	Programs []string `json:"programs,omitempty"` // with libraries
	Keep     []string `json:"keep,omitempty"`     // glob patterns (plug-ins, data)
	Links    []Link   `json:"links,omitempty"`    // of package scripts, which are not run
	// to load at boot, in this order, with dependencies
	Modules  []string `json:"modules,omitempty"`
	Optional []string `json:"optional,omitempty"` // may be missing, built in or renamed
	// packed, loaded if the hardware is found; may be missing
	Drivers []string `json:"drivers,omitempty"`

	// Disk is the path of a user's disk image. DiskVersion changes if the file does.
	Disk        string `json:"disk,omitempty"`
	DiskVersion string `json:"disk_version,omitempty"`

	FilesDigest string `json:"files_digest"` // SHA-256 over the files that rackless adds
}

// A Link is made if exactly one file matches Target, a glob pattern relative to the root; other Debian releases do not
// need it.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// nodeRecipe's image has 76 MB, and the smallest node 256 MiB, of which 107 are left; see KernelArgs.
//
// rdma_rxe asks the crypto API for "crc32" by name, so no dependency list mentions crc32_generic, without which `rdma
// link add` fails with "No such file or directory". Kernels from 6.15 on have it in a library.
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
			"usr/share/mstflint/mlxconfig_dbs/mlxconfig_host.db", // mstconfig's database of settings
			// opened by UCX; the other transports are not needed
			"usr/lib/*/ucx/libuct_ib.so.0",
			// opened by the C library when a thread is cancelled
			"usr/lib/*/libgcc_s.so.1",
		},
		// libfabric needs a library for InfiniPath cards, which "alternatives" selects.
		Links: []Link{{Path: "usr/lib/libpsm_infinipath.so.1", Target: "usr/lib/libpsm1/libpsm_infinipath.so.1.*"}},
		Modules: []string{"virtio_pci", "virtio_console", "virtio_net", "virtio_rng", "rdma_rxe", "ib_uverbs",
			"rdma_ucm"},
		Optional: []string{"crc32_generic", "crc32-pclmul", "ib_umad", "af_packet", "8021q"},
		// NICs with RDMA, and of common boards: 12 MB, packed 4.
		Drivers: []string{
			"bnxt_en", "bnxt_re", "e1000e", "i40e", "iavf", "ice", "igb", "igbvf", "igc", "irdma", "ixgbe", "ixgbevf",
			"mlx4_core", "mlx4_en", "mlx4_ib", "mlx5_core", "mlx5_ib",
		},

		FilesDigest: filesDigest(own("node")),
	}
}

func recipeArch(arch string) string {
	if arch == amd64 {
		return ""
	}
	return arch
}

const amd64, arm64 = "amd64", "arm64"

// armWords adapts KernelArgs and nodes' files: the console, the number of the system call read, and x86-only arguments.
// cma=0 is added because Debian's arm64 kernel otherwise reserves 64 MiB for devices (CMA), which count as free but are
// unusable for most of the kernel.
var armWords = strings.NewReplacer("ttyS0", "ttyAMA0", `"0 0x0"`, `"63 0x0"`,
	" no_timer_check", " cma=0", " pci=lastbus=0", "")

func (r Recipe) inArch(text string) string {
	if r.Arch == arm64 {
		return armWords.Replace(text)
	}
	return text
}

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

func (r Recipe) backports() (suite string, ok bool) {
	suite = r.Release + "-backports"
	return suite, slices.Contains(r.Suites, suite)
}

// Key returns 16 hexadecimal digits of the SHA-256 of the JSON.
func (r Recipe) Key() string {
	b, err := json.Marshal(r)
	if err != nil { // only strings and ints
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// trees are the files that rackless adds, by kind. Files in files/mnt make a disk and are not on it.
//
//go:embed all:node all:host all:full all:own all:gpu all:slurm all:suites all:vfio all:wheels
var trees embed.FS

func own(kind string) fs.FS {
	tree, err := fs.Sub(trees, kind)
	if err != nil { // cannot fail: kind is constant
		panic(err)
	}
	return tree
}

func eachFile(tree fs.FS, add func(path string, content []byte, mode int64) error) error {
	return fs.WalkDir(tree, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() { // added with their files
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
