package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/fabric"
)

// ofLab is the form of the topology of a lab file.
const ofLab = "lab"

// labBytes are sent by each node if a lab file has no traffic.
const labBytes = lab.MiB

// A labPart is the key simulation of a lab file.
type labPart struct {
	Rate   rate          `yaml:"rate"` // of all NICs; 0 means that of the model of each
	Delay  time.Duration `yaml:"delay"`
	Switch SwitchConfig  `yaml:"switch"`
	NIC    NICConfig     `yaml:"nic"`
	Faults []Fault       `yaml:"faults"`
	Curves *Curves       `yaml:"curves"`
	Seed   uint64        `yaml:"seed"`
	Until  time.Duration `yaml:"until"`
}

// Prefix begins the keys of a simulation in its file. They are below another key in a lab file.
func (c *Config) Prefix() string {
	if c.Topology.Form == ofLab {
		return "simulation."
	}
	return ""
}

// keyOf returns the value of a top-level key, or nil.
func keyOf(body ast.Node, key string) ast.Node {
	var values []*ast.MappingValueNode
	switch n := body.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	}
	for _, v := range values {
		if s, ok := v.Key.(*ast.StringNode); ok && s.Value == key {
			return v.Value
		}
	}
	return nil
}

// labFile reads and checks a lab file.
func (d *checker) labFile(name string, data []byte, body ast.Node) {
	l, err := lab.Parse(name, data)
	if err != nil {
		errs, ok := errors.AsType[strictyaml.Errors](err)
		if !ok {
			errs = strictyaml.Errors{{File: name, What: err.Error()}}
		}
		d.Errs = append(d.Errs, errs...)
		return
	}
	if d.fromLab(l, body) {
		d.check(true)
	}
	labKeys(d.Errs)
}

// fromLab sets the configuration for a lab, and reports whether a network can be made of it.
func (d *checker) fromLab(l *lab.Lab, body ast.Node) bool {
	c := d.Config
	p := labPart{Delay: c.Topology.Delay, Switch: c.Switch, NIC: c.NIC, Seed: c.Seed, Until: c.Until}
	p.Switch.PFC.Priorities = 0 // as the switch of a lab starts
	d.Values[""] = strictyaml.PlaceOf(body)
	d.Entries("", body, func(key string, _ strictyaml.Place, n ast.Node) {
		switch {
		case strictyaml.IsNull(n):
		case key == "nodes":
			d.Entries(key, n, func(string, strictyaml.Place, ast.Node) {})
		case key == "traffic":
			d.Into(key, n, &c.Traffic)
		}
	})
	// Its keys have the paths of a file of a simulation, which the checks know.
	if n := keyOf(body, "simulation"); n != nil && !strictyaml.IsNull(n) {
		d.Fields("", n, &p)
	}
	if len(d.Errs) > 0 {
		return false
	}
	c.Name, c.Switch, c.NIC, c.Faults, c.Curves, c.Seed, c.Until = l.Name, p.Switch, p.NIC, p.Faults, p.Curves, p.Seed,
		p.Until
	c.Topology = Topology{Form: ofLab, Rate: p.Rate, Delay: p.Delay, Leaves: l.Fabric.Leaves, Spines: l.Fabric.Spines,
		Uplink: rate(l.Fabric.RateMbps * 1e6), UplinkDelay: p.Delay}
	if !d.attach(l, p.Rate) {
		return false
	}
	d.delay("delay", p.Delay)
	if most := l.Fabric.RDMAPayload(); !d.Has("nic.mtu") {
		c.NIC.MTU = most
	} else if c.NIC.MTU > most {
		d.fail("nic.mtu", strictyaml.Error{What: "larger than the fabric carries", Have: strconv.Itoa(c.NIC.MTU),
			Want: fmt.Sprintf("at most %d with fabric.mtu %d", most, l.Fabric.MTU)})
	}
	d.labSwitch()
	if !d.Has("traffic") {
		d.labTraffic()
	}
	return true
}

// attach connects the NICs of the nodes. The first NICs are in one subnet, the second ones in the next, and so on, so
// each subnet is a switch of its own, unless the lab has leaves: all NICs of a node are at one.
func (d *checker) attach(l *lab.Lab, all rate) bool {
	t, fastest := &d.Topology, rate(0)
	for _, n := range l.Nodes {
		speed := all
		if speed == 0 && n.VFs == 0 && l.RunBy() == lab.DriverQEMU {
			model := n.NIC
			if model == lab.NICAuto {
				model = lab.NICConnectX4Lx
			}
			speed = rate(connectx.Rate(string(model)))
		}
		if speed == 0 && len(n.NICs) > 0 {
			d.fail(d.entryOf(n.Name), strictyaml.Error{What: "unknown rate of the NICs of " + n.Name,
				Want: "simulation: {rate: 25Gbit}, or emulated NICs such as nic: connectx-6"})
			return false
		}
		for i := range n.NICs {
			name := n.Name
			if i > 0 {
				name += "." + strconv.Itoa(i)
			}
			sw := i
			if n.Leaf != nil {
				sw = *n.Leaf
			}
			t.nodes = append(t.nodes, attached{name, sw, speed, t.Delay, i})
		}
		fastest = max(fastest, speed)
		if t.Rate == 0 || speed > 0 && speed < t.Rate {
			t.Rate = speed
		}
	}
	if t.Uplink == 0 { // as in the lab
		t.Uplink = fastest
	}
	// Hosts stand in the order of their subnets, which is that of their addresses.
	slices.SortStableFunc(t.nodes, func(a, b attached) int { return a.subnet - b.subnet })
	if len(t.nodes) < 2 || t.nodes[1].subnet > 0 {
		d.fail("nodes", strictyaml.Error{What: "fewer than two nodes with a NIC"})
		return false
	}
	return true
}

// entryOf returns the path of the entry that a node is from: vm with a count is also vm00.
func (d *checker) entryOf(node string) string {
	for name := node; name != ""; name = name[:len(name)-1] {
		if path := strictyaml.Join("nodes", name); d.Has(path) {
			return path
		}
	}
	return "nodes"
}

// labSwitch sets the defaults of the switch of a lab: each port may hold as many bytes as there, if no priority is
// lossless.
func (d *checker) labSwitch() {
	s := &d.Switch
	if s.PFC.Priorities != 0 {
		return
	}
	if !d.Has("switch.queue") {
		s.Queue = fabric.DefaultQueueBytes
	}
	if !d.Has("switch.alpha") {
		s.Alpha = 64
	}
	if !d.Has("switch.buffer") {
		ports := slices.Max(d.Topology.layout().ports())
		s.Buffer = max(s.Buffer, lab.Bytes(ports)*(s.Queue+s.Reserve+lab.Bytes(d.NIC.MTU+headData+headWrite+fcs)))
	}
}

// labTraffic is an incast of all nodes to the first one.
func (d *checker) labTraffic() {
	t := Traffic{Pattern: incast, To: d.Topology.nodes[0].name, Bytes: labBytes}
	for _, h := range d.Topology.nodes[1:] {
		if h.subnet == 0 {
			t.From = append(t.From, h.name)
		}
	}
	d.Traffic = []Traffic{t}
	for _, key := range []string{"pattern", "to", "bytes", "from"} { // they count as written
		d.Keys["traffic[0]."+key] = d.Values[""]
	}
}

// labKeys names keys of errors as a lab file has them.
func labKeys(errs strictyaml.Errors) {
	for _, e := range errs {
		first, _, _ := strings.Cut(e.Key, ".")
		first, _, _ = strings.Cut(first, "[")
		switch first {
		case "topology":
			e.Key = "nodes"
		case "traffic", "nodes":
		case "":
			e.Key = "simulation"
		default:
			e.Key = "simulation." + e.Key
		}
	}
}
