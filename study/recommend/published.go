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
	const busy = "64 busy host processes"
	// latency is a figure of ib_write_lat in the table of the document on EPYC.
	latency := func(metric string, from, to float64, of Figure) Figure {
		of.Table, of.Verdict, of.Test, of.Unit = "table of ib_write_lat", stats.Better, "ib_write_lat", "us"
		of.Metric, of.A, of.B = metric, from, to
		return of
	}
	wrong := Figure{Setting: Placement, From: levelWrong, To: levelPin, NeedsNUMA: true}
	contended := Figure{Setting: Isolation, From: "none", To: "isolcpus", Where: busy}
	// kept is the speed of an application on 44 of 48 cores, as a share of that on all of them.
	kept := func(figures, app string, percent float64, says string) Figure {
		return Figure{Table: "figures " + figures + ", " + app, Setting: Reserve, From: "0 of 48", To: "4 of 48",
			Verdict: stats.Equivalent, Test: "app_" + strings.ToLower(app), Metric: "speed", A: 100, B: percent,
			Unit: "% of the speed on 48 cores", Workloads: everyWorkload, Says: says}
	}
	// mtu is what a document says of an MTU in words.
	mtu := func(table, from, to string, verdict stats.Verdict, test, says string) Figure {
		return Figure{Table: table, Setting: MTU, From: from, To: to, Verdict: verdict, Test: test,
			Metric: "bw_average", Workloads: rdmaWorkloads, Says: says}
	}
	const jumbo = "section on jumbo frames"
	// takeaway is what the post on pinning concludes.
	takeaway := func(s Setting, verdict stats.Verdict, test, metric string, of Figure) Figure {
		of.Table, of.Setting, of.From, of.To = "takeaways", s, levelOff, levelOn
		if s == Placement {
			of.From, of.To = levelDefault, levelPin
		}
		of.Verdict, of.Test, of.Metric = verdict, test, metric
		return of
	}
	return []Document{
		{
			Title: "Building a Multi-Node RDMA Lab on a Single Machine (remote-lab.net)", Kind: []string{"EPYC 7551P"},
			Figures: []Figure{
				latency("latency_typical", 1.62, 1.44, wrong),
				latency("latency_p99", 1.97, 1.53, wrong),
				latency("latency_p99.9", 7.99, 5.22, wrong),
				latency("latency_p99", 1.71, 1.53, contended),
				latency("latency_p99.9", 7.59, 5.22, contended),
				{Table: "table of iperf3 under contention", Setting: Isolation, From: "none", To: "isolcpus",
					Verdict: stats.Better, Test: "iperf3", Metric: "throughput", Where: busy, A: 7.9, B: 24.1,
					Unit: "Gb/s", Workloads: everyWorkload},
				mtu(jumbo, "1500", "4200", stats.Better, "ib_write_bw",
					"an IB MTU of 4096 bytes in place of 1024: a quarter of the packets"),
				mtu(jumbo, "4200", "9000", stats.Equivalent, "ib_write_bw",
					"the IB MTU stays 4096 bytes; the rest only wastes buffers"),
			},
		},
		{
			Title: "RoCE SR-IOV Setup and Performance Study on vSphere 7.x (VMware)",
			Figures: []Figure{
				mtu("chapter 2", "4200", "9000", stats.Undecided, "ib_send_bw",
					"9000 was used throughout and compared with nothing"),
				kept("25 and 26", "OpenFOAM", 94, ""),
				kept("27 and 28", "WRF", 95.8, ""),
				kept("29 and 30", "LAMMPS", 91.1, "on one node, where bare metal with 44 cores loses 9.5%"),
				kept("31 and 32", "GROMACS", 91.5, "on 16 nodes, where bare metal with 44 cores loses 7.6%"),
				kept("33 and 34", "NAMD", 91.5, "on 16 nodes"),
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
				takeaway(Placement, stats.Better, "all tests", "latency and noise", Figure{Workloads: everyWorkload,
					Says: "pinning alone helped latency and noise: the safest start"}),
				takeaway(Placement, stats.Better, "nccl_all_reduce", "busbw", Figure{NeedsGPUs: true,
					Says: "pinning helped a lot on some hosts (NCCL_P2P_DISABLE=1)"}),
				takeaway(Placement, stats.Equivalent, "gpu_matmul", "time", Figure{NeedsGPUs: true,
					Says: "FP16 matmul barely changed"}),
				takeaway(GuestNUMA, stats.Better, "stream", "bandwidth", Figure{NeedsNUMA: true, Low: 2, High: 7,
					Where: "pinned"}),
				takeaway(GuestNUMA, stats.Worse, "nccl_all_reduce", "busbw", Figure{NeedsNUMA: true, NeedsGPUs: true,
					Where: "pinned", Says: "guest NUMA hurt badly on some hosts (NCCL_P2P_DISABLE=1)"}),
				takeaway(GuestNUMA, stats.Equivalent, "gpu_matmul", "time", Figure{NeedsNUMA: true, NeedsGPUs: true,
					Where: "pinned", Says: "FP16 matmul barely changed"}),
				takeaway(SMT, stats.Equivalent, "sysbench_cpu", "rate", Figure{NeedsSMT: true, Low: 1.02, High: 1.03,
					Where: "pinned, guest NUMA", Workloads: everyWorkload,
					Says: "the guest looks bigger without being much faster"}),
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

// evidence retells a figure. The verdict is the author's: no runs are published that could be judged anew.
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
