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
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/fabric"
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
// connections to the guest agents. It writes "ready" to w when both can be used.
func RunDaemon(ctx context.Context, dir string, w io.Writer, log *slog.Logger) (err error) {
	r, err := rack.Open(rack.Dirs{Run: filepath.Dir(dir)}, filepath.Base(dir))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, agentsSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var switchErr error
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer cancel() // without its switch the lab is not one
		switchErr = fabric.Run(ctx, fabric.Config{Ports: ports(dir, r.State.Lab), Control: filepath.Join(dir, switchSocket),
			Log: log})
	})
	defer func() {
		cancel()
		wg.Wait()
		err = errors.Join(err, switchErr)
	}()
	wg.Go(func() {
		if waitSwitch(ctx, filepath.Join(dir, switchSocket)) == nil {
			fmt.Fprintln(w, "ready")
		}
	})
	return serveAgents(ctx, l, dir)
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

// serveAgents connects clients to the agents of the nodes.
func serveAgents(ctx context.Context, l net.Listener, dir string) error {
	var mu sync.Mutex
	muxes := make(map[string]*qapi.Mux)
	mux := func(node string) *qapi.Mux {
		mu.Lock()
		defer mu.Unlock()
		m := muxes[node]
		if m == nil {
			m = &qapi.Mux{Agent: filepath.Join(dir, node, "ga.sock")}
			muxes[node] = m
		}
		return m
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range muxes {
			m.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		wg.Go(func() {
			defer nc.Close()
			stop := context.AfterFunc(ctx, func() { nc.Close() })
			defer stop()
			r := bufio.NewReader(nc)
			line, err := r.ReadBytes('\n')
			var sel struct {
				Node string `json:"node"`
			}
			if err != nil || json.Unmarshal(line, &sel) != nil || sel.Node == "" || strings.ContainsAny(sel.Node,
				"/.") {
				return
			}
			m := mux(sel.Node)
			// The answer tells that the agent's port is connected, or why not; a command would say so too.
			why := ""
			if err := m.Open(ctx); err != nil {
				why = err.Error()
			}
			if err := json.NewEncoder(nc).Encode(map[string]string{"error": why}); err != nil {
				return
			}
			// A client that hangs up knows itself what it lost.
			_ = m.Serve(ctx, struct {
				io.Reader
				io.Writer
			}{r, nc})
		})
	}
}

// daemonLimit bounds the start of the daemon, which takes milliseconds.
const daemonLimit = 20 * time.Second

// envDaemon is set in the environment of daemons.
const envDaemon = "RACKLESS_DAEMON"

// startDaemon starts the daemon of a lab as a process of its own and returns when it is ready. The
// state must have been saved.
func startDaemon(ctx context.Context, dir string) (*vm.Process, error) {
	if os.Getenv(envDaemon) != "" {
		// A program that uses this package and has no command for the daemon would start itself again and again.
		return nil, fmt.Errorf("start the lab's daemon: this process was started as one: %s takes no %q", os.Args[0],
			DaemonCommand)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(filepath.Join(dir, "daemon.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	cmd := exec.Command(self, DaemonCommand, dir)
	cmd.Args[0] = os.Args[0] // what the user called, in process lists; a test binary also knows its part by it
	cmd.Dir, cmd.Env = "/", append(os.Environ(), envDaemon+"=1")
	cmd.Stderr = logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the lab's daemon: %w", err)
	}
	p, err := vm.FindProcess(cmd.Process.Pid)
	if err != nil {
		return nil, fmt.Errorf("start the lab's daemon: it ended at once: %w; see %s", err, logFile.Name())
	}
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && line != "ready\n" {
			err = fmt.Errorf("it said %q", line)
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(daemonLimit):
		err = fmt.Errorf("not ready within %v", daemonLimit)
	}
	if err != nil {
		b, _ := os.ReadFile(logFile.Name()) // an unreadable log leaves the message shorter
		return nil, errors.Join(fmt.Errorf("start the lab's daemon: %w; its log %s: %s", err, logFile.Name(),
			strings.TrimSpace(string(b))), p.Kill(context.WithoutCancel(ctx)))
	}
	return &p, cmd.Process.Release()
}
