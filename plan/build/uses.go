package build

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// A hostUse is a device that the host itself lives on.
type hostUse struct {
	id   string // of the function or disk, for messages
	node *int   // its NUMA node; nil where it is not known
	text string // "disk nvme0n1 (/)"
}

// findUses finds the PCI functions that must stay with the host, or with a tenant, and what for. Of
// several reasons the first found counts.
func (b *problemBuilder) findUses() {
	b.uses = map[topology.PCIAddr]string{}
	use := func(a topology.PCIAddr, why string) {
		if _, known := b.uses[a]; !known {
			b.uses[a] = why
		}
	}
	for i := range b.host.Storage {
		d := &b.host.Storage[i]
		if len(d.Mounts) == 0 {
			continue
		}
		text := "disk " + words.Plain(d.Name) + " (" + words.Plain(strings.Join(d.Mounts, " ")) + ")"
		node := d.NUMANode
		if d.PCI != nil {
			use(*d.PCI, "it holds "+text)
			if f := b.tree.Device(*d.PCI); f != nil {
				node = cmp.Or(node, f.NUMANode)
			}
		}
		b.hostUses = append(b.hostUses, hostUse{"disk " + words.Plain(d.Name), node, text})
	}
	b.findRoutes(use)
	b.blocked, b.holders = map[topology.PCIAddr]string{}, map[topology.PCIAddr]string{}
	block := func(a topology.PCIAddr, why string) {
		use(a, why)
		if _, known := b.blocked[a]; !known {
			b.blocked[a] = why
		}
	}
	for i := range b.tenants {
		t := &b.tenants[i]
		for _, d := range t.Devices {
			block(d.PCI, "tenant "+tenantName(t)+" holds it")
			if _, known := b.holders[d.PCI]; !known {
				b.holders[d.PCI] = tenantName(t)
			}
		}
	}
	for i := range b.host.PCI {
		if d := &b.host.PCI[i]; d.Dead {
			block(d.Address, "it does not answer: every read gives ones")
		}
	}
	b.findScreen(use)
	b.findVirtualUses()
}

// findVirtualUses finds the physical functions whose virtual ones are needed.
func (b *problemBuilder) findVirtualUses() {
	b.virtual = map[topology.PCIAddr][]vfFunction{}
	add := func(pf topology.PCIAddr, s *topology.SRIOV) {
		if len(b.virtual[pf]) == 0 {
			b.virtual[pf] = virtualFunctions(pf, s)
		}
	}
	for i := range b.host.NICs {
		if n := &b.host.NICs[i]; n.Address != nil {
			add(*n.Address, n.SRIOV)
		}
	}
	for i := range b.host.PCI {
		add(b.host.PCI[i].Address, b.host.PCI[i].SRIOV)
	}
	// Those that only their own side tells of are numbered by address, as the kernel makes them.
	orphans := map[topology.PCIAddr][]topology.PCIAddr{}
	for i := range b.host.PCI {
		if d := &b.host.PCI[i]; d.PF != nil && len(b.virtual[*d.PF]) == 0 {
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

// findRoutes finds the NICs of the default routes: those that the host's reader saw behind them,
// and those whose network device is the route's or is a member of it.
func (b *problemBuilder) findRoutes(use func(topology.PCIAddr, string)) {
	for _, r := range b.host.Routes {
		text := "the default route (" + words.Plain(r.Netdev) + ")"
		behind := map[topology.PCIAddr]bool{}
		for _, s := range r.PCI {
			if a, err := topology.ParsePCIAddr(s); err == nil {
				behind[a] = true
			}
		}
		through := b.netdevsBehind(r.Netdev)
		for i := range b.host.NICs {
			n := &b.host.NICs[i]
			if n.Address != nil && (slices.ContainsFunc(n.Netdevs, func(name string) bool { return through[name] }) ||
				slices.ContainsFunc(n.Ports, func(p topology.Netdev) bool {
					return through[p.Name] || p.Master != "" && p.Master == r.Netdev
				})) {
				behind[*n.Address] = true
			}
		}
		var functions []topology.PCIAddr
		for a := range behind {
			functions = append(functions, a)
		}
		slices.SortFunc(functions, topology.PCIAddr.Compare)
		for _, a := range functions {
			use(a, "it carries "+text)
			u := hostUse{id: a.String(), text: text}
			if f := b.tree.Device(a); f != nil {
				u.node = f.NUMANode
			}
			for i := range b.host.NICs {
				if n := &b.host.NICs[i]; n.Address != nil && *n.Address == a {
					u.node = cmp.Or(n.NUMANode, u.node)
				}
			}
			b.hostUses = append(b.hostUses, u)
		}
	}
}

// netdevsBehind returns the network devices that what goes through netdev may go through: itself,
// and where it is a bond its members.
func (b *problemBuilder) netdevsBehind(netdev string) map[string]bool {
	through := map[string]bool{}
	if netdev == "" {
		return through
	}
	through[netdev] = true
	for _, bond := range b.host.Bonds {
		if bond.Name != netdev {
			continue
		}
		for _, m := range bond.Members {
			through[m] = true
		}
	}
	return through
}

// findScreen finds the screen of the host: the function that the firmware shows its messages on,
// where a monitor is seen on it or where it is the only one. One that is bound to vfio-pci has been
// given up as a screen already.
func (b *problemBuilder) findScreen(use func(topology.PCIAddr, string)) {
	screens := 0
	var boot, only *topology.PCIDevice
	for i := range b.host.PCI {
		d := &b.host.PCI[i]
		if d.Class == nil || d.Class.Sub() != topology.SubVGA || d.PF != nil {
			continue
		}
		screens++
		only = d
		if d.BootVGA != nil && *d.BootVGA {
			boot = d
		}
	}
	const vfio = "vfio-pci"
	if boot != nil && boot.Driver != vfio {
		for i := range b.host.GPUs {
			g := &b.host.GPUs[i]
			if g.Address != nil && *g.Address == boot.Address && g.ConnectedMon != nil && *g.ConnectedMon {
				use(boot.Address, "the host's console is on it, and a monitor is connected")
			}
		}
	}
	if screens == 1 && only.Driver != vfio {
		switch {
		case only == boot:
			use(only.Address, "it is the only screen of the host")
		case only.BootVGA == nil && b.wantsDevices(plan.KindGPU):
			b.note("%s is the only screen of the host, as far as is known", only.Address)
		}
	}
}
