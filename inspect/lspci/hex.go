package lspci

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

// hex keeps a line of a dump (-x): "10: 08 00 70 fd 08 00 80 fd ...". Extended configuration space,
// behind the first 256 bytes, is not read: what the model has of it is in the text of -vv, and a
// dump of it alone is rare.
func (p *parser) hex(offset, digits string) {
	if p.current == nil {
		return
	}
	at, err := strconv.ParseUint(offset, 16, 16)
	if err != nil || int(at) != len(p.current.config) || at >= 256 {
		return // a gap, or a second dump of the same function
	}
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err == nil {
		p.current.config = append(p.current.config, b...)
	}
}

// Offsets into configuration space.
//
// Source: PCI Local Bus Specification 3.0, 6.1; PCI-to-PCI Bridge Architecture Specification 1.2,
// 3.2; PCI Express Base Specification, 7.5.
const (
	configVendor    = 0x00
	configDevice    = 0x02
	configStatus    = 0x06
	configRevision  = 0x08
	configClass     = 0x09
	configType      = 0x0e
	configSecondary = 0x19
	configLast      = 0x1a
	configSubVendor = 0x2c
	configSubDevice = 0x2e
	configPointer   = 0x34
	configHeader    = 0x40

	statusHasCapabilities = 1 << 4

	capabilityExpress = 0x10
	expressFlags      = 0x02
	expressLinkCap    = 0x0c
	expressLinkStatus = 0x12
	expressSize       = 0x14
)

// readConfig takes from the dump what the text does not say: numbers, above all, which a list has only with -n.
func (d *device) readConfig() {
	c := d.config
	if len(c) < configHeader {
		return
	}
	le16 := func(at int) uint16 { return binary.LittleEndian.Uint16(c[at:]) }
	if vendor := le16(configVendor); vendor == 0xffff || vendor == 0 {
		d.Dead = d.Dead || vendor == 0xffff
		return
	}
	id := func(v uint16) *topology.ID16 { return new(topology.ID16(v)) }
	if d.Vendor == nil || d.Device == nil {
		d.Vendor, d.Device = id(le16(configVendor)), id(le16(configDevice))
	}
	d.Class = new(topology.ID24(c[configClass]) | topology.ID24(c[configClass+1])<<8 | topology.ID24(c[configClass+
		2])<<16)
	if d.Revision == nil {
		d.Revision = new(topology.ID8(c[configRevision]))
	}
	switch c[configType] & 0x7f {
	case 0:
		d.setSubsystem(id(le16(configSubVendor)), id(le16(configSubDevice)))
	case 1:
		d.tellsBuses = true
		if b := d.bridge(); b.Secondary == 0 && c[configSecondary] > 0 && c[configLast] >= c[configSecondary] {
			b.Secondary, b.Subordinate = c[configSecondary], c[configLast]
		}
	}
	if len(c) < 256 || le16(configStatus)&statusHasCapabilities == 0 {
		return
	}
	d.listsCapabilities = true
	// The list may have a loop: there is room for 48 capabilities of the smallest size.
	at := int(c[configPointer]) &^ 3
	for range 48 {
		if at < configHeader {
			return
		}
		if c[at] == capabilityExpress && at+expressSize <= len(c) {
			d.readExpress(c[at:])
		}
		at = int(c[at+1]) &^ 3
	}
}

// readExpress reads the PCI Express capability.
func (d *device) readExpress(c []byte) {
	if d.Bridge != nil && d.Bridge.Port == "" {
		switch c[expressFlags] >> 4 {
		case 4:
			d.Bridge.Port = portRoot
		case 5:
			d.Bridge.Port = portUpstream
		case 6:
			d.Bridge.Port = portDownstream
		case 7, 8:
			d.Bridge.Port = portBridge
		}
	}
	if d.Link != nil {
		return
	}
	capable, status := binary.LittleEndian.Uint32(c[expressLinkCap:]), binary.LittleEndian.Uint16(c[expressLinkStatus:])
	l := topology.Link{}
	l.MaxSpeedGTs, l.MaxWidth = linkField(capable)
	l.SpeedGTs, l.Width = linkField(uint32(status))
	if l != (topology.Link{}) {
		d.Link = &l
	}
}

// linkField reads speed and width, which have the same place in the capability and in the status.
func linkField(v uint32) (*float64, *int) {
	speeds := [...]float64{1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}
	width := int(v >> 4 & 0x3f)
	if width == 0 || width > 32 {
		return nil, nil
	}
	if s := v & 0xf; s > 0 && int(s) < len(speeds) {
		return &speeds[s], &width
	}
	return nil, &width
}
