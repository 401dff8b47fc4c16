package lspci

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/pci"
)

// hex keeps a line of a dump (-x): "10: 08 00 70 fd 08 00 80 fd ...". Extended configuration space,
// behind the first 256 bytes, is not read: what the model has of it is in the text of -vv, and a
// dump of it alone is rare.
func (p *parser) hex(offset, digits string) {
	if p.current == nil {
		return
	}
	at, err := strconv.ParseUint(offset, 16, 16)
	if err != nil || int(at) != len(p.current.config) || at >= pci.StandardSize {
		return // a gap, or a second dump of the same function
	}
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err == nil {
		p.current.config = append(p.current.config, b...)
	}
}

// readConfig takes from the dump what the text does not say: numbers, above all, which a list has only with -n.
func (d *device) readConfig() {
	if len(d.config) < pci.HeaderSize {
		return
	}
	// What is in memory can be read to its end.
	c, _ := pci.Parse(bytes.NewReader(d.config), pci.Identity|pci.Subsystem|pci.Buses|pci.LinkState|pci.Capabilities)
	d.Dead = d.Dead || c.Dead
	if c.Vendor == nil || *c.Vendor == 0 {
		return
	}
	if d.Vendor == nil || d.Device == nil {
		d.Vendor, d.Device = c.Vendor, c.Device
	}
	d.Class, d.Revision = c.Class, cmp.Or(d.Revision, c.Revision)
	d.setSubsystem(c.SubsystemVendor, c.SubsystemDevice)
	d.Link = cmp.Or(d.Link, c.Link)
	if c.Bridge == nil {
		return
	}
	d.tellsBuses = true
	b := d.bridge()
	b.Port = cmp.Or(b.Port, c.Bridge.Port)
	if b.Secondary == 0 && c.Bridge.Secondary > 0 && c.Bridge.Subordinate >= c.Bridge.Secondary {
		b.Secondary, b.Subordinate = c.Bridge.Secondary, c.Bridge.Subordinate
	}
}
