package hostview

import (
	"strconv"

	"github.com/rackless/rackless/finding"
)

// A picture is shapes with their places, in pixels: what the SVG will show, as data, so that a test
// can look for what overlaps. Shapes are painted in the order boxes, cells, lines, tops, marks,
// texts.
type picture struct {
	W, H  int
	Boxes []boxShape
	Cells []cellShape
	Lines []lineShape
	Tops  []boxShape // boxes that lines end below
	Marks []markShape
	Texts []textShape
}

type rect struct{ X, Y, W, H int }

// A boxShape is a rectangle. Pointing at it shows its title.
type boxShape struct {
	rect
	Class  string
	Radius int
	Title  string
}

// A cellShape is a core.
type cellShape struct {
	rect
	Color int
	coreCell
}

// A lineShape is a line through points.
type lineShape struct {
	Points [][2]int
	Class  string
	Width  int // tenths of a pixel
	Title  string
}

// A markShape is the sign of a finding.
type markShape struct {
	rect
	Severity finding.Severity
	Title    string
}

// A textShape is a line of text. Its rect is where its letters may be; it lies within In.
type textShape struct {
	rect
	In    rect
	Text  string
	Font  font
	Class string
}

func (r rect) right() int { return r.X + r.W }

// box adds a rectangle and returns it.
func (p *picture) box(r rect, class string, radius int, title string) rect {
	p.Boxes = append(p.Boxes, boxShape{r, class, radius, title})
	return r
}

func (p *picture) line(class string, width int, title string, points ...[2]int) {
	p.Lines = append(p.Lines, lineShape{points, class, width, title})
}

// ascent is how far letters reach above the line that they stand on, and descent below it, in parts
// of ten of the font's size.
const ascent, descent = 10, 3

// text writes at most room pixels of s with its left end at x, standing on the line y, and returns
// how wide it may become. in is the box that it must not leave.
func (p *picture) text(x, y int, s string, f font, class string, room int, in rect) int {
	s = f.Fit(s, room)
	if s == "" || room <= 0 {
		return 0
	}
	w := f.Width(s)
	p.Texts = append(p.Texts, textShape{rect{x, y - f.Size*ascent/10, w, f.Size * (ascent + descent) / 10}, in, s, f,
		class})
	return w
}

// place adds another picture with its corner at x, y.
func (p *picture) place(q *picture, x, y int) {
	move := func(r rect) rect { return rect{r.X + x, r.Y + y, r.W, r.H} }
	for _, s := range q.Boxes {
		s.rect = move(s.rect)
		p.Boxes = append(p.Boxes, s)
	}
	for _, s := range q.Tops {
		s.rect = move(s.rect)
		p.Tops = append(p.Tops, s)
	}
	for _, s := range q.Cells {
		s.rect = move(s.rect)
		p.Cells = append(p.Cells, s)
	}
	for _, s := range q.Lines {
		points := make([][2]int, len(s.Points))
		for i, pt := range s.Points {
			points[i] = [2]int{pt[0] + x, pt[1] + y}
		}
		s.Points = points
		p.Lines = append(p.Lines, s)
	}
	for _, s := range q.Marks {
		s.rect = move(s.rect)
		p.Marks = append(p.Marks, s)
	}
	for _, s := range q.Texts {
		s.rect, s.In = move(s.rect), move(s.In)
		p.Texts = append(p.Texts, s)
	}
}

// Fonts of the picture.
var (
	fontHead  = font{Size: 18, Bold: true}
	fontTitle = font{Size: 13, Bold: true}
	fontName  = font{Size: 12, Bold: true}
	fontPlain = font{Size: 12, Bold: false}
	fontSmall = font{Size: 11, Bold: false}
	fontBold  = font{Size: 11, Bold: true}
	fontID    = font{Size: 10, Bold: true}
)

// markSize is the width and height of the sign of a finding.
const markSize = 11

// marksNeed is the room that the first of some findings takes, with the number of the others.
func marksNeed(all []mark) int {
	label := all[0].ID
	if len(all) > 1 {
		label += " +" + strconv.Itoa(len(all)-1)
	}
	return markSize + 3 + fontID.Width(label)
}

// marks draws findings side by side from x, with the middle of their signs at y, in at most room
// pixels: each with its ID, as far as there is room, then how many more there are. It returns how
// wide they are, 0 where there was no room at all.
func (p *picture) marks(x, y int, all []mark, room int, in rect) int {
	if len(all) == 0 || room < markSize {
		return 0
	}
	start := x
	for i, m := range all {
		p.Marks = append(p.Marks, markShape{rect{x, y - markSize/2, markSize, markSize}, m.Severity, m.Full})
		label := m.ID
		next := x + markSize + 3 + fontID.Width(label) + 6
		last := i == len(all)-1 || next+marksNeed(all[i+1:]) > start+room
		if n := len(all) - i - 1; last && n > 0 {
			label += " +" + strconv.Itoa(n)
		}
		w := p.text(x+markSize+3, y+4, label, fontID, "id", start+room-x-markSize-3, in)
		switch {
		case last && w == 0:
			return x + markSize - start // the sign alone
		case last:
			return x + markSize + 3 + w - start
		}
		x = next
	}
	return 0
}
