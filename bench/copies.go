package bench

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

// A GPULink is the link of a GPU that copies from and to a node's memory go over, and where the GPU is.
type GPULink struct {
	PCILink
	NUMANode *int // -1: the firmware does not say
}

// copyShare is the part of a PCIe limit that copies of good links reach. Published on PCIe 4.0 x16,
// which carries 28.8 GB/s: 22 to 26 GB/s (RTX 4080 and 4090 in virtual machines) and 24.8 (A100),
// on PCIe 5.0 x16 54.7 and 57.0 of 57.6 (MI350X). See TestPublishedCopiesAreAShareOfTheLink.
const copyShare = 0.75

// CopyLinks returns the links of a node's GPUs: busIDs is what nvidia-smi prints of them
// (pci.bus_id), and node what the node says of itself in full, which may be nil. It is nil where
// not all of them are known, since the figure of copies is that of the slowest GPU, whichever that
// is; and on other processors than x86-64: those of NVIDIA and IBM have NVLink to their GPUs, and
// copies do not go over PCIe there.
func CopyLinks(busIDs string, node *facts.Node) []GPULink {
	if node == nil || !strings.Contains(node.NVIDIA, "x86_64") {
		return nil
	}
	var all []GPULink
	for id := range strings.FieldsSeq(busIDs) {
		address, err := topology.ParsePCIAddr(id) // "00000000:C1:00.0"
		f := topology.NewTree(&node.Host).Device(address)
		if err != nil || f == nil || f.Link == nil || f.Link.SpeedGTs == nil || f.Link.Width == nil ||
			f.Link.MaxSpeedGTs == nil || f.Link.MaxWidth == nil {
			return nil
		}
		all = append(all, GPULink{PCILink{Address: address.String(), Link: *f.Link}, f.NUMANode})
	}
	return all
}

// CopySideOf gathers what is known about a node whose GPUs were copied to or from: see CopyLinks.
// place is where the tool ran.
func CopySideOf(ep Endpoint, place Place, busIDs string, node *facts.Node) Side {
	s := Side{Node: ep.Node, GPUs: CopyLinks(busIDs, node)}
	switch {
	case node == nil:
	case place.Memory != "":
		if set, err := topology.ParseCPUSet(place.Memory); err == nil {
			// a list of NUMA nodes is written as one of CPUs
			s.MemoryNodes = slices.Collect(set.All())
		}
	case place.CPUs != "":
		s.MemoryNodes = nodesOf(place, node)
	}
	return s
}

// capacity returns what the link can carry in its current state, in GB/s, headers counted.
func (l PCILink) capacity() float64 { return l.limit() / 8 }

// best is the link at what the card can do.
func (l PCILink) best() PCILink {
	speed, width := max(*l.SpeedGTs, *l.MaxSpeedGTs), max(*l.Width, *l.MaxWidth)
	l.SpeedGTs, l.Width = &speed, &width
	return l
}

// lineRate is what a link carries in GB/s after its line code, with no header at all: how large
// packets are is not known, so that no figure up to here can be called impossible.
func (l PCILink) lineRate() float64 { return topology.LinkGBps(*l.SpeedGTs, *l.Width) }

// slowest returns the GPU with the slowest link: as says whether links count as they are or at their best.
func slowest(all []GPULink, as func(GPULink) float64) GPULink {
	return slices.MinFunc(all, func(a, b GPULink) int { return cmp.Compare(as(a), as(b)) })
}

// checkCopies refuses copies that are faster than a GPU's link can be. The driver lowers the speed
// of an idle link: only what the card can do at its best bounds them.
func (n nvbandwidth) checkCopies(gpus []GPULink, figures []Figure) error {
	if n.testcase == deviceLocal || len(gpus) == 0 {
		return nil
	}
	g := slowest(gpus, func(g GPULink) float64 { return g.best().lineRate() })
	most := g.best()
	for _, f := range figures {
		if f.Metric == MetricCopyBandwidth && f.Value > most.lineRate() {
			return badResult(toolNVBandwidth, "%g GB/s is more than the link of the GPU at %s can carry: %.4g GB/s with %v, "+
				"before any header: it took another path, or was measured wrongly", f.Value, g.Address, most.lineRate(),
				most)
		}
	}
	return nil
}

// linksScript prints the links of a node's display functions and the line with which NVIDIA's
// driver names itself, as rackless-facts does, which not every node has.
//
//go:embed links.sh
var linksScript string

// gpuLinks asks a node for the links of its GPUs; none where it does not tell.
func gpuLinks(ctx context.Context, ask execFunc, node string) ([]GPULink, error) {
	ids, err := ask(ctx, node, "nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader")
	if err != nil {
		return nil, err
	}
	out, err := ask(ctx, node, "sh", "-c", linksScript)
	if err != nil || ids.ExitCode != 0 {
		return nil, err
	}
	said, err := facts.Parse(out.Stdout)
	if err != nil {
		return nil, nil // not the format that is known: nothing is known
	}
	return CopyLinks(string(ids.Stdout), said), nil
}

// judgeCopies is judge of copies between a node's memory and its GPUs', all in GB/s. What carries
// them at its best is the link at what the card can do.
func judgeCopies(j *Judgement, w Path) {
	side := &w.Client
	best := slowest(side.GPUs, func(g GPULink) float64 { return g.best().capacity() }).best()
	now := slowest(side.GPUs, func(g GPULink) float64 { return g.capacity() })
	j.Wire, j.Bound = best.capacity(), now.capacity()
	// The links were read after the copies. One that could not have carried them has become slow
	// since, because the GPU was idle.
	idle := j.Value > now.lineRate()
	what, link := "the PCIe link", now.PCILink
	if idle {
		j.Bound, what, link = j.Wire, "the PCIe link at its best", best
	}
	j.Text = fmt.Sprintf("%s of %s, which carries %s GB/s (%v, headers of packets of %d bytes counted)",
		part(j.Value/j.Bound), what, gbps(j.Bound), link, maxPayload)
	if j.Value >= copyShare*j.Wire {
		j.Verdict = VerdictWire
		return
	}
	links := copyLinkCauses(j, side, now, idle)
	if !idle && j.Bound < j.Wire {
		j.Text += fmt.Sprintf("; at its best: %s GB/s (%v)", gbps(j.Wire), best)
		if j.Value >= copyShare*j.Bound {
			j.Verdict, j.Causes = VerdictExplained, links
			return
		}
	}
	r := route{Path: w}
	j.Verdict, j.Causes = VerdictShort, rank(slices.Concat(links, copyPlaceCauses(side), r.loadCauses()), j)
	if len(j.Causes) == 0 {
		j.Verdict = VerdictNoCause
		j.Text += "; no cause was found in " + copiesExamined(w)
	}
}

// copyLinkCauses is that the link of the slowest GPU is of a lower generation or narrower than the
// card's. What it was while it copied nobody has read.
func copyLinkCauses(j *Judgement, side *Side, now GPULink, idle bool) []Cause {
	best, down := now.trained()
	if !down {
		return nil
	}
	fix := fmt.Sprintf("read /sys/bus/pci/devices/%s/current_link_speed while it copies; if it is as low then, "+
		"compare LnkCap and LnkSta of the card and of every port above it on the host (lspci -vv), and train "+
		"the link again at the port above, or take another slot (RL003 in rackless explain says how)", now.Address)
	what := "the GPU at " + now.Address
	if now.Below != "" {
		what = "the bridge " + now.Address + " above the GPU at " + now.Below
	}
	evidence := fmt.Sprintf("%s on %s had %v after the copies: %s GB/s with packets of %d bytes, and the "+
		"card can do %s", what, side.Node, now.PCILink, gbps(now.capacity()), maxPayload, best)
	if !idle {
		return []Cause{{What: fmt.Sprintf("PCIe Gen %d x%d link", topology.Generation(*now.SpeedGTs), *now.Width),
			Evidence: evidence, Fix: fix, Ceiling: now.capacity()}}
	}
	// The slowest generation that could have carried what was copied: the link was at least that fast meanwhile.
	for _, gts := range []float64{5, 8, 16, 32} {
		width := max(*now.Width, *now.MaxWidth)
		if gts >= *now.MaxSpeedGTs || topology.LinkGBps(gts, width) < j.Value {
			continue
		}
		return []Cause{{What: fmt.Sprintf("PCIe Gen %d link", topology.Generation(gts)), Possible: true, Fix: fix,
			Evidence: fmt.Sprintf("%s; it was faster before, since a driver lowers the speed of an idle link, "+
				"and what was copied fits %s, which carries %s GB/s", evidence, lanes(gts, width),
				gbps(PCIeLimit(gts, width)/8))}}
	}
	return nil
}

// copyPlaceCauses is memory that is far from a GPU.
func copyPlaceCauses(side *Side) []Cause {
	for _, g := range side.GPUs {
		if g.NUMANode == nil || *g.NUMANode < 0 || len(side.MemoryNodes) == 0 ||
			slices.Equal(side.MemoryNodes, []int{*g.NUMANode}) {
			continue
		}
		return []Cause{{What: "wrong NUMA node", Possible: slices.Contains(side.MemoryNodes, *g.NUMANode),
			Evidence: fmt.Sprintf("the GPU at %s is on NUMA node %d of %s, and the memory was taken from node %s",
				g.Address, *g.NUMANode, side.Node, numbers(side.MemoryNodes)),
			Fix: fmt.Sprintf("measure with --numa %d, or without --cpu and --numa: nvbandwidth then takes the "+
				"CPUs that are nearest to each GPU", *g.NUMANode)}}
	}
	return nil
}

// copiesExamined returns the list of examined facts for copies, see [route.examined].
func copiesExamined(w Path) string {
	unplaced := slices.ContainsFunc(w.Client.GPUs, func(g GPULink) bool { return g.NUMANode == nil || *g.NUMANode < 0 })
	return examined([]examinedFact{{"PCIe link", true}, {"NUMA nodes", !unplaced},
		{"stolen CPU time", w.Client.Steal != nil}, {"load of the host", w.HostCPUs > 0}})
}
