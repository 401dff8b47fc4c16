package emulated

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qemu"
)

// startNodes also configures nodes. A change that is applied live, such as another MTU, concerns all of them.
func (u *upRun) startNodes(ctx context.Context) error {
	live := slices.ContainsFunc(u.changes, func(c lab.Change) bool { return c.Effect == lab.Live })
	running := make(map[string]*rack.Node)
	var work []lab.Node
	for _, n := range u.Lab.Nodes {
		have, ok := u.State.Node(n.Name)
		running[n.Name] = have
		if !ok || !have.Ready || live {
			work = append(work, n)
		}
	}
	if err := u.nameNodes(ctx, work); err != nil {
		return err
	}
	err := u.StartNodes(ctx, work, workers(), u.progress, func(ctx context.Context, n lab.Node) (*rack.Node, error) {
		return u.startNode(ctx, n, running[n.Name])
	})
	if err != nil || len(work) == 0 {
		return err
	}
	return u.reach(ctx)
}

func (u *upRun) nameNodes(ctx context.Context, work []lab.Node) error {
	if u.before == nil || slices.Equal(u.before.HostNames(), u.Lab.HostNames()) {
		return nil
	}
	var stay []lab.Node
	for _, n := range u.Lab.Nodes {
		if !slices.ContainsFunc(work, func(w lab.Node) bool { return w.Name == n.Name }) {
			stay = append(stay, n)
		}
	}
	return rack.Each(ctx, stay, workers(), func(ctx context.Context, n lab.Node) error {
		agent, err := u.Agent(ctx, n.Name)
		if err != nil {
			return err
		}
		if err := agent.SetHosts(ctx, u.Lab.HostNames()); err != nil {
			u.progress.Note("node %s: %v", n.Name, err)
		}
		return nil
	})
}

// meshNodes is the largest lab in which up lets all pairs ping each other; in larger ones one node pings all others.
// verify always tests all pairs: an emulated node's first ping takes a quarter of a second of CPU time.
const meshNodes = 16

// reach checks that nodes answer each other at the full MTU. Started nodes ping over their setup connections; see
// guest.Setup.
func (u *upRun) reach(ctx context.Context) error {
	if len(u.Lab.Nodes) < 2 {
		return nil
	}
	u.progress.Begin("reach")
	from := lists.Filter(u.Lab.Nodes, func(n lab.Node) bool { return u.setups[n.Name] != nil })
	if len(from) == 0 {
		if f := checks.ReachFrom(ctx, u.Lab, 0, u.Rack); f.Status != finding.OK {
			return fmt.Errorf("node %s: %s of its peers answer; %s", f.Subject, f.Have, f.Fix)
		}
		return nil
	}
	if len(u.Lab.Nodes) > meshNodes {
		from = from[:1]
	}
	// One ping tests both directions.
	targets := make(map[string][]netip.Addr)
	for i, n := range from {
		targets[n.Name] = checks.Peers(u.Lab, n, from[:i]...)
	}
	return rack.Each(ctx, from, workers(), func(ctx context.Context, n lab.Node) error {
		peers := targets[n.Name]
		if len(peers) == 0 {
			return nil
		}
		limit := cmp.Or(u.opts.NodeLimit, nodeLimit)
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
		defer cancel()
		answered, err := u.setup(n.Name).Reach(ctx, checks.PingPayload(u.Lab), peers)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		if len(answered) < len(peers) {
			return fmt.Errorf("node %s reaches %d of %d peers at MTU %d; see rackless link show "+
				"%s", n.Name, len(answered),
				len(peers), u.Lab.Fabric.MTU, u.Lab.Name)
		}
		return nil
	})
}

// workers is how many nodes start at once. A starting node keeps a core busy under TCG; a few more hide the waits.
func workers() int { return 2 * runtime.NumCPU() }

// nodeLimit is for a node to be configured. A clone takes 0.5 s, a boot 5 s, but the machine may be shared and slow.
const nodeLimit = 240 * time.Second

// fullNodeLimit is for a full node, which boots for 20 s on an idle machine.
const fullNodeLimit = 15 * time.Minute

// startNode's have is the running node, or nil.
func (u *upRun) startNode(ctx context.Context, n lab.Node, have *rack.Node) (*rack.Node, error) {
	limit := cmp.Or(u.opts.NodeLimit, nodeLimit)
	if n.HasDisk() {
		limit = cmp.Or(u.opts.NodeLimit, fullNodeLimit)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("node %s did not answer within %v", n.Name, limit))
	defer cancel()
	node := &rack.Node{Name: n.Name, MachineID: guest.NewMachineID()}
	if have != nil {
		// A copy, so that the state's node stays unchanged on failure.
		copied := *have
		node = &copied
	} else {
		u.Forget(n.Name)
		spec := u.spec(n)
		spec.Attached = func(ctx context.Context) error {
			_, err := u.Agent(ctx, n.Name) // connects to the agent's port
			return err
		}
		spec.Restore = func(ctx context.Context, template string) error {
			_, err := ask(ctx, u.Dir, request{Restore: n.Name, Template: template})
			return err
		}
		made, err := u.qemu.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		u.mu.Lock()
		u.started = append(u.started, made.Process)
		u.setups[n.Name] = guest.NewSetup(made.Setup)
		u.mu.Unlock()
		node.Process, node.Started, node.Cloned, node.ColdReason = made.Process, made.Started, made.Cloned,
			made.ColdReason
		node.Accelerator, node.Agent, node.Console, node.Log = made.Accelerator, made.Agent, made.Console, made.Log
		if n.ConnectX() {
			node.Adapters = u.State.Daemon
		}
	}
	id := identity(u.Lab, n, node)
	if n.HasDisk() {
		id.Keys = u.keys
	}
	err := watch(ctx, node, func(ctx context.Context) (err error) {
		if setup := u.setup(n.Name); setup != nil {
			node.Facts, err = setup.Configure(ctx, id)
			return err
		}
		agent, err := u.Agent(ctx, n.Name)
		if err != nil {
			return err
		}
		node.Facts, err = agent.Configure(ctx, id)
		return err
	})
	// The RDMA devices of a card are found by their GIDs.
	for i := 0; i < len(n.NICs) && err == nil && !n.ConnectX(); i++ {
		d := fmt.Sprintf("rxe%d", i)
		if _, made := node.Facts.RDMADevice(d); made == nil {
			err = fmt.Errorf("node %s has no RDMA device %s", n.Name, d)
		}
	}
	if err != nil && n.OwnImage() && !n.ConnectX() {
		err = fmt.Errorf("%w; the kernel of %s may lack rdma_rxe, as Debian's cloud kernel does: leave nic out for a "+
			"ConnectX, which needs mlx5_ib", err, n.Image)
	}
	if err == nil && u.Lab.HomeOf(n) == lab.HomeShared {
		if err = u.shareHome(ctx, n); err != nil {
			err = fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if err == nil {
		node.Facts, err = checks.AdapterRDMA(ctx, n, node.Facts, u.Rack)
	}
	if err == nil {
		err = u.AwaitGIDs(ctx, n, node, 100*time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, rack.ConsoleTail(node.Log))
	}
	node.Ready = true
	return node, nil
}

func (u *upRun) setup(node string) *guest.Setup {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.setups[node]
}

func (u *upRun) closeSetups() error {
	var errs []error
	for _, s := range u.setups {
		if err := s.Close(); !errors.Is(err, net.ErrClosed) { // closed by the end of a context
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// watch cancels f if the node's process ends: f may wait for the guest, until its time limit.
func watch(ctx context.Context, n *rack.Node, f func(context.Context) error) error {
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

func identity(l *lab.Lab, n lab.Node, node *rack.Node) guest.Identity {
	id := guest.Identity{Name: n.Name, MachineID: node.MachineID, MTU: l.Fabric.MTU, Hosts: l.HostNames()}
	for _, nic := range n.NICs {
		id.NICs = append(id.NICs, guest.NIC{Device: nic.Name, MAC: nic.MAC, Addr: nic.Addr})
	}
	return id
}

// ensureHome's directory is removed with the lab.
func (u *upRun) ensureHome() error {
	if !u.emulator.Has("virtio-9p-pci") {
		return fmt.Errorf("lab %s: QEMU %s has no virtio-9p-pci, by which nodes share /home: leave home out, or "+
			"install a QEMU with virtfs", u.Lab.Name, u.emulator.Version)
	}
	dir := u.HomeDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	u.home = qemu.Home{Dir: dir, Security: securityModel(dir)}
	return nil
}

// securityModel stores the owners and modes of guests' files in attributes of each file, or in extra files if the file
// system does not support that, like a tmpfs before Linux 6.6. Either way, a guest's root cannot create a file of this
// machine's root, a device, or a program with another user's rights.
func securityModel(dir string) string {
	if err := unix.Setxattr(dir, "user.rackless", nil, 0); err != nil {
		return "mapped-file"
	}
	_ = unix.Removexattr(dir, "user.rackless") // a failure is harmless
	return "mapped-xattr"
}

// mountHome mounts the directory, now and at each boot. First, it copies existing users' directories into it, except
// names that it already has.
//
//go:embed mount_home.sh
var mountHome string

func (u *upRun) shareHome(ctx context.Context, n lab.Node) error {
	agent, err := u.Agent(ctx, n.Name)
	if err != nil {
		return err
	}
	if _, err := agent.Output(ctx, "sh", "-c", mountHome); err != nil {
		return fmt.Errorf("mount the shared /home: %w; its kernel needs the module 9p, or leave home out of the lab "+
			"file", err)
	}
	return nil
}

// fits assumes that guests touch all of their memory.
func fits(name string, start []lab.Node) error {
	room, err := rack.ReadRoom()
	if err != nil {
		return err
	}
	return fitsIn(name, start, room.Available)
}

func fitsIn(name string, start []lab.Node, available lab.Bytes) error {
	want := lists.Sum(start, func(n lab.Node) lab.Bytes {
		gpus := lists.Sum(gpusOf("", n), func(g qemu.GPU) lab.Bytes { return lab.Bytes(g.Memory) })
		return n.Memory + gpus + rack.NodeOverhead
	})
	if want <= available {
		return nil
	}
	each := want / lab.Bytes(len(start))
	return fmt.Errorf("lab %s: %d nodes of %v on average (their memory and %v each for QEMU) need %.1f GiB; this "+
		"machine has %.1f GiB available, room for %d: "+
		"have fewer nodes, lower memory:, or say --overcommit (idle nodes touch far less than their memory)",
		name, len(start), each, rack.NodeOverhead, gib(want), gib(available), int(available/each))
}

func gib(b lab.Bytes) float64 { return float64(b) / float64(lab.GiB) }
