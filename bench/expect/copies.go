package expect

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

// copyShare is the fraction of a PCIe limit that copies over good links reach. Published figures: on PCIe 4.0 x16,
// which carries 28.8 GB/s, 22 to 26 GB/s (RTX 4080 and 4090 in virtual machines) and 24.8 (A100); on PCIe 5.0 x16,
// which carries 57.6, 54.7 and 57.0 (MI350X).
const copyShare = 0.75

// CopySideOf is for copies to or from GPUs; for busIDs and node see CopyLinks.
func CopySideOf(ep bench.Endpoint, place bench.Place, busIDs string, node *facts.Node) Side {
	s := Side{Node: ep.Node, GPUs: tool.CopyLinks(busIDs, node)}
	switch {
	case node == nil:
	case place.Memory != "":
		if set, err := topology.ParseCPUSet(place.Memory); err == nil {
			s.MemoryNodes = slices.Collect(set.All())
		}
	case place.CPUs != "":
		s.MemoryNodes = nodesOf(place, node)
	}
	return s
}

// judgeCopies is in GB/s. The upper limit is the link at the card's best.
func judgeCopies(j *Judgement, w Path) {
	side := &w.Client
	best := bench.SlowestLink(side.GPUs, func(g bench.GPULink) float64 { return g.Best().Capacity() }).Best()
	now := bench.SlowestLink(side.GPUs, func(g bench.GPULink) float64 { return g.Capacity() })
	j.Wire, j.Bound = best.Capacity(), now.Capacity()
	// If the link could not have carried the copies, it was read later, when the GPU was idle.
	idle := j.Value > now.LineRate()
	what, link := "the PCIe link", now.PCILink
	if idle {
		j.Bound, what, link = j.Wire, "the PCIe link at its best", best
	}
	j.Text = fmt.Sprintf("%s of %s, which carries %s GB/s (%v, headers of packets of %d bytes counted)",
		part(j.Value/j.Bound), what, gbps(j.Bound), link, bench.PCIePayload)
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
	j.Verdict, j.Causes = VerdictShort, rank(slices.Concat(nearby(links, j.Value), copyPlaceCauses(side),
		r.loadCauses()), j)
	if len(j.Causes) == 0 {
		j.Verdict = VerdictNoCause
		j.Text += "; no cause was found in " + copiesExamined(w)
	}
}

func copyLinkCauses(j *Judgement, side *Side, now bench.GPULink, idle bool) []Cause {
	best, down := now.Trained()
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
		"card can do %s", what, side.Node, now.PCILink, gbps(now.Capacity()), bench.PCIePayload, best)
	if !idle {
		return []Cause{{What: fmt.Sprintf("PCIe Gen %d x%d link", topology.Generation(*now.SpeedGTs), *now.Width),
			Evidence: evidence, Fix: fix, Ceiling: now.Capacity()}}
	}
	// It was at least the slowest that could have carried the copies.
	for _, gts := range []float64{5, 8, 16, 32} {
		width := max(*now.Width, *now.MaxWidth)
		if gts >= *now.MaxSpeedGTs || topology.LinkGBps(gts, width) < j.Value {
			continue
		}
		return []Cause{{What: fmt.Sprintf("PCIe Gen %d link", topology.Generation(gts)), Possible: true, Fix: fix,
			Evidence: fmt.Sprintf("%s; it was faster before, since a driver lowers the speed of an idle link, "+
				"and what was copied fits %s, which carries %s GB/s", evidence, bench.Lanes(gts, width),
				gbps(bench.PCIeLimit(gts, width)/8))}}
	}
	return nil
}

func copyPlaceCauses(side *Side) []Cause {
	for _, g := range side.GPUs {
		if g.NUMANode == nil || *g.NUMANode < 0 || len(side.MemoryNodes) == 0 ||
			slices.Equal(side.MemoryNodes, []int{*g.NUMANode}) {
			continue
		}
		return []Cause{{What: "wrong NUMA node", Possible: slices.Contains(side.MemoryNodes, *g.NUMANode),
			Evidence: fmt.Sprintf("the GPU at %s is on NUMA node %d of %s, and the memory was taken from NUMA node %s",
				g.Address, *g.NUMANode, side.Node, numbers(side.MemoryNodes)),
			Fix: fmt.Sprintf("measure with --numa %d, or without --cpu and --numa: nvbandwidth then takes the "+
				"CPUs that are nearest to each GPU", *g.NUMANode)}}
	}
	return nil
}

func copiesExamined(w Path) string {
	unplaced := slices.ContainsFunc(w.Client.GPUs, func(g bench.GPULink) bool {
		return g.NUMANode == nil ||
			*g.NUMANode < 0
	})
	return examined([]examinedFact{{"PCIe link", true}, {"NUMA nodes", !unplaced},
		{"stolen CPU time", w.Client.Steal != nil}, {"load of the host", w.HostCPUs > 0}})
}
