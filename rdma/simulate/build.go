package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/rackless/rackless/rdma/roce"
)

// newNetwork makes the network of a configuration, with all flows.
func newNetwork(c *Config) *network {
	n := &network{overWire: c.NIC.overWire, overHeld: c.NIC.overHeld}
	n.lay(c)
	n.route()
	n.plan(c)
	n.open = len(n.flows)
	if n.open > 0 {
		n.add(n.flows[0].start, starting, 0)
	}
	return n
}

// lay makes the switches, hosts and links.
func (n *network) lay(c *Config) {
	t := &c.Topology
	if t.Form == star {
		s := n.addSwitch(c)
		for range t.Hosts {
			n.addHost(c, s)
		}
	} else {
		for range t.Leaves {
			leaf := n.addSwitch(c)
			for range t.Hosts {
				n.addHost(c, leaf)
			}
		}
		for range t.Spines {
			spine := n.addSwitch(c)
			for _, leaf := range n.switches[:t.Leaves] {
				n.join(c, leaf, spine)
			}
		}
	}
	n.share()
}

func (n *network) addSwitch(c *Config) *netSwitch {
	i := int32(len(n.switches))
	s := &netSwitch{net: n, cfg: &c.Switch, index: i, salt: uint32(mix(c.Seed ^ uint64(i+1))),
		mark: source(c.Seed, uint64(i+1))}
	n.switches = append(n.switches, s)
	return s
}

func (n *network) addLink(rate float64, delay time.Duration) *link {
	l := &link{index: int32(len(n.links)), rate: rate, delay: int64(delay)}
	n.links = append(n.links, l)
	return l
}

func (n *network) addPort(c *Config, s *netSwitch, rate float64, delay time.Duration, alpha float64) *port {
	p := &port{sw: s, index: int32(len(n.ports)), alpha: alpha, out: n.addLink(rate, delay),
		name: fmt.Sprintf("s%d:%d", s.index, len(s.ports))}
	p.room = headroomOf(c, rate, int64(delay))
	n.ports, s.ports = append(n.ports, p), append(s.ports, p)
	return p
}

// headroomOf returns the headroom of a port for one priority. If the file states none, it is the most that can come
// after a packet that crosses the threshold: the pause waits for a packet that the port is sending, travels, and the
// other end finishes a packet that it has begun.
func headroomOf(c *Config, rate float64, delay int64) int64 {
	if h := c.Switch.Headroom; h != nil {
		return int64(*h)
	}
	longest := float64(headData + headWrite + c.NIC.MTU + 3 + c.NIC.overWire)
	onCable := rate / 8e9 * float64(2*delay)
	return int64(math.Ceil(onCable + 3*longest + pauseSize + fcs + gaps))
}

func (n *network) addHost(c *Config, s *netSwitch) {
	t := &c.Topology
	p := n.addPort(c, s, float64(t.Rate), t.Delay, c.Switch.Alpha)
	h := &host{net: n, index: int32(len(n.hosts)), rate: float64(t.Rate), edge: p, pollAt: none, qpn: 0xff}
	h.out = n.addLink(float64(t.Rate), t.Delay)
	h.out.port, p.out.host = p, h
	qos := roce.DefaultQoS()
	qos.TrustDSCP, qos.RxPFC = true, uint8(c.Switch.PFC.Priorities)
	h.nic = roce.NewPort(roce.PortConfig{Wire: h, Room: n.space, Rate: uint64(t.Rate), Overhead: &n.overWire,
		Bare:       true,
		Congestion: &c.NIC.control, QoS: &qos})
	n.hosts = append(n.hosts, h)
}

func (n *network) join(c *Config, a, b *netSwitch) {
	t := &c.Topology
	x := n.addPort(c, a, float64(t.Uplink), t.UplinkDelay, c.Switch.UplinkAlpha)
	y := n.addPort(c, b, float64(t.Uplink), t.UplinkDelay, c.Switch.UplinkAlpha)
	x.out.port, y.out.port = y, x
}

// share divides the buffer of each switch: reserves and headrooms first.
func (n *network) share() {
	for _, s := range n.switches {
		s.common = int64(s.cfg.Buffer) - reserved(s)
	}
}

// reserved returns the bytes of a switch's buffer that are not shared.
func reserved(s *netSwitch) (sum int64) {
	for _, p := range s.ports {
		for prio := range uint8(priorities) {
			if s.cfg.lossless(prio) {
				sum += p.room
			}
		}
		sum += s.cfg.reserve()
	}
	return sum
}

// route finds the shortest paths between all switches with hosts.
func (n *network) route() {
	for _, s := range n.switches {
		s.routes = make([][]*port, len(n.switches))
	}
	edges := map[*netSwitch]bool{}
	for _, h := range n.hosts {
		if edges[h.edge.sw] {
			continue
		}
		edges[h.edge.sw] = true
		n.routeTo(h.edge.sw)
	}
}

// routeTo sets the ports of all switches for packets to a switch.
func (n *network) routeTo(to *netSwitch) {
	far := make([]int, len(n.switches))
	for i := range far {
		far[i] = -1
	}
	far[to.index] = 0
	for list := []*netSwitch{to}; len(list) > 0; list = list[1:] {
		s := list[0]
		for _, p := range s.ports {
			next := p.out.port
			if next == nil {
				continue
			}
			o := next.sw
			if far[o.index] < 0 {
				far[o.index] = far[s.index] + 1
				list = append(list, o)
			}
			if far[o.index] == far[s.index]+1 {
				o.routes[to.index] = append(o.routes[to.index], next)
			}
		}
	}
}

// plan makes the flows, in the order of their start.
func (n *network) plan(c *Config) {
	counters := new(roce.Counters)
	n.transport = counters
	draw := source(c.Seed, 0)
	for i := range c.Traffic {
		t := &c.Traffic[i]
		for _, pair := range pairs(t, len(n.hosts), draw) {
			for q := range int64(t.QPs) {
				size := int64(t.Bytes) / int64(t.QPs)
				if q < int64(t.Bytes)%int64(t.QPs) {
					size++
				}
				n.flows = append(n.flows, &flow{net: n, nic: &c.NIC, index: len(n.flows), from: n.hosts[pair[0]],
					to: n.hosts[pair[1]], bytes: size, start: int64(t.Start), end: none, counters: counters})
			}
		}
	}
	n.order()
}

// pairs returns the senders and receivers of an entry.
func pairs(t *Traffic, hosts int, draw *rand.Rand) (list [][2]int) {
	switch t.Pattern {
	case permutation:
		// Each host sends to the next one of a random circle, so that none sends to itself.
		circle := draw.Perm(hosts)
		to := make([]int, hosts)
		for i, h := range circle {
			to[h] = circle[(i+1)%hosts]
		}
		for h, peer := range to {
			list = append(list, [2]int{h, peer})
		}
		return list
	case incast:
		if t.Senders > 0 {
			to, _ := hostIndex(t.To, hosts)
			for h := 0; len(list) < t.Senders; h++ {
				if h != to {
					list = append(list, [2]int{h, to})
				}
			}
			return list
		}
	}
	to, _ := hostIndex(t.To, hosts)
	for _, name := range t.From {
		from, _ := hostIndex(name, hosts)
		list = append(list, [2]int{from, to})
	}
	return list
}
