package render

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// A slot has the functions of one card that go to the node, or one virtual function.
type slot struct {
	functions []function // ascending by guest number
	cell      *int       // nil if unknown
	kind      string     // of the card; "" for a companion function
	card      topology.PCIAddr
	why       string
}

type function struct {
	host  topology.PCIAddr
	guest uint8
	// mac is set by libvirt on a virtual function.
	mac string
}

// slots are in the order of cards. Functions of one card share a slot, because drivers look for the other functions of
// a GPU in its slot. Each virtual function gets a slot.
func (m *machine) slots(n *plan.Node) ([]slot, error) {
	g := gathering{m: m, byDevice: map[topology.PCIAddr]int{}, taken: map[topology.PCIAddr]bool{}}
	ports := 0
	for i := range n.Cards {
		c := &n.Cards[i]
		if c.Cell != nil && (*c.Cell < 0 || *c.Cell >= len(n.Cells)) {
			return nil, fmt.Errorf("device %q is in cell %d; the guest has %d", c.ID, *c.Cell, len(n.Cells))
		}
		mac := ""
		if c.Kind == plan.KindNIC || c.Kind == plan.KindVF {
			if ports < len(n.NICs) && c.Kind == plan.KindVF {
				mac = n.NICs[ports].MAC
			}
			ports++
		}
		g.card(c, mac)
	}
	for _, id := range n.Devices {
		if a, err := g.m.address(id); err == nil && !g.taken[a] {
			g.fault(fmt.Errorf("device %q is not among the cards of the node: the plan was edited; make it again", id))
		}
	}
	if err := errors.Join(g.faults...); err != nil {
		return nil, err
	}
	for i := range g.slots {
		g.slots[i].number()
	}
	return g.slots, nil
}

type gathering struct {
	m        *machine
	slots    []slot
	byDevice map[topology.PCIAddr]int // index in slots, by address with function 0
	taken    map[topology.PCIAddr]bool
	faults   []error
}

func (g *gathering) fault(err error) { g.faults = append(g.faults, err) }

func (g *gathering) card(c *plan.NodeDevice, mac string) {
	ids := c.Functions
	if len(ids) == 0 {
		ids = []string{functionOf(c)}
	}
	for i, id := range ids {
		a, err := g.m.address(id)
		if err != nil {
			g.fault(err)
			continue
		}
		if a.Domain > 0xffff {
			// Drivers (VMD, Hyper-V) invent such domains, and libvirt accepts only four digits.
			g.fault(fmt.Errorf("device %q is in PCI domain %x, and libvirt knows those up to ffff: it cannot be "+
				"passed through", id, a.Domain))
			continue
		}
		if g.taken[a] {
			continue
		}
		g.taken[a] = true
		f := function{host: a, guest: a.Function}
		if c.Kind == plan.KindVF && i == 0 {
			f.mac = g.m.settableMAC(c, mac)
		}
		device := a
		device.Function = 0
		at, together := g.byDevice[device]
		if c.Kind == plan.KindVF || g.m.isVF(a) || !together {
			at = len(g.slots)
			s := slot{cell: c.Cell, why: g.m.deviceWhy(c, id)}
			if card, err := topology.ParsePCIAddr(c.ID); err == nil && i == 0 {
				s.kind, s.card = c.Kind, card
			}
			g.slots = append(g.slots, s)
			if c.Kind != plan.KindVF && !g.m.isVF(a) {
				g.byDevice[device] = at
			}
		}
		g.slots[at].functions = append(g.slots[at].functions, f)
	}
}

func functionOf(c *plan.NodeDevice) string {
	switch {
	case len(c.Functions) > 0:
		return c.Functions[0]
	case c.Kind == plan.KindVF && c.VF != nil:
		return fmt.Sprintf("%s/vf%d", c.ID, *c.VF)
	}
	return c.ID
}

// number keeps the host's function numbers, which drivers expect. Without function 0 the guest would not look for
// others, so they are then numbered from 0.
func (s *slot) number() {
	slices.SortFunc(s.functions, func(a, b function) int { return cmp.Compare(a.host.Function, b.host.Function) })
	if s.functions[0].guest == 0 {
		return
	}
	for i := range s.functions {
		s.functions[i].guest = uint8(i)
	}
}

func (m *machine) isVF(a topology.PCIAddr) bool {
	d := m.host.Device(a)
	return d != nil && d.PF != nil
}

func (m *machine) deviceWhy(c *plan.NodeDevice, id string) string {
	var b strings.Builder
	switch {
	case c.Kind == plan.KindVF && c.VF != nil:
		fmt.Fprintf(&b, "virtual function %d of NIC %s", *c.VF, c.ID)
	case id != c.ID:
		fmt.Fprintf(&b, "%s, which comes with %s", id, c.ID)
	case c.Kind == plan.KindGPU:
		b.WriteString("GPU " + id)
	case c.Kind == plan.KindNIC:
		b.WriteString("NIC " + id)
	default:
		b.WriteString(id)
	}
	if c.Model != "" && (id == c.ID || c.Kind == plan.KindVF) {
		b.WriteString(", " + c.Model)
	}
	if a, err := m.address(id); err == nil && c.VF != nil && strings.Contains(id, "/vf") {
		// The offset may change with the number of functions (SR-IOV specification, "First VF Offset").
		fmt.Fprintf(&b, " (it does not exist yet and will be %s by the NIC's SR-IOV offset and stride: look at "+
			"virtfn%d of the NIC once it is made)", a, *c.VF)
	}
	if c.NUMANode != nil {
		fmt.Fprintf(&b, ", on the host's NUMA node %d", *c.NUMANode)
	} else {
		b.WriteString(", on a NUMA node that the host does not tell")
	}
	return b.String()
}

// Address also knows virtual functions that do not exist yet. It fails for the same devices as Domains.
func Address(in Input, id string) (topology.PCIAddr, error) {
	m, err := newMachine(in)
	if err != nil {
		return topology.PCIAddr{}, err
	}
	return m.address(id)
}

func (m *machine) address(id string) (topology.PCIAddr, error) {
	pf, index, ok := strings.Cut(id, "/vf")
	if ok {
		return m.vfAddress(pf, index)
	}
	a, err := topology.ParsePCIAddr(id)
	if err != nil {
		return a, fmt.Errorf("device %q has no PCI address: the host was read from a text that only names devices "+
			"(%s); write a snapshot there (rackless host snapshot --out FILE), and give it to --host", id,
			cmp.Or(m.in.Plan.Host.Provenance.Kind, "a matrix"))
	}
	return a, nil
}

// vfAddress returns the address that the host lists, or else the future one.
//
// Routing IDs of virtual functions follow from that of the physical one: RID(PF) + First VF Offset + index * VF Stride,
// in 16 bits of bus, device and function, so that a carry leads to the next bus. Source: PCI Express Base
// Specification, "First VF Offset" and "VF Stride" of the SR-IOV capability. Linux shows them as sriov_offset and
// sriov_stride before any virtual function exists.
func (m *machine) vfAddress(pfID, indexText string) (topology.PCIAddr, error) {
	index, err := strconv.ParseUint(indexText, 10, 16)
	if err != nil {
		return topology.PCIAddr{}, fmt.Errorf("virtual function %q of %q: want a number from 0 to 65535", indexText,
			pfID)
	}
	pf, err := topology.ParsePCIAddr(pfID)
	if err != nil {
		return topology.PCIAddr{}, fmt.Errorf("virtual function %d of %q: the NIC has no PCI address: read the "+
			"machine itself (rackless host snapshot) and plan again", index, pfID)
	}
	s := cmp.Or(m.sriov(pf), &topology.SRIOV{})
	for _, vf := range s.VFs {
		if vf.Index == int(index) && vf.Address != nil {
			return *vf.Address, nil
		}
	}
	if s.Offset == nil || s.Stride == nil || *s.Offset < 1 || *s.Stride < 0 || *s.Stride == 0 && index > 0 {
		return topology.PCIAddr{}, fmt.Errorf("virtual function %d of %s does not exist yet, and where it will be is "+
			"not known: what the host was read from lacks sriov_offset and sriov_stride. Make %d virtual functions, "+
			"read the host again and plan again", index, pf, index+1)
	}
	rid := uint64(pf.Bus)<<8 | uint64(pf.Device)<<3 | uint64(pf.Function)
	rid += uint64(*s.Offset) + index*uint64(*s.Stride)
	if rid > 0xffff {
		return topology.PCIAddr{}, fmt.Errorf("virtual function %d of %s would be beyond bus ff (offset %d, stride %d)",
			index, pf, *s.Offset, *s.Stride)
	}
	return topology.PCIAddr{Domain: pf.Domain, Bus: uint8(rid >> 8), Device: uint8(rid >> 3 & 31),
		Function: uint8(rid & 7)}, nil
}

func (m *machine) sriov(pf topology.PCIAddr) *topology.SRIOV {
	if d := m.host.Device(pf); d != nil && d.SRIOV != nil {
		return d.SRIOV
	}
	if nic := m.host.NIC(pf); nic != nil {
		return nic.SRIOV
	}
	return nil
}

// settableMAC returns mac, or "" if libvirt cannot set it. libvirt asks the physical function's network device, which
// InfiniBand and devices without a network driver lack.
func (m *machine) settableMAC(c *plan.NodeDevice, mac string) string {
	pf, err := topology.ParsePCIAddr(c.ID)
	if err != nil || !isMAC(mac) {
		return ""
	}
	if d := m.host.Device(pf); d != nil && d.Class != nil && *d.Class>>8 == classInfiniBand {
		return ""
	}
	nic := m.host.NIC(pf)
	if nic == nil {
		return mac
	}
	if nic.Driver != "" && len(nic.Netdevs) == 0 {
		return ""
	}
	for _, d := range nic.Devices {
		for _, p := range d.Ports {
			if p.LinkLayer == "InfiniBand" {
				return ""
			}
		}
	}
	return mac
}

const classInfiniBand = 0x0207

// isMAC wants libvirt's format. An address with the group bit set is not a NIC's.
func isMAC(s string) bool {
	b, ok := parseMAC(s)
	return ok && b[0]&1 == 0
}
