package hostview

import (
	"bytes"
	_ "embed" // for the template
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"unicode"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"
)

// MaxWidth is the maximum width of the picture from WriteSVG, in pixels.
const MaxWidth = 1600

// WriteSVG writes the machine as one SVG picture: packages with NUMA nodes as rooms. A link's width shows its rate, and
// equal devices share a card.
//
// It is self-contained, has no script, and follows the reader's choice of light or dark.
func (d *Document) WriteSVG(w io.Writer) error {
	v := newView(d)
	b := bytes.NewBufferString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
	s := newScene(v)
	s.collapse()
	wideSheet.layout(v, s).svg(b, v, "host", "", pictureCSS)
	_, err := b.WriteTo(w)
	return show.Wrapf(err, "draw host %q", d.Provenance.Name)
}

func (v *view) describe() string {
	if v.Placement != nil {
		return v.describePlacement()
	}
	return "NUMA nodes as rooms, with cores, memory and PCI devices in them: " + joined(", ", v.countsText(),
		counted(len(v.gpus), "GPU"), counted(len(v.nics), "NIC"), findingsText(v.Findings)) + "."
}

//go:embed picture.svg.tmpl
var pictureSVG string

// pictureTemplate escapes titles and texts, which come from the machine.
var pictureTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("picture").Funcs(template.FuncMap{
		"text":  escaped,
		"boxes": func(all []boxShape) string { return each(all, svgBox) },
		"marks": func(all []markShape) string { return each(all, svgMark) },
		"texts": func(id string, all []textShape) string {
			return each(all, func(s textShape) string { return svgText(id, s) })
		},
		"tenths": func(n int) string { return strconv.FormatFloat(float64(n)/10, 'f', -1, 64) },
		"points": func(all [][2]int) string {
			return strings.Join(lists.Map(all, func(p [2]int) string { return fmt.Sprintf("%d,%d", p[0], p[1]) }), " ")
		},
		"close": closed,
	}).Parse(pictureSVG))
})

// svg takes an id that is unique in a page. style is empty if the page has it.
func (p *picture) svg(b *bytes.Buffer, v *view, id, class, style string) {
	err := pictureTemplate().Execute(b, struct {
		*picture
		ID, Class, Role, Heading, Description, Style string
		Paths                                        []svgPath
	}{p, id, strings.TrimSpace("hv " + class), p.role(), v.heading(), v.describe(), style, p.svgCells()})
	if err != nil { // cannot fail: template and data are of this package
		panic(err)
	}
}

// role is not "img" for a picture with links, because programs that read aloud do not enter an image.
func (p *picture) role() string {
	if slices.ContainsFunc(p.Texts, func(s textShape) bool { return s.Link != "" }) {
		return "group"
	}
	return "img"
}

func each[S any](shapes []S, svg func(S) string) string {
	return strings.Join(lists.Map(shapes, svg), "")
}

// svgBox formats in Go, because boxes and texts are most of a picture.
func svgBox(s boxShape) string {
	return fmt.Sprintf(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"`, s.Class, s.X, s.Y, s.W, s.H,
		s.Radius) + closed("rect", s.Title)
}

func closed(element, title string) string {
	if title == "" {
		return "/>\n"
	}
	return "><title>" + escaped(title) + "</title></" + element + ">\n"
}

func svgText(picture string, s textShape) string {
	var b strings.Builder
	if s.Link != "" {
		fmt.Fprintf(&b, `<a href="#%s-%s">`, picture, s.Link)
	}
	b.WriteString("<text")
	if s.Class != "" {
		fmt.Fprintf(&b, ` class="%s"`, s.Class)
	}
	if s.ID != "" {
		fmt.Fprintf(&b, ` id="%s-%s"`, picture, s.ID)
	}
	baseline := s.Y + s.Font.Size*ascent/10
	fmt.Fprintf(&b, ` x="%d" y="%d" font-size="%d"`, s.X, baseline, s.Font.Size)
	if s.Font.Bold {
		b.WriteString(` font-weight="700"`)
	}
	b.WriteString(">" + escaped(s.Text) + "</text>")
	if s.Link != "" {
		b.WriteString("</a>")
	}
	return b.String() + "\n"
}

// An svgPath combines all cores of one colour, or all lines or hatches.
type svgPath struct {
	Class string
	D     *strings.Builder
}

func (p *picture) svgCells() []svgPath {
	// An element for each of a thousand cores would be slow.
	var paths group.List[string, svgPath] // in drawing order, hatches last
	draw := func(class, format string, args ...any) {
		fmt.Fprintf(paths.At(class, svgPath{class, &strings.Builder{}}).D, format, args...)
	}
	for _, c := range p.Cells {
		n := len(c.Classes)
		// Two half circles. Efficiency cores differ also in shape.
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
		for t := 1; t < c.Threads && c.W >= 4*c.Threads; t++ {
			draw("split", "M%d %dv%d", c.X+c.W*t/c.Threads, c.Y, c.H)
		}
	}
	for _, c := range p.Cells {
		if c.Isolated {
			draw("hatch", "M%d %dl%d %d", c.X+1, c.Y+c.H-1, c.W-2, -(c.H - 2))
		}
	}
	return paths.All
}

// svgMark tells severities apart by shape: a square with a cross, a triangle with a stroke, a disc with an i.
func svgMark(s markShape) string {
	x, y, w := s.X, s.Y, s.W
	cx := float64(x) + float64(w)/2
	num := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	title := ""
	if s.Title != "" {
		title = "<title>" + escaped(s.Title) + "</title>"
	}
	sign := ""
	switch s.Severity.Rank() {
	case 0:
		sign = fmt.Sprintf(`<rect class="error" x="%d" y="%d" width="%d" height="%d" rx="2"/>`+
			`<path class="sign" d="M%d %dl%d %[7]dm0 -%[7]dl-%[7]d %[7]d"/>`, x, y, w, w, x+3, y+3, w-6)
	case 1:
		sign = fmt.Sprintf(`<path class="warning" d="M%s %dL%d %dH%dz"/><path class="sign" d="M%s %dv3m0 2.2v.1"/>`,
			num(cx), y-1, x+w+1, y+w, x-1, num(cx), y+4)
	default:
		sign = fmt.Sprintf(`<circle class="info" cx="%s" cy="%s" r="%s"/><path class="sign" d="M%s %sv.1m0 2.4v3"/>`,
			num(cx), num(float64(y)+float64(w)/2), num(float64(w)/2), num(cx), num(float64(y)+2.8))
	}
	return "<g>" + title + sign + "</g>\n"
}

var xmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// escaped replaces characters that XML forbids, because even their escapes would not be well-formed.
func escaped(s string) string {
	return xmlEscapes.Replace(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cc, r) && r != '\n' && r != '\t' || r == 0xfffe || r == 0xffff {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}
