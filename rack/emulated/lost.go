package emulated

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rackless/rackless/rack"
)

// A lostAdapters keeps the last answer, because ls asks about each node.
type lostAdapters struct {
	mu   sync.Mutex
	at   time.Time
	lost map[string]string
	err  error
}

const lostAge = 200 * time.Millisecond

func (l *lostAdapters) now(ctx context.Context, dir string, s *rack.State) (map[string]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) > lostAge {
		l.lost, l.err = findLost(ctx, dir, s)
		l.at = time.Now()
	}
	return l.lost, l.err
}

const askLimit = 10 * time.Second

// findLost returns the nodes that have lost an emulated adapter or GPU, with the reason. QEMU does not connect again,
// so such a node must be restarted. A node without a recorded daemon has QEMU's own NICs.
func findLost(ctx context.Context, dir string, s *rack.State) (map[string]string, error) {
	lost := make(map[string]string)
	connected := false
	for _, n := range s.Nodes {
		switch {
		case n.Adapters == nil:
		case s.Daemon == nil || *n.Adapters != *s.Daemon || !s.Daemon.Alive():
			lost[n.Name] = "the lab's daemon ended"
		default:
			connected = true
		}
	}
	if !connected {
		return lost, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, fmt.Errorf("no answer within %v", askLimit))
	defer cancel()
	got, err := ask(ctx, dir, request{List: true})
	if errors.Is(err, errOldDaemon) { // it cannot be asked
		return lost, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lab %s: its daemon does not answer: %w; rackless down and up start the lab again",
			s.Lab.Name, err)
	}
	for _, a := range got.Adapters {
		if n, ok := s.Node(a.Node); ok && n.Adapters != nil && !a.Connected && lost[a.Node] == "" {
			lost[a.Node] = "the connection to its NIC " + a.NIC + " ended"
		}
	}
	for _, g := range got.GPUs {
		if n, ok := s.Node(g.Node); ok && n.Adapters != nil && !g.Connected && lost[g.Node] == "" {
			lost[g.Node] = fmt.Sprintf("the connection to its GPU %d ended", g.GPU)
		}
	}
	return lost, nil
}
