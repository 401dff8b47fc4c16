package tool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

// An OSUResult is the table of one of the OSU micro-benchmarks.
type OSUResult struct {
	Test        string // e.g. "Allreduce Latency"
	Program     string // with differences from the usual: "osu_allreduce", "osu_bw/cuda"
	Version     string // of the OSU micro-benchmarks
	First, Last int64  // a latency can have size 0
	Gap         string // the first place with missing rows, or ""
	Figures     []bench.Figure
}

// osuTests maps names above a table: since 7.4 a latency has the same title as the time of a collective operation.
var osuTests = map[string]struct{ program, metric string }{
	"Bandwidth":                         {"osu_bw", bench.MetricBWAverage},
	"Bi-Directional Bandwidth":          {"osu_bibw", bench.MetricBWAverage},
	"Multiple Bandwidth / Message Rate": {"osu_mbw_mr", bench.MetricBWAverage},
	"Latency":                           {"osu_latency", bench.MetricLatencyAverage},
	"Multi Latency":                     {"osu_multi_lat", bench.MetricLatencyAverage},
	"Multi Latency Test":                {"osu_multi_lat", bench.MetricLatencyAverage},
	"Multi-threaded Latency":            {"osu_latency_mt", bench.MetricLatencyAverage},
	"Multi-process Latency":             {"osu_latency_mp", bench.MetricLatencyAverage},
	"Allgather Latency":                 {"osu_allgather", bench.MetricCollectiveTime},
	"Allgatherv Latency":                {"osu_allgatherv", bench.MetricCollectiveTime},
	"Allreduce Latency":                 {"osu_allreduce", bench.MetricCollectiveTime},
	// also with "Non-blocking "
	"All-to-All Latency":                        {"osu_alltoall", bench.MetricCollectiveTime},
	"All-to-Allv Latency":                       {"osu_alltoallv", bench.MetricCollectiveTime},
	"All-to-All Personalized Exchange Latency":  {"osu_alltoall", bench.MetricCollectiveTime},
	"All-to-Allv Personalized Exchange Latency": {"osu_alltoallv", bench.MetricCollectiveTime},
	"All-to-Allw Personalized Exchange Latency": {"osu_alltoallw", bench.MetricCollectiveTime},
	"Broadcast Latency":                         {"osu_bcast", bench.MetricCollectiveTime},
	"Gather Latency":                            {"osu_gather", bench.MetricCollectiveTime},
	"Gatherv Latency":                           {"osu_gatherv", bench.MetricCollectiveTime},
	"Reduce Latency":                            {"osu_reduce", bench.MetricCollectiveTime},
	"Reduce_scatter Latency":                    {"osu_reduce_scatter", bench.MetricCollectiveTime},
	"Scatter Latency":                           {"osu_scatter", bench.MetricCollectiveTime},
	"Scatterv Latency":                          {"osu_scatterv", bench.MetricCollectiveTime},
	"Barrier Latency":                           {"osu_barrier", bench.MetricCollectiveTime},
	"Put Latency":                               {"osu_put_latency", bench.MetricLatencyAverage},
	"Put Bandwidth":                             {"osu_put_bw", bench.MetricBWAverage},
	"Put Bi-directional Bandwidth":              {"osu_put_bibw", bench.MetricBWAverage},
	"Get Latency":                               {"osu_get_latency", bench.MetricLatencyAverage},
	"Get Bandwidth":                             {"osu_get_bw", bench.MetricBWAverage},
	"Accumulate latency":                        {"osu_acc_latency", bench.MetricLatencyAverage},
	"Get_accumulate latency":                    {"osu_get_acc_latency", bench.MetricLatencyAverage},
	"Fetch_and_op latency":                      {"osu_fop_latency", bench.MetricLatencyAverage},
	"Compare_and_swap latency":                  {"osu_cas_latency", bench.MetricLatencyAverage},
}

// osuTest names a non-blocking test after the blocking one. Its time is without the computation that overlaps it.
func osuTest(name string) (program, metric string) {
	blocking, immediate := strings.CutPrefix(name, "Non-blocking ")
	t := osuTests[blocking]
	if immediate && t.program != "" {
		t.program = strings.Replace(t.program, "osu_", "osu_i", 1)
	}
	return t.program, t.metric
}

// "# OSU MPI-CUDA Bi-Directional Bandwidth Test v7.5". After MPI come the call of a one-sided test and the location of
// the buffers.
var osuTitle = lazyregexp.New(
	`(?m)^# (?:OSU|rackless) (?:MPI|Gloo|([NRX]CCL))(_\w+)?(?:-([A-Z]+)(?: MANAGED)?)? (\S.*) ` +
		`Test v([0-9][0-9A-Za-z.]*)\s*$`)

// osuBare matches lines without "# ", which web pages take for a mark of theirs, or without the space.
var osuBare = lazyregexp.New(`^[ \t]*#?[ \t]*(?:(?:OSU|rackless) (?:MPI|Gloo|[NRX]CCL)\S* \S.* Test v[0-9]\S*\s*$|` +
	`(?:Size|Avg Latency\(us\)|Overall\(us\))[ \t]{2,}\S|(?:Datatype|Synchronization|Window creation): MPI_|` +
	`Send Buffer on |Number of (?:Sender|Receiver) )`)

// Each option makes another test: "# Datatype: MPI_FLOAT.", "# Synchronization: MPI_Win_fence".
var (
	osuVariant = lazyregexp.New(`^# (?:Datatype|Synchronization|Window creation): MPI_(?:Win_)?(\w+?)\.?\s*$`)
	osuUsual   = []string{"CHAR", "INT", "flush", "allocate"}
	osuBuffers = lazyregexp.New(`^# Send Buffer on (\w+) .* Receive Buffer on (\w+)`)
	osuRanks   = lazyregexp.New(`^# Number of (?:Sender|Receiver) (?:threads|processes): ([0-9]+)\s*$`)
)

// mbToGb: OSU's MB is 10^6 bytes, as all its releases divide the size by 1e6 (osu_bw.c, osu_bibw.c).
const mbToGb = 8e-3

// ParseOSU reads releases 5 to 7. Other programs may print lines above, below and between the rows. Sizes double:
// otherwise rows are missing (OSUResult.Gap). Only the caller can know whether rows are missing at the end.
func ParseOSU(output []byte) (*OSUResult, error) {
	var res OSUResult
	var cols []column
	rows, ranks := 0, ""
	err := bench.EachLine(toolOSU, output, func(line string) (err error) {
		line = withMark(osuBare, line)
		fields := strings.Fields(line)
		title := osuTitle().FindStringSubmatch(strings.TrimSpace(line))
		header := osuHead().MatchString(line)
		switch {
		case title != nil && res.Test != "" || cols != nil && header:
			return errors.New("a second table")
		case title != nil:
			res.Test, res.Version = strings.TrimSpace(strings.TrimPrefix(title[2], "_")+" "+title[4]), title[5]
			if res.Program, _ = osuTest(res.Test); res.Program == "" {
				return fmt.Errorf("a table of %q is not read", bench.Shorten(res.Test))
			}
			for _, by := range []string{title[1], title[3]} {
				if by != "" {
					res.Program += "/" + strings.ToLower(by)
				}
			}
			res.Program += ranks
		case title == nil && osuRanks().MatchString(line):
			ranks += "/" + osuRanks().FindStringSubmatch(line)[1]
		case cols == nil && osuBuffers().MatchString(line):
			if m := osuBuffers().FindStringSubmatch(line); m[1]+m[2] != "DEVICEDEVICE" {
				res.Program += "/" + strings.ToLower(m[1]+"-"+m[2])
			}
		case cols == nil && osuVariant().MatchString(line):
			if word := osuVariant().FindStringSubmatch(line)[1]; res.Program != "" && !slices.Contains(osuUsual, word) {
				res.Program += "/" + strings.ToLower(word)
			}
		case header:
			cols, err = osuHeader(res.Test, line)
			return err
		case strings.HasPrefix(line, "DATA VALIDATION ERROR"):
			return errOSUData
		case cols == nil || len(fields) == 0 || strings.Trim(fields[0], "0123456789.") != "":
			// Lines of mpirun, or of the program that started it.
		default:
			row, err := makeRow(cols, fields, Row{})
			bytes := row.Bytes
			switch {
			case err != nil:
				return err
			case rows > 0 && bytes != max(1, 2*res.Last):
				missing := fmt.Sprintf("%d bytes come after %d: a row is missing", bytes, res.Last)
				if !doubles(res.Last, bytes) {
					return errors.New(missing)
				}
				res.Gap = cmp.Or(res.Gap, missing)
			}
			if !strings.HasSuffix(line, "\n") {
				return errors.New("the output ends within a row")
			}
			if rows == 0 {
				res.First = bytes
			}
			res.Last = bytes
			rows++
			if bytes > 0 || bench.MetricOf(row.Figures[0].Metric).Unit == bench.UnitUsec {
				res.Figures = append(res.Figures, row.Figures...)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(res.Figures) == 0:
		return nil, bench.BadOutput(toolOSU, output, "there is no row of a table")
	}
	return &res, nil
}

func doubles(from, to int64) bool {
	for from = max(1, from); from < to; {
		from *= 2
	}
	return from == to
}

var errOSUData = errors.New("the data that arrived are not those that were sent")

// osuMain lists titles by unit. -f adds the averages of the fastest and of the slowest rank, which are not extremes of
// iterations.
var (
	osuMain = map[string][]string{bench.UnitGbps: {"Bandwidth (MB/s)", "MB/s"},
		bench.UnitUsec: {"Latency (us)", "Avg Latency(us)", "# Avg Latency(us)", "Pure Comm.(us)"}}
	osuBeside = []column{
		{title: "# Size", read: sizeOrNone},
		{title: "Min Latency(us)", read: aboveZero}, {title: "Max Latency(us)", read: aboveZero},
		{title: "Overall(us)"}, {title: "# Overall(us)"}, {title: "Compute(us)"}, {title: "Overlap(%)"},
		{title: "Coll. Init(us)"}, {title: "MPI_Test(us)"}, {title: "MPI_Wait(us)"},
		{title: "Min Comm.(us)"}, {title: "Max Comm.(us)"},
		{title: "Iterations", kind: columnIterations}, {title: "Transmit Size", read: aboveZero},
		{title: "Validation", read: func(_ *Row, field string) error {
			if field != "Pass" {
				return errOSUData
			}
			return nil
		}},
		// of all pairs, of osu_mbw_mr
		{title: "Messages/s", metric: bench.MetricMessageRate, scale: 1e-6},
	}
	osuHead = lazyregexp.New(`^# (?:Size|Avg Latency\(us\)|Overall\(us\))\s`)
	osuTail = lazyregexp.New(`^P[0-9]+ Tail (?:Lat\(us\)|BW\(MB/s\))$`)
)

// osuPercentiles are added by -z. There is no metric for the 90th percentile.
var osuPercentiles = map[string]string{"P50 Tail Lat(us)": bench.MetricLatencyTypical,
	"P99 Tail Lat(us)": bench.MetricLatencyP99}

func sizeOrNone(row *Row, field string) (err error) {
	if row.Bytes, err = strconv.ParseInt(field, 10, 52); err != nil || row.Bytes < 0 {
		err = errors.New("not a size")
	}
	return err
}

func aboveZero(_ *Row, field string) error {
	v, _, err := parseNumber(field)
	return cmp.Or(err, bench.CheckValue("", v))
}

func osuHeader(test, line string) ([]column, error) {
	if test == "" {
		return nil, errors.New("the line above the table, which names the test, is missing")
	}
	_, metric := osuTest(test)
	scale := 1.0
	unit := bench.MetricOf(metric).Unit
	if unit == bench.UnitGbps {
		scale = mbToGb
	}
	known := slices.Clone(osuBeside)
	main := osuMain[unit]
	for _, title := range main {
		known = append(known, column{title: title, metric: metric, scale: scale})
	}
	var titles []string
	for title := range strings.SplitSeq(line, "  ") {
		if title = strings.TrimSpace(title); title == "" {
			continue
		}
		if m, ok := osuPercentiles[title]; ok && metric == bench.MetricLatencyAverage {
			known = append(known, column{title: title, metric: m})
		} else if osuTail().MatchString(title) {
			known = append(known, column{title: title, read: aboveZero})
		}
		titles = append(titles, title)
	}
	cols, err := columnsOf(titles, known)
	figures := lists.Count(cols, func(c column) bool { return c.metric == metric })
	if err == nil && figures != 1 {
		err = fmt.Errorf("unknown layout: %d columns are what a test of %s measures, want 1", figures, test)
	}
	return cols, err
}
