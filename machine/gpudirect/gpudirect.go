// Package gpudirect decides for each pair of a GPU and a NIC whether the NIC can access the GPU's memory directly
// (GPUDirect RDMA). Missing facts give Unknown, and only a transfer proves that it works.
package gpudirect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// A Report is from Check.
type Report struct {
	Host string `json:"host"`
	// Status is Failed if any fact failed or all pairs of some GPU failed. It is OK if all facts are OK and each GPU
	// has a pair that is OK, else Unknown.
	Status finding.Status `json:"status"`
	// Facts are "peer-memory", one check per GPU vendor, and "iommu".
	Facts []finding.Finding `json:"facts"`
	Pairs []Pair            `json:"pairs"` // in host order
}

// A Pair is a GPU with a NIC.
type Pair struct {
	GPU  string             `json:"gpu"` // ID
	NIC  string             `json:"nic"` // ID
	RDMA []string           `json:"rdma,omitempty"`
	Path topology.PathClass `json:"path,omitempty"` // over PCI Express
	// Status is the worst of Checks.
	Status finding.Status `json:"status"`
	// Checks are "driver", "rdma", "bar", "path", and, for PIX or PXB, "acs".
	Checks []finding.Finding `json:"checks"`
}

type judge struct {
	*topology.Host
	tree  *topology.Tree
	gpus  []*topology.GPU
	nics  []*topology.NIC
	found []finding.Finding // findings of inspect
	apart func(*topology.GPU, *topology.NIC, topology.PathClass) finding.Finding
}

// Check judges a completed host. It returns an error if h has no GPU that computes or no NIC for RDMA.
func Check(h *topology.Host, name string) (*Report, error) {
	j := judge{Host: h, tree: topology.NewTree(h), found: diagnose.Host(h), apart: diagnose.Apart(h)}
	j.gpus, j.nics = diagnose.Cards(h)
	missing := ""
	switch {
	case len(j.gpus) == 0:
		missing = "GPU that computes"
	case len(j.nics) == 0:
		missing = "NIC for RDMA"
	}
	if missing != "" {
		return nil, fmt.Errorf("%s: no %s is known of this machine, and GPUDirect RDMA takes a GPU and a NIC: "+
			"\"rackless inspect\" shows what was read", name, missing)
	}
	r := &Report{Host: name, Facts: append(j.registration(), j.iommu())}
	r.Status = worst(r.Facts)
	for _, g := range j.gpus {
		best := finding.Failed
		nearest := j.nearest(g)
		for _, n := range j.nics {
			p := Pair{GPU: g.ID(), NIC: n.ID(), RDMA: n.RDMA, Path: j.class(g, n)}
			p.Checks = []finding.Finding{j.driver(g, n), j.rdma(n), j.bar(g), j.path(g, n, nearest)}
			if p.Path == topology.PathPIX || p.Path == topology.PathPXB {
				p.Checks = append(p.Checks, j.acs(g, n))
			}
			for i := range p.Checks {
				p.Checks[i].Subject = p.GPU + "," + p.NIC
				if g.NoPeers() && p.Checks[i].ID != "driver" {
					p.Checks[i].Fix = ""
				}
			}
			p.Status = worst(p.Checks)
			best = slices.MinFunc([]finding.Status{best, p.Status}, byRank)
			r.Pairs = append(r.Pairs, p)
		}
		r.Status = slices.MaxFunc([]finding.Status{r.Status, best}, byRank)
	}
	return r, nil
}

func byRank(a, b finding.Status) int {
	order := []finding.Status{finding.OK, finding.Unknown, finding.Failed}
	return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
}

func worst(checks []finding.Finding) finding.Status {
	return slices.MaxFunc(lists.Map(checks, func(f finding.Finding) finding.Status { return f.Status }), byRank)
}

// withStatus clears the fix of a check that passed, and the consequence unless it failed.
func withStatus(s finding.Status, f finding.Finding) finding.Finding {
	f.Status = s
	if s == finding.OK {
		f.Fix = ""
	}
	if s != finding.Failed {
		f.Consequence = ""
	}
	return f
}

// failed adds consequence and fix of inspect's same finding for subject.
func (j *judge) failed(f finding.Finding, subject string) finding.Finding {
	said, ok := lists.Lookup(j.found, func(o finding.Finding) bool {
		return o.ID == f.Code && slices.Contains(strings.Split(o.Subject, ","), subject)
	})
	if ok {
		f.Consequence, f.Fix = said.Consequence, cmp.Or(f.Fix, said.Fix)
	}
	return withStatus(finding.Failed, f)
}

// class is over PCI Express, even if NVLink joins the two.
func (j *judge) class(g *topology.GPU, n *topology.NIC) topology.PathClass {
	p := j.tree.Path(g.ID(), n.ID())
	if p.Class == topology.PathNVLink {
		return p.PCIe
	}
	return p.Class
}

func (j *judge) nearest(g *topology.GPU) (best *topology.NIC) {
	for _, n := range j.nics {
		if c := j.class(g, n); c != topology.PathUnknown && (best == nil || c < j.class(g, best)) {
			best = n
		}
	}
	return best
}

func (j *judge) isAMD(g *topology.GPU) bool {
	if g.Address != nil {
		if d := j.tree.Device(*g.Address); d != nil && d.Vendor != nil {
			return *d.Vendor == topology.VendorAMD
		}
	}
	return g.Driver == "amdgpu" || strings.Contains(g.Vendor, "AMD")
}

// registration checks whether RDMA devices can register the memory of each vendor's GPUs. For GPUs on vfio-pci the
// guests' drivers decide.
//
// Sources: NVIDIA's documentation of GPUDirect RDMA and of the GPU operator (dma-buf: open kernel modules from 515,
// Linux 5.12); rdma-core 34, which has ibv_reg_dmabuf_mr; ROCm's documentation of GPU-enabled MPI.
func (j *judge) registration() []finding.Finding {
	var nvidia, amd []string
	kept, lends, lacks := 0, true, false
	for _, g := range j.gpus {
		switch {
		case topology.IsVFIO(g.Driver):
			kept++
		case j.isAMD(g):
			amd = append(amd, g.ID())
		default:
			nvidia = append(nvidia, g.ID())
			lends, lacks = lends && g.DMABuf != nil && *g.DMABuf, lacks || g.DMABuf != nil && !*g.DMABuf
		}
	}
	modules := "not known"
	if j.Kernel.ModulesKnown {
		modules = "no nvidia_peermem, no nv_peer_mem"
	}
	f := finding.Finding{ID: "peer-memory", Code: "RL096", Title: "RDMA devices can register the memory of GPUs"}
	var out []finding.Finding
	if len(nvidia) > 0 {
		f.Subject, f.Evidence = strings.Join(nvidia, ","), "/proc/modules: "+modules
		switch module := j.Kernel.PeerMemory(); {
		case module != "":
			f.Evidence = "/proc/modules: " + module
			f = withStatus(finding.OK, f)
		case lends:
			f.Evidence += "; /proc/driver/nvidia/version: the open driver, which has dma-buf with Linux " +
				j.Kernel.Release + "; rdma-core: " + cmp.Or(j.System.RDMACore, "not known")
			f.Fix = "modprobe nvidia-peermem; or use dma-buf, which takes rdma-core 34 or newer: test it with " +
				"ib_write_bw --use_cuda=0 --use_cuda_dmabuf"
			f = j.dmaBuf(f, nvidia[0])
		case lacks && j.Kernel.ModulesKnown:
			f.Evidence += "; /proc/driver/nvidia/version: not the open driver, so no dma-buf"
			f = j.failed(f, nvidia[0])
			f.Fix = cmp.Or(f.Fix, "modprobe nvidia-peermem")
		default:
			f.Evidence += "; whether driver and kernel have dma-buf: not known"
			f.Fix = "modprobe nvidia-peermem where lsmod does not list it"
			f = withStatus(finding.Unknown, f)
		}
		out = append(out, f)
	}
	if len(amd) > 0 {
		out = append(out, withStatus(finding.Unknown, finding.Finding{ID: f.ID, Title: f.Title,
			Subject: strings.Join(amd, ","),
			Evidence: fmt.Sprintf("amdgpu on Linux %s: whether it was built with peer memory or dma-buf is not known",
				cmp.Or(j.Kernel.Release, "of unknown version")),
			Fix: "look for /sys/kernel/mm/memory_peers/amdkfd, or for CONFIG_DMABUF_MOVE_NOTIFY=y and " +
				"CONFIG_PCI_P2PDMA=y in /boot/config-*; ROCm's driver from outside the kernel has it"}))
	}
	if kept > 0 {
		out = append(out, withStatus(finding.Unknown, finding.Finding{ID: f.ID, Title: f.Title, Subject: "guests",
			Evidence: fmt.Sprintf("%s of %d on vfio-pci: the guests' drivers decide", words.Count(kept, "GPU"),
				len(j.gpus)), Fix: inGuest}))
	}
	return out
}

// dmaBuf checks rdma-core and the NICs' drivers. mlx5 supports dma-buf in every kernel that has it; for others it
// depends on the release.
//
// Source: Linux 5.12, drivers/infiniband/hw/mlx5: mlx5_ib_reg_user_mr_dmabuf.
func (j *judge) dmaBuf(f finding.Finding, gpu string) finding.Finding {
	major, _, _ := strings.Cut(j.System.RDMACore, ".")
	release, err := strconv.Atoi(major)
	switch {
	case err != nil:
		return withStatus(finding.Unknown, f)
	case release < 34:
		f = j.failed(f, gpu)
		f.Consequence = cmp.Or(f.Consequence, "no NIC can register memory of the GPUs")
		return f
	}
	for _, n := range j.nics {
		if n.Driver != "mlx5_core" {
			f.Evidence += "; driver of " + n.ID() + ": " + cmp.Or(n.Driver, "not known")
			return withStatus(finding.Unknown, f)
		}
	}
	return withStatus(finding.OK, f)
}

// In a guest the host's IOMMU always translates.
//
// Source: NVIDIA's documentation of GPUDirect RDMA, "supported systems": an IOMMU that is off or passes through.
func (j *judge) iommu() finding.Finding {
	f := finding.Finding{ID: "iommu", Subject: "host", Title: "no IOMMU translates between the devices",
		Fix: "add iommu=pt to the kernel command line (rackless prepare does), or turn the IOMMU off"}
	types := map[string]bool{}
	cmdline := ""
	if j.Kernel.Cmdline != nil {
		cmdline = *j.Kernel.Cmdline
	}
	used := slices.DeleteFunc(slices.Clone(j.PCI), func(d topology.PCIDevice) bool {
		return topology.IsVFIO(d.Driver) || !j.isCard(d.Address)
	})
	for _, d := range used {
		group, _ := lists.Lookup(j.IOMMU.Groups, func(g topology.IOMMUGroup) bool {
			return d.IOMMUGroup != nil && g.ID == *d.IOMMUGroup
		})
		types[group.Type] = true
	}
	passes := slices.ContainsFunc(strings.Fields(cmdline), func(p string) bool {
		return p == "iommu=pt" || p == "iommu.passthrough=1"
	})
	read := func(s finding.Status, evidence string) finding.Finding {
		f.Evidence = evidence
		return withStatus(s, f)
	}
	switch {
	case j.IsVirtual():
		f.Fix = onHost + ": ATS of NIC and GPU, and ports with Direct Translated P2P, let " +
			"peers of a guest reach each other below a switch"
		return read(finding.Unknown, "this is a virtual machine: the IOMMU of its host translates")
	case j.IOMMU.Enabled != nil && !*j.IOMMU.Enabled:
		return read(finding.OK, "/sys/class/iommu: empty")
	case !slices.ContainsFunc(j.gpus, func(g *topology.GPU) bool { return !topology.IsVFIO(g.Driver) }):
		f.Fix = "enable ATS on the guest's NIC and GPU, and ACS Direct Translated P2P on their ports"
		return read(finding.Unknown, "all GPUs are on vfio-pci: the IOMMU translates for their guests")
	case len(types) == 1 && types["identity"]:
		return read(finding.OK, "/sys/kernel/iommu_groups: type=identity of all cards")
	case slices.ContainsFunc([]string{"DMA", "DMA-FQ"}, func(t string) bool { return types[t] }):
		f.Consequence = "transfers between peers go up to the IOMMU, or fail"
		return read(finding.Failed, "/sys/kernel/iommu_groups: type=DMA")
	case passes:
		return read(finding.OK, "/proc/cmdline: "+cmdline)
	}
	return read(finding.Unknown, "whether the IOMMU is on, and its mode: not known")
}

func (j *judge) isCard(a topology.PCIAddr) bool {
	return slices.ContainsFunc(j.gpus, func(g *topology.GPU) bool { return g.Address != nil && *g.Address == a }) ||
		slices.ContainsFunc(j.nics, func(n *topology.NIC) bool { return n.Address != nil && *n.Address == a })
}
