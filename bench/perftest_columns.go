package bench

import (
	"fmt"
	"math"
	"strings"
)

// mibToGb converts what perftest calls "MB/sec" (releases up to 5.x) or "MiB/sec" (later ones). Both are 2^20
// bytes a second: `ib_write_bw --help` says under --report_gbits "MiB=2^20 byte, while Gb=10^9 bits", and the
// column has been divided by 0x100000 since the first releases. It is confirmed by the message rate, e.g.
// 8388608 bytes at 0.000341 Mpps are 2728 MiB/s (and 2860 MB/s) where 2729.60 "MB/sec" are printed.
const mibToGb = (1 << 20) * 8 / 1e9

// columnKind says what a column is used for.
type columnKind int

const (
	columnFigure     columnKind = iota // a metric of this package
	columnBytes                        // message size
	columnIterations                   // iterations
	columnOther                        // a number we check for being one, and drop
)

// A column is one column of perftest's table, found by its title.
type column struct {
	title  string // as printed, with single spaces
	kind   columnKind
	metric string
	scale  float64 // printed value times scale is in unit
	unit   string
	// mayBeZero: perftest prints 0.00 for "not measured" (the peak, where there are too many iterations, a
	// duration, or no timestamps on this side) or for a deviation below its last decimal. The figure is absent.
	mayBeZero bool
}

// perftestColumns are the titles perftest has printed from 1.x to 6.x. A title not in this list is an
// unknown layout, and an error: a guessed column is a wrong figure.
var perftestColumns = makePerftestColumns()

func makePerftestColumns() []column {
	cols := []column{
		{title: "#bytes", kind: columnBytes},
		{title: "#iterations", kind: columnIterations},
		{title: "MsgRate[Mpps]", metric: MetricMessageRate, scale: 1, unit: UnitMpps},
		{title: "t_min[usec]", metric: MetricLatencyMin, scale: 1, unit: UnitUsec},
		{title: "t_max[usec]", metric: MetricLatencyMax, scale: 1, unit: UnitUsec},
		{title: "t_typical[usec]", metric: MetricLatencyTypical, scale: 1, unit: UnitUsec},
		{title: "t_avg[usec]", metric: MetricLatencyAverage, scale: 1, unit: UnitUsec},
		{title: "t_stdev[usec]", metric: MetricLatencyStdev, scale: 1, unit: UnitUsec, mayBeZero: true},
		{title: "99% percentile[usec]", metric: MetricLatencyP99, scale: 1, unit: UnitUsec},
		{title: "99.9% percentile[usec]", metric: MetricLatencyP999, scale: 1, unit: UnitUsec},
		// The short titles are those of published tables, where the long ones did not fit.
		{title: "99%[usec]", metric: MetricLatencyP99, scale: 1, unit: UnitUsec},
		{title: "99.9%[usec]", metric: MetricLatencyP999, scale: 1, unit: UnitUsec},
		// Transactions a second, not millions: 99.03 us one way goes with 5048.78, which is 1/(2 * 99.03 us).
		{title: "tps average", metric: MetricTPSAverage, scale: 1e-6, unit: UnitMtps},
		{title: "tps peak", metric: MetricTPSPeak, scale: 1e-6, unit: UnitMtps},
		{title: "#sl", kind: columnOther},
		{title: "CPU_Util[%]", kind: columnOther},
		{title: "CPU_Util[%%]", kind: columnOther}, // a format string printed as it is, in some releases
		{title: "MsgRate Port1[Mpps]", kind: columnOther},
		{title: "MsgRate Port2[Mpps]", kind: columnOther},
	}
	for _, u := range []struct {
		name  string
		scale float64
	}{{"MB/sec", mibToGb}, {"MiB/sec", mibToGb}, {"Gb/sec", 1}} {
		cols = append(cols,
			column{title: "BW peak[" + u.name + "]", metric: MetricBWPeak, scale: u.scale, unit: UnitGbps,
				mayBeZero: true},
			column{title: "BW average[" + u.name + "]", metric: MetricBWAverage, scale: u.scale, unit: UnitGbps},
			column{title: "BW Port1[" + u.name + "]", kind: columnOther},
			column{title: "BW Port2[" + u.name + "]", kind: columnOther},
		)
	}
	return cols
}

// parseHeader splits a header row into its columns. Titles contain spaces and are set apart by spaces, so the
// row is matched title by title; no title is the beginning of another.
func parseHeader(line string) ([]column, error) {
	rest := strings.Join(strings.Fields(line), " ")
	var cols []column
	seen := make(map[string]bool)
	for rest != "" {
		i := 0
		for i < len(perftestColumns) && !hasTitle(rest, perftestColumns[i].title) {
			i++
		}
		if i == len(perftestColumns) {
			return nil, fmt.Errorf("unknown column at %q", shorten(rest))
		}
		c := perftestColumns[i]
		key := c.metric
		if key == "" {
			key = c.title
		}
		if seen[key] {
			return nil, fmt.Errorf("column %q appears twice", c.title)
		}
		seen[key] = true
		cols = append(cols, c)
		rest = strings.TrimPrefix(rest[len(c.title):], " ")
	}
	if !seen["#bytes"] || !seen["#iterations"] {
		return nil, fmt.Errorf("column #bytes or #iterations is missing")
	}
	if !seen[MetricBWAverage] && !seen[MetricLatencyAverage] && !seen[MetricLatencyTypical] {
		return nil, fmt.Errorf("neither a bandwidth nor a latency column")
	}
	return cols, nil
}

// hasTitle tells whether rest begins with the whole title, not only with the same letters.
func hasTitle(rest, title string) bool {
	return strings.HasPrefix(rest, title) && (len(rest) == len(title) || rest[len(title)] == ' ')
}

// cell is one field of a row, read by its column.
type cell struct {
	value    float64 // in the column's unit
	rounding float64 // half of the last printed decimal, in the column's unit
}

// makeRow turns the fields of one row into figures. It is shared by the text and the JSON layout. The error is
// a bare reason: the caller knows the line.
func makeRow(cols []column, fields []string) (Row, error) {
	if len(fields) != len(cols) {
		return Row{}, fmt.Errorf("the row has %d fields, the header %d columns", len(fields), len(cols))
	}
	var row Row
	cells := make(map[string]cell, len(cols))
	overflowed := deviationOverflowed(cols, fields)
	for i, c := range cols {
		var err error
		if c.metric == MetricLatencyStdev && overflowed {
			continue
		}
		switch c.kind {
		case columnBytes:
			row.Bytes, err = parseCount(fields[i])
		case columnIterations:
			row.Iterations, err = parseCount(fields[i])
		default:
			var v, rounding float64
			v, rounding, err = parseNumber(fields[i])
			if err == nil && (v < 0 || math.IsInf(v, 0) || math.IsNaN(v)) {
				err = fmt.Errorf("not a finite number of zero or more")
			}
			if c.kind == columnFigure {
				cells[c.metric] = cell{v * c.scale, rounding * c.scale}
			}
		}
		if err != nil {
			return Row{}, fmt.Errorf("column %s: value %q is %w", c.title, shorten(fields[i]), err)
		}
	}
	for _, c := range cols {
		if c.kind != columnFigure {
			continue
		}
		if c.metric == MetricLatencyStdev && overflowed {
			continue
		}
		f := Figure{Metric: c.metric, Bytes: row.Bytes, Iterations: row.Iterations, Value: cells[c.metric].value,
			Unit: c.unit}
		if f.Value == 0 {
			if c.mayBeZero {
				continue
			}
			v, ok := derive(c.metric, row.Bytes, cells)
			if !ok {
				return Row{}, fmt.Errorf("column %s: a value of zero is a failed measurement", c.title)
			}
			f.Value, f.Derived = v, true
		}
		if err := checkValue(f.Metric, f.Value); err != nil {
			return Row{}, fmt.Errorf("column %s: %w", c.title, err)
		}
		row.Figures = append(row.Figures, f)
	}
	return row, checkOrder(cells)
}

// maxDeviation is the largest distance from the average, in us, whose square fits in the C int that perftest
// (seen in the code of release 4.5) keeps it in: the square root of 2^31 - 1.
const maxDeviation = 46340

// deviationOverflowed tells whether perftest could not compute the standard deviation of a row: some latency lies
// further from the average than perftest can square. It then prints -nan, or a number that means nothing, and
// which of the two depends on the other latencies. A lab on a busy machine gets there. All other columns are right.
func deviationOverflowed(cols []column, fields []string) bool {
	values := make(map[string]float64)
	for i, c := range cols {
		switch c.metric {
		case MetricLatencyMin, MetricLatencyAverage, MetricLatencyMax:
			v, _, err := parseNumber(fields[i])
			if err != nil {
				return false
			}
			values[c.metric] = v
		}
	}
	average, ok := values[MetricLatencyAverage]
	least, hasLeast := values[MetricLatencyMin]
	most, hasMost := values[MetricLatencyMax]
	return ok && (hasLeast && average-least > maxDeviation || hasMost && most-average > maxDeviation)
}

// derive computes a bandwidth or a message rate that was printed as zero from the other of the two.
//
// perftest prints a bandwidth with two decimals (six below 0.1 Gb/s with --report_gbits) and a rate with six,
// so on slow nodes the one is zero for the smallest messages and the other for the largest. That is rounding
// only as long as the computed value would have been rounded to zero too. Where it would not, the row
// contradicts itself and ok is false.
func derive(metric string, bytes int64, cells map[string]cell) (v float64, ok bool) {
	gbPerMpps := float64(bytes) * 8 / 1e3 // 10^6 messages of so many bytes, in 10^9 bits
	var from cell
	switch metric {
	case MetricBWAverage:
		from = cells[MetricMessageRate]
		v = from.value * gbPerMpps
		from.rounding *= gbPerMpps
	case MetricMessageRate:
		from = cells[MetricBWAverage]
		v = from.value / gbPerMpps
		from.rounding /= gbPerMpps
	default:
		return 0, false
	}
	return v, v > 0 && v-from.rounding <= cells[metric].rounding
}

// checkOrder refuses latencies that no sorted list of samples has.
func checkOrder(cells map[string]cell) error {
	last, lastMetric := 0.0, ""
	for _, m := range []string{MetricLatencyMin, MetricLatencyTypical, MetricLatencyP99, MetricLatencyP999,
		MetricLatencyMax} {
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
