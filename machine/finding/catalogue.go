package finding

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

//go:generate go test . -run TestTheChecksPageIsCurrent -update

// A Group is a set of checks that run together. Its name is also the name of its directory in the catalogue.
type Group string

// Groups of checks, in the order of the IDs of their checks.
const (
	Inspect Group = "inspect" // a host alone
	Host    Group = "host"    // a host against its plan
	Domain  Group = "domain"  // virtual machines against their plan
	Lab     Group = "lab"     // nodes against their lab
	Guest   Group = "guest"   // nodes' view of their host, against the plan
	Adapter Group = "adapter" // emulated adapters of nodes
	GPU     Group = "gpu"     // emulated GPUs of nodes
	Setup   Group = "setup"   // a lab file's requirements inside its nodes
)

// A Check explains one kind of finding. It is parsed from a Markdown file with fixed headings: the title, a paragraph
// with name, severity and summary, then [inShort], [readFrom], [means], [fix] and [sources].
type Check struct {
	ID    string `json:"id"` // "RL" and three digits; never reused
	Group Group  `json:"group"`
	// Name is a second identifier of checks of verify: "link-mtu". It is empty in Inspect.
	Name  string `json:"name,omitempty"`
	Title string `json:"title"` // the finding in a few words; for a check of verify, the subject of the check
	// Severities are the possible severities of its findings, worst first.
	Severities []Severity `json:"severities"`
	Summary    string     `json:"summary"` // the condition of the finding; of a check of verify, to hold
	Reads      string     `json:"reads"`   // list of files (below the machine's root) and commands
	Means      string     `json:"means"`   // the meaning, and the difference from similar findings
	Fix        string     `json:"fix"`
	// Sources lists user reports as "[owner/repository#number](URL)", and names of documents.
	Sources string `json:"sources"`

	// Defaults for its findings.
	Consequence string `json:"-"`
	ShortFix    string `json:"-"`
}

// Headings of a check's file, in order. The first one is optional.
const (
	inShort  = "\n\n**In short**\n\n"
	readFrom = "\n\n**Read from**\n\n"
	means    = "\n\n**What it means**\n\n"
	fix      = "\n\n**What to do**\n\n"
	sources  = "\n\n**Sources**\n\n"
)

//go:embed catalogue/*/RL*.md
var files embed.FS

// Catalogue returns all checks, by ID. It parses them on the first call, so that other commands start faster. It
// panics if a file is malformed, which this package's tests rule out.
var Catalogue = sync.OnceValue(func() []Check {
	var all []Check
	for _, g := range []Group{Inspect, Host, Domain, Lab, Guest, Adapter, Setup, GPU} {
		names, _ := fs.Glob(files, "catalogue/"+string(g)+"/*.md") // sorted
		for _, name := range names {
			text, _ := files.ReadFile(name)
			c, err := parse(string(text))
			if err != nil {
				panic(name + ": " + err.Error())
			}
			c.Group = g
			all = append(all, c)
		}
	}
	return all
})

func parse(text string) (c Check, err error) {
	cut := func(s, separator string) (before, after string) {
		before, after, ok := strings.Cut(s, separator)
		if !ok && err == nil {
			err = fmt.Errorf("no %q", strings.TrimSpace(separator))
		}
		return before, after
	}
	head, text := cut(text, readFrom)
	c.Reads, text = cut(text, means)
	c.Means, text = cut(text, fix)
	c.Fix, text = cut(text, sources)
	c.Sources = strings.TrimSuffix(text, "\n")

	head, short, _ := strings.Cut(head, inShort)
	for item := range strings.SplitSeq("\n"+short, "\n- ") {
		key, text, _ := strings.Cut(strings.Join(strings.Fields(item), " "), ": ")
		switch key {
		case "Impact":
			c.Consequence = text
		case "Fix":
			c.ShortFix = text
		case "":
		default:
			return c, fmt.Errorf("%q is neither Impact nor Fix", key)
		}
	}
	heading, intro := cut(head, "\n\n")
	c.ID, c.Title = cut(strings.TrimPrefix(heading, "## "), ": ")
	before, intro := cut(strings.Join(strings.Fields(intro), " "), "Severity: ")
	c.Name = strings.Trim(before, "`. ")
	severities, summary := cut(intro, ". ")
	for _, s := range strings.Split(strings.ReplaceAll(severities, " or ", ", "), ", ") {
		c.Severities = append(c.Severities, Severity(s))
	}
	c.Summary = strings.TrimPrefix(summary, "Holds when: ")
	return c, err
}

// Find returns the check with the given ID or name, and whether it exists. It ignores case, and "3" and "RL3" mean
// "RL003".
func Find(id string) (Check, bool) {
	id = strings.TrimSpace(id)
	want := ""
	if digits := strings.TrimPrefix(strings.ToUpper(id), "RL"); digits != "" && len(digits) <= 3 {
		want = "RL" + strings.Repeat("0", 3-len(digits)) + digits
	}
	for _, c := range Catalogue() {
		if c.ID == want || c.Name != "" && strings.EqualFold(c.Name, id) {
			return c, true
		}
	}
	return Check{}, false
}

// GroupOf returns the group of the check with the given ID or name, or "".
func GroupOf(id string) Group {
	c, _ := Find(id)
	return c.Group
}

// Names returns the names of the checks of the groups, or of all checks of verify if no group is given.
func Names(groups ...Group) []string {
	var out []string
	for _, c := range Catalogue() {
		if c.Name != "" && (len(groups) == 0 || slices.Contains(groups, c.Group)) {
			out = append(out, c.Name)
		}
	}
	return out
}

// severities formats the possible severities: "error, warning or info".
func (c *Check) severities() string {
	text := string(c.Severities[0])
	for i, s := range c.Severities[1:] {
		if i == len(c.Severities)-2 {
			text += " or " + string(s)
		} else {
			text += ", " + string(s)
		}
	}
	return text
}

// terminalWidth is the width of lines of [Check.Text], in bytes.
const terminalWidth = 80

// Text returns the full text of the check, for a terminal.
func (c *Check) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", c.ID, c.Title)
	when := "FOUND WHEN"
	if c.Name != "" {
		fmt.Fprintf(&b, "Name: %s\n", c.Name)
		when = "HOLDS WHEN"
	}
	fmt.Fprintf(&b, "Severity: %s\n", c.severities())
	for _, section := range [][2]string{
		{when, wrap(c.Summary)},
		{"READ FROM", items(strings.ReplaceAll(c.Reads, "`", ""))},
		{"WHAT IT MEANS", wrap(c.Means)},
		{"WHAT TO DO", wrap(c.Fix)},
		{"SOURCES", items(c.Sources)},
	} {
		fmt.Fprintf(&b, "\n%s\n\n%s", section[0], section[1])
	}
	return b.String()
}

// items formats a Markdown list, with two spaces in place of the bullets, and links as their names.
func items(list string) string {
	var b strings.Builder
	for line := range strings.Lines(list + "\n") {
		line = strings.TrimPrefix(line, "- ")
		if link, ok := strings.CutPrefix(line, "["); ok {
			name, target, _ := strings.Cut(link, "](")
			_, remark, _ := strings.Cut(target, ")")
			line = name + remark
		}
		b.WriteString("  " + line)
	}
	return b.String()
}

// wrap breaks paragraphs at terminalWidth. It keeps paragraphs that begin with four spaces, which are commands. The
// result ends with a newline.
func wrap(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if strings.HasPrefix(p, "    ") {
			continue
		}
		var b strings.Builder
		column := 0
		for word := range strings.FieldsSeq(p) {
			switch {
			case column == 0:
			case column+1+len(word) > terminalWidth:
				b.WriteString("\n")
				column = 0
			default:
				b.WriteString(" ")
				column++
			}
			b.WriteString(word)
			column += len(word)
		}
		paragraphs[i] = b.String()
	}
	return strings.Join(paragraphs, "\n\n") + "\n"
}
