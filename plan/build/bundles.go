package build

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// maxBundle: a larger group holds most of a machine.
const maxBundle = 256

type functionSets map[topology.PCIAddr]topology.PCIAddr

func (s functionSets) root(a topology.PCIAddr) topology.PCIAddr {
	for {
		up, ok := s[a]
		if !ok || up == a {
			return a
		}
		if next, ok := s[up]; ok {
			s[a] = next
		}
		a = up
	}
}

// join represents a set by its lower address, so that the order of calls does not matter.
func (s functionSets) join(a, c topology.PCIAddr) {
	a, c = s.root(a), s.root(c)
	if c.Compare(a) < 0 {
		a, c = c, a
	}
	s[a], s[c] = a, a
}

// bundle joins devices that can only go together.
//
// The functions of a GPU's card share its reset and power. The functions of a NIC are separate NICs. The IOMMU cannot
// distinguish functions of one group: vfio requires that each is bound to it or has no driver
// (Documentation/driver-api/vfio.rst). Bridges stay with the host. So do virtual functions, which vanish when their
// physical function is given away.
func (b *problemBuilder) bundle() {
	sets := functionSets{}
	for i := range b.facts {
		for _, a := range b.facts[i].card {
			sets.join(b.facts[i].card[0], a)
		}
	}
	groups := b.iommuGroups()
	for _, g := range groups {
		for _, a := range g.functions {
			sets.join(g.functions[0], a)
		}
	}
	members := map[topology.PCIAddr][]topology.PCIAddr{}
	for _, a := range slices.SortedFunc(maps.Keys(sets), topology.PCIAddr.Compare) {
		root := sets.root(a)
		members[root] = append(members[root], a)
	}
	groupOf := map[topology.PCIAddr]int{}
	held := map[topology.PCIAddr]string{}
	for _, g := range groups {
		for _, a := range g.functions {
			groupOf[a], held[a] = g.id, g.keptBecause
		}
	}

	numbers := map[topology.PCIAddr]int{}
	next := 0
	for i := range b.p.Devices {
		d, f := &b.p.Devices[i], &b.facts[i]
		if f.addr == nil {
			d.Bundle = next
			next++
			d.Whole, d.Refused = f.refused == "", f.refused
			continue
		}
		root := sets.root(*f.addr)
		if _, known := numbers[root]; !known {
			numbers[root] = next
			next++
		}
		d.Bundle = numbers[root]
		all := members[root]
		if len(all) == 0 {
			all = f.card
		}
		d.Refused = cmp.Or(b.refusal(f, all, groupOf), held[*f.addr])
		if len(all) > maxBundle {
			all = f.card
		}
		d.Functions = functionNames(f, all)
		if id, ok := groupOf[*f.addr]; ok && len(all) > len(f.card) {
			d.Group = fmt.Sprintf("IOMMU group %d", id)
		}
		d.Tenant = b.holder(slices.Concat(f.card, all))
		d.Whole = d.Refused == ""
		if d.Whole && b.wantsDevices(d.Kind) {
			b.noteCompany(d, f, all, groupOf)
		}
	}
}

// functionNames has the device's own first, then others of its card.
func functionNames(f *deviceFacts, all []topology.PCIAddr) []string {
	var names []string
	for _, a := range slices.Concat(f.card, all) {
		names = lists.Add(names, a.String())
	}
	return names
}

// refusal returns the reason for which the device cannot be given away, or "". "it holds the root disk" comes before
// the group, because it is clearer.
func (b *problemBuilder) refusal(f *deviceFacts, all []topology.PCIAddr, groupOf map[topology.PCIAddr]int) string {
	if f.refused != "" {
		return f.refused
	}
	if len(all) > maxBundle {
		return fmt.Sprintf("it goes together with %d functions of its IOMMU group", len(all))
	}
	if why := cmp.Or(b.uses[*f.addr], b.virtualUses[*f.addr]); why != "" {
		return why
	}
	for _, a := range slices.Concat(f.card, all) {
		why := cmp.Or(b.uses[a], b.virtualUses[a])
		if why == "" {
			continue
		}
		tie := "it goes together with function " + a.String()
		own, grouped := groupOf[*f.addr]
		if other, ok := groupOf[a]; grouped && ok && own == other && !a.SameDevice(*f.addr) {
			tie = fmt.Sprintf("IOMMU group %d ties it to %s", own, a)
		}
		return tie + ", of which: " + why
	}
	return ""
}

func (b *problemBuilder) holder(functions []topology.PCIAddr) string {
	for _, a := range functions {
		if name := b.holders[a]; name != "" {
			return name
		}
		for _, vf := range b.virtual[a] {
			if name := b.holders[vf.addr]; name != "" {
				return name
			}
		}
	}
	return ""
}

// noteCompany announces the loss of a USB controller or a sound card.
func (b *problemBuilder) noteCompany(d *plan.Device, f *deviceFacts, all []topology.PCIAddr,
	groupOf map[topology.PCIAddr]int) {
	others := lists.Map(lists.Filter(all, func(a topology.PCIAddr) bool { return !slices.Contains(f.card, a) }),
		func(a topology.PCIAddr) string { return a.String() + b.whatIs(a) })
	if group, ok := groupOf[*f.addr]; ok && len(others) > 0 {
		b.note("IOMMU group %d: with %s go %s", group, d.ID, listText(others))
	}
	if f.member != "" && d.Kind == plan.KindNIC {
		b.note("NIC %s is a part of %s: the host loses it there when it is given away", d.ID, words.Plain(f.member))
	}
}

func (b *problemBuilder) whatIs(a topology.PCIAddr) string {
	if p := b.tree.Device(a); p != nil && p.ClassName != "" {
		return " (" + words.Plain(p.ClassName) + ")"
	}
	return ""
}

// An endpointGroup is an IOMMU group without its bridges and virtual functions.
type endpointGroup struct {
	id        int
	functions []topology.PCIAddr // sorted, at least one
	// a bridge with a driver other than pcieport's, or empty
	keptBecause string
}

// bridgeKeepsGroup returns the reason for which a bridge keeps its IOMMU group with the host, or "". The kernel refuses
// a group in which a function has a driver, except pcieport and drivers without DMA of their own (driver_managed_dma,
// since Linux 5.19). Older kernels checked fewer drivers.
func bridgeKeepsGroup(p *topology.PCIDevice) string {
	switch p.Driver {
	case "", vfioPCI, "pci-stub":
		return ""
	case "pcieport":
		if p.IsBridge() {
			return ""
		}
	}
	return fmt.Sprintf("its IOMMU group also has bridge %s, which driver %s uses: the kernel does not give such a "+
		"group away; another slot may help", p.Address, words.Plain(p.Driver))
}

// iommuGroups returns nothing if the IOMMU is off or the host does not tell.
func (b *problemBuilder) iommuGroups() []endpointGroup {
	wanted := b.wantsDevices(plan.KindGPU) || b.wantsDevices(plan.KindNIC) || b.wantsDevices(plan.KindVF)
	io := &b.host.IOMMU
	if io.Enabled != nil && !*io.Enabled {
		if wanted && !b.withoutIOMMU() {
			b.note("the IOMMU is off, and passthrough needs it: %s; which devices share a group can be told only "+
				"then: now the functions of a GPU are taken to go together, and the ports of a NIC not", b.iommuFix())
		}
		return nil
	}
	functions := map[int][]topology.PCIAddr{}
	grouped := map[topology.PCIAddr]bool{}
	held := map[int]string{}
	add := func(id int, a topology.PCIAddr) {
		if grouped[a] {
			return
		}
		grouped[a] = true
		p := b.tree.Device(a)
		if p != nil && (p.IsBridge() || p.Class != nil && p.Class.Base() == topology.ClassBridge) {
			held[id] = cmp.Or(held[id], bridgeKeepsGroup(p))
			return
		}
		if p != nil && p.PF != nil {
			return
		}
		functions[id] = append(functions[id], a)
	}
	for i := range b.host.PCI {
		if d := &b.host.PCI[i]; d.IOMMUGroup != nil {
			add(*d.IOMMUGroup, d.Address)
		}
	}
	for _, g := range io.Groups {
		for _, a := range g.Devices {
			add(g.ID, a)
		}
	}
	if len(grouped) == 0 && wanted && len(b.p.Devices) > 0 {
		b.note("the host does not tell its IOMMU groups: the functions of a GPU are taken to go together, and the " +
			"ports of a NIC not")
	}
	var groups []endpointGroup
	for _, id := range slices.Sorted(maps.Keys(functions)) {
		slices.SortFunc(functions[id], topology.PCIAddr.Compare)
		groups = append(groups, endpointGroup{id, functions[id], held[id]})
	}
	return groups
}

// iommuFix differs by vendor: the kernel uses AMD's IOMMU if the firmware reports it, but Intel's only on request
// (Documentation/admin-guide/kernel-parameters.txt: intel_iommu, amd_iommu).
func (b *problemBuilder) iommuFix() string {
	model := strings.ToLower(b.host.System.CPUModel)
	switch {
	case strings.Contains(model, "intel"):
		return "turn on VT-d in the firmware and boot with intel_iommu=on"
	case strings.Contains(model, "amd"):
		return "turn on the IOMMU (AMD-Vi) in the firmware"
	case b.host.System.Arch == "aarch64":
		return "turn on the SMMU in the firmware"
	}
	return "turn it on in the firmware (VT-d, AMD-Vi), and on Intel's processors boot with intel_iommu=on"
}
