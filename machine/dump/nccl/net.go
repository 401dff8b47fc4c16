package nccl

import (
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// maxMbps is 10 Tb/s. Some dumps have kb/s instead of Mb/s.
const maxMbps = 10_000_000

// nic reads the network devices of the function at a, which may be nil. NCCL puts devices without a function on the
// first cpu, so such a NIC has no node.
func (p *parser) nic(e *element, at place, a *topology.PCIAddr) {
	n := topology.NIC{Address: a}
	if a != nil {
		n.NUMANode = at.node
	}
	// All nets of a function are one NIC, as fast as the fastest. Without a function, each net is a NIC.
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
		listed := slices.ContainsFunc(p.h.NICs, func(have topology.NIC) bool { return have.Name == one.Name })
		if one.Name != "" && !listed {
			p.h.NICs = append(p.h.NICs, one)
		}
	}
	if a != nil {
		n.Devices = mergeDevices(n.Devices)
		p.h.NICs = append(p.h.NICs, n)
	}
}

// net reads one network device, without a name if it is software.
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
	// Newer versions join several ports of a NIC: "mlx5_0+mlx5_1". The speed is the total.
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

// mergeDevices is needed because each port of an RDMA device is a separate net.
func mergeDevices(devices []topology.RDMADevice) []topology.RDMADevice {
	var out []topology.RDMADevice
	for _, d := range devices {
		at := slices.IndexFunc(out, func(have topology.RDMADevice) bool { return have.Name == d.Name })
		if at < 0 {
			at = len(out)
			out = append(out, topology.RDMADevice{Name: d.Name})
		}
		joined := &out[at]
		for _, port := range d.Ports {
			same := func(have topology.RDMAPort) bool { return have.Number == port.Number }
			if !slices.ContainsFunc(joined.Ports, same) {
				joined.Ports = append(joined.Ports, port)
			}
		}
	}
	for i := range out {
		d := &out[i]
		slices.SortFunc(d.Ports, func(a, b topology.RDMAPort) int { return a.Number - b.Number })
	}
	return out
}

var virtual = []string{"br-", "veth", "cali", "docker", "virbr", "tunl", "tun", "tap", "vnet", "flannel", "cni", "lxc",
	"lxd", "vxlan", "cilium", "kube", "dummy", "lo", "genev", "wg"}

// classNVSwitch is the class of a link's other end: a switch, or something that a virtual machine does not see.
const classNVSwitch = "0x0680"

const maxCount = 1024

type pair struct{ a, b topology.PCIAddr }

// A link is seen by one of its GPUs.
type link struct {
	count int
	from  *element
}

// addLinks converts links of GPUs into paths, and counts them.
//
// Both ends of a link report it. If they differ, the lower number is used and the difference noted. Links to switches
// make a path to every other GPU with such links, with as many links as the end with fewer. xGMI links make paths of
// the same class, but do not count as NVLinks.
func (p *parser) addLinks() error {
	direct := map[pair]link{}
	switched := map[topology.PCIAddr]int{}
	known := lists.SetOf(p.gpus, func(g gpu) topology.PCIAddr { return g.address })
	for i, g := range p.gpus {
		total, nvlink := 0, false
		for _, l := range g.links {
			p.rccl = p.rccl || l.Name == "xgmi"
			n := p.count(l, "count", maxCount)
			if n == nil || *n == 0 || l.Name == "c2c" {
				continue
			}
			total += int(*n)
			nvlink = nvlink || l.Name == "nvlink"
			if class := l.Attr("tclass"); strings.HasPrefix(class, classNVSwitch) && class != "0x068001" {
				switched[g.address] += int(*n)
				continue
			}
			target, ok := l.Lookup("target")
			if !ok {
				return where.At(l.Line, "<%s> has no target", l.Name)
			}
			// A target outside of the dump makes no path: it is a GPU of another process, or the processor
			// ("fffffff:ffff:ff" on POWER).
			to, err := topology.ParsePCIAddr(target)
			if err == nil && to == g.address {
				// A real cloud's file has this.
				p.note(l, "leads from %s to itself", to)
				continue
			}
			if err == nil && known[to] {
				d := direct[pair{g.address, to}]
				direct[pair{g.address, to}] = link{d.count + int(*n), l}
			}
		}
		if nvlink {
			p.h.GPUs[i].NVLinks = &total
		}
	}
	p.addPaths(direct, switched)
	return nil
}

func (p *parser) addPaths(direct map[pair]link, switched map[topology.PCIAddr]int) {
	links := map[pair]int{}
	for ends, l := range direct {
		n := l.count
		if back, ok := direct[pair{ends.b, ends.a}]; ok && back.count != n {
			n = min(n, back.count)
			if ends.a.Compare(ends.b) < 0 {
				p.note(l.from, "%d links from %s to %s, but %d back: %d are taken", l.count, ends.a, ends.b, back.count,
					n)
			}
		}
		if ends.a.Compare(ends.b) > 0 {
			ends.a, ends.b = ends.b, ends.a
		}
		links[ends] = n
	}
	behind := slices.SortedFunc(maps.Keys(switched), topology.PCIAddr.Compare)
	for i, a := range behind {
		for _, b := range behind[i+1:] {
			links[pair{a, b}] += min(switched[a], switched[b])
		}
	}
	for ends, n := range links {
		p.h.Reported = append(p.h.Reported, topology.Path{A: ends.a.String(), B: ends.b.String(),
			Class: topology.PathNVLink, Links: n})
	}
	slices.SortFunc(p.h.Reported, func(a, b topology.Path) int { return strings.Compare(a.A+" "+a.B, b.A+" "+b.B) })
}
