package rack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/statedir"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
)

// Starting means not started or configured yet. Other states are package vm's.
const Starting vm.State = "starting"

// A NodeStatus is a node with its current state.
type NodeStatus struct {
	Lab   lab.Node
	Node  *Node // nil if not started yet
	State vm.State
	Err   error // why State is empty
}

// Status follows the order of the lab file.
func (r *Rack) Status(ctx context.Context) []NodeStatus {
	all := make([]NodeStatus, len(r.Lab.Nodes))
	index := make([]int, len(all))
	for i, n := range r.Lab.Nodes {
		all[i].Lab, index[i] = n, i
		all[i].Node, _ = r.State.Node(n.Name)
	}
	// Asking is waiting, but takes descriptors. f never fails.
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

// Alive returns why a node has ended or lost its adapters, or nil, also if that is unknown. It does not ask the node.
func (r *Rack) Alive(ctx context.Context, node string) error {
	n, ok := r.State.Node(node)
	if !ok {
		return fmt.Errorf("node %s has not been started", node)
	}
	switch st, err := r.runtime.NodeState(ctx, n); {
	case err == nil && st == vm.Dead:
		return fmt.Errorf("node %s has ended: see rackless logs %s; rackless up makes it again", node, node)
	case err == nil && st == NoAdapter:
		return fmt.Errorf("node %s has lost its ConnectX or a GPU: rackless up starts it again", node)
	}
	return nil
}

// DaemonLog is the log of the lab's daemon.
func (r *Rack) DaemonLog() string { return filepath.Join(r.Dir, vm.FileDaemonLog) }

// HomeDir is the shared /home, if any. No node has its name.
func (r *Rack) HomeDir() string { return filepath.Join(r.Dir, "home.dir") }

// NodeDir returns a node's directory.
func (r *Rack) NodeDir(node string) string { return filepath.Join(r.Dir, node) }

// PortName returns a NIC's switch port: the node's name for the first NIC, followed by ".1", ".2" ... for others.
func PortName(node string, nic int) string {
	if nic == 0 {
		return node
	}
	return fmt.Sprintf("%s.%d", node, nic)
}

// Ports returns a node's switch ports in order.
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

// OpenAll finds every lab of this user, by name, except labs that are being made or removed. The error is about other
// unreadable ones, in addition to the readable ones.
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

// CheckRun refuses a directory for running labs like Up, without making it. It returns the bytes left in a socket's
// path for the names of lab and node together.
func CheckRun(d Dirs) (names int, err error) {
	if fi, err := os.Lstat(d.Run); err == nil {
		if err := statedir.CheckOwner("running labs", d.Run, fi); err != nil {
			return 0, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	// RUN/LAB/NODE/console.sock is the longest.
	const maxSocketPath = 107 // unix(7)
	return maxSocketPath - len(d.Run) - len("//"+"/console.sock"), nil
}

// MACsOf returns a node's addresses.
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

// A Description is the JSON of rackless ls, see docs/json.md.
type Description struct {
	Name     string            `json:"name"`
	Ready    bool              `json:"ready"`  // up has finished
	Switch   string            `json:"switch"` // "running", "dead", or "none" on a host's own NICs
	Driver   string            `json:"driver"`
	Accel    string            `json:"accelerator"`                  // "kvm", "tcg" or "esxi"
	Reason   string            `json:"accelerator_reason,omitempty"` // why it is not kvm
	Emulated bool              `json:"emulated"`
	Kernel   string            `json:"kernel"`
	Image    string            `json:"image"`
	Dir      string            `json:"dir"`
	Home     string            `json:"home,omitempty"` // /home of all full nodes
	Created  time.Time         `json:"created"`
	Nodes    []NodeDescription `json:"nodes"` // in the lab file's order
}

// A NodeDescription is a node's current state.
type NodeDescription struct {
	Name string `json:"name"`
	// "running", "paused", "dead", "no-adapter", "starting" or "unknown"
	State      string           `json:"state"`
	Error      string           `json:"error,omitempty"` // reason that State is unknown
	PID        int              `json:"pid,omitempty"`
	CPUs       int              `json:"cpus"`
	Memory     int64            `json:"memory_bytes"`
	Cloned     bool             `json:"cloned"`
	ColdReason string           `json:"cold_reason,omitempty"` // why it was booted
	Started    *time.Time       `json:"started,omitempty"`
	NICs       []NICDescription `json:"nics"`
}

// A NICDescription is a NIC with its RDMA device.
type NICDescription struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	Address string `json:"address"` // with its prefix length
	RDMA    string `json:"rdma_device,omitempty"`
	GID     *int   `json:"roce_v2_gid_index,omitempty"` // absent without such a GID
}

// Describe asks each node's machine.
func (r *Rack) Describe(ctx context.Context) Description {
	s := r.State
	l := Description{
		Name: r.Lab.Name, Ready: s.Ready, Switch: string(r.SwitchState()), Driver: s.Driver, Accel: s.Accel,
		Reason: s.Emulate, Emulated: !IsHardware(s.Accel), Kernel: s.Kernel, Image: s.Image, Dir: r.Dir,
		Created: s.Created,
	}
	if r.Lab.Home == lab.HomeShared {
		l.Home = r.HomeDir()
	}
	for _, st := range r.Status(ctx) {
		l.Nodes = append(l.Nodes, describeNode(st))
	}
	return l
}

func describeNode(st NodeStatus) NodeDescription {
	n := NodeDescription{Name: st.Lab.Name, State: string(st.State), CPUs: st.Lab.CPUs, Memory: int64(st.Lab.Memory)}
	if st.Err != nil {
		n.State, n.Error = "unknown", st.Err.Error()
	}
	for _, nic := range st.Lab.NICs {
		n.NICs = append(n.NICs, NICDescription{Name: nic.Name, MAC: nic.MAC, Address: nic.Addr.String()})
	}
	if st.Node == nil {
		return n
	}
	n.PID, n.Cloned, n.ColdReason, n.Started = st.Node.Process.PID, st.Node.Cloned, st.Node.ColdReason, &st.Node.Started
	if st.Node.Facts == nil {
		return n
	}
	for i, nic := range st.Lab.NICs {
		for on, dev := range st.Node.Facts.RDMADevices() {
			if !on.Has(nic.Name) {
				continue
			}
			n.NICs[i].RDMA = dev.Name
			if gid, ok := dev.Port(1).RoCEv2Index(nic.Addr.Addr()); ok {
				n.NICs[i].GID = &gid
			}
		}
	}
	return n
}

var _ checks.Reader = (*Rack)(nil)

// Facts are a node's current ones.
func (r *Rack) Facts(ctx context.Context, node string) (*facts.Node, error) {
	a, err := r.Agent(ctx, node)
	if err != nil {
		return nil, err
	}
	return a.ReadFacts(ctx)
}

// execPoll is for commands of Exec, such as a measurement, which ends half an interval late on average. Polling takes 2
// % of an emulated node's CPU time.
const execPoll = 100 * time.Millisecond

// Exec runs a command on a node.
func (r *Rack) Exec(ctx context.Context, node string, argv []string) (bench.Output, error) {
	return r.Serve(ctx, node, argv, nil)
}

// Serve runs a command, such as the server of a measurement. Until awaited is closed, it polls rarely for its end.
func (r *Rack) Serve(ctx context.Context, node string, argv []string, awaited <-chan struct{}) (bench.Output, error) {
	res, err := r.Run(ctx, node, guest.Command{Argv: argv, MaxPoll: execPoll, Awaited: awaited})
	return bench.Output{Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode}, err
}

// ReadFile returns a node's file.
func (r *Rack) ReadFile(ctx context.Context, node, path string) ([]byte, error) {
	a, err := r.Agent(ctx, node)
	if err != nil {
		return nil, err
	}
	return a.ReadFile(ctx, path)
}

// Endpoint returns the address of a node's first NIC, with the GID index found when the node came up. A node without
// NICs has no address.
func (r *Rack) Endpoint(node string) (bench.Endpoint, error) { return r.EndpointOf(node, 0) }

// EndpointOf is like Endpoint for another NIC, from 0.
func (r *Rack) EndpointOf(node string, nic int) (bench.Endpoint, error) {
	for _, n := range r.Lab.Nodes {
		if n.Name != node {
			continue
		}
		made, ok := r.State.Node(node)
		if !ok {
			return bench.Endpoint{}, fmt.Errorf("node %s has not been started yet", node)
		}
		if len(n.NICs) == 0 && nic == 0 {
			return bench.Endpoint{Node: node}, nil // measurements of one node
		}
		if nic >= len(n.NICs) {
			return bench.Endpoint{}, fmt.Errorf("node %s has %s, and number %d is asked for, from 0", node,
				words.Count(len(n.NICs), "NIC"), nic)
		}
		if err := r.adapterWorks(node, n.NICs[nic].Name); err != nil {
			return bench.Endpoint{}, err
		}
		addr := n.NICs[nic].Addr.Addr()
		if f := made.Facts; f != nil {
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

// ImageUsers returns the names of running labs by their image's key.
func ImageUsers(d Dirs) (map[string][]string, error) {
	racks, err := OpenAll(d)
	users := make(map[string][]string)
	for _, r := range racks {
		for _, key := range append([]string{r.State.Image}, r.State.Images...) {
			users[key] = append(users[key], r.Lab.Name)
		}
	}
	return users, err
}
