package hostview

import (
	"bytes"
	"cmp"
	_ "embed" // template and style sheet
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"

	"github.com/rackless/rackless/machine/topology"
)

//go:embed page.html
var pageHTML string

// pictureCSS uses the palette of Okabe and Ito, which readers with any common colour vision can tell apart, adjusted so
// that text is readable. No meaning depends on colour alone.
//
// The value before each var() is for programs without variables.
//
//go:embed picture.css
var pictureCSS string

//go:embed page.css
var pageCSS string

// pageTemplate escapes all but the style sheet and the pictures.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Parse(pageHTML))
})

// longCell is the length of a text above which it wraps within its cell, such as kernel arguments.
const longCell = 90

// maxPageRows limits tables, because more would be slow in a browser.
const maxPageRows = 500

// WritePage writes the machine as one self-contained HTML page. Its content security policy forbids loading anything,
// and allows only the page's own style sheet.
func (d *Document) WritePage(w io.Writer) error {
	v := newView(d)
	p := newPage
	if d.Placement != nil {
		p = (*view).placementPage
	}
	return show.Wrapf(show.Execute(w, pageTemplate(), p(v)), "write the page of host %q", d.Provenance.Name)
}

type page struct {
	show.Head
	Heading       string
	Result        string // of the findings or of the plan, for the title
	Facts, Source []string
	Emulated      bool
	Summary, Calm string // Calm is the text without findings
	Findings      []pageFinding
	Pictures      template.HTML // SVG escaped by svg.go
	Matrix        []pageMatrixRow
	Alike         bool // a row stands for several devices
	Legend        []class
	Expected      []pageExpectation
	Grids         []pageGrid
	Routes        []string
	Unread        []topology.Unread
	UnreadTitle   string
	UnreadOpen    bool

	Contradictions, Inferred []string
}

// A pageFinding has Evidence for one subject, and Places for several.
type pageFinding struct {
	ID, Title, Consequence, Fix string
	Class, Word                 string // of the severity
	WhereHead, Where, Evidence  string
	Places                      []pagePlace
}

type pagePlace struct{ Subject, Evidence string }

type pageMatrixRow struct {
	Name, Title, CPUs, Node string
	Cells                   []pageMatrixCell
}

type pageMatrixCell struct{ Class, Text string }

// A pageExpectation is for a kind of path with so many pairs.
type pageExpectation struct {
	Class, Link, Basis, GBps, Usec string
	Pairs                          int
}

type pageGrid struct {
	Title string
	Heads []pageCell
	Rows  [][]pageCell
	More  int // number of omitted rows
}

type pageCell struct {
	Text         string
	First, Right bool
	Long         bool // it may wrap
}

func newPage(v *view) page {
	p := page{
		Head: show.NewHead(show.Base+pictureCSS+pageCSS, ""), Heading: v.heading(), Result: findingsText(v.Findings),
		Facts:    v.facts(),
		Source:   v.sources(),
		Emulated: v.Provenance.Emulated, Summary: v.summary(),
		Calm: "Nothing was found to be wrong with what could be read.", Pictures: v.pictures(),
		Expected: v.expected(), Routes: v.routeTexts(), Unread: v.Host.Unread,
		Contradictions: v.contradictions(), Inferred: v.Host.Inferred,
	}
	p.Findings = append(p.Findings, lists.Map(grouped(v.Findings), newPageFinding)...)
	if all := v.matrix(); len(all) > 1 {
		p.Matrix, p.Legend = lists.Map(alikeRows(all), newPageMatrixRow), legend
		p.Alike = len(p.Matrix) < len(all)
	}
	p.Grids = append(p.Grids, lists.Map(v.grids(), newPageGrid)...)
	p.UnreadOpen = len(p.Unread) <= 12
	p.UnreadTitle = fmt.Sprintf("%d facts were there and could not be had", len(p.Unread))
	if len(p.Unread) == 1 {
		p.UnreadTitle = "1 fact was there and could not be had"
	}
	return p
}

func newPageMatrixRow(r matrixRow) pageMatrixRow {
	return pageMatrixRow{Name: r.Name, Title: r.Title, CPUs: setText(r.CPUs, 60), Node: intText(r.Node),
		Cells: lists.Map(r.Cells, func(class string) pageMatrixCell {
			return pageMatrixCell{cellClass(class), orUnknown(class)}
		})}
}

// pictures has a second version with every device if cards stand for several.
func (v *view) pictures() template.HTML {
	var b bytes.Buffer
	for i, s := range v.scenes() {
		// Each picture has two sizes, with own IDs.
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
	f := pageFinding{ID: g.ID, Title: g.Title, Consequence: g.Consequence, Fix: g.Fix,
		Class: []string{"error", "warning", "info"}[rank], Word: []string{"✖ error", "▲ warning", "● note"}[rank],
		WhereHead: "where", Where: some(lists.Map(g.Subjects, subjectText), 8)}
	if len(g.Subjects) == 1 {
		f.Evidence = g.Evidences[0]
		return f
	}
	f.WhereHead = fmt.Sprintf("where (%d)", len(g.Subjects))
	for i, s := range g.Subjects {
		f.Places = append(f.Places, pagePlace{subjectText(s), g.Evidences[i]})
	}
	return f
}

// subjectText spells out "node 3", because on the same page a node may be one of a lab.
func subjectText(subject string) string {
	if number, ok := strings.CutPrefix(subject, "node "); ok {
		if _, err := strconv.Atoi(number); err == nil {
			return "NUMA " + subject
		}
	}
	return subject
}

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
		// The 64 paths of eight GPUs and eight NICs are of few kinds.
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

// newPageGrid keeps the full width: a page scrolls, while a terminal must drop columns.
func newPageGrid(g grid) pageGrid {
	g.limit(maxPageRows)
	out := pageGrid{Title: g.Title, More: g.More}
	for _, h := range g.Heads {
		out.Heads = append(out.Heads, pageCell{Text: cmp.Or(h.Name, "name"), Right: h.Right})
	}
	for _, r := range g.Rows {
		var row []pageCell
		for i, c := range r {
			// A stride or a count says more than a hundred numbers.
			letters := 200
			if c.cpus != nil {
				letters = 40
			}
			text := c.fit(letters)
			row = append(row, pageCell{Text: text, First: i == 0, Right: g.Heads[i].Right, Long: len(text) > longCell})
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
