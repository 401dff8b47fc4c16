// Package facts parses a kernel's own account of its machine: the output of rackless-facts on a node, and the threads,
// memory placement, interrupts and control groups of this machine.
package facts

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// A Node is as seen by its own kernel. The Host has NICs with their network and RDMA devices, and in a full answer also
// CPUs, cores, NUMA nodes, modules, and cards' PCI functions. topology.Host.Complete has not run.
type Node struct {
	topology.Host
	Hostname  string
	MachineID string
	BootID    string // a clone has its own
	UUID      string // random, for comparing nodes
	NVIDIA    string // NVIDIA's version line, if loaded

	// Cards maps each network device on a PCI function (not on virtio) to the firmware's NUMA node: -1 if there is
	// none, nil if the kernel has no such file.
	Cards map[string]*int
	// Counters has all counters of RDMA devices by name; the Host has only error counters.
	Counters map[string]Counters

	text []byte // as the node printed it
}

// Counters are of port 1.
type Counters struct {
	HW   map[string]uint64 // of hw_counters
	Port map[string]uint64 // of counters, such as port_xmit_packets
}

// RoCEv2 returns the RDMA device that has a RoCE v2 GID for an address, and the GID's index. Of several it returns the
// first by name.
func (n *Node) RoCEv2(addr netip.Addr) (device string, index int, ok bool) {
	for _, d := range n.RDMADevices() {
		if i, has := d.Port(1).RoCEv2Index(addr); has && (!ok || d.Name < device) {
			device, index, ok = d.Name, i, true
		}
	}
	return device, index, ok
}

// Links returns how many links carry the traffic of a GID: the number of bond members, else 1.
func (n *Node) Links(device string, gid int) int {
	for _, d := range n.RDMADevices() {
		for _, g := range d.Port(1).GIDs {
			if bond := n.Bond(g.Netdev); d.Name == device && g.Index == gid && bond != nil {
				return max(1, len(bond.Members))
			}
		}
	}
	return 1
}

// MarshalJSON writes the original output, so that saved states do not depend on our Go types.
func (n *Node) MarshalJSON() ([]byte, error) { return json.Marshal(string(n.text)) }

// UnmarshalJSON reads the output of MarshalJSON, or the object of older versions.
func (n *Node) UnmarshalJSON(b []byte) error {
	var text string
	if bytes.HasPrefix(b, []byte("{")) {
		var old oldNode
		if err := json.Unmarshal(b, &old); err != nil {
			return err
		}
		text = old.text()
	} else if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	read, err := Parse([]byte(text))
	if err == nil {
		*n = *read
	}
	return err
}

// An oldNode is the needed part of an older version's Node: `ls` shows its devices, measurements use its GIDs, and soft
// RoCE must still be called emulated.
type oldNode struct {
	Hostname, MachineID, UUID, Kernel string
	Net                               map[string]struct {
		MAC     string
		Members []string
	}
	RDMA map[string]struct {
		NodeGUID, Parent, State, LinkLayer, Rate string
		GIDs                                     []struct {
			Index             int
			GID, Type, NetDev string
		}
	}
}

func (o *oldNode) text() string {
	var lines []string
	say := func(value, key string, args ...any) {
		if value != "" {
			lines = append(lines, fmt.Sprintf(key, args...)+" "+value+"\n")
		}
	}
	say(o.Hostname, "hostname")
	say(o.MachineID, "machine-id")
	say(o.UUID, "uuid")
	say(o.Kernel, "kernel")
	for name, d := range o.Net {
		say(d.MAC, "net/%s/mac", name)
		say(strings.Join(d.Members, " "), "net/%s/members", name)
	}
	for name, d := range o.RDMA {
		say(d.NodeGUID, "rdma/%s/node_guid", name)
		say(d.Parent, "rdma/%s/parent", name)
		say(d.State, "rdma/%s/1/state", name)
		say(d.LinkLayer, "rdma/%s/1/link_layer", name)
		say(d.Rate, "rdma/%s/1/rate", name)
		for _, g := range d.GIDs {
			say(g.GID+" "+g.NetDev+" "+g.Type, "rdma/%s/1/gid/%d", name, g.Index)
		}
	}
	slices.Sort(lines) // maps have no order
	return strings.Join(lines, "")
}

// Parse reads lines of a key with slashes, a space, and a value. It ignores unknown keys, because a newer image may
// print more.
func Parse(out []byte) (*Node, error) {
	p := &parser{
		Node:    Node{Cards: map[string]*int{}, Counters: map[string]Counters{}, text: out},
		threads: map[int]*coreName{}, numa: map[int]*topology.NUMANode{},
		pci: map[topology.PCIAddr]*topology.PCIDevice{}, net: map[string]*topology.Netdev{}, rdma: map[string]*rdma{},
	}
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		key, value, _ := strings.Cut(sc.Text(), " ")
		if err := p.set(key, value); err != nil {
			return nil, fmt.Errorf("rackless-facts: %q: %w", sc.Text(), err)
		}
	}
	p.NUMANodes = sorted(p.numa, cmp.Compare)
	p.PCI = sorted(p.pci, topology.PCIAddr.Compare)
	p.joinThreads()
	p.joinDevices()
	return &p.Node, sc.Err()
}

func sorted[K comparable, V any](m map[K]*V, compare func(a, b K) int) []V {
	return lists.Map(slices.SortedFunc(maps.Keys(m), compare), func(key K) V { return *m[key] })
}

type parser struct {
	Node
	threads map[int]*coreName // by CPU
	numa    map[int]*topology.NUMANode
	pci     map[topology.PCIAddr]*topology.PCIDevice
	net     map[string]*topology.Netdev
	rdma    map[string]*rdma
}

// A coreName's core is unique within the package only.
type coreName struct{ pkg, core int }

// An rdma has only port 1.
type rdma struct {
	topology.RDMADevice
	port   topology.RDMAPort
	rate   string
	netdev string            // of soft RoCE, or the first of a card's function
	pci    *topology.PCIAddr // the card's function
}

// joinThreads skips CPU numbers that no kernel uses.
func (p *parser) joinThreads() {
	at := map[coreName]int{}
	for _, cpu := range lists.Keys(p.threads) {
		if cpu < 0 || cpu >= topology.MaxCPUs {
			continue
		}
		name := *p.threads[cpu]
		i, ok := at[name]
		if !ok {
			i = len(p.Cores)
			at[name] = i
			p.Cores = append(p.Cores, topology.Core{ID: i, OSID: &name.core, Package: &name.pkg})
		}
		p.Cores[i].CPUs = p.Cores[i].CPUs.Union(topology.CPUs(cpu))
	}
}

// joinDevices identifies NICs by network device, because a brief answer has no PCI addresses.
func (p *parser) joinDevices() {
	for _, d := range sorted(p.net, cmp.Compare) {
		nic := topology.NIC{Name: d.Name, Ports: []topology.Netdev{d}}
		if node := p.Cards[d.Name]; node != nil && *node >= 0 {
			nic.NUMANode = node
		}
		p.NICs = append(p.NICs, nic)
	}
	for _, d := range sorted(p.rdma, cmp.Compare) {
		if d.port.Number > 0 {
			d.port.RateGbps = portRate(d.rate, d.Name, d.port.LinkLayer)
			d.Ports = []topology.RDMAPort{d.port}
		}
		at := slices.IndexFunc(p.NICs, func(n topology.NIC) bool {
			return d.netdev != "" && n.Name == d.netdev || d.pci != nil && n.Address != nil && *d.pci == *n.Address
		})
		if at < 0 {
			at = len(p.NICs)
			p.NICs = append(p.NICs, topology.NIC{Name: cmp.Or(d.netdev, d.Name)})
		}
		nic := &p.NICs[at]
		nic.Devices, nic.Address = append(nic.Devices, d.RDMADevice), cmp.Or(nic.Address, d.pci)
	}
}

// texts maps the first part of a key to the field of the value.
var texts = map[string]func(*parser) *string{
	"hostname":   func(p *parser) *string { return &p.Hostname },
	"machine-id": func(p *parser) *string { return &p.MachineID },
	"boot-id":    func(p *parser) *string { return &p.BootID },
	"uuid":       func(p *parser) *string { return &p.UUID },
	"kernel":     func(p *parser) *string { return &p.Kernel.Release },
	"nvidia":     func(p *parser) *string { return &p.NVIDIA },
}

// things maps the first part of a key to its setter. The second part is a name, the third a field.
var things = map[string]func(p *parser, name, field, value string) error{"cpu": (*parser).setCPU,
	"node": (*parser).setNUMA, "pci": (*parser).setPCI, "net": (*parser).setNet, "rdma": (*parser).setRDMA}

func (p *parser) set(key, value string) (err error) {
	kind, rest, _ := strings.Cut(key, "/")
	name, field, named := strings.Cut(rest, "/")
	if text := texts[kind]; text != nil {
		*text(p) = value
	}
	switch kind {
	case "module":
		p.Kernel.Modules = append(p.Kernel.Modules, name)
	case "cpus":
		p.CPUs.Online, err = topology.ParseCPUSet(value)
	}
	if thing := things[kind]; thing != nil && named {
		return thing(p, name, field, value)
	}
	return err
}

func known[T any](v T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &v, nil
}

// The two lines of a CPU may come in any order, so joinThreads runs at the end.
func (p *parser) setCPU(name, field, value string) error {
	cpu, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	c := p.threads[cpu]
	if c == nil {
		c = &coreName{}
		p.threads[cpu] = c
	}
	switch field {
	case "package":
		c.pkg, err = strconv.Atoi(value)
	case "core":
		c.core, err = strconv.Atoi(value)
	}
	return err
}

// Distances are in node order.
func (p *parser) setNUMA(name, field, value string) error {
	id, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	n := p.numa[id]
	if n == nil {
		n = &topology.NUMANode{}
		p.numa[id] = n
	}
	n.ID = id
	switch field {
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
		kib, err := strconv.ParseUint(words[3], 10, 50) // the shift by 10 stays below 2^60
		n.MemoryBytes = new(kib << 10)
		return err
	}
	return err
}

// Virtual functions have the link files too, with unknown values.
func (p *parser) setPCI(name, field, value string) error {
	address, err := topology.ParsePCIAddr(name)
	if err != nil {
		return err
	}
	d := p.pci[address]
	if d == nil {
		d = &topology.PCIDevice{}
		p.pci[address] = d
	}
	d.Address = address
	link := *cmp.Or(d.Link, &topology.Link{})
	switch field {
	case "class":
		d.Class, err = known(topology.ParseID24(value))
	case "vendor":
		d.Vendor, err = known(topology.ParseID16(value))
	case "numa_node":
		if d.NUMANode, err = known(strconv.Atoi(value)); err == nil && *d.NUMANode < 0 {
			d.NUMANode = nil // -1: the firmware reports none
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

// linkSpeed parses "8.0 GT/s PCIe". It returns nil for "Unknown" and for speeds that PCI Express does not have.
func linkSpeed(s string) *float64 {
	word, _, _ := strings.Cut(s, " ")
	gts, err := strconv.ParseFloat(word, 64)
	if err != nil || topology.Generation(gts) == 0 {
		return nil
	}
	return &gts
}

// linkWidth returns nil for 0, 63 and 255, which the kernel shows if the link is down or absent.
func linkWidth(s string) *int {
	lanes, err := strconv.Atoi(s)
	if err != nil || lanes < 1 || lanes > 32 {
		return nil
	}
	return &lanes
}

// The carrier of a device that is down cannot be read.
func (p *parser) setNet(name, field, value string) (err error) {
	d := p.net[name]
	if d == nil {
		d = &topology.Netdev{}
		p.net[name] = d
	}
	d.Name = name
	switch field {
	case "mac":
		d.MAC = value
	case "mtu":
		d.MTU, err = known(strconv.Atoi(value))
	case "operstate":
		d.State = value
	case "carrier":
		d.Carrier = new(value == "1")
	case "class":
		if _, ok := p.Cards[name]; !ok {
			p.Cards[name] = nil // a numa_node line may follow
		}
	case "numa_node":
		p.Cards[name], err = known(strconv.Atoi(value))
	case "members":
		p.Bonds = append(p.Bonds, topology.Bond{Name: name, Members: strings.Fields(value)})
	}
	return err
}

// Soft RoCE and virtual functions have one port.
func (p *parser) setRDMA(name, field, value string) (err error) {
	d := p.rdma[name]
	if d == nil {
		d = &rdma{}
		p.rdma[name] = d
	}
	d.Name = name
	switch field {
	case "node_guid":
		d.NodeGUID = value
	case "parent":
		d.netdev = value
	case "pci":
		d.pci, err = known(topology.ParsePCIAddr(value))
	}
	field, onPort := strings.CutPrefix(field, "1/")
	if !onPort {
		return err
	}
	d.port.Number = 1
	field, index, indexed := strings.Cut(field, "/")
	switch field {
	case "state":
		d.port.State = StateName(value)
	case "link_layer":
		d.port.LinkLayer = value
	case "rate":
		d.rate = value
	case "counter", "port_counter":
		count, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return err
		}
		c, ok := p.Counters[name]
		if !ok {
			c = Counters{HW: map[string]uint64{}, Port: map[string]uint64{}}
			p.Counters[name] = c
		}
		if field == "counter" {
			c.HW[index] = count
		} else {
			c.Port[index] = count
		}
	case "gid":
		words := strings.SplitN(value, " ", 3)
		if !indexed || len(words) != 3 {
			return errors.New("want gid, network device and type")
		}
		g := topology.GID{GID: words[0], Netdev: words[1], Type: words[2]}
		if g.Index, err = strconv.Atoi(index); err != nil {
			return err
		}
		if _, err = netip.ParseAddr(g.GID); err != nil {
			return err
		}
		d.port.GIDs = append(d.port.GIDs, g)
	}
	return err
}

// StateName returns ACTIVE of "4: ACTIVE".
func StateName(s string) string {
	if number, word, ok := strings.Cut(s, ":"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
		return strings.TrimSpace(word)
	}
	return s
}

// portRate parses "25 Gb/sec (1X EDR)", in Gb/s. It returns nil for soft RoCE, which always reports 2.5, and for
// Ethernet devices that report 2.5, InfiniBand's lowest rate, because their speed is unknown.
func portRate(rate, device, linkLayer string) *float64 {
	number, unit, _ := strings.Cut(rate, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v > 0) || !strings.HasPrefix(unit, "Gb/sec") || topology.IsSoftRDMA(device) ||
		linkLayer == "Ethernet" && v <= 2.5 {
		return nil
	}
	return &v
}
