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

// DaemonCommand is the hidden command that runs RunDaemon. Its argument is the host's directory.
const DaemonCommand = "host-daemon"

const agentsSocket = "agents.sock"

// RunDaemon shares the agent of a kept host among its users and emulates its adapters and GPUs, until ctx is done. It
// writes daemon.Ready to w.
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
	if s.Profile.comesLate() {
		a, err := newAdapters(dir, s.Profile, func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, format+"\n", args...) // the daemon's log
		})
		if err != nil {
			return err
		}
		defer a.close()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go vm.TrimLogs(ctx, dir)
	fmt.Fprintln(w, daemon.Ready)
	mux := &qapi.Mux{
		Agent: filepath.Join(dir, vm.SocketAgent),
		Limit: answerLimit,
		Gone:  func(ctx context.Context) bool { return agentGone(ctx, dir) },
	}
	defer mux.Close()
	return daemon.Serve(ctx, l, func(conn net.Conn) {
		_ = mux.Serve(ctx, conn) // a client that hangs up already knows
	})
}

// answerLimit limits the wait for a host's agent. On a busy machine, one was silent for two minutes while lab nodes
// booted in the host. A restarting or stopped host is noticed within about a second.
const answerLimit = 10 * time.Minute

// agentGone reports whether the guest has closed the agent's port, as at shutdown and reset; false on errors. It closes
// its QMP connection at once, because QEMU serves one client at a time.
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

func startDaemon(ctx context.Context, dir string) error {
	_, err := daemon.Start(ctx, "the host's daemon", filepath.Join(dir, vm.FileDaemonLog), "emulate", DaemonCommand,
		dir)
	return err
}
