package fabric

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Plugs connects NICs of this process without sockets (Config.Plugs).
type Plugs struct{ b atomic.Pointer[bridge] }

// A Plug is a NIC of this process. The sending goroutine forwards its frames, and frames for it wait in memory: no
// system call and one copy.
type Plug struct {
	c *conn

	mu      sync.Mutex
	more    sync.Cond // out has frames, or the plug was pulled
	out, in []byte    // waiting for the NIC, and returned by Receive, with prefixes
	full    bool      // more wait in the port's queue
	pulled  bool
}

// plugRoom is for frames beyond the port's queue, in bytes, like a socket's buffer.
const plugRoom = 256 << 10

// Plug connects a NIC, replacing an earlier connection. The NIC must obey pauses. Its rate, not 0, becomes the port's.
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

// turn runs f with the loop stopped, if the plug is still in its port. The caller must recover from a panic; the switch
// then continues without the current frames.
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

// drop discards a panic's frames, which would mix with the next ones.
func (b *bridge) drop() {
	for _, c := range b.touched {
		c.out = outbox{}
	}
	b.touched = b.touched[:0]
}

// Send forwards whole frames, each after its length in 4 bytes, big-endian, and keeps no reference. Frames of a pulled
// plug are lost.
func (p *Plug) Send(frames []byte) { p.turn(func() { p.c.take(frames) }) }

// Receive waits for frames as in Send, or returns nothing if the plug was pulled. They are valid until the next call.
// Calls must not be concurrent.
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

// Copied counts frames that took a shorter path to a NIC in another port. It does not block.
func (p *Plug) Copied(txFrames, txBytes, rxFrames, rxBytes uint64) {
	c := &p.c.port.copied
	c[0].Add(txFrames)
	c[1].Add(txBytes)
	c[2].Add(rxFrames)
	c[3].Add(rxBytes)
}

// Pull removes the NIC from its port.
func (p *Plug) Pull() { p.turn(p.c.close) }

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

func (p *Plug) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulled, p.out = true, p.out[:0]
	p.more.Signal()
}
