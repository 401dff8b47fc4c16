package bench

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An OSUResult is the table of one of the OSU micro-benchmarks.
type OSUResult struct {
	Test        string // as the line above the table has it, e.g. "Allreduce Latency"
	Program     string // that prints such a table, e.g. "osu_allreduce"
	Version     string // of the OSU micro-benchmarks
	First, Last int64  // sizes of the first and the last row; 0 is a size here, and has no figure
	Figures     []Figure
}

// osuTests are the tests whose tables are read, by the name in the line above: the program, and
// what it measures. The title of the column does not tell it: since 7.4 a latency is called as the
// time of a collective operation is. The names are those in its sources.
var osuTests = map[string]struct{ program, metric string }{
	"Bandwidth":                                 {"osu_bw", MetricBWAverage},
	"Bi-Directional Bandwidth":                  {"osu_bibw", MetricBWAverage},
	"Multiple Bandwidth / Message Rate":         {"osu_mbw_mr", MetricBWAverage},
	"Latency":                                   {"osu_latency", MetricLatencyAverage},
	"Multi Latency":                             {"osu_multi_lat", MetricLatencyAverage},
	"Multi Latency Test":                        {"osu_multi_lat", MetricLatencyAverage},
	"Allgather Latency":                         {"osu_allgather", MetricCollectiveTime},
	"Allgatherv Latency":                        {"osu_allgatherv", MetricCollectiveTime},
	"Allreduce Latency":                         {"osu_allreduce", MetricCollectiveTime},
	"All-to-All Personalized Exchange Latency":  {"osu_alltoall", MetricCollectiveTime},
	"All-to-Allv Personalized Exchange Latency": {"osu_alltoallv", MetricCollectiveTime},
	"Broadcast Latency":                         {"osu_bcast", MetricCollectiveTime},
	"Gather Latency":                            {"osu_gather", MetricCollectiveTime},
	"Gatherv Latency":                           {"osu_gatherv", MetricCollectiveTime},
	"Reduce Latency":                            {"osu_reduce", MetricCollectiveTime},
	"Reduce_scatter Latency":                    {"osu_reduce_scatter", MetricCollectiveTime},
	"Scatter Latency":                           {"osu_scatter", MetricCollectiveTime},
	"Scatterv Latency":                          {"osu_scatterv", MetricCollectiveTime},
}

// The line above a table: "# OSU MPI-CUDA Bi-Directional Bandwidth Test v7.5". What stands behind
// MPI is where the buffers are.
var osuTitle = regexp.MustCompile(`(?m)^# OSU MPI(?:-[A-Z]+(?: MANAGED)?)? (\S.*) Test v([0-9][0-9A-Za-z.]*)\s*$`)

// mbToGb makes Gb/s of MB/s. OSU's MB is 10^6 bytes: all its releases divide the size by 1e6 (osu_bw.c, osu_bibw.c).
const mbToGb = 8e-3

// ParseOSU reads the table of a test between two ranks, between pairs of them, or of a collective
// operation, of releases 5 to 7 by its header row. Other programs may print lines above, below and
// between the rows. A size that is not twice the one before shows that a row is missing; that some
// are missing at the end only the caller can know.
func ParseOSU(output []byte) (*OSUResult, error) {
	var res OSUResult
	var titles []string
	rows := 0
	err := EachLine(toolOSU, output, func(line string) (err error) {
		fields := strings.Fields(line)
		title := osuTitle.FindStringSubmatch(strings.TrimSpace(line))
		header := strings.HasPrefix(line, "# Size ")
		switch {
		case title != nil && res.Test != "" || titles != nil && header:
			return errors.New("a second table")
		case title != nil:
			res.Test, res.Version = title[1], title[2]
			if res.Program = osuTests[res.Test].program; res.Program == "" {
				return fmt.Errorf("a table of %q is not read", Shorten(res.Test))
			}
		case header:
			titles, err = osuHeader(res.Test, line)
			return err
		case strings.HasPrefix(line, "DATA VALIDATION ERROR"):
			return errOSUData
		case titles == nil || len(fields) == 0 || strings.Trim(fields[0], "0123456789") != "":
			// Words of mpirun, or of what started it.
		default:
			bytes, figures, err := osuRow(titles, fields, osuTests[res.Test].metric)
			switch {
			case err != nil:
				return err
			case rows > 0 && bytes != max(1, 2*res.Last):
				return fmt.Errorf("%d bytes come after %d: a row is missing", bytes, res.Last)
			case !strings.HasSuffix(line, "\n"):
				return errors.New("the output ends within a row")
			case rows == 0:
				res.First = bytes
			}
			res.Last = bytes
			rows++
			if bytes > 0 {
				res.Figures = append(res.Figures, figures...)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(res.Figures) == 0:
		return nil, BadOutput(toolOSU, output, "there is no row of a table")
	}
	return &res, nil
}

var errOSUData = errors.New("the data that arrived are not those that were sent")

// osuMain are the titles of the column with what a test measures, by its unit; osuBeside are
// columns that options add. The averages of the fastest and of the slowest rank, which -f adds, are
// neither the least nor the most of all iterations.
var (
	osuMain = map[string][]string{UnitGbps: {"Bandwidth (MB/s)", "MB/s"},
		UnitUsec: {"Latency (us)", "Avg Latency(us)"}}
	osuBeside = []string{"Min Latency(us)", "Max Latency(us)", "Iterations", "Validation", "Transmit Size", osuRate}
	osuTail   = regexp.MustCompile(`^P[0-9]+ Tail (?:Lat\(us\)|BW\(MB/s\))$`)
)

// osuRate is the title of the column of osu_mbw_mr that has the messages of all pairs in a second.
const osuRate = "Messages/s"

// osuHeader parts a header row into its titles, which have two blanks or more between them. One
// that is not known may be a new layout.
func osuHeader(test, line string) ([]string, error) {
	if test == "" {
		return nil, errors.New("the line above the table, which names the test, is missing")
	}
	_, shown := MetricOf(osuTests[test].metric)
	main := osuMain[shown.Unit]
	var titles []string
	figures := 0
	for title := range strings.SplitSeq(line, "  ") {
		title = strings.TrimSpace(title)
		switch {
		case title == "":
			continue
		case slices.Contains(titles, title):
			return nil, fmt.Errorf("column %q appears twice", Shorten(title))
		case slices.Contains(main, title):
			figures++
		case (title == "# Size") != (titles == nil), title != "# Size" && !slices.Contains(osuBeside, title) &&
			!osuTail.MatchString(title):
			return nil, fmt.Errorf("unknown layout: column %q", Shorten(title))
		}
		titles = append(titles, title)
	}
	if figures != 1 {
		return nil, fmt.Errorf("unknown layout: a test of %s has one column %s", test, strings.Join(main, " or "))
	}
	return titles, nil
}

// osuRow reads a row: its size, the figure of the metric, and the message rate where there is a column of it.
func osuRow(titles, fields []string, metric string) (bytes int64, figures []Figure, err error) {
	if err := checkFields(fields, len(titles)); err != nil {
		return 0, nil, err
	}
	_, m := MetricOf(metric)
	scale := 1.0
	if m.Unit == UnitGbps {
		scale = mbToGb
	}
	var iterations int64
	for i, title := range titles {
		v, _, err := parseNumber(fields[i])
		switch title {
		case "# Size":
			if bytes, err = strconv.ParseInt(fields[i], 10, 52); err != nil {
				err = errors.New("not a size")
			}
		case "Iterations":
			iterations, err = parseCount(fields[i])
		case "Validation":
			if err = nil; fields[i] != "Pass" {
				err = errOSUData
			}
		default:
			if err == nil {
				err = CheckValue(metric, v)
			}
		}
		switch {
		case err != nil:
			return 0, nil, fmt.Errorf("column %s: value %q: %w", title, Shorten(fields[i]), err)
		case title == osuRate:
			figures = append(figures, newFigure(MetricMessageRate, 0, 0, v/1e6))
		case slices.Contains(osuMain[m.Unit], title):
			figures = append(figures, newFigure(metric, 0, 0, v*scale))
		}
	}
	for i := range figures {
		figures[i].Bytes, figures[i].Iterations = bytes, iterations
	}
	return bytes, figures, nil
}
