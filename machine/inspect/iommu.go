package inspect

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// Where the kernel shows IOMMUs and their groups. Sources:
// Documentation/ABI/testing/sysfs-class-iommu and sysfs-kernel-iommu_groups.
const (
	iommuClass  = "sys/class/iommu"
	iommuGroups = "sys/kernel/iommu_groups"
)

// readIOMMU reads the IOMMUs and the groups that they make of the functions. It comes after readPCI.
//
// "There is none" is said only where the kernel's list of IOMMUs is there and is empty: dumps of
// other tools leave these directories out.
func (r *reader) readIOMMU() {
	units := r.dir(iommuClass) // not nil where it could be listed
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

// iommuGroup reads one group. Its members are those functions that link to it, or, where none does,
// those that it links to. ok is false for the groups of VFIO's no-IOMMU mode, which nothing keeps
// apart.
func (r *reader) iommuGroup(id int, members []topology.PCIAddr) (g topology.IOMMUGroup, ok bool) {
	dir := iommuGroups + "/" + strconv.Itoa(id)
	if len(r.h.IOMMU.Units) == 0 && r.word(dir+"/name") == noIOMMU {
		return g, false
	}
	g = topology.IOMMUGroup{ID: id, Type: r.word(dir + "/type"), Devices: members}
	if len(members) == 0 {
		g.Devices = []topology.PCIAddr{}
		for _, device := range r.dir(dir + "/devices") {
			// On machines without ACPI there are devices in it that are not on PCI.
			if a, err := topology.ParsePCIAddr(device); err == nil {
				g.Devices = append(g.Devices, a)
			}
		}
	}
	// Lines are a first address, a last one and a type. "direct" is what the firmware wants mapped
	// 1:1 and that keeps a device from being given away; "direct-relaxable" may be given up, and
	// "msi" and "reserved" are in every group.
	for line := range strings.Lines(r.word(dir + "/reserved_regions")) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "direct" {
			g.Reserved = append(g.Reserved, strings.Join(fields, " "))
		}
	}
	return g, true
}

// noIOMMU is the name of groups that VFIO makes when it is told to do without an IOMMU. Source: drivers/vfio/group.c.
const noIOMMU = "vfio-noiommu"

// dropNoIOMMU forgets groups of VFIO's no-IOMMU mode.
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
