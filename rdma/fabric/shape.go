package fabric

import (
	"hash/fnv"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

const never = math.MaxInt64

// roundRobin is the number of priorities that take turns, below the two for control.
const roundRobin = priorities - 2

// A parked frame is in a chunk, maybe with others.
type parked struct {
	in       *chunk
	off, end int32
	at       int64 // time of arrival, or the due time while in flight
}

func (f parked) len() int     { return int(f.end - f.off) }
func (f parked) data() []byte { return f.in.data[f.off:f.end] }

// A line is a FIFO. It reuses the array when the front half is empty.
type line struct {
	list  []parked
	head  int
	bytes int // with prefixes
}

func (l *line) empty() bool   { return l.head == len(l.list) }
func (l *line) frames() int   { return len(l.list) - l.head }
func (l *line) first() parked { return l.list[l.head] }

func (l *line) push(f parked) {
	l.list = append(l.list, f)
	l.bytes += f.len()
}

func (l *line) pop() parked {
	f := l.list[l.head]
	l.list[l.head] = parked{} // so that its chunk can be collected
	l.head++
	l.bytes -= f.len()
	if 2*l.head >= len(l.list) {
		n := copy(l.list, l.list[l.head:])
		clear(l.list[n:])
		l.list, l.head = l.list[:n], 0
	}
	return f
}

// A shaper is a running impaired link, without input, output or clock.
//
//	admit -> wait (buffer, ECN) -> rate -> loss -> reorder -> flight (delay, jitter) -> out
//
// Times are computed from the ideal times of earlier events, so a late wakeup delays only that moment's frames and does
// not lower the rate.
type shaper struct {
	link     Link
	limit    int // of wait, in bytes
	counters *PortCounters
	pool     *chunks
	fill     *chunk // chunk for the next frame

	// wait holds frames by priority. 7 and 6, for control, go first. The others take turns, or a lossless priority that
	// is always full would starve lower ones.
	wait [priorities]line
	busy uint8 // a bit for each non-empty queue
	// stopped has the priorities that the other end of a link between switches holds.
	stopped uint8
	served  int  // priority that had the last turn
	flight  line // delayed frames, in the order of their due times
	out     line // frames that have crossed the link

	free uint64 // when the wire will be free, in nanoseconds
	rest uint64 // the part of free below a nanosecond, in 1/Rate nanoseconds
	last int64  // due time of the last frame in flight

	full bool  // too much is in flight, so the link is stopped
	open int64 // end of the last stop

	loss, reorder, jitter, mark *rand.Rand
}

func newShaper(name string, l Link, limit int, counters *PortCounters, pool *chunks, now int64) *shaper {
	s := &shaper{counters: counters, pool: pool}
	s.seed(name, l.Seed)
	s.set(name, l, limit, now)
	return s
}

// seed starts a sequence for each purpose, so that lost frames do not depend on marked ones, which depend on time.
func (s *shaper) seed(name string, seed uint64) {
	for i, r := range []**rand.Rand{&s.loss, &s.reorder, &s.jitter, &s.mark} {
		h := fnv.New64a()
		io.WriteString(h, name)
		h.Write([]byte{byte(i)})
		*r = rand.New(rand.NewPCG(seed, h.Sum64()))
	}
}

// set changes the link. Waiting frames are sent at the new rate. Frames in flight are due at the latest after the new
// delay from now.
func (s *shaper) set(name string, l Link, limit int, now int64) {
	if l.Seed != s.link.Seed {
		s.seed(name, l.Seed)
	}
	if l.Rate != s.link.Rate || l.Burst != s.link.Burst {
		s.free, s.rest = uint64(now), 0
	}
	sort := l.Trust != s.link.Trust
	s.link, s.limit = l, limit
	if sort {
		s.sort()
	}
	if l.Buffer > 0 {
		s.limit = l.Buffer
	}
	latest := now + int64(l.Delay+l.Jitter)
	for i := s.flight.head; i < len(s.flight.list); i++ {
		s.flight.list[i].at = min(s.flight.list[i].at, latest)
	}
	s.last = min(s.last, latest)
}

// sort moves waiting frames to the queues of their new priorities. A flow's frames keep their order.
func (s *shaper) sort() {
	old := s.wait
	s.wait, s.busy = [priorities]line{}, 0
	for i := len(old) - 1; i >= 0; i-- {
		for !old[i].empty() {
			f := old[i].pop()
			s.put(s.link.Trust.of(f.data()[prefixLen:]), f)
		}
	}
}

// queued returns the bytes that RED, PFC and the buffer count. The node has not taken backlog.
func (s *shaper) queued(prio, backlog int) int { return s.wait[prio].bytes + backlog }

func (s *shaper) waiting() (n int) {
	for i := range s.wait {
		n += s.wait[i].bytes
	}
	return n
}

func (s *shaper) put(prio int, f parked) {
	s.wait[prio].push(f)
	s.busy |= 1 << prio
}

func (s *shaper) take(prio int) parked {
	f := s.wait[prio].pop()
	if s.wait[prio].empty() {
		s.busy &^= 1 << prio
	}
	return f
}

// turn returns the next priority, or -1. It has no effect, and is called twice for each frame.
func (s *shaper) turn() int {
	busy := s.busy &^ s.stopped
	if busy == 0 {
		return -1
	}
	if highest := bits.Len8(busy) - 1; highest >= roundRobin {
		return highest
	}
	if later := busy >> (s.served + 1); later != 0 {
		return s.served + 1 + bits.TrailingZeros8(later)
	}
	return bits.TrailingZeros8(busy)
}

func (s *shaper) admit(b []byte, backlog int, now int64) (prio int) {
	prio = s.link.Trust.of(b[prefixLen:])
	limit := s.limit
	if s.link.classes().has(prio) {
		limit = s.link.PFC.High + headroom
	}
	q := s.queued(prio, backlog)
	if q > 0 && q+len(b) > limit {
		s.counters.Drops.BufferFull++
		return prio
	}
	f := s.park(b)
	f.at = now
	if p := s.link.ECN.At(q); p > 0 && (p >= 1 || s.mark.Float64() < p) && MarkCE(f.data()[prefixLen:]) {
		s.counters.ECNMarked++
	}
	s.put(prio, f)
	return prio
}

// At returns the probability of a mark at q waiting bytes.
func (r RED) At(q int) float64 {
	switch {
	case r == RED{} || q < r.Min:
		return 0
	case q >= r.Max:
		return 1
	}
	return r.Probability * float64(q-r.Min) / float64(r.Max-r.Min)
}

func (s *shaper) advance(now int64) {
	for {
		for !s.flight.empty() && s.flight.first().at <= now {
			s.out.push(s.flight.pop())
		}
		prio := s.turn()
		if prio < 0 {
			return
		}
		if s.flight.bytes >= maxInFlight {
			s.full = true
			return
		}
		if s.full { // the time of the stop is lost
			s.full, s.open, s.free = false, now, max(s.free, uint64(now))
		}
		leave, free, rest := s.departure(s.wait[prio].first())
		if leave > now {
			return
		}
		s.free, s.rest = free, rest
		f := s.take(prio)
		if prio < roundRobin {
			s.served = prio
		}
		switch {
		case s.link.Loss > 0 && s.loss.Float64() < s.link.Loss:
			s.counters.Drops.Lost++
			s.release(f)
		case s.link.Reorder > 0 && s.reorder.Float64() < s.link.Reorder:
			if !s.flight.empty() {
				s.counters.Reordered++
			}
			s.out.push(f)
		default:
			delay := s.link.Delay
			if s.link.Jitter > 0 {
				delay += time.Duration((2*s.jitter.Float64() - 1) * float64(s.link.Jitter))
			}
			f.at = max(leave+int64(delay), s.last)
			s.last = f.at
			s.flight.push(f)
		}
	}
}

// departure returns when the next frame leaves, and when the wire is free after it. It is a token bucket, expressed as
// the time at which a wire would finish the frame, less the time for Burst bytes.
func (s *shaper) departure(f parked) (leave int64, free, rest uint64) {
	ready := max(f.at, s.open)
	if s.link.Rate == 0 {
		return ready, s.free, s.rest
	}
	start, rest := s.free, s.rest
	if uint64(ready) > start {
		start, rest = uint64(ready), 0
	}
	rate := uint64(s.link.Rate)
	took := wireBits(f.len()-prefixLen)*uint64(time.Second) + rest
	free, rest = start+took/rate, took%rate
	hi, lo := bits.Mul64(uint64(s.link.Burst), 8*uint64(time.Second))
	ahead, _ := bits.Div64(hi, lo, rate) // hi is 0: MaxBurst * 8e9 is below 2^63
	return max(ready, int64(free)-int64(ahead)), free, rest
}

// wireBits returns the bits on a real wire: padded to 60 bytes, with preamble (8), FCS (4) and interframe gap (12)
// (IEEE 802.3, clauses 3 and 4.4.2).
func wireBits(size int) uint64 { return 8 * uint64(max(size, 60)+24) }

func (s *shaper) next() int64 {
	at := int64(never)
	if !s.flight.empty() {
		at = s.flight.first().at
	}
	if prio := s.turn(); prio >= 0 && s.flight.bytes < maxInFlight {
		leave, _, _ := s.departure(s.wait[prio].first())
		at = min(at, leave)
	}
	return at
}

func (s *shaper) park(b []byte) parked {
	if s.fill == nil || cap(s.fill.data)-len(s.fill.data) < len(b) {
		s.fill = s.pool.get() // frames in the old chunk release it
	}
	off := len(s.fill.data)
	s.fill.data = append(s.fill.data, b...)
	s.fill.live++
	return parked{in: s.fill, off: int32(off), end: int32(off + len(b))}
}

func (s *shaper) release(f parked) {
	f.in.live--
	switch {
	case f.in.live > 0:
	case f.in == s.fill:
		f.in.data = f.in.data[:0]
	default:
		s.pool.put(f.in)
	}
}

func (s *shaper) clear() uint64 {
	n := 0
	lines := []*line{&s.flight, &s.out}
	for i := range s.wait {
		lines = append(lines, &s.wait[i])
	}
	for _, l := range lines {
		for n += l.frames(); !l.empty(); {
			s.release(l.pop())
		}
	}
	s.last, s.busy = 0, 0
	return uint64(n)
}
