package hostview

import (
	"slices"

	"github.com/rackless/rackless/topology"
)

// Measures of the picture, in pixels.
const (
	gap         = 12  // between rooms, and between root complexes
	smallRoom   = 156 // width inside, of a room without devices
	bridgeWidth = 64
	wireLength  = 74 // "of Gen4 x16" fits
	indent      = 14
	maxIndent   = 4 // levels
)

// A sheet is what a picture is drawn on.
type sheet struct {
	width  int  // of the whole, at most
	column int  // of a root complex
	margin int  // around what is in a room or a group
	edge   int  // around everything
	alone  bool // no page around it says what the machine is and lists the findings
}

// Sheets: a large screen, a page on a large screen, and a phone. On a phone the picture is as wide as a root complex with its frames.
var (
	wideSheet  = sheet{width: MaxWidth, column: 360, margin: 10, edge: 12, alone: true}
	pageSheet  = sheet{width: 1208, column: 360, margin: 10, edge: 2}
	phoneSheet = sheet{width: 372, column: 344, margin: 6, edge: 2}
)

// layout arranges the scene. Root complexes of a room stand in as many columns as make the whole the least high.
func (sh sheet) layout(v *view, s *scene) *picture {
	inner := sh.width - 2*sh.edge
	most := max(1, (inner-4*sh.margin+gap)/(sh.column+gap))
	var best *picture
	for columns := range most {
		// More columns must pay: a wide room that is half empty reads worse than a narrow one.
		if p := sh.arrange(s, columns+1, inner); best == nil || p.H*100 < best.H*93 {
			best = p
		}
	}
	w := max(best.W, min(inner, 2*sh.column))
	out := &picture{W: w + 2*sh.edge, H: sh.edge}
	panels := []*picture{best, sh.nvlinkPanel(s, w), sh.legendPanel(v, s, w)}
	if sh.alone {
		panels = []*picture{headPanel(v, w), best, sh.nvlinkPanel(s, w), sh.findingsPanel(v, w), sh.legendPanel(v, s, w)}
	}
	for _, panel := range panels {
		if panel.H == 0 {
			continue
		}
		out.place(panel, sh.edge, out.H)
		out.H += panel.H + gap
	}
	out.H = max(out.H-gap, 0) + sh.edge
	return out
}

// arrange places the rooms, with root complexes in so many columns.
func (sh sheet) arrange(s *scene, columns, width int) *picture {
	groups := make([]*picture, len(s.Groups))
	for i, g := range s.Groups {
		groups[i] = sh.layoutGroup(g, columns, width, 0)
	}
	// Once it is known which groups stand beside each other, their rooms are made to fill the height of the highest.
	highest := make([]int, len(groups))
	pack(groups, width, 0, func(_ *picture, i int, at rect) { highest[i] = at.H })
	for i, g := range s.Groups {
		groups[i] = sh.layoutGroup(g, columns, width, highest[i])
	}
	return pack(groups, width, 0, func(p *picture, i int, at rect) {
		if g := s.Groups[i]; g.framed() {
			p.box(at, "package", 8, g.Title)
		}
	})
}

// framed reports whether a group has a box with a title around its rooms.
func (g *roomGroup) framed() bool { return g.Title != "" && !g.Odd }

// layoutGroup draws the rooms of a package, at least so many pixels high; its box is drawn by who knows how high the row is.
func (sh sheet) layoutGroup(g roomGroup, columns, width, high int) *picture {
	const title = 18
	if g.framed() {
		width -= 2 * sh.margin
		high -= 2*sh.margin + title
	}
	rooms := make([]*picture, len(g.Rooms))
	for i, r := range g.Rooms {
		rooms[i] = sh.layoutRoom(r, columns, width)
	}
	frame := func(p *picture, i int, at rect) {
		class := "room"
		if g.Rooms[i].Odd {
			class = "room odd"
		}
		p.box(at, class, 6, g.Rooms[i].Full)
	}
	packed := pack(rooms, width, high, frame)
	if !g.framed() {
		return packed
	}
	p := &picture{W: packed.W + 2*sh.margin, H: packed.H + 2*sh.margin + title}
	p.text(sh.margin, sh.margin+8, g.Title, fontTitle, "", packed.W, rect{0, 0, p.W, p.H})
	p.place(packed, sh.margin, sh.margin+title)
	return p
}

// pack places pictures in rows of at most width pixels, as evenly as it can where all are of one width. Low ones of one width that follow each
// other stand in one column. Those in a row are made equally high, and the last row so high that the whole has at least the height high. frame draws what is around each.
func pack(items []*picture, width, high int, frame func(p *picture, i int, at rect)) *picture {
	out := &picture{}
	if len(items) == 0 {
		return out
	}
	rows := packRows(stacked(items), width)
	for n, row := range rows {
		x, tall := 0, 0
		for _, c := range row {
			tall = max(tall, c.H)
		}
		if n == len(rows)-1 {
			tall = max(tall, high-out.H)
		}
		for _, c := range row {
			y := out.H
			for i := c.first; i < c.end; i++ {
				at := rect{x, y, items[i].W, items[i].H}
				if c.end-c.first == 1 {
					at.H = tall
				}
				frame(out, i, at)
				out.place(items[i], x, y)
				y += at.H + gap
			}
			x += c.W + gap
			out.W = max(out.W, x-gap)
		}
		out.H += tall + gap
	}
	out.H -= gap
	return out
}

// A stack is pictures above each other: items first to before end.
type stack struct{ first, end, W, H int }

// stacked puts pictures that follow each other and are equally wide into stacks no higher than the highest picture.
func stacked(items []*picture) []stack {
	highest := 0
	for _, q := range items {
		highest = max(highest, q.H)
	}
	var out []stack
	for i, q := range items {
		if n := len(out) - 1; n >= 0 && out[n].W == q.W && out[n].H+gap+q.H <= highest {
			out[n].end, out[n].H = i+1, out[n].H+gap+q.H
			continue
		}
		out = append(out, stack{i, i + 1, q.W, q.H})
	}
	return out
}

// packRows breaks stacks into rows of at most width pixels.
func packRows(all []stack, width int) [][]stack {
	perRow := len(all)
	if same := !slices.ContainsFunc(all, func(s stack) bool { return s.W != all[0].W }); same {
		fit := max(1, (width+gap)/(all[0].W+gap))
		rows := (len(all) + fit - 1) / fit
		perRow = (len(all) + rows - 1) / rows
	}
	var out [][]stack
	x := 0
	for _, s := range all {
		if n := len(out) - 1; n >= 0 && len(out[n]) < perRow && x+s.W <= width {
			out[n] = append(out[n], s)
		} else {
			out = append(out, []stack{s})
			x = 0
		}
		x += s.W + gap
	}
	return out
}

// layoutRoom draws what is in a room; its frame is drawn by who knows how high the row is.
func (sh sheet) layoutRoom(r room, columns, width int) *picture {
	cells := 0
	for _, c := range r.Caches {
		cells += len(c.Cells)
	}
	columns = max(1, min(columns, len(r.Blocks)))
	inner := columns*sh.column + (columns-1)*gap
	switch {
	case len(r.Blocks) == 0 && cells <= 32:
		inner = smallRoom
	case len(r.Blocks) == 0 && cells <= 64:
		inner = sh.column * 3 / 4
	}
	inner = min(inner, width-2*sh.margin)
	p := &picture{W: inner + 2*sh.margin}
	all := rect{0, 0, p.W, 1 << 20}
	y := sh.margin + 8
	title := p.text(sh.margin, y, r.Title, fontTitle, "", inner, all)
	if room := inner - title - 8; room >= markSize {
		p.marks(sh.margin+title+8, y-4, r.Marks, room, all)
	}
	y += 5
	lines := r.Lines
	if r.CPUs != nil {
		lines = append([]string{cpuLine(*r.CPUs, inner)}, lines...)
	}
	for _, l := range lines {
		y += 15
		p.text(sh.margin, y-3, l, fontSmall, "soft", inner, all)
	}
	y += 5
	if h := p.cells(r.Caches, sh.margin, y, inner, cells); h > 0 {
		y += h + 6
	}
	if len(r.Blocks) > 0 {
		y = p.columns(r.Blocks, columns, sh.margin, y, min(sh.column, inner))
	}
	p.H = y + sh.margin - 4
	for i := range p.Texts {
		if p.Texts[i].In == all {
			p.Texts[i].In.H = p.H
		}
	}
	return p
}

// cpuLine is a node's CPUs in so many pixels.
func cpuLine(cpus topology.CPUSet, width int) string {
	if cpus.IsEmpty() {
		return "no CPUs"
	}
	line := ""
	for letters := min(width/4, 200); letters > 8; letters -= 4 {
		if line = "CPUs " + cpusText(cpus, letters); fontSmall.width(line) <= width {
			break
		}
	}
	return line
}

// columns draws root complexes from y down, each in the column that is the shortest so far, and returns where they end.
func (p *picture) columns(blocks []block, columns, x, y, width int) int {
	ends := make([]int, columns)
	for i := range ends {
		ends[i] = y
	}
	for _, b := range blocks {
		q := layoutBlock(b, width)
		c := 0
		for i, end := range ends {
			if end < ends[c] {
				c = i
			}
		}
		p.place(q, x+c*(width+gap), ends[c])
		ends[c] += q.H + 8
	}
	return slices.Max(ends) - 4
}

// cells draws the cores of a room in at most width pixels, those that share a cache framed together, and returns how high they are.
func (p *picture) cells(caches []cacheCells, x, y, width, total int) int {
	if total == 0 {
		return 0
	}
	size := 14
	switch {
	case total > 256:
		size = 5
	case total > 96:
		size = 9
	}
	pitch := size + 2
	left, row, high := 0, y, 0
	for _, c := range caches {
		perRow := min(len(c.Cells), max(1, (width-4)/pitch))
		lines := (len(c.Cells) + perRow - 1) / perRow
		perRow = (len(c.Cells) + lines - 1) / lines // as even as can be
		w, h := perRow*pitch+4-2, lines*pitch+4-2
		if left > 0 && left+w > width {
			row += high + 4
			left, high = 0, 0
		}
		if c.Known {
			p.box(rect{x + left, row, w, h}, "cache", 3, c.Full)
		}
		for i, cell := range c.Cells {
			at := rect{x + left + 2 + i%perRow*pitch, row + 2 + i/perRow*pitch, size, size}
			p.Cells = append(p.Cells, cellShape{at, c.Color, cell})
		}
		left += w + 5
		high = max(high, h)
	}
	return row + high - y
}

// layoutBlock draws a root complex.
func layoutBlock(b block, width int) *picture {
	p := &picture{W: width}
	if len(b.Branches) == 0 {
		p.H = 18
		p.text(2, 13, b.Folded, fontSmall, "soft", width-4, rect{0, 0, width, p.H})
		return p
	}
	frame := len(p.Boxes)
	p.box(rect{0, 0, width, 0}, "root", 5, b.Title)
	all := rect{0, 0, width, 1 << 20}
	p.text(8, 15, b.Title, fontSmall, "soft", width-16, all)
	y := 22
	if b.Loose {
		y = p.loose(b.Branches, y, width)
	} else {
		y = p.branches(b.Branches, 0, 8, 20, y-2, width-8)
	}
	if b.Folded != "" {
		p.text(8, y+10, b.Folded, fontSmall, "soft", width-16, all)
		y += 16
	}
	p.H = y + 3
	p.Boxes[frame].H = p.H
	for i := range p.Texts {
		if p.Texts[i].In == all {
			p.Texts[i].In.H = p.H
		}
	}
	return p
}

// loose draws devices of which no tree is known, two beside each other.
func (p *picture) loose(all []branch, y, width int) int {
	half := (width - 24) / 2
	for i := 0; i < len(all); i += 2 {
		high := 0
		for j := i; j < min(i+2, len(all)); j++ {
			for _, c := range all[j].Cards {
				high = max(high, p.card(c, 8+(j-i)*(half+8), y, half))
			}
		}
		y += high + 6
	}
	return y
}

// branches draws the lines of the tree that hang on a trunk at x, which begins at from, from y down to at most the pixel right. It returns where
// they end.
func (p *picture) branches(all []branch, level, x, from, y, right int) int {
	trunk := y
	for _, b := range all {
		wireY := y + 20
		trunk = wireY
		at := x + 10
		p.line("trunk", 15, "", [2]int{x, wireY}, [2]int{at, wireY})
		bottom := y + 40
		end := at
		if b.Bridge != nil {
			in := p.box(rect{at, wireY - 10, bridgeWidth, 20}, "bridge", 3, b.Bridge.Full)
			w := min(fontID.width(b.Bridge.Text), in.W-6)
			p.text(at+(in.W-w)/2, wireY+4, b.Bridge.Text, font{Size: 10}, "", in.W-6, in)
			end = in.right()
		}
		switch {
		case len(b.Cards) > 0:
			bottom = max(bottom, p.wired(b, end, y, right))
		case b.Switch != nil:
			p.wire(b.Wire, end, end+wireLength, wireY)
			room := right - end - wireLength
			in := rect{end + wireLength, wireY - 10, min(fontID.width(b.Switch.Text)+12, room), 20}
			p.box(in, "bridge", 3, b.Switch.Full)
			p.text(in.X+6, wireY+4, b.Switch.Text, fontID, "", in.W-8, in)
			p.marks(in.right()+6, wireY, b.Switch.Marks, right-in.right()-6, rect{0, 0, right, 1 << 20})
		}
		if b.Bridge != nil && len(b.Bridge.Marks) > 0 {
			// Beside the bridge where nothing else is, else below it.
			if len(b.Cards) == 0 && b.Switch == nil {
				p.marks(end+6, wireY, b.Bridge.Marks, right-end-6, rect{0, 0, right, 1 << 20})
			} else {
				p.marks(at, wireY+20, b.Bridge.Marks, bridgeWidth+6, rect{0, 0, right, 1 << 20})
				bottom = max(bottom, wireY+30)
			}
		}
		y = bottom + 4
		if len(b.Fan) > 0 {
			down := x
			if level < maxIndent {
				down = x + indent
			}
			start := wireY + 10
			if b.Switch != nil {
				// From below the switch to the trunk, around what is below the bridge.
				elbow := y - 4
				p.line("trunk", 15, "", [2]int{end + wireLength + 12, wireY + 10}, [2]int{end + wireLength + 12, elbow}, [2]int{down, elbow})
				start = elbow
			}
			y = p.branches(b.Fan, level+1, down, start, y, right)
		}
	}
	p.line("trunk", 15, "", [2]int{x, from}, [2]int{x, trunk})
	return y
}

// wired draws the wire from x and the cards at its end, and returns where they end.
func (p *picture) wired(b branch, x, y, right int) int {
	wireY := y + 20
	length := wireLength
	if b.Wire.Now == "" && b.Wire.Most == "" && b.Bridge == nil {
		length = 18 // a device of the root bus has no link
	}
	left := x + length
	p.wire(b.Wire, x, left, wireY)
	top := y + 2
	for i, c := range b.Cards {
		h := p.card(c, left, top, right-left)
		if i > 0 {
			p.line("trunk", 15, "", [2]int{left - 6, wireY}, [2]int{left - 6, top + h/2}, [2]int{left, top + h/2})
		}
		top += h + 4
	}
	return top - 4
}

// wireWidth is the weight of a link's line, in tenths of a pixel.
func wireWidth(lanes int) int {
	switch {
	case lanes >= 16:
		return 80
	case lanes >= 8:
		return 50
	case lanes >= 4:
		return 32
	case lanes >= 2:
		return 22
	}
	return 14
}

// wire draws a link: its line is as heavy as it has lanes. What it is now stands above it, what the device could do below it.
func (p *picture) wire(w wire, from, to, y int) {
	class := "wire"
	switch {
	case w.Most != "" && w.Now != "":
		class = "wire slow"
	case w.Lanes == 0:
		class = "wire dim"
	}
	p.line(class, wireWidth(w.Lanes), w.Full, [2]int{from, y}, [2]int{to, y})
	in := rect{from, y - 20, to - from, 44}
	center := func(s string) int {
		return from + max(4, (to-from-min(fontSmall.width(s), to-from-8))/2)
	}
	above, below := w.Now, ""
	if w.Most != "" {
		below = "of " + w.Most
	}
	if above == "" && below != "" {
		above = unknown
	}
	p.text(center(above), y-7, above, fontSmall, "", to-from-6, in)
	p.text(center(below), y+16, below, fontSmall, "late", to-from-6, in)
}

// card draws a device and returns how high it is.
func (p *picture) card(c card, x, y, width int) int {
	frame := len(p.Boxes)
	p.box(rect{x, y, width, 0}, "card "+c.Kind, 4, c.Full)
	p.box(rect{x, y, 5, 0}, "band "+c.Kind, 2, c.Full)
	in := rect{x, y, width, 1 << 20}
	left, room := x+11, width-11-6
	at := y + 15
	w := p.text(left, at, c.Title, fontName, "", room, in)
	marks := c.Marks
	if len(marks) > 0 && room-w-8 >= marksNeed(marks) {
		p.marks(left+w+8, at-4, marks, room-w-8, in)
		marks = nil
	}
	at += 3
	for i, l := range c.Lines {
		at += 14
		f := fontSmall
		if i < c.Strong {
			f = fontBold
		}
		p.text(left, at-2, l, f, "", room, in)
	}
	if len(marks) > 0 {
		at += 15
		p.marks(left, at-6, marks, room, in)
	}
	h := max(at+4-y, 36)
	p.Boxes[frame].H, p.Boxes[frame+1].H = h, h
	for i := range p.Texts {
		if p.Texts[i].In == in {
			p.Texts[i].In.H = h
		}
	}
	return h
}
