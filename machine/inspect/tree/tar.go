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

// This reads tar: POSIX.1-1988 (ustar), GNU's and star's variants, and the extended headers of
// POSIX.1-2001 (pax). archive/tar does all that and more, and makes some ten objects an entry;
// archives of machines are ten thousand entries of a few bytes each, and took three times as long
// with it, whole snapshots one and a half times. TestTarAgreesWithStdlib and its fuzz test hold this
// reader to archive/tar.
//
// Sources: https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html ("pax Interchange
// Format", "ustar Interchange Format") and
// https://www.gnu.org/software/tar/manual/html_node/Standard.html.

// A tarReader reads the entries of one archive into a Builder.
type tarReader struct {
	in     countingReader
	limits Limits
	build  Builder
	header int64  // where the header of the entry is
	entry  string // its name
	files  int
	block  [blockSize]byte
	arena  []byte // room for small files, one behind the other
}

// readTar reads an unpacked archive. packed is what unpacks it, for messages.
func readTar(r io.Reader, packed string, limits Limits) (*Mem, error) {
	in, release := buffered(r)
	defer release()
	t := &tarReader{in: countingReader{in: in, packed: packed, limit: limits.Bytes}, limits: limits}
	if err := t.read(); err != nil {
		return nil, &ArchiveError{Entry: clip(t.entry), Offset: t.header, Err: err}
	}
	return t.build.Mem(), nil
}

// A countingReader reads an unpacked archive up to a limit. An end where there must be more is errTruncated.
type countingReader struct {
	in     *bufio.Reader
	packed string
	limit  int64
	at     int64 // read so far
}

// full fills b.
func (r *countingReader) full(b []byte) error {
	n, err := io.ReadFull(r.in, b)
	return r.count(int64(n), err)
}

// skip leaves out n bytes.
func (r *countingReader) skip(n int64) error {
	if err := r.mayHave(n); err != nil {
		return err
	}
	m, err := r.in.Discard(int(n))
	return r.count(int64(m), err)
}

// rest reads what is behind the archive: padding, and the checksum of the packing, which must be right.
func (r *countingReader) rest() error {
	n, err := io.Copy(io.Discard, io.LimitReader(r.in, r.limit-r.at+1))
	return r.count(n, err)
}

// mayHave says whether n more bytes are within the limit, before there is a buffer of that size.
func (r *countingReader) mayHave(n int64) error {
	if n > r.limit-r.at {
		return &LimitError{Limit: "Bytes", Value: r.limit}
	}
	return nil
}

// count counts n bytes, and names the unpacker in its errors.
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

// read reads all entries up to the end mark, and what is behind it.
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

// maxMeta bounds an extended header. Names of Linux have at most 4096 bytes.
const maxMeta = 1 << 20

// next reads headers until those of an entry are complete. It returns io.EOF at the end mark.
func (t *tarReader) next() (h tarHeader, err error) {
	pax := tarHeader{size: -1} // what extended headers say of the entry to come
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

// skipSparseMap skips the blocks of a GNU sparse file's map that do not fit into its header.
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

// Errors of entries that are there and are not read.
var (
	errSparse = errors.New("a sparse file, which this reader does not know: pack without --sparse")
	errDevice = errors.New("a device file or FIFO")
)

// typeBits are those of entries that are neither files nor links.
var typeBits = map[byte]fs.FileMode{
	'3': fs.ModeDevice | fs.ModeCharDevice, '4': fs.ModeDevice, '5': fs.ModeDir, '6': fs.ModeNamedPipe,
}

// add adds an entry to the tree, and reads or skips its content.
func (t *tarReader) add(h tarHeader) (err error) {
	mode := typeBits[h.kind]
	switch {
	case h.err != nil && h.hidden: // an entry that WriteTar wrote with an error, as those of the next case
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
	case strings.IndexByte("MVN", h.kind) >= 0: // GNU: rest of a file of another volume; its name; old long names
	// A directory of GNU tar may have the list of its files as content. Before POSIX, a directory
	// was a file with a slash.
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

// arenaSize is how much room for small files is made at once; larger ones than a quarter of it get their own.
const arenaSize = 256 << 10

// content reads a file of that size.
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

// trimShrunk takes off the zeros that tar puts behind a file that was shorter than its size said.
// Attributes of sysfs claim to have a page and give a line; packed straight from /sys, they come
// with thousands of zeros ("file shrank, padding with zeros"). Binary files, which may end in zeros
// of their own, are left alone: only printable text is trimmed.
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

// Fields of a header block: where each starts and ends.
var (
	fieldName     = [2]int{0, 100}
	fieldMode     = [2]int{100, 108}
	fieldSize     = [2]int{124, 136}
	fieldChecksum = [2]int{148, 156}
	fieldLink     = [2]int{157, 257}
	fieldMagic    = [2]int{257, 265}
	fieldPrefix   = [2]int{345, 500} // ustar
	fieldStar     = [2]int{345, 476} // star's prefix is shorter; times follow
	fieldStarMark = [2]int{508, 512}
)

const (
	kindSparse     = 'S'
	typeOffset     = 156
	extendedOffset = 482 // of a GNU sparse header: more blocks of the map follow
	extendedMore   = 504 // the same in such a block
)

// A tarHeader is what an entry is, from its header block and the extended headers before it.
type tarHeader struct {
	name, link string
	size       int64
	mode       int64
	kind       byte
	sparse     bool
	err        error // of reading it, as a Recorder saw it
	hidden     bool
}

// complete adds what the header block of an entry says to what its extended headers said.
func (h *tarHeader) complete(b []byte, size int64) {
	h.kind = b[typeOffset]
	h.sparse = h.sparse || h.kind == kindSparse
	h.mode, _ = number(field(b, fieldMode))
	h.name, h.link = cmp.Or(h.name, fullName(b)), cmp.Or(h.link, text(b, fieldLink))
	if h.size < 0 {
		h.size = size
	}
	// Links, devices and directories have no content, whatever their size says; nor had a directory of before POSIX.
	if h.kind >= '1' && h.kind <= '6' || h.kind == 0 && strings.HasSuffix(h.name, "/") {
		h.size = 0
	}
}

// fullName joins the name of a header block with its prefix, where there is one.
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

// isTarHeader reports whether the checksum of a block is that of a header: the sum of its bytes,
// those of the checksum itself taken for spaces.
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
	// Some old programs summed signed bytes: 256 less for each byte above 127.
	for i, c := range b {
		if c >= 0x80 && (i < fieldChecksum[0] || i >= fieldChecksum[1]) {
			got -= 256
		}
	}
	return got == want
}

// sumBytes sums bytes eight at a time, since half the time of reading an archive of small files
// would go into it: four sums lie side by side in a word, and 64 pairs of bytes do not overflow
// one. len(b) is a multiple of 8, and at most blockSize.
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

// text returns a field up to its first zero.
func text(b []byte, f [2]int) string { return cString(field(b, f)) }

func cString(b []byte) string {
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}

// number parses a field: octal digits in spaces and zeros, or, with the first bit set, a binary
// number (GNU, star). It is never negative.
func number(b []byte) (int64, bool) {
	if b[0]&0x80 != 0 {
		v := int64(b[0] & 0x3f) // the bit below the mark is the sign
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
		v = v<<3 | int64(c-'0') // at most 12 digits, 36 bits
	}
	return v, true
}

// parsePax reads records "LENGTH KEY=VALUE\n", where LENGTH counts the whole record.
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
				if string(key) == "GNU.sparse.name" { // the name in the header has a directory "GNUSparseFile.N" in it
					h.name = string(value)
				}
			}
		}
	}
	return nil
}
