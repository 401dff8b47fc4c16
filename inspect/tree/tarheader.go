package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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
	if h.name == "" {
		h.name = fullName(b)
	}
	if h.link == "" {
		h.link = text(b, fieldLink)
	}
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
