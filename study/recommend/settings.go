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

// A Setting is what is chosen.
type Setting string

// The settings.
const (
	Placement  Setting = "placement"
	GuestNUMA  Setting = "guest_numa"
	SMT        Setting = "smt"
	Isolation  Setting = "isolation"
	Hugepages  Setting = "hugepages"
	MTU        Setting = "mtu"
	Reserve    Setting = "reserve"     // cores that the host keeps
	PeerMemory Setting = "peer_memory" // the module through which a NIC reaches a GPU's memory
	gpuDevice  Setting = "gpus"        // which GPU a lab node has: ranked, not decided
)

// Levels that have a name in the code.
const (
	levelDefault = "default"
	levelPin     = "pin"
	levelWrong   = "wrong-numa"
	levelOff     = "off"
	levelOn      = "on"
	levelAuto    = "auto"
	levelByNode  = "by node" // lab nodes differ
)

// A rule is what is known about a setting before any evidence.
type rule struct {
	setting Setting
	levels  []string // that can be recommended, the one that changes least of the host first
	now     string   // what lab file and planner make of it; need not be one of the levels
	fixed   string   // why there is nothing to choose; "" where there is
}

// rules are the settings of a lab on a host, in the order in which they are shown. p is the planner's problem of the
// two, or nil.
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
	// What auto stands for is the planner's to say.
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
		// The same number of virtual CPUs is twice the cores without siblings, or half of them with: that is the
		// larger change.
		{setting: SMT, levels: siblings, now: smt},
		{setting: Isolation, levels: []string{"none", "cpuset", "isolcpus"}, now: "isolcpus"},
		{setting: Hugepages, levels: []string{levelOff, "2MiB", "1GiB"}, now: string(l.Hugepages)},
		{setting: MTU, levels: []string{"1500", "4200", "9000"}, now: strconv.Itoa(l.Fabric.MTU)},
		{setting: Reserve, levels: nil, now: levelAuto},
	}
	// A setting that the host cannot have is fixed: evidence from other hosts must not choose it.
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

// shape returns how many NUMA nodes with CPUs a host has, and how many threads its cores have at
// most; 0 where it is not known.
func shape(h *topology.Host) (numa, threads int) {
	numa += lists.Count(h.NUMANodes, func(n topology.NUMANode) bool { return !n.CPUs.IsEmpty() })
	for i := range h.Cores {
		threads = max(threads, h.Cores[i].CPUs.Len())
	}
	return numa, threads
}

// simpler orders levels of a setting: the one that changes less of the host is first. Numbers that
// the rule does not name, of an MTU, are ordered by size behind those that it does.
func (r *rule) simpler(a, b string) int {
	place := func(level string) int {
		if i := slices.Index(r.levels, level); i >= 0 {
			return i
		}
		return len(r.levels)
	}
	number := func(level string) int {
		n, _ := strconv.Atoi(level) // what is no number is 0, and then its text orders it
		return n
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(number(a), number(b)), cmp.Compare(a, b))
}

// settingsOf says what a level of a study's factor means: placement is several settings in one. It
// is nil for factors that are no setting, as load and impairments are.
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

// workloadsOf says for which workloads the figure of a test is one that matters. Every figure
// matters to lab.WorkloadMixed.
func workloadsOf(test string) []lab.Workload {
	name, variant, _ := strings.Cut(test, "/")
	all := []lab.Workload{lab.WorkloadMixed}
	switch {
	case strings.HasPrefix(name, "nccl_"), strings.HasPrefix(name, "rccl_"), strings.Contains(variant, "cuda"):
		return append(all, lab.WorkloadGPUCollective) // from one GPU's memory to another's
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
