package studyview

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/stats"
)

// Schema is the schema of the JSON.
const Schema = "rackless/study/v1"

// Options describe the terminal.
type Options struct {
	Color bool // the caller decides, as by NO_COLOR
	Width int  // at least 60; 0 means 100; tables need 80
}

// A source is a document with safe texts.
type source struct {
	*study.Document
	unit func(string) string
}

func newSource(d *study.Document, clean, unit func(string) string) (*source, error) {
	if err := checkDocument(d); err != nil {
		return nil, err
	}
	return &source{show.Clean(d, clean), unit}, nil
}

func checkDocument(d *study.Document) error {
	if d == nil || d.Result == nil || d.Data == nil || d.Data.Spec == nil {
		return errors.New("show a study: the document needs a result and the data that it is of")
	}
	return nil
}

// A view is walked by the outputs, which decide nothing about the study.
type view struct {
	Study, Heading        string
	Kind                  string // of the figures: Emulated or Simulated, or empty
	Meaning               string // of Kind, or empty
	Words                 []string
	OppositeTitle         string
	Opposite              string // or empty
	Tally, Counts, Rule   string
	Constants             string // or empty
	Comparisons, Controls comparisonTable
	Confounds, LookedFor  []string
	Failures              []failureRow
	Made                  []setting
	Repeat                string // or empty
	Environment           []study.Fact
	Commands              []study.Command
	Rackless, Generated   string // version, if known, and time of the report
}

const (
	simulatedMeaning = "There is no network: links, switches and traffic are models in virtual time, and the NICs " +
		"are the transport of the emulated ConnectX. It says how they behave in such a network, not what a card of a " +
		"vendor does."
	emulatedMeaning = "The nodes' CPUs or RDMA devices were software. That one setting beats another here shows that " +
		"the method works; it says nothing about a network card, a GPU or a real host."
)

// kind returns how figures that are not of hardware were made, what they say, and which rates are modelled.
func (src *source) kind() (kind, meaning string) {
	switch {
	case !src.Emulated:
		return "", ""
	case src.Data.Spec.Simulation != "":
		return "Simulated", simulatedMeaning
	}
	meaning = emulatedMeaning
	for _, f := range src.Environment {
		if f.Name == record.FactModelled {
			meaning += " The rates between NICs and GPUs are modelled, and measuring them finds what was set: " +
				f.Value + "."
		}
	}
	return "Emulated", meaning
}

func (src *source) view() view {
	v := view{Study: src.Result.Study, Heading: src.heading(), Words: src.Result.Words, OppositeTitle: oppositeTitle,
		Opposite: src.opposite(), Tally: src.tally(), Counts: src.counts(), Rule: src.rule(),
		Constants:   src.constants(),
		Comparisons: src.comparisonTable(src.Result.Comparisons), Controls: src.comparisonTable(src.Result.Controls),
		Confounds: src.Result.Confounds, LookedFor: src.Result.LookedFor(),
		Failures: lists.Map(src.Result.Failures, newFailureRow), Made: src.made(), Repeat: src.Repeat,
		Environment: src.Environment, Commands: src.Commands, Rackless: src.Rackless,
		Generated: show.Time(src.Generated)}
	v.Kind, v.Meaning = src.kind()
	return v
}

type comparisonTable struct {
	Count      string // of its rows, in words
	Rows       []comparisonRow
	Confounded []string
	NotesCount string
	Notes      []string
}

type comparisonRow struct {
	Factor, A, B, Where string
	Levels              string // B against A
	Name                string // of the quantity
	Metric              string // Name with the unit
	AText, BText        string // with the unit
	AFigure, BFigure    string // without the unit
	EffectText, PText   string
	Verdict             verdict
	Confounded          []string
	Heading             string // above the row; empty if the row before has the same

	// Exact values for sorting, or empty.
	AValue, BValue, EffectValue, PValue string
	LongFactor, LongLevels, LongWhere   bool // the text needs a wide column
}

// A verdict is identified by its sign or its colour alone.
type verdict struct {
	Class, Sign, Word string
	Color             text.Color
	Rank              int // effects are above missing ones
}

var verdicts = map[stats.Verdict]verdict{
	stats.Better:     {"better", "✓", "better", text.FgGreen, 0},
	stats.Worse:      {"worse", "✗", "worse", text.FgRed, 1},
	stats.Equivalent: {"equivalent", "=", "equivalent", 0, 2},
	stats.Undecided:  {"undecided", "?", "undecided", 0, 3},
}

// verdictOf shows an unknown one, of a later version, by its word.
func verdictOf(c *study.Comparison) verdict {
	if c.Judged == nil {
		return verdict{Class: "none", Sign: "–", Word: "not compared", Rank: len(verdicts)}
	}
	if known, ok := verdicts[c.Judged.Verdict]; ok {
		return known
	}
	other := verdicts[stats.Undecided]
	other.Word = string(c.Judged.Verdict)
	return other
}

func (src *source) comparisonTable(all []study.Comparison) comparisonTable {
	t := comparisonTable{Count: words.Count(len(all), "comparison"), Notes: src.notes(all)}
	t.NotesCount = words.Count(len(t.Notes), "remark")
	heading := ""
	for i := range all {
		row := src.comparisonRow(&all[i])
		if row.Heading == heading {
			row.Heading = ""
		} else {
			heading = row.Heading
		}
		who := row.Name + ", " + row.Factor + " " + row.B
		if row.Where != "" {
			who += " at " + row.Where
		}
		for _, c := range row.Confounded {
			t.Confounded = append(t.Confounded, who+" is "+c)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (src *source) comparisonRow(c *study.Comparison) comparisonRow {
	a, b := src.names(c)
	row := comparisonRow{Factor: c.Factor, A: a, B: b, Where: c.Where, Levels: b + " against " + a,
		Name: nameOf(c.Quantity), AText: "–", BText: "–", AFigure: "-", BFigure: "-", EffectText: c.Text(),
		PText: pText(c), Verdict: verdictOf(c), Heading: c.Factor + ": A = " + a + ", B = " + b}
	if c.Where != "" {
		row.Heading += ", at " + c.Where
	}
	unit := src.unit(c.Unit)
	row.Metric = withUnit(row.Name, ", ", unit)
	if e := c.Effect; e != nil {
		row.AFigure, row.BFigure = show.Figure(e.A), show.Figure(e.B)
		row.AText, row.BText = withUnit(row.AFigure, " ", unit), withUnit(row.BFigure, " ", unit)
		row.AValue, row.BValue, row.EffectValue = show.Exact(e.A), show.Exact(e.B), show.Exact(e.Estimate)
	}
	if c.Judged != nil {
		row.PValue = show.Exact(c.Judged.P)
	}
	for _, why := range c.Confounded {
		row.Confounded = append(row.Confounded, "confounded, so do not rely on it: "+why)
	}
	row.LongFactor, row.LongLevels, row.LongWhere = long(row.Factor), long(row.Levels), long(row.Where)
	return row
}

func withUnit(s, sep, unit string) string {
	if unit == "" {
		return s
	}
	return s + sep + unit
}

type failureRow struct {
	Cell, Failed, Tried string
	Error               string // the last one
	Message             message
	Text                string
}

func newFailureRow(f study.Failure) failureRow {
	return failureRow{Cell: f.Cell, Failed: strconv.Itoa(f.Runs), Tried: strconv.Itoa(f.Tried), Error: f.Error,
		Message: newMessage(f.Error), Text: fmt.Sprintf("%s: %d of %d runs failed, the last with: %s", f.Cell, f.Runs,
			f.Tried, f.Error)}
}

type message struct {
	words.Message
	Long bool // it needs a wide column
}

func newMessage(s string) message { return message{words.Fold(s), long(s)} }

// long texts get a wide column, so that they do not wrap at every word.
func long(s string) bool { return utf8.RuneCountInString(s) > 24 }

type setting struct{ Name, Value string }

// Write writes an analysed study in a format: md, json, yaml, csv, html, or text. The options apply to text.
func Write(w io.Writer, format string, doc *study.Document, o Options) error {
	switch format {
	case "md":
		return Markdown(w, doc)
	case show.JSON, show.YAML:
		return Encode(w, format, doc)
	case "csv":
		return CSV(w, doc)
	case "html":
		return Page(w, doc)
	}
	return Text(w, doc, o)
}
