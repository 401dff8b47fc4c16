package diagnose

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// tornSiblings finds guest cores on several host cores: the guest cannot see that it shares these.
func tornSiblings(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if t.GuestThreads < 2 {
		return
	}
	// On a machine without threads the guest's are cores. Cores with one thread beside others with two are efficiency
	// cores.
	several := func(c topology.Core) bool { return c.CPUs.Len() > 1 }
	if !slices.ContainsFunc(v.Cores, several) {
		return
	}
	cpu := map[int]topology.CPUSet{}
	for _, p := range t.Pins {
		if p.CPUs.Len() == 1 {
			cpu[p.VCPU] = p.CPUs
		}
	}
	var torn []string
	for vcpu := range t.VCPUs {
		first := vcpu - vcpu%t.GuestThreads
		a, okA := cpu[first]
		b, okB := cpu[vcpu]
		if !okA || !okB {
			continue
		}
		if core := v.Core(a.Min()); core != nil && !core.CPUs.Contains(b.Min()) {
			torn = append(torn, fmt.Sprintf("vcpu %d=%s %d=%s", first, a, vcpu, b))
		}
	}
	if len(torn) == 0 {
		return
	}
	own := t.Pinned()
	var order []int
	var single topology.CPUSet // CPUs that have no sibling
	for i := range v.Cores {
		c := &v.Cores[i]
		if c.CPUs.Len() == 1 && c.CPUs.IsSubsetOf(own) {
			single = single.Union(c.CPUs)
		}
		if both := c.CPUs.Intersect(own); both.Len() > 1 {
			order = slices.AppendSeq(order, both.All())
		}
	}
	outside := v.WholeCores(own).Difference(own)
	f := finding.Finding{Subject: t.Name,
		Evidence: all(domain(t, fmt.Sprintf("topology threads=%d", t.GuestThreads), words.Few(torn, 3, ", ")),
			at(siblings(own.Min()), v.Core(own.Min()).CPUs.String())),
		Consequence: "what the guest takes for the threads of one core is two cores of the host: it shares caches " +
			"and places work as if they were one",
		Fix: "pin the threads of each guest core to the siblings of one core of the host",
	}
	if len(order) == own.Len() {
		f.Fix += ": virtual CPUs in order to CPUs " + join(order)
	}
	if !single.IsEmpty() {
		f.Fix += fmt.Sprintf("; CPUs %s have no siblings: take cores with two threads, or threads=1 for the guest",
			single)
	}
	if !outside.IsEmpty() {
		f.Consequence += "; CPUs " + outside.String() + " are siblings of its CPUs, and the host works on them"
		if e := t.EmulatorCPUs; e != nil && e.Overlaps(outside) {
			f.Consequence += fmt.Sprintf(" (its emulator on %s)", e.Intersect(outside))
		}
	}
	add(f)
}

// mixedCores matters because the guest takes all of its CPUs for equal.
func mixedCores(v *view, t *topology.Tenant, add func(finding.Finding)) {
	on := map[string][]int{} // by kind of core
	for _, p := range t.Pins {
		kind := ""
		for cpu := range p.CPUs.All() {
			switch core := v.Core(cpu); {
			case core == nil || core.Kind == "" || kind != "" && kind != core.Kind:
				kind = "unclear"
			case kind == "":
				kind = core.Kind
			}
		}
		on[kind] = append(on[kind], p.VCPU)
	}
	strong, weak := on[topology.KindPerformance], on[topology.KindEfficiency]
	if len(strong) == 0 || len(weak) == 0 {
		return
	}
	add(finding.Finding{Subject: t.Name, Evidence: all(domain(t, "vcpus "+topology.CPUs(strong...).String()+" on "+
		"performance cores, "+topology.CPUs(weak...).String()+" on efficiency cores"), "vcpupin "+t.Pinned().String())})
}

// hiddenSiblings is the reverse of tornSiblings. Descriptions with only pins do not include the guest's topology.
func hiddenSiblings(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if t.GuestThreads > 1 || t.GuestNodes == nil || t.GuestThreads == 0 && t.Cut {
		return
	}
	vcpus := map[int][]int{} // by CPU
	for _, p := range t.Pins {
		if p.CPUs.Len() == 1 {
			vcpus[p.CPUs.Min()] = append(vcpus[p.CPUs.Min()], p.VCPU)
		}
	}
	var facts []string
	var cores topology.CPUSet
	used := 0
	for i := range v.Cores {
		c := &v.Cores[i]
		var on []int
		threads := 0
		for cpu := range c.CPUs.All() {
			on = append(on, vcpus[cpu]...)
			threads += min(1, len(vcpus[cpu]))
		}
		used += min(1, threads)
		if threads > 1 {
			facts = append(facts, fmt.Sprintf("vcpus %s on %s", join(on), c.CPUs))
			cores = cores.Union(c.CPUs)
		}
	}
	if len(facts) == 0 || used < 2 { // no difference on a single core
		return
	}
	add(finding.Finding{Subject: t.Name,
		Evidence: all(domain(t, "topology threads=1", words.Few(facts, 3, ", ")),
			at(siblings(cores.Min()), v.Core(cores.Min()).CPUs.String()))})
}

func (v *view) guestCards(t *topology.Tenant) (gpus, nics []*topology.PCIDevice, nodes topology.CPUSet) {
	for _, td := range t.Devices {
		d := v.tree.Device(td.PCI)
		switch {
		case d == nil:
			continue
		case d.IsGPU():
			gpus = append(gpus, d)
		case d.IsNIC():
			nics = append(nics, d)
		default:
			continue
		}
		if d.NUMANode != nil {
			nodes = nodes.Union(topology.ValidCPUs([]int{*d.NUMANode}))
		}
	}
	return gpus, nics, nodes
}

// flatNUMA finds guests on several nodes that see one. Without pins, devices or the size decide.
func flatNUMA(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if !v.several || t.GuestNodes == nil || t.VCPUs < 2 {
		return
	}
	if *t.GuestNodes > 1 {
		v.flatCells(t, add)
		return
	}
	if t.Cut {
		return // cells may follow
	}
	nodes := v.NodesOf(t.Pinned())
	want := atWork(t)
	facts := []string{fmt.Sprintf("vcpu=%d", want), fmt.Sprintf("numa cells=%d", *t.GuestNodes)}
	_, _, far := v.guestCards(t)
	if own := t.Pinned(); !own.IsEmpty() {
		facts = append(facts, "vcpupin "+own.String())
	} else {
		most := 0
		for i := range v.NUMANodes {
			n := &v.NUMANodes[i]
			cpus := n.CPUs
			if t.Floating != nil {
				cpus = cpus.Intersect(*t.Floating)
			}
			if !cpus.IsEmpty() || t.Floating == nil {
				nodes = append(nodes, n.ID)
			}
			most = max(most, cpus.Len())
		}
		if want <= most && (far.Len() < 2 || t.MemoryNodes != nil && t.MemoryNodes.Len() == 1) {
			return
		}
		if t.Floating != nil {
			facts = append(facts, pinEvidence(t))
		} else {
			facts = append(facts, "vcpupin=none")
		}
	}
	if len(nodes) < 2 {
		return
	}
	f := finding.Finding{Subject: t.Name,
		Evidence: all(domain(t, facts...), at("/sys/devices/system/node", "nodes "+join(nodes))),
		Consequence: "the guest sees one node where its CPUs and memory are on several: its kernel and programs " +
			"place nothing near anything",
		Fix: "give the guest a NUMA cell for each node (cpu/numa/cell), with numatune memnode and pins to match; or " +
			"keep it on one node"}
	if far.Len() > 1 {
		f.Consequence += fmt.Sprintf("; its devices, of nodes %s, have no node in the guest", far)
		f.Fix += "; put the devices of each node on a pcie-expander-bus of its cell"
	}
	add(f)
}

func (v *view) flatCells(t *topology.Tenant, add func(finding.Finding)) {
	for i, c := range t.Cells {
		cpus := pinnedOf(t, c.VCPUs)
		nodes := v.NodesOf(cpus)
		if len(nodes) < 2 {
			continue
		}
		add(finding.Finding{Subject: t.Name,
			Evidence: all(domain(t, fmt.Sprintf("cell %d cpus=%s", i, c.VCPUs), "vcpupin "+cpus.String()),
				at("/sys/devices/system/node", "nodes "+join(nodes))),
			Consequence: "the guest takes CPUs of several nodes for one node",
			Fix:         "pin the virtual CPUs of each cell to one node, with its memory (numatune memnode) there"})
		return
	}
}

func devicesApart(v *view, t *topology.Tenant, add func(finding.Finding)) {
	_, _, far := v.guestCards(t)
	if far.Len() < 2 || t.GuestNodes == nil || *t.GuestNodes < 2 || t.GuestExpanders == nil ||
		*t.GuestExpanders > 0 || t.Cut {
		return
	}
	add(finding.Finding{Subject: t.Name,
		Evidence:    domain(t, fmt.Sprintf("numa cells=%d", *t.GuestNodes), "controllers pcie-expander-bus=0"),
		Consequence: fmt.Sprintf("its devices, of nodes %s, have no node in the guest", far)})
}

// flatTree matters because NCCL reads the guest's tree, and by default uses GPUDirect RDMA only up to PXB.
func flatTree(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if t.GuestSwitches == nil || *t.GuestSwitches > 0 || t.Cut {
		return
	}
	gpus, nics, _ := v.guestCards(t)
	for _, g := range gpus {
		for _, n := range nics {
			class := v.tree.Between(g.Address, n.Address)
			if class != topology.PathPIX && class != topology.PathPXB {
				continue
			}
			add(finding.Finding{Subject: t.Name,
				Evidence: all(fmt.Sprintf("path %s to %s: %s", g.Address, n.Address, class),
					domain(t, "controllers pcie-switch-upstream-port=0"))})
			return
		}
	}
}

// redirectedGuest finds isolation that only protects the host, since one guest owns both. Only ATS allows both
// isolation and the short path. Without known guests it is a note.
func redirectedGuest(v *view, add func(finding.Finding)) {
	if v.virtual {
		return
	}
	type pair struct{ gpu, nic *topology.PCIDevice }
	judge := func(owner string, severity finding.Severity, pairs []pair) {
		for _, p := range pairs {
			ports := v.tree.Redirecting(p.gpu, p.nic)
			if len(ports) == 0 {
				continue
			}
			facts := []string{owner}
			for _, d := range []*topology.PCIDevice{p.gpu, p.nic} {
				ats := "ATS not there"
				if d.ATS != nil {
					ats = fmt.Sprintf("ATS enabled=%t", *d.ATS)
				}
				facts = append(facts, at(pci(d.Address), driverFact(d), ats))
			}
			add(finding.Finding{Subject: join(ports), Severity: severity, Evidence: all(append(facts, at(pci(ports[0])+
				"/config", "ACSCtl: ReqRedir+"))...), Consequence: fmt.Sprintf("GPUDirect RDMA between %s and %s "+
				"goes up to the IOMMU and back: slower, and shared by all below the switch", p.gpu.Address,
				p.nic.Address)})
			return
		}
	}
	cross := func(gpus, nics []*topology.PCIDevice) (pairs []pair) {
		for _, g := range gpus {
			for _, n := range nics {
				if topology.IsVFIO(g.Driver) && topology.IsVFIO(n.Driver) {
					pairs = append(pairs, pair{g, n})
				}
			}
		}
		return pairs
	}
	for i := range v.Tenants {
		t := &v.Tenants[i]
		gpus, nics, _ := v.guestCards(t)
		judge(domain(t, "hostdev"), finding.Warning, cross(gpus, nics))
	}
	if len(v.Tenants) == 0 {
		// Guests may exist that are not listed.
		cards := lists.Map(v.PCI, func(d topology.PCIDevice) topology.TenantDevice {
			return topology.TenantDevice{PCI: d.Address}
		})
		gpus, nics, _ := v.guestCards(&topology.Tenant{Devices: cards})
		judge("no guest is known that has them: this counts if one gets both", finding.Info, cross(gpus, nics))
	}
}
