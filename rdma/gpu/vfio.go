package gpu

import "cmp"

// Personality is a way in which a GPU presents itself to the guest.
type Personality string

// Personalities.
const (
	// Virtio is a virtio GPU, for the driver virtio_gpu.
	Virtio Personality = "virtio"
	// VFIO is a 3D controller with the PCI ids of its model, which has no interface but its memory. The driver vfio-pci
	// gives it to one program, and exports its memory as dma-bufs from Linux 6.19 on.
	VFIO Personality = "vfio"
)

// Personalities lists all personalities.
func Personalities() []Personality { return []Personality{Virtio, VFIO} }

// vendorVirtio is the vendor of virtio devices, and the subsystem vendor of all emulated GPUs.
const vendorVirtio = 0x1af4

// cards are the PCI ids of the models with the personality VFIO: vendor, then device. Those of the generic model are
// for experiments (QEMU, docs/specs/pci-ids.rst).
var cards = map[string][2]uint16{
	Generic: {vendorVirtio, 0x10f0},
	"h20":   {vendorNVIDIA, 0x2329},
	"h100":  {vendorNVIDIA, 0x2330},
	"a100":  {vendorNVIDIA, 0x20b2},
	"l40s":  {vendorNVIDIA, 0x26b9},
}

const vendorNVIDIA = 0x10de

// Personality returns the personality.
func (g *GPU) Personality() Personality { return g.cfg.Personality }

// plain reports whether the GPU has no interface of virtio.
func (g *GPU) plain() bool { return g.cfg.Personality == VFIO }

// vectors returns the number of MSI-X vectors. A GPU without an interface has nothing to report.
func (g *GPU) vectors() int {
	if g.plain() {
		return 0
	}
	return vectors
}

// noSoftReset says that the GPU keeps its state in D3hot, in which vfio-pci leaves it while no program uses it.
const noSoftReset = 1 << 3

// describePlain fills in the ids and capabilities of a GPU without an interface.
func (g *GPU) describePlain() {
	c, id := g.config[:], cards[cmp.Or(g.cfg.Model, Generic)]
	le.PutUint16(c[0:], id[0])
	le.PutUint16(c[2:], id[1])
	c[cfgExp+1] = cfgPM
	c[cfgPM] = 1
	le.PutUint16(c[cfgPM+2:], 3)
	c[cfgPM+4] = noSoftReset
}

// plainWritable reports whether a byte of configuration space can have writable bits without an interface of virtio.
func plainWritable(at uint64) bool { return at < cfgMSIX || at >= cfgPM && at < cfgCommon }
