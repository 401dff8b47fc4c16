package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/appraise"
	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// Appraisal is figures held against a machine as a table, and below it what is to be said of each.
func Appraisal(r *appraise.Result) string {
	g := show.NewGrid("test", "bytes>", "measured>", "unit", "verdict")
	for _, f := range r.Figures {
		size := words.If(f.Bytes > 0, show.Size(f.Bytes))
		g.Add(words.Printable(f.Test), size, show.Figure(f.Value), f.Unit, f.Verdict)
	}
	var b strings.Builder
	fmt.Fprint(&b, g)
	line := func(format string, args ...any) { fmt.Fprintln(&b, words.Printable(fmt.Sprintf(format, args...))) }
	for _, f := range r.Figures {
		line("")
		line("%s, %s: %s", f.Test, f.Verdict, f.Text)
		for _, cause := range f.Causes {
			what := cause.What
			if cause.Possible {
				what = "perhaps: " + what
			}
			line("  %s: %s", what, cause.Evidence)
			line("    fix: %s", cause.Fix)
		}
		for _, x := range f.Findings {
			line("  %s %s, %s: %s", x.ID, x.Severity, x.Subject, x.Title)
			line("    fix: %s", x.Fix)
		}
	}
	for _, why := range r.Failed {
		line("failed: %s", why)
	}
	return b.String()
}

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
		pair += words.If(x.Server != "", " to "+x.Server)
		bytes := words.If(x.Bytes > 0, strconv.FormatInt(x.Bytes, 10))
		g.Add(mark, x.Test, pair, x.Metric, bytes, strconv.FormatFloat(x.Value, 'g', 4, 64), measured, x.Unit, change,
			x.Reason)
	}
	return g
}
