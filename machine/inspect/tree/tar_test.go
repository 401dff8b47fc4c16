package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// header makes variants that archive/tar does not write.
func header(name string, kind byte, size string, change func(b []byte)) []byte {
	b := make([]byte, blockSize)
	copy(b, name)
	copy(b[100:], "0000644\x00")
	copy(b[124:], size)
	b[typeOffset] = kind
	copy(b[257:], "ustar  \x00")
	if change != nil {
		change(b)
	}
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

func blocks(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
		out = append(out, make([]byte, padding(int64(len(p))))...)
	}
	return append(out, make([]byte, 2*blockSize)...)
}

func TestArchiveVariants(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 300)
	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"a directory of before POSIX", blocks(header("d/", 0, "0", nil), header("f", 0, "1", nil), []byte("x")),
			"d/\nf = \"x\" <nil>\n"},
		{"a contiguous file", blocks(header("f", '7', "1", nil), []byte("x")), "f = \"x\" <nil>\n"},
		{"a size in binary", blocks(header("f", '0', "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02", nil),
			[]byte("xy")), "f = \"xy\" <nil>\n"},
		{"GNU long names", blocks(header("././@LongLink", 'L', "455", nil), []byte(long+"\x00"),
			header("f", '0', "1", nil), []byte("x")),
			long + " = \"x\" <nil>\n"},
		{"GNU long targets", blocks(header("././@LongLink", 'K', "455", nil), []byte(long+"\x00"),
			header("l", '2', "0", nil)),
			"l -> " + long + " <nil>\n"},
		{"a prefix", blocks(header("f", '0', "1", func(b []byte) {
			copy(b[257:], "ustar\x0000")
			copy(b[345:], "a/b")
		}), []byte("x")),
			"a/\na/b/\na/b/f = \"x\" <nil>\n"},
		{"no prefix where GNU has times", blocks(header("f", '0', "1", func(b []byte) {
			copy(b[345:], "a/b")
		}), []byte("x")), "f = \"x\" <nil>\n"},
		{"star's prefix", blocks(header("f", '0', "1", func(b []byte) {
			copy(b[257:], "ustar\x0000")
			copy(b[345:], "a")
			copy(b[476:], "12345670123\x0012345670123\x00")
			copy(b[508:], "tar\x00")
		}), []byte("x")), "a/\na/f = \"x\" <nil>\n"},
		{"a sparse file of GNU is there", blocks(header("s", 'S', "1", func(b []byte) {
			b[extendedOffset] = 1
		}), make([]byte, blockSize), []byte("x"),
			header("f", '0', "1", nil), []byte("y")), "f = \"y\" <nil>\ns = \"\" " + errSparse.Error() + "\n"},
		{"a sparse file of pax is there", blocks(header("x", 'x', "34", nil), []byte("28 GNU.sparse.name=the/name\n"),
			header("GNUSparseFile.0/name", '0', "1", nil), []byte("x")), "the/\nthe/name = \"\" " + errSparse.Error() +
			"\n"},
		{"global headers, volumes and lists of directories are left out", blocks(header("g", 'g', "16", nil),
			[]byte("14 comment=abc\n")[:14],
			header("v", 'V', "0", nil), header("m", 'M', "1", nil), []byte("x"), header("d", 'D', "3", nil),
			[]byte("Yf\x00"), header("f", '0', "0", nil)),
			"d/\nf = \"\" <nil>\n"},
		{"a checksum of signed bytes", func() []byte {
			b := header("f\xff", '0', "0", nil)
			sum := 0
			copy(b[148:156], "        ")
			for _, c := range b {
				sum += int(int8(c))
			}
			copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
			return blocks(b)
		}(), "f\xff = \"\" invalid argument\n"},
		{"one zero block at the end", blocks(header("f", '0', "0", nil))[:2*blockSize], "f = \"\" <nil>\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, err := ReadArchive(bytes.NewReader(test.data), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, describe(t, m)); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

func stdlibTree(b []byte) (string, bool) {
	r := tar.NewReader(bytes.NewReader(b))
	var build Builder
	for {
		h, err := r.Next()
		if err == io.EOF {
			m := build.Mem()
			var out strings.Builder
			if err := writeText(&out, m); err != nil {
				return "", false
			}
			return out.String(), true
		}
		if err != nil {
			return "", false
		}
		for key := range h.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse") || strings.HasPrefix(key, "RACKLESS") {
				return "", false
			}
		}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeCont:
			if strings.HasSuffix(h.Name, "/") {
				if _, err := io.Copy(io.Discard, r); err != nil || build.Dir(h.Name) != nil {
					return "", false
				}
				continue
			}
			data, err := io.ReadAll(r)
			if err != nil || h.Size == 0 && h.Mode&0o777 == modeUnread || build.File(h.Name, trimShrunk(data)) != nil {
				return "", false
			}
		case tar.TypeDir:
			if h.Mode&0o7777 == modeUnlisted || build.Dir(h.Name) != nil {
				return "", false
			}
		case tar.TypeSymlink:
			if build.Link(h.Name, h.Linkname) != nil {
				return "", false
			}
		case tar.TypeLink:
			if build.hardLink(h.Name, h.Linkname) != nil {
				return "", false
			}
		case tar.TypeXGlobalHeader:
		default:
			return "", false
		}
	}
}

// agrees fails if archive/tar reads an archive to its end mark with another result.
func agrees(t *testing.T, b []byte) {
	t.Helper()
	want, ok := stdlibTree(b)
	if !ok {
		return
	}
	m, err := ReadArchive(bytes.NewReader(b), Limits{})
	if errors.Is(err, errTruncated) {
		return // archive/tar accepts a missing end mark
	}
	if err != nil {
		t.Fatalf("archive/tar reads it, and this package says: %v", err)
	}
	var got strings.Builder
	if err := writeText(&got, m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Fatalf("tree (-archive/tar +here):\n%s", diff)
	}
}

func TestTarAgreesWithStdlib(t *testing.T) {
	t.Parallel()
	for _, format := range []tar.Format{tar.FormatUSTAR, tar.FormatPAX, tar.FormatGNU} {
		var entries []entryOf
		for i := range 40 {
			name := strings.Repeat("sub/", i) + fmt.Sprintf("file-%d", i)
			e := file(name, strings.Repeat("x", i*37))
			e.Format = format
			l := entry(tar.TypeSymlink, name+"-link", strings.Repeat("../", i%20)+"file")
			l.Format = format
			entries = append(entries, e, l)
		}
		b := tarOf(t, entries...)
		if _, ok := stdlibTree(b); !ok {
			t.Fatalf("%v: archive/tar does not read it", format)
		}
		agrees(t, b)
	}
}

func FuzzReadArchive(f *testing.F) {
	whole := tarOf(f, file("box/sys/a", "1"), entry(tar.TypeSymlink, "box/"+strings.Repeat("l", 120), "sys/a"),
		entry(tar.TypeLink, "h", "box/sys/a"))
	// go test takes a minute to minimize an input of some KiB.
	seeds := [][]byte{whole, gzipOf(f, whole), zstdOf(f, whole),
		read(f, "testdata/small.tar.bz2"), read(f, "testdata/small.tar.xz"),
		blocks(header("././@LongLink", 'L', "4", nil), []byte("abc\x00"), header("f", '0', "1", nil), []byte("x")),
		blocks(header("x", 'x', "34", nil), []byte("28 GNU.sparse.name=the/name\n"), header("n", '0', "1", nil),
			[]byte("x")),
		blocks(header("s", 'S', "1", func(b []byte) { b[extendedOffset] = 1 }), make([]byte, blockSize), []byte("x"))}
	for i := range seeds {
		f.Add(uint8(i), uint16(0), uint8(0), []byte{})
	}
	f.Fuzz(func(t *testing.T, seed uint8, at uint16, cut uint8, put []byte) {
		b := seeds[int(seed)%len(seeds)]
		i := int(at) % len(b)
		b = slices.Concat(b[:i], put, b[min(i+int(cut), len(b)):])
		m, err := ReadArchive(bytes.NewReader(b), Limits{Bytes: 1 << 20, FileBytes: 64 << 10, Files: 1000})
		if err != nil {
			return
		}
		if m.entries() > 1000*maxDepth {
			t.Errorf("%d entries", m.entries())
		}
		describe(t, m)
		FindRoots(m, 6)
		if packingOf(b).name == "" {
			agrees(t, b)
		}
	})
}

// FuzzTarAgainstStdlib fixes checksums, which a fuzzer cannot guess.
func FuzzTarAgainstStdlib(f *testing.F) {
	whole := tarOf(f, file("sys/a", "1"), entry(tar.TypeSymlink, "l", "sys/a"), file(strings.Repeat("n", 120), "2"))
	f.Add(whole, uint(156), byte('5'))
	f.Add(whole, uint(124), byte('1'))
	f.Add(whole, uint(1024+345), byte('p'))
	f.Fuzz(func(t *testing.T, b []byte, at uint, value byte) {
		if len(b) < blockSize || len(b) > 64<<10 {
			return
		}
		b = bytes.Clone(b)
		at %= uint(len(b))
		b[at] = value
		start := at / blockSize * blockSize
		if block := b[start:min(start+blockSize, uint(len(b)))]; len(block) == blockSize && !isZero(block) {
			copy(block[148:156], "        ")
			sum := 0
			for _, c := range block {
				sum += int(c)
			}
			copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
		}
		if packingOf(b).name == "" {
			agrees(t, b)
		}
	})
}
