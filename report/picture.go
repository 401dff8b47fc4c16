package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// Sizes in units of the viewBox. Two columns of boxes and their spine are as wide as a phone.
const (
	boxWidth   = 156
	boxHeight  = 74 // without notes
	boxLineGap = 15
	boxGap     = 12
	spineWidth = 24
	linkWidth  = 26
	pictureTop = 8
)

// picturesOf makes a narrow and, if it differs, a wide picture. The style sheet shows the one that fits.
func picturesOf(d record.Record) []chart.Chart {
	switch n := len(d.Nodes); {
	case n == 0:
		return nil
	case n <= 8:
		return []chart.Chart{pictureOf(d, "lab", "", 1)}
	case n <= 24:
		return []chart.Chart{pictureOf(d, "lab", "narrow", 1), pictureOf(d, "lab-wide", "wide", 2)}
	default:
		return []chart.Chart{pictureOf(d, "lab", "narrow", 1), pictureOf(d, "lab-wide", "wide", 3)}
	}
}

// pictureOf draws nodes in columns, with a spine of the switch between each two. With one spine it works from 2 nodes
// to 64 on a phone.
func pictureOf(d record.Record, id, class string, spines int) chart.Chart {
	const cell = 2*boxWidth + 2*linkWidth + spineWidth
	columns := 2 * spines
	rows := (len(d.Nodes) + columns - 1) / columns
	p := chart.New(id, "Picture of the lab", spines*cell+(spines-1)*boxGap+16)
	p.Class = class
	high := boxHeight
	for _, n := range d.Nodes {
		high = max(high, boxHeight+boxLineGap*len(notesOf(n)))
	}
	barHeight, above := 0, rows
	if spines > 1 {
		barHeight, above = spineWidth, (rows+1)/2
	}
	rowY := func(row int) int {
		y := pictureTop + row*(high+boxGap)
		if row >= above && spines > 1 {
			y += barHeight + boxGap
		}
		return y
	}
	bottom := rowY(rows-1) + high
	p.Y = float64(bottom) + pictureTop - 4
	spine := func(s int) int { return 8 + s*(cell+boxGap) + boxWidth + linkWidth }
	var names []string
	for i, n := range d.Nodes {
		y, s := rowY(i/columns), i%columns/2
		x, from, long := spine(s)-linkWidth-boxWidth, spine(s)-linkWidth, linkWidth
		if i%2 != 0 {
			x = spine(s) + spineWidth + linkWidth
			from, long = x, -linkWidth
		}
		drawWires(n, p, from, y, long, high)
		drawNode(n, p, x, y, high)
		names = append(names, n.Name)
	}
	for s := range spines {
		p.Box("switch", spine(s), pictureTop, spineWidth, bottom-pictureTop, 4, "")
	}
	label, port := "switch, "+words.Count(len(d.Nodes), "port"), "port up"
	x, y := p.Width/2, (pictureTop+bottom)/2
	switch {
	case spines > 1:
		bar := rowY(above) - boxGap - barHeight
		p.Box("switch", spine(0), bar, spine(spines-1)+spineWidth-spine(0), barHeight, 4, "")
		port, y = "port", bar+barHeight/2
	case rows == 1:
		label = "switch" // room beside a single row
	}
	p.Desc = fmt.Sprintf("One switch in the middle with %s on it: %s.", words.Count(len(d.Nodes), "node"),
		strings.Join(names, ", "))
	if d.NoSwitch {
		label = "network"
		p.Desc = fmt.Sprintf("%s on the host's own NICs: %s.", words.Count(len(d.Nodes), "node"),
			strings.Join(names, ", "))
	}
	p.Text(port, float64(x), float64(y)+4, label)
	return p.Done()
}

// drawWires shows a state by line style, not by colour alone.
func drawWires(n record.Node, p *chart.Canvas, x, y, long, high int) {
	wires := n.Wires
	if wires == nil {
		wires = []record.Wire{{}}
	}
	for i, w := range wires {
		class := "wire"
		switch {
		case w.Down:
			class += " down"
		case w.Impaired:
			class += " impaired"
		}
		p.Path(class, fmt.Sprintf("M%d %dh%d", x, y+high*(i+1)/(len(wires)+1), long), w.Text)
	}
}

// drawNode fits 14 bold letters of size 14 or 21 of size 11 into a line; the title has all.
func drawNode(n record.Node, p *chart.Canvas, x, y, high int) {
	class, title := "node", n.Name
	if n.Off {
		class += " off"
	}
	facts := []string{n.Address, cmp.Or(n.State, n.MAC), rdmaText(n)}
	for _, t := range facts {
		if t != "" {
			title += ", " + t
		}
	}
	for _, w := range n.Wires {
		if w.Note != "" {
			title += ", " + w.Note
		}
	}
	p.Box(class, x, y, boxWidth, high, 6, title)
	line := func(class string, down int, s string) { p.Text(class, float64(x+9), float64(y+down), s) }
	line("name", 17, show.Cut(n.Name, 14))
	for i, t := range facts {
		line("small", 34+i*boxLineGap, show.Cut(cmp.Or(t, "–"), 21))
	}
	for i, t := range notesOf(n) {
		line("small note", 34+(len(facts)+i)*boxLineGap, t)
	}
}

// maxNotes limits a box. The tables have all notes.
const maxNotes = 4

func notesOf(n record.Node) []string {
	var out []string
	for _, w := range n.Wires {
		if w.Note != "" {
			out = append(out, show.Font{Size: 11}.Lines("▲ "+w.Note, boxWidth-18)...)
		}
	}
	if len(out) > maxNotes {
		out = append(out[:maxNotes-1], fmt.Sprintf("and %s", words.Count(len(out)-maxNotes+1, "more line")))
	}
	return out
}

// rdmaText adds the GID index, which perftest takes to select the address.
func rdmaText(n record.Node) string {
	if n.RDMADevice == "" {
		return "no RDMA device"
	}
	return fmt.Sprintf("%s, GID %d", n.RDMADevice, n.GIDIndex)
}
