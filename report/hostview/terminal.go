package hostview

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/report/show"
)

// TableOptions describe the terminal.
type TableOptions struct {
	Width int  // at least 60; 0 means 80
	Wide  bool // ignores Width for tables and matrix, as for a file
	Color bool // the caller decides, as by NO_COLOR
}

// Limits of lists on a terminal. The other forms have all items.
const (
	maxRows      = 16
	maxUnread    = 8
	maxSubjects  = 6
	maxAlike     = 3 // findings of one kind with different fixes
	maxEvidences = 4
)

// WriteTable writes the machine as text. Long lists end with the number of omitted items.
//
// Sentences and tables fit the width, but commands are not wrapped.
func (d *Document) WriteTable(w io.Writer, o TableOptions) error {
	v := newView(d)
	t := &terminal{Terminal: show.NewTerminal(w, o.Width, 80, o.Color)}
	t.room = t.Width
	if o.Wide {
		t.room = math.MaxInt
	}
	t.Wrap("", "", v.heading(), text.Bold)
	for _, line := range v.facts() {
		t.Wrap("", "  ", line)
	}
	for _, s := range v.sources() {
		t.Wrap("", "  ", s, text.Faint)
	}
	if d.Provenance.Emulated {
		t.Wrap("", "", "Its devices are emulated: speeds and paths are those of an emulator.", text.FgYellow)
	}
	grids := v.grids()
	after := 0 // paths follow their devices
	for i, g := range grids {
		if slices.Contains([]string{titleNodes, titleGPUs, titleNICs}, g.Title) {
			after = i + 1
		}
	}
	for _, g := range grids[:after] {
		t.grid(g)
	}
	t.matrix(v)
	for _, g := range grids[after:] {
		t.grid(g)
	}
	for i, line := range v.routeTexts() {
		if i == 0 {
			fmt.Fprintln(t)
		}
		t.Wrap("", "  ", line)
	}
	t.listed(v.Findings)
	t.sourced(v)
	t.last(v.Findings)
	return show.Wrapf(t.Flush(), "print host %q", d.Provenance.Name)
}

type terminal struct {
	*show.Terminal
	room int // sentences use Width
}

func (t *terminal) grid(g grid) {
	g.limit(maxRows)
	heads, rows := g.fitted(t.room, 2)
	fmt.Fprintln(t)
	title := t.Colored(g.Title, text.Bold)
	if left := len(g.Heads) - len(heads); left > 0 {
		title += t.Colored(fmt.Sprintf(" (no room for %s: --wide)", words.Count(left, "column")), text.Faint)
	}
	fmt.Fprintln(t, title)
	columns := lists.Map(heads, func(h head) show.Column { return show.Column{Name: h.Name, Right: h.Right} })
	t.table(show.Lines(columns, rows))
	if g.More > 0 {
		fmt.Fprintf(t, "and %d more; -o json has all\n", g.More)
	}
}

func (t *terminal) table(lines []string) {
	for i, l := range lines {
		if i == 0 {
			l = t.Colored(l, text.Faint)
		}
		fmt.Fprintln(t, l)
	}
}

// matrix prints the full matrix, or only the paths from GPUs to NICs, if it fits.
func (t *terminal) matrix(v *view) {
	if len(v.gpus) == 0 || len(v.gpus)+len(v.nics) < 2 {
		return
	}
	fmt.Fprintln(t)
	// A matrix with broken rows is unreadable.
	rows := v.matrix()
	alike := alikeRows(rows)
	views := [][]string{matrixLines(rows, 40), matrixLines(alike, 40)}
	if len(v.nics) > 0 {
		views = append(views, betweenLines(alike))
	}
	for i, lines := range views {
		if slices.ContainsFunc(lines, func(l string) bool { return text.StringWidth(l) > t.room }) {
			continue
		}
		fmt.Fprintln(t, t.Colored("Paths", text.Bold))
		t.table(lines)
		if i > 0 && len(alike) < len(rows) {
			t.Wrap("", "", "A row with a count is of NICs that have the same paths; -o matrix has each.", text.Faint)
		}
		return
	}
	t.Wrap("", "", fmt.Sprintf("Paths between %d GPUs and NICs: -o matrix shows them.", len(v.gpus)+len(v.nics)))
}

// severityStyle has marks for output without colours.
func severityStyle(s finding.Severity) (mark string, color text.Color) {
	switch s.Rank() {
	case 0:
		return "X", text.FgRed
	case 1:
		return "!", text.FgYellow
	}
	return "i", text.FgCyan
}

// WriteFindings writes only findings, as WriteTable does, below a title.
func WriteFindings(w io.Writer, title string, all []finding.Finding, o TableOptions) error {
	t := &terminal{Terminal: show.NewTerminal(w, o.Width, 80, o.Color)}
	t.Wrap("", "", title, text.Bold)
	t.findings(all)
	return t.Flush()
}

// findings prints findings that are the whole answer.
func (t *terminal) findings(all []finding.Finding) {
	if t.listed(all); len(all) == 0 {
		fmt.Fprintln(t)
		fmt.Fprintln(t, t.Colored("No findings", text.Bold))
		return
	}
	fmt.Fprintf(t, "rackless explain %s says more.\n", grouped(all)[0].ID)
}

// listed prints a few of many similar findings in full, and names the subjects of the others in one line.
func (t *terminal) listed(all []finding.Finding) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(t)
	_, color := severityStyle(finding.Worst(all))
	fmt.Fprintln(t, t.Colored("Findings: "+findingsText(all), text.Bold, color))
	groups := grouped(all)
	kinds := map[string]int{}
	for i, g := range groups {
		kind := g.ID + g.Title
		switch kinds[kind]++; {
		// One kind with different fixes, such as different slots.
		case kinds[kind] <= maxAlike:
			t.finding(g)
		// Past the limit, one line has all remaining subjects.
		case kinds[kind] == maxAlike+1:
			same := findingGroup{Finding: finding.Finding{ID: g.ID, Severity: g.Severity, Title: "the same"}}
			for _, o := range groups[i:] {
				if o.ID+o.Title == kind {
					same.Subjects = append(same.Subjects, o.Subjects...)
				}
			}
			t.finding(same)
		}
	}
}

// last repeats the worst finding, because a long output is read from its end.
func (t *terminal) last(all []finding.Finding) {
	fmt.Fprintln(t)
	if len(all) == 0 {
		fmt.Fprintln(t, t.Colored("No findings", text.Bold))
		return
	}
	worst := grouped(all)[0]
	_, color := severityStyle(worst.Severity)
	t.Wrap("", "  ", fmt.Sprintf("%s. The worst: %s, %s: %s; see rackless explain %s", findingsText(all), worst.ID,
		some(lists.Map(worst.Subjects, subjectText), 2), worst.Title, worst.ID), text.Bold, color)
}

func (t *terminal) finding(g findingGroup) {
	mark, color := severityStyle(g.Severity)
	head := fmt.Sprintf("%s: %s", some(lists.Map(g.Subjects, subjectText), maxSubjects), g.Title)
	id := g.ID
	t.Wrap(t.Colored(mark+" "+id, text.Bold, color)+" ", strings.Repeat(" ", 3+len(id)), head)
	if len(g.Evidences) > 1 {
		shown := 1
		if countsOrLog(g.ID) {
			shown = min(len(g.Evidences), maxEvidences)
		}
		for i := range shown {
			t.Wrap("  evidence: ", "    ", subjectText(g.Subjects[i])+": "+g.Evidences[i], text.Faint)
		}
	} else if g.Evidence != "" {
		t.Wrap("  evidence: ", "    ", g.Evidence, text.Faint)
	}
	if g.Consequence != "" {
		t.Wrap("  impact: ", "    ", g.Consequence)
	}
	if g.Fix != "" {
		t.Wrap("  fix: ", "    ", words.Printable(g.Fix))
	}
}

// countsOrLog is true for counters and lines of a log, which say something else of each subject.
func countsOrLog(id string) bool {
	return id == "RL095" || id == "RL099" || strings.HasPrefix(id, "RL12")
}

// sourced lists contradictions between sources, inferred facts, and unreadable files or commands.
func (t *terminal) sourced(v *view) {
	list := func(title string, items []string) {
		if len(items) == 0 {
			return
		}
		t.Title(title)
		for i, item := range items {
			if i == maxUnread {
				fmt.Fprintf(t, "and %d more; -o json has all\n", len(items)-i)
				break
			}
			t.Wrap("  ", "    ", item)
		}
	}
	list("Contradictions: the first value is used", v.contradictions())
	list("Inferred: no source states it", v.Host.Inferred)
	all := lists.Map(v.Host.Unread, func(u topology.Unread) string { return u.Path + ": " + u.Why })
	what := "1 file or command"
	if len(all) > 1 {
		what = fmt.Sprintf("%d files or commands", len(all))
	}
	list("Not read: "+what, all)
}
