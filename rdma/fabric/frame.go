package fabric

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// The wire format, in bytes.
const (
	prefixLen = 4  // big-endian length before each frame
	minFrame  = 14 // QEMU's virtio NIC does not pad, so 60 would be too strict

	// MaxFrame exceeds jumbo frames of 9216 bytes, and is far below any accidental length in a stream out of step (4
	// ASCII bytes read as 0x20202020 or more).
	MaxFrame = 16 << 10
)

// A frameError is an impossible length prefix, after which the stream cannot be interpreted.
type frameError struct {
	length uint32
}

func (e *frameError) Error() string {
	return fmt.Sprintf("length prefix %d is outside %d..%d bytes: the stream is not in QEMU's framing or out of step",
		e.length, minFrame, MaxFrame)
}

// nextFrame returns the first frame's size with prefix, or 0 if it is incomplete. It reports a wrong prefix as soon as
// its four bytes are there.
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

// A mac is in the low 48 bits, first byte on the wire highest. A number is a faster map key than an array.
type mac uint64

// group reports whether m is broadcast or multicast (IEEE 802: lowest bit of the first byte).
func (m mac) group() bool { return m&(1<<40) != 0 }

// String returns m as 52:54:00:00:00:01.
func (m mac) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(m))
	return net.HardwareAddr(b[2:]).String()
}

// A header holds a frame's addresses. Equal ones of consecutive frames of a port have the same destination.
type header struct {
	dst, src mac
}

// parseHeader reads the addresses of a frame of at least minFrame bytes, without prefix.
func parseHeader(frame []byte) header {
	_ = frame[minFrame-1]
	return header{
		dst: mac(binary.BigEndian.Uint64(frame) >> 16),
		src: mac(binary.BigEndian.Uint64(frame[6:]) >> 16),
	}
}

const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100 // IEEE 802.1Q
	etherQinQ  = 0x88a8 // IEEE 802.1ad
	maxTags    = 2
	ecnMask    = 0b11 // RFC 3168, section 5
	notECT     = 0b00
	ecnCE      = 0b11
	ipv4Header = 20 // bytes without options
	ipv6Header = 40
)

// MarkCE sets "congestion experienced" if the transport supports ECN, and reports whether it did, behind up to two VLAN
// tags. Checksums of UDP and TCP and RoCE's ICRC do not cover the field.
func MarkCE(frame []byte) bool {
	if len(frame) < minFrame {
		return false
	}
	kind, ip, _ := network(frame)
	if _, ok := trafficClass(kind, ip); !ok {
		return false
	}
	// The traffic class of IPv6 is the second and third half byte, and its two lowest bits are ECN.
	shift := 0
	if kind == etherIPv6 {
		shift = 4
	}
	if ecn := ip[1] >> shift & ecnMask; ecn == notECT || ecn == ecnCE {
		return false
	}
	before := binary.BigEndian.Uint16(ip)
	ip[1] |= ecnCE << shift
	if kind == etherIPv4 { // IPv6 has no checksum
		sum := binary.BigEndian.Uint16(ip[10:])
		binary.BigEndian.PutUint16(ip[10:], updateChecksum(sum, before, binary.BigEndian.Uint16(ip)))
	}
	return true
}

// updateChecksum changes one word by equation 3 of RFC 1624, which is also correct for a checksum of 0xffff, unlike RFC
// 1141.
func updateChecksum(sum, before, after uint16) uint16 {
	s := uint32(^sum) + uint32(^before) + uint32(after)
	s = s&0xffff + s>>16
	s = s&0xffff + s>>16
	return ^uint16(s)
}

// packetBlock is pcapng's Enhanced Packet Block (draft-ietf-opsawg-pcapng, section 4.3).
const packetBlock = 6

// MACPair is the length of a frame's addresses.
const MACPair = 12

// In bytes.
const (
	blockHead   = 8       // type and length
	blockLeast  = 12      // head and repeated length
	packetHead  = 28      // before the frame
	blockLimit  = 1 << 20 // longer than any frame and description of an interface
	lengthAfter = 4
)

// A PacketFilter copies whole blocks, so that the output is always valid pcapng. It omits packets that Keep refuses,
// and those beyond Limit.
type PacketFilter struct {
	W     io.Writer
	Keep  func(frame []byte) bool // nil keeps all
	Limit uint64                  // 0 for none
	Full  func()                  // called once at the limit; may be nil

	// Packets and Bytes count written packets and their bytes on the wire. Both may be read during writing.
	Packets, Bytes atomic.Uint64

	part []byte // an incomplete block
}

// Write fails if the stream is not pcapng.
func (p *PacketFilter) Write(b []byte) (int, error) {
	p.part = append(p.part, b...)
	rest := p.part
	for len(rest) >= blockHead {
		// The switch writes little-endian, and Dial has checked its version.
		kind, size := binary.LittleEndian.Uint32(rest), int(binary.LittleEndian.Uint32(rest[4:]))
		if size < blockLeast || size > blockLimit || size%4 != 0 {
			return 0, fmt.Errorf("capture: the switch sent a block of %d bytes: not pcapng", size)
		}
		if len(rest) < size {
			break
		}
		if err := p.block(kind, rest[:size]); err != nil {
			return 0, err
		}
		rest = rest[size:]
	}
	// The array is reused, because a stream has many GB.
	p.part = append(p.part[:0], rest...)
	return len(b), nil
}

func (p *PacketFilter) block(kind uint32, block []byte) error {
	if kind == packetBlock {
		if len(block) < packetHead+lengthAfter {
			return fmt.Errorf("capture: the switch sent a packet block of %d bytes: not pcapng", len(block))
		}
		captured := int(binary.LittleEndian.Uint32(block[20:]))
		if captured > len(block)-packetHead-lengthAfter {
			return fmt.Errorf("capture: the switch sent a packet of %d bytes in a block of %d: not pcapng", captured,
				len(block))
		}
		if p.Limit > 0 && p.Packets.Load() >= p.Limit || p.Keep != nil &&
			!p.Keep(block[packetHead:packetHead+captured]) {
			return nil
		}
		p.Packets.Add(1)
		p.Bytes.Add(uint64(binary.LittleEndian.Uint32(block[24:])))
	}
	if _, err := p.W.Write(block); err != nil {
		return err
	}
	if kind == packetBlock && p.Packets.Load() == p.Limit && p.Full != nil {
		p.Full()
	}
	return nil
}

// FramesOf returns a filter for frames from or to an address, and for broadcast and multicast.
func FramesOf(macs []net.HardwareAddr) func(frame []byte) bool {
	return func(frame []byte) bool {
		if len(frame) < MACPair {
			return false
		}
		if frame[0]&1 != 0 { // IEEE 802.3, section 3.2.3
			return true
		}
		for _, m := range macs {
			if bytes.Equal(frame[:6], m) || bytes.Equal(frame[6:12], m) {
				return true
			}
		}
		return false
	}
}
