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

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/internal/wait"
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
	if err := OwnDir("running labs", d.Run); err != nil {
		return nil, err
	}
	return LockFile(ctx, "lab "+name, d.Lab(name), func(holder string) error {
		if waiting != nil {
			waiting(holder)
		}
		return nil
	})
}

// lockPoll is how often a lock that another process holds is tried again.
const lockPoll = 50 * time.Millisecond

// LockFile takes the lock of what lies in a directory: a file beside it, so that the directory can
// go. While another process holds it, it waits; waiting is called once then, and an error of its ends
// the attempt. what is the owner of the directory, for messages.
func LockFile(ctx context.Context, what, dir string, waiting func(holder string) error) (unlock func(), err error) {
	path := dir + ".lock"
	for told := false; ; {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", what, err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && sameFile(f, path) {
			// For the message of a process that waits; the lock itself is the flock.
			if err := f.Truncate(0); err == nil {
				fmt.Fprintf(f, "%d\n", os.Getpid())
			}
			return func() {
				// The file goes while the lock is held: a waiter that opened it before sees that it is
				// gone and opens the next.
				os.Remove(path)
				f.Close()
			}, nil
		}
		text, _ := os.ReadFile(path) // empty if it cannot be read, which is said as it is
		holder := strings.TrimSpace(string(text))
		f.Close()
		switch {
		case err == nil: // the file was removed between opening and locking
			continue
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, fmt.Errorf("lock %s: %w", path, err)
		case !told:
			if err := waiting(holder); err != nil {
				return nil, err
			}
			told = true
		}
		if err := wait.For(ctx, lockPoll); err != nil {
			return nil, fmt.Errorf("%s: another rackless (process %s) works on it: %w", what, holder, err)
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

// OwnDir makes a directory for this user only, and refuses one that another user could have made.
// holds is what lies there, for messages.
func OwnDir(holds, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("directory of %s: %w; set RACKLESS_RUN to one that can be written", holds, err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if err := checkOwner(holds, dir, fi); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// checkOwner refuses what is not a directory of this user's.
func checkOwner(holds, dir string, fi os.FileInfo) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); !fi.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("directory of %s: %s is not a directory of this user's: remove it or set RACKLESS_RUN", holds,
			dir)
	}
	return nil
}
