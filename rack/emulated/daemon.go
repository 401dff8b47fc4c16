package emulated

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/daemon"
	"github.com/rackless/rackless/vm/qapi"
)

// DaemonCommand is the hidden command that runs RunDaemon. Its argument is the lab's directory.
const DaemonCommand = "lab-daemon"

// Sockets in a lab's directory.
const (
	switchSocket = "fabric.sock" // see package fabric
	// to the guest agents: a first line {"node":NAME}, answered with {"error":WHY}, then the agent's protocol.
	// {"adapters":true} makes the ConnectX adapters match the lab's state, {"fault":...} has one fail, and
	// {"gpu_fault":...} a GPU; all have the same answer. {"list":true} is answered with the adapters and GPUs
	agentsSocket = "agents.sock"
)

func portOf(labDir, node string, nic int) fabric.Port {
	name := rack.PortName(node, nic)
	return fabric.Port{Name: name, Path: filepath.Join(labDir, "p-"+name+".sock")}
}

func ports(labDir string, l *lab.Lab) []fabric.Port {
	var all []fabric.Port
	for _, n := range l.Nodes {
		for i := range n.NICs {
			p := portOf(labDir, n.Name, i)
			p.MAC, p.Node = n.NICs[i].MAC, n.Name
			p.Leaf = leafOf(n)
			if n.ConnectX() { // an adapter obeys pauses
				p.Rate = connectx.Rate(string(n.NIC))
			}
			all = append(all, p)
		}
	}
	return all
}

// leafOf returns 0 for a lab with one switch.
func leafOf(n lab.Node) int {
	if n.Leaf == nil {
		return 0
	}
	return *n.Leaf
}

// switches returns the switches of a lab. Without a rate, links between them are as fast as the fastest NIC.
func switches(l *lab.Lab) fabric.Topology {
	f := l.Fabric
	if f.Topology == "" {
		return fabric.Topology{}
	}
	rate := f.RateMbps * 1e6
	if rate == 0 && os.Getenv(Unpaced) == "" {
		for _, n := range l.Nodes {
			if n.ConnectX() {
				rate = max(rate, connectx.Rate(string(n.NIC)))
			}
		}
	}
	return fabric.Topology{Leaves: f.Leaves, Spines: f.Spines, Rate: rate}
}

// RunDaemon runs the switch and the connections to the guest agents until ctx is done. It writes daemon.Ready to w when
// both can be used.
func RunDaemon(ctx context.Context, dir string, w io.Writer, log *slog.Logger) error {
	r, err := rack.Open(rack.Dirs{Run: filepath.Dir(dir)}, filepath.Base(dir))
	if err != nil {
		return err
	}
	l, err := daemon.Listen(filepath.Join(dir, agentsSocket))
	if err != nil {
		return err
	}
	cards := &adapters{dir: dir, log: log, plugs: &fabric.Plugs{}, off: make(map[string]bool)}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var switchErr, cardsErr error
	wg.Go(func() {
		defer cancel()
		switchErr = fabric.Run(ctx, fabric.Config{Ports: ports(dir, r.State.Lab),
			Control: filepath.Join(dir, switchSocket), Log: log, Direct: cards.setDirect, Down: cards.setDown,
			Plugs: cards.plugs, Topology: switches(r.State.Lab)})
	})
	wg.Go(func() { vm.TrimLogs(ctx, dir) })
	wg.Go(func() {
		if waitSwitch(ctx, filepath.Join(dir, switchSocket)) != nil {
			return
		}
		if cardsErr = cards.sync(r.State.Lab); cardsErr != nil {
			cancel()
			return
		}
		fmt.Fprintln(w, daemon.Ready)
	})
	err = serveAgents(ctx, l, &agents{dir: dir, muxes: make(map[string]*qapi.Mux), cards: cards})
	cancel()
	wg.Wait()
	return errors.Join(err, switchErr, cardsErr, cards.close())
}

func waitSwitch(ctx context.Context, path string) error {
	return wait.Until(ctx, 2*time.Millisecond, func() (bool, error) {
		_, err := fabric.Dial(path)
		return err == nil, nil
	})
}

// agents connects to each guest agent on first use, and shares it among all clients of the lab.
type agents struct {
	dir   string
	cards *adapters

	mu    sync.Mutex
	muxes map[string]*qapi.Mux // by node
}

func (a *agents) of(node string) *qapi.Mux {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.muxes[node]
	if m == nil {
		m = &qapi.Mux{Agent: filepath.Join(a.dir, node, vm.SocketAgent)}
		a.muxes[node] = m
	}
	return m
}

func serveAgents(ctx context.Context, l net.Listener, a *agents) error {
	defer func() {
		for _, m := range a.muxes {
			m.Close()
		}
	}()
	return daemon.Serve(ctx, l, func(conn net.Conn) { a.serve(ctx, conn) })
}

func (a *agents) serve(ctx context.Context, conn net.Conn) {
	r := bufio.NewReader(conn)
	line, err := r.ReadBytes('\n')
	var sel request
	if err != nil || json.Unmarshal(line, &sel) != nil {
		return
	}
	switch {
	case sel.Adapters:
		_ = answer(conn, a.syncAdapters())
		return
	case sel.List:
		_ = json.NewEncoder(conn).Encode(a.list())
		return
	case sel.Fault != nil:
		_ = answer(conn, a.cards.fail(sel.Fault))
		return
	case sel.GPUFault != nil:
		_ = answer(conn, a.cards.failGPU(sel.GPUFault))
		return
	}
	if sel.Restore != "" {
		_ = answer(conn, a.cards.restore(sel.Restore, sel.Template))
		return
	}
	// The name must not lead out of the directory.
	if sel.Node == "" || strings.ContainsAny(sel.Node, "/.") {
		return
	}
	m := a.of(sel.Node)
	if err := answer(conn, m.Open(ctx)); err != nil {
		return
	}
	// A client that hangs up knows the consequences.
	_ = m.Serve(ctx, struct {
		io.Reader
		io.Writer
	}{r, conn})
}

type request struct {
	Node     string `json:"node,omitempty"`
	Adapters bool   `json:"adapters,omitempty"` // in the state
	// Restore names a node, whose adapters get the states of Template, a directory.
	Restore  string    `json:"restore,omitempty"`
	Template string    `json:"template,omitempty"`
	List     bool      `json:"list,omitempty"` // list the adapters, see listed
	Fault    *fault    `json:"fault,omitempty"`
	GPUFault *gpuFault `json:"gpu_fault,omitempty"`
}

// answer writes one line. No error means success.
func answer(w io.Writer, err error) error {
	why := ""
	if err != nil {
		why = err.Error()
	}
	return json.NewEncoder(w).Encode(map[string]string{"error": why})
}

func (a *agents) syncAdapters() error {
	r, err := rack.Open(rack.Dirs{Run: filepath.Dir(a.dir)}, filepath.Base(a.dir))
	if err != nil {
		return err
	}
	return a.cards.sync(r.State.Lab)
}

// startDaemon needs the saved state.
func startDaemon(ctx context.Context, dir string) (*vm.Process, error) {
	p, err := daemon.Start(ctx, "the lab's daemon", filepath.Join(dir, vm.FileDaemonLog), DaemonCommand, dir)
	if err != nil {
		return nil, err
	}
	return &p, nil
}
