package gpudirect

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

const (
	inGuest = "run rackless host gpudirect in the guest too"
	onHost  = "run rackless host gpudirect on the host too"
)

// The host or one guest must own both devices.
func (j *judge) driver(g *topology.GPU, n *topology.NIC) finding.Finding {
	f := finding.Finding{ID: "driver", Title: "the driver of the GPU lends its memory",
		Evidence: "driver=" + cmp.Or(g.Driver, "not known")}
	kept := topology.IsVFIO(g.Driver)
	switch {
	case g.NoPeers():
		f.Code, f.Evidence = "RL104", "model="+g.Model
		f.Consequence = "GeForce cards have no GPUDirect RDMA: data is copied through memory of the host"
		f.Fix = "no driver or slot changes that: GPUDirect RDMA takes NVIDIA's cards for workstations " +
			"(RTX PRO, RTX A) or data centres"
		return withStatus(finding.Failed, f)
	case kept != topology.IsVFIO(n.Driver) && g.Driver != "" && n.Driver != "":
		f.Evidence = fmt.Sprintf("driver=%s of the GPU, driver=%s of the NIC", g.Driver, n.Driver)
		f.Consequence = "one is kept for virtual machines and the other is the host's"
		f.Fix = "give both to one virtual machine, or none"
		return withStatus(finding.Failed, f)
	case kept:
		f.Fix = inGuest
		return withStatus(finding.Unknown, f)
	case g.Driver == "nvidia" || g.Driver == "amdgpu":
		return withStatus(finding.OK, f)
	case g.Driver != "":
		f.Code = "RL101"
		return j.failed(f, g.ID())
	}
	f.Fix = "install the driver of NVIDIA or AMD where lspci -k shows none"
	return withStatus(finding.Unknown, f)
}

// On vfio-pci only the guest can tell.
func (j *judge) rdma(n *topology.NIC) finding.Finding {
	f := finding.Finding{ID: "rdma", Title: "the NIC has an RDMA device", Evidence: "/sys/class/infiniband: "}
	devices := slices.DeleteFunc(slices.Clone(n.RDMA), topology.IsSoftRDMA)
	switch {
	case len(devices) > 0:
		f.Evidence += words.Join(devices, ",")
		return withStatus(finding.OK, f)
	case topology.IsVFIO(n.Driver):
		f.Evidence += "driver=vfio-pci"
		f.Fix = inGuest
		return withStatus(finding.Unknown, f)
	case !j.Kernel.ModulesKnown:
		f.Evidence += "not known"
		f.Fix = "show it with ibv_devinfo, or take a snapshot"
		return withStatus(finding.Unknown, f)
	}
	f.Evidence += "none of this NIC"
	f.Consequence = "nothing is sent by RDMA"
	f.Fix = "load the RDMA driver of the NIC, such as mlx5_ib"
	return withStatus(finding.Failed, f)
}

// A window is enough for a transfer, except the smallest, of cards without Resizable BAR.
func (j *judge) bar(g *topology.GPU) finding.Finding {
	f := finding.Finding{ID: "bar", Code: "RL100", Title: "the BAR of the GPU shows its memory"}
	small := slices.IndexFunc(j.found, func(o finding.Finding) bool { return o.ID == f.Code && o.Subject == g.ID() })
	switch {
	case small >= 0:
		f.Evidence = j.found[small].Evidence
		if j.found[small].Severity == finding.Warning {
			return j.failed(f, g.ID())
		}
		return withStatus(finding.OK, f)
	case g.BAR1Bytes == nil || g.MemoryBytes == nil:
		f.Evidence = fmt.Sprintf("BAR %s, memory %s", bytes(g.BAR1Bytes), bytes(g.MemoryBytes))
		f.Fix = "nvidia-smi -q -d MEMORY shows both: BAR1 as large as FB is best"
		if topology.IsVFIO(g.Driver) {
			f.Fix = inGuest
		}
		return withStatus(finding.Unknown, f)
	}
	f.Evidence = fmt.Sprintf("BAR %s of %s", bytes(g.BAR1Bytes), bytes(g.MemoryBytes))
	return withStatus(finding.OK, f)
}

func bytes(n *uint64) string {
	if n == nil {
		return "not known"
	}
	return words.Exact(*n)
}

// path follows NCCL, which uses GPUDirect up to PXB unless NCCL_NET_GDR_LEVEL allows more.
//
// Source: NCCL, ncclTopoCheckGdr in src/graph/paths.cc.
func (j *judge) path(g *topology.GPU, n *topology.NIC, nearest *topology.NIC) finding.Finding {
	class, near := j.class(g, n), topology.PathUnknown
	f := finding.Finding{ID: "path", Title: "the path is short", Evidence: "path " + class.String()}
	if g.Address != nil && n.Address != nil {
		a, b := j.tree.RootOf(*g.Address), j.tree.RootOf(*n.Address)
		if a != "" && a == b {
			f.Evidence += ", both below " + a
		}
		if a != "" && b != "" && a != b {
			f.Evidence += ", GPU below " + a + " and NIC below " + b
		}
	}
	if nearest != nil {
		near = j.class(g, nearest)
	}
	if class > topology.PathPXB && near < class {
		f.Fix = fmt.Sprintf("use %s for this GPU (%s), as NCCL does by itself", nearest.ID(), near)
	}
	switch {
	case class == topology.PathUnknown:
		f.Evidence = "path not known"
		f.Fix = "read the PCI tree of the machine: rackless host snapshot"
		return withStatus(finding.Unknown, f)
	case class <= topology.PathPXB:
		return withStatus(finding.OK, f)
	case g.IsCoherent():
		f.Evidence += "; the GPU is joined to the processor by NVLink C2C"
		f.Fix = "NCCL_NET_GDR_C2C=1 takes the way over the processor; measure it"
		return withStatus(finding.Unknown, f)
	case class == topology.PathSYS:
		f.Code = "RL011"
	case class == topology.PathNODE:
		f.Code = "RL012"
	case slices.ContainsFunc(j.found, func(o finding.Finding) bool { return o.ID == "RL108" }):
		f.Code = "RL108"
	default:
		f.Fix = cmp.Or(f.Fix, "measure it: processors for servers pass requests between their ports, and NCCL uses "+
			"this path with NCCL_NET_GDR_LEVEL=PHB only")
		return withStatus(finding.Unknown, f)
	}
	if f.Code == "RL108" {
		f = j.failed(f, g.ID())
	} else {
		said := j.apart(g, j.card(n), class)
		f.Consequence, f.Fix = said.Consequence, cmp.Or(f.Fix, said.Fix)
		f = withStatus(finding.Failed, f)
	}
	f.Consequence = cmp.Or(f.Consequence, "NCCL copies through memory of the host")
	f.Fix = cmp.Or(f.Fix, "put GPU and NIC below one switch, or measure it with NCCL_NET_GDR_LEVEL="+class.String())
	return f
}

// All ports of a card are in one slot.
func (j *judge) card(n *topology.NIC) *topology.NIC {
	return lists.Find(j.nics, func(o *topology.NIC) bool {
		return o == n || o.Address != nil && n.Address != nil && o.Address.SameDevice(*n.Address)
	})
}

// Ports that redirect send requests up to the root complex, unless ATS has translated the request and the port allows
// that.
func (j *judge) acs(g *topology.GPU, n *topology.NIC) finding.Finding {
	f := finding.Finding{ID: "acs", Code: "RL023", Title: "requests go across the switch"}
	var a, b *topology.PCIDevice
	if g.Address != nil && n.Address != nil {
		a, b = j.tree.Device(*g.Address), j.tree.Device(*n.Address)
	}
	known := slices.ContainsFunc(j.PCI, func(d topology.PCIDevice) bool { return d.ACS != nil })
	if a == nil || b == nil || !known || j.IsVirtual() {
		f.Evidence = "ACSCtl of the ports: not known"
		f.Fix = "read the machine as root: rackless host snapshot, or lspci -vvv"
		if j.IsVirtual() {
			f.Evidence = "this is a virtual machine: the ports of its host decide"
			f.Fix = onHost
		}
		return withStatus(finding.Unknown, f)
	}
	ats := fmt.Sprintf("ATS of GPU %s, of NIC %s", enabled(a.ATS), enabled(b.ATS))
	ports := j.tree.Redirecting(a, b)
	if len(ports) == 0 {
		f.Evidence = "ACSCtl: no port between them redirects; " + ats
		return withStatus(finding.OK, f)
	}
	f.Evidence = "ACSCtl: ReqRedir+ at " + words.Few(ports, 4, " ") + "; " + ats
	f = j.failed(f, ports[0].String())
	f.Consequence = cmp.Or(f.Consequence, "requests go up to the root complex and back")
	f.Fix = cmp.Or(f.Fix, "turn on ATS of the NIC (mlxconfig ATS_ENABLED=1) and Direct Translated P2P at these ports")
	return f
}

func enabled(b *bool) string {
	switch {
	case b == nil:
		return "not known"
	case *b:
		return "on"
	}
	return "off"
}
