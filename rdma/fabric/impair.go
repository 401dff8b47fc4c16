package fabric

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// heldRead is the most that one turn of a sender takes while any port has PFC: what a sender may
// still add to a queue that is above its threshold. It holds the longest frame beside a part of
// another.
const heldRead = 64 << 10

// mono is the switch's clock for links, in nanoseconds. The wall clock may be set, and tests set it.
func (b *bridge) mono() int64 { return int64(time.Since(b.epoch)) }

// setLink changes the link of a port, or of all. Like all that changes ports it must run in the loop.
func (b *bridge) setLink(name string, l Link) error {
	if err := l.Validate(); err != nil {
		return err
	}
	ports := b.ports
	if name != AllPorts {
		i := b.portIndex(name)
		if i < 0 {
			return fmt.Errorf("link of port %q: the switch has no such port; it has %s", name, b.portNames())
		}
		ports = b.ports[i : i+1]
	}
	// A lab without impairments has no timer, and so not one wakeup more.
	if l.Impaired() && b.timer == nil {
		t, err := newTimer(b)
		if err != nil {
			return err
		}
		b.timer = t
	}
	for _, p := range ports {
		p.setLink(l)
	}
	return nil
}

func (b *bridge) portNames() string {
	names := make([]string, len(b.ports))
	for i, p := range b.ports {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

func (p *port) setLink(l Link) {
	b, now := p.b, p.b.mono()
	b.log.Info("fabric: link set", "port", p.Name, "link", l)
	if l.PFC != p.link.PFC {
		p.release(p.congested) // in the way in which they were held
	}
	was := p.link.Down
	p.link = l
	b.tellDirect()
	if l.Down && !was {
		b.table.forget(p) // so that nothing is sent to it but by flood, which asks
		if p.shape != nil {
			p.counters.Drops.Disconnected += p.shape.clear()
		}
		p.release(p.congested)
	}
	switch {
	case p.shape != nil:
		p.shape.set(p.Name, l, b.queueLimit, now)
	case l.Impaired():
		p.shape = newShaper(p.Name, l, b.queueLimit, &p.counters, &b.chunks, now)
		b.shaped = append(b.shaped, p)
	default:
		return
	}
	if p.conn != nil {
		p.conn.advance(now)
	}
	if !l.Impaired() { // then all that was held back has just left
		b.unshape(p)
	}
	// Smaller reads cost system calls: they are for labs in which some port holds its senders.
	b.readLimit = readSize
	if slices.ContainsFunc(b.shaped, func(p *port) bool { return p.link.PFC != PFC{} }) {
		b.readLimit = heldRead
	}
}

// unshape takes the shaper of a port away.
func (b *bridge) unshape(p *port) {
	p.shape = nil
	b.shaped = slices.DeleteFunc(b.shaped, func(o *port) bool { return o == p })
}

// shapeOutbox puts the outbox of c onto its link.
func (c *conn) shapeOutbox(buf []byte) {
	s := c.port.shape
	spans := c.out.spans
	c.out = outbox{spans: spans[:0]}
	now := c.port.b.mono()
	s.advance(now) // so that what has gone is not counted as waiting
	c.sent = 0
	for _, sp := range spans {
		for off := sp.off; off < sp.end; {
			end := off + prefixLen + int(binary.BigEndian.Uint32(buf[off:]))
			backlog := c.queue.bytes
			if backlog > 0 {
				backlog += s.out.bytes // it will stand behind
			}
			c.sent |= 1 << s.admit(buf[off:end], backlog, now)
			s.advance(now)
			off = end
		}
	}
	c.transmit()
}

// advance does what is due on the link of c at now.
func (c *conn) advance(now int64) {
	c.port.shape.advance(now)
	c.transmit()
}

// transmit gives the node what has crossed the link: to the socket, or, where that is full, to the
// queue. The queue has no limit here: what it may hold was decided before the link.
func (c *conn) transmit() {
	p, b := c.port, c.port.b
	s := p.shape
	for c.queue.empty() && !s.out.empty() {
		b.iovecs = b.iovecs[:0]
		want := 0
		for _, f := range s.out.list[s.out.head:] {
			data := f.data()
			if n := len(b.iovecs); n > 0 && adjacent(b.iovecs[n-1], data) {
				b.iovecs[n-1].SetLen(int(b.iovecs[n-1].Len) + len(data))
			} else if n == maxIovecs {
				break
			} else {
				b.iovecs = appendIovec(b.iovecs, data)
			}
			want += len(data)
		}
		n, err := c.writev(b.iovecs)
		if err != nil {
			b.log.Info("fabric: disconnected", "port", p.Name, "error", err)
			c.close()
			return
		}
		full := n < want
		for n > 0 {
			f := s.out.pop()
			size := f.len() - prefixLen
			if n < f.len() {
				c.queue.push(f.data()[n:], size)
				n = 0
			} else {
				n -= f.len()
				p.counters.TxFrames++
				p.counters.TxBytes += uint64(size)
			}
			s.release(f)
		}
		if full {
			break
		}
	}
	for !s.out.empty() {
		f := s.out.pop()
		c.queue.push(f.data(), f.len()-prefixLen)
		s.release(f)
	}
	p.counters.QueuePeak = max(p.counters.QueuePeak, s.waiting()+c.queue.bytes)
	c.block(!c.queue.empty()) // which may close c
	p.updatePFC()
}

// adjacent reports whether b begins where v ends. Both lie in chunks, which do not move.
func adjacent(v unix.Iovec, b []byte) bool {
	return unsafe.Add(unsafe.Pointer(v.Base), v.Len) == unsafe.Pointer(unsafe.SliceData(b))
}

// A timer wakes the loop when a frame is due on a link. It is armed only while one waits, and there
// is none before the first impairment.
type timer struct {
	b  *bridge
	fd int
	at int64 // when it will fire; never if it is not armed
}

func newTimer(b *bridge) (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("set link: timerfd_create: %w", err)
	}
	t := &timer{b: b, fd: fd, at: never}
	if _, err := b.watch(fd, t); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set link: timer: %w", err)
	}
	return t, nil
}

// ready only takes the event away. What is due is done by runLinks, after every turn of the loop.
func (t *timer) ready(uint32) {
	var count [8]byte
	if _, err := unix.Read(t.fd, count[:]); err != nil && err != unix.EAGAIN && err != unix.EINTR {
		t.b.log.Error("fabric: read timer", "error", err)
	}
	t.at = never
}

// arm makes the timer fire at a time, or before. One that is earlier costs one idle turn of the
// loop; setting it back would cost as much.
func (t *timer) arm(at, now int64) error {
	if at >= t.at {
		return nil
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(at-now, 1))} // 0 would disarm it
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("switch: timerfd_settime: %w", err)
	}
	t.at = at
	return nil
}

// runLinks does what is due on all impaired links, and sets the timer for what is due next.
func (b *bridge) runLinks() error {
	if len(b.shaped) == 0 {
		return nil
	}
	now, next := b.mono(), int64(never)
	for _, p := range b.shaped {
		if p.conn == nil {
			continue // then nothing waits
		}
		if p.shape.next() <= now {
			p.conn.advance(now)
		}
		next = min(next, p.shape.next())
	}
	return b.timer.arm(min(next, b.repeatPauses(now)), now)
}
