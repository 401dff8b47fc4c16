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

// heldRead limits reads while any port has PFC, because a sender may still add that much to a queue above its
// threshold. It holds the longest frame and a part of another.
const heldRead = 64 << 10

// mono returns the monotonic clock in nanoseconds. Tests set the wall clock.
func (b *bridge) mono() int64 { return int64(time.Since(b.epoch)) }

// setLink must run in the loop.
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
	// A lab without impairments has no timer.
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
		p.release(p.congested) // in the way they were held
	}
	was := p.link.Down
	p.link = l
	b.tellDirect()
	if b.net != nil && l.Down != was {
		b.net.route()
		if p.between() {
			p.far.counters.Drops.Disconnected += p.far.shape.clear()
			p.far.release(p.far.congested)
		}
	}
	if l.Down && !was {
		b.table.forget(p) // so that only floods could reach it, and flood checks Down
		if p.shape != nil {
			p.counters.Drops.Disconnected += p.shape.clear()
		}
		p.release(p.congested)
	}
	switch {
	case p.shape != nil:
		p.shape.set(p.Name, p.effective(), b.queueLimit, now)
	case l.Impaired():
		p.shape = newShaper(p.Name, l, b.queueLimit, &p.counters, &b.chunks, now)
		b.shaped = append(b.shaped, p)
	default:
		return
	}
	if p.conn != nil {
		p.conn.advance(now)
	}
	if !l.Impaired() && !p.between() { // all delayed frames have just left
		b.unshape(p)
	}
	// Smaller reads cost system calls.
	b.readLimit = readSize
	if slices.ContainsFunc(b.shaped, func(p *port) bool { return p.link.PFC != PFC{} }) {
		b.readLimit = heldRead
	}
}

func (b *bridge) unshape(p *port) {
	p.shape = nil
	b.shaped = slices.DeleteFunc(b.shaped, func(o *port) bool { return o == p })
}

func (c *conn) shapeOutbox(buf []byte) {
	s := c.port.shape
	spans := c.out.spans
	c.out = outbox{spans: spans[:0]}
	now := c.port.b.mono()
	s.advance(now) // so that frames that have left do not count
	c.sent = 0
	for _, sp := range spans {
		for off := sp.off; off < sp.end; {
			end := off + prefixLen + int(binary.BigEndian.Uint32(buf[off:]))
			backlog := c.queue.bytes
			if backlog > 0 {
				backlog += s.out.bytes // the new frames will wait behind it
			}
			c.sent |= 1 << s.admit(buf[off:end], backlog, now)
			s.advance(now)
			off = end
		}
	}
	c.transmit()
}

func (c *conn) advance(now int64) {
	c.port.shape.advance(now)
	c.transmit()
}

// transmit sends frames that have crossed the link, or queues them without limit, because they were admitted before it.
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
	c.block(!c.queue.empty()) // may close c
	p.updatePFC()
}

// adjacent compares places in chunks, which do not move.
func adjacent(v unix.Iovec, b []byte) bool {
	return unsafe.Add(unsafe.Pointer(v.Base), v.Len) == unsafe.Pointer(unsafe.SliceData(b))
}

// A timer wakes the loop when a frame is due on a link. The first impairment creates it.
type timer struct {
	b  *bridge
	fd int
	at int64 // never if not armed
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

// ready clears the event; runLinks follows after every turn.
func (t *timer) ready(uint32) {
	var count [8]byte
	if _, err := unix.Read(t.fd, count[:]); err != nil && err != unix.EAGAIN && err != unix.EINTR {
		t.b.log.Error("fabric: read timer", "error", err)
	}
	t.at = never
}

// arm makes the timer fire no later than at. An earlier event costs one idle turn, and so would setting the timer back.
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

// runLinks also arms the timer for the next frames.
func (b *bridge) runLinks() error {
	if len(b.shaped) == 0 {
		return nil
	}
	b.hop()
	for {
		now, next := b.mono(), int64(never)
		b.again = false
		for _, p := range b.shaped {
			if p.conn == nil {
				continue // nothing waits
			}
			if p.shape.next() <= now {
				p.conn.advance(now)
			}
			next = min(next, p.shape.next())
		}
		if !b.hop() && !b.again {
			return b.timer.arm(min(next, b.repeatPauses(now)), now)
		}
	}
}
