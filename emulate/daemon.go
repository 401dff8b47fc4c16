package emulate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/vm"
)

// DaemonCommand is the hidden command below rackless emulate that runs RunDaemon; its one argument
// is the host's directory.
const DaemonCommand = "host-daemon"

// agentsSocket is where the daemon of a host shares its agent.
const agentsSocket = "agents.sock"

// RunDaemon shares the agent of a host that is kept among all that have something to run there,
// until ctx ends. It writes "ready" to w when it can be used.
func RunDaemon(ctx context.Context, dir string, w io.Writer) error {
	path := filepath.Join(dir, agentsSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	fmt.Fprintln(w, "ready")
	mux := &qapi.Mux{
		Agent: filepath.Join(dir, vm.SocketAgent),
		Limit: answerLimit,
		Gone:  func(ctx context.Context) bool { return agentGone(ctx, dir) },
	}
	defer mux.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		nc, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer nc.Close()
			defer context.AfterFunc(ctx, func() { nc.Close() })()
			_ = mux.Serve(ctx, nc) // a client that hangs up knows itself what it lost
		})
	}
}

// answerLimit bounds an answer of a host's agent. While lab nodes booted in an emulated host, on a
// machine busy with other tests, one had said nothing for two minutes; whether it would have gone
// on was not seen. A host that restarts or is off is noticed within about a second all the same.
const answerLimit = 10 * time.Minute

// agentGone says whether the guest has closed the agent's port, as it does when it shuts down, and
// as QEMU does for it when it is reset. What cannot be found out is no. QEMU speaks with one client
// at a time: nobody keeps that connection.
func agentGone(ctx context.Context, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	q, err := qapi.DialQMP(ctx, filepath.Join(dir, vm.SocketQMP))
	if err != nil {
		return false
	}
	defer q.Close()
	type port struct {
		Label string `json:"label"`
		Open  bool   `json:"frontend-open"` // by the guest
	}
	var ports []port
	if err := q.Call(ctx, "query-chardev", nil, &ports); err != nil {
		return false
	}
	return slices.ContainsFunc(ports, func(p port) bool { return p.Label == agentChardev && !p.Open })
}

// daemonLimit bounds the start of the daemon, which takes milliseconds.
const daemonLimit = 20 * time.Second

// startDaemon starts the daemon of a host as a process of its own and returns when it is ready.
func startDaemon(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "daemon.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(self, "emulate", DaemonCommand, dir)
	cmd.Args[0] = os.Args[0] // what the user called, in process lists; a test binary also knows its part by it
	cmd.Dir = "/"
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the host's daemon: %w", err)
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
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
		b, _ := os.ReadFile(log.Name()) // an unreadable log leaves the message shorter
		return fmt.Errorf("start the host's daemon: %w; its log: %s", err, strings.TrimSpace(string(b)))
	}
	return cmd.Process.Release()
}
