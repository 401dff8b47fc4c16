package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

func memoryRules() []rule {
	return []rule{
		{Check{
			ID: "RL040", Title: "fewer hugepages than asked for",
			Severity: Warning,
			Summary:  "A pool has fewer pages, on the machine or on a node, than the kernel command line asks for.",
			Reads: []string{"/proc/cmdline (hugepagesz=, hugepages=, default_hugepagesz=)",
				"/sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages",
				"/sys/devices/system/node/node*/hugepages/hugepages-*kB/nr_hugepages"},
			Means: "There was not enough free memory in one piece when the kernel set the pages aside, or a node has " +
				"less memory than its share, or " +
				"somebody changed nr_hugepages since. A number without nodes is spread evenly: what one node lacks, " +
				"another gets, and a machine that " +
				"is strict about its node does not start.\n\n1 GiB pages set aside after boot often come up short, " +
				"because memory is fragmented by then.",
			Fix: "Ask on the command line, per node, and reboot:\n\n    default_hugepagesz=1G hugepagesz=1G " +
				"hugepages=0:16,1:16\n\n" +
				"Leave the host some GiB on each node.",
			Sources: []string{"projectacrn/acrn-hypervisor#400", "xmrig/xmrig#2896", "openshift/openshift-docs#22853",
				"cloud-hypervisor/cloud-hypervisor#2579", "EPYC lab (64 pages asked for without nodes)"},
		}, fewerPages},
		{Check{
			ID: "RL041", Title: "no hugepages of the size asked for",
			Severity: Error,
			Summary:  "The command line asks for hugepages of a size for which the kernel has no pool.",
			Reads:    []string{"/proc/cmdline", "/sys/kernel/mm/hugepages"},
			Means: "The processor does not have pages of that size (1 GiB on x86 needs the CPU flag pdpe1gb, which " +
				"many virtual machines lack), or the " +
				"kernel was built without them. A virtual machine that asks for such pages does not start.",
			Fix: "In a virtual machine pass the flag on (host-passthrough CPU). On bare metal look for pdpe1gb in " +
				"`/proc/cpuinfo`. Otherwise ask for a " +
				"size that `/sys/kernel/mm/hugepages` lists.",
			Sources: []string{"autotest/tp-libvirt#3159"},
		}, noPool},
		{Check{
			ID: "RL042", Title: "all hugepages are on one NUMA node",
			Severity: Warning,
			Summary: "Several NUMA nodes have CPUs and memory, and only one has hugepages. Not found when the " +
				"command line asks for it by node.",
			Reads: []string{"/sys/devices/system/node/node*/hugepages/hugepages-*kB/nr_hugepages",
				"/sys/devices/system/node/node*/meminfo"},
			Means: "Virtual machines on the other nodes get memory from the far node, or, when they are strict about " +
				"their node, do not start: `unable to " +
				"map backing store for guest RAM: Cannot allocate memory`, although free pages are left in total.",
			Fix: "Spread them, after boot:\n\n    echo 16 > " +
				"/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages\n\n" +
				"or on the command line with `hugepages=0:16,1:16`.",
			Sources: []string{"kubevirt/kubevirt#14854", "kubernetes/kubernetes#132084", "autotest/tp-libvirt#2695"},
		}, pagesOnOneNode},
		{Check{
			ID: "RL043", Title: "NUMA node with CPUs has no memory",
			Severity: Warning,
			Summary:  "A node has CPUs and no memory, while other nodes have memory.",
			Reads:    []string{"/sys/devices/system/node/node*/meminfo", "/sys/devices/system/node/node*/cpulist"},
			Means: "All memory of work on these CPUs is far. Mostly the memory slots of that node are empty, or a " +
				"module has failed and the firmware " +
				"took it out. On a few processors (Threadripper 2990WX) it is by design.",
			Fix: "Fill the slots of all nodes alike (the board's manual says which go together), or keep virtual " +
				"machines off these CPUs.",
			Sources: []string{"EPYC lab (wrong NUMA nodes: latency +13%, p99 +29%, p99.9 +53%)"},
		}, bareNode},
		{Check{
			ID: "RL044", Title: "swap is on",
			Severity: Warning, Also: []Severity{Info},
			Summary: "The kernel swaps to disk. A warning on a host that serves labs. Compressed memory (zram) does " +
				"not count.",
			Reads: []string{"/proc/swaps"},
			Means: "Memory of virtual machines without hugepages or locking can be swapped out. Then a packet waits " +
				"for a disk: microseconds become " +
				"milliseconds, rarely and without a trace in the guest. Memory of guests with passed-through devices " +
				"is locked and hugepages are never " +
				"swapped, but QEMU's own memory is.",
			Fix: "`swapoff -a`, and take the line out of `/etc/fstab` (or mask the swap unit). Leave it on if " +
				"the host is short of memory: a killed virtual machine is worse.",
			Sources: []string{"Documentation/admin-guide/sysctl/vm.rst"},
		}, swapOn},
		{Check{
			ID: "RL045", Title: "automatic NUMA balancing is on",
			Severity: Warning, Also: []Severity{Info},
			Summary: "The kernel moves memory between NUMA nodes on its own. A warning on a host that serves labs.",
			Reads:   []string{"/proc/sys/kernel/numa_balancing"},
			Means: "To see who uses a page, the kernel takes its mapping away and waits for the fault; then it may " +
				"move the page. For work that is already " +
				"pinned to its memory this is cost without gain, and it shows as outliers in latency. Hugepages of " +
				"hugetlbfs are not moved. " +
				"Value 2 (memory tiering only) is not counted.",
			Fix:     "`sysctl kernel.numa_balancing=0`, and a file in `/etc/sysctl.d` to keep it.",
			Sources: []string{"Documentation/admin-guide/sysctl/kernel.rst (numa_balancing)"},
		}, balancing},
		{Check{
			ID: "RL046", Title: "transparent hugepages are always used",
			Severity: Info,
			Summary:  "transparent_hugepage/enabled is always, on a host that serves labs.",
			Reads:    []string{"/sys/kernel/mm/transparent_hugepage/enabled"},
			Means: "Good for bandwidth of virtual machines without hugepages of their own. The price is khugepaged, " +
				"which compacts and copies memory in " +
				"the background, and allocation that may wait for compaction: outliers in latency.",
			Fix: "For latency, set it to madvise and give virtual machines hugepages of hugetlbfs. For " +
				"throughput, leave it.",
			Sources: []string{"Documentation/admin-guide/mm/transhuge.rst"},
		}, alwaysTHP},
		{Check{
			ID: "RL047", Title: "memory of virtual machines is merged (KSM)",
			Severity: Warning, Also: []Severity{Info},
			Summary: "Kernel samepage merging runs. A warning on a host that serves labs.",
			Reads:   []string{"/sys/kernel/mm/ksm/run"},
			Means: "A thread scans memory and merges equal pages. It takes CPU time and cache, splits hugepages, " +
				"merges across NUMA nodes (unless told " +
				"not to), and lets one tenant find out by timing what another one has in memory.",
			Fix: "`echo 2 > /sys/kernel/mm/ksm/run` (stops it and undoes the merging); disable ksmtuned or " +
				"the like.",
			Sources: []string{"Documentation/admin-guide/mm/ksm.rst"},
		}, ksmOn},
	}
}

// poolPath is the directory of a pool on the machine, or on a node where one is given.
func poolPath(bytes uint64, nodeID ...int) string {
	if len(nodeID) > 0 {
		return fmt.Sprintf("/sys/devices/system/node/node%d/hugepages/hugepages-%dkB", nodeID[0], bytes>>10)
	}
	return fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB", bytes>>10)
}

// pool returns the pool of a size in a list; nil where there is none.
func pool(pools []topology.HugepagePool, bytes uint64) *topology.HugepagePool {
	for i := range pools {
		if pools[i].SizeBytes == bytes {
			return &pools[i]
		}
	}
	return nil
}

// totalPages returns how many pages of a size the machine has, and whether a pool of that size was read.
func (v *view) totalPages(bytes uint64) (total uint64, exists bool) {
	if p := pool(v.Memory.Hugepages, bytes); p != nil {
		return p.Total, true
	}
	if len(v.Memory.Hugepages) > 0 {
		return 0, false
	}
	for i := range v.NUMANodes {
		if p := pool(v.NUMANodes[i].Hugepages, bytes); p != nil {
			total += p.Total
			exists = true
		}
	}
	return total, exists
}

func fewerPages(v *view) []Finding {
	bySize := map[uint64]hugeAsk{}
	for _, a := range v.hugeAsks() {
		if _, twice := bySize[a.size]; !twice { // the kernel ignores the second ("specified twice", mm/hugetlb.c)
			bySize[a.size] = a
		}
	}
	var out []Finding
	for _, bytes := range slices.Sorted(maps.Keys(bySize)) {
		ask := bySize[bytes]
		total, exists := v.totalPages(bytes)
		if !exists {
			continue // RL041, or not known
		}
		f := Finding{Severity: Warning, Subject: "host",
			Fix: "ask for them per node on the kernel command line (hugepagesz=" + kernelSize(bytes) +
				" hugepages=0:N,1:N) and reboot"}
		if total < ask.total {
			f.Evidence = all(cmdlineIs(ask.written...), at(poolPath(bytes), fmt.Sprintf("nr_hugepages=%d", total)))
			f.Consequence = fmt.Sprintf("%s of %s are missing: virtual machines planned on them do not start",
				plural(int(ask.total-total), "page"), size(bytes))
			out = append(out, f)
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(ask.byNode)) {
			n := v.nodes[id]
			if n == nil {
				f.Subject = fmt.Sprintf("node %d", id)
				f.Evidence = all(cmdlineIs(ask.written...), at("/sys/devices/system/node",
					fmt.Sprintf("no node%d", id)))
				f.Consequence = "there is no such node: its pages were not set aside"
				out = append(out, f)
			} else if p := pool(n.Hugepages, bytes); p != nil && p.Total < ask.byNode[id] {
				f.Subject = fmt.Sprintf("node %d", id)
				f.Evidence = all(cmdlineIs(ask.written...),
					at(poolPath(bytes, id), fmt.Sprintf("nr_hugepages=%d", p.Total)))
				f.Consequence = fmt.Sprintf("%s of %s are missing on the node: virtual machines bound to it may "+
					"not start",
					plural(int(ask.byNode[id]-p.Total), "page"), size(bytes))
				out = append(out, f)
			}
		}
	}
	return out
}

// kernelSize writes a size as hugepagesz takes it: "1G", "2M".
func kernelSize(bytes uint64) string {
	s := strings.Replace(size(bytes), "iB", "", 1)
	return strings.Replace(s, " ", "", 1)
}

// poolsListed reports whether the kernel's own list of pools was read: then a size that is not in
// it does not exist. /proc/meminfo, which is all that some containers show, has the default size
// only.
func (v *view) poolsListed() bool {
	return len(v.Memory.Hugepages) > 1 || slices.ContainsFunc(v.NUMANodes, func(n topology.NUMANode) bool {
		return len(n.Hugepages) > 0
	})
}

// poolSizes returns the sizes of hugepages that the machine has.
func (v *view) poolSizes() []uint64 {
	var out []uint64
	add := func(pools []topology.HugepagePool) {
		for _, p := range pools {
			if !slices.Contains(out, p.SizeBytes) {
				out = append(out, p.SizeBytes)
			}
		}
	}
	add(v.Memory.Hugepages)
	for i := range v.NUMANodes {
		add(v.NUMANodes[i].Hugepages)
	}
	slices.Sort(out)
	return out
}

func noPool(v *view) []Finding {
	var out []Finding
	var seen []uint64
	for _, a := range v.hugeAsks() {
		if _, exists := v.totalPages(a.size); exists || !v.poolsListed() || slices.Contains(seen, a.size) {
			continue
		}
		seen = append(seen, a.size)
		var sizes []string
		for _, bytes := range v.poolSizes() {
			sizes = append(sizes, fmt.Sprintf("hugepages-%dkB", bytes>>10))
		}
		out = append(out, Finding{Severity: Error, Subject: "host",
			Evidence: all(cmdlineIs(a.written...), at("/sys/kernel/mm/hugepages", "no hugepages-"+
				fmt.Sprint(a.size>>10)+"kB", "only "+
				strings.Join(sizes, " "))),
			Consequence: "virtual machines with pages of " + size(a.size) + " do not start",
			Fix: "pass the CPU flag pdpe1gb on if this is a virtual machine, or ask for a size that the " +
				"kernel has"})
	}
	return out
}

// homes returns the nodes that have CPUs and memory: where a virtual machine can live.
func (v *view) homes() []*topology.NUMANode {
	var out []*topology.NUMANode
	for i := range v.NUMANodes {
		if n := &v.NUMANodes[i]; !n.CPUs.IsEmpty() && n.MemoryBytes != nil && *n.MemoryBytes > 0 {
			out = append(out, n)
		}
	}
	return out
}

func pagesOnOneNode(v *view) []Finding {
	homes := v.homes()
	if len(homes) < 2 {
		return nil
	}
	var sizes []uint64
	for _, n := range homes {
		if len(n.Hugepages) == 0 {
			return nil // what was not read is not zero
		}
		for _, p := range n.Hugepages {
			if !slices.Contains(sizes, p.SizeBytes) {
				sizes = append(sizes, p.SizeBytes)
			}
		}
	}
	slices.Sort(sizes)
	with := map[int]bool{} // nodes with pages of any size
	var only *topology.HugepagePool
	for _, bytes := range sizes {
		for _, n := range homes {
			if p := pool(n.Hugepages, bytes); p != nil && p.Total > 0 {
				with[n.ID] = true
				only = p
			}
		}
	}
	if len(with) != 1 || slices.ContainsFunc(v.hugeAsks(), func(a hugeAsk) bool { return a.byNode != nil }) {
		return nil
	}
	var facts []string
	for _, n := range homes {
		total := uint64(0)
		if p := pool(n.Hugepages, only.SizeBytes); p != nil {
			total = p.Total
		}
		facts = append(facts, at(poolPath(only.SizeBytes, n.ID), fmt.Sprintf("nr_hugepages=%d", total)))
	}
	id := slices.Sorted(maps.Keys(with))[0]
	return []Finding{{Severity: Warning, Subject: fmt.Sprintf("node %d", id), Evidence: few(facts, 4, "; "),
		Consequence: "virtual machines on the other nodes get far memory, or do not start when they are strict about " +
			"their node",
		Fix: "set nr_hugepages of each node, or ask by node on the command line (hugepages=0:N,1:N)"}}
}

func bareNode(v *view) []Finding {
	if len(v.homes()) == 0 {
		return nil
	}
	var out []Finding
	for i := range v.NUMANodes {
		n := &v.NUMANodes[i]
		if n.CPUs.IsEmpty() || n.MemoryBytes == nil || *n.MemoryBytes > 0 {
			continue
		}
		out = append(out, Finding{Severity: Warning, Subject: fmt.Sprintf("node %d", n.ID),
			Evidence: all(at(fmt.Sprintf("/sys/devices/system/node/node%d/meminfo", n.ID), "MemTotal=0"),
				at(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", n.ID), n.CPUs.String())),
			Consequence: "all memory is far for work on CPUs " + n.CPUs.String(),
			Fix:         "fill the memory slots of all nodes alike, or keep virtual machines off these CPUs"})
	}
	return out
}

func swapOn(v *view) []Finding {
	var facts []string
	for _, s := range v.Memory.Swap {
		if !strings.Contains(s.Path, "zram") {
			facts = append(facts, fmt.Sprintf("%s %s (used %s)", s.Path, size(s.SizeBytes), size(s.UsedBytes)))
		}
	}
	if len(facts) == 0 {
		return nil
	}
	return []Finding{{Severity: v.ifServing(), Subject: "host", Evidence: at("/proc/swaps", few(facts, 3, ", ")),
		Consequence: "memory of virtual machines that is not locked may wait for a disk",
		Fix:         "swapoff -a, and take swap out of /etc/fstab"}}
}

func balancing(v *view) []Finding {
	// A bit set: 1 is balancing, 2 is memory tiering. Source: Documentation/admin-guide/sysctl/kernel.rst.
	if s := v.Memory.NUMABalancing; s != "1" && s != "3" || len(v.homes()) < 2 {
		return nil
	}
	return []Finding{{Severity: v.ifServing(), Subject: "host", Evidence: at("/proc/sys/kernel/numa_balancing",
		v.Memory.NUMABalancing),
		Consequence: "the kernel unmaps and moves memory of work that is already placed: outliers in latency",
		Fix:         "sysctl kernel.numa_balancing=0"}}
}

func alwaysTHP(v *view) []Finding {
	if v.Memory.THP != "always" || !v.serves || v.virtual {
		return nil
	}
	return []Finding{{Severity: Info, Subject: "host", Evidence: at("/sys/kernel/mm/transparent_hugepage/enabled",
		"[always]"),
		Consequence: "khugepaged compacts and copies memory in the background: outliers in latency",
		Fix:         "for latency: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"}}
}

func ksmOn(v *view) []Finding {
	if v.Memory.KSM != "1" {
		return nil
	}
	return []Finding{{Severity: v.ifServing(), Subject: "host", Evidence: at("/sys/kernel/mm/ksm/run", "1"),
		Consequence: "a thread scans and merges memory: noise for all, and a side channel between tenants",
		Fix:         "echo 2 > /sys/kernel/mm/ksm/run, and disable ksmtuned"}}
}
