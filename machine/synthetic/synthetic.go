// Package synthetic makes imaginary machines from one line of text, for tests.
package synthetic

import (
	"cmp"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
)

// The largest kernels support 8192 CPUs and 1024 NUMA nodes.
const (
	maxCPUs  = 8192
	maxNodes = 1024
)

// Firmware reports these values if it has not measured.
const (
	localDistance  = 10
	remoteDistance = 20
)

// Host returns the machine that a line describes, in a subset of lstopo -i's language: levels from the outside in, each
// with its number per object of the level above.
//
//	pack:2 numa:2 l3:4 core:4 pu:2
//	numa:2(memory=64GiB) pack:1 core:8 pu:2
//	pack:2 [numa(memory=64GiB)] [numa(memory=16GiB)] l3:1(size=32MiB) core:8 pu:2
//
// Levels are pack, die, numa, l3, core and pu, which is the last. [numa] adds a node to each object of the level before
// it, or to the machine: the first node near CPUs gets them, others have only memory. Without any numa the machine is
// one node.
//
// Memory and cache sizes that are not stated are absent. Distances are 10 and 20.
func Host(desc string) (*topology.Host, error) {
	levels, err := parse(desc)
	if err != nil {
		return nil, fmt.Errorf("machine %.80q: %w", desc, err)
	}
	m := machine{levels, &topology.Host{
		Provenance: topology.Provenance{Kind: topology.SourceSynthetic, Name: desc}}}
	m.addNodes()
	m.addCPUs()
	m.h.Complete()
	m.h.Provenance.Filled = m.h.Parts()
	return m.h, nil
}

type level struct {
	kind     string
	each     int       // per object of the level above
	width    int       // number in the machine
	size     *uint64   // of a node or cache, if stated
	attached []*uint64 // memory of nodes at each object
}

// Nodes may be anywhere outside of cores.
var places = map[string]int{"numa": 0, "pack": 1, "die": 2, "l3": 3, "core": 4, "pu": 5}

var (
	levelWord = regexp.MustCompile(`^(pack|die|numa|l3|core|pu):([1-9]\d{0,3})(?:\((memory|size)=(\d+)([KMGT])iB\))?$`)
	nodeWord  = regexp.MustCompile(`^\[numa(?:\(memory=(\d+)([KMGT])iB\))?\]$`)
)

// parse returns the machine as the first level.
func parse(desc string) ([]level, error) {
	levels := []level{{kind: "machine", each: 1, width: 1}}
	for word := range strings.FieldsSeq(desc) {
		last := &levels[len(levels)-1]
		l := level{each: 1}
		var number, unit string
		if m := nodeWord.FindStringSubmatch(word); m != nil {
			number, unit = m[1], m[2]
		} else if m := levelWord.FindStringSubmatch(word); m != nil && attributeOf(m[1], m[3]) {
			l.kind, number, unit = m[1], m[4], m[5]
			l.each, _ = strconv.Atoi(m[2])
		} else {
			return nil, fmt.Errorf("%.40q is not a level; want pack, die, numa, l3, core or pu as \"core:4\", "+
				"\"numa:2(memory=16GiB)\", \"l3:2(size=32MiB)\", or \"[numa(memory=16GiB)]\"", word)
		}
		if number != "" {
			v, err := strconv.ParseUint(number, 10, 64)
			high, bytes := bits.Mul64(v, 1<<(10+10*strings.Index("KMGT", unit)))
			if err != nil || high > 0 {
				return nil, fmt.Errorf("%.40q is too large", word)
			}
			l.size = &bytes
		}
		if l.kind == "" {
			last.attached = append(last.attached, l.size)
			continue
		}
		if l.width = last.width * l.each; l.width > maxCPUs {
			return nil, fmt.Errorf("%d objects of %s; at most %d are made", l.width, l.kind, maxCPUs)
		}
		levels = append(levels, l)
	}
	return levels, check(levels)
}

func attributeOf(kind, name string) bool {
	return name == "" || name == map[string]string{"numa": "memory", "l3": "size"}[kind]
}

// check rejects a package inside a core.
func check(levels []level) error {
	seen := map[string]bool{}
	outer := "" // last level other than nodes
	nodes := 0
	for _, l := range levels {
		if seen[l.kind] {
			return fmt.Errorf("a second level of %s", l.kind)
		}
		seen[l.kind] = true
		switch place := places[l.kind]; {
		case l.kind == "numa" && places[outer] >= places["core"], place > 0 && place < places[outer]:
			return fmt.Errorf("%s inside of %s", l.kind, outer)
		case l.kind == "numa":
			nodes += l.width
		case place > 0:
			outer = l.kind
		}
		if len(l.attached) > 0 && places[outer] >= places["core"] {
			return fmt.Errorf("a NUMA node for each %s", l.kind)
		}
		if nodes += l.width * len(l.attached); nodes > maxNodes {
			return fmt.Errorf("%d NUMA nodes; at most %d are made", nodes, maxNodes)
		}
	}
	attached := slices.ContainsFunc(levels, func(l level) bool { return l.attached != nil })
	switch {
	case levels[len(levels)-1].kind != "pu":
		return fmt.Errorf("the last level is %s; want pu, as in %q", levels[len(levels)-1].kind, "pack:2 core:4 pu:2")
	case seen["die"] && !seen["pack"]:
		return fmt.Errorf("dies without packages")
	case seen["numa"] && attached:
		return fmt.Errorf("NUMA nodes both as a level and attached")
	}
	return nil
}

// A machine has objects by index in the level.
type machine struct {
	levels []level
	h      *topology.Host
}

func (m *machine) find(kind string) int {
	return slices.IndexFunc(m.levels, func(l level) bool { return l.kind == kind })
}

func (m *machine) width(level int) int {
	if level < 0 {
		return 0
	}
	return m.levels[level].width
}

func (m *machine) cpus(level, place int) topology.CPUSet {
	each := m.width(len(m.levels)-1) / m.width(level)
	return topology.CPURange(place*each, (place+1)*each-1)
}

func (m *machine) addCPUs() {
	h := m.h
	packages, dies, l3, cores := m.find("pack"), m.find("die"), m.find("l3"), m.find("core")
	for i := range m.width(packages) {
		h.Packages = append(h.Packages, topology.Package{ID: i, CPUs: m.cpus(packages, i)})
	}
	for i := range m.width(dies) {
		p := &h.Packages[i*m.width(packages)/m.width(dies)]
		p.Dies = append(p.Dies, topology.Die{ID: i, CPUs: m.cpus(dies, i)})
	}
	for i := range m.width(l3) {
		h.L3 = append(h.L3, topology.L3{CPUs: m.cpus(l3, i), SizeBytes: m.levels[l3].size})
	}
	for i := range m.width(cores) {
		h.Cores = append(h.Cores, topology.Core{OSID: new(i), CPUs: m.cpus(cores, i)})
	}
	all := m.cpus(0, 0)
	h.CPUs = topology.CPUStates{Present: &all, Online: all, Offline: &topology.CPUSet{}}
}

// addNodes sets the total memory if all nodes state theirs.
func (m *machine) addNodes() {
	if numa := m.find("numa"); numa >= 0 {
		for i := range m.width(numa) {
			m.addNode(numa, i, m.levels[numa].size)
		}
	}
	if m.attach(0, 0); len(m.h.NUMANodes) == 0 {
		m.addNode(0, 0, nil)
	}
	nodes := m.h.NUMANodes
	ownCPUs(nodes)
	sum, known := uint64(0), true
	for i := range nodes {
		nodes[i].Distances = slices.Repeat([]int{remoteDistance}, len(nodes))
		nodes[i].Distances[i] = localDistance
		if known = known && nodes[i].MemoryBytes != nil && sum+*nodes[i].MemoryBytes >= sum; known {
			sum += *nodes[i].MemoryBytes
		}
	}
	if known {
		m.h.Memory.TotalBytes = &sum
	}
}

func (m *machine) addNode(level, place int, memory *uint64) {
	m.h.NUMANodes = append(m.h.NUMANodes, topology.NUMANode{ID: len(m.h.NUMANodes), CPUs: m.cpus(level, place),
		MemoryBytes: memory})
}

// attach follows hwloc's order.
func (m *machine) attach(level, place int) {
	if level+1 < len(m.levels) {
		each := m.levels[level+1].each
		for i := range each {
			m.attach(level+1, place*each+i)
		}
	}
	for _, memory := range m.levels[level].attached {
		m.addNode(level, place, memory)
	}
}

// ownCPUs assigns each CPU as a kernel does: to the node with the fewest CPUs, then to the lowest number.
func ownCPUs(nodes []topology.NUMANode) {
	order := make([]*topology.NUMANode, len(nodes))
	for i := range nodes {
		order[i] = &nodes[i]
	}
	slices.SortStableFunc(order, func(a, b *topology.NUMANode) int { return cmp.Compare(a.CPUs.Len(), b.CPUs.Len()) })
	var taken topology.CPUSet
	for _, n := range order {
		if n.CPUs.Overlaps(taken) {
			n.CPUs = topology.CPUSet{}
		}
		taken = taken.Union(n.CPUs)
	}
}
