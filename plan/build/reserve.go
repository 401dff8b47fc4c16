package build

import (
	"cmp"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// addPackages keeps a core beside a disk or the host's main NIC, for their interrupts.
func (b *problemBuilder) addPackages() {
	packagesOn := map[int][]int{} // packages of a node's cores
	free := map[int]bool{}
	var ids []int
	for _, c := range b.p.Cores {
		if c.Package < 0 {
			continue
		}
		ids = append(ids, c.Package)
		free[c.Package] = free[c.Package] || c.Tenant == ""
		packagesOn[c.NUMANode] = lists.Add(packagesOn[c.NUMANode], c.Package)
	}
	ids = lists.Distinct(ids)
	if len(ids) == 0 {
		b.note("the host does not tell which package its cores are in")
	}
	busy := map[int]string{}
	for _, u := range b.hostUses {
		node := b.knownNode(u.node, u.id)
		if node == nil {
			continue
		}
		// Otherwise the package of the device is unknown.
		if on := packagesOn[*node]; len(on) == 1 {
			setOnce(busy, on[0], u.text)
		}
	}
	b.p.Packages = make([]plan.Package, 0, len(ids))
	for _, id := range ids {
		why := busy[id]
		if why != "" && !free[id] {
			b.note("package %d: the host needs it for %s, but other VMs hold all its cores", id, why)
			why = ""
		}
		b.p.Packages = append(b.p.Packages, plan.Package{ID: id, Busy: why})
	}
}

// One core per package, two in total on machines that can spare them, at most a quarter.
const (
	spareCores      = 8 // cores from which two are kept
	spareReserve    = 2
	smallestReserve = 1
	largestReserve  = 4 // at most one in so many
)

// reserveCores keeps one core in each package by default, and at least the sum for single NUMA nodes.
func (b *problemBuilder) reserveCores() {
	free := map[int]int{} // by NUMA node
	cores := b.freeCores()
	for _, c := range cores {
		free[c.NUMANode]++
	}
	packages := lists.SetOf(cores, func(c plan.Core) int { return c.Package })
	sum, seen := 0, map[int]bool{}
	for _, r := range b.lab.Reserve.NUMA {
		at, ok := b.nodeOf[r.Node]
		switch {
		case !ok:
			b.fail("", "host.reserve.numa_nodes", "%s has no NUMA node %d: %s", b.name, r.Node, b.nodesThere())
			continue
		case seen[r.Node]:
			b.fail("", "host.reserve.numa_nodes", "NUMA node %d is there twice: say all of it at one place", r.Node)
			continue
		case r.Cores < 0:
			b.fail("", "host.reserve.numa_nodes", "NUMA node %d: %d cores: want 0 or more", r.Node, r.Cores)
			continue
		case r.Cores > free[r.Node]:
			b.fail("", "host.reserve.numa_nodes",
				"NUMA node %d: %d cores for the host, and there are %d that no other VM holds: ask for fewer",
				r.Node, r.Cores, free[r.Node])
			continue
		}
		seen[r.Node] = true
		b.p.NUMANodes[at].ReserveCores = r.Cores
		sum += r.Cores
	}
	keep := max(len(packages), smallestReserve)
	if len(b.p.Cores) >= spareCores {
		keep = max(keep, spareReserve)
	}
	keep = min(keep, max(smallestReserve, len(b.p.Cores)/largestReserve))
	if b.lab.Reserve.Cores == nil && len(packages) > 1 && keep >= len(packages) {
		for i := range b.p.Packages {
			if k := &b.p.Packages[i]; packages[k.ID] {
				k.Busy = cmp.Or(k.Busy, plan.BusyByDefault)
			}
		}
	}
	if r := b.lab.Reserve.Cores; r != nil {
		if keep = *r; keep < smallestReserve {
			b.fail("", "host.reserve.cores", "%d: the host needs at least 1 core: interrupts, QEMU's own "+
				"threads and you", keep)
			return
		}
		if keep > len(cores) {
			b.fail("", "host.reserve.cores", "%d: %s has %s: ask for fewer", keep, b.name, b.coresThere(len(cores)))
			keep = smallestReserve // so that no lab node is blamed
		}
	}
	b.p.ReserveCores = max(keep, sum)
}

func (b *problemBuilder) coresThere(free int) string {
	if held := len(b.p.Cores) - free; held > 0 {
		return words.Count(free, "core") + " that no other VM holds, of " + words.Count(len(b.p.Cores), "core")
	}
	return words.Count(free, "core")
}

func (b *problemBuilder) nodesThere() string {
	var ids topology.CPUSet
	for at := range b.p.NUMANodes {
		ids = ids.Union(b.nodeSet(at))
	}
	if len(b.p.NUMANodes) == 1 {
		return "its only one is " + ids.String()
	}
	return "they are " + ids.String()
}
