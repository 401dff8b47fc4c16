package report

import (
	"fmt"
	"slices"

	"github.com/rackless/rackless/bench"
)

// A headline is the one figure of a test that stands for it where there is room for one only.
type headline struct {
	Test, Metric string
	Bytes        int64
}

// headlineMetrics are the metrics that can stand for a test, the first that a test has wins. A latency test that runs for a time
// instead of a number of iterations prints an average only.
var headlineMetrics = []string{bench.MetricBWAverage, bench.MetricLatencyTypical, bench.MetricLatencyAverage, bench.MetricThroughput}

// usualBandwidthSize is the message size at which bandwidth is commonly quoted.
const usualBandwidthSize = 64 << 10

// headlines picks one figure for each test: bandwidth at 64 KiB or else at the largest size, latency at the smallest.
func (r *results) headlines() []headline {
	var out []headline
	for _, t := range r.tests {
		for _, m := range headlineMetrics {
			var sizes []int64
			for _, k := range r.keys {
				if k.Test == t && k.Metric == m {
					sizes = append(sizes, k.Bytes)
				}
			}
			if len(sizes) == 0 {
				continue
			}
			h := headline{Test: t, Metric: m, Bytes: slices.Max(sizes)}
			if m == bench.MetricLatencyTypical || m == bench.MetricLatencyAverage {
				h.Bytes = slices.Min(sizes)
			} else if slices.Contains(sizes, usualBandwidthSize) {
				h.Bytes = usualBandwidthSize
			}
			out = append(out, h)
			break
		}
	}
	return out
}

// name is "ib_write_bw at 64 KiB".
func (h headline) name() string {
	if h.Bytes == 0 {
		return h.Test
	}
	return h.Test + " at " + sizeText(h.Bytes)
}

// over gives the medians of the pairs that have the headline's figure, in the order of the pairs.
func (r *results) over(h headline, emulated bool) (pairs []pair, medians []float64) {
	for _, p := range r.pairs {
		if p.Emulated != emulated {
			continue
		}
		if v := r.values[figureKey{p, h.Test, h.Bytes, h.Metric}]; len(v) > 0 {
			pairs = append(pairs, p)
			medians = append(medians, spreadOf(v).Median)
		}
	}
	return pairs, medians
}

// A matrix compares many pairs at one headline: a row for each client, a column for each server.
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

// A matrixCell is one pair. State says why there is no figure where there is none.
type matrixCell struct {
	Text, Value, Title string
	Heat               int    // 0 to 6, from the lowest cell to the highest
	State              string // "", "self", "failed" or "none"
}

const heatSteps = 7

// matrices makes the comparison for runs of more pairs than get their own charts.
func (r *results) matrices(nodes []Node) []matrix {
	if len(r.pairs) <= maxPairCharts {
		return nil
	}
	var out []matrix
	for _, h := range r.headlines() {
		for _, emulated := range []bool{false, true} {
			if pairs, medians := r.over(h, emulated); len(pairs) > 0 {
				out = append(out, r.matrix(h, emulated, pairs, medians, nodes))
			}
		}
	}
	return out
}

func (r *results) matrix(h headline, emulated bool, pairs []pair, medians []float64, nodes []Node) matrix {
	_, unit, label := metricInfo(h.Metric)
	unit = unitText(unit)
	all := spreadOf(medians)
	m := matrix{Title: fmt.Sprintf("%s, %s, %s", h.name(), label, unit), Emulated: emulated}
	m.Note = fmt.Sprintf("%s: lowest %s, median %s, highest %s %s (%s times the lowest).",
		countText(len(pairs), "pair", "pairs"), figureText(all.Min), figureText(all.Median), figureText(all.Max), unit, shortText(all.Max/all.Min))

	// Colours go from the lowest cell to the highest, however close these are; the note above says how close.
	cells := make(map[pair]matrixCell)
	for i, p := range pairs {
		c := matrixCell{Text: shortText(medians[i]), Value: exactText(medians[i])}
		c.Title = fmt.Sprintf("%s: %s %s", p, figureText(medians[i]), unit)
		if all.Max > all.Min {
			c.Heat = min(int((medians[i]-all.Min)/(all.Max-all.Min)*heatSteps), heatSteps-1)
		}
		cells[p] = c
	}
	// A failure without a size was of a run over all sizes, this one included.
	for _, f := range r.failures {
		p := f.pair()
		if _, ok := cells[p]; !ok && p.Emulated == emulated && f.Sample.Test == h.Test && (f.Sample.Bytes == 0 || f.Sample.Bytes == h.Bytes) {
			cells[p] = matrixCell{Text: "failed", Title: p.String() + ": failed", State: "failed"}
		}
	}

	names := matrixNames(nodes, cells)
	m.Servers = names
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

// matrixNames lists the nodes that have a cell, in the lab's order and then by name.
func matrixNames(nodes []Node, cells map[pair]matrixCell) []string {
	place := make(map[string]int)
	for i, n := range nodes {
		place[n.Name] = i
	}
	seen := make(map[string]bool)
	var names []string
	for p := range cells {
		for _, n := range []string{p.Client, p.Server} {
			if !seen[n] {
				seen[n] = true
				names = append(names, n)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int { return compareNodes(place, a, b) })
	return names
}
