package tree

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func tarOf(t testing.TB, entries ...entryOf) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(e.data))
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

type entryOf struct {
	tar.Header
	data []byte
}

func file(name, data string) entryOf {
	return entryOf{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, []byte(data)}
}

func entry(kind byte, name, link string) entryOf {
	return entryOf{tar.Header{Typeflag: kind, Name: name, Linkname: link, Mode: 0o644}, nil}
}

func gzipOf(t testing.TB, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zstdOf(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

func describe(t testing.TB, m *Mem) string {
	t.Helper()
	var b strings.Builder
	err := fs.WalkDir(m, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			fmt.Fprintf(&b, "%s: %v\n", name, cause(err))
		case name == ".", e.IsDir():
			if e.IsDir() && name != "." {
				fmt.Fprintf(&b, "%s/\n", name)
			}
		case e.Type()&fs.ModeSymlink != 0:
			target, err := m.ReadLink(name)
			fmt.Fprintf(&b, "%s -> %s %v\n", name, target, err)
		default:
			data, err := m.ReadFile(name)
			if err != nil {
				err = cause(err)
			}
			fmt.Fprintf(&b, "%s = %q %v\n", name, data, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Go has no writers for bzip2 and xz here, so their files were made with GNU tar.
func TestArchivesOfEveryPacking(t *testing.T) {
	t.Parallel()
	plain := tarOf(t,
		entry(tar.TypeDir, "box/", ""), entry(tar.TypeSymlink, "box/link", "sys/online"),
		entry(tar.TypeDir, "box/proc/", ""), file("box/proc/cpuinfo", "x"), entry(tar.TypeDir, "box/sys/", ""),
		file("box/sys/online", "0\n"))
	skippable := append([]byte("\x50\x2a\x4d\x18\x04\x00\x00\x00skip"), zstdOf(t, plain)...)
	want := "box/\nbox/link -> sys/online <nil>\nbox/proc/\nbox/proc/cpuinfo = \"x\" <nil>\nbox/sys/\nbox/sys/online " +
		"= \"0\\n\" <nil>\n"
	for name, b := range map[string][]byte{
		"plain": plain, "gzip": gzipOf(t, plain), "zstd": zstdOf(t, plain), "zstd after a frame to skip": skippable,
		"two gzip members": append(gzipOf(t, plain[:700]), gzipOf(t, plain[700:])...),
		"bzip2":            read(t, "testdata/small.tar.bz2"), "xz": read(t, "testdata/small.tar.xz"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !IsArchive(b) {
				t.Error("not known as an archive")
			}
			for range 2 {
				m, err := ReadArchive(bytes.NewReader(b), Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, describe(t, m)); diff != "" {
					t.Errorf("tree (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestArchiveEntries(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("directory-with-a-name/", 12) + "file"
	page := strings.Repeat("\x00", 4096)
	for _, test := range []struct {
		name    string
		entries []entryOf
		want    string
	}{
		{"names are confined", []entryOf{file("../../etc/passwd", "1"), file("/root/x", "2"), file("./a/../../b", "3")},
			"b = \"3\" <nil>\netc/\netc/passwd = \"1\" <nil>\nroot/\nroot/x = \"2\" <nil>\n"},
		{"links are kept, wherever they lead", []entryOf{entry(tar.TypeSymlink, "l", "../../../etc/passwd"),
			entry(tar.TypeSymlink, "m", "/etc/shadow")},
			"l -> ../../../etc/passwd <nil>\nm -> /etc/shadow <nil>\n"},
		{"the later entry counts", []entryOf{file("a", "1"), file("./a", "22")}, "a = \"22\" <nil>\n"},
		{"hard links are copies", []entryOf{file("./d/a", "1"), entry(tar.TypeLink, "b", "./d/a")},
			"b = \"1\" <nil>\nd/\nd/a = \"1\" <nil>\n"},
		{"devices are there", []entryOf{entry(tar.TypeChar, "dev/null", ""), entry(tar.TypeBlock, "dev/sda", ""),
			entry(tar.TypeFifo, "dev/f", "")},
			"dev/\ndev/f = \"\" a device file or FIFO\ndev/null = \"\" a device file or FIFO\ndev/sda = \"\" a " +
				"device file or FIFO\n"},
		{"long names, in pax headers", []entryOf{file(long, "1"), entry(tar.TypeSymlink, "l", long)}, ""},
		{"names that are not ASCII", []entryOf{file("gr\u00fcn", "1"), entry(tar.TypeSymlink, "l", "gr\u00fcn")},
			"gr\u00fcn = \"1\" <nil>\nl -> gr\u00fcn <nil>\n"},
		{"attributes padded to a page", []entryOf{file("a", "0\n"+page[2:]), file("b", page),
			file("config", "\x86\x80"+page[2:]), file("c", "0\n"+page)},
			fmt.Sprintf("a = \"0\\n\" <nil>\nb = \"\" <nil>\nc = %q <nil>\nconfig = %q <nil>\n", "0\n"+page,
				"\x86\x80"+page[2:])},
		{"what only the owner may write was not read",
			[]entryOf{{tar.Header{Typeflag: tar.TypeReg, Name: "rescan", Mode: 0o200}, nil}},
			"rescan = \"\" " + ErrNotRecorded.Error() + "\n"},
		{"a large file after a small one", []entryOf{file("a", "1"), file("b", strings.Repeat("b", 100_000)),
			file("c", "1")},
			fmt.Sprintf("a = \"1\" <nil>\nb = %q <nil>\nc = \"1\" <nil>\n", strings.Repeat("b", 100_000))},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, err := ReadArchive(bytes.NewReader(tarOf(t, test.entries...)), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if got, err := m.ReadFile(long); string(got) != "1" {
					t.Errorf("got %q, %v", got, err)
				}
				if got, err := m.ReadLink("l"); got != long {
					t.Errorf("link: got %q, %v", got, err)
				}
				return
			}
			if diff := cmp.Diff(test.want, describe(t, m)); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBrokenArchives(t *testing.T) {
	t.Parallel()
	whole := tarOf(t, file("sys/a", "1"), file("sys/b", strings.Repeat("b", 2000)))
	pax := func(record string) []byte {
		return blocks(header("x", 'x', fmt.Sprintf("%o", len(record)), nil), []byte(record), header("f", '0', "0", nil))
	}
	for _, test := range []struct {
		name string
		data []byte
		err  string
	}{
		{"nothing", nil, "archive, byte 0: this is not a tar archive: it is too short"},
		{"a text", []byte("GPU0 GPU1\n"), "archive, byte 0: this is not a tar archive: it is too short"},
		{"a long text", bytes.Repeat([]byte("GPU0 GPU1\n"), 100),
			"archive, byte 0: this is not a tar archive, plain or packed with gzip, bzip2, xz or zstd"},
		{"cut off in a header", whole[:1500],
			`archive, byte 1024, at "sys/a": the archive is cut off: copy it again, or collect it again`},
		{"cut off in a file", whole[:2000], `archive, byte 1024, at "sys/b": the archive is cut off`},
		{"cut off at its end mark", whole[:1024+512+2048], `archive, byte 3584, at "sys/b": the archive is cut off`},
		{"a damaged header", func() []byte { b := bytes.Clone(whole); b[1024+3] ^= 1; return b }(),
			`archive, byte 1024, at "sys/a": the header is damaged: its checksum is wrong`},
		{"gzip cut off", gzipOf(t, whole)[:60], "the archive is cut off"},
		{"gzip without its checksum", gzipOf(t, whole)[:len(gzipOf(t, whole))-4], "the archive is cut off"},
		{"gzip with a wrong checksum", func() []byte {
			b := gzipOf(t, whole)
			b[len(b)-8] ^= 1
			return b
		}(), "gzip: gzip: invalid checksum"},
		{"gzip that is no more than its magic", []byte("\x1f\x8b"), "archive: gzip: unexpected EOF"},
		{"zstd cut off", zstdOf(t, whole)[:40], "the archive is cut off"},
		{"bzip2 cut off", read(t, "testdata/small.tar.bz2")[:60], "the archive is cut off"},
		{"xz cut off", read(t, "testdata/small.tar.xz")[:60], "xz: data is truncated or corrupt"},
		{"xz damaged", []byte("\xfd7zXZ\x00 and then a text that is not xz"), "archive: xz: "},
		{"a file below a file", tarOf(t, file("sys/a", "1"), file("sys/a/b", "2")),
			`archive, byte 1024, at "sys/a/b": add "sys/a/b": "a" above it is not a directory`},
		{"a file below a link", tarOf(t, entry(tar.TypeSymlink, "sys/a", "/etc"), file("sys/a/passwd", "2")),
			`"a" above it is not a directory`},
		{"a hard link to what comes later", tarOf(t, entry(tar.TypeLink, "a", "b"), file("b", "")),
			`it is a hard link to "b", which is not a file before it`},
		{"a size that is no number", blocks(header("f", '0', "12x", nil)), `its size is "12x"`},
		{"a negative size", blocks(header("f", '0', "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", nil)),
			"the header is damaged: its size is"},
		{"a size beyond all numbers", blocks(header("f", '0', "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", nil)),
			"the header is damaged: its size is"},
		{"a pax record without a length", pax("path=x\n"), "a record has no length"},
		{"a pax record that is too long", pax("99 path=x\n"), `a record has the length "99"`},
		{"a pax record without a value", pax("7 path\n"), "a record has no value"},
		{"a pax size that is no number", pax("10 size=x\n"), `the size is "x"`},
		{"an extended header without end", blocks(header("x", 'x', "77777777777", nil)),
			"an extended header of 8589934591 bytes is too long"},
		{"extended headers without an entry",
			bytes.Repeat(append(header("x", 'L', "2000000", nil), make([]byte, 512<<10)...), 4),
			"too many extended headers before one entry"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadArchive(bytes.NewReader(test.data), Limits{})
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
	if _, err := ReadArchive(failing{}, Limits{}); !errors.Is(err, errFailing) {
		t.Errorf("a reader that fails: %v", err)
	}
	if _, err := ReadArchive(io.MultiReader(bytes.NewReader(whole[:600]), failing{}), Limits{}); !errors.Is(err,
		errFailing) {
		t.Errorf("a reader that fails later: %v", err)
	}
}

var errFailing = errors.New("the disk is on fire")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFailing }

func TestEveryTruncationIsAnError(t *testing.T) {
	t.Parallel()
	whole := tarOf(t, file("sys/a", "1"), entry(tar.TypeSymlink, "sys/"+strings.Repeat("l", 200), "a"),
		file("sys/b", strings.Repeat("b", 600)))
	end := len(whole) - 2*blockSize
	for name, pack := range map[string]func(testing.TB, []byte) []byte{
		"plain": func(_ testing.TB, b []byte) []byte { return b }, "gzip": gzipOf, "zstd": zstdOf,
	} {
		packed := pack(t, whole)
		last := len(packed)
		if name == "plain" {
			last = end + blockSize
		}
		for n := range last {
			if _, err := ReadArchive(bytes.NewReader(packed[:n]), Limits{}); err == nil {
				t.Fatalf("%s: the first %d of %d bytes are no error", name, n, len(packed))
			}
		}
	}
}

func TestArchiveLimits(t *testing.T) {
	t.Parallel()
	bomb := gzipOf(t, tarOf(t, file("sys/small", "1"), file("sys/bomb", strings.Repeat("\x00", 8<<20)),
		file("sys/after", "2")))
	if len(bomb) > 64<<10 {
		t.Fatalf("the bomb has %d bytes", len(bomb))
	}
	for _, test := range []struct {
		name   string
		limits Limits
		err    string
	}{
		{"bytes", Limits{Bytes: 1 << 20},
			`archive, byte 1024, at "sys/bomb": unpacks to more than 1048576 bytes (limit Bytes)`},
		{"files", Limits{Files: 2}, `archive, byte 8390144, at "sys/after": more than 2 entries (limit Files)`},
		{"a header", Limits{Bytes: 100}, `archive, byte 0: unpacks to more than 100 bytes (limit Bytes)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadArchive(bytes.NewReader(bomb), test.limits)
			var limit *LimitError
			if !errors.As(err, &limit) || err.Error() != test.err {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
	m, err := ReadArchive(bytes.NewReader(bomb), Limits{FileBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	want := "sys/\nsys/after = \"2\" <nil>\nsys/bomb = \"\" larger than 1048576 bytes (limit FileBytes)\nsys/small = " +
		"\"1\" <nil>\n"
	if diff := cmp.Diff(want, describe(t, m)); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	// Zeros in gzip unpack a thousandfold.
	behind := gzipOf(t, append(tarOf(t, file("a", "1")), make([]byte, 4<<20)...))
	if _, err := ReadArchive(bytes.NewReader(behind), Limits{Bytes: 1 << 20}); err == nil {
		t.Error("zeros behind the end: no error")
	}
}

func TestOtherFilesAreNotArchives(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"a matrix": "\tGPU0\tGPU1\n", "XML": "<?xml version=\"1.0\"?>\n", "zeros": strings.Repeat("\x00", blockSize),
		"nothing":             "",
		"a text of 512 bytes": strings.Repeat("0000:00:1f.0 ISA bridge\n", 22)[:blockSize],
	} {
		if IsArchive([]byte(head)) {
			t.Errorf("%s is taken for an archive", name)
		}
	}
}

// dumps returns the archives below $RACKLESS_CORPUS, a directory with dumps of real machines.
func dumps(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv("RACKLESS_CORPUS")
	if dir == "" {
		t.Skip("no dumps: set RACKLESS_CORPUS to a directory with archives of machines")
	}
	var out []string
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		for _, suffix := range []string{".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar"} {
			if strings.HasSuffix(name, suffix) {
				out = append(out, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDumpsOfRealMachines(t *testing.T) {
	t.Parallel()
	for _, name := range dumps(t) {
		b := read(t, name)
		m, err := ReadArchive(bytes.NewReader(b), Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Logf("%s: %d entries, machines %q", filepath.Base(name), m.entries(), FindRoots(m, 6))
		if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
			plain, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			agrees(t, plain)
		}
	}
}

func BenchmarkReadArchive(b *testing.B) {
	var entries []entryOf
	for i := range 10_000 {
		entries = append(entries, file(fmt.Sprintf("box/sys/devices/system/cpu/cpu%d/topology/file-%d", i/20, i%20),
			fmt.Sprintln(i)))
	}
	plain := tarOf(b, entries...)
	for name, data := range map[string][]byte{"tar": plain, "gzip": gzipOf(b, plain), "zstd": zstdOf(b, plain)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(data)), "bytes")
			for b.Loop() {
				if _, err := ReadArchive(bytes.NewReader(data), Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadDump(b *testing.B) {
	for _, name := range dumps(b) {
		if data := read(b, name); len(data) > 80<<10 {
			b.Run(filepath.Base(name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := ReadArchive(bytes.NewReader(data), Limits{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
