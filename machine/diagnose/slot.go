package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// betterSlot prefers a free port below the GPU's own switch, then on its root complex, then on its node; then a card to
// swap with; then the same for the GPU near the NIC.
func (v *view) betterSlot(p pairing) string {
	// A virtual machine's slot is not a place in a case.
	if v.virtual {
		return "put both devices of the virtual machine below one pcie-expander-bus of the node that they have on " +
			"the host, or give NCCL the host's tree (NCCL_TOPO_FILE)"
	}
	if v.onBoard(p.gpu) {
		return "no slot helps, as GPU and NIC have their places on the board: let NCCL reach the near NIC " +
			"of another GPU over NVLink (PXN), or give this GPU work inside of the machine"
	}
	near := sameNode(p.gpu.NUMANode, p.nic.NUMANode)
	switch known := p.gpu.Address != nil && p.nic.Address != nil; {
	case !known && (near || p.via == topology.PathNODE):
		return "put both below one root complex: which slots are, the manual of the board says, as the PCI tree of " +
			"this machine is not known"
	case !known:
		return "move the NIC to a slot of the GPU's NUMA node, or the GPU to one of the NIC's: the PCI tree of this " +
			"machine is not known"
	}
	for _, move := range []struct {
		what     string
		card, to topology.PCIAddr
	}{{"NIC", *p.nic.Address, *p.gpu.Address}, {"GPU", *p.gpu.Address, *p.nic.Address}} {
		if port, where := v.freePort(move.card, move.to); port != nil {
			return fmt.Sprintf("move the %s %s to the slot at port %s%s, %s, with nothing below it",
				move.what, move.card, v.describe(port.Address), portLanes(port), where)
		}
		if other := v.swap(move.card, move.to); other != nil {
			where := "on the NUMA node"
			if near {
				where = "on the root complex"
			}
			return fmt.Sprintf("swap the %s %s with %s, which is %s of %s and gains less from it",
				move.what, move.card, v.describe(other.Address), where, move.to)
		}
	}
	where := "on one NUMA node"
	if p.via == topology.PathNODE {
		where = "below one root complex"
	}
	seen := ""
	if !v.fromFiles() {
		seen = " (" + v.Provenance.Kind + " need not list empty ports)"
	}
	return fmt.Sprintf("assign NIC %s and GPU %s to different jobs, or use another board: this one shows no free slot "+
		"and no card to swap that would put both %s%s", *p.nic.Address, *p.gpu.Address, where, seen)
}

func sameNode(a, b *int) bool { return a != nil && b != nil && *a == *b }

// moduleWords are in models of GPUs that are no cards.
var moduleWords = []string{"SXM", "SXM2", "SXM3", "SXM4", "SXM5", "SXM6", "OAM", "HGX", "DGX", "GH200",
	"GB200", "GB300",
	"B200", "B300", "HBM3", "MI250", "MI250X", "MI300A", "MI300X", "MI308X", "MI325X", "MI350X", "MI355X"}

// Bridges between cards have up to 12 NVLinks.
const moduleLinks = 18

// onBoard reports whether a GPU is a module, which has no other slot: by its model, its link to the processor, or its
// NVLinks.
func (v *view) onBoard(g *topology.GPU) bool {
	if g.IsCoherent() || g.MemoryNode != nil || slices.ContainsFunc(moduleWords, func(w string) bool {
		return topology.HasWord(g.Model, w) || topology.HasWord(v.System.Product, w)
	}) {
		return true
	}
	linked := lists.Filter(v.Reported, func(p topology.Path) bool {
		return p.Class == topology.PathNVLink && (p.A == g.ID() || p.B == g.ID()) && p.A != p.B
	})
	return len(linked) > 3 || slices.ContainsFunc(linked, func(p topology.Path) bool { return p.Links >= moduleLinks })
}

// portLanes returns ", 16 lanes at 16 GT/s".
func portLanes(port *topology.PCIDevice) string {
	if port.Link == nil {
		return ""
	}
	w, s := width(port.Link.MaxWidth), speed(port.Link.MaxSpeedGTs)
	if w != 0 && s != 0 {
		return fmt.Sprintf(", %.0f lanes at %g GT/s", w, s)
	}
	return ""
}

// lanesOf prefers the present link to the maximum.
func (v *view) lanesOf(a topology.PCIAddr) float64 {
	card := v.tree.Device(a)
	if card == nil || card.Link == nil {
		return 0
	}
	return cmp.Or(width(card.Link.Width), width(card.Link.MaxWidth))
}

// freePort returns the nearest free port with enough lanes, and its place.
func (v *view) freePort(card, to topology.PCIAddr) (*topology.PCIDevice, string) {
	target := v.tree.Device(to)
	if target == nil {
		return nil, ""
	}
	up := v.tree.Ancestors(to)
	root := v.tree.RootOf(to)
	var best *topology.PCIDevice
	bestRank, where := 0, ""
	for i := range v.PCI {
		port := &v.PCI[i]
		b := port.Bridge
		if b == nil || b.Port != "root port" && b.Port != "downstream port" || len(v.tree.Children(port.Address)) > 0 {
			continue
		}
		if port.Link == nil || width(port.Link.MaxWidth) < max(v.lanesOf(card), 4) {
			continue // or a port inside the chipset
		}
		above := v.tree.Ancestors(port.Address)
		rank, text := 0, ""
		switch {
		case len(above) > 0 && slices.Contains(up, above[0]):
			rank, text = 3, "below the same switch"
		case root != "" && v.tree.RootOf(port.Address) == root:
			rank, text = 2, "on the same root complex as "+to.String()
		case sameNode(port.NUMANode, target.NUMANode) && !v.oneNode(card, to):
			rank, text = 1, fmt.Sprintf("on NUMA node %d as %s is", *port.NUMANode, to)
		}
		if rank > bestRank {
			best, bestRank, where = port, rank, text
		}
	}
	return best, where
}

func (v *view) oneNode(a, b topology.PCIAddr) bool {
	x, y := v.tree.Device(a), v.tree.Device(b)
	return x != nil && y != nil && sameNode(x.NUMANode, y.NUMANode)
}

// swap returns a card that could change places: a drive, or a NIC that is not for RDMA, in a slot with as many lanes.
func (v *view) swap(card, to topology.PCIAddr) *topology.PCIDevice {
	target := v.tree.Device(to)
	if target == nil || target.NUMANode == nil {
		return nil
	}
	// Only its root complex is nearer.
	root := ""
	if v.oneNode(card, to) {
		if root = v.tree.RootOf(to); root == "" {
			return nil
		}
	}
	for i := range v.PCI {
		d := &v.PCI[i]
		if d.Class == nil || d.PF != nil || d.IsBridge() || d.Address.Function != 0 || d.Parent == nil ||
			!sameNode(d.NUMANode, target.NUMANode) || root != "" && v.tree.RootOf(d.Address) != root {
			continue
		}
		base := d.Class.Base()
		if base != topology.ClassStorage && base != topology.ClassNetwork || v.isCard(d.Address) ||
			d.Address.SameDevice(to) {
			continue
		}
		if d.Link != nil && d.Link.Port != nil && width(d.Link.Port.MaxWidth) >= max(v.lanesOf(card), 4) {
			return d
		}
	}
	return nil
}
