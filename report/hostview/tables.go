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

// Titles that say where the paths between devices belong.
const (
	titleNodes = "NUMA nodes"
	titleGPUs  = "GPUs"
	titleNICs  = "NICs"
)

// grids are the tables of a machine, without those that would be empty.
//
// In each grid Drop orders what goes where the terminal is narrow, the highest first. What tells devices apart, and
// where they are, stays.
func (v *view) grids() []grid {
	all := []grid{v.nodeGrid(), v.gpuGrid(), v.nicGrid(), v.settingGrid(), v.bondGrid(), v.switchGrid(),
		v.diskGrid(), v.tenantGrid(), v.askedGrid()}
	for i := range all {
		all[i].tell()
	}
	return slices.DeleteFunc(all, func(g grid) bool { return len(g.Rows) == 0 })
}

// nodeGrid lists the NUMA nodes. Only some machines have nodes of more than one kind of memory: there the kind has a
// column.
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
		// Without a list of cores, 0 of them would be wrong of every node.
		coreText := strconv.Itoa(cores)
		if len(v.Host.Cores) == 0 {
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

// special reports whether the memory of a node is more than plain memory.
func special(n *topology.NUMANode) bool { return n.Kind != "" && n.Kind != "dram" || n.GPU != nil }

// nodeKind says what the memory of a node is.
func nodeKind(n *topology.NUMANode) string {
	of := ""
	if n.GPU != nil {
		of = "of " + n.GPU.String()
	}
	return orUnknown(joined(" ", n.Kind, n.MemoryMode, of))
}

// l3Text is "2 x 8 MiB" of the level-3 caches of a set of CPUs.
func (v *view) l3Text(cpus topology.CPUSet) string {
	if len(v.Host.L3) == 0 {
		return unknown
	}
	here := lists.Filter(v.Host.L3, func(c topology.L3) bool { return c.CPUs.Overlaps(cpus) })
	if len(here) == 0 {
		return none
	}
	// A size is told only if all of them have it: of unequal caches the number alone is true.
	text, size := strconv.Itoa(len(here)), here[0].SizeBytes
	if size == nil || *size == 0 || slices.ContainsFunc(here,
		func(c topology.L3) bool { return c.SizeBytes == nil || *c.SizeBytes != *size }) {
		return text
	}
	return text + " x " + words.Size(*size)
}

// gpuGrid lists the GPUs, those that only drive a screen last. These have no name, since the matrix leaves them out.
func (v *view) gpuGrid() grid {
	g := grid{Title: titleGPUs, Heads: []head{
		{Name: ""}, {Name: "address"}, {Name: "model", Least: 14}, {Name: "node", Right: true, Keep: true},
		{Name: "link"}, {Name: "driver", Least: 9, Drop: 1}, {Name: "group", Right: true, Drop: 2},
		{Name: "BAR", Right: true, Drop: 3}, {Name: "memory", Right: true, Drop: 4},
	}}
	add := func(name string, gpu *topology.GPU) {
		d := v.device(gpu.Address)
		model := modelText(gpu.Model, d)
		// Such a GPU stands in the table, and its row must not be taken for one that computes.
		if gpu.Kind == topology.GPUDisplay {
			model += " (display)"
		}
		var at topology.PCIDevice
		if d != nil {
			at = *d
		}
		g.Rows = append(g.Rows, cells(name, addressText(gpu.Address), model, intText(v.nodeOf(gpu.NUMANode)),
			linkText(at.Link), driverText(gpu.Driver, d),
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

// addressText is the address, or none for what is known by another tool's name alone.
func addressText(a *topology.PCIAddr) string {
	if a == nil {
		return none
	}
	return a.String()
}

// driverText is the driver; none where it is known that there is none.
func driverText(driver string, d *topology.PCIDevice) string {
	if driver == "" && d != nil && d.DriverKnown {
		return none
	}
	return orUnknown(driver)
}

// bracketed is the name that a product is sold under in an entry of pci.ids: "GA102 [GeForce RTX 3090]".
var bracketed = regexp.MustCompile(`\[([^\]]+)\]\s*$`)

// modelText is the shortest name that a reader knows: the one in brackets, the whole one, or the IDs.
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

// nicGrid lists the NICs, without virtual functions: these are counted in the row of their physical function.
func (v *view) nicGrid() grid {
	g := grid{Title: titleNICs, Heads: []head{
		{Name: ""}, {Name: "address"}, {Name: "netdevs", Least: 12}, {Name: "RDMA", Least: 6},
		{Name: "speed", Right: true, Drop: 1}, {Name: "MTU", Right: true, Drop: 2},
		{Name: "node", Right: true, Keep: true}, {Name: "link"}, {Name: "VFs", Right: true, Drop: 3},
		{Name: "driver", Least: 9, Drop: 4}, {Name: "model", Least: 9, Drop: 5},
	}}
	for _, n := range v.nics {
		d := v.device(n.Address)
		var link *topology.Link
		if d != nil {
			link = d.Link
		}
		g.Rows = append(g.Rows, cells(v.names[n.ID()], addressText(n.Address), listText(n.Netdevs), listText(n.RDMA),
			nicSpeed(n), nicMTU(n), intText(v.nodeOf(n.NUMANode)), linkText(link), v.vfText(n, d),
			driverText(n.Driver, d), modelText(n.Model, d)))
	}
	return g
}

// listText joins names; none where there are none.
func listText(names []string) string { return cmp.Or(strings.Join(names, ","), none) }

// nicSpeed is the speed, or "down" where all that could have one is known to be without a link.
func nicSpeed(n *topology.NIC) string {
	if n.SpeedMbps != nil {
		return speedText(*n.SpeedMbps)
	}
	down := lists.Count(n.Ports,
		func(p topology.Netdev) bool { return p.Carrier != nil && !*p.Carrier || p.State == "down" })
	// One port with a link is enough for the NIC to be of use, and its speed is then merely not known.
	if down > 0 && down == len(n.Ports) {
		return "down"
	}
	return unknown
}

// nicMTU is the MTU of the ports, a range where they differ.
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

// settings are those of a NIC's firmware that matter for RDMA and for virtual machines. Others, some 250 of them, are
// in the JSON.
var settings = []string{"SRIOV_EN", "NUM_OF_VFS", "ATS_ENABLED", "LINK_TYPE_P1", "LINK_TYPE_P2", "PCI_WR_ORDERING",
	"ROCE_ADAPTIVE_ROUTING_EN", "ROCE_CC_PRIO_MASK_P1", "ROCE_CC_PRIO_MASK_P2", "CNP_DSCP_P1", "CNP_DSCP_P2",
	"ROCE_CONTROL", "MAX_ACC_OUT_READ", "ADVANCED_PCI_SETTINGS", "INTERNAL_CPU_MODEL"}

// settingGrid lists what decides how NICs treat packets, of those of which it is known.
func (v *view) settingGrid() grid {
	g := grid{Title: "Settings of NICs", Heads: []head{
		{Name: ""}, {Name: "RDMA port", Least: 8}, {Name: "RDMA MTU", Right: true}, {Name: "trust"}, {Name: "PFC"},
		{Name: "firmware", Least: 12},
	}}
	for _, n := range v.nics {
		var states, mtus, trust, pfc, firmware []string
		for _, d := range n.Devices {
			for _, p := range d.Ports {
				if p.State != "" && p.State != "ACTIVE" { // those that work have a speed above
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

// bondGrid lists the bonds.
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

// switchGrid lists the virtual switches, with a row for each port group.
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

// allVLANs is the VLAN of a port group of a standard switch that has all of them.
const allVLANs = 4095

// diskGrid lists the disks, those that the host needs first.
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

// diskNode is the node of a disk, or else of the function that it is behind.
func (v *view) diskNode(d *topology.Disk) *int {
	node := d.NUMANode
	if function := v.device(d.PCI); node == nil && function != nil {
		node = function.NUMANode
	}
	return v.nodeOf(node)
}

// tenantGrid lists the virtual machines that are there already. CPUs of virtual CPUs that are pinned come before those
// on which the others may float; "any" is a VM that nothing keeps anywhere.
func (v *view) tenantGrid() grid {
	g := grid{Title: "Tenants", Heads: []head{
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
		// No VM has none: its source does not tell.
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

// askedGrid lists what the kernel was asked for on its command line, beside what is in force: it may give less, such as
// hugepages that it could not get.
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

// A grid is a table before anybody has decided how wide it may be. The terminal and the page print the same grids.
type grid struct {
	Title string
	Heads []head
	Rows  [][]cell
	More  int    // rows that were left out
	Note  string // below the table; empty for none
}

// A head is a column.
type head struct {
	Name  string
	Right bool // numbers stand at the right
	Least int  // letters to which its cells may be shortened when there is no room; 0: they may not
	Keep  bool // that nothing is known of it is worth a column
	Drop  int  // when there still is no room, the column with the highest Drop goes; 0: it stays
}

// A cell is a text, or a set of CPUs, which cpusText shortens.
type cell struct {
	text string
	cpus *topology.CPUSet
}

// fit is the cell in at most so many letters.
func (c cell) fit(letters int) string {
	if c.cpus != nil && !c.cpus.IsEmpty() {
		return cpusText(*c.cpus, letters)
	}
	s := c.String()
	if text.StringWidth(s) <= letters {
		return s
	}
	return text.Trim(show.Cut(s, letters), letters) // letters that take two columns need the second
}

// String is the whole cell.
func (c cell) String() string {
	if c.cpus != nil {
		return setText(c.cpus, 1<<20)
	}
	return c.text
}

// cells makes a row of texts.
func cells(texts ...string) []cell {
	return lists.Map(texts, func(t string) cell { return cell{text: t} })
}

// tell drops the columns in which no cell says anything, but for the first three, which say what a row is.
func (g *grid) tell() {
	// From the right, so that places of columns that are still to be looked at stay.
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

// fitted is a grid that is at most width letters wide, if that can be had, with gap letters between its columns: the
// names of its columns, which of them are to the right, and its rows. It stays wider where all columns that are left
// have to be whole.
func (g *grid) fitted(width, gap int) (heads []head, rows [][]string) {
	keep := make([]int, len(g.Heads)) // places of the columns that stay
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
		// The widest column that can give gives; columns go only when none can.
		// One letter at a time, always from the widest: long models and lists shrink together, instead of one to
		// nothing.
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

// limit leaves out the rows after the first n, and counts them.
func (g *grid) limit(n int) {
	if len(g.Rows) > n {
		g.More = len(g.Rows) - n
		g.Rows = g.Rows[:n]
	}
}
