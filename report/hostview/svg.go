package hostview

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// MaxWidth is the width of the picture that WriteSVG draws, at most, in pixels.
const MaxWidth = 1600

// WriteSVG writes the machine as one SVG picture: packages with their NUMA nodes as rooms, in each
// its cores, memory and the part of the PCI tree that is next to it. A link is drawn as heavy as
// its rate, and equal devices stand on one card; findings are marked where they are. The picture
// needs no other file and has no script; it follows the reader's choice of light or dark.
func (d *Document) WriteSVG(w io.Writer) error {
	v := newView(d)
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
	s := newScene(v)
	s.collapse()
	wideSheet.layout(v, s).svg(&b, v, "host", "", pictureCSS)
	_, err := w.Write(b.Bytes())
	return show.Wrapf(err, "draw host %q", d.Provenance.Name)
}

// describe is the picture in one sentence, for those who cannot see it.
func (v *view) describe() string {
	if v.Placement != nil {
		return v.describePlacement()
	}
	return "NUMA nodes as rooms, with cores, memory and PCI devices in them: " + joined(", ", v.countsText(),
		counted(len(v.gpus), "GPU"), counted(len(v.nics), "NIC"), findingsText(v.Findings)) + "."
}

// svg writes the picture of v. id is that of its title and description, unique in a page; style is empty where the page
// has the style sheet. Classes and IDs are made here and need no escaping. Titles and texts come from the machine, and
// are escaped.
func (p *picture) svg(b *bytes.Buffer, v *view, id, class, style string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" class="%s" viewBox="0 0 %d %d" `+
		`width="%[2]d" height="%[3]d" role="img" aria-labelledby="%[4]s-t %[4]s-d">`+"\n",
		strings.TrimSpace("hv "+class), p.W, p.H, id)
	fmt.Fprintf(b, "<title id=\"%s-t\">%s</title>\n<desc id=\"%[1]s-d\">%[3]s</desc>\n", id, escaped(v.heading()),
		escaped(v.describe()))
	if style != "" {
		fmt.Fprintf(b, "<style>\n%s</style>\n", style) // ours: nothing in it needs to be escaped
	}
	fmt.Fprintf(b, `<rect class="ground" width="%d" height="%d"/>`+"\n", p.W, p.H)
	// From the back to the front: SVG paints in the order of its elements, and has no other depth.
	svgBoxes(b, p.Boxes)
	p.svgCells(b)
	for _, s := range p.Lines {
		points := lists.Map(s.Points, func(pt [2]int) string { return fmt.Sprintf("%d,%d", pt[0], pt[1]) })
		fmt.Fprintf(b, `<polyline class="%s" stroke-width="%s" points="`, s.Class,
			strconv.FormatFloat(float64(s.Width)/10, 'f', -1, 64))
		b.WriteString(strings.Join(points, " ") + `"`)
		closeWithTitle(b, "polyline", s.Title)
	}
	// Chips of GPUs lie on the ends of their NVLinks, which meet in their middle.
	svgBoxes(b, p.Tops)
	for _, s := range p.Marks {
		svgMark(b, s)
	}
	for _, s := range p.Texts {
		class, weight := "", ""
		if s.Class != "" {
			class = ` class="` + s.Class + `"`
		}
		if s.Font.Bold {
			weight = ` font-weight="700"`
		}
		before, after := "", ""
		class += words.If(s.ID != "", fmt.Sprintf(` id="%s-%s"`, id, s.ID))
		if s.Link != "" {
			before, after = fmt.Sprintf(`<a href="#%s-%s">`, id, s.Link), "</a>"
		}
		fmt.Fprintf(b, `%s<text%s x="%d" y="%d" font-size="%d"%s>%s</text>%s`+"\n", before, class, s.X,
			s.Y+s.Font.Size*ascent/10, s.Font.Size, weight, escaped(s.Text), after)
	}
	b.WriteString("</svg>\n")
}

// svgBoxes writes rectangles. Their titles are shown on pointing at them.
func svgBoxes(b *bytes.Buffer, boxes []boxShape) {
	for _, s := range boxes {
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"`, s.Class, s.X, s.Y, s.W, s.H,
			s.Radius)
		closeWithTitle(b, "rect", s.Title)
	}
}

// closeWithTitle ends an element, with a title in it if there is one.
func closeWithTitle(b *bytes.Buffer, element, title string) {
	if title == "" {
		b.WriteString("/>\n")
		return
	}
	fmt.Fprintf(b, "><title>%s</title></%s>\n", escaped(title), element)
}

// svgCells writes the cores: all of one colour are one path.
func (p *picture) svgCells(b *bytes.Buffer) {
	// A machine may have a thousand cores: an element for each would make the picture slow to show.
	var classes []string // in the order of the picture, hatches last
	paths := map[string]*strings.Builder{}
	draw := func(class, format string, args ...any) {
		if paths[class] == nil {
			paths[class] = &strings.Builder{}
			classes = append(classes, class)
		}
		fmt.Fprintf(paths[class], format, args...)
	}
	for _, c := range p.Cells {
		n := len(c.Classes)
		// A disc, as two half circles: shape and not colour tells efficiency cores apart.
		if c.Efficient && n == 1 {
			draw(c.Classes[0], "M%d %da%d %[3]d 0 1 0 %[4]d 0a%[3]d %[3]d 0 1 0 -%[4]d 0z", c.X, c.Y+c.H/2, c.W/2,
				c.W/2*2)
			continue
		}
		for i, class := range c.Classes {
			left := c.W * i / n
			draw(class, "M%d %dh%dv%dh-%[3]dz", c.X+left, c.Y, c.W*(i+1)/n-left, c.H)
		}
	}
	for _, c := range p.Cells {
		// Lines between threads are left out where a thread would have less than 4 pixels.
		for t := 1; t < c.Threads && c.W >= 4*c.Threads; t++ {
			draw("split", "M%d %dv%d", c.X+c.W*t/c.Threads, c.Y, c.H)
		}
	}
	for _, c := range p.Cells {
		if c.Isolated {
			draw("hatch", "M%d %dl%d %d", c.X+1, c.Y+c.H-1, c.W-2, -(c.H - 2))
		}
	}
	for _, class := range classes {
		fmt.Fprintf(b, `<path class="%s" d="%s"/>`+"\n", class, paths[class])
	}
}

// svgMark writes the sign of a finding. Severities differ in shape: a square with a cross, a
// triangle with a stroke, a disc with an i.
func svgMark(b *bytes.Buffer, s markShape) {
	x, y, w := s.X, s.Y, s.W
	cx := float64(x) + float64(w)/2
	num := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	b.WriteString("<g>")
	if s.Title != "" {
		fmt.Fprintf(b, "<title>%s</title>", escaped(s.Title))
	}
	switch s.Severity.Rank() {
	case 0:
		fmt.Fprintf(b, `<rect class="error" x="%d" y="%d" width="%d" height="%d" rx="2"/>`+
			`<path class="sign" d="M%d %dl%d %[7]dm0 -%[7]dl-%[7]d %[7]d"/>`, x, y, w, w, x+3, y+3, w-6)
	case 1:
		fmt.Fprintf(b, `<path class="warning" d="M%s %dL%d %dH%dz"/><path class="sign" d="M%s %dv3m0 2.2v.1"/>`,
			num(cx), y-1, x+w+1, y+w, x-1, num(cx), y+4)
	default:
		fmt.Fprintf(b, `<circle class="info" cx="%s" cy="%s" r="%s"/><path class="sign" d="M%s %sv.1m0 2.4v3"/>`,
			num(cx), num(float64(y)+float64(w)/2), num(float64(w)/2), num(cx), num(float64(y)+2.8))
	}
	b.WriteString("</g>\n")
}

// xmlEscapes are the letters that mean something in XML.
var xmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// escaped is text in XML. What XML has no place for (most control characters) is replaced: an
// escape of it would not be well-formed either.
func escaped(s string) string {
	return xmlEscapes.Replace(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cc, r) && r != '\n' && r != '\t' || r == 0xfffe || r == 0xffff {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}
