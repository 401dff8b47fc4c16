package studyview

import (
	"bytes"
	"cmp"
	_ "embed" // for the template and the style sheet
	"errors"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageScript string

// pageTemplate escapes every field for its context. Only the style sheet and the script are inserted unchanged.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Funcs(template.FuncMap{"time": show.Time, "second": secondText,
		"long": long, "fold": words.Fold}).Parse(pageHTML + chart.Template))
})

// secondText formats a time for a column whose head says UTC.
func secondText(t time.Time) string { return strings.TrimSuffix(show.Time(t), " UTC") }

// long reports whether a text needs a wide column, so that it does not wrap at every word.
func long(s string) bool { return utf8.RuneCountInString(s) > 24 }

// Limits of a page. Browsers become slow beyond them, and reject longer data URLs.
const (
	maxPageRuns = 2000
	maxPageCSV  = 1 << 20
	maxWords    = 6 // sentences of the summary before the rest is folded
)

// Page writes the study as one self-contained HTML page. Its content security policy forbids loading anything, and
// allows only the page's own style sheet and script.
func Page(w io.Writer, d *study.Document) error {
	v, err := newView(d, words.Visible, show.Unit)
	if err != nil {
		return err
	}
	p, err := v.page(d)
	if err != nil {
		return err
	}
	return show.Wrapf(show.Execute(w, pageTemplate(), p), "write the page of study %q", v.Result.Study)
}

// A page is the data of the template. All decisions are made here, so that the template is only layout.
type page struct {
	study.Document // cleaned
	show.Head
	Heading, Banner        string // Banner is empty if nothing is emulated
	Words, MoreWords       []string
	OppositeTitle          string
	Opposite               string // empty if it does not apply
	Tally, Counts, Rule    string
	FailedText             string // empty if no run failed
	Forests, Dots, Latency []chart.Chart
	Scaling                []chart.Chart // if the number of nodes is a factor
	TimeLines              []chart.Chart
	Comparisons, Controls  comparisons
	LookedFor              []string
	Parts                  *report.Parts // nil if the lab was not recorded
	Made                   []setting
	Factors, Figures       []string // heads of the table of runs
	Runs                   []runRow
	RunsLeftOut            int
	CSV                    template.URL // empty if it would be too long
	CSVName, CSVSize       string
}

type comparisons struct {
	Rows  []comparisonRow
	Notes []string
}

type comparisonRow struct {
	*study.Comparison
	Name, Levels, AText, BText, EffectText, PText string
	AValue, BValue, EffectValue, PValue           string
	Verdict                                       verdict
	Rank                                          int // order of the verdict
}

// A runRow is a run with its figures, in the order of page.Figures.
type runRow struct {
	*study.Observation
	Levels  []string
	Figures []figureCell
}

// A figureCell is a figure as shown and as its exact value. Both are empty if the run has none.
type figureCell struct{ Text, Value string }

// page collects the content of the page. d is the document before cleaning.
func (v *view) page(d *study.Document) (*page, error) {
	p := &page{
		Document: *v.Document, Head: show.NewHead(show.Style+show.SortStyle+pageCSS, show.SortScript+pageScript),
		Heading: v.heading(), Words: v.Result.Words, Tally: v.tally(), Counts: v.counts(), Rule: v.rule(),
		Forests: v.forests(), Scaling: v.scaling(), Dots: v.dots(), Latency: v.distributions(),
		TimeLines:   v.timeLines(),
		Comparisons: v.comparisonTable(v.Result.Comparisons), Controls: v.comparisonTable(v.Result.Controls),
		OppositeTitle: oppositeTitle, Opposite: v.opposite(), LookedFor: v.Result.LookedFor(), Made: v.made(),
		CSVName: fileName(v.Data.Spec.Name) + ".csv",
	}
	if v.Emulated {
		p.Banner = emulatedText
	}
	if n := v.Result.Runs; n.Failed > 0 {
		p.FailedText = fmt.Sprintf("%d of %s failed", n.Failed, words.Count(n.Done+n.Failed+n.Disturbed, "run"))
	}
	if len(p.Words) > maxWords {
		p.Words, p.MoreWords = p.Words[:maxWords], p.Words[maxWords:]
	}
	// A study's lab is shown as in the report of a measurement, from the survey before the first run, which has no
	// figures.
	if v.Lab != nil {
		parts, err := report.PartsOf(*v.Lab)
		if err != nil {
			return nil, err
		}
		p.Parts = &parts
	}
	v.runRows(p)
	// Studies may have millions of figures, so the CSV is abandoned as soon as it is too long.
	b := &short{left: maxPageCSV}
	switch err := CSV(b, d); { // uncleaned, because the CSV is for programs
	case errors.Is(err, errTooLong):
		p.CSVSize = "more than " + show.Size(maxPageCSV)
	case err != nil:
		return nil, err
	default:
		p.CSVSize = show.Size(int64((b.Len()+1023)/1024) * 1024)
		p.CSV = show.DataURL(show.CSV, b.Bytes())
	}
	return p, nil
}

// errTooLong stops writing a CSV that is too long for a data URL.
var errTooLong = errors.New("too long for a page")

type short struct {
	bytes.Buffer
	left int
}

func (s *short) Write(p []byte) (int, error) {
	if s.left -= len(p); s.left < 0 {
		return 0, errTooLong
	}
	return s.Buffer.Write(p)
}

// unsafeInNames matches characters that are not safe in file names on every system.
var unsafeInNames = regexp.MustCompile(`[^A-Za-z0-9_-]`)

func fileName(s string) string {
	s = cmp.Or(unsafeInNames.ReplaceAllString(s, ""), "study")
	return s[:min(len(s), 60)]
}

func (v *view) comparisonTable(all []study.Comparison) comparisons {
	out := comparisons{Notes: notes(all)}
	for i := range all {
		c := &all[i]
		row := comparisonRow{Comparison: c, Name: nameOf(c.Quantity), Levels: c.B + " against " + c.A,
			EffectText: c.Text(), PText: pText(c), Verdict: verdictOf(c)}
		row.AText, row.BText = v.sides(c)
		// Sorting by verdict puts effects above missing effects.
		row.Rank = slices.Index([]string{"better", "worse", "equivalent", "undecided", "none"}, row.Verdict.Class)
		if e := c.Effect; e != nil {
			row.AValue, row.BValue, row.EffectValue = show.Exact(e.A), show.Exact(e.B), show.Exact(e.Estimate)
		}
		if c.Judged != nil {
			row.PValue = show.Exact(c.Judged.P)
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}

// runRows fills the table of runs: a row for each run, a column for each metric.
func (v *view) runRows(p *page) {
	p.Factors = append(p.Factors, lists.Map(v.Data.Spec.Factors, func(f study.Factor) string { return f.Name })...)
	runs := v.Data.Runs
	// Show the first runs. The time line has all runs, and CSV and JSON have their figures.
	if len(runs) > maxPageRuns {
		p.RunsLeftOut = len(runs) - maxPageRuns
		runs = runs[:maxPageRuns]
	}
	// Columns are in order of first appearance, because runs of one study may have different metrics.
	column := map[study.Quantity]int{}
	for i := range runs {
		o := &runs[i]
		row := runRow{Observation: o}
		row.Levels = append(row.Levels, lists.Map(p.Factors, func(f string) string { return o.Cell[f] })...)
		// Show the last figure of each metric, because a run may have several.
		row.Figures = make([]figureCell, len(column))
		for _, x := range o.Values {
			m := x.Quantity()
			k, ok := column[m]
			if !ok {
				k = len(column)
				column[m] = k
				p.Figures = append(p.Figures, strings.TrimSuffix(nameOf(m)+", "+v.unit(m.Unit), ", "))
				row.Figures = append(row.Figures, figureCell{})
			}
			if finite(x.Value) {
				row.Figures[k] = figureCell{show.Figure(x.Value), show.Exact(x.Value)}
			}
		}
		p.Runs = append(p.Runs, row)
	}
	for i := range p.Runs { // earlier rows have fewer columns
		row := &p.Runs[i]
		row.Figures = append(row.Figures, make([]figureCell, len(column)-len(row.Figures))...)
	}
}
