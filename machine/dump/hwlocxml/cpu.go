package hwlocxml

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/machine/topology"
)

func (p *parser) readCPUStates() {
	p.readPUs()
	cpuset, _ := p.set(p.machine, "cpuset", p.pus)
	if p.pus.IsEmpty() {
		p.pus = cpuset // cores and PUs were filtered out
	}
	if cpuset.IsEmpty() {
		cpuset = p.pus
	}
	// In version 1, cpuset has the CPUs that are online and allowed to the dump's author, online_cpuset all online
	// CPUs, complete_cpuset all possible ones. Version 2 has no online_cpuset, and hwloc 2 repeats cpuset there when it
	// writes version 1.
	online, hasOnline := p.set(p.machine, "online_cpuset", p.pus)
	if !hasOnline || p.version > 1 {
		online, hasOnline = cpuset, false
	}
	complete, hasComplete := p.set(p.machine, "complete_cpuset", online)
	allowed, hasAllowed := p.set(p.machine, "allowed_cpuset", cpuset)

	p.online, p.h.CPUs.Online = online, online
	if !hasComplete {
		return
	}
	rest := complete.Difference(online)
	switch {
	case rest.IsEmpty():
		p.h.CPUs.Present, p.h.CPUs.Offline = &complete, &rest
	// CPUs that are not shown are offline, unless the dump was made inside a cgroup. If the file does show CPUs that
	// are not allowed, or distinguishes online from allowed ones, the rest is offline. These CPUs need not be present:
	// hwloc counts all possible CPUs, as /sys/devices/system/cpu/offline does.
	case hasAllowed && !allowed.Equal(cpuset), hasOnline && (!online.Equal(cpuset) || p.wroteVersion1()):
		p.h.CPUs.Offline = &rest
	default:
		p.unread(p.machine, "complete_cpuset also has CPUs %s: they are offline, or not allowed to whoever made "+
			"the dump", rest)
	}
}

// readPUs collects the numbers of all PU objects. A duplicate number indicates a file that joins several machines, as
// hwloc-assembler made them.
func (p *parser) readPUs() {
	var numbers []int
	seen := map[int]*element{}
	for e := range objectsOf(p.machine) {
		if kindOf(e) != "PU" {
			continue
		}
		n := p.puNumber(e)
		if first := seen[n]; first != nil {
			p.fail(e, "second PU with os_index %d; the first is at line %d: a file that joins several machines is "+
				"not read", n, first.Line)
			return
		}
		seen[n] = e
		numbers = append(numbers, n)
	}
	p.pus = topology.CPUs(numbers...)
}

func (p *parser) puNumber(e *element) int {
	n := p.indexOrSet(e, "cpuset", "CPU")
	if n >= topology.MaxCPUs {
		p.fail(e, "os_index %d; CPUs are numbered up to %d", n, topology.MaxCPUs-1)
		return 0
	}
	return n
}

// cpus returns the online CPUs of its cpuset or, without one, of the PUs in it.
func (p *parser) cpus(e *element) topology.CPUSet {
	set, ok := p.set(e, "cpuset", p.pus)
	if !ok {
		for k := range objectsOf(e) {
			if kindOf(k) == "PU" {
				set = set.Union(topology.CPUs(p.puNumber(k)))
			}
		}
	}
	return set.Intersect(p.online)
}

func (p *parser) readCPUs() {
	p.h.System.CPUModel = infoOf(p.machine, "CPUModel") // hwloc 1.7 and before
	const none = -1
	var walk func(e *element, pkg int)
	walk = func(e *element, pkg int) {
		switch kindOf(e) {
		case "Package":
			pkg = len(p.h.Packages)
			p.addPackage(e)
		case "Die":
			if pkg != none { // the model only has dies in packages
				p.addDie(e, &p.h.Packages[pkg])
			}
		case "L3Cache", "Cache":
			p.addL3(e)
		case "Core":
			p.addCore(e)
		}
		for k := range e.All("object") {
			walk(k, pkg)
		}
	}
	walk(p.machine, none)
}

func (p *parser) addPackage(e *element) {
	id, ok := p.osIndex(e)
	if !ok {
		id = topology.NoID
	}
	model := infoOf(e, "CPUModel")
	p.h.System.CPUModel = cmp.Or(p.h.System.CPUModel, model)
	p.h.Packages = append(p.h.Packages, topology.Package{ID: id, CPUs: p.cpus(e), Model: model})
}

func (p *parser) addDie(e *element, pkg *topology.Package) {
	id, ok := p.osIndex(e)
	if !ok {
		id = len(pkg.Dies)
	}
	pkg.Dies = append(pkg.Dies, topology.Die{ID: id, CPUs: p.cpus(e)})
}

// addL3 knows version 1, with one type for all caches, the level in depth, and cache_type 2 for instruction caches.
func (p *parser) addL3(e *element) {
	if kindOf(e) == "Cache" {
		if depth, _ := p.number(e, "depth"); depth != 3 || e.Attr("cache_type") == "2" {
			return
		}
	}
	cpus := p.cpus(e)
	if cpus.IsEmpty() || !p.claim(e, cpus, &p.inL3, "L3 cache") {
		return
	}
	l3 := topology.L3{CPUs: cpus}
	if size, ok := p.number(e, "cache_size"); ok && size > 0 { // unknown: POWER and virtual machines
		l3.SizeBytes = &size
	}
	p.h.L3 = append(p.h.L3, l3)
}

func (p *parser) addCore(e *element) {
	cpus := p.cpus(e)
	if cpus.IsEmpty() || !p.claim(e, cpus, &p.inCore, "core") {
		return
	}
	core := topology.Core{CPUs: cpus}
	if id, ok := p.osIndex(e); ok {
		core.OSID = &id
	}
	p.h.Cores = append(p.h.Cores, core)
}

// claim refuses objects of one type that share CPUs, which also bounds their number.
func (p *parser) claim(e *element, cpus topology.CPUSet, claimed *topology.CPUSet, what string) bool {
	if cpus.Overlaps(*claimed) {
		p.fail(e, "CPUs %s are in another %s too", cpus.Intersect(*claimed), what)
		return false
	}
	*claimed = claimed.Union(cpus)
	return true
}

// A cpuKind is from version 2.4 and later.
type cpuKind struct {
	cpus       topology.CPUSet
	coreType   string  // Intel: IntelCore, IntelAtom
	maxMHz     *uint64 // highest frequency, with turbo
	capacity   *uint64 // Linux on ARM: 1024 is the fastest
	efficiency *uint64 // set by the user: higher is faster
}

// maxMHz bounds a plausible frequency.
const maxMHz = 1e6

func (p *parser) readKinds() {
	var kinds []cpuKind
	for e := range p.top.All("cpukind") {
		k := cpuKind{coreType: infoOf(e, "CoreType"), maxMHz: decimal(infoOf(e, "FrequencyMaxMHz")),
			capacity: decimal(infoOf(e, "LinuxCapacity"))}
		k.cpus, _ = p.set(e, "cpuset", p.pus)
		if v, ok := p.number(e, "forced_efficiency"); ok {
			k.efficiency = &v
		}
		kinds = append(kinds, k)
	}
	fast := fastest(kinds)
	for i := range p.h.Cores {
		c := &p.h.Cores[i]
		for j, k := range kinds {
			if !k.cpus.Contains(c.CPUs.Min()) {
				continue
			}
			if k.maxMHz != nil && *k.maxMHz < maxMHz {
				c.MaxKHz = new(int64(*k.maxMHz * 1000))
			}
			if fast != nil {
				c.Kind = topology.KindEfficiency
				if fast[j] {
					c.Kind = topology.KindPerformance
				}
			}
		}
	}
}

// fastest reports for each kind whether its cores are performance cores, or returns nil. It tries Intel's core types,
// then the capacity that Linux gives CPUs on ARM, then a forced efficiency. A higher frequency alone does not count: on
// many machines some cores turbo higher than identical others.
//
// Source: hwloc's documentation, "Kinds of CPU cores" and "Object attributes".
func fastest(kinds []cpuKind) []bool {
	intel := func(k cpuKind) *uint64 {
		rank, ok := map[string]uint64{"IntelAtom": 0, "IntelCore": 1}[k.coreType]
		if !ok {
			return nil
		}
		return &rank
	}
	for _, value := range []func(cpuKind) *uint64{
		intel,
		func(k cpuKind) *uint64 { return k.capacity },
		func(k cpuKind) *uint64 { return k.efficiency },
	} {
		if fast := highest(kinds, value); fast != nil {
			return fast
		}
	}
	return nil
}

// highest marks the kinds with the highest value, or returns nil if a kind has none or all are equal.
func highest(kinds []cpuKind, value func(cpuKind) *uint64) []bool {
	values := make([]uint64, len(kinds))
	for i, k := range kinds {
		v := value(k)
		if v == nil {
			return nil
		}
		values[i] = *v
	}
	if len(slices.Compact(slices.Clone(values))) < 2 {
		return nil
	}
	out := make([]bool, len(kinds))
	for i, v := range values {
		out[i] = v == slices.Max(values)
	}
	return out
}
