package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Guests compares the facts of nodes with the plan. nodes are by name, and nil or missing if a node does not answer.
//
// h supplies the kinds and link capabilities of devices. If it is nil, as for a remote machine, only the NICs are
// checked, which have names.
func Guests(p *plan.Plan, h *topology.Host, nodes map[string]*facts.Node) []finding.Finding {
	host := newHostCheck(p, h, nil, nil)
	var out []finding.Finding
	for i := range p.Nodes {
		n := &p.Nodes[i]
		f := nodes[n.Name]
		if f == nil {
			out = append(out, silent(IDGuestCPUs, n.Name, "it does not answer",
				"virsh list shows whether it runs, and whether its guest agent does"))
			continue
		}
		c := guestCheck{host: host, elsewhere: h == nil, n: n, f: f, sheet: sheet{subject: n.Name, fix: fixRedefine}}
		c.cpus()
		c.siblings()
		c.numa()
		c.devices()
		c.links()
		c.gpuDirect()
		out = append(out, c.out...)
	}
	return coded(out)
}

type guestCheck struct {
	host      *hostCheck
	elsewhere bool // the host is unknown
	n         *plan.Node
	f         *facts.Node
	sheet
}

const fixRedefine = "define the domain of the plan again, shut the node down and start it"

func (c *guestCheck) unread(f finding.Finding) {
	c.unknown(f, "the node does not say", inNode("cat %s", f.Evidence))
}

// cpus requires the CPUs 0 to n-1, as QEMU makes them.
func (c *guestCheck) cpus() {
	want := topology.CPURange(0, len(c.n.VCPUs)-1)
	f := finding.Finding{ID: IDGuestCPUs, Want: words.Count(len(c.n.VCPUs), "CPU") + ": " + list(want),
		Evidence: fileCPU + "online"}
	have := c.f.CPUs.Online
	if have.IsEmpty() { // not read: a running kernel has a CPU
		c.unread(f)
		return
	}
	f.Have = words.Count(have.Len(), "CPU") + ": " + list(have)
	c.judge(have.Equal(want), f)
}

// siblings relies on consecutive virtual CPUs of a core.
func (c *guestCheck) siblings() {
	threads := 1
	if c.n.SMT {
		threads = min(max(c.n.Threads, 1), topology.MaxCPUs)
	}
	f := finding.Finding{ID: IDGuestSiblings, Want: "each CPU a core of its own", Evidence: fileCPU +
		"cpu*/topology/core_id, physical_package_id"}
	if threads > 1 {
		f.Want = fmt.Sprintf("every %d CPUs from 0 on a core", threads)
	}
	if len(c.f.Cores) == 0 {
		c.unread(f)
		return
	}
	var wrong []string
	for _, core := range c.f.Cores {
		set := core.CPUs
		// QEMU numbers a core's threads consecutively.
		first := set.Min()
		if first%threads != 0 || set.Len() != threads || !set.Equal(topology.CPURange(first, first+threads-1)) {
			wrong = append(wrong, set.String())
		}
	}
	f.Have = words.Count(len(c.f.Cores), "core") + fmt.Sprintf(" of %d", threads)
	if len(wrong) > 0 {
		f.Have = words.Count(len(c.f.Cores), "core") + "; not as in the plan: " + few(wrong, 4)
		f.Fix = fixRedefine + "; on AMD its cpu element needs the feature topoext"
	}
	c.judge(len(wrong) == 0, f)
}

// memorySlack is the amount by which a guest's NUMA node may be smaller than its cell: an eighth and 256 MiB cover a
// crash kernel, page tables, and the memory below 1 MiB, while mixed-up cells differ by more.
func memorySlack(cell uint64) uint64 { return cell/8 + 256<<20 }

// numa compares by number, because programs in the guest bind memory by these numbers. Without guest NUMA, one node or
// no list at all is right.
func (c *guestCheck) numa() {
	f := finding.Finding{ID: IDGuestNUMA, Evidence: "/sys/devices/system/node/node*/cpu*, meminfo, distance"}
	if !c.n.GuestNUMA {
		// A kernel without NUMA lacks the directory.
		f.Want, f.Have = "one NUMA node", words.Count(len(c.f.NUMANodes), "NUMA node")
		c.judge(len(c.f.NUMANodes) <= 1, f)
		return
	}
	var cells, have, wrong []string
	for _, cell := range c.n.Cells {
		cells = append(cells, fmt.Sprintf("node %d with CPUs %s", cell.Cell, list(cellCPUs(&cell))))
	}
	f.Want = strings.Join(cells, ", ")
	if len(c.f.NUMANodes) == 0 {
		c.unread(f)
		return
	}
	// In both directions.
	for _, n := range c.f.NUMANodes {
		have = append(have, fmt.Sprintf("node %d with CPUs %s", n.ID, list(n.CPUs)))
		if !slices.ContainsFunc(c.n.Cells, func(cell plan.Cell) bool { return cell.Cell == n.ID }) {
			wrong = append(wrong, fmt.Sprintf("node %d is not in the plan", n.ID))
		}
	}
	for i := range c.n.Cells {
		cell := &c.n.Cells[i]
		n := c.f.NUMANode(cell.Cell)
		if n == nil {
			wrong = append(wrong, fmt.Sprintf("no node %d", cell.Cell))
			continue
		}
		if want := cellCPUs(cell); !n.CPUs.Equal(want) {
			wrong = append(wrong, fmt.Sprintf("node %d has CPUs %s", cell.Cell, list(n.CPUs)))
		}
		if !slices.Equal(n.Distances, cell.Distances) {
			wrong = append(wrong, fmt.Sprintf("node %d has the distances %v, not %v", cell.Cell, n.Distances,
				cell.Distances))
		}
		var bytes uint64
		if n.MemoryBytes != nil {
			bytes = *n.MemoryBytes
		}
		if bytes > cell.Bytes || bytes+memorySlack(cell.Bytes) < cell.Bytes {
			wrong = append(wrong, fmt.Sprintf("node %d has %s, not %s", cell.Cell, amount(bytes), amount(cell.Bytes)))
		}
	}
	f.Have = strings.Join(have, ", ")
	if len(wrong) > 0 {
		f.Have += "; " + few(wrong, 4)
	}
	c.judge(len(wrong) == 0, f)
}

// cellCPUs returns nothing for invalid numbers of a plan from a file.
func cellCPUs(cell *plan.Cell) topology.CPUSet {
	if cell.VCPUs <= 0 || cell.VCPUs > topology.MaxCPUs || cell.FirstVCPU < 0 ||
		cell.FirstVCPU > topology.MaxCPUs-cell.VCPUs {
		return topology.CPUSet{}
	}
	return topology.CPURange(cell.FirstVCPU, cell.FirstVCPU+cell.VCPUs-1)
}

// A deviceKind is visible to a guest. Virtual functions have the vendor of their NIC.
type deviceKind struct {
	base   uint8 // class without subclass
	vendor topology.ID16
}

func (k deviceKind) String() string {
	name := map[uint8]string{topology.ClassDisplay: "GPU", topology.ClassNetwork: "NIC",
		topology.ClassAccelerator: "accelerator"}[k.base]
	return fmt.Sprintf("%s of vendor %s", cmp.Or(name, fmt.Sprintf("function of class 0x%02x", k.base)), k.vendor)
}

func (c *guestCheck) cardKind(card *plan.NodeDevice) (kind deviceKind, d *topology.PCIDevice, ok bool) {
	a, err := topology.ParsePCIAddr(card.ID)
	d = c.host.tree.Device(a)
	if err != nil || d == nil || d.Class == nil || d.Vendor == nil {
		return kind, d, false
	}
	return deviceKind{d.Class.Base(), *d.Vendor}, d, true
}

// functions ignore the machine's own display and paravirtual NIC, of another vendor.
func (c *guestCheck) functions(kind deviceKind) []*topology.PCIDevice {
	var all []*topology.PCIDevice
	for i := range c.f.PCI {
		d := &c.f.PCI[i]
		if d.Class != nil && d.Vendor != nil && d.Class.Base() == kind.base && *d.Vendor == kind.vendor {
			all = append(all, d)
		}
	}
	return all
}

func (c *guestCheck) kinds() (order []deviceKind, cards map[deviceKind][]*plan.NodeDevice) {
	cards = map[deviceKind][]*plan.NodeDevice{}
	// Cards that the host lacks must not be ignored silently.
	for i := range c.n.Cards {
		kind, _, ok := c.cardKind(&c.n.Cards[i])
		if !ok {
			continue
		}
		if cards[kind] == nil {
			order = append(order, kind)
		}
		cards[kind] = append(cards[kind], &c.n.Cards[i])
	}
	return order, cards
}

// members counts functions of the card's kind: a GPU's audio is not, a second port of a NIC is.
func (c *guestCheck) members(card *plan.NodeDevice, kind deviceKind) int {
	return max(1, lists.Count(card.Functions, func(id string) bool {
		a, err := topology.ParsePCIAddr(id)
		d := c.host.tree.Device(a)
		return err == nil && d != nil && d.Class != nil && d.Class.Base() == kind.base
	}))
}

// devices counts by kind: QEMU chooses guest addresses.
func (c *guestCheck) devices() {
	order, cards := c.kinds()
	for i := range c.n.Cards {
		if _, _, ok := c.cardKind(&c.n.Cards[i]); !ok && !c.elsewhere {
			id := c.n.Cards[i].ID
			c.unknown(finding.Finding{ID: IDGuestDevices, Subject: c.n.Name + " " + id,
				Evidence: "/sys/bus/pci/devices/" + id + "/class, vendor (on the host)"},
				"the host does not tell what it is", "make a new plan from the machine as it is")
		}
	}
	for _, kind := range order {
		want := lists.Sum(cards[kind], func(card *plan.NodeDevice) int { return c.members(card, kind) })
		// More than planned may belong to another plan.
		have := len(c.functions(kind))
		c.judge(have == want, finding.Finding{ID: IDGuestDevices, Subject: c.n.Name + " " + kind.String(),
			Have: strconv.Itoa(have), Want: strconv.Itoa(want), Evidence: "/sys/bus/pci/devices/*/class, vendor",
			Fix: inNode("dmesg | grep -i -e BAR -e pci") + "; the domain may be of an older plan, or the firmware's " +
				"window too small for the BARs"})
	}
	if c.n.GuestNUMA {
		c.deviceNodes(order, cards)
	}
}

func (c *guestCheck) deviceNodes(order []deviceKind, cards map[deviceKind][]*plan.NodeDevice) {
	const fix = "the domain has to have an expander bus for each cell with devices: " + fixRedefine
	port := 0
	for i := range c.n.Cards {
		card := &c.n.Cards[i]
		// NICs and virtual functions are ports in the order of cards; see render.
		if card.Kind == plan.KindGPU || port >= len(c.n.NICs) {
			continue
		}
		nic := c.n.NICs[port]
		port++
		// Without a cell, any node of the guest is right.
		if card.Cell == nil {
			continue
		}
		f := finding.Finding{ID: IDGuestNode, Subject: c.n.Name + " " + nic.Name, Have: "no such device",
			Want: fmt.Sprintf("node %d", *card.Cell), Evidence: "/sys/class/net/" + nic.Name + "/device/numa_node",
			Fix: fix}
		node, onCard := c.f.Cards[nic.Name]
		ok := false
		switch {
		case c.f.Netdev(nic.Name) == nil:
		case !onCard:
			f.Have = "not on a card"
		case node == nil:
			c.unread(f)
			continue
		default:
			f.Have, ok = fmt.Sprintf("node %d", *node), *node == *card.Cell
		}
		c.judge(ok, f)
	}
	for _, kind := range order {
		if kind.base == topology.ClassNetwork {
			continue
		}
		var want, have []int
		for _, card := range cards[kind] {
			if card.Cell == nil {
				want = nil
				break
			}
			for range c.members(card, kind) {
				want = append(want, *card.Cell)
			}
		}
		if want == nil {
			continue
		}
		for _, d := range c.functions(kind) {
			if d.NUMANode != nil {
				have = append(have, *d.NUMANode)
			}
		}
		// Equal devices cannot be distinguished, so lists are compared.
		slices.Sort(want)
		slices.Sort(have)
		c.judge(slices.Equal(want, have), finding.Finding{ID: IDGuestNode, Subject: c.n.Name + " " + kind.String(),
			Have: nodeList(have), Want: nodeList(want), Evidence: "/sys/bus/pci/devices/*/numa_node", Fix: fix})
	}
}

func nodeList(nodes []int) string {
	if len(nodes) == 0 {
		return "none"
	}
	return "node " + words.Join(nodes, ", ")
}

// links compares functions of a kind from best to worst, because a guest does not know the host's addresses.
func (c *guestCheck) links() {
	order, cards := c.kinds()
	for _, kind := range order {
		var want []*topology.Link
		for _, card := range cards[kind] {
			_, d, _ := c.cardKind(card)
			if card.Kind == plan.KindVF || d.Link == nil {
				continue
			}
			for range c.members(card, kind) {
				want = append(want, best(d.Link))
			}
		}
		var have []*topology.Link
		for _, d := range c.functions(kind) {
			if d.Link != nil && d.Link.Width != nil { // virtual functions have no link
				have = append(have, d.Link)
			}
		}
		if len(want) == 0 {
			continue
		}
		slices.SortStableFunc(want, worseLink)
		slices.SortStableFunc(have, worseLink)
		f := finding.Finding{ID: IDGuestLink, Subject: c.n.Name + " " + kind.String(), Have: linkTexts(have),
			Want: linkTexts(want), Evidence: "/sys/bus/pci/devices/*/current_link_speed, current_link_width",
			Fix: "shut the node down, train the link again on the host (rackless explain RL003), and start the node"}
		if len(have) == 0 {
			c.unread(f)
			continue
		}
		ok := len(have) == len(want)
		for i := range min(len(have), len(want)) {
			ok = ok && laneCount(have[i]) >= laneCount(want[i])
			// Idle GPUs lower the speed.
			ok = ok && (kind.base != topology.ClassNetwork || laneSpeed(have[i]) >= laneSpeed(want[i]))
		}
		c.judge(ok, f)
	}
}

func best(l *topology.Link) *topology.Link {
	gts, lanes := l.Best()
	return &topology.Link{SpeedGTs: gts, Width: lanes}
}

func worseLink(a, b *topology.Link) int {
	return cmp.Or(cmp.Compare(laneCount(b), laneCount(a)), cmp.Compare(laneSpeed(b), laneSpeed(a)))
}

func laneCount(l *topology.Link) int {
	if l.Width == nil {
		return 0
	}
	return *l.Width
}

// laneSpeed is in GT/s, or 0 if unknown.
func laneSpeed(l *topology.Link) float64 {
	if l.SpeedGTs == nil {
		return 0
	}
	return *l.SpeedGTs
}

func linkTexts(all []*topology.Link) string { return strings.Join(lists.Map(all, linkText), ", ") }

func (c *guestCheck) gpuDirect() {
	hasRDMA := slices.ContainsFunc(c.f.NICs, func(n topology.NIC) bool { return len(n.Devices) > 0 })
	if c.f.NVIDIA == "" || !hasRDMA || len(c.functions(deviceKind{topology.ClassDisplay, topology.VendorNVIDIA})) == 0 {
		return
	}
	f := finding.Finding{ID: IDGPUDirect, Have: "nvidia without nvidia_peermem", Want: "nvidia_peermem, or NVIDIA's " +
		"open driver", Evidence: "/sys/module/nvidia_peermem, /proc/driver/nvidia/version",
		Fix: inNode("modprobe nvidia-peermem")}
	// The open driver exports dma-buf; the closed one does not for RDMA.
	open := strings.Contains(c.f.NVIDIA, "Open Kernel Module")
	switch {
	case len(c.f.Kernel.Modules) > 0:
		f.Have = strings.Join(c.f.Kernel.Modules, ", ")
	case open:
		f.Have = "NVIDIA's open driver, with dma-buf"
	}
	c.judge(len(c.f.Kernel.Modules) > 0 || open, f)
}
