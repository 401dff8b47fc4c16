package texts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
)

const pciAddress = `[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`

var (
	// groupPath matches a group's directory, or its name from tree.
	groupPath = lazyregexp.New(`(?:^|[\s./])(?:iommu_groups/)?(\d+)/devices(?:[/:]|$)|` +
		`^[│├└─|` + "`" + `\\+\s-]+(\d+)$`)
	// groupListing matches lines that only a listing has: a member by its path, ls's heading, and tree's first line.
	groupListing = lazyregexp.New(`(?:^|[\s./])(?:iommu_groups/)?\d+/devices(?:/` + pciAddress + `\b|/?:$)|` +
		`^(?:/sys/kernel/)?iommu_groups/?$|^│.*│ *iommugroup *│`)
	member     = lazyregexp.New(`\b` + pciAddress + `\b`)
	groupAdded = lazyregexp.New(groupAddedForm)
)

// groupAddedForm matches Linux 5.3 and later, or earlier versions.
const groupAddedForm = `\b(?:(` + pciAddress + `): Adding to iommu group (\d+)|` +
	`iommu: Adding device (` + pciAddress + `) to group (\d+))\b`

// iommuGroups reads a listing by find, ls or tree, or pvesh's table.
func (r *reader) iommuGroups() {
	if strings.HasPrefix(strings.TrimSpace(r.Text.Text), "[") {
		var list []map[string]any
		r.json(&list)
		for _, d := range list {
			r.groupRow(func(column string) string { return fmt.Sprint(d[column]) })
		}
		return
	}
	var group *int
	var columns []string
	for _, line := range r.lines() {
		if cells := strings.Split(line, "│"); len(cells) > 3 {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			if slices.Contains(cells, "iommugroup") {
				columns = cells
			}
			r.groupRow(func(column string) string {
				if i := slices.Index(columns, column); i >= 0 && i < len(cells) {
					return cells[i]
				}
				return ""
			})
			continue
		}
		line, target, _ := strings.Cut(line, " -> ")
		if m := groupPath().FindStringSubmatch(line); m != nil {
			group = count(cmp.Or(m[1], m[2]))
		}
		members := member().FindAllString(line, -1)
		for _, m := range members {
			r.inGroup(m, group)
		}
		// A link's path includes the bridges above.
		if path := member().FindAllString(target, -1); len(members) == 1 && len(path) > 1 {
			r.below(members[0], path[len(path)-2])
		}
	}
	for _, d := range r.h.PCI {
		if d.Parent == nil {
			continue
		}
		if i, ok := r.functions[*d.Parent]; ok && r.h.PCI[i].Bridge == nil {
			r.h.PCI[i].Bridge = &topology.Bridge{}
		}
	}
}

func (r *reader) groupRow(column func(string) string) {
	of, group := address(column("id")), count(column("iommugroup"))
	if of == nil || group == nil {
		return
	}
	r.inGroup(column("id"), group)
	d := r.function(*of)
	d.Class = nil
	if class, err := topology.ParseID24(column("class")); err == nil {
		d.Class = &class
	}
	if vendor, err := topology.ParseID16(column("vendor")); err == nil {
		d.Vendor, d.Device = &vendor, nil
		if device, err := topology.ParseID16(column("device")); err == nil {
			d.Device = &device
		}
	}
}

func (r *reader) inGroup(of string, group *int) {
	if a := address(of); a != nil && group != nil {
		r.function(*a).IOMMUGroup = group
	}
}

func (r *reader) below(of, bridge string) {
	if a, above := address(of), address(bridge); a != nil && above != nil && a.Compare(*above) != 0 {
		d := r.function(*a)
		d.Parent, d.ParentUnknown = above, false
	}
}

// function adds a function if necessary. The pointer is valid until the next call.
func (r *reader) function(a topology.PCIAddr) *topology.PCIDevice {
	i, ok := r.functions[a]
	if !ok {
		i = len(r.h.PCI)
		if r.functions == nil {
			r.functions = map[topology.PCIAddr]int{}
		}
		r.functions[a] = i
		r.h.PCI = append(r.h.PCI, topology.PCIDevice{Address: a, ParentUnknown: true})
	}
	return &r.h.PCI[i]
}
