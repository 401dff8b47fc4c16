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
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
)

// Table prints a plan: a summary, the lab nodes, and the host.
func Table(w io.Writer, pl *plan.Plan, o Options) error {
	p := newPrinter(w, o)
	p.plan(newPlanText(pl, o))
	return p.flush()
}

type planText struct {
	Head      []string
	Summary   []fact
	Nodes     []nodeText
	NodeTable hostview.Table
	Host      []fact
	Notes     []string
}

type nodeText struct {
	Title string
	Facts []fact
}

func (p printer) plan(t planText) {
	for _, s := range t.Head {
		p.wrap("", 2, s)
	}
	for _, f := range t.Summary {
		p.fact(f)
	}
	for _, n := range t.Nodes {
		p.title(n.Title)
		for _, f := range n.Facts {
			p.fact(f)
		}
	}
	if len(t.NodeTable.Rows) > 0 {
		p.table(t.NodeTable)
	}
	p.title("Host")
	for _, f := range t.Host {
		p.fact(f)
	}
	if len(t.Notes) > 0 {
		p.title("Notes")
	}
	p.list(t.Notes)
}

// maxBlocks lab nodes fill about two screens; more become rows of a table.
const maxBlocks = 16

func newPlanText(pl *plan.Plan, o Options) planText {
	t := planText{Head: []string{fmt.Sprintf("Plan of lab %s on %s", pl.Lab, hostText(pl))}, Summary: summary(pl, o),
		Host: hostFacts(pl), Notes: pl.Notes}
	if pl.Host.Provenance.Emulated {
		t.Head = append(t.Head, "The host is emulated: its paths are those of an emulator.")
	}
	// Blocks are easier to read, rows to compare.
	if len(pl.Nodes) > maxBlocks {
		t.NodeTable = nodeTable(pl)
	} else {
		t.Nodes = lists.Map(pl.Nodes, newNodeText)
	}
	for i := len(t.Host) - 1; i > 0; i-- {
		if t.Host[i].Label == t.Host[i-1].Label {
			t.Host[i].Label = ""
		}
	}
	return t
}

// summary leaves out lab nodes of a table.
func summary(pl *plan.Plan, o Options) []fact {
	var out []fact
	if len(pl.Nodes) <= maxBlocks {
		for _, n := range pl.Nodes {
			devices := lists.Map(n.Cards, func(c plan.NodeDevice) string { return shortCard(&c) })
			devices = append(devices, "CPUs "+setOrNone(n.CPUs()))
			out = append(out, fact{n.Name, words.List(devices)})
		}
	}
	for _, f := range []fact{{"reboot", o.Reboot}, {"to apply", o.Apply}} {
		if f.Text != "" {
			out = append(out, f)
		}
	}
	best := bestText(pl)
	if !o.Explained {
		best += "; --explain says why"
	}
	return append(out, fact{"placement", best})
}

func shortCard(c *plan.NodeDevice) string {
	if c.Kind != plan.KindVF {
		return plan.DeviceName(c.Kind, c.ID)
	}
	if c.VF != nil {
		return fmt.Sprintf("VF %d of %s", *c.VF, c.ID)
	}
	return "VF of " + c.ID
}

func hostText(pl *plan.Plan) string {
	s := cmp.Or(pl.Host.Model, pl.Host.Name, "the host")
	if pl.Host.Model != "" && pl.Host.Name != "" {
		s += " (" + pl.Host.Name + ")"
	}
	return s + fmt.Sprintf(", workload %s: %s", pl.Workload, words.Count(len(pl.Nodes), "lab node"))
}

func newNodeText(n plan.Node) nodeText {
	t := nodeText{Title: fmt.Sprintf("%s: %s on %s", n.Name, words.Count(len(n.VCPUs), "virtual CPU"),
		words.Count(n.Cores, "core"))}
	if n.SMT {
		t.Title += " with siblings"
	}
	t.Title += ", " + words.Size(n.MemoryBytes)
	t.Facts = []fact{{"CPUs", setOrNone(n.CPUs())}, {"memory", memoryText(&n)}}
	if n.GuestNUMA {
		for _, c := range n.Cells {
			t.Facts = append(t.Facts, fact{fmt.Sprintf("guest node %d", c.Cell), cellText(&c)})
		}
	}
	label := "devices"
	for i := range n.Cards {
		s := cardText(&n.Cards[i], n.GuestNUMA)
		if m := n.Cards[i].Model; m != "" {
			s += ", " + m
		}
		t.Facts = append(t.Facts, fact{label, s})
		label = ""
	}
	t.Facts = append(t.Facts, fact{"emulator", "CPUs " + emulatorText(&n)})
	return t
}

func emulatorText(n *plan.Node) string {
	s := setOrNone(n.EmulatorCPUs)
	if !n.IOThreadCPUs.IsEmpty() && !n.IOThreadCPUs.Equal(n.EmulatorCPUs) {
		s += ", I/O threads " + n.IOThreadCPUs.String()
	}
	return s
}

// memoryText returns text such as "8 GiB on NUMA node 0 and 8 GiB on NUMA node 1".
func memoryText(n *plan.Node) string {
	var parts []string
	same := true
	for _, m := range n.Memory {
		same = same && m.PageBytes == n.Memory[0].PageBytes
		parts = append(parts, fmt.Sprintf("%s on NUMA node %d", words.Size(m.Bytes), m.NUMANode))
	}
	switch {
	case len(parts) == 0:
		return "none"
	case same && n.Memory[0].PageBytes > 0:
		return words.List(parts) + ", in pages of " + words.Size(n.Memory[0].PageBytes)
	}
	return words.List(parts)
}

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

// nodeTable puts CPUs and devices last, because only the last column wraps.
func nodeTable(pl *plan.Plan) hostview.Table {
	t := hostview.Table{Title: "Lab nodes", Columns: show.Columns("node", "vCPUs>", "memory>", "NUMA", "emulator",
		"CPUs and devices")}
	for _, n := range pl.Nodes {
		on := lists.Map(n.Memory, func(m plan.NodeMemory) string { return strconv.Itoa(m.NUMANode) })
		shown := []string{setOrNone(n.CPUs()) + " "}
		for _, c := range n.Cards {
			if c.Kind == plan.KindVF && c.VF != nil {
				c.ID += fmt.Sprintf("/vf%d", *c.VF)
			}
			shown = append(shown, c.ID)
		}
		t.Rows = append(t.Rows, []string{n.Name, strconv.Itoa(len(n.VCPUs)), words.Size(n.MemoryBytes),
			strings.Join(on, ","), setOrNone(n.EmulatorCPUs), strings.TrimSpace(strings.Join(shown, " "))})
	}
	return t
}

func hostFacts(pl *plan.Plan) []fact {
	out := []fact{{"housekeeping", fmt.Sprintf("%s: CPUs %s", words.Count(pl.Housekeeping.Cores, "core"),
		setOrNone(pl.Housekeeping.CPUs))}}
	if !pl.Housekeeping.TenantCPUs.IsEmpty() {
		out = append(out, fact{"other VMs", "CPUs " + pl.Housekeeping.TenantCPUs.String()})
	}
	pages := lists.Map(pl.Hugepages,
		func(h plan.Hugepages) string { return pagesText(h, fmt.Sprintf(" on NUMA node %d", h.NUMANode)) })
	out = append(out, fact{"hugepages", cmp.Or(strings.Join(pages, ", "), "none")})
	for _, v := range pl.VFs {
		out = append(out, fact{"VFs", fmt.Sprintf("%s has to have %d, of them %d for the lab", v.PF, v.Count,
			v.Lab)})
	}
	if len(pl.KernelArgs) > 0 {
		out = append(out, fact{"kernel", strings.Join(pl.KernelArgs, " ")})
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

// termTable leaves out terms without cost, which only the JSON has.
func termTable(pl *plan.Plan) (t hostview.Table, more int) {
	t = hostview.Table{Title: "Score by term (lower is better)",
		Columns: show.Columns("score>", "value x weight>", "of", "what")}
	costly := slices.DeleteFunc(slices.Clone(pl.Terms), func(t plan.Term) bool { return t.Cost == 0 })
	slices.SortStableFunc(costly, func(a, b plan.Term) int { return cmp.Compare(b.Cost, a.Cost) })
	more = max(0, len(costly)-maxTerms)
	for _, term := range costly[:len(costly)-more] {
		t.Rows = append(t.Rows, []string{strconv.FormatInt(term.Cost, 10),
			fmt.Sprintf("%d x %d", term.Value, term.Weight), subject(&term), meaningOr(term.Term)})
	}
	return t, more
}

// meaningOr allows for terms that are unknown to this version.
func meaningOr(term string) string { return cmp.Or(plan.Meaning(term), term) }
