package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// A picture is the lab as one drawing: nodes in columns, a spine of the switch between each two
// columns, and the spines joined in the middle. With one spine it works from 2 nodes to 64 on a
// phone; a laptop shows the same nodes in more columns.
type picture struct {
	ID, Class, Desc string
	Width, Height   int
	Boxes           []nodeBox
	Links           []link // from the nodes to the switch
	Switch          []rect // spines and, with more than one, the bar that joins them
	LabelX, LabelY  int
	Label           string
}

// A rect is a rectangle of the picture.
type rect struct{ X, Y, W, H int }

// A link is the path of a wire. Its class says how it is by the form of the line, and not by colour alone.
type link struct{ D, Class, Title string }

// A nodeBox is a node in the picture. Text too long for the box is cut; Title has it whole.
type nodeBox struct {
	rect
	Title string
	Off   bool
	Lines []boxLine
}

// A boxLine is a line of text in a box, standing on Y.
type boxLine struct {
	X, Y  int
	Text  string
	Class string // name, small, or note of what is wrong
}

// Measures of the picture, in units of its viewBox. Two columns of boxes with their spine are as wide as a phone.
const (
	boxWidth   = 156
	boxHeight  = 74 // without notes
	boxLineGap = 15
	boxGap     = 12
	spineWidth = 24
	linkWidth  = 26 // between a box and its spine
	pictureTop = 8
)

// pictures draws the lab for narrow screens and, if that would differ, for wide ones.
func (d Data) pictures() []picture {
	if len(d.Nodes) == 0 {
		return nil
	}
	// Both pictures are in the page, and the style sheet shows the one that fits, with or without scripts.
	switch n := len(d.Nodes); {
	case n <= 8:
		return []picture{d.picture("lab", "", 1)}
	case n <= 24:
		return []picture{d.picture("lab", "narrow", 1), d.picture("lab-wide", "wide", 2)}
	default:
		return []picture{d.picture("lab", "narrow", 1), d.picture("lab-wide", "wide", 3)}
	}
}

// picture draws the nodes with the given number of spines, each with a column of nodes at either side.
func (d Data) picture(id, class string, spines int) picture {
	const cell = 2*boxWidth + 2*linkWidth + spineWidth // one spine with its two columns
	columns := 2 * spines
	rows := (len(d.Nodes) + columns - 1) / columns
	p := picture{
		ID: id, Class: class,
		Width: spines*cell + (spines-1)*boxGap + 16,
		Label: fmt.Sprintf("switch, %s", words.Count(len(d.Nodes), "port")),
	}
	high := boxHeight
	for _, n := range d.Nodes {
		high = max(high, boxHeight+boxLineGap*len(n.notes()))
	}
	// With several spines a bar joins them in the middle, between the rows.
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
	p.Height = bottom + pictureTop
	var names []string
	for i, n := range d.Nodes {
		row, col := i/columns, i%columns
		x := 8 + (col/2)*(cell+boxGap)
		y := rowY(row)
		from, long := x+boxWidth, linkWidth
		if col%2 != 0 {
			x += boxWidth + 2*linkWidth + spineWidth
			from, long = x, -linkWidth
		}
		p.Links = append(p.Links, n.links(from, y, long, high)...)
		p.Boxes = append(p.Boxes, n.box(x, y, high))
		names = append(names, n.Name)
	}
	for s := range spines {
		p.Switch = append(p.Switch, rect{8 + s*(cell+boxGap) + boxWidth + linkWidth, pictureTop, spineWidth,
			bottom - pictureTop})
	}
	if spines > 1 {
		y := rowY(above) - boxGap - barHeight
		first, last := p.Switch[0], p.Switch[spines-1]
		p.Switch = append(p.Switch, rect{first.X, y, last.X + last.W - first.X, barHeight})
		p.LabelX, p.LabelY = p.Width/2, y+barHeight/2+4
	} else {
		p.LabelX, p.LabelY = p.Width/2, (pictureTop+bottom)/2
		if rows == 1 {
			p.Label = "switch" // upright beside a single box there is room for no more
		}
	}
	p.Desc = fmt.Sprintf("One switch in the middle with %s on it: %s.", words.Count(len(d.Nodes), "node"),
		strings.Join(names, ", "))
	if d.NoSwitch {
		p.Label = "network"
		p.Desc = fmt.Sprintf("%s on the host's own NICs: %s.", words.Count(len(d.Nodes), "node"),
			strings.Join(names, ", "))
	}
	return p
}

// links are the wires of a node whose box begins at y, at equal distances.
func (n Node) links(x, y, long, high int) []link {
	wires := n.Wires
	if wires == nil {
		wires = []Wire{{}}
	}
	var out []link
	for i, w := range wires {
		l := link{fmt.Sprintf("M%d %dh%d", x, y+high*(i+1)/(len(wires)+1), long), "wire", w.Text}
		switch {
		case w.Down:
			l.Class += " down"
		case w.Impaired:
			l.Class += " impaired"
		}
		out = append(out, l)
	}
	return out
}

// box is the node's place in the picture. 14 bold letters of size 14 or 21 of size 11 fit a line.
func (n Node) box(x, y, high int) nodeBox {
	b := nodeBox{rect: rect{x, y, boxWidth, high}, Off: n.Off}
	rdma := n.rdmaText()
	b.Title = n.Name
	b.Lines = append(b.Lines, boxLine{x + 9, y + 17, show.Cut(n.Name, 14), "name"})
	for i, t := range []string{n.Address, cmp.Or(n.State, n.MAC), rdma} {
		if t == "" {
			t = "–"
		} else {
			b.Title += ", " + t
		}
		b.Lines = append(b.Lines, boxLine{x + 9, y + 34 + i*boxLineGap, show.Cut(t, 21), "small"})
	}
	for _, w := range n.Wires {
		if w.Note != "" {
			b.Title += ", " + w.Note
		}
	}
	for i, t := range n.notes() {
		b.Lines = append(b.Lines, boxLine{x + 9, y + 34 + (3+i)*boxLineGap, t, "small note"})
	}
	return b
}

// maxNotes is how many lines of notes a box has: the tables have all.
const maxNotes = 4

// notes are the lines that say what is wrong with the wires of a node.
func (n Node) notes() []string {
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

// rdmaText is the RDMA device with the index of its GID, by which perftest is told which address to use.
func (n Node) rdmaText() string {
	if n.RDMADevice == "" {
		return "no RDMA device"
	}
	return fmt.Sprintf("%s, GID %d", n.RDMADevice, n.GIDIndex)
}
