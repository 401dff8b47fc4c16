package finding

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryCheckIsExplained(t *testing.T) {
	t.Parallel()
	code := map[Group]*regexp.Regexp{
		Inspect: regexp.MustCompile(`^RL[01]\d\d$`), Host: regexp.MustCompile(`^RL2\d\d$`),
		Domain: regexp.MustCompile(`^RL3\d\d$`), Lab: regexp.MustCompile(`^RL40\d$`),
		Guest: regexp.MustCompile(`^RL4\d\d$`), Adapter: regexp.MustCompile(`^RL5\d\d$`),
		Setup: regexp.MustCompile(`^RL6\d\d$`), GPU: regexp.MustCompile(`^RL7\d\d$`),
	}
	name := regexp.MustCompile(`^[a-z][a-z-]*$`)
	titles := map[string]string{}
	var last string
	for _, c := range Catalogue() {
		if !code[c.Group].MatchString(c.ID) || c.ID <= last {
			t.Errorf("ID %q of group %s after %q: want rising IDs of the group", c.ID, c.Group, last)
		}
		last = c.ID
		if (c.Group == Inspect) != (c.Name == "") || c.Name != "" && !name.MatchString(c.Name) {
			t.Errorf("%s: name %q: want one in lower case of checks of verify, and none of findings", c.ID, c.Name)
		}
		if other, taken := titles[c.Title]; taken {
			t.Errorf("%s and %s have the same title", c.ID, other)
		}
		titles[c.Title] = c.ID
		for part, s := range map[string]string{"title": c.Title, "summary": c.Summary, "meaning": c.Means,
			"fix": c.Fix} {
			if strings.TrimSpace(s) == "" || s != strings.TrimRight(s, " \n") {
				t.Errorf("%s: the %s is empty or ends with a blank: %q", c.ID, part, s)
			}
			if strings.Count(s, "`")%2 != 0 {
				t.Errorf("%s: a code span of the %s is not closed: %q", c.ID, part, s)
			}
		}
		if len(c.Means) < 120 {
			t.Errorf("%s: %d bytes do not explain much", c.ID, len(c.Means))
		}
		for line := range strings.SplitSeq(c.Reads+"\n"+c.Sources, "\n") {
			if len(line) < 4 || !strings.HasPrefix(line, "- ") {
				t.Errorf("%s: %q is no item of a list", c.ID, line)
			}
		}
		for _, s := range c.Severities {
			if !slices.Contains([]Severity{Error, Warning, Info}, s) {
				t.Errorf("%s: severity %q is not known", c.ID, s)
			}
		}
		if !slices.IsSortedFunc(c.Severities, func(a, b Severity) int { return a.Rank() - b.Rank() }) {
			t.Errorf("%s: severities %v: want the worst first", c.ID, c.Severities)
		}
	}
}

func TestTheTextOfEveryCheckFitsATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range Catalogue() {
		head, when := c.ID+"  "+c.Title+"\n", "\nFOUND WHEN\n"
		if c.Name != "" {
			head, when = head+"Name: "+c.Name+"\n", "\nHOLDS WHEN\n"
		}
		text := c.Text()
		if !strings.HasPrefix(text, head) || !strings.Contains(text, when) || !strings.HasSuffix(text, "\n") ||
			strings.HasSuffix(text, "\n\n") {
			t.Errorf("%s: %q", c.ID, text)
		}
		for line := range strings.Lines(text) {
			if len(line) > terminalWidth+1 && strings.Contains(strings.TrimSpace(line), " ") &&
				!strings.HasPrefix(line, "  ") {
				t.Errorf("%s: line of %d bytes: %q", c.ID, len(line), line)
			}
		}
	}
}

func TestChecksAreFoundByShortIDsAndByName(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"RL003": "RL003", "rl003": "RL003", "3": "RL003", "003": "RL003", " RL003 ": "RL003", "RL3": "RL003",
		"link-mtu": "RL402", "Link-MTU": "RL402", "402": "RL402",
	} {
		if got, ok := Find(id); !ok || got.ID != want {
			t.Errorf("Find(%q) = %s, want %s", id, got.ID, want)
		}
	}
	for _, id := range []string{"", " ", "RL", "RL999", "RL0003", "no", "RL0x3", "no-such-check"} {
		if got, ok := Find(id); ok || GroupOf(id) != "" {
			t.Errorf("Find(%q) = %s, want none", id, got.ID)
		}
	}
	for _, c := range Catalogue() {
		byCode, ok1 := Find(c.ID)
		byName, ok2 := Find(c.Name)
		if !ok1 || byCode.ID != c.ID || ok2 != (c.Name != "") || ok2 && byName.ID != c.ID {
			t.Errorf("%s and %q are found as %s and %s", c.ID, c.Name, byCode.ID, byName.ID)
		}
	}
}

// Scripts depend on these names.
func TestNamesOfTheChecksOfALabStay(t *testing.T) {
	t.Parallel()
	want := []string{"switch-links", "link", "link-mtu", "address", "rdma-port", "rdma-active-mtu", "rdma-gid",
		"identity", "reach", "rdma-traffic"}
	if diff := cmp.Diff(want, Names(Lab)); diff != "" {
		t.Error(diff)
	}
	if got := len(Names()); got != len(Names(Host, Domain, Lab, Guest, Adapter, Setup, GPU)) || got < len(want) {
		t.Errorf("%d names in all", got)
	}
}

func TestExplainReadsWellInATerminal(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(filepath.Join("testdata", "explain-RL003.txt"))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := Find("RL003")
	if diff := cmp.Diff(string(want), c.Text()); diff != "" {
		t.Error(diff)
	}
}

func TestSourcesAreLinksToWhatTheyName(t *testing.T) {
	t.Parallel()
	thread := regexp.MustCompile(`^- \[([\w.-]+/[\w.-]+)#(\d+)\]\((.*?)\)`)
	for _, c := range Catalogue() {
		for line := range strings.Lines(c.Sources) {
			m := thread.FindStringSubmatch(line)
			if m == nil && strings.Contains(line, "](") ||
				m != nil && m[3] != "https://github.com/"+m[1]+"/issues/"+m[2] {
				t.Errorf("%s: %q does not lead to what it names", c.ID, line)
			}
		}
	}
}

func TestItemsNameLinks(t *testing.T) {
	t.Parallel()
	const in = "- [a/b#1](https://github.com/a/b/issues/1) (what it says)\n- a book (page 3)\n- [c/d#2](https://x)"
	const want = "  a/b#1 (what it says)\n  a book (page 3)\n  c/d#2\n"
	if got := items(in); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWrapKeepsCommandsAndParagraphs(t *testing.T) {
	t.Parallel()
	command := "    a command " + strings.Repeat("that is longer than the width ", 4)
	long := strings.Repeat("0123456789 ", 9) // two lines
	got := wrap("one\ntwo\n\n" + command + "\n\n" + long)
	want := "one two\n\n" + command + "\n\n" + strings.TrimSpace(long[:7*11]) + "\n" + strings.TrimSpace(long[7*11:]) +
		"\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMalformedFileIsRefused(t *testing.T) {
	t.Parallel()
	good, err := files.ReadFile("catalogue/lab/RL402.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{": link MTU", "Severity: ", "error. Holds when: ", "**Read from**",
		"**What it means**",
		"**What to do**", "**Sources**"} {
		cut := strings.Replace(string(good), part, "", 1)
		if c, err := parse(cut); err == nil || cut == string(good) {
			t.Errorf("without %q: %+v", part, c)
		}
	}
}
