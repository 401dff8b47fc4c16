package inspect

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// nics are by ID: the function's address, or the name without one.
type nics map[string]*topology.NIC

func (n nics) at(a topology.PCIAddr) *topology.NIC {
	id := a.String()
	n[id] = cmp.Or(n[id], &topology.NIC{Address: &a})
	return n[id]
}

func (n nics) named(name string) *topology.NIC {
	n[name] = cmp.Or(n[name], &topology.NIC{Name: name})
	return n[name]
}

func (n nics) withNetdev(name string) *topology.NIC {
	for _, id := range lists.Keys(n) {
		if slices.ContainsFunc(n[id].Ports, func(d topology.Netdev) bool { return d.Name == name }) {
			return n[id]
		}
	}
	return nil
}

// readNICs makes one NIC of each PCI function. It skips network devices without a function (bridges, VLANs, USB),
// unless they have an RDMA device.
func (r *reader) readNICs() {
	found := nics{}
	for _, name := range r.dir("sys/class/net") {
		if name == "lo" || name == bondingMasters {
			continue
		}
		p := "sys/class/net/" + name
		if a, ok := r.functionOf(p); ok {
			nic := found.at(a)
			nic.Ports = append(nic.Ports, r.netdev(p))
		}
	}
	r.readNetdevsOfFunctions(found)
	r.readRDMA(found)
	r.h.NICs = append(r.h.NICs, lists.InOrder(found)...)
}

// readNetdevsOfFunctions is for dumps with only the PCI devices.
func (r *reader) readNetdevsOfFunctions(found nics) {
	for i := range r.h.PCI {
		d := &r.h.PCI[i]
		if !d.IsNIC() || found[d.Address.String()] != nil {
			continue
		}
		for _, p := range r.below(d, "net") {
			nic := found.at(d.Address)
			nic.Ports = append(nic.Ports, r.netdev(p))
		}
	}
}

// below returns paths of devices of a class, net or infiniband. In a virtio function they are one level deeper.
func (r *reader) below(d *topology.PCIDevice, class string) []string {
	dir := "sys/bus/pci/devices/" + d.Address.String()
	var out []string
	add := func(dir string) {
		out = append(out, lists.Map(r.dir(dir), func(name string) string { return dir + "/" + name })...)
	}
	add(dir + "/" + class)
	if d.Vendor != nil && *d.Vendor == topology.VendorRedHat {
		for _, name := range r.dir(dir) {
			if isNumbered(name, "virtio") {
				add(dir + "/" + name + "/" + class)
			}
		}
	}
	return out
}

// functionOf returns the PCI function of a class entry, a link with the full path:
// ../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0. Dumps that copied the target have a link "device" inside, or
// the function's uevent file.
func (r *reader) functionOf(p string) (topology.PCIAddr, bool) {
	return r.functionBehind(p, functionIn)
}

// functionBehind lets find choose the function on the path.
func (r *reader) functionBehind(p string, find func(path string) (topology.PCIAddr, bool)) (topology.PCIAddr, bool) {
	at := p
	if target, ok := r.target(p); ok {
		at = target
		if a, ok := find(at); ok {
			return a, true
		}
		if strings.Contains(at, "devices/virtual/") {
			return topology.PCIAddr{}, false
		}
	}
	if target, ok := r.link(p + "/device"); ok {
		return find(linked(at+"/device", target))
	}
	slot, _ := lineAfter(r.word(p+"/device/uevent"), "PCI_SLOT_NAME=")
	a, err := topology.ParsePCIAddr(slot)
	return a, err == nil
}

// functionIn returns the last function on a path. It rejects devices attached by USB or Thunderbolt: the function would
// be their host controller.
func functionIn(p string) (a topology.PCIAddr, ok bool) {
	for name := range strings.SplitSeq(p, "/") {
		if strings.Count(name, ":") == 2 {
			if v, err := topology.ParsePCIAddr(name); err == nil {
				a, ok = v, true
				continue
			}
		}
		if isNumbered(name, "usb") || isNumbered(name, "domain") {
			return topology.PCIAddr{}, false
		}
	}
	return a, ok
}

// Source: Documentation/ABI/testing/sysfs-class-net.
func (r *reader) netdev(p string) topology.Netdev {
	d := topology.Netdev{
		Name:     path.Base(p),
		MAC:      r.word(p + "/address"),
		MTU:      r.count(p + "/mtu"),
		State:    r.word(p + "/operstate"),
		Carrier:  r.flag(p + "/carrier"),
		DevPort:  r.count(p + "/dev_port"),
		Master:   r.linkBase(p + "/master"),
		PhysPort: r.word(p + "/phys_port_name"),
		Switch:   r.word(p + "/phys_switch_id"),
	}
	if strings.Trim(d.MAC, "0:") == "" {
		d.MAC = "" // not set
	}
	// Kernels before 3.15 have no dev_port, and IPoIB left it at 0 until 4.20; both number the ports in dev_id. IPoIB's
	// address has 20 bytes.
	const ipoibLen = 20*3 - 1
	if d.DevPort == nil || *d.DevPort == 0 && len(d.MAC) == ipoibLen {
		d.DevPort = r.count(p + "/dev_id")
	}
	if isUp(&d) {
		d.SpeedMbps = r.speedMbps(p + "/speed")
	}
	return d
}

// isUp prefers the carrier, because some drivers leave the state at "unknown".
func isUp(d *topology.Netdev) bool {
	if d.Carrier != nil {
		return *d.Carrier
	}
	switch d.State {
	case "down", "lowerlayerdown", "notpresent":
		return false
	}
	return true
}

// speedMbps returns Mb/s, or nil if unknown. SPEED_UNKNOWN is -1 in the kernel, printed as 65535 before 2.6.39 and as
// 4294967295 before 4.11.
func (r *reader) speedMbps(p string) *int64 {
	v := r.number(p)
	if v == nil || *v == 0 || *v == 1<<16-1 || *v == 1<<32-1 {
		return nil
	}
	return v
}

// bondingMasters exists if the bonding module is loaded.
const bondingMasters = "bonding_masters"

// readBonds reads the kernel's bonds. sysfs does not show teams and Open vSwitch bonds.
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

func firstWord(s string) string {
	if fields := strings.Fields(s); len(fields) > 0 {
		return fields[0]
	}
	return ""
}

// speedOfMembers sums the members that are up, or returns nil if a speed is unknown.
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

// knownNetdev is from readNICs, or has no function.
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

// rdmaOnBond returns the RDMA devices of a bond. With RoCE LAG all members share one device (mlx5_bond_0), whose GIDs
// belong to the bond. If the bond is down, the driver's name for a member's device decides.
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
	return lists.Distinct(out)
}

func hasGIDOf(d *topology.RDMADevice, netdev string) bool {
	for i := range d.Ports {
		if slices.ContainsFunc(d.Ports[i].GIDs, func(g topology.GID) bool { return g.Netdev == netdev }) {
			return true
		}
	}
	return false
}
