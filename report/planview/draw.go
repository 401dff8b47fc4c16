package planview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
)

// SVG draws a plan into the picture of its host.
func SVG(w io.Writer, pl *plan.Plan, h *topology.Host) error { return document(pl, h).WriteSVG(w) }

// HTML writes a page with the picture and the tables of a plan.
func HTML(w io.Writer, pl *plan.Plan, h *topology.Host) error { return document(pl, h).WritePage(w) }

// document has findings about paths across NUMA nodes instead of inspect's: the picture is about the plan.
func document(pl *plan.Plan, h *topology.Host) *hostview.Document {
	d := hostview.NewDocument(h, crossings(pl, h))
	p := &hostview.Placement{Heading: "Plan of lab " + pl.Lab, Result: bestText(pl),
		Facts:   []string{"On " + hostText(pl), "placement: " + bestText(pl)},
		Devices: map[string][]int{}}
	if len(pl.KernelArgs) > 0 {
		p.Facts = append(p.Facts, "kernel: "+strings.Join(pl.KernelArgs, " "))
	}
	p.Owners = owners(pl, h)
	p.Cables = cables(pl, h)
	p.Nodes = shares(pl, h)
	for i := range pl.Nodes {
		for _, c := range pl.Nodes[i].Cards {
			for _, id := range append(c.Functions, c.ID) {
				p.Devices[id] = lists.Add(p.Devices[id], i)
			}
		}
	}
	// After the lab nodes: host, emulator threads, tenants, free. See owners.
	tenant := len(pl.Nodes) + 2
	// A device of a lab node is drawn as its own, even if a tenant has it.
	for i := range h.Tenants {
		for _, dev := range h.Tenants[i].Devices {
			if id := dev.PCI.String(); len(p.Devices[id]) == 0 {
				p.Devices[id] = []int{tenant}
			}
		}
	}
	p.Tables = tables(pl)
	d.Placement = p
	return d
}

// owners returns lab nodes first. Memory and devices refer to owners by index.
func owners(pl *plan.Plan, h *topology.Host) []hostview.Owner {
	var out []hostview.Owner
	var emulators topology.CPUSet
	for i := range pl.Nodes {
		n := &pl.Nodes[i]
		emulators = emulators.Union(n.EmulatorCPUs).Union(n.IOThreadCPUs)
		on := fmt.Sprintf("%s on %s, CPUs %s", words.Count(len(n.VCPUs), "virtual CPU"), words.Count(n.Cores, "core"),
			setOrNone(n.CPUs()))
		if idle := siblings(h, n.CPUs()); !idle.IsEmpty() {
			on += "; idle siblings: CPUs " + idle.String()
		}
		o := hostview.Owner{Name: n.Name, Role: hostview.RoleGuest, CPUs: n.CPUs(), Lines: []string{on,
			"memory: " + memoryText(n)}}
		o.Lines = append(o.Lines, "emulator: CPUs "+emulatorText(n))
		o.Nodes, o.Paths = guestNodes(n, h), guestPaths(n, h)
		out = append(out, o)
	}
	keep := pl.Housekeeping
	return append(out,
		hostview.Owner{Name: "host", Role: hostview.RoleHost, CPUs: keep.CPUs.Difference(emulators)},
		hostview.Owner{Name: "host and emulator threads", Role: hostview.RoleEmulator, CPUs: emulators},
		hostview.Owner{Name: "VMs that were there before", Role: hostview.RoleTenant, CPUs: keep.TenantCPUs},
		hostview.Owner{Name: "free", Role: hostview.RoleFree, CPUs: free(pl, h)})
}

func free(pl *plan.Plan, h *topology.Host) topology.CPUSet {
	// Offline CPUs have no owner.
	left := h.CPUs.Online.Union(topology.UnionOf(h.NUMANodes,
		func(n topology.NUMANode) topology.CPUSet { return n.CPUs }))
	if h.CPUs.Online.Len() > 0 {
		left = left.Intersect(h.CPUs.Online)
	}
	left = left.Difference(pl.Housekeeping.CPUs).Difference(pl.Housekeeping.TenantCPUs)
	for i := range pl.Nodes {
		own := pl.Nodes[i].CPUs()
		left = left.Difference(own).Difference(siblings(h, own)).Difference(pl.Nodes[i].EmulatorCPUs)
	}
	return left
}

// siblings returns other threads of the cores, which must stay unassigned.
func siblings(h *topology.Host, cpus topology.CPUSet) topology.CPUSet {
	return h.WholeCores(cpus).Difference(cpus)
}

func shares(pl *plan.Plan, h *topology.Host) map[int]hostview.NodeShare {
	out := map[int]hostview.NodeShare{}
	host := len(pl.Nodes)
	for i := range pl.Nodes {
		for _, m := range pl.Nodes[i].Memory {
			addMemory(out, m.NUMANode, i, m.Bytes)
		}
	}
	for _, p := range pl.Hugepages {
		// Pages in use before the lab belong to tenants.
		addMemory(out, p.NUMANode, host+2, uint64(p.Held)*p.PageBytes)
		s := out[p.NUMANode]
		s.Lines = append(s.Lines, "hugepages: "+pagesText(p, ""))
		out[p.NUMANode] = s
	}
	for i := range h.NUMANodes {
		n := &h.NUMANodes[i]
		if n.MemoryBytes == nil {
			continue
		}
		// Not below 0: the parts may exceed the total.
		left := *n.MemoryBytes
		for _, b := range out[n.ID].Bytes {
			left -= min(left, b)
		}
		addMemory(out, n.ID, host, left)
	}
	return out
}

func addMemory(shares map[int]hostview.NodeShare, node, owner int, bytes uint64) {
	s := shares[node]
	if s.Bytes == nil {
		s.Bytes = map[int]uint64{}
		shares[node] = s
	}
	s.Bytes[owner] += bytes
}

// crossings have the lab node as ID, because the picture shows IDs beside the signs.
func crossings(pl *plan.Plan, h *topology.Host) []finding.Finding {
	var out []finding.Finding
	doubt := finding.Warning
	if pl.Optimal {
		doubt = finding.Info // no placement avoids it at a lower score
	}
	for i := range pl.Nodes {
		n := &pl.Nodes[i]
		on := h.NodesOf(n.CPUs())
		if len(on) == 0 {
			continue // unknown to the host
		}
		runs := "it spans NUMA " + nodesText(on)
		// The first node is the intended one.
		for _, id := range on[1:] {
			out = append(out, crossing(n, doubt, fmt.Sprintf("node %d", id), runs))
		}
		var nics []int // NUMA nodes
		for _, c := range n.Cards {
			if c.Kind != plan.KindGPU && c.NUMANode != nil {
				nics = append(nics, *c.NUMANode)
			}
		}
		for _, m := range n.Memory {
			if !slices.Contains(on, m.NUMANode) && m.Bytes > 0 {
				out = append(out, crossing(n, doubt, fmt.Sprintf("node %d", m.NUMANode),
					"memory on another NUMA node: "+runs))
			}
		}
		for _, c := range n.Cards {
			if c.NUMANode != nil && !slices.Contains(on, *c.NUMANode) {
				out = append(out, crossing(n, doubt, c.ID,
					fmt.Sprintf("device on NUMA node %d: %s", *c.NUMANode, runs)))
			}
			// The NIC's reads of GPU memory cross the interconnect, wherever the cores are.
			if c.Kind == plan.KindGPU && c.NUMANode != nil && len(nics) > 0 && !slices.Contains(nics, *c.NUMANode) {
				out = append(out, crossing(n, doubt, c.ID,
					"no NIC of the lab node is on the NUMA node of its GPU"))
			}
		}
		if e := h.NodesOf(n.EmulatorCPUs); len(e) > 0 && !slices.ContainsFunc(e, func(id int) bool {
			return slices.Contains(on, id)
		}) {
			out = append(out, crossing(n, finding.Info, fmt.Sprintf("node %d", e[0]),
				"emulator threads on NUMA "+nodesText(e)+": "+runs))
		}
	}
	slices.SortStableFunc(out, func(a, b finding.Finding) int {
		return cmp.Compare(a.Severity.Rank(), b.Severity.Rank())
	})
	return out
}

func crossing(n *plan.Node, severity finding.Severity, subject, title string) finding.Finding {
	return finding.Finding{ID: n.Name, Severity: severity, Subject: subject, Title: title}
}

func nodesText(ids []int) string {
	names := lists.Map(ids, strconv.Itoa)
	if len(ids) == 1 {
		return "node " + names[0]
	}
	return "nodes " + words.List(names)
}

// tables has more than the picture, for the terminal.
func tables(pl *plan.Plan) []hostview.Table {
	nodes := hostview.Table{Title: "Lab nodes", Columns: show.Columns("node", "vCPUs>", "cores>", "CPUs", "memory",
		"emulator CPUs")}
	devices := hostview.Table{Title: "Devices", Columns: show.Columns("node", "device", "model")}
	for i := range pl.Nodes {
		n := &pl.Nodes[i]
		nodes.Rows = append(nodes.Rows, []string{n.Name, strconv.Itoa(len(n.VCPUs)), strconv.Itoa(n.Cores),
			setOrNone(n.CPUs()), memoryText(n), emulatorText(n)})
		for k := range n.Cards {
			devices.Rows = append(devices.Rows, []string{n.Name, cardText(&n.Cards[k], n.GuestNUMA), n.Cards[k].Model})
		}
	}
	host := hostview.Table{Title: "Host", Columns: show.Columns("what", "how much")}
	host.Rows = lists.Map(hostFacts(pl), func(f fact) []string { return []string{f.Label, f.Text} })
	costs, _ := termTable(pl)
	out := []hostview.Table{nodes, devices, host, costs}
	reasons := hostview.Table{Title: "Why", Columns: show.Columns("of", "what", "choice", "next best")}
	for _, d := range pl.Decisions {
		next := ""
		if d.RunnerUp != "" {
			next = d.RunnerUp + ", " + priceText(d.RunnerUpCost)
		}
		reasons.Rows = append(reasons.Rows, []string{cmp.Or(d.Node, "host"), strings.ReplaceAll(d.What, "_", " "),
			d.Choice, next})
	}
	notes := hostview.Table{Title: "Notes", Columns: show.Columns("what")}
	notes.Rows = append(notes.Rows, lists.Map(pl.Notes, func(n string) []string { return []string{n} })...)
	return slices.DeleteFunc(append(out, reasons, notes), func(t hostview.Table) bool { return len(t.Rows) == 0 })
}
