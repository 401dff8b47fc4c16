package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func poolPath(bytes uint64, nodeID ...int) string {
	pool := fmt.Sprintf("hugepages/hugepages-%dkB", bytes>>10)
	if len(nodeID) > 0 {
		return nodeFile(nodeID[0], pool)
	}
	return "/sys/kernel/mm/" + pool
}

func (v *view) totalPages(bytes uint64) (total uint64, exists bool) {
	if p := topology.Pool(v.Memory.Hugepages, bytes); p != nil {
		return p.Total, true
	}
	if len(v.Memory.Hugepages) > 0 {
		return 0, false
	}
	for i := range v.NUMANodes {
		n := &v.NUMANodes[i]
		if p := topology.Pool(n.Hugepages, bytes); p != nil {
			total, exists = total+p.Total, true
		}
	}
	return total, exists
}

func fewerPages(v *view, add func(finding.Finding)) {
	bySize := map[uint64]hugeAsk{}
	for _, a := range v.hugeAsks() {
		if _, twice := bySize[a.size]; !twice { // the kernel ignores the second (mm/hugetlb.c)
			bySize[a.size] = a
		}
	}
	for _, bytes := range lists.Keys(bySize) {
		ask := bySize[bytes]
		total, exists := v.totalPages(bytes)
		if !exists {
			continue // RL041, or unknown
		}
		f := finding.Finding{Subject: "host",
			Fix: "ask for them per NUMA node on the kernel command line (hugepagesz=" + kernelSize(bytes) +
				" hugepages=0:N,1:N) and reboot"}
		// Check each node only if the total is right.
		if total < ask.total {
			f.Evidence = all(cmdlineIs(ask.written...), at(poolPath(bytes), fmt.Sprintf("nr_hugepages=%d", total)))
			f.Consequence = fmt.Sprintf("%s of %s are missing: virtual machines planned on them do not start",
				words.Count(int(ask.total-total), "page"), size(bytes))
			add(f)
			continue
		}
		for _, id := range lists.Keys(ask.byNode) {
			f.Subject = fmt.Sprintf("node %d", id)
			if n := v.NUMANode(id); n == nil {
				f.Evidence = all(cmdlineIs(ask.written...),
					at("/sys/devices/system/node", fmt.Sprintf("no node%d", id)))
				f.Consequence = "there is no such node: its pages were not set aside"
				add(f)
			} else if p := topology.Pool(n.Hugepages, bytes); p != nil && p.Total < ask.byNode[id] {
				f.Evidence = all(cmdlineIs(ask.written...),
					at(poolPath(bytes, id), fmt.Sprintf("nr_hugepages=%d", p.Total)))
				f.Consequence = fmt.Sprintf("%s of %s are missing on the NUMA node: virtual machines bound to it "+
					"may not start", words.Count(int(ask.byNode[id]-p.Total), "page"), size(bytes))
				add(f)
			}
		}
	}
}

// kernelSize returns "1G", "2M".
func kernelSize(bytes uint64) string {
	return strings.NewReplacer("iB", "", " ", "").Replace(size(bytes))
}

// poolsListed is false in containers that show only /proc/meminfo, with just the default size.
func (v *view) poolsListed() bool {
	return len(v.Memory.Hugepages) > 1 || slices.ContainsFunc(v.NUMANodes, func(n topology.NUMANode) bool {
		return len(n.Hugepages) > 0
	})
}

func (v *view) poolSizes() []uint64 {
	pools := slices.Concat(v.Memory.Hugepages, lists.Flat(v.NUMANodes,
		func(n topology.NUMANode) []topology.HugepagePool { return n.Hugepages }))
	return lists.Distinct(lists.Map(pools, func(p topology.HugepagePool) uint64 { return p.SizeBytes }))
}

// noPool needs the kernel's full list of pools.
func noPool(v *view, add func(finding.Finding)) {
	var seen []uint64
	for _, a := range v.hugeAsks() {
		if _, exists := v.totalPages(a.size); exists || !v.poolsListed() || slices.Contains(seen, a.size) {
			continue
		}
		seen = append(seen, a.size)
		sizes := lists.Map(v.poolSizes(), func(bytes uint64) string { return fmt.Sprintf("hugepages-%dkB", bytes>>10) })
		add(finding.Finding{Subject: "host",
			Evidence: all(cmdlineIs(a.written...), at("/sys/kernel/mm/hugepages",
				fmt.Sprintf("no hugepages-%dkB only %s", a.size>>10, strings.Join(sizes, " ")))),
			Consequence: "virtual machines with pages of " + size(a.size) + " do not start"})
	}
}

// homes have CPUs and memory.
func (v *view) homes() []*topology.NUMANode {
	var out []*topology.NUMANode
	for i := range v.NUMANodes {
		n := &v.NUMANodes[i]
		if !n.CPUs.IsEmpty() && n.MemoryBytes != nil && *n.MemoryBytes > 0 {
			out = append(out, n)
		}
	}
	return out
}

// pagesOnOneNode is silent if the command line asks for pages by node.
func pagesOnOneNode(v *view, add func(finding.Finding)) {
	homes := v.homes()
	if len(homes) < 2 {
		return
	}
	with := map[int]bool{} // of any size
	var only *topology.HugepagePool
	for _, n := range homes {
		if len(n.Hugepages) == 0 {
			return // unknown is not zero
		}
		for i := range n.Hugepages {
			p := &n.Hugepages[i]
			if p.Total == 0 {
				continue
			}
			with[n.ID] = true
			if only == nil || p.SizeBytes > only.SizeBytes {
				only = p
			}
		}
	}
	// Other rules compare with the command line.
	if len(with) != 1 || slices.ContainsFunc(v.hugeAsks(), func(a hugeAsk) bool { return a.byNode != nil }) {
		return
	}
	facts := lists.Map(homes, func(n *topology.NUMANode) string {
		total := uint64(0)
		if p := topology.Pool(n.Hugepages, only.SizeBytes); p != nil {
			total = p.Total
		}
		return at(poolPath(only.SizeBytes, n.ID), fmt.Sprintf("nr_hugepages=%d", total))
	})
	for id := range with {
		add(finding.Finding{Subject: fmt.Sprintf("node %d", id), Evidence: words.Few(facts, 4, "; ")})
	}
}

// nodeForEach matches processors with a memory controller, so that each socket is a NUMA node. The Xeons before Nehalem
// (5500) have the memory behind a common bus.
var nodeForEach = lazyregexp.New(`EPYC|Opteron|Kunpeng|ThunderX2|Altra|Neoverse|Grace|` +
	`Xeon.*(?:Gold|Silver|Bronze|Platinum|\bMax\b|\bE[57]-|\b[ELWX](?:55|56|65|75)\d\d|\b6\d{3}[A-Z])`)

// socketsOneNode finds firmware that interleaves memory over sockets, or a kernel told to ignore the nodes.
func socketsOneNode(v *view, add func(finding.Finding)) {
	sockets := lists.Filter(v.Packages, func(p topology.Package) bool {
		return nodeForEach().MatchString(cmp.Or(p.Model, v.System.CPUModel))
	})
	one := v.OnlyNode()
	if v.virtual || len(sockets) < 2 || one == nil {
		return
	}
	// A text may be cut off. hwloc without the help of the kernel makes up one node, which has no memory.
	if v.CPUs.Online.IsEmpty() || !v.CPUs.Online.IsSubsetOf(one.CPUs) ||
		v.Provenance.Kind == topology.SourceHwloc && (one.MemoryBytes == nil || *one.MemoryBytes == 0) {
		return
	}
	f := finding.Finding{Subject: "host", Evidence: all(at("/sys/devices/system/node", "1 node"),
		at("/sys/devices/system/cpu/cpu*/topology/physical_package_id", fmt.Sprintf("%d sockets", len(v.Packages))))}
	if p, ok := v.asked("numa"); ok && p.value == "off" {
		f.Evidence = all(f.Evidence, cmdlineIs(p))
		f.Fix = "take numa=off off the kernel command line"
	}
	add(f)
}

// bareNode is silent if no node has memory, because then it was not read.
func bareNode(v *view, add func(finding.Finding)) {
	if len(v.homes()) == 0 {
		return
	}
	for i := range v.NUMANodes {
		n := &v.NUMANodes[i]
		// A node without CPUs is memory alone, as with CXL.
		if n.CPUs.IsEmpty() || n.MemoryBytes == nil || *n.MemoryBytes > 0 {
			continue
		}
		add(finding.Finding{Subject: fmt.Sprintf("node %d", n.ID),
			Evidence: all(at(nodeFile(n.ID, "meminfo"), "MemTotal=0"),
				at(nodeFile(n.ID, "cpulist"), n.CPUs.String())),
			Consequence: "all memory is far for work on CPUs " + n.CPUs.String()})
	}
}

// swapOn skips zram, which swaps to memory.
func swapOn(v *view, add func(finding.Finding)) {
	var facts []string
	for _, s := range v.Memory.Swap {
		if !strings.Contains(s.Path, "zram") {
			facts = append(facts, fmt.Sprintf("%s %s (used %s)", s.Path, size(s.SizeBytes), size(s.UsedBytes)))
		}
	}
	if len(facts) == 0 {
		return
	}
	add(finding.Finding{Severity: v.ifServing(), Subject: "host", Evidence: at("/proc/swaps", words.Few(facts, 3,
		", "))})
}

// balancing requires two nodes with CPUs and memory. It unmaps pages to learn which CPU uses them, which costs faults
// even if all pages are well placed.
func balancing(v *view, add func(finding.Finding)) {
	// 1 is balancing, 2 is memory tiering (Documentation/admin-guide/sysctl/kernel.rst).
	if s := v.Memory.NUMABalancing; s != "1" && s != "3" || len(v.homes()) < 2 {
		return
	}
	add(finding.Finding{Severity: v.ifServing(), Subject: "host", Evidence: at("/proc/sys/kernel/numa_balancing",
		v.Memory.NUMABalancing)})
}

// alwaysTHP is for hosts only: in a guest the host's pages decide.
func alwaysTHP(v *view, add func(finding.Finding)) {
	if v.Memory.THP == "always" && v.serves && !v.virtual {
		add(finding.Finding{Subject: "host", Evidence: at("/sys/kernel/mm/transparent_hugepage/enabled", "[always]")})
	}
}

// ksmOn ignores "2", which has unmerged all pages. A guest's write to a merged page copies it, and the time that takes
// reveals the page's content to another guest.
func ksmOn(v *view, add func(finding.Finding)) {
	if v.Memory.KSM == "1" {
		add(finding.Finding{Severity: v.ifServing(), Subject: "host", Evidence: at("/sys/kernel/mm/ksm/run", "1")})
	}
}
