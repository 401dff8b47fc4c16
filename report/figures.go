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

// A pair is a direction between two nodes. With Emulated, medians, charts and matrices cannot mix emulated and hardware
// figures.
type pair struct {
	Client, Server string
	Emulated       bool
}

func (p pair) String() string { return between(p.Client, p.Server) }

func between(client, server string) string {
	if server == "" {
		return client
	}
	return client + " to " + server
}

// A figureKey is equal for repeats.
type figureKey struct {
	Pair   pair
	Test   string
	Bytes  int64
	Metric string
}

// A spread is of the repeats of one measurement, or of one measurement over many pairs.
type spread struct {
	N                int
	Min, Median, Max float64
	Decimals         int // the most that the tool printed
}

// short has three digits, but no more decimals than the tool printed: the median of 0.25 and 0.28 would have three.
func (s spread) short(v float64) string { return show.Number(v, 3, s.Decimals) }

// figure has four digits.
func (s spread) figure(v float64) string { return show.Number(v, 4, s.Decimals) }

func (s spread) repeats() string {
	if s.N <= 1 {
		return ""
	}
	return fmt.Sprintf("n=%d, %s to %s", s.N, s.figure(s.Min), s.figure(s.Max))
}

type failure struct {
	Sample  bench.Sample
	Reason  string
	Retried bool // a later attempt succeeded

	Emulated bool
}

// What names the failed measurement, such as "ib_write_bw, vm00 to vm01, 64 KiB".
func (f failure) What() string {
	what := f.Sample.Test + ", " + f.pair().String()
	if f.Sample.Bytes > 0 {
		what += ", " + show.Size(f.Sample.Bytes)
	}
	return what
}

func (f failure) pair() pair { return pair{f.Sample.Client, f.Sample.Server, f.Emulated} }

type results struct {
	pairs    []pair
	tests    []string
	values   map[figureKey][]float64 // in measurement order
	keys     []figureKey             // by test, pair, size, metric
	limits   map[figureKey]float64   // 0 unless every repeat has one
	derived  map[figureKey]bool      // computed for a repeat, because the tool printed 0
	units    map[[2]string]string    // by test and metric
	iters    map[figureKey][2]int64  // fewest and most iterations; keys have no Metric
	failures []failure
	emulated int // with failed samples
	total    int
}

// compareTests orders tests by bandwidth, latency, others; then by write, read, send, others.
func compareTests(a, b string) int {
	return cmp.Or(cmp.Compare(kindRank(a), kindRank(b)), cmp.Compare(verbRank(a), verbRank(b)), cmp.Compare(a, b))
}

// kindRank ranks by the suffix of perftest's programs.
func kindRank(test string) int {
	return rank([]string{"_bw", "_lat"}, func(suffix string) bool { return strings.HasSuffix(test, suffix) })
}

func rank(all []string, is func(string) bool) int {
	i := slices.IndexFunc(all, is)
	if i < 0 {
		return len(all)
	}
	return i
}

// verbRank puts write first, because RDMA is most often quoted by it.
func verbRank(test string) int {
	return rank([]string{"_write_", "_read_", "_send_"}, func(v string) bool { return strings.Contains(test, v) })
}

// fault says why a sample is no figure, or "". Without a calibrated clock perftest prints 0.000 for everything and
// exits with status 0.
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

func collect(d record.Record) *results {
	r := &results{values: make(map[figureKey][]float64), derived: make(map[figureKey]bool),
		limits: make(map[figureKey]float64), units: make(map[[2]string]string), iters: make(map[figureKey][2]int64),
		total: len(d.Samples)}
	compare := nodeOrder(d.Nodes)
	comparePairs := func(a, b pair) int {
		switch {
		// Hardware figures come before emulated ones, so that the two are not confused.
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
		// A figure is not compared with more than each repeat could reach.
		if have, ok := r.limits[k]; !ok || s.Limit < have {
			r.limits[k] = s.Limit // 0 means unknown
		}
		r.values[k] = append(r.values[k], s.Value)
		r.derived[k] = r.derived[k] || s.Derived
		if of := [2]string{s.Test, s.Metric}; r.units[of] == "" {
			r.units[of] = s.Unit
		}
		// Iterations are the same for all metrics of a run.
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

func (r *results) unitOf(test, metric string) string {
	return cmp.Or(bench.MetricOf(metric).Unit, r.units[[2]string{test, metric}])
}

// nodeOrder puts unknown names last, sorted.
func nodeOrder(nodes []record.Node) func(a, b string) int {
	names := lists.Map(nodes, func(n record.Node) string { return n.Name })
	place := func(name string) int { return rank(names, func(n string) bool { return n == name }) }
	return func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b)) }
}

// compareMetrics follows package bench, with unknown metrics last.
func compareMetrics(a, b string) int {
	return cmp.Or(cmp.Compare(bench.MetricOf(a).Place, bench.MetricOf(b).Place), cmp.Compare(a, b))
}

// retried reports whether a later attempt succeeded. If the size is unknown, commands must be equal: "-a" and a single
// size are different measurements.
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

// spreadOf takes at least one value.
func spreadOf(values []float64) spread {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return spread{N: n, Min: v[0], Median: v[(n-1)/2] + (v[n/2]-v[(n-1)/2])/2, Max: v[n-1],
		// The most decimals of any repeat, because a float64 loses trailing zeros. No tool prints fewer than two.
		Decimals: max(2, lists.Max(v, show.Decimals))}
}

// spreadOfMedians has no more decimals than the repeats.
func spreadOfMedians(of []spread) spread {
	all := spreadOf(lists.Map(of, func(s spread) float64 { return s.Median }))
	all.Decimals = lists.Max(of, func(s spread) int { return s.Decimals })
	return all
}
