package rack

import (
	"context"
	"fmt"
	"time"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/vm"
)

// NoAdapter is the state of a node whose emulated adapters went with the lab's daemon: QEMU does not connect to them
// again. Up starts the node again.
const NoAdapter vm.State = "no-adapter"

// An Adapted runtime emulates adapters of its nodes.
type Adapted interface {
	check.AdapterReader
	// SetFault makes the adapter of a node's NIC fail, or, with an empty fault, work again: then the node is as
	// before when it returns.
	SetFault(ctx context.Context, node string, nic int, f check.Fault) error
	// ResetAdapter resets the adapter of a node's NIC. The node is as before when it returns.
	ResetAdapter(ctx context.Context, node string, nic int) error
}

// Adapters implements check.AdapterReader. A lab under a driver that emulates none has none.
func (r *Rack) Adapters(ctx context.Context) ([]check.Adapter, error) {
	if a, ok := r.runtime.(Adapted); ok {
		return a.Adapters(ctx)
	}
	return nil, nil
}

// Adapted returns what acts on the adapter of a node's NIC, which "" names the first of, and the NIC's index.
func (r *Rack) Adapted(node, nic string) (Adapted, int, error) {
	for _, n := range r.Lab.Nodes {
		if n.Name != node {
			continue
		}
		a, ok := r.runtime.(Adapted)
		if !ok || !n.ConnectX() {
			return nil, 0, fmt.Errorf("node %s has no emulated adapter: its lab file says nic: %s; use nic: "+
				"connectx-4-lx", node, n.NIC)
		}
		for i := range n.NICs {
			if nic == "" || n.NICs[i].Name == nic {
				return a, i, nil
			}
		}
		return nil, 0, fmt.Errorf("node %s has no NIC %s", node, nic)
	}
	return nil, 0, fmt.Errorf("lab %s has no node %s", r.Lab.Name, node)
}

// adapterWorks returns an error if the adapter of a node's first NIC has failed: no figure of it is one of the lab.
func (r *Rack) adapterWorks(node, nic string) error {
	all, err := r.Adapters(context.Background())
	if err != nil {
		return err
	}
	return check.Broken(r.Lab, all, node, nic)
}

// Fail gives an adapter a fault. With last it waits for that time, and ends the fault.
func Fail(ctx context.Context, x Adapted, node string, nic int, f check.Fault, last time.Duration) error {
	if err := x.SetFault(ctx, node, nic, f); err != nil || last == 0 {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(last):
	}
	// Whoever interrupts the wait wants its end all the same.
	return x.SetFault(context.WithoutCancel(ctx), node, nic, "")
}
