// Package expect judges measured figures: bandwidths by the limits of their path, latencies beside published ones, and
// measurements by a baseline.
package expect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// A Path holds known facts about a path. Unknown values are zero or nil, and support no conclusion.
type Path struct {
	Client, Server Side
	// Load is the first number of /proc/loadavg of the nodes' host.
	Load     float64
	HostCPUs int
	// Foreign is set if another program ran the tool: advice then names its options.
	Foreign bool
}

// A Side is one end of a Path.
type Side struct {
	Node   string
	Device string  // RDMA device, e.g. "mlx5_0"
	Rate   float64 // Gb/s; for a bond, of one member
	IPv6   bool
	IBMTU  int      // active MTU of the RDMA port
	MTU    int      // of the network device
	Bond   []string // member links
	PCI    bench.PCILink
	// NUMANode is the device's NUMA node, and Near its CPUs.
	NUMANode *int
	Near     topology.CPUSet
	// CPUNodes are the NUMA nodes of the tool's CPUs.
	CPUNodes []int
	GPU      *GPUMemory // nil if the tool used no GPU memory
	// GPUs are for copies; MemoryNodes are the NUMA nodes of the tool's memory.
	GPUs        []bench.GPULink
	MemoryNodes []int
	Steal       *float64 // share of time that the hypervisor took from busy CPUs
}

// GPUMemory is the GPU that provided a tool's memory.
type GPUMemory struct {
	Name     string // e.g. "GPU 4"
	NUMANode int
}

// A Judgement compares a bandwidth with the limits of its path.
type Judgement struct {
	Test   string `json:"test"`
	Client string `json:"client"`
	Server string `json:"server"`
	Metric string `json:"metric"`
	Bytes  int64  `json:"bytes,omitempty"`
	// Value is the median of repeats. All values are in Gb/s, for copies to and from GPUs in GB/s.
	Value    float64 `json:"gb_per_s"`
	Verdict  string  `json:"verdict"` // one of the Verdict constants
	Text     string  `json:"text"`    // the verdict as a sentence
	Emulated bool    `json:"emulated,omitempty"`
	// Wire is the payload of the link at its best: with the largest MTU and all members of a bond. Bound is the limit
	// in its current state: the narrower of wire and PCIe link. For copies, both are of the PCIe link. 0 is unknown.
	Wire   float64 `json:"wire_gb_per_s,omitempty"`
	Bound  float64 `json:"bound_gb_per_s,omitempty"`
	Causes []Cause `json:"causes,omitempty"` // most likely first
}

// A Cause is a possible reason for a bandwidth below the wire.
type Cause struct {
	What     string `json:"what"`     // e.g. "IB MTU 1024"
	Evidence string `json:"evidence"` // facts that support it
	Fix      string `json:"fix"`
	// Possible is set if the facts allow the cause but do not prove it.
	Possible bool `json:"possible,omitempty"`
	// Ceiling is the limit of the path with this cause alone, 0 if it cannot be computed.
	Ceiling float64 `json:"ceiling_gb_per_s,omitempty"`
}

// Verdicts of a Judgement.
const (
	// VerdictWire is within WireShare of the wire, or the share of good links for copies.
	VerdictWire = "wire"
	// VerdictExplained is close to the limit of the current state: causes with a ceiling explain it.
	VerdictExplained = "explained"
	VerdictShort     = "short"    // below that, too: its causes are only likely
	VerdictNoCause   = "no cause" // no known fact explains it
	VerdictNone      = "none"     // nothing to compare it with
	// VerdictEmulated is below an emulated wire: the emulation is the limit.
	VerdictEmulated = "emulated"
)

// Thresholds for reaching a limit.
const (
	// WireShare is the fraction of the wire that good links reach: see TestPublishedFiguresAreJustBelowTheWire.
	WireShare = 0.98
	// pcieShare is the reachable fraction of a PCIe limit. Flow control and acknowledgements take another 8 to 10 % (R.
	// Neugebauer et al., Understanding PCIe performance for end host networking, SIGCOMM 2018, section 3).
	pcieShare = 0.88
	// stealShare of stolen time counts as a cause: a study counts such a run as disturbed.
	stealShare = 0.02
	// smallBytes is the largest size at which a port's message rate may be the limit: published figures of 4 KiB reach
	// 90 % of 100 Gb/s, of 64 KiB 98 %.
	smallBytes = 4096
	// severalTimes a figure, a limit is too far above it to be its cause.
	severalTimes = 3
	largestIBMTU = 4096
)

// Judge returns one judgement for each test and pair of nodes, at the message size that reports quote (64 KiB, or else
// the largest).
//
// It ignores failed samples and copies over unknown links. It compares emulated figures with the wire alone, if their
// adapter keeps to its rate (Sample.Limit). Soft RoCE is compared with nothing, because its rate is made up.
func Judge(samples []bench.Sample, path func(client, server string, run string) Path) []Judgement {
	type key struct{ test, client, server string }
	var groups group.By[key, bench.Sample]
	for _, s := range samples {
		if s.Error != "" || !judgeable(s) {
			continue
		}
		groups.Add(key{s.Test, s.Client, s.Server}, s)
	}
	var out []Judgement
	for _, k := range groups.Keys {
		all := quoted(groups.Of(k))
		resent := 0.0
		for _, s := range samples {
			if s.Run == all[0].Run && s.Metric == bench.MetricRetransmits {
				resent += s.Value
			}
		}
		w := path(k.client, k.server, all[0].Run)
		if all[0].Metric == bench.MetricCopyBandwidth && len(w.Client.GPUs) == 0 {
			continue
		}
		out = append(out, judge(all, resent, w))
	}
	return out
}

func judgeable(s bench.Sample) bool {
	switch s.Metric {
	case bench.MetricBWAverage, bench.MetricThroughput:
		return s.Server != ""
	case bench.MetricCopyBandwidth:
		e, err := tool.EngineByName(s.Test)
		return err == nil && e.Copies()
	}
	return false
}

func quoted(all []bench.Sample) []bench.Sample {
	size := slices.MaxFunc(all, func(a, b bench.Sample) int { return cmp.Compare(a.Bytes, b.Bytes) }).Bytes
	// Published figures quote this size.
	if slices.ContainsFunc(all, func(s bench.Sample) bool { return s.Bytes == bench.QuickBytes }) {
		size = bench.QuickBytes
	}
	return slices.DeleteFunc(all, func(s bench.Sample) bool { return s.Bytes != size })
}

func judge(all []bench.Sample, resent float64, w Path) Judgement {
	s := all[0]
	values := lists.Map(all, func(x bench.Sample) float64 { return x.Value })
	j := Judgement{Test: s.Test, Client: s.Client, Server: s.Server, Metric: s.Metric, Bytes: s.Bytes,
		Value: bench.Median(values), Emulated: s.Emulated, Verdict: VerdictNone}
	e, err := tool.EngineByName(s.Test)
	switch {
	case s.Emulated && s.Limit > 0:
		j.emulated(s.Limit)
	case s.Emulated:
		j.Text = "no expectation: it is emulated, and the rate of its wire is made up"
	case err != nil:
		j.Text = "no expectation: the test is not known"
	case s.Metric == bench.MetricCopyBandwidth:
		judgeCopies(&j, w)
	default:
		// Tools other than perftest use one flow and main memory.
		t := e.Traffic()
		r := route{Path: w, engine: e, bytes: s.Bytes, flows: max(1, t.Pairs), both: t.Both, gpu: t.GPU != "",
			iperf: s.Metric == bench.MetricThroughput}
		r.judge(&j, resent)
	}
	return j
}

func (j *Judgement) emulated(limit float64) {
	j.Wire, j.Bound, j.Verdict = limit, limit, VerdictEmulated
	j.Text = fmt.Sprintf("%s of the emulated wire, which carries %s Gb/s, headers counted", part(j.Value/limit),
		gbps(limit))
	if j.Value >= WireShare*limit {
		j.Verdict = VerdictWire
		j.Text = fmt.Sprintf("within 98%% of the emulated wire: %s of %s Gb/s, headers counted", gbps(j.Value),
			gbps(limit))
	}
}

type route struct {
	Path
	engine bench.Engine
	bytes  int64
	flows  int // that a bond can spread over its members
	both   bool
	iperf  bool
	gpu    bool // GPU memory was used
}

func (r *route) rate() float64 { return min(r.Client.Rate, r.Server.Rate) }

func (r *route) members() int { return max(1, min(len(r.Client.Bond), len(r.Server.Bond))) }

// ibMTU returns the smaller of both ports, which a queue pair uses, or 0 if unknown.
func (r *route) ibMTU() int { return min(r.Client.IBMTU, r.Server.IBMTU) }

func (r *route) wire(links, ibMTU int) float64 {
	v6 := r.Client.IPv6 || r.Server.IPv6
	if r.iperf {
		return float64(links) * bench.TCPLimit(r.rate(), min(r.Client.MTU, r.Server.MTU), v6)
	}
	return float64(links) * bench.Wire{Rate: r.rate(), MTU: ibMTU, IPv6: v6}.Limit(r.engine, r.bytes)
}

// narrowest returns nil if no PCIe link is known.
func (r *route) narrowest() (side *Side, limit float64) {
	for _, s := range []*Side{&r.Client, &r.Server} {
		if l := s.PCI.Limit(); l > 0 && (side == nil || l < limit) {
			side, limit = s, l
		}
	}
	if r.both {
		limit *= 2 // PCIe has a link for each direction
	}
	return side, limit
}

// judge lets only the PCIe link explain a figure if the rate of the port is unknown, and leaves Wire 0 then.
func (r *route) judge(j *Judgement, resent float64) {
	j.Wire = r.wire(r.members(), largestIBMTU)
	side, pcie := r.narrowest()
	known := j.Wire > 0
	switch {
	case known || pcie > 0:
	case r.rate() > 0:
		j.Text = fmt.Sprintf("no expectation: the headers of %s on the wire are not known, nor is a PCIe link",
			r.engine.Name)
		return
	default:
		j.Text = "no expectation: neither the rate of the port nor its PCIe link is known"
		return
	}
	wire := j.Wire
	if !known {
		wire = math.Inf(1)
	}
	atBest := fmt.Sprintf("%s Gb/s (%s)", gbps(wire), r.wireText(r.members(), largestIBMTU))
	if j.Value >= WireShare*wire {
		j.Verdict, j.Bound = VerdictWire, wire
		j.Text = fmt.Sprintf("within 98%% of the wire: %s of %s", gbps(j.Value), atBest)
		return
	}
	bounds := slices.Concat(r.linkCauses(wire), r.pcieCauses(wire, side, pcie))
	j.Bound = cmp.Or(r.wire(min(r.members(), r.flows), cmp.Or(r.ibMTU(), largestIBMTU)), wire)
	reached, what := WireShare, "the wire as it is set up"
	if pcie > 0 && pcie < j.Bound {
		j.Bound, reached, what = pcie, pcieShare, "the PCIe link"
	}
	j.Text = fmt.Sprintf("%s of %s, which carries %s Gb/s", part(j.Value/j.Bound), what, gbps(j.Bound))
	if j.Value >= reached*j.Bound {
		j.Verdict, j.Causes = VerdictExplained, rank(bounds, j)
		if known {
			j.Text += "; the wire at its best: " + atBest
		}
		return
	}
	j.Causes = rank(slices.Concat(nearby(bounds, j.Value), r.sizeCauses(), r.placeCauses(), r.loadCauses(),
		lossCauses(resent)), j)
	j.Verdict = VerdictShort
	if j.Bound == wire {
		j.Text = fmt.Sprintf("%s of the wire, which carries %s", part(j.Value/wire), atBest)
	}
	if len(j.Causes) == 0 {
		j.Verdict = VerdictNoCause
		j.Text += "; no cause was found in " + r.examined()
	}
}

// nearby leaves out ceilings several times above a figure.
func nearby(all []Cause, value float64) []Cause {
	return lists.Filter(all, func(c Cause) bool { return c.Ceiling <= severalTimes*value })
}

func (r *route) wireText(links, ibMTU int) string {
	text := fmt.Sprintf("%g Gb/s", r.rate())
	if links > 1 {
		text = fmt.Sprintf("%d links of %s", links, text)
	}
	if r.iperf {
		return fmt.Sprintf("%s, MTU %d, headers counted", text, min(r.Client.MTU, r.Server.MTU))
	}
	return fmt.Sprintf("%s, IB MTU %d, headers counted", text, ibMTU)
}

func gbps(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// part never rounds up above the reached value.
func part(share float64) string { return fmt.Sprintf("%.1f %%", math.Floor(1000*share+1e-9)/10) }

func (r *route) linkCauses(wire float64) []Cause {
	var out []Cause
	// Messages of one packet have the same headers with any MTU.
	if mtu := r.ibMTU(); !r.iperf && mtu > 0 && mtu < largestIBMTU && r.bytes > int64(mtu) {
		if c := r.wire(r.members(), mtu); c > 0 && c < wire {
			at := &r.Client
			if r.Server.IBMTU < r.Client.IBMTU {
				at = &r.Server
			}
			inLab := " (in a lab file: fabric: {mtu: 4200})"
			if r.Foreign {
				inLab = ""
			}
			out = append(out, Cause{What: fmt.Sprintf("IB MTU %d", mtu), Ceiling: c,
				Evidence: fmt.Sprintf("active MTU of %s on %s is %d, so a packet carries %d bytes and %d of headers",
					at.Device, at.Node, mtu, mtu, bench.PacketHeaders),
				Fix: "set the MTU of the network devices and of the switch to 4200" + inLab + ", which gives an IB " +
					"MTU of 4096"})
		}
	}
	if n, used := r.members(), min(r.members(), r.flows); used < n {
		test := "ib_write_bw"
		if r.engine.Tool == tool.Perftest {
			test = r.engine.Name
		}
		flows, several, what := "1 queue pair", fmt.Sprintf("%s/q%d", test, 4*n), "one flow on a bond"
		switch {
		case r.iperf:
			flows, several = "1 TCP connection", fmt.Sprintf("iperf3 -P %d", 4*n)
		case r.flows > 1:
			flows = fmt.Sprintf("%d queue pairs", r.flows)
		}
		if !r.iperf && r.Foreign {
			several = fmt.Sprintf("perftest has -q %d", 4*n)
		}
		if used > 1 {
			what = "few flows on a bond"
		}
		out = append(out, Cause{What: what, Ceiling: r.wire(used, largestIBMTU), Fix: "measure with several: " +
			several, Evidence: fmt.Sprintf("%s, and a bond of %d links (%s) sends each flow over one of them", flows,
			n, strings.Join(r.bond(), ", "))})
	}
	return out
}

// bond returns the narrower bond: the wider one cannot send more than the other receives.
func (r *route) bond() []string {
	if len(r.Server.Bond) < len(r.Client.Bond) {
		return r.Server.Bond
	}
	return r.Client.Bond
}

func (r *route) pcieCauses(wire float64, side *Side, limit float64) []Cause {
	if side == nil || limit >= wire {
		return nil
	}
	what := fmt.Sprintf("PCIe Gen %d x%d link", topology.Generation(*side.PCI.SpeedGTs), *side.PCI.Width)
	evidence := fmt.Sprintf("%s on %s (%s) has %v: %s Gb/s with packets of %d bytes", cmp.Or(side.Device, "the NIC"),
		side.Node, side.PCI.Address, side.PCI, gbps(limit), bench.PCIePayload)
	fix := "put the card into a slot with more lanes or of a later generation"
	if best, down := side.PCI.Trained(); down {
		evidence += ", and the card can do " + best
		fix = fmt.Sprintf("compare LnkCap and LnkSta of the card and of every port above it (lspci -vv -s %s); seat "+
			"the card again, use another slot, or set the slot's speed in the firmware", side.PCI.Address)
	}
	return []Cause{{What: what, Evidence: evidence, Fix: fix, Ceiling: limit}}
}

// sizeCauses names small messages: then the message rate of NIC and CPU is the limit.
func (r *route) sizeCauses() []Cause {
	if r.iperf || r.bytes > smallBytes {
		return nil
	}
	return []Cause{{What: "small messages",
		Evidence: fmt.Sprintf("messages of %d bytes: how many a NIC handles in a second limits, not the wire", r.bytes),
		Fix:      "measure with 64 KiB for a bandwidth, or look at the message rate"}}
}

func (r *route) placeCauses() []Cause {
	var out []Cause
	for _, s := range []*Side{&r.Client, &r.Server} {
		if s.NUMANode == nil || *s.NUMANode < 0 {
			continue
		}
		device := fmt.Sprintf("%s (%s) is on NUMA node %d of %s", s.Device, s.PCI.Address, *s.NUMANode, s.Node)
		if g := s.GPU; g != nil && r.gpu {
			if g.NUMANode >= 0 && g.NUMANode != *s.NUMANode {
				out = append(out, Cause{What: "wrong NUMA node",
					Evidence: fmt.Sprintf("%s, and the memory of %s on NUMA node %d", device, g.Name, g.NUMANode),
					Fix: fmt.Sprintf("use a GPU on NUMA node %d, or a NIC on NUMA node %d", *s.NUMANode,
						g.NUMANode)})
			}
			continue
		}
		// The scheduler chooses the place of a tool that may run near and far.
		near := slices.Contains(s.CPUNodes, *s.NUMANode)
		if len(s.CPUNodes) == 0 || near && len(s.CPUNodes) == 1 {
			continue
		}
		options := fmt.Sprintf("--numa %d", *s.NUMANode)
		if s.Near.Len() > 0 {
			options = fmt.Sprintf("--cpu %v %s", s.Near, options)
		}
		where := "ran on CPUs of NUMA node " + numbers(s.CPUNodes)
		if near {
			where = "was free to run on CPUs of NUMA nodes " + numbers(s.CPUNodes)
		}
		if r.Foreign {
			where = "may have run on another: the log does not tell its CPUs"
			options = fmt.Sprintf("numactl --cpunodebind=%d --membind=%[1]d before the tool", *s.NUMANode)
		}
		out = append(out, Cause{What: "wrong NUMA node", Possible: near || r.Foreign, Fix: "measure with " + options,
			Evidence: fmt.Sprintf("%s, and the tool %s", device, where)})
	}
	return out
}

func numbers(all []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
}

func (r *route) loadCauses() []Cause {
	var evidence []string
	for _, s := range []*Side{&r.Client, &r.Server} {
		if s.Steal != nil && *s.Steal >= stealShare {
			evidence = append(evidence, fmt.Sprintf("CPUs of %s had work and were not let run for %s of the time",
				s.Node, part(*s.Steal)))
		}
	}
	if r.HostCPUs > 0 && r.Load >= float64(r.HostCPUs) {
		evidence = append(evidence, fmt.Sprintf("%.4g threads wanted to run on the %d CPUs of the host", r.Load,
			r.HostCPUs))
	}
	if len(evidence) == 0 {
		return nil
	}
	return []Cause{{What: "contention for CPUs", Evidence: strings.Join(evidence, "; "),
		Fix: "end what else runs there, or keep it off the CPUs of the nodes: pinning and isolation (rackless plan, " +
			"rackless prepare)"}}
}

func lossCauses(resent float64) []Cause {
	if resent == 0 {
		return nil
	}
	return []Cause{{What: "loss", Evidence: fmt.Sprintf("TCP sent %g segments again", resent),
		Fix: "look for drops: ethtool -S and nstat on both nodes, the counters of the switch"}}
}

// rank sorts causes: first ceilings that explain at least half of the shortfall, then causes without ceiling, facts
// before possibilities; then ceilings that explain little.
func rank(all []Cause, j *Judgement) []Cause {
	place := func(c Cause) float64 {
		switch {
		case c.Possible:
			return 2
		case c.Ceiling == 0:
			return 1
		case j.Wire == 0 || j.Wire-c.Ceiling >= (j.Wire-j.Value)/2:
			return 0
		}
		return 3
	}
	slices.SortStableFunc(all, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.Ceiling, b.Ceiling))
	})
	return all
}

// examined lists facts that explained nothing, and unknown ones: silence would look like proof that all is well.
func (r *route) examined() string {
	side, _ := r.narrowest()
	facts := []examinedFact{{"PCIe link", side != nil}}
	if !r.iperf {
		facts = append(facts, examinedFact{"IB MTU", r.ibMTU() > 0})
	}
	return examined(append(facts,
		examinedFact{"NUMA nodes", r.Client.NUMANode != nil && r.Server.NUMANode != nil},
		examinedFact{"stolen CPU time", r.Client.Steal != nil && r.Server.Steal != nil},
		examinedFact{"load of the host", r.HostCPUs > 0}))
}

type examinedFact struct {
	what  string
	known bool
}

func examined(facts []examinedFact) string {
	of := func(known bool) string {
		some := lists.Filter(facts, func(f examinedFact) bool { return f.known == known })
		return strings.Join(lists.Map(some, func(f examinedFact) string { return f.what }), ", ")
	}
	known, unknown := of(true), of(false)
	text := "what is known: " + known
	if known == "" {
		text = "what is known, which is only the port's rate"
	}
	if unknown != "" {
		text += "; not known: " + unknown
	}
	return text
}
