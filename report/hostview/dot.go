package hostview

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// WriteDOT writes the machine as a graph for Graphviz: packages, NUMA nodes and root complexes as
// clusters, bridges and devices as nodes, PCI Express links as lines whose width is that of the
// link, and NVLinks. What the picture leaves out is left out here too.
func (d *Document) WriteDOT(w io.Writer) error {
	v := newView(d)
	g := &dotWriter{ids: map[string]string{}}
	g.line("graph %s {", quoted(v.heading()))
	g.depth++
	g.line("graph [rankdir=LR, compound=true, fontname=\"sans-serif\", style=rounded, label=%s, labelloc=t];",
		quoted(strings.Join(append([]string{v.heading()}, v.facts()...), "\n")))
	g.line("node [shape=box, fontname=\"sans-serif\", fontsize=11];")
	g.line("edge [fontname=\"sans-serif\", fontsize=10, color=\"#57606a\"];")
	s := newScene(v)
	for _, group := range s.Groups {
		if group.framed() {
			g.open(group.Title, "#57606a")
		}
		for _, r := range group.Rooms {
			g.room(r)
		}
		if group.framed() {
			g.close()
		}
	}
	g.nvlinks(s.NVLink)
	g.depth--
	g.line("}")
	_, err := io.WriteString(w, g.String())
	return show.Wrapf(err, "write host %q as a graph", d.Provenance.Name)
}

// dotColors are the fills of devices: light ones of the palette, on which black text can be read.
var dotColors = map[string]string{cardGPU: "#9fdcc8", cardNIC: "#9ec9e8", cardDisk: "#e2b6d3", cardScreen: "#e3e7eb",
	cardOther: "#efe28f"}

// A dotWriter collects the lines of a graph. Nodes are named n1, n2, ...: nothing from outside is a name.
type dotWriter struct {
	strings.Builder
	depth, nodes, clusters int
	ids                    map[string]string // names of nodes by ID of the device
}

// line writes a line, indented by how many clusters are open.
func (g *dotWriter) line(format string, args ...any) {
	g.WriteString(strings.Repeat("  ", g.depth))
	fmt.Fprintf(g, format, args...)
	g.WriteByte('\n')
}

// quoted is a text as DOT has it. A line break is written as \n; the rest is printable.
func quoted(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		l = strings.ReplaceAll(drawable(l), `\`, `\\`)
		lines[i] = strings.ReplaceAll(l, `"`, `\"`)
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}

// open begins a cluster, which Graphviz knows by its name: it must begin with "cluster".
func (g *dotWriter) open(label, color string) {
	g.clusters++
	g.line("subgraph cluster_%d {", g.clusters)
	g.depth++
	g.line("label=%s; color=\"%s\";", quoted(label), color)
}

// close ends the cluster that was opened last.
func (g *dotWriter) close() {
	g.depth--
	g.line("}")
}

// node adds a node and returns its name.
func (g *dotWriter) node(label string, attributes ...string) string {
	g.nodes++
	name := "n" + strconv.Itoa(g.nodes)
	g.line("%s [%s];", name, strings.Join(append([]string{"label=" + quoted(label)}, attributes...), ", "))
	return name
}

// room writes a NUMA node. Its cores are one node of the graph, so that a node without devices is seen too.
func (g *dotWriter) room(r room) {
	color := words.Either(r.Odd, "#8b949e", "#1b1f24")
	g.open(r.Title+markLines(r.Marks), color)
	hub := g.node(strings.Join(r.lines(240), "\n"), "shape=plaintext")
	for _, b := range r.Blocks {
		g.open(joined("\n", b.Title, b.Folded), "#8b949e")
		root := ""
		if len(b.Branches) == 0 || !b.Loose {
			root = g.node("", "shape=point, width=0.12")
			g.line("%s -- %s [style=dotted];", hub, root)
		}
		g.branches(b.Branches, root)
		g.close()
	}
	g.close()
}

// branches writes what hangs on the node from; "" is none.
func (g *dotWriter) branches(all []branch, from string) {
	for _, b := range all {
		at := from
		if b.Bridge != nil {
			at = g.bridge(b.Bridge)
			// The way from a root complex to its ports, and within a switch, is no link: it has no lanes to show.
			g.edge(from, at, wire{GBps: -1})
		}
		for _, c := range b.Cards {
			g.edge(at, g.card(c), b.Wire)
		}
		if b.Switch != nil {
			s := g.bridge(b.Switch)
			g.edge(at, s, b.Wire)
			at = s
		}
		g.branches(b.Fan, at)
	}
}

// markLines are findings, each on a line of its own.
func markLines(all []mark) string {
	lines := ""
	for _, m := range all {
		lines += fmt.Sprintf("\n%s %s", m.Severity, m.ID)
	}
	return lines
}

// bridge adds a bridge, or a chain of them, and returns its name.
func (g *dotWriter) bridge(b *bridgeBox) string {
	return g.node(b.Text+markLines(b.Marks), "style=rounded", "tooltip="+quoted(b.Full))
}

// card adds a device and returns its name, under which nvlinks finds it again.
func (g *dotWriter) card(c card) string {
	name := g.node(c.Full+markLines(c.Marks), "style=filled", fmt.Sprintf("fillcolor=%q", dotColors[c.Kind]))
	g.ids[c.ID] = name
	return name
}

// edge writes a link; one of -1 GB/s is no link but the entry to a root complex.
func (g *dotWriter) edge(from, to string, w wire) {
	switch {
	case from == "":
	case w.GBps < 0:
		g.line("%s -- %s;", from, to)
	case !w.known():
		g.line("%s -- %s [style=dotted];", from, to)
	case w.slow() && w.Warned:
		g.line("%s -- %s [label=%s, penwidth=%g, style=dashed, color=\"#b35c00\"];", from, to, quoted(w.Full),
			float64(wireWidth(w.GBps))/10)
	case w.slow():
		g.line("%s -- %s [label=%s, penwidth=%g, style=dashed];", from, to, quoted(w.Full),
			float64(wireWidth(w.GBps))/10)
	default:
		g.line("%s -- %s [label=%s, penwidth=%g];", from, to, quoted(w.Full), float64(wireWidth(w.GBps))/10)
	}
}

// nvlinks writes the NVLinks. Where every two GPUs are joined alike one node stands for them: the
// lines of all pairs, with labels, between clusters are more than dot can lay out (seen with
// Graphviz 2.43: "trouble in init_rank").
func (g *dotWriter) nvlinks(sets []nvlinkSet) {
	const color = `color="#00795a"`
	for _, set := range sets {
		if set.Uniform {
			hub := g.node(set.Name+": "+set.Classes[0].Label+" between every two", "style=rounded", color)
			for _, id := range set.IDs {
				g.line("%s -- %s [penwidth=4, %s];", g.ids[id], hub, color)
			}
			continue
		}
		for _, c := range set.Classes {
			// Without constraint, NVLinks do not move devices out of the ranks, which show the depth of the PCI tree.
			for _, p := range c.Pairs {
				g.line("%s -- %s [penwidth=%d, %s, constraint=false, tooltip=%s];", g.ids[set.IDs[p[0]]],
					g.ids[set.IDs[p[1]]], min(8, 1+c.Links), color, quoted(c.Label))
			}
		}
	}
}
