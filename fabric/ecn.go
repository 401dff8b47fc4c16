package fabric

import "encoding/binary"

// Fields of Ethernet and IP headers that marking needs.
const (
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100 // IEEE 802.1Q
	etherQinQ  = 0x88a8 // IEEE 802.1ad
	maxTags    = 2
	ecnMask    = 0b11 // the two bits of RFC 3168, section 5
	notECT     = 0b00
	ecnCE      = 0b11
	ipv4Header = 20 // bytes without options
	ipv6Header = 40
)

// markCE sets "congestion experienced" in the IP header of an Ethernet frame whose transport
// understands ECN, and reports whether it changed the frame. It passes over up to two VLAN tags.
// Checksums of UDP and TCP do not cover the field, nor does RoCE's ICRC.
func markCE(frame []byte) bool {
	if len(frame) < minFrame {
		return false
	}
	kind, ip, _ := network(frame)
	if _, ok := trafficClass(kind, ip); !ok {
		return false
	}
	shift := 0 // of the field in the second byte
	if kind == etherIPv6 {
		shift = 4 // the traffic class is the second and third half byte; its two lowest bits are ECN
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

// updateChecksum returns the Internet checksum after one 16-bit word has changed: equation 3 of RFC
// 1624, which unlike that of RFC 1141 is right for a checksum of 0xffff as well.
func updateChecksum(sum, before, after uint16) uint16 {
	s := uint32(^sum) + uint32(^before) + uint32(after)
	s = s&0xffff + s>>16
	s = s&0xffff + s>>16
	return ^uint16(s)
}
