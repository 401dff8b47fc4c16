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
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/internal/daemon"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

// DaemonCommand is the hidden command of the rackless binary that runs RunDaemon; its one argument
// is the lab's directory.
const DaemonCommand = "lab-daemon"

// Sockets in a lab's directory.
const (
	switchSocket = "fabric.sock" // control of the switch, see package fabric
	// to the guest agents: a first line {"node":NAME}, answered {"error":WHY}, then as with the
	// agent itself
	agentsSocket = "agents.sock"
)

// portOf is the switch port of a NIC, to which QEMU connects.
func portOf(labDir, node string, nic int) fabric.Port {
	name := rack.PortName(node, nic)
	return fabric.Port{Name: name, Path: filepath.Join(labDir, "p-"+name+".sock")}
}

// ports returns the switch ports of a whole lab.
func ports(labDir string, l *lab.Lab) []fabric.Port {
	var all []fabric.Port
	for _, n := range l.Nodes {
		for i := range n.NICs {
			all = append(all, portOf(labDir, n.Name, i))
		}
	}
	return all
}

// RunDaemon is what the daemon of a lab does until ctx ends: it is the switch, and it holds the
// connections to the guest agents. It writes daemon.Ready to w when both can be used.
func RunDaemon(ctx context.Context, dir string, w io.Writer, log *slog.Logger) error {
	r, err := rack.Open(rack.Dirs{Run: filepath.Dir(dir)}, filepath.Base(dir))
	if err != nil {
		return err
	}
	l, err := daemon.Listen(filepath.Join(dir, agentsSocket))
	if err != nil {
		return err
	}
	// Without its switch the lab is not one, and without its agents neither: the end of one ends the other.
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var switchErr error
	wg.Go(func() {
		defer cancel()
		switchErr = fabric.Run(ctx, fabric.Config{Ports: ports(dir, r.State.Lab),
			Control: filepath.Join(dir, switchSocket), Log: log})
	})
	wg.Go(func() {
		if waitSwitch(ctx, filepath.Join(dir, switchSocket)) == nil {
			fmt.Fprintln(w, daemon.Ready)
		}
	})
	err = serveAgents(ctx, l, dir)
	// Whatever has ended, the other must not be left without it.
	cancel()
	wg.Wait()
	return errors.Join(err, switchErr)
}

// waitSwitch returns when the switch answers.
func waitSwitch(ctx context.Context, path string) error {
	for {
		_, err := fabric.Dial(path)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// agents are the connections to the guest agents of a lab, each made once somebody asks for it. The
// port of an agent serves one client, which the daemon is, for all of a lab's clients.
type agents struct {
	dir string

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

// serveAgents connects clients to the agents of the nodes until ctx ends.
func serveAgents(ctx context.Context, l net.Listener, dir string) error {
	a := &agents{dir: dir, muxes: make(map[string]*qapi.Mux)}
	defer func() {
		for _, m := range a.muxes {
			m.Close()
		}
	}()
	return daemon.Serve(ctx, l, func(conn net.Conn) { a.serve(ctx, conn) })
}

// serve connects one client with the agent that it names.
func (a *agents) serve(ctx context.Context, conn net.Conn) {
	r := bufio.NewReader(conn)
	line, err := r.ReadBytes('\n')
	var sel struct {
		Node string `json:"node"`
	}
	// The name becomes part of a path, so that it may lead nowhere else.
	if err != nil || json.Unmarshal(line, &sel) != nil || sel.Node == "" || strings.ContainsAny(sel.Node, "/.") {
		return
	}
	m := a.of(sel.Node)
	// The answer tells that the agent's port is connected, or why not; a command would say so too.
	why := ""
	if err := m.Open(ctx); err != nil {
		why = err.Error()
	}
	if err := json.NewEncoder(conn).Encode(map[string]string{"error": why}); err != nil {
		return
	}
	// A client that hangs up knows itself what it lost.
	_ = m.Serve(ctx, struct {
		io.Reader
		io.Writer
	}{r, conn})
}

// startDaemon starts the daemon of a lab as a process of its own and returns when it is ready. The
// state must have been saved.
func startDaemon(ctx context.Context, dir string) (*vm.Process, error) {
	p, err := daemon.Start(ctx, "the lab's daemon", filepath.Join(dir, "daemon.log"), DaemonCommand, dir)
	if err != nil {
		return nil, err
	}
	return &p, nil
}
