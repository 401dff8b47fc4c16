// Package connectx emulates Mellanox ConnectX-4 Lx and ConnectX-5 adapters as vfio-user devices of
// QEMU (10.1 or newer), which the unmodified mlx5 drivers of Linux and libmlx5 drive. One Server
// holds all adapters of a lab.
package connectx

import (
	"errors"
	"sync"
	"time"
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
	mu    sync.Mutex
	ports []*Port
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
	// Frames takes each Ethernet frame that the port sends. The frame is the callee's. It is called from any goroutine,
	// with no lock of the server held, and may block for a moment.
	Frames func(frame []byte)
}

// Port is an adapter with its one port.
type Port struct{ nic NIC }

// NewServer returns a server without adapters.
func NewServer(o Options) *Server { return &Server{opt: o} }

// AddNIC adds an adapter, and listens on its socket. QEMU can connect when it returns.
func (s *Server) AddNIC(n NIC) (*Port, error) {
	p := &Port{nic: n}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports = append(s.ports, p)
	return p, errors.New("connectx: not yet")
}

// Close removes all adapters.
func (s *Server) Close() error { return nil }

// Deliver hands a frame from the wire to the port. The port keeps no reference to it.
func (p *Port) Deliver(frame []byte) {}

// SetLink plugs the cable in or pulls it.
func (p *Port) SetLink(up bool) {}

// Close removes the adapter: its guest then reads all ones.
func (p *Port) Close() error { return nil }

// Save returns the state of the adapter, without guest memory. The guest must be stopped.
func (p *Port) Save() ([]byte, error) { return nil, errors.New("connectx: not yet") }

// Restore sets the state that Save returned. The adapter may have another MAC and name than the saved one: see
// NIC.MAC. Call it before QEMU connects, or while the guest is stopped; the reset that QEMU sends when it connects
// does not undo it.
func (p *Port) Restore(state []byte) error { return errors.New("connectx: not yet") }
