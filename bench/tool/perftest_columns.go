package tool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
)

// mibToGb converts "MB/sec" (releases up to 5.x) or "MiB/sec" of perftest. Both are 2^20 bytes a second: `ib_write_bw
// --help` says "MiB=2^20 byte, while Gb=10^9 bits". The message rate confirms it: 8388608 bytes at 0.000341 Mpps are
// 2728 MiB/s (and 2860 MB/s), printed as 2729.60 "MB/sec".
const mibToGb = (1 << 20) * 8 / 1e9

// perftestColumns are the titles of perftest 1.x to 6.x.
var perftestColumns = makePerftestColumns()

func makePerftestColumns() []column {
	cols := []column{
		{title: "#bytes", json: "MsgSize", kind: columnBytes},
		{title: "#iterations", json: "n_iterations", kind: columnIterations},
		{title: "MsgRate[Mpps]", json: "MsgRate", metric: bench.MetricMessageRate},
		{title: "t_min[usec]", json: "t_min", metric: bench.MetricLatencyMin},
		{title: "t_max[usec]", json: "t_max", metric: bench.MetricLatencyMax},
		{title: "t_typical[usec]", json: "t_typical", metric: bench.MetricLatencyTypical},
		{title: "t_avg[usec]", json: "t_avg", metric: bench.MetricLatencyAverage},
		{title: perftestStdev, json: "t_stdev", metric: bench.MetricLatencyStdev, mayBeZero: true},
		{title: "99% percentile[usec]", json: "percentile_99", metric: bench.MetricLatencyP99},
		{title: "99.9% percentile[usec]", json: "percentile_99.9", metric: bench.MetricLatencyP999},
		// The short titles are from published tables that had no space for the long ones.
		{title: "99%[usec]", metric: bench.MetricLatencyP99},
		{title: "99.9%[usec]", metric: bench.MetricLatencyP999},
		// Transactions a second, not millions: 99.03 us one way corresponds to 5048.78, which is 1/(2 * 99.03 us).
		{title: "tps average", json: "tps_average", metric: bench.MetricTPSAverage, scale: 1e-6},
		{title: "tps peak", metric: bench.MetricTPSPeak, scale: 1e-6},
		{title: "#sl", json: "sl", kind: columnOther},
		{title: "CPU_Util[%]", json: "CPU_util", kind: columnOther},
		{title: "CPU_Util[%%]", kind: columnOther}, // a format string that some releases print as it is
		{title: "MsgRate Port1[Mpps]", kind: columnOther},
		{title: "MsgRate Port2[Mpps]", kind: columnOther},
	}
	// --out_json has no unit: see bandwidthScale.
	for _, unit := range []string{"Gb/sec", "MB/sec", "MiB/sec"} {
		scale := mibToGb
		if unit == "Gb/sec" {
			scale = 1
		}
		cols = append(cols,
			column{title: "BW peak[" + unit + "]", json: "BW_peak", metric: bench.MetricBWPeak, scale: scale,
				mayBeZero: true},
			column{title: "BW average[" + unit + "]", json: "BW_average", metric: bench.MetricBWAverage, scale: scale},
			column{title: "BW Port1[" + unit + "]", kind: columnOther},
			column{title: "BW Port2[" + unit + "]", kind: columnOther},
		)
	}
	return cols
}

// parseHeader matches title by title, because titles contain spaces; no title is a prefix of another.
func parseHeader(line string) ([]column, error) {
	rest := strings.Join(strings.Fields(line), " ") + " "
	var cols []column
	seen := make(map[string]bool)
	for rest != "" {
		i := slices.IndexFunc(perftestColumns, func(c column) bool { return strings.HasPrefix(rest, c.title+" ") })
		if i < 0 {
			return nil, fmt.Errorf("unknown column at %q", bench.Shorten(rest))
		}
		c := perftestColumns[i]
		key := cmp.Or(c.metric, c.title)
		if seen[key] {
			return nil, fmt.Errorf("column %q appears twice", c.title)
		}
		seen[key] = true
		cols = append(cols, c)
		rest = strings.TrimPrefix(rest, c.title+" ")
	}
	if !seen["#bytes"] || !seen["#iterations"] {
		return nil, errors.New("column #bytes or #iterations is missing")
	}
	if !seen[bench.MetricBWAverage] && !seen[bench.MetricLatencyAverage] && !seen[bench.MetricLatencyTypical] {
		return nil, errors.New("neither a bandwidth nor a latency column")
	}
	return cols, nil
}

const perftestStdev = "t_stdev[usec]"

// maxDeviation is the largest distance from the average, in us, with a square that fits into perftest's C int (release
// 4.5).
const maxDeviation = 46340

// deviationOverflowed: the standard deviation is -nan or meaningless then, but all other columns are right.
func deviationOverflowed(cells map[string]cell) bool {
	average, ok := cells[bench.MetricLatencyAverage]
	least, hasLeast := cells[bench.MetricLatencyMin]
	most, hasMost := cells[bench.MetricLatencyMax]
	return ok && (hasLeast && average.value-least.value > maxDeviation ||
		hasMost && most.value-average.value > maxDeviation)
}

// derive computes a bandwidth or a message rate that was printed as zero from the other: perftest prints bandwidths
// with two decimals (six below 0.1 Gb/s with --report_gbits) and rates with six. It returns 0 and false if the row
// contradicts itself.
func derive(metric string, bytes int64, cells map[string]cell) (v float64, ok bool) {
	gbPerMpps := float64(bytes) * 8 / 1e3 // 10^6 messages of this many bytes, in 10^9 bits
	bandwidth, rate := cells[bench.MetricBWAverage], cells[bench.MetricMessageRate]
	rounding := 0.0
	switch metric {
	case bench.MetricBWAverage:
		v, rounding = rate.value*gbPerMpps, rate.rounding*gbPerMpps
	case bench.MetricMessageRate:
		v, rounding = bandwidth.value/gbPerMpps, bandwidth.rounding/gbPerMpps
	}
	if v <= 0 || v-rounding > cells[metric].rounding {
		return 0, false
	}
	return v, true
}

func checkOrder(cells map[string]cell) error {
	last, lastMetric := 0.0, ""
	for _, m := range []string{bench.MetricLatencyMin, bench.MetricLatencyTypical, bench.MetricLatencyP99,
		bench.MetricLatencyP999, bench.MetricLatencyMax} {
		c, ok := cells[m]
		if !ok {
			continue
		}
		if c.value < last {
			return fmt.Errorf("%s of %g us is below %s of %g us", m, c.value, lastMetric, last)
		}
		last, lastMetric = c.value, m
	}
	return nil
}
