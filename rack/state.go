package rack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/userdirs"
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
	Image        string      `json:"image"`            // key
	Images       []string    `json:"images,omitempty"` // keys of others that nodes have
	Kernel       string      `json:"kernel"`           // of the guests
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
	err := ReadState(d.Lab(name), "remove the lab with: rackless down "+name, s, &s.Version, stateVersion)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab %s: %w", name, ErrNotRunning)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Save writes the state of the lab.
func (r *Rack) Save() error { return WriteState(r.Dir, r.State) }

// ReadState reads state.json from the directory of a lab or of an emulated host. version is the field of
// state that has its version, known the one that is wanted; advice says what else to do, for messages.
func ReadState(dir, advice string, state any, version *int, known int) error {
	path := filepath.Join(dir, stateFile)
	trace.Reads(path)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, state); err != nil {
		return fmt.Errorf("%s: %w; %s", path, err, advice)
	}
	if *version != known {
		return fmt.Errorf("%s has version %d, this rackless knows %d; %s", path, *version, known, advice)
	}
	return nil
}

// WriteState writes state.json so that a reader sees the old one or the new one, whatever happens in between.
func WriteState(dir string, state any) error {
	b, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, stateFile), b, 0o600)
}

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
	for n := range lists.Refs(l.Nodes) {
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
