package rivals

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/plan"
)

func TestTheKnownLabsComeOutAsRecorded(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*plan.Problem{"epyc-pair": epycPair(), "h20-four": h20()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden.Check(t, filepath.Join("testdata", name+".golden"), describe(p, Compare(p)))
		})
	}
}

func describe(p *plan.Problem, outcomes []Outcome) string {
	var b strings.Builder
	for _, o := range outcomes {
		fmt.Fprintf(&b, "%s: ", o.Rival)
		if o.Placement == nil {
			fmt.Fprintf(&b, "refused: %s\n", o.Refused)
		} else {
			fmt.Fprintf(&b, "cost %d\n", o.Cost)
			for i, n := range o.Placement.Nodes {
				fmt.Fprintf(&b, "  %s: cores %s, memory", p.Requests[i].Name, numbers(n.Cores))
				for _, m := range n.Memory {
					fmt.Fprintf(&b, " %d:%d", m.NUMANode, m.Pages)
				}
				for _, d := range append(append([]int{}, n.GPUs...), n.NICs...) {
					fmt.Fprintf(&b, ", %s", p.Devices[d].ID)
				}
				b.WriteString("\n")
			}
		}
		sums := map[string]int64{}
		for _, t := range o.Terms {
			sums[t.Term] += t.Cost
		}
		for _, t := range o.Terms { // each term once, in order
			if sums[t.Term] > 0 {
				fmt.Fprintf(&b, "  %s %d\n", t.Term, sums[t.Term])
				sums[t.Term] = 0
			}
		}
		for _, s := range o.Broken {
			fmt.Fprintf(&b, "  broken: %s\n", s)
		}
	}
	return b.String()
}

var escape = strings.NewReplacer("_", `\_`).Replace

func TestThePageOfTheRivalsHasThemAll(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.FromSlash("../../docs/rivals.md"))
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), "\n## ")
	sections := strings.Split(rest, "\n## ")
	var rows []string
	for line := range strings.Lines(head) {
		if strings.HasPrefix(line, "| `") {
			rows = append(rows, line)
		}
	}
	if len(rows) != len(All()) {
		t.Fatalf("the page lists %d rivals, there are %d", len(rows), len(All()))
	}
	for i, r := range All() {
		if want := "| `" + r.ID + "` | " + escape(r.Name) + " | "; !strings.HasPrefix(rows[i], want) {
			t.Errorf("row %d is %q, want %q", i, rows[i], want)
		}
		at := slices.IndexFunc(sections, func(s string) bool {
			return strings.Contains(s, "\n`"+r.ID+"`") ||
				strings.Contains(s, ", `"+r.ID+"`") || strings.Contains(s, " and `"+r.ID+"`")
		})
		if at < 0 {
			t.Errorf("no section describes %s", r.ID)
			continue
		}
		rules, rest, _ := strings.Cut(sections[at], "\nFilled in, and known differences:\n")
		differs, sources, _ := strings.Cut(rest, "\nSources:\n")
		if strings.Count(rules, "\n3. ") != 1 || strings.Count(differs, "\n- ") < 3 ||
			strings.Count(sources, "\n- ") < 2 {
			t.Errorf("the section of %s is not complete:\n%s", r.ID, sections[at])
		}
	}
}
