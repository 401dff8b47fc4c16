package hostview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"

	"github.com/rackless/rackless/machine/topology"
)

type class struct{ Class, Means string }

// legend explains the classes in our words, in nvidia-smi's format.
var legend = []class{
	{"X", "the device itself"},
	{"SYS", "through the interconnect between NUMA nodes"},
	{"NODE", "through the interconnect between PCIe host bridges of one NUMA node"},
	{"PHB", "through one PCIe host bridge, which is in the CPU as a rule"},
	{"PXB", "through several PCIe bridges, and no host bridge"},
	{"PIX", "through at most one PCIe bridge or switch"},
	{"NV#", "over # bonded NVLinks, or XGMI links of AMD"},
}

// WriteMatrix writes the matrix of nvidia-smi topo -m, even without nvidia-smi. An unknown path is "?". Like
// nvidia-smi, it leaves out virtual functions and devices that only drive a screen.
func (d *Document) WriteMatrix(w io.Writer) error {
	v := newView(d)
	// Programs read the CPU lists, so they are never shortened.
	lines := append(matrixLines(v.matrix(), 1<<20), v.legendLines()...)
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return show.Wrapf(err, "write the matrix of host %q", d.Provenance.Name)
}

type matrixRow struct {
	ID, Name string
	Cells    []string // path classes; "" if unknown
	CPUs     *topology.CPUSet
	Node     *int // NUMA node
	Memory   *int // NUMA node of a GPU's memory
	GPU      bool
	Title    string // description of the device
}

func (v *view) matrix() []matrixRow {
	var rows []matrixRow
	for _, g := range v.gpus {
		node := v.nodeOf(g.NUMANode)
		rows = append(rows, matrixRow{
			ID: g.ID(), Name: v.names[g.ID()], GPU: true, CPUs: v.affinity(g.CPUAffinity, g.Address, node), Node: node,
			Memory: g.MemoryNode,
			Title:  strings.TrimSpace(g.ID() + " " + modelText(g.Model, v.device(g.Address))),
		})
	}
	for _, n := range v.nics {
		node := v.nodeOf(n.NUMANode)
		rows = append(rows, matrixRow{
			ID: n.ID(), Name: v.names[n.ID()], CPUs: v.affinity(nil, n.Address, node), Node: node, Title: nicTitle(n),
		})
	}
	for i := range rows {
		rows[i].Cells = make([]string, len(rows))
		for j := range rows {
			rows[i].Cells[j] = v.classes[[2]string{rows[i].ID, rows[j].ID}]
		}
		// Programs look for the X of nvidia-smi.
		rows[i].Cells[i] = "X"
	}
	return rows
}

// nicTitle prefers RDMA devices, then network devices, then the ID.
func nicTitle(n *topology.NIC) string {
	return cmp.Or(strings.Join(n.RDMA, ","), strings.Join(n.Netdevs, ","), n.ID())
}

// alikeRows merges three or more NICs with the same paths. In its own column, the row has the path between them.
func alikeRows(rows []matrixRow) []matrixRow {
	same := func(i, j int) bool {
		a, b := rows[i], rows[j]
		for k := range rows {
			if k != i && k != j && a.Cells[k] != b.Cells[k] {
				return false
			}
		}
		return !a.GPU && !b.GPU && intText(a.Node) == intText(b.Node) && setText(a.CPUs, 1<<20) == setText(b.CPUs,
			1<<20)
	}
	var kept []int
	var out []matrixRow
	taken := make([]bool, len(rows))
	for i, r := range rows {
		if taken[i] {
			continue
		}
		members := []int{i}
		for j := i + 1; j < len(rows); j++ {
			if !taken[j] && !slices.ContainsFunc(members, func(m int) bool { return !same(m, j) }) {
				members = append(members, j)
			}
		}
		if len(members) >= leastAlike {
			var names, titles []string
			for _, m := range members {
				taken[m] = true
				names, titles = append(names, rows[m].Name), append(titles, rows[m].Title)
			}
			r.Name, r.Title = fmt.Sprintf("%s x%d", span(names), len(members)), span(titles)
			// Equal rows have equal paths between each other, so any of them will do.
			r.Cells = slices.Clone(r.Cells)
			r.Cells[i] = r.Cells[members[1]]
		}
		kept, out = append(kept, i), append(out, r)
	}
	for j := range out {
		r := &out[j]
		r.Cells = lists.Map(kept, func(i int) string { return r.Cells[i] })
	}
	return out
}

// matrixLines limits CPU lists to letters.
func matrixLines(rows []matrixRow, letters int) []string {
	if len(rows) == 0 {
		return []string{"No GPUs and no NICs are known."}
	}
	heads := []string{"CPU Affinity", "NUMA Affinity"}
	memory := slices.ContainsFunc(rows, func(r matrixRow) bool { return r.Memory != nil })
	if memory {
		heads = append(heads, "GPU NUMA ID")
	}
	return matrixTable(rows, rows, heads, func(r matrixRow) []string {
		// N/A as in nvidia-smi: a missing cell would shift the cells after it.
		cpus := "N/A"
		if r.CPUs != nil && !r.CPUs.IsEmpty() {
			cpus = cpusText(*r.CPUs, letters)
		}
		var row []string
		// nvidia-smi has no affinity for NICs.
		if r.GPU || r.CPUs != nil || r.Node != nil {
			row = append(row, cpus, orNA(r.Node))
		}
		if r.GPU && memory {
			row = append(row, orNA(r.Memory))
		}
		return row
	})
}

func betweenLines(rows []matrixRow) []string {
	gpus := slices.IndexFunc(rows, func(r matrixRow) bool { return !r.GPU })
	return matrixTable(rows[gpus:], rows[:gpus], []string{""}, func(r matrixRow) []string { return []string{r.Title} })
}

// matrixTable requires columns to be the first of all devices. more are the cells under heads.
func matrixTable(rows, columns []matrixRow, heads []string, more func(matrixRow) []string) []string {
	// nvidia-smi topo -m has an empty head there.
	names := lists.Map(columns, func(c matrixRow) string { return c.Name })
	cells := lists.Map(rows, func(r matrixRow) []string {
		return slices.Concat([]string{r.Name}, lists.Map(r.Cells[:len(columns)], classCell), more(r))
	})
	return show.Lines(show.Columns(slices.Concat([]string{""}, names, heads)...), cells)
}

func classCell(class string) string {
	if class == "X" {
		return " X"
	}
	return orUnknown(class)
}

func orNA(n *int) string {
	if n == nil {
		return "N/A"
	}
	return intText(n)
}

func (v *view) legendLines() []string {
	rows := v.matrix()
	if len(rows) == 0 {
		return nil
	}
	lines := []string{"", "Legend:", ""}
	for _, l := range legend {
		lines = append(lines, fmt.Sprintf("  %-4s = %s", l.Class, l.Means))
	}
	if slices.ContainsFunc(rows, func(r matrixRow) bool { return slices.Contains(r.Cells, "") }) {
		lines = append(lines, fmt.Sprintf("  %-4s = not known", unknown))
	}
	if len(v.nics) > 0 {
		lines = append(lines, "", "NIC Legend:", "")
		for _, r := range rows[len(v.gpus):] {
			lines = append(lines, fmt.Sprintf("  %s: %s", r.Name, r.Title))
		}
	}
	return lines
}
