package hostview

import (
	"slices"
	"sort"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// In pixels.
const (
	gap         = 12
	smallRoom   = 156 // of a room without devices
	bridgeWidth = 64
	wireLength  = 74 // fits "of Gen4 x16"
	indent      = 14
	maxIndent   = 4 // levels
)

type sheet struct {
	width  int
	column int // of a root complex
	margin int
	edge   int  // around the picture
	alone  bool // no page around it
}

var (
	wideSheet  = sheet{width: MaxWidth, column: 360, margin: 10, edge: 12, alone: true}
	pageSheet  = sheet{width: 1208, column: 360, margin: 10, edge: 2}
	phoneSheet = sheet{width: 372, column: 344, margin: 6, edge: 2}
)

// layout picks the columns that make the picture the least high.
func (sh sheet) layout(v *view, s *scene) *picture {
	inner := sh.width - 2*sh.edge
	most := max(1, (inner-4*sh.margin+gap)/(sh.column+gap))
	var best *picture
	for columns := range most {
		// A wide, half-empty room is harder to read, so a column must save 7 %.
		if p := sh.arrange(v, s, columns+1, inner); best == nil || p.H*100 < best.H*93 {
			best = p
		}
	}
	if !sh.alone {
		best = sh.widened(v, s, best, inner)
	}
	// The panels below need width for sentences.
	w := max(best.W, min(inner, 2*sh.column))
	if v.Placement.guests() > 4 {
		w = max(w, min(inner, 4*sh.column)) // a panel must not be far higher than wide
	}
	out := &picture{W: w + 2*sh.edge, H: sh.edge}
	panels := []*picture{sh.guestsPanel(v, w), sh.cablesPanel(v, w), best, sh.nvlinkPanel(s, w),
		legendPanel(v, best, w)}
	if sh.alone {
		panels = slices.Insert(panels, 4, sh.findingsPanel(v, w))
		panels = slices.Insert(panels, 0, headPanel(v, w))
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

// widened fills the width of a page with wider columns, at most half as wide again, because longer lines are harder to
// read.
func (sh sheet) widened(v *view, s *scene, best *picture, inner int) *picture {
	for column := min(sh.column*inner/max(best.W, 1), sh.column*3/2); column > sh.column; column -= 12 {
		wide := sh
		wide.column = column
		for columns := range 3 {
			if p := wide.arrange(v, s, columns+1, inner); p.W <= inner && p.W > best.W && p.H <= best.H {
				return p
			}
		}
	}
	return best
}

func (sh sheet) arrange(v *view, s *scene, columns, width int) *picture {
	groups := lists.Map(s.Groups, func(g roomGroup) *picture { return sh.layoutGroup(v, g, columns, width, 0) })
	// Laid out again with the height of their row, the rooms fill it.
	highest := make([]int, len(groups))
	pack(groups, width, 0, func(_ *picture, i int, at rect) { highest[i] = at.H })
	for i, g := range s.Groups {
		groups[i] = sh.layoutGroup(v, g, columns, width, highest[i])
	}
	return pack(groups, width, 0, func(p *picture, i int, at rect) {
		if g := s.Groups[i]; g.framed() {
			p.box(at, "package", 8, g.Title)
		}
	})
}

func (g *roomGroup) framed() bool { return g.Title != "" && !g.Odd }

// layoutGroup leaves the box to the caller, who knows the height of the row.
func (sh sheet) layoutGroup(v *view, g roomGroup, columns, width, high int) *picture {
	const title = 18
	if g.framed() {
		width -= 2 * sh.margin
		high -= 2*sh.margin + title
	}
	rooms := lists.Map(g.Rooms, func(r room) *picture { return sh.layoutRoom(v, r, columns, width) })
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
	p.text(sh.margin, sh.margin+8, g.Title, fontTitle, "", packed.W)
	p.place(packed, sh.margin, sh.margin+title)
	return p
}

// layoutRoom leaves the frame to the caller.
func (sh sheet) layoutRoom(v *view, r room, columns, width int) *picture {
	cells := lists.Sum(r.Caches, func(c cacheCells) int { return len(c.Cells) })
	columns = max(1, min(columns, len(r.Blocks), (width-2*sh.margin+gap)/(sh.column+gap)))
	inner := columns*sh.column + (columns-1)*gap
	switch {
	// Narrow rooms let more of them fit into a row.
	case len(r.Blocks) == 0 && len(r.Holdings) > 0 && cells <= 32:
		inner = sh.column * 2 / 3
	case len(r.Blocks) == 0 && cells <= 32:
		inner = smallRoom
	case len(r.Blocks) == 0 && cells <= 64:
		inner = sh.column * 3 / 4
	}
	inner = min(inner, width-2*sh.margin)
	p := &picture{W: inner + 2*sh.margin}
	y := sh.margin + 8
	title := p.text(sh.margin, y, r.Title, fontTitle, "", inner)
	// Readers look at the title first. The panel of findings lists the rest.
	if room := inner - title - 8; room >= markSize {
		p.marks(sh.margin+title+8, y-4, r.Marks, room)
	}
	y += 5
	y += 12
	for _, l := range r.lines(inner * 9 / 5) { // 90 %: lines are not broken exactly at their ends
		y = p.paragraph(sh.margin, y, l, fontSmall, "soft", inner, 15, 2)
	}
	y -= 7
	y = p.holdings(v.Placement, &r, sh.margin, y, inner)
	if h := p.cells(v.Placement, r.Caches, sh.margin, y, inner, cells); h > 0 {
		y += h + 6
	}
	if len(r.Blocks) > 0 {
		y = p.columns(v.Placement, r.Blocks, columns, sh.margin, y, min(sh.column, inner))
	}
	p.H = y + sh.margin - 4
	return p
}

func (r *room) lines(width int) []string {
	if r.CPUs == nil {
		return r.Lines
	}
	return append([]string{cpuLine(*r.CPUs, width)}, r.Lines...)
}

func cpuLine(cpus topology.CPUSet, width int) string {
	if cpus.IsEmpty() {
		return "no CPUs"
	}
	line := ""
	for letters := min(width/4, 40); letters > 8; letters -= 4 {
		if line = "CPUs " + cpusText(cpus, letters); fontSmall.Width(line) <= width {
			break
		}
	}
	return line
}

// columns returns the y of the blocks' lower end.
func (p *picture) columns(at *Placement, blocks []block, columns, x, y, width int) int {
	ends := slices.Repeat([]int{y}, columns)
	for _, b := range blocks {
		q := layoutBlock(at, b, width)
		c := slices.Index(ends, slices.Min(ends))
		p.place(q, x+c*(width+gap), ends[c])
		ends[c] += q.H + 8
	}
	return slices.Max(ends) - 4
}

// cells frames the cores of one cache and returns the height; total counts all caches.
func (p *picture) cells(at *Placement, caches []cacheCells, x, y, width, total int) int {
	if total == 0 {
		return 0
	}
	// 14 pixels show threads and hatching, 5 is the least that can be told apart.
	size := 14
	switch {
	case total > 256:
		size = 5
	case total > 96 && at == nil:
		size = 9
	}
	pitch := size + 2
	left, row, high := 0, y, 0
	for _, c := range caches {
		perRow := min(len(c.Cells), max(1, (width-4)/pitch))
		lines := (len(c.Cells) + perRow - 1) / perRow
		perRow = (len(c.Cells) + lines - 1) / lines // the last line has more than one cell
		w, h := perRow*pitch+4-2, lines*pitch+4-2
		if left > 0 && left+w > width {
			row += high + 4
			left, high = 0, 0
		}
		if c.Known {
			p.box(rect{x + left, row, w, h}, "cache", 3, c.Full)
		}
		for i, cell := range c.Cells {
			p.cell(rect{x + left + 2 + i%perRow*pitch, row + 2 + i/perRow*pitch, size, size}, at, cell)
		}
		left += w + 5
		high = max(high, h)
	}
	return row + high - y
}

// cell shows the colours of owners, and the sign of a single one.
func (p *picture) cell(r rect, at *Placement, c coreCell) {
	shape := cellShape{rect: r, Classes: []string{"k0"}, coreCell: c}
	if at != nil {
		// Hatching and lines would hide the owners' colours.
		shape.Classes, shape.Isolated, shape.Threads = nil, false, 1
		shape.Classes = append(shape.Classes, lists.Map(c.Owners, at.class)...)
		if len(c.Owners) == 0 {
			shape.Classes = []string{string(RoleFree)}
		}
	}
	p.Cells = append(p.Cells, shape)
	if len(c.Owners) != 1 || r.W < 14 {
		return
	}
	if sign := at.sign(c.Owners[0]); fontID.Width(sign) <= r.W {
		p.text(r.X+(r.W-fontID.Width(sign))/2, r.Y+11, sign, fontID, "", r.W)
	}
}

// pack places pictures in rows of at most width pixels. Equal widths give balanced rows and stacks of low neighbours.
// The last row grows until the whole is high pixels high.
func pack(items []*picture, width, high int, frame func(p *picture, i int, at rect)) *picture {
	out := &picture{}
	if len(items) == 0 {
		return out
	}
	rows := packRows(stacked(items), width)
	if p := packColumns(items, rows, high, frame); p != nil {
		return p
	}
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
				// Which picture of a stack grows would be arbitrary.
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

// packColumns fills columns instead of rows if that is lower, so that no item is half empty beside a high one. Items of
// unequal width have no columns, and the result is nil.
func packColumns(items []*picture, rows [][]stack, high int, frame func(p *picture, i int, at rect)) *picture {
	if len(rows) < 2 || slices.ContainsFunc(items, func(q *picture) bool { return q.W != items[0].W }) {
		return nil
	}
	byRows := -gap
	for _, row := range rows {
		byRows += lists.Max(row, func(c stack) int { return c.H }) + gap
	}
	ends, tall := balanced(items, len(rows[0]))
	// The order by rows is more usual.
	if tall*100 > byRows*93 {
		return nil
	}
	out := &picture{W: len(ends)*(items[0].W+gap) - gap, H: max(tall, high)}
	first := 0
	for c, end := range ends {
		x, y := c*(items[0].W+gap), 0
		for i := first; i < end; i++ {
			at := rect{x, y, items[i].W, items[i].H}
			if i == end-1 {
				at.H = out.H - y
			}
			frame(out, i, at)
			out.place(items[i], x, y)
			y += at.H + gap
		}
		first = end
	}
	return out
}

// balanced returns the ends of columns that keep the order of the items, and the height of the highest one, which is
// the least possible.
func balanced(items []*picture, columns int) (ends []int, tall int) {
	filled := func(limit int) []int {
		var ends []int
		y := 0
		for i, q := range items {
			if i > 0 && y+q.H > limit {
				ends = append(ends, i)
				y = 0
			}
			y += q.H + gap
		}
		return append(ends, len(items))
	}
	low := lists.Max(items, func(q *picture) int { return q.H })
	tall = sort.Search(lists.Sum(items, func(q *picture) int { return q.H + gap }), func(more int) bool {
		return len(filled(low+more)) <= columns
	}) + low
	return filled(tall), tall
}

type stack struct{ first, end, W, H int }

// stacked joins neighbours of equal width, no higher than the highest.
func stacked(items []*picture) []stack {
	highest := lists.Max(items, func(q *picture) int { return q.H })
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

func packRows(all []stack, width int) [][]stack {
	perRow := len(all)
	if same := !slices.ContainsFunc(all, func(s stack) bool { return s.W != all[0].W }); same {
		fit := max(1, (width+gap)/(all[0].W+gap))
		// Five stacks become three and two, not four and one.
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
