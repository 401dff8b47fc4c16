package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func nodeSet(t *topology.Tenant) string {
	return fmt.Sprintf("numatune %s nodeset=%s", cmp.Or(t.MemoryMode, "strict"), t.MemoryNodes)
}

// strict is libvirt's default mode.
func strict(t *topology.Tenant) bool { return strictly(t.MemoryNodes, t.MemoryMode) }

func strictly(nodes *topology.CPUSet, mode string) bool {
	return nodes != nil && !nodes.IsEmpty() && (mode == "" || mode == "strict" || mode == "restrictive")
}

// nodesTooSmall compares total memory, so that it does not depend on running tenants.
func nodesTooSmall(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if len(v.NUMANodes) == 0 {
		return
	}
	f := finding.Finding{Subject: t.Name, Fix: "plan the VM again on this machine, or change its nodeset"}
	var missing []string
	if t.MemoryNodes != nil { // libvirt and QEMU refuse a missing node
		for id := range t.MemoryNodes.All() {
			if n := v.NUMANode(id); n == nil {
				missing = append(missing, fmt.Sprintf("node %d does not exist", id))
			} else if strict(t) && n.MemoryBytes != nil && *n.MemoryBytes == 0 {
				missing = append(missing, fmt.Sprintf("node %d has no memory", id))
			}
		}
	}
	if len(missing) > 0 {
		f.Evidence = all(domain(t, nodeSet(t)), at("/sys/devices/system/node", words.Few(missing, 3, ", ")))
		f.Consequence = "the VM does not start"
		add(f)
		return
	}
	for _, d := range v.demands(t) {
		have, facts := v.memoryOf(d.nodes)
		if have == 0 || d.bytes <= have {
			continue
		}
		f.Evidence = all(domain(t, d.said...), words.Few(facts, 4, "; "))
		f.Consequence = "the VM does not start, or is killed when it uses more than its NUMA nodes have"
		if d.nodes == nil {
			f.Fix = "give the VM less memory than the host has"
		}
		add(f)
		return
	}
}

// A demand is memory that a tenant needs.
type demand struct {
	nodes *topology.CPUSet // nil means any node
	bytes uint64
	pages uint64   // 0 for other memory
	count uint64   // number of hugepages
	part  uint64   // bytes of a cell smaller than a hugepage, or 0
	said  []string // evidence from the description
}

// demands returns the total, and the sum of strict cells for each set of nodes.
func (v *view) demands(t *topology.Tenant) []demand {
	var out []demand
	if t.MemoryBytes != nil {
		d := demand{bytes: *t.MemoryBytes, said: []string{"memory=" + size(*t.MemoryBytes)}}
		if strict(t) {
			d.nodes, d.said = t.MemoryNodes, append([]string{nodeSet(t)}, d.said...)
		}
		out = append(out, d)
	}
	cells := map[string]*demand{}
	for i := range t.Cells {
		c := &t.Cells[i]
		if c.MemoryBytes == nil || !strictly(c.MemoryNodes, c.MemoryMode) {
			continue
		}
		key := c.MemoryNodes.String()
		d := cmp.Or(cells[key], &demand{nodes: c.MemoryNodes})
		cells[key] = d
		d.bytes += *c.MemoryBytes
		d.said = append(d.said, fmt.Sprintf("cell %d memory=%s memnode=%s", i, size(*c.MemoryBytes), key))
	}
	return append(out, lists.InOrder(cells)...)
}

// memoryOf returns 0 if the memory of a node is unknown. nil means the whole machine.
func (v *view) memoryOf(nodes *topology.CPUSet) (sum uint64, facts []string) {
	if nodes == nil {
		if v.Memory.TotalBytes == nil {
			return 0, nil
		}
		return *v.Memory.TotalBytes, []string{at("/proc/meminfo", "MemTotal="+size(*v.Memory.TotalBytes))}
	}
	for id := range nodes.All() {
		n := v.NUMANode(id)
		if n == nil || n.MemoryBytes == nil {
			return 0, nil
		}
		sum += *n.MemoryBytes
		facts = append(facts, at(nodeFile(id, "meminfo"), "MemTotal="+size(*n.MemoryBytes)))
	}
	return sum, facts
}

func pinnedOf(t *topology.Tenant, vcpus topology.CPUSet) topology.CPUSet {
	pins := lists.Filter(t.Pins, func(p topology.Pin) bool { return vcpus.Contains(p.VCPU) })
	return topology.UnionOf(pins, func(p topology.Pin) topology.CPUSet { return p.CPUs })
}

// farMemory accepts one right node, because spreading may be intended.
func farMemory(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if !v.several {
		return
	}
	whole := topology.TenantCell{MemoryNodes: t.MemoryNodes, MemoryMode: t.MemoryMode}
	if v.farFrom(t, whole, allowedCPUs(t), nodeSet, add) {
		return
	}
	for i, c := range t.Cells {
		said := func(*topology.Tenant) string {
			return fmt.Sprintf("cell %d cpus=%s memnode %s nodeset=%s", i, c.VCPUs, cmp.Or(c.MemoryMode, "strict"),
				c.MemoryNodes)
		}
		if v.farFrom(t, c, pinnedOf(t, c.VCPUs), said, add) {
			return
		}
	}
}

// farFrom returns true if memory is on none of the nodes of cpus, or interleaved over others.
func (v *view) farFrom(t *topology.Tenant, c topology.TenantCell, cpus topology.CPUSet,
	said func(*topology.Tenant) string, add func(finding.Finding)) bool {
	nodes := v.NodesOf(cpus)
	if len(nodes) == 0 || c.MemoryNodes == nil || c.MemoryNodes.IsEmpty() {
		return false
	}
	f := finding.Finding{Severity: finding.Warning, Subject: t.Name,
		Consequence: "every access to memory goes over the interconnect between nodes",
		Fix:         "bind memory to nodes " + join(nodes) + ", or pin to CPUs of nodes " + c.MemoryNodes.String()}
	if slices.ContainsFunc(nodes, c.MemoryNodes.Contains) {
		over := c.MemoryNodes.Difference(topology.CPUs(nodes...))
		if c.MemoryMode != "interleave" || over.IsEmpty() {
			return false
		}
		f.Severity = finding.Info
		f.Consequence = "the pages on nodes " + over.String() + " are far from all of its CPUs"
	}
	f.Evidence = domain(t, said(t), fmt.Sprintf("CPUs %s (nodes %s)", cpus, join(nodes)))
	add(f)
	return true
}

// farDevice checks the first function of a device, and every virtual function, because they are given away one by one.
func farDevice(v *view, t *topology.Tenant, add func(finding.Finding)) {
	nodes := v.NodesOf(allowedCPUs(t))
	if !v.several || len(nodes) == 0 {
		return
	}
	var far []string
	for _, td := range t.Devices {
		d := v.tree.Device(td.PCI)
		if d == nil || d.NUMANode == nil || td.PCI.Function != 0 && d.PF == nil || slices.Contains(nodes, *d.NUMANode) {
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
		Evidence: all(words.Few(far, 4, "; "), domain(t, fmt.Sprintf("%s (nodes %s)", pinEvidence(t), join(nodes)))),
		Fix:      "pin the VM to CPUs of the device's node, or give it a device of nodes " + join(nodes)})
}

// fewPagesLeft skips running tenants, whose pages are no longer free.
func fewPagesLeft(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if !stopped(t) || t.PagesAtStart {
		return
	}
	for _, d := range v.pageDemands(t) {
		if d.part > 0 {
			add(finding.Finding{Subject: t.Name, Title: "memory of the VM is smaller than one of its hugepages",
				Evidence:    domain(t, "memory="+size(d.part), "hugepages="+size(d.pages)),
				Consequence: "the VM does not start: QEMU makes no memory that is smaller than its pages",
				Fix:         "take smaller pages for it, or give it a whole one"})
			return
		}
		if v.fewPages(t, d, add) {
			return
		}
	}
}

func (v *view) pageDemands(t *topology.Tenant) []demand {
	cells := t.Cells
	if len(cells) == 0 || slices.ContainsFunc(cells, func(c topology.TenantCell) bool { return c.MemoryBytes == nil }) {
		cells = []topology.TenantCell{{MemoryBytes: t.MemoryBytes, Hugepages: t.Hugepages,
			MemoryNodes: t.MemoryNodes, MemoryMode: t.MemoryMode}}
	}
	byKey := map[string]*demand{}
	for _, c := range cells {
		if c.MemoryBytes == nil || c.Hugepages == nil {
			continue
		}
		d := demand{pages: *c.Hugepages}
		if d.pages == 0 && v.Memory.DefaultHuge != nil {
			d.pages = *v.Memory.DefaultHuge
		}
		if d.pages == 0 {
			continue
		}
		key := fmt.Sprint(d.pages)
		if strictly(c.MemoryNodes, c.MemoryMode) {
			d.nodes = c.MemoryNodes
			key += " on " + d.nodes.String()
		}
		of := byKey[key]
		if of == nil {
			of = &d
			byKey[key] = of
		}
		of.count += *c.MemoryBytes/d.pages + min(1, *c.MemoryBytes%d.pages) // rounded up to whole pages
		of.bytes += *c.MemoryBytes
		if *c.MemoryBytes < d.pages {
			of.part = *c.MemoryBytes
		}
	}
	return lists.InOrder(byKey)
}

func (v *view) fewPages(t *topology.Tenant, d demand, add func(finding.Finding)) bool {
	var free uint64
	var facts []string
	known := true
	count := func(path string, pools []topology.HugepagePool) {
		p := topology.Pool(pools, d.pages)
		switch {
		case p == nil:
			known = known && v.poolsListed() // the size does not exist
		case p.Free == nil:
			known = false
		default:
			free += *p.Free
			facts = append(facts, at(path, fmt.Sprintf("free_hugepages=%d", *p.Free)))
		}
	}
	if d.nodes != nil {
		for id := range d.nodes.All() {
			if n := v.NUMANode(id); n != nil {
				count(poolPath(d.pages, id), n.Hugepages)
			} else {
				known = false // reported by RL070
			}
		}
	} else {
		count(poolPath(d.pages), v.Memory.Hugepages)
	}
	// A pool that was not read may have them.
	if !known || free >= d.count {
		return false
	}
	if len(facts) == 0 {
		facts = []string{at(poolPath(d.pages), "not there")}
	}
	add(finding.Finding{Subject: t.Name,
		Evidence: all(domain(t, "memory="+size(d.bytes), "hugepages="+size(d.pages)),
			words.Few(facts, 4, "; ")),
		Consequence: fmt.Sprintf("the VM does not start: it needs %d free pages of %s and there are %d", d.count,
			size(d.pages), free),
		Fix: "set aside more pages on its NUMA nodes, or stop what holds them"})
	return true
}

// missingDevice skips sources that list only some functions.
func missingDevice(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if kind := v.Provenance.Kind; len(v.PCI) == 0 || kind != topology.SourceLive && kind != topology.SourceTree {
		return
	}
	var facts []string
	for _, td := range t.Devices {
		if v.tree.Device(td.PCI) == nil {
			facts = append(facts, at(pci(td.PCI), "not there"))
		}
	}
	if len(facts) > 0 {
		add(finding.Finding{Subject: t.Name, Evidence: all(domain(t, "hostdev"), words.Few(facts, 4, "; "))})
	}
}

func partOfGroup(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if !stopped(t) || t.Cut {
		return
	}
	own := map[topology.PCIAddr]bool{}
	for _, td := range t.Devices {
		own[td.PCI] = true
		for i := range v.PCI {
			f := &v.PCI[i]
			if td.Whole && f.Address.SameDevice(td.PCI) {
				own[f.Address] = true
			}
		}
	}
	for i := range v.IOMMU.Groups {
		g := &v.IOMMU.Groups[i]
		if !slices.ContainsFunc(g.Devices, func(a topology.PCIAddr) bool { return own[a] }) {
			continue
		}
		var facts []string
		for _, a := range g.Devices {
			d := v.tree.Device(a)
			if own[a] || d == nil || d.IsBridge() || d.Driver == "" || topology.IsVFIO(d.Driver) ||
				d.Driver == "pci-stub" {
				continue
			}
			facts = append(facts, at(pci(a), driverFact(d)))
		}
		if len(facts) > 0 {
			add(finding.Finding{Subject: t.Name,
				Evidence: all(domain(t, "hostdev"), at(groupPath(g), addresses(g.Devices)), words.Few(facts, 4, "; ")),
				Consequence: "the VM does not start: drivers of the host work on other devices of IOMMU group " +
					fmt.Sprint(g.ID)})
		}
	}
}

// sharedDevice is an error only if no owner is stopped: owners may take turns.
func sharedDevice(v *view, add func(finding.Finding)) {
	owners := map[topology.PCIAddr][]*topology.Tenant{}
	for i := range v.Tenants {
		t := &v.Tenants[i]
		for _, d := range t.Devices {
			owners[d.PCI] = lists.Add(owners[d.PCI], t)
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

// allFunctions needs host bridges, which an excerpt of lspci's list lacks.
func (v *view) allFunctions() bool {
	return v.fromFiles() || slices.ContainsFunc(v.PCI, func(d topology.PCIDevice) bool {
		return d.Class != nil && d.Class.Sub() == topology.SubHostBridge
	})
}

func screenFact(d *topology.PCIDevice) string {
	if d.BootVGA != nil {
		return "boot_vga=1"
	}
	return "the only one, as far as is known"
}

// takesHostDevice includes stopped tenants, which may start automatically at boot.
func takesHostDevice(v *view, add func(finding.Finding)) {
	needed := v.needed()
	screens, screen := v.Screens()
	if screen == nil && len(screens) == 1 && screens[0].BootVGA == nil && !v.virtual && v.allFunctions() {
		screen = screens[0]
	}
	for i := range v.Tenants {
		t := &v.Tenants[i]
		for _, d := range t.Devices {
			// On a vfio driver it is no longer the screen.
			if screen != nil && d.PCI == screen.Address && !topology.IsVFIO(screen.Driver) {
				add(finding.Finding{Subject: t.Name, Severity: finding.Warning,
					Title: "VM is given the screen of the host",
					Evidence: all(domain(t, "hostdev "+d.PCI.String()),
						at(pci(d.PCI), "class=0x0300", screenFact(screen))),
					Consequence: "when the VM starts, the host loses its console",
					Fix: "make another graphics card the primary one in the firmware, or reach the host over the " +
						"network or a serial console and add initcall_blacklist=sysfb_init to its command line"})
			}
			need, ok := needed[d.PCI]
			if !ok {
				continue
			}
			add(finding.Finding{Subject: t.Name,
				Evidence:    all(domain(t, "hostdev "+d.PCI.String()), at(pci(d.PCI), need.how)),
				Consequence: "when the VM starts, the host loses its " + need.what,
				Fix:         "take " + d.PCI.String() + " out of the VM, or move the host to another device first"})
		}
	}
}

// heldGPU skips running tenants, whose devices are on a vfio driver.
func heldGPU(v *view, g *topology.GPU, add func(finding.Finding)) {
	// With another driver, the daemon does not have it open.
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
