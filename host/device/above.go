package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

// carries lists uses by the host, a guest or a container. It ignores IPv6 link-local addresses, because every device
// that is up has one.
func (f function) carries(ctx context.Context) (string, error) {
	netdevs, err := f.netdevs()
	if err != nil {
		return "", err
	}
	if class, err := f.class(); err != nil || class.Base() != topology.ClassNetwork && len(netdevs) == 0 {
		return "", err
	}
	network, err := f.k.network(f.s)
	if err != nil {
		return "", err
	}
	found, err := f.foreign(ctx, network, netdevs)
	if err != nil {
		return "", err
	}
	if len(netdevs) == 0 && len(found) == 0 {
		if away, err := f.elsewhere(); err != nil || away != "" {
			return away, err
		}
	}
	above, err := f.above(ctx, network, netdevs)
	if err != nil {
		return "", err
	}
	rdma, err := f.rdma(ctx, network, netdevs)
	return strings.Join(slices.Concat(found, above, rdma), ", "), err
}

// above includes the uses of all devices stacked on netdevs. The kernel links each device to its upper devices
// ("upper_bond0") and to its bridge or bond ("master").
func (f function) above(ctx context.Context, network Network, netdevs []string) ([]string, error) {
	if len(netdevs) == 0 {
		return nil, nil
	}
	addresses, err := network.Addresses(ctx)
	if err != nil {
		return nil, err
	}
	r := reader{s: f.s}
	var found, seen []string
	for next := slices.Clone(netdevs); len(next) > 0; next = next[1:] {
		netdev := next[0]
		if slices.Contains(seen, netdev) {
			continue
		}
		seen = append(seen, netdev)
		for _, a := range addresses {
			if a.Netdev == netdev && !(a.Addr.Is6() && a.Addr.IsLinkLocalUnicast()) {
				found = append(found, fmt.Sprintf("%s has address %s", netdev, a.Addr))
			}
		}
		master := r.link(netFile(netdev, "master"))
		if master != "" {
			found = append(found, fmt.Sprintf("%s belongs to %s", netdev, master))
			next = append(next, master)
		}
		for _, entry := range r.list(netFile(netdev, "")) {
			if upper, ok := strings.CutPrefix(entry, "upper_"); ok && upper != master {
				found = append(found, fmt.Sprintf("%s%s stands on %s", kindOf(f.s, upper), upper, netdev))
				next = append(next, upper)
			}
		}
	}
	return found, r.err
}

// kindOf returns the kernel's name with a space ("vlan "), or "".
func kindOf(s *change.System, netdev string) string {
	text, _ := s.ValueOr(netFile(netdev, "uevent"), "") // an error only loses the kind
	for line := range strings.Lines(text) {
		if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			return kind + " "
		}
	}
	return ""
}

// foreign lists devices in other network namespaces on the function. Links to upper devices in sysfs end at the
// namespace, so a container's macvlan is visible only there.
func (f function) foreign(ctx context.Context, network Network, netdevs []string) ([]string, error) {
	type key struct{ k *kernel } // all guards of one survey share one look
	all, err := change.Seen(ctx, key{f.k}, func() ([]Foreign, error) { return network.Foreign(ctx) })
	var found []string
	for _, d := range all {
		switch {
		case d.Function == f.a.String():
			found = append(found, fmt.Sprintf("its network device %s is in the network namespace of %s", d.Netdev,
				d.Owner))
		case slices.Contains(netdevs, d.Lower):
			found = append(found, fmt.Sprintf("%s %s in the network namespace of %s stands on %s", d.Kind, d.Netdev,
				d.Owner, d.Lower))
		}
	}
	return found, err
}

// rdma lists the users of the function's RDMA device: contexts mean programs, connection identifiers also kernel
// storage. The kernel's own resources on every device are queues, without either. Soft RoCE stands on a network device.
func (f function) rdma(ctx context.Context, network Network, netdevs []string) ([]string, error) {
	const class = "/sys/class/infiniband"
	r := reader{s: f.s}
	own := r.list(f.path("infiniband"))
	var found []string
	for _, name := range r.list(class) {
		lower, err := f.s.ValueOr(class+"/"+name+"/parent", "")
		if err == nil && slices.Contains(netdevs, lower) {
			found = append(found, fmt.Sprintf("RDMA device %s stands on %s", name, lower))
		}
	}
	if len(own) == 0 || r.err != nil {
		return found, r.err
	}
	used, err := network.RDMA(ctx)
	for _, name := range own {
		for _, resource := range []string{"ctx", "cm_id"} {
			if n := used[name][resource]; n > 0 {
				found = append(found, fmt.Sprintf("RDMA device %s has %d open %s (rdma resource show %s)", name, n,
					map[string]string{"ctx": "contexts", "cm_id": "connections"}[resource], name))
			}
		}
	}
	return found, err
}

// elsewhere reports a NIC that has a network driver but no network device here: a container has it, as sysfs shows only
// our own network namespace. Only a RoCE function must have a network device.
func (f function) elsewhere() (string, error) {
	class, err1 := f.class()
	driver, err2 := f.driver()
	layers, err3 := f.linkLayers()
	if err := errors.Join(err1, err2, err3); err != nil || class.Base() != topology.ClassNetwork {
		return "", err
	}
	infiniband := slices.Contains(layers, "InfiniBand") || len(layers) > 0 && class.Sub() == 0x0207
	if infiniband && !slices.Contains(layers, "Ethernet") {
		return "", nil
	}
	switch driver {
	case "", vfioPCI, "pci-stub", "uio_pci_generic", "igb_uio":
		return "", nil
	}
	return "driver " + driver + " has it, and its network device is in another network namespace, as those of " +
		"containers are", nil
}

// class returns 0 if the PCI class is unknown.
func (f function) class() (topology.ID24, error) {
	text, err := f.optional("class")
	if err != nil || text == nil {
		return 0, err
	}
	class, err := topology.ParseID24(*text)
	if err != nil {
		err = fmt.Errorf("%s: %w", f.path("class"), err)
	}
	return class, err
}

// linkLayers: "Ethernet" means RoCE.
func (f function) linkLayers() (layers []string, err error) {
	r := reader{s: f.s}
	for _, device := range r.list(f.path("infiniband")) {
		ports := f.path("infiniband/" + device + "/ports")
		for _, port := range r.list(ports) {
			layers = append(layers, r.value(ports+"/"+port+"/link_layer"))
		}
	}
	return layers, r.err
}
