package appraise

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/study/importer"
)

// memoryOf is per processor with all channels filled, in GB/s of 10^9 bytes.
type memoryOf struct {
	name func() *regexp.Regexp
	gbps float64
	of   string
}

// channels lists memory bandwidths in GB/s per processor, with the fastest memory that the maker specifies; a system
// may have faster memory.
//
// Source: AMD's product pages of EPYC, Intel ARK, NVIDIA's Grace data sheet, Marvell's and Ampere's product briefs.
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

// memoryShare is the share that STREAM must reach with all channels filled and a thread per core. Published are 63 to
// 88 % (Xeon E5, EPYC 7002) and 60 to 71 % (ThunderX2). Without streaming stores, caches read each line before it is
// written, which costs a quarter of triad.
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
	case m.CPUs.Untold():
		f.Text = "no expectation: the list of CPUs is cut off, so the number of processors is not known"
		return
	case i < 0 || len(m.Packages) == 0:
		f.Text = fmt.Sprintf("no expectation: the memory channels of %q are not known", model)
		return
	}
	// STREAM prints MB/s of 10^6 bytes.
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

// linkShare is the share of a PCIe link's rate left after packet headers.
const linkShare = 0.8

// usualLatency and longLatency bound one-way times of small messages over RDMA, in us. Published between virtual
// machines are 1.4 back to back and 2.0 over one switch (bench.ComparePublished). Further switches add some 0.3 each,
// sleeping processors and interrupts tens.
const usualLatency, longLatency = 5, 15

func (m *machine) latency(f *Figure, all []importer.Sample) {
	if f.Bytes > 64 {
		f.Text = "no expectation: of latencies those of small messages are compared"
		return
	}
	side, why := m.side(cmp.Or(m.device, all[0].Origin.Device), false)
	if side == nil {
		f.Text = "no expectation: " + why
		return
	}
	if nic, _ := m.RDMADevice(side.Device); nic != nil {
		f.Devices = []string{nic.ID()}
	}
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
