package fabric

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// AllPorts in place of a port's name stands for all of them. No port may have this name.
const AllPorts = "all"

// A Port is one place where a NIC can be attached.
type Port struct {
	Name string `json:"name"` // unique in the switch
	Path string `json:"path"` // of the listening socket, absolute, at most 107 bytes
	// Rate is that of a NIC which obeys pauses, in bits a second; 0: it obeys none. PFC then stops reading from it.
	Rate int64 `json:"rate_bits_per_second,omitzero"`
}

func (p Port) validate() error {
	switch {
	case p.Name == "":
		return fmt.Errorf("add port at %q: the name is empty", p.Path)
	case p.Name == AllPorts:
		return fmt.Errorf("add port %q: this name stands for all ports: choose another", p.Name)
	case !filepath.IsAbs(p.Path):
		// The daemon's working directory is not its client's.
		return fmt.Errorf("add port %q: path %q is not absolute", p.Name, p.Path)
	case p.Rate < 0:
		return fmt.Errorf("add port %q: rate of %d bit/s: want 0 or more", p.Name, p.Rate)
	}
	return nil
}

// A port is a Port that exists: its listening socket, its counters and, if a node is attached, its connection.
type port struct {
	Port
	b        *bridge
	id       int32 // of the listening socket in the epoll set
	sock     *boundSocket
	conn     *conn // nil while nothing is attached
	counters PortCounters
	copied   [4]atomic.Uint64 // rx frames and bytes, tx frames and bytes that are in no frame: see Plug.Copied
	macs     int              // addresses that the table holds for this port
	swept    int64            // when aged ones were last searched for, Unix nanoseconds

	link      Link
	shape     *shaper    // nil if link has no impairments
	congested Priorities // whose queues are above PFC.High, or were and are still above PFC.Low
	held      []hold     // the senders that fill them
}

// ready accepts a connection. A connection that is there already is replaced; the package comment says why.
func (p *port) ready(uint32) {
	fd, _, err := unix.Accept4(p.sock.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch err {
	case nil:
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
		return
	case unix.EMFILE, unix.ENFILE:
		// The connection stays in the backlog and would wake the loop again at once and for ever. Give up the
		// descriptor in reserve to accept it and hang up.
		p.b.log.Error("fabric: accept: no file descriptor left; raise the limit (ulimit -n)", "port", p.Name, "error",
			err)
		p.shed()
		return
	default:
		p.b.log.Error("fabric: accept", "port", p.Name, "error", err)
		return
	}
	// Room for one full read of a fast sender, so that it leaves with one write. The kernel caps this at
	// net.core.wmem_max without an error, and less is only slower.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer); err != nil {
		p.b.log.Warn("fabric: set send buffer", "port", p.Name, "error", err)
	}
	c := &conn{fd: fd}
	if c.id, err = p.b.watch(fd, c); err != nil {
		p.b.log.Error("fabric: accept", "port", p.Name, "error", err)
		unix.Close(fd)
		return
	}
	p.attach(c)
}

// attach connects a node, in place of one that is there.
func (p *port) attach(c *conn) {
	// The old one is usually of a QEMU that died, and whose end has not been read yet.
	if p.conn != nil {
		p.counters.Replaced++
		p.b.log.Warn("fabric: a new connection replaces the old one", "port", p.Name)
		p.conn.close()
	}
	c.port, c.queue.pool = p, &p.b.chunks
	p.conn = c
	p.counters.Connects++
	p.counters.Since = p.b.now()
	p.b.log.Info("fabric: connected", "port", p.Name)
	if p.link.Down {
		go func() {
			if err := p.b.tellDown([]string{p.Name}); err != nil {
				p.b.log.Error("fabric: set down", "port", p.Name, "error", err)
			}
		}()
	}
}

// sendBuffer is asked for each node's socket, in bytes.
const sendBuffer = 1 << 20

func (p *port) shed() {
	unix.Close(p.b.spare)
	if fd, _, err := unix.Accept4(p.sock.fd, unix.SOCK_CLOEXEC); err == nil {
		unix.Close(fd)
	}
	var err error
	if p.b.spare, err = openSpare(); err != nil {
		p.b.spare = -1
		p.b.log.Error("fabric: reopen the reserved file descriptor", "error", err)
	}
}

// A conn is the stream to one node.
type conn struct {
	port    *port
	plug    *Plug // in place of a socket, which then has neither fd nor id
	fd      int
	id      int32  // in the epoll set
	partial []byte // the first bytes of a frame whose rest has not come
	queue   queue  // what the node has not taken; while it is not empty, EPOLLOUT is asked for
	out     outbox // what goes to the node from the read in hand
	blocked bool   // EPOLLOUT is asked for

	sent       Priorities          // of the frames to the node in the read in hand
	holds      [priorities + 1]int // ports that hold this sender, by priority, and its whole link
	heldSince  int64               // on the monotonic clock
	pauseAgain int64               // when the NIC has to hear of a pause again
}

// ready moves frames: first out of the queue, then in from the node.
func (c *conn) ready(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		c.drain()
	}
	if c.stopped() {
		// The event is from before the pause. But the end of the stream is reported whatever is
		// asked for, and would be again and again: what is still in it is taken, less than the
		// node's send buffer.
		events &= unix.EPOLLHUP | unix.EPOLLERR
	}
	if events&^unix.EPOLLOUT != 0 && c.port.conn == c { // drain may have closed it
		c.receive()
	}
}

// receive reads once and forwards all frames that are then complete. The epoll set is level-triggered: what is left is
// reported again, after the other senders had their turn.
func (c *conn) receive() {
	p, b := c.port, c.port.b
	held := copy(b.buf, c.partial)
	n, err := unix.Read(c.fd, b.buf[held:b.readLimit])
	p.counters.Reads++
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err != nil && err != unix.ECONNRESET: // QEMU that dies with unread data resets the stream; that is no news
		b.log.Warn("fabric: read", "port", p.Name, "error", err)
		fallthrough
	case err != nil || n == 0:
		b.log.Info("fabric: disconnected", "port", p.Name)
		c.close()
		return
	}
	if used, whole := c.take(b.buf[:held+n]); whole {
		c.partial = append(c.partial[:0], b.buf[used:held+n]...)
	}
}

// take forwards the whole frames at the start of buf, and returns how many bytes they are. A wrong frame ends the
// connection.
func (c *conn) take(buf []byte) (used int, whole bool) {
	p := c.port
	forward := p.b.forward
	if p.link.Down {
		forward = p.b.discard
	}
	used, err := forward(p, buf)
	if err == nil {
		return used, true
	}
	var bad *frameError
	if errors.As(err, &bad) {
		p.counters.BadFrames++
	}
	p.b.log.Error("fabric: disconnect", "port", p.Name, "error", err)
	if p.conn == c {
		c.close()
	}
	return used, false
}

// close ends the connection: its queue is lost and its addresses are forgotten, as when a cable is pulled.
func (c *conn) close() {
	p := c.port
	p.counters.Drops.Disconnected += c.queue.clear() + uint64(c.out.frames)
	c.out = outbox{}
	if p.shape != nil {
		p.counters.Drops.Disconnected += p.shape.clear()
	}
	if c.held() != 0 {
		c.endPause()
		for _, o := range p.b.shaped {
			o.held = slices.DeleteFunc(o.held, func(h hold) bool { return h.sender == c })
		}
		p.b.paused = slices.DeleteFunc(p.b.paused, func(o *conn) bool { return o == c })
	}
	if c.plug != nil {
		c.plug.pull()
	} else {
		p.b.unwatch(c.id)
		unix.Close(c.fd)
	}
	p.b.table.forget(p)
	p.conn = nil
	p.counters.Since = p.b.now()
	p.release(p.congested)
}
