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
	near := n.neighbours()
	for _, to := range edges {
		n.routeTo(to, near, far)
	}
}

// A neighbour is a switch at the other end of a port whose link is up.
type neighbour struct {
	sw   int32
	port *port
}

// neighbours returns those of each switch, in the order of its ports. Networks with many switches have millions.
func (n *network) neighbours() [][]neighbour {
	near := make([][]neighbour, len(n.switches))
	for i, s := range n.switches {
		for _, p := range s.ports {
			if o := p.far(); o != nil {
				near[i] = append(near[i], neighbour{o.index, p})
			}
		}
	}
	return near
}

// none32 is no number of an edge switch.
const none32 = int32(-1)

// routeTo sets the ports of all switches for packets to a switch. far is room for the number of links to it.
func (n *network) routeTo(to *netSwitch, near [][]neighbour, far []int32) {
	for i := range far {
		far[i] = -1
	}
	far[to.index] = 0
	list := []int32{to.index}
	for len(list) > 0 {
		s := list[0]
		list = list[1:]
		for _, o := range near[s] {
			if far[o.sw] < 0 {
				far[o.sw] = far[s] + 1
				list = append(list, o.sw)
			}
		}
	}
	var next []*port
	for i, s := range n.switches {
		next = next[:0]
		if closer := far[i] - 1; closer >= 0 {
			for _, o := range near[i] {
				if far[o.sw] == closer {
					next = append(next, o.port)
				}
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
