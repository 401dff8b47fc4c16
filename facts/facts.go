// Package facts holds what a node says of itself, the output of rackless-facts as values, and what
// the kernel of this machine says of what runs on it: threads, memory by page, interrupts, control
// groups.
package facts

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/topology"
)

// A Node is what the kernel of a node says of it. Empty strings and zeros mean that it did not say.
type Node struct {
	Hostname  string
	MachineID string
	UUID      string // a fresh random number of its generator, to compare between nodes
	Kernel    string
	Net       map[string]*NetDevice // by name
	RDMA      map[string]*RDMADevice

	// What follows is absent in what a node says in brief.

	CPUs   *topology.CPUSet               // online
	Cores  []topology.Core                // by lowest CPU
	NUMA   map[int]*topology.NUMANode     // by number
	PCI    map[string]*topology.PCIDevice // by address: network, display, accelerators
	NVIDIA string                         // the version line of NVIDIA's driver, where it is loaded
	// of those that let a NIC reach GPU memory, the loaded ones: nvidia_peermem, nv_peer_mem
	Modules []string
}

// A NetDevice is one network device: /sys/class/net/NAME.
type NetDevice struct {
	MAC       string
	MTU       int // bytes
	OperState string
	Carrier   string
	PCI       string   // class of the PCI function that it is on, "0x020000"; empty of paravirtual and other devices
	NUMANode  *int     // of that function; -1: the firmware does not say
	Members   []string // the devices that a bond joins
}

// An RDMADevice is one RDMA device with the state of its port 1: /sys/class/infiniband/NAME.
type RDMADevice struct {
	NodeGUID  string
	Parent    string // the network device of a soft RoCE device
	PCI       string // address of the function that it is on; empty in what a node says in brief
	State     string // e.g. "4: ACTIVE"
	LinkLayer string
	Rate      string
	GIDs      []GID             // slots in use, by index
	Counters  map[string]uint64 // of the device itself: hw_counters
	// PortCounters are those that every port has, such as port_xmit_packets: counters.
	PortCounters map[string]uint64
}

// A GID is one slot of a port's GID table.
type GID struct {
	Index  int
	GID    netip.Addr
	Type   string // "IB/RoCE v1" or "RoCE v2"
	NetDev string
}

// RoCEv2Index returns the slot of the RoCE v2 GID that stands for an IPv4 address. The index
// differs between NICs and must never be assumed.
func (d *RDMADevice) RoCEv2Index(addr netip.Addr) (int, bool) {
	for _, g := range d.GIDs {
		if g.Type == "RoCE v2" && g.GID.Unmap() == addr.Unmap() {
			return g.Index, true
		}
	}
	return 0, false
}

// RoCEv2 returns the RDMA device that has a RoCE v2 GID for an IPv4 address, and the GID's slot:
// rxe0 where soft RoCE has made it, mlx5_0 of a card. Of several, the first by name.
func (f *Node) RoCEv2(addr netip.Addr) (device string, index int, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(f.RDMA)) {
		if index, ok := f.RDMA[name].RoCEv2Index(addr); ok {
			return name, index, true
		}
	}
	return "", 0, false
}

// Links is how many links carry the traffic of an RDMA device with a GID: those that its network
// device joins where that is a bond, else one.
func (f *Node) Links(device string, gid int) int {
	for _, g := range f.RDMA[device].GIDs {
		if net := f.Net[g.NetDev]; g.Index == gid && net != nil {
			return max(1, len(net.Members))
		}
	}
	return 1
}

// Soft reports whether the kernel computes what a card would do: soft RoCE.
func (d *RDMADevice) Soft() bool { return d.Parent != "" }

// Gbps returns what the port says of its rate, such as "25 Gb/sec (1X EDR)"; 0 where it says
// nothing, and of soft RoCE, which says 2.5 Gb/s whatever carries it.
func (d *RDMADevice) Gbps() float64 {
	number, unit, _ := strings.Cut(d.Rate, " ")
	rate, err := strconv.ParseFloat(number, 64)
	if err != nil || d.Soft() || !strings.HasPrefix(unit, "Gb/sec") || !(rate > 0) {
		return 0
	}
	return rate
}

// Parse reads what rackless-facts prints: a key with slashes, a space, a value.
func Parse(out []byte) (*Node, error) {
	f := &parser{Node: Node{
		Net: map[string]*NetDevice{}, RDMA: map[string]*RDMADevice{},
		NUMA: map[int]*topology.NUMANode{}, PCI: map[string]*topology.PCIDevice{},
	}, threads: map[int]*coreName{}}
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		key, value, _ := strings.Cut(sc.Text(), " ")
		if err := f.set(strings.Split(key, "/"), value); err != nil {
			return nil, fmt.Errorf("rackless-facts: %q: %w", sc.Text(), err)
		}
	}
	f.Cores = cores(f.threads)
	return &f.Node, sc.Err()
}

// A parser reads a node line by line.
type parser struct {
	Node
	threads map[int]*coreName // by CPU
}

// A coreName is what the kernel calls the core of a CPU: core is unique within the package.
type coreName struct{ pkg, core int }

// cores gathers the threads of each core. Numbers that no kernel has are left out.
func cores(threads map[int]*coreName) []topology.Core {
	var all []topology.Core
	at := map[coreName]int{}
	for _, cpu := range slices.Sorted(maps.Keys(threads)) {
		if cpu < 0 || cpu >= topology.MaxCPUs {
			continue
		}
		name := *threads[cpu]
		i, ok := at[name]
		if !ok {
			i = len(all)
			at[name] = i
			all = append(all, topology.Core{ID: i, OSID: &name.core, Package: &name.pkg})
		}
		all[i].CPUs = all[i].CPUs.Union(topology.CPUs(cpu))
	}
	return all
}

func (f *parser) set(key []string, value string) (err error) {
	switch {
	case len(key) == 1:
		switch key[0] {
		case "hostname":
			f.Hostname = value
		case "machine-id":
			f.MachineID = value
		case "uuid":
			f.UUID = value
		case "kernel":
			f.Kernel = value
		case "nvidia":
			f.NVIDIA = value
		}
	case key[0] == "module" && len(key) == 2:
		f.Modules = append(f.Modules, key[1])
	case key[0] == "cpus" && key[1] == "online":
		var set topology.CPUSet
		if set, err = topology.ParseCPUSet(value); err == nil {
			f.CPUs = &set
		}
	case key[0] == "cpu" && len(key) == 3:
		return f.setCPU(key, value)
	case key[0] == "node" && len(key) == 3:
		return f.setNUMA(key, value)
	case key[0] == "pci" && len(key) == 3:
		return f.setPCI(key, value)
	case key[0] == "net" && len(key) == 3:
		d := entry(f.Net, key[1])
		switch key[2] {
		case "mac":
			d.MAC = value
		case "mtu":
			d.MTU, err = strconv.Atoi(value)
		case "operstate":
			d.OperState = value
		case "carrier":
			d.Carrier = value
		case "class":
			d.PCI = value
		case "numa_node":
			d.NUMANode, err = known(strconv.Atoi(value))
		case "members":
			d.Members = strings.Fields(value)
		}
	case key[0] == "rdma" && len(key) >= 3:
		d := f.RDMA[key[1]]
		if d == nil {
			d = &RDMADevice{Counters: map[string]uint64{}, PortCounters: map[string]uint64{}}
			f.RDMA[key[1]] = d
		}
		return d.set(key[2:], value)
	}
	return err
}

// known is a value that was read; nil where that failed.
func known[T any](v T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// entry returns the value of a map at a key. What is not there yet is made.
func entry[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

func (f *parser) setCPU(key []string, value string) error {
	cpu, err := strconv.Atoi(key[1])
	if err != nil {
		return err
	}
	c := entry(f.threads, cpu)
	switch key[2] {
	case "package":
		c.pkg, err = strconv.Atoi(value)
	case "core":
		c.core, err = strconv.Atoi(value)
	}
	return err
}

func (f *parser) setNUMA(key []string, value string) error {
	id, err := strconv.Atoi(key[1])
	if err != nil {
		return err
	}
	n := entry(f.NUMA, id)
	n.ID = id
	switch key[2] {
	case "cpus":
		n.CPUs, err = topology.ParseCPUSet(value)
	case "distance":
		for word := range strings.FieldsSeq(value) {
			d, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			n.Distances = append(n.Distances, d)
		}
	case "meminfo": // "Node 0 MemTotal:       16318464 kB"
		words := strings.Fields(value)
		if len(words) < 5 || words[2] != "MemTotal:" || words[4] != "kB" {
			return errors.New("want Node N MemTotal: SIZE kB")
		}
		kib, err := strconv.ParseUint(words[3], 10, 50) // shifted by 10 it is below 2^60
		n.MemoryBytes = new(kib << 10)
		return err
	}
	return err
}

func (f *parser) setPCI(key []string, value string) (err error) {
	d := entry(f.PCI, key[1])
	if d.Address, err = topology.ParsePCIAddr(key[1]); err != nil {
		return err
	}
	link := *cmp.Or(d.Link, &topology.Link{})
	switch key[2] {
	case "class":
		d.Class, err = known(topology.ParseID24(value))
	case "vendor":
		d.Vendor, err = known(topology.ParseID16(value))
	case "numa_node":
		if d.NUMANode, err = known(strconv.Atoi(value)); err == nil && *d.NUMANode < 0 {
			d.NUMANode = nil // -1: the firmware does not say
		}
	case "current_link_speed":
		link.SpeedGTs = linkSpeed(value)
	case "max_link_speed":
		link.MaxSpeedGTs = linkSpeed(value)
	case "current_link_width":
		link.Width = linkWidth(value)
	case "max_link_width":
		link.MaxWidth = linkWidth(value)
	}
	if link != (topology.Link{}) {
		d.Link = &link
	}
	return err
}

// linkSpeed reads "8.0 GT/s PCIe"; nil for "Unknown" and for what is no speed of PCI Express.
func linkSpeed(s string) *float64 {
	word, _, _ := strings.Cut(s, " ")
	gts, err := strconv.ParseFloat(word, 64)
	if err != nil || topology.Generation(gts) == 0 {
		return nil
	}
	return &gts
}

// linkWidth reads a number of lanes; nil for 0, 63 and 255, which the kernel shows of links that are down or no links.
func linkWidth(s string) *int {
	lanes, err := strconv.Atoi(s)
	if err != nil || lanes < 1 || lanes > 32 {
		return nil
	}
	return &lanes
}

func (d *RDMADevice) set(key []string, value string) (err error) {
	if len(key) == 1 {
		switch key[0] {
		case "node_guid":
			d.NodeGUID = value
		case "parent":
			d.Parent = value
		case "pci":
			d.PCI = value
		}
		return nil
	}
	if key[0] != "1" { // soft RoCE devices have one port
		return nil
	}
	switch key[1] {
	case "state":
		d.State = value
	case "link_layer":
		d.LinkLayer = value
	case "rate":
		d.Rate = value
	case "counter":
		if len(key) == 3 {
			d.Counters[key[2]], err = strconv.ParseUint(value, 10, 64)
		}
	case "port_counter":
		if len(key) == 3 {
			d.PortCounters[key[2]], err = strconv.ParseUint(value, 10, 64)
		}
	case "gid":
		f := strings.SplitN(value, " ", 3)
		if len(key) != 3 || len(f) != 3 {
			return fmt.Errorf("want gid, network device and type")
		}
		g := GID{NetDev: f[1], Type: f[2]}
		if g.Index, err = strconv.Atoi(key[2]); err != nil {
			return err
		}
		if g.GID, err = netip.ParseAddr(f[0]); err != nil {
			return err
		}
		d.GIDs = append(d.GIDs, g)
	}
	return err
}
