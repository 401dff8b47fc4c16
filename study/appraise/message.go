package appraise

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study/importer"
)

// engineOf ignores modifiers that no engine has, and maps other tools that send over RDMA to perftest's write.
func engineOf(test string) (bench.Engine, bool) {
	base, words, _ := strings.Cut(test, "/")
	switch {
	// Both print the sum of both directions, as perftest does with -b.
	case strings.Contains(base, "bibw"):
		base, words = "ib_write_bw", "bidi"
	case strings.HasPrefix(base, "osu_"), strings.HasPrefix(base, "ucx_"):
		base, words = "ib_write_bw", ""
	case strings.HasPrefix(base, "iperf3"):
		words = ""
	}
	e, err := tool.EngineByName(base)
	if err != nil {
		return e, false
	}
	for w := range strings.SplitSeq(words, "/") {
		if more, err := tool.EngineByName(e.Name + "/" + w); err == nil {
			e = more
		}
	}
	return e, true
}

// message assumes the same port rate and MTU at the other end.
func (m *machine) message(f *Figure, all []importer.Sample) {
	e, ok := engineOf(f.Test)
	if !ok {
		f.Text = "no expectation: the test is not known"
		return
	}
	if strings.HasPrefix(f.Test, "iperf3/bidir") {
		f.Text = "no expectation: of both ways at once each has what the other leaves"
		return
	}
	origin := all[0].Origin
	tcp := f.Metric == bench.MetricThroughput
	device := cmp.Or(m.device, origin.Device)
	side, why := m.side(device, tcp)
	if side == nil {
		f.Text = "no expectation: " + why
		return
	}
	for i := range m.NICs {
		if n := &m.NICs[i]; slices.Contains(n.RDMA, side.Device) || slices.Contains(n.Netdevs, side.Device) {
			f.Devices = []string{n.ID()}
		}
	}
	if m.device == "" && len(origin.Rails) > 0 {
		m.rails(f, all, e, *side, origin.Rails)
		return
	}
	f.along(all, e, *side)
	if f.Verdict == Above && m.device == "" && device != "" {
		m.elsewhere(f, all, e, device, tcp)
		return
	}
	if f.Verdict == Unknown && side.Rate == 0 {
		f.Text += m.noRate(side.Device)
	}
	if why != "" {
		f.Text += "; " + why
	}
}

// rails judges devices used at the same time: their rates add up, and ports of one card share its link.
func (m *machine) rails(f *Figure, all []importer.Sample, e bench.Engine, side expect.Side, others []string) {
	first, _ := m.RDMADevice(side.Device)
	names, oneCard := []string{side.Device}, true
	for _, name := range others {
		n, d := m.RDMADevice(name)
		if d == nil || m.rate(n, d) == 0 || side.Rate == 0 {
			f.Text = fmt.Sprintf("no expectation: the log names several devices, and the rate of %s is not known; %s",
				name,
				otherNames)
			return
		}
		side.Rate += m.rate(n, d)
		names = append(names, name)
		f.Devices = lists.Add(f.Devices, n.ID())
		oneCard = oneCard && first != nil && first.Address != nil && n.Address != nil &&
			first.Address.SameDevice(*n.Address)
	}
	side.Device = strings.Join(names, "+")
	if !oneCard {
		side.PCI = bench.PCILink{} // each card has its own
	}
	f.along(all, e, side)
	for i := range f.Causes {
		if c := &f.Causes[i]; oneCard && strings.HasPrefix(c.What, "PCIe") {
			c.What += " that the ports of one card share"
			c.Fix = "use one port, or two cards in two slots; or " + c.Fix
		}
	}
}

func (m *machine) noRate(device string) string {
	if _, d := m.RDMADevice(device); d != nil && isDown(d) {
		return ": the port of " + device + " is down"
	}
	return ": add ibstat, or ethtool of the network device"
}

const otherNames = "names in a guest are not those of its host (--device names the one of this machine that was " +
	"measured)"

// along prefers the MTU in the log: the port's may have changed since.
func (f *Figure) along(all []importer.Sample, e bench.Engine, side expect.Side) {
	side.IBMTU = cmp.Or(all[0].Origin.MTU, side.IBMTU)
	other := expect.Side{Node: "the other end", Rate: side.Rate, IBMTU: side.IBMTU, MTU: side.MTU}
	f.take(all, e, expect.Path{Client: side, Server: other})
}

// elsewhere withdraws the judgement if a figure exceeds the device of its log but not the fastest device: then the name
// is a guest's.
func (m *machine) elsewhere(f *Figure, all []importer.Sample, e bench.Engine, device string, tcp bool) {
	fastest, _ := m.side("", tcp)
	other := *f
	if fastest == nil || fastest.Device == device {
		return
	}
	if other.along(all, e, *fastest); other.Verdict == Above || other.Verdict == Unknown {
		return
	}
	f.Text = fmt.Sprintf("no expectation: %s of this machine cannot carry it, and %s can; %s", device, fastest.Device,
		otherNames)
	f.Verdict, f.Bound, f.Causes, f.Devices = Unknown, 0, nil, nil
}

// side returns the end at the named or fastest device. why says that one was chosen, or that none is usable.
func (m *machine) side(device string, tcp bool) (side *expect.Side, why string) {
	if tcp {
		return m.tcpSide(device)
	}
	var best *topology.RDMADevice
	var at *topology.NIC
	devices := 0
	for n, d := range m.RDMADevices() {
		if topology.IsSoftRDMA(d.Name) && d.Name != device {
			continue
		}
		devices++
		if device != "" && (d.Name == device || n.Port(device) != nil) {
			best, at = d, n
			break
		}
		if device == "" && (best == nil || m.rate(n, d) > m.rate(at, best)) {
			best, at = d, n
		}
	}
	switch {
	case best == nil && device != "" && device != m.device:
		return nil, fmt.Sprintf("the machine has no RDMA device %s: %s", device, otherNames)
	case best == nil && device != "":
		if s := m.netdevSide(device); s != nil {
			return s, ""
		}
		return nil, fmt.Sprintf("the machine has no RDMA or network device %s", device)
	case best == nil:
		return nil, "the machine has no RDMA device"
	case topology.IsSoftRDMA(best.Name):
		return nil, "the device is emulated, and the rate of its wire is made up"
	case device == "" && devices > 1:
		why = fmt.Sprintf("the log names no device: it is taken for one of %s, the fastest (--device names another)",
			best.Name)
	}
	ep := bench.Endpoint{Node: "this machine", Device: best.Name, Wire: bench.Wire{Rate: m.rate(at, best)}}
	if port := best.Port(1); port != nil {
		for _, g := range port.GIDs {
			if g.Netdev != "" {
				ep.GIDIndex = g.Index
			}
		}
	}
	s := expect.SideOf(ep, bench.Place{}, m.node)
	s.IBMTU = ibMTU(s.MTU)
	m.addLink(&s, at)
	return &s, why
}

// netdevSide finds the end by its network device, as on a hypervisor that gives the RDMA device to a guest. It returns
// nil if the speed is unknown.
func (m *machine) netdevSide(device string) *expect.Side {
	for i := range m.NICs {
		if p := m.NICs[i].Port(device); p != nil && p.SpeedMbps != nil && *p.SpeedMbps > 0 {
			s := &expect.Side{Node: "this machine", Device: device, Rate: float64(*p.SpeedMbps) / 1000}
			m.addLink(s, &m.NICs[i])
			return s
		}
	}
	return nil
}

func (m *machine) tcpSide(device string) (*expect.Side, string) {
	var side *expect.Side
	var nic *topology.NIC
	for i := range m.NICs {
		for _, port := range m.NICs[i].Ports {
			other := device != "" && port.Name != device && !slices.Contains(m.NICs[i].RDMA, device)
			if port.SpeedMbps == nil || *port.SpeedMbps <= 0 || port.MTU == nil || other {
				continue
			}
			if gbps := float64(*port.SpeedMbps) / 1000; side == nil || gbps > side.Rate {
				side = &expect.Side{Node: "this machine", Device: port.Name, Rate: gbps, MTU: *port.MTU}
				nic = &m.NICs[i]
			}
		}
	}
	if side == nil {
		return nil, strings.TrimSpace("the machine has no network device with a known speed " + device)
	}
	m.addLink(side, nic)
	if device != "" {
		return side, ""
	}
	return side, fmt.Sprintf("the log names no device: it is taken for one of %s, the fastest (--device names another)",
		side.Device)
}

func (m *machine) addLink(s *expect.Side, nic *topology.NIC) {
	if nic == nil || nic.Address == nil {
		return
	}
	s.PCI = bench.PCILink{Address: nic.Address.String()}
	if link, ok := m.uplink(*nic.Address); ok && link.SpeedGTs != nil {
		s.PCI = link
	}
}

// rate is of port 1 in Gb/s; 0 if unknown or down.
func (m *machine) rate(n *topology.NIC, d *topology.RDMADevice) float64 {
	gbps := m.RateGbps(n, d, d.Port(1))
	if isDown(d) || gbps == nil {
		return 0
	}
	return *gbps
}

func isDown(d *topology.RDMADevice) bool {
	port := d.Port(1)
	return port.State != "" && !strings.Contains(port.State, "ACTIVE")
}

func nicID(n *topology.NIC, d *topology.RDMADevice) string {
	if n.Address == nil {
		return d.Name
	}
	return n.ID()
}

// ibMTU returns the largest RoCE payload within a network MTU.
func ibMTU(mtu int) int {
	const headers = 20 + 8 + 12 + 16 + 4 + 8 // IPv4 and UDP, BTH, RETH, ICRC, immediate
	return lists.Find([]int{4096, 2048, 1024, 512, 256}, func(payload int) bool { return payload+headers <= mtu })
}
