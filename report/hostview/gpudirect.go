package hostview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/gpudirect"
	"github.com/rackless/rackless/report/show"
)

// GPUDirect returns tables on GPUDirect RDMA. width is in columns; 0 means no limit.
func GPUDirect(reports []*gpudirect.Report, width int) string {
	var text strings.Builder
	for i, r := range reports {
		if i > 0 {
			text.WriteString("\n")
		}
		fmt.Fprintf(&text, "GPUDirect RDMA in %s: %s\n\n%s", r.Host, verdicts[r.Status], gpuDirectGrid(r).Fit(width))
	}
	return text.String()
}

var verdicts = map[finding.Status]string{finding.OK: "ok", finding.Failed: "failed", finding.Unknown: "not known"}

type pairTexts struct{ path, verdict, evidence, fix string }

// gpuDirectGrid joins NICs with one result for a GPU, and GPUs with the same NICs.
func gpuDirectGrid(r *gpudirect.Report) *show.Grid {
	type of struct {
		of string
		pairTexts
	}
	var nics, gpus group.By[of, string]
	for i := range r.Pairs {
		p := &r.Pairs[i]
		nics.Add(of{p.GPU, pairTextsOf(p)}, p.NIC)
	}
	for _, k := range nics.Keys {
		gpus.Add(of{strings.Join(nics.Of(k), ", "), k.pairTexts}, k.of)
	}
	g := show.NewGrid("what", "path", "verdict", "evidence", "fix")
	for _, f := range r.Facts {
		g.Add(f.ID, "", verdicts[f.Status], f.Evidence, f.Fix)
	}
	for _, k := range gpus.Keys {
		g.Add(strings.Join(gpus.Of(k), ", ")+" to "+k.of, k.path, k.verdict, k.evidence, k.fix)
	}
	return g
}

func pairTextsOf(p *gpudirect.Pair) pairTexts {
	var evidence, fixes []string
	for _, f := range p.Checks {
		if f.Status == p.Status {
			evidence = append(evidence, f.Evidence)
			fixes = lists.Add(fixes, f.Fix)
		}
	}
	fixes = slices.DeleteFunc(fixes, func(s string) bool { return s == "" })
	return pairTexts{p.Path.String(), verdicts[p.Status], strings.Join(evidence, "; "), strings.Join(fixes, "; ")}
}
