package hostview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// Kinds of cards, which are also classes of the style sheet.
const (
	cardGPU    = "gpu"
	cardNIC    = "nic"
	cardDisk   = "disk"
	cardScreen = "screen"
	cardOther  = "other"
)

// cards returns the functions worth drawing. Virtual functions are counted on the card of their physical function.
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
		// A disk's card says more, and shows the findings too.
		case len(disks[d.Address]) > 0 || d.Class != nil && storageAlone(*d.Class):
			out[d.Address] = placedCard{v.diskCard(d, disks[d.Address]), nil}
		case d.Class != nil && d.Class.Base() == topology.ClassAccelerator || v.wrong(d) && !v.gpuPart(d):
			out[d.Address] = placedCard{v.otherCard(d), nil}
		}
	}
	return out
}

func (v *view) isVF(d *topology.PCIDevice) bool { return d.PF != nil && v.tree.Device(*d.PF) != nil }

func (v *view) gpuPart(d *topology.PCIDevice) bool {
	return slices.ContainsFunc(v.Host.GPUs, func(g topology.GPU) bool {
		return g.Address != nil && slices.Contains(g.Functions, d.Address)
	})
}

func (v *view) wrong(d *topology.PCIDevice) bool {
	return slices.ContainsFunc(v.findings[d.Address.String()], func(f finding.Finding) bool {
		return f.Severity != finding.Info
	})
}

// storageAlone is true for NVMe, RAID and SAS without known disks, but not for the SATA controllers in every chipset.
func storageAlone(class topology.ID24) bool {
	// PCI base class and subclass of SCSI, RAID, SAS and non-volatile memory.
	return slices.Contains([]uint16{0x0100, 0x0104, 0x0107, 0x0108}, class.Sub())
}

// newCard takes further names of the device in findings as about.
func (v *view) newCard(id, kind, name, at string, about []string, lines ...string) card {
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" })
	title := strings.TrimSpace(name + " " + at)
	if name == at {
		title = name
	}
	c := card{ID: id, Kind: kind, Title: title, Lines: lines, Full: strings.Join(append([]string{title}, lines...),
		"\n"), Marks: v.marks(append(about, id)...), Name: name, At: at}
	if v.Placement != nil {
		c.Owners = v.Placement.Devices[id]
	}
	return c
}

func (v *view) addressOrName(a *topology.PCIAddr, name string) string {
	if a == nil {
		return name
	}
	return v.shortAddr(*a)
}

// gpuCard takes nil as d if the PCI tree is unknown. A finding may name any function of the GPU, such as audio.
func (v *view) gpuCard(g *topology.GPU, d *topology.PCIDevice) card {
	at := v.addressOrName(g.Address, g.Name)
	model, driver := modelText(g.Model, d), driverText(g.Driver, d)
	if g.Kind == topology.GPUDisplay {
		return v.newCard(g.ID(), cardScreen, "Screen", at, nil, joined(" · ", model, driver))
	}
	memory, bar, links := optionalSize(g.MemoryBytes), "", ""
	if g.BAR1Bytes != nil {
		bar = "BAR " + words.Size(*g.BAR1Bytes)
	}
	if g.NVLinks != nil {
		links = counted(*g.NVLinks, "NVLink")
	}
	if links != "" && v.isAMD(g) {
		links = fmt.Sprintf("XGMI x%d", *g.NVLinks)
	}
	group, parts := "", ""
	if d != nil && d.IOMMUGroup != nil {
		group = "group " + strconv.Itoa(*d.IOMMUGroup)
	}
	if len(g.Functions) > 1 {
		parts = "+ " + words.Count(len(g.Functions)-1, "function")
	}
	// NVLinks matter more than the size of a BAR.
	if links != "" {
		parts, bar = joined(" · ", parts, bar), ""
	}
	about := []string{g.Name}
	about = append(about, lists.Map(g.Functions, topology.PCIAddr.String)...)
	return v.newCard(g.ID(), cardGPU, v.names[g.ID()], at, about, joined("", model),
		joined(" · ", memory, links, bar), joined(" · ", driver, group, parts))
}

// nicCard shows a default route first and in bold: giving this NIC to a VM would cut off the host.
func (v *view) nicCard(n *topology.NIC, d *topology.PCIDevice) card {
	name := cmp.Or(v.names[n.ID()], "VF")
	mtu, vfs, route := "", "", ""
	if text := nicMTU(n); text != unknown {
		mtu = "MTU " + text
	}
	if text := v.vfText(n, d); text != none {
		vfs = text + " VFs"
	}
	routed := slices.ContainsFunc(v.Host.Routes, func(r topology.Route) bool { return slices.Contains(r.PCI, n.ID()) })
	if routed {
		route = "default route"
	}
	own := joined(" · ", strings.Join(n.Netdevs, ","), strings.Join(n.RDMA, ","))
	c := v.newCard(n.ID(), cardNIC, name, v.addressOrName(n.Address, n.Name),
		slices.Concat([]string{n.Name}, n.Netdevs, n.RDMA), route, own,
		joined(" · ", nicSpeed(n), mtu), joined(" · ", foreign(n.Driver), vfs, modelText(n.Model, d)))
	c.Own = own
	if routed {
		c.Strong = 1
	}
	return c
}

// foreign returns a driver that reserves the device for a VM or user space, or "".
func foreign(driver string) string {
	if slices.Contains([]string{"vfio-pci", "pci-stub", "uio_pci_generic", "igb_uio"}, driver) {
		return driver
	}
	return ""
}

// diskCard shows mount points in bold, because the host may need them.
func (v *view) diskCard(d *topology.PCIDevice, disks []*topology.Disk) card {
	at, id := v.shortAddr(d.Address), d.Address.String()
	model := modelText(d.DeviceName, d)
	if len(disks) == 0 {
		return v.newCard(id, cardDisk, "Storage", at, nil, joined(" · ", model, foreign(d.Driver)))
	}
	var names, mounts []string
	var size uint64
	known := true
	for _, k := range disks {
		names, mounts = append(names, k.Name), append(mounts, k.Mounts...)
		if k.SizeBytes != nil {
			size += *k.SizeBytes
		} else {
			known = false
		}
		// pci.ids only knows the controller.
		model = cmp.Or(k.Model, model)
	}
	// Without every size, the sum would be wrong.
	total := ""
	if known {
		total = words.Size(size)
	}
	c := v.newCard(id, cardDisk, some(names, 2), at, names, prefixed("holds ", some(mounts, 4)),
		joined(" · ", total, strings.TrimPrefix(model, "NVMe SSD Controller ")))
	if len(mounts) > 0 {
		c.Strong = 1
	}
	return c
}

func (v *view) otherCard(d *topology.PCIDevice) card {
	name := d.ClassName
	if name == "" && d.Class != nil {
		name = "class " + d.Class.String()
	}
	return v.newCard(d.Address.String(), cardOther, "", v.shortAddr(d.Address), nil, modelText(d.DeviceName, d),
		joined(" · ", name, driverText(d.Driver, d)))
}
