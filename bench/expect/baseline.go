package expect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
)

// A Baseline holds the measured figures of a lab with their bounds, as in ReFrame.
type Baseline struct {
	Schema      string     `json:"schema"` // always BaselineSchema
	Lab         string     `json:"lab"`
	Made        string     `json:"made"` // RFC 3339 in UTC
	Rackless    string     `json:"rackless"`
	Accelerator string     `json:"accelerator"`
	Emulated    bool       `json:"emulated"`
	Figures     []Expected `json:"figures"`
}

// BaselineSchema names the form of a Baseline.
const BaselineSchema = "rackless/baseline/v1"

// An Expected is one figure of a baseline. It may be edited by hand.
type Expected struct {
	bench.Key
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Lower and Upper bound a figure, as a fraction of Value; nil means unbounded, as a lower latency is.
	Lower *float64 `json:"lower,omitempty"`
	Upper *float64 `json:"upper,omitempty"`
}

// steady lists the metrics that repeat from run to run. Extremes and spreads do not.
var steady = []string{
	bench.MetricBWAverage, bench.MetricMessageRate, bench.MetricLatencyTypical, bench.MetricLatencyAverage,
	bench.MetricLatencyP99, bench.MetricTPSAverage,
	bench.MetricThroughput, bench.MetricEventRate,
	bench.MetricMemoryBandwidth, bench.MetricLoadLatency, bench.MetricBusBandwidth, bench.MetricCopyBandwidth,
	bench.MetricCollectiveTime, bench.MetricRating, bench.MetricRatingCompress, bench.MetricRatingDecompress,
}

// DefaultTolerance is the allowed difference from a baseline.
const DefaultTolerance = 0.1

// A Tolerance is in fractions. Bad bounds the bad side only; Lower and Upper, if not 0, bound their sides.
type Tolerance struct{ Bad, Lower, Upper float64 }

// check refuses a tolerance that bounds nothing: such a baseline could not fail.
func (t Tolerance) check() error {
	for _, share := range []float64{t.Bad, t.Lower, t.Upper} {
		if !(share >= 0 && share < 1) || t == (Tolerance{}) {
			return fmt.Errorf("tolerance %v: want more than 0 and less than 1", share)
		}
	}
	return nil
}

func (t Tolerance) bounds(lowerIsBetter bool) (lower, upper *float64) {
	bound := func(share float64) *float64 {
		if share == 0 {
			return nil
		}
		return &share
	}
	switch {
	case t.Bad == 0:
		return bound(t.Lower), bound(t.Upper)
	case lowerIsBetter:
		return bound(t.Lower), &t.Bad
	}
	return &t.Bad, bound(t.Upper)
}

// NewBaseline takes the median of each repeatable figure, with the tolerance of its metric, or else all.
func NewBaseline(samples []bench.Sample, all Tolerance, byMetric map[string]Tolerance) (*Baseline, error) {
	if err := all.check(); err != nil {
		return nil, err
	}
	for _, metric := range lists.Keys(byMetric) {
		if !slices.Contains(steady, metric) {
			return nil, fmt.Errorf("tolerance of %s: a baseline has none; it has %s", metric,
				strings.Join(steady, ", "))
		}
		if err := byMetric[metric].check(); err != nil {
			return nil, fmt.Errorf("%s: %w", metric, err)
		}
	}
	b := &Baseline{Schema: BaselineSchema}
	values := map[bench.Key][]float64{}
	for _, s := range samples {
		if s.Error != "" {
			return nil, fmt.Errorf("%s from %s failed: %s; a measurement with a failure is no baseline", s.Test,
				s.Client, s.Error)
		}
		if !slices.Contains(steady, s.Metric) {
			continue
		}
		e := Expected{Key: s.Key(), Unit: s.Unit}
		// Bounds depend only on the metric.
		if values[e.Key] == nil {
			e.Lower, e.Upper = cmp.Or(byMetric[s.Metric], all).bounds(bench.LowerIsBetter(s.Metric, s.Unit))
			b.Figures = append(b.Figures, e)
		}
		values[e.Key] = append(values[e.Key], s.Value)
		b.Accelerator, b.Emulated = s.Accelerator, b.Emulated || s.Emulated
	}
	if len(b.Figures) == 0 {
		return nil, errors.New("the measurement has no figure that a baseline keeps")
	}
	for i := range b.Figures {
		b.Figures[i].Value = bench.Median(values[b.Figures[i].Key])
	}
	return b, nil
}

// A Deviation compares a figure of a baseline with the current measurement.
type Deviation struct {
	Expected
	Measured *float64 `json:"measured,omitempty"` // nil if it was not measured, or failed
	Change   float64  `json:"change,omitempty"`   // as a fraction of the expected value
	OK       bool     `json:"ok"`
	Reason   string   `json:"reason,omitempty"`
}

// ErrOtherKind is returned for comparing emulated figures with hardware figures.
var ErrOtherKind = errors.New("emulated figures and those of hardware cannot be compared")

// Check fails missing figures, and ignores figures that are not in the baseline.
func (b *Baseline) Check(samples []bench.Sample) ([]Deviation, error) {
	values, failed := map[bench.Key][]float64{}, map[bench.Key]string{}
	for _, s := range samples {
		// Emulated figures depend on the emulating machine.
		if s.Emulated != b.Emulated {
			return nil, fmt.Errorf("%w: emulated is %v in the baseline of lab %s, and %v in the measurement",
				ErrOtherKind, b.Emulated, b.Lab, s.Emulated)
		}
		if s.Error != "" {
			failed[bench.Key{Test: s.Test, Client: s.Client, Server: s.Server}] = s.Error
			continue
		}
		values[s.Key()] = append(values[s.Key()], s.Value)
	}
	var all []Deviation
	// Over the baseline: a test that was left out must fail, or a shrinking suite would pass.
	for _, e := range b.Figures {
		d := Deviation{Expected: e}
		v := values[e.Key]
		switch message := failed[bench.Key{Test: e.Test, Client: e.Client, Server: e.Server}]; {
		case len(v) == 0 && message != "":
			d.Reason = "it failed: " + message
		case len(v) == 0:
			d.Reason = "it was not measured"
		default:
			d.Measured = new(bench.Median(v))
			d.Change = *d.Measured/e.Value - 1
			switch {
			case e.Lower != nil && d.Change < -*e.Lower:
				d.Reason = fmt.Sprintf("%.1f%% below, and %g%% are allowed", -100*d.Change, 100**e.Lower)
			case e.Upper != nil && d.Change > *e.Upper:
				d.Reason = fmt.Sprintf("%.1f%% above, and %g%% are allowed", 100*d.Change, 100**e.Upper)
			default:
				d.OK = true
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// ReadBaseline names the figure in its errors.
func ReadBaseline(r io.Reader) (*Baseline, error) {
	b := &Baseline{}
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields() // otherwise a misspelled bound would be no bound
	if err := dec.Decode(b); err != nil {
		return nil, err
	}
	switch {
	case b.Schema != BaselineSchema:
		return nil, fmt.Errorf("schema %q, want %q", b.Schema, BaselineSchema)
	case len(b.Figures) == 0:
		return nil, errors.New("it has no figures")
	}
	seen := map[bench.Key]bool{}
	for i := range b.Figures {
		e := &b.Figures[i]
		bad := func(format string, args ...any) error {
			return fmt.Errorf("figure %d, %s %s: %s", i+1, e.Test, e.Metric, fmt.Sprintf(format, args...))
		}
		switch {
		case e.Test == "" || e.Client == "" || e.Metric == "":
			return nil, bad("test, client and metric are needed")
		case seen[e.Key]:
			return nil, bad("it is there twice")
		case !(e.Value > 0) || math.IsInf(e.Value, 0):
			return nil, bad("value %v: want a number above 0", e.Value)
		case e.Lower != nil && !(*e.Lower >= 0):
			return nil, bad("lower %v: want a share of 0 or more", *e.Lower)
		case e.Upper != nil && !(*e.Upper >= 0):
			return nil, bad("upper %v: want a share of 0 or more", *e.Upper)
		case cmp.Or(e.Lower, e.Upper) == nil:
			return nil, bad("it has neither a lower nor an upper bound, and so cannot fail: leave it out")
		}
		seen[e.Key] = true
	}
	return b, nil
}

// ParseTolerances reads "10%" or "0.1" for all metrics, "latency_p99=20%" for the bad side of one, and
// "bw_average=2%:5%" for below and above.
func ParseTolerances(words []string) (all Tolerance, byMetric map[string]Tolerance, err error) {
	all.Bad, byMetric = DefaultTolerance, map[string]Tolerance{}
	for _, word := range words {
		// The last word for a metric counts.
		metric, shares, own := strings.Cut(word, "=")
		if !own {
			if all.Bad, err = parseShare(word); err != nil {
				return all, nil, err
			}
			continue
		}
		var t Tolerance
		if lower, upper, both := strings.Cut(shares, ":"); !both {
			t.Bad, err = parseShare(shares)
		} else if t.Lower, err = parseShare(lower); err == nil {
			t.Upper, err = parseShare(upper)
		}
		if err != nil {
			return all, nil, fmt.Errorf("%s: %w", metric, err)
		}
		byMetric[metric] = t
	}
	return all, byMetric, nil
}

func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || math.IsNaN(v) || v <= 0 || v >= 1 {
		return 0, fmt.Errorf("%q: want more than 0%% and less than 100%%, as 10%% or 0.1", text)
	}
	return v, nil
}
