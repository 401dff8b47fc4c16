package render

import (
	"encoding/xml"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// The elements of NCCL's topology XML that matter for distance. NCCL adds others, such as the GPUs' numbers, from the
// guest. Sources: NCCL, src/graph/xml.cc and topo.cc.
type (
	ncclSystem struct {
		XMLName xml.Name  `xml:"system"`
		Version int       `xml:"version,attr"`
		CPUs    []ncclCPU `xml:"cpu"`
	}
	ncclCPU struct {
		Node     int        `xml:"numaid,attr"`
		Affinity string     `xml:"affinity,attr"`
		Arch     string     `xml:"arch,attr"`
		PCI      []*ncclPCI `xml:"pci"`
	}
	ncclPCI struct {
		BusID string           `xml:"busid,attr"`
		Class topology.ID24    `xml:"class,attr"`
		Speed string           `xml:"link_speed,attr"` // empty if unknown
		Width int              `xml:"link_width,attr"` // 0 if unknown
		PCI   []*ncclPCI       `xml:"pci"`
		host  topology.PCIAddr // of a switch's upstream port
	}
)

func ncclPath(node string) string { return guestDir(node) + "nccl-topology.xml" }

// ncclTopologies returns a file for NCCL_TOPO_FILE. It shows the guest's devices below the host's switches, with the
// host's link speeds. The guest's own switches report 2.5 GT/s and one lane, which NCCL believes.
func ncclTopologies(in Input) ([]Artifact, error) {
	m, err := newMachine(in)
	if err != nil {
		return nil, err
	}
	var all []Artifact
	for i := range m.in.Plan.Nodes {
		n := &m.in.Plan.Nodes[i]
		if !slices.ContainsFunc(n.Cards, func(c plan.NodeDevice) bool { return c.Kind == plan.KindGPU }) {
			continue
		}
		_, t, err := m.tree(n)
		if err != nil {
			return nil, err
		}
		// NCCL's own parser accepts only spaces as indentation, and in older versions only double quotes.
		data, err := xml.MarshalIndent(m.ncclTopology(n, t), "", "  ")
		if err != nil {
			return nil, err
		}
		head := "<!--\n" + comment("  ", xmlComment(strings.TrimSuffix(m.in.Made, ".")+". For NCCL in node "+n.Name+
			" of lab "+m.in.Plan.Lab+": cloud-init makes it /etc/nccl-topology.xml. It shows GPUs and NICs below the "+
			"switches of the host. Their addresses are those that the firmware gives in the domain of this plan: "+
			"compare them with lspci.")) + "-->\n"
		all = append(all, Artifact{Path: ncclPath(n.Name), Mode: 0o644,
			Data: slices.Concat([]byte(head), data, []byte("\n"))})
	}
	return all, nil
}

// ncclTopology leaves out devices with an unknown NUMA node, for which NCCL then uses the guest's data.
func (m *machine) ncclTopology(n *plan.Node, t *tree) *ncclSystem {
	hostTree := topology.NewTree(m.host)
	physical := map[topology.PCIAddr]topology.PCIAddr{} // of virtual ones, which need not exist yet
	for i := range n.Cards {
		c := &n.Cards[i]
		if pf, err := topology.ParsePCIAddr(c.ID); err == nil && c.Kind == plan.KindVF {
			if vf, err := m.address(functionOf(c)); err == nil {
				physical[vf] = pf
			}
		}
	}
	s := &ncclSystem{Version: 1}
	for _, cell := range n.Cells {
		cpus := topology.CPUSet{}
		if cell.VCPUs > 0 {
			cpus = topology.CPURange(cell.FirstVCPU, cell.FirstVCPU+cell.VCPUs-1)
		}
		s.CPUs = append(s.CPUs, ncclCPU{Node: cell.Cell, Affinity: cpus.Mask(), Arch: m.arch})
	}
	made := 0 // switches without an address in the guest
	buses := t.buses()
	for _, p := range t.devices {
		if p.cell == nil {
			continue
		}
		for _, f := range p.functions {
			on := f.host
			if pf, ok := physical[on]; ok {
				on = pf
			}
			d := hostTree.Device(on)
			if d == nil || d.Class == nil || !isNCCLs(d.Class.Base()) {
				continue
			}
			below := &s.CPUs[*p.cell].PCI
			for _, bridge := range slices.Backward(hostTree.Ancestors(on)) {
				if !isSwitch(bridge) {
					continue
				}
				k := slices.IndexFunc(*below, func(x *ncclPCI) bool { return x.host == bridge.Address })
				if k < 0 {
					made++
					k = len(*below)
					*below = append(*below, newNCCLPCI(bridge, madeUp(made)))
					(*below)[k].host = bridge.Address
				}
				below = &(*below)[k].PCI
			}
			guest := topology.PCIAddr{Bus: uint8(buses[p.bus]), Function: f.guest}
			*below = append(*below, newNCCLPCI(d, guest))
		}
	}
	return s
}

// madeUp invents an address for a switch, as clouds' files do.
func madeUp(n int) topology.PCIAddr {
	return topology.PCIAddr{Domain: 0xffff, Bus: 0xff - uint8(n/32), Device: uint8(n % 32)}
}

func isNCCLs(base uint8) bool {
	return base == topology.ClassDisplay || base == topology.ClassNetwork || base == topology.ClassAccelerator
}

func isSwitch(d *topology.PCIDevice) bool {
	return d.Bridge != nil && (d.Bridge.Port == "upstream port" || d.Bridge.Port == topology.PortSwitch)
}

func newNCCLPCI(d *topology.PCIDevice, at topology.PCIAddr) *ncclPCI {
	x := &ncclPCI{BusID: at.String()}
	if d.Class != nil {
		x.Class = *d.Class
	}
	if d.Link != nil {
		gts, lanes := d.Link.Best()
		if gts != nil {
			x.Speed = strconv.FormatFloat(*gts, 'f', 1, 64) + " GT/s PCIe"
		}
		if lanes != nil {
			x.Width = *lanes
		}
	}
	return x
}

// buses returns the bus behind each controller, in the numbering of firmware: depth first.
func (t *tree) buses() []int {
	numbers := make([]int, len(t.controllers))
	last := make([]int, len(t.controllers)) // by root bus
	roots := make([]int, len(t.controllers))
	for i, c := range t.controllers {
		switch c.Model {
		case pcieRoot, pcieExpanderBus:
			roots[i] = i
			if c.PCI.Target != nil {
				numbers[i] = int(*c.PCI.Target.BusNr)
			}
			last[i] = numbers[i]
		default:
			root := roots[*c.Address.PCI.Bus]
			last[root]++
			roots[i], numbers[i] = root, last[root]
		}
	}
	return numbers
}
