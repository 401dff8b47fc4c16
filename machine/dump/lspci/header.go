package lspci

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/pciids"
	"github.com/rackless/rackless/machine/topology"
)

var (
	revision = lazyregexp.New(` ?\(rev ([0-9a-f]{2})\)`)
	progIf   = lazyregexp.New(` ?\(prog-if ([0-9a-f]{2})(?: \[[^\]]*\])?\)`)

	// classNumber matches "Host bridge [0600]", "0600", "Class 0600", "Class [0600]".
	classNumber = lazyregexp.New(`^(?:(.*?) ?\[([0-9a-f]{4})\]|(?:Class )?([0-9a-f]{4}))$`)

	// nameNumbers matches "8086:1237", "Device 8086:1237", "Intel Corporation Device [8086:0d57]".
	nameNumbers = lazyregexp.New(`^(?:(.*?) ?\[([0-9a-f]{4}):([0-9a-f]{4})\]|(?:Device )?([0-9a-f]{4}):([0-9a-f]{4}))$`)

	// unknownDevice matches a name that ends with a device number.
	unknownDevice = lazyregexp.New(`^(.*?):? ?(?:Unknown d|D)evice ([0-9a-f]{4})$`)

	// spaced matches a class and a name without a colon, from tools that list IOMMU groups.
	spaced = lazyregexp.New(`^(\S.*?\[[0-9a-f]{4}\]) +(\S.*)$|^(\S.*?) {2,}(\S.*)$`)
	// field matches a field of `"Host bridge" "Intel Corporation" "440FX" -r02 -p00 "" ""` (-mm).
	field = lazyregexp.New(`"(?:[^"\\]|\\.)*"|-[rp][0-9a-f]{2}|\S+`)
)

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
	if m := progIf().FindStringSubmatch(rest); m != nil {
		iface = hex8(m[1])
		rest = progIf().ReplaceAllString(rest, "")
	}
	if m := revision().FindStringSubmatch(rest); m != nil {
		id.Revision = new(topology.ID8(hex8(m[1])))
		rest = revision().ReplaceAllString(rest, "")
	}
	if iface == 0xff && id.Revision != nil && *id.Revision == 0xff {
		iface = 0 // a dead function, so the interface is meaningless
	}
	class, name, ok := strings.Cut(rest, ": ")
	if m := spaced().FindStringSubmatch(rest); !ok && m != nil && p.group != nil {
		class, name, ok = m[1]+m[3], m[2]+m[4], true
	}
	if !ok {
		return id, where.At(n, "%q: want a class, a colon and a name behind the address", where.Clip(rest))
	}
	p.class(&id, class, iface)
	id.Vendor, id.Device, id.VendorName, id.DeviceName = parseName(name)
	return id, nil
}

func (p *parser) class(id *topology.PCIDevice, s string, iface uint8) {
	if m := classNumber().FindStringSubmatch(s); m != nil {
		v, _ := strconv.ParseUint(m[2]+m[3], 16, 16)
		id.Class, id.ClassName = new(topology.ID24(v)<<8|topology.ID24(iface)), m[1]
		return
	}
	id.ClassName = s
	if c, ok := classByName(s); ok {
		id.Class = new(c | topology.ID24(iface))
	}
}

func parseName(s string) (vendor, device *topology.ID16, vendorName, deviceName string) {
	id := func(s string) *topology.ID16 {
		n, err := topology.ParseID16(s)
		if err != nil {
			return nil
		}
		return &n
	}
	s = strings.TrimSpace(s)
	if m := nameNumbers().FindStringSubmatch(s); m != nil {
		vendor, device, s = id(m[2]+m[4]), id(m[3]+m[5]), m[1]
	} else if m := unknownDevice().FindStringSubmatch(s); m != nil {
		device, s = id(m[2]), m[1]
	}
	v, vendorName, deviceName := splitName(s)
	vendor = cmp.Or(vendor, v)
	return vendor, device, vendorName, deviceName
}

// oneLine parses a record of -mm.
func (p *parser) oneLine(rest string, n int) (id topology.PCIDevice, err error) {
	var values []string
	var iface uint8
	for _, f := range field().FindAllString(rest, -1) {
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

var numberOf = lazyregexp.New(`^(?:(.*?) ?\[([0-9a-f]{4})\]|(?:Device )?([0-9a-f]{4}))$`)

// numbered parses "Intel Corporation [8086]", "8086" or "Intel Corporation".
func numbered(s string) (*topology.ID16, string) {
	m := numberOf().FindStringSubmatch(s)
	if m == nil {
		return nil, s
	}
	v, err := topology.ParseID16(m[2] + m[3])
	if err != nil {
		return nil, s
	}
	return &v, m[1]
}

func numberedVendor(s string) (*topology.ID16, string) {
	v, name := numbered(s)
	if v == nil {
		v, _, _ = splitName(s)
	}
	return v, name
}

func (p *parser) identify(d *device, id *topology.PCIDevice, n int) {
	p.current = d
	if differ(d.Vendor, id.Vendor) || differ(d.Device, id.Device) {
		p.notes.Note(n, "%s is another device here than in line %d: the text holds two machines, "+
			"and the first one is read", d.Address, d.line)
		p.current = nil
		return
	}
	// A class with a programming interface replaces one without. Else the first value wins, because later parts of a
	// text are often shorter.
	if id.Class != nil && (d.Class == nil || *d.Class&0xff == 0 && d.Class.Sub() == id.Class.Sub()) {
		d.Class = id.Class
	}
	d.Vendor, d.Device = cmp.Or(d.Vendor, id.Vendor), cmp.Or(d.Device, id.Device)
	d.setSubsystem(id.SubsystemVendor, id.SubsystemDevice)
	if id.Revision != nil {
		// Revision ff means that the function reads as all ones.
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

func (d *device) setSubsystem(vendor, device *topology.ID16) {
	if d.SubsystemVendor != nil || vendor == nil || device == nil || *vendor == 0 || *vendor == 0xffff {
		return
	}
	d.SubsystemVendor, d.SubsystemDevice = vendor, device
}

// record reads "key: value" of -vmm.
func (p *parser) record(key, value string, n int) error {
	if key == "Slot" || key == "Device" && !p.inRecord {
		d, err := p.at(value, n)
		if err != nil {
			return err
		}
		p.current, p.inRecord = d, true
		return nil
	}
	d := p.current
	if d == nil {
		return nil // of a skipped record
	}
	var id topology.PCIDevice
	switch key {
	case "Class":
		p.class(&id, value, 0)
	case "Vendor":
		id.Vendor, id.VendorName = numberedVendor(value)
	case "Device":
		id.Device, id.DeviceName = numbered(value)
	case "SVendor":
		d.SubsystemVendor, _ = numberedVendor(value)
	// A device number is meaningless without the vendor, which comes first.
	case "SDevice":
		d.SubsystemDevice, _ = numbered(value)
		if d.SubsystemVendor == nil {
			d.SubsystemDevice = nil
		}
	case "Rev", "ProgIf":
		switch v, err := strconv.ParseUint(value, 16, 8); {
		case err != nil:
			return where.At(n, "%s: %q is not a number of two hexadecimal digits", key, where.Clip(value))
		case key == "Rev":
			id.Revision = new(topology.ID8(v))
		case d.Class != nil:
			id.Class = new(*d.Class&^0xff | topology.ID24(v))
		}
	case "PhySlot":
		d.Slot = value
	case "Driver":
		d.Driver, p.anyDriver = value, true
	case "Module":
		p.anyDriver = true
		d.addCandidates(value)
	case "NUMANode":
		d.NUMANode = p.number(key, value, n)
	case "IOMMUGroup":
		d.IOMMUGroup = p.number(key, value, n)
	}
	p.identify(d, &id, n)
	return nil
}

func (d *device) addCandidates(list string) {
	for m := range strings.SplitSeq(list, ",") {
		if m = strings.TrimSpace(m); m != "" && len(d.Candidates) < 32 && !slices.Contains(d.Candidates, m) {
			d.Candidates = append(d.Candidates, m)
		}
	}
}

// vendors lists vendors whose names have a single number in pci.ids. A vendor name comes before its own prefix, because
// the device's name follows directly.
var vendors = []struct {
	name string
	id   topology.ID16
}{
	{"Advanced Micro Devices, Inc. [AMD/ATI]", topology.VendorAMD},
	{"Advanced Micro Devices, Inc. [AMD]", 0x1022},
	{"Advanced Micro Devices [AMD] nee ATI", topology.VendorAMD},
	{"Advanced Micro Devices [AMD]", 0x1022},
	{"Amazon.com, Inc.", 0x1d0f},
	{"Amphenol, Inc.", 0x1fb0},
	{"Annapurna Labs Ltd.", 0x1c36},
	{"ASPEED Technology, Inc.", 0x1a03},
	{"ATI Technologies Inc", topology.VendorAMD},
	{"Broadcom / LSI", 0x1000},
	{"Broadcom Inc. and subsidiaries", topology.VendorBroadcom},
	{"Broadcom Limited", topology.VendorBroadcom},
	{"Broadcom Corporation", topology.VendorBroadcom},
	{"Chelsio Communications Inc", 0x1425},
	{"Cirrus Logic", 0x1013},
	{"Google, Inc.", 0x1ae0},
	{"Habana Labs Ltd.", 0x1da3},
	{"Huawei Technologies Co., Ltd.", 0x19e5},
	{"Hygon", 0x1d94},
	{"Intel Corporation", topology.VendorIntel},
	{"KIOXIA Corporation", 0x1e0f},
	{"LSI Logic / Symbios Logic", 0x1000},
	{"Marvell Technology Group Ltd.", 0x11ab},
	{"Matrox Electronics Systems Ltd.", 0x102b},
	{"Mellanox Technologies", topology.VendorMellanox},
	{"Micron Technology Inc", 0x1344},
	{"Microsoft Corporation", 0x1414},
	{"Microchip Technology", 0x1055},
	{"NVIDIA Corporation", topology.VendorNVIDIA},
	{"nVidia Corporation", topology.VendorNVIDIA},
	{"PLX Technology, Inc.", 0x10b5},
	{"Pensando Systems", 0x1dd8},
	{"PMC-Sierra Inc.", 0x11f8},
	{"QLogic Corp.", 0x1077},
	{"Realtek Semiconductor Co., Ltd.", 0x10ec},
	{"Red Hat, Inc.", topology.VendorRedHat},
	{"Samsung Electronics Co Ltd", 0x144d},
	{"Solarflare Communications", 0x1924},
	{"VMware", 0x15ad},
}

// redHatQEMU is the vendor number of QEMU's devices. Both of Red Hat's numbers have the same name.
const redHatQEMU topology.ID16 = 0x1b36

func splitName(s string) (vendor *topology.ID16, vendorName, deviceName string) {
	for _, v := range vendors {
		if rest, ok := strings.CutPrefix(s, v.name); ok && (rest == "" || rest[0] == ' ') {
			id := v.id
			rest = strings.TrimSpace(rest)
			if id == topology.VendorRedHat && (strings.HasPrefix(rest, "QEMU") || strings.Contains(rest, "QXL") ||
				strings.HasPrefix(rest, "Device ")) {
				id = redHatQEMU
			}
			return &id, v.name, strings.TrimPrefix(rest, ", ")
		}
	}
	return nil, "", s
}

var classNames = sync.OnceValue(func() map[string]topology.ID24 {
	names := map[string]topology.ID24{}
	for base := range 256 {
		// For an unknown subclass pciids returns the name of the base class, which belongs to subclass 80.
		whole := strings.ToLower(pciids.Class(uint32(base)<<16 | 0x7f00))
		for sub := range 256 {
			class := uint32(base)<<16 | uint32(sub)<<8
			n := strings.ToLower(pciids.Class(class))
			if n == "" {
				break
			}
			if _, taken := names[n]; !taken && (n != whole || sub == 0x80) {
				names[n] = topology.ID24(class)
			}
		}
	}
	return names
})

func classByName(name string) (topology.ID24, bool) {
	c, ok := classNames()[strings.ToLower(name)]
	return c, ok
}

var (
	// Names of NVIDIA's audio, USB and switch functions have more words than the chip and the card in brackets.
	nvidiaGPU = lazyregexp.New(`^(?:G[A-Z]?|AD|TU)[0-9]{2,3}[A-Z]{0,3}(?: \[[^\]]*\])?$`)
	otherGPU  = lazyregexp.New(
		`\[(?:AMD )?(?:Radeon|Instinct|FirePro)|\bGraphics\b|\bMI[0-9]{3}X?\b|Data Center GPU|` +
			`\bMatrox .*G200|Virtio GPU|Virtio 1\.0 GPU|GD 5446|\bSVGA\b`)
	anyNIC = lazyregexp.New(
		`Ethernet|ConnectX|Network (?:Connection|Adapter|device)|network (?:controller|device)|NetXtreme|` +
			`InfiniBand|Infiniband|Elastic (?:Fabric|Network) Adapter|Omni-Path|HFI`)
	notDevice = lazyregexp.New(`Audio|USB|UCSI|NVSwitch|Bridge|Switch|Port|DMA|Management|Secure|Crypto|SMBus|SoC`)
)

// guess recognizes GPUs and NICs of a drawing by name. The function's class stays unknown.
func (p *parser) guess(d *device) {
	switch name := d.DeviceName; {
	case d.IsBridge() || name == "" || notDevice().MatchString(name):
	case d.Vendor != nil && *d.Vendor == topology.VendorNVIDIA && nvidiaGPU().MatchString(name),
		otherGPU().MatchString(name):
		p.h.GPUs = append(p.h.GPUs, topology.GPU{Address: new(d.Address)})
	case anyNIC().MatchString(name):
		p.h.NICs = append(p.h.NICs, topology.NIC{Address: new(d.Address)})
	}
}
