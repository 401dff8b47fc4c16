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

// GPUDirect says of machines whether GPUDirect RDMA works in them, in tables of a width in columns; 0 is no limit.
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

// verdicts are statuses in words.
var verdicts = map[finding.Status]string{finding.OK: "ok", finding.Failed: "not ok", finding.Unknown: "not known"}

// said is what is said about pairs, beside which they are.
type said struct{ path, verdict, evidence, fix string }

// gpuDirectGrid has a line for each fact of the machine, and one for all pairs that are alike: the NICs of which the
// same is said for a GPU, and the GPUs with the same NICs.
func gpuDirectGrid(r *gpudirect.Report) *show.Grid {
	type of struct {
		of string
		said
	}
	var nics, gpus group.By[of, string]
	for i := range r.Pairs {
		p := &r.Pairs[i]
		nics.Add(of{p.GPU, saidOf(p)}, p.NIC)
	}
	for _, k := range nics.Keys {
		gpus.Add(of{strings.Join(nics.Of(k), ", "), k.said}, k.of)
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

// saidOf says the checks that decide of a pair.
func saidOf(p *gpudirect.Pair) said {
	var evidence, fixes []string
	for _, f := range p.Checks {
		if f.Status == p.Status {
			evidence = append(evidence, f.Evidence)
			fixes = lists.Add(fixes, f.Fix)
		}
	}
	fixes = slices.DeleteFunc(fixes, func(s string) bool { return s == "" })
	return said{p.Path.String(), verdicts[p.Status], strings.Join(evidence, "; "), strings.Join(fixes, "; ")}
}
