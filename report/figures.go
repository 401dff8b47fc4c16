package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// A pair is a direction between two nodes. Whether the figures are emulated is part of it, so that
// no median, chart or matrix can mix the two kinds.
type pair struct {
	Client, Server string
	Emulated       bool
}

func (p pair) String() string { return between(p.Client, p.Server) }

// between names the nodes of a measurement: two, or the one that was measured alone.
func between(client, server string) string {
	if server == "" {
		return client
	}
	return client + " to " + server
}

// A figureKey says what was measured; the samples that agree in it are repeats of one measurement.
type figureKey struct {
	Pair   pair
	Test   string
	Bytes  int64
	Metric string
}

// A spread describes repeats: of one measurement, or of one measurement over many pairs.
type spread struct {
	N                int
	Min, Median, Max float64
	Decimals         int // as many as the tool printed
}

// short prints one of the spread's figures with three digits. The median of 0.25 and 0.28 lies
// between them, but has no more decimals than the tool printed.
func (s spread) short(v float64) string { return show.Number(v, 3, s.Decimals) }

// figure is short with four digits.
func (s spread) figure(v float64) string { return show.Number(v, 4, s.Decimals) }

// repeats is "n=3, 1.2 to 1.4", or nothing where there were none.
func (s spread) repeats() string {
	if s.N <= 1 {
		return ""
	}
	return fmt.Sprintf("n=%d, %s to %s", s.N, s.figure(s.Min), s.figure(s.Max))
}

// A failure is a measurement that gave no figure.
type failure struct {
	Sample  bench.Sample
	Reason  string // Sample.Error, or what is wrong with its value
	Retried bool   // a later attempt at the same measurement succeeded

	Emulated bool
}

// What is what failed: "ib_write_bw, vm00 to vm01, 64 KiB".
func (f failure) What() string {
	what := f.Sample.Test + ", " + f.pair().String()
	if f.Sample.Bytes > 0 {
		what += ", " + show.Size(f.Sample.Bytes)
	}
	return what
}

func (f failure) pair() pair { return pair{f.Sample.Client, f.Sample.Server, f.Emulated} }

// results are the samples in the order in which they are shown.
type results struct {
	pairs    []pair
	tests    []string
	values   map[figureKey][]float64 // in the order measured
	keys     []figureKey             // of values: by test, pair, size, metric
	limits   map[figureKey]float64   // what the wire carries, where every repeat says so
	derived  map[figureKey]bool      // figures of which at least one was computed, because the tool printed 0 for it
	units    map[[2]string]string    // by test and metric: as the first sample has it
	iters    map[figureKey][2]int64  // fewest and most iterations; the key has no Metric
	failures []failure
	emulated int // samples, failed ones included, that say they are emulated
	total    int
}

// compareTests orders tests as a reader looks for them: bandwidth, latency, the rest; write, read, send, the rest.
func compareTests(a, b string) int {
	return cmp.Or(cmp.Compare(kindRank(a), kindRank(b)), cmp.Compare(verbRank(a), verbRank(b)), cmp.Compare(a, b))
}

// kindRank goes by the suffix that perftest gives its programs.
func kindRank(test string) int {
	return rank([]string{"_bw", "_lat"}, func(suffix string) bool { return strings.HasSuffix(test, suffix) })
}

// rank is the place of the first that is reports true for; those without one come last.
func rank(all []string, is func(string) bool) int {
	i := slices.IndexFunc(all, is)
	if i < 0 {
		return len(all)
	}
	return i
}

// verbRank puts write first, the operation that RDMA is most often quoted by.
func verbRank(test string) int {
	return rank([]string{"_write_", "_read_", "_send_"}, func(v string) bool { return strings.Contains(test, v) })
}

// fault says why a sample is not a figure; it is empty for a figure. A zero is a failed
// measurement: perftest prints 0.000 for everything and leaves with status 0 when it could not
// calibrate its clock.
func fault(s bench.Sample) string {
	m := bench.MetricOf(s.Metric)
	switch {
	case s.Error != "":
		return s.Error
	case s.Metric == "":
		return "sample has neither a metric nor an error"
	case math.IsNaN(s.Value) || math.IsInf(s.Value, 0):
		return fmt.Sprintf("%s is %v, not a finite number", s.Metric, s.Value)
	case s.Value < 0 || s.Value == 0 && !m.Zero:
		return fmt.Sprintf("%s is %s %s: a figure must be above zero", s.Metric, show.Exact(s.Value), s.Unit)
	case s.Bytes < 0:
		return fmt.Sprintf("message size of %d bytes is below zero", s.Bytes)
	case m.Unit != "" && s.Unit != m.Unit && s.Unit != "":
		return fmt.Sprintf("%s has the unit %q, want %q", s.Metric, s.Unit, m.Unit)
	}
	return ""
}

// collect sorts the samples into figures and failures. Nothing is dropped: a sample is one or the other.
func collect(d record.Record) *results {
	r := &results{values: make(map[figureKey][]float64), derived: make(map[figureKey]bool),
		limits: make(map[figureKey]float64), units: make(map[[2]string]string), iters: make(map[figureKey][2]int64),
		total: len(d.Samples)}
	compare := nodeOrder(d.Nodes)
	comparePairs := func(a, b pair) int {
		switch {
		// Figures of hardware come before emulated ones, which nobody is to take for them.
		case a.Emulated == b.Emulated:
			return cmp.Or(compare(a.Client, b.Client), compare(a.Server, b.Server))
		case a.Emulated:
			return 1
		}
		return -1
	}
	for _, s := range d.Samples {
		emulated := s.Emulated || d.Emulated
		if emulated {
			r.emulated++
		}
		if why := fault(s); why != "" {
			r.failures = append(r.failures, failure{Sample: s, Reason: why, Retried: retried(d.Samples, s),
				Emulated: emulated})
			continue
		}
		k := figureKey{Pair: pair{s.Client, s.Server, emulated}, Test: s.Test, Bytes: s.Bytes, Metric: s.Metric}
		if _, ok := r.values[k]; !ok {
			r.keys = append(r.keys, k)
		}
		// The least limit of all repeats: a figure is not held against more than each of them had.
		if have, ok := r.limits[k]; !ok || s.Limit < have {
			r.limits[k] = s.Limit // 0 is below any other: not known
		}
		r.values[k] = append(r.values[k], s.Value)
		r.derived[k] = r.derived[k] || s.Derived
		if of := [2]string{s.Test, s.Metric}; r.units[of] == "" {
			r.units[of] = s.Unit
		}
		// Iterations are of a row, not of a figure: all metrics of one run have the same.
		k.Metric = ""
		it, ok := r.iters[k]
		if !ok {
			it[0] = s.Iterations
		}
		r.iters[k] = [2]int64{min(it[0], s.Iterations), max(it[1], s.Iterations)}
		r.pairs = append(r.pairs, k.Pair)
		r.tests = append(r.tests, k.Test)
	}
	slices.SortFunc(r.pairs, comparePairs)
	r.pairs = slices.Compact(r.pairs)
	slices.SortFunc(r.tests, compareTests)
	r.tests = slices.Compact(r.tests)
	slices.SortFunc(r.keys, func(a, b figureKey) int {
		return cmp.Or(compareTests(a.Test, b.Test), comparePairs(a.Pair, b.Pair),
			cmp.Compare(a.Bytes, b.Bytes), compareMetrics(a.Metric, b.Metric))
	})
	return r
}

// unitOf is the unit of a test's metric. For an unknown metric it is the one that came with the samples.
func (r *results) unitOf(test, metric string) string {
	return cmp.Or(bench.MetricOf(metric).Unit, r.units[[2]string{test, metric}])
}

// nodeOrder compares names of nodes by their place in the lab. Names that are no node of it come after, by name.
func nodeOrder(nodes []record.Node) func(a, b string) int {
	names := lists.Map(nodes, func(n record.Node) string { return n.Name })
	place := func(name string) int { return rank(names, func(n string) bool { return n == name }) }
	return func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b)) }
}

// compareMetrics orders metrics as bench lists them. Those that it does not know share one rank, and are ordered by
// name.
func compareMetrics(a, b string) int {
	return cmp.Or(cmp.Compare(bench.MetricOf(a).Place, bench.MetricOf(b).Place), cmp.Compare(a, b))
}

// retried reports whether a later attempt at the failed measurement gave a figure. Without a size
// the command must be the same, because "-a" and a single size are different measurements.
func retried(samples []bench.Sample, failed bench.Sample) bool {
	return slices.ContainsFunc(samples, func(s bench.Sample) bool {
		if s.Test != failed.Test || s.Client != failed.Client || s.Server != failed.Server ||
			s.Attempt <= failed.Attempt || fault(s) != "" {
			return false
		}
		if failed.Bytes != 0 {
			return s.Bytes == failed.Bytes
		}
		return s.Command == failed.Command
	})
}

// spreadOf describes values; there must be at least one.
func spreadOf(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return spread{N: n, Min: v[0], Median: v[(n-1)/2] + (v[n/2]-v[(n-1)/2])/2, Max: v[n-1],
		// The most of all repeats: 1.5 beside 1.25 was printed as 1.50. No tool prints fewer than two, but zeros at the
		// end are lost in a float64.
		Decimals: max(2, lists.Max(v, show.Decimals))}
}

// spreadOfMedians describes what differs between pairs: the medians of their repeats, with no more
// decimals than these had.
func spreadOfMedians(of []spread) spread {
	all := spreadOf(lists.Map(of, func(s spread) float64 { return s.Median }))
	all.Decimals = lists.Max(of, func(s spread) int { return s.Decimals })
	return all
}
