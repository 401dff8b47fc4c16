package simulate

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
)

// maxTrunks limits the links between switches, and maxPorts the ports of a switch.
const (
	maxTrunks = 1 << 20
	maxPorts  = 1 << 14
)

// keysOf are the keys of a form: those that it needs, and those that it may have. Others have no effect.
var keysOf = map[string]struct{ needs, may []string }{
	star:      {[]string{"hosts", "rate"}, nil},
	leafSpine: {[]string{"hosts", "rate", "leaves", "spines"}, []string{"uplink", "uplink_delay", "lag"}},
	fatTree:   {[]string{"k", "rate"}, []string{"uplink", "uplink_delay", "lag"}},
	rails:     {[]string{"hosts", "rails", "rate"}, []string{"spines", "uplink", "uplink_delay", "lag"}},
	explicit:  {[]string{"links", "rate"}, nil},
}

// topology checks the numbers of a topology, and reports whether a network can be made of it.
func (d *checker) topology() bool {
	t := &d.Topology
	if !d.Has("topology") {
		d.missing("", "topology")
		return false
	}
	if !d.oneOf("topology.form", t.Form, star, leafSpine, fatTree, rails, explicit) {
		return false
	}
	keys := keysOf[t.Form]
	known := map[string]bool{}
	for _, k := range append(keys.needs, keys.may...) {
		known[k] = true
	}
	for _, k := range []string{"hosts", "leaves", "spines", "k", "rails", "uplink", "uplink_delay", "lag", "links"} {
		if !known[k] {
			d.unused("topology", "form "+t.Form, k)
		}
	}
	if d.missing("topology", keys.needs...) {
		return false
	}
	before := len(d.Errs)
	low := 1
	switch t.Form {
	case star:
		low = 2
	case leafSpine:
		if t.Spines == 0 && t.Leaves > 1 {
			d.fail("topology.spines", strictyaml.Error{What: "islands: without spines no leaf reaches another",
				Have: "0", Want: "1 or more"})
			return false
		}
		d.inRange("topology.leaves", t.Leaves, 1, 4096)
	case fatTree:
		most := 64
		if d.Level == FlowLevel {
			most = 100
		}
		if t.K < 2 || t.K > most || t.K%2 != 0 {
			d.fail("topology.k", strictyaml.Error{What: "wrong number of ports of a switch", Have: strconv.Itoa(t.K),
				Want: fmt.Sprintf("an even number from 2 to %d, for k*k*k/4 hosts", most)})
		}
	case rails:
		d.inRange("topology.rails", t.Rails, 1, 64)
	}
	d.inRange("topology.spines", t.Spines, 0, 4096)
	d.inRange("topology.hosts", t.Hosts, low, d.mostHosts())
	d.inRange("topology.lag", t.LAG, 1, 64)
	d.delay("topology.delay", t.Delay)
	d.delay("topology.uplink_delay", t.UplinkDelay)
	d.links()
	return len(d.Errs) == before && d.size()
}

func (d *checker) delay(path string, v time.Duration) {
	if v < 0 || v > time.Second {
		d.fail(path, strictyaml.Error{What: "out of range", Have: v.String(), Want: "0s to 1s"})
	}
}

// size checks how many hosts and links the topology has in all.
func (d *checker) size() bool {
	hosts, switches, trunks := d.Topology.sizes()
	where := "topology." + map[string]string{fatTree: "k", explicit: "links"}[d.Topology.Form]
	if where == "topology." {
		where = "topology.hosts"
	}
	switch {
	case hosts > d.mostHosts() || hosts < 2:
		d.fail(where, strictyaml.Error{What: "wrong number of hosts in all", Have: strconv.Itoa(hosts),
			Want: fmt.Sprintf("2 to %d", d.mostHosts())})
	case trunks > maxTrunks:
		d.fail("topology", strictyaml.Error{What: "too many links between switches", Have: strconv.Itoa(trunks),
			Want: fmt.Sprintf("at most %d", maxTrunks)})
	case switches < 1:
		d.fail("topology", strictyaml.Error{What: "no switch"})
	default:
		return true
	}
	return false
}

// links checks the links of an explicit topology, each by itself.
func (d *checker) links() {
	linked := map[string]int{}
	for i, l := range d.Topology.Links {
		path := fmt.Sprintf("topology.links[%d]", i)
		if d.missing(path, "from", "to") {
			continue
		}
		d.delay(path+".delay", l.Delay)
		d.inRange(path+".lag", l.LAG, 1, 64)
		a, _, okA := node(l.From)
		b, _, okB := node(l.To)
		for key, ok := range map[string]bool{"from": okA, "to": okB} {
			if !ok {
				have := map[string]string{"from": l.From, "to": l.To}[key]
				d.fail(path+"."+key, strictyaml.Error{What: "neither a host nor a switch",
					Have: strictyaml.Quote(have), Want: "h0, h1, ... or s0, s1, ..."})
			}
		}
		switch {
		case !okA || !okB:
			continue
		case a == 'h' && b == 'h':
			d.fail(path, strictyaml.Error{What: "link between two hosts", Want: "a switch at one end"})
		case l.From == l.To:
			d.fail(path, strictyaml.Error{What: "link from a switch to itself"})
		case a == b:
			continue
		case l.LAG > 1:
			d.fail(path+".lag", strictyaml.Error{What: "a host has one link", Have: strconv.Itoa(l.LAG), Want: "1"})
		}
		for _, name := range []string{l.From, l.To} {
			if name[0] != 'h' {
				continue
			}
			if first, again := linked[name]; again {
				d.fail(path, strictyaml.Error{What: "host has another link", Have: name,
					Want: fmt.Sprintf("one, which is topology.links[%d]", first)})
			}
			linked[name] = i
		}
	}
	for kind, n := range d.Topology.names() {
		if kind == 'h' && len(linked) < n && len(d.Errs) == 0 {
			for i := range n {
				if _, ok := linked["h"+strconv.Itoa(i)]; !ok {
					d.fail("topology.links", strictyaml.Error{What: "hosts are not numbered in a row",
						Have: words.Count(len(linked), "host"), Want: fmt.Sprintf("a link of h%d", i)})
					break
				}
			}
		}
	}
}

// network lays out the topology, and checks that all parts reach each other and that faults are of links there.
func (d *checker) network() {
	d.lay = d.Topology.layout()
	d.hosts = make(map[string]int, len(d.lay.hosts))
	for i, h := range d.lay.hosts {
		d.hosts[h.name] = i
	}
	ports := d.lay.ports()
	if i := slices.Index(ports, 0); i >= 0 {
		d.fail("topology", strictyaml.Error{What: "switch without links", Have: "s" + strconv.Itoa(i)})
	}
	for i, n := range ports {
		if n > maxPorts {
			d.fail("topology", strictyaml.Error{What: fmt.Sprintf("too many ports of switch s%d", i),
				Have: strconv.Itoa(n), Want: fmt.Sprintf("at most %d", maxPorts)})
		}
	}
	if d.Topology.Form == explicit {
		for i, root := range d.lay.islands() {
			if root != 0 && ports[i] > 0 {
				d.fail("topology.links", strictyaml.Error{What: fmt.Sprintf("islands: s%d does not reach s0", root),
					Want: "a way of links between all switches"})
				break
			}
		}
	}
	d.faults(ports)
	d.curves(ports)
}

// curves checks the names of the recorded queues and flows.
func (d *checker) curves(ports []int) {
	if d.Curves == nil {
		return
	}
	for i, name := range d.Curves.Queues {
		if !isPort(name, ports) {
			d.fail(fmt.Sprintf("curves.queues[%d]", i), strictyaml.Error{What: "no such queue",
				Have: strictyaml.Quote(name), Want: fmt.Sprintf("a port of a switch such as s0:%d", ports[0]-1)})
		}
	}
	for i, name := range d.Curves.Flows {
		path := fmt.Sprintf("curves.flows[%d]", i)
		from, to, ok := strings.Cut(name, ">")
		if !ok {
			d.fail(path, strictyaml.Error{What: "no pair of hosts", Have: strictyaml.Quote(name),
				Want: d.lay.hosts[1].name + ">" + d.lay.hosts[0].name})
		} else if d.known(path, from) {
			d.known(path, to)
		}
	}
}

// isPort reports whether a switch has a port of this name.
func isPort(name string, ports []int) bool {
	sw, port, _ := strings.Cut(name, ":")
	kind, i, ok := node(sw)
	n, err := strconv.Atoi(port)
	return ok && kind == 's' && i < len(ports) && err == nil && n >= 0 && n < ports[i] && port == strconv.Itoa(n)
}

// faults checks the faults, given the number of ports of each switch.
func (d *checker) faults(ports []int) {
	for i := range d.Faults {
		f, path := &d.Faults[i], fmt.Sprintf("faults[%d]", i)
		if d.missing(path, "link") {
			continue
		}
		if f.At < 0 || f.At >= d.Until {
			d.fail(path+".at", strictyaml.Error{What: "out of range", Have: f.At.String(),
				Want: "before the end at " + d.Until.String()})
		}
		if f.Down == (f.Rate > 0) {
			d.fail(path, strictyaml.Error{What: "a fault makes a link either slow or dead",
				Want: "rate, or down: true"})
		}
		if h, ok := d.hosts[f.Link]; ok {
			if full := d.lay.hosts[h].rate; f.Rate > full {
				d.fail(path+".rate", strictyaml.Error{What: "faster than the NIC", Have: words.Rate(float64(f.Rate)),
					Want: "at most " + words.Rate(float64(full))})
			}
			continue
		}
		if !isPort(f.Link, ports) {
			d.fail(path+".link", strictyaml.Error{What: "no such link", Have: strictyaml.Quote(f.Link),
				Want: fmt.Sprintf("a host, or a port of a switch such as s0:%d", ports[0]-1)})
		}
	}
}

// buffer checks that each switch has room for its reserves and headrooms, and for a packet of each port beside.
func (d *checker) buffer() {
	need := make([]int, d.lay.switches)
	for _, h := range d.lay.hosts {
		need[h.sw] += d.needOf(h.rate, h.delay)
	}
	for _, t := range d.lay.trunks {
		need[t.a] += t.n * d.needOf(t.rate, t.delay)
		need[t.b] += t.n * d.needOf(t.rate, t.delay)
	}
	most := 0
	for i, n := range need {
		if n > need[most] {
			most = i
		}
	}
	if need[most] <= int(d.Switch.Buffer) {
		return
	}
	e := strictyaml.Error{What: fmt.Sprintf("buffer is smaller than its reserves and headrooms, and a packet of each "+
		"port, at switch s%d", most),
		Have: d.Switch.Buffer.String(), Want: fmt.Sprintf("at least %dKiB", (need[most]+1023)/1024)}
	if d.Switch.Headroom != nil {
		e.Fix = "or a smaller headroom: " + d.Switch.Headroom.String() + " for each of the ports"
	}
	d.fail("switch.buffer", e)
}

// needOf returns the bytes of a buffer for one port with a link.
func (c *Config) needOf(r rate, delay time.Duration) int {
	lossless := bits.OnesCount8(uint8(c.Switch.PFC.Priorities))
	return lossless*int(headroomOf(c, float64(r), int64(delay))) + int(c.Switch.Reserve) + c.NIC.MTU + headData +
		headWrite + fcs
}

// Sizes in memory, measured by a test.
const (
	sizeHost   = 4096
	sizePort   = 4096
	sizeFlow   = 3072
	sizePacket = 192
	// sizeRequest is for a request in flight, in a list that may be twice as long.
	sizeRequest = 512
	sizeRoute   = 2
	sizeShared  = 1536 // a host or a port at flow level
	sizeStream  = 1024
)

// memory checks that a run fits into memory: hosts, ports, routes, flows, and the packets that all buffers hold.
func (d *checker) memory() {
	flows, bytes, requests, payload := 0, int64(0), int64(0), int64(d.NIC.MTU)
	for _, s := range d.plan() {
		flows++
		bytes += s.bytes
		if m := int64(d.Traffic[s.entry].Message); m > 0 {
			requests += min((s.bytes+m-1)/m, int64(2*d.NIC.Window))
			payload = min(payload, m)
		}
	}
	edges := map[int]bool{}
	for _, h := range d.lay.hosts {
		edges[h.sw] = true
	}
	ports := 0
	for _, n := range d.lay.ports() {
		ports += n
	}
	inBuffers := min(int64(d.lay.switches)*int64(d.Switch.Buffer), bytes)
	need := int64(d.lay.switches) * int64(len(edges)) * sizeRoute
	if d.Level == FlowLevel {
		need += int64(len(d.lay.hosts)+ports)*sizeShared + int64(flows)*sizeStream
	} else {
		need += int64(len(d.lay.hosts))*sizeHost + int64(ports)*sizePort + int64(flows)*sizeFlow +
			inBuffers/payload*sizePacket + requests*sizeRequest
	}
	if need > int64(maxMemory) {
		d.fail("topology", strictyaml.Error{What: "network and traffic need too much memory",
			Have: fmt.Sprintf("%dMiB", need>>20), Want: "at most " + lab.Bytes(maxMemory).String(),
			Fix: "fewer hosts, flows or queue pairs, or smaller buffers"})
	}
}
