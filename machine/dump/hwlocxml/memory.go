package hwlocxml

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// A node is a NUMA node as the file has it.
type node struct {
	e     *element
	id    int
	near  topology.CPUSet // its cpuset: for a node without CPUs, those of its neighbours
	kind  string          // as topology.NUMANode.Kind
	cpus  topology.CPUSet // its own
	built bool            // made up for a file of version 1 without nodes
}

// memoryKinds are the kinds of nodes by their subtypes.
var memoryKinds = map[string]string{"DRAM": "dram", "HBM": "hbm", "MCDRAM": "hbm", "NVM": "nvdimm", "CXL-DRAM": "cxl",
	"CXL-NVM": "cxl", "GPUMemory": "gpu"}

// memoryKind tells a node's kind by its subtype (hwloc: "NUMA nodes: subtype") or by the device that
// its memory was before it became a node.
func memoryKind(e *element) string {
	if kind := memoryKinds[subtypeOf(e)]; kind != "" {
		return kind
	}
	// Specific-purpose memory (SPM) may be HBM or CXL: not told.
	if infoOf(e, "DAXType") == "NVM" || strings.Contains(infoOf(e, "DAXParent"), "/ndbus") {
		return "nvdimm"
	}
	return ""
}

// readNodes reads the NUMA nodes.
func (p *parser) readNodes() {
	byID := map[int]*element{}
	for e := range objectsOf(p.machine) {
		if kindOf(e) != "NUMANode" {
			continue
		}
		near, _ := p.set(e, "cpuset", p.pus)
		n := &node{e: e, id: p.indexOrSet(e, "nodeset", "node"), kind: memoryKind(e), near: near.Intersect(p.online)}
		if first := byID[n.id]; first != nil {
			p.fail(e, "second NUMA node %d; the first is at line %d", n.id, first.Line)
			return
		}
		if byID[n.id] = e; len(byID) > maxNodes {
			p.fail(e, "more than %d NUMA nodes", maxNodes)
			return
		}
		p.nodes = append(p.nodes, n)
	}
	// hwloc 1.x makes no node where the machine is one: memory is the machine's. hwloc 2 reads such
	// a file as one node, number 0.
	if len(p.nodes) == 0 && p.version == 1 {
		p.nodes = []*node{{e: p.machine, near: p.online, built: true}}
	}
	ownCPUs(p.nodes)
	mode := p.memoryMode()
	for _, n := range p.nodes {
		p.addNode(n, mode)
	}
	slices.SortFunc(p.h.NUMANodes, func(a, b topology.NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	p.findHidden()
	p.sumMemory()
}

// ownCPUs gives each CPU to one node.
//
// The CPUs of an object of hwloc 2 are those it is near: a node of HBM, of persistent memory or on
// a CXL card has no CPUs and stands beside the node that has them, with the same cpuset. The kernel
// gives a CPU one node and those none; so does hwloc where it writes version 1 (its fakeKNL and
// rootattachednumas dumps, in both versions, show it). So the first node takes its CPUs, and one
// that would share some has none.
//
// Ordinary memory comes first, then smaller sets, since what is near a whole machine is not near
// one part; then lower numbers: on x86 the kernel numbers the nodes with CPUs before those without,
// because it reads the CPUs of the SRAT table first (drivers/acpi/numa/srat.c, acpi_numa_init); on
// POWER GPU memory has the highest numbers.
func ownCPUs(nodes []*node) {
	order := slices.Clone(nodes)
	slices.SortFunc(order, func(a, b *node) int {
		return cmp.Or(cmp.Compare(special(a), special(b)), cmp.Compare(a.near.Len(), b.near.Len()),
			cmp.Compare(a.id, b.id))
	})
	var taken topology.CPUSet
	for _, n := range order {
		if !n.near.Overlaps(taken) {
			n.cpus = n.near
			taken = taken.Union(n.near)
		}
	}
}

// special returns 1 for memory that comes beside ordinary memory: of another kind, or once a device
// (DAX) that was made a node.
func special(n *node) int {
	ordinary := n.kind == "" || n.kind == "dram"
	if !ordinary || subtypeOf(n.e) == "SPM" || infoOf(n.e, "DAXDevice") != "" {
		return 1
	}
	return 0
}

// memoryMode returns how Knights Landing uses its MCDRAM, which the machine or the package says:
// "flat", "cache", "hybrid50".
func (p *parser) memoryMode() string {
	for e := range objectsOf(p.machine) {
		if mode := infoOf(e, "MemoryMode"); mode != "" {
			return strings.ToLower(mode)
		}
	}
	return ""
}

// addNode adds a node to the host.
func (p *parser) addNode(n *node, mode string) {
	out := topology.NUMANode{ID: n.id, CPUs: n.cpus, Kind: n.kind}
	// hwloc leaves local_memory out where it is 0, and where it was not read: not known. Then the
	// counts of pages were not read either.
	if size, ok := p.number(n.e, "local_memory"); ok {
		out.MemoryBytes = &size
		out.Hugepages = p.hugepages(n.e)
	}
	if subtypeOf(n.e) == "MCDRAM" {
		out.MemoryMode = mode
	}
	if n.kind == "gpu" {
		if a, err := topology.ParsePCIAddr(infoOf(n.e, "PCIBusID")); err == nil {
			out.GPU = &a
		}
	}
	p.h.NUMANodes = append(p.h.NUMANodes, out)
}

// hugepages returns the pools of a node. The smallest pages are the ordinary ones, of 4 KiB or on
// other architectures 16 or 64 KiB.
func (p *parser) hugepages(e *element) []topology.HugepagePool {
	var pools []topology.HugepagePool
	for k := range e.All("page_type") {
		size, hasSize := p.number(k, "size")
		count, hasCount := p.number(k, "count")
		if hasSize && hasCount && size > 0 {
			pools = append(pools, topology.HugepagePool{SizeBytes: size, Total: count})
		}
	}
	slices.SortStableFunc(pools, func(a, b topology.HugepagePool) int { return cmp.Compare(a.SizeBytes, b.SizeBytes) })
	pools = slices.CompactFunc(pools, func(a, b topology.HugepagePool) bool { return a.SizeBytes == b.SizeBytes })
	if len(pools) < 2 {
		return nil
	}
	return pools[1:]
}

// findHidden finds the nodes that the machine has and the file does not describe: a cgroup may hide them.
func (p *parser) findHidden() {
	described := lists.Map(lists.Filter(p.nodes, func(n *node) bool { return n.id < topology.MaxCPUs }),
		func(n *node) int { return n.id })
	all := topology.CPUs(described...)
	complete, _ := p.set(p.machine, "complete_nodeset", all)
	if p.hidden = complete.Difference(all); !p.hidden.IsEmpty() {
		p.unread(p.machine, "complete_nodeset also has NUMA nodes %s, which are not described: not allowed to "+
			"whoever made the dump", p.hidden)
	}
}

// sumMemory adds up the nodes where all of the machine's are there. The kernel's MemTotal is that sum.
func (p *parser) sumMemory() {
	var sum uint64
	for i := range p.h.NUMANodes {
		size := p.h.NUMANodes[i].MemoryBytes
		if size == nil || sum+*size < sum {
			return
		}
		sum += *size
	}
	if sum > 0 && p.hidden.IsEmpty() {
		p.h.Memory.TotalBytes = &sum
	}
}
