package studyview

import (
	_ "embed" // for the template
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

//go:embed study.md.tmpl
var markdownText string

var markdownPage = show.MarkdownTemplate(markdownText, template.FuncMap{"heading": (*view).heading,
	"opposite": (*view).opposite, "tally": (*view).tally, "counts": (*view).counts, "rule": (*view).rule,
	"comparisons": (*view).comparisons, "made": (*view).madeTable, "failures": failuresTable, "time": show.Time,
	"notes": notes, "emulated": func() string { return strings.TrimPrefix(emulatedText, "Emulated.") },
	"oppositeTitle": func() string { return oppositeTitle },
})

// Markdown writes the study for a page of a repository: what the page says, in the same order, without pictures.
func Markdown(w io.Writer, d *Document) error {
	v, err := newView(d, words.Visible, show.Unit)
	if err != nil {
		return err
	}
	return show.Wrapf(markdownPage.Execute(w, v), "write study %q as Markdown", v.Result.Study)
}

func failuresTable(all []study.Failure) show.MarkdownTable {
	return show.MarkdownTable{Heads: []string{"cell", "failed>", "of>", "last error"}, Rows: lists.Map(all,
		func(f study.Failure) []string {
			return []string{f.Cell, fmt.Sprint(f.Runs), fmt.Sprint(f.Tried), f.Error}
		})}
}

// madeTable says how the study was made.
func (v *view) madeTable() show.MarkdownTable {
	rows := lists.Map(v.made(), func(s setting) []string { return []string{s.Name, s.Value} })
	if v.Lab != nil {
		rows = append(rows, []string{"checks before the first run", report.FindingsText(v.Lab.Findings)})
	}
	rows = append(rows, lists.Map(v.Environment, func(f study.Fact) []string { return []string{f.Name, f.Value} })...)
	return show.MarkdownTable{Heads: []string{"", ""}, Rows: rows}
}

// comparisons is a table of comparisons.
func (v *view) comparisons(all []study.Comparison) show.MarkdownTable {
	var rows [][]string
	for c := range lists.Refs(all) {
		a, b := v.sides(c)
		// The word alone: signs and colours of the page do not survive every renderer of Markdown.
		verdict := verdictOf(c).Word
		verdict += words.If(len(c.Confounded) > 0, " (confounded)")
		rows = append(rows, []string{c.Factor, c.A, c.B, c.Where, nameOf(c.Quantity), a, b, c.Text(), c.BootstrapText(),
			pText(c), verdict})
	}
	return show.MarkdownTable{Heads: []string{"factor", "A", "B", "at", "metric", "value at A>", "value at B>",
		"effect of B (interval)", "block bootstrap", "p>", "verdict"}, Rows: rows}
}
