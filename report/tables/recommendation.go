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

// A Recommendation is a recommendation, and what it does to the plan. As JSON it is what rackless recommend
// prints, see docs/json.md.
type Recommendation struct {
	*recommend.Recommendation
	Plan PlanEffect `json:"plan"`
}

// A PlanEffect is what the model does to the plan of the lab.
type PlanEffect struct {
	// Differences are those between the plan with published figures and that with the model; none
	// where there is no model.
	Differences []string `json:"differences"`
	// Refused is why the lab cannot be placed on the host, so that no weights can be fitted and no plans compared.
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

// settings is the table of the settings.
func settings(all []recommend.Choice) *show.Grid {
	g := show.NewGrid("setting", "recommended", "lab and planner have", "confidence")
	for _, c := range all {
		g.Add(string(c.Setting), c.Level, c.Now, string(c.Confidence))
	}
	return g
}

// gpus says which GPUs are best for a NIC: in a table where they were measured, by classes on a line where not.
func gpus(k recommend.Ranking) string {
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
