package hostview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/gpudirect"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// GPUDirect says of machines whether GPUDirect RDMA works in them, in tables of a width in columns; 0 is no limit.
func GPUDirect(reports []*gpudirect.Report, width int) string {
	var text strings.Builder
	for i, r := range reports {
		fmt.Fprintf(&text, "%sGPUDirect RDMA in %s: %s\n\n%s", words.If(i > 0, "\n"), r.Host, verdicts[r.Status],
			gpuDirectGrid(r).Fit(width))
	}
	return text.String()
}

// verdicts are statuses in words.
var verdicts = map[finding.Status]string{finding.OK: "ok", finding.Failed: "not ok", finding.Unknown: "not known"}

// gpuDirectGrid has a line for each fact of the machine and each pair. Of a pair it shows the checks that decide.
func gpuDirectGrid(r *gpudirect.Report) *show.Grid {
	g := show.NewGrid("what", "path", "verdict", "evidence", "fix")
	for _, f := range r.Facts {
		g.Add(f.ID, "", verdicts[f.Status], f.Evidence, f.Fix)
	}
	for _, p := range r.Pairs {
		var evidence, fixes []string
		for _, f := range p.Checks {
			if f.Status == p.Status {
				evidence = append(evidence, f.Evidence)
				fixes = lists.Add(fixes, f.Fix)
			}
		}
		fixes = slices.DeleteFunc(fixes, func(s string) bool { return s == "" })
		g.Add(p.GPU+" to "+p.NIC, p.Path.String(), verdicts[p.Status], strings.Join(evidence, "; "),
			strings.Join(fixes, "; "))
	}
	return g
}
