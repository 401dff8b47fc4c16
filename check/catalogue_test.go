package check

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/diagnose"
)

var update = flag.Bool("update", false, "rewrite docs/checks.md")

func TestTheChecksPageIsCurrent(t *testing.T) {
	name := filepath.Join("..", "docs", "checks.md")
	got := diagnose.Markdown(Groups())
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("run go generate ./check (-page +catalogue):\n%s", diff)
	}
}

func TestEveryCheckOfAPlanOrALabIsExplained(t *testing.T) {
	code := regexp.MustCompile(`^RL[234]\d\d$`)
	name := regexp.MustCompile(`^[a-z][a-z-]*$`)
	var last string
	for _, c := range Catalogue() {
		if c.ID <= last {
			t.Errorf("%s after %s: want rising codes", c.ID, last)
		}
		last = c.ID
	}
	titles := map[string]bool{}
	for _, c := range catalogued() {
		if !code.MatchString(c.ID) || !name.MatchString(c.Name) || titles[c.Title] {
			t.Errorf("%s, %q, %q: want a code of verify, a name in lower case, and a title of its own", c.ID, c.Name,
				c.Title)
		}
		titles[c.Title] = true
		for what, s := range map[string]string{"title": c.Title, "summary": c.Summary, "meaning": c.Means,
			"fix": c.Fix} {
			if strings.TrimSpace(s) == "" || s != strings.TrimRight(s, " \n") {
				t.Errorf("%s: the %s is empty or ends with a blank: %q", c.ID, what, s)
			}
		}
		if len(c.Reads) == 0 || len(c.Sources) == 0 || len(c.Means) < 120 || c.Severity == "" {
			t.Errorf("%s: nothing read, no source, no severity, or a meaning of %d bytes", c.ID, len(c.Means))
		}
		for _, s := range []string{c.Title, c.Summary, c.Means, c.Fix} {
			if strings.Count(s, "`")%2 != 0 {
				t.Errorf("%s: a code span is not closed: %q", c.ID, s)
			}
		}
		byCode, ok1 := Explain(c.ID)
		byName, ok2 := Explain(c.Name)
		if !ok1 || !ok2 || byCode != byName || !strings.HasPrefix(byCode, c.ID+"  "+c.Title+"\nName: "+c.Name+"\n") ||
			!strings.Contains(byCode, "\nHOLDS WHEN\n") {
			t.Errorf("%s and %s are explained by %q and %q", c.ID, c.Name, byCode, byName)
		}
	}
	if _, ok := Lookup("RL003"); ok {
		t.Error("RL003 is a finding of inspect, and nothing that verify could be asked for alone")
	}
	if text, ok := Explain("RL003"); !ok || !strings.Contains(text, "\nFOUND WHEN\n") {
		t.Errorf("RL003 is explained by %q", text)
	}
	if _, ok := Explain("no-such-check"); ok {
		t.Error("what does not exist is explained")
	}
}

// Scripts depend on these.
func TestIdentifiersOfTheChecksOfALabStay(t *testing.T) {
	want := []string{"link", "link-mtu", "address", "rdma-port", "rdma-active-mtu", "rdma-gid", "identity", "reach",
		"rdma-traffic"}
	if diff := cmp.Diff(want, LabIDs()); diff != "" {
		t.Error(diff)
	}
	for _, id := range want {
		if got, ok := Lookup(id); !ok || got != id || !slices.Contains(IDs(), id) {
			t.Errorf("%s is not in the catalogue", id)
		}
	}
	if id, ok := Lookup("rl402"); !ok || id != "link-mtu" {
		t.Errorf("RL402 is %q", id)
	}
}

func TestLinksOfThePageLeadToItsSections(t *testing.T) {
	page := diagnose.Markdown(Groups())
	sections := map[string]int{}
	for line := range strings.Lines(page) {
		if h, ok := strings.CutPrefix(line, "## RL"); ok {
			sections["RL"+h[:3]]++
		}
	}
	for _, c := range Catalogue() {
		if sections[c.ID] != 1 || strings.Count(page, "| ["+c.ID+"](#") != 1 {
			t.Errorf("%s has %d sections and %d lines in the tables", c.ID, sections[c.ID],
				strings.Count(page, "| ["+c.ID+"](#"))
		}
	}
	for _, word := range regexp.MustCompile(`RL\d{3}`).FindAllString(page, -1) {
		if _, ok := diagnose.Find(Catalogue(), word); !ok {
			t.Errorf("the page names %s, which does not exist", word)
		}
	}
}
