package fabric

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Trust says where the priority of a frame comes from. Without trust all frames have priority 0.
type Trust string

// The kinds of trust. A DSCP has the priority of its three highest bits, as on switches and adapters by default.
const (
	TrustPCP  Trust = "pcp"  // the tag; a frame without one has priority 0
	TrustDSCP Trust = "dscp" // the IP header, behind up to two tags; of other frames the tag
)

// Priorities is a set of priorities, a bit each. As text it is a list: 3,4.
type Priorities uint8

const priorities = 8

func (s Priorities) has(prio int) bool { return s>>prio&1 != 0 }

// MarshalText implements encoding.TextMarshaler.
func (s Priorities) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Priorities) String() string {
	var list []string
	for prio := range priorities {
		if s.has(prio) {
			list = append(list, strconv.Itoa(prio))
		}
	}
	return strings.Join(list, ",")
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Priorities) UnmarshalText(text []byte) error {
	var all Priorities
	for item := range strings.SplitSeq(string(text), ",") {
		if len(item) != 1 || item[0] < '0' || item[0] >= '0'+priorities {
			return fmt.Errorf("priorities %q: want a list of numbers from 0 to 7, such as 3 or 3,4", text)
		}
		all |= 1 << (item[0] - '0')
	}
	*s = all
	return nil
}

// of is the priority of an Ethernet frame.
func (t Trust) of(frame []byte) int {
	if t == "" || len(frame) < minFrame {
		return 0
	}
	kind, ip, tag := network(frame)
	if t == TrustDSCP {
		if tos, ok := trafficClass(kind, ip); ok {
			return int(tos >> 5)
		}
	}
	return int(tag >> 13)
}

// network finds what an Ethernet frame carries behind up to two VLAN tags, and the outer tag; 0 is none.
func network(frame []byte) (kind uint16, payload []byte, tag uint16) {
	kind, payload = binary.BigEndian.Uint16(frame[12:]), frame[minFrame:]
	for i := range maxTags {
		if kind != etherVLAN && kind != etherQinQ || len(payload) < 4 {
			break
		}
		if i == 0 {
			tag = binary.BigEndian.Uint16(payload)
		}
		kind, payload = binary.BigEndian.Uint16(payload[2:]), payload[4:]
	}
	return kind, payload, tag
}

// trafficClass is the byte of an IP header that holds DSCP and ECN; false where it is no IP header.
func trafficClass(kind uint16, ip []byte) (tos uint8, ok bool) {
	switch {
	case kind == etherIPv4 && len(ip) >= ipv4Header && ip[0]>>4 == 4 && ip[0]&0xf >= ipv4Header/4:
		return ip[1], true
	case kind == etherIPv6 && len(ip) >= ipv6Header && ip[0]>>4 == 6:
		return uint8(binary.BigEndian.Uint16(ip) >> 4), true
	}
	return 0, false
}
