package fabric

import "encoding/binary"

// A Flow is the five-tuple of a packet: all its packets take one of several equal paths, so that they stay in order.
// IPv4 addresses are mapped to IPv6. A frame that is not IP has its MAC addresses and its EtherType instead, in the
// last bytes of Src and Dst and in DstPort, and Proto 0.
type Flow struct {
	Src, Dst         [16]byte
	Proto            uint8
	SrcPort, DstPort uint16
}

const (
	protoTCP = 6
	protoUDP = 17
	rocePort = 4791 // RoCE v2
)

// FlowOfRoCE returns the flow of packets of RoCE v2.
func FlowOfRoCE(src, dst [16]byte, srcPort uint16) Flow {
	return Flow{Src: src, Dst: dst, Proto: protoUDP, SrcPort: srcPort, DstPort: rocePort}
}

// FlowOf reads a frame of at least 14 bytes, behind up to two VLAN tags. A fragment has no ports, because only the
// first one carries them.
func FlowOf(frame []byte) Flow {
	f, _ := flowOf(frame)
	return f
}

// flowOf also returns the data after the IP header, or nothing.
func flowOf(frame []byte) (f Flow, transport []byte) {
	kind, ip, _ := network(frame)
	switch _, ok := trafficClass(kind, ip); {
	case ok && kind == etherIPv4:
		f.Src[10], f.Src[11], f.Dst[10], f.Dst[11] = 0xff, 0xff, 0xff, 0xff
		copy(f.Src[12:], ip[12:16])
		copy(f.Dst[12:], ip[16:20])
		f.Proto = ip[9]
		if head := int(ip[0]&0xf) * 4; head <= len(ip) && binary.BigEndian.Uint16(ip[6:])&0x3fff == 0 {
			transport = ip[head:]
		}
	case ok:
		copy(f.Src[:], ip[8:24])
		copy(f.Dst[:], ip[24:40])
		f.Proto, transport = ip[6], ip[ipv6Header:]
	default:
		copy(f.Dst[10:], frame[:6])
		copy(f.Src[10:], frame[6:12])
		f.DstPort = kind
		return f, nil
	}
	if (f.Proto == protoUDP || f.Proto == protoTCP) && len(transport) >= 4 {
		f.SrcPort, f.DstPort = binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])
	}
	return f, transport
}

// Hash is the hash of switches with equal paths, in a lab and in a simulation. The protocol and the destination port
// change nothing for RoCE v2, for which they are always the same.
func (f *Flow) Hash() uint32 {
	h := mix(uint64(fold(&f.Src))<<32 | uint64(fold(&f.Dst)))
	h ^= uint64(f.SrcPort) | uint64(f.DstPort^rocePort)<<16 | uint64(f.Proto^protoUDP)<<32
	return uint32(mix(h) >> 32)
}

// fold returns an IPv4 address as it is, and of any other all bits mixed.
func fold(a *[16]byte) uint32 {
	high, low := binary.BigEndian.Uint64(a[:]), binary.BigEndian.Uint64(a[8:])
	if high == 0 && low>>32 == 0xffff {
		return uint32(low)
	}
	return uint32(mix(mix(high)^low) >> 32)
}

// mix is the finalizer of MurmurHash3: each bit of the result depends on each bit of the input.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// DefaultSeed is the seed of the switches of a lab, and of a simulation without another one.
const DefaultSeed = 1

// Salt returns what a switch adds to hashes, so that the switches of a path do not all choose alike. Switches count
// from 0.
func Salt(seed uint64, index int) uint32 { return uint32(mix(seed ^ uint64(index+1))) }

// Choose returns which of n equal paths a flow takes at a switch.
func Choose(hash, salt uint32, n int) int {
	h := uint32(mix(uint64(hash)<<32|uint64(salt)) >> 32)
	return int(uint64(h) * uint64(n) >> 32)
}
