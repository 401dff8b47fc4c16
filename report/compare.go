package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// CompareSchema is the schema of a Comparison.
const CompareSchema = "rackless/compare/v1"

// A Comparison is two results side by side. It has no conclusion: two single runs cannot tell an effect from chance. A
// study can.
type Comparison struct {
	Schema string   `json:"schema"` // CompareSchema
	A      Compared `json:"a"`
	B      Compared `json:"b"`
	// Differences are recorded conditions, the ones that affect figures first.
	Differences []Difference     `json:"differences"`
	Figures     []ComparedFigure `json:"figures"` // of either result
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

// A Difference is a condition that differs. Matters is false if it does not affect figures, such as the load at the
// end.
type Difference struct {
	What    string `json:"what"`
	A       string `json:"a"` // "–" if not recorded
	B       string `json:"b"`
	Matters bool   `json:"matters"`
}

// A ComparedFigure has medians of repeats. Ratio and Change relate B to A, or are nil if one result lacks the figure or
// only one was emulated.
type ComparedFigure struct {
	bench.Key
	Unit    string   `json:"unit"`
	A       *float64 `json:"a,omitempty"`
	B       *float64 `json:"b,omitempty"`
	CountA  int      `json:"a_count"` // values of the median
	CountB  int      `json:"b_count"`
	Ratio   *float64 `json:"ratio,omitempty"`      // B / A
	Change  *float64 `json:"difference,omitempty"` // B - A
	Problem string   `json:"problem,omitempty"`

	a, b spread
}

// Compare sets two results side by side. Pairs of nodes match by name, or if both results have exactly one.
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
				// Counts such as retransmits may be 0. Then there is no ratio.
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

// namedAs renames the nodes of b if both results have exactly one pair.
func namedAs(a, b record.Record) (named record.Record, renamed bool) {
	// A recreated lab often has new names for the same two nodes. More pairs cannot be matched.
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

// compared ignores a failure if a later attempt succeeded.
func compared(d record.Record, r *results) Compared {
	failed := lists.Count(r.failures, func(f failure) bool { return !f.Retried })
	return Compared{Lab: d.Lab, Measured: d.Generated, Rackless: d.Rackless, Emulated: d.Emulated || r.emulated > 0,
		Samples: r.total, Failed: failed}
}

const notRecorded = "–"

// idle facts do not affect figures.
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

type condition struct {
	what    string
	matters bool // it can affect figures
	of      func(record.Record) string
}

func differences(a, b record.Record, renamed bool) []Difference {
	grave, others := []Difference{}, []Difference(nil)
	all := slices.Concat(measuredConditions(), commandConditions(a, b), labConditions(), environmentConditions(a, b),
		nameConditions(a, b, renamed))
	for _, c := range all {
		x, y := c.of(a), c.of(b)
		d := Difference{c.what, cmp.Or(x, notRecorded), cmp.Or(y, notRecorded), c.matters}
		switch {
		case x == y:
		case c.matters:
			grave = append(grave, d)
		default:
			others = append(others, d)
		}
	}
	return append(grave, others...)
}

func measuredConditions() []condition {
	var out []condition
	for _, c := range sampleConditions {
		out = append(out, condition{c.what, true, overSamples(c.text)})
	}
	return out
}

// commandConditions has one condition per common test: the client's command, or the server's if these are equal.
func commandConditions(a, b record.Record) []condition {
	var out []condition
	for _, test := range testsIn(a, b) {
		client := commandOf(test, func(s bench.Sample) string { return s.Command })
		server := commandOf(test, func(s bench.Sample) string { return s.ServerCommand })
		switch x, y := client(a), client(b); {
		case x == "" || y == "": // the figures show that one lacks the test
		case x != y:
			out = append(out, condition{"command of " + test, true, client})
		default: // the server's arguments are the same, unless it ran elsewhere
			out = append(out, condition{"server's command of " + test, true, server})
		}
	}
	return out
}

// commandOf leaves out parts that differ anyway.
func commandOf(test string, command func(s bench.Sample) string) func(record.Record) string {
	return overSamples(func(s bench.Sample) string {
		if s.Test != test {
			return ""
		}
		return runsOwn.ReplaceAllString(command(s), "")
	})
}

func labConditions() []condition {
	var out []condition
	for _, c := range nodeConditions {
		out = append(out, condition{c.what, true, func(d record.Record) string { return overNodes(d, c.text) }})
	}
	return append(out, condition{"checks", true, checksText})
}

func checksText(d record.Record) string {
	if len(d.Findings) > 0 && len(finding.NotOK(d.Findings)) == 0 {
		return "all ok"
	}
	return FindingsText(d.Findings)
}

// environmentConditions compares the values of a key that occurs several times, as notes do, as one.
func environmentConditions(a, b record.Record) []condition {
	var out []condition
	seen := map[string]bool{"tools": true} // already compared, from the samples
	for _, f := range slices.Concat(a.Environment, b.Environment) {
		if seen[f.Key] {
			continue
		}
		seen[f.Key] = true
		out = append(out, condition{f.Key, !slices.Contains(idle, f.Key), func(d record.Record) string {
			same := lists.Filter(d.Environment, func(g record.Fact) bool { return g.Key == f.Key })
			return joined(lists.Map(same, func(g record.Fact) string { return g.Value }), "; ")
		}})
	}
	return out
}

// nameConditions includes the number of nodes, which affects a shared switch, if both results have it.
func nameConditions(a, b record.Record, renamed bool) []condition {
	out := []condition{{"lab", false, func(d record.Record) string { return d.Lab }},
		{"nodes", len(a.Nodes) > 0 && len(b.Nodes) > 0, func(d record.Record) string { return number(len(d.Nodes)) }}}
	if renamed {
		out = append(out, condition{"names of the nodes", false, overSamples(pairText)})
	}
	return append(out, condition{"rackless", false, func(d record.Record) string { return d.Rackless }})
}

func pairText(s bench.Sample) string {
	if s.Server == "" {
		return ""
	}
	return between(s.Client, s.Server)
}

// number returns "" for 0, which means not recorded.
func number[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func joined(all []string, sep string) string {
	all = slices.DeleteFunc(lists.Distinct(all), func(s string) bool { return s == "" })
	return strings.Join(all, sep)
}

func overSamples(text func(s bench.Sample) string) func(record.Record) string {
	return func(d record.Record) string { return joined(lists.Map(d.Samples, text), "; ") }
}

// overNodes returns a single text if all nodes agree.
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

// runsOwn matches the TCP port and the server's address, which do not affect figures.
var runsOwn = regexp.MustCompile(
	` (-p|-P|-B|--port=?) ?\d{4,5}\b| (\d{1,3}\.){3}\d{1,3}$| [0-9a-fA-F:]*:[0-9a-fA-F:]+$`)

// CompareCSV writes one line for each figure, for other programs.
func CompareCSV(w io.Writer, c Comparison) error {
	records := [][]string{{"client", "server", "test", "bytes", "metric", "unit", "a", "a_count", "b", "b_count",
		"ratio", "difference", "problem"}}
	for _, f := range c.Figures {
		records = append(records, []string{f.Client, f.Server, f.Test, number(f.Bytes), f.Metric, f.Unit, optional(f.A),
			strconv.Itoa(f.CountA), optional(f.B), strconv.Itoa(f.CountB), optional(f.Ratio), optional(f.Change),
			f.Problem})
	}
	return show.Wrapf(csv.NewWriter(w).WriteAll(records), "write a comparison as CSV")
}

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return show.Exact(*v)
}
