package rack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm"
)

// Starting is the state of a node that up has not finished: not yet started, or not yet configured.
// The others are package vm's.
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
		all[i].Node, _ = r.State.Node(n.Name)
	}
	// Asking is waiting: the limit is only there so that 500 nodes do not take 500 descriptors at once. f never fails.
	const limit = 32
	err := Each(ctx, index, limit, func(ctx context.Context, i int) error {
		s := &all[i]
		if s.Node != nil {
			s.State, s.Err = r.runtime.NodeState(ctx, s.Node)
		}
		if s.Node == nil || s.Err == nil && s.State != vm.Dead && !s.Node.Ready {
			s.State = Starting
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

// Alive returns why a node has ended, or nil: also where that cannot be known. It asks QEMU and not the node.
func (r *Rack) Alive(ctx context.Context, node string) error {
	n, ok := r.State.Node(node)
	if !ok {
		return fmt.Errorf("node %s has not been started", node)
	}
	if st, err := r.runtime.NodeState(ctx, n); err == nil && st == vm.Dead {
		return fmt.Errorf("node %s has ended: see rackless logs %s; rackless up makes it anew", node, node)
	}
	return nil
}

// DaemonLog is the file to which the lab's daemon writes.
func (r *Rack) DaemonLog() string { return filepath.Join(r.Dir, "daemon.log") }

// HomeDir returns the directory that is /home of all nodes with a disk, where they share one. No node has its name.
func (r *Rack) HomeDir() string { return filepath.Join(r.Dir, "home.dir") }

// NodeDir returns the directory of a node.
func (r *Rack) NodeDir(node string) string { return filepath.Join(r.Dir, node) }

// PortName returns the name of the switch port of a NIC: the first NIC's port has the node's name,
// others have ".1", ".2" ... after it.
func PortName(node string, nic int) string {
	return words.Either(nic == 0, node, fmt.Sprintf("%s.%d", node, nic))
}

// Ports returns the names of the switch ports of a node, in the order of its NICs.
func (r *Rack) Ports(node string) []string {
	var names []string
	for _, n := range r.Lab.Nodes {
		if n.Name == node {
			for i := range n.NICs {
				names = append(names, PortName(node, i))
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
		s, err := loadState(d, name)
		if errors.Is(err, ErrNotRunning) {
			continue
		}
		var r *Rack
		if err == nil {
			r, err = newRack(d, s)
		}
		if err != nil {
			errs = append(errs, err)
		} else {
			all = append(all, r)
		}
	}
	return all, errors.Join(errs...)
}

// CheckRun refuses a directory for running labs that Up would refuse, without making it, and
// returns the number of bytes that are left in a socket's path for the names of a lab and of a node
// together.
func CheckRun(d Dirs) (names int, err error) {
	if fi, err := os.Lstat(d.Run); err == nil {
		if err := checkOwner("running labs", d.Run, fi); err != nil {
			return 0, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	// RUN/LAB/NODE/console.sock is the longest; a port's socket, RUN/LAB/p-NODE.7.sock, is shorter.
	const maxSocketPath = 107 // unix(7)
	return maxSocketPath - len(d.Run) - len("//"+"/console.sock"), nil
}

// MACsOf returns the addresses of the NICs of a node.
func MACsOf(l *lab.Lab, node string) ([]net.HardwareAddr, error) {
	i := slices.IndexFunc(l.Nodes, func(n lab.Node) bool { return n.Name == node })
	if i < 0 {
		return nil, fmt.Errorf("lab %s has no node %s", l.Name, node)
	}
	var macs []net.HardwareAddr
	for _, nic := range l.Nodes[i].NICs {
		m, err := net.ParseMAC(nic.MAC)
		if err != nil {
			return nil, err
		}
		macs = append(macs, m)
	}
	return macs, nil
}
