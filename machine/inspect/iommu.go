package inspect

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// Sources: Documentation/ABI/testing/sysfs-class-iommu and sysfs-kernel-iommu_groups.
const (
	iommuClass  = "sys/class/iommu"
	iommuGroups = "sys/kernel/iommu_groups"
)

// readIOMMU runs after readPCI. It reports that there is no IOMMU only if the kernel's list exists and is empty,
// because dumps of other tools omit it.
func (r *reader) readIOMMU() {
	units := r.dir(iommuClass) // not nil if listed
	if len(units) > 0 {
		r.h.IOMMU.Units = units
	} else if units != nil {
		r.dropNoIOMMU()
	}
	byAddr := make(map[topology.PCIAddr]*topology.PCIDevice, len(r.h.PCI))
	members := map[int][]topology.PCIAddr{}
	for i := range r.h.PCI {
		d := &r.h.PCI[i]
		byAddr[d.Address] = d
		if d.IOMMUGroup != nil {
			members[*d.IOMMUGroup] = append(members[*d.IOMMUGroup], d.Address)
		}
	}
	for _, name := range r.dir(iommuGroups) {
		id, err := strconv.Atoi(name)
		if err != nil || id < 0 {
			r.unread(iommuGroups+"/"+name, fmt.Sprintf("%q is not the number of a group", where.Clip(name)))
			continue
		}
		g, ok := r.iommuGroup(id, members[id])
		if !ok {
			continue
		}
		for _, a := range g.Devices {
			if d := byAddr[a]; d != nil && d.IOMMUGroup == nil {
				d.IOMMUGroup = new(g.ID)
			}
		}
		r.h.IOMMU.Groups = append(r.h.IOMMU.Groups, g)
	}
	grouped := len(members) > 0 || len(r.h.IOMMU.Groups) > 0
	switch {
	case len(units) > 0 || grouped:
		r.h.IOMMU.Enabled = new(true)
	case units != nil:
		r.h.IOMMU.Enabled = new(false)
	}
}

// iommuGroup reads a group's members: the functions that link to it, or else that it links to. ok is false for groups
// of VFIO's no-IOMMU mode, which isolate nothing.
func (r *reader) iommuGroup(id int, members []topology.PCIAddr) (g topology.IOMMUGroup, ok bool) {
	dir := iommuGroups + "/" + strconv.Itoa(id)
	if len(r.h.IOMMU.Units) == 0 && r.word(dir+"/name") == noIOMMU {
		return g, false
	}
	g = topology.IOMMUGroup{ID: id, Type: r.word(dir + "/type"), Devices: members}
	if len(members) == 0 {
		g.Devices = []topology.PCIAddr{}
		for _, device := range r.dir(dir + "/devices") {
			// Other devices need not be on PCI.
			if a, err := topology.ParsePCIAddr(device); err == nil {
				g.Devices = append(g.Devices, a)
			}
		}
	}
	// A line is a first address, a last one and a type. "direct" regions must stay mapped 1:1 for the firmware, which
	// prevents assigning the device; "direct-relaxable" ones may be unmapped.
	for line := range strings.Lines(r.word(dir + "/reserved_regions")) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "direct" {
			g.Reserved = append(g.Reserved, strings.Join(fields, " "))
		}
	}
	return g, true
}

// noIOMMU is from drivers/vfio/group.c.
const noIOMMU = "vfio-noiommu"

func (r *reader) dropNoIOMMU() {
	fake := map[int]bool{}
	for i := range r.h.PCI {
		d := &r.h.PCI[i]
		if d.IOMMUGroup == nil {
			continue
		}
		id := *d.IOMMUGroup
		if _, seen := fake[id]; !seen {
			fake[id] = r.word(fmt.Sprintf("%s/%d/name", iommuGroups, id)) == noIOMMU
		}
		if fake[id] {
			d.IOMMUGroup = nil
		}
	}
}
