package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
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
	typeOffset     = 156
	extendedOffset = 482 // of a GNU sparse header: more blocks of the map follow
	extendedMore   = 504 // the same in such a block
)

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
func text(b []byte, f [2]int) []byte { return cString(field(b, f)) }

func cString(b []byte) []byte {
	before, _, _ := bytes.Cut(b, []byte{0})
	return before
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
func parsePax(b []byte, h *tarHeader) error {
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
			h.name = value
		case "linkpath":
			h.link = value
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
					h.name = value
				}
			}
		}
	}
	return nil
}
