// Package appraise judges measured figures by the machine: whether a figure is normal for it, and if not, which limit
// explains it. It joins the limits of paths (expect.Judge, topology.Expect) with the findings of diagnose.
package appraise

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study/importer"
)

// Verdicts of a Figure.
const (
	Normal  = "normal"  // the best of such a path
	Limited = "limited" // the most of this machine as configured; causes name the limits
	Low     = "low"     // the causes are likely ones
	Above   = "above"   // measured on another machine or path
	Unknown = "unknown" // no expectation
)

// A Figure is a measured value and its verdict, at the size that reports quote.
type Figure struct {
	Level   string  `json:"level"` // in a study
	Test    string  `json:"test"`
	Metric  string  `json:"metric"`
	Bytes   int64   `json:"bytes,omitempty"`
	Value   float64 `json:"value"` // median of repeats
	Unit    string  `json:"unit"`
	Verdict string  `json:"verdict"`
	Text    string  `json:"text"`
	// Bound is the most that the path carries as configured, in Unit; 0 if unknown.
	Bound    float64           `json:"bound,omitempty"`
	Devices  []string          `json:"devices,omitempty"`  // devices on the path
	Causes   []expect.Cause    `json:"causes,omitempty"`   // likeliest first
	Findings []finding.Finding `json:"findings,omitempty"` // on Devices and the bridges above
	// Remarks are further facts; figures of one log have them once.
	Remarks []tool.Remark `json:"remarks,omitempty"`
}

// Faulty reports whether the machine should give a better figure: low, impossibly high, or limited by a finding.
func (f *Figure) Faulty() bool {
	return f.Verdict == Low || f.Verdict == Above || f.Verdict == Limited && len(f.Findings) > 0
}

type machine struct {
	*topology.Host
	tree     *topology.Tree
	node     *facts.Node
	findings []finding.Finding
	device   string // replaces the one in a log
}

type seriesKey struct{ level, test, metric string }

// Check judges, for each test, the metric that says most about the path. device is the RDMA or network device of h that
// was measured; "" selects the log's, or the fastest.
func Check(h *topology.Host, findings []finding.Finding, studies []*importer.Study, device string) []Figure {
	m := &machine{Host: h, tree: topology.NewTree(h), node: &facts.Node{Host: *h}, findings: findings, device: device}
	var series group.By[seriesKey, importer.Sample]
	for _, s := range studies {
		for _, r := range s.Runs {
			for _, x := range r.Samples {
				series.Add(seriesKey{r.Cell[s.Spec.Factors[0].Name], x.Test, x.Metric}, x)
			}
		}
	}
	var all []Figure
	said, remarks := map[[2]string]bool{}, map[string]bool{}
	for _, k := range series.Keys {
		// Without a judged metric the first one stays, so that the test appears with the reason.
		better := judged
		if slices.Contains(judged, k.metric) {
			better = instead[k.metric]
		}
		of := [2]string{k.level, k.test}
		if said[of] && !slices.Contains(judged, k.metric) || slices.ContainsFunc(series.Keys, func(o seriesKey) bool {
			return o.level == k.level && o.test == k.test && slices.Contains(better, o.metric)
		}) {
			continue
		}
		said[of] = true
		f := m.figure(k, quoted(series.Of(k)))
		f.fall(series.Of(k), m.infiniband())
		f.remark(series.Of(k)[0].Origin.Remarks, remarks)
		m.nearNICs(&f)
		all = append(all, f)
	}
	return all
}

func (f *Figure) remark(remarks []tool.Remark, said map[string]bool) {
	for _, r := range remarks {
		key := f.Level + "\x00" + r.What + "\x00" + r.Evidence
		if !said[key] && (!r.Possible || f.Verdict != Normal) {
			said[key] = true
			f.Remarks = append(f.Remarks, r)
		}
	}
}

var judged = []string{bench.MetricBWAverage, bench.MetricThroughput, bench.MetricCopyBandwidth,
	bench.MetricBusBandwidth, triad, bench.MetricLatencyTypical, bench.MetricLatencyAverage}

// triad is the figure of STREAM that is usually quoted.
const triad = "triad"

// instead maps a metric to better ones of the same test.
var instead = map[string][]string{bench.MetricLatencyAverage: {bench.MetricLatencyTypical, bench.MetricBWAverage},
	bench.MetricLatencyTypical: {bench.MetricBWAverage}}

const quotedBytes = 65536

// quoted keeps 64 KiB for message bandwidths, the smallest size for latencies, and the largest otherwise.
func quoted(all []importer.Sample) []importer.Sample {
	bySize := func(a, b importer.Sample) int { return cmp.Compare(a.Bytes, b.Bytes) }
	size := slices.MaxFunc(all, bySize).Bytes
	if all[0].Unit == bench.UnitUsec {
		size = slices.MinFunc(all, bySize).Bytes
	}
	if all[0].Metric == bench.MetricBWAverage && slices.ContainsFunc(all, func(x importer.Sample) bool {
		return x.Bytes == quotedBytes
	}) {
		size = quotedBytes
	}
	return slices.DeleteFunc(slices.Clone(all), func(x importer.Sample) bool { return x.Bytes != size })
}

func (m *machine) figure(k seriesKey, all []importer.Sample) Figure {
	f := Figure{Level: k.level, Test: k.test, Metric: k.metric, Bytes: all[0].Bytes, Unit: all[0].Unit,
		Verdict: Unknown, Value: bench.Median(lists.Map(all, func(x importer.Sample) float64 { return x.Value }))}
	switch k.metric {
	case bench.MetricBWAverage, bench.MetricThroughput:
		m.message(&f, all)
	case bench.MetricCopyBandwidth:
		m.copies(&f, all)
	case bench.MetricBusBandwidth:
		m.peers(&f, all[0].Origin.Where)
	case triad:
		m.memory(&f)
	case bench.MetricLatencyTypical, bench.MetricLatencyAverage:
		m.latency(&f, all)
	default:
		f.Text = "no expectation: nothing of the machine says what this test should give"
		if k.metric == bench.MetricCollectiveTime && alone(all[0].Origin.Where) {
			f.Text = oneRank
		}
	}
	f.Findings = m.related(f.Devices, k.metric == bench.MetricBusBandwidth && all[0].Origin.Hosts <= 1)
	return f
}

const oneRank = "no expectation: the log is of one GPU, so that nothing was sent to another: these are times of " +
	"copies within it, or of nothing at all"

func alone(w importer.Where) bool { return w.Hosts <= 1 && len(w.Ranks) == 1 }

// tooMuch is the tolerance above a limit that already deducts packet headers. These take up to 9 %, because the packet
// size of PCIe is not known.
const tooMuch = 1.1

// othersShare is the share of a limit that tools other than perftest reach.
const othersShare = 0.9

func (f *Figure) take(all []importer.Sample, e bench.Engine, w expect.Path) {
	var samples []bench.Sample
	for _, x := range all {
		s := x.Sample
		s.Test, s.Client, s.Run = e.Name, w.Client.Node, "log"
		if !e.Local {
			s.Server = w.Server.Node
		}
		samples = append(samples, s)
	}
	verdicts := map[string]string{expect.VerdictWire: Normal, expect.VerdictExplained: Limited,
		expect.VerdictShort: Low, expect.VerdictNoCause: Low, expect.VerdictNone: Unknown}
	w.Foreign = true
	for _, j := range expect.Judge(samples, func(_, _, _ string) expect.Path { return w }) {
		f.Verdict, f.Text, f.Bound, f.Causes = verdicts[j.Verdict], j.Text, j.Bound, j.Causes
		// MPI, UCX and TCP have overhead of their own.
		if f.Verdict == Low && samples[0].Tool != "perftest" && !e.Local && j.Value >= othersShare*j.Bound {
			f.Verdict, f.Causes = Normal, nil
		}
		if j.Wire > 0 && j.Value > tooMuch*j.Wire {
			f.Verdict, f.Causes = Above, nil
			f.Text = fmt.Sprintf("more than the machine can carry, which is %.4g %s: it was measured on another "+
				"one, or went another way", j.Wire, f.Unit)
		}
		f.overLink(e, w.Client.PCI)
	}
}

// overLink marks a figure above the raw bit rate of the NIC's PCIe link.
func (f *Figure) overLink(e bench.Engine, link bench.PCILink) {
	if e.Local || f.Unit != bench.UnitGbps || link.SpeedGTs == nil || link.Width == nil {
		return
	}
	carries := 8 * topology.LinkGBps(*link.SpeedGTs, *link.Width)
	if strings.Contains(e.Name, "/bidi") {
		carries *= 2
	}
	if carries > 0 && f.Value > carries {
		f.Verdict, f.Causes = Above, nil
		f.Text = fmt.Sprintf("more than the PCIe link at %s carries, which is %.4g %s with %s: it was measured on "+
			"another machine, or while the link had more lanes or speed", link.Address, carries, f.Unit,
			topology.Rate{GTs: *link.SpeedGTs, Lanes: *link.Width})
	}
}

// ofNICs are the findings about the distance of GPUs and NICs.
var ofNICs = []string{"RL011", "RL012"}

// related returns the findings, except informational ones, about devices and the bridges above. within is set if no NIC
// had a part.
func (m *machine) related(devices []string, within bool) []finding.Finding {
	names := map[string]bool{}
	for _, id := range devices {
		names[id] = true
		address, err := topology.ParsePCIAddr(id)
		if err != nil {
			continue
		}
		for _, up := range m.tree.Ancestors(address) {
			names[up.Address.String()] = true
		}
		if n := m.NIC(address); n != nil {
			for _, name := range slices.Concat(n.RDMA, n.Netdevs) {
				names[name] = true
			}
		}
	}
	var all []finding.Finding
	for _, f := range m.findings {
		// "mlx5_0, mlx5_1"
		subjects := strings.FieldsFunc(f.Subject, func(r rune) bool { return r == ',' || r == ' ' })
		about := f.Severity != finding.Info && slices.ContainsFunc(subjects, func(s string) bool { return names[s] })
		if about && !(within && slices.Contains(ofNICs, f.ID)) {
			all = append(all, f)
		}
	}
	return all
}

// uplink returns the narrowest PCIe link up to the host, as under load: at the present width and, for GPUs, which slow
// down when idle, the highest speed of both ends. The bridges of a virtual machine are ignored; their links are made
// up.
func (m *machine) uplink(device topology.PCIAddr) (bench.PCILink, bool) {
	d := m.tree.Device(device)
	least, ok := m.tree.Trained(d)
	if !ok {
		return bench.PCILink{}, false
	}
	link := bench.PCILink{Address: device.String(), Link: *d.Link}
	for _, up := range m.tree.Ancestors(device) {
		if r, ok := m.tree.Trained(up); ok && r.GBps() < least.GBps() && !m.IsVirtual() {
			least, link = r, bench.PCILink{Address: up.Address.String(), Below: device.String(), Link: *up.Link}
			link.SpeedGTs, link.Width = &r.GTs, &r.Lanes
		}
	}
	return link, true
}

// oneWay maps copies of nvbandwidth by the GPU's threads to the engine of that direction.
var oneWay = map[string]string{"nvbandwidth_host_to_device_memcpy_sm": "gpu_bandwidth_h2d",
	"nvbandwidth_device_to_host_memcpy_sm": "gpu_bandwidth_d2h"}

func (m *machine) copies(f *Figure, all []importer.Sample) {
	e, err := tool.EngineByName(cmp.Or(oneWay[f.Test], f.Test))
	switch {
	case strings.HasPrefix(f.Test, "nvbandwidth_device_to_device_memcpy_"):
		m.peers(f, importer.Where{Hosts: 1, Ranks: all[0].Origin.Ranks})
		return
	case err == nil && e.Name == "gpu_bandwidth_local":
		m.within(f)
		return
	case err != nil || !e.Copies():
		f.Text = "no expectation: both ways at once, all GPUs at once and latencies are not judged"
		return
	case slices.ContainsFunc(m.gpus(), func(g topology.GPU) bool { return g.IsCoherent() }):
		m.coherent(f)
		return
	case m.System.Arch != "" && m.System.Arch != "x86_64":
		f.Text = "no expectation: processors other than x86-64 may have NVLink to their GPUs"
		return
	}
	side := expect.Side{Node: "this machine"}
	for _, g := range m.gpus() {
		link, ok := m.uplink(*g.Address)
		// NCCL's topology has only the rate under load.
		link.MaxSpeedGTs, link.MaxWidth = cmp.Or(link.MaxSpeedGTs, link.SpeedGTs), cmp.Or(link.MaxWidth, link.Width)
		if !ok || link.MaxSpeedGTs == nil || link.MaxWidth == nil || link.SpeedGTs == nil {
			f.Text = fmt.Sprintf("no expectation: the PCIe link of %s is not known", g.ID())
			return
		}
		side.GPUs = append(side.GPUs, bench.GPULink{PCILink: link, NUMANode: g.NUMANode})
		f.Devices = append(f.Devices, g.ID())
	}
	if len(side.GPUs) == 0 {
		f.Text = "no expectation: the machine has no GPU with a PCI address"
		return
	}
	f.take(all, e, expect.Path{Client: side})
}

// coherent compares a copy with the NVLink C2C rate in NCCL's topology, which is only an upper bound.
func (m *machine) coherent(f *Figure) {
	for _, g := range m.gpus() {
		if g.C2CGBps == nil {
			f.Text = fmt.Sprintf("no expectation: %s is joined by NVLink C2C, and what that carries the machine does "+
				"not say (the topology of NCCL does)", g.ID())
			return
		}
		f.Bound = max(f.Bound, *g.C2CGBps)
		f.Devices = append(f.Devices, g.ID())
	}
	f.Text = fmt.Sprintf("no expectation: NVLink C2C carries %.4g GB/s by the topology of NCCL, and this is %.3g%% "+
		"of it; what a copy reaches is not published", f.Bound, 100*f.Value/f.Bound)
	if f.Value > tooMuch*f.Bound {
		f.Verdict, f.Text = Above, fmt.Sprintf("more than the %.4g GB/s that NVLink C2C carries by the topology of "+
			"NCCL: it was measured on another machine, or is of both directions", f.Bound)
	}
}

func (m *machine) gpus() []topology.GPU {
	return lists.Filter(m.GPUs, func(g topology.GPU) bool { return g.Kind != topology.GPUDisplay && g.Address != nil })
}

// peersShare is the share of an expectation below which a figure is low. The published ranges are of other machines.
const peersShare = 0.7

// severalTimes is the multiple from which the limit of a path does not explain a figure.
const severalTimes = 3

// peers judges transfers by the slowest path between any two of the GPUs.
func (m *machine) peers(f *Figure, of importer.Where) {
	if of.Hosts > 1 {
		m.overNICs(f, of)
		return
	}
	gpus, all := m.measured(of.Ranks)
	model := ""
	if len(of.Ranks) > 0 {
		model = of.Ranks[0].Model
	}
	switch {
	case f.Metric == bench.MetricBusBandwidth && alone(of):
		f.Text = oneRank
		return
	case len(gpus) < 2:
		f.Text = "no expectation: the machine has no two GPUs"
		return
	case len(of.Ranks) > len(gpus):
		f.Text = fmt.Sprintf("no expectation: the log is of %d GPUs, and the machine has %d", len(of.Ranks), len(gpus))
		return
	}
	together := 0
	if f.Metric == bench.MetricBusBandwidth {
		together = m.together(gpus)
	}
	var worst topology.Expectation
	var pair topology.Path
	var unknown *topology.Path
	linked, told := false, true
	for i := range gpus {
		f.Devices = append(f.Devices, gpus[i].ID())
		told = told && m.tellsNVLink(&gpus[i])
		for j := range i {
			p := m.tree.Path(gpus[j].ID(), gpus[i].ID())
			e, ok := m.expect(p, model, together)
			if !ok {
				if unknown == nil || unknown.Class < p.Class {
					unknown = &p
				}
				continue
			}
			linked = linked || p.Class == topology.PathNVLink
			if pair.A == "" || e.GBpsMax < worst.GBpsMax {
				worst, pair = e, p
			}
		}
	}
	if unknown != nil {
		f.Text = m.notKnown(*unknown)
		return
	}
	f.Bound = worst.GBpsMax
	usual := fmt.Sprintf("%.4g to %.4g GB/s are usual for the slowest pair, %s and %s: %s, %s", worst.GBpsMin,
		worst.GBpsMax, pair.A, pair.B, pair.Label(), cmp.Or(worst.Link, worst.Basis))
	if worst.Limit != nil {
		usual += fmt.Sprintf(" at %s, which both go through", *worst.Limit)
	}
	if all {
		usual += "; which of the GPUs were measured, their addresses do not tell"
	}
	f.Verdict, f.Text = Normal, usual
	most := 2 * worst.GBpsMax
	if worst.Link == "" { // NVLink has no Link, and a more precise expectation
		most = 1.3 * worst.GBpsMax
	}
	switch {
	case f.Value > most && !told:
		f.Verdict, f.Text = Unknown, "no expectation: it is more than PCIe gives, so it went over NVLink, of which "+
			"this machine tells nothing (nvidia-smi topo -m and nvidia-smi nvlink -s do); "+usual
	case f.Value > most && linked && pair.Class != topology.PathNVLink:
		f.Verdict, f.Text = Unknown, "no expectation: rings take the NVLinks between other pairs; "+usual
	case f.Value > most:
		f.Verdict, f.Text = Above, fmt.Sprintf("more than %.2g times what is usual: ", most/worst.GBpsMax)+usual
	case f.Value < peersShare*worst.GBpsMin:
		f.Verdict = Low
	case f.Value < worst.GBpsMin:
		f.Verdict = Limited
	}
	// GPUs without NVLink have no better path than one switch (PIX).
	if f.Verdict == Low && worst.Link == "" {
		f.Causes = []expect.Cause{{What: "another way than NVLink", Evidence: fmt.Sprintf("%.3g GB/s may be what "+
			"PCIe or shared memory gives", f.Value), Possible: true, Ceiling: f.Bound, Fix: "NCCL_DEBUG=INFO: " +
			"channels are to go via P2P; NCCL_P2P_DISABLE and NCCL_P2P_LEVEL are to be unset, the fabric manager to " +
			"run, and in a container /dev/shm to be large"}}
	} else if (f.Verdict == Limited || f.Verdict == Low && worst.GBpsMax <= severalTimes*f.Value) &&
		pair.Class > topology.PathPIX {
		f.Causes = []expect.Cause{{What: "the path " + pair.Label(), Evidence: "it is the slowest between two of the " +
			"GPUs: " + pair.A + " and " + pair.B, Fix: "take GPUs that are below one switch, or have NVLink; " +
			"rackless inspect -o matrix shows the paths", Possible: f.Verdict == Low, Ceiling: worst.GBpsMax}}
	}
}

// A Result contains the figures of logs, compared with one host.
type Result struct {
	Host    string   `json:"host"`
	OK      bool     `json:"ok"` // no figure is faulty
	Figures []Figure `json:"figures"`
	Failed  []string `json:"failed,omitempty"` // tests without a figure, and why
}

// NewResult compares figures with a host, as Check does.
func NewResult(name string, h *topology.Host, findings []finding.Finding, studies []*importer.Study,
	device string) *Result {
	r := &Result{Host: name, Figures: Check(h, findings, studies, device)}
	for _, s := range studies {
		for _, run := range s.Runs {
			r.Failed = append(r.Failed, run.Failures...)
		}
	}
	bad, _ := r.Count()
	r.OK = bad == 0
	return r
}

// Count returns the number of faulty figures and of figures without an expectation.
func (r *Result) Count() (faulty, unknown int) {
	for i := range r.Figures {
		switch f := &r.Figures[i]; {
		case f.Faulty():
			faulty++
		case f.Verdict == Unknown:
			unknown++
		}
	}
	return faulty, unknown
}
