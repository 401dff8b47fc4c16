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
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/report/show"
)

// maxBlocks is the largest number of lab nodes with a block each. More nodes become rows of a table. Sixteen blocks
// fill about two screens.
const maxBlocks = 16

// Table prints a plan: the lab nodes, the resources and settings of the host, and the cost.
func Table(w io.Writer, pl *plan.Plan, o Options) error {
	p := newPage(w, o)
	p.plan(pl)
	return p.flush()
}

func (p page) plan(pl *plan.Plan) {
	p.wrap("", 2, fmt.Sprintf("Plan of lab %s on %s", pl.Lab, hostText(pl)))
	p.wrap("", 2, costText(pl)+".")
	if pl.Host.Provenance.Emulated {
		p.wrap("", 2, "The host is emulated: its paths are those of an emulator.")
	}
	// Both forms have the same facts. Blocks are easier to read, rows are easier to compare.
	if len(pl.Nodes) > maxBlocks {
		p.nodeTable(pl)
	} else {
		for i := range pl.Nodes {
			p.node(&pl.Nodes[i])
		}
	}
	p.host(pl)
	p.terms(pl)
	p.notes(pl)
}

func hostText(pl *plan.Plan) string {
	s := cmp.Or(pl.Host.Model, pl.Host.Name, "the host")
	if pl.Host.Model != "" && pl.Host.Name != "" {
		s += " (" + pl.Host.Name + ")"
	}
	return s + fmt.Sprintf(", workload %s: %s", pl.Workload, words.Count(len(pl.Nodes), "lab node"))
}

func (p page) node(n *plan.Node) {
	head := fmt.Sprintf("%s: %s on %s", n.Name, words.Count(len(n.VCPUs), "virtual CPU"), words.Count(n.Cores, "core"))
	if n.SMT {
		head += " with siblings"
	}
	p.title(head + ", " + words.Size(n.MemoryBytes))
	p.labelled("CPUs", setOrNone(n.CPUs()))
	p.labelled("memory", memoryText(n))
	if n.GuestNUMA {
		for _, c := range n.Cells {
			p.labelled(fmt.Sprintf("guest node %d", c.Cell), cellText(&c))
		}
	}
	label := "devices"
	for i := range n.Cards {
		s := cardText(&n.Cards[i], n.GuestNUMA)
		if m := n.Cards[i].Model; m != "" {
			s += ", " + m
		}
		p.labelled(label, s)
		label = ""
	}
	p.labelled("emulator", "CPUs "+emulatorText(n))
}

func emulatorText(n *plan.Node) string {
	s := setOrNone(n.EmulatorCPUs)
	if !n.IOThreadCPUs.IsEmpty() && !n.IOThreadCPUs.Equal(n.EmulatorCPUs) {
		s += ", I/O threads " + n.IOThreadCPUs.String()
	}
	return s
}

// memoryText returns text such as "8 GiB on NUMA node 0 and 8 GiB on node 1, in pages of 1 GiB".
func memoryText(n *plan.Node) string {
	var parts []string
	same := true
	for i, m := range n.Memory {
		// If the parts have different page sizes, no page size is shown.
		same = same && m.PageBytes == n.Memory[0].PageBytes
		where := "NUMA node"
		if i > 0 {
			where = "node"
		}
		parts = append(parts, fmt.Sprintf("%s on %s %d", words.Size(m.Bytes), where, m.NUMANode))
	}
	switch {
	case len(parts) == 0:
		return "none"
	case same && n.Memory[0].PageBytes > 0:
		return words.List(parts) + ", in pages of " + words.Size(n.Memory[0].PageBytes)
	}
	return words.List(parts)
}

// cellText names the host nodes that a guest NUMA node stands for, and its virtual CPUs and memory.
func cellText(c *plan.Cell) string {
	nodes := lists.Map(c.NUMANodes, strconv.Itoa)
	what := "NUMA nodes "
	if len(nodes) == 1 {
		what = "NUMA node "
	}
	s := "stands for " + what + words.List(nodes) + ": "
	switch c.VCPUs {
	case 0:
		s += "no virtual CPUs"
	case 1:
		s += fmt.Sprintf("virtual CPU %d", c.FirstVCPU)
	default:
		s += fmt.Sprintf("virtual CPUs %d-%d", c.FirstVCPU, c.FirstVCPU+c.VCPUs-1)
	}
	return s + ", " + words.Size(c.Bytes)
}

// nodeTable prints a row for each lab node. CPUs and devices come last, because only the last column wraps.
func (p page) nodeTable(pl *plan.Plan) {
	p.title("Lab nodes")
	var rows [][]string
	for _, n := range pl.Nodes {
		var on, shown []string
		on = append(on, lists.Map(n.Memory, func(m plan.NodeMemory) string { return strconv.Itoa(m.NUMANode) })...)
		// Two spaces separate the CPUs from the devices, which share the wrapping column.
		shown = append(shown, setOrNone(n.CPUs())+" ")
		for _, c := range n.Cards {
			if c.Kind == plan.KindVF && c.VF != nil {
				c.ID += fmt.Sprintf("/vf%d", *c.VF)
			}
			shown = append(shown, c.ID)
		}
		rows = append(rows, []string{n.Name, strconv.Itoa(len(n.VCPUs)), words.Size(n.MemoryBytes),
			strings.Join(on, ","), setOrNone(n.EmulatorCPUs), strings.TrimSpace(strings.Join(shown, " "))})
	}
	p.table(show.Columns("node", "vCPUs>", "memory>", "NUMA", "emulator", "CPUs and devices"), rows)
}

func (p page) host(pl *plan.Plan) {
	p.title("Host")
	last := ""
	for _, r := range hostRows(pl) {
		label := r[0]
		if label == last {
			label = ""
		}
		p.labelled(label, r[1])
		last = r[0]
	}
}

// hostRows returns labels and texts of the resources that the host keeps and the settings that it needs.
func hostRows(pl *plan.Plan) [][2]string {
	out := [][2]string{{"housekeeping", fmt.Sprintf("%s: CPUs %s", words.Count(pl.Housekeeping.Cores, "core"),
		setOrNone(pl.Housekeeping.CPUs))}}
	if !pl.Housekeeping.TenantCPUs.IsEmpty() {
		out = append(out, [2]string{"tenants", "CPUs " + pl.Housekeeping.TenantCPUs.String()})
	}
	pages := lists.Map(pl.Hugepages,
		func(h plan.Hugepages) string { return pagesText(h, fmt.Sprintf(" on NUMA node %d", h.NUMANode)) })
	out = append(out, [2]string{"hugepages", cmp.Or(strings.Join(pages, ", "), "none")})
	for _, v := range pl.VFs {
		out = append(out, [2]string{"VFs", fmt.Sprintf("%s has to have %d, of them %d for the lab", v.PF, v.Count,
			v.Lab)})
	}
	if len(pl.KernelArgs) > 0 {
		out = append(out, [2]string{"kernel", strings.Join(pl.KernelArgs, " ")})
	}
	return out
}

// pagesText returns text such as "16 x 1 GiB on NUMA node 0 beside 4 in use".
func pagesText(h plan.Hugepages, where string) string {
	s := fmt.Sprintf("%d x %s%s", h.Count, words.Size(h.PageBytes), where)
	if h.Held > 0 {
		s += fmt.Sprintf(" beside %d in use", h.Held)
	}
	return s
}

const maxTerms = 8

// terms prints the most expensive terms. Only the JSON has the terms without cost.
func (p page) terms(pl *plan.Plan) {
	rows, more := termRows(pl)
	if len(rows) == 0 {
		return
	}
	p.title("What it costs, in hundredths of a percent")
	p.table(termColumns(), rows)
	if more > 0 {
		p.Line(fmt.Sprintf("and %d more; -o json has all", more))
	}
}

func termColumns() []show.Column { return show.Columns("cost>", "value x weight>", "of", "what") }

func termRows(pl *plan.Plan) (rows [][]string, more int) {
	costly := slices.DeleteFunc(slices.Clone(pl.Terms), func(t plan.Term) bool { return t.Cost == 0 })
	slices.SortStableFunc(costly, func(a, b plan.Term) int { return cmp.Compare(b.Cost, a.Cost) })
	more = max(0, len(costly)-maxTerms)
	for _, t := range costly[:len(costly)-more] {
		rows = append(rows, []string{strconv.FormatInt(t.Cost, 10), fmt.Sprintf("%d x %d", t.Value, t.Weight),
			subject(&t), meaningOr(t.Term)})
	}
	return rows, more
}

// meaningOr returns the meaning of a term, or its name if it is unknown to this version.
func meaningOr(term string) string { return cmp.Or(plan.Meaning(term), term) }

func (p page) notes(pl *plan.Plan) {
	if len(pl.Notes) == 0 {
		return
	}
	p.title("Notes")
	for _, n := range pl.Notes {
		p.wrap("  ", 4, n)
	}
}
