package rivals

import (
	"cmp"
	"errors"
	"slices"

	"github.com/rackless/rackless/plan"
)

// incus is a virtual machine of Incus (and of LXD, which it came from) with limits.cpu=N and limits.cpu.nodes=balanced.
func incus() system {
	return system{
		Rival: Rival{
			ID: "incus", Name: "Incus, limits.cpu=N with limits.cpu.nodes=balanced",
			Version: "Incus main of 2026-08-22, commit be7afc5df3",
			Rules: []string{
				"limits.cpu=N gives a virtual machine N vCPUs and pins none of them.",
				"limits.cpu.nodes=balanced counts the instances on each NUMA node when an instance starts and takes " +
					"the node with the fewest; size, free memory and devices do not count.",
				"An instance with more vCPUs than a node has CPUs gets as many nodes as it needs, again those with " +
					"the fewest instances.",
				"vCPU threads float over all CPUs of these nodes that isolcpus= does not hold back. Memory is bound " +
					"to these nodes.",
				"Containers alone are balanced CPU by CPU: the CPUs with the fewest users first.",
				"gpu, pci and nic devices are the ones that the user names.",
			},
			Sources: []string{
				"lxc/incus, internal/server/instance/drivers/driver_qemu.go and cmd/incusd/devices.go " +
					"(deviceTaskBalance): https://github.com/lxc/incus",
				"Incus documentation, Instance options, limits.cpu.nodes and volatile.cpu.nodes: " +
					"https://linuxcontainers.org/incus/docs/main/reference/instance_options/",
			},
			Differs: []string{
				"Of nodes with equally many instances the lowest is taken; the documentation leaves it open.",
				"Which cores of the node run the vCPUs is open. Costed are whole cores with the fewest lab nodes on " +
					"them, lowest first; the reserved ones last.",
				"Nothing can be kept for the host: CPUs under isolcpus= are kept from instances and host alike.",
				"Emulator threads are not confined. Guest NUMA is shown with explicit pins only.",
				"Devices: the first free ones in address order, whose IOMMU group is not in use elsewhere.",
			},
		},
		start: func(h *host) error { h.reserve(false); return nil },
		place: func(h *host, i int) error {
			var n plan.NodePlacement
			if err := h.byAddress(&n, i); err != nil {
				return err
			}
			nodes := h.balanced(h.p.Requests[i].VCPUs)
			if len(nodes) == 0 {
				return errors.New("no CPUs to run on")
			}
			return h.float(n, i, nodes, nodes)
		},
	}
}

// balanced picks the NUMA nodes for an instance and counts it on them.
func (h *host) balanced(vcpus int) []int {
	cpus := map[int]int{}
	for _, c := range h.p.Cores {
		if c.Tenant == "" {
			cpus[c.NUMANode] += len(c.CPUs)
		}
	}
	order := slices.DeleteFunc(slices.Clone(h.nodes), func(n int) bool { return cpus[n] == 0 })
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(h.instances[a], h.instances[b]) })
	var nodes []int
	for _, n := range order {
		if vcpus <= 0 {
			break
		}
		nodes = append(nodes, n)
		h.instances[n]++
		vcpus -= cpus[n]
	}
	slices.Sort(nodes)
	return nodes
}
