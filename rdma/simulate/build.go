package simulate

import (
	"fmt"
	"math"
	"time"

	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/roce"
)

// newNetwork makes the network of a configuration, with all flows.
func newNetwork(c *Config) *network {
	n := &network{spread: map[cause]*spreadCount{},
		overWire: c.NIC.overWire, overHeld: c.NIC.overHeld, hpcc: c.NIC.Profile == profileHPCC}
	n.build(c)
	n.route()
	n.plan(c)
	n.record(c.Curves)
	if c.capture != nil {
		c.capture.open(n)
	}
	n.open = len(n.flows)
	if n.open > 0 {
		n.add(n.flows[0].start, starting, 0)
	}
	for i, f := range n.faults {
		n.add(int64(f.At), failing, int32(i))
	}
	return n
}

// build makes the switches, hosts and links.
func (n *network) build(c *Config) {
	l := c.Topology.layout()
	for range l.switches {
		n.addSwitch(c)
	}
	for i := range l.hosts {
		n.addHost(c, &l.hosts[i])
	}
	for i := range l.trunks {
		t := &l.trunks[i]
		for range t.n {
			n.join(c, t)
		}
	}
	n.divide()
	if n.faults = c.Faults; len(n.faults) == 0 {
		return
	}
	n.named = map[string]*port{}
	for _, p := range n.ports {
		n.named[p.name] = p
	}
	for _, h := range n.hosts {
		n.named[h.name] = h.edge
	}
}

func (n *network) addSwitch(c *Config) *netSwitch {
	i := int32(len(n.switches))
	s := &netSwitch{net: n, cfg: &c.Switch, index: i, salt: fabric.Salt(c.Seed, int(i)),
		mark: source(c.Seed, uint64(i+1))}
	n.switches = append(n.switches, s)
	return s
}

func (n *network) addLink(rate float64, delay time.Duration) *link {
	l := &link{index: int32(len(n.links)), rate: rate, delay: int64(delay)}
	n.links = append(n.links, l)
	return l
}

func (n *network) addPort(c *Config, s *netSwitch, rate float64, delay time.Duration, up bool) *port {
	p := &port{sw: s, index: int32(len(n.ports)), alpha: c.Switch.Alpha, red: c.Switch.ECN.RED,
		out:  n.addLink(rate, delay),
		name: fmt.Sprintf("s%d:%d", s.index, len(s.ports))}
	if up {
		p.alpha, p.red = c.Switch.UplinkAlpha, c.Switch.UplinkECN.RED
	}
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

func (n *network) addHost(c *Config, a *attached) {
	p := n.addPort(c, n.switches[a.sw], float64(a.rate), a.delay, false)
	h := &host{net: n, name: a.name, index: int32(len(n.hosts)), rate: float64(a.rate), edge: p, pollAt: none,
		qpn: firstQPN - 1}
	h.out = n.addLink(float64(a.rate), a.delay)
	h.out.port, p.out.host = p, h
	n.hosts = append(n.hosts, h)
	if c.Level == FlowLevel {
		return
	}
	qos := roce.DefaultQoS()
	qos.TrustDSCP, qos.RxPFC = true, uint8(c.Switch.PFC.Priorities)
	h.nic = roce.NewPort(roce.PortConfig{Wire: h, Room: n.space, Rate: uint64(a.rate), Overhead: &n.overWire,
		Bare: true, Congestion: &c.NIC.control, QoS: &qos})
}

func (n *network) join(c *Config, t *trunk) {
	x := n.addPort(c, n.switches[t.a], float64(t.rate), t.delay, true)
	y := n.addPort(c, n.switches[t.b], float64(t.rate), t.delay, true)
	x.out.port, y.out.port = y, x
}

// divide divides the buffer of each switch: reserves and headrooms first.
func (n *network) divide() {
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

// plan makes the flows, in the order of their start.
func (n *network) plan(c *Config) {
	n.transport = new(roce.Counters)
	names := make(map[string]int, len(n.hosts))
	for i, h := range n.hosts {
		names[h.name] = i
	}
	specs := c.plan(names)
	all := make([]flow, len(specs))
	n.flows = make([]*flow, len(specs))
	for i := range specs {
		s := &specs[i]
		all[i] = flow{net: n, nic: &c.NIC, index: i, entry: s.entry, from: n.hosts[s.from], to: n.hosts[s.to],
			bytes: s.bytes, message: c.message(s.entry), start: s.start, end: none, ring: s.ring, counters: n.transport}
		n.flows[i] = &all[i]
	}
	n.chain(c)
	for _, f := range n.flows {
		f.best = f.ideal()
	}
}

// message returns the largest write of the flows of an entry of the traffic: whole packets if the file has none.
func (c *Config) message(entry int32) int64 {
	if m := c.Traffic[entry].Message; m > 0 {
		return int64(m)
	}
	return longest / int64(c.NIC.MTU) * int64(c.NIC.MTU)
}
