package appraise

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study/importer"
)

// memoryOf is the bandwidth of one processor with all memory channels filled, in GB/s of 10^9 bytes.
type memoryOf struct {
	name func() *regexp.Regexp
	gbps float64
	of   string
}

// channels lists the memory bandwidth of processor models, in GB/s per processor: channels times transfers times 8
// bytes. It assumes the fastest memory that the maker specifies; a system may have faster memory.
//
// Source: the makers' specifications (AMD's product pages of EPYC, Intel ARK, NVIDIA's Grace data sheet, Marvell's
// and Ampere's product briefs).
var channels = []memoryOf{
	{lazyregexp.New(`EPYC 7\d\d1P?\b`), 170.7, "8 x DDR4-2666"},
	{lazyregexp.New(`EPYC 7\w\w[23][PX]?\b`), 204.8, "8 x DDR4-3200"},
	{lazyregexp.New(`EPYC 9\w\w4\w*\b`), 460.8, "12 x DDR5-4800"},
	{lazyregexp.New(`EPYC 9\w\w5\w*\b`), 614.4, "12 x DDR5-6400"},
	{lazyregexp.New(`Xeon\(R\) (?:Platinum|Gold|Silver|Bronze) [3-8]1\d\d`), 128, "6 x DDR4-2666"},
	{lazyregexp.New(`Xeon\(R\) (?:Platinum|Gold|Silver|Bronze) [3-8]2\d\d`), 140.8, "6 x DDR4-2933"},
	// Cooper Lake is named like Ice Lake, with an H.
	{lazyregexp.New(`Xeon\(R\) (?:Platinum|Gold) [5-8]3\d\dH`), 153.6, "6 x DDR4-3200"},
	{lazyregexp.New(`Xeon\(R\) (?:Platinum|Gold|Silver) [4-8]3\d\d`), 204.8, "8 x DDR4-3200"},
	{lazyregexp.New(`Xeon\(R\) (?:Platinum|Gold|Silver) [4-8]4\d\d`), 307.2, "8 x DDR5-4800"},
	{lazyregexp.New(`Xeon\(R\) (?:Platinum|Gold|Silver) [4-8]5\d\d`), 358.4, "8 x DDR5-5600"},
	{lazyregexp.New(`Xeon\(R\) CPU E5-\d\d\d\d\w? v3`), 68.3, "4 x DDR4-2133"},
	{lazyregexp.New(`Xeon\(R\) CPU E5-\d\d\d\d\w? v4`), 76.8, "4 x DDR4-2400"},
	{lazyregexp.New(`Xeon\(R\) CPU E5-26\d\d\w? v2`), 59.7, "4 x DDR3-1866"},
	{lazyregexp.New(`Xeon\(R\) CPU E5-26\d\d\w? (?:0|@)`), 51.2, "4 x DDR3-1600"},
	{lazyregexp.New(`Grace|Neoverse-V2`), 546, "LPDDR5X of Grace"},
	{lazyregexp.New(`ThunderX2`), 170.7, "8 x DDR4-2666"},
	{lazyregexp.New(`Altra`), 204.8, "8 x DDR4-3200"},
}

// memoryShare is the share of the channel bandwidth that STREAM must reach with all channels filled and a thread per
// core. Published are 63 to 88 % (Xeon E5, EPYC 7002) and 60 to 71 % (ThunderX2). Without streaming stores, caches
// read each line before it is written; STREAM does not count this, which costs a quarter of triad.
const memoryShare = 0.55

func (m *machine) memory(f *Figure) {
	model := m.System.CPUModel
	if model == "" && len(m.Packages) > 0 {
		model = m.Packages[0].Model
	}
	i := slices.IndexFunc(channels, func(c memoryOf) bool { return c.name().MatchString(model) })
	switch {
	case m.IsVirtual():
		f.Text = "no expectation: what memory a virtual machine is given is not known"
		return
	case i < 0 || len(m.Packages) == 0:
		f.Text = fmt.Sprintf("no expectation: the memory channels of %q are not known", model)
		return
	}
	// STREAM prints MB/s of 10^6 bytes. Bound is in the unit of the figure.
	unit := 1.0
	if f.Unit == "MB/s" {
		unit = 1000
	}
	c := channels[i]
	value, all := f.Value/unit, c.gbps*float64(len(m.Packages))
	f.Bound = all * unit
	usual := fmt.Sprintf("%.3g%% of the %.4g GB/s that the memory channels of %d x %s carry (%s each)", 100*value/all,
		all, len(m.Packages), model, c.of)
	switch {
	case value > 1.05*all:
		f.Verdict, f.Text = Above, "more than the channels carry: the arrays were in caches, or it is another "+
			"machine: "+usual
	case value >= memoryShare*all:
		f.Verdict, f.Text = Normal, usual
	default:
		f.Verdict, f.Text = Low, usual
		f.Causes = []expect.Cause{{What: "fewer channels or threads", Evidence: usual, Possible: true, Ceiling: f.Bound,
			Fix: "fill all channels with equal modules (dmidecode -t memory); a thread on each core, spread over all " +
				"NUMA nodes (OMP_PROC_BIND=spread), memory placed by who uses it; streaming stores in the compiler"}}
	}
}

// linkShare is the share of a PCIe link's rate that is left for data after packet headers.
const linkShare = 0.8

// usualLatency and longLatency bound the one-way times of small messages over RDMA, in microseconds. Published
// between virtual machines are 1.4 back to back and 2.0 over one switch (bench.ComparePublished). Each further switch
// adds some 0.3, and sleeping processors and interrupts add tens.
const usualLatency, longLatency = 5, 15

func (m *machine) latency(f *Figure, all []importer.Sample) {
	if f.Bytes > 64 {
		f.Text = "no expectation: of latencies those of small messages are compared"
		return
	}
	side, why := m.side(cmp.Or(all[0].Origin.Device, m.device), false)
	if side == nil {
		f.Text = "no expectation: " + why
		return
	}
	nic, _ := m.RDMADevice(side.Device)
	f.Devices = []string{nic.ID()}
	f.Text = fmt.Sprintf("1 to %d us are usual over RDMA and up to some switches", usualLatency)
	switch {
	case f.Value <= usualLatency:
		f.Verdict = Normal
	case f.Value <= longLatency:
		f.Verdict = Limited
	default:
		f.Verdict = Low
	}
	if f.Verdict != Normal {
		f.Causes = []expect.Cause{{What: "waits that are not the wire's", Evidence: fmt.Sprintf("%.3g us", f.Value),
			Possible: true, Fix: "see that it is RDMA (MPI and UCX may take TCP); events in place of polling (-e); " +
				"idle states and frequencies of the CPUs; the process on the NUMA node of the NIC; emulation in " +
				"place of a passed-through NIC"}}
	}
	if why != "" {
		f.Text += "; " + why
	}
}

// overNICs judges the bus bandwidth of a collective operation over several machines. Rings and trees pass each byte
// through the NICs of each machine once, so the total rate of these NICs is the limit.
//
// Source: doc/PERFORMANCE.md of nccl-tests, on interpreting bus bandwidth.
func (m *machine) overNICs(f *Figure, hosts int) {
	ring := slices.ContainsFunc([]string{"_all_reduce", "_all_gather", "_reduce_scatter", "_broadcast", "_reduce"},
		func(op string) bool { return strings.HasSuffix(strings.SplitN(f.Test, "/", 2)[0], op) })
	if !ring {
		f.Text = "no expectation: how much of this operation crosses machines depends on how ranks are placed"
		return
	}
	type port struct {
		gbps  float64
		limit string
		id    string
	}
	var ports []port
	fastest := 0.0
	for nic, d := range m.RDMADevices() {
		if topology.IsSoftRDMA(d.Name) || nic.PF != nil || rate(d) == 0 {
			continue
		}
		p := port{gbps: rate(d) / 8, id: nic.ID()}
		if nic.Address != nil {
			link, ok := m.uplink(*nic.Address)
			if ok && link.SpeedGTs != nil && link.Width != nil {
				carried := linkShare * topology.LinkGBps(*link.SpeedGTs, *link.Width)
				if carried > 0 && carried < p.gbps {
					p.gbps, p.limit = carried, "the PCIe link at "+link.Address
				}
			}
		}
		fastest = max(fastest, rate(d)/8)
		ports = append(ports, p)
	}
	var limits []string
	for _, p := range ports {
		if p.gbps < fastest/4 { // a management port
			continue
		}
		f.Bound += p.gbps
		f.Devices = append(f.Devices, p.id)
		if p.limit != "" {
			limits = append(limits, p.limit)
		}
	}
	if f.Bound == 0 {
		f.Text = fmt.Sprintf("no expectation: it was measured over %d machines, and this one has no active RDMA port",
			hosts)
		return
	}
	usual := fmt.Sprintf("%.3g%% of the %.4g GB/s of %d NICs of each of %d machines", 100*f.Value/f.Bound, f.Bound,
		len(f.Devices), hosts)
	switch {
	// If switches reduce, each byte passes a NIC once instead of twice, which at most doubles the bus bandwidth. 2.2
	// includes the margin of tooMuch.
	case f.Value > 2.2*f.Bound:
		f.Verdict, f.Text = Above, "more than in-network reduction gives: "+usual
	case f.Value > tooMuch*f.Bound:
		f.Verdict, f.Text = Normal, usual+": the switches reduce (SHARP), or not all traffic crosses machines"
	case f.Value >= peersShare*f.Bound && len(limits) == 0:
		f.Verdict, f.Text = Normal, usual
	case f.Value >= peersShare*f.Bound:
		f.Verdict, f.Text = Limited, usual+", which "+strings.Join(limits, ", ")+" limits"
	default:
		f.Verdict, f.Text = Low, usual
		f.Causes = []expect.Cause{{What: "NICs or GPUDirect that are not used", Evidence: usual, Possible: true,
			Ceiling: f.Bound, Fix: "NCCL_DEBUG=INFO: all NICs are to be listed (NCCL_IB_HCA), with GDRDMA for each " +
				"GPU; GPU and NIC below one switch; flow control of the fabric (PFC, ECN)"}}
	}
}
