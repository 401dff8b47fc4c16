package rack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/lab"
)

// startNodes starts the nodes that are missing and configures all that need it.
func (u *upper) startNodes(ctx context.Context, r *Rack) error {
	byName := make(map[string]*Node)
	for _, n := range u.state.Nodes {
		byName[n.Name] = n
	}
	live := slices.ContainsFunc(u.changes, func(c lab.Change) bool { return c.Effect == lab.Live })
	var work []lab.Node
	for _, n := range u.lab.Nodes {
		if have := byName[n.Name]; have == nil || !have.Ready || live {
			work = append(work, n)
		}
	}
	u.progress.Begin("nodes")
	u.progress.Count(0, len(work))
	done := 0
	err := each(ctx, work, u.workers(), func(ctx context.Context, n lab.Node) error {
		node, err := u.bring(ctx, r, n, byName[n.Name])
		u.mu.Lock()
		defer u.mu.Unlock()
		if err != nil {
			return err
		}
		u.state.put(node)
		done++
		u.progress.Count(done, len(work))
		return u.dirs.save(u.state)
	})
	u.state.order()
	if err != nil || len(work) == 0 {
		return err
	}
	return u.reach(ctx, r)
}

// meshNodes is the largest lab in which up lets every pair of nodes ping each other. Under
// emulation a node that pings for the first time takes a quarter of a second of CPU time, so that
// in larger labs one node pings all others, which on one switch shows every node's way in and out;
// verify does the full mesh.
const meshNodes = 16

// reach checks that the nodes that were started and all others answer each other at the full MTU.
// An answer shows both ways, so that of two nodes one pings.
func (u *upper) reach(ctx context.Context, r *Rack) error {
	if len(u.lab.Nodes) < 2 {
		return nil
	}
	u.progress.Begin("reach")
	var from []lab.Node
	for _, n := range u.lab.Nodes {
		if u.setups[n.Name] != nil {
			from = append(from, n)
		}
	}
	if len(from) == 0 { // settings of running nodes have changed
		if f := check.ReachFrom(ctx, u.lab, 0, r); f.Status != check.OK {
			return fmt.Errorf("node %s: %s of its peers answer; %s", f.Subject, f.Have, f.Fix)
		}
		return nil
	}
	if len(u.lab.Nodes) > meshNodes {
		from = from[:1]
	}
	targets := make(map[string][]netip.Addr)
	for i, n := range from {
		targets[n.Name] = check.Peers(u.lab, append(slices.Clone(from[:i]), n)...)
	}
	return each(ctx, from, u.workers(), func(ctx context.Context, n lab.Node) error {
		peers := targets[n.Name]
		if len(peers) == 0 {
			return nil
		}
		answered, err := u.setup(n.Name).Reach(ctx, check.PingPayload(u.lab), peers)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		if len(answered) < len(peers) {
			return fmt.Errorf("node %s reaches %d of %d peers at MTU %d; see rackless fabric %s", n.Name, len(answered),
				len(peers), u.lab.Fabric.MTU, u.lab.Name)
		}
		return nil
	})
}

// workers is how many nodes come up at once. Under TCG a node that comes up keeps a core busy, and
// more of them than cores only wait for each other; a few more hide the waits.
func (u *upper) workers() int { return 2 * runtime.NumCPU() }

// nodeLimit bounds the time until a node that was started has been configured. By hand a clone
// takes 0.5 s, a boot 5 s; the machine may be shared and slow.
const nodeLimit = 240 * time.Second

// bring starts a node unless it runs, and configures it.
func (u *upper) bring(ctx context.Context, r *Rack, n lab.Node, have *Node) (*Node, error) {
	limit := u.opts.nodeLimit
	if limit == 0 {
		limit = nodeLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("node %s did not answer within %v", n.Name, limit))
	defer cancel()
	node := &Node{MachineID: guest.NewMachineID()}
	if have != nil {
		node.Node, node.MachineID = have.Node, have.MachineID
	} else {
		r.forget(n.Name)
		spec := u.spec(n)
		spec.Attached = func(ctx context.Context) error {
			_, err := r.agent(ctx, n.Name) // makes the daemon connect to the agent's port
			return err
		}
		made, err := u.drv.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		u.mu.Lock()
		u.started = append(u.started, made)
		u.setups[n.Name] = guest.NewSetup(made.Setup)
		u.mu.Unlock()
		node.Node = *made
	}
	id := guest.Identity{Name: n.Name, MachineID: node.MachineID, MTU: u.lab.Fabric.MTU}
	for _, nic := range n.NICs {
		id.NICs = append(id.NICs, guest.NIC{Device: nic.Name, MAC: nic.MAC, Addr: nic.Addr})
	}
	err := watch(ctx, &node.Node, func(ctx context.Context) (err error) {
		if setup := u.setup(n.Name); setup != nil {
			node.Facts, err = setup.Configure(ctx, id)
			return err
		}
		agent, err := r.agent(ctx, n.Name)
		if err != nil {
			return err
		}
		node.Facts, err = agent.Configure(ctx, id)
		return err
	})
	if err == nil {
		err = u.awaitGIDs(ctx, r, n, node)
	}
	if err != nil {
		// A node that this up has started goes with its logs.
		return nil, fmt.Errorf("%w%s", err, logTail(node.Log))
	}
	node.Ready = true
	return node, nil
}

// awaitGIDs reads the facts again until every address has its RoCE v2 GID: the kernel enters them in its own time.
func (u *upper) awaitGIDs(ctx context.Context, r *Rack, n lab.Node, node *Node) error {
	for {
		missing := ""
		for i, nic := range n.NICs {
			d := node.Facts.RDMA[fmt.Sprintf("rxe%d", i)]
			if d == nil {
				return fmt.Errorf("node %s has no RDMA device rxe%d", n.Name, i)
			}
			if _, ok := d.RoCEv2Index(nic.Addr.Addr()); !ok {
				missing = nic.Addr.Addr().String()
			}
		}
		if missing == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("node %s: no RoCE v2 GID for %s appeared: %w", n.Name, missing, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
		var err error
		if node.Facts, err = r.Facts(ctx, n.Name); err != nil {
			return err
		}
	}
}

// logTail returns the last lines of a node's console for an error message, or nothing.
func logTail(path string) string {
	b, err := os.ReadFile(path)
	text := strings.TrimSpace(string(b))
	if err != nil || text == "" {
		return ""
	}
	const few = 5
	lines := strings.Split(text, "\n")
	return "; its console ended:\n  " + strings.Join(lines[max(0, len(lines)-few):], "\n  ")
}

func (u *upper) setup(node string) *guest.Setup {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.setups[node]
}

func (u *upper) closeSetups() error {
	var errs []error
	for _, s := range u.setups {
		if err := s.Close(); !errors.Is(err, net.ErrClosed) { // closed by the end of a context
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// watch calls f, and breaks it off at once if the node's process ends meanwhile.
func watch(ctx context.Context, n *qemu.Node, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if n.Process.Wait(ctx) == nil {
			cancel(fmt.Errorf("node %s: its process %d has ended", n.Name, n.Process.PID))
		}
	}()
	if err := f(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// each calls f for every item, at most limit at once. The first error ends the others' context and
// is returned once all have ended.
func each[T any](ctx context.Context, items []T, limit int, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	tokens := make(chan struct{}, limit)
	for _, it := range items {
		select {
		case tokens <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-tokens }()
			if err := f(ctx, it); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
