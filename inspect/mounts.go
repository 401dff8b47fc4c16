package inspect

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

// A mount is a file system, or a swap area, and what it is on.
type mount struct {
	dev    string // major:minor of the block device; empty where it is not known
	source string // what was mounted: "/dev/sda1", "rpool/root"
	fsType string
	root   string // the part of the file system that is mounted; "/" is all of it, "" is not known
	point  string // where: "/", "/boot"
	subvol string // of btrfs: the subvolume
}

// maxPath bounds a mount point: PATH_MAX, with every byte escaped.
const maxPath = 4 * 4096

// swapPoint stands for the mount point of a swap area.
const swapPoint = "[SWAP]"

// readMounts reads the mounts of the mount namespace that rackless is in, or that a dump was made
// in, and says which file they are from.
func (r *reader) readMounts() (mounts []mount, from string) {
	for _, p := range []string{
		"proc/self/mountinfo", "proc/1/mountinfo", "proc/self/mounts", "proc/mounts", "etc/mtab",
	} {
		parse := words.Either(path.Base(p) == "mountinfo", parseMountInfo, parseMounts)
		if text := r.word(p); text != "" {
			return parse(text), p
		}
	}
	return nil, ""
}

// parseMountInfo parses lines such as
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// where the fields between the sixth and the single "-" are optional. Lines that are none are passed.
//
// Source: proc_pid_mountinfo(5).
func parseMountInfo(text string) []mount {
	var out []mount
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+3 || len(f[4]) > maxPath {
			continue
		}
		m := mount{dev: f[2], root: unescape(f[3]), point: unescape(f[4]), fsType: f[dash+1],
			source: unescape(f[dash+2])}
		if len(f) > dash+3 {
			for option := range strings.SplitSeq(f[dash+3], ",") {
				if v, ok := strings.CutPrefix(option, "subvol="); ok {
					m.subvol = unescape(v)
				}
			}
		}
		out = append(out, m)
	}
	return out
}

// parseMounts parses lines of /proc/mounts and /etc/mtab: source, mount point, type, options.
// Source: proc_pid_mounts(5), fstab(5).
func parseMounts(text string) []mount {
	var out []mount
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || strings.HasPrefix(f[0], "#") || len(f[1]) > maxPath {
			continue
		}
		out = append(out, mount{source: unescape(f[0]), point: unescape(f[1]), fsType: f[2]})
	}
	return out
}

// parseSwaps parses /proc/swaps: a line of headings, and one for each area with its path and its
// type. A swap file belongs to the file system that it is in, so only areas that are block devices
// are returned. Source: proc_swaps(5).
func parseSwaps(text string) []mount {
	var out []mount
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[1] == "partition" {
			out = append(out, mount{source: unescape(f[0]), point: swapPoint, fsType: "swap", root: "/"})
		}
	}
	return out
}

// escaped is how the kernel writes white space and backslashes: a backslash and three octal digits.
var escaped = lazyregexp.New(`\\[0-3][0-7]{2}`)

// unescape undoes that.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return escaped.Get().ReplaceAllStringFunc(s, func(code string) string {
		v, _ := strconv.ParseUint(code[1:], 8, 8)
		return string([]byte{byte(v)})
	})
}

// worthKnowing drops mounts that say nothing new about what lives on a device: bind mounts of a
// part of a file system that is mounted anyway, of which container hosts have thousands. A mount
// stays when it is of a whole file system or subvolume, or when no other mount of the same device
// is above it: the root of an image-based system is a part of its file system, and in a container
// there may be nothing but parts.
func worthKnowing(mounts []mount) []mount {
	mounts = slices.Clone(mounts)
	slices.SortStableFunc(mounts, func(a, b mount) int { return strings.Compare(a.point, b.point) })
	kept := map[[3]string]bool{} // device, source and mount point
	var out []mount
	for _, m := range mounts {
		if whole := m.root == "/" || m.subvol != "" && m.root == m.subvol; !whole && keptAbove(kept, m) {
			continue
		}
		kept[[3]string{m.dev, m.source, m.point}] = true
		out = append(out, m)
	}
	return out
}

// keptAbove reports whether a mount of the same device is kept at m's mount point or above it.
func keptAbove(kept map[[3]string]bool, m mount) bool {
	for p := m.point; ; p = path.Dir(p) {
		if kept[[3]string{m.dev, m.source, p}] {
			return true
		}
		if p == "/" || p == "." {
			return false
		}
	}
}
