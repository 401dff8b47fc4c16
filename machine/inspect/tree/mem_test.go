package tree

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func sample(t testing.TB) *Mem {
	t.Helper()
	var b Builder
	for _, err := range []error{
		b.File("sys/devices/pci0000:00/0000:00:1f.0/vendor", []byte("0x8086\n")),
		b.File("sys/devices/pci0000:00/0000:00:1f.0/config", []byte{0x86, 0x80, 0, 1}),
		b.Link("sys/bus/pci/devices/0000:00:1f.0", "../../../devices/pci0000:00/0000:00:1f.0"),
		b.Link("sys/absolute", "/sys/devices/pci0000:00"),
		b.Link("sys/above", "../../../../sys/devices"),
		b.Link("sys/dangling", "nowhere/to/be/found"),
		b.Link("sys/empty-target", ""),
		b.Link("sys/loop-a", "loop-b"),
		b.Link("sys/loop-b", "loop-a"),
		b.Link("sys/self", "self"),
		b.Link("sys/to-file", "devices/pci0000:00/0000:00:1f.0/vendor"),
		b.Link("sys/to-link", "to-file"),
		b.Link("sys/odd-target", ".//devices/./pci0000:00/"),
		b.Link("root", "/"),
		b.File("proc/cpuinfo", []byte("processor\t: 0\n")),
		b.File("proc/empty", nil),
		b.Dir("sys/kernel/mm"),
		b.Unreadable("sys/kernel/secret", 0, syscall.EACCES),
		b.Unreadable("sys/kernel/debug", fs.ModeDir, syscall.EACCES),
		b.Unreadable("dev/vfio/vfio", fs.ModeDevice|fs.ModeCharDevice, errDevice),
		b.Hidden("root-only/inside", syscall.EACCES),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Mem()
}

func TestMemReadsFiles(t *testing.T) {
	t.Parallel()
	m := sample(t)
	for _, test := range []struct {
		name, path, want string
		err              error
	}{
		{"a file", "proc/cpuinfo", "processor\t: 0\n", nil},
		{"an empty file", "proc/empty", "", nil},
		{"through a relative link in the middle", "sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n", nil},
		{"through an absolute link, which starts at the root of the tree", "sys/absolute/0000:00:1f.0/vendor",
			"0x8086\n", nil},
		{"through a link above the root, which stays at the root", "sys/above/pci0000:00/0000:00:1f.0/vendor",
			"0x8086\n", nil},
		{"through a link to the root, twice", "root/root/proc/cpuinfo", "processor\t: 0\n", nil},
		{"through a link at the end", "sys/to-file", "0x8086\n", nil},
		{"through a link to a link", "sys/to-link", "0x8086\n", nil},
		{"through a target with empty elements and dots", "sys/odd-target/0000:00:1f.0/vendor", "0x8086\n", nil},
		{"what is not there", "sys/nothing", "", fs.ErrNotExist},
		{"below what is not there", "sys/nothing/at/all", "", fs.ErrNotExist},
		{"below a file", "proc/cpuinfo/x", "", syscall.ENOTDIR},
		{"through a link to nowhere", "sys/dangling", "", fs.ErrNotExist},
		{"through a link with no target", "sys/empty-target", "", fs.ErrNotExist},
		{"through two links in a circle", "sys/loop-a", "", syscall.ELOOP},
		{"through a link to itself", "sys/self/x", "", syscall.ELOOP},
		{"a directory", "sys/kernel/mm", "", syscall.EISDIR},
		{"the root", ".", "", syscall.EISDIR},
		{"an unreadable file", "sys/kernel/secret", "", fs.ErrPermission},
		{"a device", "dev/vfio/vfio", "", errDevice},
		{"what cannot be looked at", "root-only/inside", "", fs.ErrPermission},
		{"below what cannot be looked at", "root-only/inside/x", "", fs.ErrPermission},
		{"an absolute name", "/proc/cpuinfo", "", fs.ErrInvalid},
		{"a name with dots", "sys/../proc/cpuinfo", "", fs.ErrInvalid},
		{"no name", "", "", fs.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, read := range []func(string) ([]byte, error){
				m.Bytes, m.ReadFile,
				func(name string) ([]byte, error) { return Bytes(m, name) },
				func(name string) ([]byte, error) { return Bytes(struct{ fs.FS }{m}, name) },
			} {
				got, err := read(test.path)
				if !errors.Is(err, test.err) || string(got) != test.want {
					t.Errorf("read %q: got %q, %v; want %q, %v", test.path, got, err, test.want, test.err)
				}
				var p *fs.PathError
				if err != nil && (!errors.As(err, &p) || p.Path != test.path) {
					t.Errorf("error %v is not an fs.PathError about %q", err, test.path)
				}
			}
		})
	}
}

func TestMemDescribes(t *testing.T) {
	t.Parallel()
	m := sample(t)
	for _, test := range []struct {
		name, path string
		stat       string // of Stat, then of Lstat
		lstat      string
	}{
		{"a file", "proc/cpuinfo", "-r--r--r-- cpuinfo", "-r--r--r-- cpuinfo"},
		{"a directory", "sys/kernel", "dr-xr-xr-x kernel", "dr-xr-xr-x kernel"},
		{"the root", ".", "dr-xr-xr-x .", "dr-xr-xr-x ."},
		{"a link is called by its own name", "sys/to-link", "-r--r--r-- to-link", "Lrwxrwxrwx to-link"},
		{"a link to a directory", "sys/absolute", "dr-xr-xr-x absolute", "Lrwxrwxrwx absolute"},
		{"a link to nowhere", "sys/dangling", "file does not exist", "Lrwxrwxrwx dangling"},
		{"an unreadable file is there", "sys/kernel/secret", "---------- secret", "---------- secret"},
		{"a device is there", "dev/vfio/vfio", "Dc--------- vfio", "Dc--------- vfio"},
		{"what cannot be looked at", "root-only/inside", "permission denied", "permission denied"},
	} {
		t.Run(test.name, func(t *testing.T) {
			describe := func(info fs.FileInfo, err error) string {
				if err != nil {
					return cause(err).Error()
				}
				return info.Mode().String() + " " + info.Name()
			}
			if got := describe(m.Stat(test.path)); got != test.stat {
				t.Errorf("Stat: got %q, want %q", got, test.stat)
			}
			if got := describe(m.Lstat(test.path)); got != test.lstat {
				t.Errorf("Lstat: got %q, want %q", got, test.lstat)
			}
		})
	}
}

func TestMemListsAndReadsLinks(t *testing.T) {
	t.Parallel()
	m := sample(t)
	entries, err := m.ReadDir("sys/absolute/0000:00:1f.0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"config", "vendor"}, names(entries)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	for path, want := range map[string]error{
		"sys/kernel/debug": fs.ErrPermission, "proc/cpuinfo": syscall.ENOTDIR, "sys/dangling": fs.ErrNotExist,
		"..": fs.ErrInvalid,
	} {
		if _, err := m.ReadDir(path); !errors.Is(err, want) {
			t.Errorf("ReadDir(%q): got %v, want %v", path, err, want)
		}
	}
	if got, err := m.ReadLink("root/sys/above"); got != "../../../../sys/devices" || err != nil {
		t.Errorf("ReadLink: got %q, %v", got, err)
	}
	for path, want := range map[string]error{"proc/cpuinfo": syscall.EINVAL, "sys": syscall.EINVAL,
		"none": fs.ErrNotExist} {
		if _, err := m.ReadLink(path); !errors.Is(err, want) {
			t.Errorf("ReadLink(%q): got %v, want %v", path, err, want)
		}
	}
}

func names(entries []fs.DirEntry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestMemKeepsTheRulesOfPackageFS(t *testing.T) {
	t.Parallel()
	var b Builder
	for _, name := range []string{"a/b/c", "a/b/d", "a/e", "f", "a/long"} {
		if err := b.File(name, []byte(strings.Repeat(name, len(name)))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Link("a/l", "b"), b.Link("m", "a/b/c"), b.Dir("void")); err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(b.Mem(), "a/b/c", "a/e", "f", "m", "void"); err != nil {
		t.Error(err)
	}
}

func TestMemBytesCannotGrowIntoTheNextFile(t *testing.T) {
	t.Parallel()
	shared := []byte("onetwo")
	var b Builder
	if err := errors.Join(b.File("one", shared[:3]), b.File("two", shared[3:])); err != nil {
		t.Fatal(err)
	}
	m := b.Mem()
	one, err := m.Bytes("one")
	if err != nil {
		t.Fatal(err)
	}
	_ = append(one, "XXX"...)
	if two, _ := m.Bytes("two"); string(two) != "two" {
		t.Errorf("appending to one file changed the other to %q", two)
	}
	own, err := m.ReadFile("two")
	if err != nil {
		t.Fatal(err)
	}
	own[0] = 'X'
	if two, _ := m.Bytes("two"); string(two) != "two" {
		t.Errorf("writing to what ReadFile returned changed the tree to %q", two)
	}
}

func TestMemOpenFile(t *testing.T) {
	t.Parallel()
	var b Builder
	if err := errors.Join(b.File("f", []byte("0123456789")), b.Unreadable("bad", 0, syscall.EIO)); err != nil {
		t.Fatal(err)
	}
	m := b.Mem()
	f, err := m.Open("f")
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(f, []byte("0123456789")); err != nil {
		t.Error(err)
	}
	seeker := f.(io.Seeker)
	for _, test := range []struct {
		offset int64
		whence int
		want   int64
	}{{3, io.SeekStart, 3}, {2, io.SeekCurrent, 5}, {-1, io.SeekEnd, 9}} {
		if got, err := seeker.Seek(test.offset, test.whence); got != test.want || err != nil {
			t.Errorf("Seek(%d, %d): got %d, %v; want %d", test.offset, test.whence, got, err, test.want)
		}
	}
	if _, err := seeker.Seek(-1, io.SeekStart); err == nil {
		t.Error("seeking before the start: no error")
	}
	bad, err := m.Open("bad")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(bad); !errors.Is(err, syscall.EIO) {
		t.Errorf("reading an unreadable file: %v", err)
	}
	d, err := m.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(make([]byte, 1)); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("reading a directory: %v", err)
	}
}

func TestChrootIsTheRootOfItsLinks(t *testing.T) {
	t.Parallel()
	var b Builder
	if err := errors.Join(
		b.File("secret", []byte("outside")),
		b.File("dump/sys/x", []byte("inside")),
		b.Link("dump/sys/absolute", "/sys/x"),
		b.Link("dump/sys/up", "../../../secret"),
		b.Link("dump/sys/up-and-down", "../../dump/sys/x"),
	); err != nil {
		t.Fatal(err)
	}
	m, err := b.Mem().Chroot("dump")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.ReadFile("sys/absolute"); string(got) != "inside" {
		t.Errorf("absolute link: %q, %v", got, err)
	}
	for _, name := range []string{"sys/up", "sys/up-and-down", "secret"} {
		if got, err := m.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %q, %v; want that it does not exist", name, got, err)
		}
	}
	if _, err := m.Chroot("sys/x"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("chroot into a file: %v", err)
	}
}

func TestMachineIsFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		files []string
		roots []string
	}{
		{"at the root", []string{"sys/a", "proc/b", "x/sys/c"}, []string{"."}},
		{"with proc alone", []string{"proc/cpuinfo"}, []string{"."}},
		{"in one directory", []string{"40intel64-2g2n4c+pci/sys/a", "40intel64-2g2n4c+pci/proc/b"},
			[]string{"40intel64-2g2n4c+pci"}},
		{"deep", []string{"a/b/c/sys/x", "README"}, []string{"a/b/c"}},
		{"the one nearest the root", []string{"a/sys/x", "b/c/sys/x"}, []string{"a"}},
		{"several", []string{"m/server/sys/x", "m/desktop/sys/x"}, []string{"m/desktop", "m/server"}},
		{"not where sys is a file", []string{"sys", "a/proc/x"}, []string{"a"}},
		{"not without any", []string{"README", "a/b"}, nil},
		{"not too deep", []string{"1/2/3/4/5/6/7/sys/x"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var b Builder
			for _, name := range test.files {
				if err := b.File(name, nil); err != nil {
					t.Fatal(err)
				}
			}
			m := b.Mem()
			if diff := cmp.Diff(test.roots, FindRoots(m, 6)); diff != "" {
				t.Errorf("roots (-want +got):\n%s", diff)
			}
			if len(test.roots) != 1 {
				return
			}
			machine, err := m.Chroot(test.roots[0])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"."}, FindRoots(machine, 6)); diff != "" {
				t.Errorf("roots of the machine (-want +got):\n%s", diff)
			}
		})
	}
}

func (m *Mem) entries() int { return m.root.count() }

func (n *node) count() int {
	total := len(n.children)
	for _, c := range n.children {
		total += c.count()
	}
	return total
}

func TestManyLinksInOneNameEnd(t *testing.T) {
	t.Parallel()
	var b Builder
	long := strings.Repeat("x/", 3000) + "l"
	if err := errors.Join(b.Link("l", long), b.Link("x", ".")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mem().ReadFile("l"); !errors.Is(err, syscall.ELOOP) && !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("got %v, want an error about too many links", err)
	}
	for i := range maxLinks {
		if err := b.Link("c"+string(rune('A'+i)), "c"+string(rune('A'+i+1))); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.File("c"+string(rune('A'+maxLinks)), []byte("end")); err != nil {
		t.Fatal(err)
	}
	if err := b.Link("one-more", "cA"); err != nil {
		t.Fatal(err)
	}
	m := b.Mem()
	if got, err := m.ReadFile("cA"); string(got) != "end" {
		t.Errorf("40 links: got %q, %v", got, err)
	}
	if _, err := m.ReadFile("one-more"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("41 links: got %v, want ELOOP", err)
	}
}
