package finding

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/golden"
)

func page(t *testing.T) string {
	t.Helper()
	read := func(elem ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{"catalogue"}, elem...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var b strings.Builder
	b.WriteString(read("intro.md"))
	var group Group
	for _, c := range Catalogue() {
		if c.Group != group {
			group = c.Group
			b.WriteString("\n" + read(string(group), "about.md") + "\n")
			if c.Name == "" {
				b.WriteString("| ID | severity | found when |\n| --- | --- | --- |\n")
			} else {
				b.WriteString("| ID | name | severity | holds when |\n| --- | --- | --- | --- |\n")
			}
		}
		name := ""
		if c.Name != "" {
			name = "`" + c.Name + "` | "
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s%s | %s |\n", c.ID, anchor(c.ID+": "+c.Title), name, c.severities(), c.Summary)
	}
	for _, c := range Catalogue() {
		b.WriteString("\n" + read(string(c.Group), c.ID+".md"))
	}
	return b.String()
}

// anchor is GitHub's: lower case, hyphens for blanks, and only letters, digits and hyphens.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

func TestTheChecksPageIsCurrent(t *testing.T) {
	name := filepath.Join("../..", "docs", "checks.md")
	got := page(t)
	golden.Check(t, name, got)
}

func TestLinksOfThePageLeadToItsSections(t *testing.T) {
	text := page(t)
	anchors := map[string]bool{}
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			a := anchor(strings.TrimSpace(heading))
			if anchors[a] {
				t.Errorf("two sections have the anchor %q", a)
			}
			anchors[a] = true
		}
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(text, -1) {
		if !anchors[m[1]] {
			t.Errorf("link to #%s leads nowhere", m[1])
		}
	}
	for _, c := range Catalogue() {
		if strings.Count(text, "\n## "+c.ID+": ") != 1 || strings.Count(text, "| ["+c.ID+"](#") != 1 {
			t.Errorf("%s has not one section and one line in the tables", c.ID)
		}
	}
	for _, word := range regexp.MustCompile(`RL\d{3}`).FindAllString(text, -1) {
		if _, ok := Find(word); !ok {
			t.Errorf("the page names %s, which does not exist", word)
		}
	}
}
