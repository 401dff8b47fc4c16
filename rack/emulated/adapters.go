package emulated

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/qapi"
	"github.com/rackless/rackless/vm/qemu"
)

// The daemon of a lab also emulates its ConnectX adapters: one server has all of them, so that what one adapter writes
// into the memory of another is a copy. Their Ethernet frames pass the switch as those of every NIC.

// Unpaced is an environment variable of rackless up. If it is set, the adapters of a new lab do not keep to the rate of
// their ports, to measure what emulates them. What such a lab's bench says is above the wire, and so refused.
const Unpaced = "RACKLESS_UNPACED"

// adapterSocket is where the QEMU of a node connects to an adapter.
func adapterSocket(labDir, node string, nic int) string {
	return filepath.Join(labDir, "x-"+rack.PortName(node, nic)+".sock")
}

// adapters are the ConnectX adapters of a lab.
type adapters struct {
	dir   string
	log   *slog.Logger
	plugs *fabric.Plugs // of the lab's switch

	mu    sync.Mutex
	off   map[string]bool // ports that the switch has set down
	there map[string]*adapter

	direct sync.Mutex       // guards the rest; the switch waits for it, so nobody who holds it waits for the switch
	server *connectx.Server // nil while there has been none
	seen   bool             // RDMA must pass the switch as frames
}

// An adapter is one that is emulated, and its cable to the switch.
type adapter struct {
	model lab.NICModel
	mac   string
	port  *connectx.Port
	plug  *fabric.Plug
}

// sync makes the adapters those of a lab. The switch must have the ports of the lab.
func (a *adapters) sync(l *lab.Lab) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted := make(map[string]bool)
	var errs []error
	for _, n := range l.Nodes {
		for i, nic := range n.NICs {
			if !n.ConnectX() {
				continue
			}
			name := rack.PortName(n.Name, i)
			wanted[name] = true
			if have := a.there[name]; have != nil {
				// Another model or address is another card.
				if have.model == n.NIC && have.mac == nic.MAC {
					continue
				}
				errs = append(errs, a.remove(name))
			}
			if err := a.add(name, n.NIC, nic.MAC, adapterSocket(a.dir, n.Name, i)); err != nil {
				errs = append(errs, fmt.Errorf("adapter %s: %w", name, err))
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

// add plugs a new adapter into its port of the switch. The plug is there before the adapter, whose frames it takes from
// the first one on.
func (a *adapters) add(name string, model lab.NICModel, mac, socket string) error {
	hw, err := net.ParseMAC(mac)
	if err != nil || len(hw) != 6 {
		return fmt.Errorf("MAC %q: %v", mac, err)
	}
	if a.there == nil {
		a.start()
	}
	rate := connectx.Rate(string(model))
	plug, err := a.plugs.Plug(name, rate)
	if err != nil {
		return err
	}
	if os.Getenv(Unpaced) != "" {
		rate = 0
	}
	port, err := a.server.AddNIC(connectx.NIC{Name: name, MAC: [6]byte(hw), Socket: socket, Model: string(model),
		RateBits: rate, Link: !a.off[name], Batch: plug.Send,
		Copied: func(tx, rx roce.Traffic) { plug.Copied(tx.Packets, tx.Bytes, rx.Packets, rx.Bytes) }})
	if err != nil {
		plug.Pull()
		return err
	}
	a.there[name] = &adapter{model: model, mac: mac, port: port, plug: plug}
	// Each adapter has a thread for its guest, and all have one for their timer. A thread that comes back from a system
	// call must not wait for another to give up its share of the Go scheduler, which may take 10 ms.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), runtime.NumCPU()+1+len(a.there)))
	go receive(port, plug)
	return nil
}

// start makes the server. setDirect may have been called before.
func (a *adapters) start() {
	a.direct.Lock()
	defer a.direct.Unlock()
	a.server = connectx.NewServer(connectx.Options{Log: func(format string, args ...any) {
		a.log.Info("connectx: " + fmt.Sprintf(format, args...))
	}})
	a.server.SetDirect(!a.seen)
	a.there = make(map[string]*adapter)
	raise()
}

// restore gives the adapters of a node, whose guest is stopped, the states of those of its template.
func (a *adapters) restore(node, template string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := 0; ; i++ {
		have := a.there[rack.PortName(node, i)]
		if have == nil && i == 0 {
			return fmt.Errorf("node %s has no adapter", node)
		}
		if have == nil {
			return nil
		}
		state, err := os.ReadFile(filepath.Join(template, qemu.AdapterState(i)))
		if err == nil {
			err = have.port.Restore(state)
		}
		if err != nil {
			return err
		}
	}
}

// raise gives all threads of the daemon the priority of those that guests wait for, where it may:
// the Go scheduler hands over from one to another, and one that comes late to its turn delays all.
// Threads to come inherit it.
func raise() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, vfiouser.Nice)
		}
	}
}

// setDirect says whether RDMA between adapters is copied from memory to memory. Where a link of the switch is impaired
// or somebody captures it is not, and its packets pass the switch.
func (a *adapters) setDirect(on bool) {
	a.direct.Lock()
	defer a.direct.Unlock()
	a.seen = !on
	if a.server != nil {
		a.server.SetDirect(on)
	}
}

// receive hands the frames of a plug to its adapter until it is pulled. The link goes down with it.
func receive(port *connectx.Port, plug *fabric.Plug) {
	port.Receive(plug.Receive)
	port.SetLink(false)
}

// remove ends an adapter.
func (a *adapters) remove(name string) error {
	have := a.there[name]
	delete(a.there, name)
	defer have.plug.Pull()
	return have.port.Close()
}

// close ends all adapters.
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
	return errors.Join(errs...)
}

// setDown gives the NIC at a port of the switch its carrier, or takes it away. An adapter is of this process, and a NIC
// of QEMU's own is told by QMP. A node that does not run learns it when its NIC connects to the switch.
func (a *adapters) setDown(port string, down bool) error {
	a.mu.Lock()
	a.off[port] = down
	have := a.there[port]
	a.mu.Unlock()
	if have != nil {
		have.port.SetLink(!down)
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
					return nil // it does not run
				}
				return err
			}
		}
	}
	return nil
}

// carrierLimit bounds the wait for a QEMU that speaks with another client, or takes the state of its template, in which
// every NIC has a carrier.
const carrierLimit = 30 * time.Second

var errIncoming = errors.New("it still takes the state of its template")

// setCarrier sets the carrier of a QEMU's network device.
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
