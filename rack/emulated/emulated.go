// Package emulated is the driver "qemu" of package rack: each node is a QEMU process of this user, each NIC is emulated
// on a switch of rackless, and RDMA is computed by the kernels of the nodes.
//
// One daemon per lab runs the switch and holds the connections to the guest agents. No parent process watches nodes and
// daemon. They are found by the state, or, if a killed rackless did not record them, by the lab's directory in their
// arguments.
package emulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qapi"
)

func init() {
	rack.Register(rack.Driver{
		Name:      string(lab.DriverQEMU),
		Where:     "emulated",
		DownLimit: 30 * time.Second, // 16 nodes end in a fraction of a second
		Emulated:  true,
		Check:     Supported,
		New:       func(r *rack.Rack) rack.Runtime { return &emulatedLab{Rack: r} },
	})
}

type emulatedLab struct {
	*rack.Rack
	lost lostAdapters
}

// Close does nothing: users of switch and agents close them.
func (r *emulatedLab) Close() error { return nil }

// NodeState asks the node's QEMU, and the daemon for its adapters.
func (r *emulatedLab) NodeState(ctx context.Context, n *rack.Node) (vm.State, error) {
	st, err := vm.QueryState(ctx, n.Process, filepath.Dir(n.Agent))
	if err != nil || st == vm.Dead || n.Adapters == nil {
		return st, err
	}
	lost, err := r.lost.now(ctx, r.Dir, r.State)
	if err != nil {
		return "", err
	}
	if lost[n.Name] != "" {
		st = rack.NoAdapter
	}
	return st, nil
}

// Logs implements rack.Runtime.
func (r *emulatedLab) Logs(node string) rack.Logs {
	dir := r.NodeDir(node)
	return rack.Logs{Console: filepath.Join(dir, "console.log"), QEMU: filepath.Join(dir, "qemu.log")}
}

// Switch connects to the daemon.
func (r *emulatedLab) Switch() (*fabric.Client, error) {
	c, err := fabric.Dial(filepath.Join(r.Dir, switchSocket))
	if err != nil {
		return nil, fmt.Errorf("the switch of lab %s does not answer: %w; rackless up starts it again", r.Lab.Name, err)
	}
	return c, nil
}

// SwitchState is the daemon's: it runs the switch.
func (r *emulatedLab) SwitchState() rack.SwitchState {
	if d := r.State.Daemon; d != nil && d.Alive() {
		return rack.SwitchRunning
	}
	return rack.SwitchDead
}

// Agent goes through the daemon, because the agent's port serves one connection at a time.
func (r *emulatedLab) Agent(ctx context.Context, node string) (*guest.Agent, error) {
	conn, err := qapi.DialPlain(ctx, filepath.Join(r.Dir, agentsSocket), func(nc net.Conn) error {
		return selectNode(ctx, nc, node)
	})
	if err != nil {
		return nil, fmt.Errorf("lab %s: its daemon does not answer: %w; rackless up starts it again", r.Lab.Name, err)
	}
	return guest.NewAgent(conn), nil
}

// selectNode ignores an unreachable agent: commands will report that.
func selectNode(ctx context.Context, nc net.Conn, node string) error {
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	if err := json.NewEncoder(nc).Encode(map[string]string{"node": node}); err != nil {
		return err
	}
	// The following data stay unread.
	var b [1]byte
	for b[0] != '\n' {
		if _, err := nc.Read(b[:]); err != nil {
			return err
		}
	}
	return nil
}

// Console connects to a node's console.
func (r *emulatedLab) Console(ctx context.Context, n *rack.Node) (net.Conn, error) {
	dead := fmt.Errorf("node %s: its process %d is gone; rackless up with the lab's file starts it again", n.Name,
		n.Process.PID)
	if !n.Process.Alive() {
		return nil, dead
	}
	if err := rack.ConsoleFree("node "+n.Name, n.Console); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", n.Console)
	if err != nil && !n.Process.Alive() {
		return nil, dead
	}
	return conn, err
}

// Down ends every process of the lab, found by the state and by the lab's directory in its arguments: a killed rackless
// may have left the state incomplete. Start times prevent signals to a process that reused a number.
func (r *emulatedLab) Down(ctx context.Context) error {
	procs, err := vm.Strays(r.Dir)
	if err != nil {
		return err
	}
	procs = append(procs, lists.Map(r.State.Nodes, func(n *rack.Node) vm.Process { return n.Process })...)
	if r.State.Daemon != nil {
		procs = append(procs, *r.State.Daemon)
	}
	// All are told before any is waited for.
	var errs []error
	for _, p := range procs {
		if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, fmt.Errorf("end process %d: %w", p.PID, err))
		}
	}
	errs = append(errs, killDaemons(ctx, r.Dir))
	errs = append(errs, lists.Map(procs, func(p vm.Process) error { return p.Wait(ctx) })...)
	return errors.Join(errs...)
}

func killDaemons(ctx context.Context, dir string) error {
	procs, err := vm.ProcessesUsing("", DaemonCommand+"\x00"+dir+"\x00")
	if err != nil {
		return err
	}
	errs := lists.Map(procs, func(p vm.Process) error { return p.Kill(ctx) })
	return errors.Join(errs...)
}

// Lab files may ask for more, for hosts.
const (
	// maxCPUs is the largest tested. QEMU's limit is 255 APIC IDs without x2APIC, which its emulated CPU lacks.
	maxCPUs = 64
	// maxPorts is the largest tested: each takes one of the 31 slots of the node's only PCI bus.
	maxPorts = 8
)

// Supported refuses settings that driver qemu cannot provide, such as devices of a host. It accepts settings about the
// place on a host (workload, host, hugepages, tenants, affinity, links, smt, guest_numa), because emulated nodes have
// no place there.
func Supported(l *lab.Lab) error {
	if d := l.Driver; d != "" && d != lab.DriverAuto && d != lab.DriverQEMU {
		return fmt.Errorf("lab %s: driver %s puts nodes on a host, and is not for emulated ones: use auto or qemu",
			l.Name, l.Driver)
	}
	for _, n := range l.Nodes {
		if n.HasDisk() && arch(l) != string(lab.ArchAMD64) {
			return fmt.Errorf("lab %s: node %s asks for image %s, and nodes of %s have image %s only: leave image out",
				l.Name, n.Name, n.Image, arch(l), lab.DefaultImage)
		}
		if n.NUMANodes() > 0 && arch(l) != string(lab.ArchAMD64) {
			return fmt.Errorf("lab %s: node %s has a NIC in a NUMA node, and nodes of %s have none: leave "+
				"numa_node out",
				l.Name, n.Name, arch(l))
		}
		if err := supported(n); err != nil {
			return fmt.Errorf("lab %s: node %s %w", l.Name, n.Name, err)
		}
	}
	return nil
}

func supported(n lab.Node) error {
	const host = "to place the lab on a host that has them, see rackless plan"
	switch {
	case n.VFs > 0:
		return fmt.Errorf("asks for %s, which driver qemu cannot give: set vfs: 0 and nics: %d; %s",
			words.Count(n.VFs, "virtual function"), len(n.NICs), host)
	case len(n.NICs) == 0:
		return errors.New("has no NIC, and an emulated node without one is on no fabric: set nics: 1")
	case len(n.NICs) > maxPorts:
		return fmt.Errorf("asks for %d NICs, and driver qemu gives at most %d: set nics: %d", len(n.NICs), maxPorts,
			maxPorts)
	case n.CPUs > maxCPUs:
		return fmt.Errorf("asks for %d CPUs, and driver qemu gives at most %d: set cpus: %d", n.CPUs, maxCPUs, maxCPUs)
	case n.OwnImage() && n.Memory < lab.MinFullMemory:
		return fmt.Errorf("has %v for the system of %s: set memory: %v, or more", n.Memory, n.Image,
			lab.DefaultFullMemory)
	}
	for _, r := range n.NICRequests {
		switch {
		case r.Address != "":
			return fmt.Errorf("asks for the NIC %s, and driver qemu gives emulated ones: set nics: %d; %s", r.Address,
				len(n.NICs), host)
		case r != (lab.DeviceRequest{Count: r.Count, NUMANode: r.NUMANode}):
			return fmt.Errorf("asks for NICs by what they are, and driver qemu gives emulated ones: set nics: %d; %s",
				len(n.NICs), host)
		}
	}
	nodes := n.NUMANodes()
	switch {
	case nodes > maxNUMANodes:
		return fmt.Errorf("has a NIC in NUMA node %d, and driver qemu gives at most %d NUMA nodes: set numa_node: 0 "+
			"or 1; "+
			"%s", nodes-1, maxNUMANodes, host)
	case nodes > 0 && n.NIC == lab.NICVirtio:
		return errors.New("has a NIC in a NUMA node, which needs a ConnectX: leave nic: virtio out")
	}
	return gpusSupported(n)
}

// maxNUMANodes is the largest tested.
const maxNUMANodes = 2
