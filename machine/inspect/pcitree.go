package inspect

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/machine/inspect/pci"
	"github.com/rackless/rackless/machine/topology"
)

// A pciPlace has its place in the tree if the path shows that.
type pciPlace struct {
	addr   topology.PCIAddr
	dir    string            // by the shortest path
	parent *topology.PCIAddr // the bridge above
	root   string            // "" if the path does not show it
}

// pciPlaces looks below the root buses if the bus's list is empty.
func (r *reader) pciPlaces() []pciPlace {
	var places []pciPlace
	for _, name := range r.dir(pciDevices) {
		p := pciDevices + "/" + name
		addr, err := topology.ParsePCIAddr(name)
		if err != nil {
			r.unread(p, err.Error())
			continue
		}
		place := pciPlace{addr: addr, dir: p}
		if dir, ok := r.target(p); ok {
			place = placeOf(addr, p, dir)
		}
		places = append(places, place)
	}
	if len(places) == 0 {
		r.findRoots("sys/devices", 0, &places)
	}
	return places
}

// linked is lexical, so no directory above p may be a link.
func linked(p, target string) string {
	if !path.IsAbs(target) {
		target = path.Join("/", path.Dir(p), target)
	}
	return strings.TrimPrefix(path.Clean(target), "/")
}

// target is a path below the root.
func (r *reader) target(p string) (path string, ok bool) {
	target, ok := r.link(p)
	return linked(p, target), ok
}

// placeOf takes dir, the target of link.
func placeOf(addr topology.PCIAddr, link, dir string) pciPlace {
	place := pciPlace{addr: addr, dir: dir}
	elements := strings.Split(dir, "/")
	if last, err := topology.ParsePCIAddr(elements[len(elements)-1]); err != nil || last != addr || !fs.ValidPath(dir) {
		place.dir = link // an edited dump
		return place
	}
	for _, element := range slices.Backward(elements[:len(elements)-1]) {
		if isPCIRoot(element) {
			place.root = element
			break
		}
		// The nearest function above is the parent, unless a root bus is between them: Intel's VMD is a function with a
		// root bus, and a domain, of its own below it.
		if above, err := topology.ParsePCIAddr(element); err == nil && place.parent == nil {
			place.parent = &above
		}
	}
	return place
}

func isPCIRoot(name string) bool {
	bus, ok := strings.CutPrefix(name, "pci")
	if !ok {
		return false
	}
	_, err := topology.ParsePCIAddr(bus + ":00.0")
	return err == nil && strings.Count(bus, ":") == 1
}

// Root buses are usually in /sys/devices, and on virtual machines of Hyper-V five directories deeper.
const (
	maxRootDepth = 8
	maxBusDepth  = 256
)

// findRoots follows no links, because sysfs has loops of them.
func (r *reader) findRoots(dir string, depth int, places *[]pciPlace) {
	if depth > maxRootDepth {
		return
	}
	for _, name := range r.subdirs(dir) {
		switch p := dir + "/" + name; {
		case isPCIRoot(name):
			r.walkBus(p, 0, places)
		case depth == 0 && (name == "system" || name == "virtual"):
		default:
			r.findRoots(p, depth+1, places)
		}
	}
}

// walkBus takes a root bus or a function.
func (r *reader) walkBus(dir string, depth int, places *[]pciPlace) {
	if depth > maxBusDepth || r.ctx.Err() != nil {
		return
	}
	for _, name := range r.subdirs(dir) {
		p := dir + "/" + name
		if addr, err := topology.ParsePCIAddr(name); err == nil {
			*places = append(*places, placeOf(addr, p, p))
		} else if !isPCIRoot(name) {
			continue
		}
		r.walkBus(p, depth+1, places)
	}
}

// placeByBusNumbers finds the bridges above functions whose path shows no tree. The list is sorted by address.
//
// A bus that no bridge leads to counts as a root bus only if a function on it shows that: a tree without links often
// lacks the machine's bridges.
func placeByBusNumbers(found []topology.PCIDevice) {
	busOf := func(d *topology.PCIDevice) topology.PCIAddr {
		return topology.PCIAddr{Domain: d.Address.Domain, Bus: d.Address.Bus}
	}
	roots := map[topology.PCIAddr]bool{}
	all := make([]*topology.PCIDevice, len(found))
	for i := range found {
		d := &found[i]
		all[i] = d
		if d.Address.Bus == 0 || d.Bridge != nil && d.Bridge.Port == pci.PortRoot ||
			d.Class != nil && d.Class.Sub() == topology.SubHostBridge {
			roots[busOf(d)] = true
		}
	}
	pci.Place(all, func(d *topology.PCIDevice) bool { return roots[busOf(d)] })
}

// namePorts derives port types of bridges with unreadable capabilities (as for users other than root) from their place.
// A bridge on a root bus is a root port; below a root or downstream port only an upstream port has a bus of its own;
// and on a switch's bus there are downstream ports. The list is sorted by address.
func namePorts(found []topology.PCIDevice) {
	ports := map[topology.PCIAddr]string{}
	for i := range found {
		d := &found[i]
		if !d.IsBridge() || d.Class != nil && d.Class.Sub() != topology.SubPCIBridge {
			continue
		}
		if d.Bridge != nil && d.Bridge.Port == "" && d.Link != nil {
			switch {
			case d.Parent == nil && d.Root != "":
				d.Bridge.Port = pci.PortRoot
			case d.Parent != nil && (d.Driver != "" || !d.DriverKnown):
				// The kernel's port driver binds only to ports.
				switch ports[*d.Parent] {
				case pci.PortRoot, pci.PortDownstream:
					d.Bridge.Port = pci.PortUpstream
				case pci.PortUpstream:
					d.Bridge.Port = pci.PortDownstream
				}
			}
		}
		if d.Bridge != nil {
			ports[d.Address] = d.Bridge.Port
		}
	}
}

// numberVFs finds virtual functions without links. The list is sorted by address.
func numberVFs(found []topology.PCIDevice) {
	for i := range found {
		d := &found[i]
		if d.SRIOV == nil || len(d.SRIOV.VFs) > 0 {
			continue
		}
		for _, vf := range pci.VirtualFunctions(d.Address, d.SRIOV) {
			byAddress := func(d topology.PCIDevice, a topology.PCIAddr) int { return d.Address.Compare(a) }
			if _, there := slices.BinarySearchFunc(found, *vf.Address, byAddress); there {
				d.SRIOV.VFs = append(d.SRIOV.VFs, vf)
			}
		}
	}
}
