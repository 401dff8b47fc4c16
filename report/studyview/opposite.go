package studyview

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/recommend"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/stats"
)

const oppositeTitle = "Why this is the opposite of what is published."

// opposite explains why pinning or isolation costs here although published measurements show a benefit: the pinned
// nodes have fewer CPUs than permanently busy threads. It returns "" otherwise.
func (src *source) opposite() string {
	worse := make(map[string]bool) // by test
	for i := range src.Result.Comparisons {
		c := &src.Result.Comparisons[i]
		if c.Judged != nil && c.Judged.Verdict == stats.Worse && pins(c) {
			worse[c.Test] = true
		}
	}
	if len(worse) == 0 || src.Lab == nil {
		return ""
	}
	// Only emulated nodes, pinned without a plan, have protected CPUs.
	var all, protected topology.CPUSet
	for _, f := range src.Environment {
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
	need += lists.Sum(src.Lab.Nodes, func(n record.Node) int { return n.CPUs })
	if all.IsEmpty() || protected.IsEmpty() || need == 1 || protected.Len() >= need {
		return ""
	}
	published := src.published(worse)
	if published == "" {
		return ""
	}
	share := "CPUs " + protected.String()
	if protected.Len() == 1 {
		share = "CPU " + protected.String()
	}
	return fmt.Sprintf("%s This host has %s: the nodes' %s and the switch would keep %d busy, and pinned they share "+
		"%s, while nodes that are not pinned may use all. So pinning takes away more here than it protects. That is "+
		"true of this host and of others as small, and not of pinning: take a setting from a study on a host of the "+
		"size that you use.", published, words.Count(all.Len(), "CPU"), words.Count(need-1, "virtual CPU"), need,
		share)
}

func pins(c *study.Comparison) bool {
	return strings.Contains(c.Factor, study.FactorPlacement) && strings.Contains(c.B, "pin")
}

// published returns the largest effect of isolated CPUs on the tests, or "".
func (src *source) published(tests map[string]bool) string {
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
					f.From, f.Where, metric, f.Test, show.Figure(f.A), show.Figure(f.B), src.unit(f.Unit),
					words.List(d.Kind))
			}
		}
	}
	return said
}
