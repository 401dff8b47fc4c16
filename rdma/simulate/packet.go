package simulate

import (
	"encoding/binary"

	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/roce"
)

// Frames of a simulation are Ethernet, IPv4, UDP and the headers of RoCE, without payload, or MAC control.
const (
	maxHead    = 80 // with which a packet takes 128 bytes
	offType    = 12
	offTOS     = 15
	offDest    = 30
	offOpcode  = 42
	offQPN     = 46 // with a byte before the number
	opAck      = 0x11
	opCNP      = 0x81
	etherPause = 0x8808
	pausePrio  = 0x0101 // IEEE 802.1Q, 36.2.1
	pauseSize  = 60     // without FCS
	quanta     = 0xffff // the longest pause, in units of 512 bit times

	// fcs and gaps are bytes of Ethernet beyond a frame: checksum, and preamble and gap between frames.
	fcs  = 4
	gaps = 20
)

var be = binary.BigEndian

// A packet is a frame on its way. It belongs to one queue or link at a time.
type packet struct {
	next  *packet
	at    int64 // in flight: time of arrival
	held  int32 // bytes in a buffer
	wire  int32 // bytes on a cable
	in    int32 // in a switch: the port through which it came
	hash  uint32
	to    int32 // host; -1 for MAC control
	n     uint8 // bytes of frame
	prio  uint8
	frame [maxHead]byte
}

func (p *packet) data() []byte { return p.frame[:p.n] }

// address returns the GID of a host, an IPv4 address in 10.0.0.0/8.
func address(host int32) (g roce.GID) {
	g[10], g[11] = 0xff, 0xff
	be.PutUint32(g[12:], 10<<24|uint32(host+1))
	return g
}

// read sets the fields of a frame from a NIC: priority, destination, and the hash of its flow.
func (p *packet) read() {
	b := p.data()
	p.prio, p.to = b[offTOS]>>5, int32(be.Uint32(b[offDest:])&0xffffff)-1
	flow := fabric.FlowOf(b)
	p.hash = flow.Hash()
}

// sizeOfNotice sets the size of an acknowledgement, and of a CNP, which is part of one.
func (p *packet) sizeOfNotice() {
	switch p.frame[offOpcode] {
	case opAck:
		p.wire, p.held = hpccAck, hpccAck
	case opCNP:
		p.wire, p.held = 0, 0
	}
}

// pauseFrame makes the frame that stops the priorities of stop and resumes others of change.
func (p *packet) pauseFrame(change, stop uint8) {
	b := p.frame[:pauseSize]
	clear(b)
	copy(b, []byte{0x01, 0x80, 0xc2, 0, 0, 1, 0x02})
	be.PutUint16(b[offType:], etherPause)
	be.PutUint16(b[offType+2:], pausePrio)
	b[17] = change
	for prio := range 8 {
		if stop>>prio&1 != 0 {
			be.PutUint16(b[18+2*prio:], quanta)
		}
	}
	p.n, p.to = pauseSize, -1
	p.wire, p.held = pauseSize+fcs+gaps, pauseSize+fcs
}

// A fifo is a list of packets in their order.
type fifo struct {
	first, last *packet
	bytes       int64 // of packet.held
}

func (f *fifo) push(p *packet) {
	p.next = nil
	if f.first == nil {
		f.first = p
	} else {
		f.last.next = p
	}
	f.last = p
	f.bytes += int64(p.held)
}

func (f *fifo) pop() *packet {
	p := f.first
	f.first = p.next
	f.bytes -= int64(p.held)
	return p
}
