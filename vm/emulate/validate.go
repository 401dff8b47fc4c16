package emulate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rdma/connectx"
)

const (
	maxNodes = 16
	// maxCPUs is limited by 8-bit APIC identifiers; QEMU's emulated CPU has no x2APIC.
	maxCPUs = 255
	// memoryStep is a hugepage, so that none straddles two nodes.
	memoryStep = 2 * lab.MiB
	// minNodeMemory has room for a kernel's per-CPU data of the node.
	minNodeMemory = 128 * lab.MiB
	// minMemory was measured with Debian, systemd, libvirtd and two small nested nodes.
	minMemory = 1 * lab.GiB
	minDisk   = 4 * lab.GiB
	maxDisk   = 1 * lab.TiB
)

// namePattern is for names that become file names and parts of QEMU's options.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// maxName limits parts of socket paths.
const maxName = 24

// A fault is an error at a dotted path, such as "gpus[1].address".
type fault struct {
	path string
	what string
}

func faultf(path, format string, args ...any) *fault {
	return &fault{path, fmt.Sprintf(format, args...)}
}

func (p *Profile) check() *fault {
	// Each check relies on the earlier ones; for example, device places need the number of nodes.
	for _, f := range []func() *fault{p.checkBasics, p.checkCPUs, p.checkDistances, p.checkDevices, p.checkBuses,
		p.checkWires} {
		if f := f(); f != nil {
			return f
		}
	}
	return nil
}

func (p *Profile) checkBasics() *fault {
	switch {
	case p.Name == "":
		return faultf("", "no name: add a line such as \"name: my-server\"")
	case !namePattern.MatchString(p.Name) || len(p.Name) > maxName:
		return faultf("name", "name %q: want at most %d of the letters a-z, digits and hyphens", p.Name, maxName)
	case len(p.NUMANodes) == 0:
		return faultf("", "no NUMA nodes: add \"numa_nodes:\" with a line such as \"  - {cores: 4, memory: 2GiB}\" "+
			"below it")
	case len(p.NUMANodes) > maxNodes:
		return faultf("numa_nodes", "%d NUMA nodes: want at most %d", len(p.NUMANodes), maxNodes)
	case p.Packages < 1:
		return faultf("packages", "packages: want at least 1")
	case len(p.NUMANodes)%p.Packages != 0:
		return faultf("packages", "%d packages for %d NUMA nodes: QEMU gives every package the same number of nodes",
			p.Packages, len(p.NUMANodes))
	case p.ThreadsPerCore != 1 && p.ThreadsPerCore != 2:
		return faultf("threads_per_core", "threads_per_core %d: want 1 or 2", p.ThreadsPerCore)
	case p.Disk < minDisk || p.Disk > maxDisk:
		return faultf("disk", "disk %v: want %v to %v", p.Disk, minDisk, maxDisk)
	}
	return nil
}

func (p *Profile) checkCPUs() *fault {
	for i, n := range p.NUMANodes {
		at := fmt.Sprintf("numa_nodes[%d]", i)
		switch {
		case n.Cores < 1:
			return faultf(at+".cores", "cores %d: want at least 1", n.Cores)
		case n.Cores != p.NUMANodes[0].Cores:
			return faultf(at+".cores", "%d cores, and node 0 has %d: QEMU gives every node the same number", n.Cores,
				p.NUMANodes[0].Cores)
		case n.Memory < minNodeMemory || n.Memory%memoryStep != 0:
			return faultf(at+".memory", "memory %v: want a multiple of %v, at least %v", n.Memory, memoryStep,
				minNodeMemory)
		}
	}
	if n := p.CPUs(); n > maxCPUs {
		return faultf("numa_nodes", "%d CPUs: QEMU's emulated CPU allows %d", n, maxCPUs)
	}
	if err := p.checkMemory(p.Memory()); err != nil {
		return faultf("numa_nodes", "%v", err)
	}
	return nil
}

func (p *Profile) checkMemory(asked lab.Bytes) error {
	least := max(minMemory, minNodeMemory*lab.Bytes(len(p.NUMANodes)))
	for _, n := range p.NUMANodes {
		if n.Memory < minNodeMemory || p.Memory() < minMemory {
			return fmt.Errorf("%v of memory is too little for a host with %d NUMA nodes: want at least %v", asked,
				len(p.NUMANodes), least)
		}
	}
	return nil
}

// checkDistances checks the SLIT (ACPI, 5.2.17): 10 from a node to itself, more to others.
func (p *Profile) checkDistances() *fault {
	n := len(p.NUMANodes)
	if len(p.Distances) == 0 && n == 1 {
		return nil
	}
	if len(p.Distances) != n {
		return faultf("distances", "%d rows of distances for %d NUMA nodes", len(p.Distances), n)
	}
	for i, row := range p.Distances {
		at := fmt.Sprintf("distances[%d]", i)
		if len(row) != n {
			return faultf(at, "%d distances for %d NUMA nodes", len(row), n)
		}
		for j, d := range row {
			switch at := fmt.Sprintf("%s[%d]", at, j); {
			case i == j && d != 10:
				return faultf(at, "distance %d from node %d to itself: want 10", d, i)
			// 255 means unreachable.
			case i != j && (d <= 10 || d > 254):
				return faultf(at, "distance %d from node %d to node %d: want 11 to 254", d, i, j)
			}
		}
	}
	return nil
}

func (p *Profile) checkDevices() *fault {
	devices := p.devices()
	for _, d := range devices {
		if f := p.checkPlace(d, devices); f != nil {
			return f
		}
		f := (*fault)(nil)
		switch {
		case d.nic != nil:
			f = p.checkNIC(d)
		case d.gpu != nil:
			f = p.checkGPU(d)
		}
		if f != nil {
			return f
		}
	}
	return nil
}

// checkPlace also sets the NUMA node of a device behind a switch or bridge.
func (p *Profile) checkPlace(d device, all []device) *fault {
	a := d.address
	switch {
	case a == topology.PCIAddr{}:
		return faultf(d.path, "no address: add one such as \"41:00.0\"")
	case a.Domain != 0:
		return faultf(d.path+".address", "address %v: QEMU has only PCI domain 0000", a)
	case a.Function != 0:
		return faultf(d.path+".address", "address %v: want that of function 0", a)
	case d.up != nil:
		i := slices.IndexFunc(all, func(u device) bool {
			return u.address == *d.up && (u.sw != nil || u.bridge != nil)
		})
		if i < 0 {
			return faultf(d.path+".behind", "behind %v: no switch or bridge has that address", *d.up)
		}
		*d.node = *all[i].node
	case a.Device != 0:
		return faultf(d.path+".address", "address %v: alone below its root port a device has number 00", a)
	case *d.node < 0 || *d.node >= len(p.NUMANodes):
		return faultf(d.path+".numa_node", "NUMA node %d: want 0 to %d", *d.node, len(p.NUMANodes)-1)
	}
	return nil
}

// onBridge reports whether a device behind up is on a conventional PCI bus.
func (p *Profile) onBridge(up *topology.PCIAddr) bool {
	return up != nil && slices.ContainsFunc(p.Bridges, func(b Bridge) bool { return b.Address == *up })
}

// checkNIC also sets the number of ports.
func (p *Profile) checkNIC(d device) *fault {
	n := d.nic
	n.Ports = cmp.Or(n.Ports, 1)
	onBridge := p.onBridge(n.Behind)
	switch {
	case n.Model != "" && connectx.Rate(n.Model) == 0:
		return faultf(d.path+".model", "model %q: want %s, or leave it out for a card of Intel's", n.Model,
			words.Or(connectx.Models()))
	case n.Ports != 1 && n.Ports != 2:
		return faultf(d.path+".ports", "ports %d: want 1 or 2", n.Ports)
	case n.Model != "" && onBridge:
		return faultf(d.path+".model", "model %s: a conventional PCI bus has none: remove model", n.Model)
	case n.Model != "" && (n.VFs < 0 || n.functions() > maxFunctions):
		return faultf(d.path+".vfs", "vfs %d: want 0 to %d: all functions of a ConnectX are on one device", n.VFs,
			maxFunctions/n.Ports-1)
	case n.Model == "" && n.VFs != 0 && n.VFs != MaxVFs:
		return faultf(d.path+".vfs", "vfs %d: want 0, or %d, which is what QEMU's SR-IOV card has", n.VFs, MaxVFs)
	case n.VFs > 0 && onBridge:
		return faultf(d.path+".vfs", "vfs %d: a card on a conventional PCI bus has none: remove vfs", n.VFs)
	case n.Ports == 2 && n.VFs == 0 && n.Model == "":
		return faultf(d.path+".ports", "ports 2: QEMU's card with two ports is the one with virtual functions: "+
			"set vfs: %d", MaxVFs)
	case len(n.Wires) > n.Ports:
		return faultf(d.path+".wires", "%d wires in %d ports", len(n.Wires), n.Ports)
	}
	return nil
}

// checkBuses compares addresses with SeaBIOS's bus numbers: depth first, in the order of root complexes.
func (p *Profile) checkBuses() *fault {
	last, before := 0, "bus 00, that of the chipset"
	for _, r := range p.roots() {
		if first := int(r.address.Bus) - 1; first <= last {
			return faultf(p.pathOf(r.address), "address %v: its root port needs bus %02x, which is taken by %s",
				r.address, first, before)
		}
		if r.last > 0xff {
			return faultf(p.pathOf(r.address), "address %v: what is behind it needs buses up to %x, and ff is the last",
				r.address, r.last)
		}
		last, before = r.last, r.address.String()
		if (r.sw != nil || r.bridge != nil) && len(r.behind) == 0 {
			return faultf(p.pathOf(r.address), "nothing is behind %v: remove it, or say \"behind\" with a device",
				r.address)
		}
		for i, b := range r.behind {
			// Behind a switch on bus n, its ports are on n+1, and each has a bus from n+2 on. Behind a bridge, all
			// devices share n+1.
			a, bus := b.address, int(r.address.Bus)+2+i
			if r.bridge != nil {
				bus = int(r.address.Bus) + 1
			}
			switch {
			case int(a.Bus) != bus:
				return faultf(p.pathOf(a), "address %v: behind %v it will be on bus %02x", a, r.address, bus)
			case r.sw != nil && a.Device != 0:
				return faultf(p.pathOf(a), "address %v: alone below a port of a switch a device has number 00", a)
			case r.bridge != nil && a.Device == 0:
				return faultf(p.pathOf(a), "address %v: number 00 of a bridge's bus is its own: want 01 to 1f", a)
			case i > 0 && a == r.behind[i-1].address:
				return faultf(p.pathOf(a), "address %v is there twice", a)
			}
		}
	}
	return nil
}

func (p *Profile) pathOf(a topology.PCIAddr) string {
	for _, d := range slices.Backward(p.devices()) {
		if d.address == a {
			return d.path + ".address"
		}
	}
	return ""
}

// checkWires keeps ConnectX ports, wired in the emulating process, apart from others, wired by sockets in QEMU.
func (p *Profile) checkWires() *fault {
	ends := map[string][]string{} // paths, by name
	connectX := map[string]bool{}
	var names []string
	for i, n := range p.NICs {
		for j, w := range n.Wires {
			at := fmt.Sprintf("nics[%d].wires[%d]", i, j)
			if !namePattern.MatchString(w) || len(w) > maxName {
				return faultf(at, "wire %q: want at most %d of the letters a-z, digits and hyphens", w, maxName)
			}
			if len(ends[w]) == 0 {
				names = append(names, w)
			}
			ends[w] = append(ends[w], at)
			switch is := n.Model != ""; {
			case len(ends[w]) == 1:
				connectX[w] = is
			case connectX[w] != is:
				return faultf(at, "wire %s joins a ConnectX and another card: want ports of a kind", w)
			}
		}
	}
	for _, w := range names {
		if len(ends[w]) == 1 {
			return faultf(ends[w][0], "wire %s has one end: put it into a second port, or remove it", w)
		}
	}
	return nil
}

// checkHostName refuses above all "", whose directory would be that of all hosts.
func checkHostName(name string) error {
	if !namePattern.MatchString(name) || len(name) > maxName || strings.Contains(name, "/") {
		return fmt.Errorf("host %q: not a name of a host: want at most %d of the letters a-z, digits and hyphens", name,
			maxName)
	}
	return nil
}
