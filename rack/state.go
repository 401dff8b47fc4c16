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

// State is a lab's state.json.
type State struct {
	Version int      `json:"version"`       // of this format
	Lab     *lab.Lab `json:"lab"`           // from the last Up
	Driver  string   `json:"driver"`        // name of a Driver
	URI     string   `json:"uri,omitempty"` // of the libvirt with the nodes
	Accel   string   `json:"accelerator"`
	Emulate string   `json:"accelerator_reason"` // why not kvm
	// EmulatedHost means that this machine is emulated (rackless emulate): its KVM is not hardware either.
	EmulatedHost bool        `json:"emulated_host,omitempty"`
	QEMU         string      `json:"qemu"`
	Image        string      `json:"image"`            // key
	Images       []string    `json:"images,omitempty"` // keys of other images in use
	Kernel       string      `json:"kernel"`           // of the guests
	Package      []string    `json:"packages"`
	Daemon       *vm.Process `json:"daemon,omitempty"`
	Nodes        []*Node     `json:"nodes"`
	Created      time.Time   `json:"created"`
	Ready        bool        `json:"ready"` // false while up runs, and after one was killed
}

const stateVersion = 1

// A Node is the state of one node.
type Node struct {
	Name        string     `json:"name"`
	Process     vm.Process `json:"process"`               // executes its CPUs, if on this machine
	Accelerator string     `json:"accelerator"`           // "kvm" or "tcg"
	Cloned      bool       `json:"cloned"`                // resumed from a template instead of booted
	ColdReason  string     `json:"cold_reason,omitempty"` // why it was booted
	Started     time.Time  `json:"started"`
	Agent       string     `json:"agent"`   // unix socket of the guest agent; "" if the driver holds it
	Console     string     `json:"console"` // unix socket of the serial console; likewise
	Log         string     `json:"log"`     // file with the console's output; likewise

	Adapters  *vm.Process `json:"adapters,omitempty"` // process that emulates its NICs, if it is a separate one
	MachineID string      `json:"machine_id"`
	Ready     bool        `json:"ready"`            // configured
	SetUp     []string    `json:"set_up,omitempty"` // steps without a check that were run
	Facts     *facts.Node `json:"facts,omitempty"`
}

// ErrNotRunning is returned for a lab without a state.
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

// Save writes the state.
func (r *Rack) Save() error { return statedir.Write(r.Dir, r.State) }

// checkName refuses in particular "", which comes from an unset shell variable: its directory would be that of all
// labs.
func checkName(name string) error {
	if name == userdirs.HostsDir {
		return fmt.Errorf("lab %q: the name stands for emulated hosts: give the lab another one", name)
	}
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') {
		return fmt.Errorf("lab %q: not a name of a lab; see rackless ls", name)
	}
	return nil
}

// Node returns false before a node's start.
func (s *State) Node(name string) (*Node, bool) {
	if i := s.index(name); i >= 0 {
		return s.Nodes[i], true
	}
	return nil, false
}

func (s *State) index(name string) int {
	return slices.IndexFunc(s.Nodes, func(n *Node) bool { return n.Name == name })
}

func (s *State) put(n *Node) {
	if i := s.index(n.Name); i >= 0 {
		s.Nodes[i] = n
	} else {
		s.Nodes = append(s.Nodes, n)
	}
}

func (s *State) order() {
	place := make(map[string]int)
	for i, n := range s.Lab.Nodes {
		place[n.Name] = i
	}
	slices.SortFunc(s.Nodes, func(a, b *Node) int { return place[a.Name] - place[b.Name] })
}

// seen fills in actual addresses: cards that are passed through have burned-in ones, which no file has.
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

// Lock lets one process at a time change a lab. waiting, if set, is called once if another process holds the lock.
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
