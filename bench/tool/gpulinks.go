package tool

import (
	"context"
	_ "embed"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

// CopyLinks returns nil unless the links of all GPUs are known, because the slowest determines the figure. busIDs is
// nvidia-smi's list of pci.bus_id; node may be nil. Processors other than x86-64 may have NVLink to their GPUs: nil.
func CopyLinks(busIDs string, node *facts.Node) []bench.GPULink {
	if node == nil || !strings.Contains(node.NVIDIA, "x86_64") {
		return nil
	}
	var all []bench.GPULink
	for id := range strings.FieldsSeq(busIDs) {
		address, err := topology.ParsePCIAddr(id) // "00000000:C1:00.0"
		f := topology.NewTree(&node.Host).Device(address)
		if err != nil || f == nil || f.Link == nil || f.Link.SpeedGTs == nil || f.Link.Width == nil ||
			f.Link.MaxSpeedGTs == nil || f.Link.MaxWidth == nil {
			return nil
		}
		all = append(all, bench.GPULink{PCILink: bench.PCILink{Address: address.String(), Link: *f.Link},
			NUMANode: f.NUMANode})
	}
	return all
}

// checkCopies uses the card's best speed, because the driver lowers the speed of an idle link.
func (n nvbandwidth) checkCopies(gpus []bench.GPULink, figures []bench.Figure) error {
	if n.testcase == deviceLocal || len(gpus) == 0 {
		return nil
	}
	g := bench.SlowestLink(gpus, func(g bench.GPULink) float64 { return g.Best().LineRate() })
	most := g.Best()
	for _, f := range figures {
		if f.Metric == bench.MetricCopyBandwidth && f.Value > most.LineRate() {
			return bench.BadResult(toolNVBandwidth,
				"%g GB/s is more than the link of the GPU at %s can carry: %.4g GB/s with %v, "+
					"before any header: it took another path, or was measured wrongly", f.Value, g.Address,
				most.LineRate(),
				most)
		}
	}
	return nil
}

// linksScript prints like rackless-facts, which not every node has.
//
//go:embed links.sh
var linksScript string

// gpuLinks returns nil if the node does not tell.
func gpuLinks(ctx context.Context, ask bench.AskFunc, node string) ([]bench.GPULink, error) {
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
		return nil, nil // unknown format
	}
	return CopyLinks(string(ids.Stdout), said), nil
}
