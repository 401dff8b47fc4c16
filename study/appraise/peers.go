package appraise

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study/importer"
)

type nvlinkOf struct {
	name  func() *regexp.Regexp
	arch  string // compute capability; "" if other models share it
	links int
	gbps  float64
}

// nvlinks lists the links of GPU models, and each link's rate in one direction in 10^9 bytes per second.
//
// Source: NVIDIA's data sheets of P100 (160 GB/s both ways), V100 (300), A100 (600), A800 (400), H100 (900), H800
// (400), B200 (1800), A40, RTX A6000, GeForce RTX 3090 (112.5), Quadro RTX 8000 and GeForce RTX 2080 Ti (100).
var nvlinks = []nvlinkOf{
	{lazyregexp.New(`A800`), "", 8, 25},
	{lazyregexp.New(`H800`), "", 8, 25},
	{lazyregexp.New(`P100`), "sm_60", 4, 20},
	{lazyregexp.New(`V100`), "sm_70", 6, 25},
	{lazyregexp.New(`A100|A30\b`), "sm_80", 12, 25},
	{lazyregexp.New(`H100|H200|H20\b`), "sm_90", 18, 25},
	{lazyregexp.New(`B[23]00`), "sm_100", 18, 50},
	{lazyregexp.New(`A40\b|A6000|A5000|A4500|RTX 3090`), "sm_86", 4, 14.0625},
	{lazyregexp.New(`RTX 8000|TITAN RTX|2080 Ti|Quadro RTX`), "sm_75", 2, 25},
}

// allLinked matches modules on a board, which use all links.
var allLinked = lazyregexp.New(`SXM|HBM3|\bH20$|\bH200$|\bB[23]00\b`)

// nvlinkLeast and nvlinkMost are the shares of the NVLink rate that all-reduces reach. Published with NVSwitch: 235 of
// 300 GB/s (8 A100), 480 of 450 (8 H100, because the switch adds).
const nvlinkLeast, nvlinkMost = 0.75, 1.1

// expect returns a path's usual bandwidth. together is the number of links of a collective operation, or 0 for copies.
func (m *machine) expect(p topology.Path, model string, together int) (topology.Expectation, bool) {
	a, b := m.gpu(p.A), m.gpu(p.B)
	if a == nil || b == nil {
		return topology.Expectation{}, false
	}
	arch, name := cmp.Or(a.ComputeArch, b.ComputeArch), cmp.Or(model, a.Model, b.Model)
	i := slices.IndexFunc(nvlinks, func(n nvlinkOf) bool { return n.name().MatchString(name) })
	if i < 0 {
		i = slices.IndexFunc(nvlinks, func(n nvlinkOf) bool { return n.arch == arch && arch != "" })
	}
	links, says := 0, ""
	switch {
	case p.Class == topology.PathNVLink:
		// Without a link count, all links lead to the other GPU, as through NVSwitch.
		links = p.Links
		if links == 0 && a.NVLinks != nil {
			links = *a.NVLinks
		}
		if i >= 0 {
			links = max(links, min(together, nvlinks[i].links))
		}
	case i >= 0 && !m.tellsNVLink(a) && allLinked().MatchString(name):
		links, says = nvlinks[i].links, " by the data sheet of "+name+" (the machine does not tell its NVLinks)"
	default:
		if e, ok := m.tree.Expect(p); ok || a.Address != nil || b.Address != nil {
			return e, ok
		}
		return byDataSheet(p.Class, name)
	}
	if i < 0 {
		return topology.Expectation{}, false
	}
	all := float64(links) * nvlinks[i].gbps
	return topology.Expectation{GBpsMin: nvlinkLeast * all, GBpsMax: nvlinkMost * all,
		Basis: fmt.Sprintf("%d links of %.4g GB/s%s", links, nvlinks[i].gbps, says)}, all > 0
}

// pcis lists the PCIe speeds of GPUs with 16 lanes by their data sheets, in GT/s.
var pcis = []struct {
	name func() *regexp.Regexp
	gts  float64
}{
	{lazyregexp.New(`H[128]00|H20\b|B[123]00|RTX PRO|RTX 50[789]0|MI3[0-5]\d`), 32},
	{lazyregexp.New(`A100|A800|A30\b|A10G?\b|A40\b|L4\b|L40S?\b|L20\b|RTX A?[456]000\b|RTX [34]0[789]0|MI[12]\d0`), 16},
	{lazyregexp.New(`V100|P100|P40\b|T4\b|GTX 10[78]0|RTX 20[78]0|Quadro|TITAN|MI[56]0`), 8},
}

// geForce matches GPUs without peer-to-peer: their data passes through the root complex.
var geForce = lazyregexp.New(`GeForce`)

func byDataSheet(c topology.PathClass, model string) (topology.Expectation, bool) {
	if geForce().MatchString(model) && (c == topology.PathPIX || c == topology.PathPXB) {
		c = topology.PathPHB
	}
	for _, pci := range pcis {
		if pci.name().MatchString(model) {
			e, ok := topology.Expect(c, pci.gts, 16)
			e.Link = fmt.Sprintf("%s by the data sheet of %s (the machine does not tell its links)",
				topology.Rate{GTs: pci.gts, Lanes: 16}, model)
			return e, ok
		}
	}
	return topology.Expectation{}, false
}

// notKnown lists the range for each PCIe generation if the path depends on the GPUs' links.
func (m *machine) notKnown(p topology.Path) string {
	why := fmt.Sprintf("no expectation: what the path %s between %s and %s gives is not known", p.Label(), p.A, p.B)
	if g := m.gpu(p.A); g == nil || g.Address != nil {
		return why
	}
	var ranges []string
	for _, gts := range []float64{8, 16, 32} {
		if e, ok := topology.Expect(p.Class, gts, 16); ok {
			ranges = append(ranges, fmt.Sprintf("%.4g to %.4g GB/s on %s", e.GBpsMin, e.GBpsMax,
				topology.Rate{GTs: gts, Lanes: 16}))
		}
	}
	switch {
	case p.Class == topology.PathNVLink:
		return why + ": neither the log nor the machine says which model the GPUs are (nvidia-smi -L does)"
	case ranges == nil:
		return why + ": the machine tells no class of it"
	}
	return fmt.Sprintf("no expectation: the slowest path, %s between %s and %s, gives %s; which link the GPUs have, "+
		"lspci -vv tells, or nvidia-smi -L their model (inspect and --host take both beside nvidia-smi topo -m)",
		p.Label(), p.A, p.B, strings.Join(ranges, ", "))
}

// tellsNVLink is false for sources without links, such as NCCL_TOPO_FILE and lspci output.
func (m *machine) tellsNVLink(g *topology.GPU) bool {
	return g.NVLinks != nil || g.ComputeArch != "" || len(m.Reported) > 0
}

// together returns the smallest number of links from one GPU to the others.
func (m *machine) together(gpus []topology.GPU) int {
	least := 0
	for i := range gpus {
		links := 0
		for j := range gpus {
			if p := m.tree.Path(gpus[i].ID(), gpus[j].ID()); i != j && p.Class == topology.PathNVLink {
				links += p.Links
			}
		}
		if i == 0 || links < least {
			least = links
		}
	}
	return least
}

func (m *machine) gpu(id string) *topology.GPU {
	return lists.Ref(m.GPUs, func(g *topology.GPU) bool { return g.ID() == id })
}

// measured matches the GPUs of a log by PCI address, or by number without addresses. If they do not match, it returns
// all GPUs.
func (m *machine) measured(ranks []importer.Rank) (gpus []topology.GPU, all bool) {
	gpus = slices.DeleteFunc(slices.Clone(m.GPUs), func(g topology.GPU) bool { return g.Kind == topology.GPUDisplay })
	if len(ranks) == 0 || len(ranks) == len(gpus) {
		return gpus, false
	}
	var found []topology.GPU
	for _, r := range ranks {
		i := slices.IndexFunc(gpus, func(g topology.GPU) bool {
			if g.Address == nil {
				return g.Name == "GPU"+strconv.Itoa(r.Device)
			}
			// "0x3b" in older releases
			return strings.HasPrefix(g.Address.String(), r.Bus+".") || fmt.Sprintf("0x%02x", g.Address.Bus) == r.Bus
		})
		if i < 0 {
			return gpus, true
		}
		found = append(found, gpus[i])
	}
	return found, false
}
