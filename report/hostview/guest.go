package hostview

import (
	"slices"

	"github.com/rackless/rackless/internal/words"
)

// A GuestNode is a NUMA node that a guest sees, with its devices.
type GuestNode struct {
	Title   string
	Lines   []string
	Devices []GuestDevice
}

// A GuestDevice is a GPU or a NIC of a guest.
type GuestDevice struct {
	ID    string // unique in the guest
	NIC   bool
	Title string
	Lines []string
}

// A GuestPath joins a GPU and a NIC of a guest.
type GuestPath struct {
	GPU, NIC string // IDs of devices
	Text     string
	Crosses  bool // NUMA nodes of the host
}

const (
	guestRoom     = 160 // least width of a GuestNode, in pixels
	maxDrawnPaths = 4   // more could not be told apart in the gutters
	track         = 4   // between lines in a gutter, in pixels
)

func (p *Placement) drawsGuests() bool {
	return slices.ContainsFunc(p.Owners, func(o Owner) bool { return len(o.Nodes) > 0 })
}

// guestNodes draws NUMA nodes side by side, and paths between devices below them. It returns the y of the lower end.
func (p *picture) guestNodes(o *Owner, x, y, width int) int {
	if len(o.Nodes) == 0 {
		return y
	}
	paths := o.Paths[:min(len(o.Paths), maxDrawnPaths)]
	perRow := max(1, min(len(o.Nodes), (width+gap)/(guestRoom+gap)))
	w := (width - (perRow-1)*gap) / perRow
	gutter := 8 + track*len(paths)
	at := map[string]rect{}
	for row := range slices.Chunk(o.Nodes, perRow) {
		y = p.guestRow(row, x, y, w, gutter, at) + gap
	}
	y -= gap / 2
	lane := y
	for k, path := range paths {
		from, ok1 := at[path.GPU]
		to, ok2 := at[path.NIC]
		class := "wire"
		if path.Crosses {
			class = "wire warned"
		}
		a, b := from.Y+12+track*k, to.Y+12+track*k
		right, left := from.right()+track*(k+1), to.X-track*(k+1)
		switch {
		case !ok1 || !ok2:
		case from.X == to.X:
			p.line(class, 22, path.Text, [2]int{from.right(), a}, [2]int{right, a}, [2]int{right, b},
				[2]int{to.right(), b})
		// With several rows of NUMA nodes, a line would cross cards.
		case perRow == len(o.Nodes):
			p.line(class, 22, path.Text, [2]int{from.right(), a}, [2]int{right, a}, [2]int{right, lane},
				[2]int{left, lane}, [2]int{left, b}, [2]int{to.X, b})
			lane += track
		}
	}
	y = lane
	for _, path := range paths {
		y = p.paragraph(x, y+15, path.Text, fontSmall, "", width, 14, 2) - 14
	}
	if more := len(o.Paths) - len(paths); more > 0 {
		p.text(x, y+11, "and "+words.Count(more, "path")+" more", fontSmall, "soft", width)
		y += 18
	}
	return y + 4
}

// guestRow adds the place of each device to at.
func (p *picture) guestRow(row []GuestNode, x, y, w, gutter int, at map[string]rect) int {
	frames := make([]int, len(row))
	first := y
	for i, n := range row {
		left := x + i*(w+gap)
		frames[i] = len(p.Boxes)
		p.box(rect{left, y, w, 0}, "guest", 5, "")
		p.text(left+8, y+16, n.Title, fontName, "", w-16)
		end := y + 31
		for _, l := range n.Lines {
			end = p.paragraph(left+8, end, l, fontSmall, "soft", w-16, 14, 3)
		}
		first = max(first, end-6)
	}
	bottom := first
	for i, n := range row {
		below := first
		for _, d := range n.Devices {
			kind := cardGPU
			if d.NIC {
				kind = cardNIC
			}
			in := rect{x + i*(w+gap) + gutter, below, w - 2*gutter, 0}
			in.H = p.card(card{Kind: kind, Title: d.Title, Lines: d.Lines}, in.X, in.Y, in.W)
			at[d.ID] = in
			below += in.H + 6
		}
		bottom = max(bottom, below)
	}
	for _, i := range frames {
		p.Boxes[i].H = bottom - y + 2
	}
	return bottom + 2
}
