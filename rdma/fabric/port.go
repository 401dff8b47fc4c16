package fabric

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// AllPorts is a name for all ports, which no port may have.
const AllPorts = "all"

// A Port is an attachment point for a NIC.
type Port struct {
	Name string `json:"name"` // unique in the switch
	Path string `json:"path"` // of the socket, absolute, at most 107 bytes
	// Rate is in bits a second, for a NIC that obeys pauses. 0 means that it does not, and PFC stops reading from it.
	Rate int64 `json:"rate_bits_per_second,omitzero"`
	// MAC is the NIC's address, learned only on ports of its machine, Node, as one of its NICs may stand in for
	// another. "" protects nothing.
	MAC  string `json:"mac,omitempty"`
	Node string `json:"node,omitempty"`
	Leaf int    `json:"leaf,omitzero"` // switch of the port, if there are several
}

func (p Port) validate() error {
	switch {
	case p.Name == "":
		return fmt.Errorf("add port at %q: the name is empty", p.Path)
	case p.Name == AllPorts:
		return fmt.Errorf("add port %q: this name stands for all ports: choose another", p.Name)
	case !filepath.IsAbs(p.Path):
		// The daemon's working directory differs from its client's.
		return fmt.Errorf("add port %q: path %q is not absolute", p.Name, p.Path)
	case p.Rate < 0:
		return fmt.Errorf("add port %q: rate of %d bit/s: want 0 or more", p.Name, p.Rate)
	}
	if _, err := p.address(); err != nil {
		return fmt.Errorf("add port %q: %v", p.Name, err)
	}
	return nil
}

// address returns 0 for no MAC.
func (p Port) address() (mac, error) {
	if p.MAC == "" {
		return 0, nil
	}
	hw, err := net.ParseMAC(p.MAC)
	if err == nil && len(hw) != 6 {
		err = fmt.Errorf("address %s: want 6 bytes", p.MAC)
	}
	if err != nil {
		return 0, err
	}
	return mac(binary.BigEndian.Uint64(append([]byte{0, 0}, hw...))), nil
}

type port struct {
	Port
	b        *bridge
	id       int32 // in the epoll set
	sock     *boundSocket
	conn     *conn // nil if nothing is attached
	counters PortCounters
	copied   [4]atomic.Uint64 // rx frames and bytes, tx frames and bytes of Plug.Copied
	macs     int              // in the table
	swept    int64            // last search for aged addresses, Unix nanoseconds

	sw  int   // leaves first, then spines; 0 if there is one switch
	far *port // other end of a link between switches
	// in has frames that have crossed this link, with prefixes. spare is an empty list for the next ones.
	in, spare []byte

	link      Link
	shape     *shaper    // nil without impairments
	congested Priorities // queues above PFC.High, or not yet down to PFC.Low
	held      []hold     // senders that fill these queues
}

// ready accepts a connection that replaces an earlier one.
func (p *port) ready(uint32) {
	fd, _, err := unix.Accept4(p.sock.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	switch err {
	case nil:
	case unix.EAGAIN, unix.EINTR, unix.ECONNABORTED:
		return
	case unix.EMFILE, unix.ENFILE:
		// The connection would wake the loop again and again. Use the spare descriptor to accept and close it.
		p.b.log.Error("fabric: accept: no file descriptor left; raise the limit (ulimit -n)", "port", p.Name, "error",
			err)
		p.shed()
		return
	default:
		p.b.log.Error("fabric: accept", "port", p.Name, "error", err)
		return
	}
	// Room for one full read, so that it leaves with one write. The kernel limits this to net.core.wmem_max without an
	// error, and less is only slower.
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

func (p *port) attach(c *conn) {
	// Usually of a QEMU that died; its end of stream has not been read yet.
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

// sendBuffer is requested for each node's socket, in bytes.
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

type conn struct {
	port    *port
	plug    *Plug // instead of a socket, without fd and id
	fd      int
	id      int32  // in the epoll set
	partial []byte // beginning of an incomplete frame
	queue   queue  // frames not taken by the node; EPOLLOUT is requested unless it is empty
	out     outbox // frames for the node in the current read
	blocked bool   // EPOLLOUT is requested

	sent       Priorities          // of frames for the node in the current read
	holds      [priorities + 1]int // ports that hold this sender, by priority, and its whole link
	heldSince  int64               // on the monotonic clock
	pauseAgain int64               // when to repeat the NIC's pause
}

func (c *conn) ready(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		c.drain()
	}
	if c.stopped() {
		// The event is from before the pause. But the end of the stream would be reported again and again. So take the
		// rest, less than the node's send buffer.
		events &= unix.EPOLLHUP | unix.EPOLLERR
	}
	if events&^unix.EPOLLOUT != 0 && c.port.conn == c { // drain may have closed it
		c.receive()
	}
}

// receive reads once and forwards whole frames. epoll is level-triggered, so remaining data are reported again after
// the other senders' turn.
func (c *conn) receive() {
	p, b := c.port, c.port.b
	held := copy(b.buf, c.partial)
	n, err := unix.Read(c.fd, b.buf[held:b.readLimit])
	p.counters.Reads++
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err != nil && err != unix.ECONNRESET: // normal for a QEMU that dies with unread data
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

// take forwards whole frames and returns their size. A wrong frame ends the connection.
func (c *conn) take(buf []byte) (used int, whole bool) {
	p := c.port
	forward := p.b.forward
	if p.link.Down {
		forward = p.b.discard
	}
	used, err := forward(p, buf)
	p.b.hop()
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

// close ends the connection. Its queue is lost and its addresses are forgotten, like those of an unplugged cable.
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
