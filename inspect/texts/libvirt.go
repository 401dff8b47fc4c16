package texts

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/xmltree"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// xmlLimits bound the work for a file from outside. In capabilities, each CPU and each pair of NUMA nodes is an
// element: 1 << 18 has room for both.
var xmlLimits = xmltree.Limits{Bytes: maxText, Elements: 1 << 18, Depth: 64}

// xml reads the text as XML, and notes what is wrong with it.
func (r *reader) xml() *xmltree.Element {
	b := []byte(r.Text.Text)
	root, err := xmltree.Read(b, xmlLimits)
	if whole, cut := xmltree.Closed(b); err != nil && cut {
		r.note(0, "the text is cut off: what would follow is not known")
		root, err = xmltree.Read(whole, xmlLimits)
	}
	if err != nil {
		r.note(0, "%v", err)
		return &xmltree.Element{}
	}
	return root
}

// at returns the first element on a path of names; an empty one where there is none. Lookups in an empty element find
// nothing again, so callers ask for any path without a check.
func at(e *xmltree.Element, path ...string) *xmltree.Element {
	for _, name := range path {
		next := &xmltree.Element{}
		for k := range e.All(name) {
			next = k
			break
		}
		e = next
	}
	return e
}

func text(e *xmltree.Element) string { return strings.TrimSpace(string(e.Text)) }

// capabilities reads the host of virsh capabilities: nodes, CPUs and caches.
//
// Source: https://libvirt.org/formatcaps.html.
func (r *reader) capabilities() {
	host := at(r.xml(), "host")
	r.h.System.Arch = text(at(host, "cpu", "arch"))
	switch at(host, "iommu").Attr("support") {
	case "yes":
		r.h.IOMMU.Enabled = new(true)
	case "no":
		r.h.IOMMU.Enabled = new(false)
	}
	table := newCPUTable()
	for cell := range at(host, "topology", "cells").All("cell") {
		id := count(cell.Attr("id"))
		if id == nil {
			continue
		}
		node := r.node(*id)
		memory := at(cell, "memory")
		node.MemoryBytes = size(text(memory) + " " + memory.Attr("unit"))
		for pages := range cell.All("pages") {
			bytes, total := size(pages.Attr("size")+" "+pages.Attr("unit")), count(text(pages))
			if bytes != nil && pages.Attr("unit") == "" {
				*bytes <<= 10 // KiB by default
			}
			// libvirt lists the base pages too. They are ordinary memory and not a pool.
			if bytes != nil && total != nil && *bytes > 4096 {
				node.Hugepages = append(node.Hugepages, topology.HugepagePool{SizeBytes: *bytes, Total: uint64(*total)})
			}
		}
		for sibling := range at(cell, "distances").All("sibling") {
			if d := count(sibling.Attr("value")); d != nil {
				node.Distances = append(node.Distances, *d)
			}
		}
		for cpu := range at(cell, "cpus").All("cpu") {
			n := count(cpu.Attr("id"))
			if n == nil || *n >= topology.MaxCPUs {
				r.note(cpu.Line-1, "%q is not the number of a CPU", cpu.Attr("id"))
				continue
			}
			value := map[string]string{"NODE": cell.Attr("id"), "SOCKET": cpu.Attr("socket_id")}
			table.add(*n, value)
			// All threads of a core state the same list, so the list is the key of the core. core_id is not: it counts
			// within a socket.
			if siblings := cpu.Attr("siblings"); siblings != "" {
				table.cores[siblings] = append(table.cores[siblings], *n)
			}
		}
	}
	// Distances are read by position. A row with a gap would tell them of the wrong nodes.
	for i := range r.h.NUMANodes {
		if n := &r.h.NUMANodes[i]; len(n.Distances) != len(r.h.NUMANodes) {
			n.Distances = nil
		}
	}
	table.fill(r)
	for bank := range at(host, "cache").All("bank") {
		if bank.Attr("level") != "3" {
			continue
		}
		if set := r.cpus(bank.Line-1, bank.Attr("cpus")); set != nil {
			r.h.L3 = append(r.h.L3, topology.L3{CPUs: *set,
				SizeBytes: size(bank.Attr("size") + " " + bank.Attr("unit"))})
		}
	}
}

// nodedev reads a device of virsh nodedev-dumpxml: a PCI function, or a network device on one.
//
// Source: https://libvirt.org/formatnode.html.
func (r *reader) nodedev() {
	device := r.xml()
	for capability := range device.All("capability") {
		switch capability.Attr("type") {
		case "pci":
			r.nodedevPCI(device, capability)
		case "net":
			r.nodedevNet(device, capability)
		}
	}
}

// nodedevPCI reads a PCI function with its place, its link and its virtual functions.
func (r *reader) nodedevPCI(device, c *xmltree.Element) {
	// The parts are decimal, or hexadecimal with 0x. They have 32, 8, 5 and 3 bits: VMD numbers its domains from
	// 0x10000.
	var parts [4]uint64
	for i, name := range []string{"domain", "bus", "slot", "function"} {
		v, err := strconv.ParseUint(text(at(c, name)), 0, []int{32, 8, 5, 3}[i])
		if err != nil {
			r.note(c.Line-1, "<%s>: %q is not a part of a PCI address", name, text(at(c, name)))
			return
		}
		parts[i] = v
	}
	d := topology.PCIDevice{Address: topology.PCIAddr{Domain: uint32(parts[0]), Bus: uint8(parts[1]),
		Device: uint8(parts[2]), Function: uint8(parts[3])}}
	d.Class = words.Known(topology.ParseID24(text(at(c, "class"))))
	for _, f := range []struct {
		element string
		id      **topology.ID16
		name    *string
	}{{"vendor", &d.Vendor, &d.VendorName}, {"product", &d.Device, &d.DeviceName}} {
		e := at(c, f.element)
		if id, err := topology.ParseID16(e.Attr("id")); err == nil {
			*f.id, *f.name = &id, text(e)
		}
	}
	d.Driver = text(at(device, "driver", "name"))
	d.DriverKnown = d.Driver != ""
	d.NUMANode = count(at(c, "numa").Attr("node"))
	d.IOMMUGroup = count(at(c, "iommuGroup").Attr("number"))
	// "computer" is libvirt's name for the machine itself: above such a function there is only a root bus.
	if parent := nodedevAddress(text(at(device, "parent"))); parent != nil {
		d.Parent = parent
	} else {
		d.ParentUnknown = text(at(device, "parent")) != "computer"
	}
	for link := range at(c, "pci-express").All("link") {
		d.Link = cmp.Or(d.Link, &topology.Link{})
		// There are two of these: validity="cap" has what the device can do, and "sta" what was negotiated. A speed or
		// width of 0 tells nothing.
		speed, err := strconv.ParseFloat(link.Attr("speed"), 64)
		gts, width := &speed, count(link.Attr("width"))
		if err != nil || speed <= 0 {
			gts = nil
		}
		if width != nil && *width == 0 {
			width = nil
		}
		if link.Attr("validity") == "sta" {
			d.Link.SpeedGTs, d.Link.Width = gts, width
		} else {
			d.Link.MaxSpeedGTs, d.Link.MaxWidth = gts, width
		}
	}
	for sub := range c.All("capability") {
		switch sub.Attr("type") {
		case "phys_function":
			d.PF = xmlAddress(at(sub, "address"))
		case "virt_functions":
			d.SRIOV = &topology.SRIOV{Total: count(sub.Attr("maxCount")), VFs: []topology.VF{}}
			// libvirt lists the functions in the order of virtfn0, virtfn1, ... of sysfs: the position is the index.
			for a := range sub.All("address") {
				d.SRIOV.VFs = append(d.SRIOV.VFs, topology.VF{Index: len(d.SRIOV.VFs), Address: xmlAddress(a)})
			}
			d.SRIOV.Enabled = new(len(d.SRIOV.VFs))
		}
	}
	r.h.PCI = append(r.h.PCI, d)
}

// xmlAddress returns the address that an element's attributes make up.
func xmlAddress(e *xmltree.Element) *topology.PCIAddr {
	trim := func(name string) string { return strings.TrimPrefix(e.Attr(name), "0x") }
	return address(trim("domain") + ":" + trim("bus") + ":" + trim("slot") + "." + trim("function"))
}

// nodedevAddress returns the address in the name of a node device: "pci_0000_02_10_7".
func nodedevAddress(name string) *topology.PCIAddr {
	p := strings.Split(name, "_")
	if len(p) != 5 || p[0] != "pci" {
		return nil
	}
	return address(p[1] + ":" + p[2] + ":" + p[3] + "." + p[4])
}

func (r *reader) nodedevNet(device, c *xmltree.Element) {
	name := text(at(c, "interface"))
	if name == "" {
		return
	}
	nic := r.nic(name)
	nic.Address = cmp.Or(nodedevAddress(text(at(device, "parent"))), nic.Address)
	d := netdev(nic, name)
	d.MAC = text(at(c, "address"))
	link := at(c, "link")
	d.State = link.Attr("state")
	if v, err := strconv.ParseInt(link.Attr("speed"), 10, 64); err == nil && v > 0 && d.State == "up" {
		d.SpeedMbps = &v
	}
}
