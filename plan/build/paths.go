package build

import (
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// maxBridges bounds the bridges above a device whose paths are followed. Real trees have less than
// ten; a hostile dump may have a chain of hundreds, and every pair of devices below it would walk
// it again.
const maxBridges = 32

// addPaths lists what lies between GPUs and NICs, and between GPUs.
func (b *problemBuilder) addPaths() {
	deep := make([]bool, len(b.p.Devices))
	for i := range b.facts {
		if a := b.facts[i].addr; a != nil {
			deep[i] = len(b.tree.Ancestors(*a)) > maxBridges
		}
	}
	unknown := 0
	for i := range b.p.Devices {
		if b.p.Devices[i].Kind != plan.KindGPU {
			break
		}
		for j := i + 1; j < len(b.p.Devices); j++ {
			class := topology.PathUnknown
			if !deep[i] && !deep[j] {
				class = b.pathClass(i, j)
			}
			path := plan.PairPath{A: i, B: j}
			if !path.SetClass(class, &b.p.Devices[i], &b.p.Devices[j]) {
				unknown++
			}
			b.p.Paths = append(b.p.Paths, path)
		}
	}
	if unknown > 0 {
		b.note("the host does not tell %s between its GPUs and NICs: taken as NODE within a NUMA node, else as SYS",
			words.Count(unknown, "path"))
	}
}

// pathClass asks the host. NVLinks join GPUs only: if a source reports one to a NIC, the PCIe path counts.
func (b *problemBuilder) pathClass(i, j int) topology.PathClass {
	path := b.tree.Path(b.p.Devices[i].ID, b.p.Devices[j].ID)
	return words.Either(path.Class == topology.PathNVLink && b.p.Devices[j].Kind != plan.KindGPU, path.PCIe, path.Class)
}
