package topology

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

// LinkEthernet and the others are as in sysfs.
const (
	LinkEthernet   = "Ethernet"
	LinkInfiniBand = "InfiniBand"
)

// NetdevOf returns the network device of an RDMA port: the one that its GIDs name, else the only one of the NIC, else
// the one with the port's number, else "".
func (n *NIC) NetdevOf(p *RDMAPort) string {
	for _, g := range p.GIDs {
		if g.Netdev != "" {
			return g.Netdev
		}
	}
	if len(n.Ports) == 1 {
		return n.Ports[0].Name
	}
	return lists.Find(n.Ports, func(d Netdev) bool { return d.DevPort != nil && *d.DevPort == p.Number-1 }).Name
}

// LinkLayer returns the link layer of a port: as a source states it, or else from GIDs, the LID, the network device or
// the class, in this order, or "".
func (h *Host) LinkLayer(n *NIC, d *RDMADevice, p *RDMAPort) string {
	if p.LinkLayer != "" {
		return p.LinkLayer
	}
	// A GID of InfiniBand has a port's GUID and no network device.
	if slices.ContainsFunc(p.GIDs, func(g GID) bool { return g.IsV2() || g.Netdev != "" || g.Addr().Is4() }) {
		return LinkEthernet
	}
	// mlx5 makes one device for a bond, on Ethernet only.
	if strings.HasPrefix(d.Name, "mlx5_bond_") {
		return LinkEthernet
	}
	if p.LID != nil {
		return LinkInfiniBand // a subnet manager assigns LIDs
	}
	if netdev := n.Port(n.NetdevOf(p)); netdev != nil && netdev.linkLayer() != "" {
		return netdev.linkLayer()
	}
	return h.classLayer(n, d)
}

// classLayer excludes Amazon's adapters, which have the class of Ethernet controllers but neither Ethernet nor
// InfiniBand RDMA.
func (h *Host) classLayer(n *NIC, d *RDMADevice) string {
	const vendorAmazon ID16 = 0x1d0f
	if n.Address == nil || strings.HasSuffix(d.NodeType, "unspecified") {
		return ""
	}
	f := h.Device(*n.Address)
	if f == nil || f.Class == nil || f.Vendor != nil && *f.Vendor == vendorAmazon {
		return ""
	}
	switch f.Class.Sub() {
	case SubEthernet:
		return LinkEthernet
	case SubInfiniBand:
		return LinkInfiniBand
	}
	return ""
}

// linkLayer uses names: IPoIB devices begin with ib, and have addresses of 20 bytes, Ethernet devices begin with en or
// eth.
//
// Source: systemd.net-naming-scheme(7).
func (d *Netdev) linkLayer() string {
	switch {
	case len(d.MAC) == len("00:00:00:00:00:00"):
		return LinkEthernet
	case d.MAC != "" || strings.HasPrefix(d.Name, "ib"):
		return LinkInfiniBand
	case strings.HasPrefix(d.Name, "en"), strings.HasPrefix(d.Name, "eth"), d.SpeedMbps != nil:
		return LinkEthernet
	}
	return ""
}

// Up returns nil if unknown.
func (d *Netdev) Up() *bool {
	switch {
	case d.Carrier != nil:
		return d.Carrier
	case d.State == "up" || d.State == "down":
		return new(d.State == "up")
	}
	return nil
}

// RateGbps returns Gb/s, or nil. On Ethernet the rate of the network device is also the port's.
func (h *Host) RateGbps(n *NIC, d *RDMADevice, p *RDMAPort) *float64 {
	if p.RateGbps != nil {
		return p.RateGbps
	}
	netdev := n.Port(n.NetdevOf(p))
	if netdev == nil || netdev.SpeedMbps == nil || h.LinkLayer(n, d, p) != LinkEthernet {
		return nil
	}
	return new(float64(*netdev.SpeedMbps) / 1000)
}

// vfName matches the name of a physical function and a number. A port's name may stand between (enp1s0f0np0v3).
//
// Source: systemd.net-naming-scheme(7).
var vfName = lazyregexp.New(`^((?:en|ib|roce|iwp?|wl)(?:P\d+)?(?:p\d+)?s\d+(?:f\d+)?(?:n[a-z0-9]+?|d\d+)?)v(\d+)$`)

// VFInName returns the physical function and the number in a name such as enp1s0f0v3.
func VFInName(name string) (pf string, vf int, ok bool) {
	var m []string
	if m = vfName().FindStringSubmatch(name); m == nil {
		return "", 0, false
	}
	vf, err := strconv.Atoi(m[2])
	return m[1], vf, err == nil
}
