package image

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
)

// A Recipe is everything that decides what an image holds, but for the versions of the packages:
// those are what the mirrors offer on the day. Two equal recipes name the same image.
type Recipe struct {
	Format  int      `json:"format"`  // raised when the builder itself changes what it makes from the same recipe
	Release string   `json:"release"` // Debian's code name: "bookworm"
	Suites  []string `json:"suites"`  // that packages come from: "bookworm", "bookworm-security", ...
	// Debian packages, installed with what they depend on and without what they recommend
	Packages []string `json:"packages"`
	// Backported are source packages that come from the suite of backports, where Suites has it:
	// Debian 12's own QEMU is older than the one that rackless runs on.
	Backported []string `json:"backported"`
	DiskMiB    int      `json:"disk_mib"` // size of the disk; what is not used takes no room

	FilesDigest string `json:"files_digest"` // SHA-256 over the files that rackless itself adds (files)
}

// files are what rackless adds to the system, laid out as in its root; those in files/mnt make the
// disk and are not on it.
//
//go:embed all:files
var files embed.FS

// hostRecipe returns the recipe of the image of hosts from the suites of a release.
func hostRecipe(release string, suites []string) Recipe {
	return Recipe{
		Format:  1,
		Release: release,
		Suites:  suites,
		Packages: []string{
			"dbus", "e2fsprogs", "ethtool", "fdisk", "grub-pc", "ibverbs-utils", "initramfs-tools", "iproute2",
			"iputils-ping", "irqbalance",
			"kmod", "less", "libvirt-clients", "libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-daemon-system",
			"linux-image-amd64",
			"lz4", "netbase", "numactl", "ovmf", "pciutils", "perftest", "procps", "psmisc", "qemu-guest-agent",
			"qemu-system-x86",
			"qemu-utils", "rdma-core", "stress-ng", "systemd-sysv", "udev", "util-linux", "vim-tiny",
		},
		Backported: []string{"qemu", "seabios"},
		DiskMiB:    4096,

		FilesDigest: filesDigest(files),
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
