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

// TableOptions say what the terminal can do.
type TableOptions struct {
	Width int  // columns; 0 means 80, at least 60
	Wide  bool // tables and the matrix of paths are whole, as for a file, whatever the width
	Color bool // use colours; the caller decides, for instance by NO_COLOR
}

// How much of a long list a terminal shows. The other forms have all of it.
const (
	maxRows     = 16
	maxUnread   = 8
	maxSubjects = 6
	maxAlike    = 3 // findings of one kind that differ in what they advise
)

// WriteTable writes the machine as text: what it is, its NUMA nodes, devices and paths, then what
// is wrong with it and what could not be read. Long lists are shortened and say by how much.
// Sentences are folded to the width and tables fit into it; fixes that are commands are not folded.
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
	after := 0 // the paths stand behind the devices that they are between
	// A machine without NICs has no such table: the paths follow the last of the three that is there.
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
	t.findings(v.Findings)
	t.sourced(v)
	return show.Wrapf(t.Flush(), "print host %q", d.Provenance.Name)
}

// A terminal is where WriteTable prints.
type terminal struct {
	*show.Terminal
	room int // columns for a table; sentences are folded to Width
}

// grid prints a table under its title.
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

// table prints the lines of a table with faint heads.
func (t *terminal) table(lines []string) {
	for i, l := range lines {
		if i == 0 {
			l = t.Colored(l, text.Faint)
		}
		fmt.Fprintln(t, l)
	}
}

// matrix prints the paths between GPUs and NICs where there is something to compare: in full, or
// what goes from GPUs to NICs, if there is room.
func (t *terminal) matrix(v *view) {
	if len(v.gpus) == 0 || len(v.gpus)+len(v.nics) < 2 {
		return
	}
	fmt.Fprintln(t)
	// From what says most to what needs least room. No line is folded: a matrix whose rows are broken cannot be read.
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

// severityStyle is the mark and the colour of a severity. The mark says it too where colours do not.
func severityStyle(s finding.Severity) (mark string, color text.Color) {
	switch s.Rank() {
	case 0:
		return "X", text.FgRed
	case 1:
		return "!", text.FgYellow
	}
	return "i", text.FgCyan
}

// WriteFindings writes findings alone, as WriteTable writes them, below a title.
func WriteFindings(w io.Writer, title string, all []finding.Finding, o TableOptions) error {
	t := &terminal{Terminal: show.NewTerminal(w, o.Width, 80, o.Color)}
	t.Wrap("", "", title, text.Bold)
	t.findings(all)
	return t.Flush()
}

// findings prints the findings, the worst first. Of many that are alike only a few are printed whole; one line names
// the subjects of the others.
func (t *terminal) findings(all []finding.Finding) {
	fmt.Fprintln(t)
	if len(all) == 0 {
		fmt.Fprintln(t, t.Colored("No findings", text.Bold))
		return
	}
	_, color := severityStyle(finding.Worst(all))
	fmt.Fprintln(t, t.Colored("Findings: "+findingsText(all), text.Bold, color))
	groups := grouped(all)
	kinds := map[string]int{} // groups of each so far
	for i, g := range groups {
		kind := g.ID + g.Title
		switch kinds[kind]++; {
		// Findings of one kind that advise the same are one group already. These advise different things, such as
		// another slot each.
		case kinds[kind] <= maxAlike:
			t.finding(g)
		// With the first one too many all of the rest are told at once, so that no subject is missing.
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
	fmt.Fprintf(t, "rackless explain %s says more.\n", groups[0].ID)
}

// finding prints what is wrong, where, what was read and how to mend it.
func (t *terminal) finding(g findingGroup) {
	mark, color := severityStyle(g.Severity)
	head := fmt.Sprintf("%s: %s", some(g.Subjects, maxSubjects), g.Title)
	id := g.ID
	t.Wrap(t.Colored(mark+" "+id, text.Bold, color)+" ", strings.Repeat(" ", 3+len(id)), head)
	if len(g.Evidences) > 1 {
		t.Wrap("  ", "  ", g.Subjects[0]+": "+g.Evidences[0], text.Faint)
	} else if g.Evidence != "" {
		t.Wrap("  ", "  ", g.Evidence, text.Faint)
	}
	if g.Consequence != "" {
		t.Wrap("  so:  ", "       ", g.Consequence)
	}
	if g.Fix != "" {
		t.Wrap("  fix: ", "       ", words.Printable(g.Fix))
	}
}

// sourced lists what the sources of the host tell differently, what follows from them and none of them states, and what
// was there and could not be had.
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
