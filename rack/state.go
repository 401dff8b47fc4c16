package rack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/statedir"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
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
	Image        string      `json:"image"`            // key
	Images       []string    `json:"images,omitempty"` // keys of others that nodes have
	Kernel       string      `json:"kernel"`           // of the guests
	Package      []string    `json:"packages"`
	Daemon       *vm.Process `json:"daemon,omitempty"`
	Nodes        []*Node     `json:"nodes"`
	Created      time.Time   `json:"created"`
	Ready        bool        `json:"ready"` // false while up works, and after one that was killed
}

const stateVersion = 1

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

	Adapters  *vm.Process `json:"adapters,omitempty"` // the process that emulates its NICs, if it is another one
	MachineID string      `json:"machine_id"`
	Ready     bool        `json:"ready"`            // configured
	SetUp     []string    `json:"set_up,omitempty"` // what was run of the steps that have no check
	Facts     *facts.Node `json:"facts,omitempty"`
}

// ErrNotRunning is returned for a lab that has no state.
var ErrNotRunning = errors.New("no such lab is running")

func loadState(d Dirs, name string) (*State, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	s := new(State)
	err := statedir.Read(d.Lab(name), "remove the lab with: rackless down "+name, s, &s.Version, stateVersion)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab %s: %w", name, ErrNotRunning)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Save writes the state of the lab.
func (r *Rack) Save() error { return statedir.Write(r.Dir, r.State) }

// checkName refuses what cannot be the name of a lab. The empty one above all, which an unset shell
// variable makes of an argument: its directory would be that of all labs.
func checkName(name string) error {
	if name == userdirs.HostsDir {
		return fmt.Errorf("lab %q: the name stands for emulated hosts: give the lab another one", name)
	}
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return fmt.Errorf("lab %q: not a name of a lab; see rackless ls", name)
	}
	return nil
}

// Node returns the state of a node; false if it was not yet started.
func (s *State) Node(name string) (*Node, bool) {
	if i := s.index(name); i >= 0 {
		return s.Nodes[i], true
	}
	return nil, false
}

func (s *State) index(name string) int {
	return slices.IndexFunc(s.Nodes, func(n *Node) bool { return n.Name == name })
}

// put adds a node or takes the place of the one with its name.
func (s *State) put(n *Node) {
	if i := s.index(n.Name); i >= 0 {
		s.Nodes[i] = n
	} else {
		s.Nodes = append(s.Nodes, n)
	}
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
			if dev := node.Facts.Netdev(n.NICs[k].Name); dev != nil && dev.MAC != "" {
				n.NICs[k].MAC = dev.MAC
			}
		}
	}
	return &l
}

// Lock takes the lock of a lab: one process at a time changes it. waiting, if not nil, is called once
// if another holds it.
func Lock(ctx context.Context, d Dirs, name string, waiting func(holder string)) (unlock func(), err error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := statedir.Own("running labs", d.Run); err != nil {
		return nil, err
	}
	return statedir.Lock(ctx, "lab "+name, d.Lab(name), func(holder string) error {
		if waiting != nil {
			waiting(holder)
		}
		return nil
	})
}
