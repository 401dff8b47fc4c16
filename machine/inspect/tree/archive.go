package tree

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/xi2/xz"

	"github.com/rackless/rackless/internal/lists"
)

// Limits limit the unpacked size of an archive. A zero field means its default, far above the largest known dumps
// (30,000 entries, 30 MB).
type Limits struct {
	Bytes     int64 // with headers; default 512 MiB
	FileBytes int64 // default 64 MiB; a longer file exists but is unreadable
	Files     int   // default 500,000
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Bytes:     cmp.Or(l.Bytes, 512<<20),
		FileBytes: cmp.Or(l.FileBytes, maxRead),
		Files:     cmp.Or(l.Files, 500_000),
	}
}

// A LimitError is for an archive that exceeds a limit.
type LimitError struct {
	Limit string // field of Limits
	Value int64
}

func (e *LimitError) Error() string {
	switch e.Limit {
	case "Files":
		return fmt.Sprintf("more than %d entries (limit Files)", e.Value)
	case "FileBytes":
		return fmt.Sprintf("larger than %d bytes (limit FileBytes)", e.Value)
	}
	return fmt.Sprintf("unpacks to more than %d bytes (limit %s)", e.Value, e.Limit)
}

// An ArchiveError is a defect of an archive.
type ArchiveError struct {
	Entry  string // or of the previous one if the header itself is broken
	Offset int64  // of the header, unpacked
	Err    error
}

func (e *ArchiveError) Error() string {
	if e.Entry == "" {
		return fmt.Sprintf("archive, byte %d: %v", e.Offset, e.Err)
	}
	return fmt.Sprintf("archive, byte %d, at %q: %v", e.Offset, clip(e.Entry), e.Err)
}

func (e *ArchiveError) Unwrap() error { return e.Err }

// packings are recognized by an archive's first bytes, because file names are often wrong. Sources: RFC 1952; the bzip2
// program; the .xz file format, section 2.1.1.1; RFC 8878, section 3.1.1. A zstd file may start with a skippable frame
// (section 3.1.2), whose first magic number is 0x184D2A50.
var packings = []packing{
	{"\x1f\x8b", "gzip", openGzip},
	{"BZh", "bzip2", openBzip2},
	{"\xfd7zXZ\x00", "xz", openXZ},
	{"\x28\xb5\x2f\xfd", "zstd", openZstd},
	{"\x50\x2a\x4d\x18", "zstd", openZstd},
}

// A packing is a compression. done is called after r has been read.
type packing struct {
	magic, name string
	open        func(in io.Reader) (r io.Reader, done func(), err error)
}

func packingOf(head []byte) packing {
	return lists.Find(packings, func(p packing) bool { return bytes.HasPrefix(head, []byte(p.magic)) })
}

// ArchiveHead is the number of bytes that IsArchive needs.
const ArchiveHead = blockSize

// IsArchive reports whether a file that starts with head may be readable by ReadArchive.
func IsArchive(head []byte) bool {
	return packingOf(head).name != "" || len(head) >= blockSize && isTarHeader(head[:blockSize])
}

// Unpackers have tables and windows of hundreds of KiB, allocated once per goroutine.
var (
	gzips   sync.Pool // *gzip.Reader
	zstds   sync.Pool // *zstd.Decoder
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 128<<10) }}
)

// maxWindow limits memory: xz -9 needs 64 MiB, zstd --ultra 128 MiB.
const maxWindow = 128 << 20

func buffered(r io.Reader) (in *bufio.Reader, release func()) {
	in = readers.Get().(*bufio.Reader)
	in.Reset(r)
	return in, func() {
		in.Reset(nil)
		readers.Put(in)
	}
}

// ReadArchive reads a tar archive, plain or packed with gzip, bzip2, xz or zstd.
//
// Names are confined to the tree. If an entry repeats, the later one counts. Hard links become copies. Devices, FIFOs,
// sparse files and files above the limit exist but cannot be read. A truncated archive, or one that puts a file below a
// file, is an error: otherwise part of a machine would be taken for the whole.
func ReadArchive(r io.Reader, limits Limits) (*Mem, error) {
	limits = limits.withDefaults()
	in, release := buffered(r)
	defer release()
	head, err := in.Peek(8)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("archive: %w", err)
	}
	p := packingOf(head)
	if p.name == "" {
		return readTar(in, "", limits)
	}
	unpacked, done, err := p.open(in)
	if err != nil {
		return nil, fmt.Errorf("archive: %s: %w", p.name, notEnd(err))
	}
	defer done()
	return readTar(unpacked, p.name, limits)
}

func openGzip(in io.Reader) (io.Reader, func(), error) {
	gz, ok := gzips.Get().(*gzip.Reader)
	if !ok {
		gz = new(gzip.Reader)
	}
	return gz, func() { gzips.Put(gz) }, gz.Reset(in)
}

func openBzip2(in io.Reader) (io.Reader, func(), error) { return bzip2.NewReader(in), func() {}, nil }

func openXZ(in io.Reader) (io.Reader, func(), error) {
	x, err := xz.NewReader(in, maxWindow)
	return x, func() {}, err
}

func openZstd(in io.Reader) (io.Reader, func(), error) {
	z, ok := zstds.Get().(*zstd.Decoder)
	if !ok {
		// Archives are small, and many are read at once.
		var err error
		z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
	}
	done := func() {
		if z.Reset(nil) == nil { // releases the old reader
			zstds.Put(z)
		}
	}
	return z, done, z.Reset(in)
}

func notEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

var errTruncated = errors.New("the archive is cut off: copy it again, or collect it again")
