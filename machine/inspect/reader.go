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

// maxFile bounds a file of /sys or /proc. The largest that is read is /proc/interrupts of a machine
// with thousands of CPUs.
const maxFile = 16 << 20

// A reader reads the files of one machine. Its methods return "not known" for whatever is missing,
// and note the rest in Host.Unread.
type reader struct {
	ctx  context.Context
	fs   fs.FS
	run  runFunc
	live bool
	h    *topology.Host
}

// unread notes that the file at p is there and was not understood or not readable.
func (r *reader) unread(p, why string) {
	r.h.Unread = append(r.h.Unread, topology.Unread{Path: "/" + p, Why: why})
}

// failed notes err unless it only says that p is not there. A device may refuse a read (ENODEV,
// EINVAL: a link speed of a port that is down, a driver that does not know): the kernel's way to
// say "not known".
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

// bytes returns the whole file. It may be shared: nobody writes to it.
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

// text returns the file without white space and NULs at its ends: device-tree strings end with a
// NUL, and so did the CPU and node lists of some kernels (2.6.3x, 5.15). An empty file is ("",
// true).
func (r *reader) text(p string) (string, bool) {
	b, ok := r.bytes(p)
	return strings.Trim(string(b), " \t\r\n\x00"), ok
}

// lineAfter returns what stands behind the beginning of the first line that has it.
func lineAfter(text, beginning string) (value string, ok bool) {
	for line := range strings.Lines(text) {
		if value, ok = strings.CutPrefix(strings.TrimSpace(line), beginning); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// word returns the file's text, "" where there is none.
func (r *reader) word(p string) string {
	s, _ := r.text(p)
	return s
}

// errNotKnown is the error of a value that says that nothing is known. It is not noted.
var errNotKnown = errors.New("not known")

// notA says that a value is not what it should be.
func notA(s, what string) error { return fmt.Errorf("%q is not %s", where.Clip(s), what) }

// parsed returns what parse makes of the text of the file at p. It is nil where there is no such file,
// and where parse fails; then the reason is noted.
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

// number returns a decimal number, or a hexadecimal one with 0x; nil where there is no file.
// Negative numbers are the kernel's "not known".
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

// maxCount bounds numbers that count or number things: nodes, functions, lanes.
const maxCount = 1 << 20

// count returns a small number that is not negative, nil where it is not known.
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

// size returns a number of bytes or of things as an unsigned number.
func (r *reader) size(p string) *uint64 {
	if v := r.number(p); v != nil {
		return new(uint64(*v))
	}
	return nil
}

// flag returns "0" and "1", "N" and "Y" as a boolean.
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

// list returns a CPU or node list; nil where there is no file. "(null)", which some kernels print
// for an unset list, is the empty set.
func (r *reader) list(p string) *topology.CPUSet {
	return parsed(r, p, func(s string) (topology.CPUSet, error) {
		if s == "(null)" {
			s = ""
		}
		return topology.ParseCPUSet(s)
	})
}

// mask returns a CPU mask; nil where there is no file.
func (r *reader) mask(p string) *topology.CPUSet { return parsed(r, p, topology.ParseCPUMask) }

// cpus returns the CPUs in the first file of a directory that has some: as a list where its name ends
// so, as a mask otherwise. Kernels differ in which of several files they have.
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

// exists reports whether there is a file or directory at p.
func (r *reader) exists(p string) bool {
	_, err := fs.Stat(r.fs, p)
	return err == nil
}

// dir returns the sorted names in a directory; nil where there is none.
func (r *reader) dir(p string) []string {
	return r.namesIn(p, func(fs.DirEntry) bool { return true })
}

// subdirs returns the names of the directories in dir, without links to directories.
func (r *reader) subdirs(dir string) []string { return r.namesIn(dir, fs.DirEntry.IsDir) }

// namesIn returns the sorted names of those entries of a directory that are kept; nil where there is no directory.
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

// link returns where the link at p leads, as it is written; ok is false where there is no link.
func (r *reader) link(p string) (target string, ok bool) {
	target, err := fs.ReadLink(r.fs, p)
	return target, err == nil
}

// linkBase returns the last element of the link at p, "" where there is no link: the name of the
// driver, the group, the device.
func (r *reader) linkBase(p string) string {
	target, ok := r.link(p)
	if ok {
		return path.Base(target)
	}
	return ""
}

// numbers returns the numbers N of the entries prefixN of a directory, in rising order.
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

// numbered returns those of the numbers that a set of CPUs can have.
func (r *reader) numbered(dir, prefix string) []int {
	return slices.DeleteFunc(r.numbers(dir, prefix), func(n int) bool { return n >= topology.MaxCPUs })
}

// isNumbered reports whether name is prefix and a number.
func isNumbered(name, prefix string) bool {
	digits, ok := strings.CutPrefix(name, prefix)
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// firstText returns the text of the first file that is there.
func (r *reader) firstText(paths ...string) (text string, ok bool) {
	for _, p := range paths {
		if text, ok = r.text(p); ok {
			break
		}
	}
	return text, ok
}
