package guest

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
)

// A Recipe is everything that decides what an image holds. Two equal recipes name the same image.
type Recipe struct {
	Format int `json:"format"` // raised when the builder itself changes what it makes from the same recipe

	// Release is the Debian release ("bookworm") whose packages apt offers on this machine.
	Release string `json:"release"`
	// Kernel is the Debian package of the kernel, or the path of a kernel image; see KernelDigest.
	Kernel string `json:"kernel"`
	// KernelDigest is the SHA-256 of the kernel image where Kernel is a path, else empty.
	KernelDigest string `json:"kernel_digest,omitempty"`

	Packages []string `json:"packages"` // Debian packages, installed with their dependencies into the build root
	// names of programs in the packages that the image keeps, with the libraries that they need
	Programs []string `json:"programs"`
	Keep     []string `json:"keep"`     // glob patterns of further files that the image keeps (plug-ins, data)
	Links    []Link   `json:"links"`    // links that the packages' scripts would make, which are not run
	Modules  []string `json:"modules"`  // kernel modules to load at boot, in this order, with what they depend on
	Optional []string `json:"optional"` // like Modules, but not every kernel has them: built in, or renamed
	// modules of hardware, kept packed and loaded where it is found; not every kernel has all
	Drivers []string `json:"drivers"`

	FilesDigest string `json:"files_digest"` // SHA-256 over the files that rackless itself adds (guest/files)
}

// A Link is a symbolic link in the build root. It is made where one file matches Target, a glob
// pattern relative to the root; other releases of Debian need it not.
type Link struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// files are what rackless adds to the image, laid out as in the guest's root.
//
//go:embed all:files
var files embed.FS

// builtin returns the recipe of the image called "builtin".
//
// The RDMA modules need help: rdma_rxe asks the crypto API for "crc32" by name, so that no
// dependency list mentions crc32_generic, and `rdma link add` then fails with "No such file or
// directory". Kernels from 6.15 on compute it in the library and have no such module, which is why
// it is optional.
//
// The image has 76 MB, and the smallest node 256 MiB, of which 107 are left; see KernelArgs.
func builtin(release, kernel, kernelDigest string) Recipe {
	return Recipe{
		Format:       1,
		Release:      release,
		Kernel:       kernel,
		KernelDigest: kernelDigest,
		Packages: []string{
			"busybox-static", "dash", "ethtool", "fping", "ibverbs-providers", "ibverbs-utils", "infiniband-diags",
			"iperf3", "iproute2",
			"iputils-ping", "libfabric-bin", "netbase", "numactl", "perftest", "qemu-guest-agent", "rdmacm-utils",
			"stress-ng", "sysbench", "tcpdump", "ucx-utils",
		},
		Programs: []string{
			"bridge", "busybox", "dash", "devlink", "ethtool", "fi_info", "fi_pingpong", "fping", "ib_atomic_bw",
			"ib_atomic_lat", "ib_read_bw", "ib_read_lat",
			"ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ibstat", "ibv_devices", "ibv_devinfo",
			"ibv_rc_pingpong",
			"ibv_uc_pingpong", "ibv_ud_pingpong", "ip", "iperf3", "numactl", "numastat", "ping", "qemu-ga",
			"raw_ethernet_bw", "rdma",
			"rping", "ss", "stress-ng", "sysbench", "tc", "tcpdump", "ucmatose", "ucx_info", "ucx_perftest",
		},
		Keep: []string{"usr/lib/*/libibverbs/*.so", "etc/libibverbs.d/*", "etc/protocols", "etc/services",
			"usr/lib/*/ucx/libuct_ib.so.0", // opened by UCX by its name; the other transports are not needed
			"usr/lib/*/libgcc_s.so.1",      // opened by the C library when a thread is cancelled, as rping does
		},
		// libfabric needs a library of InfiniPath cards, which Debian 12 chooses among "alternatives".
		Links: []Link{{Path: "usr/lib/libpsm_infinipath.so.1", Target: "usr/lib/libpsm1/libpsm_infinipath.so.1.*"}},
		Modules: []string{"virtio_pci", "virtio_console", "virtio_net", "virtio_rng", "rdma_rxe", "ib_uverbs",
			"rdma_ucm"},
		Optional: []string{"crc32_generic", "crc32-pclmul", "ib_umad", "af_packet"},
		// NICs that people pass through: those with RDMA, and those of common boards. Together 12 MB, packed 4.
		Drivers: []string{
			"bnxt_en", "bnxt_re", "e1000e", "i40e", "iavf", "ice", "igb", "igbvf", "igc", "irdma", "ixgbe", "ixgbevf",
			"mlx4_core", "mlx4_en", "mlx4_ib", "mlx5_core", "mlx5_ib",
		},

		FilesDigest: filesDigest(files),
	}
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
