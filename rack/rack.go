package rack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/driver/libvirt"
	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/render"
)

// A Rack is a running lab as this process uses it. Its methods may be called from several goroutines.
type Rack struct {
	Lab   *lab.Lab
	State *State
	Dir   string // of the lab

	mu     sync.Mutex
	agents map[string]*guest.Agent
	virt   *libvirt.Conn // of a lab that is placed on a host, once it is needed
}

// Open finds a running lab. Close it after use.
func Open(d Dirs, name string) (*Rack, error) {
	s, err := d.loadState(name)
	if err != nil {
		if errors.Is(err, ErrNotRunning) {
			names, listErr := d.Names()
			if listErr == nil && len(names) > 0 {
				return nil, fmt.Errorf("%w; running: %s", err, strings.Join(names, ", "))
			}
			return nil, fmt.Errorf("%w; bring one up with: rackless up LAB.yaml", err)
		}
		return nil, err
	}
	return newRack(d, s), nil
}

func newRack(d Dirs, s *State) *Rack {
	return &Rack{Lab: s.seen(), State: s, Dir: d.lab(s.Lab.Name), agents: make(map[string]*guest.Agent)}
}

// OpenNode finds the lab of a node that is named as NODE or as LAB/NODE. A NODE that several labs
// have is an error that lists them.
func OpenNode(d Dirs, node string) (*Rack, string, error) {
	if labName, n, ok := strings.Cut(node, "/"); ok {
		r, err := Open(d, labName)
		if err != nil {
			return nil, "", err
		}
		if _, ok := r.State.node(n); !ok {
			return nil, "", fmt.Errorf("lab %s has no node %s: it has %s", labName, n, strings.Join(r.names(), ", "))
		}
		return r, n, nil
	}
	names, err := d.Names()
	if err != nil {
		return nil, "", err
	}
	var found *Rack
	var all []string
	for _, name := range names {
		s, err := d.loadState(name)
		if errors.Is(err, ErrNotRunning) {
			continue // being made or removed just now
		}
		if err != nil {
			return nil, "", err
		}
		if _, ok := s.node(node); ok {
			if found != nil {
				return nil, "", fmt.Errorf("node %s is in labs %s and %s: say %s/%s or %s/%s", node, found.Lab.Name,
					name, found.Lab.Name, node, name, node)
			}
			found = newRack(d, s)
		}
		for _, n := range s.Nodes {
			all = append(all, n.Name)
		}
	}
	if found == nil {
		if len(all) == 0 {
			return nil, "", fmt.Errorf("node %s: no lab is running; bring one up with: rackless up LAB.yaml", node)
		}
		const few = 16
		if len(all) > few {
			all = append(all[:few], "...")
		}
		return nil, "", fmt.Errorf("node %s: no running lab has it; nodes: %s", node, strings.Join(all, ", "))
	}
	return found, node, nil
}

func (r *Rack) names() []string {
	var names []string
	for _, n := range r.State.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// Close ends the connections to the nodes.
func (r *Rack) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, a := range r.agents {
		errs = append(errs, a.Close())
	}
	clear(r.agents)
	if r.virt != nil {
		errs = append(errs, r.virt.Close())
		r.virt = nil
	}
	return errors.Join(errs...)
}

// Switch connects to the control of the lab's switch.
func (r *Rack) Switch() (*fabric.Client, error) {
	if r.State.Placed() {
		return nil, fmt.Errorf("lab %s is on this host's own NICs: there is no switch of rackless between them",
			r.Lab.Name)
	}
	c, err := fabric.Dial(filepath.Join(r.Dir, switchSocket))
	if err != nil {
		return nil, fmt.Errorf("the switch of lab %s does not answer: %w; rackless up starts it again", r.Lab.Name, err)
	}
	return c, nil
}

// Run executes a command on a node.
func (r *Rack) Run(ctx context.Context, node string, c guest.Command) (guest.Result, error) {
	a, err := r.agent(ctx, node)
	if err != nil {
		return guest.Result{}, err
	}
	res, err := a.Run(ctx, c)
	if err != nil {
		return res, fmt.Errorf("%s: %w", node, err)
	}
	return res, nil
}

// Stream executes a command on a node, writes its output as it comes and returns its exit status.
func (r *Rack) Stream(ctx context.Context, node string, c guest.Command, stdout, stderr io.Writer) (exit int,
	err error) {
	a, err := r.agent(ctx, node)
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

// agent returns a connection to a node's agent through the lab's daemon, opening it at the first call.
func (r *Rack) agent(ctx context.Context, node string) (*guest.Agent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.agents[node]; a != nil {
		select {
		case <-a.Done():
			a.Close()
			delete(r.agents, node)
		default:
			return a, nil
		}
	}
	if !slices.ContainsFunc(r.Lab.Nodes, func(n lab.Node) bool { return n.Name == node }) {
		return nil, fmt.Errorf("lab %s has no node %s", r.Lab.Name, node)
	}
	if r.State.Placed() {
		c, err := r.libvirt(ctx)
		if err != nil {
			return nil, err
		}
		a, err := c.Agent(ctx, render.DomainName(r.Lab.Name, node))
		if err != nil {
			return nil, err
		}
		r.agents[node] = a
		return a, nil
	}
	conn, err := qapi.DialPlain(ctx, filepath.Join(r.Dir, agentsSocket), func(nc net.Conn) error {
		return selectNode(ctx, nc, node)
	})
	if err != nil {
		return nil, fmt.Errorf("lab %s: its daemon does not answer: %w; rackless up starts it again", r.Lab.Name, err)
	}
	a := guest.NewAgent(conn)
	r.agents[node] = a
	return a, nil
}

// selectNode tells the daemon which node's agent this connection is for. That the agent cannot be
// reached now is not an error: commands will say so.
func selectNode(ctx context.Context, nc net.Conn, node string) error {
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	if err := json.NewEncoder(nc).Encode(map[string]string{"node": node}); err != nil {
		return err
	}
	// Byte by byte, so that nothing of what follows is taken.
	var b [1]byte
	for b[0] != '\n' {
		if _, err := nc.Read(b[:]); err != nil {
			return err
		}
	}
	return nil
}

// forget drops the connection to a node's agent, when the node is no longer the one it was.
func (r *Rack) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.agents[node]; a != nil {
		a.Close()
		delete(r.agents, node)
	}
}
