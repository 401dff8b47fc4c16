package hostview

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // for the template and the style sheet
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rackless/rackless/report/show"

	"github.com/rackless/rackless/topology"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// pageTemplate escapes every field by the place where it stands. The style sheet and the pictures
// are the only texts that it takes as they are.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Parse(pageHTML))
})

// maxPageRows is how many rows of a table a page has: a browser takes its time for more.
const maxPageRows = 500

// WritePage writes the machine as one HTML page that needs nothing else: the findings, the picture,
// the paths and the tables. Its content security policy lets the browser load nothing at all and
// apply only the style sheet that is in it.
func (d *Document) WritePage(w io.Writer) error {
	b := bufio.NewWriter(w)
	if err := pageTemplate().Execute(b, newPage(newView(d))); err != nil {
		return fmt.Errorf("write the page of host %q: %w", d.Provenance.Name, err)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write the page of host %q: %w", d.Provenance.Name, err)
	}
	return nil
}

// page is what the template prints. Everything that needs a decision is decided here, so that the
// template only lays out.
type page struct {
	Style         template.CSS // ours: the one style sheet
	StyleHash     string       // for the content security policy, which allows this style sheet and nothing else
	Heading       string
	Facts, Source []string
	Emulated      bool
	Summary       string // of the findings
	Findings      []pageFinding
	Pictures      template.HTML // SVG that svg.go has escaped
	Matrix        []pageRow
	Legend        []pageClass
	Expected      []pageExpectation
	Grids         []pageGrid
	Routes        []string
	Unread        []topology.Unread
}

type pageFinding struct {
	Class, Word, ID, Title, Where, Evidence, Consequence, Fix string
	Places                                                    []pagePlace
}

type pagePlace struct{ Subject, Evidence string }

type pageRow struct {
	Name, Title, CPUs, Node string
	Cells                   []pageCell
}

type pageCell struct {
	Class, Text  string
	First, Right bool
}

type pageClass struct{ Class, Means string }

type pageExpectation struct {
	Class, Link, Basis, GBps, Usec string
	Pairs                          int
}

type pageGrid struct {
	Title string
	Heads []head
	Rows  [][]pageCell
	More  int
}

func newPage(v *view) page {
	style := variables(":root") + pictureStyle() + pageCSS
	sum := sha256.Sum256([]byte(style))
	p := page{
		Style: template.CSS(style), StyleHash: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
		Heading: v.heading(), Facts: v.facts(), Emulated: v.Provenance.Emulated, Summary: findingsText(v.Findings),
		Pictures: v.pictures(), Expected: v.expected(), Routes: v.routeTexts(),
	}
	for _, s := range []string{v.source(), v.filled()} {
		if s != "" {
			p.Source = append(p.Source, s)
		}
	}
	for _, g := range grouped(v.Findings) {
		p.Findings = append(p.Findings, newPageFinding(g))
	}
	if rows := v.matrix(); len(rows) > 1 {
		for _, r := range rows {
			p.Matrix = append(p.Matrix, newPageRow(r))
		}
		for _, l := range legend {
			p.Legend = append(p.Legend, pageClass{l.class, l.means})
		}
	}
	for _, g := range v.grids() {
		p.Grids = append(p.Grids, newPageGrid(g))
	}
	for _, u := range v.Host.Unread {
		p.Unread = append(p.Unread, topology.Unread{Path: show.Printable(u.Path), Why: show.Printable(u.Why)})
	}
	return p
}

// pictures are the picture for large and for small screens.
func (v *view) pictures() template.HTML {
	s := newScene(v)
	if len(s.Groups) == 0 {
		return ""
	}
	var b bytes.Buffer
	pageSheet.layout(v, s).svg(&b, svgOptions{Title: v.heading(), Desc: v.describe(), ID: "wide", Class: "wide"})
	phoneSheet.layout(v, s).svg(&b, svgOptions{Title: v.heading(), Desc: v.describe(), ID: "narrow", Class: "narrow"})
	return template.HTML(b.String())
}

func newPageFinding(g findingGroup) pageFinding {
	rank := g.Severity.Rank()
	f := pageFinding{
		Class: []string{"error", "warning", "info"}[rank], Word: []string{"✖ error", "▲ warning", "● note"}[rank],
		ID: show.Printable(g.ID), Title: show.Printable(g.Title), Where: show.Printable(some(g.Subjects, 8)),
		Consequence: show.Printable(g.Consequence), Fix: show.Visible(g.Fix),
	}
	if len(g.Subjects) == 1 {
		f.Evidence = show.Printable(g.Evidences[0])
	}
	for i, s := range g.Subjects {
		f.Places = append(f.Places, pagePlace{show.Printable(s), show.Printable(g.Evidences[i])})
	}
	return f
}

func newPageRow(r matrixRow) pageRow {
	out := pageRow{Name: show.Printable(r.Name), Title: show.Printable(r.Title), CPUs: setText(r.CPUs, 60),
		Node: intText(r.Node)}
	for _, c := range r.Cells {
		cell := pageCell{Class: "dark", Text: unknown}
		switch {
		case c == "X":
			cell = pageCell{Class: "self", Text: c}
		case strings.HasPrefix(c, "NV"):
			cell = pageCell{Class: "nv", Text: show.Printable(c)}
		case c != "":
			cell = pageCell{Class: strings.ToLower(c), Text: show.Printable(c)}
		}
		out.Cells = append(out.Cells, cell)
	}
	return out
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
		r, _ := slower(v.tree, p.A, p.B)
		e := pageExpectation{Class: p.Class, Link: rateText(&r.gts, &r.width), Basis: p.Expected.Basis,
			GBps: span(p.Expected.GBpsMin, p.Expected.GBpsMax), Usec: span(p.Expected.UsecMin, p.Expected.UsecMax)}
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

func newPageGrid(g grid) pageGrid {
	g.limit(maxPageRows)
	out := pageGrid{Title: g.Title, Heads: g.Heads, More: g.More}
	for _, r := range g.Rows {
		row := make([]pageCell, len(r))
		for i, c := range r {
			most := 200
			if c.cpus != nil {
				most = 40 // a stride or a count says more than a hundred numbers
			}
			row[i] = pageCell{Text: c.fit(most), First: i == 0, Right: g.Heads[i].Right}
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
