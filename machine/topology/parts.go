package topology

import (
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

// Parts returns the names of the nonempty parts, in the Host's order. A part is empty if the source cannot know it, or
// if the machine has none.
func (h *Host) Parts() []string {
	var parts []string
	for _, part := range []struct {
		name   string
		filled bool
	}{
		{"system", h.System != System{}},
		{"packages", len(h.Packages) > 0},
		{"numa_nodes", len(h.NUMANodes) > 0},
		{"numa_memory", lists.Ref(h.NUMANodes, func(n *NUMANode) bool { return n.MemoryBytes != nil }) != nil},
		{"numa_distances", lists.Ref(h.NUMANodes, func(n *NUMANode) bool { return n.Distances != nil }) != nil},
		{"l3", len(h.L3) > 0},
		{"cores", len(h.Cores) > 0},
		{"cpus", !h.CPUs.Online.IsEmpty()},
		{"memory", h.Memory.TotalBytes != nil},
		{"kernel", h.Kernel.Cmdline != nil},
		{"pci", len(h.PCI) > 0},
		{"pci_links", lists.Ref(h.PCI, func(d *PCIDevice) bool { return d.Link != nil }) != nil},
		{"iommu_groups", lists.Ref(h.PCI, func(d *PCIDevice) bool { return d.IOMMUGroup != nil }) != nil},
		{"gpus", len(h.GPUs) > 0},
		{"nics", len(h.NICs) > 0},
		{"virtual_switches", len(h.Switches) > 0},
		{"storage", len(h.Storage) > 0},
		{"default_routes", len(h.Routes) > 0},
		{"tenants", len(h.Tenants) > 0},
		{"reported_paths", len(h.Reported) > 0},
	} {
		if part.filled {
			parts = append(parts, part.name)
		}
	}
	return parts
}

// Empty reports whether nothing is known.
func (h *Host) Empty() bool {
	return len(h.Parts()) == 0 && h.IOMMU.Enabled == nil && len(h.Kernel.Modules) == 0 && len(h.Kernel.Messages) == 0
}

// troubleWords are in names of counters of errors, discards, retransmission and congestion in mlx4, mlx5, bnxt_re,
// irdma, efa, hns and rxe.
var troubleWords = []string{
	"err", "discard", "drop", "retr", "timeout", "downed", "link_error_recovery", "overrun", "integrity", "nak",
	"out_of_", "oos", "missing",
	"mismatch", "exceed", "duplicate", "slow_restart", "cnp", "ecn", "icrc", "lost", "unresponsive",
}

// ordinaryWords have a trouble word by chance, or count ordinary events: requests are flushed whenever a connection
// ends.
var ordinaryWords = []string{"deferred", "interrupt", "transferred", "flush_error"}

// IsTrouble reports whether a counter is of errors, discards, retransmission or congestion.
func IsTrouble(name string) bool {
	within := func(w string) bool { return strings.Contains(strings.ToLower(name), w) }
	return slices.ContainsFunc(troubleWords, within) && !slices.ContainsFunc(ordinaryWords, within)
}

// flowNames match ethtool -S of mlx5, bnxt, ice and i40e.
var flowNames = lazyregexp.New(`^(?:port\.)?[rt]x_(?:prio(\d)_(bytes|packets|pause|discards?|buf_discard|` +
	`cong_discard|wred_discard)|priority_(\d)_(xoff)(?:_[rt]x)?(?:\.nic)?|(pfc_ena_frames|bytes|packets)_pri(\d)|` +
	`(?:global_pause|pause_ctrl_phy|pause_storm_(?:warning|error)_events|vport_rdma_unicast_bytes))$`)

// IsFlow reports whether a counter is of a priority or of pauses.
func IsFlow(name string) bool { return flowNames().MatchString(name) }

// FlowOf returns the priority of a counter and "bytes", "packets", "pause" or "drops". ok is false if it is of no
// single priority.
func FlowOf(name string) (priority int, what string, ok bool) {
	m := flowNames().FindStringSubmatch(name)
	if m == nil || m[1]+m[3]+m[6] == "" {
		return 0, "", false
	}
	what = m[2] + m[4] + m[5]
	switch {
	case what == "xoff" || what == "pfc_ena_frames":
		what = "pause"
	case strings.Contains(what, "discard"):
		what = "drops"
	}
	return int((m[1] + m[3] + m[6])[0] - '0'), what, true
}
