package report

import (
	"cmp"
	_ "embed" // for the template
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// pageScript offers all figures as one download. show.SortScript sorts the tables.
//
//go:embed page.js
var pageScript string

// pageTemplate inserts only the style sheet unchanged. It is parsed for the first page, not at every start.
var pageTemplate = sync.OnceValue(parsePage)

func parsePage() *template.Template {
	return template.Must(template.New("page.html").Parse(pageHTML + chart.Template + show.TileTemplate))
}

// Page writes the report as one self-contained HTML page. Its content security policy forbids loading anything. Without
// scripts, only sorting and the download are missing.
func Page(w io.Writer, d record.Record) error {
	return show.Wrapf(show.Execute(w, pageTemplate(), newPage(d)), "write the report of lab %q", d.Lab)
}

// Parts are about the lab itself, for pages that show figures in other ways.
type Parts struct {
	Lab     template.HTML
	Picture template.HTML // picture of the nodes alone
	Machine template.HTML // of the lab's machine, or empty
	Checks  template.HTML
}

// PartsOf writes the parts that are about the lab. They need show.Style, and a policy that lets images be data.
func PartsOf(d record.Record) (Parts, error) {
	p := newPage(d)
	var out Parts
	for _, part := range []struct {
		name string
		to   *template.HTML
	}{{"lab", &out.Lab}, {"pictures", &out.Picture}, {"machine", &out.Machine}, {"checks", &out.Checks}} {
		var b strings.Builder
		if err := pageTemplate().ExecuteTemplate(&b, part.name, p); err != nil {
			return Parts{}, fmt.Errorf("write what the page of lab %q says of its %s: %w", d.Lab, part.name, err)
		}
		*part.to = template.HTML(strings.TrimSpace(b.String())) // escaped by the template
	}
	return out, nil
}

type chartGroup struct {
	Title     string
	Emulated  bool
	ManyPairs bool
	Charts    []chart.Chart
}

func (s scope) group() chartGroup {
	return chartGroup{Title: s.Title, Emulated: s.Emulated, ManyPairs: s.Pairs > 1}
}

type figureTable struct {
	Test, Caption string
	Mixed         bool // only some rows are emulated: each is marked
	Emulated      bool // all rows are
	OnePair       bool
	// Derived: some figures were computed because the tool printed 0; the page explains the mark.
	Derived    bool
	Open       bool
	Columns    []figureColumn
	Iterations bool
	Rows       []figureRow
}

type figureColumn struct{ Title, Metric, Unit string }

type figureRow struct {
	pair
	Bytes            string
	Size, Iterations string
	Fewest           string // fewest iterations, for sorting
	Cells            []figureCell
}

// A figureCell has the median, and number and range of repeats. Rows are sorted by Median; Align is the CSS class for
// decimal points.
type figureCell struct{ Text, Repeats, Values, Median, Align string }

type command struct{ What, Client, Command, Server, ServerCommand string }

// newPage cleans the data first, so that no field is forgotten.
func newPage(d record.Record) page {
	d = show.Clean(d, words.Visible)
	r := collect(d)
	tiles := r.tiles(d)
	p := page{
		Head: show.NewHead(show.Style+show.SortStyle+show.TileStyle+pageCSS, show.SortScript+pageScript),
		Lab:  d.Lab, Generated: show.Time(d.Generated), Rackless: d.Rackless, Measured: len(d.Samples) > 0,
		Heading: resultTitle(d, tiles), Tiles: tiles,
		Summary: keepUnits(summaryOf(d, r, show.Unit)), Banner: bannerOf(d, r),
		Emulated:  r.allEmulated(d),
		Disturbed: d.Disturbed,
		CSVName:   "figures.csv", Pictures: picturesOf(d), Nodes: nodeRows(d.Nodes), Matrices: r.matrices(d.Nodes),
		PairLists: r.pairLists(), GPUTables: gpuTables(d), Tables: r.tables(d),
		FindingsText: FindingsText(d.Findings), Commands: commands(d),
		Faults: faultItems(d.Findings), Failures: failureItems(r.failures), Environment: d.Environment,
	}
	if d.HostPicture != "" {
		// An image can neither run scripts, load anything, nor change the page.
		p.HostImage = show.DataURL("image/svg+xml", d.HostPicture)
	}
	if len(p.GPUTables) > 0 {
		d = withoutGPUTable(d)
		r = collect(d)
	}
	for i, s := range r.scopes() {
		g := s.group()
		g.Charts = append(s.charts(fmt.Sprintf("c%d", i+1)), distributionCharts(fmt.Sprintf("d%d", i+1), s.Emulated,
			distributionsOf(d, s, ""))...)
		if len(g.Charts) > 0 {
			p.Groups = append(p.Groups, g)
		}
	}
	judged, note := judgedOf(d)
	p.Judged, p.NoExpectation = judgedItems(judged), note
	for _, b := range shownBeside(d) {
		p.BesideTexts = append(p.BesideTexts, besideText(b, show.Unit("us")))
	}
	p.Fine = slices.DeleteFunc(slices.Clone(d.Findings), func(f finding.Finding) bool { return f.Status != finding.OK })
	return p
}

// spaceBeforeUnit must not break a line on narrow screens.
var spaceBeforeUnit = regexp.MustCompile(`(\d) (Gb/s|µs|B|KiB|MiB|GiB)\b`)

func keepUnits(s string) string { return spaceBeforeUnit.ReplaceAllString(s, "$1\u00a0$2") }

func (r *results) tables(d record.Record) []figureTable {
	var out []figureTable
	for _, test := range r.tests {
		t := figureTable{Test: test, OnePair: true, Open: len(r.pairs) <= maxPairCharts}
		keys := slices.DeleteFunc(slices.Clone(r.keys), func(k figureKey) bool { return k.Test != test })
		names := lists.Map(keys, func(k figureKey) string { return k.Metric })
		slices.SortFunc(names, compareMetrics)
		names = slices.Compact(names)
		for _, n := range names {
			unit := r.unitOf(test, n)
			t.Columns = append(t.Columns, figureColumn{bench.MetricOf(n).Label + ", " + show.Unit(unit), n, unit})
		}
		for i, k := range keys {
			row := k
			row.Metric = ""
			if i == 0 || keys[i-1].Pair != k.Pair || keys[i-1].Bytes != k.Bytes {
				t.Rows = append(t.Rows, figureRow{pair: k.Pair, Size: cmp.Or(sizeText(k.Bytes), "–"),
					Bytes: number(k.Bytes), Iterations: iterationsText(r.iters[row]), Fewest: number(r.iters[row][0]),
					Cells: make([]figureCell, len(names))})
				t.Iterations = t.Iterations || r.iters[row][1] > 0
				t.OnePair = t.OnePair && k.Pair == t.Rows[0].pair
				t.Mixed = t.Mixed || k.Pair.Emulated != t.Rows[0].Emulated
			}
			// Always found: names are the metrics of these keys.
			at, _ := slices.BinarySearchFunc(names, k.Metric, compareMetrics)
			cell := newFigureCell(r.values[k])
			if r.derived[k] {
				cell.Text = "≈ " + cell.Text
				t.Derived = true
			}
			t.Rows[len(t.Rows)-1].Cells[at] = cell
		}
		t.align()
		t.Emulated = !t.Mixed && t.Rows[0].Emulated
		t.Caption = tableCaption(d, t)
		out = append(out, t)
	}
	return out
}

// align uses f3 for three decimals fewer than the longest of the column, i3 for a figure without a point.
func (t *figureTable) align() {
	const most = 9 // in the style sheet, enough for any column
	// Browsers cannot align at the decimal point: right-aligned, 9.5 would not line up with 10.25.
	for column := range t.Columns {
		longest := lists.Max(t.Rows, func(row figureRow) int { return decimalsIn(row.Cells[column].Text) })
		for _, row := range t.Rows {
			c := &row.Cells[column]
			missing := min(longest-decimalsIn(c.Text), most)
			switch {
			case missing == 0 || c.Text == "":
			case strings.Contains(c.Text, "."):
				c.Align = fmt.Sprintf("f%d", missing)
			default:
				c.Align = fmt.Sprintf("i%d", missing)
			}
		}
	}
}

func decimalsIn(s string) int {
	_, decimals, _ := strings.Cut(s, ".")
	return len(decimals)
}

func newFigureCell(values []float64) figureCell {
	s := spreadOf(values)
	return figureCell{Text: s.figure(s.Median), Median: show.Exact(s.Median), Repeats: s.repeats(),
		Values: strings.Join(lists.Map(values, show.Exact), " ")}
}

func iterationsText(n [2]int64) string {
	switch {
	case n[1] == 0:
		return "–"
	case n[0] == n[1]:
		return fmt.Sprint(n[0])
	}
	return fmt.Sprintf("%d to %d", n[0], n[1])
}

func tableCaption(d record.Record, t figureTable) string {
	tools := joined(lists.Map(d.Samples, func(s bench.Sample) string {
		if s.Test != t.Test {
			return ""
		}
		return strings.TrimSpace(s.Tool + " " + s.Version)
	}), ", ")
	var parts []string
	if t.OnePair {
		parts = append(parts, t.Rows[0].String())
	}
	if tools != "" {
		parts = append(parts, tools)
	}
	if t.Mixed {
		parts = append(parts, "partly emulated")
	}
	return strings.Join(parts, "; ")
}

func commands(d record.Record) []command {
	var out []command
	seen := make(map[command]bool)
	for _, s := range d.Samples {
		c := command{s.Test + ", " + between(s.Client, s.Server), s.Client, s.Command, s.Server, s.ServerCommand}
		if s.Command == "" && s.ServerCommand == "" || seen[c] {
			continue
		}
		seen[c] = true
		out = append(out, c)
	}
	return out
}
