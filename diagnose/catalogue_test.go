package diagnose

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryCheckIsExplained(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`^RL\d{3}$`)
	titles := map[string]string{}
	var last string
	for _, c := range Catalogue() {
		if !id.MatchString(c.ID) || c.ID <= last {
			t.Errorf("ID %q after %q: want RL and three digits, rising", c.ID, last)
		}
		last = c.ID
		if other, taken := titles[c.Title]; taken {
			t.Errorf("%s and %s have the same title", c.ID, other)
		}
		titles[c.Title] = c.ID
		for name, s := range map[string]string{"Title": c.Title, "Summary": c.Summary, "Means": c.Means, "Fix": c.Fix} {
			if strings.TrimSpace(s) == "" || s != strings.TrimRight(s, " \n") {
				t.Errorf("%s: %s is empty or ends with a blank: %q", c.ID, name, s)
			}
		}
		if len(c.Reads) == 0 || len(c.Sources) == 0 {
			t.Errorf("%s: %d files read, %d sources; want at least one of each", c.ID, len(c.Reads), len(c.Sources))
		}
		if len(c.Means) < 120 {
			t.Errorf("%s: %d bytes do not explain much", c.ID, len(c.Means))
		}
		severities := append([]Severity{c.Severity}, c.Also...)
		if !slices.IsSortedFunc(severities, func(a, b Severity) int { return a.rank() - b.rank() }) {
			t.Errorf("%s: severities %v: want the worst first", c.ID, severities)
		}
		found, ok := Find(Catalogue(), c.ID)
		text := found.Text()
		if !ok || !strings.HasPrefix(text, c.ID+"  "+c.Title+"\n") || !strings.HasSuffix(text, "\n") ||
			strings.HasSuffix(text, "\n\n") {
			t.Errorf("%s: %q, %v", c.ID, text, ok)
		}
		for line := range strings.Lines(text) {
			if len(line) > terminalWidth+1 && strings.Contains(strings.TrimSpace(line), " ") && !strings.HasPrefix(line,
				"  ") {
				t.Errorf("%s: line of %d bytes: %q", c.ID, len(line), line)
			}
		}
	}
}

func TestChecksAreFoundByShortIDsAndByName(t *testing.T) {
	t.Parallel()
	all := append(Catalogue(), Check{ID: "RL499", Name: "link-mtu"})
	for id, want := range map[string]string{
		"RL003": "RL003", "rl003": "RL003", "3": "RL003", "003": "RL003", " RL003 ": "RL003", "RL3": "RL003",
		"link-mtu": "RL499", "Link-MTU": "RL499", "499": "RL499",
	} {
		if got, ok := Find(all, id); !ok || got.ID != want {
			t.Errorf("Find(%q) = %s, want %s", id, got.ID, want)
		}
	}
	for _, id := range []string{"", " ", "RL", "RL999", "RL0003", "no", "RL0x3", "link"} {
		if got, ok := Find(all, id); ok {
			t.Errorf("Find(%q) = %s, want none", id, got.ID)
		}
	}
}

func TestExplainReadsWellInATerminal(t *testing.T) {
	t.Parallel()
	c, _ := Find(Catalogue(), "RL003")
	compareGolden(t, filepath.Join("testdata", "explain-RL003.txt"), c.Text())
}

func TestLinksOfThePageLeadToItsSections(t *testing.T) {
	t.Parallel()
	page := Markdown([]Group{Findings()})
	anchors := map[string]bool{}
	for line := range strings.Lines(page) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			a := anchor(strings.TrimSpace(heading))
			if anchors[a] {
				t.Errorf("two sections have the anchor %q", a)
			}
			anchors[a] = true
		}
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(page, -1) {
		if !anchors[m[1]] {
			t.Errorf("link to #%s leads nowhere", m[1])
		}
	}
	if strings.Contains(page, "RL0") && len(anchors) < len(Catalogue()) {
		t.Errorf("%d sections for %d checks", len(anchors), len(Catalogue()))
	}
}

func TestSourcesBecomeLinks(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"kubevirt/kubevirt#6718": "[kubevirt/kubevirt#6718](https://github.com/kubevirt/kubevirt/issues/6718)",
		"EPYC lab":               "EPYC lab",
		"a/b/c#1":                "a/b/c#1",
		"owner/repo#x":           "owner/repo#x",
		"owner/repo#12 (what it says)": "[owner/repo#12](https://github.com/owner/repo/issues/12) (what " +
			"it says)",
		"Documentation/networking/bonding.rst":   "Documentation/networking/bonding.rst",
		"EPYC lab (64 pages, owner/repo#1 says)": "EPYC lab (64 pages, owner/repo#1 says)",
	} {
		if got := link(in); got != want {
			t.Errorf("link(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestWrapKeepsCommandsAndParagraphs(t *testing.T) {
	t.Parallel()
	const in = "one two three four\n\n    a command that is longer than the width\n\nfive"
	const want = "one two\nthree four\n\n    a command that is longer than the width\n\nfive\n"
	if got := wrap(in, 10); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
