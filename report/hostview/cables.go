package hostview

import (
	"fmt"

	"github.com/rackless/rackless/internal/words"
)

// A Cable is what is plugged into the port of a lab node's NIC.
type Cable struct {
	From, To CableEnd
	State    string // such as "25 Gb/s"; may be empty
	// Unknown is true if nothing names the other end, and Down if the port has no link.
	Unknown, Down bool
}

// A CableEnd is a port, or a switch.
type CableEnd struct {
	Owner int // index into the Placement's owners, or -1
	Title string
	Lines []string
}

// maxCables are drawn; a longer list is read in the tables.
const maxCables = 16

// cablesPanel draws each cable as a line between two cards, below the guests, so that no line crosses a guest.
func (sh sheet) cablesPanel(v *view, width int) *picture {
	p := &picture{W: width, owners: v.Placement}
	if v.Placement == nil || len(v.Placement.Cables) == 0 {
		return p
	}
	p.box(rect{0, 0, width, 0}, "panel", 6, "")
	p.text(sh.margin, 20, "Cables", fontTitle, "", width-2*sh.margin)
	inner := min(width, 2*sh.column) - 2*sh.margin
	end := min(sh.column, inner*2/5)
	y := 32
	for i, c := range v.Placement.Cables {
		if i == maxCables {
			p.text(sh.margin, y+12, "and "+words.Count(len(v.Placement.Cables)-i, "cable")+" more", fontSmall, "soft",
				inner)
			y += 24
			break
		}
		y += p.cable(c, sh.margin, y, inner, end) + 8
	}
	p.H = y + 2
	p.Boxes[0].H = p.H
	return p
}

// cable returns the height.
func (p *picture) cable(c Cable, x, y, width, end int) int {
	high := p.cableEnd(c.From, cardNIC, x, y, end)
	from, to := x+end, x+width-end
	if !c.Down {
		class := "wire"
		if c.Unknown {
			class = "wire dim"
		}
		p.line(class, 22, fmt.Sprintf("%s to %s", c.From.Title, c.To.Title), [2]int{from, y + 18}, [2]int{to, y + 18})
	}
	w := min(fontSmall.Width(drawable(c.State)), to-from-4)
	p.text((from+to-w)/2, y+12, c.State, fontSmall, "", to-from-4)
	if c.Down {
		return high
	}
	kind := cardNIC
	if c.Unknown || c.To.Owner < 0 {
		kind = cardOther
	}
	return max(high, p.cableEnd(c.To, kind, to, y, end))
}

func (p *picture) cableEnd(e CableEnd, kind string, x, y, width int) int {
	c := card{Kind: kind, Title: e.Title, Lines: e.Lines}
	if e.Owner >= 0 {
		c.Owners = []int{e.Owner}
	}
	return p.card(c, x, y, width)
}
