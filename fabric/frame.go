package fabric

import (
	"encoding/binary"
	"fmt"
)

// Limits of the wire format, in bytes.
const (
	prefixLen = 4  // big-endian length before each frame
	minFrame  = 14 // Ethernet header; QEMU's virtio NIC does not pad, so 60 would be too strict

	// MaxFrame is the longest Ethernet frame that a port may send: jumbo frames of 9216 bytes with room to spare, and
	// far below any length that a stream out of step would show by accident (4 ASCII bytes read as 0x20202020 or more).
	MaxFrame = 16 << 10
)

// A frameError says that a length prefix cannot be true. All that follows it in the stream is then of unknown meaning.
type frameError struct {
	length uint32
}

func (e *frameError) Error() string {
	return fmt.Sprintf("length prefix %d is outside %d..%d bytes: the stream is not in QEMU's framing or out of step",
		e.length, minFrame, MaxFrame)
}

// nextFrame looks at the start of b, where a length prefix must stand, and returns the bytes that the first frame
// takes with its prefix, or 0 if b does not yet hold all of it. A wrong prefix is reported as soon as its four
// bytes are there.
func nextFrame(b []byte) (int, error) {
	if len(b) < prefixLen {
		return 0, nil
	}
	length := binary.BigEndian.Uint32(b)
	if length < minFrame || length > MaxFrame {
		return 0, &frameError{length}
	}
	n := prefixLen + int(length)
	if n > len(b) {
		return 0, nil
	}
	return n, nil
}

// A mac is an Ethernet address in the low 48 bits, first byte on the wire highest. As a number it is a faster map key
// than an array.
type mac uint64

// group reports whether m is a broadcast or multicast address (IEEE 802: lowest bit of the first byte).
func (m mac) group() bool { return m&(1<<40) != 0 }

// String returns m in the usual form, 52:54:00:00:00:01.
func (m mac) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(m))
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[2], b[3], b[4], b[5], b[6], b[7])
}

// A header is the two addresses of a frame. It is comparable: frames with equal headers, one after
// the other from one port, go the same way.
type header struct {
	dst, src mac
}

// parseHeader reads the addresses of a frame without its prefix, of at least minFrame bytes.
func parseHeader(frame []byte) header {
	_ = frame[minFrame-1]
	return header{
		dst: mac(binary.BigEndian.Uint64(frame) >> 16),
		src: mac(binary.BigEndian.Uint64(frame[6:]) >> 16),
	}
}
