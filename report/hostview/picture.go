package hostview

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
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

	owners *Placement // whose owners its cards name
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
	Classes []string // of its colour, or of its parts from left to right
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

// A textShape is a line of text. Its rect is where its letters may be.
type textShape struct {
	rect
	Text  string
	Font  font
	Class string

	ID   string // by which a Link finds it, unique in its picture
	Link string
}

func (r rect) right() int { return r.X + r.W }

// box adds a rectangle and returns it.
func (p *picture) box(r rect, class string, radius int, title string) rect {
	p.Boxes = append(p.Boxes, boxShape{r, class, radius, drawable(title)})
	return r
}

// line adds a line through points, so many tenths of a pixel wide.
func (p *picture) line(class string, width int, title string, points ...[2]int) {
	p.Lines = append(p.Lines, lineShape{points, class, width, drawable(title)})
}

// ascent is how far letters reach above the line that they stand on, and descent below it, in parts
// of ten of the font's size.
const ascent, descent = 10, 3

// text writes at most room pixels of s with its left end at x, standing on the line y, and returns
// how wide it may become.
func (p *picture) text(x, y int, s string, f font, class string, room int) int {
	s = f.Fit(drawable(s), room)
	if s == "" || room <= 0 {
		return 0
	}
	w := f.Width(s)
	at := rect{x, y - f.Size*ascent/10, w, f.Size * (ascent + descent) / 10}
	p.Texts = append(p.Texts, textShape{rect: at, Text: s, Font: f, Class: class})
	return w
}

// anchor gives the last text an ID, or links it to the text that has one.
func (p *picture) anchor(id, link string) {
	if n := len(p.Texts); n > 0 {
		p.Texts[n-1].ID, p.Texts[n-1].Link = id, link
	}
}

// paragraph writes text in at most so many lines, high pixels apart, and returns where the next line stands.
func (p *picture) paragraph(x, y int, s string, f font, class string, room, high, most int) int {
	lines := f.Lines(drawable(s), room)
	if len(lines) > most {
		lines = append(lines[:most-1:most-1], strings.Join(lines[most-1:], " ")) // the last is cut where it is written
	}
	for _, l := range lines {
		p.text(x, y, l, f, class, room)
		y += high
	}
	return y
}

// place adds another picture with its corner at x, y.
func (p *picture) place(q *picture, x, y int) {
	p.Boxes = placed(p.Boxes, q.Boxes, x, y, func(s *boxShape) *rect { return &s.rect })
	p.Cells = placed(p.Cells, q.Cells, x, y, func(s *cellShape) *rect { return &s.rect })
	p.Tops = placed(p.Tops, q.Tops, x, y, func(s *boxShape) *rect { return &s.rect })
	p.Marks = placed(p.Marks, q.Marks, x, y, func(s *markShape) *rect { return &s.rect })
	p.Texts = placed(p.Texts, q.Texts, x, y, func(s *textShape) *rect { return &s.rect })
	for _, s := range q.Lines {
		s.Points = slices.Clone(s.Points)
		for i := range s.Points {
			s.Points[i][0] += x
			s.Points[i][1] += y
		}
		p.Lines = append(p.Lines, s)
	}
}

// placed adds shapes moved by x, y to others. at gives the place of a shape.
func placed[S any](to, shapes []S, x, y int, at func(*S) *rect) []S {
	known := len(to)
	to = append(to, shapes...)
	for i := range shapes {
		moved := at(&to[known+i])
		moved.X += x
		moved.Y += y
	}
	return to
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
// pixels: each with its ID, as far as there is room, then how many more there are.
func (p *picture) marks(x, y int, all []mark, room int) {
	const sign = markSize + 3
	end := x + room
	for i, m := range all {
		if end-x < markSize {
			return
		}
		p.Marks = append(p.Marks, markShape{rect{x, y - markSize/2, markSize, markSize}, m.Severity, m.Full})
		label, more := m.ID, len(all)-i-1
		next := x + sign + fontID.Width(label) + 6
		// The number of the others belongs to the last sign that has room, so it has to be known before the next one is
		// drawn.
		last := more > 0 && next+marksNeed(all[i+1:]) > end
		if last {
			label += " +" + strconv.Itoa(more)
		}
		p.text(x+sign, y+4, label, fontID, "id", end-x-sign)
		if last {
			return
		}
		x = next
	}
}

// A font is what a text of a picture is written in.
type font = show.Font

// drawable leaves out what a picture has no place for: marks that stack above or below a letter, and the few
// letters that are as wide as a sentence. Lines stay apart.
func drawable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < 0x300:
			return r
		case unicode.Is(unicode.M, r):
			return -1
		case r >= 0xfb50 && r <= 0xfdff, r >= 0x12000 && r <= 0x1254f:
			return '\uFFFD' // Arabic ligatures and cuneiform
		}
		return r
	}, words.Visible(s))
}
