package fabric

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A span is a part of the read buffer with whole frames and prefixes.
type span struct{ off, end int }

// An outbox collects a receiver's frames from a read. Adjacent ones are one span, so that the usual case, all from one
// sender to one receiver, is a single plain write.
type outbox struct {
	spans  []span
	frames int
	bytes  int // Ethernet bytes
}

// forward forwards the frames of p in buf, also before a wrong prefix, and returns the bytes in whole frames.
func (b *bridge) forward(p *port, buf []byte) (used int, err error) {
	now := b.now()
	nano := now.UnixNano()
	var last header // of the previous frame; address 0 is never learned
	var to *port    // for header last; nil means flood
	for {
		n, e := nextFrame(buf[used:])
		if n == 0 {
			err = e
			break
		}
		s := span{used, used + n}
		used = s.end
		frame := buf[s.off+prefixLen : s.end]
		p.counters.RxFrames++
		p.counters.RxBytes += uint64(len(frame))
		for _, t := range b.taps {
			t.capture(p, nano, frame)
		}
		if h := parseHeader(frame); h != last {
			if !p.between() && !b.table.learn(h.src, p, nano) {
				p.counters.Unlearned++
			}
			last, to = h, nil
			if !h.dst.group() {
				to = b.table.lookup(h.dst, nano)
			}
		}
		switch {
		case to == p || last.dst == controlAddress || isControl(frame):
			p.counters.RxFiltered++
		case b.net != nil:
			b.steer(p, to, s, frame, nano)
		case to != nil:
			b.emit(to.conn, s)
		default:
			b.flood(p, s)
		}
	}
	for _, t := range b.taps {
		t.signal()
	}
	// Most reads hold many frames to one receiver.
	for _, c := range b.touched {
		if c.out.frames > 0 { // otherwise another's flush has closed it
			c.flush(buf)
		}
		if of := c.port.congested & c.sent; of != 0 && p.conn != nil {
			c.port.hold(p.conn, of)
		}
	}
	b.touched = b.touched[:0]
	return used, err
}

func (b *bridge) discard(p *port, buf []byte) (used int, err error) {
	for {
		n, err := nextFrame(buf[used:])
		if n == 0 {
			return used, err
		}
		used += n
		p.counters.RxFrames++
		p.counters.RxBytes += uint64(n - prefixLen)
		p.counters.RxNowhere++
	}
}

func (b *bridge) flood(from *port, s span) {
	sent := false
	for _, p := range b.ports {
		if p != from && p.conn != nil && !p.link.Down {
			b.emit(p.conn, s)
			sent = true
		}
	}
	if sent {
		from.counters.RxFlooded++
	} else {
		from.counters.RxNowhere++
	}
}

func (b *bridge) emit(c *conn, s span) {
	o := &c.out
	if o.frames == 0 {
		b.touched = append(b.touched, c)
	}
	o.frames++
	o.bytes += s.end - s.off - prefixLen
	if n := len(o.spans); n > 0 && o.spans[n-1].end == s.off {
		o.spans[n-1].end = s.end
		return
	}
	o.spans = append(o.spans, s)
}

func (c *conn) flush(buf []byte) {
	p := c.port
	if p.shape != nil {
		c.shapeOutbox(buf)
		return
	}
	sent := 0
	// Frames must not overtake the queue.
	if c.queue.empty() {
		var err error
		if sent, err = c.write(buf, c.out.spans); err != nil {
			p.b.log.Info("fabric: disconnected", "port", p.Name, "error", err)
			c.close()
			return
		}
	}
	out := c.out
	c.out = outbox{spans: out.spans[:0]}
	if sent == out.bytes+prefixLen*out.frames {
		p.counters.TxFrames += uint64(out.frames)
		p.counters.TxBytes += uint64(out.bytes)
		return
	}
	c.enqueue(buf, out.spans, sent)
}

// write returns the taken bytes. A full socket is no error.
func (c *conn) write(buf []byte, spans []span) (sent int, err error) {
	for len(spans) > 0 {
		batch := spans[:min(len(spans), maxIovecs)]
		spans = spans[len(batch):]
		b := c.port.b
		b.iovecs = b.iovecs[:0]
		want := 0
		for _, s := range batch {
			b.iovecs = appendIovec(b.iovecs, buf[s.off:s.end])
			want += s.end - s.off
		}
		n, err := c.writev(b.iovecs)
		if err != nil {
			return sent, err
		}
		sent += n
		if n < want {
			break
		}
	}
	return sent, nil
}

func appendIovec(v []unix.Iovec, b []byte) []unix.Iovec {
	v = append(v, unix.Iovec{Base: unsafe.SliceData(b)})
	v[len(v)-1].SetLen(len(b))
	return v
}

// writev returns 0 if the socket is full. It avoids unix.Writev, which allocates.
func (c *conn) writev(v []unix.Iovec) (int, error) {
	if c.plug != nil {
		return c.plug.put(v), nil
	}
	if c.port.between() {
		return c.port.far.arrive(v), nil
	}
	for {
		c.port.counters.Writes++
		n, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(v))),
			uintptr(len(v)))
		runtime.KeepAlive(v)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS:
			return 0, nil
		default:
			return 0, fmt.Errorf("writev: %w", errno)
		}
	}
}

// enqueue queues spans without their sent bytes, and drops whole frames that do not fit. The rest of a partly sent
// frame is always queued, or the stream would be out of step, so a queue may exceed its limit by one frame.
func (c *conn) enqueue(buf []byte, spans []span, sent int) {
	p := c.port
	for _, s := range spans {
		for off := s.off; off < s.end; {
			size := int(binary.BigEndian.Uint32(buf[off:]))
			end := off + prefixLen + size
			switch {
			case sent >= end-off:
				sent -= end - off
				p.counters.TxFrames++
				p.counters.TxBytes += uint64(size)
			case sent > 0:
				c.queue.push(buf[off+sent:end], size)
				sent = 0
			case c.queue.bytes+end-off <= p.b.queueLimit:
				c.queue.push(buf[off:end], size)
			default:
				p.counters.Drops.QueueFull++
			}
			off = end
		}
	}
	p.counters.QueuePeak = max(p.counters.QueuePeak, c.queue.bytes)
	c.block(!c.queue.empty())
}

// drain sends much in a turn: the kernel reports a unix stream as writable when three quarters of its send buffer are
// free (unix_writable in net/unix/af_unix.c).
func (c *conn) drain() {
	p, b := c.port, c.port.b
	for !c.queue.empty() {
		b.iovecs = b.iovecs[:0]
		want := 0
		for _, ch := range c.queue.list[:min(len(c.queue.list), maxIovecs)] {
			b.iovecs = appendIovec(b.iovecs, ch.data[ch.sent:])
			want += len(ch.data) - ch.sent
		}
		n, err := c.writev(b.iovecs)
		if err != nil {
			b.log.Info("fabric: disconnected", "port", p.Name, "error", err)
			c.close()
			return
		}
		frames, bytes := c.queue.advance(n)
		p.counters.TxFrames += frames
		p.counters.TxBytes += bytes
		if n < want {
			break // EPOLLOUT stays requested
		}
	}
	c.block(!c.queue.empty())
	if p.shape != nil {
		p.updatePFC()
	}
}

func (c *conn) block(on bool) {
	if on != c.blocked {
		c.interest(on)
	}
}

// interest asks epoll for EPOLLOUT if the socket is full, and for EPOLLIN unless the sender is stopped.
func (c *conn) interest(blocked bool) {
	if c.plug != nil || c.port.between() { // calls by itself, and obeys pauses
		c.blocked = blocked
		return
	}
	ev := unix.EpollEvent{Fd: c.id}
	if !c.stopped() {
		ev.Events |= unix.EPOLLIN
	}
	if blocked {
		ev.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(c.port.b.epfd, unix.EPOLL_CTL_MOD, c.fd, &ev); err != nil {
		// The queue would never be sent, so disconnect; the node reconnects.
		c.port.b.log.Error("fabric: epoll_ctl mod; disconnect", "port", c.port.Name, "error", err)
		c.close()
		return
	}
	c.blocked = blocked
}
