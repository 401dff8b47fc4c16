package gpu

import (
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

func TestInspectKnowsEveryModel(t *testing.T) {
	t.Parallel()
	for _, name := range Models() {
		for _, p := range Personalities() {
			m, _ := ModelOf(name)
			g := &GPU{model: m, cfg: Config{Class: Class3D, Memory: m.Memory, Model: name, Personality: p}}
			g.describe()
			id := func(at int) *topology.ID16 { return new(topology.ID16(le.Uint16(g.config[at:]))) }
			h := topology.Host{PCI: []topology.PCIDevice{{Address: topology.PCIAddr{Bus: 6}, Vendor: id(0),
				Device: id(2), Class: new(topology.ID24(le.Uint32(g.config[8:]) >> 8)), SubsystemVendor: id(0x2c),
				SubsystemDevice: id(0x2e)}}}
			h.Complete()
			if len(h.GPUs) != 1 || h.GPUs[0].Kind != topology.GPUStandIn ||
				h.GPUs[0].Vendor+" "+h.GPUs[0].Model != m.Name {
				t.Errorf("%s, %s: inspect has %+v, want %s", name, p, h.GPUs, m.Name)
			}
		}
	}
}
