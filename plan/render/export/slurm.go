package export

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
	"github.com/rackless/rackless/plan/render/slurm"
)

// Slurm makes the first node the controller unless the lab file names one.
func Slurm(in render.Input) ([]render.Artifact, error) {
	if err := check(&in); err != nil {
		return nil, fmt.Errorf("export slurm: %w", err)
	}
	c := slurm.Cluster{Name: in.Plan.Lab, Made: in.Made}
	if in.Lab.Slurm != nil {
		c.Controller = in.Lab.Slurm.Controller
	}
	for i := range in.Plan.Nodes {
		n := &in.Plan.Nodes[i]
		node, err := slurm.NodeOf(n.Name, guest(in.Host, n))
		if err != nil {
			return nil, fmt.Errorf("export slurm: %w", err)
		}
		c.Controller = cmp.Or(c.Controller, n.Name)
		c.Nodes = append(c.Nodes, node)
	}
	c.Switches = switches(in.Plan)
	return slurm.Files(c)
}

// switches describes the network for jobs that should stay close together. A NIC of the host is a switch between its
// virtual functions. A node belongs to the switch of its first port, which is on the fabric's first subnet.
func switches(p *plan.Plan) []slurm.Switch {
	var leaves group.By[string, string]
	joined := false
	for i := range p.Nodes {
		n := &p.Nodes[i]
		leaf := "without-nic"
		for _, c := range n.Cards {
			if c.Kind != plan.KindGPU {
				leaf = "nic-" + strings.ReplaceAll(c.ID, ":", "-")
				break
			}
		}
		leaves.Add(leaf, n.Name)
		joined = joined || len(leaves.Of(leaf)) > 1
	}
	fabric := slurm.Switch{Name: "fabric"}
	if !joined || len(leaves.Keys) == 1 {
		for i := range p.Nodes {
			fabric.Nodes = append(fabric.Nodes, p.Nodes[i].Name)
		}
		return []slurm.Switch{fabric}
	}
	fabric.Switches = leaves.Keys
	all := lists.Map(leaves.Keys,
		func(leaf string) slurm.Switch { return slurm.Switch{Name: leaf, Nodes: leaves.Of(leaf)} })
	return append(all, fabric)
}

func guest(h *topology.Host, n *plan.Node) *topology.Host {
	g := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceSynthetic, Name: n.Name}}
	// The kernel keeps some memory, and Slurm drains a node with less than configured.
	g.Memory.TotalBytes = new(n.MemoryBytes / 16 * 15)
	sockets, cores, threads, _ := n.Topology()
	for core := range sockets * cores {
		first := core * threads
		c := topology.Core{ID: core, Package: new(core / cores), CPUs: topology.CPURange(first, first+threads-1)}
		for _, cell := range n.Cells {
			if n.GuestNUMA && first >= cell.FirstVCPU && first < cell.FirstVCPU+cell.VCPUs {
				c.NUMANode = new(cell.Cell)
			}
		}
		g.Cores = append(g.Cores, c)
	}
	for _, cell := range n.Cells {
		if n.GuestNUMA && cell.VCPUs > 0 {
			g.NUMANodes = append(g.NUMANodes, topology.NUMANode{ID: cell.Cell,
				CPUs: topology.CPURange(cell.FirstVCPU, cell.FirstVCPU+cell.VCPUs-1)})
		}
	}
	for _, c := range n.Cards {
		a, _ := topology.ParsePCIAddr(c.ID) // check has verified that it is an address
		var cell *int
		if n.GuestNUMA {
			cell = c.Cell
		}
		if c.Kind == plan.KindGPU {
			card := topology.GPU{Address: &a, Kind: topology.GPUDiscrete, Model: c.Model, NUMANode: cell}
			for i := range h.GPUs {
				if h.GPUs[i].ID() == c.ID {
					card.Vendor = h.GPUs[i].Vendor
				}
			}
			g.GPUs = append(g.GPUs, card)
			continue
		}
		nic := topology.NIC{Address: &a, Model: c.Model, NUMANode: cell}
		if d := h.Device(a); d != nil && d.Vendor != nil && *d.Vendor == topology.VendorMellanox {
			nic.RDMA = []string{fmt.Sprintf("mlx5_%d", len(g.NICs))} // as numbered by its driver
		}
		g.NICs = append(g.NICs, nic)
	}
	return g
}
