package topology

// Parts names the parts of the model that are filled, in the order of the Host's fields. A source
// that cannot know a part leaves it empty; so may a machine that has none.
func (h *Host) Parts() []string {
	var parts []string
	add := func(name string, filled bool) {
		if filled {
			parts = append(parts, name)
		}
	}
	var memory, distances, speed, group, cpus bool
	for i := range h.NUMANodes {
		memory = memory || h.NUMANodes[i].MemoryBytes != nil
		distances = distances || h.NUMANodes[i].Distances != nil
	}
	for i := range h.PCI {
		speed = speed || h.PCI[i].Link != nil
		group = group || h.PCI[i].IOMMUGroup != nil
	}
	cpus = !h.CPUs.Online.IsEmpty()
	add("system", h.System != System{})
	add("packages", len(h.Packages) > 0)
	add("numa_nodes", len(h.NUMANodes) > 0)
	add("numa_memory", memory)
	add("numa_distances", distances)
	add("l3", len(h.L3) > 0)
	add("cores", len(h.Cores) > 0)
	add("cpus", cpus)
	add("memory", h.Memory.TotalBytes != nil)
	add("kernel", h.Kernel.Cmdline != nil)
	add("pci", len(h.PCI) > 0)
	add("pci_links", speed)
	add("iommu_groups", group)
	add("gpus", len(h.GPUs) > 0)
	add("nics", len(h.NICs) > 0)
	add("storage", len(h.Storage) > 0)
	add("default_routes", len(h.Routes) > 0)
	add("tenants", len(h.Tenants) > 0)
	add("reported_paths", len(h.Reported) > 0)
	return parts
}
