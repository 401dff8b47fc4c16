package nccl

import (
	"slices"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/topology"
)

// maxMbps bounds the speed of a NIC: 10 Tb/s. Some dumps have kb/s in place of Mb/s.
const maxMbps = 10_000_000

// nic reads the network devices of the PCI function at a, or of none where a is nil. NCCL hangs
// what has no PCI function on the first cpu, so such a NIC is on no node.
func (p *parser) nic(e *element, at place, a *topology.PCIAddr) {
	n := topology.NIC{Address: a}
	if a != nil {
		n.NUMANode = at.node
	}
	// Each port, and each network interface of a port, is a net of its own: of a function, all are one NIC,
	// as fast as the fastest of them. Without a function nothing tells which belong together.
	for _, net := range e.Kids {
		one := p.net(net)
		if a != nil {
			n.RDMA = append(n.RDMA, one.RDMA...)
			n.Netdevs = append(n.Netdevs, one.Netdevs...)
			n.Devices = append(n.Devices, one.Devices...)
			if one.SpeedMbps != nil && (n.SpeedMbps == nil || *one.SpeedMbps > *n.SpeedMbps) {
				n.SpeedMbps = one.SpeedMbps
			}
			continue
		}
		if one.Name != "" && !slices.ContainsFunc(p.h.NICs, func(have topology.NIC) bool {
			return have.Name == one.Name
		}) {
			p.h.NICs = append(p.h.NICs, one)
		}
	}
	if a != nil {
		n.Devices = mergeDevices(n.Devices)
		p.h.NICs = append(p.h.NICs, n)
	}
}

// net reads one network device. Name is empty for those that software made.
func (p *parser) net(e *element) topology.NIC {
	var n topology.NIC
	name := e.Attr("name")
	if name == "" || len(name) > 256 || strings.ContainsAny(name, "/ \t\n") {
		p.note(e, "name=%q is not the name of a network device", where.Clip(name))
		return n
	}
	n.SpeedMbps = p.count(e, "speed", maxMbps)
	if n.SpeedMbps != nil && *n.SpeedMbps == 0 {
		n.SpeedMbps = nil
	}
	port := p.count(e, "port", 255)
	if port == nil || *port == 0 {
		n.Netdevs = []string{name}
		if !slices.ContainsFunc(virtual, func(start string) bool { return strings.HasPrefix(name, start) }) {
			n.Name = name
		}
		return n
	}
	n.Name = name
	// Newer versions use several ports of a NIC as one: "mlx5_0+mlx5_1". The speed is that of all.
	names := strings.Split(name, "+")
	for _, rdma := range names {
		if rdma == "" {
			continue
		}
		d := topology.RDMADevice{Name: rdma, Ports: []topology.RDMAPort{{Number: int(*port)}}}
		if n.SpeedMbps != nil && len(names) == 1 {
			d.Ports[0].RateGbps = new(float64(*n.SpeedMbps) / 1000)
		}
		n.RDMA = append(n.RDMA, rdma)
		n.Devices = append(n.Devices, d)
	}
	return n
}

// mergeDevices joins the ports of one RDMA device, each of which is a net of its own.
func mergeDevices(devices []topology.RDMADevice) []topology.RDMADevice {
	var out []topology.RDMADevice
	for _, d := range devices {
		i := slices.IndexFunc(out, func(have topology.RDMADevice) bool { return have.Name == d.Name })
		if i < 0 {
			out = append(out, d)
			continue
		}
		for _, port := range d.Ports {
			if !slices.ContainsFunc(out[i].Ports, func(have topology.RDMAPort) bool {
				return have.Number == port.Number
			}) {
				out[i].Ports = append(out[i].Ports, port)
			}
		}
	}
	for i := range out {
		slices.SortFunc(out[i].Ports, func(a, b topology.RDMAPort) int { return a.Number - b.Number })
	}
	return out
}

// virtual are the starts of names that container engines, virtual machines and tunnels give to what they make.
var virtual = []string{"br-", "veth", "cali", "docker", "virbr", "tunl", "tun", "tap", "vnet", "flannel", "cni", "lxc",
	"lxd", "vxlan", "cilium", "kube", "dummy", "lo", "genev", "wg"}
