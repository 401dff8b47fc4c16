package appraise

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// gpuMemories lists memory bandwidths in GB/s of 10^9 bytes; the first match counts. Source: NVIDIA's data sheets.
var gpuMemories = []memoryOf{
	{name: lazyregexp.New(`\bH200\b`), gbps: 4800},
	{name: lazyregexp.New(`\bH100 NVL\b`), gbps: 3900},
	{name: lazyregexp.New(`\bH100 PCIe\b`), gbps: 2000},
	{name: lazyregexp.New(`\bH100.*HBM3\b`), gbps: 3350},
	{name: lazyregexp.New(`\bA100-SXM4-80GB\b`), gbps: 2039},
	{name: lazyregexp.New(`\bA100 80GB PCIe\b`), gbps: 1935},
	{name: lazyregexp.New(`\bA100-(?:SXM4|PCIE)-40GB\b`), gbps: 1555},
	{name: lazyregexp.New(`\bV100-SXM2-(?:16|32)GB\b`), gbps: 900},
	{name: lazyregexp.New(`\bL40S\b`), gbps: 864},
	{name: lazyregexp.New(`\bA30\b`), gbps: 933},
	{name: lazyregexp.New(`\bA10\b`), gbps: 600},
	{name: lazyregexp.New(`\bL4\b`), gbps: 300},
}

// localShare is the part of the memory bandwidth that a copy within a GPU reaches: 87 % were measured on an H200, 89 %
// on an H100 (bench/tool/testdata/nvbandwidth/recorded-0.8-*.txt). Far less means another clock, or a GPU in use.
const localShare = 0.75

// within judges copies within a GPU. nvbandwidth counts each byte once, although a copy reads and writes it.
func (m *machine) within(f *Figure) {
	gpus := m.gpus()
	kinds := func(g topology.GPU) int {
		return slices.IndexFunc(gpuMemories, func(o memoryOf) bool { return o.name().MatchString(g.Model) })
	}
	if len(gpus) == 0 || kinds(gpus[0]) < 0 || slices.ContainsFunc(gpus, func(g topology.GPU) bool {
		return kinds(g) != kinds(gpus[0]) || g.MIG == "Enabled"
	}) {
		f.Text = "no expectation: of which model all GPUs are, or what its memory carries, is not known"
		return
	}
	o := gpuMemories[kinds(gpus[0])]
	f.Bound = o.gbps / 2
	f.Devices = append(f.Devices, lists.Map(gpus, func(g topology.GPU) string { return g.ID() })...)
	f.Text = fmt.Sprintf("%.3g%% of the %.4g GB/s that the memory allows: it carries %.4g GB/s by the data sheet of "+
		"%s, and a copy reads and writes each byte", 100*f.Value/f.Bound, f.Bound, o.gbps, gpus[0].Model)
	switch {
	case f.Value > f.Bound:
		f.Verdict, f.Text = Above, "it was measured on another machine: "+f.Text
	case f.Value >= localShare*f.Bound:
		f.Verdict = Normal
	default:
		f.Verdict = Low
	}
}
