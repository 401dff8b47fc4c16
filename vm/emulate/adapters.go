package emulate

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
)

// A kept host has a daemon for its ConnectX adapters and GPUs, which outlives power cuts; for any other host, its owner
// emulates them. A template has only their ports, because it cannot contain their state: a clone looks for its adapters
// and GPUs after it has resumed.

// functions are a physical one per port, then the virtual ones. Function f belongs to port f modulo the number of
// ports.
func (n *NIC) functions() int { return n.Ports * (1 + n.VFs) }

// maxFunctions is the limit of a device on a PCI bus.
const maxFunctions = 8

func (p *Profile) connectX(f func(n *NIC, function int)) {
	if p == nil {
		return
	}
	for i := range p.NICs {
		if n := &p.NICs[i]; n.Model != "" {
			for j := range n.functions() {
				f(n, j)
			}
		}
	}
}

func (p *Profile) hasConnectX() bool {
	has := false
	p.connectX(func(*NIC, int) { has = true })
	return has
}

// comesLate reports whether a template lacks devices that a clone has.
func (p *Profile) comesLate() bool { return p.hasConnectX() || p.hasVRAM() }

// adapterSocket returns the socket on which QEMU reaches a function. QEMU and the emulating process derive it
// independently.
func adapterSocket(dir string, n *NIC, function int) string {
	return filepath.Join(dir, portID(n, function)+".sock")
}

const fileFirmware = ".flash"

type adapters struct {
	server *connectx.Server
	gpus   []*gpu.GPU
	end    chan struct{} // closed when they end
}

func newAdapters(dir string, p *Profile, log func(format string, args ...any)) (*adapters, error) {
	gpus, err := listenGPUs(dir, p, log)
	if err != nil {
		return nil, err
	}
	a := &adapters{server: connectx.NewServer(connectx.Options{Log: log}), gpus: gpus, end: make(chan struct{})}
	wires := make(map[string]*wire)
	var errs []error
	var firmware *connectx.Firmware
	ends := make(map[string][]*connectx.Port)
	cables := make(map[int]*connectx.Cable)
	p.connectX(func(n *NIC, function int) {
		port := function % n.Ports
		if function == 0 {
			var err error
			firmware, err = connectx.NewFirmware(filepath.Join(dir, portID(n, 0)+fileFirmware), n.Ports, n.VFs)
			errs = append(errs, err)
		}
		if function < n.Ports && n.VFs > 0 {
			cables[port] = &connectx.Cable{}
		}
		hw, err := net.ParseMAC(mac(n, function))
		if err != nil { // our own format
			panic(err)
		}
		nic := connectx.NIC{Name: portID(n, function), MAC: [6]byte(hw), Model: n.Model,
			RateBits: connectx.Rate(n.Model), Socket: adapterSocket(dir, n, function), Firmware: firmware,
			Port: port, VF: function / n.Ports}
		if n.VFs > 0 {
			nic.Cable = cables[port]
		}
		var end *wireEnd
		if port < len(n.Wires) {
			name := n.Wires[port]
			w := wires[name]
			if w == nil {
				w = &wire{at: make(map[[6]byte]*station)}
				wires[name] = w
			}
			end = w.plug(portID(n, 0))
			nic.Link, nic.Network, nic.Frames = true, name, func(frame []byte) { w.send(end, frame) }
		}
		added, err := a.server.AddNIC(nic)
		if err != nil {
			errs = append(errs, err)
			return
		}
		if end == nil {
			return
		}
		if function < n.Ports {
			ends[n.Wires[port]] = append(ends[n.Wires[port]], added)
		}
		go a.deliver(added, end.frames)
	})
	for _, of := range ends {
		if len(of) == 2 { // three or more are on a switch, whose ports stay up
			connectx.Join(of[0], of[1])
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// A wire joins two ports by a cable, more by a switch that learns addresses.
type wire struct {
	mu   sync.Mutex
	ends []*wireEnd
	at   map[[6]byte]*station
}

type wireEnd struct {
	card      string
	frames    chan []byte
	addresses int       // stations here
	swept     time.Time // last search for aged ones
}

type station struct {
	end  *wireEnd
	seen time.Time
}

// The limits of addresses are the ones of a lab's switch, see package fabric.
const (
	wireFrames    = 4096 // queued for a port; further ones are dropped
	wireAddresses = 1024 // learned of a port; frames to others are flooded
	wireAgeing    = 300 * time.Second
	wireSweep     = time.Second

	// wireHold is the time for which a port keeps an address that it has used, so that a guest cannot take another's
	// frames by one frame with its address.
	wireHold = 3 * time.Second
)

func (w *wire) plug(card string) *wireEnd {
	e := &wireEnd{card: card, frames: make(chan []byte, wireFrames)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = append(w.ends, e)
	return e
}

// send sends a frame, which is valid only during the call.
func (w *wire) send(from *wireEnd, frame []byte) {
	if len(frame) < 14 || macControl(frame) {
		return
	}
	frame = bytes.Clone(frame)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.learn([6]byte(frame[6:]), from, now)
	var to *wireEnd
	if s := w.at[[6]byte(frame)]; s != nil && now.Sub(s.seen) <= wireAgeing {
		to = s.end
	}
	for _, end := range w.ends {
		if end == from || to != nil && end != to {
			continue
		}
		select {
		case end.frames <- frame:
		default: // waiting would stall the sending guest
		}
	}
}

// macControl reports whether a frame is for the other end of a cable only, such as a pause.
func macControl(frame []byte) bool {
	at := 12
	for at+6 <= len(frame) && (frame[at] == 0x81 && frame[at+1] == 0 || frame[at] == 0x88 && frame[at+1] == 0xa8) {
		at += 4 // a VLAN
	}
	return frame[at] == 0x88 && frame[at+1] == 0x08
}

// learn records an address of a port, unless a port of another card has just used it.
func (w *wire) learn(address [6]byte, from *wireEnd, now time.Time) {
	if address[0]&1 != 0 || address == [6]byte{} { // no station's
		return
	}
	s := w.at[address]
	switch {
	case s != nil && s.end == from:
		s.seen = now
		return
	case s != nil && s.end.card != from.card && now.Sub(s.seen) < wireHold: // a bond moves addresses within its card
		return
	case from.addresses >= wireAddresses && !w.sweep(from, now):
		return
	}
	if s != nil {
		s.end.addresses--
	}
	w.at[address] = &station{from, now}
	from.addresses++
}

// sweep removes aged addresses, and reports whether there is room then.
func (w *wire) sweep(e *wireEnd, now time.Time) bool {
	if now.Sub(e.swept) < wireSweep {
		return false
	}
	e.swept = now
	for address, s := range w.at {
		if s.end == e && now.Sub(s.seen) > wireAgeing {
			delete(w.at, address)
			e.addresses--
		}
	}
	return e.addresses < wireAddresses
}

// deliver hands frames to a port. If the sender called the receiving port, a chain of replies would never end.
func (a *adapters) deliver(port *connectx.Port, frames <-chan []byte) {
	for {
		select {
		case f := <-frames:
			port.Deliver(f)
		case <-a.end:
			return
		}
	}
}

func (a *adapters) close() error {
	close(a.end)
	return errors.Join(a.server.Close(), closeGPUs(a.gpus))
}

func (h *Host) serveAdapters(ctx context.Context) (err error) {
	if h.Keep {
		conn, err := net.Dial("unix", h.path(agentsSocket))
		if err != nil {
			return startDaemon(ctx, h.Dir)
		}
		return conn.Close()
	}
	if h.Profile.comesLate() && h.adapters == nil {
		h.adapters, err = newAdapters(h.Dir, h.Profile, nil)
	}
	return err
}

// findAdapters makes a clone detect its adapters and GPUs, which its template did not have.
func (h *Host) findAdapters(ctx context.Context) error {
	return h.run(ctx, "sh", "-c", "echo 1 >/sys/bus/pci/rescan && "+
		"{ ! command -v udevadm >/dev/null || udevadm settle --timeout=120; }")
}

func (o Options) emulator(ctx context.Context) (vm.Emulator, error) {
	return image.FindQEMU(ctx, image.Options{Cache: o.Dirs.Images(), Progress: func(step string) {
		o.Progress.Begin("QEMU")
		o.Progress.Say(step)
	}}, "amd64", o.Profile.comesLate())
}
