package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// address reads "0000:41:00.0", or "0000:41:00.0/vf3", which has an address once it exists.
func (c *hostCheck) address(id string) (topology.PCIAddr, error) {
	name, vf, isVF := strings.Cut(id, "/vf")
	a, err := topology.ParsePCIAddr(name)
	if err != nil || !isVF {
		return a, err
	}
	index, err := strconv.Atoi(vf)
	if err != nil {
		return a, fmt.Errorf("virtual function %q: want a number", vf)
	}
	if pf := c.tree.Device(a); pf != nil && pf.SRIOV != nil {
		for _, v := range pf.SRIOV.VFs {
			if v.Index == index && v.Address != nil {
				return *v.Address, nil
			}
		}
	}
	return a, fmt.Errorf("virtual function %d of %s does not exist", index, a)
}

func sysPCI(a topology.PCIAddr) string { return "/sys/bus/pci/devices/" + a.String() }

// devices checks each card's link once, because its functions share it.
func (c *hostCheck) devices() {
	links := c.links()
	for i := range c.p.Nodes {
		n := &c.p.Nodes[i]
		ours := map[topology.PCIAddr]bool{}
		for _, id := range n.Devices {
			if a, err := c.address(id); err == nil {
				ours[a] = true
			}
		}
		seen := map[int]bool{} // IOMMU groups
		for _, id := range n.Devices {
			c.function(n, id, ours, seen)
		}
		for k := range n.Cards {
			if card := &n.Cards[k]; card.Kind != plan.KindVF { // virtual functions have no link
				c.link(n.Name+" "+card.ID, card.ID, links)
			}
		}
		c.peerDMA(n)
	}
}

// peerDMA notes that a NIC of an emulated host does not reach the memory of a GPU: the IOMMU translates the addresses
// of a node, and the emulated devices do not know which of them are a GPU's. It is no fault of the lab.
func (c *hostCheck) peerDMA(n *plan.Node) {
	if c.h.System.Vendor != topology.VendorEmulated || c.h.IOMMU.Enabled == nil || !*c.h.IOMMU.Enabled {
		return
	}
	if !slices.ContainsFunc(n.Cards, func(card plan.NodeDevice) bool { return card.Kind != plan.KindGPU }) {
		return // without a NIC
	}
	for i := range n.Cards {
		card := &n.Cards[i]
		g := c.gpu(card.ID)
		if g != nil && g.Kind == topology.GPUStandIn && g.Vendor == topology.VendorEmulated {
			c.judge(true, finding.Finding{ID: IDPeerDMA, Subject: n.Name + " " + card.ID,
				Have:     "cannot be resolved here: the emulated IOMMU translates",
				Evidence: "/sys/class/dmi/id/sys_vendor, /sys/class/iommu"})
		}
	}
}

// gpu returns the GPU at an address, or nil.
func (c *hostCheck) gpu(id string) *topology.GPU {
	a, err := topology.ParsePCIAddr(id)
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(c.h.GPUs, func(g topology.GPU) bool { return g.Address != nil && *g.Address == a })
	if i < 0 {
		return nil
	}
	return &c.h.GPUs[i]
}

func (c *hostCheck) function(n *plan.Node, id string, ours map[topology.PCIAddr]bool, seen map[int]bool) {
	subject := n.Name + " " + id
	a, err := c.address(id)
	d := c.tree.Device(a)
	if err != nil || d == nil {
		have := "not there"
		if err != nil {
			have = err.Error()
		}
		fix := "make a new plan from the machine as it is"
		if strings.Contains(id, "/vf") {
			fix = "rackless prepare makes virtual functions"
		}
		// All fail, because any may be selected alone.
		for _, f := range []finding.Finding{{ID: IDDevice, Want: "there"},
			{ID: IDGroup, Want: "a group of its own, or one that goes to the node whole"},
			{ID: IDVFIO, Want: "vfio-pci"}} {
			f.Subject, f.Have, f.Fix, f.Evidence = subject, have, fix, "/sys/bus/pci/devices"
			c.judge(false, f)
		}
		return
	}
	c.present(n, id, d)
	c.group(subject, d, ours, seen)

	f := finding.Finding{ID: IDVFIO, Subject: subject, Have: cmp.Or(d.Driver, "no driver"), Want: "vfio-pci",
		Evidence: sysPCI(a) + "/driver", Fix: fmt.Sprintf("rackless prepare hands it over; "+
			"by hand: echo vfio-pci > %[1]s/driver_override; echo %[2]s > %[1]s/driver/unbind; echo "+
			"%[2]s > /sys/bus/pci/drivers_probe", sysPCI(a), a)}
	if d.Driver == "" && !d.DriverKnown {
		c.unread(IDVFIO, subject, f.Want, f.Evidence)
		return
	}
	c.judge(topology.IsVFIO(d.Driver), f)
}

func (c *hostCheck) present(n *plan.Node, id string, d *topology.PCIDevice) {
	f := finding.Finding{ID: IDDevice, Subject: n.Name + " " + id, Have: "there", Want: "there",
		Evidence: sysPCI(d.Address)}
	i := slices.IndexFunc(n.Cards, func(k plan.NodeDevice) bool {
		return k.ID == id || slices.Contains(k.Functions, id)
	})
	if d.Dead {
		f.Have, f.Fix = "every register reads as ones: it hangs, or has fallen off the bus",
			"reset it, or start the host cold; rackless explain RL030 and following have more"
		c.judge(false, f)
		return
	}
	ok := true
	// A card that moved to another slot may keep its address, but is then far from the node's CPUs.
	if i >= 0 && n.Cards[i].NUMANode != nil {
		node := *n.Cards[i].NUMANode
		f.Want, f.Evidence = fmt.Sprintf("there, on NUMA node %d", node), f.Evidence+"/numa_node"
		f.Fix = "make a new plan: the card is in another slot, or the firmware divides the machine in another way"
		if d.NUMANode == nil {
			c.unknown(f, "there; the host does not tell its NUMA node", "see rackless explain RL010")
			return
		}
		f.Have = fmt.Sprintf("there, on NUMA node %d", *d.NUMANode)
		ok = *d.NUMANode == node
	}
	c.judge(ok, f)
}

// group is checked once per lab node.
func (c *hostCheck) group(subject string, d *topology.PCIDevice, ours map[topology.PCIAddr]bool, seen map[int]bool) {
	want := "every other function of the group on vfio-pci, pci-stub or no driver"
	// That is a fault if the IOMMU is known to be on or off. Otherwise the group may be unread.
	if d.IOMMUGroup == nil {
		if c.h.IOMMU.Enabled != nil {
			c.judge(false, finding.Finding{ID: IDGroup, Subject: subject, Have: "in no group", Want: want,
				Evidence: sysPCI(d.Address) + "/iommu_group", Fix: "turn the IOMMU on: rackless explain RL213"})
			return
		}
		c.unread(IDGroup, subject, want, sysPCI(d.Address)+"/iommu_group")
		return
	}
	id := *d.IOMMUGroup
	if seen[id] {
		return
	}
	seen[id] = true
	var blocked []string
	others := 0
	for i := range c.h.PCI {
		m := &c.h.PCI[i]
		// Bridges stay with the kernel: VFIO accepts drivers that do not access memory.
		if m.IOMMUGroup == nil || *m.IOMMUGroup != id || m.IsBridge() || ours[m.Address] {
			continue
		}
		others++
		// pci-stub does not use its function, so VFIO treats it like no driver.
		if m.Driver != "" && !topology.IsVFIO(m.Driver) && m.Driver != "pci-stub" {
			blocked = append(blocked, fmt.Sprintf("%s is on %s", m.Address, m.Driver))
		}
	}
	f := finding.Finding{ID: IDGroup, Subject: subject, Have: fmt.Sprintf("group %d goes to the node whole", id),
		Want: want, Evidence: fmt.Sprintf("/sys/kernel/iommu_groups/%d/devices, /sys/bus/pci/devices/*/driver", id)}
	switch {
	case len(blocked) > 0:
		f.Have = fmt.Sprintf("group %d is not viable: %s", id, few(blocked, 4))
		f.Fix = "bind them to vfio-pci too if the host can do without them, or put the card into another slot; " +
			"rackless explain RL022"
	case others > 0:
		f.Have = fmt.Sprintf("group %d: %s more, none on a driver of the host", id, words.Count(others, "function"))
	}
	c.judge(len(blocked) == 0, f)
}

func (c *hostCheck) link(subject, id string, wrong map[string]finding.Finding) {
	a, err := topology.ParsePCIAddr(id)
	d := c.tree.Device(a)
	if err != nil || d == nil {
		return // reported by device
	}
	if g := c.gpu(id); g != nil && g.Kind == topology.GPUStandIn {
		return // emulated, without a link
	}
	f := finding.Finding{ID: IDPCIeLink, Subject: subject, Have: linkText(d.Link),
		Want: "what the device and its port can both do", Evidence: sysPCI(a) +
			"/current_link_speed, current_link_width"}
	w, bad := wrong[a.String()]
	switch {
	case bad:
		f.Have += ": " + w.Title
		f.Evidence, f.Fix = w.Evidence, w.Fix+"; rackless explain "+w.ID
	case d.Link == nil || d.Link.SpeedGTs == nil || d.Link.Width == nil:
		c.unread(f.ID, subject, f.Want, f.Evidence)
		return
	}
	c.judge(!bad, f)
}

func linkText(l *topology.Link) string {
	if l == nil || l.SpeedGTs == nil || l.Width == nil {
		return "not known"
	}
	return fmt.Sprintf("%s GT/s x%d", strconv.FormatFloat(*l.SpeedGTs, 'f', -1, 64), *l.Width)
}

// virtualFunctions accepts more than planned, because they may belong to another lab.
func (c *hostCheck) virtualFunctions() {
	for _, want := range c.p.VFs {
		a, err := topology.ParsePCIAddr(want.PF)
		d := c.tree.Device(a)
		f := finding.Finding{ID: IDVFs, Subject: want.PF, Want: fmt.Sprintf("at least %d", want.Count),
			Evidence: sysPCI(a) + "/sriov_numvfs",
			Fix:      "rackless prepare makes them"}
		switch {
		case err != nil || d == nil:
			f.Have, f.Evidence, f.Fix = "not there", "/sys/bus/pci/devices", "make a new plan from the machine as it is"
			c.judge(false, f)
			continue
		case d.SRIOV == nil || d.SRIOV.Enabled == nil:
			c.unread(IDVFs, want.PF, f.Want, f.Evidence)
		default:
			f.Have = fmt.Sprint(*d.SRIOV.Enabled)
			if total := d.SRIOV.Total; total != nil {
				f.Have += fmt.Sprintf(" of %d", *total)
				if *total < want.Count {
					f.Fix = "raise NUM_OF_VFS in the NIC's firmware (rackless prepare --firmware), start the host " +
						"cold, then " +
						f.Fix
				}
			}
			c.judge(*d.SRIOV.Enabled >= want.Count, f)
		}
		c.port(a)
	}
}

func (c *hostCheck) port(a topology.PCIAddr) {
	const want = "up, with a carrier"
	i := slices.IndexFunc(c.h.NICs, func(n topology.NIC) bool { return n.Address != nil && *n.Address == a })
	if i < 0 || len(c.h.NICs[i].Ports) == 0 {
		c.unread(IDPF, a.String(), want, sysPCI(a)+"/net")
		return
	}
	for _, p := range c.h.NICs[i].Ports {
		if strings.Contains(p.PhysPort, "vf") || strings.Contains(p.PhysPort, "sf") {
			continue // a representor of a virtual function
		}
		f := finding.Finding{ID: IDPF, Subject: a.String() + " " + p.Name, Have: "operstate " + cmp.Or(p.State,
			"not known"), Want: want, Evidence: "/sys/class/net/" + p.Name + "/operstate, carrier, speed",
			Fix: "ip link set " + p.Name + " up; without a carrier see ethtool " + p.Name + " and the cable"}
		up := p.State == "up"
		if p.Carrier != nil {
			f.Have += map[bool]string{true: ", carrier", false: ", no carrier"}[*p.Carrier]
			up = up && *p.Carrier
		}
		if p.SpeedMbps != nil {
			f.Have += fmt.Sprintf(", %d Mb/s", *p.SpeedMbps)
		}
		if p.State == "" {
			c.unread(IDPF, f.Subject, want, f.Evidence)
			continue
		}
		c.judge(up, f)
	}
}
