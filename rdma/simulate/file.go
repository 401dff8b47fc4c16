package simulate

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/roce"
)

var format = strictyaml.Format{Name: "simulation", File: "simulation file", MaxSize: 1 << 20, MaxTokens: 20_000,
	MaxDepth: 8, EmptyWant: "topology and traffic", LooseText: true, NeedValues: true}

// Limits of a file.
const (
	maxHosts = 1 << 16
	maxFlows = 1 << 20
	maxBytes = lab.TiB
	// maxMemory limits the memory that a run may need.
	maxMemory = 4 * lab.GiB
)

// A checker checks a file that has the right keys and types.
type checker struct {
	*strictyaml.Reader
	*Config
}

// Parse reads and checks a file. Its name is only used in messages. The error is a [strictyaml.Errors].
func Parse(name string, data []byte) (*Config, error) {
	c := defaults()
	r := strictyaml.New(&format, name)
	r.Parse(data, &c)
	d := checker{r, &c}
	if len(r.Errs) == 0 {
		d.topology()
		d.nic()
		c.complete()
		d.traffic()
	}
	if len(r.Errs) == 0 {
		d.buffer()
		d.memory()
	}
	r.Errs.Sort()
	if len(r.Errs) > 0 {
		return nil, r.Errs
	}
	return &c, nil
}

func (d *checker) fail(path string, e strictyaml.Error) {
	e.Key = path
	d.Fail(d.Place(path), e)
}

// inRange checks a number that was written.
func (d *checker) inRange(path string, v, low, high int) bool {
	if !d.Has(path) || v >= low && v <= high {
		return true
	}
	d.fail(path, strictyaml.Error{What: "out of range", Have: strconv.Itoa(v),
		Want: fmt.Sprintf("%d to %d", low, high)})
	return false
}

// oneOf checks a word.
func (d *checker) oneOf(path, v string, words ...string) bool {
	if slices.Contains(words, v) {
		return true
	}
	d.fail(path, strictyaml.Error{What: "unknown value", Have: strictyaml.Quote(v), Want: strings.Join(words, " or "),
		Fix: strictyaml.Meant(v, words)})
	return false
}

// missing checks that keys were written.
func (d *checker) missing(path string, keys ...string) (any bool) {
	for _, k := range keys {
		if p := strictyaml.Join(path, k); !d.Has(p) {
			d.fail(path, strictyaml.Error{What: "missing key", Want: k})
			any = true
		}
	}
	return any
}

// unused refuses keys that have no effect beside another value.
func (d *checker) unused(path, because string, keys ...string) {
	for _, k := range keys {
		if p := strictyaml.Join(path, k); d.Has(p) {
			d.fail(p, strictyaml.Error{What: "key has no effect with " + because, Fix: "remove it"})
		}
	}
}

func (d *checker) topology() {
	t := &d.Topology
	if !d.Has("topology") {
		d.missing("", "topology")
		return
	}
	if !d.oneOf("topology.form", t.Form, star, leafSpine) {
		return
	}
	keys := []string{"hosts", "rate"}
	if t.Form == leafSpine {
		keys = append(keys, "leaves", "spines")
	} else {
		d.unused("topology", "form "+star, "leaves", "spines", "uplink", "uplink_delay")
	}
	if d.missing("topology", keys...) {
		return
	}
	low := 2
	if t.Form == leafSpine {
		low = 1
		if t.Spines == 0 && t.Leaves > 1 {
			d.fail("topology.spines", strictyaml.Error{What: "islands: without spines no leaf reaches another",
				Have: "0",
				Want: "1 or more"})
			return
		}
		d.inRange("topology.leaves", t.Leaves, 1, 4096)
		d.inRange("topology.spines", t.Spines, 0, 4096)
	}
	d.inRange("topology.hosts", t.Hosts, low, maxHosts)
	for path, v := range map[string]time.Duration{"topology.delay": t.Delay, "topology.uplink_delay": t.UplinkDelay} {
		if v < 0 || v > time.Second {
			d.fail(path, strictyaml.Error{What: "out of range", Have: v.String(), Want: "0s to 1s"})
		}
	}
	if n := t.allHosts(); len(d.Errs) == 0 && (n > maxHosts || n < 2) {
		d.fail("topology.hosts", strictyaml.Error{What: "wrong number of hosts in all", Have: strconv.Itoa(n),
			Want: fmt.Sprintf("2 to %d", maxHosts)})
	}
}

func (d *checker) nic() {
	n, s := &d.NIC, &d.Switch
	d.oneOf("nic.profile", n.Profile, profileCard, profileHPCC)
	d.oneOf("nic.congestion", n.Congestion, dcqcn, noControl)
	d.inRange("nic.mtu", n.MTU, 256, 4096)
	d.inRange("nic.window", n.Window, 1, 1<<22)
	d.inRange("nic.ack_every", n.AckEvery, 1, 1<<20)
	d.inRange("nic.ack_timeout", n.AckTimeout, 0, 31)
	d.inRange("nic.priority", n.Priority, 0, shared-1)
	if n.AckPriority != nil {
		d.inRange("nic.ack_priority", *n.AckPriority, 0, priorities-1)
	}
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = p.name
	}
	for name, v := range n.CCParams {
		path := strictyaml.Join("nic.cc_params", name)
		switch {
		case param(&roce.Congestion{}, name) == nil:
			d.fail(path, strictyaml.Error{What: "unknown parameter", Have: strictyaml.Quote(name),
				Fix: strictyaml.Meant(name, names)})
		case v > math.MaxUint32:
			d.fail(path, strictyaml.Error{What: "out of range", Have: strconv.FormatUint(v, 10),
				Want: "0 to 4294967295"})
		}
	}
	if n.Congestion == noControl {
		d.unused("nic", "congestion none", "cc_params")
		d.unused("switch", "congestion none of the NICs", "ecn")
	}
	for path, v := range map[string]float64{"switch.alpha": s.Alpha, "switch.uplink_alpha": s.UplinkAlpha} {
		if d.Has(path) && !(v > 0 && v <= 64) {
			d.fail(path, strictyaml.Error{What: "out of range", Have: fmt.Sprint(v), Want: "more than 0, up to 64"})
		}
	}
	if d.Topology.Form == star {
		d.unused("switch", "form "+star, "uplink_alpha")
	}
	if e := s.ECN; e.Min > e.Max {
		d.fail("switch.ecn", strictyaml.Error{What: "marks begin above where all packets are marked",
			Want: "MIN:MAX:PERCENT with MIN up to MAX"})
	}
	if d.Until <= 0 || d.Until > time.Hour {
		d.fail("until", strictyaml.Error{What: "out of range", Have: d.Until.String(), Want: "a time up to 1h"})
	}
}

// hostIndex returns the number of a host.
func hostIndex(name string, hosts int) (int, bool) {
	i, err := strconv.Atoi(strings.TrimPrefix(name, "h"))
	return i, err == nil && i >= 0 && i < hosts && name == "h"+strconv.Itoa(i)
}

func (d *checker) traffic() {
	if len(d.Traffic) == 0 {
		d.fail("traffic", strictyaml.Error{What: "no traffic", Want: "a list of patterns"})
	}
	total := 0
	for i := range d.Traffic {
		t, path := &d.Traffic[i], fmt.Sprintf("traffic[%d]", i)
		if t.Pattern == "" {
			d.fail(path, strictyaml.Error{What: "missing key", Want: "pattern"})
			continue
		}
		if !d.oneOf(path+".pattern", t.Pattern, incast, permutation, single) {
			continue
		}
		d.entry(t, path)
		flows := len(t.From)
		switch {
		case t.Pattern == permutation:
			flows = d.Topology.allHosts()
		case t.Senders > 0:
			flows = t.Senders
		}
		total += flows * t.QPs
		if total > maxFlows {
			d.fail(path, strictyaml.Error{What: "too many flows", Have: strconv.Itoa(total),
				Want: fmt.Sprintf("at most %d", maxFlows)})
			return
		}
	}
}

// entry checks one entry of the traffic.
func (d *checker) entry(t *Traffic, path string) {
	at := func(key string) string { return path + "." + key }
	hosts := d.Topology.allHosts()
	if t.Bytes < 1 || t.Bytes > maxBytes {
		d.fail(at("bytes"), strictyaml.Error{What: "out of range", Have: t.Bytes.String(),
			Want: "1B to " + maxBytes.String()})
	}
	d.inRange(at("qps"), t.QPs, 1, 1<<16)
	if t.Bytes > 0 && int64(t.QPs) > int64(t.Bytes) {
		d.fail(at("qps"), strictyaml.Error{What: "more queue pairs than bytes", Have: strconv.Itoa(t.QPs),
			Want: fmt.Sprintf("at most %d", t.Bytes)})
	}
	if t.Start < 0 || t.Start >= d.Until {
		d.fail(at("start"), strictyaml.Error{What: "out of range", Have: t.Start.String(),
			Want: "before the end at " + d.Until.String()})
	}
	if t.Pattern == permutation {
		d.unused(path, "pattern "+permutation, "from", "to", "senders")
		return
	}
	if d.missing(path, "to") {
		return
	}
	known := fmt.Sprintf("h0 to h%d", hosts-1)
	if _, ok := hostIndex(t.To, hosts); !ok {
		d.fail(at("to"), strictyaml.Error{What: "no such host", Have: strictyaml.Quote(t.To), Want: known})
	}
	for i, name := range t.From {
		p := fmt.Sprintf("%s[%d]", at("from"), i)
		if _, ok := hostIndex(name, hosts); !ok {
			d.fail(p, strictyaml.Error{What: "no such host", Have: strictyaml.Quote(name), Want: known})
		} else if name == t.To {
			d.fail(p, strictyaml.Error{What: "host sends to itself", Have: strictyaml.Quote(name)})
		}
	}
	if t.Pattern == single {
		d.unused(path, "pattern "+single, "senders")
		if len(t.From) != 1 {
			d.fail(at("from"), strictyaml.Error{What: "wrong number of senders", Have: strconv.Itoa(len(t.From)),
				Want: "one, such as [h1]"})
		}
		return
	}
	switch {
	case len(t.From) > 0 && d.Has(at("senders")):
		d.fail(at("senders"), strictyaml.Error{What: "senders are both counted and named",
			Fix: "remove senders or from"})
	case len(t.From) == 0 && (t.Senders < 1 || t.Senders >= hosts):
		d.fail(at("senders"), strictyaml.Error{What: "out of range", Have: strconv.Itoa(t.Senders),
			Want: fmt.Sprintf("1 to %d, or names of hosts under from", hosts-1)})
	}
}

// buffer checks that each switch has room for its reserves and headrooms, and for a packet of each port beside.
func (d *checker) buffer() {
	t := &d.Topology
	need := t.Hosts * d.needOf(t.Rate, t.Delay)
	if t.Form == leafSpine {
		up := d.needOf(t.Uplink, t.UplinkDelay)
		need = max(need+t.Spines*up, t.Leaves*up)
	}
	if need > int(d.Switch.Buffer) {
		e := strictyaml.Error{What: "buffer is smaller than its reserves and headrooms, and a packet of each port",
			Have: d.Switch.Buffer.String(), Want: fmt.Sprintf("at least %dKiB", (need+1023)/1024)}
		if d.Switch.Headroom != nil {
			e.Fix = "or a smaller headroom: " + d.Switch.Headroom.String() + " for each of the ports"
		}
		d.fail("switch.buffer", e)
	}
}

// needOf returns the bytes of a buffer for one port with a link.
func (d *checker) needOf(r rate, delay time.Duration) int {
	lossless := bits.OnesCount8(uint8(d.Switch.PFC.Priorities))
	return lossless*int(headroomOf(d.Config, float64(r), int64(delay))) + int(d.Switch.Reserve) + d.NIC.MTU + headData +
		headWrite + fcs
}

// Sizes in memory, measured by a test.
const (
	sizeHost   = 4096
	sizePort   = 4096
	sizeFlow   = 3072
	sizePacket = 192
)

// memory checks that a run fits into memory: hosts, ports, flows, and the packets that all buffers hold.
func (d *checker) memory() {
	ports, flows, bytes := d.Topology.allPorts(), 0, int64(0)
	draw := source(d.Seed, 0)
	for i := range d.Traffic {
		t := &d.Traffic[i]
		n := len(pairs(t, d.Topology.allHosts(), draw))
		flows += n * t.QPs
		bytes += int64(n) * int64(t.Bytes)
	}
	switches := 1
	if d.Topology.Form == leafSpine {
		switches = d.Topology.Leaves + d.Topology.Spines
	}
	inBuffers := min(int64(switches)*int64(d.Switch.Buffer), bytes)
	need := int64(d.Topology.allHosts())*sizeHost + int64(ports)*sizePort + int64(flows)*sizeFlow +
		inBuffers/int64(d.NIC.MTU)*sizePacket
	if need > int64(maxMemory) {
		d.fail("topology", strictyaml.Error{What: "network and traffic need too much memory",
			Have: fmt.Sprintf("%dMiB", need>>20), Want: "at most " + maxMemory.String(),
			Fix: "fewer hosts, flows or queue pairs, or smaller buffers"})
	}
}
