package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// cpuTune pins every thread of QEMU for which the plan has CPUs, or returns nil.
//
// No thread gets a real-time priority (vcpusched): a spinning virtual CPU with such a priority starves the kernel's own
// threads on its CPU, and a virtual CPU alone on an isolated CPU need not wait anyway.
func (m *machine) cpuTune(n *plan.Node, why reasons) *libvirtxml.DomainCPUTune {
	if n.Unpinned {
		return nil
	}
	t := &libvirtxml.DomainCPUTune{}
	for _, c := range n.Cells {
		for i := range c.VCPUs {
			if i == 0 {
				why.addAt("cputune/vcpupin", len(t.VCPUPin), pinWhy(n, &c))
			}
			t.VCPUPin = append(t.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{
				VCPU: uint(c.FirstVCPU + i), CPUSet: fmt.Sprint(n.VCPUs[c.FirstVCPU+i])})
		}
	}
	if !n.EmulatorCPUs.IsEmpty() {
		pin := m.in.Plan.EmulatorPin(n, m.in.Host)
		reason := "QEMU's own threads and vhost's stay off the CPUs of the guest: a few microseconds of theirs are " +
			"the tail of every latency that it measures"
		if own := pin.Intersect(n.CPUs()); !own.IsEmpty() {
			reason += ". Of CPUs of the guest it has " + own.String() + ", on a NUMA node of its memory where the " +
				"host keeps none: QEMU clears the pages there from a CPU there, and would not start else. It is " +
				"isolated, so that no thread comes there by itself"
		}
		t.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: pin.String()}
		why.add("cputune/emulatorpin", reason)
	}
	if !n.IOThreadCPUs.IsEmpty() {
		t.IOThreadPin = []libvirtxml.DomainCPUTuneIOThreadPin{{IOThread: 1, CPUSet: n.IOThreadCPUs.String()}}
	}
	return t
}

func pinWhy(n *plan.Node, c *plan.Cell) string {
	var b strings.Builder
	if n.GuestNUMA && len(n.Cells) > 1 {
		fmt.Fprintf(&b, "the guest's NUMA node %d is the host's %s", c.Cell, numbers(c.NUMANodes))
	} else {
		fmt.Fprintf(&b, "on the host's NUMA node %s", numbers(c.NUMANodes))
	}
	if _, _, threads, _ := n.Topology(); threads > 1 {
		fmt.Fprintf(&b, "; every %d virtual CPUs are the threads of one core, in the guest as on the host", n.Threads)
	}
	return b.String()
}

func numbers(list []int) string { return topology.CPUs(list...).String() }

func cpuTopology(n *plan.Node, why reasons) *libvirtxml.DomainCPUTopology {
	t := &libvirtxml.DomainCPUTopology{}
	equal := false
	if t.Sockets, t.Cores, t.Threads, equal = n.Topology(); !equal {
		why.add("cpu/topology", "one socket, because sockets are all of one size and the guest's NUMA nodes are not. "+
			"Its kernel may say once at boot that siblings of a cache are on different nodes; it then goes by "+
			"the nodes")
	}
	return t
}

func (m *machine) cpu(n *plan.Node, why reasons) *libvirtxml.DomainCPU {
	c := &libvirtxml.DomainCPU{Topology: cpuTopology(n, why), Numa: numa(n, why)}
	if m.in.Emulated {
		c.Mode = "maximum"
		why.add("cpu", "all that QEMU can translate, on whatever host")
		return c
	}
	c.Mode, c.Check = "host-passthrough", "none"
	if m.arch != archX86 { // libvirt supports migratable only for x86
		why.add("cpu", "the host's own processor with all that it can do")
		return c
	}
	c.Migratable = "off"
	why.add("cpu", "the host's own processor with all that it can do, the invariant time stamp counter among it; "+
		"nothing that a migration would need is held back, because devices that are passed through do not migrate")
	c.Cache = &libvirtxml.DomainCPUCache{Mode: "passthrough"}
	why.add("cpu/cache", "the guest sees the sizes of the host's caches; schedulers and MPI libraries plan by them")
	if m.amd {
		c.Features = []libvirtxml.DomainCPUFeature{{Policy: "require", Name: "topoext"}}
		why.add("cpu/feature", "without it a guest on AMD sees neither siblings nor who shares a cache, and QEMU does "+
			"not switch it on by itself")
	}
	return c
}

func (m *machine) features(n *plan.Node, why reasons) *libvirtxml.DomainFeatureList {
	f := &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}}
	if m.arch != archX86 {
		return f
	}
	on, off := &libvirtxml.DomainFeatureState{State: "on"}, &libvirtxml.DomainFeatureState{State: "off"}
	f.APIC = &libvirtxml.DomainFeatureAPIC{}
	f.VMPort = off
	why.add("features/vmport", "VMware's backdoor port, which some guest software takes for a sign of VMware")
	if m.in.Emulated { // the rest needs KVM
		return f
	}
	// QEMU 11.1.3's VMRUN leaves the vector of an injected interrupt in the CPU's exception_index. If the CPU then
	// leaves its loop before the guest's next exit, as on each change of the host's memory map, the interrupt is
	// delivered a second time although interrupts are disabled. The guest's handler then waits for a lock that its
	// first instance holds. An end-of-interrupt write to the APIC is an exit, and comes before the handlers of timers
	// and IPIs take locks. With KVM's paravirtual one, a bit in memory, the first exit may come after the whole
	// handler.
	if m.host.System.Vendor == topology.VendorEmulated {
		f.APIC.EOI = off.State
		why.add("features/apic", "the QEMU of an emulated host may deliver an interrupt twice until the guest's next "+
			"exit: the end of each interrupt is to be one, so that no lock is held yet")
	}
	if !n.Unpinned {
		f.KVM = &libvirtxml.DomainFeatureKVM{HintDedicated: on, PollControl: on}
		why.add("features/kvm", "each virtual CPU has a CPU of its own: the guest need not yield spinlocks to others "+
			"that may not be running, and waits for work itself before it halts, which saves an exit and a wake-up")
		why.add("features/kvm/poll-control", "while the guest polls, the host does not poll once more")
	}
	if m.hasGeForce(n) && f.KVM != nil {
		f.KVM.Hidden = off
		why.add("features/kvm/hidden", "GeForce drivers before 465 (2021) stop with code 43 when they see KVM; newer "+
			"ones do not mind. Hidden, the guest would lose its paravirtual clock and the two hints below. If an old "+
			"driver has to be used: on")
	}
	if m.lowLatency() {
		f.PMU = off
		why.add("features/pmu", "the guest's watchdog would take a performance counter and interrupt every CPU now "+
			"and then; perf in the guest has only software events without it")
	}
	if needsIOMMU(n) {
		f.IOAPIC = &libvirtxml.DomainFeatureIOAPIC{Driver: "qemu"}
		why.add("features/ioapic", "interrupts are remapped by the virtual IOMMU below, which is QEMU's")
	}
	return f
}

func (m *machine) hasGeForce(n *plan.Node) bool {
	return slices.ContainsFunc(n.Cards, func(c plan.NodeDevice) bool {
		return c.Kind == plan.KindGPU && (strings.Contains(c.Model, "GeForce") || strings.Contains(c.Model, "TITAN"))
	})
}

func (m *machine) clock(why reasons) *libvirtxml.DomainClock {
	c := &libvirtxml.DomainClock{Offset: "utc"}
	if m.arch != archX86 {
		return c // the generic timer is the only one
	}
	if m.in.Emulated {
		// The HPET stays: a guest uses it if the other timers, which are late under emulation, look broken.
		return c
	}
	why.add("clock/timer", "clocks that tick through QEMU: lost ticks are made up for, and the one that costs an exit "+
		"on every reading is not there")
	c.Timer = []libvirtxml.DomainTimer{
		{Name: "rtc", TickPolicy: "catchup"},
		{Name: "pit", TickPolicy: "delay"},
		{Name: "hpet", Present: "no"},
		{Name: "kvmclock", Present: "yes"},
	}
	return c
}

// maxPlainVCPUs is the most that interrupts of a PC can reach without a virtual IOMMU: an 8-bit APIC ID, minus
// broadcast.
const maxPlainVCPUs = 255

// needsIOMMU reports whether libvirt would refuse the domain without extended interrupt mode.
func needsIOMMU(n *plan.Node) bool { return len(n.VCPUs) > maxPlainVCPUs }

func iommu(n *plan.Node, why reasons) *libvirtxml.DomainIOMMU {
	if !needsIOMMU(n) {
		return nil
	}
	why.add("devices/iommu", fmt.Sprintf("for interrupts to more than %d virtual CPUs, on any vendor's host; iommu=pt "+
		"on the guest's command line keeps it out of the way of data. With it the memory of the guest counts once for "+
		"each device against the limit of locked memory", maxPlainVCPUs))
	return &libvirtxml.DomainIOMMU{
		Model:  "intel",
		Driver: &libvirtxml.DomainIOMMUDriver{IntRemap: "on", CachingMode: "on", EIM: "on"},
	}
}

// memoryBacking never uses <locked/>, nor the hard_limit that this needs. VFIO pins the whole guest by itself, and
// libvirt raises the limit of locked memory to the guest's size plus 1 GiB for that. A hard_limit would also limit
// QEMU's memory cgroup, and a guess that is too low kills the guest.
func memoryBacking(n *plan.Node, passthrough bool, why reasons) *libvirtxml.DomainMemoryBacking {
	b := &libvirtxml.DomainMemoryBacking{}
	var sizes []uint64
	cells := map[uint64]topology.CPUSet{} // guest cells by page size
	for _, c := range n.Cells {
		if size := pageBytes(n, &c); size > 0 {
			sizes = lists.Add(sizes, size)
			cells[size] = cells[size].Union(topology.CPUs(c.Cell))
		}
	}
	slices.Sort(sizes)
	for _, size := range sizes {
		set := ""
		if n.GuestNUMA { // libvirt refuses a nodeset for a guest without cells
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

// pageBytes returns 0 without hugepages.
func pageBytes(n *plan.Node, c *plan.Cell) uint64 {
	return lists.Find(n.Memory,
		func(m plan.NodeMemory) bool { return m.Bytes > 0 && slices.Contains(c.NUMANodes, m.NUMANode) }).PageBytes
}

// memoryNodes leaves out nodes that have only cores of a cell.
func memoryNodes(n *plan.Node, c *plan.Cell) topology.CPUSet {
	held := lists.Filter(n.Memory,
		func(m plan.NodeMemory) bool { return m.Bytes > 0 && slices.Contains(c.NUMANodes, m.NUMANode) })
	return topology.UnionOf(held, func(m plan.NodeMemory) topology.CPUSet { return topology.CPUs(m.NUMANode) })
}

// numaTune binds memory to the NUMA nodes of the plan, or returns nil. The mode is strict even if one cell spans NUMA
// nodes: interleave would spread the load more evenly, but if a node of the set runs out of pages, the kernel uses any
// other node and takes pages planned for another lab node. strict fails at the start.
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
	if spans {
		reason += ". Not interleave, which takes from any node when one of these is out of pages"
	}
	why.add("numatune/memory", reason)
	return t
}

// numa returns nil if the guest sees no NUMA nodes.
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
