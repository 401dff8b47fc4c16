// Package serve runs emulated adapters for virtual machines that another program starts.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/roce"
	"github.com/rackless/rackless/rdma/vfiouser"
)

// A Card is an emulated adapter with its cable.
type Card struct {
	Port *connectx.Port
	plug *fabric.Plug
}

// Plug adds an adapter to a server and plugs it into the switch port of its name. It sets Batch and Copied. The plug
// comes first, so that it takes all frames.
func Plug(s *connectx.Server, plugs *fabric.Plugs, n connectx.NIC) (*Card, error) {
	plug, err := plugs.Plug(n.Name, connectx.Rate(n.Model))
	if err != nil {
		return nil, err
	}
	n.Batch = plug.Send
	n.Copied = func(tx, rx roce.Traffic) { plug.Copied(tx.Packets, tx.Bytes, rx.Packets, rx.Bytes) }
	port, err := s.AddNIC(n)
	if err != nil {
		plug.Pull()
		return nil, err
	}
	go func() {
		port.Receive(plug.Receive) // until the plug is pulled
		port.SetLink(false)
	}()
	return &Card{port, plug}, nil
}

// Close removes the adapter.
func (c *Card) Close() error {
	defer c.plug.Pull()
	return c.Port.Close()
}

// Threads prepares the process for n adapters with a thread each, and one for their timer. A thread that returns from a
// system call must not wait for a share of the Go scheduler, which may take 10 ms.
func Threads(n int) { runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), runtime.NumCPU()+1+n)) }

// Raise gives all threads the priority of threads that guests wait for, if permitted: the Go scheduler hands over
// between threads, and a late one delays all. New threads inherit it.
func Raise() {
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

// An Adapter is for Run.
type Adapter struct {
	Name   string // of its port, unique
	Model  string
	MAC    net.HardwareAddr // 6 bytes
	Socket string           // for QEMU's vfio-user-pci
}

// Config is the work of Run.
type Config struct {
	Adapters []Adapter
	Dir      string         // for sockets; its path must be short
	Control  string         // control socket of the switch
	Other    *fabric.Client // to which a cable leads; nil for none
	Log      *slog.Logger
	Ready    func() // called when QEMU can connect
}

// Run serves adapters until the end of ctx, which is no error, or of the other switch.
func Run(ctx context.Context, c Config) (err error) {
	server := connectx.NewServer(connectx.Options{Log: func(format string, args ...any) {
		c.Log.Info("connectx: " + fmt.Sprintf(format, args...))
	}})
	var plugs fabric.Plugs
	var mu sync.Mutex // guards cards
	cards := map[string]*Card{}
	var ports []fabric.Port
	for _, a := range c.Adapters {
		ports = append(ports, fabric.Port{Name: a.Name, Path: filepath.Join(c.Dir, a.Name+".port"), MAC: a.MAC.String(),
			Node: a.Name, Rate: connectx.Rate(a.Model)})
	}
	near := fabric.Port{Name: "uplink", Path: filepath.Join(c.Dir, "uplink.port")}
	if c.Other != nil {
		ports = append(ports, near)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- fabric.Run(ctx, fabric.Config{Ports: ports, Control: c.Control, Log: c.Log, Direct: server.SetDirect,
			Plugs: &plugs, Down: func(port string, down bool) error {
				mu.Lock()
				card := cards[port]
				mu.Unlock()
				if card != nil {
					card.Port.SetLink(!down)
				}
				return nil
			}})
	}()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
		for _, card := range cards {
			err = errors.Join(err, card.Close())
		}
		err = errors.Join(err, server.Close())
	}()
	err = wait.Until(ctx, 2*time.Millisecond, func() (bool, error) {
		_, err := fabric.Dial(c.Control)
		return err == nil, nil
	})
	if err != nil {
		return ignoreEnd(err)
	}
	Threads(len(c.Adapters))
	Raise()
	for _, a := range c.Adapters {
		if err := listenable(a.Socket); err != nil {
			return err
		}
		card, err := Plug(server, &plugs, connectx.NIC{Name: a.Name, Model: a.Model, MAC: [6]byte(a.MAC),
			Socket: a.Socket, RateBits: connectx.Rate(a.Model), Link: true})
		if err != nil {
			return err
		}
		mu.Lock()
		cards[a.Name] = card
		mu.Unlock()
	}
	cut := make(chan error, 1)
	if c.Other != nil {
		remove, err := join(ctx, near.Path, c.Other, filepath.Join(c.Dir, "other.port"), cut)
		if err != nil {
			return err
		}
		defer remove()
	}
	c.Ready()
	select {
	case <-ctx.Done():
		return nil
	case err := <-cut:
		return fmt.Errorf("the switch that the NICs are joined to has ended the connection: %w", err)
	}
}

// ignoreEnd returns nil for the end of a context, a wish of the user.
func ignoreEnd(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// listenable refuses paths of anything but the socket of an earlier server, because a server replaces them.
func listenable(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode().Type() != os.ModeSocket {
		err = fmt.Errorf("socket %s: there is another file", path)
	}
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil
	}
	conn.Close()
	return fmt.Errorf("socket %s: another process listens on it", path)
}

// OutsidePort begins the names of ports joined to the switch of another process.
const OutsidePort = "outside-"

// join lays a cable from the port at near to a new port of another switch, with its socket at far. The reason of a
// later end goes to cut. remove removes that port.
func join(ctx context.Context, near string, other *fabric.Client, far string, cut chan<- error) (remove func(),
	err error) {
	name := OutsidePort + strconv.Itoa(os.Getpid())
	if err := other.AddPort(ctx, fabric.Port{Name: name, Path: far}); err != nil {
		return nil, err
	}
	remove = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = other.RemovePort(ctx, name) // its switch may have ended
	}
	var ends [2]net.Conn
	for i, path := range []string{near, far} {
		if ends[i], err = net.Dial("unix", path); err != nil {
			remove()
			return nil, err
		}
	}
	for i := range ends {
		go func() {
			// Both speak QEMU's protocol of stream sockets.
			_, err := io.Copy(ends[i], ends[1-i])
			for _, c := range ends {
				c.Close()
			}
			if err == nil {
				err = io.EOF
			}
			select {
			case cut <- err:
			default:
			}
		}()
	}
	return remove, nil
}
