package tune

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// The minimum that a host keeps; by default the planner leaves more (see docs/planner.md). Below these values a host
// runs into trouble.
const (
	// KeepShare is the divisor for the part of the host's memory, and of each NUMA node's, that is not set aside. Page
	// tables, slab and per-CPU lists of a node need it, and an allocation on a full node falls back to another node,
	// slowly.
	KeepShare = 64
	// KeepNodeMost bounds this part on a NUMA node, in bytes.
	KeepNodeMost = 128 << 20
	// KeepHostLeast and KeepHostMost bound this part of the whole host, in bytes. An idle server with systemd, sshd and
	// libvirt takes some 200 MiB; page cache beyond 4 GiB is comfort.
	KeepHostLeast, KeepHostMost = 256 << 20, 4 << 30
	// KeepGuest is the memory of a QEMU process beside the guest's memory, in bytes.
	//
	// Measured: 45 MiB with a screen, a NIC, a disk and an I/O thread before the guest ran (QEMU 10.0, VmRSS); page
	// tables, vhost and buffers come on top. OpenShift's documentation assumes more, 218 MiB and 8 MiB for each virtual
	// CPU (Physical resource overhead requirements).
	KeepGuest = 64 << 20

	// CoresPerHousekeepingCore is the most cores of lab nodes that one core of the host can serve. RCU callbacks
	// (rcu_nocbs), work queues and interrupts of all of them run there. The largest processors of 2026 have 288 cores,
	// and the planner leaves the host one core of each.
	CoresPerHousekeepingCore = 288
)

// nodeKeep and hostKeep are in bytes.
func nodeKeep(total uint64) uint64 { return min(total/KeepShare, KeepNodeMost) }

func hostKeep(total uint64, guests int) uint64 {
	return min(max(total/KeepShare, KeepHostLeast), KeepHostMost) + uint64(guests)*KeepGuest
}

type meminfo struct {
	total     uint64
	available uint64 // free, or in reclaimable caches; an estimate
}

// readMeminfo reads lines such as "Node 0 MemTotal: 1014988 kB".
func readMeminfo(s *change.System, node int) (*meminfo, error) {
	file := nodeDir(node) + "meminfo"
	data, err := s.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("how much memory NUMA node %d has is not known: %w", node, err)
	}
	return parseMeminfo(file, data)
}

func parseMeminfo(file string, data []byte) (*meminfo, error) {
	values := map[string]uint64{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 5 || f[4] != "kB" {
			continue // a number of pages: "Node 0 HugePages_Total: 0"
		}
		kb, err := strconv.ParseUint(f[3], 10, 54) // 54 bits, so that bytes fit
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", file, line, err)
		}
		values[f[2]] = kb << 10
	}
	total, ok1 := values["MemTotal:"]
	free, ok2 := values["MemFree:"]
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("%s has no MemTotal or no MemFree", file)
	}
	return &meminfo{total: total, available: free + values["Active(file):"] + values["Inactive(file):"] +
		values["SReclaimable:"]}, nil
}

// GuardPages refuses a plan with hugepages that would leave too little memory to a NUMA node or to the host. It counts
// all hugepages that exist now.
func GuardPages(s *change.System, p *plan.Plan) error {
	pools, guests := poolsOf(p), len(p.Nodes)
	const dir = "/sys/devices/system/node"
	nodes, err := s.Numbers(dir, "node")
	if err != nil || len(nodes) == 0 {
		return fmt.Errorf("how much memory the NUMA nodes have is not known: %s: %w", dir, cmp.Or(err, fs.ErrNotExist))
	}
	var total, taken uint64
	for _, node := range nodes {
		m, err := readMeminfo(s, node)
		if err != nil {
			return err
		}
		huge, err := hugeAfter(s, node, pools)
		if err != nil {
			return err
		}
		if mine := slices.ContainsFunc(pools, func(p *Pool) bool {
			return p.NUMANode == node
		}); mine && huge+nodeKeep(m.total) > m.total {
			return fmt.Errorf("NUMA node %d has %s, and hugepages would take %s of them; %s have to be left: give "+
				"the lab nodes less memory, or have the host keep more of it "+
				"(host.reserve.numa_nodes in the lab file)", node, mib(m.total), mib(huge), mib(nodeKeep(m.total)))
		}
		total, taken = total+m.total, taken+huge
	}
	for _, p := range pools {
		if !slices.Contains(nodes, p.NUMANode) {
			return fmt.Errorf("there is no NUMA node %d: the plan is for another host", p.NUMANode)
		}
	}
	if keep := hostKeep(total, guests); taken+keep > total {
		return fmt.Errorf("the host has %s, and hugepages would take %s of them; with %d virtual machines %s have to "+
			"be left: give the lab nodes less memory, or have the host keep more of it "+
			"(host.reserve.memory in the lab file)", mib(total), mib(taken), guests, mib(keep))
	}
	return nil
}

func hugeAfter(s *change.System, node int, pools []*Pool) (uint64, error) {
	dir := nodeDir(node) + "hugepages"
	names, err := s.List(dir)
	if err != nil {
		return 0, err
	}
	pages := map[uint64]uint64{}
	for _, name := range names {
		digits, _ := strings.CutPrefix(strings.TrimSuffix(name, "kB"), "hugepages-")
		kb, err := strconv.ParseUint(digits, 10, 40)
		if err != nil {
			continue
		}
		if pages[kb<<10], err = s.Number(dir + "/" + name + "/nr_hugepages"); err != nil {
			return 0, err
		}
	}
	for _, p := range pools {
		if p.NUMANode == node {
			pages[p.PageBytes] = max(pages[p.PageBytes], p.Pages)
		}
	}
	sum := uint64(0)
	for size, n := range pages {
		if n > (1<<60)/size {
			return 0, fmt.Errorf("NUMA node %d: %d pages of %s are more than any host has", node, n, words.Exact(size))
		}
		sum += n * size
	}
	return sum, nil
}

func mib(bytes uint64) string { return strconv.FormatUint(bytes>>20, 10) + " MiB" }

// GuardCPUs refuses a plan that leaves the host too few CPUs, or the wrong ones. It applies to cgroups and to kernel
// arguments.
func GuardCPUs(p *plan.Plan, h *topology.Host) error {
	given, err := p.GivenCPUs(h)
	if err != nil {
		return err
	}
	keep := p.Housekeeping.CPUs
	const fix = "plan again with more for the host (host.reserve in the lab file)"
	switch {
	case given.IsEmpty():
		return nil
	case keep.IsEmpty():
		return fmt.Errorf("the plan leaves the host no CPU: %s", fix)
	case given.Overlaps(keep):
		return fmt.Errorf("CPUs %s are the host's and those of lab nodes at once: plan again", given.Intersect(keep))
	case given.Contains(0):
		// CPU 0 boots the machine, keeps its time, and on x86 has timers and interrupts that cannot be moved
		// (kernel/time/tick-sched.c takes it out of nohz_full).
		return errors.New("CPU 0 would go to a lab node, and the kernel needs it: plan again with a core of its NUMA " +
			"node for the host (host.reserve.numa_nodes in the lab file)")
	}
	mine, theirs := coresIn(h, keep), coresIn(h, given)
	if mine == 0 && len(h.Cores) > 0 {
		return fmt.Errorf("CPUs %s of the host are no whole core: %s", keep, fix)
	}
	if theirs > mine*CoresPerHousekeepingCore && len(h.Cores) > 0 {
		return fmt.Errorf("%d cores of the host for %d of lab nodes, and one serves at most %d: %s", mine, theirs,
			CoresPerHousekeepingCore, fix)
	}
	for _, use := range hostUses(h) {
		near := nearCPUs(h, use.node)
		if near.IsEmpty() || keep.Overlaps(near) || keep.Union(given).Intersect(near).IsEmpty() {
			continue
		}
		return fmt.Errorf("all CPUs beside NUMA node %d (%s) would go to lab nodes, and the host needs one there "+
			"for %s: %s", use.node, near, use.what, fix)
	}
	return nil
}

func coresIn(h *topology.Host, cpus topology.CPUSet) int {
	return lists.Count(h.Cores, func(c topology.Core) bool { return c.CPUs.IsSubsetOf(cpus) })
}

type hostUse struct {
	node int
	what string
}

func hostUses(h *topology.Host) []hostUse {
	var uses []hostUse
	for _, d := range h.Storage {
		if d.NUMANode != nil && len(d.Mounts) > 0 {
			uses = append(uses, hostUse{*d.NUMANode, fmt.Sprintf("%s (%s)", d.Name, strings.Join(d.Mounts, " "))})
		}
	}
	for _, r := range h.Routes {
		for _, d := range h.PCI {
			if d.NUMANode != nil && slices.Contains(r.PCI, d.Address.String()) {
				uses = append(uses, hostUse{*d.NUMANode, fmt.Sprintf("%s (default route)", r.Netdev)})
			}
		}
	}
	return uses
}

// nearCPUs takes the package around a NUMA node: with several nodes per package (EPYC with NPS4) any CPU of it is
// close.
func nearCPUs(h *topology.Host, node int) topology.CPUSet {
	var own topology.CPUSet
	if n := h.NUMANode(node); n != nil {
		own = n.CPUs
	}
	for _, p := range h.Packages {
		if !own.IsEmpty() && own.IsSubsetOf(p.CPUs) {
			return p.CPUs
		}
	}
	return own
}
