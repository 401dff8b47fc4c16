package planview

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/hostview"
)

// guestNodes puts devices without a cell into the first one.
func guestNodes(n *plan.Node, h *topology.Host) []hostview.GuestNode {
	out := make([]hostview.GuestNode, max(1, len(n.Cells)))
	for i := range n.Cells {
		c := &n.Cells[i]
		g := &out[i]
		g.Title = fmt.Sprintf("guest NUMA node %d", c.Cell)
		if len(c.NUMANodes) > 0 {
			g.Lines = append(g.Lines, "on NUMA "+nodesText(c.NUMANodes)+" of the host")
		}
		holds := words.Size(c.Bytes)
		if c.VCPUs > 0 {
			cpus := topology.CPUSet{}
			for v := range c.VCPUs {
				cpus = cpus.Union(topology.CPUs(c.FirstVCPU + v))
			}
			holds = fmt.Sprintf("virtual CPUs %s, %s", cpus, holds)
		}
		g.Lines = append(g.Lines, holds)
	}
	for i := range n.Cards {
		c := &n.Cards[i]
		d := hostview.GuestDevice{ID: cardID(c), NIC: c.Kind != plan.KindGPU, Title: shortCard(c)}
		if c.Model != "" {
			d.Lines = append(d.Lines, c.Model)
		}
		at := 0
		if c.Cell != nil && *c.Cell < len(out) {
			at = *c.Cell
		}
		// The guest's NUMA node stands for that of the device, unless it has no memory or cores there.
		if c.NUMANode != nil && (len(n.Cells) == 0 || !slices.Equal(n.Cells[at].NUMANodes, []int{*c.NUMANode})) {
			d.Lines = append(d.Lines, fmt.Sprintf("NUMA node %d of the host", *c.NUMANode))
		}
		out[at].Devices = append(out[at].Devices, d)
	}
	return out
}

// cardID tells virtual functions of one NIC apart.
func cardID(c *plan.NodeDevice) string {
	if c.VF != nil {
		return fmt.Sprintf("%s/%d", c.ID, *c.VF)
	}
	return c.ID
}

// guestPaths joins each GPU with its nearest NIC.
func guestPaths(n *plan.Node, h *topology.Host) []hostview.GuestPath {
	var out []hostview.GuestPath
	for i := range n.Cards {
		gpu := &n.Cards[i]
		if gpu.Kind != plan.KindGPU {
			continue
		}
		var best *plan.NodeDevice
		var path topology.Path
		for k := range n.Cards {
			nic := &n.Cards[k]
			if nic.Kind == plan.KindGPU {
				continue
			}
			// The zero class is of an unknown path.
			if p := h.Path(gpu.ID, nic.ID); best == nil || p.Class != 0 && (path.Class == 0 || p.Class < path.Class) {
				best, path = nic, p
			}
		}
		if best == nil {
			continue
		}
		g := hostview.GuestPath{GPU: cardID(gpu), NIC: cardID(best), Crosses: path.Class == topology.PathSYS}
		g.Text = fmt.Sprintf("%s to %s: ", shortCard(gpu), shortCard(best))
		switch {
		case g.Crosses:
			g.Text += "crosses NUMA nodes (SYS)"
		case path.Class == topology.PathUnknown:
			g.Text += "path not known"
		default:
			g.Text += path.Label()
		}
		out = append(out, g)
	}
	return out
}
