package simulate

import (
	"slices"

	"github.com/rackless/rackless/rdma/fabric"
)

// route finds the shortest paths to all switches with hosts, over links that are up.
func (n *network) route() {
	var edges []*netSwitch
	for _, s := range n.switches {
		s.edge = none32
	}
	for _, h := range n.hosts {
		if s := h.edge.sw; s.edge < 0 {
			s.edge = int32(len(edges))
			edges = append(edges, s)
		}
	}
	for _, s := range n.switches {
		s.routes, s.paths = make([]uint16, len(edges)), [][]*port{nil}
	}
	far := make([]int32, len(n.switches))
	for _, to := range edges {
		n.routeTo(to, far)
	}
}

// none32 is no number of an edge switch.
const none32 = int32(-1)

// routeTo sets the ports of all switches for packets to a switch. far is room for the number of links to it.
func (n *network) routeTo(to *netSwitch, far []int32) {
	for i := range far {
		far[i] = -1
	}
	far[to.index] = 0
	list := []*netSwitch{to}
	for len(list) > 0 {
		s := list[0]
		list = list[1:]
		for _, p := range s.ports {
			if o := p.far(); o != nil && far[o.index] < 0 {
				far[o.index] = far[s.index] + 1
				list = append(list, o)
			}
		}
	}
	var next []*port
	for _, s := range n.switches {
		next = next[:0]
		for _, p := range s.ports {
			if o := p.far(); o != nil && far[s.index] > 0 && far[o.index] == far[s.index]-1 {
				next = append(next, p)
			}
		}
		s.routes[to.edge] = s.pathOf(next)
	}
}

// far returns the switch at the other end of a port whose link is up, or nil.
func (p *port) far() *netSwitch {
	if p.out.port == nil || p.out.down {
		return nil
	}
	return p.out.port.sw
}

// pathOf returns the index of a set of ports. Most destinations share few sets, so a route is only an index.
func (s *netSwitch) pathOf(ports []*port) uint16 {
	for i, have := range s.paths {
		if slices.Equal(have, ports) {
			return uint16(i)
		}
	}
	s.paths = append(s.paths, slices.Clone(ports))
	return uint16(len(s.paths) - 1)
}

// towards returns the ports of the shortest paths to a host at another switch, of which there are none if links are
// down.
func (s *netSwitch) towards(h *host) []*port { return s.paths[s.routes[h.edge.sw.edge]] }

// next returns the port for a packet, or nil if there is no way. Of several equal paths, the hash of its flow chooses
// one, whether they lead to different switches or are members of a LAG.
func (s *netSwitch) next(k *packet) *port {
	to := s.net.hosts[k.to]
	if to.edge.sw == s {
		return to.edge
	}
	switch ports := s.towards(to); len(ports) {
	case 0:
		return nil
	case 1:
		return ports[0]
	default:
		return ports[fabric.Choose(k.hash, s.salt, len(ports))]
	}
}
