package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/inspect/tree"
	"github.com/rackless/rackless/machine/topology"
)

// The largest file is /proc/interrupts with thousands of CPUs.
const maxFile = 16 << 20

// A reader's methods return nil or a zero value for a missing file; other failures are recorded in Host.Unread.
type reader struct {
	ctx  context.Context
	fs   fs.FS
	run  runFunc
	live bool
	h    *topology.Host
}

func (r *reader) unread(p, why string) {
	r.h.Unread = append(r.h.Unread, topology.Unread{Path: "/" + p, Why: why})
}

// failed ignores errors that mean "unknown": a missing file, or a read refused by the device, such as ENODEV or EINVAL.
func (r *reader) failed(p string, err error) {
	for _, absent := range []error{fs.ErrNotExist, syscall.ENOTDIR, syscall.ENODEV, syscall.EINVAL, syscall.EOPNOTSUPP,
		syscall.ENXIO, syscall.EIO} {
		if errors.Is(err, absent) {
			return
		}
	}
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	r.unread(p, err.Error())
}

// bytes may be shared and must not be modified.
func (r *reader) bytes(p string) ([]byte, bool) {
	b, err := tree.Bytes(r.fs, p)
	if err != nil {
		r.failed(p, err)
		return nil, false
	}
	if len(b) > maxFile {
		r.unread(p, "larger than "+strconv.Itoa(maxFile>>20)+" MiB")
		return nil, false
	}
	return b, true
}

// text trims white space and NULs, with which device-tree strings end, as did the CPU and node lists of some kernels
// (2.6.3x, 5.15). For an empty file it returns ("", true).
func (r *reader) text(p string) (string, bool) {
	b, ok := r.bytes(p)
	return strings.Trim(string(b), " \t\r\n\x00"), ok
}

func lineAfter(text, beginning string) (value string, ok bool) {
	for line := range strings.Lines(text) {
		if value, ok = strings.CutPrefix(strings.TrimSpace(line), beginning); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

func (r *reader) word(p string) string {
	s, _ := r.text(p)
	return s
}

// errNotKnown is not recorded.
var errNotKnown = errors.New("not known")

func notA(s, what string) error { return fmt.Errorf("%q is not %s", where.Clip(s), what) }

// parsed returns nil if there is no file or parse fails, which it records.
func parsed[T any](r *reader, p string, parse func(s string) (T, error)) *T {
	s, ok := r.text(p)
	if !ok {
		return nil
	}
	v, err := parse(s)
	if err == nil {
		return &v
	}
	if err != errNotKnown {
		r.unread(p, err.Error())
	}
	return nil
}

// number returns a decimal, or hexadecimal number with 0x, or nil. Negative numbers mean "unknown".
func (r *reader) number(p string) *int64 {
	return parsed(r, p, func(s string) (int64, error) {
		v, err := strconv.ParseInt(s, 0, 64)
		switch {
		case s == "", err == nil && v < 0:
			return 0, errNotKnown
		case err != nil:
			return 0, notA(s, "a number")
		}
		return v, nil
	})
}

// maxCount limits nodes, functions, lanes.
const maxCount = 1 << 20

func (r *reader) count(p string) *int {
	v := r.number(p)
	if v == nil {
		return nil
	}
	if *v > maxCount {
		r.unread(p, strconv.FormatInt(*v, 10)+" is too large to be right")
		return nil
	}
	return new(int(*v))
}

// size returns an unsigned number.
func (r *reader) size(p string) *uint64 {
	if v := r.number(p); v != nil {
		return new(uint64(*v))
	}
	return nil
}

// flag parses "0" and "1", or "N" and "Y".
func (r *reader) flag(p string) *bool {
	return parsed(r, p, func(s string) (bool, error) {
		switch s {
		case "":
			return false, errNotKnown
		case "1", "Y", "y":
			return true, nil
		case "0", "N", "n":
			return false, nil
		}
		return false, notA(s, "0 or 1")
	})
}

// list returns nil if there is no file. "(null)" of some kernels is the empty set.
func (r *reader) list(p string) *topology.CPUSet {
	return parsed(r, p, func(s string) (topology.CPUSet, error) {
		if s == "(null)" {
			s = ""
		}
		return topology.ParseCPUSet(s)
	})
}

func (r *reader) mask(p string) *topology.CPUSet { return parsed(r, p, topology.ParseCPUMask) }

// cpus reads the first of several files: a list if the name ends with "list", else a mask.
func (r *reader) cpus(dir string, names ...string) *topology.CPUSet {
	for _, name := range names {
		read := r.mask
		if strings.HasSuffix(name, "list") {
			read = r.list
		}
		if set := read(dir + "/" + name); set != nil {
			return set
		}
	}
	return nil
}

func (r *reader) exists(p string) bool {
	_, err := fs.Stat(r.fs, p)
	return err == nil
}

// dir returns sorted names, or nil.
func (r *reader) dir(p string) []string {
	return r.namesIn(p, func(fs.DirEntry) bool { return true })
}

// subdirs leaves out links to directories.
func (r *reader) subdirs(dir string) []string { return r.namesIn(dir, fs.DirEntry.IsDir) }

func (r *reader) namesIn(dir string, keep func(fs.DirEntry) bool) []string {
	entries, err := fs.ReadDir(r.fs, dir)
	if err != nil {
		r.failed(dir, err)
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if keep(e) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// link returns the unresolved target.
func (r *reader) link(p string) (target string, ok bool) {
	target, err := fs.ReadLink(r.fs, p)
	return target, err == nil
}

// linkBase returns the last element of the target, or "".
func (r *reader) linkBase(p string) string {
	target, ok := r.link(p)
	if ok {
		return path.Base(target)
	}
	return ""
}

// numbers returns N of each entry prefixN, in ascending order.
func (r *reader) numbers(dir, prefix string) []int {
	var out []int
	for _, name := range r.dir(dir) {
		if !isNumbered(name, prefix) {
			continue
		}
		if n, err := strconv.Atoi(name[len(prefix):]); err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// numbered has only valid members of a CPU set.
func (r *reader) numbered(dir, prefix string) []int {
	return slices.DeleteFunc(r.numbers(dir, prefix), func(n int) bool { return n >= topology.MaxCPUs })
}

func isNumbered(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

func (r *reader) firstText(paths ...string) (text string, ok bool) {
	for _, p := range paths {
		if text, ok = r.text(p); ok {
			break
		}
	}
	return text, ok
}
