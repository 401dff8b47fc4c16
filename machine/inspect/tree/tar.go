package tree

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// This file reads tar: POSIX.1-1988 (ustar), GNU's and star's variants, and pax of POSIX.1-2001. archive/tar takes
// three times as long for archives of machines.
//
// Sources: https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html ("pax Interchange Format", "ustar
// Interchange Format") and https://www.gnu.org/software/tar/manual/html_node/Standard.html.

type tarReader struct {
	in     countingReader
	limits Limits
	build  Builder
	header int64 // offset of the entry's header
	entry  string
	files  int
	block  [blockSize]byte
	arena  []byte // for small files, filled in order
}

// readTar names the packing in messages.
func readTar(r io.Reader, packed string, limits Limits) (*Mem, error) {
	in, release := buffered(r)
	defer release()
	t := &tarReader{in: countingReader{in: in, packed: packed, limit: limits.Bytes}, limits: limits}
	if err := t.read(); err != nil {
		return nil, &ArchiveError{Entry: clip(t.entry), Offset: t.header, Err: err}
	}
	return t.build.Mem(), nil
}

// A countingReader reads up to a limit; an early end is errTruncated.
type countingReader struct {
	in     *bufio.Reader
	packed string
	limit  int64
	at     int64 // bytes read so far
}

func (r *countingReader) full(b []byte) error {
	n, err := io.ReadFull(r.in, b)
	return r.count(int64(n), err)
}

func (r *countingReader) skip(n int64) error {
	if err := r.mayHave(n); err != nil {
		return err
	}
	m, err := r.in.Discard(int(n))
	return r.count(int64(m), err)
}

// rest reads padding, and the packing's checksum, which must be right.
func (r *countingReader) rest() error {
	n, err := io.Copy(io.Discard, io.LimitReader(r.in, r.limit-r.at+1))
	return r.count(n, err)
}

// mayHave checks the limit before a buffer is allocated.
func (r *countingReader) mayHave(n int64) error {
	if n > r.limit-r.at {
		return &LimitError{Limit: "Bytes", Value: r.limit}
	}
	return nil
}

// count also adds the packing to err.
func (r *countingReader) count(n int64, err error) error {
	r.at += n
	switch {
	case r.at > r.limit:
		return &LimitError{Limit: "Bytes", Value: r.limit}
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return errTruncated
	case err != nil && r.packed != "":
		return fmt.Errorf("%s: %w", r.packed, err)
	}
	return err
}

func (t *tarReader) read() error {
	for {
		t.header = t.in.at
		h, err := t.next()
		if err == io.EOF {
			return t.in.rest()
		}
		if err != nil {
			return err
		}
		t.entry = h.name
		if t.files++; t.files > t.limits.Files {
			return &LimitError{Limit: "Files", Value: int64(t.limits.Files)}
		}
		if len(h.name) > maxPath || len(h.link) > maxPath {
			return errors.New("the name is too long")
		}
		if err := t.add(h); err != nil {
			return err
		}
	}
}

// Names in Linux have at most 4096 bytes.
const maxMeta = 1 << 20

// next returns io.EOF at the end mark.
func (t *tarReader) next() (h tarHeader, err error) {
	pax := tarHeader{size: -1} // from the extended headers
	b := t.block[:]
	for meta := int64(0); ; {
		if err := t.in.full(b); err != nil {
			if t.in.at < blockSize && t.in.packed == "" && err == errTruncated {
				err = errors.New("this is not a tar archive: it is too short")
			}
			return h, err
		}
		if b[0] == 0 && isZero(b) {
			return h, io.EOF
		}
		if !isTarHeader(b) {
			if t.in.at == blockSize {
				return h, errors.New("this is not a tar archive, plain or packed with gzip, bzip2, xz or zstd")
			}
			return h, errors.New("the header is damaged: its checksum is wrong")
		}
		size, ok := number(field(b, fieldSize))
		if !ok {
			return h, fmt.Errorf("the header is damaged: its size is %q", text(b, fieldSize))
		}
		kind := b[typeOffset]
		if strings.IndexByte("xXgLK", kind) < 0 {
			pax.complete(b, size)
			return pax, t.skipSparseMap(b)
		}
		if size > maxMeta {
			return h, fmt.Errorf("an extended header of %d bytes is too long", size)
		}
		if meta > maxMeta {
			return h, errors.New("too many extended headers before one entry")
		}
		meta += size
		value, err := t.content(size)
		if err != nil {
			return h, err
		}
		switch kind {
		case 'L':
			pax.name = cString(value)
		case 'K':
			pax.link = cString(value)
		case 'x', 'X': // X is Solaris'
			if err := pax.parsePax(value); err != nil {
				return h, err
			}
		}
	}
}

// skipSparseMap skips map blocks of a GNU sparse file after its header.
func (t *tarReader) skipSparseMap(b []byte) error {
	if b[typeOffset] != kindSparse {
		return nil
	}
	for more := b[extendedOffset]; more != 0; more = b[extendedMore] {
		if err := t.in.full(b); err != nil {
			return err
		}
	}
	return nil
}

var (
	errSparse = errors.New("a sparse file, which this reader does not know: pack without --sparse")
	errDevice = errors.New("a device file or FIFO")
)

var typeBits = map[byte]fs.FileMode{
	'3': fs.ModeDevice | fs.ModeCharDevice, '4': fs.ModeDevice, '5': fs.ModeDir, '6': fs.ModeNamedPipe,
}

func (t *tarReader) add(h tarHeader) (err error) {
	mode := typeBits[h.kind]
	switch {
	case h.err != nil && h.hidden: // written by WriteTar with an error
		err = t.build.Hidden(h.name, h.err)
	case h.err != nil:
		err = t.build.Unreadable(h.name, mode, h.err)
	case h.kind == '1':
		err = t.build.hardLink(h.name, h.link)
	case h.kind == '2':
		err = t.build.Link(h.name, h.link)
	case mode&^fs.ModeDir != 0:
		err = t.build.Unreadable(h.name, mode, errDevice)
	case mode.IsDir() && h.mode&0o7777 == modeUnlisted:
		err = t.build.Unreadable(h.name, fs.ModeDir, ErrNotRecorded)
	case strings.IndexByte("MVN", h.kind) >= 0: // GNU: rest of a file on another volume; volume name; old long names
	// GNU tar may list a directory's files as content. Before POSIX, a directory was a file with a trailing slash.
	case mode.IsDir(), h.kind == 'D', strings.HasSuffix(h.name, "/"):
		err = t.build.Dir(h.name)
	case h.sparse:
		err = t.build.Unreadable(h.name, 0, errSparse)
	case h.size > t.limits.FileBytes:
		err = t.build.Unreadable(h.name, 0, &LimitError{Limit: "FileBytes", Value: t.limits.FileBytes})
	case h.size == 0 && h.mode&0o777 == modeUnread:
		err = t.build.Unreadable(h.name, 0, ErrNotRecorded)
	default:
		data, err := t.content(h.size)
		if err != nil {
			return err
		}
		return t.build.File(h.name, trimShrunk(data))
	}
	if err != nil {
		return err
	}
	return t.in.skip(h.size + padding(h.size))
}

// Files larger than a quarter of arenaSize are allocated alone.
const arenaSize = 256 << 10

func (t *tarReader) content(size int64) ([]byte, error) {
	if err := t.in.mayHave(size); err != nil {
		return nil, err
	}
	var data []byte
	switch n := int(size); {
	case n > arenaSize/4:
		data = make([]byte, n)
	case n > len(t.arena):
		t.arena = make([]byte, arenaSize)
		fallthrough
	default:
		data, t.arena = t.arena[:n:n], t.arena[n:]
	}
	if err := t.in.full(data); err != nil {
		return nil, err
	}
	return data, t.in.skip(padding(size))
}

func padding(size int64) int64 { return -size & (blockSize - 1) }

// trimShrunk removes the zeros that tar appends if a file is shorter than its size. Attributes of sysfs claim a page
// but have a line. It trims only printable text, because binary files may end with zeros of their own.
func trimShrunk(data []byte) []byte {
	if len(data) == 0 || len(data)%4096 != 0 || data[len(data)-1] != 0 {
		return data
	}
	for i, c := range data {
		switch {
		case c >= ' ' && c <= '~', c == '\n', c == '\t':
		case c == 0 && isZero(data[i:]):
			return data[:i:i]
		default:
			return data
		}
	}
	return data
}

const blockSize = 512

// Start and end offsets.
var (
	fieldName     = [2]int{0, 100}
	fieldMode     = [2]int{100, 108}
	fieldSize     = [2]int{124, 136}
	fieldChecksum = [2]int{148, 156}
	fieldLink     = [2]int{157, 257}
	fieldMagic    = [2]int{257, 265}
	fieldPrefix   = [2]int{345, 500} // ustar
	fieldStar     = [2]int{345, 476} // star's prefix is shorter
	fieldStarMark = [2]int{508, 512}
)

const (
	kindSparse     = 'S'
	typeOffset     = 156
	extendedOffset = 482 // in a GNU sparse header
	extendedMore   = 504 // in a map block
)

// A tarHeader is an entry's header block with the extended headers before it.
type tarHeader struct {
	name, link string
	size       int64
	mode       int64
	kind       byte
	sparse     bool
	err        error // as recorded by a Recorder
	hidden     bool
}

// complete keeps values from the extended headers.
func (h *tarHeader) complete(b []byte, size int64) {
	h.kind = b[typeOffset]
	h.sparse = h.sparse || h.kind == kindSparse
	h.mode, _ = number(field(b, fieldMode))
	h.name, h.link = cmp.Or(h.name, fullName(b)), cmp.Or(h.link, text(b, fieldLink))
	if h.size < 0 {
		h.size = size
	}
	// Links, devices and directories have no content, even with a size.
	if h.kind >= '1' && h.kind <= '6' || h.kind == 0 && strings.HasSuffix(h.name, "/") {
		h.size = 0
	}
}

func fullName(b []byte) string {
	prefix := fieldPrefix
	if string(field(b, fieldStarMark)) == "tar\x00" {
		prefix = fieldStar
	}
	if bytes.HasPrefix(field(b, fieldMagic), []byte("ustar\x00")) && b[prefix[0]] != 0 {
		return text(b, prefix) + "/" + text(b, fieldName)
	}
	return text(b, fieldName)
}

// isTarHeader checks the sum of the bytes, with the checksum field read as spaces.
func isTarHeader(b []byte) bool {
	if isZero(b) {
		return false
	}
	want, ok := number(field(b, fieldChecksum))
	if !ok {
		return false
	}
	const spaces = 8 * ' '
	got := sumBytes(b) - sumBytes(field(b, fieldChecksum)) + spaces
	if got == want {
		return true
	}
	// Some old programs summed signed bytes.
	for i, c := range b {
		if c >= 0x80 && (i < fieldChecksum[0] || i >= fieldChecksum[1]) {
			got -= 256
		}
	}
	return got == want
}

// sumBytes sums eight bytes at a time, because otherwise half the time of reading small files would go into it. Four
// sums are in a word, and 64 pairs of bytes do not overflow one; len(b) is a multiple of 8 and at most blockSize.
func sumBytes(b []byte) int64 {
	const low = 0x00ff00ff00ff00ff
	var sum uint64
	for ; len(b) >= 8; b = b[8:] {
		w := binary.LittleEndian.Uint64(b)
		sum += w&low + w>>8&low
	}
	return int64(sum&0xffff + sum>>16&0xffff + sum>>32&0xffff + sum>>48)
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func field(b []byte, f [2]int) []byte { return b[f[0]:f[1]] }

func text(b []byte, f [2]int) string { return cString(field(b, f)) }

func cString(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}

// number parses octal digits among spaces and NULs, or a binary number if the first bit is set (GNU, star). It is never
// negative.
func number(b []byte) (int64, bool) {
	if b[0]&0x80 != 0 {
		v := int64(b[0] & 0x3f) // bit 6 is the sign
		if b[0]&0x40 != 0 {
			return 0, false
		}
		for _, c := range b[1:] {
			if v >= 1<<54 {
				return 0, false
			}
			v = v<<8 | int64(c)
		}
		return v, true
	}
	var v int64
	digits := bytes.Trim(b, " \x00")
	if len(digits) == 0 {
		return 0, true
	}
	for i, c := range digits {
		if c == 0 {
			return v, i > 0
		}
		if c < '0' || c > '7' {
			return 0, false
		}
		v = v<<3 | int64(c-'0') // at most 36 bits
	}
	return v, true
}

// parsePax reads "LENGTH KEY=VALUE\n"; LENGTH is of the whole record.
func (h *tarHeader) parsePax(b []byte) error {
	for len(b) > 0 {
		i := bytes.IndexByte(b, ' ')
		if i < 0 || i > 10 {
			return errors.New("an extended header is damaged: a record has no length")
		}
		n, err := strconv.Atoi(string(b[:i]))
		if err != nil || n <= i+1 || n > len(b) || b[n-1] != '\n' {
			return fmt.Errorf("an extended header is damaged: a record has the length %q", b[:i])
		}
		key, value, ok := bytes.Cut(b[i+1:n-1], []byte("="))
		if !ok {
			return errors.New("an extended header is damaged: a record has no value")
		}
		b = b[n:]
		switch string(key) {
		case "path":
			h.name = string(value)
		case "linkpath":
			h.link = string(value)
		case "size":
			size, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || size < 0 || size > 1<<60 {
				return fmt.Errorf("an extended header is damaged: the size is %q", clip(string(value)))
			}
			h.size = size
		case paxError:
			h.err = ErrorOf(string(value))
		case paxHidden:
			h.hidden = true
		default:
			if bytes.HasPrefix(key, []byte("GNU.sparse.")) {
				h.sparse = true
				if string(key) == "GNU.sparse.name" { // the header has a directory "GNUSparseFile.N"
					h.name = string(value)
				}
			}
		}
	}
	return nil
}
