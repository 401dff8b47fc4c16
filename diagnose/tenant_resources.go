package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// nodeSet writes the nodes of a tenant.
func nodeSet(t *topology.Tenant) string {
	mode := cmp.Or(t.MemoryMode, "strict")
	return fmt.Sprintf("numatune %s nodeset=%s", mode, t.MemoryNodes)
}

// strict reports whether the tenant may have memory of its nodes only. libvirt's mode is strict
// unless another one is named.
func strict(t *topology.Tenant) bool {
	return t.MemoryNodes != nil && !t.MemoryNodes.IsEmpty() && (t.MemoryMode == "" || t.MemoryMode == "strict" ||
		t.MemoryMode == "restrictive")
}

// nodesTooSmall compares with all memory of the nodes, not with what is free: the finding is to
// hold whatever runs now.
func nodesTooSmall(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if len(v.NUMANodes) == 0 {
		return
	}
	if !strict(t) {
		return
	}
	var have uint64
	var facts, missing []string
	known := true
	for id := range t.MemoryNodes.All() {
		n := v.NUMANode(id)
		switch {
		case n == nil:
			missing = append(missing, fmt.Sprintf("node %d does not exist", id))
		case n.MemoryBytes == nil:
			known = false
		case *n.MemoryBytes == 0:
			missing = append(missing, fmt.Sprintf("node %d has no memory", id))
		default:
			have += *n.MemoryBytes
			facts = append(facts, at(fmt.Sprintf("/sys/devices/system/node/node%d/meminfo", id),
				"MemTotal="+size(*n.MemoryBytes)))
		}
	}
	f := finding.Finding{Subject: t.Name, Fix: "plan the tenant again on this machine, or change its nodeset"}
	switch {
	case len(missing) > 0:
		f.Evidence = all(domain(t, nodeSet(t)), at("/sys/devices/system/node", words.Few(missing, 3, ", ")))
		f.Consequence = "the tenant does not start"
	case known && t.MemoryBytes != nil && *t.MemoryBytes > have:
		f.Evidence = all(domain(t, nodeSet(t), "memory="+size(*t.MemoryBytes)), words.Few(facts, 4, "; "))
		f.Consequence = "the tenant does not start, or is killed when it uses more than its nodes have"
	default:
		return
	}
	add(f)
}

// cpuNodes returns the IDs of the nodes that the pinned CPUs of a tenant are on, and whether all are known.
func (v *view) cpuNodes(t *topology.Tenant) []int {
	cpus := pinned(t)
	var out []int
	for i := range v.NUMANodes {
		if v.NUMANodes[i].CPUs.Overlaps(cpus) {
			out = append(out, v.NUMANodes[i].ID)
		}
	}
	return out
}

// farMemory is silent where one node is right: memory that is spread over nodes can be meant.
func farMemory(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if !v.several {
		return
	}
	nodes := v.cpuNodes(t)
	if len(nodes) == 0 || t.MemoryNodes == nil || t.MemoryNodes.IsEmpty() ||
		slices.ContainsFunc(nodes, t.MemoryNodes.Contains) {
		return
	}
	add(finding.Finding{Subject: t.Name,
		Evidence:    domain(t, nodeSet(t), fmt.Sprintf("vcpupin %s (nodes %s)", pinned(t), join(nodes))),
		Consequence: "every access to memory goes over the interconnect between nodes",
		Fix: "bind memory to nodes " + join(nodes) + ", or pin to CPUs of nodes " +
			t.MemoryNodes.String()})
}

// farDevice takes the first function of a device for all of it, and every virtual function for
// itself, as those are given away alone.
func farDevice(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if !v.several {
		return
	}
	nodes := v.cpuNodes(t)
	if len(nodes) == 0 {
		return
	}
	var far []string
	for _, td := range t.Devices {
		d := v.tree.Device(td.PCI)
		if d == nil || d.NUMANode == nil || td.PCI.Function != 0 && d.PF == nil ||
			slices.Contains(nodes, *d.NUMANode) {
			continue
		}
		if d.IsGPU() || d.IsNIC() {
			far = append(far, at(pci(td.PCI), node(d.NUMANode)))
		}
	}
	if len(far) == 0 {
		return
	}
	add(finding.Finding{Subject: t.Name,
		Evidence: all(words.Few(far, 4, "; "), domain(t, fmt.Sprintf("vcpupin %s (nodes %s)", pinned(t),
			join(nodes)))),
		Consequence: "copies and interrupts cross the interconnect between nodes",
		Fix:         "pin the tenant to CPUs of the device's node, or give it a device of nodes " + join(nodes)})
}

// fewPagesLeft asks of tenants that do not run: the pages of those that run are taken, and no
// longer free.
func fewPagesLeft(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if !stopped(t) || t.Hugepages == nil || t.MemoryBytes == nil {
		return
	}
	bytes := *t.Hugepages
	// A tenant that asks for hugepages without a size gets those of the kernel's default.
	if bytes == 0 {
		if v.Memory.DefaultHuge == nil {
			return
		}
		bytes = *v.Memory.DefaultHuge
	}
	if bytes == 0 {
		return
	}
	var free uint64
	var facts []string
	known := true
	count := func(path string, pools []topology.HugepagePool) {
		p := topology.Pool(pools, bytes)
		switch {
		case p == nil:
			known = known && v.poolsListed() // then there are none of this size
		case p.Free == nil:
			known = false
		default:
			free += *p.Free
			facts = append(facts, at(path, fmt.Sprintf("free_hugepages=%d", *p.Free)))
		}
	}
	// Pages of other nodes are of no use to a tenant that is strict about its own.
	if strict(t) {
		for id := range t.MemoryNodes.All() {
			if n := v.NUMANode(id); n != nil { // a node that is not there is RL070
				count(poolPath(bytes, id), n.Hugepages)
			}
		}
	} else {
		count(poolPath(bytes), v.Memory.Hugepages)
	}
	// The last page counts whole, even where the memory ends within it.
	need := *t.MemoryBytes / bytes
	if *t.MemoryBytes%bytes != 0 {
		need++
	}
	// One pool that was not read may have what the others lack.
	if !known || free >= need {
		return
	}
	if len(facts) == 0 {
		facts = []string{at(poolPath(bytes), "not there")}
	}
	add(finding.Finding{Subject: t.Name,
		Evidence: all(domain(t, "memory="+size(*t.MemoryBytes), "hugepages="+size(bytes)),
			words.Few(facts, 4, "; ")),
		Consequence: fmt.Sprintf("the tenant does not start: it needs %d free pages of %s and there are %d", need,
			size(bytes), free),
		Fix: "set aside more pages on its nodes, or stop what holds them"})
}

// sharedDevice is an error only while all of the owners run or may run. With one shut off, taking
// turns may be meant.
func sharedDevice(v *view, add func(finding.Finding)) {
	owners := map[topology.PCIAddr][]*topology.Tenant{}
	for i := range v.Tenants {
		for _, d := range v.Tenants[i].Devices {
			owners[d.PCI] = lists.Add(owners[d.PCI], &v.Tenants[i])
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(owners), topology.PCIAddr.Compare) {
		list := owners[a]
		if len(list) < 2 {
			continue
		}
		f := finding.Finding{Severity: finding.Error, Subject: a.String(), Consequence: "only one of them can run",
			Fix: "give the others another device, or a virtual function of the same one"}
		var facts, names []string
		for _, t := range list {
			facts = append(facts, domain(t, "hostdev "+a.String()))
			names = append(names, t.Name)
			if stopped(t) {
				f.Severity = finding.Warning
			}
		}
		f.Evidence = words.Few(facts, 4, "; ")
		f.Consequence = "of " + words.Few(names, 4, ", ") + " only one can run at a time"
		add(f)
	}
}

// takesHostDevice does not ask whether the tenant runs: it is when it starts that the host loses its disk or its
// network, and a host that boots may start it by itself.
func takesHostDevice(v *view, add func(finding.Finding)) {
	needed := v.needed()
	for t := range each(v.Tenants) {
		for _, d := range t.Devices {
			need, ok := needed[d.PCI]
			if !ok {
				continue
			}
			add(finding.Finding{Subject: t.Name,
				Evidence:    all(domain(t, "hostdev "+d.PCI.String()), at(pci(d.PCI), need.how)),
				Consequence: "when the tenant starts, the host loses its " + need.what,
				Fix:         "take " + d.PCI.String() + " out of the tenant, or move the host to another device first"})
		}
	}
}

// heldGPU asks of stopped tenants only: of one that runs, the device is on a vfio driver.
func heldGPU(v *view, g *topology.GPU, add func(finding.Finding)) {
	// With another driver the daemon that keeps the device open has lost it already.
	if g.Address == nil || g.PersistMode == nil || !*g.PersistMode || g.Driver != "nvidia" {
		return
	}
	for _, t := range v.holders(*g.Address) {
		if !stopped(t) {
			continue
		}
		add(finding.Finding{Subject: g.ID(),
			Evidence: all(at("nvidia-smi --query-gpu=persistence_mode", "Enabled"),
				at(pci(*g.Address), "driver=nvidia"), domain(t, "hostdev "+g.ID())),
			Consequence: "starting " + t.Name + " hangs: the driver cannot be unbound while the device is held open",
			Fix:         "stop nvidia-persistenced and run nvidia-smi -pm 0 -i " + g.ID() + " first"})
	}
}
