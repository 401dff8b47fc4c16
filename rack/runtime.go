package rack

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
)

// A Driver is one way to run labs, selected by the key driver of a lab file.
type Driver struct {
	Name      string        // in lab files and states
	Where     string        // for messages: "emulated", "on this host's devices"
	DownLimit time.Duration // for ending a lab

	// Emulated means that NICs are emulated in any case: no figure is one of hardware.
	Emulated bool

	// NeedsPlace is set if nodes use devices of a host: Up takes a Placement.
	NeedsPlace bool

	// Check refuses unsupported settings before any change; nil supports all.
	Check func(l *lab.Lab) error
	// Survey returns the steps that Up would make. It is nil if Up does not change a host.
	Survey func(ctx context.Context, l *lab.Lab, place *Placement) ([]change.Result, error)
	// New is called for every opened lab, and must neither block nor change anything: connections are made on first
	// use.
	New func(r *Rack) Runtime
}

// A Runtime operates one lab under its driver. Its Rack has the lab, its state and its directory.
//
// Up and Down are called with the lab's lock held, all other methods from several goroutines.
type Runtime interface {
	// Up makes the nodes run as Rack.State.Lab describes them, and fills in Rack.State. old is the state of the
	// previous Up, or nil for a new lab. An unchanged lab is left alone.
	//
	// Everything is recorded on disk before it is started, so that Down finds it if this process is killed. If Up
	// fails, it stops everything that it has started; for a new lab Down does that.
	Up(ctx context.Context, old *State, o Options, p *Progress) error
	// Down ends everything of the lab, known to its state or not, even if the lab is gone or only half started. The
	// caller removes the directory.
	Down(ctx context.Context) error

	// NodeState returns the current state.
	NodeState(ctx context.Context, n *Node) (vm.State, error)
	// Agent connects to a guest agent.
	Agent(ctx context.Context, node string) (*guest.Agent, error)
	// Console connects to a serial console.
	Console(ctx context.Context, n *Node) (net.Conn, error)
	// Logs returns the files with a node's output.
	Logs(node string) Logs
	// Switch connects to the switch's control, or returns an error if there is none.
	Switch() (*fabric.Client, error)
	// SwitchState is current.
	SwitchState() SwitchState
	// Close ends the runtime's own connections; the lab runs on.
	Close() error
}

// A Keeper is a runtime whose Down may leave settings that somebody has changed since.
type Keeper interface {
	// Kept describes the settings that the last Down has left.
	Kept() []string
}

// A Hosted runtime places nodes on a host by a plan, with which `rackless verify` compares them.
type Hosted interface {
	// Placement is the nodes'.
	Placement() (*Placement, error)
	// Local reports whether the host is this machine; otherwise only nodes can be checked.
	Local(ctx context.Context) (bool, error)
	// Domains reads the lab's virtual machines on this machine.
	Domains(ctx context.Context) ([]checks.Domain, error)
}

// Logs may be missing, or on another machine.
type Logs struct {
	Console string // of the guest's serial console
	QEMU    string
}

// A SwitchState is that of a lab's switch.
type SwitchState string

// The states of a switch.
const (
	SwitchRunning SwitchState = "running"
	SwitchDead    SwitchState = "dead" // Up restarts it
	SwitchNone    SwitchState = "none" // nodes are on NICs of a host
)

// drivers is written only before main begins.
var drivers = make(map[string]*Driver)

// Register makes a driver known to Up and Open, in its package's initialisation. It panics if the name is taken.
func Register(d Driver) {
	if drivers[d.Name] != nil {
		panic("rack: driver " + d.Name + " is registered twice")
	}
	drivers[d.Name] = &d
}

// driverNamed fails for a state of a version with another driver.
func driverNamed(labName, name string) (*Driver, error) {
	d := drivers[name]
	if d == nil {
		return nil, fmt.Errorf("lab %s has driver %s, which is not in this version; it has: %s", labName, name,
			strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
	}
	return d, nil
}

// DriverOf names the driver that runs a lab.
func DriverOf(l *lab.Lab) string { return string(l.RunBy()) }

// Check refuses settings that the lab's driver does not support.
func Check(l *lab.Lab) error {
	d, err := driverNamed(l.Name, DriverOf(l))
	switch {
	case err == nil && !d.Emulated && l.Arch != "":
		return fmt.Errorf("lab %s: arch: %s is for emulated nodes, and those of driver %s are like their host: leave "+
			"arch out", l.Name, l.Arch, d.Name)
	case err != nil || d.Check == nil:
		return err
	}
	return d.Check(l)
}

// Survey returns the steps that Up would make; false without a survey.
func Survey(ctx context.Context, l *lab.Lab, place *Placement) (steps []change.Result, has bool, err error) {
	d, err := driverNamed(l.Name, DriverOf(l))
	if err != nil || d.Survey == nil {
		return nil, false, err
	}
	steps, err = d.Survey(ctx, l, place)
	return steps, true, err
}

// IsHardware reports whether the processor itself executes the nodes' CPUs.
func IsHardware(accelerator string) bool { return accelerator == "kvm" || accelerator == "esxi" }

// NeedsPlace reports whether Up takes a Placement.
func NeedsPlace(l *lab.Lab) bool {
	d := drivers[DriverOf(l)]
	return d != nil && d.NeedsPlace
}

// NodeOverhead is a QEMU's memory besides the guest's own: 24 to 40 MiB were measured per clone under TCG, with
// translated code.
const NodeOverhead = 40 * lab.MiB

// Room is this machine's memory for nodes.
type Room struct {
	Available lab.Bytes // without swapping, by the kernel's estimate
	PerNode   lab.Bytes // with the default memory
}

// Nodes returns how many default nodes Up would start without Overcommit.
func (r Room) Nodes() int { return int(r.Available / r.PerNode) }

// ReadRoom reads the machine's memory.
func ReadRoom() (Room, error) {
	available, err := vm.MemoryAvailable()
	if err != nil {
		return Room{}, err
	}
	return Room{Available: available, PerNode: lab.DefaultMemory + NodeOverhead}, nil
}

// Accelerator chooses by the request: "kvm", "tcg", or "auto" or "" for KVM if it works. reason says why it is not KVM.
func Accelerator(want string, probe func() (usable bool, reason string, err error)) (accel, reason string, err error) {
	switch want {
	case "tcg":
		return "tcg", "asked for", nil
	case "kvm", "auto", "":
	default:
		return "", "", fmt.Errorf("accelerator %q: want auto, kvm or tcg", want)
	}
	usable, reason, err := probe()
	switch {
	case err != nil:
		return "", "", err
	case usable:
		return "kvm", "", nil
	case want == "kvm":
		return "", "", fmt.Errorf("KVM was asked for but cannot be used: %s; --accel tcg emulates the CPUs", reason)
	}
	return "tcg", reason, nil
}

// Memory returns the bytes that nodes and daemon use now; ok is false if unreadable.
func (r *Rack) Memory() (bytes int64, ok bool) {
	all := lists.Map(r.State.Nodes, func(n *Node) vm.Process { return n.Process })
	if r.State.Daemon != nil {
		all = append(all, *r.State.Daemon)
	}
	for _, p := range all {
		m, err := p.Memory()
		if err != nil {
			return 0, false
		}
		bytes += m
	}
	return bytes, true
}
