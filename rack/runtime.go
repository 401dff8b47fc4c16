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

// A Driver is one way to run labs, as the key driver of a lab file names it. It holds what is the
// same for all labs of the driver; what differs from lab to lab is in the Runtime that New returns.
type Driver struct {
	Name      string        // in lab files, and in the states of labs
	Where     string        // where its labs run, for messages: "emulated", "on this host's devices"
	DownLimit time.Duration // bounds the end of a lab

	// Emulated is set where NICs are emulated whatever executes the nodes' instructions, so that
	// no figure of such a lab is one of hardware.
	Emulated bool

	// NeedsPlace is set where nodes go on the devices of a host, so that Up takes a Placement.
	NeedsPlace bool

	// Check returns an error for what the driver cannot do, before anything is changed; nil: it can
	// do whatever a lab file may ask for.
	Check func(l *lab.Lab) error
	// Survey returns the steps that Up would make, and changes nothing; nil where Up only makes nodes, and changes no
	// host.
	Survey func(ctx context.Context, l *lab.Lab, place *Placement) ([]change.Result, error)
	// New returns the life of one lab. It is called whenever a lab is opened, and so must neither
	// block nor change anything: connections are made once they are needed.
	New func(r *Rack) Runtime
}

// A Runtime is the life of one lab under its driver. Package rack chooses it once, when the lab is
// opened or brought up, and asks it for all in which drivers differ; the Rack that it was made
// for has the lab, its state and its directory. Up and Down are called with the lab's lock held,
// all other methods from several goroutines.
type Runtime interface {
	// Up makes the nodes run as Rack.State.Lab describes them, and fills in Rack.State. old is the
	// state that a previous Up has left, nil for a new lab. Whatever it starts is recorded on disk
	// first, so that Down finds it if this process is killed. A lab of which nothing must change is
	// left alone. If Up fails, what it has started is stopped again; of a new lab Down does that.
	Up(ctx context.Context, old *State, o Options, p *Progress) error
	// Down ends everything that belongs to the lab, known to its state or not. It is called for labs
	// that are gone already, too, and for those whose Up was killed half-way. The directory is the
	// caller's to remove.
	Down(ctx context.Context) error

	// NodeState returns what the node is doing now.
	NodeState(ctx context.Context, n *Node) (vm.State, error)
	// Agent connects to the guest agent of a node of the lab.
	Agent(ctx context.Context, node string) (*guest.Agent, error)
	// Console connects to the serial console of a node.
	Console(ctx context.Context, n *Node) (net.Conn, error)
	// Logs returns the files with a node's output.
	Logs(node string) Logs
	// Switch connects to the control of the switch between the nodes; an error where there is none.
	Switch() (*fabric.Client, error)
	// SwitchState returns what the switch is doing now.
	SwitchState() SwitchState
	// Close ends the runtime's own connections; the lab runs on.
	Close() error
}

// A Hosted runtime is one whose nodes are placed on the devices of a host by a plan, so that
// `rackless verify` can hold the host and its virtual machines against the plan.
type Hosted interface {
	// Placement returns where the nodes are.
	Placement() (*Placement, error)
	// Local reports whether the host is this machine; otherwise only nodes can be looked at.
	Local(ctx context.Context) (bool, error)
	// Domains reads the virtual machines of the lab that exist, from a host that is this machine.
	Domains(ctx context.Context) ([]checks.Domain, error)
}

// Logs are the files with the output of a node. They may not exist, and may be on another machine.
type Logs struct {
	Console string // of the guest's serial console
	QEMU    string // of the program that runs the guest
}

// A SwitchState is what the switch between the nodes of a lab is doing.
type SwitchState string

// The states of a switch.
const (
	SwitchRunning SwitchState = "running"
	SwitchDead    SwitchState = "dead" // Up starts it again
	SwitchNone    SwitchState = "none" // the nodes are on NICs of a host
)

// drivers holds what Register was given, by name. It is written before main begins only.
var drivers = make(map[string]*Driver)

// Register makes a driver known to Up and Open. Packages with a driver call it when they are
// initialised, so that a program has the drivers that it imports. It panics if the name is taken.
func Register(d Driver) {
	if drivers[d.Name] != nil {
		panic("rack: driver " + d.Name + " is registered twice")
	}
	drivers[d.Name] = &d
}

// driverNamed returns the driver of a lab. A state may name one that this program lacks: it was
// written by another version.
func driverNamed(labName, name string) (*Driver, error) {
	d := drivers[name]
	if d == nil {
		return nil, fmt.Errorf("lab %s has driver %s, which is not in this version; it has: %s", labName, name,
			strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
	}
	return d, nil
}

// DriverOf returns the name of the driver that runs a lab.
func DriverOf(l *lab.Lab) string { return string(l.RunBy()) }

// Check returns an error for what the driver of a lab cannot do, as Up does before it changes anything.
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

// Survey returns the steps that Up would make for a lab; false for a driver that has none to show.
func Survey(ctx context.Context, l *lab.Lab, place *Placement) (steps []change.Result, has bool, err error) {
	d, err := driverNamed(l.Name, DriverOf(l))
	if err != nil || d.Survey == nil {
		return nil, false, err
	}
	steps, err = d.Survey(ctx, l, place)
	return steps, true, err
}

// IsHardware reports whether what executes the CPUs of nodes is the processor itself, and no emulation of one.
func IsHardware(accelerator string) bool { return accelerator == "kvm" || accelerator == "esxi" }

// NeedsPlace reports whether Up takes a Placement for the lab.
func NeedsPlace(l *lab.Lab) bool {
	d := drivers[DriverOf(l)]
	return d != nil && d.NeedsPlace
}

// NodeOverhead is the host memory that a QEMU takes besides the guest's own: measured 24 to 40 MiB
// a clone under TCG, translated code included.
const NodeOverhead = 40 * lab.MiB

// Room is what this machine has for nodes.
type Room struct {
	Available lab.Bytes // memory that can be used without swapping, by the kernel's estimate
	PerNode   lab.Bytes // what a node with the default memory is counted as
}

// Nodes is how many nodes with the default memory Up would start without Overcommit.
func (r Room) Nodes() int { return int(r.Available / r.PerNode) }

// ReadRoom reads the machine's memory.
func ReadRoom() (Room, error) {
	available, err := vm.MemoryAvailable()
	if err != nil {
		return Room{}, err
	}
	return Room{Available: available, PerNode: lab.DefaultMemory + NodeOverhead}, nil
}

// Accelerator decides what executes the guests' instructions by what was asked for: "kvm", "tcg", or
// "auto" or "" for KVM where it works. reason says why it is not KVM. probe tells whether KVM works,
// and why not.
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

// Memory returns the bytes that the nodes of the lab and its daemon take of this machine now; ok is false where that
// cannot be read.
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
