package simulate

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/roce"
)

var format = strictyaml.Format{Name: "simulation", File: "simulation file", MaxSize: 1 << 20, MaxTokens: 30_000,
	MaxDepth: 16, EmptyWant: "topology and traffic", LooseText: true, NeedValues: true}

// Limits of a file.
const (
	maxHosts = 1 << 16
	// maxShared limits the hosts at flow level.
	maxShared = 1 << 18
	maxFlows  = 1 << 20
	maxBytes  = lab.TiB
	// maxMemory limits the memory that a run may need.
	maxMemory = 4 * lab.GiB
)

// A checker checks a file that has the right keys and types.
type checker struct {
	*strictyaml.Reader
	*Config
	read  func(name string) ([]byte, error)
	lay   *layout
	hosts map[string]int // numbers of hosts by their names
}

// Parse reads and checks a file of a simulation, or a lab file. Its name is only used in messages. The error is a
// [strictyaml.Errors].
//
// read returns the text of another file that the file names. If it is nil, such files are refused.
func Parse(name string, data []byte, read func(name string) ([]byte, error)) (*Config, error) {
	c := defaults()
	r := strictyaml.New(&format, name)
	d := checker{Reader: r, Config: &c, read: read}
	body := r.Read(data)
	switch {
	case body == nil:
	case keyOf(body, "nodes") != nil && keyOf(body, "topology") == nil:
		d.labFile(name, data, body)
	default:
		r.Values[""] = strictyaml.PlaceOf(body)
		if r.Into("", body, &c); len(r.Errs) == 0 {
			d.check(d.topology())
		}
	}
	r.Errs.Sort()
	if len(r.Errs) > 0 {
		return nil, r.Errs
	}
	return &c, nil
}

// check checks all that follows the topology. fits reports whether a network can be made of that.
func (d *checker) check(fits bool) {
	d.level()
	d.nic()
	if fits {
		d.complete()
		d.network()
		d.traffic()
	}
	if len(d.Errs) == 0 {
		d.buffer()
		d.memory()
	}
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

// levels checks the level, and that no key needs packets at flow level.
func (d *checker) level() {
	if d.oneOf("level", d.Level, PacketLevel, FlowLevel) && d.Level == FlowLevel {
		d.unused("", "level flow", "curves")
	}
}

// mostHosts returns the limit of hosts.
func (c *Config) mostHosts() int {
	if c.Level == FlowLevel {
		return maxShared
	}
	return maxHosts
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
		d.unused("switch", "congestion none of the NICs", "ecn", "uplink_ecn")
	}
	for path, v := range map[string]float64{"switch.alpha": s.Alpha, "switch.uplink_alpha": s.UplinkAlpha} {
		if d.Has(path) && !(v > 0 && v <= 64) {
			d.fail(path, strictyaml.Error{What: "out of range", Have: fmt.Sprint(v), Want: "more than 0, up to 64"})
		}
	}
	d.inRange("switch.queue", int(s.Queue), 1, int(s.Buffer))
	if _, _, trunks := d.Topology.sizes(); trunks == 0 {
		d.unused("switch", "no links between switches", "uplink_alpha", "uplink_ecn")
	}
	for path, e := range map[string]marks{"switch.ecn": s.ECN, "switch.uplink_ecn": s.UplinkECN} {
		if e.Min <= e.Max {
			continue
		}
		d.fail(path, strictyaml.Error{What: "marks begin above where all packets are marked",
			Want: "MIN:MAX:PERCENT with MIN up to MAX"})
	}
	if d.Until <= 0 || d.Until > time.Hour {
		d.fail("until", strictyaml.Error{What: "out of range", Have: d.Until.String(), Want: "a time up to 1h"})
	}
}
