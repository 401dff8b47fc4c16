package rivals

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

var update = flag.Bool("update", false, "write the golden files and docs/rivals.md anew")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-file +now; -update writes it anew):\n%s", file, diff)
	}
}

func TestTheKnownLabsComeOutAsRecorded(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*plan.Problem{"epyc-pair": epycPair(), "h20-four": h20()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden(t, filepath.Join("testdata", name+".golden"), describe(p, Compare(p)))
		})
	}
}

// describe writes outcomes for people: where each lab node went, and the terms that cost something.
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
		for _, t := range o.Terms { // in the order of the terms, each once
			if sums[t.Term] > 0 {
				fmt.Fprintf(&b, "  %s %d\n", t.Term, sums[t.Term])
				sums[t.Term] = 0
			}
		}
		for _, s := range o.Broken {
			fmt.Fprintf(&b, "  broken: %s\n", s)
		}
		for _, s := range o.Notes {
			fmt.Fprintf(&b, "  note: %s\n", s)
		}
	}
	return b.String()
}

func TestThePageOfTheRivalsIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	golden(t, filepath.FromSlash("../../docs/rivals.md"), markdown())
}

func TestEveryRivalSaysWhatItIsAndWhereItIsFrom(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range All() {
		if seen[r.ID] {
			t.Errorf("%s is there twice", r.ID)
		}
		seen[r.ID] = true
		if r.ID == "" || r.Name == "" || r.Version == "" || len(r.Rules) < 3 || len(r.Sources) < 2 ||
			len(r.Differs) < 3 {
			t.Errorf("%s is not told in full: %+v", r.ID, r)
		}
		for _, s := range append(append(append([]string{}, r.Rules...), r.Sources...), r.Differs...) {
			if strings.ContainsAny(s, "\n\r") || s != strings.TrimSpace(s) {
				t.Errorf("%s: %q is not one line", r.ID, s)
			}
		}
	}
}
