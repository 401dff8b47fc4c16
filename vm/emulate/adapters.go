package emulate

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"

	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
)

// The ConnectX adapters of a host are emulated beside its QEMU: by the daemon of a host that is kept, which outlives
// power cuts, else by the process that owns the host. Templates have none, but the ports that they are behind: their
// state is in no template, and a clone looks for them when it has resumed.

// functions is how many PCI functions a ConnectX has: a physical one for each port, and then their virtual ones in
// turns. Function f belongs to port f modulo the number of ports.
func (n *NIC) functions() int { return n.Ports * (1 + n.VFs) }

// maxFunctions is how many functions a device on a PCI bus has.
const maxFunctions = 8

// connectX calls f for each function of a ConnectX.
func (p *Profile) connectX(f func(n *NIC, function int)) {
	if p == nil { // a state of which only the head is there
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

// hasConnectX says whether the machine has a ConnectX, and needs a QEMU with vfio-user.
func (p *Profile) hasConnectX() bool {
	has := false
	p.connectX(func(*NIC, int) { has = true })
	return has
}

// adapterSocket is where QEMU connects to a function of a ConnectX. QEMU and the process that
// emulates the adapter agree on it without asking each other.
func adapterSocket(dir string, n *NIC, function int) string {
	return filepath.Join(dir, portID(n, function)+".sock")
}

// fileFirmware ends the name of the file with the settings in the firmware of a ConnectX.
const fileFirmware = ".flash"

// adapters are the ConnectX adapters of a host, with the wires between them.
type adapters struct {
	server *connectx.Server
	end    chan struct{} // closed when they end
}

// newAdapters emulates the adapters of a profile, on sockets in the directory of the host.
func newAdapters(dir string, p *Profile, log func(format string, args ...any)) (*adapters, error) {
	a := &adapters{server: connectx.NewServer(connectx.Options{Log: log}), end: make(chan struct{})}
	wires := make(map[string]*wire)
	var errs []error
	var firmware *connectx.Firmware // of the card whose functions are added
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
		if err != nil { // its form is ours
			panic(err)
		}
		nic := connectx.NIC{Name: portID(n, function), MAC: [6]byte(hw), Model: n.Model,
			RateBits: connectx.Rate(n.Model), Socket: adapterSocket(dir, n, function), Firmware: firmware,
			Port: port, VF: function / n.Ports}
		if n.VFs > 0 {
			nic.Cable = cables[port]
		}
		var frames chan []byte
		if port < len(n.Wires) {
			name := n.Wires[port]
			w := wires[name]
			if w == nil {
				w = &wire{at: make(map[[6]byte]chan<- []byte)}
				wires[name] = w
			}
			frames = w.plug()
			nic.Link, nic.Network, nic.Frames = true, name, func(frame []byte) { w.send(frames, frame) }
		}
		added, err := a.server.AddNIC(nic)
		if err != nil {
			errs = append(errs, err)
			return
		}
		if frames != nil && function < n.Ports {
			ends[n.Wires[port]] = append(ends[n.Wires[port]], added)
		}
		go a.deliver(added, frames)
	})
	for _, of := range ends {
		if len(of) == 2 { // more are at a switch, whose ports are up whatever the others do
			connectx.Join(of[0], of[1])
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// A wire joins the ports that are in it: two by a cable, more at a switch, which learns where addresses are.
type wire struct {
	mu   sync.Mutex
	ends []chan<- []byte
	at   map[[6]byte]chan<- []byte // where an address was last seen
}

// What a wire holds at most.
const (
	wireFrames    = 4096 // frames on their way to a port; more are lost
	wireAddresses = 4096 // addresses that it learns; frames to others go everywhere
)

// plug adds a port, and returns the frames that reach it.
func (w *wire) plug() chan []byte {
	frames := make(chan []byte, wireFrames)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = append(w.ends, frames)
	return frames
}

// send sends a frame, which is valid during the call, from the port with these frames of its own.
func (w *wire) send(from chan<- []byte, frame []byte) {
	if len(frame) < 12 {
		return
	}
	frame = bytes.Clone(frame)
	w.mu.Lock()
	defer w.mu.Unlock()
	source := [6]byte(frame[6:])
	if _, known := w.at[source]; source[0]&1 == 0 && (known || len(w.at) < wireAddresses) { // no group
		w.at[source] = from
	}
	to := w.at[[6]byte(frame)]
	for _, end := range w.ends {
		if end == from || to != nil && end != to {
			continue
		}
		select {
		case end <- frame:
		default: // to wait would hold up the guest that sends
		}
	}
}

// deliver hands frames to a port until the adapters end. It is not the sender who does: a frame that is answered by
// another would never come to an end.
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
	return a.server.Close()
}

// serveAdapters sees to it that the adapters of the host are emulated, and that a daemon is there if the host is kept.
func (h *Host) serveAdapters(ctx context.Context) (err error) {
	if h.Keep {
		conn, err := net.Dial("unix", h.path(agentsSocket))
		if err != nil {
			return startDaemon(ctx, h.Dir)
		}
		return conn.Close()
	}
	if h.Profile.hasConnectX() && h.adapters == nil {
		h.adapters, err = newAdapters(h.Dir, h.Profile, nil)
	}
	return err
}

// findAdapters lets a clone find its adapters, which its template did not have, and load their drivers.
func (h *Host) findAdapters(ctx context.Context) error {
	return h.run(ctx, "sh", "-c", "echo 1 >/sys/bus/pci/rescan && "+
		"{ ! command -v udevadm >/dev/null || udevadm settle --timeout=120; }")
}

// emulator returns the QEMU for a profile.
func (o Options) emulator(ctx context.Context) (vm.Emulator, error) {
	return image.FindQEMU(ctx, image.Options{Cache: o.Dirs.Images(), Progress: func(step string) {
		o.Progress.Begin("QEMU")
		o.Progress.Say(step)
	}}, "amd64", o.Profile.hasConnectX())
}
