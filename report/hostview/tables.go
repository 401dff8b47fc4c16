package hostview

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/report/show"
)

// The matrix of paths follows these.
const (
	titleNodes = "NUMA nodes"
	titleGPUs  = "GPUs"
	titleNICs  = "NICs"
)

// grids lose the columns with the highest Drop first on a narrow terminal.
func (v *view) grids() []grid {
	all := []grid{v.nodeGrid(), v.gpuGrid(), v.nicGrid(), v.settingGrid(), v.bondGrid(), v.switchGrid(),
		v.diskGrid(), v.tenantGrid(), v.askedGrid()}
	for i := range all {
		all[i].tell()
	}
	return slices.DeleteFunc(all, func(g grid) bool { return len(g.Rows) == 0 })
}

func (v *view) nodeGrid() grid {
	g := grid{Title: titleNodes, Heads: []head{
		{Name: "node", Right: true}, {Name: "CPUs", Least: 14}, {Name: "cores", Right: true},
		{Name: "memory", Right: true}, {Name: "free", Right: true, Drop: 3}, {Name: "hugepages", Drop: 1},
		{Name: "L3", Drop: 4}, {Name: "distances", Drop: 2},
	}}
	kinds := slices.ContainsFunc(v.Host.NUMANodes, func(n topology.NUMANode) bool { return special(&n) })
	if kinds {
		g.Heads = append(g.Heads, head{Name: "kind", Least: 4})
	}
	for i := range v.Host.NUMANodes {
		n := &v.Host.NUMANodes[i]
		cores := lists.Count(v.Host.Cores, func(c topology.Core) bool {
			return c.NUMANode != nil && *c.NUMANode == n.ID
		})
		coreText := strconv.Itoa(cores)
		if len(v.Host.Cores) == 0 || v.Host.CPUs.Untold() {
			coreText = unknown
		}
		row := cells(strconv.Itoa(n.ID), "", coreText, optionalSize(n.MemoryBytes), optionalSize(n.FreeBytes),
			poolsText(n.Hugepages), v.l3Text(n.CPUs), distancesText(n.Distances))
		row[1].cpus = &n.CPUs
		if kinds {
			row = append(row, cells(nodeKind(n))...)
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func special(n *topology.NUMANode) bool { return n.Kind != "" && n.Kind != "dram" || n.GPU != nil }

func nodeKind(n *topology.NUMANode) string {
	of := ""
	if n.GPU != nil {
		of = "of " + n.GPU.String()
	}
	return orUnknown(joined(" ", n.Kind, n.MemoryMode, of))
}

func (v *view) l3Text(cpus topology.CPUSet) string {
	if len(v.Host.L3) == 0 {
		return unknown
	}
	here := lists.Filter(v.Host.L3, func(c topology.L3) bool { return c.CPUs.Overlaps(cpus) })
	if len(here) == 0 {
		return none
	}
	// For unequal caches, only the number is correct.
	text, size := strconv.Itoa(len(here)), here[0].SizeBytes
	if size == nil || *size == 0 || slices.ContainsFunc(here,
		func(c topology.L3) bool { return c.SizeBytes == nil || *c.SizeBytes != *size }) {
		return text
	}
	return text + " x " + words.Size(*size)
}

// gpuGrid lists display GPUs last, without names, because the matrix leaves them out.
func (v *view) gpuGrid() grid {
	g := grid{Title: titleGPUs, Heads: []head{
		{Name: ""}, {Name: "address"}, {Name: "model", Least: 14}, {Name: "node", Right: true, Keep: true},
		{Name: "link"}, {Name: "driver", Least: 9, Drop: 1}, {Name: "group", Right: true, Drop: 2},
		{Name: "BAR", Right: true, Drop: 3}, {Name: "memory", Right: true, Drop: 4},
	}}
	add := func(name string, gpu *topology.GPU) {
		d := v.device(gpu.Address)
		model := modelText(gpu.Model, d)
		// A display GPU must not be taken for one that computes.
		if gpu.Kind == topology.GPUDisplay {
			model += " (display)"
		}
		var at topology.PCIDevice
		if d != nil {
			at = *d
		}
		g.Rows = append(g.Rows, cells(name, addressText(gpu.Address), model, intText(v.nodeOf(gpu.NUMANode)),
			deviceLink(d), driverText(gpu.Driver, d),
			intText(at.IOMMUGroup), optionalSize(gpu.BAR1Bytes), optionalSize(gpu.MemoryBytes)))
	}
	for _, gpu := range v.gpus {
		add(v.names[gpu.ID()], gpu)
	}
	for _, gpu := range v.displays {
		add("", gpu)
	}
	return g
}

func addressText(a *topology.PCIAddr) string {
	if a == nil {
		return none
	}
	return a.String()
}

// nicAddress falls back to the physical function's.
func nicAddress(n *topology.NIC) string {
	if n.Address == nil && n.PF != nil {
		return "VF of " + n.PF.String()
	}
	return addressText(n.Address)
}

func driverText(driver string, d *topology.PCIDevice) string {
	if driver == "" && d != nil && d.DriverKnown {
		return none
	}
	return orUnknown(driver)
}

// bracketed matches the product name in "GA102 [GeForce RTX 3090]".
var bracketed = regexp.MustCompile(`\[([^\]]+)\]\s*$`)

// modelText prefers the name in brackets, then the model, then IDs.
func modelText(model string, d *topology.PCIDevice) string {
	if m := bracketed.FindStringSubmatch(model); m != nil {
		return m[1]
	}
	switch {
	case model != "":
		return model
	case d == nil || d.Vendor == nil:
		return unknown
	case d.Device == nil:
		return fmt.Sprintf("%04x", uint16(*d.Vendor))
	}
	return fmt.Sprintf("%04x:%04x", uint16(*d.Vendor), uint16(*d.Device))
}

// nicGrid counts virtual functions with their physical function.
func (v *view) nicGrid() grid {
	g := grid{Title: titleNICs, Heads: []head{
		{Name: ""}, {Name: "address"}, {Name: "netdevs", Least: 12}, {Name: "RDMA", Least: 6},
		{Name: "speed", Right: true, Drop: 1}, {Name: "MTU", Right: true, Drop: 2},
		{Name: "node", Right: true, Keep: true}, {Name: "link"}, {Name: "VFs", Right: true, Drop: 3},
		{Name: "driver", Least: 9, Drop: 4}, {Name: "model", Least: 9, Drop: 5},
	}}
	for _, n := range v.nics {
		d := v.device(n.Address)
		g.Rows = append(g.Rows, cells(v.names[n.ID()], nicAddress(n), listText(n.Netdevs), listText(n.RDMA),
			nicSpeed(n), nicMTU(n), intText(v.nodeOf(n.NUMANode)), deviceLink(d), v.vfText(n, d),
			driverText(n.Driver, d), modelText(n.Model, d)))
	}
	return g
}

func listText(names []string) string { return cmp.Or(strings.Join(names, ","), none) }

func nicSpeed(n *topology.NIC) string {
	if n.SpeedMbps != nil {
		return speedText(*n.SpeedMbps)
	}
	down := lists.Count(n.Ports,
		func(p topology.Netdev) bool { return p.Carrier != nil && !*p.Carrier || p.State == "down" })
	// With one port up the NIC is usable.
	if down > 0 && down == len(n.Ports) {
		return "down"
	}
	return unknown
}

func nicMTU(n *topology.NIC) string {
	var all []int
	for _, p := range n.Ports {
		if p.MTU != nil {
			all = append(all, *p.MTU)
		}
	}
	if len(all) == 0 {
		return unknown
	}
	low, high := slices.Min(all), slices.Max(all)
	if low == high {
		return strconv.Itoa(low)
	}
	return fmt.Sprintf("%d-%d", low, high)
}

// settings matter for RDMA and virtual machines; the JSON has the other 250 or so.
var settings = []string{"SRIOV_EN", "NUM_OF_VFS", "ATS_ENABLED", "LINK_TYPE_P1", "LINK_TYPE_P2", "PCI_WR_ORDERING",
	"ROCE_ADAPTIVE_ROUTING_EN", "ROCE_CC_PRIO_MASK_P1", "ROCE_CC_PRIO_MASK_P2", "CNP_DSCP_P1", "CNP_DSCP_P2",
	"ROCE_CONTROL", "MAX_ACC_OUT_READ", "ADVANCED_PCI_SETTINGS", "INTERNAL_CPU_MODEL"}

func (v *view) settingGrid() grid {
	g := grid{Title: "Settings of NICs", Heads: []head{
		{Name: ""}, {Name: "RDMA port", Least: 8}, {Name: "RDMA MTU", Right: true}, {Name: "trust"}, {Name: "PFC"},
		{Name: "firmware", Least: 12},
	}}
	for _, n := range v.nics {
		var states, mtus, trust, pfc, firmware []string
		for _, d := range n.Devices {
			for _, p := range d.Ports {
				if p.State != "" && p.State != "ACTIVE" {
					state := p.LinkLayer + " " + p.State
					if p.PhysState != "" {
						state += " (" + p.PhysState + ")"
					}
					states = append(states, strings.TrimSpace(state))
				}
				if p.ActiveMTU != nil {
					mtus = append(mtus, strconv.Itoa(*p.ActiveMTU))
				}
			}
		}
		for _, p := range n.Ports {
			if p.QoS != nil {
				trust = append(trust, orUnknown(p.QoS.Trust))
				if p.QoS.PFC != nil {
					pfc = append(pfc, strings.Trim(cmp.Or(strings.Join(strings.Fields(fmt.Sprint(p.QoS.PFC)), ","),
						none), "[]"))
				}
			}
		}
		for _, name := range settings {
			if value, ok := n.Settings[name]; ok {
				firmware = append(firmware, name+"="+value)
			}
		}
		if len(trust)+len(pfc)+len(firmware)+len(mtus)+len(states) > 0 {
			g.Rows = append(g.Rows, cells(v.names[n.ID()], listText(states), listText(slices.Compact(mtus)),
				listText(slices.Compact(trust)), listText(slices.Compact(pfc)), listText(firmware)))
		}
	}
	return g
}

func (v *view) bondGrid() grid {
	g := grid{Title: "Bonds", Heads: []head{
		{Name: "bond"}, {Name: "mode"}, {Name: "hash"}, {Name: "members", Least: 12}, {Name: "speed", Right: true},
		{Name: "MTU", Right: true}, {Name: "RDMA", Least: 6},
	}}
	for i := range v.Host.Bonds {
		b := &v.Host.Bonds[i]
		speed := unknown
		if b.SpeedMbps != nil {
			speed = speedText(*b.SpeedMbps)
		}
		g.Rows = append(g.Rows, cells(b.Name, orUnknown(b.Mode), orUnknown(b.HashPolicy), listText(b.Members), speed,
			intText(b.MTU), listText(b.RDMA)))
	}
	return g
}

func (v *view) switchGrid() grid {
	g := grid{Title: "Virtual switches", Heads: []head{
		{Name: "switch", Least: 10}, {Name: "kind"}, {Name: "MTU", Right: true}, {Name: "uplinks", Least: 8},
		{Name: "port group", Least: 10}, {Name: "VLAN", Right: true, Least: 6},
	}}
	for i := range v.Host.Switches {
		s := &v.Host.Switches[i]
		row := cells(s.Name, s.Kind, intText(s.MTU), listText(s.Uplinks))
		for _, p := range s.PortGroups {
			vlan := ""
			if p.VLAN != 0 {
				vlan = strconv.Itoa(p.VLAN)
			}
			if p.VLAN == allVLANs {
				vlan += " (all)"
			}
			g.Rows = append(g.Rows, append(row, cells(p.Name, cmp.Or(p.VLANs, vlan, none))...))
			row = cells("", "", "", "")
		}
		if len(s.PortGroups) == 0 {
			g.Rows = append(g.Rows, append(row, cells(none, none)...))
		}
	}
	return g
}

// allVLANs is the ID of a standard switch's port group with all VLANs.
const allVLANs = 4095

func (v *view) diskGrid() grid {
	g := grid{Title: "Storage", Heads: []head{
		{Name: "disk"}, {Name: "address"}, {Name: "node", Right: true, Keep: true}, {Name: "size", Right: true},
		{Name: "holds", Least: 12}, {Name: "model", Least: 10, Drop: 1},
	}}
	lived := func(d topology.Disk) bool { return len(d.Mounts) > 0 }
	spare := func(d topology.Disk) bool { return !lived(d) }
	for _, d := range slices.Concat(lists.Filter(v.Host.Storage, lived), lists.Filter(v.Host.Storage, spare)) {
		g.Rows = append(g.Rows, cells(d.Name, addressText(d.PCI), intText(v.diskNode(&d)), optionalSize(d.SizeBytes),
			listText(d.Mounts), orUnknown(d.Model)))
	}
	return g
}

func (v *view) diskNode(d *topology.Disk) *int {
	node := d.NUMANode
	if function := v.device(d.PCI); node == nil && function != nil {
		node = function.NUMANode
	}
	return v.nodeOf(node)
}

// tenantGrid prefers pinned CPUs to CPUs on which a VM floats; "any" has no restrictions.
func (v *view) tenantGrid() grid {
	g := grid{Title: "VMs", Heads: []head{
		{Name: "name", Least: 10}, {Name: "state"}, {Name: "vCPUs", Right: true}, {Name: "on CPUs", Least: 12},
		{Name: "memory", Right: true}, {Name: "nodes", Least: 6, Drop: 1}, {Name: "devices", Least: 12},
	}}
	for i := range v.Host.Tenants {
		t := &v.Host.Tenants[i]
		held := t.Pinned()
		devices := lists.Map(t.Devices, func(d topology.TenantDevice) string {
			if d.Virtual {
				return "a VF of " + d.PCI.String()
			}
			return d.PCI.String()
		})
		// Every VM has CPUs: 0 means unknown.
		vcpus := unknown
		if t.VCPUs > 0 {
			vcpus = strconv.Itoa(t.VCPUs)
		}
		row := cells(t.Name, orUnknown(t.State), vcpus, "any", optionalSize(t.MemoryBytes), "any", listText(devices))
		switch {
		case !held.IsEmpty():
			row[3].cpus = &held
		case t.Floating != nil:
			row[3].cpus = t.Floating
		}
		if t.MemoryNodes != nil {
			row[5].cpus = t.MemoryNodes
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

// askedGrid adds the values in force, which may be lower, for example if hugepages could not be allocated.
func (v *view) askedGrid() grid {
	g := grid{Title: "Kernel parameters", Heads: []head{{Name: "parameter"}, {Name: "asked", Least: 12},
		{Name: "in force", Least: 12}, {Name: "read from", Least: 12, Drop: 1}}}
	for _, p := range v.Host.Kernel.Asked {
		force := unknown
		if p.InForce != nil {
			force = cmp.Or(*p.InForce, none)
		}
		g.Rows = append(g.Rows, cells(p.Name, cmp.Or(p.Asked, none), force, p.Source))
	}
	return g
}

// A grid is for terminal and page, before its width is known.
type grid struct {
	Title string
	Heads []head
	Rows  [][]cell
	More  int    // number of omitted rows
	Note  string // printed below the table
}

type head struct {
	Name  string
	Right bool // right-aligned, for numbers
	Least int  // minimum cell width; 0: never shortened
	Keep  bool // shown even if all cells are unknown
	Drop  int  // order of removal, highest first; 0: never
}

// A cell is a text, or a set of CPUs that cpusText can shorten.
type cell struct {
	text string
	cpus *topology.CPUSet
}

func (c cell) fit(letters int) string {
	if c.cpus != nil && !c.cpus.IsEmpty() {
		return cpusText(*c.cpus, letters)
	}
	s := c.String()
	if text.StringWidth(s) <= letters {
		return s
	}
	return text.Trim(show.Cut(s, letters), letters) // wide characters take two columns
}

// String returns the whole cell.
func (c cell) String() string {
	if c.cpus != nil {
		return setText(c.cpus, 1<<20)
	}
	return c.text
}

func cells(texts ...string) []cell {
	return lists.Map(texts, func(t string) cell { return cell{text: t} })
}

// tell keeps the first three columns, which identify the row.
func (g *grid) tell() {
	// From the right, indexes stay valid.
	for i := len(g.Heads) - 1; i >= 3; i-- {
		says := slices.ContainsFunc(g.Rows, func(r []cell) bool {
			s := r[i].String()
			return s != unknown && s != none && s != ""
		})
		if says || g.Heads[i].Keep {
			continue
		}
		g.Heads = slices.Delete(slices.Clone(g.Heads), i, i+1)
		for j, r := range g.Rows {
			g.Rows[j] = slices.Delete(r, i, i+1)
		}
	}
}

// fitted is wider than width if nothing can be shortened or dropped.
func (g *grid) fitted(width, gap int) (heads []head, rows [][]string) {
	keep := make([]int, len(g.Heads))
	widths := make([]int, len(g.Heads))
	for i, h := range g.Heads {
		keep[i] = i
		widths[i] = text.StringWidth(h.Name)
		for _, r := range g.Rows {
			widths[i] = max(widths[i], text.StringWidth(r[i].String()))
		}
	}
	total := func() int { return gap*(len(keep)-1) + lists.Sum(keep, func(i int) int { return widths[i] }) }
	for total() > width {
		// One letter at a time, long models and lists shrink together.
		widest := -1
		for _, i := range keep {
			if least := g.Heads[i].Least; least > 0 && widths[i] > max(least, len(g.Heads[i].Name)) &&
				(widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest >= 0 {
			widths[widest]--
			continue
		}
		drop := -1
		for at, i := range keep {
			if d := g.Heads[i].Drop; d > 0 && (drop < 0 || d > g.Heads[keep[drop]].Drop) {
				drop = at
			}
		}
		if drop < 0 {
			break
		}
		keep = append(keep[:drop:drop], keep[drop+1:]...)
	}
	for _, r := range g.Rows {
		rows = append(rows, lists.Map(keep, func(i int) string { return r[i].fit(widths[i]) }))
	}
	return lists.Map(keep, func(i int) head { return g.Heads[i] }), rows
}

func (g *grid) limit(n int) {
	if len(g.Rows) > n {
		g.More = len(g.Rows) - n
		g.Rows = g.Rows[:n]
	}
}
