package rivals

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/plan"
)

// handCPUs is the shortest recipe of the guides: vCPU 0 to the first free CPU, vCPU 1 to the next.
func handCPUs() system {
	return system{
		Rival: Rival{
			ID: "hand-vcpupin", Name: "vcpupin by hand, CPUs in numeric order", Version: "guides of 2010 to 2026",
			Rules: []string{
				"The lowest cores with their siblings are kept for the host (isolcpus= lists the others).",
				"vCPU k is pinned 1:1 to the k-th CPU that is left, in the order of CPU numbers. Siblings are not " +
					"looked at.",
				"The next domain goes on where the last one ended.",
				"<numatune> binds memory strictly to the NUMA nodes of these CPUs.",
				"<hostdev> devices are named in the order of lspci.",
			},
			Sources: []string{
				"6erun/vcpu_benchmarks, variant A \"pin\" (one vCPU for each first thread, nodes in order): " +
					"https://github.com/6erun/vcpu_benchmarks",
				"Red Hat Enterprise Linux 6, Virtualization Tuning and Optimization Guide, 9.3.3 Domain vCPU Threads " +
					"(1:1 vcpupin, strict numatune of the nodes in use): " +
					"https://docs.redhat.com/en/documentation/Red_Hat_Enterprise_Linux/6/html/virtualization_tuning_and_optimization_guide/",
			},
			Differs: append(handDiffers(), "Where siblings are numbered apart (0 and 32), a domain gets one thread "+
				"of each of many cores, and two domains share cores. They are rounded to whole cores of the same "+
				"NUMA nodes, those that nobody shares first."),
		},
		start: func(h *host) error { h.reserve(false); return nil },
		place: func(h *host, i int) error { return h.byHand(i, false) },
	}
}

// handCores is the better guide: siblings are pinned together.
func handCores() system {
	return system{
		Rival: Rival{
			ID: "hand-vcpupin-cores", Name: "vcpupin by hand, cores in numeric order",
			Version: "guides of 2010 to 2026",
			Rules: []string{
				"The lowest cores with their siblings are kept for the host (isolcpus= lists the others).",
				"lscpu -e shows the siblings. vCPUs 2k and 2k+1 are pinned to both threads of the k-th core that is " +
					"left, in the order of core numbers.",
				"The next domain goes on where the last one ended.",
				"<numatune> binds memory strictly to the NUMA nodes of these cores.",
				"<hostdev> devices are named in the order of lspci.",
			},
			Sources: []string{
				"6erun/vcpu_benchmarks, variant C \"pin-numa-smt\" (vCPU 2k on core k, 2k+1 on its sibling): " +
					"https://github.com/6erun/vcpu_benchmarks",
				"Arch Linux wiki, PCI passthrough via OVMF, CPU pinning: " +
					"https://wiki.archlinux.org/title/PCI_passthrough_via_OVMF",
			},
			Differs: handDiffers(),
		},
		start: func(h *host) error { h.reserve(false); return nil },
		place: func(h *host, i int) error { return h.byHand(i, true) },
	}
}

func handDiffers() []string {
	return []string{
		"A reserve is as many of the lowest cores as the lab asks for, those of single NUMA nodes and of packages " +
			"with busy devices first. Emulator threads run there.",
		"A domain without SMT (one vCPU for each core) takes the first thread of each core.",
		"Memory within the bound nodes goes by first touch, so in proportion to the vCPUs.",
		"Devices: the first free ones in address order, whose IOMMU group is not in use elsewhere.",
	}
}

// byHand pins request i to the next CPUs in order.
func (h *host) byHand(i int, siblings bool) error {
	r := &h.p.Requests[i]
	var n plan.NodePlacement
	if err := h.byAddress(&n, i); err != nil {
		return err
	}
	var left []int
	for c := range h.p.Cores {
		cpus := h.p.Cores[c].CPUs
		if r.Threads < h.threads() {
			cpus = cpus[:min(len(cpus), r.Threads)]
		}
		if siblings && slices.ContainsFunc(h.p.Cores[c].CPUs, func(cpu int) bool { return !h.free(cpu) }) {
			continue // a thread of it is in use
		}
		for _, cpu := range cpus {
			if h.free(cpu) {
				left = append(left, cpu)
			}
		}
	}
	slices.SortFunc(left, func(a, b int) int {
		if siblings {
			// Cores are numbered by their first thread, as lscpu -e does.
			if d := cmp.Compare(h.p.Cores[h.coreOf[a]].CPUs[0], h.p.Cores[h.coreOf[b]].CPUs[0]); d != 0 {
				return d
			}
		}
		return cmp.Compare(a, b)
	})
	if len(left) < r.VCPUs {
		return fmt.Errorf("%d CPUs are left, %d vCPUs to pin", len(left), r.VCPUs)
	}
	pins := left[:r.VCPUs]
	return h.pin(n, i, pins, h.nodesOf(pins))
}

// pin places request i on CPUs, with memory by first touch on the allowed NUMA nodes.
func (h *host) pin(n plan.NodePlacement, i int, cpus, allowed []int) error {
	for _, c := range cpus {
		h.user[c] = i
	}
	cores := h.round(i, cpus)
	var err error
	if n.Memory, err = h.touch(h.p.Requests[i].Pages, cores, allowed); err != nil {
		return err
	}
	h.put(n, cores)
	return nil
}

// nodesOf returns the NUMA nodes of CPUs, ascending.
func (h *host) nodesOf(cpus []int) []int {
	var nodes []int
	for _, c := range cpus {
		nodes = append(nodes, h.p.Cores[h.coreOf[c]].NUMANode)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
