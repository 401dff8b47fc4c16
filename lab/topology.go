package lab

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
)

// A FabricTopology is how several switches are joined.
type FabricTopology string

// LeafSpine has nodes at leaves, and a link between each leaf and each spine.
const LeafSpine FabricTopology = "leaf-spine"

func topologies() []FabricTopology { return []FabricTopology{LeafSpine} }

// MaxLeaves and MaxSpines are those of the emulated switches.
const (
	MaxLeaves = 16
	MaxSpines = 16
)

// switches describes the switches for a person.
func (f Fabric) switches() string {
	if f.Topology == "" {
		return "one switch"
	}
	text := fmt.Sprintf("%s with %d leaves and %d spines", f.Topology, f.Leaves, f.Spines)
	if f.RateMbps > 0 {
		text += " at " + formatRate(f.RateMbps)
	}
	return text
}

func (d *decoder) linkRate(path string, n ast.Node) *int64 {
	mbps := d.rate(path, n)
	if mbps == 0 {
		return nil
	}
	return &mbps
}

// resolveTopology sets the switches of the fabric, and the leaf of each node: its own, or the next one in turn, so that
// a new node at the end moves no other.
func (d *decoder) resolveTopology(f *fileFabric, l *Lab, nodes fileNodeList, from map[string]string) {
	leaf := map[string]*int{}
	for _, n := range nodes {
		leaf[n.name] = n.node.Leaf
	}
	if f == nil || f.Topology == nil {
		d.withoutTopology(f, nodes)
		return
	}
	at := d.Keys["fabric.topology"]
	missing := func(key string, value *int) {
		if value == nil {
			d.Fail(at, Error{Key: "fabric." + key, What: "missing key", Want: "the number of " + key,
				Fix: "add " + key + ": 2"})
		}
	}
	missing("leaves", f.Leaves)
	missing("spines", f.Spines)
	if by := l.RunBy(); by != DriverQEMU {
		d.Fail(at, Error{Key: "fabric.topology", What: "only emulated nodes have switches of the lab",
			Have: "driver " + string(by), Fix: "leave topology out, or write driver: qemu"})
	}
	if len(d.Errs) > 0 {
		return
	}
	l.Fabric.Topology, l.Fabric.Leaves, l.Fabric.Spines = *f.Topology, *f.Leaves, *f.Spines
	l.Fabric.RateMbps = or(f.Rate, nil, 0)
	for i := range l.Nodes {
		n := &l.Nodes[i]
		path := strictyaml.Join("nodes", from[n.Name])
		own := leaf[from[n.Name]]
		switch {
		case own == nil:
			n.Leaf = new(i % *f.Leaves)
		case *own >= *f.Leaves:
			d.failOnce(d.Values[strictyaml.Join(path, "leaf")], Error{Key: strictyaml.Join(path, "leaf"),
				What: "no such leaf", Have: strconv.Itoa(*own), Want: leafRange(*f.Leaves)})
		default:
			n.Leaf = new(*own)
		}
		if l.Fabric.linkName(n.Name) {
			d.Fail(d.Keys[path], Error{Key: path, What: "name of a link between switches",
				Have: strictyaml.Quote(n.Name), Fix: "choose another name"})
		}
	}
}

func leafRange(leaves int) string {
	if leaves == 1 {
		return "0, the only one"
	}
	return fmt.Sprintf("0 to %d, as fabric.leaves is %d", leaves-1, leaves)
}

// withoutTopology finds keys that have no effect with one switch.
func (d *decoder) withoutTopology(f *fileFabric, nodes fileNodeList) {
	fail := func(path string) {
		d.Fail(d.Keys[path], Error{Key: path, What: "key has no effect with one switch",
			Fix: "add \"topology: leaf-spine\" below fabric, or leave it out"})
	}
	if f != nil {
		for _, k := range []struct {
			key string
			set bool
		}{{"leaves", f.Leaves != nil}, {"spines", f.Spines != nil}, {"rate", f.Rate != nil}} {
			if k.set {
				fail("fabric." + k.key)
			}
		}
	}
	for _, n := range nodes {
		if n.node.Leaf != nil {
			fail(strictyaml.Join(strictyaml.Join("nodes", n.name), "leaf"))
		}
	}
}

var linkNames = regexp.MustCompile(`^(?:leaf(\d+)-spine(\d+)|spine(\d+)-leaf(\d+))$`)

// linkName reports whether a link between switches of the fabric has this name.
func (f Fabric) linkName(name string) bool {
	m := linkNames.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	leaf, err1 := strconv.Atoi(m[1] + m[4])
	spine, err2 := strconv.Atoi(m[2] + m[3])
	return err1 == nil && err2 == nil && leaf < f.Leaves && spine < f.Spines
}

func (n Node) leaf() string { return formatPtr(n.Leaf) }
