package lspci

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/topology"
)

// record reads a line of a record for programs (-vmm): a key, a colon and a value.
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
		return nil // of a record that is not read
	}
	octet := func() (uint64, error) {
		v, err := strconv.ParseUint(value, 16, 8)
		if err != nil {
			return 0, where.At(n, "%s: %q is not a number of two hexadecimal digits", key, where.Clip(value))
		}
		return v, nil
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
	// The number of a device means nothing without that of its vendor, which comes first.
	case "SDevice":
		d.SubsystemDevice, _ = numbered(value)
		if d.SubsystemVendor == nil {
			d.SubsystemDevice = nil
		}
	case "Rev":
		v, err := octet()
		if err != nil {
			return err
		}
		id.Revision = new(topology.ID8(v))
	case "ProgIf":
		v, err := octet()
		if err != nil {
			return err
		}
		if d.Class != nil {
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

// addCandidates adds modules: "nouveau, nvidia_drm, nvidia".
func (d *device) addCandidates(list string) {
	for m := range strings.SplitSeq(list, ",") {
		if m = strings.TrimSpace(m); m != "" && len(d.Candidates) < 32 && !slices.Contains(d.Candidates, m) {
			d.Candidates = append(d.Candidates, m)
		}
	}
}
