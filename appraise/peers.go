package appraise

import (
	"cmp"
	"fmt"

	"github.com/rackless/rackless/topology"
)

// nvlinkGBps is what a link of NVLink carries one way in 10^9 bytes a second, by the compute
// capability of the GPU: NVIDIA's data sheets of P100 (4 links, 160 GB/s both ways), V100 (6, 300),
// A100 (12, 600), H100 (18, 900) and B200 (18, 1800).
var nvlinkGBps = map[string]float64{"sm_60": 20, "sm_70": 25, "sm_80": 25, "sm_90": 25, "sm_100": 50}

// Shares of NVLink that all-reduces reach. Published with NVSwitch: 235 of 300 GB/s (8 A100), 480 of 450 (8 H100, where
// the switch adds).
const nvlinkLeast, nvlinkMost = 0.75, 1.1

// expect is what a path between two GPUs usually gives.
func (m *machine) expect(p topology.Path) (topology.Expectation, bool) {
	a, b := m.gpu(p.A), m.gpu(p.B)
	if a == nil || b == nil {
		return topology.Expectation{}, false
	}
	if p.Class == topology.PathNVLink {
		// Without a count of the path, all links of the GPU lead to the other one, as they do through NVSwitch.
		links := p.Links
		if links == 0 && a.NVLinks != nil {
			links = *a.NVLinks
		}
		perLink := nvlinkGBps[cmp.Or(a.ComputeArch, b.ComputeArch)]
		all := float64(links) * perLink
		return topology.Expectation{GBpsMin: nvlinkLeast * all, GBpsMax: nvlinkMost * all,
			Basis: fmt.Sprintf("%d links of %g GB/s", links, perLink)}, all > 0
	}
	return m.tree.Expect(p)
}

func (m *machine) gpu(id string) *topology.GPU {
	for i := range m.GPUs {
		if m.GPUs[i].ID() == id {
			return &m.GPUs[i]
		}
	}
	return nil
}
