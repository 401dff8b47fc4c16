package hostview

import (
	"math"
	"slices"
)

func layoutBlock(at *Placement, b block, width int) *picture {
	p := &picture{W: width, owners: at}
	if len(b.Branches) == 0 {
		p.H = 18
		p.text(2, 13, b.Folded, fontSmall, "soft", width-4)
		return p
	}
	// Later shapes lie on top of the frame.
	frame := len(p.Boxes)
	p.box(rect{0, 0, width, 0}, "root", 5, b.Title)
	p.text(8, 15, b.Title, fontSmall, "soft", width-16)
	y := 22
	if b.Loose {
		y = p.loose(b.Branches, y, width)
	} else {
		y = p.branches(b.Branches, 0, 8, 20, y-2, width-8)
	}
	if b.Folded != "" {
		p.text(8, y+10, b.Folded, fontSmall, "soft", width-16)
		y += 16
	}
	p.H = y + 3
	p.Boxes[frame].H = p.H
	return p
}

// loose draws devices without a tree, two in a row. Cards include the link.
func (p *picture) loose(all []branch, y, width int) int {
	half := (width - 24) / 2
	var cards []card
	for _, b := range all {
		for _, c := range b.Cards {
			if b.Wire.known() {
				c.Lines = append(slices.Clone(c.Lines), b.Wire.Full)
			}
			cards = append(cards, c)
		}
	}
	for i := 0; i < len(cards); i += 2 {
		high := 0
		for j := i; j < min(i+2, len(cards)); j++ {
			high = max(high, p.card(cards[j], 8+(j-i)*(half+8), y, half))
		}
		y += high + 6
	}
	return y
}

// branches returns the y of their lower end. from is the start of the trunk.
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
			w := min(fontID.Width(b.Bridge.Text), in.W-6)
			p.text(at+(in.W-w)/2, wireY+4, b.Bridge.Text, font{Size: 10}, "", in.W-6)
			end = in.right()
		}
		switch {
		case len(b.Cards) > 0:
			bottom = max(bottom, p.wired(b, end, y, right))
		case b.Switch != nil:
			bottom = max(bottom, p.wire(b.Wire, end, end+wireLength, wireY))
			room := right - end - wireLength
			in := rect{end + wireLength, wireY - 10, min(fontID.Width(b.Switch.Text)+12, room), 20}
			p.box(in, "bridge", 3, b.Switch.Full)
			p.text(in.X+6, wireY+4, b.Switch.Text, fontID, "", in.W-8)
			p.marks(in.right()+6, wireY, b.Switch.Marks, right-in.right()-6)
		}
		if b.Bridge != nil && len(b.Bridge.Marks) > 0 {
			if len(b.Cards) == 0 && b.Switch == nil {
				p.marks(end+6, wireY, b.Bridge.Marks, right-end-6)
			} else {
				mid := wireY + 20
				if b.Wire.known() {
					mid = p.wireEnd(b.Wire, wireY) + 7 // below the wire's texts
				}
				p.marks(at, mid, b.Bridge.Marks, bridgeWidth+6)
				bottom = max(bottom, mid+10)
			}
		}
		y = bottom + 4
		if len(b.Fan) > 0 {
			down := x
			// Cards need the width more than readers see the depth.
			if level < maxIndent {
				down = x + indent
			}
			start := wireY + 10
			if b.Switch != nil {
				elbow := y - 4
				p.line("trunk", 15, "", [2]int{end + wireLength + 12, wireY + 10}, [2]int{end + wireLength + 12, elbow},
					[2]int{down, elbow})
				start = elbow
			}
			y = p.branches(b.Fan, level+1, down, start, y, right)
		}
	}
	p.line("trunk", 15, "", [2]int{x, from}, [2]int{x, trunk})
	return y
}

// wired returns the y of the lower end.
func (p *picture) wired(b branch, x, y, right int) int {
	wireY := y + 20
	left, end := x+wireLength, wireY
	if b.Wire.known() || b.Bridge != nil {
		end = p.wire(b.Wire, x, left, wireY)
	} else { // no link on the root bus
		left = x + 18
		p.line("trunk", 15, "", [2]int{x, wireY}, [2]int{left, wireY})
	}
	top := y + 2
	// Further functions of the device share the wire.
	for i, c := range b.Cards {
		h := p.card(c, left, top, right-left)
		if i > 0 {
			p.line("trunk", 15, "", [2]int{left - 6, wireY}, [2]int{left - 6, top + h/2}, [2]int{left, top + h/2})
		}
		top += h + 4
	}
	return max(top-4, end)
}

// wireWidth is in tenths of a pixel, the square root of GB/s in pixels: linearly, 64 GB/s would hide the tree, or 1
// GB/s be invisible.
func wireWidth(gbps float64) int { return min(max(10, int(math.Round(10*math.Sqrt(gbps)))), 120) }

func (w wire) texts() (above string, below []string) {
	above, below = w.Now, []string{gbpsText(w.GBps)}
	switch {
	case w.Now == "" && w.Most != "":
		above, below = w.Most, append(below, "at most") // the current state is unknown
	case w.Most != "":
		below = append(below, "of "+w.Most)
	}
	return above, slices.DeleteFunc(below, func(s string) bool { return s == "" })
}

func (p *picture) wireEnd(w wire, y int) int {
	_, below := w.texts()
	return y + 7 + 14*len(below)
}

// wire returns the lower end of its texts.
func (p *picture) wire(w wire, from, to, y int) int {
	class, text := "wire", "soft"
	switch {
	case w.slow() && w.Warned:
		class, text = "wire slow warned", "late"
	case w.slow():
		class = "wire slow"
	case w.GBps == 0:
		class = "wire dim"
	}
	p.line(class, wireWidth(w.GBps), w.Full, [2]int{from, y}, [2]int{to, y})
	center := func(s string) int { return from + max(2, (to-from-fontSmall.Width(s))/2) }
	above, below := w.texts()
	p.text(center(above), y-8, above, fontSmall, "", to-from-4)
	for i, s := range below {
		p.text(center(s), y+17+14*i, s, fontSmall, []string{"", text}[min(i, 1)], to-from-4)
	}
	return p.wireEnd(w, y)
}

// stackEdge is the visible edge of further cards, in pixels.
const stackEdge = 3

func (p *picture) card(c card, x, y, width int) int {
	edge := 0
	if len(c.Members) > 0 {
		edge = stackEdge
		p.box(rect{x + edge, y + edge, width - edge, 0}, "stack", 4, "")
		width -= edge
	}
	frame := len(p.Boxes)
	p.box(rect{x, y, width, 0}, "card "+c.Kind, 4, c.Full)
	p.box(rect{x, y, 5, 0}, "band "+c.Kind, 2, c.Full)
	left, room := x+11, width-11-6
	at := y + 15
	w := p.text(left, at, c.Title, fontName, "", room)
	marks := c.Marks
	if len(marks) > 0 && room-w-8 >= marksNeed(marks) {
		p.marks(left+w+8, at-4, marks, room-w-8)
		marks = nil
	}
	at += 15
	for _, o := range c.Owners {
		wide := p.text(left+p.swatch(p.owners, o, left, at-11), at, p.owners.Owners[o].Name, fontBold, "", room-20)
		if wide > 0 && p.owners.Owners[o].Role == RoleGuest {
			p.anchor("", "lab-node-"+p.owners.sign(o))
		}
		at += 15
	}
	for i, l := range c.Lines {
		f := fontSmall
		if i < c.Strong {
			f = fontBold
		}
		at = p.paragraph(left, at, l, f, "", room, 14, 3)
	}
	at -= 12
	if len(marks) > 0 {
		at += 15
		p.marks(left, at-6, marks, room)
	}
	h := max(at+4-y, 36)
	if edge > 0 {
		p.Boxes[frame-1].H = h
	}
	p.Boxes[frame].H, p.Boxes[frame+1].H = h, h
	return h + edge
}
