package hostview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/topology"
)

// Kinds of cards: classes of the style sheet.
const (
	cardGPU    = "gpu"
	cardNIC    = "nic"
	cardDisk   = "disk"
	cardScreen = "screen"
	cardOther  = "other"
)

// cards are the functions that are worth drawing: GPUs, NICs, disks, accelerators, and whatever
// something is wrong with. Virtual functions are counted on the card of their physical function.
func (v *view) cards(disks map[topology.PCIAddr][]*topology.Disk) map[topology.PCIAddr]placedCard {
	out := map[topology.PCIAddr]placedCard{}
	for i := range v.Host.GPUs {
		g := &v.Host.GPUs[i]
		if d := v.device(g.Address); d != nil && !v.isVF(d) {
			out[d.Address] = placedCard{v.gpuCard(g, d), g.NUMANode}
		}
	}
	for i := range v.Host.NICs {
		n := &v.Host.NICs[i]
		if d := v.device(n.Address); d != nil && !v.isVF(d) {
			out[d.Address] = placedCard{v.nicCard(n, d), n.NUMANode}
		}
	}
	for i := range v.Host.PCI {
		d := &v.Host.PCI[i]
		if _, ok := out[d.Address]; ok || d.IsBridge() || v.isVF(d) {
			continue
		}
		switch {
		case len(disks[d.Address]) > 0 || d.Class != nil && storageAlone(*d.Class):
			out[d.Address] = placedCard{v.diskCard(d, disks[d.Address]), nil}
		case d.Class != nil && d.Class.Base() == topology.ClassAccelerator || v.wrong(d) && !v.gpuPart(d):
			out[d.Address] = placedCard{v.otherCard(d), nil}
		}
	}
	return out
}

// isVF reports whether d is a virtual function whose physical function is in the tree too.
func (v *view) isVF(d *topology.PCIDevice) bool { return d.PF != nil && v.tree.Device(*d.PF) != nil }

// gpuPart reports whether d is a function of a device that is a GPU.
func (v *view) gpuPart(d *topology.PCIDevice) bool {
	return slices.ContainsFunc(v.Host.GPUs, func(g topology.GPU) bool {
		return g.Address != nil && slices.Contains(g.Functions, d.Address)
	})
}

// wrong reports whether a finding that is more than a note is about d.
func (v *view) wrong(d *topology.PCIDevice) bool {
	return slices.ContainsFunc(v.findings[d.Address.String()], func(f finding.Finding) bool {
		return f.Severity != finding.Info
	})
}

// storageAlone reports whether a storage controller is worth drawing when no disk of it is known:
// NVMe, RAID and SAS are, the SATA controller of every chipset is not.
func storageAlone(class topology.ID24) bool {
	switch class.Sub() {
	case 0x0100, 0x0104, 0x0107, 0x0108:
		return true
	}
	return false
}

// joined puts the parts that are known on one line.
func joined(parts ...string) string {
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" || s == unknown || s == none })
	return strings.Join(parts, " · ")
}

// newCard makes a card; lines that would be empty are left out.
func newCard(id, kind, title string, lines ...string) card {
	c := card{ID: id, Kind: kind, Title: drawable(title)}
	for _, l := range lines {
		if l != "" {
			c.Lines = append(c.Lines, drawable(l))
		}
	}
	c.Full = strings.Join(append([]string{c.Title}, c.Lines...), "\n")
	return c
}

// addressOrName is the short address, or what the source calls the device.
func (v *view) addressOrName(a *topology.PCIAddr, name string) string {
	if a == nil {
		return name
	}
	return v.shortAddr(*a)
}

func (v *view) gpuCard(g *topology.GPU, d *topology.PCIDevice) card {
	at := v.addressOrName(g.Address, g.Name)
	name := v.names[g.ID()]
	title := strings.TrimSpace(name + " " + at)
	if name == at {
		title = name
	}
	model := modelText(g.Model, d)
	if model == unknown {
		model = ""
	}
	if g.Kind == topology.GPUDisplay {
		c := newCard(g.ID(), cardScreen, "Screen "+at, joined(model, driverText(g.Driver, d)))
		c.Marks = v.marks(g.ID())
		return c
	}
	var memory, bar, links, group, parts string
	if g.MemoryBytes != nil {
		memory = words.Size(*g.MemoryBytes)
	}
	if g.BAR1Bytes != nil {
		bar = "BAR " + words.Size(*g.BAR1Bytes)
	}
	if g.NVLinks != nil && *g.NVLinks > 0 {
		links = countText(*g.NVLinks, "NVLink", "NVLinks")
		if v.isAMD(g) {
			links = fmt.Sprintf("XGMI x%d", *g.NVLinks)
		}
	}
	if d != nil && d.IOMMUGroup != nil {
		group = "group " + intText(d.IOMMUGroup)
	}
	if len(g.Functions) > 1 {
		parts = "+ " + countText(len(g.Functions)-1, "function", "functions")
	}
	if links != "" {
		parts, bar = joined(parts, bar), "" // one line has no room for all
	}
	c := newCard(g.ID(), cardGPU, title, model, joined(memory, links, bar), joined(driverText(g.Driver, d), group,
		parts))
	about := []string{g.ID()}
	for _, f := range g.Functions {
		about = append(about, f.String())
	}
	c.Marks = v.marks(append(about, g.Name)...)
	return c
}

func (v *view) nicCard(n *topology.NIC, d *topology.PCIDevice) card {
	at := v.addressOrName(n.Address, n.Name)
	name := v.names[n.ID()]
	if name == "" {
		name = "VF" // one whose physical function is elsewhere
	}
	title := name + " " + at
	if name == at {
		title = name
	}
	mtu := ""
	if m := nicMTU(n); m != unknown {
		mtu = "MTU " + m
	}
	sriov := n.SRIOV
	if sriov == nil && d != nil {
		sriov = d.SRIOV
	}
	vfs := ""
	if t := v.vfText(n.Address, sriov); t != none {
		vfs = t + " VFs"
	}
	model := modelText(n.Model, d)
	if model == unknown {
		model = ""
	}
	var lines []string
	route := ""
	for _, r := range v.Host.Routes {
		if slices.Contains(r.PCI, n.ID()) {
			route = "default route"
		}
	}
	if route != "" {
		lines = append(lines, route)
	}
	lines = append(lines, joined(strings.Join(n.Netdevs, ","), strings.Join(n.RDMA, ",")), joined(nicSpeed(n), mtu),
		joined(foreign(n.Driver), vfs, model))
	c := newCard(n.ID(), cardNIC, title, lines...)
	if route != "" {
		c.Strong = 1
	}
	c.Marks = v.marks(slices.Concat([]string{n.ID(), n.Name}, n.Netdevs, n.RDMA)...)
	return c
}

// foreign is a driver that says something about who holds the device.
func foreign(driver string) string {
	switch driver {
	case "vfio-pci", "pci-stub", "uio_pci_generic", "igb_uio":
		return driver
	}
	return ""
}

func (v *view) diskCard(d *topology.PCIDevice, disks []*topology.Disk) card {
	at := v.shortAddr(d.Address)
	model := modelText(d.DeviceName, d)
	if len(disks) == 0 {
		c := newCard(d.Address.String(), cardDisk, "Storage "+at, joined(model, foreign(d.Driver)))
		c.Marks = v.marks(d.Address.String())
		return c
	}
	var names, mounts []string
	var size uint64
	known := true
	for _, k := range disks {
		names = append(names, k.Name)
		mounts = append(mounts, k.Mounts...)
		if k.SizeBytes == nil {
			known = false
		} else {
			size += *k.SizeBytes
		}
		if k.Model != "" {
			model = k.Model
		}
	}
	model = strings.TrimPrefix(model, "NVMe SSD Controller ")
	total := ""
	if known {
		total = words.Size(size)
	}
	var lines []string
	if len(mounts) > 0 {
		lines = append(lines, "holds "+some(mounts, 4))
	}
	c := newCard(d.Address.String(), cardDisk, some(names, 2)+" "+at, append(lines, joined(total, model))...)
	if len(mounts) > 0 {
		c.Strong = 1
	}
	c.Marks = v.marks(append(names, d.Address.String())...)
	return c
}

func (v *view) otherCard(d *topology.PCIDevice) card {
	name := d.ClassName
	if name == "" && d.Class != nil {
		name = "class " + d.Class.String()
	}
	c := newCard(d.Address.String(), cardOther, v.shortAddr(d.Address), modelText(d.DeviceName, d),
		joined(name, driverText(d.Driver, d)))
	c.Marks = v.marks(d.Address.String())
	return c
}
