package report

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// CompareSchema is the schema of a Comparison.
const CompareSchema = "rackless/compare/v1"

// A Comparison is two results side by side. It lists the differences without a conclusion: two single runs have no
// confidence interval, so they cannot tell an effect from chance. A study can.
type Comparison struct {
	Schema string   `json:"schema"` // CompareSchema
	A      Compared `json:"a"`
	B      Compared `json:"b"`
	// Differences lists the recorded conditions that differ, with the ones that affect figures first.
	Differences []Difference     `json:"differences"`
	Figures     []ComparedFigure `json:"figures"` // figures of either result, in report order
}

// A Compared describes one of the two results.
type Compared struct {
	Lab      string    `json:"lab"`
	Measured time.Time `json:"measured"`
	Rackless string    `json:"rackless"`
	Emulated bool      `json:"emulated"`
	Samples  int       `json:"samples"`
	Failed   int       `json:"failed"` // failed measurements
}

// A Difference is a condition that differs between the results. Matters is false for conditions that do not affect
// figures, such as the load at the end.
type Difference struct {
	What    string `json:"what"`
	A       string `json:"a"` // "–" if not recorded
	B       string `json:"b"`
	Matters bool   `json:"matters"`
}

// A ComparedFigure is one figure of both results, as medians of their repeats. Ratio and Change relate B to A; they
// are nil if only one result has the figure, or if exactly one of them was emulated.
type ComparedFigure struct {
	bench.Key
	Unit    string   `json:"unit"`
	A       *float64 `json:"a,omitempty"`
	B       *float64 `json:"b,omitempty"`
	CountA  int      `json:"a_count"` // number of values behind the median
	CountB  int      `json:"b_count"`
	Ratio   *float64 `json:"ratio,omitempty"`      // B / A
	Change  *float64 `json:"difference,omitempty"` // B - A
	Problem string   `json:"problem,omitempty"`    // reason that there is no ratio

	a, b spread
}

// Compare sets two results side by side. Pairs of nodes match by name; if both results have exactly one pair, these
// match regardless of their names.
func Compare(a, b record.Record) Comparison {
	named, renamed := namedAs(a, b)
	ra, rb := collect(a), collect(named)
	c := Comparison{Schema: CompareSchema, A: compared(a, ra), B: compared(b, rb),
		Differences: differences(a, b, renamed), Figures: []ComparedFigure{}}
	var figures group.List[bench.Key, ComparedFigure]
	for side, r := range []*results{ra, rb} {
		for _, k := range r.keys {
			id := bench.Key{Test: k.Test, Client: k.Pair.Client, Server: k.Pair.Server, Metric: k.Metric,
				Bytes: k.Bytes}
			f := figures.At(id, ComparedFigure{Key: id, Unit: r.unitOf(k.Test, k.Metric)})
			s := spreadOf(r.values[k])
			if side == 0 {
				f.A, f.CountA, f.a = new(s.Median), s.N, s
				continue
			}
			f.B, f.CountB, f.b = new(s.Median), s.N, s
			switch {
			case f.A == nil:
			// A has the figure of the other kind: the keys differ only in Emulated.
			case ra.values[k.as(!k.Pair.Emulated)] != nil:
				f.Problem = "one is emulated, and the other is not"
			case ra.unitOf(k.Test, k.Metric) != f.Unit || rb.unitOf(k.Test, k.Metric) != f.Unit:
				f.Problem = "the units differ"
			default:
				f.Change = new(*f.B - *f.A)
				// Counts such as retransmits may be 0. Then there is a difference but no ratio.
				if *f.A > 0 {
					f.Ratio = new(*f.B / *f.A)
				}
			}
		}
	}
	c.Figures = append(c.Figures, figures.All...)
	for i := range c.Figures {
		f := &c.Figures[i]
		switch {
		case f.A == nil:
			f.Problem = "A does not have it"
		case f.B == nil:
			f.Problem = "B does not have it"
		}
	}
	slices.SortStableFunc(c.Figures, func(x, y ComparedFigure) int {
		return cmp.Or(cmp.Compare(x.Client, y.Client), cmp.Compare(x.Server, y.Server), compareTests(x.Test, y.Test),
			cmp.Compare(x.Bytes, y.Bytes), compareMetrics(x.Metric, y.Metric))
	})
	return c
}

func (k figureKey) as(emulated bool) figureKey {
	k.Pair.Emulated = emulated
	return k
}

// namedAs renames the nodes of b to the nodes of a, if both results have exactly one pair of nodes with different
// names.
func namedAs(a, b record.Record) (named record.Record, renamed bool) {
	// A lab that was recreated or copied to another host often has new names for the same two nodes. With more pairs
	// there is no way to match them.
	pairOf := func(d record.Record) (p pair, n int) {
		for _, s := range d.Samples {
			if q := (pair{Client: s.Client, Server: s.Server}); s.Server != "" && q != p {
				p, n = q, n+1
			}
		}
		return p, n
	}
	pa, na := pairOf(a)
	pb, nb := pairOf(b)
	if na != 1 || nb != 1 || pa == pb {
		return b, false
	}
	// The client matches the client, so the direction is kept.
	nameInA := map[string]string{pb.Client: pa.Client, pb.Server: pa.Server}
	rename := func(names ...*string) {
		for _, n := range names {
			*n = cmp.Or(nameInA[*n], *n)
		}
	}
	b.Samples, b.Distributions = slices.Clone(b.Samples), slices.Clone(b.Distributions)
	for i := range b.Samples {
		s := &b.Samples[i]
		rename(&s.Client, &s.Server)
	}
	for i := range b.Distributions {
		d := &b.Distributions[i]
		rename(&d.Client, &d.Server)
	}
	return b, true
}

// compared summarizes a result. A failure does not count if a later attempt succeeded.
func compared(d record.Record, r *results) Compared {
	failed := lists.Count(r.failures, func(f failure) bool { return !f.Retried })
	return Compared{Lab: d.Lab, Measured: d.Generated, Rackless: d.Rackless, Emulated: d.Emulated || r.emulated > 0,
		Samples: r.total, Failed: failed}
}

func (c Compared) name() string {
	s := fmt.Sprintf("lab %s, measured %s, rackless %s", orDash(c.Lab), show.Time(c.Measured), orDash(c.Rackless))
	if c.Emulated {
		s += ", emulated"
	}
	if c.Failed > 0 {
		s += ", " + words.Count(c.Failed, "failed measurement")
	}
	return s
}

const notRecorded = "–"

// idle lists facts of the environment that do not affect figures.
var idle = []string{"host load", "note"}

var sampleConditions = []struct {
	what string
	text func(s bench.Sample) string
}{
	{"emulated", func(s bench.Sample) string {
		if s.Emulated {
			return "yes: figures check the setup, not the hardware"
		}
		return "no"
	}},
	{"accelerator", func(s bench.Sample) string { return s.Accelerator }},
	{"tool", func(s bench.Sample) string { return strings.TrimSpace(s.Tool + " " + s.Version) }},
	{"placement", func(s bench.Sample) string { return s.Placement }},
	{"warm-ups", func(s bench.Sample) string { return fmt.Sprint(s.WarmUps) }},
}

var nodeConditions = []struct {
	what string
	text func(n record.Node) string
}{
	{"MTU", func(n record.Node) string { return number(n.MTU) }},
	{"IB MTU", func(n record.Node) string { return number(n.IBMTU) }},
	{"CPUs of the nodes", func(n record.Node) string { return number(n.CPUs) }},
	{"memory of the nodes", func(n record.Node) string { return sizeText(n.Memory) }},
	{"RDMA device", func(n record.Node) string { return n.RDMADevice }},
	{"driver", func(n record.Node) string { return n.Driver }},
	{"CPUs by", func(n record.Node) string { return n.Accelerator }},
}

func differences(a, b record.Record, renamed bool) []Difference {
	grave, others := []Difference{}, []Difference(nil)
	add := func(what string, matters bool, of func(record.Record) string) {
		x, y := of(a), of(b)
		d := Difference{what, cmp.Or(x, notRecorded), cmp.Or(y, notRecorded), matters}
		switch {
		case x == y:
		case matters:
			grave = append(grave, d)
		default:
			others = append(others, d)
		}
	}
	for _, c := range sampleConditions {
		add(c.what, true, overSamples(c.text))
	}
	for _, test := range testsIn(a, b) {
		command := func(of func(s bench.Sample) string) func(record.Record) string {
			return overSamples(func(s bench.Sample) string {
				if s.Test != test {
					return ""
				}
				return runsOwn.ReplaceAllString(of(s), "")
			})
		}
		client := command(func(s bench.Sample) string { return s.Command })
		server := command(func(s bench.Sample) string { return s.ServerCommand })
		switch x, y := client(a), client(b); {
		case x == "" || y == "": // the figures themselves show that one result lacks the test
		case x != y:
			add("command of "+test, true, client)
		default: // the server has the same arguments, unless the two sides ran in different places
			add("server's command of "+test, true, server)
		}
	}
	for _, c := range nodeConditions {
		add(c.what, true, func(d record.Record) string { return overNodes(d, c.text) })
	}
	add("checks", true, func(d record.Record) string {
		if len(d.Findings) > 0 && len(finding.NotOK(d.Findings)) == 0 {
			return "all ok"
		}
		return FindingsText(d.Findings)
	})
	// A key may occur several times, as notes do. All its values are compared as one.
	seen := map[string]bool{"tools": true} // already compared, from the samples
	for _, f := range slices.Concat(a.Environment, b.Environment) {
		if seen[f.Key] {
			continue
		}
		seen[f.Key] = true
		add(f.Key, !slices.Contains(idle, f.Key), func(d record.Record) string {
			same := lists.Filter(d.Environment, func(g record.Fact) bool { return g.Key == f.Key })
			return joined(lists.Map(same, func(g record.Fact) string { return g.Value }), "; ")
		})
	}
	add("lab", false, func(d record.Record) string { return d.Lab })
	// The number of nodes affects the load of a shared switch. It is compared only if both results recorded their
	// nodes.
	add("nodes", len(a.Nodes) > 0 && len(b.Nodes) > 0, func(d record.Record) string { return number(len(d.Nodes)) })
	if renamed {
		add("names of the nodes", false, overSamples(func(s bench.Sample) string {
			if s.Server == "" {
				return ""
			}
			return between(s.Client, s.Server)
		}))
	}
	add("rackless", false, func(d record.Record) string { return d.Rackless })
	return append(grave, others...)
}

// number formats a number, or returns "" for 0, which means not recorded.
func number[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// joined joins the distinct texts in sorted order.
func joined(all []string, sep string) string {
	all = slices.DeleteFunc(lists.Distinct(all), func(s string) bool { return s == "" })
	return strings.Join(all, sep)
}

// overSamples returns a function that joins the distinct texts of all samples.
func overSamples(text func(s bench.Sample) string) func(record.Record) string {
	return func(d record.Record) string { return joined(lists.Map(d.Samples, text), "; ") }
}

// overNodes returns the texts of all nodes, or a single text if they agree.
func overNodes(d record.Record, text func(record.Node) string) string {
	var each, all []string
	for _, n := range d.Nodes {
		all = append(all, text(n))
		each = append(each, n.Name+" "+cmp.Or(text(n), notRecorded))
	}
	if same := joined(all, "; "); !strings.Contains(same, "; ") {
		return same
	}
	return strings.Join(each, ", ")
}

func testsIn(a, b record.Record) []string {
	tests := lists.Map(slices.Concat(a.Samples, b.Samples), func(s bench.Sample) string { return s.Test })
	slices.SortFunc(tests, compareTests)
	return slices.Compact(tests)
}

// runsOwn matches the parts of a command that differ from run to run without affecting figures: the TCP port and the
// address of the server.
var runsOwn = regexp.MustCompile(
	` (-p|-P|-B|--port=?) ?\d{4,5}\b| (\d{1,3}\.){3}\d{1,3}$| [0-9a-fA-F:]*:[0-9a-fA-F:]+$`)

func (c Comparison) graveDifferences() int {
	return lists.Count(c.Differences, func(d Difference) bool { return d.Matters })
}

// warning returns a sentence on how far the comparison can be trusted. It is printed first.
func (c Comparison) warning() string {
	switch n := c.graveDifferences(); {
	case c.A.Emulated != c.B.Emulated:
		return "One is emulated and the other is not: their figures are not compared. Nothing that an emulated lab " +
			"measures says anything about hardware."
	case n > 0:
		return fmt.Sprintf("The conditions differ in %s, listed below. What differs between the figures is no effect "+
			"of any one of them.", words.Count(n, "point"))
	}
	return ""
}

const noVerdict = "One run against one other has no interval: chance alone moves figures, and how far is not known. " +
	"For a verdict make a study (rackless study run)."

// compareMetricsShown are the metrics of a short comparison: the usual headline figures of each test.
var compareMetricsShown = []string{bench.MetricBWAverage, bench.MetricThroughput, bench.MetricRetransmits,
	bench.MetricLatencyTypical, bench.MetricLatencyP99, bench.MetricLatencyP999, bench.MetricEventRate,
	bench.MetricMemoryBandwidth, bench.MetricLoadLatency, bench.MetricBusBandwidth, bench.MetricCopyBandwidth,
	bench.MetricTPSAverage, bench.MetricLoss, bench.MetricCollectiveTime, bench.MetricRating}

// comparedText formats the value of a figure, or returns "–" if there is none.
func comparedText(v *float64, s spread) string {
	if v == nil {
		return notRecorded
	}
	return s.figure(*v)
}

func (f ComparedFigure) ratioText() string {
	if f.Ratio == nil {
		return notRecorded
	}
	return ratioNumber(*f.Ratio)
}

// ratioNumber formats a ratio with three decimals. A ratio is computed, so its trailing zeros are significant.
func ratioNumber(v float64) string {
	if v >= 100 {
		return show.Figure(v)
	}
	return fmt.Sprintf("%.3f", v)
}

// changeText formats B - A with its sign. It has no more decimals than the figures themselves.
func (f ComparedFigure) changeText() string {
	if f.Change == nil {
		return notRecorded
	}
	text := show.Number(*f.Change, 3, max(f.a.Decimals, f.b.Decimals))
	if *f.Change > 0 {
		text = "+" + text
	}
	return strings.Replace(text, "-", "−", 1)
}

func (c Comparison) sentences(a record.Record, unit func(string) string) []string {
	var out []string
	for _, h := range collect(a).headlines() {
		var ratios []float64
		var first *ComparedFigure
		for i := range c.Figures {
			f := &c.Figures[i]
			if f.Test == h.Test && f.Metric == h.Metric && f.Bytes == h.Bytes && f.Ratio != nil {
				ratios = append(ratios, *f.Ratio)
				first = cmp.Or(first, f)
			}
		}
		if first == nil {
			continue
		}
		m := bench.MetricOf(h.Metric)
		// For one pair, the figures say more than their ratio. For many pairs, no single figure represents all.
		if len(ratios) == 1 {
			out = append(out, fmt.Sprintf("%s, %s: %s -> %s %s, B/A %s", h.name(), m.Label,
				comparedText(first.A, first.a), comparedText(first.B, first.b), unit(m.Unit), first.ratioText()))
			continue
		}
		s := spreadOf(ratios)
		out = append(out, fmt.Sprintf("%s, %s, %d pairs: B/A %s (median; %s to %s)", h.name(), m.Label, len(ratios),
			ratioNumber(s.Median), ratioNumber(s.Min), ratioNumber(s.Max)))
	}
	return out
}

// CompareTerminal writes two results side by side as text: the differing conditions first, then the figures.
func CompareTerminal(w io.Writer, a, b record.Record, o TerminalOptions) error {
	a, b = show.Clean(a, words.Printable), show.Clean(b, words.Printable)
	c := Compare(a, b)
	t := newTerminal(w, o)
	t.Wrap("", "", "Two results side by side", text.Bold)
	t.Wrap("A  ", "   ", c.A.name())
	t.Wrap("B  ", "   ", c.B.name())
	fmt.Fprintln(t)
	if s := c.warning(); s != "" {
		t.Wrap("", "", s, text.FgYellow)
	}
	t.Wrap("", "", noVerdict)
	t.differences(c)
	if s := c.sentences(a, func(u string) string { return u }); len(s) > 0 {
		fmt.Fprintln(t)
		for _, line := range s {
			t.Wrap("- ", "  ", line)
		}
	}
	for rest := c.Figures; len(rest) > 0; {
		// One table for each pair, because more columns do not fit side by side.
		n := slices.IndexFunc(rest, func(f ComparedFigure) bool {
			return f.Client != rest[0].Client || f.Server != rest[0].Server
		})
		if n < 0 {
			n = len(rest)
		}
		t.comparedPair(rest[:n])
		rest = rest[n:]
	}
	if len(c.Figures) == 0 {
		t.Line("Neither has a figure.")
	}
	return show.Wrapf(t.Flush(), "print the comparison of lab %q with lab %q", a.Lab, b.Lab)
}

// asciiDash replaces the signs that figures on a terminal must not have, so that they are plain ASCII.
var asciiDash = strings.NewReplacer(notRecorded, "-", "−", "-")

func (t *terminal) differences(c Comparison) {
	fmt.Fprintln(t)
	if len(c.Differences) == 0 {
		t.Line("Nothing that was recorded of the conditions differs.")
		return
	}
	t.Wrap("", "", "What differs in the conditions", text.Bold)
	for _, d := range c.Differences {
		sign := "  "
		if d.Matters {
			sign = "! "
		}
		t.Wrap(sign, "  ", d.What)
		t.Wrap("    A  ", "       ", asciiDash.Replace(d.A))
		t.Wrap("    B  ", "       ", asciiDash.Replace(d.B))
	}
	if c.graveDifferences() > 0 {
		t.Line("!: it can move figures")
	}
}

func (t *terminal) comparedPair(all []ComparedFigure) {
	sizes := map[string][]int64{}
	for _, f := range all {
		sizes[f.Test] = append(sizes[f.Test], f.Bytes)
	}
	// Both results have the same rows, for the sizes that either measured. A dash marks a size that one did not
	// measure.
	for test, s := range sizes {
		sizes[test] = t.picked(lists.Distinct(s))
	}
	rows, columns := [][]string{}, make([][]string, 4)
	left, one := 0, ""
	for _, f := range all {
		shown := slices.Contains(sizes[f.Test], f.Bytes) && slices.Contains(compareMetricsShown, f.Metric)
		if !t.AllSizes && !shown {
			left++
			continue
		}
		rows = append(rows, []string{f.Test, sizeOrDash(f.Bytes), bench.MetricOf(f.Metric).Label + ", " + f.Unit})
		for i, s := range []string{comparedText(f.A, f.a), comparedText(f.B, f.b), f.ratioText(), f.changeText()} {
			columns[i] = append(columns[i], asciiDash.Replace(s))
		}
		// One line explains all dashes. Missing figures usually have one cause, and a line for each would hide the
		// figures.
		if f.Problem != "" && one == "" {
			one = fmt.Sprintf("-: %s (%s, %s)", f.Problem, f.Test, sizeOrDash(f.Bytes))
		}
	}
	if len(rows) == 0 {
		return
	}
	w := fill([]string{"test", "size", "figure", "A", "B", "B/A", "B-A"}, rows, columns)
	t.print(between(all[0].Client, all[0].Server), false, w)
	if left > 0 {
		t.Wrap("", "", fmt.Sprintf("%s more; --all and the page show all of them", words.Count(left, "figure")))
	}
	if one != "" {
		t.Wrap("", "", one)
	}
}
