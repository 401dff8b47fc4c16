package texts

import (
	"strconv"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/topology"
)

// limitHint is in every line in which the kernel says that a function has less bandwidth than it
// could (pcie_print_link_status, drivers/pci/pci.c).
const limitHint = "available PCIe bandwidth, limited by"

// limitLine matches such a line, with whatever log or driver stands before the address. Kernels
// before 5.7 do not say "PCIe" behind the speed.
var limitLine = lazyregexp.New(`(?:^|[\s(])((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): [\d.]+ Gb/s ` +
	limitHint +
	` ([\d.]+) GT/s(?: PCIe)? x(\d+) link at ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ` +
	`\(capable of [\d.]+ Gb/s with ([\d.]+) GT/s(?: PCIe)? x(\d+) link\)`)

// dmesgLimits reads which link limits which function, and what the function itself could do.
func (r *reader) dmesgLimits() {
	seen := map[topology.PCIAddr]int{}
	for n, line := range r.lines() {
		m := limitLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		of, port := address(m[1]), address(m[4])
		limit, limitOK := linkRate(m[2], m[3])
		best, bestOK := linkRate(m[5], m[6])
		if of == nil || port == nil || !limitOK || !bestOK {
			r.note(n, "a link that is none: %q", line)
			continue
		}
		d := topology.PCIDevice{Address: *of, ParentUnknown: true,
			Link:      &topology.Link{MaxSpeedGTs: &best.GTs, MaxWidth: &best.Lanes},
			PathLimit: &topology.PathLimit{At: *port, SpeedGTs: limit.GTs, Width: limit.Lanes}}
		// The last line counts: a driver that is loaded again says it again.
		if i, again := seen[*of]; again {
			r.h.PCI[i] = d
			continue
		}
		seen[*of] = len(r.h.PCI)
		r.h.PCI = append(r.h.PCI, d)
	}
}

// linkRate parses the speed in GT/s and the lanes of a link.
func linkRate(speed, lanes string) (topology.Rate, bool) {
	gts, err := strconv.ParseFloat(speed, 64)
	width := count(lanes)
	if err != nil || gts <= 0 || gts > 128 || width == nil || *width < 1 || *width > 32 {
		return topology.Rate{}, false
	}
	return topology.Rate{GTs: gts, Lanes: *width}, true
}

// groupLink matches a link of a function in its IOMMU group, as find and ls show it.
var groupLink = lazyregexp.New(`(?:^|\s)/sys/kernel/iommu_groups/(\d+)/devices/` +
	`([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b`)

// iommuGroups reads which functions are in one IOMMU group. What they are, lspci tells.
func (r *reader) iommuGroups() {
	seen := map[topology.PCIAddr]bool{}
	for _, line := range r.lines() {
		m := groupLink.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if of, group := address(m[2]), count(m[1]); of != nil && group != nil && !seen[*of] {
			seen[*of] = true
			r.h.PCI = append(r.h.PCI, topology.PCIDevice{Address: *of, ParentUnknown: true, IOMMUGroup: group})
		}
	}
}
