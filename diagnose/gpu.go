package diagnose

import (
	"fmt"

	"github.com/rackless/rackless/topology"
)

func gpuRules() []rule {
	return []rule{
		{Check{
			ID: "RL100", Title: "BAR of the GPU is smaller than its memory",
			Severity: Warning, Also: []Severity{Info},
			Summary: "The largest prefetchable BAR of a card is 256 MiB or less, or less than its memory, on a host " +
				"with a NIC for RDMA or with several " +
				"GPUs. A warning when it is at most 256 MiB and there is such a NIC.",
			Reads: []string{"/sys/bus/pci/devices/*/resource", "nvidia-smi --query-gpu=memory.total"},
			Means: "Other devices, and the processor, reach GPU memory through this window (NVIDIA: BAR1). GPUDirect " +
				"RDMA maps what it registers there: with 256 MiB only small " +
				"buffers can be registered, and the rest fails or goes through the host. Cards for servers have a " +
				"window as large as their memory; other " +
				"cards get one with Resizable BAR, if card, firmware and board play along.",
			Fix: "In the firmware turn on above-4G decoding and Resizable BAR, and turn CSM off. Update the card's " +
				"firmware if it is older than the " +
				"feature. For a virtual machine set the size on the host before the start (`resource1_resize`), and " +
				"give the guest a window that fits " +
				"(RL037).",
			Sources: []string{"GPUDirect manual", "kubevirt/kubevirt#11093", "canonical/lxd#14381"},
		}, smallBAR},
		{Check{
			ID: "RL101", Title: "GPU is on a driver that cannot compute",
			Severity: Warning, Also: []Severity{Info},
			Summary: "An NVIDIA card is bound to nouveau or nvidiafb. A warning for a card without a screen (3D " +
				"controller) and on a host with a NIC " +
				"for RDMA.",
			Reads: []string{"/sys/bus/pci/devices/*/driver"},
			Means: "These drivers show a picture; CUDA, NCCL and GPUDirect need NVIDIA's own. They also claim the " +
				"card's BAR for a framebuffer, and a virtual " +
				"machine that gets the card while it is so fails with `Device or resource busy`.",
			Fix: "Keep the driver from loading, then reboot:\n\n    echo -e 'blacklist nouveau\\noptions nouveau " +
				"modeset=0' > /etc/modprobe.d/nouveau.conf\n" +
				"    update-initramfs -u    # or: dracut -f\n\nThen install NVIDIA's driver, or bind the card to " +
				"vfio-pci.",
			Sources: []string{"cloud-hypervisor/cloud-hypervisor#4353"},
		}, pictureDriver},
		{Check{
			ID: "RL102", Title: "functions of a GPU are split between vfio and the host",
			Severity: Warning,
			Summary: "Some functions of a GPU are on a vfio driver, others on a driver of the host, and they are not " +
				"known to be in one IOMMU group (that is " +
				"RL022).",
			Reads: []string{"/sys/bus/pci/devices/*/driver"},
			Means: "Audio, USB and UCSI functions belong to the card. A reset of the card from the virtual machine " +
				"takes them down under the host's " +
				"driver, and where the bus is the only thing that can be reset, VFIO refuses, because not all of it " +
				"is the tenant's.",
			Fix:     "Give all functions to the same virtual machine: bind the others to vfio-pci as well.",
			Sources: []string{"kubernetes-sigs/dra-driver-nvidia-gpu#1191", "kubevirt/kubevirt#6718", "lxc/incus#3422"},
		}, splitGPU},
		{Check{
			ID: "RL103", Title: "the only GPU shows the console",
			Severity: Info,
			Summary:  "The firmware's screen is on the only card that computes, and no virtual machine has it.",
			Reads:    []string{"/sys/bus/pci/devices/*/boot_vga"},
			Means: "Giving the card away takes the console along. The framebuffer of the firmware (efifb, simplefb) " +
				"may hold its BAR until it is told to let go. And the card's ROM, as " +
				"the guest sees it, has been changed by the boot.",
			Fix: "Make another GPU the primary one in the firmware (that of the processor or of the management " +
				"controller), or log in over the network " +
				"and add `initcall_blacklist=sysfb_init` to the command line.",
			Sources: []string{"cloud-hypervisor/cloud-hypervisor#4353"},
		}, consoleGPU},
	}
}

// plainBAR is the BAR of a card that does not map all of its memory.
const plainBAR = 256 << 20

func smallBAR(v *view) []Finding {
	if len(v.fabric) == 0 && len(v.gpus) < 2 {
		return nil
	}
	var out []Finding
	for _, g := range v.gpus {
		if g.Address == nil || g.BAR1Bytes == nil {
			continue
		}
		bar := *g.BAR1Bytes
		less := g.MemoryBytes != nil && bar < *g.MemoryBytes
		if bar > plainBAR && !(less && len(v.fabric) > 0) || g.MemoryBytes != nil && !less {
			continue
		}
		facts := []string{"largest prefetchable BAR " + size(bar)}
		if g.MemoryBytes != nil {
			facts = append(facts, "memory "+size(*g.MemoryBytes))
		}
		f := Finding{Severity: Info, Subject: g.ID(), Evidence: at(pci(*g.Address)+"/resource", facts...),
			Consequence: "peers reach " + size(bar) + " of the GPU's memory at a time",
			Fix:         "turn on above-4G decoding and Resizable BAR in the firmware"}
		if bar <= plainBAR && len(v.fabric) > 0 {
			f.Severity = Warning
			f.Consequence += ": GPUDirect RDMA can register small buffers only"
		}
		out = append(out, f)
	}
	return out
}

func pictureDriver(v *view) []Finding {
	var out []Finding
	for _, g := range v.gpus {
		if g.Address == nil || g.Driver != "nouveau" && g.Driver != "nvidiafb" {
			continue
		}
		f := Finding{Severity: Info, Subject: g.ID(), Evidence: at(pci(*g.Address), "driver="+g.Driver),
			Consequence: "no CUDA, no GPUDirect; the driver holds the card's BAR when a virtual machine wants it",
			Fix:         "blacklist " + g.Driver + " and install NVIDIA's driver, or bind the card to vfio-pci"}
		d := v.tree.Device(*g.Address)
		if len(v.fabric) > 0 || d != nil && d.Class != nil && d.Class.Sub() == topology.Sub3D {
			f.Severity = Warning
		}
		out = append(out, f)
	}
	return out
}

func splitGPU(v *view) []Finding {
	var out []Finding
	for _, g := range v.gpus {
		var given, held []topology.PCIAddr
		var facts []string
		groups := map[int]bool{}
		known := true
		for _, a := range g.Functions {
			d := v.tree.Device(a)
			if d == nil || d.Driver == "" || d.Driver == "pci-stub" {
				continue
			}
			if d.IOMMUGroup == nil {
				known = false
			} else {
				groups[*d.IOMMUGroup] = true
			}
			if isVFIO(d.Driver) {
				given = append(given, a)
			} else {
				held = append(held, a)
			}
			facts = append(facts, at(pci(a), driverFact(d)))
		}
		if len(given) == 0 || len(held) == 0 || known && len(groups) == 1 {
			continue
		}
		out = append(out, Finding{Severity: Warning, Subject: join(held), Evidence: few(facts, 8, "; "),
			Consequence: fmt.Sprintf("a reset of %s from its virtual machine is refused or hits the host's driver",
				given[0]),
			Fix: "bind " + join(held) + " to vfio-pci as well"})
	}
	return out
}

func consoleGPU(v *view) []Finding {
	if len(v.gpus) != 1 || v.gpus[0].Address == nil || v.virtual {
		return nil
	}
	d := v.tree.Device(*v.gpus[0].Address)
	if d == nil || d.BootVGA == nil || !*d.BootVGA || isVFIO(d.Driver) {
		return nil
	}
	return []Finding{{Severity: Info, Subject: d.Address.String(), Evidence: at(pci(d.Address), "boot_vga=1",
		driverFact(d)),
		Consequence: "giving it to a virtual machine takes the host's console along",
		Fix:         "make another GPU the primary one in the firmware, or reach the host over the network"}}
}
