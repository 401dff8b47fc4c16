package diagnose

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rackless/rackless/topology"
)

func tenantResRules() []rule {
	return []rule{
		{Check{
			ID: "RL070", Title: "tenant is bound to NUMA nodes that cannot hold it",
			Severity: Error,
			Summary: "Strict memory binding names nodes that do not exist, have no memory, or have less than the " +
				"tenant wants.",
			Reads: []string{"virsh dumpxml DOMAIN (numatune, memory)", "/sys/devices/system/node/node*/meminfo"},
			Means: "The tenant does not start, or is killed when it touches the memory that is not there. Mostly the " +
				"definition is from another machine, " +
				"or the firmware's setting for NUMA nodes per socket has changed and with it the numbers.",
			Fix: "Plan the tenant again on this machine, or change the nodeset (`virsh numatune DOMAIN --nodeset " +
				"LIST --config`).",
			Sources: []string{"kubevirt/kubevirt#14854", "autotest/tp-libvirt#2695"},
		}, nodesTooSmall},
		{Check{
			ID: "RL071", Title: "tenant's memory is not on the nodes of its CPUs",
			Severity: Warning,
			Summary:  "A tenant is bound to memory of NUMA nodes on which none of its pinned CPUs is.",
			Reads:    []string{"virsh dumpxml DOMAIN (numatune, vcpupin)", "/sys/devices/system/node/node*/cpulist"},
			Means: "Every access goes over the interconnect. On an EPYC 7551P RDMA latency with CPUs on the wrong " +
				"node was 13% higher in the middle, 29% " +
				"at p99 and 53% at p99.9.",
			Fix:     "Bind memory to the nodes of the CPUs, or pin to CPUs of the memory's nodes.",
			Sources: []string{"EPYC lab (latency on the wrong NUMA nodes)", "pinning study"},
		}, farMemory},
		{Check{
			ID: "RL072", Title: "tenant's device is not on the nodes of its CPUs",
			Severity: Warning,
			Summary: "A GPU or NIC of a tenant is attached to a NUMA node on which none of the tenant's pinned " +
				"CPUs is.",
			Reads: []string{"virsh dumpxml DOMAIN (hostdev, vcpupin)", "/sys/bus/pci/devices/*/numa_node"},
			Means: "Copies to the GPU and interrupts of the NIC cross the interconnect between nodes. The guest " +
				"cannot see it: its devices " +
				"and its memory look alike.",
			Fix:     "Pin the tenant to CPUs of the device's node, or give it a device of its own node.",
			Sources: []string{"EPYC lab", "pinning study (guest NUMA helped or hurt by where the GPUs sit)"},
		}, farDevice},
		{Check{
			ID: "RL073", Title: "not enough free hugepages for the tenant to start",
			Severity: Error,
			Summary:  "A tenant that does not run wants hugepages, and fewer are free on its nodes than it needs.",
			Reads: []string{"virsh dumpxml DOMAIN (memoryBacking, numatune)",
				"/sys/devices/system/node/node*/hugepages/hugepages-*kB/free_hugepages",
				"/sys/kernel/mm/hugepages/hugepages-*kB/free_hugepages"},
			Means: "The start fails with `unable to map backing store for guest RAM: Cannot allocate memory`. With " +
				"strict binding the pages must be free " +
				"on the tenant's own nodes; pages elsewhere do not count.",
			Fix: "Set aside more pages on those nodes (1 GiB pages: on the command line, then reboot), stop what " +
				"holds them, or bind the tenant to " +
				"nodes with free pages.",
			Sources: []string{"kubevirt/kubevirt#14854", "kubernetes/kubernetes#132084", "autotest/tp-libvirt#2695"},
		}, fewPagesLeft},
		{Check{
			ID: "RL074", Title: "device is given to several tenants",
			Severity: Error, Also: []Severity{Warning},
			Summary: "Two tenants name the same device. A warning when one of them does not run.",
			Reads:   []string{"virsh dumpxml DOMAIN (hostdev)"},
			Means: "A device has one owner at a time: the tenant that is started second fails. It may be meant, " +
				"when the two never run together.",
			Fix:     "Give the second one another device, or a virtual function of the same one.",
			Sources: []string{"libvirt domain XML (hostdev)", "vSphere study (a VF per machine)"},
		}, sharedDevice},
		{Check{
			ID: "RL075", Title: "tenant is given what the host lives on",
			Severity: Error,
			Summary:  "A device of a tenant carries file systems, swap or the default route of the host.",
			Reads:    []string{"virsh dumpxml DOMAIN (hostdev)", "/proc/mounts", "/proc/swaps", "/proc/net/route"},
			Means: "When the tenant starts, libvirt takes the device from its driver, and the host loses its disk or " +
				"its network in that moment. The way back is the console, if " +
				"there is one.",
			Fix: "Take the device out of the tenant (`virsh detach-device --config`), or move the host to " +
				"another disk or NIC first.",
			Sources: []string{"kubernetes-sigs/dra-driver-nvidia-gpu#1191 (refuse when the host needs a device of " +
				"the group)"},
		}, takesHostDevice},
		{Check{
			ID: "RL076", Title: "GPU of a tenant is held in persistence mode",
			Severity: Warning,
			Summary:  "A GPU that a stopped tenant is given is on the nvidia driver with persistence mode on.",
			Reads: []string{"nvidia-smi --query-gpu=persistence_mode", "virsh dumpxml DOMAIN (hostdev)",
				"/sys/bus/pci/devices/*/driver"},
			Means: "nvidia-persistenced keeps the device open. Unbinding the driver then waits for it, for ever: the " +
				"start of the tenant hangs, and so does " +
				"everything after it that touches the device.",
			Fix: "`systemctl stop nvidia-persistenced` and `nvidia-smi -pm 0 -i ADDRESS` before the tenant " +
				"starts. `fuser -v /dev/nvidia*` shows other holders.",
			Sources: []string{"OpenNebula/one-deploy#251", "kernel/hypeman#17"},
		}, heldGPU},
	}
}

// nodeSet writes the nodes of a tenant.
func nodeSet(t *topology.Tenant) string {
	mode := t.MemoryMode
	if mode == "" {
		mode = "strict"
	}
	return fmt.Sprintf("numatune %s nodeset=%s", mode, t.MemoryNodes)
}

// strict reports whether the tenant may have memory of its nodes only. libvirt's mode is strict
// unless another one is named.
func strict(t *topology.Tenant) bool {
	return t.MemoryNodes != nil && !t.MemoryNodes.IsEmpty() && (t.MemoryMode == "" || t.MemoryMode == "strict" ||
		t.MemoryMode == "restrictive")
}

func nodesTooSmall(v *view) []Finding {
	if len(v.NUMANodes) == 0 {
		return nil
	}
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
		if !strict(t) {
			continue
		}
		var have uint64
		var facts, missing []string
		known := true
		for id := range t.MemoryNodes.All() {
			n := v.nodes[id]
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
		f := Finding{Severity: Error, Subject: t.Name,
			Fix: "plan the tenant again on this machine, or change its nodeset"}
		switch {
		case len(missing) > 0:
			f.Evidence = all(domain(t, nodeSet(t)), at("/sys/devices/system/node", few(missing, 3, ", ")))
			f.Consequence = "the tenant does not start"
		case known && t.MemoryBytes != nil && *t.MemoryBytes > have:
			f.Evidence = all(domain(t, nodeSet(t), "memory="+size(*t.MemoryBytes)), few(facts, 4, "; "))
			f.Consequence = "the tenant does not start, or is killed when it uses more than its nodes have"
		default:
			continue
		}
		out = append(out, f)
	}
	return out
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

func farMemory(v *view) []Finding {
	if !v.several {
		return nil
	}
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
		nodes := v.cpuNodes(t)
		if len(nodes) == 0 || t.MemoryNodes == nil || t.MemoryNodes.IsEmpty() ||
			slices.ContainsFunc(nodes, t.MemoryNodes.Contains) {
			continue
		}
		out = append(out, Finding{Severity: Warning, Subject: t.Name,
			Evidence:    domain(t, nodeSet(t), fmt.Sprintf("vcpupin %s (nodes %s)", pinned(t), numbers(nodes))),
			Consequence: "every access to memory goes over the interconnect between nodes",
			Fix: "bind memory to nodes " + numbers(nodes) + ", or pin to CPUs of nodes " +
				t.MemoryNodes.String()})
	}
	return out
}

func farDevice(v *view) []Finding {
	if !v.several {
		return nil
	}
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
		nodes := v.cpuNodes(t)
		if len(nodes) == 0 {
			continue
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
			continue
		}
		out = append(out, Finding{Severity: Warning, Subject: t.Name,
			Evidence: all(few(far, 4, "; "), domain(t, fmt.Sprintf("vcpupin %s (nodes %s)", pinned(t),
				numbers(nodes)))),
			Consequence: "copies and interrupts cross the interconnect between nodes",
			Fix:         "pin the tenant to CPUs of the device's node, or give it a device of nodes " + numbers(nodes)})
	}
	return out
}

func fewPagesLeft(v *view) []Finding {
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
		if !stopped(t) || t.Hugepages == nil || t.MemoryBytes == nil {
			continue
		}
		bytes := *t.Hugepages
		if bytes == 0 {
			if v.Memory.DefaultHuge == nil {
				continue
			}
			bytes = *v.Memory.DefaultHuge
		}
		if bytes == 0 {
			continue
		}
		var free uint64
		var facts []string
		known := true
		count := func(path string, pools []topology.HugepagePool) {
			p := pool(pools, bytes)
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
		if strict(t) {
			for id := range t.MemoryNodes.All() {
				if n := v.nodes[id]; n != nil { // a node that is not there is RL070
					count(poolPath(bytes, id), n.Hugepages)
				}
			}
		} else {
			count(poolPath(bytes), v.Memory.Hugepages)
		}
		need := *t.MemoryBytes / bytes
		if *t.MemoryBytes%bytes != 0 {
			need++
		}
		if !known || free >= need {
			continue
		}
		if len(facts) == 0 {
			facts = []string{at(poolPath(bytes), "not there")}
		}
		out = append(out, Finding{Severity: Error, Subject: t.Name,
			Evidence: all(domain(t, "memory="+size(*t.MemoryBytes), "hugepages="+size(bytes)), few(facts, 4, "; ")),
			Consequence: fmt.Sprintf("the tenant does not start: it needs %d free pages of %s and there are %d", need,
				size(bytes), free),
			Fix: "set aside more pages on its nodes, or stop what holds them"})
	}
	return out
}

func sharedDevice(v *view) []Finding {
	owners := map[topology.PCIAddr][]*topology.Tenant{}
	for i := range v.Tenants {
		for _, d := range v.Tenants[i].Devices {
			if !slices.Contains(owners[d.PCI], &v.Tenants[i]) {
				owners[d.PCI] = append(owners[d.PCI], &v.Tenants[i])
			}
		}
	}
	var out []Finding
	for _, a := range slices.SortedFunc(maps.Keys(owners), topology.PCIAddr.Compare) {
		list := owners[a]
		if len(list) < 2 {
			continue
		}
		f := Finding{Severity: Error, Subject: a.String(), Consequence: "only one of them can run",
			Fix: "give the others another device, or a virtual function of the same one"}
		var facts, names []string
		for _, t := range list {
			facts = append(facts, domain(t, "hostdev "+a.String()))
			names = append(names, t.Name)
			if stopped(t) {
				f.Severity = Warning
			}
		}
		f.Evidence = few(facts, 4, "; ")
		f.Consequence = "of " + few(names, 4, ", ") + " only one can run at a time"
		out = append(out, f)
	}
	return out
}

func takesHostDevice(v *view) []Finding {
	needed := v.needed()
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
		for _, d := range t.Devices {
			need, ok := needed[d.PCI]
			if !ok {
				continue
			}
			out = append(out, Finding{Severity: Error, Subject: t.Name,
				Evidence:    all(domain(t, "hostdev "+d.PCI.String()), at(pci(d.PCI), need.how)),
				Consequence: "when the tenant starts, the host loses its " + need.what,
				Fix:         "take " + d.PCI.String() + " out of the tenant, or move the host to another device first"})
		}
	}
	return out
}

func heldGPU(v *view) []Finding {
	var out []Finding
	for _, g := range v.gpus {
		if g.Address == nil || g.PersistMode == nil || !*g.PersistMode || g.Driver != "nvidia" {
			continue
		}
		for _, t := range v.holders(*g.Address) {
			if !stopped(t) {
				continue
			}
			out = append(out, Finding{Severity: Warning, Subject: g.ID(),
				Evidence: all(at("nvidia-smi --query-gpu=persistence_mode", "Enabled"),
					at(pci(*g.Address), "driver=nvidia"), domain(t, "hostdev "+g.ID())),
				Consequence: "starting " + t.Name + " hangs: the driver cannot be unbound while the device is " +
					"held open",
				Fix: "stop nvidia-persistenced and run nvidia-smi -pm 0 -i " + g.ID() + " first"})
		}
	}
	return out
}
