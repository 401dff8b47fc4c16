package build

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// stateOff is libvirt's.
const stateOff = "shut off"

// chooseTenants sorts, so that the order in a file does not matter.
func (b *problemBuilder) chooseTenants(given []topology.Tenant) []topology.Tenant {
	var tenants []topology.Tenant
	switch b.lab.Tenants {
	case lab.TenantsIgnore:
		if len(b.host.Tenants) > 0 {
			b.note("%s ignored, as the lab asks: what they hold counts as free", words.Count(len(b.host.Tenants),
				"other VM"))
		}
		return nil
	case lab.TenantsRead, "":
		tenants = slices.Clone(b.host.Tenants)
	default:
		tenants = slices.Clone(given)
	}
	slices.SortStableFunc(tenants, func(a, c topology.Tenant) int {
		return cmp.Or(cmp.Compare(a.Name, c.Name), cmp.Compare(a.UUID, c.UUID))
	})
	for i := range tenants {
		if slices.ContainsFunc(b.lab.Nodes, func(n lab.Node) bool { return n.Name == tenants[i].Name }) {
			b.note("VM %s has the name of a lab node, and counts as another VM: if it is an earlier run of this lab, "+
				"remove it first, or plan with tenants: ignore", tenantName(&tenants[i]))
		}
	}
	return tenants
}

func tenantName(t *topology.Tenant) string {
	return words.Plain(cmp.Or(t.Name, t.UUID, "without a name"))
}

// holdCores includes tenants that are shut off, because they may start at any time. A core shared by two tenants counts
// for the first by name.
func (b *problemBuilder) holdCores() {
	if len(b.tenants) == 0 {
		return
	}
	// Many cpusets contain CPUs that are offline or belong to no core.
	var all topology.CPUSet
	coreOf := map[int]*plan.Core{}
	for i := range b.p.Cores {
		c := &b.p.Cores[i]
		for _, cpu := range c.CPUs {
			coreOf[cpu] = c
		}
		all = all.Union(topology.CPUs(c.CPUs...))
	}
	var floating, off []string
	for i := range b.tenants {
		t := &b.tenants[i]
		name := tenantName(t)
		held, floats := tenantCPUs(t, all)
		shared := map[string]bool{}
		holds := false
		for cpu := range held.All() {
			c := coreOf[cpu]
			switch {
			case c == nil:
			case c.Tenant == "":
				c.Tenant, holds = name, true
			case c.Tenant != name:
				shared[c.Tenant], holds = true, true
			}
		}
		for _, other := range slices.Sorted(maps.Keys(shared)) {
			b.note("VMs %s and %s may run on the same cores", other, name)
		}
		if t.State == stateOff && (holds || t.MemoryBytes != nil || len(t.Devices) > 0) {
			off = append(off, name)
		}
		if floats {
			floating = append(floating, name)
		}
	}
	if len(off) > 0 {
		b.note("VMs that are shut off hold what they are given, because they may be started: %s", listText(off))
	}
	if len(floating) > 0 {
		b.note("VMs whose virtual CPUs are not pinned may run on the cores of the lab and disturb it: %s; pin "+
			"them, or isolate the lab's cores", listText(floating))
	}
}

// tenantCPUs returns the CPUs that a tenant is pinned to, and whether some virtual CPUs may run anywhere. libvirt
// writes pins to all CPUs of the host too, which do not count. Floating emulator and I/O threads are few, and the
// kernel moves them out of the way.
func tenantCPUs(t *topology.Tenant, all topology.CPUSet) (held topology.CPUSet, floats bool) {
	pin := func(cpus topology.CPUSet) bool {
		if all.IsSubsetOf(cpus) {
			return false
		}
		held = held.Union(cpus)
		return true
	}
	pinned := map[int]bool{}
	for _, p := range t.Pins {
		pinned[p.VCPU] = true
		floats = !pin(p.CPUs) || floats
	}
	if t.VCPUs > len(pinned) { // <vcpu cpuset> limits the others
		floats = t.Floating == nil || !pin(*t.Floating) || floats
	}
	for _, cpus := range []*topology.CPUSet{t.EmulatorCPUs, t.IOThreadCPUs} {
		if cpus != nil {
			pin(*cpus)
		}
	}
	return held, floats
}
