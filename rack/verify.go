package rack

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/guest"
)

// Facts and Exec make a Rack a check.Reader.
var _ check.Reader = (*Rack)(nil)

// Facts returns what the kernel of a node says of it now.
func (r *Rack) Facts(ctx context.Context, node string) (*facts.Node, error) {
	a, err := r.Agent(ctx, node)
	if err != nil {
		return nil, err
	}
	return a.ReadFacts(ctx)
}

// execPoll bounds the pause between two looks at a command that Exec runs. Measurements are run by
// it, and each look takes CPU time from the node that is measured: of an emulated one 2 % at this
// pause. A measurement is over half of it late, in the mean.
const execPoll = 100 * time.Millisecond

// Exec runs a command on a node.
func (r *Rack) Exec(ctx context.Context, node string, argv []string) (bench.Output, error) {
	return r.Serve(ctx, node, argv, nil)
}

// Serve runs a command on a node, such as the server of a measurement. Until awaited is closed the
// caller does not wait for its end, and the node is asked seldom whether it has ended.
func (r *Rack) Serve(ctx context.Context, node string, argv []string, awaited <-chan struct{}) (bench.Output, error) {
	res, err := r.Run(ctx, node, guest.Command{Argv: argv, MaxPoll: execPoll, Awaited: awaited})
	return bench.Output{Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode}, err
}

// ReadFile returns what a file of a node holds now.
func (r *Rack) ReadFile(ctx context.Context, node, path string) ([]byte, error) {
	a, err := r.Agent(ctx, node)
	if err != nil {
		return nil, err
	}
	return a.ReadFile(ctx, path)
}

// Endpoint is a node as measurements address it: by its first NIC, with the GID index that was
// found when the node came up. One without NICs has no address.
func (r *Rack) Endpoint(node string) (bench.Endpoint, error) {
	for i, n := range r.Lab.Nodes {
		if n.Name != node {
			continue
		}
		if len(n.NICs) == 0 {
			return bench.Endpoint{Node: node}, nil // what is measured on one node alone needs no address
		}
		if err := r.adapterWorks(node, n.NICs[0].Name); err != nil {
			return bench.Endpoint{}, err
		}
		addr := n.NICs[0].Addr.Addr()
		if f := r.State.Nodes[i].Facts; f != nil {
			if device, gid, ok := f.RoCEv2(addr); ok {
				_, d := f.RDMADevice(device)
				wire := bench.Wire{Rate: *cmp.Or(d.Port(1).RateGbps, new(0.0)), Links: f.Links(device, gid),
					MTU: r.Lab.Fabric.RDMAPayload(), IPv6: addr.Is6()}
				return bench.Endpoint{Node: node, Addr: addr, Device: device, GIDIndex: gid, Wire: wire}, nil
			}
		}
		return bench.Endpoint{}, fmt.Errorf("%s has no RoCE v2 GID for %s: see rackless verify %s", node, addr,
			r.Lab.Name)
	}
	return bench.Endpoint{}, fmt.Errorf("lab %s has no node %s", r.Lab.Name, node)
}
