package fabric

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Plugs lets NICs of the switch's own process into its ports, without sockets: see Config.Plugs.
type Plugs struct{ b atomic.Pointer[bridge] }

// A Plug is a NIC of this process in a port. Its frames are forwarded by the goroutine that sends them, and what it is
// to get waits in memory in place of a socket's buffer: no system call, and one copy.
type Plug struct {
	c *conn

	mu      sync.Mutex
	more    sync.Cond // out has frames, or the plug was pulled
	out, in []byte    // what waits for the NIC, and what it looks at now: whole frames with their prefixes
	full    bool      // more waits in the port's queue
	pulled  bool
}

// plugRoom is what waits for a NIC beside its port's queue, in bytes, as in a socket's buffer.
const plugRoom = 256 << 10

// Plug puts a NIC into a port, in place of what is connected there. The NIC has to obey pauses: its rate, which is not
// 0, becomes that of the port.
func (s *Plugs) Plug(port string, rate int64) (*Plug, error) {
	b := s.b.Load()
	if b == nil {
		return nil, fmt.Errorf("plug into port %q: the switch does not run", port)
	}
	p := &Plug{}
	p.more.L = &p.mu
	err := b.do(func() error {
		i := b.portIndex(port)
		if i < 0 || rate <= 0 {
			return fmt.Errorf("plug into port %q at %d bit/s: the switch has no such port, or the NIC no rate", port,
				rate)
		}
		p.c = &conn{fd: -1, plug: p}
		b.ports[i].attach(p.c)
		b.ports[i].Rate = rate
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// turn runs what a plug asks for, while the loop stands still and the plug is in its port. A panic is for the caller to
// end; the switch goes on without the frames in hand.
func (p *Plug) turn(f func()) {
	b := p.c.port.b
	b.turn.Lock()
	defer b.turn.Unlock()
	if p.c.port.conn != p.c {
		return
	}
	defer b.drop()
	f()
	if err := b.runLinks(); err != nil {
		b.log.Error("fabric: frames on impaired links stay there", "error", err)
	}
}

// drop forgets the frames in hand. Only a panic leaves some: they would be taken for a part of the next ones.
func (b *bridge) drop() {
	for _, c := range b.touched {
		c.out = outbox{}
	}
	b.touched = b.touched[:0]
}

// Send forwards whole frames, each after its length in 4 bytes, big-endian. The switch keeps no reference to them. What
// a plug sends that was pulled is lost.
func (p *Plug) Send(frames []byte) { p.turn(func() { p.c.take(frames) }) }

// Receive waits for frames, and returns them as Send takes them; they are valid until the next call. None: the plug was
// pulled. One goroutine at a time may call it.
func (p *Plug) Receive() []byte {
	p.mu.Lock()
	for len(p.out) == 0 && !p.pulled {
		p.more.Wait()
	}
	p.in, p.out = p.out, p.in[:0]
	full := p.full
	p.full = false
	p.mu.Unlock()
	if full {
		p.turn(p.c.drain)
	}
	return p.in
}

// Copied counts frames that the NIC would have sent and received, had it not had a shorter path to a NIC in another
// port: a switch that such NICs share would have forwarded them. It does not block.
func (p *Plug) Copied(txFrames, txBytes, rxFrames, rxBytes uint64) {
	c := &p.c.port.copied
	c[0].Add(txFrames)
	c[1].Add(txBytes)
	c[2].Add(rxFrames)
	c[3].Add(rxBytes)
}

// Pull takes the NIC out of its port.
func (p *Plug) Pull() { p.turn(p.c.close) }

// put is writev of a plug.
func (p *Plug) put(v []unix.Iovec) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range v {
		if p.full = len(p.out) >= plugRoom; p.full {
			break
		}
		p.out = append(p.out, unsafe.Slice(v[i].Base, v[i].Len)...)
		n += int(v[i].Len)
	}
	p.more.Signal()
	return n
}

// pull tells the NIC that nothing more comes.
func (p *Plug) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulled, p.out = true, p.out[:0]
	p.more.Signal()
}
