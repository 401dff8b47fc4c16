package build

import (
	"cmp"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// addCores derives cores from the CPUs of the nodes if the host lists none.
func (b *problemBuilder) addCores() {
	if len(b.host.Cores) > 0 {
		b.takeCores()
	} else {
		b.makeCores()
	}
	slices.SortFunc(b.p.Cores, func(a, c plan.Core) int { return cmp.Compare(a.ID, c.ID) })
	ids, cpus := map[int]bool{}, map[int]bool{}
	for _, c := range b.p.Cores {
		if ids[c.ID] {
			b.fail("", "", "%s: two cores have the number %d", b.name, c.ID)
			return
		}
		ids[c.ID] = true
		for _, cpu := range c.CPUs {
			if cpus[cpu] {
				b.fail("", "", "%s: CPU %d is in two cores", b.name, cpu)
				return
			}
			cpus[cpu] = true
		}
	}
	if len(b.p.Cores) == 0 && len(b.errs) == 0 {
		b.fail("", "", "%s: its CPUs are not known: read the machine itself, or a snapshot of it (rackless host "+
			"snapshot)",
			b.name)
	}
}

func (b *problemBuilder) online(cpus topology.CPUSet) topology.CPUSet {
	if !b.host.CPUs.Online.IsEmpty() {
		cpus = cpus.Intersect(b.host.CPUs.Online)
	}
	if offline := b.host.CPUs.Offline; offline != nil {
		cpus = cpus.Difference(*offline)
	}
	return cpus
}

// takeCores leaves out offline cores, because a plan is for the current state of the host.
func (b *problemBuilder) takeCores() {
	var lost topology.CPUSet
	slow := b.slowCores()
	isolated := b.host.CPUs.Isolated
	for i := range b.host.Cores {
		c := &b.host.Cores[i]
		cpus := b.online(c.CPUs)
		if cpus.IsEmpty() {
			continue
		}
		node, ok := b.nodeOfCore(c)
		if !ok {
			lost = lost.Union(cpus)
			continue
		}
		b.p.Cores = append(b.p.Cores, plan.Core{
			ID: c.ID, CPUs: slices.Collect(cpus.All()), NUMANode: node,
			Package: known(c.Package), L3: known(c.L3), Efficiency: c.Kind == topology.KindEfficiency || slow > 0 &&
				*c.MaxKHz < slow,
			Isolated: isolated != nil && cpus.IsSubsetOf(*isolated),
		})
	}
	if !lost.IsEmpty() {
		b.note("CPUs %s are on none of the host's NUMA nodes: left out", lost)
	}
}

// kindGap is the smallest ratio of highest frequencies between two kinds of cores. Cores of one kind differ by up to a
// tenth, because vendors rate them individually.
const kindGap = 1.2

// slowCores returns the frequency of the core after the widest gap, below which cores count as small, or 0.
func (b *problemBuilder) slowCores() int64 {
	var all []int64
	for _, c := range b.host.Cores {
		if c.Kind != "" || c.MaxKHz == nil || *c.MaxKHz <= 0 {
			return 0
		}
		all = append(all, *c.MaxKHz)
	}
	slices.Sort(all)
	limit, widest := int64(0), kindGap
	for i := range all {
		if i > 0 && float64(all[i])/float64(all[i-1]) >= widest {
			limit, widest = all[i], float64(all[i])/float64(all[i-1])
		}
	}
	if limit > 0 {
		b.note("the host does not tell kinds of cores: those that get less than %d MHz are taken as small", limit/1000)
	}
	return limit
}

func known(p *int) int {
	if p == nil {
		return -1
	}
	return max(*p, -1) // no other negative numbers occur
}

// nodeOfCore also serves dumps that list cores and nodes without their relation.
func (b *problemBuilder) nodeOfCore(c *topology.Core) (int, bool) {
	if c.NUMANode != nil {
		if _, ok := b.nodeOf[*c.NUMANode]; ok {
			return *c.NUMANode, true
		}
	}
	if n := b.host.NodesOf(c.CPUs); len(n) > 0 {
		return n[0], true
	}
	if len(b.p.NUMANodes) == 1 {
		return b.p.NUMANodes[0].ID, true
	}
	return 0, false
}

// makeCores derives cores from the CPUs of the nodes, or of the machine if it has no nodes.
//
// Machines known only by their GPU matrix list CPUs in the order of x86 servers: first one thread of every core, then
// all second threads ("0-47,96-143"). It assumes siblings only if every node has that form with the same distance.
// Taking a core for two would put two lab nodes on one core, and taking two cores for one would waste half a machine,
// so a note states the assumption.
func (b *problemBuilder) makeCores() {
	type place struct {
		node int
		cpus topology.CPUSet
	}
	var places []place
	for at := range b.p.NUMANodes {
		p := place{node: b.p.NUMANodes[at].ID}
		if n := b.hostNode(at); n != nil && !n.CPUs.IsEmpty() {
			p.cpus = b.online(n.CPUs)
		} else if len(b.p.NUMANodes) == 1 {
			p.cpus = b.online(b.host.CPUs.Online)
		}
		if !p.cpus.IsEmpty() {
			places = append(places, p)
		}
	}
	total := lists.Sum(places, func(p place) int { return min(p.cpus.Len(), 2*MaxHostCores+1) })
	if total == 0 {
		return
	}
	if total > 2*MaxHostCores {
		b.fail("", "", "%s: %d CPUs, and at most %d can be planned with", b.name, total, 2*MaxHostCores)
		return
	}
	offset := siblingOffset(places[0].cpus)
	if noSMT(b.host.CPUs.SMT) || slices.ContainsFunc(places, func(p place) bool {
		return siblingOffset(p.cpus) != offset
	}) {
		offset = 0
	}
	if offset > 0 {
		b.note("the host does not tell its cores: CPU c and CPU c+%d are assumed to be threads of one core, as the "+
			"CPU lists of the NUMA nodes suggest", offset)
	} else {
		b.note("the host does not tell its cores: each CPU is taken as a core of its own")
	}
	var taken, twice topology.CPUSet
	for _, p := range places {
		first := slices.Collect(p.cpus.All())
		if offset > 0 {
			first = first[:len(first)/2]
		}
		for _, cpu := range first {
			c := plan.Core{CPUs: []int{cpu}, NUMANode: p.node, Package: -1, L3: -1}
			if offset > 0 {
				c.CPUs = append(c.CPUs, cpu+offset)
			}
			if own := topology.CPUs(c.CPUs...); own.Overlaps(taken) {
				twice = twice.Union(own)
			} else {
				b.p.Cores = append(b.p.Cores, c)
			}
		}
		taken = taken.Union(p.cpus)
	}
	if !twice.IsEmpty() { // a virtual machine with CPUs on several nodes
		b.note("CPUs %s are said to be on several NUMA nodes: taken as on the first", twice)
	}
	slices.SortStableFunc(b.p.Cores, func(a, c plan.Core) int { return cmp.Compare(a.CPUs[0], c.CPUs[0]) })
	for i := range b.p.Cores {
		b.p.Cores[i].ID = i
	}
	if len(b.p.Cores) > MaxHostCores {
		b.fail("", "", "%s: %d cores, and at most %d can be planned with", b.name, len(b.p.Cores), MaxHostCores)
	}
}

// noSMT reads /sys/devices/system/cpu/smt/control.
func noSMT(control string) bool {
	return control == "off" || control == "forceoff" || control == "notsupported"
}

// siblingOffset returns 0 unless there are two equally long ranges of CPUs.
func siblingOffset(cpus topology.CPUSet) int {
	list := slices.Collect(cpus.All())
	half := len(list) / 2
	if half == 0 || len(list)%2 != 0 {
		return 0
	}
	offset := list[half] - list[0]
	for i := range half {
		if list[i] != list[0]+i || list[half+i] != list[i]+offset {
			return 0
		}
	}
	if offset == half {
		return 0 // one range, not two
	}
	return offset
}

// freeCores have no tenant. Before holdCores these are all cores.
func (b *problemBuilder) freeCores() []plan.Core {
	return lists.Filter(b.p.Cores, func(c plan.Core) bool { return c.Tenant == "" })
}
