package verify

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// A machineView comes from the host itself, and from the problem only if the host does not tell.
type machineView struct {
	cores  []*coreView       // by ID
	byCPU  map[int]*coreView // by online CPU
	online topology.CPUSet
	nodes  []int // numbers of NUMA nodes, ascending
	slit   map[[2]int]int
	hybrid bool
}

type coreView struct {
	id      int
	cpus    []int
	node    int
	pkg, l3 int // -1 if unknown
	small   bool
	tenant  string
	owner   int // request, or -1
}

func (k *coreView) numaNode() int { return k.node }

// SLIT distances (ACPI specification, System Locality Information Table): to the node itself, to another node if the
// host does not tell, and the largest in the table's bytes.
const (
	localDistance  = 10
	remoteDistance = 20
	maxDistance    = 255
)

// distance need not be symmetric; the table's rows are the nodes of the cores.
func (m *machineView) distance(from, to int) int {
	if from == to {
		return localDistance
	}
	if d, ok := m.slit[[2]int{from, to}]; ok {
		return d
	}
	return remoteDistance
}

// nearest returns the least distance, less the local one. It returns false if either list is empty.
func (m *machineView) nearest(from []int, to ...int) (int64, bool) {
	least, any := int64(0), false
	for _, a := range from {
		for _, b := range to {
			if d := int64(m.distance(a, b)) - localDistance; !any || d < least {
				least, any = d, true
			}
		}
	}
	return least, any
}

// readMachine needs this order: cores depend on NUMA nodes, and tenants on cores.
func (c *checker) readMachine() {
	m := &c.m
	m.byCPU, m.slit = map[int]*coreView{}, map[[2]int]int{}
	c.readNodes()
	c.readCores()
	m.online = c.h.CPUs.Online
	if m.online.IsEmpty() {
		m.online = m.coreCPUs()
	}
	for _, k := range m.cores {
		for _, cpu := range k.cpus {
			m.byCPU[cpu] = k
		}
	}
	c.readTenants()
}

// readNodes reads from the problem if the host lists no nodes. It ignores rows of distances with a wrong length, and
// distances below 10, which ACPI reserves.
func (c *checker) readNodes() {
	m := &c.m
	known := map[int]bool{}
	for _, n := range c.h.NUMANodes {
		known[n.ID] = true
		m.nodes = append(m.nodes, n.ID)
		if len(n.Distances) != len(c.h.NUMANodes) {
			continue // ignore rows of the wrong length
		}
		for k, d := range n.Distances {
			if d < localDistance {
				d = remoteDistance
			}
			m.slit[[2]int{n.ID, c.h.NUMANodes[k].ID}] = min(d, maxDistance)
		}
	}
	for _, n := range c.p.NUMANodes {
		if len(c.h.NUMANodes) > 0 {
			if !known[n.ID] {
				c.fault("problem: NUMA node %d is not on the host", n.ID)
			}
			continue
		}
		m.nodes = append(m.nodes, n.ID)
		for k, d := range n.Distances[:min(len(n.Distances), len(c.p.NUMANodes))] {
			m.slit[[2]int{n.ID, c.p.NUMANodes[k].ID}] = d
		}
	}
	slices.Sort(m.nodes)
}

// readCores reads missing facts from the problem. If the two differ on a core, it reports only the first difference.
func (c *checker) readCores() {
	m := &c.m
	stated := make(map[int]*plan.Core, len(c.p.Cores))
	for i := range c.p.Cores {
		stated[c.p.Cores[i].ID] = &c.p.Cores[i]
	}
	if len(c.h.Cores) == 0 {
		for _, k := range c.p.Cores {
			m.cores = append(m.cores, &coreView{k.ID, k.CPUs, k.NUMANode, k.Package, k.L3, k.Efficiency, "", -1})
		}
		stated = nil
	}
	slow := slowest(c.h.Cores)
	for i, hc := range c.h.Cores {
		s := stated[hc.ID]
		delete(stated, hc.ID)
		k := &coreView{id: hc.ID, cpus: c.onlineOf(hc.CPUs),
			small: hc.Kind == topology.KindEfficiency || slow[i], pkg: -1, l3: -1, owner: -1}
		if hc.Package != nil {
			k.pkg = max(-1, *hc.Package)
		}
		if hc.L3 != nil {
			k.l3 = max(-1, *hc.L3)
		}
		onNode := hc.NUMANode != nil && slices.Contains(m.nodes, *hc.NUMANode)
		switch {
		case onNode:
			k.node = *hc.NUMANode
		case s != nil:
			k.node = s.NUMANode
		}
		if s == nil {
			if onNode && len(k.cpus) > 0 {
				c.fault("problem: core %d of the host (CPUs %s) is missing", k.id, hc.CPUs)
			}
			continue // cannot be given
		}
		m.cores = append(m.cores, k)
		switch {
		case !slices.Equal(s.CPUs, k.cpus):
			c.fault("problem: core %d has CPUs %v, the host says %v", k.id, s.CPUs, k.cpus)
		case s.NUMANode != k.node:
			c.fault("problem: core %d is on NUMA node %d, the host says %d", k.id, s.NUMANode, k.node)
		case s.L3 != k.l3:
			c.fault("problem: core %d has L3 cache %d, the host says %d", k.id, s.L3, k.l3)
		case s.Package != k.pkg:
			c.fault("problem: core %d is in package %d, the host says %d", k.id, s.Package, k.pkg)
		case s.Efficiency != k.small:
			c.fault("problem: core %d is a small one: %t, the host says %t", k.id, s.Efficiency, k.small)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(stated)) {
		c.fault("problem: core %d (CPUs %v) is not on the host", id, stated[id].CPUs)
	}
	slices.SortFunc(m.cores, func(a, b *coreView) int { return cmp.Compare(a.id, b.id) })
	for _, k := range m.cores {
		m.hybrid = m.hybrid || k.small
	}
}

// slowest marks cores below the widest step of frequencies, if that is a fifth or more and none has a kind
// (docs/planner.md).
func slowest(cores []topology.Core) []bool {
	slow := make([]bool, len(cores))
	order := make([]int, len(cores))
	for i, c := range cores {
		if c.Kind != "" || c.MaxKHz == nil || *c.MaxKHz <= 0 {
			return slow
		}
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(*cores[a].MaxKHz, *cores[b].MaxKHz) })
	at, step := 0, 1.2
	for n := 1; n < len(order); n++ {
		if s := float64(*cores[order[n]].MaxKHz) / float64(*cores[order[n-1]].MaxKHz); s >= step {
			at, step = n, s
		}
	}
	for _, i := range order[:at] {
		slow[i] = true
	}
	return slow
}

// onlineOf returns all for a host that lists no online CPUs.
func (c *checker) onlineOf(cpus topology.CPUSet) []int {
	if !c.h.CPUs.Online.IsEmpty() {
		cpus = cpus.Intersect(c.h.CPUs.Online)
	}
	if offline := c.h.CPUs.Offline; offline != nil {
		cpus = cpus.Difference(*offline)
	}
	return slices.Collect(cpus.All())
}

// believesTenants is false if the lab ignores tenants, or names a file that only the problem knows.
func (c *checker) believesTenants() bool { return c.l.Tenants == lab.TenantsRead || c.l.Tenants == "" }

// readTenants also reads the present host, to detect a tenant that was pinned to a core after the plan was made.
func (c *checker) readTenants() {
	m := &c.m
	// A core of several tenants is marked for the first one.
	hold := func(tenant string, cpus iter.Seq[int]) {
		for cpu := range cpus {
			if k := m.byCPU[cpu]; k != nil && k.tenant == "" {
				k.tenant = tenant
			}
		}
	}
	for _, k := range c.p.Cores {
		hold(k.Tenant, slices.Values(k.CPUs))
	}
	if !c.believesTenants() {
		return
	}
	for i := range c.h.Tenants {
		t := &c.h.Tenants[i]
		hold(tenantName(t), c.heldBy(t).All())
	}
}

func tenantName(t *topology.Tenant) string { return cmp.Or(t.Name, t.UUID, "without a name") }

func (m *machineView) coreCPUs() topology.CPUSet {
	return topology.UnionOf(m.cores, func(k *coreView) topology.CPUSet { return topology.ValidCPUs(k.cpus) })
}

// heldBy includes tenants that do not run. A tenant pinned to all CPUs of the host counts as unpinned.
func (c *checker) heldBy(t *topology.Tenant) topology.CPUSet {
	all, held := c.m.coreCPUs(), topology.CPUSet{}
	sets := []*topology.CPUSet{t.EmulatorCPUs, t.IOThreadCPUs}
	pinned := map[int]bool{}
	for i := range t.Pins {
		pinned[t.Pins[i].VCPU] = true
		sets = append(sets, &t.Pins[i].CPUs)
	}
	if t.VCPUs > len(pinned) {
		sets = append(sets, t.Floating) // virtual CPUs without a pin of their own
	}
	for _, set := range sets {
		if set != nil && !all.IsSubsetOf(*set) {
			held = held.Union(*set)
		}
	}
	return held
}

// kernelArgs accepts none, because a host can be prepared without. Their format:
// Documentation/admin-guide/kernel-parameters.txt.
func (c *checker) kernelArgs() {
	if len(c.pl.KernelWhy) != len(c.pl.KernelArgs) {
		c.fault("kernel_args: have %d reasons for %d arguments", len(c.pl.KernelWhy), len(c.pl.KernelArgs))
	}
	var given topology.CPUSet
	for _, k := range c.m.cores {
		if k.owner >= 0 {
			given = given.Union(topology.ValidCPUs(k.cpus))
		}
	}
	// Tenants that are isolated now must stay isolated.
	if isolated := c.h.CPUs.Isolated; isolated != nil {
		given = given.Union(isolated.Intersect(c.pl.Housekeeping.TenantCPUs))
	}
	page := uint64(0) // from the last "hugepagesz=" before "hugepages="
	for _, arg := range strings.Fields(strings.Join(c.pl.KernelArgs, " ")) {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "isolcpus", "nohz_full", "rcu_nocbs":
			c.cpuArg(arg, name, value, given)
		case "default_hugepagesz", "hugepagesz":
			size, ok := sizeArg(value)
			if !ok || c.p.HugepageBytes > 0 && size != c.p.HugepageBytes {
				c.fault("kernel_args: %q: want pages of %d bytes", arg, c.p.HugepageBytes)
			}
			page = size
		case "hugepages":
			c.pagesArg(arg, value, page)
		}
	}
}

// cpuArg wants the same CPUs in all three arguments, because a CPU isolated from the scheduler alone is still disturbed
// by RCU callbacks or the tick. The list of isolcpus may follow flags: isolcpus=managed_irq,domain,2-31.
func (c *checker) cpuArg(arg, name, value string, given topology.CPUSet) {
	list := value
	for name == "isolcpus" && list != "" && (list[0] < '0' || list[0] > '9') {
		_, list, _ = strings.Cut(list, ",")
	}
	set, err := topology.ParseCPUSet(list)
	if err != nil {
		c.fault("kernel_args: %q: %w", arg, err)
		return
	}
	if !set.Equal(given) {
		c.fault("kernel_args: %s: have CPUs %s, want %s, all of the cores of lab nodes, and of VMs that are "+
			"isolated", name, set, given)
	}
}

// sizeArg parses like the kernel's memparse: a number with K, M or G.
func sizeArg(s string) (uint64, bool) {
	shift := 0
	for suffix, bits := range map[string]int{"K": 10, "M": 20, "G": 30} {
		if rest, ok := strings.CutSuffix(strings.ToUpper(s), suffix); ok {
			s, shift = rest, bits
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return n << shift, err == nil
}

// pagesArg checks "hugepages=": either by NUMA node (0:16,1:16), since Linux 5.16, or one number, which the kernel
// spreads evenly, with the remainder on the first nodes. Without pages in use, their tenant would not start after a
// reboot.
func (c *checker) pagesArg(arg, value string, page uint64) {
	want := map[int]int64{}
	for _, pool := range c.pl.Hugepages {
		if pool.PageBytes == page || page == 0 {
			want[pool.NUMANode] += pool.Count + pool.Held
		}
	}
	have := map[int]int64{}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		nodes := c.withMemory()
		for k, node := range nodes {
			have[node] = n / int64(len(nodes))
			if int64(k) < n%int64(len(nodes)) {
				have[node]++
			}
		}
	} else {
		for item := range strings.SplitSeq(value, ",") {
			id, count, _ := strings.Cut(item, ":")
			node, err1 := strconv.Atoi(id)
			n, err2 := strconv.ParseInt(count, 10, 64)
			if err1 != nil || err2 != nil {
				c.fault("kernel_args: %q: %q is not a NUMA node with its number of pages", arg, item)
				return
			}
			have[node] += n
		}
	}
	for _, node := range nodesOf(have, want) {
		if have[node] != want[node] {
			c.fault("kernel_args: %q gives NUMA node %d %d pages, want %d", arg, node, have[node], want[node])
		}
	}
}

func (c *checker) withMemory() []int {
	return slices.DeleteFunc(slices.Clone(c.m.nodes), func(node int) bool {
		n := c.h.NUMANode(node)
		return n != nil && n.MemoryBytes != nil && *n.MemoryBytes == 0
	})
}
