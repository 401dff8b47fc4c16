package emulated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/serve"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/qapi"
	"github.com/rackless/rackless/vm/qemu"
)

// A lab's daemon emulates all its ConnectX adapters in one server, so that a write by one adapter into another's memory
// is a copy. Their Ethernet frames pass the switch.

// Unpaced is an environment variable of rackless up. If set, the adapters of a new lab ignore the rate of their ports,
// to measure the emulation, and the lab's bench refuses the figures as above the wire.
const Unpaced = "RACKLESS_UNPACED"

func adapterSocket(labDir, node string, nic int) string {
	return filepath.Join(labDir, "x-"+rack.PortName(node, nic)+".sock")
}

type adapters struct {
	dir   string
	log   *slog.Logger
	plugs *fabric.Plugs
	gpus  gpuSet

	mu    sync.Mutex
	off   map[string]bool // set down by the switch
	there map[string]*adapter

	direct sync.Mutex       // guards the rest; the switch waits for it, so its holder must not wait for the switch
	server *connectx.Server // nil before the first adapter
	seen   bool             // RDMA must pass as frames
}

type adapter struct {
	model lab.NICModel
	mac   string
	leaf  int // of its port, which is a new one at another leaf
	*serve.Card
	moved *meter
}

// sync makes the adapters match a lab. The switch must have its ports.
func (a *adapters) sync(l *lab.Lab) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted := make(map[string]bool)
	errs := a.syncGPUs(l)
	for _, n := range l.Nodes {
		for i, nic := range n.NICs {
			if !n.ConnectX() {
				continue
			}
			name := rack.PortName(n.Name, i)
			wanted[name] = true
			if have := a.there[name]; have != nil {
				if have.model == n.NIC && have.mac == nic.MAC && have.leaf == leafOf(n) {
					continue
				}
				errs = append(errs, a.remove(name))
			}
			if err := a.add(n, i); err != nil {
				errs = append(errs, fmt.Errorf("NIC %s: %w", name, err))
			}
		}
	}
	for name := range a.there {
		if !wanted[name] {
			errs = append(errs, a.remove(name))
		}
	}
	return errors.Join(errs...)
}

// syncGPUs first removes the adapters of nodes that get other GPUs.
func (a *adapters) syncGPUs(l *lab.Lab) (errs []error) {
	changed := a.gpus.changed(a.dir, l)
	for _, node := range changed {
		for i := 0; ; i++ {
			name := rack.PortName(node, i)
			if a.there[name] == nil {
				break
			}
			errs = append(errs, a.remove(name))
		}
		errs = append(errs, a.gpus.remove(node))
	}
	for _, n := range l.Nodes {
		if gpus := gpusOf(a.dir, n); len(gpus) > 0 && slices.Contains(changed, n.Name) {
			reach := func() { a.askPeers(n.Name) }
			errs = append(errs, a.gpus.add(n.Name, gpus, reach, func(format string, args ...any) {
				a.log.Info("gpu: " + fmt.Sprintf(format, args...))
			}))
		}
	}
	return errs
}

func (a *adapters) add(n lab.Node, nic int) error {
	name, model, mac := rack.PortName(n.Name, nic), n.NIC, n.NICs[nic].MAC
	hw, err := net.ParseMAC(mac)
	if err != nil || len(hw) != 6 {
		return fmt.Errorf("MAC %q: %v", mac, err)
	}
	if a.there == nil {
		a.start()
	}
	rate := connectx.Rate(string(model))
	if os.Getenv(Unpaced) != "" {
		rate = 0
	}
	var pathRate func(addr uint64) int64
	if rates := pathRates(n, nic); rates != nil {
		pathRate = func(addr uint64) int64 { return a.gpus.rate(n.Name, addr, rates) }
	}
	moved := &meter{}
	card, err := serve.Plug(a.server, a.plugs, connectx.NIC{Name: name, MAC: [6]byte(hw), Model: string(model),
		Socket: adapterSocket(a.dir, n.Name, nic), RateBits: rate, Link: !a.off[name], PathRate: pathRate,
		Peer:  func(addr, size uint64) []byte { return a.gpus.vram(n.Name, addr, size) },
		Moved: func(addr, k uint64, written bool) { a.gpus.count(n.Name, moved, addr, k, written) }})
	if err != nil {
		return err
	}
	a.there[name] = &adapter{model: model, mac: mac, leaf: leafOf(n), Card: card, moved: moved}
	serve.Threads(len(a.there))
	return nil
}

// start may follow setDirect.
func (a *adapters) start() {
	a.direct.Lock()
	defer a.direct.Unlock()
	a.server = connectx.NewServer(connectx.Options{Log: func(format string, args ...any) {
		a.log.Info("connectx: " + fmt.Sprintf(format, args...))
	}})
	a.server.SetDirect(!a.seen)
	a.there = make(map[string]*adapter)
	serve.Raise()
}

// restore needs a stopped guest.
func (a *adapters) restore(node, template string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 0; ; i++ {
		have := a.there[rack.PortName(node, i)]
		if have == nil && i == 0 {
			return fmt.Errorf("node %s has no ConnectX", node)
		}
		if have == nil {
			return a.gpus.restore(node, template)
		}
		state, err := os.ReadFile(filepath.Join(template, qemu.AdapterState(i)))
		if err == nil {
			err = have.Port.Restore(state)
		}
		if err != nil {
			return err
		}
	}
}

// setDirect sets whether RDMA is copied from memory to memory. If a link is impaired or captured, it is off, and RDMA
// packets pass the switch.
func (a *adapters) setDirect(on bool) {
	a.direct.Lock()
	defer a.direct.Unlock()
	a.seen = !on
	if a.server != nil {
		a.server.SetDirect(on)
	}
}

func (a *adapters) remove(name string) error {
	have := a.there[name]
	delete(a.there, name)
	return have.Close()
}

func (a *adapters) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for name := range a.there {
		errs = append(errs, a.remove(name))
	}
	if a.server != nil {
		errs = append(errs, a.server.Close())
	}
	errs = append(errs, a.gpus.close())
	return errors.Join(errs...)
}

// setDown sets the carrier of the NIC at a port: an adapter here, or QEMU's own NIC by QMP. A node that does not run
// gets it when its NIC connects.
func (a *adapters) setDown(port string, down bool) error {
	a.mu.Lock()
	a.off[port] = down
	have := a.there[port]
	a.mu.Unlock()
	if have != nil {
		have.Port.SetLink(!down)
		return nil
	}
	r, err := rack.Open(rack.Dirs{Run: filepath.Dir(a.dir)}, filepath.Base(a.dir))
	if err != nil {
		return err
	}
	for _, n := range r.State.Lab.Nodes {
		for i := range n.NICs {
			if rack.PortName(n.Name, i) == port && !n.ConnectX() {
				err := setCarrier(filepath.Join(a.dir, n.Name, vm.SocketQMP), fmt.Sprintf("n%d", i), !down)
				if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
					return nil // not running
				}
				return err
			}
		}
	}
	return nil
}

// carrierLimit is for a QEMU that talks to another client, or loads its template's state, in which every NIC has a
// carrier.
const carrierLimit = 30 * time.Second

var errIncoming = errors.New("it still takes the state of its template")

func setCarrier(socket, netdev string, up bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), carrierLimit)
	defer cancel()
	for {
		err := tryCarrier(ctx, socket, netdev, up)
		if !errors.Is(err, errIncoming) || wait.For(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

func tryCarrier(ctx context.Context, socket, netdev string, up bool) error {
	q, err := qapi.DialQMP(ctx, socket)
	if err != nil {
		return err
	}
	defer q.Close()
	var st struct {
		Status string `json:"status"`
	}
	if err := q.Call(ctx, "query-status", nil, &st); err != nil {
		return err
	}
	if st.Status == "inmigrate" {
		return fmt.Errorf("%s: %w", socket, errIncoming)
	}
	return q.Call(ctx, "set_link", map[string]any{"name": netdev, "up": up}, nil)
}
