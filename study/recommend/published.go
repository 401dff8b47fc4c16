package recommend

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/topology"
)

// A Document is a published one, with the figures in it that speak for or against a setting.
type Document struct {
	Title string
	// Kind is part of the names of the CPUs or GPUs that it measured: a host that has one is of its
	// kind. Empty: of no kind that could be told from a host.
	Kind    []string
	Figures []Figure
	Pairs   []PublishedPair
}

// A Figure is one comparison in a document.
type Figure struct {
	Table string // where in the document
	// What was compared: To with From. The verdict is the author's.
	Setting  Setting
	From, To string
	Verdict  stats.Verdict
	Test     string // as bench or a study would name it
	Metric   string
	Where    string
	// A and B are the metric at From and To; or Low and High are its ratio, where the author gives
	// a range. All are 0 where the author states it without a figure.
	A, B      float64
	Unit      string
	Low, High float64
	Says      string // the author's finding, retold; for figures with A and B it may be empty
	// Workloads are those that it speaks to; nil stands for those that the test's figure matters to.
	Workloads []lab.Workload
	// Host that it takes: more than one NUMA node, SMT, a lab with GPUs.
	NeedsNUMA, NeedsSMT, NeedsGPUs bool
}

// A PublishedPair is the measured bandwidth between a GPU and a NIC of a machine, with their path.
// Another machine's figures count where all its paths are the same.
type PublishedPair struct {
	GPU, NIC string
	Class    topology.PathClass
	Gbps     float64
}

// everyWorkload are all workloads, for what a document says of none in particular.
var everyWorkload = []lab.Workload{
	lab.WorkloadRDMALatency, lab.WorkloadRDMABandwidth, lab.WorkloadGPUCompute, lab.WorkloadGPUCollective,
	lab.WorkloadCPUBandwidth, lab.WorkloadMixed,
}

// rdmaWorkloads are those whose messages cross the interface.
var rdmaWorkloads = []lab.Workload{lab.WorkloadRDMALatency, lab.WorkloadRDMABandwidth, lab.WorkloadGPUCollective,
	lab.WorkloadMixed}

// Documents returns the published evidence, figure by figure. docs/recommend.md lists the documents.
func Documents() []Document {
	const latencies, contention = "table of ib_write_lat", "table of iperf3 under contention"
	const busy = "64 busy host processes"
	return []Document{
		{
			Title: "Building a Multi-Node RDMA Lab on a Single Machine (remote-lab.net)", Kind: []string{"EPYC 7551P"},
			Figures: []Figure{
				{Table: latencies, Setting: Placement, From: levelWrong, To: levelPin, Verdict: stats.Better,
					Test: "ib_write_lat", Metric: "latency_typical", A: 1.62, B: 1.44, Unit: "us", NeedsNUMA: true},
				{Table: latencies, Setting: Placement, From: levelWrong, To: levelPin, Verdict: stats.Better,
					Test: "ib_write_lat", Metric: "latency_p99", A: 1.97, B: 1.53, Unit: "us", NeedsNUMA: true},
				{Table: latencies, Setting: Placement, From: levelWrong, To: levelPin, Verdict: stats.Better,
					Test: "ib_write_lat", Metric: "latency_p99.9", A: 7.99, B: 5.22, Unit: "us", NeedsNUMA: true},
				{Table: latencies, Setting: Isolation, From: "none", To: "isolcpus", Verdict: stats.Better,
					Test: "ib_write_lat", Metric: "latency_p99", Where: busy, A: 1.71, B: 1.53, Unit: "us"},
				{Table: latencies, Setting: Isolation, From: "none", To: "isolcpus", Verdict: stats.Better,
					Test: "ib_write_lat", Metric: "latency_p99.9", Where: busy, A: 7.59, B: 5.22, Unit: "us"},
				{Table: contention, Setting: Isolation, From: "none", To: "isolcpus", Verdict: stats.Better,
					Test: "iperf3", Metric: "throughput", Where: busy, A: 7.9, B: 24.1, Unit: "Gb/s",
					Workloads: everyWorkload},
				{Table: "section on jumbo frames", Setting: MTU, From: "1500", To: "4200", Verdict: stats.Better,
					Test: "ib_write_bw", Metric: "bw_average", Workloads: rdmaWorkloads,
					Says: "an IB MTU of 4096 bytes in place of 1024: a quarter of the packets"},
				{Table: "section on jumbo frames", Setting: MTU, From: "4200", To: "9000", Verdict: stats.Equivalent,
					Test: "ib_write_bw", Metric: "bw_average", Workloads: rdmaWorkloads,
					Says: "the IB MTU stays 4096 bytes; the rest only wastes buffers"},
			},
		},
		{
			Title: "RoCE SR-IOV Setup and Performance Study on vSphere 7.x (VMware)",
			Figures: []Figure{
				{Table: "chapter 2", Setting: MTU, From: "4200", To: "9000", Verdict: stats.Undecided,
					Test: "ib_send_bw", Metric: "bw_average", Workloads: rdmaWorkloads,
					Says: "9000 was used throughout and compared with nothing"},
				{Table: "figures 25 and 26, OpenFOAM", Setting: Reserve, From: "0 of 48", To: "4 of 48",
					Verdict: stats.Equivalent, Test: "app_openfoam", Metric: "speed", A: 100, B: 94,
					Unit: "% of the speed on 48 cores", Workloads: everyWorkload},
				{Table: "figures 27 and 28, WRF", Setting: Reserve, From: "0 of 48", To: "4 of 48",
					Verdict: stats.Equivalent, Test: "app_wrf", Metric: "speed", A: 100, B: 95.8,
					Unit: "% of the speed on 48 cores", Workloads: everyWorkload},
				{Table: "figures 29 and 30, LAMMPS", Setting: Reserve, From: "0 of 48", To: "4 of 48",
					Verdict: stats.Equivalent, Test: "app_lammps", Metric: "speed", A: 100, B: 91.1,
					Unit: "% of the speed on 48 cores", Workloads: everyWorkload,
					Says: "on one node, where bare metal with 44 cores loses 9.5%"},
				{Table: "figures 31 and 32, GROMACS", Setting: Reserve, From: "0 of 48", To: "4 of 48",
					Verdict: stats.Equivalent, Test: "app_gromacs", Metric: "speed", A: 100, B: 91.5,
					Unit: "% of the speed on 48 cores", Workloads: everyWorkload,
					Says: "on 16 nodes, where bare metal with 44 cores loses 7.6%"},
				{Table: "figures 33 and 34, NAMD", Setting: Reserve, From: "0 of 48", To: "4 of 48",
					Verdict: stats.Equivalent, Test: "app_namd", Metric: "speed", A: 100, B: 91.5,
					Unit: "% of the speed on 48 cores", Workloads: everyWorkload, Says: "on 16 nodes"},
			},
		},
		{
			Title: "GPU communication notes, H20 with BlueField-3 (cscyuge's blog)", Kind: []string{"H20"},
			Pairs: []PublishedPair{
				{"GPU0", "NIC0", topology.PathNODE, 195.06}, {"GPU1", "NIC0", topology.PathPIX, 195.05},
				{"GPU2", "NIC0", topology.PathNODE, 178.81}, {"GPU3", "NIC0", topology.PathNODE, 175.83},
				{"GPU4", "NIC0", topology.PathSYS, 124.38}, {"GPU5", "NIC0", topology.PathSYS, 124.22},
				{"GPU6", "NIC0", topology.PathSYS, 124.27}, {"GPU7", "NIC0", topology.PathSYS, 119.11},
			},
		},
		{
			Title: "Mellanox GPUDirect RDMA User Manual, Rev 1.2",
			Figures: []Figure{
				{Table: "section 1.2", Setting: PeerMemory, From: "absent", To: "loaded", Verdict: stats.Better,
					Test: "osu_latency/cuda", Metric: "latency", Workloads: everyWorkload,
					Says: "without the module GPUDirect RDMA does not work, and latency is very high", NeedsGPUs: true},
			},
		},
		{
			Title: "Benchmarked vCPU pinning and guest NUMA for GPU passthrough VMs (r/VFIO, 6erun)",
			Kind:  []string{"H200", "MI350X", "RTX PRO 6000", "RTX 4090", "RTX 4080", "RTX 5090"},
			Figures: []Figure{
				{Table: "takeaways", Setting: Placement, From: levelDefault, To: levelPin, Verdict: stats.Better,
					Test: "all tests", Metric: "latency and noise",
					Says: "pinning alone helped latency and noise: the safest start", Workloads: everyWorkload},
				{Table: "takeaways", Setting: Placement, From: levelDefault, To: levelPin, Verdict: stats.Better,
					Test: "nccl_all_reduce", Metric: "busbw",
					Says: "pinning helped a lot on some hosts (NCCL_P2P_DISABLE=1)", NeedsGPUs: true},
				{Table: "takeaways", Setting: Placement, From: levelDefault, To: levelPin, Verdict: stats.Equivalent,
					Test: "gpu_matmul", Metric: "time", Says: "FP16 matmul barely changed", NeedsGPUs: true},
				{Table: "takeaways", Setting: GuestNUMA, From: levelOff, To: levelOn, Verdict: stats.Better,
					Test: "stream", Metric: "bandwidth", Low: 2, High: 7, Where: "pinned", NeedsNUMA: true},
				{Table: "takeaways", Setting: GuestNUMA, From: levelOff, To: levelOn, Verdict: stats.Worse,
					Test: "nccl_all_reduce", Metric: "busbw", Where: "pinned",
					Says: "guest NUMA hurt badly on some hosts (NCCL_P2P_DISABLE=1)", NeedsNUMA: true, NeedsGPUs: true},
				{Table: "takeaways", Setting: GuestNUMA, From: levelOff, To: levelOn, Verdict: stats.Equivalent,
					Test: "gpu_matmul", Metric: "time", Where: "pinned", Says: "FP16 matmul barely changed",
					NeedsNUMA: true, NeedsGPUs: true},
				{Table: "takeaways", Setting: SMT, From: levelOff, To: levelOn, Verdict: stats.Equivalent,
					Test: "sysbench_cpu", Metric: "rate", Low: 1.02, High: 1.03, Where: "pinned, guest NUMA",
					Workloads: everyWorkload, NeedsSMT: true, Says: "the guest looks bigger without being much faster"},
			},
		},
	}
}

// ofKind reports whether a host is of the kind that a document measured.
func (d *Document) ofKind(h *topology.Host) bool {
	return slices.ContainsFunc(d.Kind, func(kind string) bool {
		has := func(model string) bool { // whole words: an H200 is no H20
			return strings.Contains(" "+strings.NewReplacer("-", " ", "(", " ", ")", " ").Replace(model)+" ",
				" "+kind+" ")
		}
		return has(h.System.CPUModel) || slices.ContainsFunc(h.GPUs, func(g topology.GPU) bool { return has(g.Model) })
	})
}

// evidence returns what documents say on a lab on a host; what needs hardware that they do not have is left out.
func published(documents []Document, h *topology.Host, l *lab.Lab) []Evidence {
	numa, threads := shape(h)
	gpus := slices.ContainsFunc(l.Nodes, func(n lab.Node) bool { return n.GPUs > 0 })
	var all []Evidence
	for i := range documents {
		d := &documents[i]
		carry := Published
		if d.ofKind(h) {
			carry = PublishedForKind
		}
		for _, f := range d.Figures {
			if f.NeedsNUMA && numa == 1 || f.NeedsSMT && threads == 1 || f.NeedsGPUs && !gpus {
				continue
			}
			all = append(all, f.evidence(d.Title, carry))
		}
	}
	return all
}

func (f *Figure) evidence(title string, carry Carry) Evidence {
	e := Evidence{
		Setting: f.Setting, From: f.From, To: f.To, Verdict: f.Verdict, Test: f.Test, Metric: f.Metric, Where: f.Where,
		Effect: f.Says, Low: f.Low, High: f.High,
		Source: title + ", " + f.Table, Carry: carry, Decides: f.Verdict != stats.Undecided,
		aside: f.Verdict == stats.Undecided, workloads: f.Workloads, lowerIsBetter: f.Unit == "us" ||
			strings.HasPrefix(f.Metric, "latency"),
	}
	if e.aside {
		e.Remark = "no comparison"
	}
	if f.Workloads == nil {
		e.workloads = workloadsOf(f.Test)
	}
	switch {
	case f.A > 0:
		e.Ratio = f.B / f.A
		e.Effect = fmt.Sprintf("%g %s in place of %g (%+.3g%%)", f.B, f.Unit, f.A, 100*(e.Ratio-1))
	case f.Low > 0:
		e.Effect = fmt.Sprintf("%+.0f%% to %+.0f%%", 100*(f.Low-1), 100*(f.High-1))
		if f.Low >= 2 {
			e.Effect = fmt.Sprintf("x%g to x%g", f.Low, f.High)
		}
	}
	if f.Says != "" && e.Effect != f.Says {
		e.Effect += ": " + f.Says
	}
	return e
}
