package topology

// Parts names the parts of the model that are filled, in the order of the Host's fields. A source
// that cannot know a part leaves it empty; so may a machine that has none.
func (h *Host) Parts() []string {
	var parts []string
	for _, part := range []struct {
		name   string
		filled bool
	}{
		{"system", h.System != System{}},
		{"packages", len(h.Packages) > 0},
		{"numa_nodes", len(h.NUMANodes) > 0},
		{"numa_memory", find(h.NUMANodes, func(n *NUMANode) bool { return n.MemoryBytes != nil }) != nil},
		{"numa_distances", find(h.NUMANodes, func(n *NUMANode) bool { return n.Distances != nil }) != nil},
		{"l3", len(h.L3) > 0},
		{"cores", len(h.Cores) > 0},
		{"cpus", !h.CPUs.Online.IsEmpty()},
		{"memory", h.Memory.TotalBytes != nil},
		{"kernel", h.Kernel.Cmdline != nil},
		{"pci", len(h.PCI) > 0},
		{"pci_links", find(h.PCI, func(d *PCIDevice) bool { return d.Link != nil }) != nil},
		{"iommu_groups", find(h.PCI, func(d *PCIDevice) bool { return d.IOMMUGroup != nil }) != nil},
		{"gpus", len(h.GPUs) > 0},
		{"nics", len(h.NICs) > 0},
		{"storage", len(h.Storage) > 0},
		{"default_routes", len(h.Routes) > 0},
		{"tenants", len(h.Tenants) > 0},
		{"reported_paths", len(h.Reported) > 0},
	} {
		if part.filled {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// Empty reports whether nothing is known of the machine.
func (h *Host) Empty() bool { return len(h.Parts()) == 0 && h.IOMMU.Enabled == nil }
