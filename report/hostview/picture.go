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

// A picture keeps shapes as data, so that tests find overlaps. They are painted in the order boxes, cells, lines, tops,
// marks, texts.
type picture struct {
	W, H  int
	Boxes []boxShape
	Cells []cellShape
	Lines []lineShape
	Tops  []boxShape // cover the ends of lines
	Marks []markShape
	Texts []textShape

	owners *Placement
}

type rect struct{ X, Y, W, H int }

// A boxShape shows its title on hover.
type boxShape struct {
	rect
	Class  string
	Radius int
	Title  string
}

type cellShape struct {
	rect
	Classes []string // one, or one for each part
	coreCell
}

type lineShape struct {
	Points [][2]int
	Class  string
	Width  int // in tenths of a pixel
	Title  string
}

type markShape struct {
	rect
	Severity finding.Severity
	Title    string
}

// A textShape has the bounds of the letters as rect.
type textShape struct {
	rect
	Text  string
	Font  font
	Class string

	ID   string
	Link string
}

func (r rect) right() int { return r.X + r.W }

func (p *picture) box(r rect, class string, radius int, title string) rect {
	p.Boxes = append(p.Boxes, boxShape{r, class, radius, drawable(title)})
	return r
}

// line takes width in tenths of a pixel.
func (p *picture) line(class string, width int, title string, points ...[2]int) {
	p.Lines = append(p.Lines, lineShape{points, class, width, drawable(title)})
}

// ascent and descent are in tenths of the font size.
const ascent, descent = 10, 3

// text cuts s to room pixels on baseline y, and returns the width.
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

func (p *picture) anchor(id, link string) {
	if n := len(p.Texts); n > 0 {
		p.Texts[n-1].ID, p.Texts[n-1].Link = id, link
	}
}

// paragraph writes at most most lines, and returns the baseline after them.
func (p *picture) paragraph(x, y int, s string, f font, class string, room, high, most int) int {
	lines := f.Lines(drawable(s), room)
	if len(lines) > most {
		lines = append(lines[:most-1:most-1], strings.Join(lines[most-1:], " ")) // p.text cuts the last line
	}
	for _, l := range lines {
		p.text(x, y, l, f, class, room)
		y += high
	}
	return y
}

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

var (
	fontHead  = font{Size: 18, Bold: true}
	fontTitle = font{Size: 13, Bold: true}
	fontName  = font{Size: 12, Bold: true}
	fontPlain = font{Size: 12, Bold: false}
	fontSmall = font{Size: 11, Bold: false}
	fontBold  = font{Size: 11, Bold: true}
	fontID    = font{Size: 10, Bold: true}
)

const markSize = 11

func marksNeed(all []mark) int {
	label := all[0].ID
	if len(all) > 1 {
		label += " +" + strconv.Itoa(len(all)-1)
	}
	return markSize + 3 + fontID.Width(label)
}

// marks draws findings in at most room pixels, centred on y. The last one has the count of the others.
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
		// The last sign with room has the count.
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

type font = show.Font

// drawable removes combining marks, and replaces the few characters as wide as a sentence. Newlines stay.
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
