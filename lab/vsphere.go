package lab

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
)

// A Clone says how a node is made from its template.
type Clone string

// The ways to clone.
const (
	CloneFull    Clone = "full"    // with disks of its own
	CloneLinked  Clone = "linked"  // its disks lie on those of the template's snapshot
	CloneInstant Clone = "instant" // from the memory of a template that runs
)

func clones() []Clone { return []Clone{CloneFull, CloneLinked, CloneInstant} }

// A Passthrough says who chooses the device that a node gets.
type Passthrough string

// The ways to pass devices through.
const (
	PassthroughStatic  Passthrough = "static"  // the plan
	PassthroughDynamic Passthrough = "dynamic" // ESXi, among those of the same kind
)

func passthroughs() []Passthrough { return []Passthrough{PassthroughStatic, PassthroughDynamic} }

// A PowerPolicy is how an ESXi host saves power.
type PowerPolicy string

// The policies, by the names that the API has for them.
const (
	PowerStatic  PowerPolicy = "static"  // "High performance"
	PowerDynamic PowerPolicy = "dynamic" // "Balanced"
	PowerLow     PowerPolicy = "low"     // "Low power"
)

func powerPolicies() []PowerPolicy { return []PowerPolicy{PowerStatic, PowerDynamic, PowerLow} }

// maxInventoryName is the longest name that vCenter gives to an object.
const maxInventoryName = 80

// A vsphereKey is a key of vsphere that is a name, and where it is.
type vsphereKey struct {
	name  string
	value *string
}

// texts are the keys that are names, in the order in which they are written.
func (v *VSphere) texts() []vsphereKey {
	return []vsphereKey{{"host", &v.Host}, {"template", &v.Template}, {"datacenter", &v.Datacenter},
		{"folder", &v.Folder}, {"datastore", &v.Datastore}, {"resource_pool", &v.ResourcePool},
		{"port_group", &v.PortGroup}, {"pvrdma", &v.PVRDMA}, {"vgpu", &v.VGPU}}
}

// A vsphereMap is a key of vsphere that is names with their values, and where it is.
type vsphereMap struct {
	name  string
	value *map[string]string
	long  int // the longest value
}

// maps are the keys that are names with values, in the order in which they are written.
func (v *VSphere) maps() []vsphereMap {
	return []vsphereMap{{"settings", &v.Settings, maxInventoryName}, {"modules", &v.Modules, maxModuleOptions}}
}

// anywhere is the value without its host.
func (v *VSphere) anywhere() *VSphere {
	if v == nil {
		return nil
	}
	other := *v
	other.Host = ""
	return &other
}

// flow writes the value of the key; "none" if there is none.
func (v *VSphere) flow() string {
	if v == nil {
		return "none"
	}
	var keys, switches []string
	for _, t := range v.texts() {
		keys = append(keys, t.name, known(*t.value))
	}
	for _, name := range slices.Sorted(maps.Keys(v.Switches)) {
		switches = append(switches, scalar(name), v.Switches[name].flow())
	}
	keys = append(keys, "networks", sequence(v.Networks, scalar), "clone", string(v.Clone),
		"power_policy", string(v.PowerPolicy), "customize", v.Customize.flow(),
		"passthrough", words.If(v.Passthrough == PassthroughDynamic, string(v.Passthrough)),
		"switches", mapping(switches...))
	for _, m := range v.maps() {
		var pairs []string
		for _, name := range slices.Sorted(maps.Keys(*m.value)) {
			pairs = append(pairs, name, strconv.Quote((*m.value)[name]))
		}
		keys = append(keys, m.name, mapping(pairs...))
	}
	return mapping(keys...)
}

// AddressOf returns the address of the i-th node, from 0; not a valid one where it gets one by DHCP.
func (c *Customize) AddressOf(i int) netip.Prefix {
	switch len(c.Address) {
	case 0:
		return netip.Prefix{}
	case 1:
		first := binary.BigEndian.Uint32(c.Address[0].Addr().AsSlice())
		return netip.PrefixFrom(addr4(first+uint32(i)), c.Address[0].Bits())
	}
	return c.Address[i]
}

// flow writes the value of the key; "" if there is none.
func (c *Customize) flow() string {
	if c == nil {
		return ""
	}
	return mapping("domain", scalar(c.Domain), "address", sequence(c.Address, netip.Prefix.String),
		"gateway", given(c.Gateway), "dns", sequence(c.DNS, netip.Addr.String))
}

// domainPattern matches a domain, and maxServers is how many name servers a resolver asks.
const (
	domainPattern = `^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`
	maxServers    = 3
)

func (d *decoder) customize(path string, n ast.Node) *Customize {
	c := &Customize{}
	before := len(d.Errs)
	bad := func(path string, n ast.Node, what, have, want string) {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: what, Have: have, Want: want})
	}
	address := func(path string, n ast.Node) *netip.Addr {
		const want = "an IPv4 address, such as 192.0.2.1"
		s, ok := d.Text(path, n, want)
		a, err := netip.ParseAddr(s)
		if ok && (err != nil || !a.Is4()) {
			bad(path, n, "bad address", strictyaml.Quote(s), want)
		}
		return &a
	}
	prefix := func(path string, n ast.Node) netip.Prefix {
		const want = "an IPv4 address with the length of its subnet, such as 192.0.2.11/24"
		s, ok := d.Text(path, n, want)
		p, err := netip.ParsePrefix(s)
		if ok && (err != nil || !p.Addr().Is4() || p.Bits() < MinPrefix || p.Bits() > MaxPrefix) {
			bad(path, n, "bad address", strictyaml.Quote(s), want)
		}
		return p
	}
	d.mapping(path, n, []key{
		{"domain", func(path string, n ast.Node) {
			const want = "a domain, such as hpc.example.org"
			s, ok := d.Text(path, n, want)
			if ok && !d.matches(domainPattern, s) {
				bad(path, n, "bad domain", strictyaml.Quote(s), want)
			}
			c.Domain = s
		}},
		{"address", func(path string, n ast.Node) {
			items := []ast.Node{n}
			if list, ok := n.(*ast.SequenceNode); ok {
				items = list.Values
			}
			for _, item := range items {
				c.Address = append(c.Address, prefix(path, item))
			}
		}},
		{"gateway", func(path string, n ast.Node) { c.Gateway = address(path, n) }},
		{"dns", func(path string, n ast.Node) {
			want := fmt.Sprintf("a list of at most %d addresses", maxServers)
			items := d.list(path, n, want)
			if len(items) > maxServers {
				bad(path, n, "too many name servers", strconv.Itoa(len(items)), want)
			}
			for _, item := range items {
				c.DNS = append(c.DNS, *address(path, item))
			}
		}},
	})
	if c.Domain == "" && len(d.Errs) == before {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: strictyaml.Join(path, "domain"), What: "missing key",
			Fix: "name the domain of the nodes, such as hpc.example.org"})
	}
	return c
}

// settingPattern matches the name of a setting.
const (
	settingPattern = `^[A-Za-z][A-Za-z0-9_.]*$`
	maxSettings    = 64
	// maxModuleOptions is more than all options of nmlx5_core take.
	maxModuleOptions = 512
)

// settings decodes settings, whose values may look like numbers and truth values.
func (d *decoder) settings(path string, n ast.Node, long int) map[string]string {
	all := map[string]string{}
	d.Pairs(path, n, func(k ast.Node) (string, *Error) {
		name := k.GetToken().Value
		if !d.matches(settingPattern, name) || len(name) > maxInventoryName {
			return "", &Error{What: "not the name of a setting", Have: strictyaml.Describe(k)}
		}
		return name, nil
	}, func(name string, at place, n ast.Node) {
		switch n.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			if text := n.GetToken().Value; d.matches(matchPattern, text) && len(text) <= long &&
				len(all) < maxSettings {
				all[name] = text
				return
			}
		}
		d.Fail(strictyaml.PlaceOf(n), Error{Key: strictyaml.Join(path, name), What: "not the value of a setting",
			Have: strictyaml.Describe(n), Want: fmt.Sprintf("1 to %d characters on one line, of at most %d settings",
				long, maxSettings)})
	})
	return all
}

func (d *decoder) vsphere(path string, n ast.Node) *VSphere {
	if strictyaml.IsNull(n) {
		return nil
	}
	v := &VSphere{Clone: CloneFull, Passthrough: PassthroughStatic}
	keys := []key{
		{"passthrough", func(path string, n ast.Node) {
			v.Passthrough = or(enum(d, path, n, passthroughs(), nil), nil, v.Passthrough)
		}},
		{"networks", func(path string, n ast.Node) { v.Networks = d.names(path, n) }},
		{"switches", func(path string, n ast.Node) { v.Switches = d.switches(path, n) }},
		{"customize", func(path string, n ast.Node) { v.Customize = d.customize(path, n) }},
		{"clone", func(path string, n ast.Node) { v.Clone = or(enum(d, path, n, clones(), nil), nil, v.Clone) }},
		{"power_policy", func(path string, n ast.Node) {
			v.PowerPolicy = or(enum(d, path, n, powerPolicies(), map[string]string{
				"high-performance": "write static", "balanced": "write dynamic", "low-power": "write low"}), nil, "")
		}},
	}
	for _, t := range v.texts() {
		keys = append(keys, key{t.name, func(path string, n ast.Node) {
			s, ok := d.Text(path, n, "a name of the inventory")
			if ok {
				d.inventoryName(path, s, strictyaml.PlaceOf(n))
			}
			*t.value = s
		}})
	}
	for _, m := range v.maps() {
		keys = append(keys, key{m.name, func(path string, n ast.Node) { *m.value = d.settings(path, n, m.long) }})
	}
	before := len(d.Errs)
	d.mapping(path, n, keys)
	for _, t := range v.texts()[:2] {
		if *t.value == "" && len(d.Errs) == before {
			d.Fail(strictyaml.PlaceOf(n), Error{Key: strictyaml.Join(path, t.name), What: "missing key",
				Fix: "name the " + t.name + " as the inventory of vSphere does"})
		}
	}
	return v
}

// inventoryName refuses what vCenter would not take for a name.
func (d *decoder) inventoryName(path, s string, at place) bool {
	ok := d.matches(matchPattern, s) && len(s) <= maxInventoryName
	if !ok {
		d.Fail(at, Error{Key: path, What: "not a name of the inventory", Have: strictyaml.Quote(s),
			Want: fmt.Sprintf("1 to %d characters on one line", maxInventoryName)})
	}
	return ok
}

// checkCustomize refuses addresses that are not one for each node.
func (d *decoder) checkCustomize(l *Lab) {
	c := l.VSphere.Customize
	if c == nil {
		return
	}
	const path = "vsphere.customize.address"
	switch {
	case len(c.Address) > 1 && len(c.Address) != len(l.Nodes):
		d.Fail(d.Keys[path], Error{Key: path, What: "not one address for each node",
			Have: strconv.Itoa(len(c.Address)), Want: strconv.Itoa(len(l.Nodes))})
	case len(c.Address) == 1 && !c.Address[0].Contains(c.AddressOf(len(l.Nodes)-1).Addr()):
		d.Fail(d.Keys["vsphere"], Error{Key: path, What: "subnet is too small",
			Have: c.Address[0].String(), Want: fmt.Sprintf("%d addresses", len(l.Nodes))})
	}
}

// checkVSphere refuses a lab whose driver lacks what it needs, and keys that nothing would read.
func (d *decoder) checkVSphere(l *Lab) {
	switch {
	case l.Driver == DriverVSphere && l.VSphere == nil:
		d.Fail(d.Values["driver"], Error{Key: "driver", What: "vsphere without what it needs", Have: "no key vsphere",
			Fix: "add vsphere: {host: NAME, template: NAME}"})
	case l.Driver != DriverVSphere && l.VSphere != nil:
		d.Fail(d.Keys["vsphere"], Error{Key: "vsphere", What: "not read", Have: "driver: " + string(l.Driver),
			Fix: "write driver: vsphere"})
	}
	if l.VSphere == nil {
		return
	}
	d.checkCustomize(l)
	d.checkSwitches(l)
	for _, n := range l.Nodes {
		if n.VFs > 0 && l.VSphere.PortGroup == "" {
			d.Fail(d.Keys["vsphere"], Error{Key: "vsphere.port_group", What: "missing key",
				Have: "vfs in node " + n.Name, Fix: "name the port group of the virtual functions"})
			return
		}
	}
}
