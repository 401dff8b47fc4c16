package fabric

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// packetBlock is the type of an Enhanced Packet Block of pcapng (draft-ietf-opsawg-pcapng, section 4.3).
const packetBlock = 6

// MACPair is the length in bytes of both addresses at the start of an Ethernet frame.
const MACPair = 12

// Sizes of a block's parts in bytes.
const (
	blockHead   = 8       // type and length
	blockLeast  = 12      // head, and the length again
	packetHead  = 28      // of a packet block up to the frame
	blockLimit  = 1 << 20 // longer than any frame and any description of an interface
	lengthAfter = 4
)

// A PacketFilter copies the pcapng stream of the switch, whole block by whole block, so that what
// has been written is a valid file at any time. It leaves out packets that Keep refuses and those
// past the limit.
type PacketFilter struct {
	W     io.Writer
	Keep  func(frame []byte) bool // nil: all
	Limit uint64                  // packets; 0: all
	Full  func()                  // called once when the limit is reached; may be nil

	// Packets counts those that were written, Bytes those of their frames as they were on the wire. Both
	// may be read while the stream is written.
	Packets, Bytes atomic.Uint64

	part []byte // of a block that has not come whole
}

// Write takes the next bytes of the stream. It fails where they are not pcapng.
func (p *PacketFilter) Write(b []byte) (int, error) {
	p.part = append(p.part, b...)
	rest := p.part
	for len(rest) >= blockHead {
		// The switch writes little-endian, and is of the same version as this program: it was asked for that.
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
	// The array is used again: a stream of many GB must not make as much garbage.
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

// FramesOf keeps frames from or to one of the addresses, and those to all or to a group, which the
// switch sends everywhere.
func FramesOf(macs []net.HardwareAddr) func(frame []byte) bool {
	return func(frame []byte) bool {
		if len(frame) < MACPair {
			return false
		}
		if frame[0]&1 != 0 { // the group bit of the receiver's address (IEEE 802.3, section 3.2.3)
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
