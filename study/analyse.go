package study

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study/stats"
)

// A Result is the outcome of a study.
type Result struct {
	Study       string       `json:"study"`
	Question    string       `json:"question,omitempty"`
	Confidence  float64      `json:"confidence"`
	Margin      float64      `json:"margin"`
	Blocks      int          `json:"blocks"` // every cell was measured at least once
	Runs        Counts       `json:"runs"`
	Seconds     float64      `json:"seconds"` // from the first start to the last end
	Comparisons []Comparison `json:"comparisons"`
	Controls    []Comparison `json:"controls,omitempty"`
	Series      []Series     `json:"series"`
	Confounds   []string     `json:"confounds,omitempty"` // confounding influences that were found
	Failures    []Failure    `json:"failures,omitempty"`
	Words       []string     `json:"words"` // the conclusions, one sentence each
}

// Counts counts runs by outcome.
type Counts struct {
	Done      int `json:"done"`
	Failed    int `json:"failed"`
	Disturbed int `json:"disturbed"`
}

// A Comparison compares one metric at two levels of a factor.
type Comparison struct {
	Factor string      `json:"factor"`
	A      string      `json:"a"`
	B      string      `json:"b"` // the compared level
	Where  string      `json:"where,omitempty"`
	Cells  [2][]string `json:"-"`
	Quantity
	Better stats.Direction  `json:"better"`
	Effect *stats.Effect    `json:"effect,omitempty"` // nil if there is nothing to compare
	Judged *stats.Judgement `json:"judgement,omitempty"`
	// remarks on drift and on percentiles
	Drift []string `json:"drift,omitempty"`
	// Confounded lists the controls that moved between these levels.
	Confounded []string `json:"confounded,omitempty"`
	Problem    string   `json:"problem,omitempty"`
	Lost       int      `json:"lost_blocks,omitempty"` // blocks without a value at one of the levels
}

// A Series contains the values of one metric in one cell, in order of time.
type Series struct {
	Cell string `json:"cell"`
	Quantity
	Median float64   `json:"median"`
	Low    float64   `json:"min"`
	High   float64   `json:"max"`
	Values []float64 `json:"values"`
	Blocks []int     `json:"blocks"` // block number of each value
	// Quantiles are from the merged histograms of all latencies, in us. Empty if the test keeps none.
	Quantiles []stats.Point `json:"distribution,omitempty"`
	Count     int64         `json:"count,omitempty"` // number of latencies in Quantiles
}

// A Failure says how often a test failed in a cell.
type Failure struct {
	Cell  string `json:"cell"`
	Runs  int    `json:"runs"`
	Tried int    `json:"of"`
	Error string `json:"error"` // of the last failed run
}

// A Quantity identifies comparable values.
type Quantity struct {
	Test   string `json:"test"`
	Metric string `json:"metric"`
	Bytes  int64  `json:"bytes,omitempty"`
	Unit   string `json:"unit"`
}

func (q Quantity) spoken() string {
	text := strings.ReplaceAll(q.Metric, "_", " ") + " of " + q.Test
	if q.Bytes > 0 {
		text += ", " + words.Exact(q.Bytes)
	}
	return text
}

// Analyse evaluates the runs of a study. Its result depends only on the runs and the seed.
func Analyse(d *Data) (*Result, error) {
	s := d.Spec
	r := &Result{Study: s.Name, Question: s.Question, Confidence: s.Confidence, Margin: s.Margin}
	a := &analysis{spec: s, result: r, values: map[Quantity]map[string]map[int][]float64{}}
	a.groupValues(d.Runs)
	if len(a.order) == 0 {
		return nil, errors.New("no run has given a figure: there is nothing to compare")
	}
	if err := a.series(d.Runs); err != nil {
		return nil, err
	}
	a.compare()
	r.Confounds = append(s.unseen(), confounds(d.Runs)...)
	r.Words = append(s.elsewhere(), a.words()...)
	return r, nil
}

type analysis struct {
	spec      *Spec
	result    *Result
	order     []Quantity                                // in order of first appearance
	values    map[Quantity]map[string]map[int][]float64 // by quantity, cell and block
	latencies map[latencyKey][]*stats.Histogram
}

type latencyKey struct {
	cell, test string
	bytes      int64
	block      int
}

// counted keeps, for each place and test, only the values of the first undisturbed attempt that has any.
func counted(runs []Observation) []Observation {
	type place struct {
		block, place int
		test         string
	}
	taken := map[place]int64{}
	var out []Observation
	for _, o := range runs {
		if o.Status != StatusDone && o.Status != StatusFailed {
			continue
		}
		c := o
		c.Values, c.Histograms = nil, nil
		// Taking the last or the best of several attempts would let retries choose results.
		for _, v := range o.Values {
			k := place{o.Block, o.Place, v.Test}
			if run, ok := taken[k]; ok && run != o.Run {
				continue
			}
			taken[k] = o.Run
			c.Values = append(c.Values, v)
		}
		c.Histograms = append(c.Histograms, lists.Filter(o.Histograms,
			func(h Latencies) bool { return taken[place{o.Block, o.Place, h.Test}] == o.Run })...)
		out = append(out, c)
	}
	return out
}

func (a *analysis) groupValues(runs []Observation) {
	s := a.spec
	var cells group.List[string, Failure]
	for _, o := range runs {
		cell := s.SettingsText(o.Cell)
		f := cells.At(cell, Failure{Cell: cell})
		f.Tried++
		switch o.Status {
		case StatusDone:
			a.result.Runs.Done++
		case StatusDisturbed:
			a.result.Runs.Disturbed++
		default:
			a.result.Runs.Failed++
			f.Runs++
			f.Error = o.Error
		}
	}
	// Failures are reported by cell: a setting that fails half of the time must not win by the other half.
	failed := func(f Failure) bool { return f.Runs > 0 }
	a.result.Failures = append(a.result.Failures, lists.Filter(cells.All, failed)...)
	for _, o := range counted(runs) {
		cell := s.SettingsText(o.Cell)
		for _, v := range o.figures() {
			k := v.Quantity()
			if a.values[k] == nil {
				a.values[k] = map[string]map[int][]float64{}
				a.order = append(a.order, k)
			}
			byBlock := a.values[k][cell]
			if byBlock == nil {
				byBlock = map[int][]float64{}
				a.values[k][cell] = byBlock
			}
			byBlock[o.Block] = append(byBlock[o.Block], v.Value)
		}
	}
	if len(runs) > 0 {
		// Pauses and boots count: the machine can drift during them.
		last := runs[len(runs)-1]
		a.result.Seconds = last.Started.Sub(runs[0].Started).Seconds() + last.Seconds
	}
}

// The noise floor is a control of every study: the time of a fixed piece of arithmetic on the host. Each run times it
// after the cell's settings are applied, to see their side effects, and before the load, which alone may change it.
const (
	floorTest   = "noise floor of the host"
	floorMetric = "duration"
)

// figures adds the noise floor to a run's values. Early releases measured it only before the cell's settings.
func (o *Observation) figures() []Value {
	if o.Before == nil || len(o.Values) == 0 {
		return o.Values
	}
	loop := o.Before.CellLoop
	if loop <= 0 {
		loop = o.Before.Loop
	}
	if loop <= 0 {
		return o.Values
	}
	return append(slices.Clip(o.Values), Value{Test: floorTest, Metric: floorMetric, Value: loop, Unit: "ms"})
}

func (s *Spec) compared(k Quantity) (ok, control bool) {
	if k.Test == floorTest {
		return true, true
	}
	for _, m := range s.Measure {
		if m.Test != k.Test || m.Bytes != 0 && m.Bytes != k.Bytes {
			continue
		}
		metrics := m.Metrics
		if len(metrics) == 0 {
			metrics = primary(m.Test)
		}
		if len(metrics) == 0 || slices.Contains(metrics, k.Metric) {
			return true, m.Control
		}
	}
	return false, false
}

func (a *analysis) series(runs []Observation) error {
	s := a.spec
	// Percentiles cannot be averaged, so histograms are merged.
	merged := map[latencyKey]*stats.Histogram{} // block is 0 in the key
	a.latencies = map[latencyKey][]*stats.Histogram{}
	for _, o := range counted(runs) {
		for _, h := range o.Histograms {
			k := latencyKey{cell: s.SettingsText(o.Cell), test: h.Test, bytes: h.Bytes}
			decoded, err := stats.DecodeHistogram(h.Data)
			if err == nil {
				if merged[k] == nil {
					merged[k] = stats.NewHistogram()
				}
				err = merged[k].Merge(decoded)
			}
			if err != nil {
				return fmt.Errorf("run %d, latencies of %s: %w", o.Run, h.Test, err)
			}
			at := k
			at.block = o.Block
			a.latencies[at] = append(a.latencies[at], decoded)
		}
	}
	complete := map[int]int{}
	cells := s.CellTexts()
	for _, k := range a.order {
		for _, cell := range cells {
			byBlock := a.values[k][cell]
			if len(byBlock) == 0 {
				continue
			}
			x := Series{Cell: cell, Quantity: k}
			for _, b := range sortedKeys(byBlock) {
				for _, v := range byBlock[b] {
					x.Values, x.Blocks = append(x.Values, v), append(x.Blocks, b)
				}
				if k == a.order[0] {
					complete[b]++
				}
			}
			x.Median, x.Low, x.High = stats.Median(x.Values), slices.Min(x.Values), slices.Max(x.Values)
			if h := merged[latencyKey{cell, k.Test, k.Bytes, 0}]; h != nil && k.Metric == "latency_typical" {
				x.Quantiles, x.Count = h.Distribution(), h.Count()
			}
			a.result.Series = append(a.result.Series, x)
		}
	}
	for _, n := range complete {
		if n == len(cells) {
			a.result.Blocks++
		}
	}
	return nil
}

// CellTexts returns the distinct cells as text.
func (s *Spec) CellTexts() []string {
	var all []string
	for _, c := range s.Cells() {
		if t := s.CellText(c); !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// sortedKeys returns the blocks in order of time, on which halves and drift detection depend.
func sortedKeys(m map[int][]float64) []int { return lists.Keys(m) }

// compare makes one family of all judged metrics, because their verdicts are read together.
func (a *analysis) compare() {
	s := a.spec
	var all, controls []Comparison
	for _, p := range s.Pairings() {
		for _, k := range a.order {
			ok, control := s.compared(k)
			if !ok {
				continue
			}
			if c := a.contrast(p, k); control {
				controls = append(controls, c)
			} else {
				all = append(all, c)
			}
		}
	}
	Judge(all)
	Judge(controls)
	for i := range all {
		var effects []stats.Effect
		var of []*Comparison
		for j := range controls {
			// only controls at the same levels of all factors
			c := &controls[j]
			if c.Factor == all[i].Factor && c.B == all[i].B && c.Where == all[i].Where && c.Effect != nil {
				effects, of = append(effects, *c.Effect), append(of, c)
			}
		}
		for _, m := range stats.Moved(effects) {
			all[i].Confounded = append(all[i].Confounded, fmt.Sprintf("%s moved too: %s", of[m].spoken(), of[m].Text()))
		}
	}
	a.result.Comparisons, a.result.Controls = all, controls
}

// Judge judges a family of comparisons, whose verdicts are read together.
func Judge(family []Comparison) {
	var effects []stats.Effect
	var at []int
	for i := range family {
		if family[i].Effect != nil {
			effects, at = append(effects, *family[i].Effect), append(at, i)
		}
	}
	for i, j := range stats.Judge(effects) {
		family[at[i]].Judged = &j
	}
}

func (a *analysis) contrast(p Pairing, k Quantity) Comparison {
	s := a.spec
	factor, levelA, levelB := s.sides(p)
	aa := levelA == levelB
	c := Comparison{
		Factor: factor, A: levelA, B: levelB, Where: s.where(p), Cells: s.cells(p),
		Quantity: k, Better: stats.HigherIsBetter,
	}
	if bench.LowerIsBetter(k.Metric, k.Unit) {
		c.Better = stats.LowerIsBetter
	}
	va, vb := a.completeBlocks(k, c.Cells[0]), a.completeBlocks(k, c.Cells[1])
	var blocks []stats.Block
	for _, b := range sortedKeys(va) {
		x := stats.Block{A: va[b], B: vb[b]}
		if aa {
			x.A, x.B = halves(va[b])
		}
		if len(x.A) == 0 || len(x.B) == 0 {
			c.Lost++
			continue
		}
		blocks = append(blocks, x)
	}
	for b := range vb {
		if va[b] == nil {
			c.Lost++
		}
	}
	if len(blocks) == 0 {
		c.Problem = "there is no block with a figure of both levels"
		return c
	}
	if quantile, ok := quantiles[k.Metric]; ok {
		e, err := a.quantile(k, quantile, c, aa)
		if err == nil {
			c.Effect = e
			return c
		}
		c.Drift = append(c.Drift, fmt.Sprintf("percentile: it compares what each run had, and not all latencies "+
			"together: %v", err))
	}
	q := stats.Question{Direction: c.Better, Margin: s.Margin, Confidence: s.Confidence, Seed: s.Seed}
	e, err := stats.Contrast(blocks, q)
	if errors.Is(err, stats.ErrNotPositive) {
		// Counts of events may be zero and have no known relevant difference, so nothing is called equivalent.
		q.Scale, q.Margin = stats.Difference, 0
		e, err = stats.Contrast(blocks, q)
	}
	if err != nil {
		c.Problem = err.Error()
		return c
	}
	c.Effect = &e
	if remarks, err := stats.Drifting(blocks, q); err == nil { // with few blocks drift cannot be detected
		c.Drift = append(c.Drift, remarks...)
	}
	return c
}

// quantiles maps metrics to the quantile of all latencies together; percentiles cannot be averaged.
var quantiles = map[string]float64{"latency_typical": 0.5, "latency_p99": 0.99, "latency_p99.9": 0.999}

// quantile compares a quantile of the merged latencies at two levels. It returns an error if a run did not keep its
// latencies or there are too few; the caller then compares the percentiles that the tool printed.
func (a *analysis) quantile(k Quantity, quantile float64, c Comparison, aa bool) (*stats.Effect, error) {
	var blocks []stats.HistogramBlock
	va, vb := a.completeBlocks(k, c.Cells[0]), a.completeBlocks(k, c.Cells[1])
	for _, b := range sortedKeys(va) {
		if len(vb[b]) == 0 {
			continue
		}
		x := stats.HistogramBlock{A: a.histograms(k, c.Cells[0], b), B: a.histograms(k, c.Cells[1], b)}
		if missing := len(va[b]) - len(x.A) + len(vb[b]) - len(x.B); missing != 0 {
			return nil, fmt.Errorf("those of %d runs in block %d were not kept", missing, b)
		}
		if aa {
			x.A, x.B = halves(x.A)
		}
		blocks = append(blocks, x)
	}
	q := stats.Question{Direction: c.Better, Margin: a.spec.Margin, Confidence: a.spec.Confidence, Seed: a.spec.Seed}
	e, err := stats.QuantileContrast(blocks, quantile, q)
	return &e, err
}

func (a *analysis) histograms(k Quantity, cells []string, block int) []*stats.Histogram {
	return lists.Flat(cells,
		func(c string) []*stats.Histogram { return a.latencies[latencyKey{c, k.Test, k.Bytes, block}] })
}

// completeBlocks omits blocks that lack one of the cells: they would weight the other factors unequally.
func (a *analysis) completeBlocks(k Quantity, cells []string) map[int][]float64 {
	all := map[int][]float64{}
	have := map[int]int{}
	for _, c := range cells {
		for b, v := range a.values[k][c] {
			all[b] = append(all[b], v...)
			have[b]++
		}
	}
	for b, n := range have {
		if n < len(cells) {
			delete(all, b)
		}
	}
	return all
}

// halves splits a block that compares a level with itself. In A B B A, the first and last form one half.
func halves[T any](values []T) (a, b []T) {
	for i, v := range values {
		if i%4 == 0 || i%4 == 3 {
			a = append(a, v)
		} else {
			b = append(b, v)
		}
	}
	return a, b
}
