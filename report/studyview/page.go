package studyview

import (
	"bytes"
	"cmp"
	_ "embed" // template and style sheet
	"errors"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageScript string

// pageTemplate inserts only style sheet and script unchanged.
var pageTemplate = sync.OnceValue(func() *template.Template {
	funcs := template.FuncMap{"lower": strings.ToLower}
	return template.Must(template.New("page.html").Funcs(funcs).Parse(pageHTML + chart.Template))
})

// Browsers become slow beyond these, and reject longer data URLs.
const (
	maxPageRuns = 2000
	maxPageCSV  = 1 << 20
	maxWords    = 6 // sentences before the rest is folded
)

// Page writes the study as one self-contained HTML page. Its content security policy forbids loading anything.
func Page(w io.Writer, d *study.Document) error {
	src, err := newSource(d, words.Visible, show.Unit)
	if err != nil {
		return err
	}
	p, err := src.page(d)
	if err != nil {
		return err
	}
	return show.Wrapf(show.Execute(w, pageTemplate(), p), "write the page of study %q", p.Study)
}

type page struct {
	show.Head
	view
	MoreWords              []string
	MoreWordsTitle         string
	ConfoundsTitle         string // empty if there are none
	FailedText             string // empty if no run failed
	Key                    []keyItem
	Forests, Dots, Latency []chart.Chart
	Scaling                []chart.Chart // if nodes are a factor
	TimeLines              []chart.Chart
	Parts                  *report.Parts // nil if not recorded
	Images                 bool          // Parts has some
	Factors, Figures       []string      // heads of the table of runs
	Runs                   []runRow
	RunsTitle              string
	CSV                    template.URL // empty if too long
	CSVName, CSVSize       string
}

type keyItem struct {
	verdict
	Text string
}

func keyItems() []keyItem {
	return []keyItem{{verdicts[stats.Better], "better"}, {verdicts[stats.Worse], "worse"},
		{verdicts[stats.Equivalent], "equivalent: no meaningful difference"},
		{verdicts[stats.Undecided], "undecided: the runs do not tell"}}
}

// A runRow is in the order of page.Figures.
type runRow struct {
	Run                   int64
	Block, Place, Attempt int
	Levels                []levelCell
	Status, Started       string
	Figures               []figureCell
	Error                 message
}

type levelCell struct {
	Text string
	Long bool // it needs a wide column
}

// A figureCell is empty if the run has no figure.
type figureCell struct{ Text, Value string }

// page takes the document before cleaning as d.
func (src *source) page(d *study.Document) (*page, error) {
	p := &page{Head: show.NewHead(show.Style+show.SortStyle+pageCSS, show.SortScript+pageScript), view: src.view(),
		Key: keyItems(), Forests: src.forests(), Scaling: src.scaling(), Dots: src.dots(),
		Latency: src.distributions(), TimeLines: src.timeLines(), CSVName: fileName(src.Data.Spec.Name) + ".csv"}
	if n := src.Result.Runs; n.Failed > 0 {
		p.FailedText = fmt.Sprintf("%d of %s failed", n.Failed, words.Count(n.Done+n.Failed+n.Disturbed, "run"))
	}
	if len(p.Words) > maxWords {
		p.Words, p.MoreWords = p.Words[:maxWords], p.Words[maxWords:]
		p.MoreWordsTitle = fmt.Sprintf("%d more", len(p.MoreWords))
	}
	if n := len(p.Confounds); n > 0 {
		p.ConfoundsTitle = words.Count(n, "thing") + " that may have fooled the study"
	}
	// From the survey before the first run, without figures.
	if src.Lab != nil {
		parts, err := report.PartsOf(*src.Lab)
		if err != nil {
			return nil, err
		}
		p.Parts, p.Images = &parts, parts.Machine != ""
	}
	src.runs(p)
	// A CSV of millions of figures is abandoned when too long.
	b := &short{left: maxPageCSV}
	switch err := CSV(b, d); { // uncleaned, for programs
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

var unsafeInNames = regexp.MustCompile(`[^A-Za-z0-9_-]`)

func fileName(s string) string {
	s = cmp.Or(unsafeInNames.ReplaceAllString(s, ""), "study")
	return s[:min(len(s), 60)]
}

func (src *source) runs(p *page) {
	runs := src.Data.Runs
	for _, f := range src.Data.Spec.Factors {
		// Constants are said once, above.
		if len(f.Levels) > 1 || slices.ContainsFunc(runs, func(o study.Observation) bool {
			return o.Cell[f.Name] != f.Levels[0]
		}) {
			p.Factors = append(p.Factors, f.Name)
		}
	}
	p.RunsTitle = fmt.Sprintf("Table of %d runs", min(len(runs), maxPageRuns))
	// The time line has all runs, CSV and JSON their figures.
	if len(runs) > maxPageRuns {
		p.RunsTitle += fmt.Sprintf("; %d more are left out", len(runs)-maxPageRuns)
		runs = runs[:maxPageRuns]
	}
	column := map[study.Quantity]int{}
	for i := range runs {
		o := &runs[i]
		row := runRow{Run: o.Run, Block: o.Block, Place: o.Place, Attempt: o.Attempt, Status: o.Status,
			Started: strings.TrimSuffix(show.Time(o.Started), " UTC"), Error: newMessage(o.Error),
			Figures: make([]figureCell, len(column))}
		for _, f := range p.Factors {
			level := src.Data.Spec.LevelName(f, o.Cell[f])
			row.Levels = append(row.Levels, levelCell{level, long(level)})
		}
		// A run may have several figures; the last is shown.
		for _, x := range o.Values {
			m := x.Quantity()
			k, ok := column[m]
			if !ok {
				k = len(column)
				column[m] = k
				p.Figures = append(p.Figures, withUnit(nameOf(m), ", ", src.unit(m.Unit)))
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
