package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

func (r *reader) readRDMA(found nics) {
	inClass := false
	for _, name := range r.dir("sys/class/infiniband") {
		p := "sys/class/infiniband/" + name
		d := r.rdmaDevice(p)
		addRDMA(r.nicOf(found, p, &d), d)
		inClass = true
	}
	if inClass {
		return
	}
	for i := range r.h.PCI { // a dump may have only PCI devices
		if f := &r.h.PCI[i]; f.IsNIC() {
			for _, p := range r.below(f, "infiniband") {
				addRDMA(found.at(f.Address), r.rdmaDevice(p))
			}
		}
	}
}

func addRDMA(nic *topology.NIC, d topology.RDMADevice) {
	nic.Devices = append(nic.Devices, d)
	nic.Firmware = cmp.Or(nic.Firmware, d.Firmware)
}

// nicOf returns the NIC of the RDMA device at p. A software device uses a network device: rxe names it in "parent", any
// RoCE device in its GIDs' attributes. Without a function that becomes a NIC without an address.
func (r *reader) nicOf(found nics, p string, d *topology.RDMADevice) *topology.NIC {
	if a, ok := r.functionOf(p); ok {
		return found.at(a)
	}
	netdev := r.word(p + "/parent")
	for i := 0; i < len(d.Ports) && netdev == ""; i++ {
		for _, g := range d.Ports[i].GIDs {
			netdev = cmp.Or(netdev, g.Netdev)
		}
	}
	if netdev == "" || strings.Contains(netdev, "/") {
		return found.named(d.Name)
	}
	if nic := found.withNetdev(netdev); nic != nil {
		return nic
	}
	nic := found.named(netdev)
	if dir := "sys/class/net/" + netdev; r.exists(dir) {
		nic.Ports = append(nic.Ports, r.netdev(dir))
	}
	return nic
}

// Source: Documentation/ABI/stable/sysfs-class-infiniband.
func (r *reader) rdmaDevice(p string) topology.RDMADevice {
	d := topology.RDMADevice{
		Name:     path.Base(p),
		NodeType: r.word(p + "/node_type"),
		Firmware: r.word(p + "/fw_ver"),
		NodeGUID: r.word(p + "/node_guid"),
		Board:    r.word(p + "/board_id"),
	}
	for _, n := range r.numbered(p+"/ports", "") {
		d.Ports = append(d.Ports, r.rdmaPort(p+"/ports/"+strconv.Itoa(n), n))
	}
	return d
}

func (r *reader) rdmaPort(p string, n int) topology.RDMAPort {
	port := topology.RDMAPort{
		Number:    n,
		State:     facts.StateName(r.word(p + "/state")),
		PhysState: facts.StateName(r.word(p + "/phys_state")),
		LinkLayer: r.word(p + "/link_layer"),
		LID:       r.count(p + "/lid"),
		Counters:  r.troubles(p),
	}
	port.GIDs = r.gids(p, port.LinkLayer)
	if port.LID != nil && (*port.LID == 0 || *port.LID == 0xffff) {
		port.LID = nil // 0 and the permissive LID are not addresses
	}
	if port.State != "DOWN" {
		port.RateGbps = r.rate(p+"/rate", port.LinkLayer)
		if _, width, ok := strings.Cut(r.word(p+"/rate"), "("); ok && port.LinkLayer == "InfiniBand" {
			port.Lanes, _ = strconv.Atoi(width[:max(0, strings.IndexByte(width, 'X'))])
		}
	}
	return port
}

// rate returns Gb/s, or nil. Ports that are down report their lowest supported rate, and mlx5 on Ethernet always 40.
func (r *reader) rate(p, linkLayer string) *float64 {
	v := parsed(r, p, func(s string) (float64, error) {
		if s == "" {
			return 0, errNotKnown
		}
		return parseRate(s)
	})
	// On Ethernet, below 10 Gb/s or if the speed is unknown, the kernel uses the lowest rate, 1X SDR.
	if v != nil && linkLayer == "Ethernet" && *v <= 2.5 {
		return nil
	}
	return v
}

// parseRate parses "100 Gb/sec (4X EDR)".
func parseRate(s string) (float64, error) {
	number, _, ok := strings.Cut(s, " Gb/sec")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v > 0 && v < 1e6) {
		return 0, fmt.Errorf("%q is not a rate; want the form \"100 Gb/sec (4X EDR)\"", where.Clip(s))
	}
	return v, nil
}

// gids reads the assigned GIDs. Tables have up to 1024 entries, most unassigned: zero, or on InfiniBand the subnet
// prefix with interface ID zero. Removed addresses leave holes; attributes of an unassigned entry fail with EINVAL.
func (r *reader) gids(port, linkLayer string) []topology.GID {
	var out []topology.GID
	for _, i := range r.numbered(port+"/gids", "") {
		n := strconv.Itoa(i)
		p := port + "/gids/" + n
		s := r.word(p)
		if strings.Trim(s, "0:") == "" || linkLayer == "InfiniBand" && strings.HasSuffix(s, ":0000:0000:0000:0000") {
			continue
		}
		if a, err := netip.ParseAddr(s); err != nil || !a.Is6() || a.Zone() != "" {
			r.unread(p, strconv.Quote(where.Clip(s))+" is not a GID")
			continue
		}
		out = append(out, topology.GID{
			Index:  i,
			GID:    s,
			Type:   r.word(port + "/gid_attrs/types/" + n),
			Netdev: r.word(port + "/gid_attrs/ndevs/" + n),
		})
	}
	return out
}

// troubles reads only useful counters, because each read is a query to the firmware.
func (r *reader) troubles(port string) map[string]uint64 {
	var out map[string]uint64
	for _, dir := range []string{port + "/counters", port + "/hw_counters"} {
		for _, name := range r.dir(dir) {
			if !topology.IsTrouble(name) {
				continue
			}
			v := parsed(r, dir+"/"+name, parseTrouble)
			if v == nil {
				continue
			}
			if out == nil {
				out = map[string]uint64{}
			}
			out[name] = *v
		}
	}
	return out
}

// parseTrouble skips "N/A (no PMA)", without a performance management agent.
func parseTrouble(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	switch {
	case s == "", strings.HasPrefix(s, "N/A"), err == nil && v == 0:
		return 0, errNotKnown
	case err != nil:
		return 0, notA(s, "a number")
	}
	return v, nil
}
