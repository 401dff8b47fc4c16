package rivals

import (
	"errors"

	"github.com/rackless/rackless/plan"
)

// libvirtDefault is a domain as virt-install writes it: no cputune, no numatune.
func libvirtDefault() system {
	return system{
		Rival: Rival{
			ID: "libvirt-default", Name: "libvirt without pinning", Version: "documentation of libvirt 11 and Linux 6",
			Rules: []string{
				"A domain without <vcpupin>, cpuset= or <numatune> has vCPU threads that may run on every CPU of " +
					"the host.",
				"The Linux scheduler puts a waking thread on an idle CPU where it finds one: busy vCPUs spread over " +
					"the idle cores of all NUMA nodes.",
				"Memory comes from the NUMA node of the CPU that touches it first, and from the nearest node with " +
					"free memory when that is used up.",
				"<hostdev> devices are the ones that the user names.",
			},
			Sources: []string{
				"libvirt, Domain XML format, sections CPU Allocation, CPU Tuning and NUMA Node Tuning: " +
					"https://libvirt.org/formatdomain.html",
				"Linux, Scheduler Domains: https://docs.kernel.org/scheduler/sched-domains.html",
				"Linux, NUMA Memory Policy, system default policy: " +
					"https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html",
			},
			Differs: []string{
				"It decides nothing about cores. Costed is the spread to expect under load: cores of each NUMA node " +
					"in proportion to the idle ones there, whole cores, a different set for each lab node as long as " +
					"there are enough. In truth the vCPUs wander, and every L3 cache is shared with everybody; no " +
					"term counts that.",
				"Automatic NUMA balancing is not modelled: it moves memory after the threads, and not at all with " +
					"hugepages or with devices passed through.",
				"Nothing is kept for the host. Within a NUMA node reserved cores are used last.",
				"Devices: the first free ones in address order, whose IOMMU group is not in use elsewhere.",
			},
		},
		place: func(h *host, i int) error {
			var n plan.NodePlacement
			if err := h.byAddress(&n, i); err != nil {
				return err
			}
			return h.float(n, i, h.nodes, h.nodes)
		},
		start: func(h *host) error { h.reserve(false); return nil },
	}
}

// float places request i over NUMA nodes without pinning: an expected share of cores on each,
// memory by first touch on the allowed nodes.
func (h *host) float(n plan.NodePlacement, i int, nodes, allowed []int) error {
	r := &h.p.Requests[i]
	cores := h.spread(r, nodes)
	if len(cores) == 0 {
		return errors.New("no CPUs to run on")
	}
	var err error
	if n.Memory, err = h.touch(r.Pages, cores, allowed); err != nil {
		return err
	}
	h.floats = append(h.floats, i)
	h.floatsOn = append(h.floatsOn, nodes)
	h.put(n, cores)
	return nil
}
