package render

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// A Port has the data by which its guest finds it.
type Port struct {
	lab.NIC
	// Path is below /sys/devices in the guest, e.g. "pci0000:20/0000:20:00.0/0000:*:00.0". The firmware numbers the
	// buses at the *. It is empty if the port is not a device of the host.
	Path string
	// OwnMAC is set if the port keeps its burned-in address, as a NIC that is passed through as a whole does.
	OwnMAC bool
}

// Ports are in the order of the plan's NICs. It fails for the same plans as Domains.
func Ports(in Input, node string) ([]Port, error) {
	if in.Plan == nil {
		return nil, fmt.Errorf("ports of node %q: no plan", node)
	}
	i := slices.IndexFunc(in.Plan.Nodes, func(n plan.Node) bool { return n.Name == node })
	if i < 0 {
		return nil, fmt.Errorf("the plan has no node %q", node)
	}
	m, err := newMachine(in)
	var ports []Port
	if err == nil {
		ports, err = m.ports(&in.Plan.Nodes[i])
	}
	if err != nil {
		return nil, fmt.Errorf("ports of node %q: %w", node, err)
	}
	return ports, nil
}

func (m *machine) ports(n *plan.Node) ([]Port, error) {
	if err := checkNode(n); err != nil {
		return nil, err
	}
	_, t, err := m.tree(n)
	if err != nil {
		return nil, err
	}
	paths := map[topology.PCIAddr]string{}
	for _, p := range t.devices {
		for _, f := range p.functions {
			paths[f.host] = fmt.Sprintf("%s/0000:*:00.%d", t.path(p.bus), f.guest)
		}
	}
	var ports []Port
	for _, p := range portsOf(n) {
		port := Port{NIC: p.nic}
		if c := p.card; c != nil {
			a, err := m.address(functionOf(c))
			if err != nil {
				return nil, err
			}
			port.Path, port.OwnMAC = paths[a], c.Kind != plan.KindVF
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// path has root buses with numbers from the domain: 0 and the expander buses. The firmware numbers the others.
func (t *tree) path(port int) string {
	a := t.controllers[port].Address.PCI
	parent := t.controllers[*a.Bus]
	if parent.Model != pcieRoot && parent.Model != pcieExpanderBus {
		return fmt.Sprintf("%s/0000:*:%02x.%d", t.path(int(*a.Bus)), *a.Slot, *a.Function)
	}
	root := uint(0)
	if target := parent.PCI.Target; target != nil {
		root = *target.BusNr
	}
	return fmt.Sprintf("pci0000:%02x/0000:%02x:%02x.%d", root, root, *a.Slot, *a.Function)
}
