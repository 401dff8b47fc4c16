package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func replay(t testing.TB, r *Recorder) *Mem {
	t.Helper()
	var archive bytes.Buffer
	if err := WriteTar(&archive, r.Entries()); err != nil {
		t.Fatal(err)
	}
	m, err := ReadArchive(bytes.NewReader(archive.Bytes()), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var b Builder
	if err := b.Add(r.Entries()...); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(describe(t, m), describe(t, b.Mem())); diff != "" {
		t.Errorf("the archive and the entries are not the same tree (-archive +entries):\n%s", diff)
	}
	return m
}

func answer(fsys FS, op, name string) string {
	var out string
	var err error
	switch op {
	case "read":
		var b []byte
		b, err = Bytes(fsys, name)
		out = string(b)
	case "list":
		var entries []fs.DirEntry
		entries, err = fsys.ReadDir(name)
		out = strings.Join(names(entries), " ")
	case "link":
		out, err = fsys.ReadLink(name)
	case "stat":
		var info fs.FileInfo
		if info, err = fsys.Stat(name); err == nil {
			out = info.Name() + fmt.Sprint(info.IsDir())
		}
	case "lstat":
		var info fs.FileInfo
		if info, err = fsys.Lstat(name); err == nil {
			out = info.Name() + fmt.Sprint(info.IsDir(), info.Mode()&fs.ModeSymlink != 0)
		}
	case "open":
		var f fs.File
		if f, err = fsys.Open(name); err == nil {
			b := make([]byte, 3)
			var n int
			if at, ok := f.(io.ReaderAt); ok {
				n, err = at.ReadAt(b, 2)
			} else {
				n, err = f.Read(b)
			}
			out = fmt.Sprintf("%q", b[:n])
			f.Close()
		}
	}
	switch {
	case err == nil:
		return out
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "not there"
	case err == io.EOF:
		return out + " to the end"
	case errors.Is(err, fs.ErrInvalid), errors.Is(err, syscall.EINVAL):
		return "not a link"
	}
	return out + " error " + ErrorName(err)
}

var operations = []string{"read", "list", "link", "stat", "lstat", "open"}

func TestRecorderReplays(t *testing.T) {
	t.Parallel()
	m := sample(t)
	paths := []string{
		".", "proc/cpuinfo", "proc/empty", "sys/bus/pci/devices/0000:00:1f.0/vendor",
		"sys/absolute/0000:00:1f.0/vendor",
		"sys/above/pci0000:00/0000:00:1f.0/vendor", "root/root/proc/cpuinfo", "sys/to-file", "sys/to-link",
		"sys/nothing", "sys/nothing/at/all",
		"proc/cpuinfo/x", "sys/dangling", "sys/loop-a", "sys/self/x", "sys/kernel/mm", "sys/absolute", "root",
		"sys/kernel/secret",
		"sys/kernel/debug", "sys/kernel/debug/x", "dev/vfio/vfio", "root-only/inside", "root-only/inside/x",
		"sys/devices/pci0000:00/0000:00:1f.0",
	}
	for _, op := range operations {
		for _, name := range paths {
			if name == "." && op != "list" {
				continue
			}
			t.Run(op+" "+name, func(t *testing.T) {
				t.Parallel()
				r := NewRecorder(m)
				want := answer(m, op, name)
				if got := answer(r, op, name); got != want {
					t.Errorf("recorder: got %q, want %q", got, want)
				}
				if got := answer(r, op, name); got != want {
					t.Errorf("recorder, again: got %q, want %q", got, want)
				}
				if name == "." {
					return // the root's list is not recorded
				}
				if got := answer(replay(t, r), op, name); got != want {
					t.Errorf("replay: got %q, want %q", got, want)
				}
			})
		}
	}
}

func TestRecorderReplaysAllAtOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := trees(rt)
		var all []string
		err := fs.WalkDir(m, ".", func(name string, _ fs.DirEntry, _ error) error {
			all = append(all, name, name+"/none")
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		r := NewRecorder(m)
		type question struct{ op, name string }
		asked := map[question]string{}
		for range rapid.IntRange(1, 30).Draw(rt, "questions") {
			q := question{rapid.SampledFrom(operations).Draw(rt, "op"), rapid.SampledFrom(all).Draw(rt, "name")}
			if q.name == "." || strings.HasPrefix(q.name, "./") || !fs.ValidPath(q.name) {
				continue
			}
			asked[q] = answer(m, q.op, q.name)
			if got := answer(r, q.op, q.name); got != asked[q] {
				rt.Fatalf("recorder, %s %q: got %q, want %q", q.op, q.name, got, asked[q])
			}
		}
		back := replay(t, r)
		for q, want := range asked {
			// An opened file is recorded only up to the last byte read.
			if got := answer(back, q.op, q.name); got != want &&
				(q.op != "open" || strings.TrimSuffix(got, " to the end") != strings.TrimSuffix(want, " to the end")) {
				rt.Fatalf("replay, %s %q: got %q, want %q", q.op, q.name, got, want)
			}
		}
	})
}

func TestRecorderKeepsNothingElse(t *testing.T) {
	t.Parallel()
	r := NewRecorder(sample(t))
	if _, err := r.ReadFile("sys/bus/pci/devices/0000:00:1f.0/vendor"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadDir("proc"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range r.Entries() {
		s := fmt.Sprintf("%s %q %s", e.Name, e.Data, e.Target)
		if e.Omitted {
			s += "omitted"
		}
		got = append(got, s)
	}
	want := []string{
		`proc "" `, `proc/cpuinfo "" omitted`, `proc/empty "" omitted`,
		`sys "" omitted`, `sys/bus "" omitted`, `sys/bus/pci "" omitted`, `sys/bus/pci/devices "" omitted`,
		`sys/bus/pci/devices/0000:00:1f.0 "" ../../../devices/pci0000:00/0000:00:1f.0`,
		`sys/devices "" omitted`, `sys/devices/pci0000:00 "" omitted`, `sys/devices/pci0000:00/0000:00:1f.0 "" omitted`,
		`sys/devices/pci0000:00/0000:00:1f.0/vendor "0x8086\n" `,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	m := replay(t, r)
	for name, op := range map[string]string{"proc/cpuinfo": "read", "sys/bus": "list",
		"sys/devices/pci0000:00/0000:00:1f.0/config": "read"} {
		if got := answer(m, op, name); got != "not there" {
			t.Errorf("%s %s, which was not recorded: %s", op, name, got)
		}
	}
	if _, err := m.ReadFile("proc/cpuinfo"); !errors.Is(err, ErrNotRecorded) {
		t.Errorf("got %v, want %v", err, ErrNotRecorded)
	}
}

func TestRecorderAnswersTheSameTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(s string) {
		if err := os.WriteFile(dir+"/meminfo", []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	d, err := Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := NewRecorder(d)
	for _, now := range []string{"first", "second", ""} {
		if now == "" {
			if err := os.Remove(dir + "/meminfo"); err != nil {
				t.Fatal(err)
			}
		} else {
			write(now)
		}
		if got, err := r.ReadFile("meminfo"); string(got) != "first" {
			t.Errorf("with %q on the disk: got %q, %v", now, got, err)
		}
	}
}

func TestRecorderOfPartsOfAFile(t *testing.T) {
	t.Parallel()
	var b Builder
	if err := b.File("config", bytes.Repeat([]byte{0xff}, 4096)); err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(b.Mem())
	f, err := r.Open("config")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 100} {
		if _, err := f.(io.ReaderAt).ReadAt(make([]byte, 4), at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.(io.ReaderAt).ReadAt(make([]byte, 4), -1); err == nil {
		t.Error("reading before the start: no error")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 104)
	copy(want, "\xff\xff\xff\xff")
	copy(want[100:], "\xff\xff\xff\xff")
	got, err := replay(t, r).ReadFile("config")
	if !bytes.Equal(got, want) {
		t.Errorf("got % x, %v", got, err)
	}
	whole, err := r.ReadFile("config")
	if len(whole) != 4096 || err != nil {
		t.Errorf("the whole file after its parts: %d bytes, %v", len(whole), err)
	}
	if got, err := replay(t, r).ReadFile("config"); len(got) != 4096 {
		t.Errorf("the whole file: %d bytes, %v", len(got), err)
	}
}

// stubborn has its own kinds of errors.
type stubborn struct{ fstest.MapFS }

func (s stubborn) ReadFile(name string) ([]byte, error) {
	if name == "d/io" {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EIO}
	}
	return s.MapFS.ReadFile(name)
}

func (s stubborn) Lstat(name string) (fs.FileInfo, error) {
	if name == "d/hidden" {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: syscall.EACCES}
	}
	return s.MapFS.Lstat(name)
}

func TestRecorderOverOtherFileSystems(t *testing.T) {
	t.Parallel()
	from := stubborn{fstest.MapFS{"d/io": {}, "d/hidden": {}, "d/f": {Data: []byte("f")},
		"d/l": {Data: []byte("f"), Mode: fs.ModeSymlink}}}
	r := NewRecorder(from)
	questions := [][2]string{{"read", "d/io"}, {"stat", "d/io"}, {"stat", "d/hidden"}, {"read", "d/l"}, {"link", "d/l"},
		{"list", "d"}, {"link", "d/f"}}
	want := []string{" error EIO", "iofalse", " error EACCES", "f", "f", "f hidden io l", "not a link"}
	var got, again []string
	for _, q := range questions {
		got = append(got, answer(r, q[0], q[1]))
	}
	m := replay(t, r)
	for _, q := range questions {
		again = append(again, answer(m, q[0], q[1]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorder (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, again); diff != "" {
		t.Errorf("replay (-want +got):\n%s", diff)
	}
}

func TestRecorderIsForManyAtOnce(t *testing.T) {
	t.Parallel()
	r := NewRecorder(sample(t))
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for _, op := range operations {
				answer(r, op, "sys/bus/pci/devices/0000:00:1f.0/vendor")
				answer(r, op, "sys/absolute")
			}
			r.Entries()
		})
	}
	wait.Wait()
}

func TestWriteTarIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	var first []byte
	for range 3 {
		r := NewRecorder(sample(t))
		for _, op := range operations {
			for _, name := range []string{"sys/kernel/secret", "sys/kernel", "proc/cpuinfo", "sys/to-link",
				"dev/vfio/vfio", "root-only/inside"} {
				answer(r, op, name)
			}
		}
		var b bytes.Buffer
		if err := WriteTar(&b, r.Entries()); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b.Bytes()
		}
		if !bytes.Equal(first, b.Bytes()) {
			t.Fatal("two archives of the same tree differ")
		}
	}
	if err := WriteTar(brokenPipe{}, []Entry{{Name: "a", Data: []byte("x")}}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a writer that fails: %v", err)
	}
}

func TestPathsAreInOrder(t *testing.T) {
	t.Parallel()
	ordered := []string{"a", "a/b", "a/b/c", "a/c", "a-b", "a-b/c", "ab", "b"}
	for i, x := range ordered {
		for j, y := range ordered {
			got := ComparePaths(x, y)
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q and %q: %d", x, y, got)
			}
		}
	}
}

func TestLoadOfAnUnpackedArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, err := range []error{
		os.Mkdir(dir+"/listed", 0o755), os.Mkdir(dir+"/passed", 0o755), os.Chmod(dir+"/passed", 0o711|fs.ModeSticky),
		os.WriteFile(dir+"/listed/read", []byte("x"), 0o644), os.WriteFile(dir+"/listed/unread", nil, 0o200),
		os.WriteFile(dir+"/listed/empty", nil, 0o644), os.Symlink("listed/read", dir+"/link"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for how, d := range directories(t, dir) {
		var b Builder
		if err := b.Load(d); err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		want := "link -> listed/read <nil>\nlisted/\nlisted/empty = \"\" <nil>\nlisted/read = \"x\" " +
			"<nil>\nlisted/unread = \"\" " +
			ErrNotRecorded.Error() + "\npassed/\npassed: " + ErrNotRecorded.Error() + "\n"
		if diff := cmp.Diff(want, describe(t, b.Mem())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
}
