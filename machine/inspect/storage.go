package inspect

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// readStorage reads the disks and the mounts on each, so that no disk that the host needs is assigned. It runs after
// readPCI.
//
// Source of this file: Documentation/ABI/testing/sysfs-block and stable/sysfs-block of Linux.
func (r *reader) readStorage() {
	devs := r.blockDevices()
	mounts, from := r.readMounts()
	if text, ok := r.text("proc/swaps"); ok {
		mounts = append(mounts, parseSwaps(text)...)
	}
	points := r.mountPoints(devs, worthKnowing(mounts), from)
	for _, name := range lists.Keys(devs) {
		d := devs[name]
		if d.whole != name || len(d.slaves) > 0 || isStack(name) {
			continue
		}
		slices.Sort(points[name])
		disk := topology.Disk{Name: name, Mounts: slices.Compact(points[name])}
		if sectors := r.size(d.dir + "/size"); sectors != nil && *sectors < 1<<54 {
			disk.SizeBytes = new(*sectors * 512) // always units of 512 bytes
		}
		if len(disk.Mounts) == 0 && (isSubstitute(name) || disk.SizeBytes == nil || *disk.SizeBytes == 0) {
			continue
		}
		disk.Model = d.model(r)
		if len(d.pci) > 0 {
			disk.PCI = new(d.pci[0])
		} else {
			disk.NUMANode = r.count(d.dir + "/device/numa_node")
		}
		r.h.Storage = append(r.h.Storage, disk)
	}
}

// A blockDev is a disk, a partition, or made of them: RAID, LVM, encryption, a cache.
type blockDev struct {
	dir    string
	whole  string             // or the name itself
	dev    string             // major:minor
	slaves []string           // it is made of them
	dm     string             // its device mapper name
	pci    []topology.PCIAddr // on the path to it
}

// maxBlockDevices is for malicious dumps.
const maxBlockDevices = 1 << 16

func (r *reader) blockDevices() map[string]*blockDev {
	devs := map[string]*blockDev{}
	for _, class := range []string{"sys/class/block", "sys/block"} {
		for _, name := range r.dir(class) {
			if devs[name] != nil || len(devs) >= maxBlockDevices {
				continue
			}
			p := class + "/" + name
			d := &blockDev{dir: p, whole: name}
			if target, ok := r.target(p); ok {
				d.dir = target
			}
			devs[name] = d
		}
	}
	for _, name := range lists.Keys(devs) {
		d := devs[name]
		if isSubstitute(name) {
			continue // most machines have dozens, and few have partitions
		}
		// In sys/class/block partitions also have their own entries.
		for _, part := range r.subdirs(d.dir) {
			if !strings.HasPrefix(part, name) || !r.exists(d.dir+"/"+part+"/partition") &&
				!r.exists(d.dir+"/"+part+"/start") {
				continue
			}
			if devs[part] == nil && len(devs) < maxBlockDevices {
				devs[part] = &blockDev{dir: d.dir + "/" + part}
			}
			if p := devs[part]; p != nil {
				p.whole = name
			}
		}
	}
	for name, d := range devs {
		d.dev = r.word(d.dir + "/dev")
		if d.whole != name || isSubstitute(name) {
			continue
		}
		if strings.HasPrefix(name, "nvme") {
			if hidden := r.flag(d.dir + "/hidden"); hidden != nil && *hidden {
				delete(devs, name) // the multipath disk is also listed
				continue
			}
		}
		d.pci = r.diskFunctions(d)
		d.slaves = r.dir(d.dir + "/slaves")
		if isNumbered(name, "dm-") {
			d.dm = r.word(d.dir + "/dm/name")
		}
		// On some kernels a bcache device has no slaves.
		if target, ok := r.link(d.dir + "/bcache"); ok && isNumbered(name, "bcache") && len(d.slaves) == 0 {
			d.slaves = []string{path.Base(path.Dir(target))}
		}
	}
	return devs
}

// diskFunctions returns the last function on the path, or the controllers of an NVMe subsystem with several.
func (r *reader) diskFunctions(d *blockDev) []topology.PCIAddr {
	if a, ok := lastFunction(d.dir); ok {
		return []topology.PCIAddr{a}
	}
	if device, ok := r.target(d.dir + "/device"); ok {
		if a, ok := lastFunction(device); ok {
			return []topology.PCIAddr{a}
		}
		if strings.HasPrefix(path.Base(device), "nvme-subsys") {
			return r.controllers(device)
		}
	}
	if subsystem := path.Dir(d.dir); strings.HasPrefix(path.Base(subsystem), "nvme-subsys") {
		return r.controllers(subsystem)
	}
	return nil
}

func (r *reader) controllers(subsystem string) []topology.PCIAddr {
	var out []topology.PCIAddr
	for _, name := range r.dir(subsystem) {
		if !strings.HasPrefix(name, "nvme") {
			continue
		}
		target, _ := r.target(subsystem + "/" + name)
		if a, ok := lastFunction(target); ok && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

func lastFunction(p string) (topology.PCIAddr, bool) {
	elements := strings.Split(p, "/")
	for _, element := range slices.Backward(elements) {
		// Cheaper than parsing.
		if strings.Count(element, ":") != 2 || !strings.Contains(element, ".") {
			continue
		}
		if a, err := topology.ParsePCIAddr(element); err == nil {
			return a, true
		}
	}
	return topology.PCIAddr{}, false
}

// model leaves out serial numbers.
func (d *blockDev) model(r *reader) string {
	name := cmp.Or(r.word(d.dir+"/device/model"), r.word(d.dir+"/device/name"))
	return strings.Join(strings.Fields(name), " ")
}

// isStack also knows devices without slaves by name.
func isStack(name string) bool {
	return isNumbered(name, "dm-") || isNumbered(name, "md") || isNumbered(name, "bcache") ||
		strings.HasPrefix(name, "md_d")
}

// isSubstitute reports whether name is really a file, memory, a drive without a medium or a volume of ZFS, which
// matters only if mounted.
func isSubstitute(name string) bool {
	return slices.ContainsFunc([]string{"loop", "ram", "zram", "sr", "fd", "zd", "nbd"},
		func(prefix string) bool { return isNumbered(name, prefix) })
}

// mountPoints returns the mount points of each disk. The top of a stack without mounts is in brackets, because its
// disks are in use too. A mount without a disk is recorded as unread, because its disk may seem free.
func (r *reader) mountPoints(devs map[string]*blockDev, mounts []mount, from string) map[string][]string {
	byDev, byMapper := map[string]string{}, map[string]string{}
	for name, d := range devs {
		if d.dev != "" {
			byDev[d.dev] = name
		}
		if d.dm != "" {
			byMapper[d.dm] = name
		}
	}
	points := map[string][]string{}
	inUse := map[string]bool{}
	add := func(point string, names ...string) (found bool) {
		for _, name := range names {
			for _, disk := range disksBelow(devs, name, inUse) {
				points[disk] = append(points[disk], point)
				found = found || !isStack(disk)
			}
		}
		return found
	}
	lost := map[string]bool{}
	for _, m := range mounts {
		found := true
		if name, ok := byDev[m.dev]; ok {
			found = add(m.point, name)
		} else if strings.HasPrefix(m.source, "/dev/") {
			found = add(m.point, r.btrfsMembers(m, sourceName(devs, byMapper, m.source))...)
		} else if m.fsType == "zfs" {
			pool, _, _ := strings.Cut(m.source, "/")
			found = add(m.point, r.zfsMembers(devs, pool)...)
		}
		if !found && !lost[m.source] && !isSubstitute(strings.TrimPrefix(m.source, "/dev/")) {
			lost[m.source] = true
			r.unread(from, fmt.Sprintf("%s is on %q, and no file says which disk that is on", where.Clip(m.point),
				where.Clip(m.source)))
		}
	}
	for _, name := range lists.Keys(devs) {
		if (isStack(name) || len(devs[name].slaves) > 0) && !inUse[name] && len(r.dir(devs[name].dir+"/holders")) == 0 {
			add("["+name+"]", name)
		}
	}
	return points
}

// disksBelow marks all devices on the way as in use, and tolerates loops.
func disksBelow(devs map[string]*blockDev, name string, inUse map[string]bool) []string {
	var disks []string
	seen := map[string]bool{}
	for next := []string{name}; len(next) > 0; {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		d := devs[name]
		if d == nil || seen[name] {
			continue
		}
		seen[name], inUse[name] = true, true
		switch {
		case len(d.slaves) > 0:
			next = append(next, d.slaves...)
		case d.whole != name:
			next = append(next, d.whole)
		default:
			disks = append(disks, name)
		}
	}
	return disks
}

// sourceName parses "/dev/sda1", "/dev/mapper/vg-root", "/dev/vg/root", "/dev/cciss/c0d0p1".
func sourceName(devs map[string]*blockDev, byMapper map[string]string, source string) string {
	name := strings.TrimPrefix(source, "/dev/")
	if mapped, ok := strings.CutPrefix(name, "mapper/"); ok {
		return byMapper[mapped]
	}
	kernel := strings.ReplaceAll(name, "/", "!") // names in sysfs have no slash
	if devs[kernel] != nil {
		return kernel
	}
	if vg, lv, ok := strings.Cut(name, "/"); ok {
		double := strings.NewReplacer("-", "--") // LVM's escape in joined names
		return byMapper[double.Replace(vg)+"-"+double.Replace(lv)]
	}
	return ""
}

// btrfsMembers returns all devices of the file system. A btrfs mount has an artificial device number, and only one of
// several members as its source.
func (r *reader) btrfsMembers(m mount, name string) []string {
	if m.fsType == "btrfs" {
		for _, uuid := range r.dir("sys/fs/btrfs") {
			if members := r.dir("sys/fs/btrfs/" + uuid + "/devices"); slices.Contains(members, name) {
				return members
			}
		}
	}
	return []string{name}
}

// zfsMembers asks udev, because ZFS has no such file.
func (r *reader) zfsMembers(devs map[string]*blockDev, pool string) []string {
	var members []string
	for _, name := range lists.Keys(devs) {
		lines := strings.Split(r.word("run/udev/data/b"+devs[name].dev), "\n")
		if slices.Contains(lines, "E:ID_FS_TYPE=zfs_member") && slices.Contains(lines, "E:ID_FS_LABEL="+pool) {
			members = append(members, name)
		}
	}
	return members
}

// A mount may be a swap area.
type mount struct {
	dev    string // major:minor, or ""
	source string // "/dev/sda1", "rpool/root"
	fsType string
	root   string // "/" for all of the file system, "" if unknown
	point  string // mount point: "/", "/boot"
	subvol string // btrfs subvolume
}

// PATH_MAX, with every byte escaped.
const maxPath = 4 * 4096

const swapPoint = "[SWAP]"

// readMounts is for this mount namespace, or a dump's.
func (r *reader) readMounts() (mounts []mount, from string) {
	for _, p := range []string{
		"proc/self/mountinfo", "proc/1/mountinfo", "proc/self/mounts", "proc/mounts", "etc/mtab",
	} {
		parse := parseMounts
		if path.Base(p) == "mountinfo" {
			parse = parseMountInfo
		}
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
// The fields between the sixth and the single "-" are optional. Malformed lines are skipped. See proc_pid_mountinfo(5).
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

// parseMounts parses /proc/mounts and /etc/mtab; see proc_pid_mounts(5), fstab(5).
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

// parseSwaps returns only block devices, because a swap file is on a listed file system; see proc_swaps(5).
func parseSwaps(text string) []mount {
	var out []mount
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[1] == "partition" {
			out = append(out, mount{source: unescape(f[0]), point: swapPoint, fsType: "swap", root: "/"})
		}
	}
	return out
}

// escaped matches the kernel's escapes of white space and backslashes.
var escaped = lazyregexp.New(`\\[0-3][0-7]{2}`)

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return escaped().ReplaceAllStringFunc(s, func(code string) string {
		v, _ := strconv.ParseUint(code[1:], 8, 8)
		return string([]byte{byte(v)})
	})
}

// worthKnowing drops bind mounts of a part of a file system that is mounted anyway: container hosts have thousands. It
// keeps mounts of a whole file system or subvolume, and mounts without another one of the same device above: the root
// of an image-based system is only a part, and a container may have nothing but parts.
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
