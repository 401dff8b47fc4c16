package render

import (
	"slices"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render/libvirtxml"
	"github.com/rackless/rackless/topology"
)

// memoryBacking says which pages the guest is made of. passthrough is set where it has devices of the host.
//
// It never has <locked/>, nor a hard_limit with it. VFIO pins the whole guest by itself, and
// libvirt raises the limit of locked memory to the guest's size and 1 GiB for it. A hard_limit
// would also be the limit of QEMU's memory cgroup, and a guess too low kills the guest.
func memoryBacking(n *plan.Node, passthrough bool) *libvirtxml.MemoryBacking {
	b := &libvirtxml.MemoryBacking{}
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
		if b.HugePages == nil {
			b.HugePages = &libvirtxml.HugePages{Why: "they have to be free on the host's NUMA nodes below before the " +
				"guest starts; a page of theirs " +
				"saves the guest up to two steps of every address translation, and the IOMMU as many"}
		}
		b.HugePages.Pages = append(b.HugePages.Pages, libvirtxml.PageOf(size, set))
	}
	if len(sizes) > 0 {
		return b
	}
	b.NoSharePages = &libvirtxml.Empty{Why: "the host must not merge pages of the guest with others (KSM): the first " +
		"write to a merged page waits for a copy"}
	if !passthrough {
		b.Allocation = &libvirtxml.Allocation{
			Why: "take all memory at the start, where the NUMA nodes below have it; later a full node would not mean " +
				"a refusal, but a killed guest. " +
				"Guests with devices need not be told: their memory is pinned for DMA at the start",
			Mode: "immediate",
		}
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
func numaTune(n *plan.Node) *libvirtxml.NUMATune {
	if n.Unbound {
		return nil
	}
	t := &libvirtxml.NUMATune{}
	var all topology.CPUSet
	spans := false
	for _, c := range n.Cells {
		nodes := memoryNodes(n, &c)
		all = all.Union(nodes)
		spans = spans || nodes.Len() > 1
		if n.GuestNUMA {
			t.MemNodes = append(t.MemNodes, libvirtxml.MemNode{CellID: c.Cell, Mode: "strict", NodeSet: nodes.String()})
		}
	}
	t.Memory = &libvirtxml.TuneMemory{
		Why: "the pages were counted on these NUMA nodes of the host: rather no start than memory that is far or " +
			"another guest's",
		Mode: "strict", NodeSet: all.String(),
	}
	if spans {
		t.Memory.Why += ". Not interleave, which takes from any node when one of these is out of pages"
	}
	return t
}

// numa returns the guest's NUMA nodes; nil where it is to see none.
func numa(n *plan.Node) *libvirtxml.NUMA {
	if !n.GuestNUMA {
		return nil
	}
	u := &libvirtxml.NUMA{Why: "numbered as the guest sees them, with the distances of the host's nodes that they " +
		"stand for"}
	for _, c := range n.Cells {
		cpus := ""
		if c.VCPUs > 0 {
			cpus = topology.CPURange(c.FirstVCPU, c.FirstVCPU+c.VCPUs-1).String()
		}
		cell := libvirtxml.CellOf(c.Cell, cpus, c.Bytes)
		if c.VCPUs == 0 {
			cell.Why = "memory alone"
		}
		if len(n.Cells) > 1 {
			cell.Distances = &libvirtxml.Distances{}
			for id, d := range c.Distances {
				cell.Distances.Siblings = append(cell.Distances.Siblings, libvirtxml.Sibling{ID: id, Value: d})
			}
		}
		u.Cells = append(u.Cells, cell)
	}
	return u
}
