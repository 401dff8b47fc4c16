package fabric

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// chunkSize holds the longest frame four times, so that at most a quarter is unused, and a full queue of 4 MiB leaves
// with few system calls.
const chunkSize = 64 << 10

// A chunk holds whole frames with prefixes, but a queue's first may start with the rest of one.
type chunk struct {
	data []byte
	sent int // bytes of data already sent
	next int // end in data of the frame with data[sent]
	size int // of that frame, without prefix
	live int // frames of a shaper in it
}

// chunks keeps unused ones of all queues, so that a busy receiver produces no garbage.
type chunks struct {
	free []*chunk
}

const maxFreeChunks = 128 // 8 MiB

func (p *chunks) get() *chunk {
	if n := len(p.free); n > 0 {
		c := p.free[n-1]
		p.free = p.free[:n-1]
		return c
	}
	return &chunk{data: make([]byte, 0, chunkSize)}
}

func (p *chunks) put(c *chunk) {
	if len(p.free) < maxFreeChunks {
		*c = chunk{data: c.data[:0]}
		p.free = append(p.free, c)
	}
}

type queue struct {
	pool   *chunks
	list   []*chunk
	bytes  int // unsent bytes, with prefixes
	frames int // frames not completely sent
}

func (q *queue) empty() bool { return q.bytes == 0 }

// push appends a frame with its prefix or the unsent rest of one; size is without prefix. The caller has checked the
// limit.
func (q *queue) push(b []byte, size int) {
	var c *chunk
	if n := len(q.list); n > 0 {
		c = q.list[n-1]
	}
	if c == nil || cap(c.data)-len(c.data) < len(b) {
		c = q.pool.get()
		c.next, c.size = len(b), size
		q.list = append(q.list, c)
	}
	c.data = append(c.data, b...)
	q.bytes += len(b)
	q.frames++
}

// advance removes n sent bytes, and returns the completed frames and their bytes.
func (q *queue) advance(n int) (frames, bytes uint64) {
	q.bytes -= n
	done := 0
	for n > 0 {
		c := q.list[done]
		step := min(n, len(c.data)-c.sent)
		c.sent += step
		n -= step
		for c.next <= c.sent {
			frames++
			bytes += uint64(c.size)
			if c.next == len(c.data) {
				break
			}
			c.size = int(binary.BigEndian.Uint32(c.data[c.next:]))
			c.next += prefixLen + c.size
		}
		if c.sent == len(c.data) {
			q.pool.put(c)
			done++
		}
	}
	q.frames -= int(frames)
	// So that the list's array is reused.
	q.list = q.list[:copy(q.list, q.list[done:])]
	return frames, bytes
}

func (q *queue) clear() uint64 {
	for _, c := range q.list {
		q.pool.put(c)
	}
	n := uint64(q.frames)
	q.list, q.bytes, q.frames = nil, 0, 0
	return n
}

// Trust is the source of a frame's priority, which is 0 without trust.
type Trust string

// TrustPCP is the tag, TrustDSCP the IP header. A DSCP's priority is its three highest bits, the default of switches
// and adapters.
const (
	TrustPCP  Trust = "pcp"  // a frame without a tag has 0
	TrustDSCP Trust = "dscp" // behind up to two tags; the tag for other frames
)

// Priorities is a set of priorities, one bit each. As text it is a list: 3,4.
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

// network skips up to two VLAN tags, and returns the outer or 0.
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

// trafficClass returns DSCP and ECN. ok is false without an IP header.
func trafficClass(kind uint16, ip []byte) (tos uint8, ok bool) {
	switch {
	case kind == etherIPv4 && len(ip) >= ipv4Header && ip[0]>>4 == 4 && ip[0]&0xf >= ipv4Header/4:
		return ip[1], true
	case kind == etherIPv6 && len(ip) >= ipv6Header && ip[0]>>4 == 6:
		return uint8(binary.BigEndian.Uint16(ip) >> 4), true
	}
	return 0, false
}
