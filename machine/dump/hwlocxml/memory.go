package hwlocxml

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

type node struct {
	e     *element
	id    int
	near  topology.CPUSet // a node without CPUs has the CPUs of its neighbours
	kind  string          // values as in topology.NUMANode.Kind
	cpus  topology.CPUSet
	built bool // for a file of version 1 without nodes
}

var memoryKinds = map[string]string{"DRAM": "dram", "HBM": "hbm", "MCDRAM": "hbm", "NVM": "nvdimm", "CXL-DRAM": "cxl",
	"CXL-NVM": "cxl", "GPUMemory": "gpu"}

// memoryKind returns a kind from the subtype (hwloc: "NUMA nodes: subtype"), or from a former DAX device.
func memoryKind(e *element) string {
	if kind := memoryKinds[subtypeOf(e)]; kind != "" {
		return kind
	}
	// Specific-purpose memory (SPM) may be HBM or CXL.
	if infoOf(e, "DAXType") == "NVM" || strings.Contains(infoOf(e, "DAXParent"), "/ndbus") {
		return "nvdimm"
	}
	return ""
}

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
	// hwloc 1.x makes no node object for a single node. hwloc 2 reads such a file as node 0.
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

// ownCPUs assigns each CPU to one node.
//
// In hwloc 2 a node of HBM, of persistent memory or on a CXL card has the same cpuset as its neighbour with CPUs. The
// kernel assigns a CPU to one node; so does hwloc when it writes version 1 (its fakeKNL and rootattachednumas dumps
// show it). So the first node takes its CPUs, and a node that would share some has none.
//
// Ordinary memory comes first, then smaller sets, since memory near the whole machine is not near one part, then lower
// numbers. On x86 the kernel numbers the nodes with CPUs before the others (drivers/acpi/numa/srat.c, acpi_numa_init);
// on POWER GPU memory has the highest numbers.
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

// special returns 1 for memory of another kind, or a former DAX device.
func special(n *node) int {
	ordinary := n.kind == "" || n.kind == "dram"
	if !ordinary || subtypeOf(n.e) == "SPM" || infoOf(n.e, "DAXDevice") != "" {
		return 1
	}
	return 0
}

// hasNoMemory reports whether a node without local_memory has none. hwloc omits the attribute both if it is 0 and if it
// was not read, but it reads that of all nodes in the same way. Nodes hidden by a cpuset look the same, except that
// CPUs were hidden too.
func (p *parser) hasNoMemory(n *node) bool {
	told := func(o *node) bool {
		_, ok := o.e.Lookup("local_memory")
		return ok
	}
	if told(n) || !slices.ContainsFunc(p.nodes, told) {
		return false
	}
	own, ok := p.set(n.e, "nodeset", p.online)
	allowed, all := p.set(p.machine, "allowed_cpuset", p.online)
	return !ok || !own.IsEmpty() || !all || p.online.IsSubsetOf(allowed)
}

// memoryMode returns how Knights Landing uses its MCDRAM: "flat", "cache", "hybrid50", from the machine or the package.
func (p *parser) memoryMode() string {
	for e := range objectsOf(p.machine) {
		if mode := infoOf(e, "MemoryMode"); mode != "" {
			return strings.ToLower(mode)
		}
	}
	return ""
}

func (p *parser) addNode(n *node, mode string) {
	out := topology.NUMANode{ID: n.id, CPUs: n.cpus, Kind: n.kind}
	// Without the memory, pages were not counted either.
	if size, ok := p.number(n.e, "local_memory"); ok || p.hasNoMemory(n) {
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

// hugepages leaves out the smallest pages, the base pages (4 KiB, on other architectures also 16 or 64 KiB).
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

// findHidden finds nodes that the file does not describe, for example because of a cgroup.
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

// sumMemory sums the nodes, like the kernel's MemTotal, if all are known.
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
