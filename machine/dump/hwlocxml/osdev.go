package hwlocxml

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// Bits are as in version 3's osdev_type.
const (
	isStorage = 1 << iota
	isMemory
	isGPU
	isCoprocessor
	isNetwork
	isFabric // InfiniBand and other RDMA
	isDMA
)

// oldTypes has the numbers of versions 1 and 2.
var oldTypes = [...]int{isStorage, isGPU, isNetwork, isFabric, isDMA, isCoprocessor, isMemory}

// devices merges several objects of a device.
type devices struct {
	*parser
	addresses map[topology.PCIAddr]int
	nics      map[string]*topology.NIC
	gpus      map[string]*gpu
	order     []*gpu

	lastNear     *element // devices below one object are adjacent
	lastLocality locality
}

func (d *devices) osDevice(e *element, at slot) {
	name := e.Attr("name")
	text := e.Attr("osdev_type")
	v, err := strconv.ParseUint(text, 10, 8)
	if name == "" || err != nil {
		d.unread(e, "name %q with osdev_type %q: both are wanted, the type as a number", where.Clip(name),
			where.Clip(text))
		return
	}
	kind := int(v)
	if d.version < 3 {
		if kind >= len(oldTypes) {
			return // from a later release
		}
		kind = oldTypes[kind]
	}
	switch {
	case kind&isFabric != 0: // in version 3 also a network device
		d.rdma(e, name, d.nic(name, at))
	case kind&isNetwork != 0:
		d.netdev(e, name, d.nic(name, at))
	case kind&isStorage != 0:
		d.disk(e, name, at)
	case kind&(isGPU|isCoprocessor) != 0:
		d.gpuDevice(e, name, at)
	}
}

// nic returns the NIC of a function, or that name without one.
func (d *devices) nic(name string, at slot) *topology.NIC {
	id := name
	if at.function != nil {
		id, name = at.function.String(), ""
	} else if at.nameless != "" {
		id = at.nameless
	}
	n := d.nics[id]
	if n == nil {
		n = &topology.NIC{Address: at.function, Name: name}
		if at.function == nil && at.node != nil {
			n.NUMANode = new(*at.node)
		}
		d.nics[id] = n
	}
	return n
}

// netdev converts hwloc's Port, from 1, to the kernel's dev_port, from 0.
func (d *devices) netdev(e *element, name string, n *topology.NIC) {
	port := topology.Netdev{Name: name, MAC: infoOf(e, "Address")}
	if v, err := strconv.Atoi(infoOf(e, "Port")); err == nil && v > 0 {
		port.DevPort = new(v - 1)
	}
	n.Ports = append(n.Ports, port)
}

// portStates are from the InfiniBand Architecture Specification, PortInfo. sysfs has both: "4: ACTIVE".
var portStates = map[string]string{"1": "DOWN", "2": "INIT", "3": "ARMED", "4": "ACTIVE", "5": "ACTIVE_DEFER"}

// rdma reads infos PortPState, PortPLID, PortPGIDG for port P and index G.
func (d *devices) rdma(e *element, name string, n *topology.NIC) {
	device := topology.RDMADevice{Name: name, NodeGUID: infoOf(e, "NodeGUID")}
	for k := range e.All("info") {
		value := k.Attr("value")
		rest, ok := strings.CutPrefix(k.Attr("name"), "Port")
		end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if !ok || end <= 0 {
			continue
		}
		number, err := strconv.ParseUint(rest[:end], 10, 8)
		if err != nil || number == 0 {
			continue
		}
		port := portOf(&device, int(number))
		switch what := rest[end:]; {
		case what == "State":
			port.State = portStates[value]
		case what == "LID":
			// No LID: an Ethernet port, or one that the subnet manager has not seen.
			if lid, err := strconv.ParseUint(value, 0, 16); err == nil && lid > 0 {
				port.LID = new(int(lid))
			}
		case strings.HasPrefix(what, "GID"):
			if index, err := strconv.Atoi(what[len("GID"):]); err == nil && index >= 0 {
				port.GIDs = append(port.GIDs, topology.GID{Index: index, GID: value})
			}
		}
	}
	n.Devices = append(n.Devices, device)
}

func portOf(d *topology.RDMADevice, number int) *topology.RDMAPort {
	for i := range d.Ports {
		if d.Ports[i].Number == number {
			return &d.Ports[i]
		}
	}
	d.Ports = append(d.Ports, topology.RDMAPort{Number: number})
	return &d.Ports[len(d.Ports)-1]
}

// disk skips tapes, and DAX devices, which are memory.
func (d *devices) disk(e *element, name string, at slot) {
	if subtypeOf(e) == "Tape" || strings.HasPrefix(name, "dax") {
		return
	}
	disk := topology.Disk{Name: name, PCI: at.function, Model: infoOf(e, "Model")}
	if at.node != nil {
		disk.NUMANode = new(*at.node)
	}
	if text := infoOf(e, "Size"); text != "" {
		if size, ok := kibibytes(text); ok {
			disk.SizeBytes = &size
		} else {
			d.unread(e, "size %q is not a number of KiB", where.Clip(text))
		}
	}
	d.h.Storage = append(d.h.Storage, disk)
}

// A gpu may be described by several libraries.
type gpu struct {
	topology.GPU
	memory int // rank of the library of MemoryBytes
}

// libraries are in order of their accuracy on memory. OpenCL also lists processors.
var libraries = []string{"RSMI", "NVML", "CUDA", "LevelZero", "OpenCL"}

// gpuDevice adds a GPU. Without a PCI function it only reads the vendor's management library, because other libraries
// would add the same GPU again.
func (d *devices) gpuDevice(e *element, name string, at slot) {
	library := subtypeOf(e)
	rank := len(libraries)
	for i, l := range libraries {
		if l == library || strings.EqualFold(strings.TrimRight(name, "0123456789"), l) {
			library, rank = l, i
		}
	}
	isCard := strings.HasPrefix(name, "card") && strings.Trim(name[len("card"):], "0123456789") == ""
	if library == "OpenCL" && infoOf(e, "OpenCLDeviceType") != "GPU" || rank == len(libraries) && !isCard {
		return // a processor, a coprocessor (MIC), a render node, or an X display
	}
	id := name
	if at.function != nil {
		id = at.function.String()
	} else if library != "RSMI" && library != "NVML" {
		return
	}
	d.functions[e] = at.function
	g := d.gpus[id]
	if g == nil {
		g = &gpu{GPU: topology.GPU{Address: at.function}, memory: len(libraries)}
		if at.function == nil {
			g.Name = name
			if at.node != nil {
				g.NUMANode = new(*at.node)
			}
		}
		d.gpus[id] = g
		d.order = append(d.order, g)
	}
	if isCard {
		g.Name = name
		return
	}
	g.Vendor = cmp.Or(g.Vendor, infoOf(e, "GPUVendor"))
	g.Model = cmp.Or(g.Model, infoOf(e, "GPUModel"))
	g.UUID = cmp.Or(g.UUID, infoOf(e, "NVIDIAUUID"), infoOf(e, "AMDUUID"))
	// CUDA's and OpenCL's numbers depend on the environment.
	if library == "NVML" || library == "RSMI" {
		digits := name[len(strings.TrimRight(name, "0123456789")):]
		if v, err := strconv.Atoi(digits); err == nil {
			g.Index = &v
		}
	}
	if size := gpuMemory(e); size > 0 && rank < g.memory {
		g.MemoryBytes, g.memory = &size, rank
	}
}

// gpuMemory returns bytes, or 0 if unknown.
func gpuMemory(e *element) uint64 {
	for _, name := range []string{"RSMIVRAMSize", "CUDAGlobalMemorySize", "LevelZeroMemorySize",
		"OpenCLGlobalMemorySize"} {
		if size, ok := kibibytes(infoOf(e, name)); ok {
			return size
		}
	}
	hbm, _ := kibibytes(infoOf(e, "LevelZeroHBMSize"))
	ddr, _ := kibibytes(infoOf(e, "LevelZeroDDRSize"))
	return hbm + ddr
}

func (d *devices) finish() {
	d.h.NICs = append(d.h.NICs, lists.InOrder(d.nics)...)
	d.h.GPUs = append(d.h.GPUs, lists.Map(d.order, func(g *gpu) topology.GPU { return g.GPU })...)
	for i := range d.h.NUMANodes {
		n := &d.h.NUMANodes[i]
		for j := range d.h.GPUs {
			if g := &d.h.GPUs[j]; n.GPU != nil && g.Address != nil && *g.Address == *n.GPU {
				g.MemoryNode = new(n.ID)
			}
		}
	}
}
