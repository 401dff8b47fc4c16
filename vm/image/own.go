package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kdomanski/iso9660"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/vm"
)

// A user's own image is a cloud image, which boots by itself, with systemd and cloud-init. It is never written to.
//
// A second disk, the seed, turns the system into a full node; cloud-init finds it by its label (NoCloud). It has the
// programs that the system may lack, so that no network is needed.

const ownName, seedsName = "own", "seeds"

// filesName is the archive of files that rackless adds to a system.
const seedName, filesName = "seed.iso", "files.tar"

// seedTools are for systems that lack them, by package. busybox is static.
var seedTools = map[string]string{"busybox-static": "busybox", "fping": "fping", "ibverbs-providers": "",
	"ibverbs-utils": "ibv_devinfo ibv_rc_pingpong", "iproute2": "ip rdma", "qemu-guest-agent": "qemu-ga"}

// seedPlugins are libraries that libibverbs opens by name.
var seedPlugins = []string{"usr/lib/*/libibverbs/libmlx5-rdmav*.so", "usr/lib/*/libibverbs/librxe-rdmav*.so"}

// ownDisk is the minimum size, into which the system grows. maxOwnDisk is the limit of a BIOS partition table.
const ownDisk, maxOwnDisk = 8 << 30, 2 << 40

// Seeds is the part that all seeds share.
var Seeds = &Kind{name: seedsName, label: "the seed of users' images", room: "200 MB",
	recipe: func(context.Context, Options) (Recipe, builder, error) {
		r, err := currentNodeRecipe(Options{}, amd64)
		r = Recipe{Format: 1, Release: r.Release, Packages: slices.Sorted(maps.Keys(seedTools)), Keep: seedPlugins,
			FilesDigest: treeDigest(eachOwnFile)}
		for _, name := range r.Packages {
			r.Programs = append(r.Programs, strings.Fields(seedTools[name])...)
		}
		return r, buildSeeds, err
	}}

// Own returns the image of nodes that boot a copy of the disk image at path. A changed file is another image.
func Own(path string) *Kind {
	return &Kind{name: ownName, label: "the seed for " + path, room: "100 MB",
		recipe: func(ctx context.Context, _ Options) (Recipe, builder, error) {
			abs, err := filepath.Abs(path)
			if err != nil {
				return Recipe{}, nil, err
			}
			version, size, err := examine(abs)
			if err != nil {
				return Recipe{}, nil, fmt.Errorf("image %s: %w", path, err)
			}
			r, _, err := Seeds.recipe(ctx, Options{})
			r.Disk, r.DiskVersion = abs, version
			r.FilesDigest += filesDigest(own(ownName))[:8]
			return r, func(ctx context.Context, o Options, _, out string, img *Image) error {
				return buildOwn(ctx, o, out, img, max(size, ownDisk))
			}, err
		}}
}

// IsOwn reports whether the kind is a user's.
func (k *Kind) IsOwn() bool { return k.name == ownName }

// A qcow2Header is big-endian (QEMU, docs/interop/qcow2.txt).
type qcow2Header struct {
	Magic                 [4]byte
	Version               uint32
	BackingFile           uint64 // offset of its name, or 0
	BackingFileSize       uint32
	ClusterBits           uint32
	Size                  uint64 // of the disk, in bytes
	Encryption            uint32
	L1Size                uint32
	L1Offset              uint64
	RefcountOffset        uint64
	RefcountClusters      uint32
	Snapshots             uint32
	SnapshotsOffset       uint64
	IncompatibleFeatures  uint64 // version 3 only
	_                     [2]uint64
	RefcountOrder, Length uint32
}

const externalData = 1 << 2

// examine checks that a file is a self-contained disk image, and returns a version that changes with the file, and the
// size. An untrusted header can make QEMU open any other file of this user, and in 2024 qemu-img did so before printing
// anything (CVE-2024-4467): so it is checked before any QEMU program reads the file, and QEMU never guesses its format.
func examine(path string) (version string, size int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, errors.New("no such file; a path that is not absolute begins at the directory of the command")
	}
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	if !fi.Mode().IsRegular() {
		return "", 0, errors.New("not a regular file")
	}
	head := make([]byte, binary.Size(qcow2Header{}))
	if _, err := io.ReadFull(f, head); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", 0, err
	}
	var h qcow2Header
	if _, err := binary.Decode(head, binary.BigEndian, &h); err != nil {
		return "", 0, err
	}
	const convert = "qemu-img convert -O qcow2 FILE NEW.qcow2"
	switch {
	case h.Magic != [4]byte{'Q', 'F', 'I', 0xfb} || h.Version < 2 || h.Version > 3:
		return "", 0, errors.New("not a qcow2 image; " + convert + " makes one of another format")
	case h.BackingFile != 0:
		return "", 0, errors.New("it lies on another image (qemu-img info names it), which would have to stay as " +
			"it is; " + convert + " makes one that stands alone")
	case h.Encryption != 0:
		return "", 0, errors.New("it is encrypted")
	case h.Version == 3 && h.IncompatibleFeatures&externalData != 0:
		return "", 0, errors.New("its data is in another file; " + convert + " makes one that stands alone")
	case h.Size == 0 || h.Size > maxOwnDisk:
		return "", 0, fmt.Errorf("its disk has %s: want 1 byte to %s", words.Bytes(int64(min(h.Size, 1<<62))),
			words.Bytes(int64(maxOwnDisk)))
	}
	return fmt.Sprintf("%d bytes of %d", fi.Size(), fi.ModTime().UnixNano()), int64(h.Size), nil
}

const overlayLimit = time.Minute

// buildOwn makes the seed, and an overlay of the user's disk that is the base of templates.
func buildOwn(ctx context.Context, o Options, out string, img *Image, size int64) error {
	img.Disk, img.Others, img.KernelVer = diskName, []string{seedName}, "of "+img.Recipe.Disk
	seeds, err := Seeds.Ensure(ctx, Options{Cache: o.Cache, Progress: o.Progress, Watch: o.Watch})
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, overlayLimit,
		fmt.Errorf("image %s: qemu-img has not read it within %v", img.Recipe.Disk, overlayLimit))
	defer cancel()
	if err := vm.MakeOverlay(limited, filepath.Join(out, diskName), img.Recipe.Disk, size); err != nil {
		return err
	}
	files := make(map[string][]byte)
	for _, name := range seedFiles {
		if files[name], err = fs.ReadFile(own(ownName), "seed/"+name); err != nil {
			return err
		}
	}
	img.Packages = seeds.Packages
	return seeds.WriteSeed(filepath.Join(out, seedName), files)
}

func buildSeeds(ctx context.Context, o Options, work, out string, img *Image) error {
	debs, err := apt{}.resolve(ctx, img.Recipe.Packages)
	if err != nil {
		return err
	}
	o.progress("download %d Debian packages, with programs for systems that lack them", len(debs))
	root := filepath.Join(work, "root")
	if err := (apt{}).fetch(ctx, o, work, root, debs); err != nil {
		return err
	}
	img.Packages, img.Others = debs, []string{filesName}
	f, err := os.Create(filepath.Join(out, filesName))
	if err != nil {
		return err
	}
	return errors.Join(writeTar(f, func(add func(string, []byte, int64) error) error {
		return errors.Join(eachOwnFile(add), img.Recipe.eachTool(root, add))
	}), f.Close())
}

var seedFiles = []string{"meta-data", "network-config", "user-data"}

// WriteSeed writes the disk that cloud-init looks for. files are meta-data, network-config and user-data, to which it
// adds the command that makes a node.
func (i *Image) WriteSeed(path string, files map[string][]byte) error {
	w, err := iso9660.NewWriter()
	if err != nil {
		return err
	}
	defer w.Cleanup()
	bootcmd, err := fs.ReadFile(own(ownName), "bootcmd")
	install, readErr := fs.ReadFile(own(ownName), "install")
	err = errors.Join(err, readErr)
	for _, name := range seedFiles {
		content := bytes.NewReader(files[name])
		if name == "user-data" {
			content = bytes.NewReader(slices.Concat(files[name], bootcmd))
		}
		err = errors.Join(err, w.AddFile(content, name))
	}
	err = errors.Join(err, w.AddFile(bytes.NewReader(install), "install"),
		w.AddLocalFile(filepath.Join(i.Dir, filesName), filesName))
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(w.WriteTo(f, "cidata"), f.Close())
}

func eachOwnFile(add func(name string, content []byte, mode int64) error) error {
	err := eachFullFile(func(name string, content []byte, mode int64) error {
		for _, dir := range []string{"usr/", "etc/ssh/", "etc/tmpfiles.d/", "etc/systemd/system.conf.d/",
			"etc/systemd/system/rackless-node.service", "etc/systemd/system/qemu-guest-agent.service.d/"} {
			if strings.HasPrefix(name, dir) {
				return add(name, content, mode)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return eachFile(own(ownName), add)
}

// eachTool calls add with programs and plug-ins below root, their libraries and loader, all in one directory.
func (r Recipe) eachTool(root string, add func(name string, content []byte, mode int64) error) error {
	files, err := r.packaged(root)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, f := range files {
		name := filepath.Base(f)
		if strings.HasPrefix(name, "ld-linux") {
			name = "ld-linux" // the loader has two names
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		target, err := resolveIn(root, f)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(filepath.Join(root, target))
		if err == nil {
			err = add("usr/lib/rackless/tools/"+name, b, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// SeedPath is absolute, or "" if the image is not a user's.
func (i *Image) SeedPath() string {
	if !i.BootsItself() {
		return ""
	}
	return filepath.Join(i.Dir, seedName)
}
