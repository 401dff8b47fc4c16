package rack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm"
)

// State is what is recorded of a lab in its directory, in state.json.
type State struct {
	Version int      `json:"version"`       // of this format
	Lab     *lab.Lab `json:"lab"`           // as it was last brought up
	Driver  string   `json:"driver"`        // name of a Driver
	URI     string   `json:"uri,omitempty"` // of the libvirt that has the nodes
	Accel   string   `json:"accelerator"`
	Emulate string   `json:"accelerator_reason"` // why not kvm
	// EmulatedHost is set where this machine is emulated itself (rackless emulate): its KVM is no hardware either.
	EmulatedHost bool        `json:"emulated_host,omitempty"`
	QEMU         string      `json:"qemu"`
	Image        string      `json:"image"`  // key
	Kernel       string      `json:"kernel"` // of the guests
	Package      []string    `json:"packages"`
	Daemon       *vm.Process `json:"daemon,omitempty"`
	Nodes        []*Node     `json:"nodes"`
	Created      time.Time   `json:"created"`
	Ready        bool        `json:"ready"` // false while up works, and after one that was killed
}

const (
	stateVersion = 1
	stateFile    = "state.json"
)

// A Node is one node as it was made.
type Node struct {
	Name        string     `json:"name"`
	Process     vm.Process `json:"process"`               // that executes its CPUs, if it is on this machine
	Accelerator string     `json:"accelerator"`           // "kvm" or "tcg"
	Cloned      bool       `json:"cloned"`                // resumed from a template, not booted
	ColdReason  string     `json:"cold_reason,omitempty"` // why it was booted
	Started     time.Time  `json:"started"`
	Agent       string     `json:"agent"`   // unix socket of the guest agent; "" if its driver has it
	Console     string     `json:"console"` // unix socket of the serial console; likewise
	Log         string     `json:"log"`     // file with what the console printed; likewise

	MachineID string      `json:"machine_id"`
	Ready     bool        `json:"ready"` // configured
	Facts     *facts.Node `json:"facts,omitempty"`
}

// UnmarshalJSON reads a node of this version or of one before it. Of its facts those that were
// recorded of its CPUs and PCI functions are left out: their form has changed, and the checks
// that need them read them from the node. A state must stay readable for `down`, which would
// leave running what it does not know of.
func (n *Node) UnmarshalJSON(b []byte) error {
	type plain Node
	read := struct {
		*plain
		Facts *struct {
			facts.Node
			Cores, NUMA, PCI json.RawMessage // in place of the fields of Node
		} `json:"facts"`
	}{plain: (*plain)(n)}
	if err := json.Unmarshal(b, &read); err != nil {
		return err
	}
	n.Facts = nil
	if read.Facts != nil {
		n.Facts = &read.Facts.Node
	}
	return nil
}

// ErrNotRunning is returned for a lab that has no state.
var ErrNotRunning = errors.New("no such lab is running")

func (d Dirs) loadState(name string) (*State, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	path := filepath.Join(d.lab(name), stateFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab %s: %w", name, ErrNotRunning)
	}
	if err != nil {
		return nil, err
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s: %w; remove the lab with: rackless down %s", path, err, name)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("%s has version %d, this rackless knows %d; remove the lab with: rackless down %s", path,
			s.Version, stateVersion, name)
	}
	return &s, nil
}

// Save writes the state so that a reader sees the old one or the new one, whatever happens in between.
func (r *Rack) Save() error {
	b, err := json.MarshalIndent(r.State, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(r.Dir, stateFile), b, 0o600)
}

// checkName refuses what cannot be the name of a lab. The empty one above all, which an unset shell
// variable makes of an argument: its directory would be that of all labs.
func checkName(name string) error {
	if name == hostsDir {
		return fmt.Errorf("lab %q: the name stands for emulated hosts: give the lab another one", name)
	}
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return fmt.Errorf("lab %q: not a name of a lab; see rackless ls", name)
	}
	return nil
}

// Lock takes the lock of a lab: one process at a time changes it. waiting, if not nil, is called once
// if another holds it. The lock is a file beside the lab's directory, so that the directory can go.
func (d Dirs) Lock(ctx context.Context, name string, waiting func(holder string)) (unlock func(), err error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := d.ensureRun(); err != nil {
		return nil, err
	}
	path := filepath.Join(d.Run, name+".lock")
	told := false
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock lab %s: %w", name, err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && sameFile(f, path) {
			// For the message of a process that waits; the lock itself is the flock.
			if err := f.Truncate(0); err == nil {
				fmt.Fprintf(f, "%d\n", os.Getpid())
			}
			return func() {
				// while it is held: a waiter that opened it before sees that it is gone and opens
				// the next
				os.Remove(path)
				f.Close()
			}, nil
		}
		holder, _ := os.ReadFile(path) // empty if it cannot be read, which is said as it is
		f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if err != nil && !told && waiting != nil {
			waiting(strings.TrimSpace(string(holder)))
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lab %s: another rackless (process %s) works on it: %w", name,
				strings.TrimSpace(string(holder)), context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sameFile reports whether the path still leads to the open file.
func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// Node returns the state of a node; false if it was not yet started.
func (s *State) Node(name string) (*Node, bool) {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return nil, false
}

// put adds a node or takes the place of the one with its name.
func (s *State) put(n *Node) {
	for i, have := range s.Nodes {
		if have.Name == n.Name {
			s.Nodes[i] = n
			return
		}
	}
	s.Nodes = append(s.Nodes, n)
}

// order sorts the nodes as in the lab.
func (s *State) order() {
	place := make(map[string]int)
	for i, n := range s.Lab.Nodes {
		place[n.Name] = i
	}
	slices.SortFunc(s.Nodes, func(a, b *Node) int { return place[a.Name] - place[b.Name] })
}

// seen returns the lab with the addresses that its NICs have: those of cards that are passed
// through are burned in, and no file says them.
func (s *State) seen() *lab.Lab {
	l := *s.Lab
	l.Nodes = slices.Clone(l.Nodes)
	for i := range l.Nodes {
		n := &l.Nodes[i]
		node, ok := s.Node(n.Name)
		if !ok || node.Facts == nil {
			continue
		}
		n.NICs = slices.Clone(n.NICs)
		for k := range n.NICs {
			if dev := node.Facts.Net[n.NICs[k].Name]; dev != nil && dev.MAC != "" {
				n.NICs[k].MAC = dev.MAC
			}
		}
	}
	return &l
}
