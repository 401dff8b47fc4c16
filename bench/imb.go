package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

// Lines of the Intel MPI Benchmarks, of releases 3.2 to 2021.
var (
	imbVersion   = lazyregexp.New(`^#\s+Intel ?\(R\) MPI Benchmark(?:s| Suite) V?([0-9][^,]*),`)
	imbBenchmark = lazyregexp.New(`^# Benchmarking (\S+)`)
	imbProcesses = lazyregexp.New(`^# (?:#processes = ([0-9]+)\b|\( [0-9]+ groups of ([0-9]+) processes)`)
	imbHead      = lazyregexp.New(`^\s*(?:Group\s+)?#(?:bytes|repetitions)\s`)
	imbCutShort  = lazyregexp.New(`\s(?:out-of-mem\.|int-overflow|time-out\.)`)
)

// imbColumns are the titles of all tables. Of a collective operation the average of all ranks counts, as with the OSU
// micro-benchmarks. The columns of one benchmark are not those of another: see imbHeader.
var imbColumns = append(others("Group", "t_min[usec]", "t_max[usec]", "t_ovrl[usec]", "t_CPU[usec]", "overlap[%]",
	"defects"), []column{
	{title: "#bytes", read: sizeOrNone},
	{title: "#repetitions", kind: columnIterations},
	{title: "t[usec]", metric: MetricLatencyAverage},
	{title: "t_avg[usec]", metric: MetricCollectiveTime},
	{title: "t_pure[usec]", metric: MetricCollectiveTime}, // without the computing beside it
	{title: "Mbytes/sec", metric: MetricBWAverage, scale: mbToGb, mayBeZero: true},
	{title: "Msg/sec", metric: MetricMessageRate, scale: 1e-6, mayBeZero: true},
}...)

// An imbText is the state of reading tables.
type imbText struct {
	res  Tests
	name string
	cols []column
	// megabyte is what "Mbytes" stands for, as the first row with enough digits tells: 10^6 or 2^20 bytes.
	megabyte float64
}

// ParseIMB reads the tables of the Intel MPI Benchmarks. Releases differ in what a megabyte is, and none says so: time
// and size tell.
func ParseIMB(output []byte) (Tests, error) {
	var t imbText
	if err := EachLine(toolIMB, output, t.read); err != nil {
		if n := len(t.res.All); n == 0 || n == 1 && t.res.All[0].Name == t.name {
			return Tests{}, err
		}
		// The tables above are whole.
		t.res.of(t.name).Err = err
	}
	if t.megabyte == 1<<20 {
		for _, x := range t.res.All {
			for i := range x.Figures {
				if x.Figures[i].Metric == MetricBWAverage {
					x.Figures[i].Value *= t.megabyte / 1e6
				}
			}
		}
	}
	return t.res.checked(toolIMB, output, nil)
}

// read takes one line. Its error is a bare reason.
func (t *imbText) read(line string) (err error) {
	fields := strings.Fields(line)
	if m := imbVersion.FindStringSubmatch(line); m != nil {
		t.res.Version = m[1]
	}
	if m := imbBenchmark.FindStringSubmatch(line); m != nil {
		// "Multi-PingPong" with -multi.
		name, multi := strings.CutPrefix(strings.ToLower(m[1]), "multi-")
		if t.name, t.cols = "imb_"+word(name), nil; multi {
			t.name += "/multi"
		}
	}
	if m := imbProcesses.FindStringSubmatch(line); m != nil && t.name != "" && t.cols == nil {
		if n := cmp.Or(m[1], m[2]); n != "2" {
			t.name += "/np" + n
		}
		t.name += words.If(m[2] != "" && !strings.Contains(t.name, "/multi"), "/multi")
	}
	switch {
	case strings.HasPrefix(line, "#    MODE: AGGREGATE"):
		t.name += "/aggregate"
	case imbHead.MatchString(line):
		t.cols, err = imbHeader(t.name, fields)
	case t.cols == nil || len(fields) == 0 || strings.Trim(fields[0], "0123456789") != "":
	case imbCutShort.MatchString(line):
		t.res.of(t.name).Err = badResult(toolIMB, "%s", Shorten(line))
	case !strings.HasSuffix(line, "\n"):
		err = errors.New("the output ends within a row")
	default:
		var row Row
		if row, err = makeRow(t.cols, fields, Row{}); err == nil {
			err = t.checkRate(fields, row.Bytes)
		}
		t.res.add(t.name, row.Figures...)
	}
	return err
}

// imbHeader finds the columns. Where there is a bandwidth, times are those of messages and not of a collective
// operation.
func imbHeader(name string, titles []string) ([]column, error) {
	if name == "" {
		return nil, errors.New("the line above the table, which names the benchmark, is missing")
	}
	cols, err := columnsOf(titles, imbColumns)
	if slices.Contains(titles, "Mbytes/sec") {
		for i := range cols {
			if cols[i].metric == MetricCollectiveTime {
				cols[i].metric = MetricLatencyAverage
			}
		}
	}
	return cols, err
}

// checkRate holds a bandwidth against the size and the time, which is printed beside it, and finds out what a megabyte
// is. Benchmarks count the message once, twice (Sendrecv) or four times (Exchange). Figures of few digits say nothing.
func (t *imbText) checkRate(fields []string, size int64) error {
	value := func(title string) float64 {
		for i, c := range t.cols {
			if c.title == title {
				v, _, _ := parseNumber(fields[i]) // makeRow has refused what is no number
				return v
			}
		}
		return 0
	}
	rate, us := value("Mbytes/sec"), cmp.Or(value("t[usec]"), value("t_max[usec]"))
	if messages := value("Msg/sec"); us == 0 && messages > 0 {
		us = 1e6 / messages
	}
	if size == 0 || us < 1 || rate < 1 {
		return nil
	}
	computed := float64(size) / us // in 10^6 bytes a second
	for _, times := range []float64{1, 2, 4} {
		for _, megabyte := range []float64{1e6, 1 << 20} {
			// The two megabytes differ by 4.9 %. A hundredth is for the time, whose digits are few, and the rest for
			// the rate, which has two decimals.
			if math.Abs(rate*megabyte/1e6/computed/times-1) > 0.01+0.005/rate {
				continue
			}
			if t.megabyte != 0 && t.megabyte != megabyte && rate > 10 {
				return fmt.Errorf("a megabyte is %g bytes here, and %g above", megabyte, t.megabyte)
			}
			t.megabyte = cmp.Or(t.megabyte, megabyte)
			return nil
		}
	}
	return fmt.Errorf("%d bytes in %g us are not %g Mbytes/sec", size, us, rate)
}
