package verify

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// vcpus checks rule 1 of docs/planner.md. It marks the owner of each core; all later checks use these marks.
func (c *checker) vcpus() {
	holder := map[int]int{} // CPU to lab node
	for i, n := range c.placed() {
		r, node := &c.p.Requests[i], &c.l.Nodes[i]
		if len(n.VCPUs) != r.VCPUs {
			c.of(i, "vcpus: have %d, want %d", len(n.VCPUs), r.VCPUs)
		}
		if !node.AutoCPUs && node.CPUs != r.VCPUs {
			c.of(i, "vcpus: the problem has %d, the lab asks for %d", r.VCPUs, node.CPUs)
		}
		if n.Threads != r.Threads {
			c.of(i, "threads_per_core: have %d, want %d", n.Threads, r.Threads)
		}
		if n.SMT != (n.Threads > 1) {
			c.of(i, "smt: have %t with %d threads per core", n.SMT, n.Threads)
		}
		if node.SMT == lab.Off && n.SMT || node.SMT == lab.On && !n.SMT {
			c.of(i, "smt: have %t, the lab asks for %q", n.SMT, node.SMT)
		}
		for v, cpu := range n.VCPUs {
			k := c.m.byCPU[cpu]
			if k == nil || !c.m.online.Contains(cpu) {
				c.of(i, "vcpu %d: host CPU %d is not there or not online", v, cpu)
				continue
			}
			// A CPU that is named twice is marked once: marking it again would cause further faults.
			if other, taken := holder[cpu]; taken {
				c.of(i, "vcpu %d: host CPU %d is that of another virtual CPU already, of %s", v, cpu, c.name(other))
				continue
			}
			holder[cpu] = i
			if k.owner < 0 {
				k.owner = i
				c.found[i].cores = append(c.found[i].cores, k)
			} else if k.owner != i {
				c.of(i, "vcpu %d: host CPU %d is a thread of core %d, another one of which %s has; a core has "+
					"one owner", v, cpu, k.id, c.name(k.owner))
			}
		}
		slices.SortFunc(c.found[i].cores, func(a, b *coreView) int { return cmp.Compare(a.id, b.id) })
		if len(c.found[i].cores) != n.Cores || n.Cores != r.Cores {
			c.of(i, "cores: have %d in the plan and %d by its CPUs, want %d", n.Cores, len(c.found[i].cores), r.Cores)
		}
		c.siblings(i, n)
		c.tenantCores(i)
	}
}

// siblings checks groups of threads: with displaced ones the guest's scheduler would take two cores for one. Only one
// fault is reported for each lab node, because a shift by one makes all later groups wrong.
func (c *checker) siblings(i int, n *plan.Node) {
	t := n.Threads
	if t < 1 || len(n.VCPUs)%t != 0 {
		c.of(i, "vcpus: %d of them cannot be %d a core", len(n.VCPUs), t)
		return
	}
	first := map[*coreView]int{}
	for v, cpu := range n.VCPUs {
		k := c.m.byCPU[cpu]
		if k == nil {
			continue
		}
		group, known := first[k]
		if !known {
			first[k] = v - v%t
			group = v - v%t
		}
		if group != v-v%t {
			c.of(i, "vcpu %d: host CPU %d is a sibling of that of vcpu %d; want siblings side by side, %d a core", v,
				cpu, group, t)
			return
		}
		if v%t > 0 && c.m.byCPU[n.VCPUs[v-1]] != k {
			c.of(i, "vcpu %d: host CPU %d is no sibling of CPU %d before it; want %d threads of a core side by side", v,
				cpu, n.VCPUs[v-1], t)
			return
		}
	}
}

// tenantCores names CPUs, as in a tenant's XML.
func (c *checker) tenantCores(i int) {
	held := map[string][]int{}
	for _, k := range c.found[i].cores {
		if k.tenant != "" {
			held[k.tenant] = append(held[k.tenant], k.cpus...)
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(held)) {
		c.of(i, "vcpus: host CPUs %s belong to VM %q", topology.ValidCPUs(held[tenant]), tenant)
	}
}

// housekeeping checks rule 2. A busy package keeps a core only if tenants leave one there. The reserve is the maximum
// of the lab's and the problem's.
func (c *checker) housekeeping() {
	var free, tenants topology.CPUSet
	cores := 0
	onNode, onPackage, mayKeep := map[int]int{}, map[int]int{}, map[int]bool{}
	for _, k := range c.m.cores {
		if k.tenant == "" {
			mayKeep[k.pkg] = true
		}
		switch {
		case k.tenant != "":
			tenants = tenants.Union(topology.ValidCPUs(k.cpus))
		case k.owner < 0:
			free = free.Union(topology.ValidCPUs(k.cpus))
			cores++
			onNode[k.node]++
			onPackage[k.pkg]++
		}
	}
	hk := &c.pl.Housekeeping
	c.extra("housekeeping", hk.CPUs.Difference(free))
	if missing := free.Difference(hk.CPUs); !missing.IsEmpty() {
		c.fault("housekeeping: CPUs %s are nobody's and are not in it; want all that is left over", missing)
	}
	if hk.Cores != cores {
		c.fault("housekeeping: have %d cores, want %d as left over", hk.Cores, cores)
	}
	if !hk.TenantCPUs.Equal(tenants) {
		c.fault("housekeeping: have CPUs of other VMs %q, want %q", hk.TenantCPUs, tenants)
	}
	want := c.p.ReserveCores
	if r := c.l.Reserve.Cores; r != nil {
		want = max(want, *r)
	}
	if cores < want {
		c.fault("housekeeping: %d cores are left over, the reserve is %d", cores, want)
	}
	reserve := map[int]int{}
	for _, n := range c.p.NUMANodes {
		reserve[n.ID] = n.ReserveCores
	}
	for _, n := range c.l.Reserve.NUMA {
		reserve[n.Node] = max(reserve[n.Node], n.Cores)
	}
	for _, node := range slices.Sorted(maps.Keys(reserve)) {
		if onNode[node] < reserve[node] {
			c.fault("housekeeping: %d cores are left over on NUMA node %d, the reserve there is %d", onNode[node], node,
				reserve[node])
		}
	}
	for _, pkg := range c.p.Packages {
		if pkg.Busy != "" && onPackage[pkg.ID] == 0 && mayKeep[pkg.ID] {
			c.fault("housekeeping: no core is left over in package %d, which is busy: %s", pkg.ID, pkg.Busy)
		}
	}
	c.ownThreads(free)
}

func (c *checker) extra(set string, cpus topology.CPUSet) {
	whose := map[string][]int{}
	for cpu := range cpus.All() {
		k, online := c.m.byCPU[cpu], c.m.online.Contains(cpu)
		by := ""
		switch {
		case !online || k == nil && len(c.h.Cores) > 0:
			by = "are not there or not online"
		case k == nil: // the host lists no cores
		case k.owner >= 0:
			by = "are threads of cores of " + c.name(k.owner)
		case k.tenant != "":
			by = "belong to VM " + strconv.Quote(k.tenant)
		}
		whose[by] = append(whose[by], cpu)
	}
	delete(whose, "")
	for _, by := range slices.Sorted(maps.Keys(whose)) {
		c.fault("%s: CPUs %s %s", set, topology.ValidCPUs(whose[by]), by)
	}
}

// ownThreads keeps QEMU's own threads off lab nodes' CPUs, because they would take time there.
func (c *checker) ownThreads(free topology.CPUSet) {
	for i, n := range c.placed() {
		for _, set := range []struct {
			name string
			cpus topology.CPUSet
		}{{"emulator_cpus", n.EmulatorCPUs}, {"iothread_cpus", n.IOThreadCPUs}} {
			if wrong := set.cpus.Difference(free); !wrong.IsEmpty() {
				c.of(i, "%s: CPUs %s are not housekeeping", set.name, wrong)
			}
		}
		if free.IsEmpty() {
			continue
		}
		own := numbersOf(c.found[i].cores, (*coreView).numaNode)
		if n.EmulatorCPUs.IsEmpty() {
			c.of(i, "emulator_cpus: have none, want housekeeping CPUs")
		} else if have, best := c.farOf(own, n.EmulatorCPUs), c.farOf(own, free); have > best {
			c.of(i, "emulator_cpus: CPUs %s are %d away, housekeeping CPUs that are %d away are left", n.EmulatorCPUs,
				have+localDistance, best+localDistance)
		}
	}
}

// farOf returns the least distance, less the local one.
func (c *checker) farOf(from []int, cpus topology.CPUSet) int64 {
	var to []int
	for cpu := range cpus.All() {
		if k := c.m.byCPU[cpu]; k != nil {
			to = append(to, k.node)
		}
	}
	far, _ := c.m.nearest(from, sorted(to)...)
	return far
}
