// Package links finds out which ports of a machine are joined by a cable. It sends frames of its own EtherType, and
// sets ports up for that if it is asked to, with the journal of package host/change.
package links

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/machine/topology"
)

// A Port is a network port of this machine, with the known facts about its other end.
type Port struct {
	NIC     string `json:"nic"` // PCI address, or the name of a NIC without one
	Model   string `json:"model,omitempty"`
	Netdev  string `json:"netdev"`
	RDMA    string `json:"rdma_device,omitempty"`
	Carrier *bool  `json:"carrier"` // null if the port is not up, so that its carrier is not known
	Mbps    *int64 `json:"speed_mbps,omitempty"`
	Up      bool   `json:"up"` // operational state
	// Joined are the ports at which frames of this port arrived, by name, and the other way round.
	Joined []Joint `json:"joined"`
	// Neighbour is the other end according to LLDP.
	Neighbour *Neighbour `json:"neighbour,omitempty"`
	// Unprobed says why the port did not take part in a probe. It is empty without a probe.
	Unprobed string `json:"unprobed,omitempty"`
}

// A Way says how frames get from one port to another.
type Way string

// Ways between two ports.
const (
	Cable   Way = "cable"   // nothing between them forwards frames
	Network Way = "network" // a switch or a bridge is between them
)

// A Joint is a port that frames of another port reach.
type Joint struct {
	Netdev string `json:"netdev"`
	Way    Way    `json:"way"`
}

// Of returns the ports of a machine, without virtual functions and representors, which have no cable.
func Of(h *topology.Host) []Port {
	var all []Port
	for i := range h.NICs {
		n := &h.NICs[i]
		if n.PF != nil {
			continue
		}
		for _, d := range n.Ports {
			if strings.HasPrefix(d.PhysPort, "pf") {
				continue
			}
			p := Port{NIC: n.ID(), Model: n.Model, Netdev: d.Name, Carrier: d.Carrier, Mbps: d.SpeedMbps,
				Up: d.State == "up", Joined: []Joint{}}
			for _, r := range n.Devices {
				for k := range r.Ports {
					if n.NetdevOf(&r.Ports[k]) == d.Name {
						p.RDMA = r.Name
					}
				}
			}
			all = append(all, p)
		}
	}
	return all
}

// A Probe sends frames from ports to find out which are joined.
type Probe struct {
	// Wait is the time for frames to arrive.
	Wait time.Duration
	// Up sets ports up that are down, and down again afterwards. Carrier is then the time for their links.
	Up      bool
	Carrier time.Duration
	// Journal is the path of the journal for that, and Kinds are the ops that it may have.
	Journal string
	Kinds   change.Kinds

	open func(netdev string) (socket, error) // tests replace it
}

// Run probes the ports, and fills in Joined and Unprobed.
func (p *Probe) Run(ctx context.Context, s *change.System, ports []Port) (err error) {
	if p.Up {
		j, err := change.Open(p.Journal, p.Kinds)
		if err != nil {
			return err
		}
		undo, err := p.raise(ctx, s, j, ports)
		// Ports that were set up go down again, also after Ctrl-C.
		defer func() { err = errors.Join(err, undo(), j.Close()) }()
		if err != nil {
			return err
		}
	}
	return p.exchange(ctx, s, ports)
}

// raise sets ports up. undo sets them down again, and must be called in any case.
func (p *Probe) raise(ctx context.Context, s *change.System, j *change.Journal, ports []Port) (undo func() error,
	err error) {
	var raised []*Up
	undo = func() error {
		var errs []error
		for _, op := range slices.Backward(raised) {
			errs = append(errs, change.UndoOne(context.WithoutCancel(ctx), s, j, op))
		}
		return errors.Join(errs...)
	}
	for i := range ports {
		op := &Up{Netdev: ports[i].Netdev}
		state, err := op.Read(ctx, s)
		if err != nil {
			return undo, err
		}
		if state != stateDown {
			continue
		}
		step := change.Step{Op: op, What: fmt.Sprintf("set port %s up for a probe", op.Netdev),
			Why: "a port that is down neither sends nor receives"}
		raised = append(raised, op) // also if it fails halfway
		if err := change.MakeOne(ctx, s, j, step); err != nil {
			return undo, fmt.Errorf("%s: %w", step.What, err)
		}
	}
	if len(raised) == 0 {
		return undo, nil
	}
	return undo, awaitCarriers(ctx, s, raised, p.Carrier)
}

// carrierPoll is the interval of looking whether links have come up.
const carrierPoll = 100 * time.Millisecond

// awaitCarriers waits until all ports have a carrier, or until the limit: a port without a cable never has one.
func awaitCarriers(ctx context.Context, s *change.System, ports []*Up, limit time.Duration) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if !slices.ContainsFunc(ports, func(u *Up) bool { return !carrier(s, u.Netdev) }) {
			break
		}
		if err := wait.For(ctx, carrierPoll); err != nil {
			return err
		}
	}
	return nil
}

// carrier reports whether a port has a carrier. The kernel refuses to tell while the port is down.
func carrier(s *change.System, netdev string) bool {
	text, err := s.Value(netFile(netdev, "carrier"))
	return err == nil && text == "1"
}

// netFile returns the sysfs path of a network device's file. Source: Documentation/ABI/testing/sysfs-class-net.
func netFile(netdev, file string) string { return "/sys/class/net/" + netdev + "/" + file }

// exchange sends from each port, and notes where the frames arrive.
func (p *Probe) exchange(ctx context.Context, s *change.System, ports []Port) error {
	open := p.open
	if open == nil {
		open = openSocket
	}
	sockets := make([]socket, len(ports))
	defer func() {
		for _, k := range sockets {
			if k != nil {
				k.Close()
			}
		}
	}()
	for i := range ports {
		port := &ports[i]
		if kind, err := s.ValueOr(netFile(port.Netdev, "type"), ""); err == nil && kind != "1" && kind != "" {
			port.Unprobed = "it is no Ethernet port" // ARPHRD_ETHER of include/uapi/linux/if_arp.h
			continue
		}
		up, err := (&Up{Netdev: port.Netdev}).Read(ctx, s)
		switch {
		case err != nil:
			port.Unprobed = err.Error()
		case up != stateUp:
			port.Unprobed = "it is set down"
		default:
			has := carrier(s, port.Netdev)
			if port.Carrier = &has; !has {
				port.Unprobed = "it has no carrier"
				continue
			}
			if sockets[i], err = open(port.Netdev); err != nil {
				return fmt.Errorf("%s: %w", port.Netdev, err)
			}
		}
	}
	x := newExchange(ports, sockets)
	err := x.run(ctx, p.Wait)
	x.note()
	return err
}

// byName orders joints.
func byName(a, b Joint) int {
	return cmp.Or(cmp.Compare(a.Netdev, b.Netdev), cmp.Compare(a.Way, b.Way))
}

// Joints returns each pair of joined ports once, in the order of the ports.
func Joints(ports []Port) [][2]Joint {
	var all [][2]Joint
	for i, p := range ports {
		for _, j := range p.Joined {
			k := slices.IndexFunc(ports, func(o Port) bool { return o.Netdev == j.Netdev })
			back := func(o Joint) bool { return o.Netdev == p.Netdev }
			if k < i && k >= 0 && slices.ContainsFunc(ports[k].Joined, back) {
				continue // said already
			}
			all = append(all, [2]Joint{{p.Netdev, j.Way}, j})
		}
	}
	return all
}

// Neighbours fills in the other ends. heard has the network devices as keys.
func Neighbours(ports []Port, heard map[string]Neighbour) {
	for i := range ports {
		if n, ok := heard[ports[i].Netdev]; ok {
			ports[i].Neighbour = &n
		}
	}
}

// Kinds are the ops of this package.
func Kinds() change.Kinds { return change.Kinds{kindUp: func() change.Op { return &Up{} }} }

// Names returns the network devices of ports.
func Names(ports []Port) []string { return lists.Map(ports, func(p Port) string { return p.Netdev }) }
