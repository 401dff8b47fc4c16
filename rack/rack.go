// Package rack manages running labs: it brings a lab up, records its state on disk, finds it again from any later
// process, and ends it.
//
// One lab is one directory below Dirs.Run with its state, sockets and logs; a file lock next to it allows one process
// at a time to change the lab. No process watches over labs: Up compares the actual with the wanted state, and applies
// the difference.
//
// The interface Runtime hides how nodes are made. Packages below this one register a Driver when they are imported:
// emulated, placed and vcenter.
package rack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm/guest"
)

// A Rack is a running lab, safe for concurrent use.
type Rack struct {
	Lab   *lab.Lab // with actual addresses
	State *State
	Dirs  Dirs
	Dir   string // of the lab

	driver  *Driver
	runtime Runtime

	mu     sync.Mutex
	agents map[string]*guest.Agent // open connections, by node
}

// Open finds a running lab. Close it after use.
func Open(d Dirs, name string) (*Rack, error) {
	s, err := loadState(d, name)
	if errors.Is(err, ErrNotRunning) {
		if names, listErr := d.Names(); listErr == nil && len(names) > 0 {
			return nil, fmt.Errorf("%w; running: %s", err, strings.Join(names, ", "))
		}
		return nil, fmt.Errorf("%w; bring one up with: rackless up LAB.yaml", err)
	}
	if err != nil {
		return nil, err
	}
	return newRack(d, s)
}

// newRack starts nothing.
func newRack(d Dirs, s *State) (*Rack, error) {
	driver, err := driverNamed(s.Lab.Name, s.Driver)
	if err != nil {
		return nil, err
	}
	r := &Rack{Lab: s.seen(), State: s, Dirs: d, Dir: d.Lab(s.Lab.Name), driver: driver,
		agents: make(map[string]*guest.Agent)}
	r.runtime = driver.New(r)
	return r, nil
}

// OpenNode finds the lab of a node named NODE or LAB/NODE. If several labs have it, the error lists them.
func OpenNode(d Dirs, node string) (*Rack, string, error) {
	if labName, n, ok := strings.Cut(node, "/"); ok {
		r, err := Open(d, labName)
		if err != nil {
			return nil, "", err
		}
		if _, ok := r.State.Node(n); !ok {
			return nil, "", fmt.Errorf("lab %s has no node %s: it has %s", labName, n, strings.Join(r.names(), ", "))
		}
		return r, n, nil
	}
	racks, err := OpenAll(d)
	if err != nil {
		return nil, "", err
	}
	var found *Rack
	var all []string
	for _, r := range racks {
		if _, ok := r.State.Node(node); ok {
			if found != nil {
				return nil, "", fmt.Errorf("node %s is in labs %s and %s: say %s/%s or %s/%s", node, found.Lab.Name,
					r.Lab.Name, found.Lab.Name, node, r.Lab.Name, node)
			}
			found = r
		}
		all = append(all, r.names()...)
	}
	const few = 16
	switch {
	case found != nil:
		return found, node, nil
	case len(all) == 0:
		return nil, "", fmt.Errorf("node %s: no lab is running; bring one up with: rackless up LAB.yaml", node)
	case len(all) > few:
		all = append(all[:few], "...")
	}
	return nil, "", fmt.Errorf("node %s: no running lab has it; nodes: %s", node, strings.Join(all, ", "))
}

func (r *Rack) names() []string {
	return lists.Map(r.State.Nodes, func(n *Node) string { return n.Name })
}

// Close ends connections; the lab runs on.
func (r *Rack) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, a := range r.agents {
		errs = append(errs, a.Close())
	}
	clear(r.agents)
	return errors.Join(append(errs, r.runtime.Close())...)
}

// Hosted returns the runtime of a lab on a host; false for others.
func (r *Rack) Hosted() (Hosted, bool) {
	h, ok := r.runtime.(Hosted)
	return h, ok
}

// Switch connects to the switch's control.
func (r *Rack) Switch() (*fabric.Client, error) { return r.runtime.Switch() }

// SwitchState returns the switch's state.
func (r *Rack) SwitchState() SwitchState { return r.runtime.SwitchState() }

// Logs returns the files with a node's output.
func (r *Rack) Logs(node string) Logs { return r.runtime.Logs(node) }

// Console connects to a node's serial console.
func (r *Rack) Console(ctx context.Context, node string) (net.Conn, error) {
	n, ok := r.State.Node(node)
	if !ok {
		return nil, fmt.Errorf("node %s has not been started yet", node)
	}
	return r.runtime.Console(ctx, n)
}

// Emulated reports whether a part that measurements depend on is emulated: CPUs, the host, NICs, or RDMA that the
// kernel computes instead of a card.
func (r *Rack) Emulated() bool {
	s := r.State
	emulated := r.driver.Emulated || s.EmulatedHost || !IsHardware(s.Accel)
	return emulated || slices.ContainsFunc(s.Nodes, func(n *Node) bool {
		return n.Facts != nil && slices.ContainsFunc(n.Facts.NICs, func(nic topology.NIC) bool {
			return slices.ContainsFunc(nic.Devices, func(d topology.RDMADevice) bool {
				return topology.IsSoftRDMA(d.Name)
			})
		})
	})
}

// Run executes a command.
func (r *Rack) Run(ctx context.Context, node string, c guest.Command) (guest.Result, error) {
	a, err := r.Agent(ctx, node)
	if err != nil {
		return guest.Result{}, err
	}
	res, err := a.Run(ctx, c)
	if err != nil {
		return res, fmt.Errorf("%s: %w", node, err)
	}
	return res, nil
}

// Stream writes output as it comes and returns the exit status.
func (r *Rack) Stream(ctx context.Context, node string, c guest.Command,
	stdout, stderr io.Writer) (exit int, err error) {
	a, err := r.Agent(ctx, node)
	if err != nil {
		return 0, err
	}
	if exit, err = a.Stream(ctx, c, stdout, stderr); err != nil {
		if errors.Is(err, guest.ErrNoProgram) {
			return exit, fmt.Errorf("%s: %s: %w", node, c.Argv[0], err)
		}
		return exit, fmt.Errorf("%s: %w", node, err)
	}
	return exit, nil
}

// Agent returns a connection that all users of this Rack share until Close.
func (r *Rack) Agent(ctx context.Context, node string) (*guest.Agent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.agents[node]; a != nil {
		select {
		case <-a.Done():
			r.drop(node)
		default:
			return a, nil
		}
	}
	if !slices.ContainsFunc(r.Lab.Nodes, func(n lab.Node) bool { return n.Name == node }) {
		return nil, fmt.Errorf("lab %s has no node %s", r.Lab.Name, node)
	}
	a, err := r.runtime.Agent(ctx, node)
	if err != nil {
		return nil, err
	}
	a.Node = node
	r.agents[node] = a
	return a, nil
}

// Forget drops the connection to a node that has been replaced.
func (r *Rack) Forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(node)
}

func (r *Rack) drop(node string) {
	if a := r.agents[node]; a != nil {
		a.Close()
		delete(r.agents, node)
	}
}

// NodeNames returns the nodes of all running labs as LAB/NODE, and by name if only one lab has it.
func NodeNames(d Dirs) (out []string, err error) {
	racks, err := OpenAll(d)
	labs := make(map[string]int)
	for _, r := range racks {
		for _, n := range r.Lab.Nodes {
			labs[n.Name]++
		}
	}
	for _, r := range racks {
		for _, n := range r.Lab.Nodes {
			if labs[n.Name] == 1 {
				out = append(out, n.Name)
			}
			out = append(out, r.Lab.Name+"/"+n.Name)
		}
	}
	return out, err
}

// A Conn is a lab's connection to the manager of its nodes, made on first use; the zero value is ready. A failed
// attempt is not repeated, because Status would wait for the time limit at each node.
type Conn[T any] struct {
	mu   sync.Mutex
	conn *T
	err  error // error of the attempt
}

// Open dials only once.
func (c *Conn[T]) Open(dial func() (*T, error)) (*T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil && c.err == nil {
		c.conn, c.err = dial()
	}
	return c.conn, c.err
}

// Close ends the connection, if any.
func (c *Conn[T]) Close(end func(*T) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.conn
	if c.conn = nil; conn == nil {
		return nil
	}
	return end(conn)
}

// ConsoleFree returns an error if a console has a client, because QEMU serves one client and lets others wait silently.
// (If two connect at the same instant, one of them waits.)
func ConsoleFree(what, socket string) error {
	// procfs would fail at any user's socket with a line break in its name.
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return err
	}
	if accepted(b, socket) {
		return fmt.Errorf("%s: its console is open elsewhere: QEMU serves one at a time", what)
	}
	return nil
}

// accepted reports whether a listening unix socket has an accepted connection, by /proc/net/unix:
//
//	Num       RefCount Protocol Flags    Type St Inode Path
//	ffff8880: 00000003 00000000 00000000 0001 03 23456 /run/rackless/pair/vm00/console.sock
//
// The accepted end of a connection has the listener's path. St is 01 for a listener and 03 for a connection; one that
// waits to be accepted has the inode 0 (unix_seq_show in the kernel's net/unix/af_unix.c).
func accepted(procNetUnix []byte, path string) bool {
	sc := bufio.NewScanner(bytes.NewReader(procNetUnix))
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) == 8 && f[7] == path && f[5] == "03" && f[6] != "0" {
			return true
		}
	}
	return false
}

// Dirs are the directories of rackless.
type Dirs = userdirs.Dirs

// DefaultDirs returns this user's directories.
var DefaultDirs = userdirs.Default

// Progress of the steps of a long operation.
type (
	Progress = steps.Progress
	Event    = steps.Event
)
