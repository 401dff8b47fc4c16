package studyview

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/recommend"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/topology"
)

// oppositeTitle stands before opposite.
const oppositeTitle = "Why this is the opposite of what is published."

// opposite says why a study finds that pinning or isolation costs, where published measurements
// find that it helps: the pinned nodes have fewer CPUs than they have threads that are always at
// work. It is empty where the study does not find that, or where the number of CPUs does not
// explain it.
func (v *view) opposite() string {
	worse := make(map[string]bool) // tests
	for c := range lists.Refs(v.Result.Comparisons) {
		if c.Judged != nil && c.Judged.Verdict == stats.Worse && pins(c) {
			worse[c.Test] = true
		}
	}
	if len(worse) == 0 || v.Lab == nil {
		return ""
	}
	// Only emulated nodes are pinned to CPUs that nothing has planned.
	var all, protected topology.CPUSet
	for _, f := range v.Environment {
		set, err := topology.ParseCPUSet(f.Value)
		switch {
		case err != nil:
		case f.Name == "host CPUs":
			all = set
		case f.Name == "protected CPUs":
			protected = set
		}
	}
	need := 1 // the switch
	for _, n := range v.Lab.Nodes {
		need += n.CPUs
	}
	if all.IsEmpty() || protected.IsEmpty() || need == 1 || protected.Len() >= need {
		return ""
	}
	published := v.published(worse)
	if published == "" {
		return ""
	}
	share := words.Either(protected.Len() == 1, "CPU "+protected.String(), "CPUs "+protected.String())
	return fmt.Sprintf("%s This host has %s: the nodes' %s and the switch would keep %d busy, and pinned they share "+
		"%s, while nodes that are not pinned may use all. So pinning takes away more here than it protects. That is "+
		"true of this host and of others as small, and not of pinning: take a setting from a study on a host of the "+
		"size that you use.", published, words.Count(all.Len(), "CPU"), words.Count(need-1, "virtual CPU"), need,
		share)
}

// pins reports whether a comparison is of pinned nodes with nodes that are not.
func pins(c *study.Comparison) bool {
	return strings.Contains(c.Factor, study.FactorPlacement) && strings.Contains(c.B, "pin")
}

// published retells the figure of isolated CPUs that differs most among those of some tests; it is empty where none is.
func (v *view) published(tests map[string]bool) string {
	most, said := 1.0, ""
	for _, d := range recommend.Documents() {
		for _, f := range d.Figures {
			if f.Setting != recommend.Isolation || f.Verdict != stats.Better || f.A <= 0 || f.B <= 0 || !tests[f.Test] {
				continue
			}
			if ratio := max(f.A/f.B, f.B/f.A); ratio > most {
				metric := strings.ReplaceAll(f.Metric, "_", " ")
				most, said = ratio, fmt.Sprintf("“%s” measured: with CPUs kept free of other work (%s instead "+
					"of %s) and %s, %s of %s went from %s to %s %s. Its host, %s, has CPUs to spare.", d.Title, f.To,
					f.From, f.Where, metric, f.Test, show.Figure(f.A), show.Figure(f.B), v.unit(f.Unit),
					words.List(d.Kind))
			}
		}
	}
	return said
}
