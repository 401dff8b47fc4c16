package tree

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func unpack(t testing.TB, m *Mem) string {
	t.Helper()
	dir := t.TempDir()
	err := fs.WalkDir(m, ".", func(name string, e fs.DirEntry, err error) error {
		at := filepath.Join(dir, name)
		switch {
		case err != nil && e.IsDir():
			return nil // unreadable: already made
		case err != nil:
			return err
		case e.IsDir():
			return os.MkdirAll(at, 0o755)
		case e.Type()&fs.ModeSymlink != 0:
			target, err := m.ReadLink(name)
			if err != nil || target == "" {
				return err // no file system stores an empty target
			}
			return os.Symlink(target, at)
		}
		data, err := m.ReadFile(name)
		if err != nil {
			return nil
		}
		return os.WriteFile(at, data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// directories opens dir with and without openat2.
func directories(t testing.TB, dir string) map[string]*Directory {
	t.Helper()
	out := make(map[string]*Directory)
	for name, use := range map[string]bool{"openat2": true, "steps": false} {
		d, err := openDirectory(dir, use)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		if use && d.byStep {
			t.Log("this kernel, or a filter in front of it, has no openat2: only the path without it is tested")
			continue
		}
		out[name] = d
	}
	return out
}

// TestDirectoryReadsAsMem fails if a way of reading a directory differs from the tree in memory.
func TestDirectoryReadsAsMem(t *testing.T) {
	t.Parallel()
	m := sample(t)
	for how, d := range directories(t, unpack(t, m)) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			for _, name := range []string{
				".", "proc/cpuinfo", "proc/empty", "sys/bus/pci/devices/0000:00:1f.0/vendor",
				"sys/absolute/0000:00:1f.0/vendor",
				"sys/above/pci0000:00/0000:00:1f.0/vendor", "root/root/proc/cpuinfo", "sys/to-file", "sys/to-link",
				"sys/odd-target/0000:00:1f.0/vendor", "sys/nothing", "sys/nothing/at/all", "proc/cpuinfo/x",
				"sys/dangling", "sys/loop-a",
				"sys/self/x", "sys/kernel/mm", "sys/absolute", "root", "/proc/cpuinfo", "sys/../proc", "", "sys/",
			} {
				same(t, m, d, name)
			}
		})
	}
}

func same(t *testing.T, want, got FS, name string) {
	t.Helper()
	kind := func(err error) string {
		if err == nil {
			return ""
		}
		var p *fs.PathError
		if !errors.As(err, &p) || p.Path != name {
			t.Errorf("%q: %v is not an fs.PathError about it", name, err)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return "not there"
		}
		return cause(err).Error()
	}
	a, errA := want.ReadFile(name)
	b, errB := got.ReadFile(name)
	if !bytes.Equal(a, b) || kind(errA) != kind(errB) {
		t.Errorf("ReadFile(%q): got %q, %v; want %q, %v", name, b, errB, a, errA)
	}
	la, errA := want.ReadDir(name)
	lb, errB := got.ReadDir(name)
	list := func(entries []fs.DirEntry) (out []string) {
		for _, e := range entries {
			if e.Type().IsRegular() || e.Type()&(fs.ModeDir|fs.ModeSymlink) != 0 {
				out = append(out, fs.FormatDirEntry(e))
			}
		}
		return out
	}
	var missing []string
	for _, e := range list(la) {
		if !strings.HasSuffix(e, "/") && (strings.Contains(e, "secret") || strings.Contains(e, "empty-target")) {
			missing = append(missing, e)
		}
	}
	if diff := cmp.Diff(list(la), append(list(lb), missing...),
		cmp.Transformer("set", func(s []string) map[string]bool {
			set := make(map[string]bool)
			for _, e := range s {
				set[e] = true
			}
			return set
		})); diff != "" || kind(errA) != kind(errB) {
		t.Errorf("ReadDir(%q): %v, want %v (-want +got):\n%s", name, errB, errA, diff)
	}
	ta, errA := want.ReadLink(name)
	tb, errB := got.ReadLink(name)
	if ta != tb || kind(errA) != kind(errB) {
		t.Errorf("ReadLink(%q): got %q, %v; want %q, %v", name, tb, errB, ta, errA)
	}
	for op, stat := range map[string][2]func(string) (fs.FileInfo, error){
		"Stat": {want.Stat, got.Stat}, "Lstat": {want.Lstat, got.Lstat},
	} {
		ia, errA := stat[0](name)
		ib, errB := stat[1](name)
		if kind(errA) != kind(errB) {
			t.Errorf("%s(%q): got %v, want %v", op, name, errB, errA)
			continue
		}
		if errA == nil && (ia.Name() != ib.Name() || ia.Mode().Type() != ib.Mode().Type() || ia.IsDir() != ib.IsDir()) {
			t.Errorf("%s(%q): got %v, want %v", op, name, fs.FormatFileInfo(ib), fs.FormatFileInfo(ia))
		}
	}
}

func TestDirectoryIsConfined(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, target := range map[string]string{
		"absolute": filepath.Join(outside, "secret"),
		"relative": "../" + filepath.Base(outside) + "/secret",
		"high":     strings.Repeat("../", 30) + strings.TrimPrefix(outside, "/") + "/secret",
		"dir":      outside,
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for how, d := range directories(t, dir) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			for _, name := range []string{"absolute", "relative", "high", "dir/secret", "dir"} {
				if b, err := d.ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("ReadFile(%q): got %q, %v; want that it is not there", name, b, err)
				}
				if _, err := d.Stat(name); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("Stat(%q): %v; want that it is not there", name, err)
				}
				if _, err := d.ReadDir(name); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("ReadDir(%q): %v; want that it is not there", name, err)
				}
				if _, err := d.Open(name); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("Open(%q): %v; want that it is not there", name, err)
				}
			}
		})
	}
}

func TestDirectoryDoesNotWait(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	// /dev/zero is endless.
	device := unix.Mknod(filepath.Join(dir, "zero"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))) == nil
	for how, d := range directories(t, dir) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for name, there := range map[string]bool{"fifo": true, "zero": device} {
					if _, err := d.ReadFile(name); there && !errors.Is(err, errNotRegular) {
						t.Errorf("%s: got %v, want %v", name, err, errNotRegular)
					}
				}
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Error("still waiting for a FIFO or a device after 20 s")
			}
		})
	}
}

func TestDirectoryReadsFilesOfAnySize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, below := range []string{"sys/a", "proc"} {
		if err := os.MkdirAll(filepath.Join(dir, below), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sizes := []int{0, 1, 4095, 4096, 4097, 8191, 8192, 8193, 32768, 100_000, 1 << 20}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	name := func(dir string, size int) string {
		return dir + "/" + strings.Repeat("x", 1+size%7) + time.Duration(size).String()
	}
	for _, size := range sizes {
		for _, below := range []string{"sys/a", "proc"} {
			if err := os.WriteFile(filepath.Join(dir, name(below, size)), content[:size], 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for how, d := range directories(t, dir) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			for _, size := range sizes {
				for _, below := range []string{"sys/a", "proc"} {
					if got, err := d.ReadFile(name(below, size)); !bytes.Equal(got, content[:size]) {
						t.Errorf("%s, %d bytes: got %d bytes, %v", below, size, len(got), err)
					}
				}
			}
		})
	}
}

func TestDirectoryOpens(t *testing.T) {
	t.Parallel()
	for how, d := range directories(t, unpack(t, sample(t))) {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f, err := d.Open("sys/to-link")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if b, err := io.ReadAll(f); string(b) != "0x8086\n" || err != nil {
				t.Errorf("got %q, %v", b, err)
			}
			at := f.(io.ReaderAt)
			b := make([]byte, 4)
			if n, err := at.ReadAt(b, 2); string(b[:n]) != "8086" || err != nil {
				t.Errorf("in the middle: got %q, %v", b[:n], err)
			}
			if n, err := at.ReadAt(b, 5); string(b[:n]) != "6\n" || err != io.EOF {
				t.Errorf("at the end: got %q, %v", b[:n], err)
			}
			if _, err := at.ReadAt(b, -1); err == nil {
				t.Error("before the start: no error")
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if _, err := f.Read(b); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("a closed file: %v", err)
			}
			dir, err := d.Open("sys/absolute/0000:00:1f.0")
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			var entries []fs.DirEntry
			for {
				some, err := dir.(fs.ReadDirFile).ReadDir(1)
				if err == io.EOF {
					break
				}
				if err != nil || len(some) != 1 {
					t.Fatalf("got %d entries, %v", len(some), err)
				}
				entries = append(entries, some...)
			}
			if diff := cmp.Diff([]string{"config", "vendor"}, names(entries)); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
			for _, e := range entries {
				info, err := e.Info()
				if err != nil || info.Size() == 0 || info.Name() != e.Name() || info.ModTime().IsZero() ||
					info.Sys() == nil {
					t.Errorf("%v: %v, %v", e, info, err)
				}
			}
		})
	}
}

func TestDirErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Dir(plain); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
	if _, err := Dir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	for how, d := range directories(t, dir) {
		if err := d.Close(); err != nil {
			t.Errorf("%s: close: %v", how, err)
		}
		if _, err := d.ReadFile("file"); err == nil {
			t.Errorf("%s: a closed directory reads", how)
		}
	}
}

func TestUnreadableFilesOfDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0); err != nil {
		t.Fatal(err)
	}
	for how, d := range directories(t, dir) {
		if _, err := d.ReadFile("f"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", how, err)
		}
	}
}

// TestLiveReadsThisMachine compares Live with package os.
func TestLiveReadsThisMachine(t *testing.T) {
	t.Parallel()
	live := Live()
	defer live.Close()
	for _, name := range []string{
		"proc/cpuinfo", "proc/version", "proc/cmdline", "proc/filesystems", "sys/devices/system/cpu/online",
		"sys/devices/system/cpu/possible",
		"sys/kernel/mm/transparent_hugepage/enabled", "etc/passwd", "proc/sys/kernel/osrelease",
	} {
		want, errWant := os.ReadFile("/" + name)
		got, err := live.ReadFile(name)
		if !bytes.Equal(got, want) || (err == nil) != (errWant == nil) {
			t.Errorf("%s: got %d bytes, %v; want %d bytes, %v", name, len(got), err, len(want), errWant)
		}
	}
	for _, name := range []string{"sys/class/net", "sys/devices/system/cpu", "sys/bus/pci/devices", "sys/class"} {
		want, errWant := os.ReadDir("/" + name)
		got, err := live.ReadDir(name)
		if diff := cmp.Diff(names(want), names(got)); diff != "" || (err == nil) != (errWant == nil) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		for i, e := range got {
			if i < len(want) && e.Type() != want[i].Type() {
				t.Errorf("%s: %v, want %v", name, e, want[i])
			}
			if e.Type()&fs.ModeSymlink == 0 {
				continue
			}
			link := name + "/" + e.Name()
			target, err := live.ReadLink(link)
			if want, _ := os.Readlink("/" + link); target != want {
				t.Errorf("%s: got %q, %v; want %q", link, target, err, want)
			}
			if info, err := live.Stat(link); err != nil || info.Mode()&fs.ModeSymlink != 0 {
				t.Errorf("%s: %v, %v", link, info, err)
			}
			if info, err := live.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("%s: %v, %v", link, info, err)
			}
		}
	}
	for name, want := range map[string]error{"proc/none": fs.ErrNotExist, "../x": fs.ErrInvalid,
		"proc/cpuinfo/x": syscall.ENOTDIR, "proc": syscall.EISDIR} {
		if _, err := live.ReadFile(name); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	if _, err := live.ReadLink("proc/cpuinfo"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a link that is none: %v", err)
	}
}

// TestDirectoryOverTheMachine reads procfs and sysfs through openat2.
func TestDirectoryOverTheMachine(t *testing.T) {
	t.Parallel()
	for how, d := range directories(t, "/") {
		for _, name := range []string{"proc/cpuinfo", "proc/version", "sys/devices/system/cpu/online",
			"proc/self/comm"} {
			want, err := os.ReadFile("/" + name)
			if err != nil {
				continue
			}
			if got, err := d.ReadFile(name); !bytes.Equal(got, want) {
				t.Errorf("%s, %s: got %d bytes, %v; want %d", how, name, len(got), err, len(want))
			}
		}
	}
}

func TestTypesOfEntries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, err := range []error{os.WriteFile(dir+"/f", nil, 0o600), os.Mkdir(dir+"/d", 0o700),
		unix.Mkfifo(dir+"/p", 0o600), os.Symlink("gone", dir+"/l")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"d--------- d", "---------- f", "L--------- l", "p--------- p"}
	for how, d := range directories(t, dir) {
		entries, err := d.ReadDir(".")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Type().String()+" "+e.Name())
			if info, err := e.Info(); err != nil || info.Mode().Type() != e.Type() {
				t.Errorf("%s, %s: %v, %v", how, e.Name(), info, err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: entries (-want +got):\n%s", how, diff)
		}
	}
}

func BenchmarkReadFile(b *testing.B) {
	m := sample(b)
	dir := unpack(b, m)
	const name = "sys/bus/pci/devices/0000:00:1f.0/vendor"
	all := map[string]fs.FS{"Mem": m, "os.DirFS": os.DirFS(dir)}
	for how, d := range directories(b, dir) {
		all["Dir with "+how] = d
	}
	for how, fsys := range all {
		b.Run(how, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Bytes(fsys, name); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for how, fsys := range map[string]fs.FS{"Live sysfs": Live(), "os.DirFS sysfs": os.DirFS("/")} {
		b.Run(how, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Bytes(fsys, "sys/devices/system/cpu/online"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadTree(b *testing.B) {
	var build Builder
	for i := range 10_000 {
		name := "sys/devices/system/cpu/cpu" + strconv.Itoa(i/40) + "/cache/index" + strconv.Itoa(i/10%4) + "/file" +
			strconv.Itoa(i%10)
		if err := build.File(name, []byte(strconv.Itoa(i)+"\n")); err != nil {
			b.Fatal(err)
		}
	}
	m := build.Mem()
	dir := unpack(b, m)
	all := map[string]fs.FS{"Mem": m, "os.DirFS": os.DirFS(dir)}
	for how, d := range directories(b, dir) {
		all["Dir with "+how] = d
	}
	for how, fsys := range all {
		b.Run(how, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
					if err == nil && !d.IsDir() {
						_, err = Bytes(fsys, name)
					}
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
