package render

import (
	"cmp"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// memoryBacking says which pages the guest is made of. passthrough is set where it has devices of the host.
//
// It never has <locked/>, nor a hard_limit with it. VFIO pins the whole guest by itself, and
// libvirt raises the limit of locked memory to the guest's size and 1 GiB for it. A hard_limit
// would also be the limit of QEMU's memory cgroup, and a guess too low kills the guest.
func memoryBacking(n *plan.Node, passthrough bool, why reasons) *libvirtxml.DomainMemoryBacking {
	b := &libvirtxml.DomainMemoryBacking{}
	var sizes []uint64
	cells := map[uint64]topology.CPUSet{} // by size of page: the guest's cells
	for _, c := range n.Cells {
		if size := pageBytes(n, &c); size > 0 {
			if !slices.Contains(sizes, size) {
				sizes = append(sizes, size)
			}
			cells[size] = cells[size].Union(topology.CPUs(c.Cell))
		}
	}
	slices.Sort(sizes)
	for _, size := range sizes {
		set := ""
		if n.GuestNUMA { // libvirt refuses a nodeset where the guest has no cells
			set = cells[size].String()
		}
		b.MemoryHugePages = cmp.Or(b.MemoryHugePages, &libvirtxml.DomainMemoryHugepages{})
		value, unit := scaled(size)
		b.MemoryHugePages.Hugepages = append(b.MemoryHugePages.Hugepages,
			libvirtxml.DomainMemoryHugepage{Size: value, Unit: unit, Nodeset: set})
	}
	if len(sizes) > 0 {
		why.add("memoryBacking/hugepages", "they have to be free on the host's NUMA nodes below before the guest "+
			"starts; a page of theirs saves the guest up to two steps of every address translation, and the IOMMU "+
			"as many")
		return b
	}
	b.MemoryNosharepages = &libvirtxml.DomainMemoryNosharepages{}
	why.add("memoryBacking/nosharepages", "the host must not merge pages of the guest with others (KSM): the first "+
		"write to a merged page waits for a copy")
	if !passthrough {
		b.MemoryAllocation = &libvirtxml.DomainMemoryAllocation{Mode: "immediate"}
		why.add("memoryBacking/allocation", "take all memory at the start, where the NUMA nodes below have it; later "+
			"a full node would not mean a refusal, but a killed guest. Guests with devices need not be told: their "+
			"memory is pinned for DMA at the start")
	}
	return b
}

// pageBytes returns the size of the pages behind a cell; 0 where they are no hugepages.
func pageBytes(n *plan.Node, c *plan.Cell) uint64 {
	for _, m := range n.Memory {
		if m.Bytes > 0 && slices.Contains(c.NUMANodes, m.NUMANode) {
			return m.PageBytes
		}
	}
	return 0
}

// memoryNodes returns the host's NUMA nodes that hold the memory of a cell. A cell may stand for
// nodes that have only cores of it.
func memoryNodes(n *plan.Node, c *plan.Cell) topology.CPUSet {
	var set topology.CPUSet
	for _, m := range n.Memory {
		if m.Bytes > 0 && slices.Contains(c.NUMANodes, m.NUMANode) {
			set = set.Union(topology.CPUs(m.NUMANode))
		}
	}
	return set
}

// numaTune binds memory to where the plan counted it; nil where the plan binds nothing. The mode is
// strict also where one cell spans NUMA nodes: interleave would spread the load more evenly, but
// the kernel goes on with any other node when one of the set is out of pages, and takes what
// another lab node was promised. strict fails instead, at the start and with a message.
func numaTune(n *plan.Node, why reasons) *libvirtxml.DomainNUMATune {
	if n.Unbound {
		return nil
	}
	t := &libvirtxml.DomainNUMATune{}
	var all topology.CPUSet
	spans := false
	for _, c := range n.Cells {
		nodes := memoryNodes(n, &c)
		all = all.Union(nodes)
		spans = spans || nodes.Len() > 1
		if n.GuestNUMA {
			t.MemNodes = append(t.MemNodes, libvirtxml.DomainNUMATuneMemNode{
				CellID: uint(c.Cell), Mode: "strict", Nodeset: nodes.String()})
		}
	}
	t.Memory = &libvirtxml.DomainNUMATuneMemory{Mode: "strict", Nodeset: all.String()}
	reason := "the pages were counted on these NUMA nodes of the host: rather no start than memory that is far or " +
		"another guest's"
	reason += words.If(spans, ". Not interleave, which takes from any node when one of these is out of pages")
	why.add("numatune/memory", reason)
	return t
}

// numa returns the guest's NUMA nodes; nil where it is to see none.
func numa(n *plan.Node, why reasons) *libvirtxml.DomainNuma {
	if !n.GuestNUMA {
		return nil
	}
	why.add("cpu/numa", "numbered as the guest sees them, with the distances of the host's nodes that they stand for")
	u := &libvirtxml.DomainNuma{}
	for i, c := range n.Cells {
		cpus := ""
		if c.VCPUs > 0 {
			cpus = topology.CPURange(c.FirstVCPU, c.FirstVCPU+c.VCPUs-1).String()
		}
		memory, unit := scaled(c.Bytes)
		cell := libvirtxml.DomainCell{ID: new(uint(c.Cell)), CPUs: cpus, Memory: memory, Unit: unit}
		if c.VCPUs == 0 {
			why.addAt("cpu/numa/cell", i, "memory alone")
		}
		if len(n.Cells) > 1 {
			cell.Distances = &libvirtxml.DomainCellDistances{}
			for id, d := range c.Distances {
				cell.Distances.Siblings = append(cell.Distances.Siblings,
					libvirtxml.DomainCellSibling{ID: uint(id), Value: uint(d)})
			}
		}
		u.Cell = append(u.Cell, cell)
	}
	return u
}
