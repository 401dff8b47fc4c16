// Package cgroup reads the limits of this process: of its own group up to the root. Version 2 has one hierarchy,
// version 1 one for each controller (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1).
package cgroup

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// noLimit is larger than any real limit, and smaller than version 1's "no limit" for memory, near 2^63.
const noLimit = 1 << 60

// groups returns directories, innermost first.
func groups(root fs.FS, controller string) (dirs []string, v2 bool) {
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil, false
	}
	var mount, group string
	for line := range strings.Lines(string(b)) {
		// "0::/user.slice" in version 2, "4:memory:/docker/abc" in version 1
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			if c == controller {
				mount, group = path.Join("sys/fs/cgroup", c), f[2]
			}
		}
		if f[0] == "0" && f[1] == "" && mount == "" {
			mount, group, v2 = "sys/fs/cgroup", f[2], true
		}
	}
	if mount == "" {
		return nil, false
	}
	if strings.HasPrefix(mount, "sys/fs/cgroup/") {
		v2 = false
	}
	for g := path.Join("/", group); ; g = path.Dir(g) {
		dirs = append(dirs, path.Join(mount, g))
		if g == "/" {
			return dirs, v2
		}
	}
}

// Limit returns the lowest limit and its group. fileV1 and fileV2 are the files of the two versions, and root is "/"
// except in tests. ok is false if no group has a limit.
func Limit(root fs.FS, controller, fileV1, fileV2 string) (limit int64, where string, ok bool) {
	dirs, v2 := groups(root, controller)
	file := fileV1
	if v2 {
		file = fileV2
	}
	for _, d := range dirs {
		if n, err := readNumber(root, path.Join(d, file)); err == nil && n < noLimit && (!ok || n < limit) {
			limit, where, ok = n, "cgroup /"+d, true
		}
	}
	return limit, where, ok
}

// Memory returns the lowest limit, the memory used without the page cache, both in bytes, and the limit's group.
func Memory(root fs.FS) (limit, used int64, where string, ok bool) {
	limit, where, ok = Limit(root, "memory", "memory.limit_in_bytes", "memory.max")
	if !ok {
		return 0, 0, "", false
	}
	dir := strings.TrimPrefix(where, "cgroup /")
	for _, file := range []string{"memory.current", "memory.usage_in_bytes"} {
		if n, err := readNumber(root, path.Join(dir, file)); err == nil {
			// The kernel reclaims the page cache under pressure.
			return limit, n - pageCache(root, dir), where, true
		}
	}
	return limit, 0, where, true
}

// pageCache is "inactive_file" of memory.stat in both versions.
func pageCache(root fs.FS, dir string) int64 {
	b, err := fs.ReadFile(root, path.Join(dir, "memory.stat"))
	if err != nil {
		return 0 // all memory counts as used, the safe side
	}
	sum := int64(0)
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && (key == "inactive_file" || key == "active_file") {
			sum += n
		}
	}
	return sum
}

var errNoLimit = errors.New("no limit")

func readNumber(root fs.FS, name string) (int64, error) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(b))
	if text == "max" {
		return 0, errNoLimit
	}
	return strconv.ParseInt(text, 10, 64)
}
