package tool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
)

type columnKind int

const (
	columnFigure columnKind = iota // a metric of this package
	columnBytes
	columnIterations
	columnOther // checked for being a number, and dropped
)

type column struct {
	title  string
	json   string // perftest's key with --out_json, or ""
	kind   columnKind
	metric string
	scale  float64 // from the printed value to the unit of the metric; 0 stands for 1
	// mayBeZero is set if perftest prints 0.00 for "not measured" (the peak, if there are too many iterations, a
	// duration, or no timestamps on this side) or for a deviation below its last decimal.
	mayBeZero bool
	// read, if set, parses fields that are not plain numbers.
	read func(row *Row, field string) error
}

// columnsOf refuses an unknown title: a guessed column is a wrong figure.
func columnsOf(titles []string, known []column) ([]column, error) {
	var cols []column
	for n, title := range titles {
		i := slices.IndexFunc(known, func(c column) bool { return c.title == title })
		switch {
		case slices.Contains(titles[:n], title):
			return nil, fmt.Errorf("column %q appears twice", bench.Shorten(title))
		case i < 0:
			return nil, fmt.Errorf("unknown layout: column %q", bench.Shorten(title))
		}
		cols = append(cols, known[i])
	}
	return cols, nil
}

func sameTitle(a, b column) bool { return a.title == b.title }

type cell struct {
	value    float64
	rounding float64 // half of the last printed decimal, in the same unit
	err      error
}

// makeRow leaves the line's number in its error to the caller.
func makeRow(cols []column, fields []string, row Row) (Row, error) {
	if err := checkFields(fields, len(cols)); err != nil {
		return Row{}, err
	}
	bad := func(i int, err error) (Row, error) {
		return Row{}, fmt.Errorf("column %s: value %q: %w", cols[i].title, bench.Shorten(fields[i]), err)
	}
	cells := make(map[string]cell, len(cols))
	for i, c := range cols {
		var err error
		switch {
		case c.read != nil:
			err = c.read(&row, fields[i])
		case c.kind == columnBytes:
			row.Bytes, err = parseCount(fields[i])
		case c.kind == columnIterations:
			row.Iterations, err = parseCount(fields[i])
		case c.kind == columnOther:
			// ucx_perftest prints -nan for an average of nothing.
			if v, _, wrong := parseNumber(fields[i]); strings.TrimPrefix(fields[i], "-") != "nan" {
				err = cmp.Or(wrong, bench.CheckNumber(v))
			}
		default:
			v, rounding, err := parseNumber(fields[i])
			scale := cmp.Or(c.scale, 1)
			cells[c.metric] = cell{v * scale, rounding * scale, err}
		}
		if err != nil {
			return bad(i, err)
		}
	}
	for i, c := range cols {
		cell := cells[c.metric]
		switch {
		case c.metric == "", c.title == perftestStdev && deviationOverflowed(cells):
			continue
		case cell.err != nil:
			return bad(i, cell.err)
		case cell.value == 0 && c.mayBeZero:
			continue
		}
		f := newFigure(c.metric, row.Bytes, row.Iterations, cell.value)
		if f.Value == 0 {
			f.Value, f.Derived = derive(c.metric, row.Bytes, cells)
		}
		if err := bench.CheckValue(f.Metric, f.Value); err != nil {
			return bad(i, err)
		}
		row.Figures = append(row.Figures, f)
	}
	return row, checkOrder(cells)
}
