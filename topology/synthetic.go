package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// Limits of a description. The largest kernels are built for 8192 CPUs and 1024 NUMA nodes.
const (
	maxSyntheticCPUs   = 8192
	maxSyntheticNodes  = 1024
	maxSyntheticLevels = 32
)

// Distances of nodes that no description can state: what firmware reports when it measured nothing.
const (
	syntheticLocal  = 10
	syntheticRemote = 20
)

// A SyntheticError is a description that cannot be read.
type SyntheticError struct {
	In     string // as it was given, shortened to 80 bytes
	Offset int    // in bytes from the start, where it goes wrong
	Why    string
}

func (e *SyntheticError) Error() string {
	return fmt.Sprintf("machine %q: at byte %d: %s", e.In, e.Offset, e.Why)
}

// Synthetic returns the machine that a line describes, in the language of lstopo -i: levels from
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
// description without cores makes a machine without. An error is of type *SyntheticError.
func Synthetic(desc string) (*Host, error) {
	p := synthParser{in: desc}
	levels, err := p.parse()
	if err != nil {
		return nil, err
	}
	s := synthetic{in: desc, levels: levels, h: &Host{Provenance: Provenance{Kind: SourceSynthetic, Name: desc}}}
	if err := s.number(); err != nil {
		return nil, err
	}
	if err := s.addNodes(); err != nil {
		return nil, err
	}
	s.addCPUs()
	s.h.Complete()
	s.h.Provenance.Filled = s.h.Parts()
	return s.h, nil
}

// A synthetic is a machine in the making.
type synthetic struct {
	in     string
	levels []synthLevel // the machine, then as described
	h      *Host
}

// A synthLevel is a level of the tree: all objects of one type and depth.
type synthLevel struct {
	kind     string // "machine", "pack", "die", "numa", "group", "l1" ..., "core", "pu"; empty before it is known
	count    int    // in each object of the level above
	width    int    // in the machine
	size     *uint64
	indexes  synthIndexes
	os       []int           // numbers of the operating system, by place
	attached []synthAttached // nodes beside each object
	at       int             // byte of the description
}

// A synthAttached is a node beside each object of a level.
type synthAttached struct {
	size    *uint64
	indexes synthIndexes
	at      int
}

// number fills in the numbers of all levels.
func (s *synthetic) number() error {
	for i := range s.levels {
		l := &s.levels[i]
		os, err := l.indexes.resolve(s.in, l.width, s.levels)
		if err != nil {
			return err
		}
		l.os = os
	}
	return nil
}

// pus is the last level.
func (s *synthetic) pus() *synthLevel { return &s.levels[len(s.levels)-1] }

// level returns the outermost level of a type, or nil.
func (s *synthetic) level(kind string) *synthLevel {
	for i := range s.levels {
		if s.levels[i].kind == kind {
			return &s.levels[i]
		}
	}
	return nil
}

// cpus returns the CPUs of the object at a place of a level.
func (s *synthetic) cpus(l *synthLevel, place int) CPUSet {
	each := s.pus().width / l.width
	return CPUs(s.pus().os[place*each : (place+1)*each]...)
}

// above returns the number of the object of level upper that the object at a place of level lower
// is in; nil where there is no such level.
func above(upper, lower *synthLevel, place int) *int {
	if upper == nil {
		return nil
	}
	return new(upper.os[place*upper.width/lower.width])
}

// addCPUs fills in packages, dies, L3 caches, cores and CPUs.
func (s *synthetic) addCPUs() {
	h := s.h
	packages, dies, l3, cores := s.level("pack"), s.level("die"), s.level("l3"), s.level("core")
	if packages != nil {
		for i := range packages.width {
			p := Package{ID: packages.os[i], CPUs: s.cpus(packages, i)}
			if dies != nil {
				each := dies.width / packages.width
				for d := i * each; d < (i+1)*each; d++ {
					p.Dies = append(p.Dies, Die{ID: dies.os[d], CPUs: s.cpus(dies, d)})
				}
			}
			slices.SortFunc(p.Dies, func(a, b Die) int { return cmp.Compare(a.ID, b.ID) })
			h.Packages = append(h.Packages, p)
		}
	}
	if l3 != nil {
		for i := range l3.width {
			h.L3 = append(h.L3, L3{CPUs: s.cpus(l3, i), SizeBytes: l3.size})
		}
	}
	if cores != nil {
		for i := range cores.width {
			h.Cores = append(h.Cores, Core{
				OSID: new(cores.os[i]), Package: above(packages, cores, i), Die: above(dies, cores, i),
				CPUs: s.cpus(cores, i),
			})
		}
	}
	all := CPUs(s.pus().os...)
	h.CPUs = CPUStates{Present: &all, Online: all, Offline: &CPUSet{}}
}

// addNodes fills in the NUMA nodes: a level of them, nodes attached to other levels, or one.
func (s *synthetic) addNodes() error {
	var nodes []NUMANode
	add := func(l *synthLevel, place int, size *uint64) {
		nodes = append(nodes, NUMANode{CPUs: s.cpus(l, place), MemoryBytes: size})
	}
	var ids []int
	switch level := s.level("numa"); {
	case level != nil:
		for i := range level.width {
			add(level, i, level.size)
		}
		ids = level.os
	case slices.ContainsFunc(s.levels, func(l synthLevel) bool { return l.attached != nil }):
		s.attach(0, 0, add)
		given := synthIndexes{}
		for _, l := range s.levels {
			for _, a := range l.attached {
				if a.indexes.text != "" && given.text != "" {
					return s.errorAt(a.indexes.at, "indexes of attached nodes are given once, for all of them")
				}
				if a.indexes.text != "" {
					given = a.indexes
				}
			}
		}
		var err error
		if ids, err = given.resolve(s.in, len(nodes), s.levels); err != nil {
			return err
		}
	default:
		add(&s.levels[0], 0, nil)
		ids = []int{0}
	}
	for i := range nodes {
		nodes[i].ID = ids[i]
	}
	ownCPUs(nodes)
	slices.SortFunc(nodes, func(a, b NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	s.h.NUMANodes = nodes
	s.measure()
	return nil
}

// attach adds the nodes beside the objects below a place, then those beside the object itself: so hwloc numbers them.
func (s *synthetic) attach(level, place int, add func(*synthLevel, int, *uint64)) {
	if level+1 < len(s.levels) {
		each := s.levels[level+1].count
		for i := range each {
			s.attach(level+1, place*each+i, add)
		}
	}
	for _, a := range s.levels[level].attached {
		add(&s.levels[level], place, a.size)
	}
}

// ownCPUs leaves each CPU to one node, as a kernel does: to the one with the fewest, then to the
// one with the lowest number.
func ownCPUs(nodes []NUMANode) {
	order := make([]*NUMANode, len(nodes))
	for i := range nodes {
		order[i] = &nodes[i]
	}
	slices.SortFunc(order, func(a, b *NUMANode) int {
		return cmp.Or(cmp.Compare(a.CPUs.Len(), b.CPUs.Len()), cmp.Compare(a.ID, b.ID))
	})
	var taken CPUSet
	for _, n := range order {
		if n.CPUs.Overlaps(taken) {
			n.CPUs = CPUSet{}
		}
		taken = taken.Union(n.CPUs)
	}
}

// measure fills in distances and the sum of the memory.
func (s *synthetic) measure() {
	nodes := s.h.NUMANodes
	var sum uint64
	known := true
	for i := range nodes {
		row := make([]int, len(nodes))
		for j := range row {
			row[j] = syntheticRemote
		}
		row[i] = syntheticLocal
		nodes[i].Distances = row
		if nodes[i].MemoryBytes == nil || sum+*nodes[i].MemoryBytes < sum {
			known = false
			continue
		}
		sum += *nodes[i].MemoryBytes
	}
	if known {
		s.h.Memory.TotalBytes = &sum
	}
}

func (s *synthetic) errorAt(at int, format string, args ...any) error {
	return syntheticError(s.in, at, format, args...)
}

func syntheticError(in string, at int, format string, args ...any) error {
	if len(in) > 80 {
		in = in[:80] + "..."
	}
	return &SyntheticError{In: in, Offset: at, Why: fmt.Sprintf(format, args...)}
}
