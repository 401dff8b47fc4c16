// Package recommendview shows a recommendation for a lab as text.
package recommendview

import (
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/recommend"
)

// A Document is a recommendation, and what it does to the plan. As JSON it is what rackless recommend
// prints, see docs/json.md.
type Document struct {
	*recommend.Recommendation
	Plan Plan `json:"plan"`
}

// A Plan is what the model does to the plan of the lab.
type Plan struct {
	// Differences are those between the plan with published figures and that with the model; none
	// where there is no model.
	Differences []string `json:"differences"`
	// Refused is why the lab cannot be placed on the host, so that no weights can be fitted and no plans compared.
	Refused string `json:"refused,omitempty"`
}

// Text is a recommendation for people, from what matters to what it rests on: the settings, why each, the GPUs for each
// NIC, and what the planner makes of it.
func Text(r *Document) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, "lab %s (%s) on %s\n", r.Lab, r.Workload, r.Host)
	if len(r.Studies) == 0 {
		fmt.Fprintln(b, "no study was made: published figures and defaults")
	}
	for _, s := range r.Studies {
		fmt.Fprintf(b, "study %s: %s: %s\n", s.Study, s.Carry, s.Why)
		for _, c := range s.Confounds {
			fmt.Fprintf(b, "  it may be fooled: %s\n", c)
		}
	}
	g := show.NewGrid("setting", "recommended", "lab and planner have", "confidence")
	for _, c := range r.Settings {
		g.Add(string(c.Setting), c.Level, c.Now, string(c.Confidence))
	}
	fmt.Fprintf(b, "\n%s", g)
	for _, c := range r.Settings {
		fmt.Fprintf(b, "\n%s: %s\n", c.Setting, c.Level)
		for _, w := range c.Why {
			fmt.Fprintf(b, "  %s\n", w)
		}
		for _, w := range c.Contradictions {
			fmt.Fprintf(b, "  against: %s\n", w)
		}
		for _, e := range c.Evidence {
			// What counted is in the sentences above. What did not is said with the reason, or a reader would miss a
			// study of theirs.
			if !e.Decides {
				fmt.Fprintf(b, "  not counted: %s to %s, %s of %s: %s (%s): %s\n", e.From, e.To,
					strings.ReplaceAll(e.Metric, "_", " "), e.Test, e.Effect, e.Source, e.Remark)
			}
		}
	}
	recommendGPUs(b, r.Rankings)
	fmt.Fprintln(b, "\nthe planner's model")
	for _, f := range r.Fitted {
		fmt.Fprintf(b, "  %s %d in place of %d: %s\n", f.Weight, f.Value, f.Published, f.How)
	}
	if r.Model != nil && len(r.Model.Pairs) > 0 {
		fmt.Fprintf(b, "  %s\n", words.Count(len(r.Model.Pairs), "measured GPU-NIC pair"))
	}
	for _, k := range r.Kept {
		fmt.Fprintf(b, "  as published: %s\n", k)
	}
	switch {
	case r.Plan.Refused != "":
		fmt.Fprintf(b, "  no plan: %s\n", r.Plan.Refused)
	case r.Model == nil:
		fmt.Fprintln(b, "  no model: the plan is that of rackless plan")
	case len(r.Plan.Differences) == 0:
		fmt.Fprintln(b, "  with it the plan is the same")
	default:
		fmt.Fprintln(b, "  with it the plan changes:")
		for _, d := range r.Plan.Differences {
			fmt.Fprintf(b, "    %s\n", d)
		}
	}
	return b.String()
}

// recommendGPUs prints which GPUs are best for each NIC: in a table where they were measured, by
// classes on a line where not.
func recommendGPUs(b *strings.Builder, all []recommend.Ranking) {
	for _, k := range all {
		fmt.Fprintf(b, "\nGPUs for %s, the best first: %s (%s)\n", k.NIC, k.Source, k.Carry)
		// Classes order GPUs, and give no figure: a table would have empty cells only.
		if k.Carry == recommend.NoEvidence {
			line := ""
			for i, x := range k.GPUs {
				switch {
				case i == 0:
					line = fmt.Sprintf("  %s: %s", x.Path, x.GPU)
				case x.Tied:
					line += ", " + x.GPU
				default:
					line += fmt.Sprintf("; %s: %s", x.Path, x.GPU)
				}
			}
			fmt.Fprintln(b, line)
			continue
		}
		g := show.NewGrid("gpu", "path", "bandwidth>", "place")
		for i, x := range k.GPUs {
			bandwidth, place := "", fmt.Sprint(i+1)
			if x.Gbps > 0 {
				bandwidth = fmt.Sprintf("%.2f Gb/s", x.Gbps)
			}
			place += words.If(x.Tied, ", not told from the one above")
			g.Add(x.GPU, x.Path, bandwidth, place)
		}
		for line := range strings.Lines(g.String()) {
			b.WriteString("  " + line)
		}
	}
}
