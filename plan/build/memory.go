package build

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// The host's default share of memory, for page cache, QEMU itself and daemons. A small host needs half a GiB whatever
// its size, and a host of 1 TiB needs no more than one of 128 GiB.
const (
	reserveShare    = 16
	minReserveBytes = 512 << 20
	maxReserveBytes = 8 << 30
)

const (
	pageBytes1GiB = 1 << 30
	pageBytes2MiB = 2 << 20
)

type memoryUse struct {
	bytes    []*uint64 // nil if unknown
	unusable []bool    // must not back guests
	reserve  []uint64  // kept by the host
	held     []uint64  // held by tenants
}

func (b *problemBuilder) memory() *memoryUse {
	n := len(b.p.NUMANodes)
	m := &memoryUse{bytes: make([]*uint64, n), unusable: make([]bool, n), reserve: make([]uint64, n),
		held: make([]uint64, n)}
	var unknown, alone topology.CPUSet
	var aloneBytes uint64
	for at := range m.bytes {
		node := b.hostNode(at)
		if node != nil {
			m.bytes[at] = node.MemoryBytes
			// A GPU's own memory is lost when the GPU is given to a guest, and persistent memory holds files.
			m.unusable[at] = node.Kind == "gpu" || node.GPU != nil || node.Kind == "nvdimm"
		}
		if m.bytes[at] == nil && n == 1 {
			m.bytes[at] = b.host.Memory.TotalBytes
		}
		if m.unusable[at] {
			if node.MemoryBytes == nil || *node.MemoryBytes > 0 {
				b.note("NUMA node %d: %s memory, not given to the lab", node.ID, cmp.Or(node.Kind, "gpu"))
			}
		} else if node != nil && n > 1 && node.Kind == "" && node.CPUs.IsEmpty() &&
			m.bytes[at] != nil && *m.bytes[at] > 0 {
			alone, aloneBytes = alone.Union(b.nodeSet(at)), aloneBytes+*node.MemoryBytes
		} else if m.bytes[at] == nil {
			unknown = unknown.Union(b.nodeSet(at))
		}
	}
	if !unknown.IsEmpty() {
		b.note("the host does not tell the memory of its NUMA nodes (%s): the plan cannot say whether it is enough",
			unknown)
	}
	if !alone.IsEmpty() {
		b.note("NUMA nodes without CPUs (%s) have %s, and the host does not tell what memory that is: the lab may get "+
			"it, also if it is a GPU's, or CXL", alone, words.Size(aloneBytes))
	}
	b.reserveMemory(m)
	b.holdMemory(m)
	return m
}

func (m *memoryUse) usable(at int) bool { return !m.unusable[at] }

func (m *memoryUse) total() uint64 { return m.among(m.usable) }

// among is at most MaxHostMemory, see checkLimits.
func (m *memoryUse) among(these func(at int) bool) (sum uint64) {
	for at, v := range m.bytes {
		if v != nil && these(at) {
			sum += *v
		}
	}
	return sum
}

// spread is in proportion to memory, rounded up. Nodes of unknown memory get nothing.
func (m *memoryUse) spread(amount uint64, among func(at int) bool) []uint64 {
	parts, sum := make([]uint64, len(m.bytes)), m.among(among)
	amount = min(amount, MaxHostMemory)
	for at, v := range m.bytes {
		if v == nil || sum == 0 || !among(at) {
			continue
		}
		// *v is at most sum, so the quotient fits.
		high, low := bits.Mul64(amount, *v)
		quotient, rest := bits.Div64(high, low, sum)
		if rest > 0 {
			quotient++
		}
		parts[at] = quotient
	}
	return parts
}

// reserveMemory replaces shares by the lab's amounts for single nodes.
func (b *problemBuilder) reserveMemory(m *memoryUse) {
	keep := uint64(0)
	if r := b.lab.Reserve.Memory; r == nil {
		keep = min(max(m.total()/reserveShare, minReserveBytes), maxReserveBytes)
	} else if *r < 0 {
		b.fail("", "host.reserve.memory", "%d bytes: want 0 or more", int64(*r))
	} else {
		keep = uint64(*r)
	}
	m.reserve = m.spread(keep, m.usable)
	for _, r := range b.lab.Reserve.NUMA {
		at, ok := b.nodeOf[r.Node]
		switch {
		case !ok || r.Memory == nil: // reserveCores reports an unknown node
		case *r.Memory < 0:
			b.fail("", "host.reserve.numa_nodes", "NUMA node %d: %d bytes of memory: want 0 or more", r.Node,
				int64(*r.Memory))
		default:
			m.reserve[at] = uint64(*r.Memory)
		}
	}
}

// holdMemory subtracts the larger of tenants' stated amounts and the hugepages in use, which usually belong to them.
// But other programs may use pages, and a tenant that is shut off uses none yet.
func (b *problemBuilder) holdMemory(m *memoryUse) {
	huge := make([]uint64, len(m.bytes))
	for i := range b.tenants {
		t := &b.tenants[i]
		name := tenantName(t)
		if t.MemoryBytes == nil {
			b.note("VM %s: its memory is not known and not taken off", name)
			continue
		}
		among, where := m.usable, 0
		if t.MemoryNodes != nil {
			on := func(n plan.NUMANode) bool { return t.MemoryNodes.Contains(n.ID) }
			among, where = func(at int) bool { return on(b.p.NUMANodes[at]) }, lists.Count(b.p.NUMANodes, on)
		}
		switch {
		case t.MemoryNodes != nil && where == 0:
			b.note("VM %s: its memory is on NUMA nodes %s, which are none of the host's; it is not taken off", name,
				*t.MemoryNodes)
		case t.MemoryNodes == nil && len(m.bytes) > 1:
			b.note("VM %s: its memory is not bound to a NUMA node; taken as spread over all by their size", name)
		case where > 1:
			b.note("VM %s: its memory is bound to NUMA nodes %s together; taken as spread over them by their size",
				name, *t.MemoryNodes)
		}
		for at, part := range m.spread(*t.MemoryBytes, among) {
			if t.Hugepages != nil {
				huge[at] = addUpTo(huge[at], part)
			} else {
				m.held[at] = addUpTo(m.held[at], part)
			}
		}
	}
	for at, used := range b.hugepagesInUse(m) {
		m.held[at] = addUpTo(m.held[at], max(huge[at], used))
	}
}

// addUpTo has a limit, because amounts come from dumps.
func addUpTo(a, b uint64) uint64 {
	return min(min(a, MaxHostMemory)+min(b, MaxHostMemory), MaxHostMemory)
}

// hugepagesInUse is in bytes. If tenants are ignored, so are their pages.
func (b *problemBuilder) hugepagesInUse(m *memoryUse) []uint64 {
	used := make([]uint64, len(m.bytes))
	perNode := false
	for at := range used {
		if node := b.hostNode(at); node != nil {
			perNode = perNode || len(node.Hugepages) > 0
			used[at] = poolsInUse(node.Hugepages)
		}
	}
	if !perNode {
		used = m.spread(poolsInUse(b.host.Memory.Hugepages), m.usable)
	}
	if b.lab.Tenants == lab.TenantsIgnore && slices.Max(used) > 0 {
		b.note("hugepages that are in use are not taken off: the lab ignores other VMs")
		return make([]uint64, len(m.bytes))
	}
	return used
}

func poolsInUse(pools []topology.HugepagePool) uint64 {
	sum := uint64(0)
	for _, p := range pools {
		if p.Free == nil || *p.Free >= p.Total {
			continue
		}
		high, low := bits.Mul64(p.Total-*p.Free, p.SizeBytes)
		if high > 0 {
			low = MaxHostMemory
		}
		sum = addUpTo(sum, low)
	}
	return sum
}

// pages has nil for unknown memory.
func (m *memoryUse) pages(pageBytes uint64) []*int64 {
	pages := make([]*int64, len(m.bytes))
	for at, v := range m.bytes {
		switch {
		case m.unusable[at]:
			pages[at] = new(int64(0))
		case v != nil:
			taken := addUpTo(m.reserve[at], m.held[at])
			pages[at] = new(int64((*v - min(*v, taken)) / pageBytes))
		}
	}
	return pages
}

// choosePages takes 1 GiB for auto only if every lab node requests whole GiB, so that pages never round up memory.
func (b *problemBuilder) choosePages() (pageBytes uint64, huge bool) {
	can1GiB, why1GiB := b.canPages(pageBytes1GiB)
	can2MiB, why2MiB := b.canPages(pageBytes2MiB)
	switch b.lab.Hugepages {
	case lab.HugepagesOff:
		return pageBytes2MiB, false
	case lab.Hugepages1GiB:
		if !can1GiB {
			b.fail("", "hugepages", "1GiB: %s: ask for hugepages: %s, or leave it to the planner with auto", why1GiB,
				lab.Hugepages2MiB)
		}
		return pageBytes1GiB, true
	case lab.Hugepages2MiB:
		if !can2MiB {
			b.fail("", "hugepages", "2MiB: %s: leave it to the planner with hugepages: auto, or turn them off", why2MiB)
		}
		return pageBytes2MiB, true
	case lab.HugepagesAuto, "":
	default: // not from the parser
		b.fail("", "hugepages", "%q: want auto, 1GiB, 2MiB or off", string(b.lab.Hugepages))
	}
	broken := func(n lab.Node) bool { return !n.AutoMemory && n.Memory%lab.GiB != 0 }
	if can1GiB && !slices.ContainsFunc(b.lab.Nodes, broken) {
		return pageBytes1GiB, true
	}
	if !can2MiB {
		b.note("no hugepages: %s", why2MiB)
	}
	return pageBytes2MiB, can2MiB
}

// canPages returns the reason if not. The kernel shows a pool for each size that the processor supports. Without any
// pool the architecture decides: x86-64 and arm64 with pages of 4 KiB support both sizes.
func (b *problemBuilder) canPages(size uint64) (ok bool, why string) {
	pools := lists.Flat(b.host.NUMANodes, func(n topology.NUMANode) []topology.HugepagePool { return n.Hugepages })
	if pools = append(pools, b.host.Memory.Hugepages...); len(pools) > 0 {
		sizes := lists.Map(pools, func(p topology.HugepagePool) uint64 { return p.SizeBytes })
		if slices.Contains(sizes, size) {
			return true, ""
		}
		has := lists.Map(lists.Distinct(sizes), func(s uint64) string { return bytesText(min(s, MaxHostMemory)) })
		return false, b.name + " has hugepages of " + listText(has) + " only"
	}
	switch arch := b.host.System.Arch; arch {
	case "", "x86_64", "aarch64":
		return true, ""
	default:
		return false, b.name + " is " + words.Plain(arch) + ", and shows no hugepages of this size"
	}
}

// Firmware without measurements reports these SLIT distances too (ACPI specification, System Locality Information
// Table).
const (
	distanceLocal  = 10
	distanceRemote = 20
)

func (b *problemBuilder) addNodes() {
	b.nodeOf = map[int]int{}
	if len(b.host.NUMANodes) == 0 {
		b.note("the host does not tell its NUMA nodes: planned as one node")
		b.p.NUMANodes = []plan.NUMANode{{ID: 0, Distances: []int{distanceLocal}}}
		b.nodeOf[0] = 0
		return
	}
	// The host's list may have another order than the IDs.
	var order []int
	for i := range b.host.NUMANodes {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(b.host.NUMANodes[i].ID, b.host.NUMANodes[j].ID)
	})
	for at, i := range order {
		id := b.host.NUMANodes[i].ID
		if id < 0 || id >= topology.MaxCPUs { // a nodeset could not name it
			b.fail("", "", "%s: %d is not the number of a NUMA node", b.name, id)
			return
		}
		if _, twice := b.nodeOf[id]; twice {
			b.fail("", "", "%s: NUMA node %d is listed twice", b.name, id)
			return
		}
		b.nodeOf[id] = at
		b.p.NUMANodes = append(b.p.NUMANodes, plan.NUMANode{ID: id})
	}
	for at, i := range order {
		b.p.NUMANodes[at].Distances = b.distances(&b.host.NUMANodes[i], order, at)
	}
}

// distances needs order, which maps each node of the problem to its index in the host's list.
func (b *problemBuilder) distances(n *topology.NUMANode, order []int, own int) []int {
	row := make([]int, len(order))
	known := len(n.Distances) == len(order)
	switch {
	case known:
	case n.Distances == nil && len(order) > 1:
		b.note("the host does not tell the distances between its NUMA nodes: taken as 10 within a node and 20 " +
			"to another")
	case n.Distances != nil:
		b.note("NUMA node %d: %d distances for %d nodes: taken as 10 within the node and 20 to another", n.ID,
			len(n.Distances), len(order))
	}
	for at, i := range order {
		switch {
		case at == own:
			row[at] = distanceLocal
			if known && n.Distances[i] != distanceLocal {
				b.note("NUMA node %d: distance %d to itself: taken as 10", n.ID, n.Distances[i])
			}
		case !known:
			row[at] = distanceRemote
		case n.Distances[i] < distanceLocal:
			// ACPI reserves distances below 10.
			b.note("NUMA node %d: distance %d to another node, less than 10: taken as 20", n.ID, n.Distances[i])
			row[at] = distanceRemote
		case n.Distances[i] > MaxDistance:
			b.note("NUMA node %d: distance %d, more than the 255 that ACPI has: taken as 255", n.ID, n.Distances[i])
			row[at] = MaxDistance
		default:
			row[at] = n.Distances[i]
		}
	}
	return row
}

// hostNode returns nil if the node stands for the whole machine.
func (b *problemBuilder) hostNode(at int) *topology.NUMANode {
	return b.host.NUMANode(b.p.NUMANodes[at].ID)
}

func (b *problemBuilder) nodeSet(at int) topology.CPUSet { return topology.CPUs(b.p.NUMANodes[at].ID) }

// knownNode returns the only node of a machine even for -1, which the kernel reports if the firmware names no node.
func (b *problemBuilder) knownNode(node *int, what string) *int {
	if len(b.p.NUMANodes) == 1 {
		return new(b.p.NUMANodes[0].ID)
	}
	if node == nil {
		return nil
	}
	if _, ok := b.nodeOf[*node]; !ok {
		b.note("%s: NUMA node %d is none of the host's: taken as not known", what, *node)
		return nil
	}
	return new(*node)
}
