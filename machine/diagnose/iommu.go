package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// iommuOff fires only if the kernel could have shown an IOMMU. It is an error if the command line asks for one, else a
// warning, or a note without a card to give away. In a virtual machine it is silent otherwise, as the hypervisor
// decides.
func iommuOff(v *view, add func(finding.Finding)) {
	if v.IOMMU.Enabled == nil || *v.IOMMU.Enabled {
		return
	}
	read := at("/sys/class/iommu", "empty")
	f := finding.Finding{Severity: finding.Info, Subject: "host", Consequence: "no device can be given to a virtual " +
		"machine", Fix: "turn on VT-d, AMD-Vi or SMMU in the firmware (and intel_iommu=on on Intel), then reboot"}
	var wanted, forbidden []param
	for _, p := range v.params {
		switch p.name {
		case "intel_iommu", "amd_iommu", "iommu":
			// on or off conventionally comes first, as in intel_iommu=on,sm_on.
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
			return // on purpose
		}
		f.Severity = v.cardsToGive()
	case len(wanted) > 0:
		f.Severity = finding.Error
		read = all(read, cmdlineIs(wanted...))
		f.Consequence += ", although the command line asks for the IOMMU"
	case v.virtual:
		return
	default:
		f.Severity = v.cardsToGive()
	}
	f.Evidence = read
	add(f)
}

// cardsToGive returns Warning if a virtual machine could use a card, else Info.
func (v *view) cardsToGive() finding.Severity {
	if len(v.gpus) > 0 || len(v.fabric) > 0 {
		return finding.Warning
	}
	return finding.Info
}

// endpoints leaves out bridges. Members without a listed function may be endpoints.
func (v *view) endpoints(g *topology.IOMMUGroup) []topology.PCIAddr {
	return lists.Filter(g.Devices, func(a topology.PCIAddr) bool {
		d := v.tree.Device(a)
		return d == nil || !d.IsBridge() && !isHostBridge(d)
	})
}

// isHostBridge reports whether d is in the bridge class, which is never given to a virtual machine.
func isHostBridge(d *topology.PCIDevice) bool {
	return d.Class != nil && d.Class.Base() == topology.ClassBridge
}

func groupPath(g *topology.IOMMUGroup) string {
	return fmt.Sprintf("/sys/kernel/iommu_groups/%d/devices", g.ID)
}

// sharedGroup finds cards that cannot be given away alone. A GPU goes with its audio anyway; for NICs and drives it is
// a note.
//
// In a virtual machine the groups are the hypervisor's, so the rule is silent, except on hosts that rackless emulates.
func sharedGroup(v *view, g *topology.IOMMUGroup, add func(finding.Finding)) {
	members := v.endpoints(g)
	var cards, ordinary []topology.PCIAddr
	for _, a := range members {
		d := v.tree.Device(a)
		alone := !slices.ContainsFunc(members, func(b topology.PCIAddr) bool { return !v.related(a, b) })
		switch {
		case alone || d == nil || d.Address.Function != 0:
		case v.isCard(a) || v.standIn(a):
			cards = append(cards, a)
		case d.Class != nil && (d.Class.Sub() == topology.SubEthernet || d.Class.Sub() == subNVMe):
			ordinary = append(ordinary, a)
		}
	}
	severity, wanted := finding.Warning, cards
	if len(cards) == 0 {
		severity, wanted = finding.Info, ordinary
	}
	if len(wanted) == 0 || v.virtual && !v.emulated {
		return
	}
	add(finding.Finding{Severity: severity, Subject: join(wanted),
		Evidence: at(groupPath(g), addresses(members)),
		Consequence: fmt.Sprintf("group %d goes to one virtual machine whole: %s cannot be given away alone", g.ID,
			v.describe(wanted[0]))})
}

// listedGroups summarizes the groups if the text is little more than a listing of them, which may be truncated. Other
// machines get a finding for each group. It skips texts of virsh and single devices.
func listedGroups(v *view, add func(finding.Finding)) {
	if v.fromFiles() || len(v.IOMMU.Groups) == 0 || strings.HasPrefix(v.Provenance.Tool, "virsh") ||
		len(v.PCI) < 2 && !strings.Contains(v.Provenance.Tool, "IOMMU groups") ||
		slices.ContainsFunc(v.PCI, func(d topology.PCIDevice) bool { return d.Link != nil || len(d.BARs) > 0 }) {
		return
	}
	var evidence, shared []string
	alone, unnamed := 0, false
	for i := range v.IOMMU.Groups {
		g := &v.IOMMU.Groups[i]
		members := v.endpoints(g)
		if len(members) == 0 {
			continue
		}
		if !slices.ContainsFunc(members, func(a topology.PCIAddr) bool { return !v.related(a, members[0]) }) {
			alone++
			continue
		}
		for _, a := range members {
			d := v.tree.Device(a)
			unnamed = unnamed || d == nil || d.Class == nil
		}
		shared = append(shared, fmt.Sprintf("group %d (%s)", g.ID, addresses(members)))
		evidence = append(evidence, at(groupPath(g), addresses(g.Devices)))
	}
	var consequences []string
	if len(shared) > 0 {
		consequences = append(consequences,
			"the devices of a group go to one virtual machine together: "+words.Few(shared, 6, ", "))
	}
	if alone > 0 {
		consequences = append(consequences, words.Count(alone, "device")+" can be given away alone")
	}
	f := finding.Finding{Subject: "host", Evidence: words.Few(evidence, 6, "; "),
		Consequence: strings.Join(consequences, "; "),
		Fix:         "give all devices of a group to one machine, or try another slot"}
	switch {
	case len(shared) == 0:
		f.Title = "no IOMMU group of the list is shared"
		f.Evidence = at("/sys/kernel/iommu_groups", words.Count(len(v.IOMMU.Groups), "group"))
		f.Consequence = cmp.Or(f.Consequence, "there are only bridges in the groups")
		f.Fix = "none is needed: bind what you give away to vfio-pci"
	case unnamed:
		f.Fix += "; bridges do not count: lspci -nn tells which these are"
	}
	add(f)
}

// related reports whether two functions are of one device. Virtual functions are given away one by one.
func (v *view) related(a, b topology.PCIAddr) bool {
	if a == b {
		return true
	}
	if da, db := v.tree.Device(a), v.tree.Device(b); da != nil && da.PF != nil || db != nil && db.PF != nil {
		return false
	}
	return a.SameDevice(b)
}

func addresses(list []topology.PCIAddr) string { return words.Few(list, 12, " ") }

// owners returns functions on a driver for virtual machines and on a host driver, with the evidence. VFIO accepts a
// group with a member on pci-stub.
func (v *view) owners(functions []topology.PCIAddr) (given, held []topology.PCIAddr, facts []string) {
	for _, a := range functions {
		d := v.tree.Device(a)
		// VFIO also accepts a function without a driver.
		if d == nil || d.Driver == "" || d.Driver == "pci-stub" {
			continue
		}
		if topology.IsVFIO(d.Driver) {
			given = append(given, a)
		} else {
			held = append(held, a)
		}
		facts = append(facts, at(pci(a), driverFact(d)))
	}
	return given, held, facts
}

// notViable finds groups that VFIO would refuse, because the host uses a part.
func notViable(v *view, g *topology.IOMMUGroup, add func(finding.Finding)) {
	given, held, facts := v.owners(v.endpoints(g))
	if len(given) == 0 || len(held) == 0 {
		return
	}
	add(finding.Finding{Subject: join(held),
		Evidence: all(at(groupPath(g), addresses(g.Devices)), words.Few(facts, 6, "; ")),
		Consequence: fmt.Sprintf("a virtual machine with %s does not start: group %d is not viable", given[0],
			g.ID),
		Fix: fmt.Sprintf("bind %s to vfio-pci as well, or take %s off it", join(held), join(given))})
}

// acsOverride finds a parameter of a patch that some distributions add. It makes the kernel assume an isolation that
// the hardware lacks.
func acsOverride(v *view, add func(finding.Finding)) {
	if p, ok := v.asked("pcie_acs_override"); ok {
		add(finding.Finding{Subject: "host", Evidence: cmdlineIs(p)})
	}
}

// reservedRegions finds devices whose firmware requires identity-mapped memory (RMRR on Intel, IVMD on AMD), such as
// BMCs and RAID controllers. VFIO refuses the group, because the guest could write to that memory. It is an error for
// devices given away already.
func reservedRegions(v *view, g *topology.IOMMUGroup, add func(finding.Finding)) {
	var direct []string
	for _, line := range g.Reserved {
		// "0x00000000bdf6f000 0x00000000bdf7efff direct"; direct-relaxable is harmless.
		if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] == "direct" {
			direct = append(direct, strings.Join(f, " "))
		}
	}
	if len(direct) == 0 {
		return
	}
	severity := finding.Warning
	var devices []topology.PCIAddr
	for _, a := range v.endpoints(g) {
		d := v.tree.Device(a)
		if d == nil || !v.isCard(a) && !topology.IsVFIO(d.Driver) &&
			(d.Class == nil || d.Class.Base() != topology.ClassStorage) {
			continue
		}
		devices = append(devices, a)
		if topology.IsVFIO(d.Driver) || len(v.holders(a)) > 0 {
			severity = finding.Error
		}
	}
	if len(devices) == 0 {
		return
	}
	add(finding.Finding{Severity: severity, Subject: join(devices),
		Evidence: at(fmt.Sprintf("/sys/kernel/iommu_groups/%d/reserved_regions", g.ID), words.Few(direct, 3, "; "))})
}
