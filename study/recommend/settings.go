package recommend

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/study"
)

// A Setting is an option of the configuration.
type Setting string

// Settings of a lab on a host.
const (
	Placement  Setting = "placement"
	GuestNUMA  Setting = "guest_numa"
	SMT        Setting = "smt"
	Isolation  Setting = "isolation"
	Hugepages  Setting = "hugepages"
	MTU        Setting = "mtu"
	Reserve    Setting = "reserve"     // cores reserved for the host
	PeerMemory Setting = "peer_memory" // module for a NIC's access to GPU memory
	gpuDevice  Setting = "gpus"        // ranked, not decided
)

const (
	levelDefault = "default"
	levelPin     = "pin"
	levelWrong   = "wrong-numa"
	levelOff     = "off"
	levelOn      = "on"
	levelAuto    = "auto"
	levelByNode  = "by node" // lab nodes differ
)

// A rule describes a setting before any evidence.
type rule struct {
	setting Setting
	levels  []string // fewest changes to the host first
	now     string   // by lab file and plan; need not be in levels
	fixed   string   // why there is no choice, or ""
}

// rules are in display order. p may be nil.
func rules(h *topology.Host, l *lab.Lab, p *plan.Problem) []rule {
	numa, threads := shape(h)
	common := func(of func(i int) string) string {
		now := of(0)
		for i := range l.Nodes {
			if of(i) != now {
				return levelByNode
			}
		}
		return now
	}
	// The planner resolves auto.
	shown := common(func(i int) string { return string(l.ShownNUMA(&l.Nodes[i])) })
	smt := common(func(i int) string {
		switch {
		case p == nil:
			return string(l.Nodes[i].SMT)
		case p.Requests[i].Threads > 1:
			return levelOn
		}
		return levelOff
	})
	siblings := []string{levelOn, levelOff}
	if smt == levelOff || threads == 1 {
		slices.Reverse(siblings)
	}
	all := []rule{
		{setting: Placement, levels: []string{levelDefault, levelPin}, now: levelPin},
		{setting: GuestNUMA, levels: []string{levelOff, levelOn}, now: shown},
		// Changing SMT needs twice the cores, or half.
		{setting: SMT, levels: siblings, now: smt},
		{setting: Isolation, levels: []string{"none", "cpuset", "isolcpus"}, now: "isolcpus"},
		{setting: Hugepages, levels: []string{levelOff, "2MiB", "1GiB"}, now: string(l.Hugepages)},
		{setting: MTU, levels: []string{"1500", "4200", "9000"}, now: strconv.Itoa(l.Fabric.MTU)},
		{setting: Reserve, levels: nil, now: levelAuto},
	}
	// Evidence from other hosts cannot choose an unsupported setting.
	if numa == 1 {
		all[1].fixed, all[1].now = "the host has one NUMA node: there is nothing to show", levelOff
	}
	if threads == 1 {
		all[2].fixed, all[2].now = "the cores of the host have one thread each", levelOff
	}
	if l.Reserve.Cores != nil {
		all[6].now = strconv.Itoa(*l.Reserve.Cores)
	}
	if slices.ContainsFunc(l.Nodes, func(n lab.Node) bool { return n.GPUs > 0 && len(n.NICs) > 0 }) {
		all = append(all, rule{setting: PeerMemory, levels: []string{"absent", "loaded"}, now: "by image"})
	}
	return all
}

// shape returns NUMA nodes with CPUs, and the most threads per core; 0 if unknown.
func shape(h *topology.Host) (numa, threads int) {
	numa += lists.Count(h.NUMANodes, func(n topology.NUMANode) bool { return !n.CPUs.IsEmpty() })
	for i := range h.Cores {
		threads = max(threads, h.Cores[i].CPUs.Len())
	}
	return numa, threads
}

// simpler puts unlisted MTUs last, by size.
func (r *rule) simpler(a, b string) int {
	place := func(level string) int {
		if i := slices.Index(r.levels, level); i >= 0 {
			return i
		}
		return len(r.levels)
	}
	number := func(level string) int {
		n, _ := strconv.Atoi(level) // 0: ordered as text
		return n
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(number(a), number(b)), cmp.Compare(a, b))
}

// settingsOf returns nil for factors such as load and impairments.
func settingsOf(factor, level string) map[Setting]string {
	if factor == study.FactorPlacement {
		m := map[Setting]string{Placement: levelPin, GuestNUMA: levelOff, SMT: levelOff}
		switch level {
		case levelDefault, levelWrong:
			m[Placement] = level
		case "pin+numa":
			m[GuestNUMA] = levelOn
		case "pin+numa+smt":
			m[GuestNUMA], m[SMT] = levelOn, levelOn
		}
		return m
	}
	if factor == study.FactorIsolation || factor == study.FactorHugepages {
		return map[Setting]string{Setting(factor): level}
	}
	key, ok := study.LabKey(factor)
	if !ok {
		return nil
	}
	path := strings.Split(key, ".")
	switch last := Setting(path[len(path)-1]); {
	case last == GuestNUMA || last == SMT || last == Hugepages || last == MTU || last == PeerMemory ||
		last == gpuDevice:
		return map[Setting]string{last: level}
	case key == "host.reserve.cores":
		return map[Setting]string{Reserve: level}
	}
	return nil
}

// workloadsOf always includes lab.WorkloadMixed.
func workloadsOf(test string) []lab.Workload {
	name, variant, _ := strings.Cut(test, "/")
	all := []lab.Workload{lab.WorkloadMixed}
	switch {
	case strings.HasPrefix(name, "nccl_"), strings.HasPrefix(name, "rccl_"), strings.Contains(variant, "cuda"):
		return append(all, lab.WorkloadGPUCollective) // between the memories of GPUs
	case strings.HasPrefix(name, "gpu_"):
		return append(all, lab.WorkloadGPUCompute)
	case strings.HasSuffix(name, "_lat"), name == "fi_pingpong", name == "osu_latency":
		return append(all, lab.WorkloadRDMALatency)
	case strings.HasSuffix(name, "_bw"), name == "iperf3", name == "osu_bibw":
		return append(all, lab.WorkloadRDMABandwidth)
	case strings.Contains(name, "stream"), strings.HasPrefix(name, "sysbench_"), strings.HasPrefix(name, "app_"),
		strings.HasPrefix(name, "cpu_"), name == "mem_latency", name == "lat_mem_rd", name == "7zip":
		return append(all, lab.WorkloadCPUBandwidth)
	}
	return all
}
