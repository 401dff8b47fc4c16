package hostview

import (
	"bytes"
	"cmp"
	_ "embed" // for the template and the style sheet
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"

	"github.com/rackless/rackless/machine/topology"
)

//go:embed page.html
var pageHTML string

// pictureCSS has the colours and the rules of the pictures. The colours of things are from the
// palette of Okabe and Ito, which readers with any common colour vision can tell apart, made darker
// or lighter until text on them or beside them can be read; no meaning is carried by colour alone.
// The value before each var() is for programs that do not know variables: the light colour.
//
//go:embed picture.css
var pictureCSS string

//go:embed page.css
var pageCSS string

// pageTemplate escapes every field by the place where it stands. The style sheet and the pictures
// are the only texts that it takes as they are.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Funcs(template.FuncMap{"known": orUnknown, "class": cellClass,
		"int": intText, "cpus": func(s *topology.CPUSet) string { return setText(s, 60) }}).Parse(pageHTML))
})

// maxPageRows is how many rows of a table a page has: a browser takes its time for more.
const maxPageRows = 500

// WritePage writes the machine as one HTML page that needs nothing else: the findings, the picture,
// the paths and the tables. Its content security policy lets the browser load nothing at all and
// apply only the style sheet that is in it.
func (d *Document) WritePage(w io.Writer) error {
	v := newView(d)
	p := newPage
	if d.Placement != nil {
		p = (*view).placementPage
	}
	return show.Wrapf(show.Execute(w, pageTemplate(), p(v)), "write the page of host %q", d.Provenance.Name)
}

// page is what the template prints. Everything that needs a decision is decided here, so that the
// template only lays out.
type page struct {
	show.Head
	Heading       string
	Facts, Source []string
	Emulated      bool
	Summary, Calm string // of the findings, and what is said where there are none
	Findings      []pageFinding
	Pictures      template.HTML // SVG that svg.go has escaped
	Matrix        []matrixRow
	Alike         bool // a row of Matrix stands for several devices
	Legend        []class
	Expected      []pageExpectation
	Grids         []pageGrid
	Routes        []string
	Unread        []topology.Unread

	Contradictions, Inferred []string
}

// A pageFinding is a group of findings. Its Evidence is that of the only subject, and empty where there are several.
type pageFinding struct {
	findingGroup
	Class, Word, Where, Evidence string
	Places                       []finding.Finding
}

// A pageExpectation is what is usual for a kind of path, and how many pairs of devices have such a path.
type pageExpectation struct {
	Class, Link, Basis, GBps, Usec string
	Pairs                          int
}

// A pageGrid is a grid as texts.
type pageGrid struct {
	grid
	Texts [][]string
}

// newPage decides what the page shows.
func newPage(v *view) page {
	p := page{
		Head: show.NewHead(show.Base+pictureCSS+pageCSS, ""), Heading: v.heading(), Facts: v.facts(),
		Source:   v.sources(),
		Emulated: v.Provenance.Emulated, Summary: v.summary(),
		Calm: "Nothing was found to be wrong with what could be read.", Pictures: v.pictures(),
		Expected: v.expected(), Routes: v.routeTexts(), Unread: v.Host.Unread,
		Contradictions: v.contradictions(), Inferred: v.Host.Inferred,
	}
	p.Findings = append(p.Findings, lists.Map(grouped(v.Findings), newPageFinding)...)
	// A single device has no path to another one.
	if all := v.matrix(); len(all) > 1 {
		p.Matrix, p.Legend = alikeRows(all), legend
		p.Alike = len(p.Matrix) < len(all)
	}
	p.Grids = append(p.Grids, lists.Map(v.grids(), newPageGrid)...)
	return p
}

// pictures are the picture for large and for small screens, and the same with every device on a card of its own where
// cards stand for several.
func (v *view) pictures() template.HTML {
	var b bytes.Buffer
	for i, s := range v.scenes() {
		// Two sizes of each picture are in one page: each needs IDs of its own.
		id := ""
		if i > 0 {
			id = "-every"
			b.WriteString("<details class=\"every\"><summary>Every device on a card of its own</summary>\n")
		}
		pageSheet.layout(v, s).svg(&b, v, "wide"+id, "wide", "")
		phoneSheet.layout(v, s).svg(&b, v, "narrow"+id, "narrow", "")
		if i > 0 {
			b.WriteString("</details>\n")
		}
	}
	return template.HTML(b.String())
}

// scenes are those of the page.
func (v *view) scenes() []*scene {
	s := newScene(v)
	switch {
	case len(s.Groups) == 0:
		return nil
	case s.collapse():
		return []*scene{s, newScene(v)}
	}
	return []*scene{s}
}

func newPageFinding(g findingGroup) pageFinding {
	rank := g.Severity.Rank()
	f := pageFinding{findingGroup: g, Class: []string{"error", "warning", "info"}[rank],
		Word: []string{"✖ error", "▲ warning", "● note"}[rank], Where: some(g.Subjects, 8)}
	if len(g.Subjects) == 1 {
		f.Evidence = g.Evidences[0]
	}
	for i, s := range g.Subjects {
		f.Places = append(f.Places, finding.Finding{Subject: s, Evidence: g.Evidences[i]})
	}
	return f
}

// cellClass is the class of the style sheet that a cell of the matrix has.
func cellClass(class string) string {
	switch {
	case class == "":
		return "dark"
	case class == "X":
		return "self"
	case strings.HasPrefix(class, "NV"):
		return "nv"
	}
	return strings.ToLower(class)
}

// expected are the expectations of the paths, each kind once.
func (v *view) expected() []pageExpectation {
	span := func(low, high float64) string {
		return strconv.FormatFloat(low, 'f', -1, 64) + " to " + strconv.FormatFloat(high, 'f', -1, 64)
	}
	var out []pageExpectation
	for _, p := range v.Paths {
		if p.Expected == nil {
			continue
		}
		e := pageExpectation{Class: p.Class, Link: p.Expected.Link, Basis: p.Expected.Basis,
			GBps: span(p.Expected.GBpsMin, p.Expected.GBpsMax), Usec: span(p.Expected.UsecMin, p.Expected.UsecMax)}
		// Eight GPUs and eight NICs have 64 paths and few kinds of them: a row for each kind.
		i := slices.IndexFunc(out, func(o pageExpectation) bool { o.Pairs = 0; return o == e })
		if i < 0 {
			i = len(out)
			out = append(out, e)
		}
		out[i].Pairs++
	}
	rank := func(e pageExpectation) int {
		c, _, err := topology.ParsePathLabel(e.Class)
		if err != nil {
			return 1 << 8
		}
		return int(c)
	}
	slices.SortStableFunc(out, func(a, b pageExpectation) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

// newPageGrid is a grid at its full width: a page scrolls where a terminal has to drop columns.
func newPageGrid(g grid) pageGrid {
	g.limit(maxPageRows)
	// A stride or a count of CPUs says more than a hundred numbers.
	text := func(c cell) string {
		if c.cpus != nil {
			return c.fit(40)
		}
		return c.fit(200)
	}
	return pageGrid{grid: g, Texts: lists.Map(g.Rows, func(r []cell) []string { return lists.Map(r, text) })}
}
