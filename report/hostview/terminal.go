package hostview

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/report/show"
)

// TableOptions say what the terminal can do.
type TableOptions struct {
	Width int  // columns; 0 means 80, at least 60
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
	if o.Width == 0 {
		o.Width = 80
	}
	o.Width = max(o.Width, 60)
	v := newView(d)
	t := &terminal{Writer: bufio.NewWriter(w), TableOptions: o}
	t.wrap("", "", v.heading(), text.Bold)
	for _, line := range v.facts() {
		t.wrap("", "  ", line)
	}
	if s := v.source(); s != "" {
		t.wrap("", "  ", s, text.Faint)
	}
	if s := v.filled(); s != "" {
		t.wrap("", "  ", s, text.Faint)
	}
	if d.Provenance.Emulated {
		t.wrap("", "", "Its devices are emulated: speeds and paths are those of an emulator.", text.FgYellow)
	}
	grids := v.grids()
	after := 0 // the paths stand behind the devices that they are between
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
		t.wrap("", "  ", line)
	}
	t.findings(d.Findings)
	t.unread(v)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print host %q: %w", d.Provenance.Name, err)
	}
	return nil
}

// A terminal is where WriteTable prints. Errors of writing stay in the bufio.Writer until Flush.
// Every text that reaches it is printable.
type terminal struct {
	*bufio.Writer
	TableOptions
}

// colored is s in the given colours, where they are wanted.
func (t *terminal) colored(s string, colors ...text.Color) string {
	if !t.Color || len(colors) == 0 || s == "" {
		return s
	}
	// Not Colors.Sprint: it asks the environment, and the caller has decided.
	return text.Colors(colors).EscapeSeq() + s + text.Reset.EscapeSeq()
}

// wrap prints text folded to the width; the first line starts with first, the others with rest. The
// colours are those of the text.
func (t *terminal) wrap(first, rest, s string, colors ...text.Color) {
	room := t.Width - max(text.StringWidth(first), text.StringWidth(rest))
	for i, line := range strings.Split(text.WrapSoft(s, max(room, 20)), "\n") {
		prefix := rest
		if i == 0 {
			prefix = first
		}
		fmt.Fprintln(t, prefix+t.colored(strings.TrimRight(line, " "), colors...))
	}
}

// grid prints a table under its title.
func (t *terminal) grid(g grid) {
	g.limit(maxRows)
	heads, rows := g.fitted(t.Width, 2)
	fmt.Fprintln(t)
	title := g.Title
	if left := len(g.Heads) - len(heads); left > 0 {
		title += t.colored(fmt.Sprintf(" (no room for %s)", countText(left, "column", "columns")), text.Faint)
	}
	fmt.Fprintln(t, t.colored(g.Title, text.Bold)+strings.TrimPrefix(title, g.Title))
	columns := make([]show.Column, len(heads))
	for i, h := range heads {
		columns[i] = show.Column{Name: h.Name, Right: h.Right}
	}
	for i, line := range show.Lines(columns, rows) {
		if i == 0 {
			line = t.colored(line, text.Faint)
		}
		fmt.Fprintln(t, line)
	}
	if g.More > 0 {
		fmt.Fprintf(t, "and %d more; -o json has all\n", g.More)
	}
}

// matrix prints the paths between GPUs and NICs where there is something to compare: in full, or
// what goes from GPUs to NICs, if there is room.
func (t *terminal) matrix(v *view) {
	if len(v.gpus) == 0 || len(v.gpus)+len(v.nics) < 2 {
		return
	}
	fmt.Fprintln(t)
	views := [][]string{v.matrixLines(40)}
	if len(v.nics) > 0 {
		views = append(views, v.betweenLines())
	}
	for _, lines := range views {
		if slices.ContainsFunc(lines, func(l string) bool { return text.StringWidth(l) > t.Width }) {
			continue
		}
		fmt.Fprintln(t, t.colored("Paths", text.Bold))
		for i, l := range lines {
			if i == 0 {
				l = t.colored(l, text.Faint)
			}
			fmt.Fprintln(t, l)
		}
		return
	}
	t.wrap("", "", fmt.Sprintf("Paths between %d GPUs and NICs: -o matrix shows them.", len(v.gpus)+len(v.nics)))
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

func (t *terminal) findings(all []finding.Finding) {
	fmt.Fprintln(t)
	if len(all) == 0 {
		fmt.Fprintln(t, t.colored("No findings", text.Bold))
		return
	}
	_, color := severityStyle(finding.Worst(all))
	fmt.Fprintln(t, t.colored("Findings: "+findingsText(all), text.Bold, color))
	groups := grouped(all)
	shown := map[string]int{} // groups by ID and title
	rest := map[string][]string{}
	for _, g := range groups {
		kind := g.ID + g.Title
		if shown[kind]++; shown[kind] > maxAlike {
			rest[kind] = append(rest[kind], g.Subjects...)
		}
	}
	clear(shown)
	for _, g := range groups {
		kind := g.ID + g.Title
		switch shown[kind]++; {
		case shown[kind] <= maxAlike:
			t.finding(g)
		case shown[kind] == maxAlike+1:
			t.finding(findingGroup{Finding: finding.Finding{ID: g.ID, Severity: g.Severity, Title: "the same"},
				Subjects: rest[kind]})
		}
	}
	fmt.Fprintf(t, "rackless explain %s says more.\n", show.Printable(groups[0].ID))
}

// finding prints what is wrong, where, what was read and how to mend it.
func (t *terminal) finding(g findingGroup) {
	mark, color := severityStyle(g.Severity)
	head := show.Printable(fmt.Sprintf("%s: %s", some(g.Subjects, maxSubjects), g.Title))
	id := show.Printable(g.ID)
	for i, line := range strings.Split(text.WrapSoft(head, max(t.Width-len(id)-3, 20)), "\n") {
		prefix := strings.Repeat(" ", 3+len(id))
		if i == 0 {
			prefix = t.colored(mark+" "+id, text.Bold, color) + " "
		}
		fmt.Fprintln(t, prefix+strings.TrimRight(line, " "))
	}
	if len(g.Evidences) > 1 {
		t.wrap("  ", "  ", show.Printable(g.Subjects[0]+": "+g.Evidences[0]), text.Faint)
	} else if g.Evidence != "" {
		t.wrap("  ", "  ", show.Printable(g.Evidence), text.Faint)
	}
	if g.Fix != "" {
		t.wrap("  fix: ", "       ", show.Printable(g.Fix))
	}
}

// unread lists what was there and could not be had.
func (t *terminal) unread(v *view) {
	all := v.Host.Unread
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t, t.colored("Not read: "+countText(len(all), "file or command", "files or commands"), text.Bold))
	for i, u := range all {
		if i == maxUnread {
			fmt.Fprintf(t, "and %d more; -o json has all\n", len(all)-i)
			break
		}
		t.wrap("  ", "    ", show.Printable(u.Path+": "+u.Why))
	}
}
