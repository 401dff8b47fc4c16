// Package message recognizes messages of kernels and programs that report a fault, and explains them. It is pure.
package message

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

//go:embed messages.md
var page string

// A Kind is a kind of message.
type Kind struct {
	Name     string `json:"name"`             // such as mlx5-command-timeout
	Severity string `json:"severity"`         // as of findings
	Short    string `json:"short"`            // "the card's firmware has stopped"
	Meaning  string `json:"meaning"`          // in sentences
	LookAt   string `json:"look_at"`          // for the cause
	Check    string `json:"check,omitempty"`  // "RL120"; empty for programs
	Source   string `json:"source,omitempty"` // the same within a check or program
}

// Kinds are in the order of the page.
var Kinds = sync.OnceValue(func() (all []Kind) {
	var check, source string
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			check, source = "", ""
			if strings.HasPrefix(title, "RL") {
				check = title
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) == 1 {
			source = strings.TrimSpace(source + " " + line)
			continue
		}
		if len(cells) == 5 && cells[0] != "name" && !strings.HasPrefix(cells[0], "--") {
			all = append(all, Kind{Name: cells[0], Severity: cells[1], Short: cells[2], Meaning: cells[3],
				LookAt: cells[4], Check: check, Source: source})
		}
	}
	return all
})

// Find returns a kind by name.
func Find(name string) (Kind, bool) {
	return lists.Lookup(Kinds(), func(k Kind) bool { return k.Name == name })
}

type form struct {
	kind string
	// drivers is empty if any driver prints it, or if text includes the origin.
	drivers string
	// text has the groups dev, the device; part, such as a BAR; and code, a number to look up.
	text func() *regexp.Regexp
	// detail messages only add to another one.
	detail bool
	// ends means that a fault is over.
	ends bool
}

// A Match is a message in a line.
type Match struct {
	Kind   string
	Driver string // of the prefix, or ""
	Device string // PCI address or kernel's name, or ""
	Part   string // such as "BAR 1"
	Code   string // such as that of an Xid
	Text   string // the line without stamps
	Detail bool   // adds to another message
	Ends   bool   // the fault is over
}

const pciAddress = `(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`

// origin matches "mlx5_core 0000:61:00.0 ens1f0np0: ".
var origin = lazyregexp.New(`(?:^|[\s\]>])([A-Za-z][\w-]*) (` + pciAddress + `)(?::pcie\d+)?(?: ([\w.-]+))?` +
	`(?: \([\w ]+\))*: `)

// named costs less than an expression.
func named(line string) bool {
	for i := 3; i+1 < len(line); i++ {
		if line[i] == '.' && line[i-3] == ':' && line[i+1] >= '0' && line[i+1] <= '7' {
			return true
		}
	}
	return false
}

// Kernel returns the message in a line, after any stamps. It ignores messages of programs or without origin.
func Kernel(line string) (Match, bool) {
	if len(line) > maxLine {
		return Match{}, false
	}
	if named(line) {
		// NVRM's "GPU 0000:3b:00.0: " looks like a driver.
		if at := origin().FindStringSubmatchIndex(line); at != nil && line[at[2]:at[3]] != "GPU" {
			m := Match{Driver: line[at[2]:at[3]], Device: line[at[4]:at[5]], Text: line[at[2]:]}
			if f := find(kernelForms, kernelWords(), m.Driver, line[at[1]:], &m); f != nil {
				return m, true
			}
		}
	}
	if !slices.ContainsFunc(origins, func(s string) bool { return strings.Contains(line, s) }) {
		return Match{}, false
	}
	m := Match{}
	return m, find(ownForms, ownWords(), "", line, &m) != nil
}

// The kernel's lines are shorter than 1 KiB.
const maxLine = 4096

func find(forms []form, words [][]string, driver, text string, m *Match) *form {
	lower := strings.ToLower(text)
	has := func(word string) bool { return strings.Contains(lower, word) }
	for i := range forms {
		f := &forms[i]
		if words[i] != nil && !slices.ContainsFunc(words[i], has) {
			continue
		}
		if driver != "" && f.drivers != "" && !slices.Contains(strings.Fields(f.drivers), driver) {
			continue
		}
		at := f.text().FindStringSubmatchIndex(text)
		if at == nil {
			continue
		}
		for n, name := range f.text().SubexpNames() {
			if name == "" || at[2*n] < 0 {
				continue
			}
			// A name may occur once only, so alternatives have a digit: part2.
			switch value := text[at[2*n]:at[2*n+1]]; strings.TrimRight(name, "23") {
			case "dev":
				m.Device = value
			case "part":
				m.Part = value
			case "code":
				m.Code = value
			}
		}
		m.Kind, m.Detail, m.Ends = f.kind, f.detail, f.ends
		if m.Text == "" {
			m.Text = text[at[0]:]
		}
		return f
	}
	return nil
}

// Explain returns the kinds of messages of a kernel or a program, one a line. A message that ends a fault has none.
func Explain(text string) (out []Kind) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || len(line) > maxLine {
			continue
		}
		var m Match
		var f *form
		if at := origin().FindStringSubmatchIndex(line); at != nil {
			f = find(kernelForms, kernelWords(), line[at[2]:at[3]], line[at[1]:], &m)
		}
		// Messages without their origin may be any words.
		for _, list := range []struct {
			forms []form
			words [][]string
		}{{ownForms, ownWords()}, {programForms, programWords()}, {kernelForms, kernelWords()}} {
			if f == nil {
				f = find(list.forms, list.words, "", line, &m)
			}
		}
		if k, ok := Find(m.Kind); ok && f != nil && !f.ends && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}
