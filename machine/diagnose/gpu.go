package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// plainBAR maps only a window of the memory.
const plainBAR = 256 << 20

// smallBAR is silent without a peer: no NIC for RDMA and only one GPU.
func smallBAR(v *view, g *topology.GPU, add func(finding.Finding)) {
	if len(v.fabric) == 0 && len(v.gpus) < 2 || g.Address == nil || g.BAR1Bytes == nil {
		return
	}
	bar := *g.BAR1Bytes
	// A BAR's size is a power of two, so a larger one maps all of the memory.
	less := g.MemoryBytes != nil && bar < *g.MemoryBytes
	if bar > plainBAR && !(less && len(v.fabric) > 0) || g.MemoryBytes != nil && !less {
		return
	}
	facts := []string{"largest prefetchable BAR " + size(bar)}
	if g.MemoryBytes != nil {
		facts = append(facts, "memory "+size(*g.MemoryBytes))
	}
	f := finding.Finding{Severity: finding.Info, Subject: g.ID(), Evidence: at(pci(*g.Address)+"/resource", facts...),
		Consequence: "peers reach " + size(bar) + " of the GPU's memory at a time", Fix: "turn on above-4G decoding " +
			"and Resizable BAR in the firmware"}
	if bar <= plainBAR && len(v.fabric) > 0 {
		f.Severity = finding.Warning
		f.Consequence += ": GPUDirect RDMA can register small buffers only"
	}
	add(f)
}

// pictureDriver is always wrong for a 3D controller, which has no connector.
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

// splitGPU leaves cards within one IOMMU group to RL022, as VFIO refuses them by itself.
func splitGPU(v *view, g *topology.GPU, add func(finding.Finding)) {
	// Display, audio, USB and UCSI are reset together.
	given, held, facts := v.owners(g.Functions)
	if len(given) == 0 || len(held) == 0 || v.oneGroup(append(given, held...)) {
		return
	}
	add(finding.Finding{Subject: join(held), Evidence: words.Few(facts, 8, "; "),
		Consequence: fmt.Sprintf("a reset of %s from its virtual machine is refused or hits the host's driver",
			given[0]), Fix: "bind " + join(held) + " to vfio-pci as well"})
}

func (v *view) oneGroup(functions []topology.PCIAddr) bool {
	first := v.tree.Device(functions[0]).IOMMUGroup
	return first != nil && !slices.ContainsFunc(functions, func(a topology.PCIAddr) bool {
		group := v.tree.Device(a).IOMMUGroup
		return group == nil || *group != *first
	})
}

// consoleGPU is silent if the only GPU is on a vfio driver, a deliberate choice.
func consoleGPU(v *view, add func(finding.Finding)) {
	// A second GPU can be the console.
	if len(v.gpus) != 1 || v.gpus[0].Address == nil || v.virtual {
		return
	}
	d := v.tree.Device(*v.gpus[0].Address)
	if d == nil || d.BootVGA == nil || !*d.BootVGA || topology.IsVFIO(d.Driver) {
		return
	}
	add(finding.Finding{Subject: d.Address.String(), Evidence: at(pci(d.Address), "boot_vga=1", driverFact(d))})
}

func (v *view) kept(g *topology.GPU) bool { return topology.IsVFIO(g.Driver) }

func (v *view) together(a, b *topology.GPU) bool {
	if a.Address == nil || b.Address == nil {
		return false
	}
	of := v.holders(*b.Address)
	return slices.ContainsFunc(v.holders(*a.Address), func(t *topology.Tenant) bool { return slices.Contains(of, t) })
}

func named(name string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
}

// noPeers is a note on GeForce cards: every copy goes through host memory and crosses the switch's uplink twice.
func noPeers(v *view, add func(finding.Finding)) {
	var cards, shared []string
	for i, g := range v.gpus {
		if !g.NoPeers() {
			continue
		}
		alone := true
		for j, o := range v.gpus {
			if i == j || !o.NoPeers() || v.kept(g) && v.kept(o) && !v.together(g, o) ||
				v.tree.Path(g.ID(), o.ID()).Class == topology.PathNVLink {
				continue
			}
			alone = false
			if g.Address != nil && o.Address != nil && i < j {
				if top := v.tree.Meet(*g.Address, *o.Address); top != nil {
					shared = append(shared, top.Address.String())
				}
			}
		}
		if !alone {
			cards = append(cards, g.ID())
		}
	}
	if len(cards) == 0 {
		return
	}
	f := finding.Finding{Subject: strings.Join(cards, ","),
		Evidence: at(cards[0], "model="+lists.Find(v.gpus, func(g *topology.GPU) bool {
			return g.ID() == cards[0]
		}).Model) + moreDevices(cards),
		Consequence: "GeForce cards do not reach each other's memory over PCI Express (no peer-to-peer, no GPUDirect " +
			"RDMA): data is copied through memory of the host",
		Fix: "spread jobs so that cards of one switch talk little to each other; NCCL_P2P_DISABLE=1 where a program " +
			"hangs; cards for workstations and servers have peer-to-peer"}
	if slices.Sort(shared); len(shared) > 0 {
		shared = slices.Compact(shared)
		f.Evidence = all(f.Evidence, "below one switch: "+words.Few(shared, 4, " "))
		f.Consequence += "; between two cards of one switch they cross its uplink twice, which can be slower than " +
			"between two sockets"
	}
	add(f)
}

// withoutNVLink is a note if the links are bridges between two cards, because an unpaired card may be intended.
func withoutNVLink(v *view, add func(finding.Finding)) {
	peers := map[string]int{}
	stated := map[string]bool{}
	for _, p := range v.Reported {
		stated[p.A], stated[p.B] = true, true
		if p.Class == topology.PathNVLink {
			peers[p.A]++
			peers[p.B]++
		}
	}
	has := func(g *topology.GPU) bool { return peers[g.ID()] > 0 || g.NVLinks != nil && *g.NVLinks > 0 }
	var with, without []string
	pairs := true // each has one reported peer
	for _, g := range v.gpus {
		switch {
		case has(g):
			with = append(with, g.ID())
			pairs = pairs && peers[g.ID()] == 1
		case slices.ContainsFunc(v.gpus, func(o *topology.GPU) bool { return has(o) && o.Model == g.Model }) &&
			!strings.HasPrefix(v.Provenance.Tool, "RCCL"):
			without = append(without, g.ID())
		}
	}
	// A source without links proves nothing, so most GPUs must have them.
	if len(without) == 0 || len(without) > len(with) || len(v.Reported) == 0 &&
		v.Provenance.Kind != topology.SourceNCCL ||
		len(v.Reported) > 0 && v.Provenance.Kind == topology.SourceTopo && !stated[without[0]] {
		return
	}
	links, errors := "NVLink", "nvidia-smi nvlink --status and -e, and dmesg for Xid 74 and NVSwitch errors; reset "+
		"or reseat the GPU, start nvidia-fabricmanager where there are NVSwitches, or leave the GPU out "+
		"(CUDA_VISIBLE_DEVICES)"
	if slices.ContainsFunc(v.gpus, func(g *topology.GPU) bool { return strings.Contains(g.Vendor, "AMD") }) {
		links, errors = "XGMI link", "rocm-smi --showxgmierr, and dmesg for xgmi and RAS errors of amdgpu; reset "+
			"all GPUs of the board (amd-smi reset), reseat the GPU, or leave it out (HIP_VISIBLE_DEVICES)"
	}
	f := finding.Finding{Severity: finding.Warning, Subject: strings.Join(without, ","),
		Evidence: fmt.Sprintf("no %s of %s; %s of %s", links, words.Few(without, 4, " "), links, words.Few(with, 8,
			" ")), Consequence: "collectives over all GPUs take PCI Express: rings go through the slowest GPU",
		Fix: "look at " + errors}
	if pairs {
		f.Severity = finding.Info
		f.Consequence = "the others are joined in pairs: a job over all of them takes PCI Express"
		f.Fix = "nothing if the bridges are meant so; otherwise look at the bridge and " + strings.SplitN(errors, ",",
			2)[0]
	}
	add(f)
}

// noAtomics finds AMD GPUs whose atomic operations do not reach memory: each switch port must route them, and the root
// port must complete them. ROCm requires that at start.
//
// Source: drivers/gpu/drm/amd/amdkfd/kfd_device.c, needs_pci_atomics; pci_enable_atomic_ops_to_root. Root ports of QEMU
// complete atomics since 8.1, for a single function: vfio_pci_enable_rp_atomics of hw/vfio/pci.c.
func noAtomics(v *view, g *topology.GPU, add func(finding.Finding)) {
	if g.Address == nil || g.Driver != "" && g.Driver != "amdgpu" && !topology.IsVFIO(g.Driver) {
		return
	}
	if d := v.tree.Device(*g.Address); d == nil || d.Vendor == nil || *d.Vendor != topology.VendorAMD {
		return
	}
	var facts []string
	for _, port := range v.tree.Ancestors(*g.Address) {
		// The card's own switch supports it.
		if !port.NoAtomics {
			continue
		}
		what := "Routing-"
		if port.Bridge != nil && port.Bridge.Port == "root port" {
			what = "32bit- 64bit-"
		}
		facts = append(facts, at(pci(port.Address)+"/config", "AtomicOpsCap: "+what))
	}
	if len(facts) == 0 {
		return
	}
	f := finding.Finding{Severity: finding.Warning, Subject: g.ID(), Evidence: words.Few(facts, 4, "; "),
		Consequence: "PCIe atomics do not reach the root port: the kernel says \"skipped device, PCI rejects " +
			"atomics\", and ROCm does not use the card",
		Fix: "move the card to a slot at the processor, not behind the chipset"}
	if v.virtual {
		f.Fix = "use a root port that offers completion (pcie-root-port of QEMU 8.1 or newer) directly above the " +
			"GPU, and pass the GPU as a single function"
	}
	if topology.HasWord(g.Model, "Instinct") || topology.HasWord(g.Model, "Vega") {
		f.Severity = finding.Info
		f.Consequence = "PCIe atomics do not reach the root port: ROCm works without them on this card, with " +
			"programs that need them between host and GPU apart"
	}
	add(f)
}

// withoutAddress finds BARs for which a guest's firmware had no space. The driver then refuses the card.
func withoutAddress(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	if !v.isCard(d.Address) || d.Dead || d.PowerState == "D3cold" {
		return
	}
	var facts []string
	for _, b := range d.BARs {
		if b.Unassigned && b.Index < 6 && !b.IO {
			fact := fmt.Sprintf("BAR %d unassigned", b.Index)
			if b.SizeBytes > 0 {
				fact += ", " + size(b.SizeBytes)
			}
			facts = append(facts, fact)
		}
	}
	if len(facts) == 0 {
		return
	}
	f := finding.Finding{Subject: d.Address.String(),
		Evidence:    at(pci(d.Address)+"/resource", strings.Join(facts, "; ")),
		Consequence: "the driver does not start: BAR is 0M @ 0x0, or \"can't assign; no space\" in dmesg",
		Fix:         "turn on above-4G decoding and Resizable BAR in the firmware, or boot with pci=realloc"}
	if v.virtual {
		f.Fix = "give the guest's firmware room: recent OVMF with the host's physical address bits " +
			"(host-phys-bits=on), opt/ovmf/X-PciMmio64Mb, or pref64-reserve of the root port; SeaBIOS places none " +
			"above 4 GiB"
	}
	add(f)
}

// writesOnly finds a GPU and a NIC at different root ports of a desktop processor, which forwards only writes between
// ports.
//
// Source: Intel's datasheets of Core processors, "Peer-to-peer memory write transactions are supported; all other
// peer-to-peer transactions are not".
func writesOnly(v *view, add func(finding.Finding)) {
	cpu := v.System.CPUModel
	client := named(cpu, "Intel") && named(cpu, "Core(TM)", "Pentium", "Celeron", "Xeon(R) E-2", "Xeon(R) W-1") &&
		!named(cpu, " X-series") && len(v.Packages) < 2
	if !client || v.virtual {
		return
	}
	for _, p := range v.pairings() {
		if p.via != topology.PathPHB && p.via != topology.PathNODE || p.gpu.NoPeers() {
			continue
		}
		add(finding.Finding{Subject: p.gpu.ID() + "," + p.nic.ID(),
			Evidence: all(at("/proc/cpuinfo", "model name="+cpu), fmt.Sprintf("path %s to %s: %s", p.gpu.ID(),
				p.nic.ID(), p.via))})
		return
	}
}
