package lab

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
)

// A Clone is a way to copy a template.
type Clone string

// The ways to clone.
const (
	CloneFull   Clone = "full"   // with disks of its own
	CloneLinked Clone = "linked" // shares the disks of the snapshot
)

func clones() []Clone { return []Clone{CloneFull, CloneLinked} }

// A Passthrough says whether the plan or ESXi chooses devices.
type Passthrough string

// The ways to pass devices through.
const (
	PassthroughStatic  Passthrough = "static"  // chosen by the plan
	PassthroughDynamic Passthrough = "dynamic" // by ESXi among devices of the same kind
)

func passthroughs() []Passthrough { return []Passthrough{PassthroughStatic, PassthroughDynamic} }

// A PowerPolicy is of an ESXi host.
type PowerPolicy string

// Names in the API.
const (
	PowerStatic  PowerPolicy = "static"  // "High performance"
	PowerDynamic PowerPolicy = "dynamic" // "Balanced"
	PowerLow     PowerPolicy = "low"     // "Low power"
)

func powerPolicies() []PowerPolicy { return []PowerPolicy{PowerStatic, PowerDynamic, PowerLow} }

// maxInventoryName is vCenter's limit.
const maxInventoryName = 80

func (v *VSphere) anywhere() *VSphere {
	if v == nil {
		return nil
	}
	other := *v
	other.Host = ""
	return &other
}

// AddressOf counts nodes from 0. It returns the zero Prefix if the node uses DHCP.
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

// maxServers is the number of name servers that a resolver uses.
const (
	domainPattern = `^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`
	maxServers    = 3
)

func (d *decoder) customize(path string, n ast.Node) *Customize {
	c := &Customize{}
	before := len(d.Errs)
	d.Fields(path, n, c)
	if c.Domain == "" && len(d.Errs) == before {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: strictyaml.Join(path, "domain"), What: "missing key",
			Fix: "name the domain of the nodes, such as hpc.example.org"})
	}
	return c
}

func (d *decoder) domain(path string, n ast.Node) *string {
	const want = "a domain, such as hpc.example.org"
	s, ok := d.Text(path, n, want)
	if ok && !d.matches(domainPattern, s) {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "bad domain", Have: strictyaml.Quote(s), Want: want})
	}
	return &s
}

func (d *decoder) ip(path string, n ast.Node) *netip.Addr {
	const want = "an IPv4 address, such as 192.0.2.1"
	s, ok := d.Text(path, n, want)
	a, err := netip.ParseAddr(s)
	if ok && (err != nil || !a.Is4()) {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "bad address", Have: strictyaml.Quote(s), Want: want})
	}
	return &a
}

func (d *decoder) addresses(path string, n ast.Node) *[]netip.Prefix {
	const want = "an IPv4 address with the length of its subnet, such as 192.0.2.11/24"
	items := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		items = list.Values
	}
	var all []netip.Prefix
	for _, item := range items {
		s, ok := d.Text(path, item, want)
		p, err := netip.ParsePrefix(s)
		if ok && (err != nil || !p.Addr().Is4() || p.Bits() < MinPrefix || p.Bits() > MaxPrefix) {
			d.Fail(strictyaml.PlaceOf(item), Error{Key: path, What: "bad address", Have: strictyaml.Quote(s),
				Want: want})
		}
		all = append(all, p)
	}
	return &all
}

func (d *decoder) nameServers(path string, n ast.Node) *[]netip.Addr {
	want := fmt.Sprintf("a list of at most %d addresses", maxServers)
	items := d.list(path, n, want)
	if len(items) > maxServers {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "too many name servers", Have: strconv.Itoa(len(items)),
			Want: want})
	}
	all := lists.Map(items, func(item ast.Node) netip.Addr { return *d.ip(path, item) })
	return &all
}

const (
	settingPattern = `^[A-Za-z][A-Za-z0-9_.]*$`
	maxSettings    = 64
	// maxModuleOptions is more than all options of nmlx5_core.
	maxModuleOptions = 512
)

// settings may have values that look like numbers or booleans.
func (d *decoder) settings(path string, n ast.Node, long int) *map[string]string {
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
	return &all
}

func (d *decoder) vsphere(path string, n ast.Node) *VSphere {
	v := &VSphere{Clone: CloneFull, Passthrough: PassthroughStatic}
	before := len(d.Errs)
	d.Fields(path, n, v)
	for _, key := range []string{"host", "template"} {
		if !d.Has(strictyaml.Join(path, key)) && len(d.Errs) == before {
			d.Fail(strictyaml.PlaceOf(n), Error{Key: strictyaml.Join(path, key), What: "missing key",
				Fix: "name the " + key + " as the inventory of vSphere does"})
		}
	}
	return v
}

func (d *decoder) inventoryText(path string, n ast.Node) *string {
	s, ok := d.Text(path, n, "a name of the inventory")
	if !ok || !d.inventoryName(path, s, strictyaml.PlaceOf(n)) {
		return nil
	}
	return &s
}

func (d *decoder) inventoryName(path, s string, at place) bool {
	ok := d.matches(matchPattern, s) && len(s) <= maxInventoryName
	if !ok {
		d.Fail(at, Error{Key: path, What: "not a name of the inventory", Have: strictyaml.Quote(s),
			Want: fmt.Sprintf("1 to %d characters on one line", maxInventoryName)})
	}
	return ok
}

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

// checkVSphere also rejects keys that the driver would ignore.
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
	if n, ok := lists.Lookup(l.Nodes, func(n Node) bool { return n.VFs > 0 }); ok && l.VSphere.PortGroup == "" {
		d.Fail(d.Keys["vsphere"], Error{Key: "vsphere.port_group", What: "missing key",
			Have: "vfs in node " + n.Name, Fix: "name the port group of the virtual functions"})
	}
}
