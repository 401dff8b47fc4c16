package build

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

type hostUse struct {
	id   string // for messages
	node *int   // nil if unknown
	text string // "disk nvme0n1 (/)"
}

func (b *problemBuilder) findUses() {
	b.uses, b.blocked = map[topology.PCIAddr]string{}, map[topology.PCIAddr]string{}
	b.holders, b.heldVFs = map[topology.PCIAddr]string{}, map[topology.PCIAddr]int{}
	block := func(a topology.PCIAddr, why string) {
		setOnce(b.uses, a, why)
		setOnce(b.blocked, a, why)
	}
	for i := range b.host.PCI {
		d := &b.host.PCI[i]
		if b.withoutIOMMU() && (d.IsGPU() || d.IsNIC()) {
			block(d.Address, "this is a virtual machine without an IOMMU, which its hypervisor would have to give it, "+
				"and VFIO gives no device away without one")
		}
	}
	for _, d := range b.host.Storage {
		if len(d.Mounts) == 0 {
			continue
		}
		id := "disk " + words.Plain(d.Name)
		text := id + " (" + words.Plain(strings.Join(d.Mounts, " ")) + ")"
		if d.PCI != nil {
			setOnce(b.uses, *d.PCI, "it holds "+text)
		}
		b.hostUses = append(b.hostUses, hostUse{id, b.nodeAt(d.PCI, d.NUMANode), text})
	}
	b.findRoutes()
	for i := range b.tenants {
		name := tenantName(&b.tenants[i])
		for _, d := range b.tenants[i].Devices {
			if d.Virtual { // that many are unavailable, and the NIC stays
				setOnce(b.uses, d.PCI, "VM "+name+" holds a virtual function of it")
				b.heldVFs[d.PCI]++
				continue
			}
			block(d.PCI, "VM "+name+" holds it")
			setOnce(b.holders, d.PCI, name)
		}
	}
	for i := range b.host.PCI {
		if d := &b.host.PCI[i]; d.Dead {
			block(d.Address, "it does not answer: every read gives ones")
		}
	}
	b.findScreen()
	b.findVirtualUses()
}

// withoutIOMMU is true for a virtual machine, whose own settings cannot turn one on.
func (b *problemBuilder) withoutIOMMU() bool {
	on := b.host.IOMMU.Enabled
	return on != nil && !*on && b.host.IsVirtual() && !b.host.Provenance.Emulated
}

func (b *problemBuilder) nodeAt(a *topology.PCIAddr, own *int) *int {
	if a != nil {
		if f := b.tree.Device(*a); f != nil {
			return cmp.Or(own, f.NUMANode)
		}
	}
	return own
}

func setOnce[K comparable, V any](m map[K]V, key K, v V) {
	if _, known := m[key]; !known {
		m[key] = v
	}
}

// findVirtualUses keeps physical functions: without their driver, the virtual ones would vanish.
func (b *problemBuilder) findVirtualUses() {
	b.virtual = map[topology.PCIAddr][]vfFunction{}
	add := func(pf topology.PCIAddr, s *topology.SRIOV) {
		if len(b.virtual[pf]) == 0 {
			b.virtual[pf] = virtualFunctions(pf, s)
		}
	}
	for _, n := range b.host.NICs {
		if n.Address != nil {
			add(*n.Address, n.SRIOV)
		}
	}
	for _, d := range b.host.PCI {
		add(d.Address, d.SRIOV)
	}
	// Functions missing from the list are numbered by address, in the kernel's order.
	orphans := map[topology.PCIAddr][]topology.PCIAddr{}
	for _, d := range b.host.PCI {
		if d.PF != nil && len(b.virtual[*d.PF]) == 0 {
			orphans[*d.PF] = append(orphans[*d.PF], d.Address)
		}
	}
	for pf, list := range orphans {
		slices.SortFunc(list, topology.PCIAddr.Compare)
		for index, a := range list[:min(len(list), MaxNICVFs)] {
			b.virtual[pf] = append(b.virtual[pf], vfFunction{index, a})
		}
	}
	b.virtualUses = map[topology.PCIAddr]string{}
	for pf, list := range b.virtual {
		for _, vf := range list {
			if why, ok := b.uses[vf.addr]; ok {
				b.virtualUses[pf] = fmt.Sprintf("of its virtual function %d (%s): %s", vf.index, vf.addr, why)
				break
			}
		}
	}
}

func (b *problemBuilder) findRoutes() {
	for _, r := range b.host.Routes {
		text := "the default route (" + words.Plain(r.Netdev) + ")"
		behind := map[topology.PCIAddr]*int{}
		for _, s := range r.PCI {
			if a, err := topology.ParsePCIAddr(s); err == nil {
				behind[a] = nil
			}
		}
		through := b.netdevsBehind(r.Netdev)
		carries := func(name string) bool { return slices.Contains(through, name) }
		member := func(p topology.Netdev) bool { return carries(p.Name) || p.Master != "" && p.Master == r.Netdev }
		for _, n := range b.host.NICs {
			if n.Address == nil {
				continue
			}
			_, seen := behind[*n.Address]
			if seen || slices.ContainsFunc(n.Netdevs, carries) || slices.ContainsFunc(n.Ports, member) {
				behind[*n.Address] = n.NUMANode
			}
		}
		for _, a := range slices.SortedFunc(maps.Keys(behind), topology.PCIAddr.Compare) {
			setOnce(b.uses, a, "it carries "+text)
			b.hostUses = append(b.hostUses, hostUse{a.String(), b.nodeAt(&a, behind[a]), text})
		}
	}
}

// netdevsBehind returns netdev and, for a bond, its members. Bridges are found by the master of a port.
func (b *problemBuilder) netdevsBehind(netdev string) []string {
	if netdev == "" {
		return nil
	}
	behind := []string{netdev}
	if bond := b.host.Bond(netdev); bond != nil {
		behind = append(behind, bond.Members...)
	}
	return behind
}

// findScreen takes the function of the firmware's messages, if a monitor is connected or it is the only display
// function.
func (b *problemBuilder) findScreen() {
	screens, boot := b.host.Screens()
	if boot != nil && boot.Driver != vfioPCI {
		if g := b.host.GPU(boot.Address); g != nil && g.ConnectedMon != nil && *g.ConnectedMon {
			setOnce(b.uses, boot.Address, "the host's console is on it, and a monitor is connected")
		}
	}
	if len(screens) == 1 && screens[0] == boot && boot.Driver != vfioPCI {
		setOnce(b.uses, boot.Address, "it is the only screen of the host")
	}
	if boot == nil && len(screens) == 1 && screens[0].BootVGA == nil {
		b.noteScreen(screens[0], "is the only screen of the host, as far as is known")
	} else if boot != nil && b.uses[boot.Address] == "" {
		b.noteScreen(boot, "has the console of the host (boot_vga)")
	}
}

func (b *problemBuilder) noteScreen(d *topology.PCIDevice, what string) {
	g := b.host.GPU(d.Address)
	if d.Driver == vfioPCI || g == nil || g.Kind == topology.GPUDisplay || !b.wantsDevices(plan.KindGPU) {
		return
	}
	b.note("%s %s: a lab node that gets it takes the console along. Log in over the network or a serial console "+
		"(console=ttyS0), or make another graphics card the primary one in the firmware", d.Address, what)
}

const vfioPCI = "vfio-pci"
