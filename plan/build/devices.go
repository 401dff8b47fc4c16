package build

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

type deviceFacts struct {
	addr        *topology.PCIAddr
	names       []string // other names: GPU0, mlx5_0, enp65s0f0np0
	number      string   // of its vendor, "0x10de", or empty
	card        []topology.PCIAddr
	member      string // bond or bridge with one of its ports
	refused     string // apart from its bundle
	noVFsReason string
	vfs         []vfFunction
	sriov       *topology.SRIOV
}

type vfFunction struct {
	index int
	addr  topology.PCIAddr
}

// addDevices sorts, so that indexes, and with them the choice among equals, do not depend on the order in the source.
func (b *problemBuilder) addDevices() {
	type entry struct {
		d plan.Device
		f deviceFacts
	}
	var entries []entry
	add := func(d plan.Device, f deviceFacts) {
		if d.ID == "" {
			b.note("a %s has neither an address nor a name, and is left out", kindWord(d.Kind))
			return
		}
		entries = append(entries, entry{d, f})
	}
	for i := range b.host.GPUs {
		if g := &b.host.GPUs[i]; g.Kind != topology.GPUDisplay {
			add(b.gpu(g))
		}
	}
	b.noteStandIns()
	for i := range b.host.NICs {
		if n := &b.host.NICs[i]; n.PF == nil {
			add(b.nic(n))
		}
	}
	slices.SortStableFunc(entries, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.d.Kind, y.d.Kind), compareIDs(&x.d, &x.f, &y.d, &y.f))
	})
	for i, e := range entries {
		if i > 0 && e.d.ID == entries[i-1].d.ID && e.d.Kind == entries[i-1].d.Kind {
			b.fail("", "", "%s: two %ss are called %s", b.name, kindWord(e.d.Kind), words.Plain(e.d.ID))
			continue
		}
		b.p.Devices = append(b.p.Devices, e.d)
		b.facts = append(b.facts, e.f)
	}
	b.bundle()
	b.countVFs()
	b.noteUnknownNodes()
}

func (b *problemBuilder) addLinks() {
	for k, link := range b.lab.Links {
		for _, name := range link {
			switch found := b.lookUp(name, plan.KindNIC); {
			case len(found) == 0:
				b.fail("", "links", "no NIC %s on %s: %s", words.Plain(name), b.name, b.devicesThere(plan.KindNIC))
			case len(found) > 1:
				b.fail("", "links", "%s may be %s: give the address", words.Plain(name), rowText(b.ids(found)))
			case b.p.Devices[found[0]].Net > 0:
				b.fail("", "links", "NIC %s is named twice: a cable joins two ports, and all ports of a switch "+
					"are one link", words.Plain(name))
			default:
				b.p.Devices[found[0]].Net = k + 1
			}
		}
	}
}

// noteUnknownNodes says that the cost omits their distances.
func (b *problemBuilder) noteUnknownNodes() {
	var ids []string
	for i := range b.p.Devices {
		d := &b.p.Devices[i]
		if d.NUMANode == nil && (d.Whole || d.VFs > 0) && (b.wantsDevices(d.Kind) ||
			d.Kind == plan.KindNIC && b.wantsDevices(plan.KindVF)) {
			ids = append(ids, plan.DeviceName(d.Kind, words.Plain(d.ID)))
		}
	}
	if len(ids) > 0 {
		b.note("the host does not tell the NUMA node of %s: the distance of cores and memory to them is not considered",
			listText(ids))
	}
}

func (b *problemBuilder) noteStandIns() {
	var standIns, emulated []string
	for _, g := range b.host.GPUs {
		switch {
		case g.Kind != topology.GPUStandIn:
		case g.Vendor == topology.VendorEmulated:
			emulated = append(emulated, g.ID())
		default:
			standIns = append(standIns, g.ID())
		}
	}
	if !b.wantsDevices(plan.KindGPU) {
		return
	}
	if len(standIns) > 0 {
		b.note("the host is emulated: its GPUs (%s) are stand-ins, which go where GPUs go and compute nothing",
			strings.Join(standIns, ", "))
	}
	if len(emulated) > 0 {
		b.note("the host is emulated: its GPUs (%s) have only memory, and compute nothing",
			strings.Join(emulated, ", "))
	}
}

// compareIDs orders by address, then by name with numbers: GPU2 before GPU10.
func compareIDs(x *plan.Device, fx *deviceFacts, y *plan.Device, fy *deviceFacts) int {
	switch {
	case fx.addr != nil && fy.addr != nil:
		return fx.addr.Compare(*fy.addr)
	case fx.addr != nil:
		return -1
	case fy.addr != nil:
		return 1
	}
	textX, numberX := trailingNumber(x.ID)
	textY, numberY := trailingNumber(y.ID)
	return cmp.Or(cmp.Compare(textX, textY), cmp.Compare(numberX, numberY), cmp.Compare(x.ID, y.ID))
}

// trailingNumber splits "GPU10". A name without a number has -1.
func trailingNumber(s string) (text string, n int) {
	text = strings.TrimRight(s, "0123456789")
	if n, err := strconv.Atoi(s[len(text):]); err == nil {
		return text, n
	}
	return s, -1
}

func kindWord(kind string) string {
	return cmp.Or(map[string]string{plan.KindGPU: "GPU", plan.KindVF: "virtual function"}[kind], "NIC")
}

// gpu refuses a GPU with existing virtual functions (SR-IOV vGPUs): they would vanish for their users.
func (b *problemBuilder) gpu(g *topology.GPU) (plan.Device, deviceFacts) {
	d := plan.Device{ID: g.ID(), Kind: plan.KindGPU, Vendor: g.Vendor, Model: g.Model}
	f := deviceFacts{addr: g.Address, names: nonEmpty(g.Name, g.UUID)}
	p := b.describe(&d, &f, g.NUMANode)
	for _, a := range g.Functions {
		if f.addr != nil {
			f.card = lists.Add(f.card, a)
		}
	}
	if p != nil && p.SRIOV != nil && len(p.SRIOV.VFs) > 0 {
		f.refused = fmt.Sprintf("it has virtual functions (%d), which go instead of it", len(p.SRIOV.VFs))
	}
	return d, f
}

func nonEmpty(names ...string) []string {
	return slices.DeleteFunc(names, func(s string) bool { return s == "" })
}

// describe returns the PCI function, or nil if there is no such function.
func (b *problemBuilder) describe(d *plan.Device, f *deviceFacts, node *int) (p *topology.PCIDevice) {
	if f.addr != nil {
		f.card, p = []topology.PCIAddr{*f.addr}, b.tree.Device(*f.addr)
	}
	if p != nil {
		node = cmp.Or(node, p.NUMANode)
		d.Vendor, d.Model = cmp.Or(d.Vendor, p.VendorName), cmp.Or(d.Model, p.DeviceName)
		if p.Vendor != nil {
			f.number = p.Vendor.String()
			d.Vendor = cmp.Or(d.Vendor, f.number)
		}
	}
	d.NUMANode = b.knownNode(node, kindWord(d.Kind)+" "+words.Plain(d.ID))
	return p
}

// nic takes names of ports and RDMA devices, because people use those: mlx5_0, enp65s0f0np0.
func (b *problemBuilder) nic(n *topology.NIC) (plan.Device, deviceFacts) {
	d := plan.Device{ID: n.ID(), Kind: plan.KindNIC, Model: n.Model}
	f := deviceFacts{addr: n.Address, names: slices.Concat(nonEmpty(n.Name), n.Netdevs, n.RDMA)}
	p := b.describe(&d, &f, n.NUMANode)
	if f.sriov = n.SRIOV; f.sriov == nil && p != nil {
		f.sriov = p.SRIOV
	}
	d.RateMbps = linkRate(n)
	d.RateUnknown = d.RateMbps == 0 && !linkDown(n)
	d.RDMA = couldRDMA(n, p)
	for _, port := range n.Ports {
		f.member = cmp.Or(f.member, port.Master)
	}
	for _, bond := range b.host.Bonds {
		if slices.ContainsFunc(bond.Members, func(m string) bool { return slices.Contains(n.Netdevs, m) }) {
			f.member = cmp.Or(f.member, bond.Name)
		}
	}
	return d, f
}

// linkRate is in Mb/s, or 0 if unknown. It prefers the network device over an active RDMA port.
func linkRate(n *topology.NIC) int64 {
	var rate int64
	if n.SpeedMbps != nil {
		rate = max(rate, *n.SpeedMbps)
	}
	for _, port := range n.Ports {
		if port.SpeedMbps != nil {
			rate = max(rate, *port.SpeedMbps)
		}
	}
	if rate > 0 {
		return rate
	}
	for _, d := range n.Devices {
		for _, port := range d.Ports {
			if r := port.RateGbps; r != nil && port.State == "ACTIVE" && *r > 0 && *r < 1e6 {
				rate = max(rate, int64(*r*1000))
			}
		}
	}
	return rate
}

// linkDown reports whether a NIC without a rate says that its link is down. One that is bound to vfio-pci says nothing.
func linkDown(n *topology.NIC) bool {
	// operstates: RFC 2863, Documentation/networking/operstates.rst
	down := func(p topology.Netdev) bool {
		return p.Carrier != nil && !*p.Carrier || p.State == "down" || p.State == "lowerlayerdown"
	}
	inactive := func(p topology.RDMAPort) bool { return p.State != "" && p.State != "ACTIVE" }
	return slices.ContainsFunc(n.Ports, down) || slices.ContainsFunc(n.Devices, func(d topology.RDMADevice) bool {
		return slices.ContainsFunc(d.Ports, inactive)
	})
}

// rdmaDrivers are the network drivers of NICs with RDMA. Drivers with mostly other NICs (i40e, be2net, cxgb4) are left
// out: their RDMA devices tell. Source: drivers/infiniband/hw of Linux, the auxiliary devices of each driver.
var rdmaDrivers = []string{
	"mlx4_core", "mlx5_core", // mlx4_ib, mlx5_ib
	"ice", "irdma", // irdma
	"bnxt_en", "bnxt_re", // bnxt_re
	"qede", "qedr", // qedr
	"hns_roce", "hns_roce_hw_v2", // the PCI driver is hns3, also without RDMA: see couldRDMA
	"ionic", "ionic_rdma", // ionic_rdma
	"efa", "erdma", "hfi1", "qib", "ib_mthca", "vmw_pvrdma", // RDMA drivers themselves
}

// couldRDMA includes NICs that wait for a guest: bound to vfio-pci, they show no RDMA devices.
func couldRDMA(n *topology.NIC, p *topology.PCIDevice) bool {
	if len(n.RDMA) > 0 || len(n.Devices) > 0 {
		return true
	}
	driver := n.Driver
	var class *topology.ID24
	var vendor, device *topology.ID16
	if p != nil {
		driver, class, vendor, device = cmp.Or(driver, p.Driver), p.Class, p.Vendor, p.Device
	}
	switch {
	case slices.Contains(rdmaDrivers, driver):
		return true
	case class != nil && (class.Sub() == topology.SubInfiniBand || class.Sub() == topology.SubFabric):
		return true
	case vendor == nil:
		return false
	case *vendor == topology.VendorMellanox:
		return true
	case *vendor == 0x19e5 && device != nil:
		// Huawei HNS: source drivers/net/ethernet/hisilicon/hns3/hnae3.h, HNAE3_DEV_ID_*_RDMA*
		return *device >= 0xa222 && *device <= 0xa228 && *device != 0xa227
	}
	return false
}

func (b *problemBuilder) wantsDevices(kind string) bool {
	return slices.ContainsFunc(b.lab.Nodes, func(n lab.Node) bool {
		switch kind {
		case plan.KindGPU:
			return n.GPUs > 0 || len(n.GPURequests) > 0
		case plan.KindVF:
			return n.VFs > 0 || len(n.VFRequests) > 0
		}
		return len(n.NICs) > n.VFs || len(n.NICRequests) > 0
	})
}
