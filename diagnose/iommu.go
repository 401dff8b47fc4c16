package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

func iommuRules() []rule {
	return []rule{
		{Check{
			ID: "RL020", Title: "IOMMU is off",
			Severity: Error, Also: []Severity{Warning, Info},
			Summary: "The kernel has no IOMMU. An error when the command line asks for one, a warning where there " +
				"are cards to give to virtual " +
				"machines, a note elsewhere.",
			Reads: []string{"/sys/class/iommu", "/sys/kernel/iommu_groups", "/proc/cmdline"},
			Means: "Without an IOMMU no device can be given to a virtual machine: vfio-pci has no group to open (`no " +
				"iommu_group found`). What is typed " +
				"on the command line does not prove anything: if VT-d or AMD-Vi is off in the firmware, " +
				"`intel_iommu=on` has no effect, and " +
				"`intel_iommu=on` on an AMD machine has none either. AMD's IOMMU needs no parameter at all.",
			Fix: "Turn on VT-d (Intel), AMD-Vi or IOMMU (AMD), SMMU (Arm) in the firmware. On EPYC boards it is " +
				"often under NB Configuration, and Auto " +
				"can mean off. On Intel add `intel_iommu=on`, and `iommu=pt` so that the host's own devices do not " +
				"pay for it. Reboot, then:\n\n" +
				"    dmesg | grep -e DMAR -e AMD-Vi\n    ls /sys/class/iommu",
			Sources: []string{"foxlet/macOS-Simple-KVM#143", "foxlet/macOS-Simple-KVM#579", "EPYC lab"},
		}, iommuOff},
		{Check{
			ID: "RL021", Title: "IOMMU group is shared by unrelated devices",
			Severity: Warning, Also: []Severity{Info},
			Summary: "A GPU or NIC shares its IOMMU group with another device. Bridges, and functions of the same " +
				"device, do not count. A note when it " +
				"is only an ordinary NIC or drive.",
			Reads: []string{"/sys/kernel/iommu_groups/*/devices"},
			Means: "A group is what the IOMMU cannot tell apart, because something between its devices (a slot or " +
				"switch without ACS) could pass " +
				"traffic from one to the other unseen. A group goes to one virtual machine as a whole: giving the " +
				"GPU away takes the others along, and " +
				"a device that the host needs must not be among them.",
			Fix: "Try another slot: those wired to the processor mostly have groups of their own, those of the " +
				"chipset share one. Look for ACS and " +
				"for ARI in the firmware. Otherwise all devices of the group go to the same machine.\n\n" +
				"The patch `pcie_acs_override` splits groups on paper only: see RL024.",
			Sources: []string{"clearcontainers/runtime#810", "kubernetes-sigs/dra-driver-nvidia-gpu#1191",
				"kubevirt/kubevirt#6718"},
		}, sharedGroup},
		{Check{
			ID: "RL022", Title: "IOMMU group is not viable",
			Severity: Error,
			Summary: "One device of a group is bound to vfio-pci while another one, not a bridge, is on a driver of " +
				"the host.",
			Reads: []string{"/sys/kernel/iommu_groups/*/devices", "/sys/bus/pci/devices/*/driver"},
			Means: "VFIO opens a group only when every device in it is on a vfio driver, on pci-stub or on none. " +
				"Otherwise the virtual machine does not " +
				"start: `group N is not viable`. Most often it is the audio, USB or UCSI function of the same GPU " +
				"that kept its driver. Bridges " +
				"on pcieport do not matter.",
			Fix: "Bind the other functions to vfio-pci too, if the host can do without them:\n\n" +
				"    echo vfio-pci > /sys/bus/pci/devices/ADDRESS/driver_override\n    echo ADDRESS > " +
				"/sys/bus/pci/devices/ADDRESS/driver/unbind\n" +
				"    echo ADDRESS > /sys/bus/pci/drivers_probe\n\nWith libvirt, `<hostdev managed='yes'>` for each " +
				"function of the group does it at start.",
			Sources: []string{"kubernetes-sigs/dra-driver-nvidia-gpu#1191", "kubevirt/kubevirt#6718", "lxc/incus#3422",
				"VoltCyclone/PCILeechFWGenerator#77", "VoltCyclone/PCILeechFWGenerator#124"},
		}, notViable},
		{Check{
			ID: "RL023", Title: "ACS sends peer-to-peer traffic through the root complex",
			Severity: Warning,
			Summary: "A GPU and another GPU or NIC are below one PCIe switch, and the switch's ports redirect " +
				"requests between them upwards. Not found " +
				"for devices on a vfio driver, nor where address translation services make the direct way possible.",
			Reads: []string{"/sys/bus/pci/devices/*/config (ACS control of the ports, ATS control of the devices)"},
			Means: "With Request Redirect set, a switch hands what a GPU writes to its neighbour up to the root " +
				"complex and the IOMMU, and back down. " +
				"The short way is lost: bandwidth falls to that of the upstream link, shared by all, and some " +
				"machines hang.\n\n" +
				"It is a trade: redirection is also what keeps devices of different virtual machines apart. On a " +
				"machine that gives the devices of one " +
				"switch to different tenants it must stay. Where the host itself runs the GPUs, or one tenant has " +
				"all devices of the switch, it costs " +
				"and protects nothing. Direct Translated P2P on the ports with ATS on in the NIC gives both.",
			Fix: "Host runs the GPUs: turn ACS off for the ports named (firmware setting, or after each boot):\n\n" +
				"    setpci -s PORT ECAP_ACS+6.w=0000\n\n" +
				"Virtual machines: leave redirection on; set ATS_ENABLED in the NIC's firmware (mlxconfig) and " +
				"Direct Translated P2P on the ports of the " +
				"switch.",
			Sources: []string{"NVIDIA/nccl#1464", "NVIDIA/nccl#667", "NVIDIA/nccl#606", "NVIDIA/nccl-tests#256",
				"NCCL user guide (troubleshooting, PCI Access Control Services)"},
		}, acsRedirect},
		{Check{
			ID: "RL024", Title: "ACS override patch is in use",
			Severity: Warning,
			Summary:  "The command line has pcie_acs_override.",
			Reads:    []string{"/proc/cmdline"},
			Means: "The parameter belongs to a patch that the kernel never took. It makes the kernel believe that " +
				"ports without ACS have it, so that " +
				"groups look split. The hardware has not changed: devices of one real group can still reach each " +
				"other's memory past the IOMMU. " +
				"A tenant with one of them can read and write what belongs to another tenant or to the host. On a " +
				"kernel without the patch it " +
				"does nothing.",
			Fix: "Take it off the command line and use another slot, or give the whole group to one tenant. Keep " +
				"it only where all tenants trust each other.",
			Sources: []string{"clearcontainers/runtime#810"},
		}, acsOverride},
		{Check{
			ID: "RL025", Title: "firmware keeps memory of the device for itself",
			Severity: Error, Also: []Severity{Warning},
			Summary: "The IOMMU group of a card or drive has a direct (1:1) mapping that the firmware asked for. An " +
				"error when the device is on vfio or given to a tenant.",
			Reads: []string{"/sys/kernel/iommu_groups/*/reserved_regions"},
			Means: "Management firmware (iLO on HPE ProLiant, and others) reads a device's memory on its own and " +
				"asks the kernel to keep a 1:1 mapping " +
				"(Intel: RMRR). Such a device cannot be given away: `Firmware has requested this device have a 1:1 " +
				"IOMMU mapping`, or error 22 when the " +
				"group is added to a container. Regions of type direct-relaxable, as USB and graphics have, do no " +
				"harm and are not counted.",
			Fix: "Look for the vendor's setting that takes the device out of shared memory reporting (HPE: `conrep`, " +
				"RMRDS per slot). Or choose " +
				"another slot or device. Kernels patched to ignore RMRR risk that firmware overwrites memory of " +
				"the guest.",
			Sources: []string{"AltraMayor/gatekeeper#718", "Documentation/ABI/testing/sysfs-kernel-iommu_groups"},
		}, reservedRegions},
	}
}

func iommuOff(v *view) []Finding {
	if v.IOMMU.Enabled == nil || *v.IOMMU.Enabled {
		return nil
	}
	read := at("/sys/class/iommu", "empty")
	f := Finding{Severity: Info, Subject: "host",
		Consequence: "no device can be given to a virtual machine",
		Fix:         "turn on VT-d, AMD-Vi or SMMU in the firmware (and intel_iommu=on on Intel), then reboot"}
	var wanted, forbidden []param
	for _, p := range v.params {
		switch p.name {
		case "intel_iommu", "amd_iommu", "iommu":
			switch first, _, _ := strings.Cut(p.value, ","); first {
			case "off":
				forbidden = append(forbidden, p)
			case "on", "pt", "force":
				wanted = append(wanted, p)
			}
		}
	}
	switch {
	case len(forbidden) > 0:
		read = all(read, cmdlineIs(forbidden...))
		f.Fix = "take " + forbidden[0].String() + " off the kernel command line and reboot"
		if v.virtual {
			return nil // asked for, and a guest seldom has one to turn off
		}
		f.Severity = v.cardsToGive()
	case len(wanted) > 0:
		f.Severity = Error
		read = all(read, cmdlineIs(wanted...))
		f.Consequence += ", although the command line asks for the IOMMU"
	case v.virtual:
		return nil
	default:
		f.Severity = v.cardsToGive()
	}
	f.Evidence = read
	return []Finding{f}
}

// cardsToGive is Warning where there is a card that one would give to a virtual machine.
func (v *view) cardsToGive() Severity {
	if len(v.gpus) > 0 || len(v.fabric) > 0 {
		return Warning
	}
	return Info
}

// endpoints returns the members of a group that are not bridges. A member that is not among the
// functions stays: it is an endpoint as far as is known.
func (v *view) endpoints(g *topology.IOMMUGroup) []topology.PCIAddr {
	var out []topology.PCIAddr
	for _, a := range g.Devices {
		if d := v.tree.Device(a); d == nil || !d.IsBridge() && !isHostBridge(d) {
			out = append(out, a)
		}
	}
	return out
}

func isHostBridge(d *topology.PCIDevice) bool {
	return d.Class != nil && d.Class.Base() == topology.ClassBridge
}

// groupPath is where the members of a group are read.
func groupPath(g *topology.IOMMUGroup) string {
	return fmt.Sprintf("/sys/kernel/iommu_groups/%d/devices", g.ID)
}

func sharedGroup(v *view) []Finding {
	var out []Finding
	for i := range v.IOMMU.Groups {
		g := &v.IOMMU.Groups[i]
		members := v.endpoints(g)
		var cards, ordinary []topology.PCIAddr
		for _, a := range members {
			d := v.tree.Device(a)
			alone := !slices.ContainsFunc(members, func(b topology.PCIAddr) bool { return !v.related(a, b) })
			switch {
			case alone || d == nil || d.Address.Function != 0:
			case v.isCard(a) || v.standIn(a):
				cards = append(cards, a)
			case d.Class != nil && (d.Class.Sub() == subEthernet || d.Class.Sub() == subNVMe):
				ordinary = append(ordinary, a)
			}
		}
		severity, wanted := Warning, cards
		if len(cards) == 0 {
			severity, wanted = Info, ordinary
		}
		if len(wanted) == 0 || v.virtual && !v.emulated {
			continue
		}
		out = append(out, Finding{Severity: severity, Subject: join(wanted),
			Evidence: at(groupPath(g), words(members)),
			Consequence: fmt.Sprintf("group %d goes to one virtual machine whole: %s cannot be given away alone", g.ID,
				v.describe(wanted[0])),
			Fix: "try a slot that is wired to the processor, or look for ACS in the firmware; otherwise give " +
				"all devices of the group to one machine"})
	}
	return out
}

// related reports whether two functions always go together: functions of one device, as a GPU and
// its audio. Virtual functions are given away one by one, so each is a device of its own.
func (v *view) related(a, b topology.PCIAddr) bool {
	if a == b {
		return true
	}
	da, db := v.tree.Device(a), v.tree.Device(b)
	if da != nil && da.PF != nil || db != nil && db.PF != nil {
		return false
	}
	return a.SameDevice(b)
}

// words writes addresses as evidence, at most a dozen.
func words(list []topology.PCIAddr) string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = a.String()
	}
	return few(out, 12, " ")
}

func notViable(v *view) []Finding {
	var out []Finding
	for i := range v.IOMMU.Groups {
		g := &v.IOMMU.Groups[i]
		var given, held []topology.PCIAddr
		var facts []string
		for _, a := range v.endpoints(g) {
			d := v.tree.Device(a)
			switch {
			case d == nil || d.Driver == "" || d.Driver == "pci-stub":
			case isVFIO(d.Driver):
				given = append(given, a)
				facts = append(facts, at(pci(a), driverFact(d)))
			default:
				held = append(held, a)
				facts = append(facts, at(pci(a), driverFact(d)))
			}
		}
		if len(given) == 0 || len(held) == 0 {
			continue
		}
		out = append(out, Finding{Severity: Error, Subject: join(held),
			Evidence: all(at(groupPath(g), words(g.Devices)), few(facts, 6, "; ")),
			Consequence: fmt.Sprintf("a virtual machine with %s does not start: group %d is not viable", given[0],
				g.ID),
			Fix: fmt.Sprintf("bind %s to vfio-pci as well, or take %s off it", join(held), join(given))})
	}
	return out
}

func acsOverride(v *view) []Finding {
	p, ok := v.asked("pcie_acs_override")
	if !ok {
		return nil
	}
	return []Finding{{Severity: Warning, Subject: "host", Evidence: cmdlineIs(p),
		Consequence: "IOMMU groups are split on paper only: a tenant's device may reach memory of the host or of " +
			"another tenant",
		Fix: "take it off the command line; use another slot or give whole groups away"}}
}

func reservedRegions(v *view) []Finding {
	var out []Finding
	for i := range v.IOMMU.Groups {
		g := &v.IOMMU.Groups[i]
		var direct []string
		for _, line := range g.Reserved {
			// "0x00000000bdf6f000 0x00000000bdf7efff direct"; direct-relaxable does no harm.
			if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] == "direct" {
				direct = append(direct, strings.Join(f, " "))
			}
		}
		if len(direct) == 0 {
			continue
		}
		severity := Warning
		var devices []topology.PCIAddr
		for _, a := range v.endpoints(g) {
			d := v.tree.Device(a)
			if d == nil || !v.isCard(a) && !isVFIO(d.Driver) &&
				(d.Class == nil || d.Class.Base() != topology.ClassStorage) {
				continue
			}
			devices = append(devices, a)
			if isVFIO(d.Driver) || len(v.holders(a)) > 0 {
				severity = Error
			}
		}
		if len(devices) == 0 {
			continue
		}
		out = append(out, Finding{Severity: severity, Subject: join(devices),
			Evidence: at(fmt.Sprintf("/sys/kernel/iommu_groups/%d/reserved_regions", g.ID), few(direct, 3, "; ")),
			Consequence: "the kernel refuses to give these devices to a virtual machine: the firmware wants a " +
				"1:1 mapping",
			Fix: "look for the vendor's setting that ends shared memory reporting for the slot, or use " +
				"another slot or device"})
	}
	return out
}
