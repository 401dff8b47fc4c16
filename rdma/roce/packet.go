package roce

import (
	"encoding/binary"
	"hash/crc32"
	"sync"
)

var be, le = binary.BigEndian, binary.LittleEndian

// Packet is a RoCE packet. Port reuses one for parsing, to allocate nothing.
type Packet struct {
	SrcMAC, DstMAC [6]byte
	V1             bool // RoCE v1: a GRH instead of IP and UDP
	Tagged         bool
	TCI            uint16 // 802.1Q: PCP in the top three bits, VLAN id in the low twelve
	Src, Dst       GID
	TClass         uint8 // DSCP<<2 | ECN
	HopLimit       uint8
	FlowLabel      uint32
	SrcPort        uint16
	// L3 is the IP header or the GRH. The receiver of a datagram gets it in the place of a GRH.
	L3 []byte

	Opcode     Opcode
	Solicited  bool
	FECN, BECN bool
	AckReq     bool
	PKey       uint16
	DstQP, PSN uint32
	pad        int

	VA            uint64 // RETH and AtomicETH
	RKey, Len     uint32
	Operand, Want uint64 // AtomicETH: swap or add, compare
	Syndrome      uint8  // AETH
	MSN           uint32
	Original      uint64 // AtomicAckETH
	Imm           uint32 // ImmDt; IETH: the key
	QKey, SrcQP   uint32 // DETH
	SRQ           uint32 // XRCETH: the receiver's shared queue
	DC            DC
	Payload       []byte // part of the parsed frame
	h             header
}

const (
	ecnECT0 = 2
	ecnCE   = 3
	ecnMask = 3
)

// ParseError is the reason why a NIC would refuse a frame.
type ParseError uint8

// ErrNotRoCE is a frame of another protocol.
const (
	ErrNotRoCE ParseError = iota + 1
	ErrShort
	ErrICRC
	ErrOpcode
	ErrVersion
)

var parseText = [...]string{"", "neither UDP port 4791 nor EtherType 0x8915", "shorter than its headers say",
	"the invariant CRC is wrong",
	"no such opcode", "a header has another version"}

// Error implements error.
func (e ParseError) Error() string { return "RoCE packet: " + name(parseText[:], int(e)) }

const (
	udpPort    = 4791
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
	etherRoCE  = 0x8915 // RoCE v1 (annex A16)
	protoUDP   = 17
	protoIBA   = 0x1b // NxtHdr of a GRH (8.3.1)
	sizeEther  = 14
	sizeUDP    = 8
	sizeGRH    = 40
	sizeBTH    = 12
	sizeXRC    = 4 // XRCETH (annex A14)
	sizeDC     = 24
	sizeICRC   = 4
	sizeCNP    = 16 // reserved bytes after the BTH
	maxPayload = 4096
	// MaxFrame is the size of the largest frame, with tag, IPv6, and RETH with immediate data.
	MaxFrame = sizeEther + 4 + 40 + sizeUDP + sizeBTH + sizeDC + 28 + 8 + maxPayload + 3 + sizeICRC
)

// Parse parses a frame without FCS and checks its ICRC. Payload and L3 alias the frame. IPv4 options, fragments and
// IPv6 extension headers are not RoCE, as on adapters. A guest's frames may have any bytes, so each header's length is
// checked before it is read.
func Parse(frame []byte, p *Packet) error { return p.parse(frame, false) }

// parse does not check the ICRC of a bare frame.
func (p *Packet) parse(frame []byte, bare bool) error {
	*p = Packet{}
	if len(frame) < sizeEther {
		return ErrNotRoCE
	}
	kind, b := p.parseEther(frame)
	if kind == etherRoCE {
		return p.parseV1(b, bare)
	}
	l3, udp := p.parseIP(kind, b)
	if udp == nil || be.Uint16(udp[2:]) != udpPort {
		return ErrNotRoCE
	}
	p.SrcPort = be.Uint16(udp)
	if bare {
		return p.parseBare(udp, sizeUDP)
	}
	if len(udp) < sizeUDP+sizeBTH+sizeICRC || int(be.Uint16(udp[4:])) != len(udp) {
		return ErrShort
	}
	body := udp[sizeUDP:]
	end := len(body) - sizeICRC
	if icrc(l3, udp[:len(udp)-sizeICRC], sizeUDP) != le.Uint32(body[end:]) {
		return ErrICRC
	}
	return p.parseBTH(body[:end], 0)
}

// parseBare parses a bare frame after its IP header or GRH. header is the size of the last one before the BTH.
func (p *Packet) parseBare(b []byte, header int) error {
	if len(b) < header+sizeBTH {
		return ErrShort
	}
	stated := be.Uint16(p.L3[4:])
	if header == sizeUDP {
		stated = be.Uint16(b[4:])
	}
	absent := int(stated) - sizeICRC - len(b)
	if absent < 0 || absent > len(nothing) {
		return ErrShort
	}
	return p.parseBTH(b[header:], absent)
}

// nothing is the payload of bare frames, never written to.
var nothing [maxPayload + 3]byte

// FullSize returns the bytes that a bare frame stands for, without FCS, or the size of any other frame.
func FullSize(frame []byte) int {
	head := sizeEther
	if len(frame) >= sizeEther+4 && be.Uint16(frame[12:]) == etherVLAN {
		head += 4
	}
	if len(frame) < head+6 {
		return len(frame)
	}
	switch be.Uint16(frame[head-2:]) {
	case etherIPv4:
		return head + int(be.Uint16(frame[head+2:]))
	case etherIPv6, etherRoCE:
		return head + 40 + int(be.Uint16(frame[head+4:]))
	}
	return len(frame)
}

// Destination returns the destination of a RoCE frame, and does not check the rest.
func Destination(frame []byte) (to GID, ok bool) {
	if len(frame) < sizeEther {
		return GID{}, false
	}
	var p Packet
	kind, b := p.parseEther(frame)
	if kind == etherRoCE && len(b) >= sizeGRH {
		p.parseIPv6(b)
		return p.Dst, true
	}
	_, udp := p.parseIP(kind, b)
	return p.Dst, udp != nil && be.Uint16(udp[2:]) == udpPort
}

func (p *Packet) parseEther(frame []byte) (kind uint16, b []byte) {
	copy(p.DstMAC[:], frame)
	copy(p.SrcMAC[:], frame[6:])
	kind, b = be.Uint16(frame[12:]), frame[sizeEther:]
	if kind == etherVLAN && len(b) >= 4 {
		p.Tagged, p.TCI = true, be.Uint16(b)
		kind, b = be.Uint16(b[2:]), b[4:]
	}
	return kind, b
}

// parseV1 parses after the EtherType. PayLen of the GRH includes the ICRC, and Ethernet may have padded the frame.
func (p *Packet) parseV1(b []byte, bare bool) error {
	p.V1 = true
	if len(b) < sizeGRH+sizeBTH {
		return ErrShort
	}
	if b[0]>>4 != 6 || b[6] != protoIBA {
		return ErrVersion
	}
	p.parseIPv6(b)
	if bare {
		return p.parseBare(b[sizeGRH:], 0)
	}
	body, n := b[sizeGRH:], int(be.Uint16(b[4:]))
	if n < sizeBTH+sizeICRC || n > len(body) {
		return ErrShort
	}
	end := n - sizeICRC
	if icrc(p.L3, body[:end], 0) != le.Uint32(body[end:]) {
		return ErrICRC
	}
	return p.parseBTH(body[:end], 0)
}

// parseIPv6 reads 40 bytes. A GRH has the same layout.
func (p *Packet) parseIPv6(b []byte) {
	w := be.Uint32(b)
	p.TClass, p.FlowLabel, p.HopLimit = uint8(w>>20), w&0xfffff, b[7]
	copy(p.Src[:], b[8:])
	copy(p.Dst[:], b[24:])
	p.L3 = b[:40]
}

// parseIP cuts the payload to the stated length. udp is nil if that is not a whole UDP header.
func (p *Packet) parseIP(kind uint16, b []byte) (l3, udp []byte) {
	switch kind {
	case etherIPv4:
		// Version 4 with five words, without fragmentation.
		if len(b) < 20 || b[0] != 0x45 || b[9] != protoUDP || be.Uint16(b[6:])&0x3fff != 0 {
			return nil, nil
		}
		p.TClass, p.HopLimit = b[1], b[8]
		p.Src[10], p.Src[11], p.Dst[10], p.Dst[11] = 0xff, 0xff, 0xff, 0xff
		copy(p.Src[12:], b[12:])
		copy(p.Dst[12:], b[16:20])
		l3, b = b[:20], b[:min(len(b), int(be.Uint16(b[2:])))]
	case etherIPv6:
		if len(b) < 40 || b[0]>>4 != 6 || b[6] != protoUDP {
			return nil, nil
		}
		p.parseIPv6(b)
		l3, b = b[:40], b[:min(len(b), 40+int(be.Uint16(b[4:])))]
	default:
		return nil, nil
	}
	p.L3 = l3
	if len(b) < len(l3)+sizeUDP {
		return nil, nil
	}
	return l3, b[len(l3):]
}

// parseBTH parses base (9.2) and extended headers (9.3), and the payload without its last absent bytes.
func (p *Packet) parseBTH(b []byte, absent int) error {
	p.Opcode = Opcode(b[0])
	if p.h = opInfo[b[0]]; p.h == 0 {
		return ErrOpcode
	}
	if b[1]&0x0f != 0 {
		return ErrVersion
	}
	p.Solicited, p.pad = b[1]&0x80 != 0, int(b[1]>>4&3)
	p.PKey = be.Uint16(b[2:])
	p.FECN, p.BECN = b[4]&0x80 != 0, b[4]&0x40 != 0
	p.DstQP = be.Uint32(b[4:]) & psnMask
	p.AckReq, p.PSN = b[8]&0x80 != 0, be.Uint32(b[8:])&psnMask
	b = b[sizeBTH:]
	if p.h&hXRC != 0 {
		if len(b) < sizeXRC {
			return ErrShort
		}
		p.SRQ, b = be.Uint32(b)&psnMask, b[sizeXRC:]
	}
	if p.h&hDC != 0 {
		if len(b) < sizeDC {
			return ErrShort
		}
		p.DC = DC{be.Uint64(b), be.Uint32(b[8:]) & psnMask, be.Uint32(b[12:]) & psnMask, be.Uint64(b[16:])}
		b = b[sizeDC:]
	}
	// Each header fits on its own; the second of two is checked below.
	for i, n := range headerSizes {
		if p.h>>i&1 != 0 && len(b) < n {
			return ErrShort
		}
	}
	if p.h&hDETH != 0 {
		p.QKey, p.SrcQP = be.Uint32(b), be.Uint32(b[4:])&psnMask
		b = b[8:]
	}
	if p.h&(hRETH|hAtomic) != 0 {
		p.VA, p.RKey = be.Uint64(b), be.Uint32(b[8:])
		b = b[12:]
	}
	if p.h&hRETH != 0 {
		p.Len, b = be.Uint32(b), b[4:]
	}
	if p.h&hAtomic != 0 {
		p.Operand, p.Want, b = be.Uint64(b), be.Uint64(b[8:]), b[16:]
	}
	if p.h&hAETH != 0 {
		p.Syndrome, p.MSN, b = b[0], be.Uint32(b)&psnMask, b[4:]
	}
	if p.h&hAtomicAck != 0 {
		if len(b) < 8 {
			return ErrShort
		}
		p.Original, b = be.Uint64(b), b[8:]
	}
	if p.h&(hImm|hIETH) != 0 {
		if len(b) < 4 {
			return ErrShort
		}
		p.Imm, b = be.Uint32(b), b[4:]
	}
	// Padded to whole words (9.2.4).
	n := len(b) + absent - p.pad
	if n < 0 || p.h&hPayload == 0 && len(b)+absent > 0 || absent > 0 && n > maxPayload {
		return ErrShort
	}
	if absent > 0 {
		b = nothing[:]
	}
	p.Payload = b[:n]
	return nil
}

// appendHeaders appends headers for a payload of n bytes. UDP checksums are 0, as of adapters (annex A17.4.5.2: UDP
// over IPv6 may be 0 too). Lengths include padding and ICRC.
func (p *Packet) appendHeaders(b []byte, n int) []byte {
	p.h, p.pad = opInfo[p.Opcode], -n&3
	l4 := sizeBTH + n + p.pad + sizeICRC
	if p.h&hXRC != 0 {
		l4 += sizeXRC
	}
	if p.h&hDC != 0 {
		l4 += sizeDC
	}
	for i, size := range headerSizes {
		if p.h>>i&1 != 0 {
			l4 += size
		}
	}
	b = append(append(b, p.DstMAC[:]...), p.SrcMAC[:]...)
	if p.Tagged {
		b = be.AppendUint16(be.AppendUint16(b, etherVLAN), p.TCI)
	}
	if p.V1 {
		b = p.appendIPv6(be.AppendUint16(b, etherRoCE), l4, protoIBA)
		return p.appendExtended(p.appendBTH(b))
	}
	l4 += sizeUDP
	if p.Src.Is4() {
		b = p.appendIPv4(be.AppendUint16(b, etherIPv4), l4)
	} else {
		b = p.appendIPv6(be.AppendUint16(b, etherIPv6), l4, protoUDP)
	}
	b = be.AppendUint16(be.AppendUint16(b, p.SrcPort), udpPort)
	b = append(be.AppendUint16(b, uint16(l4)), 0, 0)
	return p.appendExtended(p.appendBTH(b))
}

func (p *Packet) appendIPv4(b []byte, l4 int) []byte {
	o := len(b)
	b = append(b, 0x45, p.TClass)
	b = be.AppendUint16(b, uint16(20+l4))
	// No identification is needed without fragments (RFC 6864).
	b = append(b, 0, 0, 0x40, 0, p.HopLimit, protoUDP, 0, 0)
	b = append(append(b, p.Src[12:]...), p.Dst[12:]...)
	sum := uint32(0)
	for i := o; i < len(b); i += 2 {
		sum += uint32(be.Uint16(b[i:]))
	}
	sum = sum&0xffff + sum>>16
	be.PutUint16(b[o+10:], ^uint16(sum+sum>>16))
	return b
}

func (p *Packet) appendIPv6(b []byte, l4 int, proto byte) []byte {
	b = be.AppendUint32(b, 6<<28|uint32(p.TClass)<<20|p.FlowLabel&0xfffff)
	b = append(be.AppendUint16(b, uint16(l4)), proto, p.HopLimit)
	return append(append(b, p.Src[:]...), p.Dst[:]...)
}

func (p *Packet) appendBTH(b []byte) []byte {
	flags, ecn, ack := byte(p.pad)<<4, byte(0), uint32(0)
	if p.Solicited {
		flags |= 0x80
	}
	if p.h&hCNP == 0 {
		flags |= 0x40 // MigReq: "migrated", as it is initially
	}
	if p.FECN {
		ecn |= 0x80
	}
	if p.BECN {
		ecn |= 0x40
	}
	if p.AckReq {
		ack = 1 << 31
	}
	b = be.AppendUint16(append(b, byte(p.Opcode), flags), p.PKey)
	b = be.AppendUint32(b, uint32(ecn)<<24|p.DstQP&psnMask)
	return be.AppendUint32(b, ack|p.PSN&psnMask)
}

func (p *Packet) appendExtended(b []byte) []byte {
	if p.h&hXRC != 0 {
		b = be.AppendUint32(b, p.SRQ&psnMask)
	}
	if p.h&hDC != 0 {
		b = be.AppendUint32(be.AppendUint64(b, p.DC.Key), p.DC.From&psnMask)
		b = be.AppendUint64(be.AppendUint32(b, p.DC.First&psnMask), p.DC.Number)
	}
	if p.h&hDETH != 0 {
		b = be.AppendUint32(be.AppendUint32(b, p.QKey), p.SrcQP&psnMask)
	}
	if p.h&(hRETH|hAtomic) != 0 {
		b = be.AppendUint32(be.AppendUint64(b, p.VA), p.RKey)
	}
	if p.h&hRETH != 0 {
		b = be.AppendUint32(b, p.Len)
	}
	if p.h&hAtomic != 0 {
		b = be.AppendUint64(be.AppendUint64(b, p.Operand), p.Want)
	}
	if p.h&hAETH != 0 {
		b = be.AppendUint32(b, uint32(p.Syndrome)<<24|p.MSN&psnMask)
	}
	if p.h&hAtomicAck != 0 {
		b = be.AppendUint64(b, p.Original)
	}
	if p.h&(hImm|hIETH) != 0 {
		b = be.AppendUint32(b, p.Imm)
	}
	return b
}

func (p *Packet) finish(b []byte, start int) []byte {
	b = append(b, make([]byte, p.pad)...)
	l3 := start + sizeEther
	if p.Tagged {
		l3 += 4
	}
	size, bth := 40, sizeUDP
	if b[l3]>>4 == 4 {
		size = 20
	} else if p.V1 {
		bth = 0
	}
	return le.AppendUint32(b, icrc(b[l3:l3+size], b[l3+size:], bth))
}

// Append appends the frame without FCS. The payload may have at most 4096 bytes.
func (p *Packet) Append(b []byte) []byte {
	start := len(b)
	b = p.appendHeaders(b, len(p.Payload))
	return p.finish(append(b, p.Payload...), start)
}

// icrcHead holds masked headers and further bytes, because a CRC of 64 bytes or more is faster than one of 48. It is
// pooled because crc32 makes it escape.
type icrcHead [128]byte

var icrcHeads = sync.Pool{New: func() any { return new(icrcHead) }}

// icrc returns the invariant CRC (annexes A16.5.1 and A17.3.3) of a packet with a BTH at bth of l4: Ethernet's CRC-32
// over eight bytes of ones for the InfiniBand local header, and all from the IP header or GRH to the padding. Fields
// that routers change are ones: traffic class, flow label, hop limit, checksums, and the BTH's congestion bits. The low
// byte is first, like in Ethernet's FCS.
func icrc(l3, l4 []byte, bth int) uint32 {
	b := icrcHeads.Get().(*icrcHead)
	defer icrcHeads.Put(b)
	n := copy(b[:], "\xff\xff\xff\xff\xff\xff\xff\xff")
	ip := b[n:]
	n += copy(ip, l3)
	if len(l3) == 20 {
		ip[1], ip[8], ip[10], ip[11] = 0xff, 0xff, 0xff, 0xff
	} else {
		ip[0] |= 0x0f
		ip[1], ip[2], ip[3], ip[7] = 0xff, 0xff, 0xff, 0xff
	}
	rest := b[n:]
	n += copy(rest, l4)
	if bth == sizeUDP {
		rest[6], rest[7] = 0xff, 0xff
	}
	rest[bth+4] = 0xff
	return crc32.Update(crc32.ChecksumIEEE(b[:n]), crc32.IEEETable, l4[n-8-len(l3):])
}

// Opcode has 3 bits of service and 5 of operation (9.2, table 35).
type Opcode uint8

const (
	opSendFirst Opcode = iota
	opSendMiddle
	opSendLast
	opSendLastImm
	opSendOnly
	opSendOnlyImm
	opWriteFirst
	opWriteMiddle
	opWriteLast
	opWriteLastImm
	opWriteOnly
	opWriteOnlyImm
	opReadRequest
	opReadFirst
	opReadMiddle
	opReadLast
	opReadOnly
	opAck
	opAtomicAck
	opCmpSwap
	opFetchAdd
	_
	opSendLastInv
	opSendOnlyInv
	opCount
)

// Transport services, and the only opcode specific to RoCE v2.
const (
	serviceMask Opcode = 7 << 5
	serviceRC   Opcode = 0 << 5
	serviceUC   Opcode = 1 << 5
	serviceUD   Opcode = 3 << 5
	opCNP       Opcode = 0x81 // annex A17.9.3
	// serviceXRC (annex A14) is RC with the shared queue in each request.
	serviceXRC Opcode = 5 << 5
	// serviceDC is RC with a DC in each request. Opcodes from 0xc0 on are left to manufacturers (9.2.1), and those of
	// adapters are not published.
	serviceDC Opcode = 6 << 5
)

// header has extended headers in its first seven bits, in the order of headerSizes; the others describe the packet.
type header uint16

const (
	hRETH header = 1 << iota
	hAETH
	hAtomic
	hAtomicAck
	hImm
	hIETH
	hDETH
	hFirst   // begins a message
	hLast    // ends a message
	hPayload // carries data
	hSend
	hWrite
	hRead // a read response
	hCNP
	hXRC // has an XRCETH before other headers
	hDC  // has a DC before other headers
)

// headerSizes are the sizes of hRETH to hDETH. After DETH, packets carry headers in this order.
var headerSizes = [...]int{16, 4, 28, 8, 4, 4, 8}

// opInfo is 0 for invalid opcodes. XRC and DC have the opcodes of RC, UC has them up to RDMA WRITE, UD whole SENDs
// with a DETH (table 35).
var opInfo = func() (t [256]header) {
	rc := [opCount]header{
		opSendFirst:    hSend | hFirst | hPayload,
		opSendMiddle:   hSend | hPayload,
		opSendLast:     hSend | hLast | hPayload,
		opSendLastImm:  hSend | hLast | hPayload | hImm,
		opSendOnly:     hSend | hFirst | hLast | hPayload,
		opSendOnlyImm:  hSend | hFirst | hLast | hPayload | hImm,
		opWriteFirst:   hWrite | hFirst | hPayload | hRETH,
		opWriteMiddle:  hWrite | hPayload,
		opWriteLast:    hWrite | hLast | hPayload,
		opWriteLastImm: hWrite | hLast | hPayload | hImm,
		opWriteOnly:    hWrite | hFirst | hLast | hPayload | hRETH,
		opWriteOnlyImm: hWrite | hFirst | hLast | hPayload | hRETH | hImm,
		opReadRequest:  hFirst | hLast | hRETH,
		opReadFirst:    hRead | hFirst | hPayload | hAETH,
		opReadMiddle:   hRead | hPayload,
		opReadLast:     hRead | hLast | hPayload | hAETH,
		opReadOnly:     hRead | hFirst | hLast | hPayload | hAETH,
		opAck:          hAETH,
		opAtomicAck:    hAETH | hAtomicAck,
		opCmpSwap:      hFirst | hLast | hAtomic,
		opFetchAdd:     hFirst | hLast | hAtomic,
		opSendLastInv:  hSend | hLast | hPayload | hIETH,
		opSendOnlyInv:  hSend | hFirst | hLast | hPayload | hIETH,
	}
	for i, h := range rc {
		t[serviceRC|Opcode(i)] = h
		if h != 0 {
			t[serviceXRC|Opcode(i)] = h
			if h&(hAETH|hRead) == 0 {
				t[serviceXRC|Opcode(i)] |= hXRC
			}
			t[serviceDC|Opcode(i)] = h
			if h&(hAETH|hRead) == 0 {
				t[serviceDC|Opcode(i)] |= hDC
			}
		}
		if Opcode(i) <= opWriteOnlyImm {
			t[serviceUC|Opcode(i)] = h
		}
	}
	t[serviceUD|opSendOnly] = rc[opSendOnly] | hDETH
	t[serviceUD|opSendOnlyImm] = rc[opSendOnlyImm] | hDETH
	t[opCNP] = hCNP | hPayload
	return t
}()

// psnMask is for all numbers of 24 bits.
const psnMask = 1<<24 - 1

// psnDiff returns how far a is after b. Numbers wrap at 2^24, with half of them on each side (9.7.2), so it moves the
// difference to the top of a signed word.
func psnDiff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }
