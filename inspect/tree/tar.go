package tree

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// This reads tar: POSIX.1-1988 (ustar), GNU's and star's variants, and the extended headers of
// POSIX.1-2001 (pax). archive/tar does all that and more, and makes some ten objects an entry;
// archives of machines are ten thousand entries of a few bytes each. TestTarAgreesWithStdlib and
// its fuzz test hold this reader to archive/tar.
//
// Sources: https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html ("pax Interchange
// Format", "ustar Interchange Format") and
// https://www.gnu.org/software/tar/manual/html_node/Standard.html.

// maxMeta bounds an extended header. Names of Linux have at most 4096 bytes.
const maxMeta = 1 << 20

// tarReader reads the entries of one archive into a Builder.
type tarReader struct {
	in     *bufio.Reader
	packed string // what unpacks it, for messages
	limits Limits
	build  Builder
	offset int64  // read so far
	header int64  // where the header of the entry is
	entry  []byte // its name
	files  int
	arena  []byte // small files lie in it one behind the other
	meta   []byte // what headers say, valid for one entry
	spare  []byte // meta of the entry before
}

// tarHeader is what an entry is, from its header block and the extended headers before it. The
// strings lie in buffers that are used again.
type tarHeader struct {
	name, link []byte
	size       int64
	mode       int64
	kind       byte
	sparse     bool
	err        error // of reading it, as a Recorder saw it
	hidden     bool
}

// readTar reads an unpacked archive.
func readTar(r io.Reader, packed string, limits Limits) (*Mem, error) {
	in := readers.Get().(*bufio.Reader)
	in.Reset(r)
	defer func() {
		in.Reset(nil)
		readers.Put(in)
	}()
	t := &tarReader{in: in, packed: packed, limits: limits}
	if err := t.read(); err != nil {
		return nil, &ArchiveError{Entry: clip(string(t.entry)), Offset: t.header, Err: err}
	}
	return t.build.Mem(), nil
}

// block returns the next n bytes, which are valid until the next call.
func (t *tarReader) block(n int) ([]byte, error) {
	b, err := t.in.Peek(n)
	if err == nil {
		err = t.advance(n)
	}
	return b, t.broken(err)
}

// advance counts n bytes that were peeked.
func (t *tarReader) advance(n int) error {
	t.offset += int64(n)
	if t.offset > t.limits.Bytes {
		return &LimitError{Limit: "Bytes", Value: t.limits.Bytes}
	}
	_, err := t.in.Discard(n)
	return err
}

// skip leaves out n bytes.
func (t *tarReader) skip(n int64) error {
	if n > t.limits.Bytes-t.offset {
		return &LimitError{Limit: "Bytes", Value: t.limits.Bytes}
	}
	for n > 0 {
		m, err := t.in.Discard(int(min(n, 1<<20)))
		t.offset += int64(m)
		n -= int64(m)
		if err != nil {
			return t.broken(err)
		}
	}
	return nil
}

// broken names the unpacker in its errors, and what to do when the archive ends early.
func (t *tarReader) broken(err error) error {
	var limit *LimitError
	switch {
	case err == nil, errors.As(err, &limit):
		return err
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return errTruncated
	case t.packed != "":
		return fmt.Errorf("%s: %w", t.packed, err)
	}
	return err
}

func (t *tarReader) read() error {
	for {
		t.header = t.offset
		h, err := t.next()
		if err == io.EOF {
			return t.end()
		}
		if err != nil {
			return err
		}
		if err := t.add(h); err != nil {
			return err
		}
	}
}

// end reads what is behind the archive: padding, and the checksum of the packing, which must be right.
func (t *tarReader) end() error {
	for {
		n := max(t.in.Buffered(), 1)
		if _, err := t.in.Peek(n); err == io.EOF {
			return nil
		} else if err != nil {
			return t.broken(err)
		}
		if err := t.advance(t.in.Buffered()); err != nil {
			return err
		}
	}
}

// next reads headers until those of an entry are complete. It returns io.EOF at the end mark.
func (t *tarReader) next() (h tarHeader, err error) {
	var pax tarHeader // what extended headers said of the entry to come
	pax.size = -1
	t.meta, t.spare = t.spare[:0], t.meta // entry still lies in the other
	for {
		b, err := t.block(blockSize)
		if err != nil {
			if t.offset == 0 && t.packed == "" && err == errTruncated {
				err = errors.New("this is not a tar archive: it is too short")
			}
			return h, err
		}
		if b[0] == 0 && isZero(b) {
			return h, io.EOF
		}
		if !isTarHeader(b) {
			if t.offset == blockSize {
				return h, errors.New("this is not a tar archive, plain or packed with gzip, bzip2, xz or zstd")
			}
			return h, errors.New("the header is damaged: its checksum is wrong")
		}
		size, ok := number(field(b, fieldSize))
		if !ok {
			return h, fmt.Errorf("the header is damaged: its size is %q", text(b, fieldSize))
		}
		kind := b[typeOffset]
		switch kind {
		case 'x', 'L', 'K', 'g', 'X':
			value, err := t.metadata(size)
			if err != nil {
				return h, err
			}
			switch kind {
			case 'L':
				pax.name = cString(value)
			case 'K':
				pax.link = cString(value)
			case 'x', 'X':
				if err := parsePax(value, &pax); err != nil {
					return h, err
				}
			}
			continue
		}
		h = pax
		h.size, h.kind, h.sparse = size, kind, pax.sparse || kind == 'S'
		h.mode, _ = number(field(b, fieldMode))
		if h.name == nil {
			h.name = t.fullName(b)
		}
		if h.link == nil {
			h.link = t.keep(text(b, fieldLink))
		}
		if pax.size >= 0 {
			h.size = pax.size
		}
		if kind == 'S' {
			err = t.skipSparseMap(b[extendedOffset] != 0)
		}
		t.entry = h.name
		return h, err
	}
}

// fullName joins the name of a header block with its prefix, where there is one.
func (t *tarReader) fullName(b []byte) []byte {
	name := text(b, fieldName)
	var prefix []byte
	if magic := field(b, fieldMagic); bytes.HasPrefix(magic, []byte("ustar\x00")) {
		prefix = text(b, fieldPrefix)
		if string(field(b, fieldStarMark)) == "tar\x00" {
			prefix = text(b, fieldStar)
		}
	}
	if len(prefix) == 0 {
		return t.keep(name)
	}
	start := len(t.meta)
	t.meta = append(t.meta, prefix...)
	t.meta = append(t.meta, '/')
	t.meta = append(t.meta, name...)
	return t.meta[start:]
}

// keep copies b, which lies in the input's buffer, so that it is valid until the next entry. An
// append that moves the buffer leaves the old bytes to those who hold them.
func (t *tarReader) keep(b []byte) []byte {
	start := len(t.meta)
	t.meta = append(t.meta, b...)
	return t.meta[start:len(t.meta):len(t.meta)]
}

// metadata reads the content of an extended header.
func (t *tarReader) metadata(size int64) ([]byte, error) {
	if size > maxMeta {
		return nil, fmt.Errorf("an extended header of %d bytes is too long", size)
	}
	start := len(t.meta)
	if start > maxMeta {
		return nil, errors.New("too many extended headers before one entry")
	}
	if err := t.readInto(&t.meta, size); err != nil {
		return nil, err
	}
	return t.meta[start:len(t.meta):len(t.meta)], nil
}

// readInto appends size bytes to b and skips the padding behind them.
func (t *tarReader) readInto(b *[]byte, size int64) error {
	if size > t.limits.Bytes-t.offset {
		return &LimitError{Limit: "Bytes", Value: t.limits.Bytes}
	}
	start := len(*b)
	*b = append(*b, make([]byte, size)...)
	n, err := io.ReadFull(t.in, (*b)[start:])
	t.offset += int64(n)
	if err != nil {
		return t.broken(err)
	}
	return t.skip(padding(size))
}

func padding(size int64) int64 { return -size & (blockSize - 1) }

// skipSparseMap skips the blocks of a GNU sparse file's map that do not fit into its header.
func (t *tarReader) skipSparseMap(more bool) error {
	for more {
		b, err := t.block(blockSize)
		if err != nil {
			return err
		}
		more = b[extendedMore] != 0
	}
	return nil
}

// Errors of entries that are there and are not read.
var (
	errSparse = errors.New("a sparse file, which this reader does not know: pack without --sparse")
	errDevice = errors.New("a device file or FIFO")
)

// arenaSize is how much room for small files is made at once; larger ones than a quarter of it get their own.
const arenaSize = 256 << 10

// add reads the content of an entry and adds it to the tree.
func (t *tarReader) add(h tarHeader) error {
	if t.files++; t.files > t.limits.Files {
		return &LimitError{Limit: "Files", Value: int64(t.limits.Files)}
	}
	if len(h.name) > maxPath || len(h.link) > maxPath {
		return errors.New("the name is too long")
	}
	name := string(h.name)
	var err error
	switch {
	case h.err != nil && h.hidden: // an entry that WriteTar wrote with an error, as those of the next case
		err = t.build.Hidden(name, h.err)
	case h.err != nil:
		err = t.build.Unreadable(name, map[byte]fs.FileMode{'5': fs.ModeDir}[h.kind], h.err)
	case h.kind == '1': // a hard link has no content, whatever its size says
		return t.build.hardLink(name, string(h.link))
	case h.kind == '2':
		return t.build.Link(name, string(h.link))
	case h.kind == '3':
		return t.build.Unreadable(name, fs.ModeDevice|fs.ModeCharDevice, errDevice)
	case h.kind == '4':
		return t.build.Unreadable(name, fs.ModeDevice, errDevice)
	case h.kind == '5' && h.mode&0o7777 == modeUnlisted:
		return t.build.Unreadable(name, fs.ModeDir, ErrNotRecorded)
	case h.kind == '5':
		return t.build.Dir(name)
	case h.kind == '6':
		return t.build.Unreadable(name, fs.ModeNamedPipe, errDevice)
	case h.kind == 'D': // GNU: a directory with the list of its files as content
		err = t.build.Dir(name)
	case strings.IndexByte("MVN", h.kind) >= 0: // GNU: rest of a file of another volume; its name; old long names
	case strings.HasSuffix(name, "/"): // before POSIX, that was how a directory was written
		if h.kind == 0 {
			h.size = 0 // archive/tar takes it so, and no such directory had a size
		}
		err = t.build.Dir(name)
	case h.sparse:
		err = t.build.Unreadable(name, 0, errSparse)
	case h.size > t.limits.FileBytes:
		err = t.build.Unreadable(name, 0, &LimitError{Limit: "FileBytes", Value: t.limits.FileBytes})
	case h.size == 0 && h.mode&0o777 == modeUnread:
		return t.build.Unreadable(name, 0, ErrNotRecorded)
	default:
		data, err := t.content(h.size)
		if err != nil {
			return err
		}
		return t.build.File(name, trimShrunk(data))
	}
	if err != nil {
		return err
	}
	return t.skip(h.size + padding(h.size))
}

// content reads a file.
func (t *tarReader) content(size int64) ([]byte, error) {
	if size > arenaSize/4 {
		var own []byte
		err := t.readInto(&own, size)
		return own, err
	}
	if int(size) > cap(t.arena)-len(t.arena) {
		t.arena = make([]byte, 0, arenaSize)
	}
	start := len(t.arena)
	t.arena = t.arena[:start+int(size)]
	data := t.arena[start:len(t.arena):len(t.arena)]
	// Small files lie in the input's buffer whole; copying from there saves the bookkeeping of a read and a skip each.
	if b, err := t.in.Peek(int(size + padding(size))); err == nil {
		copy(data, b)
		return data, t.broken(t.advance(len(b)))
	}
	n, err := io.ReadFull(t.in, data)
	t.offset += int64(n)
	if err != nil {
		return nil, t.broken(err)
	}
	return data, t.skip(padding(size))
}

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
