package suggest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rackless/rackless/internal/parallel"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/study/stats"
)

const (
	// screened seeds score each choice of the search; other seeds measure the effects, because the best of many choices
	// owes something to its seeds.
	screened = 3
	// gain is the least improvement for which the search goes on.
	gain = 0.005
	// margin is the largest effect that does not matter.
	margin = 0.02
)

// Options limit a search.
type Options struct {
	Trials int // choices that are tried, at least 1
	// Enough ends the search early, so that time is left to measure the effects. It may be nil.
	Enough   func() bool
	Progress func(text string) // may be nil
}

// An Effect compares a choice with the file's own values, as a study does.
type Effect struct {
	Scale stats.Scale `json:"scale"`
	// Own and Suggested are means over the seeds, geometric ones for a ratio.
	Own        float64       `json:"own"`
	Suggested  float64       `json:"suggested"`
	Estimate   float64       `json:"estimate"` // ratio or difference, by Scale
	Low        *float64      `json:"low"`      // of the interval; nil with too few seeds
	High       *float64      `json:"high"`
	Confidence float64       `json:"confidence"` // of the interval
	Verdict    stats.Verdict `json:"verdict"`
	Reason     string        `json:"reason"`
}

// A Change is a parameter with a better value, and what it does alone to the p99 of the slowdown.
type Change struct {
	Name string `json:"name"`
	From string `json:"from"` // "none" if the file has no marks of ECN
	To   string `json:"to"`
	Effect
}

// A Total is what all changes together do to a figure.
type Total struct {
	Figure string `json:"figure"`
	Effect
}

// effects returns effects with verdicts. They are read together.
func effects(family []stats.Effect) (list []Effect) {
	for i, j := range stats.Judge(family) {
		e := family[i]
		one := Effect{Scale: e.Scale, Own: e.A, Suggested: e.B, Estimate: e.Estimate,
			Confidence: e.Interval.Confidence, Verdict: j.Verdict, Reason: j.Reason}
		if e.Interval.Bounded() {
			one.Low, one.High = &e.Interval.Low, &e.Interval.High
		}
		list = append(list, one)
	}
	return list
}

// A Suggestion is the result of a search.
type Suggestion struct {
	Name     string   `json:"name"`
	Trials   int      `json:"trials"`   // choices that were tried
	Seeds    int      `json:"seeds"`    // of each effect
	Stopped  bool     `json:"stopped"`  // before all trials or seeds were made
	Searched []string `json:"searched"` // parameters
	Changes  []Change `json:"changes"`
	Totals   []Total  `json:"totals,omitempty"`
	Host     []string `json:"host"`   // commands for a host
	Switch   []Plain  `json:"switch"` // plain values for a switch
}

// A Plain is a value for a switch.
type Plain struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// figures are compared. The first one is what the search improves.
var figures = []struct {
	name string
	of   func(*simulate.Result) float64
}{
	{"p99 of the slowdown", func(r *simulate.Result) float64 { return r.Slowdown.P99 }},
	{"median of the slowdown", func(r *simulate.Result) float64 { return r.Slowdown.Median }},
	{"end of the last flow, us", func(r *simulate.Result) float64 {
		return float64(r.Time) / float64(time.Microsecond)
	}},
	{"longest p99 of a queue, KiB", func(r *simulate.Result) float64 {
		most := int64(0)
		for _, q := range r.Queues {
			most = max(most, q.P99)
		}
		return float64(most) / 1024
	}},
	{"pauses", func(r *simulate.Result) float64 { return float64(r.Counts.Pauses) }},
	{"drops", func(r *simulate.Result) float64 { return float64(r.Counts.Drops) }},
}

// A searcher is one search.
type searcher struct {
	Options
	ctx    context.Context
	name   string
	text   []byte
	prefix string // of keys
	read   func(string) ([]byte, error)
	own    values
	marks  values // to begin with, if the file has none; nil if it has, or if NICs do not heed them
	seed   uint64
	score  map[string]float64
	tried  int
}

// Search searches for better values than those of a file, which has been parsed. It returns what it has when ctx ends.
func Search(ctx context.Context, name string, text []byte, read func(string) ([]byte, error),
	o Options) (*Suggestion, error) {
	c, err := simulate.Parse(name, text, read)
	if err != nil {
		return nil, err
	}
	if c.Level == simulate.FlowLevel {
		return nil, errors.New("better thresholds and timers cannot be found at flow level, which has no packets: " +
			"remove level: flow")
	}
	s := &searcher{Options: o, ctx: ctx, name: name, text: text, read: read, seed: c.Seed, score: map[string]float64{}}
	s.prefix = c.Prefix()
	if s.own = own(c); c.NIC.Controlled() && !s.own.marked() {
		s.marks = usual(c)
	}
	best, stopped, err := s.search()
	if err != nil {
		return nil, err
	}
	best = s.prune(best)
	out := &Suggestion{Name: c.Name, Trials: s.tried, Changes: []Change{},
		Searched: changed(values{}, s.own.with(s.marks))}
	if out.Seeds, err = s.effects(best, out); err != nil {
		return nil, err
	}
	out.Stopped = stopped || ctx.Err() != nil
	better, err := s.config(best, s.seed)
	if err != nil {
		return nil, err
	}
	out.Host, out.Switch = hostLines(better, changed(s.own, best)), plain(better)
	return out, nil
}

// config returns the file with other values and a seed.
func (s *searcher) config(v values, seed uint64) (*simulate.Config, error) {
	keys := v.keys(s.own)
	keys["seed"] = fmt.Sprint(seed)
	text := s.text
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		var err error
		if text, err = strictyaml.Edit(text, s.prefix+key, keys[key]); err != nil {
			return nil, err
		}
	}
	return simulate.Parse(s.name, text, s.read)
}

// A job is a simulation.
type job struct {
	v    values
	seed uint64
}

// run simulates jobs on all cores, and returns their results in order. A result is nil if the values are refused.
func (s *searcher) run(jobs []job) ([]*simulate.Result, error) {
	var out []*simulate.Result
	err := parallel.InOrder(s.ctx, jobs, func(ctx context.Context, j job) *simulate.Result {
		c, err := s.config(j.v, j.seed)
		if err != nil {
			return nil
		}
		return simulate.Run(c, func() bool { return ctx.Err() != nil })
	}, func(r *simulate.Result) error {
		if r != nil && r.Counts.Stopped {
			return context.Canceled
		}
		out = append(out, r)
		return nil
	})
	return out, cmp.Or(s.ctx.Err(), err)
}

// judge returns the score of values: the mean logarithm of the figure that the search improves. Values that are
// refused, or with which flows do not end, are worse than all others.
func (s *searcher) judge(v values) (float64, error) {
	if have, ok := s.score[v.text()]; ok {
		return have, nil
	}
	var jobs []job
	for i := range uint64(screened) {
		jobs = append(jobs, job{v, s.seed + i})
	}
	results, err := s.run(jobs)
	if err != nil {
		return 0, err
	}
	s.tried++
	sum := 0.0
	for _, r := range results {
		if r == nil || r.Unfinished > 0 || r.Slowdown == nil {
			sum = math.Inf(1)
			break
		}
		sum += math.Log(figures[0].of(r))
	}
	s.score[v.text()] = sum / screened
	return sum / screened, nil
}

// search moves in one direction after the other while that helps, with large steps first.
func (s *searcher) search() (best values, stopped bool, err error) {
	best = s.own
	least, err := s.judge(best)
	if err != nil {
		return nil, true, errors.New("the search ended before the file's own values were simulated")
	}
	if math.IsInf(least, 1) {
		return nil, false, errors.New("flows do not end with the file's own values, so nothing can be compared: " +
			"raise until, or send less")
	}
	if s.marks != nil {
		if least, stopped, err = s.improve(&best, least, []values{best.with(s.marks)}); err != nil || stopped {
			return best, true, nil // what was found until then
		}
	}
	for _, factors := range [][]float64{{0.25, 4}, {0.5, 2}, {0.7, 1.4}} {
		for again := true; again; {
			before := least
			for _, what := range directions(best) {
				least, stopped, err = s.improve(&best, least, moves(best, what, factors))
				if err != nil || stopped {
					return best, s.tried < s.Trials, nil
				}
			}
			again = least < before
		}
	}
	return best, false, nil
}

// improve tries choices, and sets best if one of them is better than a score. It returns the score of best.
func (s *searcher) improve(best *values, least float64, choices []values) (score float64, stopped bool, err error) {
	for _, next := range choices {
		if s.tried >= s.Trials || s.Enough != nil && s.Enough() {
			return least, true, nil
		}
		score, err := s.judge(next)
		if err != nil {
			return least, true, err
		}
		if score < least-gain {
			*best, least = next, score
		}
		s.tell(fmt.Sprintf("%s, p99 of the slowdown %.2f", words.Count(s.tried, "trial"), math.Exp(least)))
	}
	return least, false, nil
}

// prune takes changes back that do not help beside the others.
func (s *searcher) prune(best values) values {
	for _, name := range changed(s.own, best) {
		old, ok := s.own[name]
		without := best.with(values{name: old})
		if !ok || !allowed(without) {
			continue
		}
		least, err := s.judge(best)
		if err != nil {
			return best
		}
		if score, err := s.judge(without); err == nil && score < least+gain {
			best = without
		}
	}
	return best
}

func (s *searcher) tell(text string) {
	if s.Progress != nil {
		s.Progress(text)
	}
}

// effects measures what the changes do, each alone and all together, and returns the number of seeds.
func (s *searcher) effects(best values, out *Suggestion) (seeds int, err error) {
	names := changed(s.own, best)
	if s.marks != nil && best.marked() {
		// Marks are one change if the file has none.
		names = slices.DeleteFunc(names, func(n string) bool { return n == kmin || n == kmax || n == pmax })
		names = append([]string{ecn}, names...)
	}
	if len(names) == 0 {
		return 0, nil
	}
	all := []values{s.own, best}
	for _, name := range names {
		one := values{name: best[name]}
		if name == ecn {
			one = values{kmin: best[kmin], kmax: best[kmax], pmax: best[pmax]}
		}
		all = append(all, s.own.with(one))
	}
	blocks := max(8, stats.MinBlocks(0.05, len(names))+1)
	results := make([][]*simulate.Result, 0, blocks)
	for b := range blocks {
		var jobs []job
		for _, v := range all {
			jobs = append(jobs, job{v, s.seed + screened + uint64(b)})
		}
		got, err := s.run(jobs)
		if err != nil {
			break // with the blocks until then
		}
		results = append(results, got)
		s.tell(fmt.Sprintf("seed %d of %d", b+1, blocks))
	}
	if len(results) == 0 {
		return 0, nil
	}
	var alone []stats.Effect
	for i := range names {
		e, err := compare(results, 2+i, figures[0].of)
		if err != nil {
			return 0, err
		}
		alone = append(alone, e)
	}
	for i, e := range effects(alone) {
		from, to := shown(names[i], s.own), shown(names[i], best)
		if names[i] == ecn {
			from = "none"
		}
		out.Changes = append(out.Changes, Change{names[i], from, to, e})
	}
	var together []stats.Effect
	for _, f := range figures {
		e, err := compare(results, 1, f.of)
		if err != nil {
			return 0, err
		}
		if e.A != 0 || e.B != 0 {
			out.Totals = append(out.Totals, Total{Figure: f.name})
			together = append(together, e)
		}
	}
	for i, e := range effects(together) {
		out.Totals[i].Effect = e
	}
	return len(results), nil
}

// compare compares a choice with the first one, by seed. Figures that can be 0 are compared by their difference.
func compare(results [][]*simulate.Result, level int, of func(*simulate.Result) float64) (stats.Effect, error) {
	q := stats.Question{Direction: stats.LowerIsBetter, Margin: margin}
	var blocks []stats.Block
	for _, row := range results {
		a, b := row[0], row[level]
		if a == nil || b == nil || a.Slowdown == nil || b.Slowdown == nil {
			continue
		}
		blocks = append(blocks, stats.Block{A: []float64{of(a)}, B: []float64{of(b)}})
	}
	e, err := stats.Contrast(blocks, q)
	if errors.Is(err, stats.ErrNotPositive) {
		q.Scale, q.Margin = stats.Difference, 0
		e, err = stats.Contrast(blocks, q)
	}
	return e, err
}
