package tables

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/recommend"
)

// A Recommendation has its effect on the plan. It is in the JSON of rackless plan --explain, see docs/json.md.
type Recommendation struct {
	*recommend.Recommendation
	Plan PlanEffect `json:"plan"`
}

// A PlanEffect is the effect of the model on the plan.
type PlanEffect struct {
	// Differences are from the plan with published figures; empty without a model.
	Differences []string `json:"differences"`
	// Refused says why the lab cannot be placed; then no weights were fitted and no plans compared.
	Refused string `json:"refused,omitempty"`
}

//go:embed recommendation.tmpl
var textFile string

var textTemplate = template.Must(template.New("recommendation").Funcs(template.FuncMap{"settings": settings,
	"gpus":  gpus,
	"count": words.Count[int], "plain": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
}).Parse(textFile))

// Text is for people: settings and reasons, GPUs for each NIC, and the plan.
func (r *Recommendation) Text() string {
	var b strings.Builder
	if err := textTemplate.Execute(&b, r); err != nil {
		panic(err) // the template is of this package
	}
	return b.String()
}

func settings(all []recommend.Choice) *show.Grid {
	g := show.NewGrid("setting", "recommended", "lab and planner have", "confidence")
	for _, c := range all {
		g.Add(string(c.Setting), c.Level, c.Now, string(c.Confidence))
	}
	return g
}

// gpus returns a table if measured, or path classes on one line.
func gpus(k recommend.Ranking) string {
	// Path classes have no figures for a table.
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
		return line + "\n"
	}
	g := show.NewGrid("gpu", "path", "bandwidth>", "place")
	for i, x := range k.GPUs {
		bandwidth, place := "", fmt.Sprint(i+1)
		if x.Gbps > 0 {
			bandwidth = fmt.Sprintf("%.2f Gb/s", x.Gbps)
		}
		if x.Tied {
			place += ", not told from the one above"
		}
		g.Add(x.GPU, x.Path, bandwidth, place)
	}
	return "  " + strings.ReplaceAll(strings.TrimSuffix(g.String(), "\n"), "\n", "\n  ") + "\n"
}
