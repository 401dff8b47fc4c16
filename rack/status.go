package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rackless/rackless/driver/qemu"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/vm"
)

// Starting is the state of a node that up has not finished: not yet started, or not yet configured.
// The others are those of package vm.
const Starting vm.State = "starting"

// A NodeStatus is one node of the lab file and what it is now.
type NodeStatus struct {
	Lab   lab.Node
	Node  *Node // nil if it was not yet started
	State vm.State
	Err   error // why State is empty: the node could not be asked
}

// Status asks every node of the lab what it is doing, in the order of the lab file.
func (r *Rack) Status(ctx context.Context) []NodeStatus {
	all := make([]NodeStatus, len(r.Lab.Nodes))
	index := make([]int, len(all))
	for i, n := range r.Lab.Nodes {
		all[i].Lab, index[i] = n, i
		all[i].Node, _ = r.State.node(n.Name)
	}
	state := func(ctx context.Context, n *Node) (vm.State, error) { return (&qemu.Driver{}).State(ctx, &n.Node) }
	if r.State.Placed() {
		c, err := r.Libvirt(ctx)
		state = func(ctx context.Context, n *Node) (vm.State, error) {
			if err != nil {
				return "", err
			}
			return placedState(ctx, c, render.DomainName(r.Lab.Name, n.Name))
		}
	}
	// Asking is waiting: the limit is only there so that 500 nodes do not take 500 descriptors at once. f never fails.
	const limit = 32
	err := each(ctx, index, limit, func(ctx context.Context, i int) error {
		s := &all[i]
		switch {
		case s.Node == nil:
			s.State = Starting
		default:
			s.State, s.Err = state(ctx, s.Node)
			if s.Err == nil && s.State != vm.Dead && !s.Node.Ready {
				s.State = Starting
			}
		}
		return nil
	})
	for i := range all {
		if err != nil && all[i].State == "" && all[i].Err == nil {
			all[i].Err = err
		}
	}
	return all
}

// SwitchAlive reports whether the lab's daemon, and with it the switch, runs.
func (r *Rack) SwitchAlive() bool { return r.State.Daemon != nil && r.State.Daemon.Alive() }

// DaemonLog is the file to which the lab's daemon writes.
func (r *Rack) DaemonLog() string { return filepath.Join(r.Dir, "daemon.log") }

// QEMULog is the file to which a node's QEMU writes.
func (r *Rack) QEMULog(node string) string { return filepath.Join(nodeDir(r.Dir, node), "qemu.log") }

// Ports returns the names of the switch ports of a node.
func (r *Rack) Ports(node string) []string {
	var names []string
	for _, n := range r.Lab.Nodes {
		if n.Name == node {
			for i := range n.NICs {
				names = append(names, portPath(r.Dir, node, i).Name)
			}
		}
	}
	return names
}

// OpenAll finds every lab of this user, by name. Labs that are being made or removed just now are
// left out; others that cannot be read are in the error, beside those that can.
func OpenAll(d Dirs) ([]*Rack, error) {
	names, err := d.Names()
	if err != nil {
		return nil, err
	}
	var all []*Rack
	var errs []error
	for _, name := range names {
		s, err := d.loadState(name)
		switch {
		case err == nil:
			all = append(all, newRack(d, s))
		case !errors.Is(err, ErrNotRunning):
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

// Room is what this machine has for nodes.
type Room struct {
	Available lab.Bytes // memory that can be used without swapping, by the kernel's estimate
	PerNode   lab.Bytes // what a node with the default memory is counted as
}

// Nodes is how many nodes with the default memory Up would start without Overcommit.
func (r Room) Nodes() int { return int(r.Available / r.PerNode) }

// ReadRoom reads the machine's memory.
func ReadRoom() (Room, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Room{}, fmt.Errorf("memory available: %w", err)
	}
	available, err := memAvailable(b)
	return Room{Available: available, PerNode: lab.DefaultMemory + nodeOverhead}, err
}

// Templates returns the directory of the template cache.
func (d Dirs) Templates() string { return d.templates() }

// CheckRun refuses a directory for running labs that Up would refuse, without making it, and
// returns the number of bytes that are left in a socket's path for the names of a lab and of a node
// together.
func (d Dirs) CheckRun() (names int, err error) {
	if fi, err := os.Lstat(d.Run); err == nil {
		if err := ownDir(d.Run, fi); err != nil {
			return 0, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	// RUN/LAB/NODE/console.sock is the longest; a port's socket, RUN/LAB/p-NODE.7.sock, is shorter.
	const maxSocketPath = 107 // unix(7)
	return maxSocketPath - len(d.Run) - len("//"+"/console.sock"), nil
}
