package lspci

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/topology"
)

var (
	revision = lazyregexp.New(` ?\(rev ([0-9a-f]{2})\)`)
	progIf   = lazyregexp.New(` ?\(prog-if ([0-9a-f]{2})(?: \[[^\]]*\])?\)`)

	// A class: "Host bridge [0600]", "0600", "Class 0600", "Class [0600]", "Host bridge".
	classNumber = lazyregexp.New(`^(?:(.*?) ?\[([0-9a-f]{4})\]|(?:Class )?([0-9a-f]{4}))$`)

	// A name: "8086:1237", "Device 8086:1237", "Intel Corporation Device [8086:0d57]".
	nameNumbers = lazyregexp.New(`^(?:(.*?) ?\[([0-9a-f]{4}):([0-9a-f]{4})\]|(?:Device )?([0-9a-f]{4}):([0-9a-f]{4}))$`)

	// The end of a name that pci.ids does not have.
	unknownDevice = lazyregexp.New(`^(.*?):? ?(?:Unknown d|D)evice ([0-9a-f]{4})$`)

	// spaced matches a class and a name with no colon between them, as tools that list IOMMU groups print them: behind
	// the class its number or a wide gap.
	spaced = lazyregexp.New(`^(\S.*?\[[0-9a-f]{4}\]) +(\S.*)$|^(\S.*?) {2,}(\S.*)$`)
	// Fields of a record on one line (-mm): "Host bridge" "Intel Corporation" "440FX" -r02 -p00 "" "".
	field = lazyregexp.New(`"(?:[^"\\]|\\.)*"|-[rp][0-9a-f]{2}|\S+`)
)

// header reads the line that starts a function in a list.
func (p *parser) header(address, rest string, n int) error {
	d, err := p.at(address, n)
	if err != nil {
		return err
	}
	p.inRecord = false
	var id topology.PCIDevice
	if strings.HasPrefix(rest, `"`) {
		id, err = p.oneLine(rest, n)
	} else {
		id, err = p.listed(rest, n)
	}
	if err != nil {
		return err
	}
	p.identify(d, &id, n)
	if p.group != nil {
		d.IOMMUGroup = p.group
	}
	return nil
}

// listed parses "Host bridge [0600]: Intel Corporation Device [8086:0d57] (rev 01) (prog-if 00 [Normal decode])".
func (p *parser) listed(rest string, n int) (id topology.PCIDevice, err error) {
	var iface uint8
	if m := progIf.FindStringSubmatch(rest); m != nil {
		iface = hex8(m[1])
		rest = progIf.ReplaceAllString(rest, "")
	}
	if m := revision.FindStringSubmatch(rest); m != nil {
		id.Revision = new(topology.ID8(hex8(m[1])))
		rest = revision.ReplaceAllString(rest, "")
	}
	if iface == 0xff && id.Revision != nil && *id.Revision == 0xff {
		iface = 0 // the function answers every read with ones: this is none of it
	}
	class, name, ok := strings.Cut(rest, ": ")
	if m := spaced.FindStringSubmatch(rest); !ok && m != nil && p.group != nil {
		class, name, ok = m[1]+m[3], m[2]+m[4], true
	}
	if !ok {
		return id, where.At(n, "%q: want a class, a colon and a name behind the address", where.Clip(rest))
	}
	p.class(&id, class, iface)
	id.Vendor, id.Device, id.VendorName, id.DeviceName = parseName(name)
	return id, nil
}

// class reads a class by number or name.
func (p *parser) class(id *topology.PCIDevice, s string, iface uint8) {
	if m := classNumber.FindStringSubmatch(s); m != nil {
		v, _ := strconv.ParseUint(m[2]+m[3], 16, 16)
		id.Class, id.ClassName = new(topology.ID24(v)<<8|topology.ID24(iface)), m[1]
		return
	}
	id.ClassName = s
	if c, ok := classByName(s); ok {
		id.Class = new(c | topology.ID24(iface))
	}
}

// parseName parses the vendor and device of a function or subsystem.
func parseName(s string) (vendor, device *topology.ID16, vendorName, deviceName string) {
	id := func(s string) *topology.ID16 {
		v, err := topology.ParseID16(s)
		if err != nil {
			return nil
		}
		return &v
	}
	s = strings.TrimSpace(s)
	if m := nameNumbers.FindStringSubmatch(s); m != nil {
		vendor, device, s = id(m[2]+m[4]), id(m[3]+m[5]), m[1]
	} else if m := unknownDevice.FindStringSubmatch(s); m != nil {
		device, s = id(m[2]), m[1]
	}
	v, vendorName, deviceName := splitName(s)
	vendor = cmp.Or(vendor, v)
	return vendor, device, vendorName, deviceName
}

// oneLine parses `"Host bridge" "Intel Corporation" "440FX" -r02 "Red Hat, Inc." "Qemu virtual machine"` of -mm.
func (p *parser) oneLine(rest string, n int) (id topology.PCIDevice, err error) {
	var values []string
	var iface uint8
	for _, f := range field.FindAllString(rest, -1) {
		switch {
		case strings.HasPrefix(f, "-r"):
			id.Revision = new(topology.ID8(hex8(f[2:])))
		case strings.HasPrefix(f, "-p"):
			iface = hex8(f[2:])
		case len(f) >= 2 && f[0] == '"' && f[len(f)-1] == '"':
			values = append(values, f[1:len(f)-1])
		default:
			return id, where.At(n, "%q is not a quoted field of lspci -mm", where.Clip(f))
		}
	}
	if len(values) < 3 || len(values) > 5 {
		return id, where.At(n, "%d quoted fields; want class, vendor and device, and those of "+
			"the subsystem", len(values))
	}
	p.class(&id, values[0], iface)
	id.Vendor, id.VendorName = numberedVendor(values[1])
	id.Device, id.DeviceName = numbered(values[2])
	if len(values) == 5 {
		id.SubsystemVendor, _ = numbered(values[3])
		id.SubsystemDevice, _ = numbered(values[4])
	}
	return id, nil
}

// numberOf matches a name with its number, or a number alone.
var numberOf = lazyregexp.New(`^(?:(.*?) ?\[([0-9a-f]{4})\]|(?:Device )?([0-9a-f]{4}))$`)

// numbered parses "Intel Corporation [8086]", "8086" or "Intel Corporation".
func numbered(s string) (*topology.ID16, string) {
	m := numberOf.FindStringSubmatch(s)
	if m == nil {
		return nil, s
	}
	v, err := topology.ParseID16(m[2] + m[3])
	if err != nil {
		return nil, s
	}
	return &v, m[1]
}

// numberedVendor is numbered for vendors, which have a number by their names too.
func numberedVendor(s string) (*topology.ID16, string) {
	v, name := numbered(s)
	if v == nil {
		v, _, _ = splitName(s)
	}
	return v, name
}

// identify adds to a function what a line says of it, and makes it the current one.
func (p *parser) identify(d *device, id *topology.PCIDevice, n int) {
	p.current = d
	if differ(d.Vendor, id.Vendor) || differ(d.Device, id.Device) {
		p.notes.Note(n, "%s is another device here than in line %d: the text holds two machines, "+
			"and the first one is read", d.Address, d.line)
		p.current = nil
		return
	}
	// A class with its programming interface replaces one without. Other facts are kept as they were first
	// stated: a later part of a text is often shorter, and has nothing to add.
	if id.Class != nil && (d.Class == nil || *d.Class&0xff == 0 && d.Class.Sub() == id.Class.Sub()) {
		d.Class = id.Class
	}
	d.Vendor, d.Device = cmp.Or(d.Vendor, id.Vendor), cmp.Or(d.Device, id.Device)
	d.setSubsystem(id.SubsystemVendor, id.SubsystemDevice)
	if id.Revision != nil {
		// A function that answers every read with ones has a revision of ff, whatever it is.
		if *id.Revision == 0xff {
			d.Dead = true
		} else {
			d.Revision = id.Revision
		}
	}
	d.ClassName = cmp.Or(d.ClassName, id.ClassName)
	d.VendorName = cmp.Or(d.VendorName, id.VendorName)
	d.DeviceName = cmp.Or(d.DeviceName, id.DeviceName)
}

func differ(a, b *topology.ID16) bool { return a != nil && b != nil && *a != *b }

// setSubsystem sets the subsystem, unless it is set or the numbers say that there is none.
func (d *device) setSubsystem(vendor, device *topology.ID16) {
	if d.SubsystemVendor != nil || vendor == nil || device == nil || *vendor == 0 || *vendor == 0xffff {
		return
	}
	d.SubsystemVendor, d.SubsystemDevice = vendor, device
}
