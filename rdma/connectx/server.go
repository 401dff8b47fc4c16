// Package connectx emulates Mellanox ConnectX adapters as vfio-user devices of QEMU (10.1 or newer), for the unmodified
// mlx5 drivers of Linux and libmlx5.
//
// Guests are not trusted: every address, length, key and number from a guest is checked, and every loop over guest data
// and every allocation for a guest is limited.
package connectx

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

// Models of adapters.
const (
	ConnectX4Lx = "connectx-4-lx"
	ConnectX5   = "connectx-5"
	ConnectX6   = "connectx-6"
	ConnectX7   = "connectx-7"
)

// Options are a server's options.
type Options struct {
	// Log writes to the lab's log; nil drops.
	Log func(format string, args ...any)
}

// Server has the adapters of one lab.
type Server struct {
	opt   Options
	start time.Time
	// direct means that messages between adapters are copied.
	direct atomic.Bool
	// mu guards ports, ids and gids. It may be taken with a port's lock held (setGID, dropState), never the other way
	// round.
	mu sync.RWMutex
	// Close replaces the slice, so a slice that was read stays valid.
	ports []*Port
	ids   int              // number of assigned ids
	gids  map[gidKey]*Port // ports by address, the first to claim it (see setGID)

	strict bool // a panic ends the program, for tests
}

// gidKey needs GID and MAC: two guests may have the same link-local GID, and a MAC may have many GIDs.
type gidKey struct {
	network string
	gid     [16]byte
	mac     [6]byte
}

// NIC describes an adapter.
type NIC struct {
	Name     string
	MAC      [6]byte
	Socket   string        // Unix socket for QEMU's vfio-user-pci
	Model    string        // default ConnectX4Lx
	RateBits int64         // bits per second; 0 is not paced, and reported as the model's rate
	Latency  time.Duration // minimum time of a message
	Link     bool          // up at the start
	Network  string        // only its ports reach each other directly
	Firmware *Firmware     // of the card, shared by its functions; nil creates one
	Port     int           // of the card, from 0, for its firmware
	// VF is a virtual function's number, from 1; 0 is the physical function. It is on the bus only if the firmware's
	// settings in force have so many.
	VF int
	// Cable is shared by a port's functions, so that they keep to its rate together. It may be nil for a physical
	// function without virtual ones.
	Cable *Cable
	// Frames sends a frame, valid only during the call. It may be called from any goroutine without a lock of the
	// server, one call at a time, and may block briefly.
	Frames func(frame []byte)
	// Batch, if set, replaces Frames; each frame is after its length in 4 bytes, big-endian.
	Batch func(frames []byte)
	// Copied, if set, gets a copied message's equivalent on the wire, with bytes as in Frames. It is called with locks
	// of the server held, and must not block.
	Copied func(tx, rx roce.Traffic)
	// Peer, if set, returns memory of another device of the guest, such as a GPU, at an address that QEMU announces
	// without a file, or nil, or an empty slice if it is withdrawn (see Port.AskPeers). It is called with locks of the
	// server held, and the memory must stay until QEMU takes the address back or the adapter is closed.
	Peer func(addr, size uint64) []byte
	// Moved, if set, gets bytes that RDMA has written to or read from Peer's memory, at an address of the guest,
	// without atomics. It is called with locks of the server held, and must not block.
	Moved func(addr, n uint64, written bool)
	// PathRate, if set, returns the rate in bits per second of the path to the device at an address, or 0 for the
	// port's. A port without a rate ignores it. It is called like Peer.
	PathRate func(addr uint64) int64
}

// Cable is the cable of a port with virtual functions.
type Cable struct {
	tx, rx roce.Line
	dark   atomic.Bool // the link is down
}

func (c *Cable) sending() *roce.Line {
	if c == nil {
		return nil
	}
	return &c.tx
}

func (c *Cable) receiving() *roce.Line {
	if c == nil {
		return nil
	}
	return &c.rx
}

// NewServer returns a server without adapters.
func NewServer(o Options) *Server {
	s := &Server{opt: o, start: time.Now(), gids: map[gidKey]*Port{}}
	s.direct.Store(true)
	return s
}

// SetDirect selects whether messages between adapters are copied (the default), or cross the wire as RoCE v2 frames.
func (s *Server) SetDirect(on bool) { s.direct.Store(on) }

func (s *Server) now() time.Duration { return time.Since(s.start) }

// AddNIC adds an adapter, whose socket listens when it returns.
func (s *Server) AddNIC(n NIC) (*Port, error) {
	m, ok := models[n.Model]
	if !ok {
		return nil, fmt.Errorf("connectx: model %q is unknown: use %s", n.Model, words.Or(Models()))
	}
	if n.RateBits < 0 || n.Latency < 0 {
		return nil, fmt.Errorf("connectx: a rate of %d bit/s, a latency of %v", n.RateBits, n.Latency)
	}
	n.Firmware = cmp.Or(n.Firmware, &Firmware{ports: 1})
	if n.VF > 0 {
		m.device = m.function
	}
	p := &Port{s: s, nic: n, model: m, link: n.Link}
	p.thaw.L = &p.mu
	p.hardReset()
	s.mu.Lock()
	s.ids++
	p.id = s.ids
	s.mu.Unlock()
	// A client may connect before Listen returns. Connected waits for the port's lock until the port is complete. As
	// everywhere, the server's lock comes after it.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish()
	v, err := vfiouser.Listen(vfiouser.Config{Path: n.Socket, BAR0: barSize, Vectors: vectors, Maps: &p.maps,
		Ask: p.ask, Peer: n.Peer, Log: p.logf}, (*function)(p))
	if err != nil {
		return nil, err
	}
	p.vfu, p.mem, p.timer = v, &v.Mem, newTimer(p)
	go p.timer.run()
	s.mu.Lock()
	s.ports = append(s.ports, p)
	s.mu.Unlock()
	return p, nil
}

// AskPeers calls NIC.Peer again, and returns when withdrawn memory is no longer in use. Messages to and from it end
// with an error.
func (p *Port) AskPeers() { p.mem.AskPeers() }

// Join connects two ports. Each has a link while the other shows light.
func Join(a, b *Port) {
	for p, far := range map[*Port]*Port{a: b, b: a} {
		p.lock()
		p.far = far
		p.light.Store(p.shines())
		p.unlock()
	}
	a.seeFar()
	b.seeFar()
}

// Close removes all adapters.
func (s *Server) Close() error {
	s.mu.RLock()
	ports := append([]*Port(nil), s.ports...)
	s.mu.RUnlock()
	var err error
	for _, p := range ports {
		if e := p.Close(); err == nil {
			err = e
		}
	}
	return err
}

// lookup returns the port at a path's destination, or nil. The caller checks its cable under that port's lock.
func (s *Server) lookup(network string, to *roce.Path) *Port {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gids[gidKey{network, to.Dst, to.DstMAC}]
}

// A panic in the service of one adapter is a bug, which a guest may have found. It must not affect other nodes: the
// adapter fails as with FatalError, the stack goes to the log, and the driver's state, which may be inconsistent, is
// dropped.

// guard recovers from f's panic. The port's lock is held.
func (p *Port) guard(f func()) {
	defer func() {
		if v := recover(); v != nil {
			p.crash(v)
		}
	}()
	f()
}

// outside calls f, the switch, with nothing locked, and recovers.
func (p *Port) outside(f func()) {
	defer func() {
		if v := recover(); v != nil {
			p.acquire()
			defer p.release()
			p.crash(v)
		}
	}()
	f()
}

func (p *Port) pollNow() { p.poll(p.s.now()) }

// crash fails an adapter. It is called while a panic with v unwinds, so the stack is its origin's. The driver keeps its
// command queue and the state of the interface, and finds the reason in the health buffer.
func (p *Port) crash(v any) {
	if p.s.strict {
		panic(v)
	}
	crashed := fmt.Sprint(v)
	p.logf("panic: %s", crashed)
	for line := range strings.Lines(string(debug.Stack())) {
		p.logf("%s", strings.TrimSpace(line))
	}
	queue, high, mode := p.CmdQ, p.CmdQHigh, p.NICMode
	p.dropState()
	p.CmdQ, p.CmdQHigh, p.NICMode = queue, high, mode
	p.fault, p.crashed = FatalError, crashed
	p.faults++
	p.cut(true)
	p.publish()
}
