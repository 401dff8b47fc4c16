package inspect

import (
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

// bondingMasters is a file among the network devices that lists the bonds. It is there while the
// module bonding is loaded.
const bondingMasters = "bonding_masters"

// readBonds reads the bonds of the kernel's bonding driver. Teams and bonds of Open vSwitch are unknown to sysfs.
//
// Source: Documentation/networking/bonding.rst.
func (r *reader) readBonds() {
	const class = "sys/class/net"
	names := r.dir(class)
	if s, ok := r.text(class + "/" + bondingMasters); ok {
		names = strings.Fields(s)
	}
	for _, name := range names {
		p := class + "/" + name
		if strings.Contains(name, "/") || !r.exists(p+"/bonding") {
			continue
		}
		b := topology.Bond{
			Name:       name,
			Mode:       firstWord(r.word(p + "/bonding/mode")),             // "802.3ad 4"
			HashPolicy: firstWord(r.word(p + "/bonding/xmit_hash_policy")), // "layer3+4 1"
			Members:    []string{},
			Active:     r.word(p + "/bonding/active_slave"),
			MTU:        r.count(p + "/mtu"),
		}
		b.Members = append(b.Members, strings.Fields(r.word(p+"/bonding/slaves"))...)
		slices.Sort(b.Members)
		b.SpeedMbps = r.speedOfMembers(b.Members)
		b.RDMA = r.rdmaOnBond(&b)
		r.h.Bonds = append(r.h.Bonds, b)
	}
}

// firstWord returns what comes before the first white space.
func firstWord(s string) string {
	if fields := strings.Fields(s); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// speedOfMembers returns the sum of the speeds of the members that are up. It is not known when one
// that is up does not tell its speed.
func (r *reader) speedOfMembers(members []string) *int64 {
	var sum int64
	for _, m := range members {
		d := r.knownNetdev(m)
		if !isUp(&d) {
			continue
		}
		if d.SpeedMbps == nil {
			return nil
		}
		sum += *d.SpeedMbps
	}
	if sum == 0 {
		return nil
	}
	return &sum
}

// knownNetdev returns the network device that readNICs has found, or reads one that stands on no function.
func (r *reader) knownNetdev(name string) topology.Netdev {
	for i := range r.h.NICs {
		for _, d := range r.h.NICs[i].Ports {
			if d.Name == name {
				return d
			}
		}
	}
	return r.netdev("sys/class/net/" + name)
}

// rdmaOnBond returns the RDMA devices that work over the bond. With RoCE LAG a driver has one
// device for all members (mlx5_bond_0), whose GIDs belong to the bond. While the bond is down no
// GID says so, and the driver's name for the device on a member's function has to do.
func (r *reader) rdmaOnBond(b *topology.Bond) []string {
	var out []string
	for i := range r.h.NICs {
		nic := &r.h.NICs[i]
		ofMember := slices.ContainsFunc(nic.Ports, func(d topology.Netdev) bool {
			return slices.Contains(b.Members, d.Name)
		})
		for j := range nic.Devices {
			if d := &nic.Devices[j]; hasGIDOf(d, b.Name) || ofMember && strings.Contains(d.Name, "_bond_") {
				out = append(out, d.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// hasGIDOf reports whether one of d's GIDs belongs to the network device.
func hasGIDOf(d *topology.RDMADevice, netdev string) bool {
	for i := range d.Ports {
		if slices.ContainsFunc(d.Ports[i].GIDs, func(g topology.GID) bool { return g.Netdev == netdev }) {
			return true
		}
	}
	return false
}
