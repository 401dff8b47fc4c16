package diagnose

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// plainBAR is the BAR of a card that does not map all of its memory.
const plainBAR = 256 << 20

// smallBAR finds GPUs that show peers a window of their memory only. Without a NIC for RDMA and
// with one GPU nobody looks through it.
func smallBAR(v *view, g *topology.GPU, add func(finding.Finding)) {
	if len(v.fabric) == 0 && len(v.gpus) < 2 {
		return
	}
	if g.Address == nil || g.BAR1Bytes == nil {
		return
	}
	bar := *g.BAR1Bytes
	// A BAR is a power of two, and memory need not be one: a BAR that is larger than the memory maps all
	// of it.
	less := g.MemoryBytes != nil && bar < *g.MemoryBytes
	if bar > plainBAR && !(less && len(v.fabric) > 0) || g.MemoryBytes != nil && !less {
		return
	}
	facts := []string{"largest prefetchable BAR " + size(bar)}
	if g.MemoryBytes != nil {
		facts = append(facts, "memory "+size(*g.MemoryBytes))
	}
	f := finding.Finding{Severity: finding.Info, Subject: g.ID(), Evidence: at(pci(*g.Address)+"/resource",
		facts...),
		Consequence: "peers reach " + size(bar) + " of the GPU's memory at a time",
		Fix:         "turn on above-4G decoding and Resizable BAR in the firmware"}
	if bar <= plainBAR && len(v.fabric) > 0 {
		f.Severity = finding.Warning
		f.Consequence += ": GPUDirect RDMA can register small buffers only"
	}
	add(f)
}

// pictureDriver finds drivers that are there for a screen. A 3D controller has no connector, so on
// such a card they are never meant.
func pictureDriver(v *view, g *topology.GPU, add func(finding.Finding)) {
	if g.Address == nil || g.Driver != "nouveau" && g.Driver != "nvidiafb" {
		return
	}
	f := finding.Finding{Severity: finding.Info, Subject: g.ID(), Evidence: at(pci(*g.Address), "driver="+g.Driver),
		Consequence: "no CUDA, no GPUDirect; the driver holds the card's BAR when a virtual machine wants it",
		Fix:         "blacklist " + g.Driver + " and install NVIDIA's driver, or bind the card to vfio-pci"}
	d := v.tree.Device(*g.Address)
	if len(v.fabric) > 0 || d != nil && d.Class != nil && d.Class.Sub() == topology.Sub3D {
		f.Severity = finding.Warning
	}
	add(f)
}

// splitGPU finds cards of which a virtual machine and the host each hold a part. In one IOMMU group
// VFIO refuses that by itself, which is RL022.
func splitGPU(v *view, g *topology.GPU, add func(finding.Finding)) {
	// Display, audio, USB and UCSI of a card are functions of one device, and a reset of one is a reset of
	// all.
	given, held, facts := v.owners(g.Functions)
	if len(given) == 0 || len(held) == 0 || v.oneGroup(append(given, held...)) {
		return
	}
	add(finding.Finding{Subject: join(held), Evidence: words.Few(facts, 8, "; "),
		Consequence: fmt.Sprintf("a reset of %s from its virtual machine is refused or hits the host's driver",
			given[0]),
		Fix: "bind " + join(held) + " to vfio-pci as well"})
}

// oneGroup reports whether functions are known to be in one IOMMU group.
func (v *view) oneGroup(functions []topology.PCIAddr) bool {
	first := v.tree.Device(functions[0]).IOMMUGroup
	return first != nil && !slices.ContainsFunc(functions, func(a topology.PCIAddr) bool {
		group := v.tree.Device(a).IOMMUGroup
		return group == nil || *group != *first
	})
}

// consoleGPU is silent once the card is on a vfio driver: then somebody has decided it.
func consoleGPU(v *view, add func(finding.Finding)) {
	// With a second GPU the host can keep its console there.
	if len(v.gpus) != 1 || v.gpus[0].Address == nil || v.virtual {
		return
	}
	d := v.tree.Device(*v.gpus[0].Address)
	if d == nil || d.BootVGA == nil || !*d.BootVGA || topology.IsVFIO(d.Driver) {
		return
	}
	add(finding.Finding{Subject: d.Address.String(), Evidence: at(pci(d.Address), "boot_vga=1", driverFact(d)),
		Consequence: "giving it to a virtual machine takes the host's console along",
		Fix:         "make another GPU the primary one in the firmware, or reach the host over the network"})
}
