package report

import (
	"html/template"

	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/chart"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// A page has all decisions, so that the template is only layout.
type page struct {
	show.Head
	Lab, Generated, Rackless string
	Heading, Summary, Banner string
	Tiles                    []show.Tile
	Emulated                 bool   // all figures; sections are marked instead of their parts
	Disturbed                string // empty if idle
	CSVName                  string
	Measured                 bool
	HostImage                template.URL
	Pictures                 []chart.Chart
	Nodes                    []nodeRow
	Groups                   []chartGroup
	Matrices                 []matrix
	PairLists                []pairList // instead of Matrices
	GPUTables                []gpuTable
	Tables                   []figureTable
	Failures                 []failureItem
	FindingsText             string
	Judged                   []judgedItem
	NoExpectation            string // note on emulated figures
	BesideTexts              []string
	Faults                   []faultItem // failed, then unknown
	Fine                     []finding.Finding
	Environment              []record.Fact
	Commands                 []command
}

type nodeRow struct {
	record.Node
	Size string
}

func nodeRows(nodes []record.Node) []nodeRow {
	return lists.Map(nodes, func(n record.Node) nodeRow { return nodeRow{Node: n, Size: sizeText(n.Memory)} })
}

type judgedItem struct {
	Class              string // of the style sheet
	Mark               string // before its name
	Reached            bool
	Name, Figure, Text string
	Causes             []judgedCause
}

type judgedCause struct{ What, Evidence, Fix string }

func judgedItems(all []expect.Judgement) []judgedItem {
	return lists.Map(all, func(j expect.Judgement) judgedItem {
		item := judgedItem{Class: "judged", Mark: "↓", Reached: reached(j), Name: judgedName(j),
			Figure: judgedFigure(j), Text: j.Text}
		switch {
		case reached(j):
			item.Class, item.Mark = "judged fine", "✓"
		case open(j):
			item.Class = "judged open"
		}
		if j.Verdict == expect.VerdictNone {
			item.Mark = "?"
		}
		for _, c := range j.Causes {
			item.Causes = append(item.Causes, judgedCause{What: causeTitle(c), Evidence: c.Evidence, Fix: c.Fix})
		}
		return item
	})
}

type failureItem struct {
	What, Reason           string
	Folded                 words.Message // Reason for the page
	Retried                bool
	Attempt                int
	Client, Server, Output string
}

func failureItems(all []failure) []failureItem {
	return lists.Map(all, func(f failure) failureItem {
		return failureItem{What: f.What(), Reason: f.Reason, Folded: words.Fold(f.Reason), Retried: f.Retried,
			Attempt: f.Sample.Attempt, Client: f.Sample.Command, Server: f.Sample.ServerCommand,
			Output: f.Sample.Output}
	})
}

type faultItem struct {
	finding.Finding
	Mark              string // before its status
	Found, FoundWhere *words.Message
}

// faultItems has failed ones, then unknown ones.
func faultItems(all []finding.Finding) []faultItem {
	return lists.Map(faults(all), func(f finding.Finding) faultItem {
		item := faultItem{Finding: f, Mark: "?", Found: folded(f.Have), FoundWhere: folded(f.Evidence)}
		if f.Status == finding.Failed {
			item.Mark = "✗"
		}
		return item
	})
}

// folded returns nil for an empty text.
func folded(text string) *words.Message {
	if text == "" {
		return nil
	}
	m := words.Fold(text)
	return &m
}
