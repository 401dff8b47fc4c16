package lab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
)

// A SwitchKind is of a virtual switch.
type SwitchKind string

// The kinds of virtual switches.
const (
	SwitchDistributed SwitchKind = "distributed" // on any hosts of a datacenter
	SwitchStandard    SwitchKind = "standard"    // part of one host
)

func switchKinds() []SwitchKind { return []SwitchKind{SwitchDistributed, SwitchStandard} }

// Limits of vSphere's switches, of names in a list, and of switches in a lab.
const (
	defaultSwitchMTU = 1500
	maxSwitchMTU     = 9000
	maxVLAN          = 4094
	maxSwitchNames   = 64
	maxSwitches      = 16
)

// SwitchOf returns the lab's switch that has a port group, or "" and nil.
func (v *VSphere) SwitchOf(portGroup string) (string, *Switch) {
	for name, s := range v.Switches {
		if slices.Contains(s.PortGroups, portGroup) {
			return name, s
		}
	}
	return "", nil
}

func (d *decoder) switches(path string, n ast.Node) *map[string]*Switch {
	all := map[string]*Switch{}
	d.Entries(path, n, func(name string, at place, n ast.Node) {
		path := strictyaml.Join(path, name)
		if d.inventoryName(path, name, at); len(all) == maxSwitches {
			d.Fail(at, Error{Key: path, What: "too many switches", Want: fmt.Sprintf("at most %d", maxSwitches)})
		}
		all[name] = &Switch{Kind: SwitchDistributed}
		d.Fields(path, n, all[name])
	})
	return &all
}

func (d *decoder) names(path string, n ast.Node) *[]string {
	var names []string
	want := fmt.Sprintf("a list of at most %d names", maxSwitchNames)
	for _, item := range d.list(path, n, want) {
		switch s := d.inventoryText(path, item); {
		case s == nil:
		case slices.Contains(names, *s):
			d.Fail(strictyaml.PlaceOf(item), Error{Key: path, What: "name is there twice", Have: strictyaml.Quote(*s)})
		default:
			names = append(names, *s)
		}
	}
	if len(names) > maxSwitchNames {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "too many names", Have: strconv.Itoa(len(names)),
			Want: want})
	}
	return &names
}

// checkSwitches also fills in defaults from the rest of the lab.
func (d *decoder) checkSwitches(l *Lab) {
	v := l.VSphere
	groups, uplinks := map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(v.Switches)) {
		s, path := v.Switches[name], strictyaml.Join("vsphere.switches", name)
		fail := func(key string, e Error) {
			e.Key = strictyaml.Join(path, key)
			at, ok := d.Keys[e.Key]
			if !ok {
				at = d.Keys[path]
			}
			d.Fail(at, e)
		}
		s.MTU = cmp.Or(s.MTU, min(max(l.Fabric.MTU, defaultSwitchMTU), maxSwitchMTU))
		switch {
		case len(s.Hosts) == 0:
			s.Hosts = []string{v.Host}
		case s.Kind == SwitchStandard && len(s.Hosts) > 1:
			fail("hosts", Error{What: "too many for a standard switch", Have: strconv.Itoa(len(s.Hosts)),
				Want: "the host of the lab, or kind: distributed"})
		case !slices.Contains(s.Hosts, v.Host):
			fail("hosts", Error{What: "host of the lab is missing", Fix: "add " + v.Host})
		}
		for _, group := range s.PortGroups {
			if group == v.PortGroup && s.MTU < l.Fabric.MTU {
				fail("mtu", Error{What: "smaller than that of the fabric", Have: strconv.Itoa(s.MTU),
					Want: fmt.Sprintf("%d at least, as fabric.mtu", l.Fabric.MTU)})
			}
			if other := groups[group]; other != "" {
				fail("port_groups", Error{What: "port group of another switch", Have: strictyaml.Quote(group),
					Fix: "write it in " + other + " only"})
			}
			groups[group] = name
		}
		for _, nic := range s.Uplinks {
			if other := uplinks[nic]; other != "" {
				fail("uplinks", Error{What: "uplink of another switch", Have: strictyaml.Quote(nic),
					Fix: "write it in " + other + " only"})
			}
			uplinks[nic] = name
		}
	}
}
