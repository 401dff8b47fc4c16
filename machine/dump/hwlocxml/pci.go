package hwlocxml

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// A slot is a position in the tree of devices.
type slot struct {
	near *element // nearest ancestor with CPUs
	locality

	root     string            // "pci0000:40", or "" without a host bridge
	parent   *topology.PCIAddr // nil on a root bus
	known    bool              // domain, first and last are known
	domain   uint32
	first    uint8 // right below the bridge
	last     uint8
	function *topology.PCIAddr // nearest, of the object or above
	nameless string            // of a function without an address, to join its devices
}

type locality struct {
	cpus *topology.CPUSet
	node *int // nil for several nodes
}

func (p *parser) readDevices() {
	d := &devices{parser: p, addresses: map[topology.PCIAddr]int{}, nics: map[string]*topology.NIC{},
		gpus: map[string]*gpu{}}
	d.walk(p.machine, slot{})
	d.finish()
}

func (d *devices) walk(e *element, at slot) {
	switch kind := kindOf(e); kind {
	case "Bridge", "PCIDev", "OSDev":
		at.locality = d.localityOf(at.near)
		switch kind {
		case "Bridge":
			at = d.bridge(e, at)
		case "PCIDev":
			if _, ok := e.Lookup(unplaced); ok {
				at.function, at.nameless = nil, fmt.Sprint("line ", e.Line)
			} else {
				at.function, _ = d.function(e, at)
			}
		case "OSDev":
			d.osDevice(e, at)
		}
		if len(d.h.PCI) > maxPCI {
			d.fail(e, "more than %d PCI functions", maxPCI)
			return
		}
	default:
		if _, ok := e.Lookup("cpuset"); ok {
			at = slot{near: e}
		}
	}
	for k := range e.All("object") {
		d.walk(k, at)
	}
}

// localityOf returns the locality of devices below an object with CPUs: hwloc puts them below the object that has their
// local_cpus, or below the machine. The node is nil if the CPUs belong to several nodes, or to nodes not all described.
//
// On a machine with one node the result is empty, because versions 1 and 2 put devices below different objects;
// Host.Complete sets the node.
func (d *devices) localityOf(near *element) (l locality) {
	if near == nil || near == d.machine || len(d.h.NUMANodes) == 1 {
		return l
	}
	if near == d.lastNear {
		return d.lastLocality
	}
	cpus := d.cpus(near)
	if nodes, _ := d.set(near, "complete_nodeset", topology.CPUSet{}); !cpus.IsEmpty() && !nodes.Overlaps(d.hidden) {
		l.cpus = &cpus
		for i := range d.h.NUMANodes {
			n := &d.h.NUMANodes[i]
			if !n.CPUs.Overlaps(cpus) {
				continue
			}
			if l.node != nil {
				l.node = nil
				break
			}
			l.node = &n.ID
		}
	}
	d.lastNear, d.lastLocality = near, l
	return l
}

// bridge returns the slot below a bridge. Types are "0-1", which hwloc synthesizes for each root bus, and "1-1" from
// PCI to PCI, which are also functions.
func (d *devices) bridge(e *element, at slot) slot {
	domain, first, last, ok := d.buses(e)
	if _, isFunction := e.Lookup("pci_busid"); !isFunction {
		at.parent, at.function = nil, nil
		at.known = ok
		if ok {
			at.root = fmt.Sprintf("pci%04x:%02x", domain, first)
			at.domain, at.first, at.last = domain, first, last
		}
		return at
	}
	address, f := d.function(e, at)
	at.function = address
	if f == nil {
		at.parent, at.known = nil, false
		return at
	}
	if ok {
		f.Bridge = &topology.Bridge{Secondary: first, Subordinate: last}
	}
	at.parent, at.known = address, ok
	at.domain, at.first, at.last = domain, first, last
	if f.Root != "" {
		at.root = f.Root
	}
	return at
}

// buses parses bridge_pci, "0000:[02-03]": the domain, and the first and last bus below the bridge.
func (d *devices) buses(e *element) (domain uint32, first, last uint8, ok bool) {
	text, has := e.Lookup("bridge_pci")
	if !has {
		return 0, 0, 0, false
	}
	domainText, rest, a := strings.Cut(text, ":[")
	firstText, lastText, b := strings.Cut(strings.TrimSuffix(rest, "]"), "-")
	v, err1 := strconv.ParseUint(domainText, 16, 32)
	f, err2 := strconv.ParseUint(firstText, 16, 8)
	l, err3 := strconv.ParseUint(lastText, 16, 8)
	if !a || !b || err1 != nil || err2 != nil || err3 != nil || l < f {
		d.unread(e, "bridge_pci %q is not domain:[first bus-last bus] in hexadecimal", where.Clip(text))
		return 0, 0, 0, false
	}
	return uint32(v), uint8(f), uint8(l), true
}

// function returns no address if that cannot be parsed, and no function for a duplicate.
func (d *devices) function(e *element, at slot) (*topology.PCIAddr, *topology.PCIDevice) {
	text := e.Attr("pci_busid")
	address, err := topology.ParsePCIAddr(text)
	if err != nil {
		d.unread(e, "%v", err)
		return nil, nil
	}
	if line, ok := d.addresses[address]; ok {
		d.unread(e, "second function at %s; the first is at line %d", address, line)
		return &address, nil
	}
	d.addresses[address] = e.Line
	f := topology.PCIDevice{Address: address, Slot: infoOf(e, "PCISlot"), VendorName: infoOf(e, "PCIVendor"),
		DeviceName: infoOf(e, "PCIDevice")}
	if f.DeviceName == "" && f.VendorName == "" {
		f.DeviceName = e.Attr("name")
	}
	switch within := at.known && at.domain == address.Domain; {
	case within && address.Bus == at.first:
		f.Parent, f.Root = at.parent, at.root
	case within && address.Bus > at.first && address.Bus <= at.last:
		f.Root, f.ParentUnknown = at.root, true // bridges were filtered out
	default:
		f.ParentUnknown = true
	}
	if at.node != nil {
		f.NUMANode, f.NUMASource = new(*at.node), "local_cpulist"
	}
	f.LocalCPUs = at.cpus
	d.types(e, &f)
	f.Link, f.LinkGBps = d.linkOf(e)
	d.h.PCI = append(d.h.PCI, f)
	return &address, &d.h.PCI[len(d.h.PCI)-1]
}

// types parses pci_type: "0302 [10de:1eb8] [10de:12a2] a1 00" is class, device, subsystem, revision, and since version
// 3 the programming interface, else 0. A subsystem of 0 means none.
func (d *devices) types(e *element, f *topology.PCIDevice) {
	text, ok := e.Lookup("pci_type")
	if !ok { // lstopo's text has a part of it
		if class, err := topology.ParseID24(e.Attr("class")); err == nil {
			f.Class = &class
		}
		if vendor, device, ok := pair("[" + e.Attr("ids") + "]"); ok {
			f.Vendor, f.Device = &vendor, &device
		}
		return
	}
	fields := strings.Fields(text)
	if len(fields) < 4 {
		d.unread(e, "pci_type %q has %d fields; at least 4 are wanted", where.Clip(text), len(fields))
		return
	}
	class, err := topology.ParseID24(fields[0])
	vendor, device, okIDs := pair(fields[1])
	subVendor, subDevice, okSub := pair(fields[2])
	revision, errRev := strconv.ParseUint(fields[3], 16, 8)
	if err != nil || !okIDs || !okSub || errRev != nil || len(fields[0]) != 4 {
		d.unread(e, "pci_type %q is not class [vendor:device] [vendor:device] revision in hexadecimal",
			where.Clip(text))
		return
	}
	if len(fields) > 4 {
		if v, err := strconv.ParseUint(fields[4], 16, 8); err == nil {
			class |= topology.ID24(v)
		}
	}
	f.Class, f.Vendor, f.Device = &class, &vendor, &device
	if subVendor != 0 {
		f.SubsystemVendor, f.SubsystemDevice = &subVendor, &subDevice
	}
	f.Revision = new(topology.ID8(revision))
}

// pair parses "[10de:1eb8]".
func pair(s string) (a, b topology.ID16, ok bool) {
	inner, okEnd := strings.CutSuffix(s, "]")
	inner, okBegin := strings.CutPrefix(inner, "[")
	first, second, okMid := strings.Cut(inner, ":")
	a, err1 := topology.ParseID16(first)
	b, err2 := topology.ParseID16(second)
	return a, b, okEnd && okBegin && okMid && err1 == nil && err2 == nil
}

// linkOf returns a function's link if pci_link_speed is unambiguous, else only the rate.
//
// The number is the rate of all lanes (1 to 16) after line coding, in 10^9 bytes per second: 7.876923 is 8 GT/s on 8
// lanes, 16 GT/s on 4, and 32 on 2. 0, or a rate above that of any link, means unknown. For a function that NVML knows,
// hwloc (2.x and before) has the maximum of the GPU, computed as if 8 GT/s were the highest rate, so it is ignored.
func (d *devices) linkOf(e *element) (*topology.Link, *float64) {
	text, ok := e.Lookup("pci_link_speed")
	if !ok {
		return nil, nil
	}
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil {
		d.unread(e, "pci_link_speed %q is not a number", where.Clip(text))
		return nil, nil
	}
	if !(rate > 0 && rate < 256) {
		return nil, nil
	}
	for _, k := range e.Kids {
		if kindOf(k) == "OSDev" && (subtypeOf(k) == "NVML" || strings.HasPrefix(k.Attr("name"), "nvml")) {
			return nil, nil
		}
	}
	var found *topology.Link
	for _, speed := range []float64{2.5, 5, 8, 16, 32, 64} {
		for width := 1; width <= 16; width *= 2 {
			if math.Abs(topology.LinkGBps(speed, width)-rate) > 1e-6 {
				continue
			}
			if found != nil {
				return nil, &rate
			}
			found = &topology.Link{SpeedGTs: &speed, Width: &width}
		}
	}
	if found == nil {
		return nil, &rate
	}
	return found, nil
}
