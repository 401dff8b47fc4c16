// Package connectx emulates Mellanox ConnectX-4 Lx and ConnectX-5 adapters as vfio-user devices of
// QEMU (10.1 or newer), which the unmodified mlx5 drivers of Linux and libmlx5 drive. One Server
// holds all adapters of a lab.
//
// A guest is not trusted: each address, length, key and number that it writes is checked, each loop over what it wrote
// has a bound, and what it may allocate here has one too.
package connectx

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

// Models of adapters.
const (
	ConnectX4Lx = "connectx-4-lx"
	ConnectX5   = "connectx-5"
)

// Options of a server.
type Options struct {
	// Log takes messages for the lab's log; nil drops them.
	Log func(format string, args ...any)
}

// Server emulates the adapters of one lab.
type Server struct {
	opt   Options
	start time.Time
	// direct says that messages between two adapters of the server are copied, without frames on the wire.
	direct atomic.Bool
	// maps is held for reading while guest memory is in use, and for writing while a table of it changes. It is one
	// lock for all adapters, as a message has two of them: two read locks could wait for each other's writers. Package
	// vfiouser takes it for writing, with no other lock held.
	maps sync.RWMutex

	// mu guards ports, ids and gids. It is taken while a port's lock is held (setGID, dropState): the order is the
	// port's lock first.
	mu sync.RWMutex
	// A slice that was read stays valid: Close makes a new one.
	ports []*Port
	ids   int              // given to ports so far
	gids  map[gidKey]*Port // the port that has an address was the first to claim it: see setGID

	timer  *timer
	strict bool // a panic ends the program, as tests want it
}

// gidKey finds the port of an address on a network. Both GID and MAC are needed: two guests may have the same
// link-local GID, and a MAC may have many GIDs.
type gidKey struct {
	network string
	gid     [16]byte
	mac     [6]byte
}

// NIC describes an adapter to add.
type NIC struct {
	Name     string
	MAC      [6]byte
	Socket   string        // path of the Unix socket to which QEMU's vfio-user-pci connects
	Model    string        // ConnectX4Lx, if empty
	RateBits int64         // bits per second of the port: 25e9 or 100e9; 0 is unpaced, and reported as 25 Gb/s
	Latency  time.Duration // floor of the time that a message takes to the other port
	Link     bool          // whether the link is up at the start
	Network  string        // what the port is plugged into: only ports of one network reach each other directly
	Firmware *Firmware     // of the card, shared by its functions; nil makes one for the adapter alone
	Port     int           // of the card, from 0, for the settings of its firmware
	// VF is the number of a virtual function among those of its port, from 1; 0 is the physical function. A virtual one
	// is on the bus only while the firmware's settings in force have so many.
	VF int
	// Cable is what a port's functions send and receive by, together at its rate; nil: the physical one has it alone.
	Cable *Cable
	// Frames takes each Ethernet frame that the port sends. The frame is valid during the call. It is called from any
	// goroutine, with no lock of the server held, for one frame after the other, and may block for a moment.
	Frames func(frame []byte)
	// Batch, if not nil, takes them in place of Frames, many at once: each after its length in 4 bytes, big-endian.
	Batch func(frames []byte)
	// Copied, if not nil, is told about each message that was copied directly what it would have been on the wire:
	// frames sent and received, with bytes as in Frames. It is called with locks of the server held, and must not
	// block.
	Copied func(tx, rx roce.Traffic)
}

// Cable is the cable of a port with virtual functions.
type Cable struct {
	tx, rx roce.Line
	dark   atomic.Bool // the link of the port is down
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
	s.timer = newTimer(s)
	return s
}

// SetDirect says whether messages between two adapters of the server are copied from memory to memory (true, as at the
// start), or cross the wire as RoCE v2 frames.
func (s *Server) SetDirect(on bool) { s.direct.Store(on) }

func (s *Server) now() time.Duration { return time.Since(s.start) }

// AddNIC adds an adapter, and listens on its socket. QEMU can connect when it returns.
func (s *Server) AddNIC(n NIC) (*Port, error) {
	m, ok := models[n.Model]
	if !ok {
		return nil, fmt.Errorf("connectx: model %q is unknown: use %s or %s", n.Model, ConnectX4Lx, ConnectX5)
	}
	if n.RateBits < 0 || n.Latency < 0 {
		return nil, fmt.Errorf("connectx: a rate of %d bit/s, a latency of %v", n.RateBits, n.Latency)
	}
	n.Firmware = cmp.Or(n.Firmware, &Firmware{ports: 1})
	if n.VF > 0 {
		m.device++ // in the table of mlx5_core each physical function's id is followed by that of its virtual ones
	}
	p := &Port{s: s, nic: n, model: m, link: n.Link}
	p.hardReset()
	s.mu.Lock()
	s.ids++
	p.id = s.ids
	s.mu.Unlock()
	// A client may connect before Listen returns: Connected waits for the port's lock until the port is complete. The
	// server's lock is taken within it, as everywhere.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish()
	v, err := vfiouser.Listen(vfiouser.Config{Path: n.Socket, BAR0: barSize, Vectors: vectors, Maps: &s.maps,
		Log: p.logf}, (*function)(p))
	if err != nil {
		return nil, err
	}
	p.vfu, p.mem = v, &v.Mem
	s.mu.Lock()
	s.ports = append(s.ports, p)
	s.mu.Unlock()
	return p, nil
}

// Join joins two ports back to back: each has a link while the other one shows light.
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
	s.timer.close()
	return err
}

// lookup returns the port to which the wire would take packets with p's destination, or nil. The caller checks under
// that port's lock whether its cable is plugged in.
func (s *Server) lookup(network string, to *roce.Path) *Port {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gids[gidKey{network, to.Dst, to.DstMAC}]
}

// A panic in the service of one adapter is an error of this program, which a guest may have found.
// The adapters of the other nodes must not end with it: the adapter fails as with FatalError, with
// the stack in the log, and what its driver has set up is dropped, since nobody knows what of it is
// whole.

// guard calls f and ends its panic. The port's lock is held.
func (p *Port) guard(f func()) {
	defer func() {
		if v := recover(); v != nil {
			p.crash(v)
		}
	}()
	f()
}

// outside calls f, which leads out of the adapter, with nothing locked, and ends its panic: the cable is
// code of the lab's switch, whose frames are the guests' own.
func (p *Port) outside(f func()) {
	defer func() {
		if v := recover(); v != nil {
			p.s.maps.RLock()
			defer p.s.maps.RUnlock()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.crash(v)
		}
	}()
	f()
}

// pollNow is poll at this moment.
func (p *Port) pollNow() { p.poll(p.s.now()) }

// crash makes an adapter fail whose service has panicked with v. It is called while the panic ends,
// so the stack is that of where it began. The driver finds its command queue and the state of the
// interface as they were, and the reason in the health buffer.
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
