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

// A Recommendation is a recommendation, and what it does to the plan. In JSON it is a part of the output
// of rackless plan --explain, see docs/json.md.
type Recommendation struct {
	*recommend.Recommendation
	Plan PlanEffect `json:"plan"`
}

// A PlanEffect is what the model does to the plan of the lab.
type PlanEffect struct {
	// Differences are between the plan with published figures and the plan with the model. They are empty if there is
	// no model.
	Differences []string `json:"differences"`
	// Refused is the reason that the lab cannot be placed on the host. Then no weights were fitted and no plans
	// compared.
	Refused string `json:"refused,omitempty"`
}

//go:embed recommendation.tmpl
var textFile string

var textTemplate = template.Must(template.New("recommendation").Funcs(template.FuncMap{"settings": settings,
	"gpus":  gpus,
	"count": words.Count[int], "plain": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
}).Parse(textFile))

// Text is the recommendation for people, from what matters to what it rests on: the settings, why each, the GPUs for
// each NIC, and what the planner makes of it.
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

// gpus ranks the GPUs for a NIC: as a table if they were measured, or by path class on one line if not.
func gpus(k recommend.Ranking) string {
	// Path classes order GPUs but have no figures, so a table would only have empty cells.
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
