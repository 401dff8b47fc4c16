package emulate

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/daemon"
	"github.com/rackless/rackless/vm/qapi"
)

// DaemonCommand is the hidden command below rackless emulate that runs RunDaemon; its one argument
// is the host's directory.
const DaemonCommand = "host-daemon"

// agentsSocket is where the daemon of a host shares its agent.
const agentsSocket = "agents.sock"

// RunDaemon shares the agent of a host that is kept among all that have something to run there, and emulates its
// ConnectX adapters, until ctx ends. It writes daemon.Ready to w when it can be used.
func RunDaemon(ctx context.Context, dir string, w io.Writer) error {
	l, err := daemon.Listen(filepath.Join(dir, agentsSocket))
	if err != nil {
		return err
	}
	defer l.Close()
	s, err := loadState(dir)
	if err != nil {
		return err
	}
	if s.Profile.hasConnectX() {
		a, err := newAdapters(dir, s.Profile, func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, format+"\n", args...) // its log
		})
		if err != nil {
			return err
		}
		defer a.close()
	}
	fmt.Fprintln(w, daemon.Ready)
	mux := &qapi.Mux{
		Agent: filepath.Join(dir, vm.SocketAgent),
		Limit: answerLimit,
		Gone:  func(ctx context.Context) bool { return agentGone(ctx, dir) },
	}
	defer mux.Close()
	return daemon.Serve(ctx, l, func(conn net.Conn) {
		_ = mux.Serve(ctx, conn) // a client that hangs up knows itself what it lost
	})
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

// startDaemon starts the daemon of a host as a process of its own and returns when it is ready.
func startDaemon(ctx context.Context, dir string) error {
	_, err := daemon.Start(ctx, "the host's daemon", filepath.Join(dir, "daemon.log"), "emulate", DaemonCommand, dir)
	return err
}
