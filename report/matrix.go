package report

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// A headline represents a test if there is room for one figure.
type headline struct {
	Test, Metric string
	Bytes        int64
}

// headlineMetrics are in order of preference. A latency test that runs for a duration prints only an average.
var headlineMetrics = []string{bench.MetricBWAverage, bench.MetricLatencyTypical, bench.MetricLatencyAverage,
	bench.MetricThroughput}

// usualBandwidthSize is the size at which bandwidth is commonly quoted.
const usualBandwidthSize = 64 << 10

// headlines are bandwidth at 64 KiB or else the largest size, latency at the smallest.
func (r *results) headlines() []headline {
	var out []headline
	for _, t := range r.tests {
		for _, m := range headlineMetrics {
			sizes := r.sizes(func(k figureKey) bool { return k.Test == t && k.Metric == m })
			if len(sizes) == 0 {
				continue
			}
			// The largest message shows the capacity, the smallest the cost of sending.
			h := headline{Test: t, Metric: m, Bytes: sizes[len(sizes)-1]}
			if m == bench.MetricLatencyTypical || m == bench.MetricLatencyAverage {
				h.Bytes = sizes[0]
			} else if slices.Contains(sizes, usualBandwidthSize) {
				h.Bytes = usualBandwidthSize
			}
			out = append(out, h)
			break
		}
	}
	return out
}

func (h headline) name() string {
	if h.Bytes == 0 {
		return h.Test
	}
	return h.Test + " at " + show.Size(h.Bytes)
}

func (r *results) over(h headline, emulated bool) (pairs []pair, repeats []spread) {
	for _, p := range r.pairs {
		if p.Emulated != emulated {
			continue
		}
		if v := r.values[figureKey{p, h.Test, h.Bytes, h.Metric}]; len(v) > 0 {
			pairs = append(pairs, p)
			repeats = append(repeats, spreadOf(v))
		}
	}
	return pairs, repeats
}

// A matrix has clients as rows, servers as columns.
type matrix struct {
	Title, Note string
	Emulated    bool
	Servers     []string
	Rows        []matrixRow
}

type matrixRow struct {
	Client string
	Cells  []matrixCell
}

// A matrixCell has State as the reason for a missing figure.
type matrixCell struct {
	Text, Value, Title string
	Heat               int    // 0 to 6, from lowest to highest
	State              string // "", "self", "failed" or "none"
}

// heatSteps are the classes h0 to h6 of the style sheet.
const heatSteps = 7

// A pairList replaces a matrix that would be mostly empty.
type pairList struct {
	Emulated bool
	Columns  []pairColumn
	Rows     []pairRow
}

// A pairColumn has the spread of its cells as Note.
type pairColumn struct {
	headline
	Label, Unit, Note string
	Size              string
}

type pairRow struct {
	pair
	Cells []matrixCell
}

func (r *results) matrices(nodes []record.Node) []matrix {
	var out []matrix
	for _, h := range r.headlines() {
		for _, emulated := range []bool{false, true} {
			if cells, c := r.compare(h, emulated); len(cells) > 0 && r.asMatrix(emulated) {
				out = append(out, newMatrix(cells, c, emulated, nodes))
			}
		}
	}
	return out
}

// pairLists is for kinds of pairs without a matrix.
func (r *results) pairLists() []pairList {
	var out []pairList
	for _, emulated := range []bool{false, true} {
		l := pairList{Emulated: emulated}
		if len(r.pairs) <= maxPairCharts || r.asMatrix(emulated) {
			continue
		}
		for _, p := range r.pairsTried() {
			if p.Emulated == emulated {
				l.Rows = append(l.Rows, pairRow{pair: p})
			}
		}
		for _, h := range r.headlines() {
			cells, c := r.compare(h, emulated)
			if len(cells) == 0 {
				continue
			}
			l.Columns = append(l.Columns, c)
			for i, row := range l.Rows {
				// A missing cell would shift the following ones.
				cell, ok := cells[row.pair]
				if !ok {
					cell = matrixCell{State: "none", Title: row.String() + ": not measured"}
				}
				l.Rows[i].Cells = append(l.Rows[i].Cells, cell)
			}
		}
		if len(l.Columns) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// asMatrix requires more pairs than maxPairCharts and than nodes: a star or a ring would have one figure per row.
func (r *results) asMatrix(emulated bool) bool {
	pairs := 0
	nodes := make(map[string]bool)
	for _, p := range r.pairsTried() {
		if p.Emulated == emulated && p.Server != "" {
			pairs++
			nodes[p.Client], nodes[p.Server] = true, true
		}
	}
	return len(r.pairs) > maxPairCharts && pairs > len(nodes)
}

// compare returns nil if no pair has a figure.
func (r *results) compare(h headline, emulated bool) (map[pair]matrixCell, pairColumn) {
	pairs, repeats := r.over(h, emulated)
	if len(pairs) == 0 {
		return nil, pairColumn{}
	}
	m := bench.MetricOf(h.Metric)
	unit := show.Unit(m.Unit)
	all := spreadOfMedians(repeats)
	column := pairColumn{headline: h, Label: m.Label, Unit: unit, Size: sizeText(h.Bytes)}
	column.Note = fmt.Sprintf("%s: lowest %s, median %s, highest %s %s (%s times the lowest).",
		words.Count(len(pairs), "pair"), all.short(all.Min), all.short(all.Median), all.short(all.Max), unit,
		show.Short(all.Max/all.Min))

	// The note shows how close the lowest and the highest cell are.
	cells := make(map[pair]matrixCell)
	for i, p := range pairs {
		s := repeats[i]
		c := matrixCell{Text: s.short(s.Median), Value: show.Exact(s.Median)}
		c.Title = fmt.Sprintf("%s: %s %s", p, s.figure(s.Median), unit)
		if all.Max > all.Min {
			c.Heat = min(int((s.Median-all.Min)/(all.Max-all.Min)*heatSteps), heatSteps-1)
		}
		cells[p] = c
	}
	// A failure without a size is of a run over all sizes.
	for _, f := range r.failures {
		p := f.pair()
		if _, ok := cells[p]; !ok && p.Emulated == emulated && f.Sample.Test == h.Test && (f.Sample.Bytes == 0 ||
			f.Sample.Bytes == h.Bytes) {
			cells[p] = matrixCell{Text: "failed", Title: p.String() + ": failed", State: "failed"}
		}
	}
	return cells, column
}

// Title returns text such as "ib_write_bw at 64 KiB, average, Gb/s".
func (c pairColumn) Title() string { return fmt.Sprintf("%s, %s, %s", c.name(), c.Label, c.Unit) }

func newMatrix(cells map[pair]matrixCell, c pairColumn, emulated bool, nodes []record.Node) matrix {
	names := matrixNames(nodes, cells)
	m := matrix{Title: c.Title(), Note: c.Note, Emulated: emulated, Servers: names}
	for _, client := range names {
		row := matrixRow{Client: client}
		for _, server := range names {
			c, ok := cells[pair{client, server, emulated}]
			switch {
			case ok:
			case client == server:
				c = matrixCell{State: "self", Title: client + " to itself"}
			default:
				c = matrixCell{State: "none", Title: client + " to " + server + ": not measured"}
			}
			row.Cells = append(row.Cells, c)
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}

// matrixNames are in lab order and then by name.
func matrixNames(nodes []record.Node, cells map[pair]matrixCell) []string {
	var names []string
	for p := range cells {
		names = append(names, p.Client, p.Server)
	}
	slices.SortFunc(names, nodeOrder(nodes))
	return slices.Compact(names)
}
