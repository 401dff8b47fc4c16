package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// kernelArgs returns what the kernel of the host has to be started with, and the reason of each. Sources: the kernel's
// Documentation/admin-guide/kernel-parameters.txt.
func (a *assembly) kernelArgs(pl *Plan) (args, why []string) {
	add := func(arg, reason string) { args, why = append(args, arg), append(why, reason) }
	if slices.ContainsFunc(pl.Nodes, func(n Node) bool { return len(n.Devices) > 0 }) {
		const why = "devices that the host keeps are not slowed down by the IOMMU"
		switch {
		case a.h.System.Arch == "aarch64":
			// The SMMU is on where the firmware describes one; iommu=pt is a parameter of x86.
			add("iommu.passthrough=1", why)
		case strings.Contains(a.h.System.CPUModel, "AMD"):
			// On by default wherever the firmware has it on, and amd_iommu has no "on".
			add("iommu=pt", why)
		case a.h.System.Arch == "" || a.h.System.Arch == "x86_64":
			add("intel_iommu=on", "the IOMMU of Intel is off unless the kernel was built otherwise; other CPUs "+
				"ignore it")
			add("iommu=pt", why)
		}
	}
	// What tenants have isolated now must stay so: the new arguments take the place of the old ones.
	if given := a.given().Union(isolatedTenants(a.h, pl)); !given.IsEmpty() {
		list := given.String()
		add("isolcpus=managed_irq,domain,"+list, "nothing of the host is scheduled on the CPUs of the lab nodes, nor "+
			"its managed interrupts")
		add("nohz_full="+list, "no timer tick while a virtual CPU runs alone")
		add("rcu_nocbs="+list, "the kernel's callbacks run on housekeeping CPUs")
	}
	if len(pl.Hugepages) == 0 {
		return args, why
	}
	size := words.Either(a.p.HugepageBytes == 1<<30, "1G", "2M")
	var counts []string
	for _, n := range pl.Hugepages {
		if n.Count+n.Held > 0 {
			counts = append(counts, fmt.Sprintf("%d:%d", n.NUMANode, n.Count+n.Held))
		}
	}
	// Per node since Linux 5.16: a plain number is spread evenly, and a strict memory policy then
	// finds too few on its node.
	add("hugepagesz="+size, "the size of the pages that are set aside next")
	add("hugepages="+strings.Join(counts, ","), "pages are set aside while memory is still in one piece, on the NUMA "+
		"nodes that the lab nodes use")
	return args, why
}

// isolatedTenants returns the CPUs of tenants that are isolated as the host runs now.
func isolatedTenants(h *topology.Host, pl *Plan) topology.CPUSet {
	if h.CPUs.Isolated == nil {
		return topology.CPUSet{}
	}
	return h.CPUs.Isolated.Intersect(pl.Housekeeping.TenantCPUs)
}

// given returns all CPUs of cores that lab nodes have, idle siblings too.
func (a *assembly) given() topology.CPUSet {
	var all topology.CPUSet
	for _, n := range a.pl.Nodes {
		for _, id := range n.Cores {
			all = all.Union(topology.CPUs(a.Cores[id].CPUs...))
		}
	}
	return all
}
