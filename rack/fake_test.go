package rack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
)

const fakeDriver = "fake"

func init() {
	Register(Driver{
		Name: fakeDriver, Where: "nowhere", DownLimit: time.Minute,
		Check: func(l *lab.Lab) error {
			if len(l.Nodes) > 3 {
				return errors.New("driver fake has room for 3 nodes")
			}
			return nil
		},
		New: func(r *Rack) Runtime { return &fakeLab{Rack: r} },
	})
	Register(Driver{Name: "other", Where: "elsewhere", DownLimit: time.Minute, NeedsPlace: true, Emulated: true,
		New: func(r *Rack) Runtime { return &fakeLab{Rack: r} }})
}

// A fakeLab has files as machines: an existing file is a running machine, which other processes can find.
type fakeLab struct {
	*Rack
	closed bool
}

var fails sync.Map

func (f *fakeLab) machine(node string) string { return filepath.Join(f.Dir, "machine-"+node) }

func (f *fakeLab) Up(ctx context.Context, old *State, o Options, p *Progress) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	f.State.Accel = "kvm"
	if old != nil {
		f.State.Nodes = old.Nodes
		for _, n := range old.Nodes {
			if !slices.ContainsFunc(f.Lab.Nodes, func(w lab.Node) bool { return w.Name == n.Name }) {
				p.Note("%s goes", n.Name)
				if err := os.Remove(f.machine(n.Name)); err != nil {
					return err
				}
			}
		}
		f.State.Nodes = slices.DeleteFunc(f.State.Nodes, func(n *Node) bool {
			return !slices.ContainsFunc(f.Lab.Nodes, func(w lab.Node) bool { return w.Name == n.Name })
		})
	}
	if err := f.Save(); err != nil {
		return err
	}
	var work []lab.Node
	for _, n := range f.Lab.Nodes {
		if _, ok := f.State.Node(n.Name); !ok {
			work = append(work, n)
		}
	}
	err := f.StartNodes(ctx, work, 2, p, func(ctx context.Context, n lab.Node) (*Node, error) {
		if _, bad := fails.Load(n.Name); bad {
			return nil, fmt.Errorf("node %s does not start", n.Name)
		}
		node := &Node{Name: n.Name, Started: time.Now(), Ready: true}
		return node, os.WriteFile(f.machine(n.Name), nil, 0o600)
	})
	if err != nil {
		return err
	}
	f.State.Ready = true
	return f.Save()
}

func (f *fakeLab) Down(context.Context) error {
	machines, err := filepath.Glob(f.machine("*"))
	for _, m := range machines {
		err = errors.Join(err, os.Remove(m))
	}
	return err
}

func (f *fakeLab) NodeState(_ context.Context, n *Node) (vm.State, error) {
	if _, err := os.Stat(f.machine(n.Name)); err != nil {
		return vm.Dead, nil
	}
	return vm.Running, nil
}

func (f *fakeLab) Agent(_ context.Context, node string) (*guest.Agent, error) {
	return guest.NewAgent(&fakeAgent{node: node, done: make(chan struct{})}), nil
}

func (f *fakeLab) Console(_ context.Context, n *Node) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		fmt.Fprintf(theirs, "%s login: ", n.Name)
		theirs.Close()
	}()
	return ours, nil
}

func (f *fakeLab) Logs(node string) Logs {
	return Logs{Console: f.machine(node) + ".console", QEMU: f.machine(node) + ".log"}
}

func (f *fakeLab) Switch() (*fabric.Client, error) { return nil, errors.New("no switch") }
func (f *fakeLab) SwitchState() SwitchState        { return SwitchNone }

func (f *fakeLab) Close() error {
	if f.closed {
		return errors.New("closed twice")
	}
	f.closed = true
	return nil
}

// A fakeAgent prints the node's name and the arguments, and exits with 3. It runs shells here, with the name in NODE.
type fakeAgent struct {
	node string
	argv []string
	done chan struct{}
}

func (a *fakeAgent) Call(_ context.Context, command string, args, result any) error {
	answer := map[string]any{}
	switch command {
	case "guest-exec":
		m := args.(map[string]any)
		a.argv = append([]string{m["path"].(string)}, m["arg"].([]string)...)
		answer["pid"] = 1 << 30 // no process of this machine
	case "guest-exec-status":
		code, out := 3, fmt.Appendf(nil, "%s: %q", a.node, a.argv)
		if a.argv[0] == "sh" {
			c := exec.Command(a.argv[0], a.argv[1:]...)
			c.Env = append(os.Environ(), "NODE="+a.node)
			out, _ = c.CombinedOutput()
			code = c.ProcessState.ExitCode()
		}
		answer = map[string]any{"exited": true, "exitcode": code, "out-data": out}
	default:
		return fmt.Errorf("a fake agent has no %s", command)
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

func (a *fakeAgent) Done() <-chan struct{} { return a.done }

func (a *fakeAgent) Close() error {
	close(a.done)
	return nil
}
