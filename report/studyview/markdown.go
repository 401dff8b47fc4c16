package studyview

import (
	_ "embed" // for the template
	"fmt"
	"io"
	"slices"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
)

//go:embed study.md.tmpl
var markdownText string

var markdownTemplate = show.MarkdownTemplate(markdownText, nil)

type markdownPage struct {
	view
	ComparisonTable, ControlTable show.MarkdownTable
	FailureTable, MadeTable       show.MarkdownTable
	Scripts                       []script
	Origin                        string // version, and time of the report
}

type script struct{ Name, Lines string }

// Markdown writes the texts of the page for a repository, without pictures.
func Markdown(w io.Writer, d *study.Document) error {
	src, err := newSource(d, words.Visible, show.Unit)
	if err != nil {
		return err
	}
	p := src.markdownPage()
	return show.Wrapf(markdownTemplate.Execute(w, p), "write study %q as Markdown", p.Study)
}

func (src *source) markdownPage() markdownPage {
	v := src.view()
	p := markdownPage{view: v, ComparisonTable: v.Comparisons.markdown(), ControlTable: v.Controls.markdown(),
		FailureTable: failureTable(v.Failures), MadeTable: src.madeTable(v), Scripts: lists.Map(v.Commands, newScript),
		Origin: fmt.Sprintf("This report was made %s.", v.Generated)}
	if v.Rackless != "" {
		p.Origin = fmt.Sprintf("Recorded by rackless %s. %s", v.Rackless, p.Origin)
	}
	return p
}

func (t comparisonTable) markdown() show.MarkdownTable {
	out := show.MarkdownTable{Heads: []string{"factor", "A", "B", "at", "metric", "value at A>", "value at B>",
		"effect of B (interval)", "p>", "verdict"}}
	for _, r := range t.Rows {
		// Not every renderer keeps signs and colours.
		verdict := r.Verdict.Word
		if len(r.Confounded) > 0 {
			verdict += " (confounded)"
		}
		out.Rows = append(out.Rows, []string{r.Factor, r.A, r.B, r.Where, r.Name, r.AText, r.BText, r.EffectText,
			r.PText, verdict})
	}
	return out
}

func failureTable(all []failureRow) show.MarkdownTable {
	return show.MarkdownTable{Heads: []string{"cell", "failed>", "of>", "last error"}, Rows: lists.Map(all,
		func(f failureRow) []string { return []string{f.Cell, f.Failed, f.Tried, f.Error} })}
}

func (src *source) madeTable(v view) show.MarkdownTable {
	all := slices.Clone(v.Made)
	if src.Lab != nil {
		all = append(all, setting{"checks before the first run", report.FindingsText(src.Lab.Findings)})
	}
	for _, f := range v.Environment {
		all = append(all, setting{f.Name, f.Value})
	}
	return show.MarkdownTable{Heads: []string{"", ""}, Rows: lists.Map(all,
		func(s setting) []string { return []string{s.Name, s.Value} })}
}

func newScript(c study.Command) script {
	s := script{Name: c.Test, Lines: c.Client}
	if c.Tool != "" {
		s.Name = fmt.Sprintf("%s (%s)", c.Test, c.Tool)
	}
	if c.Server != "" {
		s.Lines = fmt.Sprintf("# server\n%s\n# client\n%s", c.Server, c.Client)
	}
	return s
}
