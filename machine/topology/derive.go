package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// Kinds of GPUs.
const (
	GPUDiscrete   = "discrete"   // on its own card or module
	GPUIntegrated = "integrated" // in the processor, on a root bus
	GPUDisplay    = "display"    // of a management controller or a virtual machine
	GPUVirtual    = "virtual"    // a virtual function
	GPUStandIn    = "stand-in"   // in an emulated host or node; cannot compute
)

// VendorEmulated is the vendor of hosts of rackless emulate.
const VendorEmulated = "rackless"

// displayOnly vendors make only displays of class 0x03.
var displayOnly = map[ID16]bool{
	0x102b:       true, // Matrox, in BMCs
	0x1a03:       true, // ASPEED, in BMCs
	0x18ca:       true, // XGI, in BMCs
	0x1234:       true, // QEMU standard VGA
	0x1013:       true, // Cirrus Logic
	0x1b36:       true, // QXL
	0x1414:       true, // Hyper-V
	0x15ad:       true, // VMware
	0x80ee:       true, // VirtualBox
	0x1d0f:       true, // Amazon: the console of EC2
	VendorRedHat: true, // virtio-gpu
	0x19e5:       true, // Huawei, in BMCs
	0x126f:       true, // Silicon Motion, in BMCs
}

// serverScreens are AMD's Rage XL and ES1000.
var serverScreens = map[ID16]bool{0x4752: true, 0x515e: true, 0x5969: true}

// computeVendors make GPUs of class 0x12: AMD Instinct, Intel Gaudi.
var computeVendors = map[ID16]bool{VendorAMD: true, VendorNVIDIA: true, 0x1da3: true}

// IsGPU reports whether d is a display controller, or a processing accelerator of a vendor that uses this class for
// GPUs.
func (d *PCIDevice) IsGPU() bool {
	if d.Class == nil {
		return false
	}
	switch d.Class.Base() {
	case ClassDisplay:
		return true
	case ClassAccelerator:
		return d.Vendor != nil && computeVendors[*d.Vendor]
	}
	return false
}

// Screens returns the VGA adapters for the console, and the firmware's choice, or nil.
func (h *Host) Screens() (all []*PCIDevice, boot *PCIDevice) {
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.Class == nil || d.Class.Sub() != SubVGA || d.PF != nil {
			continue
		}
		all = append(all, d)
		if d.BootVGA != nil && *d.BootVGA {
			boot = d
		}
	}
	return all, boot
}

// IsNIC reports whether d is an Ethernet or InfiniBand controller.
func (d *PCIDevice) IsNIC() bool {
	return d.Class != nil && (d.Class.Base() == ClassNetwork || d.Class.Sub() == SubFabric)
}

// IsBridge reports whether d leads to another PCI bus.
func (d *PCIDevice) IsBridge() bool {
	return d.Bridge != nil || d.Class != nil && (d.Class.Sub() == SubPCIBridge || d.Class.Sub() == 0x0609)
}

func (h *Host) gpuKind(d *PCIDevice) string {
	switch {
	case h.System.Vendor == VendorEmulated && d.isStandIn(), d.emulatedGPU() != "":
		return GPUStandIn
	case d.Vendor != nil && (displayOnly[*d.Vendor] || *d.Vendor == VendorAMD && d.Device != nil &&
		serverScreens[*d.Device]):
		return GPUDisplay
	case d.PF != nil:
		return GPUVirtual
	case d.Parent == nil && !d.ParentUnknown && d.Root != "" && d.Vendor != nil && *d.Vendor == VendorIntel:
		return GPUIntegrated
	case d.Vendor == nil:
		return ""
	default:
		return GPUDiscrete
	}
}

// isStandIn reports whether d is QEMU's secondary-vga, which stands for a GPU.
func (d *PCIDevice) isStandIn() bool {
	const vendorQEMU ID16 = 0x1234
	return d.Vendor != nil && *d.Vendor == vendorQEMU && d.Class != nil && d.Class.Sub() == SubOtherDisplay
}

// emulatedGPUs are the models of rackless by subsystem device.
var emulatedGPUs = map[ID16]string{
	0x4c00: "emulated GPU",
	0x4c01: "emulated H20",
	0x4c02: "emulated H100",
	0x4c03: "emulated A100",
	0x4c04: "emulated L40S",
}

// emulatedGPU returns the name of a GPU that rackless emulates, or "". Such a GPU may have the ids of a card, but not
// its subsystem. Without a subsystem, it is found as the only virtio GPU that is a 3D controller.
func (d *PCIDevice) emulatedGPU() string {
	const virtioGPU ID16 = 0x1050
	if d.Class == nil || d.Class.Sub() != Sub3D || d.Vendor == nil || d.Device == nil {
		return ""
	}
	name := ""
	if d.SubsystemVendor != nil && *d.SubsystemVendor == VendorRedHat && d.SubsystemDevice != nil {
		name = emulatedGPUs[*d.SubsystemDevice]
	}
	if name == "" && *d.Vendor == VendorRedHat && *d.Device == virtioGPU {
		name = emulatedGPUs[0x4c00]
	}
	return name
}

// Complete adds derived facts, sorts every list and numbers elements without a number. It is idempotent, and every
// reader calls it last.
func (h *Host) Complete() {
	h.completePCI()
	h.completeVFs()
	h.completeGroups()
	h.completeGPUs()
	h.completeNICs()
	h.completeCPUs()
	h.completeGPUNodes()
	h.completeStorage()
	slices.SortFunc(h.Storage, func(a, b Disk) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(h.Bonds, func(a, b Bond) int { return cmp.Compare(a.Name, b.Name) })
	for i := range h.Switches {
		s := &h.Switches[i]
		slices.SortFunc(s.PortGroups, func(a, b PortGroup) int { return cmp.Compare(a.Name, b.Name) })
	}
	slices.SortStableFunc(h.Switches, func(a, b VirtualSwitch) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	slices.SortFunc(h.IRQs, func(a, b IRQ) int { return cmp.Compare(a.Number, b.Number) })
	slices.SortFunc(h.Tenants, func(a, b Tenant) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(h.Unread, func(a, b Unread) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Why, b.Why))
	})
	h.Unread = slices.Compact(h.Unread)
}

func (h *Host) completePCI() {
	slices.SortStableFunc(h.PCI, func(a, b PCIDevice) int { return a.Address.Compare(b.Address) })
	h.PCI = slices.CompactFunc(h.PCI, func(a, b PCIDevice) bool { return a.Address == b.Address })
	t := NewTree(h)
	for i := range h.PCI {
		d := &h.PCI[i]
		up := t.Ancestors(d.Address)
		t.guessPort(d, up)
		if len(up) > 0 && d.Root == "" {
			d.Root = up[len(up)-1].Root
		}
		if d.Link != nil && len(up) > 0 && up[0].Link != nil && !d.isDownstream() && !up[0].isSwitch() {
			l := up[0].Link
			d.Link.Port = &PortLink{up[0].Address, l.SpeedGTs, l.Width, l.MaxSpeedGTs, l.MaxWidth}
		}
		if d.NUMANode != nil {
			continue
		}
		if n, ok := h.nodeOf(d.LocalCPUs); ok {
			d.NUMANode, d.NUMASource = &n, "local_cpulist"
		}
	}
	// A bridge may come after its children, so a NUMA node is inherited in a separate pass.
	inherited := map[*PCIDevice]int{}
	for i := range h.PCI {
		d := &h.PCI[i]
		up := t.Ancestors(d.Address)
		at := slices.IndexFunc(up, func(bridge *PCIDevice) bool { return bridge.NUMANode != nil })
		if d.NUMANode == nil && at >= 0 {
			inherited[d] = *up[at].NUMANode
		}
	}
	for d, node := range inherited {
		d.NUMANode, d.NUMASource = &node, "parent"
	}
	only := h.OnlyNode()
	if only == nil {
		return
	}
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.NUMANode == nil {
			d.NUMANode, d.NUMASource = new(only.ID), "only node"
		}
	}
}

// guessPort derives the ports of switches from the tree: a bridge below a root port or a downstream port is an upstream
// port if bridges with links are below it, and these are its downstream ports. Bridges to conventional PCI have no
// links.
func (t *Tree) guessPort(d *PCIDevice, up []*PCIDevice) {
	if !d.IsBridge() || d.Link == nil || d.Bridge != nil && d.Bridge.Port != "" || isCut(topmost(d, up)) {
		return
	}
	port := "root port"
	if len(up) > 0 {
		switch {
		case up[0].Bridge != nil && up[0].Bridge.Port == "upstream port":
			port = "downstream port"
		case up[0].isDownstream() && slices.ContainsFunc(t.Children(d.Address), func(c *PCIDevice) bool {
			return c.IsBridge() && c.Link != nil
		}):
			port = "upstream port"
		default:
			return
		}
	}
	d.Bridge = cmp.Or(d.Bridge, &Bridge{})
	d.Bridge.Port = port
}

// isDownstream reports whether d's own link goes down.
func (d *PCIDevice) isDownstream() bool {
	return d.Bridge != nil && (d.Bridge.Port == "downstream port" || d.Bridge.Port == "root port")
}

// isSwitch reports a whole switch: its link goes up, and the links of its ports are unknown.
func (d *PCIDevice) isSwitch() bool { return d.Bridge != nil && d.Bridge.Port == PortSwitch }

// nodeOf returns the node that has all CPUs of local. CPUs of several nodes mean "no locality"; some firmware lists
// only some of a node's CPUs.
func (h *Host) nodeOf(local *CPUSet) (int, bool) {
	if local == nil || local.IsEmpty() || len(h.NUMANodes) < 2 {
		return 0, false
	}
	n := lists.Ref(h.NUMANodes, func(n *NUMANode) bool { return local.IsSubsetOf(n.CPUs) })
	if n == nil {
		return 0, false
	}
	return n.ID, true
}

// UntoldNodes returns the least number of NUMA nodes missing in NUMANodes. A matrix shows only the nodes of its GPUs,
// of which node 0 need not be one, and SYS is a path between two nodes.
func (h *Host) UntoldNodes() int {
	if h.NodeCount != nil {
		return max(0, *h.NodeCount-len(h.NUMANodes))
	}
	if len(h.NUMANodes) != 1 || h.Provenance.Kind != SourceTopo && h.Provenance.Kind != SourceTexts {
		return 0
	}
	if h.NUMANodes[0].ID > 0 || slices.ContainsFunc(h.Reported, func(p Path) bool { return p.Class == PathSYS }) {
		return 1
	}
	return 0
}

// OnlyNode returns the NUMA node, or nil if the machine has several, or may have.
func (h *Host) OnlyNode() *NUMANode {
	if len(h.NUMANodes) != 1 || h.UntoldNodes() > 0 || h.CPUs.Untold() {
		return nil
	}
	return &h.NUMANodes[0]
}

func (h *Host) completeVFs() {
	t := NewTree(h)
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.SRIOV == nil {
			continue
		}
		if d.SRIOV.VFs == nil {
			d.SRIOV.VFs = []VF{}
		}
		slices.SortFunc(d.SRIOV.VFs, func(a, b VF) int { return cmp.Compare(a.Index, b.Index) })
		for _, vf := range d.SRIOV.VFs {
			if vf.Address == nil {
				continue
			}
			if f := t.Device(*vf.Address); f != nil && f.PF == nil && f != d {
				f.PF = new(d.Address)
			}
		}
	}
	// Virtual functions are numbered by ascending address, so their order is their index if all were read.
	found := map[*PCIDevice][]VF{}
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.PF == nil {
			continue
		}
		if pf := t.Device(*d.PF); pf != nil && pf != d && (pf.SRIOV == nil || len(pf.SRIOV.VFs) == 0) {
			found[pf] = append(found[pf], VF{Index: len(found[pf]), Address: new(d.Address)})
		}
	}
	for pf, vfs := range found {
		pf.SRIOV = cmp.Or(pf.SRIOV, &SRIOV{})
		pf.SRIOV.VFs = vfs
	}
}

// completeGroups keeps facts already read.
func (h *Host) completeGroups() {
	groups := lists.By(h.IOMMU.Groups, func(g IOMMUGroup) int { return g.ID })
	for i := range h.PCI {
		d := &h.PCI[i]
		if d.IOMMUGroup == nil {
			continue
		}
		g := groups[*d.IOMMUGroup]
		g.ID = *d.IOMMUGroup
		g.Devices = lists.Add(g.Devices, d.Address)
		groups[g.ID] = g
	}
	h.IOMMU.Groups = nil
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		g := groups[id]
		slices.SortFunc(g.Devices, PCIAddr.Compare)
		h.IOMMU.Groups = append(h.IOMMU.Groups, g)
	}
	if len(groups) > 0 {
		h.IOMMU.Enabled = new(true)
	}
}

func undescribed[T any](h *Host, is func(*PCIDevice) bool, devices []T, at func(T) *PCIAddr) (all []PCIAddr) {
	described := map[PCIAddr]bool{}
	for _, d := range devices {
		if a := at(d); a != nil {
			described[*a] = true
		}
	}
	for i := range h.PCI {
		d := &h.PCI[i]
		if is(d) && !described[d.Address] {
			all = append(all, d.Address)
		}
	}
	return all
}

// completeGPUs adds a GPU for each undescribed GPU function.
func (h *Host) completeGPUs() {
	for _, a := range undescribed(h, (*PCIDevice).IsGPU, h.GPUs, func(g GPU) *PCIAddr { return g.Address }) {
		h.GPUs = append(h.GPUs, GPU{Address: &a})
	}
	t := NewTree(h)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		d := t.at(g.Address)
		if d == nil {
			continue
		}
		if g.Kind == "" && h.isProcessorGPU(d) {
			g.Kind = GPUIntegrated
		}
		g.Kind = cmp.Or(g.Kind, h.gpuKind(d))
		switch {
		case g.Kind == GPUStandIn && d.emulatedGPU() != "": // the ids may be those of a card's maker
			g.Model, g.Vendor = cmp.Or(g.Model, d.emulatedGPU()), cmp.Or(g.Vendor, VendorEmulated)
		case g.Kind == GPUStandIn:
			g.Model = cmp.Or(g.Model, "stand-in of an emulated host")
		}
		g.Vendor = cmp.Or(g.Vendor, d.VendorName)
		g.Model = cmp.Or(g.Model, d.DeviceName)
		g.Driver = cmp.Or(g.Driver, d.Driver)
		g.NUMANode = cmp.Or(g.NUMANode, d.NUMANode)
		g.Functions = h.siblings(*g.Address, d.PF != nil)
		for _, b := range d.BARs {
			if b.Prefetchable && b.Index < 6 && b.SizeBytes > 0 && (g.BAR1Bytes == nil || b.SizeBytes > *g.BAR1Bytes) {
				g.BAR1Bytes = new(b.SizeBytes)
			}
		}
	}
	slices.SortStableFunc(h.GPUs, func(a, b GPU) int { return compareAddr(a.Address, b.Address) })
}

// isProcessorGPU looks for the vendor ID of AMD's processors, which AMD's graphics cards do not use.
func (h *Host) isProcessorGPU(d *PCIDevice) bool {
	const vendorProcessors ID16 = 0x1022
	if d.Vendor == nil || *d.Vendor != VendorAMD || d.PF != nil {
		return false
	}
	return slices.ContainsFunc(h.PCI, func(f PCIDevice) bool {
		return f.Vendor != nil && *f.Vendor == vendorProcessors && f.Address.SameDevice(d.Address)
	})
}

// siblings leaves virtual functions alone, because they may share a device number.
func (h *Host) siblings(a PCIAddr, virtual bool) []PCIAddr {
	if virtual {
		return []PCIAddr{a}
	}
	var out []PCIAddr
	for i := range h.PCI {
		if d := &h.PCI[i]; d.Address.SameDevice(a) && d.PF == nil {
			out = append(out, d.Address)
		}
	}
	return out
}

// compareAddr orders known addresses first.
func compareAddr(a, b *PCIAddr) int {
	switch {
	case a != nil && b != nil:
		return a.Compare(*b)
	case a != nil:
		return -1
	case b != nil:
		return 1
	}
	return 0
}

// completeNICs adds a NIC for each undescribed network function.
func (h *Host) completeNICs() {
	for _, a := range undescribed(h, (*PCIDevice).IsNIC, h.NICs, func(n NIC) *PCIAddr { return n.Address }) {
		h.NICs = append(h.NICs, NIC{Address: &a})
	}
	t := NewTree(h)
	for i := range h.NICs {
		n := &h.NICs[i]
		if d := t.at(n.Address); d != nil {
			n.Model = cmp.Or(n.Model, d.DeviceName)
			n.Driver = cmp.Or(n.Driver, d.Driver)
			n.NUMANode = cmp.Or(n.NUMANode, d.NUMANode)
			n.SRIOV = cmp.Or(n.SRIOV, d.SRIOV)
			n.PF = cmp.Or(n.PF, d.PF)
		}
		slices.SortFunc(n.Ports, func(a, b Netdev) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(n.Devices, func(a, b RDMADevice) int { return cmp.Compare(a.Name, b.Name) })
		for _, p := range n.Ports {
			n.Netdevs = append(n.Netdevs, p.Name)
			if p.SpeedMbps != nil && (n.SpeedMbps == nil || *p.SpeedMbps > *n.SpeedMbps) {
				n.SpeedMbps = new(*p.SpeedMbps)
			}
		}
		for _, d := range n.Devices {
			n.RDMA = append(n.RDMA, d.Name)
			for _, p := range d.Ports {
				// The speed of an IPoIB device is often unknown.
				if p.RateGbps != nil && p.State == "ACTIVE" && n.SpeedMbps == nil {
					n.SpeedMbps = new(int64(*p.RateGbps * 1000))
				}
			}
		}
		n.Netdevs, n.RDMA = sortedSet(n.Netdevs), sortedSet(n.RDMA)
	}
	slices.SortStableFunc(h.NICs, func(a, b NIC) int { return compareAddr(a.Address, b.Address) })
}

// sortedSet is never nil.
func sortedSet(names []string) []string {
	return append([]string{}, lists.Distinct(names)...)
}

// NoID is a package's ID until Complete assigns one.
const NoID = -1

// numberPackages assigns the lowest free number to packages without one or with a duplicate, in the order of reading.
func (h *Host) numberPackages() {
	taken := map[int]bool{}
	var without []*Package
	for i := range h.Packages {
		p := &h.Packages[i]
		if p.ID == NoID || taken[p.ID] {
			without = append(without, p)
			continue
		}
		taken[p.ID] = true
	}
	next := 0
	for _, p := range without {
		for taken[next] {
			next++
		}
		p.ID, taken[next] = next, true
	}
}

// KindGPUMemory is the Kind of a GPU's memory.
const KindGPUMemory = "gpu"

// nodesOfGPU are reserved by Grace's firmware, one for each MIG instance.
const nodesOfGPU = 8

// firstPOWER9 is the lowest node of POWER9's up to six GPUs.
const firstPOWER9 = 250

// completeGPUNodes marks the memory of Grace's GPUs: each has eight nodes without CPUs, only one of them with memory
// unless the GPU is split into MIG instances. Other memory without CPUs, such as CXL, has no empty nodes beside it.
// POWER9 numbers the memory of its GPUs from 255 down.
func (h *Host) completeGPUNodes() {
	told := func(n *NUMANode, why string) {
		if n.Kind == "" && n.MemoryBytes != nil && *n.MemoryBytes > 0 {
			h.Inferred = lists.Add(h.Inferred, fmt.Sprintf("NUMA node %d is the memory of a GPU: %s", n.ID, why))
		}
		n.Kind = KindGPUMemory
	}
	var all []*NUMANode
	full := 0
	for i := range h.NUMANodes {
		n := &h.NUMANodes[i]
		if n.CPUs.IsEmpty() && n.Kind == "" && n.ID >= firstPOWER9 && strings.HasPrefix(h.System.CPUModel, "POWER9") {
			told(n, "POWER9 numbers those from 255 down")
		}
	}
	for i := range h.NUMANodes {
		n := &h.NUMANodes[i]
		if !n.CPUs.IsEmpty() {
			continue
		}
		if n.MemoryBytes == nil || n.Kind != "" && n.Kind != KindGPUMemory {
			return
		}
		all = append(all, n)
		full += min(1, int(*n.MemoryBytes>>20))
	}
	if len(all) == 0 || len(all)%nodesOfGPU != 0 || full > len(all)/nodesOfGPU {
		return
	}
	for _, n := range all {
		told(n, "it has no CPUs, and the empty nodes beside it are those that Grace has for MIG")
	}
}

// completeCPUs numbers cores and caches by their lowest CPU. Each core belongs to the package, die, node and cache of
// that CPU.
func (h *Host) completeCPUs() {
	h.numberPackages()
	slices.SortFunc(h.Packages, func(a, b Package) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(h.Cores, func(a, b Core) int { return a.CPUs.Compare(b.CPUs) })
	slices.SortFunc(h.L3, func(a, b L3) int { return a.CPUs.Compare(b.CPUs) })
	for i := range h.L3 {
		h.L3[i].ID = i
	}
	for i := range h.Cores {
		c := &h.Cores[i]
		c.ID = i
		c.L3 = nil
		first := c.CPUs.Min()
		if l3 := lists.Ref(h.L3, func(l *L3) bool { return l.CPUs.Contains(first) }); l3 != nil {
			c.L3 = new(l3.ID)
		}
		if n := lists.Ref(h.NUMANodes, func(n *NUMANode) bool { return n.CPUs.Contains(first) }); n != nil {
			c.NUMANode = cmp.Or(c.NUMANode, new(n.ID))
		}
		p := lists.Ref(h.Packages, func(p *Package) bool { return p.CPUs.Contains(first) })
		if p == nil {
			continue
		}
		c.Package = cmp.Or(c.Package, new(p.ID))
		if d := lists.Ref(p.Dies, func(d *Die) bool { return d.CPUs.Contains(first) }); d != nil {
			c.Die = cmp.Or(c.Die, new(d.ID))
		}
	}
}

func (h *Host) completeStorage() {
	t := NewTree(h)
	for i := range h.Storage {
		d := &h.Storage[i]
		if f := t.at(d.PCI); f != nil {
			d.NUMANode = cmp.Or(d.NUMANode, f.NUMANode)
		}
	}
}
