package emulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm/guest"
)

var _ rack.Adapted = (*emulatedLab)(nil)

type fault struct {
	Port  string       `json:"port"`
	Kind  checks.Fault `json:"kind,omitempty"` // "" clears the fault
	Reset bool         `json:"reset,omitempty"`
}

type listed struct {
	Error    string           `json:"error,omitempty"`
	Adapters []checks.Adapter `json:"adapters"`
	GPUs     []listedGPU      `json:"gpus,omitempty"`
}

type listedGPU struct {
	Node string `json:"node"`
	GPU  int    `json:"gpu"`
	gpu.Status
	Moved []rack.Moved `json:"moved"` // by NIC
}

func (a *adapters) fail(f *fault) error {
	a.mu.Lock()
	have := a.there[f.Port]
	a.mu.Unlock() // the switch waits for it, and sends of the port wait for the switch
	kind := connectx.Fault(f.Kind)
	switch {
	case have == nil:
		return fmt.Errorf("there is no NIC %s", f.Port)
	case f.Reset:
		have.Port.ResetFunction()
	case kind != connectx.Healthy && !slices.Contains(connectx.Faults(), kind):
		return fmt.Errorf("fault %q is unknown to the daemon of this lab", f.Kind)
	default:
		have.Port.SetFault(kind)
	}
	a.log.Info("connectx: fault", "adapter", f.Port, "kind", f.Kind, "reset", f.Reset)
	return nil
}

func (a *agents) list() listed {
	out := listed{Adapters: []checks.Adapter{}}
	r, err := rack.Open(rack.Dirs{Run: filepath.Dir(a.dir)}, filepath.Base(a.dir))
	if err != nil {
		out.Error = err.Error()
		return out
	}
	c := a.cards
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range r.State.Lab.Nodes {
		for i, g := range c.gpus.of(n.Name) {
			l := listedGPU{Node: n.Name, GPU: i, Status: g.Status()}
			for k, nic := range n.NICs {
				if have := c.there[rack.PortName(n.Name, k)]; have != nil {
					l.Moved = append(l.Moved, rack.Moved{NIC: nic.Name, Written: have.moved[i].written.Load(),
						Read: have.moved[i].read.Load()})
				}
			}
			out.GPUs = append(out.GPUs, l)
		}
		for i, nic := range n.NICs {
			have := c.there[rack.PortName(n.Name, i)]
			if have == nil {
				continue
			}
			s := have.Port.Status()
			kind := checks.Fault(s.Fault)
			if kind == "" && c.off[rack.PortName(n.Name, i)] {
				kind = checks.FaultLink
			}
			out.Adapters = append(out.Adapters, checks.Adapter{Node: n.Name, NIC: nic.Name, Model: string(have.model),
				MAC: have.mac, RateBits: connectx.Rate(string(have.model)), Connected: s.Connected, Driver: s.Driver,
				LinkUp: s.Up, Flaps: s.Flaps, LinkDowns: s.LinkDowns, Resets: s.Resets, Fault: kind,
				Crash: s.Crash, Refused: s.Refused})
		}
	}
	return out
}

var errOldDaemon = errors.New("the daemon of this lab is of an older rackless: run rackless down first")

// ask sends a request. A daemon that does not know it closes the connection without an answer.
func ask(ctx context.Context, dir string, q request) (got listed, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, agentsSocket))
	if err != nil {
		return got, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err = json.NewEncoder(conn).Encode(q); err == nil {
		err = json.NewDecoder(conn).Decode(&got)
	}
	if ctx.Err() != nil {
		return got, context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		return got, errOldDaemon
	}
	if err == nil && got.Error != "" {
		err = errors.New(got.Error)
	}
	return got, err
}

// Adapters implements rack.Adapted.
func (r *emulatedLab) Adapters(ctx context.Context) ([]checks.Adapter, error) {
	if !hasConnectX(r.Lab) {
		return nil, nil
	}
	got, err := ask(ctx, r.Dir, request{List: true})
	if err != nil {
		return nil, fmt.Errorf("lab %s: its daemon does not answer: %w; rackless up starts it, and the nodes that had "+
			"ConnectX NICs, again", r.Lab.Name, err)
	}
	return got.Adapters, nil
}

// VRAM implements rack.GPULab.
func (r *emulatedLab) VRAM(ctx context.Context) ([]rack.VRAM, error) {
	if !slices.ContainsFunc(r.Lab.Nodes, func(n lab.Node) bool { return n.GPUs > 0 }) {
		return nil, nil
	}
	got, err := ask(ctx, r.Dir, request{List: true})
	if err != nil {
		return nil, fmt.Errorf("lab %s: its daemon does not answer: %w", r.Lab.Name, err)
	}
	return lists.Map(got.GPUs, func(g listedGPU) rack.VRAM {
		return rack.VRAM{Node: g.Node, GPU: g.GPU, Address: g.Address, Memory: g.Memory, Moved: g.Moved}
	}), nil
}

// SetFault implements rack.Adapted. The switch makes the other end of the cable silent.
func (r *emulatedLab) SetFault(ctx context.Context, node string, nic int, f checks.Fault) error {
	c, err := r.Switch()
	if err != nil {
		return err
	}
	have, err := c.Counters(ctx)
	if err != nil {
		return err
	}
	port := rack.PortName(node, nic)
	for _, p := range have.Ports {
		if down := f == checks.FaultLink; p.Name == port && p.Link.Down != down {
			p.Link.Down = down
			if err := c.SetLink(ctx, port, p.Link); err != nil {
				return err
			}
		}
	}
	if f == checks.FaultLink {
		_, err := ask(ctx, r.Dir, request{Fault: &fault{Port: port}}) // no other fault remains
		return err
	}
	return r.change(ctx, node, fault{Port: rack.PortName(node, nic), Kind: f}, f == "")
}

// ResetAdapter implements rack.Adapted.
func (r *emulatedLab) ResetAdapter(ctx context.Context, node string, nic int) error {
	return r.change(ctx, node, fault{Port: rack.PortName(node, nic), Reset: true}, true)
}

// change restores settings if the adapter works afterwards.
func (r *emulatedLab) change(ctx context.Context, node string, f fault, works bool) error {
	if _, err := ask(ctx, r.Dir, request{Fault: &f}); err != nil || !works {
		return err
	}
	return r.mend(ctx, node)
}

// A driver polls every 2 s, and finishes current work first. If it has given up its adapter, it is bound again after
// bindAfter.
const (
	mendLimit = 3 * time.Minute
	bindAfter = 5 * time.Second
)

const bindScript = `cd /sys/bus/pci/devices && for d in *; do
	[ "$(cat $d/vendor)" = 0x15b3 ] && [ ! -e $d/net ] || continue
	[ -e $d/driver ] && echo $d >$d/driver/unbind
	echo $d >/sys/bus/pci/drivers/mlx5_core/bind
done`

// mend also configures new network devices of a recovered driver.
func (r *emulatedLab) mend(ctx context.Context, node string) error {
	i := slices.IndexFunc(r.Lab.Nodes, func(n lab.Node) bool { return n.Name == node })
	have, ok := r.State.Node(node)
	if i < 0 || !ok {
		return fmt.Errorf("lab %s has no node %s", r.Lab.Name, node)
	}
	n := r.Lab.Nodes[i]
	late := fmt.Errorf("node %s: its driver did not recover the NIC within %v; rackless exec %s -- dmesg says "+
		"why; rackless down and up start the node again", node, mendLimit, node)
	ctx, cancel := context.WithTimeoutCause(ctx, mendLimit, late)
	defer cancel()
	f, err := r.recovered(ctx, n)
	if err != nil {
		return err
	}
	mended := *have
	if mended.Facts = f; !configured(r.Lab, n, f) {
		agent, err := r.Rack.Agent(ctx, node)
		if err != nil {
			return err
		}
		if mended.Facts, err = agent.Configure(ctx, identity(r.Lab, n, have)); err != nil {
			return err
		}
	}
	if mended.Facts, err = checks.AdapterRDMA(ctx, n, mended.Facts, r.Rack); err != nil {
		return err
	}
	return r.AwaitGIDs(ctx, n, &mended, 100*time.Millisecond)
}

func (r *emulatedLab) recovered(ctx context.Context, n lab.Node) (*facts.Node, error) {
	for since := time.Now(); ; {
		all, err := r.Adapters(ctx)
		if err != nil {
			return nil, err
		}
		if settled(all, n.Name) {
			f, err := r.Facts(ctx, n.Name)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(n.NICs, func(nic lab.NIC) bool { return f.Netdev(nic.Name) == nil }) {
				return f, nil
			}
		}
		if time.Since(since) > bindAfter {
			// The adapter works afterwards, or ctx ends.
			_, err := r.Run(ctx, n.Name, guest.Command{Argv: []string{"sh", "-c", bindScript}})
			if err != nil {
				return nil, err
			}
			since = time.Now()
		}
		if err := wait.For(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func settled(all []checks.Adapter, node string) bool {
	return !slices.ContainsFunc(all, func(a checks.Adapter) bool {
		return a.Node == node && a.Fault == "" && !a.Driver
	})
}

func configured(l *lab.Lab, n lab.Node, f *facts.Node) bool {
	return !slices.ContainsFunc(n.NICs, func(nic lab.NIC) bool {
		d := f.Netdev(nic.Name)
		_, _, gid := f.RoCEv2(nic.Addr.Addr())
		return !gid || d.MTU == nil || *d.MTU != l.Fabric.MTU
	})
}
