package report

import (
	"fmt"
	"strconv"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/report/show"
)

// Deviations has one row for each figure of the baseline, also for those that the measurement lacks.
func Deviations(all []bench.Deviation) *show.Grid {
	g := show.NewGrid("", "test", "pair", "metric", "bytes>", "baseline>", "measured>", "unit", "change>", "why")
	// A figure that failed or is missing has no value: its row says why instead.
	for _, x := range all {
		mark, measured, change := "ok", "", ""
		if !x.OK {
			mark = "BAD"
		}
		if x.Measured != nil {
			measured, change = strconv.FormatFloat(*x.Measured, 'g', 4, 64), fmt.Sprintf("%+.1f%%", 100*x.Change)
		}
		pair := x.Client
		if x.Server != "" {
			pair += " to " + x.Server
		}
		bytes := ""
		if x.Bytes > 0 {
			bytes = strconv.FormatInt(x.Bytes, 10)
		}
		g.Add(mark, x.Test, pair, x.Metric, bytes, strconv.FormatFloat(x.Value, 'g', 4, 64), measured, x.Unit, change,
			x.Reason)
	}
	return g
}
