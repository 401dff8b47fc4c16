package topology

// Device returns the function at an address; nil where the host has none. Whoever asks for many of them makes a [Tree],
// which has an index.
func (h *Host) Device(a PCIAddr) *PCIDevice {
	return find(h.PCI, func(d *PCIDevice) bool { return d.Address == a })
}

// NIC returns the NIC at an address; nil where the host has none.
func (h *Host) NIC(a PCIAddr) *NIC {
	return find(h.NICs, func(n *NIC) bool { return n.Address != nil && *n.Address == a })
}

// Core returns the core that a CPU is a thread of; nil where that is not known.
func (h *Host) Core(cpu int) *Core {
	return find(h.Cores, func(c *Core) bool { return c.CPUs.Contains(cpu) })
}
