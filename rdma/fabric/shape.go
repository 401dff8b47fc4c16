package fabric

import (
	"hash/fnv"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
)

// never is a time that does not come, in nanoseconds of the switch's monotonic clock.
const never = math.MaxInt64

// turns is how many priorities have turns: those below the two for control.
const turns = priorities - 2

// A parked frame lies, with its prefix, in a chunk that it may share with others.
type parked struct {
	in       *chunk
	off, end int32
	at       int64 // when it came, or while it is in flight, when it is due
}

func (f parked) len() int     { return int(f.end - f.off) }
func (f parked) data() []byte { return f.in.data[f.off:f.end] }

// A line is a first-in, first-out list of parked frames. The array is used again once its front half is empty.
type line struct {
	list  []parked
	head  int
	bytes int // prefixes included
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

// A shaper is an impaired link as it runs. It is a model without input, output or clock: frames are
// put in, time is told, and frames come out.
//
//	admit -> wait (buffer, ECN) -> rate -> loss -> reorder -> flight (delay, jitter) -> out
//
// Times are computed from those at which things should have happened, not from those at which the
// loop found time for it. So a late wakeup makes the frames of that moment late, but neither the
// rate lower nor the next delays longer.
type shaper struct {
	link     Link
	limit    int // of wait, bytes
	counters *PortCounters
	pool     *chunks
	fill     *chunk // takes the next frame

	// What has not left the switch, by priority: 7 and 6, which are for control, go first, and the others have turns. A
	// lossless one that is always full would otherwise starve those below it.
	wait   [priorities]line
	busy   uint8 // a bit for each of wait that is not empty
	served int   // which of those that have turns had the last
	flight line  // is delayed; due in this order
	out    line  // has crossed the link and is to be given to the node

	free uint64 // when the wire is free, in nanoseconds
	rest uint64 // the part of free below a nanosecond, in 1/Rate nanoseconds
	last int64  // when the last frame in flight is due

	full bool  // too much is in flight: the link stands still
	open int64 // until when it last did

	loss, reorder, jitter, mark *rand.Rand
}

func newShaper(name string, l Link, limit int, counters *PortCounters, pool *chunks, now int64) *shaper {
	s := &shaper{counters: counters, pool: pool}
	s.seed(name, l.Seed)
	s.set(name, l, limit, now)
	return s
}

// seed begins the random sequences. Each purpose has its own, so that the frames lost do not depend
// on how many were marked, which depends on time.
func (s *shaper) seed(name string, seed uint64) {
	for i, r := range []**rand.Rand{&s.loss, &s.reorder, &s.jitter, &s.mark} {
		h := fnv.New64a()
		io.WriteString(h, name)
		h.Write([]byte{byte(i)})
		*r = rand.New(rand.NewPCG(seed, h.Sum64()))
	}
}

// set changes the link. What waits is sent at the new rate, and what is in flight is due at the
// latest after the new delay from now.
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

// sort puts what waits into the queues of its priorities, when these are others. Frames of a flow keep their order.
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

// queued is what RED, PFC and the buffer go by: what waits in a priority and, in backlog, what the node has not taken.
func (s *shaper) queued(prio, backlog int) int { return s.wait[prio].bytes + backlog }

// waiting is how many bytes wait in all.
func (s *shaper) waiting() (n int) {
	for i := range s.wait {
		n += s.wait[i].bytes
	}
	return n
}

// put adds a frame to what waits.
func (s *shaper) put(prio int, f parked) {
	s.wait[prio].push(f)
	s.busy |= 1 << prio
}

// take removes the first frame that waits in a priority, which is not empty.
func (s *shaper) take(prio int) parked {
	f := s.wait[prio].pop()
	if s.wait[prio].empty() {
		s.busy &^= 1 << prio
	}
	return f
}

// turn is the priority whose frame goes next; -1 if none waits. It is asked twice for each frame.
func (s *shaper) turn() int {
	if s.busy == 0 {
		return -1
	}
	if highest := bits.Len8(s.busy) - 1; highest >= turns {
		return highest
	}
	if later := s.busy >> (s.served + 1); later != 0 {
		return s.served + 1 + bits.TrailingZeros8(later)
	}
	return bits.TrailingZeros8(s.busy)
}

// admit takes a frame with its prefix, or drops it. It copies b, and returns the frame's priority.
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
	if p := s.link.ECN.at(q); p > 0 && (p >= 1 || s.mark.Float64() < p) && markCE(f.data()[prefixLen:]) {
		s.counters.ECNMarked++
	}
	s.put(prio, f)
	return prio
}

// at is the probability of a mark while q bytes wait.
func (r RED) at(q int) float64 {
	switch {
	case r == RED{} || q < r.Min:
		return 0
	case q >= r.Max:
		return 1
	}
	return r.Probability * float64(q-r.Min) / float64(r.Max-r.Min)
}

// advance moves what has got on by now towards out.
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
		if s.full { // what was missed is not made up for
			s.full, s.open, s.free = false, now, max(s.free, uint64(now))
		}
		leave, free, rest := s.departure(s.wait[prio].first())
		if leave > now {
			return
		}
		s.free, s.rest = free, rest
		f := s.take(prio)
		if prio < turns {
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

// departure returns when the frame that is next has left the switch, and when the wire is then
// free. It is the token bucket, written as the time at which a wire would be done with the frame,
// less the time that Burst is worth.
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

// wireBits is what a frame of size bytes, without FCS, occupies on a real wire: it is padded to 60
// bytes, and preamble (8), FCS (4) and the gap to the next one (12) are added (IEEE 802.3, clauses
// 3 and 4.4.2).
func wireBits(size int) uint64 { return 8 * uint64(max(size, 60)+24) }

// next is when advance will have something to do.
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

// park copies a frame into a chunk.
func (s *shaper) park(b []byte) parked {
	if s.fill == nil || cap(s.fill.data)-len(s.fill.data) < len(b) {
		s.fill = s.pool.get() // what still lies in the old one frees it
	}
	off := len(s.fill.data)
	s.fill.data = append(s.fill.data, b...)
	s.fill.live++
	return parked{in: s.fill, off: int32(off), end: int32(off + len(b))}
}

// release gives back the place of a frame.
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

// clear forgets all frames and returns how many there were.
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
