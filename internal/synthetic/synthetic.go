// Package synthetic makes machines from one line of text, in the language of hwloc's lstopo -i. It
// is for tests and benchmarks: no such machine was read.
package synthetic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/topology"
)

// Limits of a description. The largest kernels are built for 8192 CPUs and 1024 NUMA nodes.
const (
	maxCPUs   = 8192
	maxNodes  = 1024
	maxLevels = 32
)

// Distances of nodes that no description can state: what firmware reports when it measured nothing.
const (
	localDistance  = 10
	remoteDistance = 20
)

// An Error is a description that cannot be read.
type Error struct {
	In     string // as it was given, shortened to 80 bytes
	Offset int    // in bytes from the start, where it goes wrong
	Why    string
}

func (e *Error) Error() string {
	return fmt.Sprintf("machine %q: at byte %d: %s", e.In, e.Offset, e.Why)
}

// Host returns the machine that a line describes, in the language of lstopo -i: levels from
// the outside in, each with how many are in one of the level above.
//
//	pack:2 numa:2 l3:4 core:4 pu:2
//	numa:2(memory=64GiB) pack:1 core:8 pu:2(indexes=core:numa)
//	pack:2 [numa(memory=64GiB)] [numa(memory=16GiB)] core:8 pu:2
//
// Levels are pack (package, socket), die, numa (node, numanode), group, l1 to l5 (also l1d, l1i,
// and with "cache" behind), core and pu, in upper or lower case. The last is pu, whatever it is
// called or not. Numbers alone are levels of the types that hwloc would take. [numa] adds a node to
// each object of the level before it, or to the machine: the first one near CPUs has them, others
// are memory alone. Without any node the machine is one.
//
// Attributes stand in parentheses: memory of a node and size of a cache, in bytes or with kB, MB,
// GB, TB (powers of 1000, as hwloc since 2.8 takes them), KiB, MiB, GiB, TiB; indexes as the
// operating system numbers the objects of the level: "0,2,1,3", "2*4:1*2" (loops of step and count,
// the fastest first) or "core:pack" (the same by levels: first over the cores of a package, then
// over the packages). Without indexes objects are numbered as they come.
//
// What is not stated is not known: memory and sizes are absent. Distances are 10 and 20. A
// description without cores makes a machine without. An error is of type *Error.
func Host(desc string) (*topology.Host, error) {
	p := &parser{in: desc}
	if err := p.parse(); err != nil {
		return nil, err
	}
	m := machine{parser: p, h: &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceSynthetic, Name: desc}}}
	for i := range p.levels {
		numbers, err := p.numbers(&p.levels[i], p.levels[i].width)
		if err != nil {
			return nil, err
		}
		m.ids = append(m.ids, numbers)
	}
	if err := m.addNodes(); err != nil {
		return nil, err
	}
	m.addCPUs()
	m.h.Complete()
	m.h.Provenance.Filled = m.h.Parts()
	return m.h, nil
}

// A machine is one in the making. Objects of a level are named by their place in it.
type machine struct {
	*parser
	ids [][]int // of each level: the operating system's number of each object
	h   *topology.Host
}

// find returns the outermost level of a type, -1 where there is none.
func (m *machine) find(kind string) int {
	return slices.IndexFunc(m.levels, func(l level) bool { return l.kind == kind })
}

// width is the number of objects of a level; 0 where there is no such level.
func (m *machine) width(level int) int {
	if level < 0 {
		return 0
	}
	return m.levels[level].width
}

// cpus returns the CPUs of an object.
func (m *machine) cpus(level, place int) topology.CPUSet {
	all := m.ids[len(m.ids)-1]
	each := len(all) / m.width(level)
	return topology.CPUs(all[place*each : (place+1)*each]...)
}

// above returns the number of the object of level upper that an object of level lower is in; nil
// where there is no such level.
func (m *machine) above(upper, lower, place int) *int {
	if upper < 0 {
		return nil
	}
	return new(m.ids[upper][place*m.width(upper)/m.width(lower)])
}

// addCPUs fills in packages, dies, L3 caches, cores and CPUs.
func (m *machine) addCPUs() {
	h := m.h
	packages, dies, l3, cores := m.find("pack"), m.find("die"), m.find("l3"), m.find("core")
	for i := range m.width(packages) {
		p := topology.Package{ID: m.ids[packages][i], CPUs: m.cpus(packages, i)}
		each := m.width(dies) / m.width(packages)
		for d := i * each; d < (i+1)*each; d++ {
			p.Dies = append(p.Dies, topology.Die{ID: m.ids[dies][d], CPUs: m.cpus(dies, d)})
		}
		slices.SortFunc(p.Dies, func(a, b topology.Die) int { return cmp.Compare(a.ID, b.ID) })
		h.Packages = append(h.Packages, p)
	}
	for i := range m.width(l3) {
		h.L3 = append(h.L3, topology.L3{CPUs: m.cpus(l3, i), SizeBytes: m.levels[l3].size})
	}
	for i := range m.width(cores) {
		h.Cores = append(h.Cores, topology.Core{
			OSID: new(m.ids[cores][i]), Package: m.above(packages, cores, i), Die: m.above(dies, cores, i),
			CPUs: m.cpus(cores, i),
		})
	}
	all := m.cpus(0, 0)
	h.CPUs = topology.CPUStates{Present: &all, Online: all, Offline: &topology.CPUSet{}}
}

// addNodes fills in the NUMA nodes: a level of them, nodes attached to other levels, or one.
func (m *machine) addNodes() error {
	var nodes []topology.NUMANode
	add := func(level, place int, size *uint64) {
		nodes = append(nodes, topology.NUMANode{CPUs: m.cpus(level, place), MemoryBytes: size})
	}
	numa, given := m.find("numa"), level{}
	for _, l := range m.levels {
		for _, a := range l.attached {
			if a.indexes != "" && given.indexes != "" {
				return m.fail(a.numbered, "indexes of attached nodes are given once, for all of them")
			}
			if a.indexes != "" {
				given = a
			}
		}
	}
	for i := range m.width(numa) {
		add(numa, i, m.levels[numa].size)
		given = m.levels[numa]
	}
	if m.attach(0, 0, add); len(nodes) == 0 {
		add(0, 0, nil)
	}
	ids, err := m.numbers(&given, len(nodes))
	if err != nil {
		return err
	}
	for i := range nodes {
		nodes[i].ID = ids[i]
	}
	ownCPUs(nodes)
	slices.SortFunc(nodes, func(a, b topology.NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	m.h.NUMANodes = nodes
	m.measure()
	return nil
}

// attach adds the nodes beside the objects below a place, then those beside the object itself: so hwloc numbers them.
func (m *machine) attach(level, place int, add func(level, place int, size *uint64)) {
	if level+1 < len(m.levels) {
		each := m.levels[level+1].count
		for i := range each {
			m.attach(level+1, place*each+i, add)
		}
	}
	for _, a := range m.levels[level].attached {
		add(level, place, a.size)
	}
}

// ownCPUs leaves each CPU to one node, as a kernel does: to the one with the fewest, then to the
// one with the lowest number.
func ownCPUs(nodes []topology.NUMANode) {
	order := make([]*topology.NUMANode, len(nodes))
	for i := range nodes {
		order[i] = &nodes[i]
	}
	slices.SortFunc(order, func(a, b *topology.NUMANode) int {
		return cmp.Or(cmp.Compare(a.CPUs.Len(), b.CPUs.Len()), cmp.Compare(a.ID, b.ID))
	})
	var taken topology.CPUSet
	for _, n := range order {
		if n.CPUs.Overlaps(taken) {
			n.CPUs = topology.CPUSet{}
		}
		taken = taken.Union(n.CPUs)
	}
}

// measure fills in distances and the sum of the memory.
func (m *machine) measure() {
	nodes := m.h.NUMANodes
	var sum uint64
	known := true
	for i := range nodes {
		nodes[i].Distances = slices.Repeat([]int{remoteDistance}, len(nodes))
		nodes[i].Distances[i] = localDistance
		if nodes[i].MemoryBytes == nil || sum+*nodes[i].MemoryBytes < sum {
			known = false
			continue
		}
		sum += *nodes[i].MemoryBytes
	}
	if known {
		m.h.Memory.TotalBytes = &sum
	}
}
