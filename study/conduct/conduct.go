// Package conduct makes the runs of a study: in the order of the design. Each run is recorded when it begins and when
// it ends, so that the study continues after a kill or a reboot. What a run is made on is behind an interface.
//
// A run is in the file before it begins, with the status "running", and gets its figures in one transaction when
// it ends. So whatever ends the process leaves either a whole run or one that is found running by the next
// start, which counts it as cut off: it says nothing of its cell, and is no attempt at it. A run that failed, or
// that something disturbed, stays in the file and is made again, up to MaxAttempts times, in its place in the
// order. Blocks stay complete in this way, and nothing depends on what the figures are.
package conduct

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/study/store"
)

// A Rig is what is measured on.
type Rig interface {
	// Rest ends what a run has started, so that the machine is idle.
	Rest(ctx context.Context) error
	// Loop measures the noise floor of the machine at rest, in ms.
	Loop(ctx context.Context) (float64, error)
	// Ready says why the machine, as it has been started, cannot be led into a cell; the study ends
	// there, before the run begins, and can be gone on with.
	Ready(settings map[string]string) error
	// Apply sets the machine up for a cell, except for its load.
	Apply(ctx context.Context, settings map[string]string) error
	// Load starts the load of the cell that was applied, if it has any. Rest ends it.
	Load(ctx context.Context, settings map[string]string) error
	// State reads what may move a figure without any factor having a part in it.
	State(loop float64) (*study.HostState, error)
	// Environment says what is measured on, once a cell has been applied.
	Environment() []study.Fact
	// Measure makes one test. A measurement that failed is a sample with an error; an error ends the study.
	Measure(ctx context.Context, m study.Measure) ([]bench.Sample, error)
}

// A StopError ends the study, where another error would end the run. Apply may return one.
type StopError struct{ Err error }

func (e *StopError) Error() string { return e.Err.Error() }
func (e *StopError) Unwrap() error { return e.Err }

// cutOff begins the error of a run that says nothing of its cell: it is no attempt at it.
const cutOff = "cut off: "

// MaxAttempts is how often a run is tried that fails, or that something disturbs.
const MaxAttempts = 3

// A Conductor makes the runs of a study.
type Conductor struct {
	DB    *store.DB
	Study *store.Study
	Spec  *study.Spec
	Rig   Rig
	Now   func() time.Time // nil: time.Now
	// Rackless is the version that makes the runs, which a study that is gone on with may have changed.
	Rackless string
	// Blocks ends Run after this many blocks, made now or before; 0: all of the study.
	Blocks int

	Progress func(Progress) // told before and after each run; may be nil

	loops  []float64
	took   []float64 // seconds of the runs so far
	unable int       // runs in a row whose cell could not be had
}

// Progress is how far a study is.
type Progress struct {
	Run     study.Run
	Cell    string
	Attempt int
	Status  string // "" as it begins
	Error   string
	Done    int           // runs that are done
	Total   int           // of a study with a budget, as many as it seems to hold; 0 where it is not known yet
	Left    time.Duration // about; 0 where it is not known yet
}

// Digest is the fingerprint of what a study rests on: its file and the lab file.
func Digest(files ...[]byte) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d\n", len(f))
		h.Write(f)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (c *Conductor) now() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// place names a run in the order.
type place struct{ block, place int }

// A slot is what has become of the run at a place.
type slot struct {
	attempts int // numbers that are taken
	tries    int // attempts that came to their end: one that was cut off says nothing about the run
	done     bool
}

// open reports whether the run is still to be made.
func (s *slot) open() bool { return !s.done && s.tries < MaxAttempts }

// Run makes all runs that are still to be made, of the first Blocks blocks. It returns when the last has ended, when
// the budget does not hold another block, or with the first error that no repetition would mend.
func (c *Conductor) Run(ctx context.Context) error {
	slots, spent, err := c.soFar(ctx)
	if err != nil {
		return err
	}
	settled := 0 // runs that are done, or given up
	for _, s := range slots {
		if !s.open() {
			settled++
		}
	}
	perBlock := len(c.Spec.Block(1))
	began := c.now()
	used := func() time.Duration { return spent + c.now().Sub(began) }
	// A study that is gone on with walks the same order again: what is settled is left out of each block, and the rest
	// keeps its place.
	last := c.last()
	for block := 1; last == 0 || block <= last; block++ {
		left := slices.DeleteFunc(c.Spec.Block(block), func(r study.Run) bool {
			s := slots[place{r.Block, r.Place}]
			return s != nil && !s.open()
		})
		if len(left) == 0 {
			continue
		}
		// Of a study none of whose runs counts so far nothing is known, but that the time is over one day.
		if b := c.Spec.Budget; b > 0 && used()+c.takes(len(left)) > b {
			return nil
		}
		for _, r := range left {
			p := place{r.Block, r.Place}
			slots[p] = cmp.Or(slots[p], &slot{})
			// At once, while the machine is as it was: a run that is made up for at the end would stand outside of its
			// block.
			for s := slots[p]; s.open(); {
				s.attempts++
				s.tries++
				status, err := c.one(ctx, r, s.attempts, settled, c.total(settled, perBlock, used()))
				if err != nil {
					return err
				}
				s.done = status == study.StatusDone
			}
			settled++
		}
	}
	return nil
}

// soFar reads what has become of the runs, and how long they took in all.
func (c *Conductor) soFar(ctx context.Context) (slots map[place]*slot, spent time.Duration, err error) {
	runs, err := c.DB.Runs(ctx, c.Study.ID)
	if err != nil {
		return nil, 0, err
	}
	slots = map[place]*slot{}
	for i := range runs {
		r := &runs[i]
		if r.Status == study.StatusRunning {
			// rackless was killed, or the machine went down.
			r.Status, r.Error = study.StatusFailed, cutOff+"rackless ended before the run did"
			if err := c.DB.End(ctx, r, nil); err != nil {
				return nil, 0, err
			}
		}
		p := place{r.Block, r.Place}
		slots[p] = cmp.Or(slots[p], &slot{})
		s := slots[p]
		// An attempt that was cut off keeps its number, so that no two rows of the store have the same.
		s.attempts = max(s.attempts, r.Attempt)
		if !strings.HasPrefix(r.Error, cutOff) {
			s.tries++
		}
		if r.Status == study.StatusDone {
			s.done = true
			c.took = append(c.took, r.Seconds)
		}
		c.remember(r)
		spent += seconds(r.Seconds)
	}
	return slots, spent, nil
}

// last is the number of the last block to make; 0 where the budget decides.
func (c *Conductor) last() int {
	if c.Blocks > 0 && (c.Spec.Blocks == 0 || c.Blocks < c.Spec.Blocks) {
		return c.Blocks
	}
	return c.Spec.Blocks
}

// takes is about how long some runs take, by those that were made; 0 where none was.
func (c *Conductor) takes(runs int) time.Duration {
	if len(c.took) == 0 {
		return 0
	}
	return seconds(float64(runs) * mean(c.took))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// total is how many runs the study will have: those of its blocks, or of as many of them as the
// budget seems to hold by the runs so far; 0 where no run has been.
func (c *Conductor) total(done, perBlock int, used time.Duration) int {
	all := c.last() * perBlock
	if c.Spec.Budget == 0 || len(c.took) == 0 {
		return all
	}
	fit := done + max(0, int((c.Spec.Budget-used).Seconds()/mean(c.took)))
	// A block that was begun is brought to its end.
	fit = max(fit/perBlock, (done+perBlock)/perBlock) * perBlock
	if all > 0 {
		fit = min(fit, all)
	}
	return fit
}

// Outcomes counts the runs of all studies as soFar does, by the number of the study.
func Outcomes(ctx context.Context, db *store.DB) (map[int64]store.Outcome, error) {
	return db.Outcomes(ctx, MaxAttempts, cutOff)
}

func mean(v []float64) float64 {
	sum := 0.0
	sum += lists.Sum(v, func(x float64) float64 { return x })
	return sum / float64(len(v))
}

// one makes one attempt at a run. The error is one that ends the study; what only this run cannot
// get over is its status.
func (c *Conductor) one(ctx context.Context, run study.Run, attempt, done, total int) (status string, err error) {
	settings := c.Spec.Settings(run.Cell)
	if err := c.Rig.Ready(settings); err != nil {
		return "", err
	}
	p := Progress{Run: run, Cell: c.Spec.CellText(run.Cell), Attempt: attempt, Done: done, Total: total,
		Left: c.takes(max(0, total-done))}
	c.tell(p)
	r := &study.Observation{Block: run.Block, Place: run.Place, Attempt: attempt, Cell: settings, Started: c.now()}
	began := c.now()
	// The noise floor is timed before the run is entered, with nothing of the study running: it must see what others
	// do to the machine, and nothing else.
	if err := c.Rig.Rest(ctx); err != nil {
		return "", err
	}
	loop, err := c.Rig.Loop(ctx)
	if err != nil {
		return "", err
	}
	if err := c.DB.Begin(ctx, c.Study.ID, r); err != nil {
		return "", err
	}
	samples, err := c.measure(ctx, r, loop)
	// A cell that cannot be set up fails at once each time. Without this limit a study would fail all of its runs that
	// way, one after the other.
	if r.Before != nil {
		c.unable = 0
	} else {
		c.unable++
	}
	if ctx.Err() != nil {
		// It stays "running", as after a kill: the next start finds it so.
		return "", context.Cause(ctx)
	}
	if stop, ok := errors.AsType[*StopError](err); ok {
		r.Before, r.After = nil, nil // what a run that was cut off says of the host is no part of the study
		r.Status, r.Error = study.StatusFailed, cutOff+stop.Error()
		return "", errors.Join(stop.Err, c.DB.End(ctx, r, nil))
	}
	r.Status, r.Error = verdict(samples, err, study.Disturbance(r.Before, r.After, c.loops))
	c.remember(r)
	r.Seconds = c.now().Sub(began).Seconds()
	if err := c.keep(ctx, r, samples); err != nil {
		return "", err
	}
	if r.Status == study.StatusDone {
		c.took = append(c.took, r.Seconds)
		p.Done++
	}
	p.Status, p.Error = r.Status, r.Error
	c.tell(p)
	if c.unable >= MaxAttempts {
		return "", fmt.Errorf("%d times in a row: %s", c.unable, r.Error)
	}
	return r.Status, nil
}

// verdict is how a run ended, and why it did not end well.
func verdict(samples []bench.Sample, err error, disturbed string) (status, why string) {
	if err != nil {
		return study.StatusFailed, err.Error()
	}
	failed := lists.Map(lists.Filter(samples, func(s bench.Sample) bool { return s.Error != "" }),
		func(s bench.Sample) string { return fmt.Sprintf("%s: %s", s.Test, s.Error) })
	// Failed comes before disturbed, but the reader learns both: the disturbance may be why it failed.
	if len(failed) > 0 && disturbed != "" {
		failed = append(failed, "and it was disturbed: "+disturbed)
	}
	switch {
	case len(failed) > 0:
		return study.StatusFailed, strings.Join(failed, "; ")
	case disturbed != "":
		return study.StatusDisturbed, disturbed
	}
	return study.StatusDone, ""
}

// remember notes the noise floor before a run, by which later ones are judged.
func (c *Conductor) remember(r *study.Observation) {
	if r.Before != nil && r.Before.Loop > 0 {
		c.loops = append(c.loops, r.Before.Loop)
	}
}

// keep writes down how a run ended, with its figures and latencies.
func (c *Conductor) keep(ctx context.Context, r *study.Observation, samples []bench.Sample) error {
	for i := range samples {
		if err := addLatencies(r, &samples[i]); err != nil {
			return err
		}
	}
	figures, failed := rows(samples)
	return c.DB.End(ctx, r, figures, failed...)
}

func (c *Conductor) tell(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}

// measure sets the rig up for the cell and makes all tests. What it learns of the host goes into the run; its error is
// the run's.
func (c *Conductor) measure(ctx context.Context, r *study.Observation, loop float64) (samples []bench.Sample,
	err error) {
	inCell, err := c.enter(ctx, r.Cell)
	if err != nil {
		return nil, fmt.Errorf("set the lab up for the cell: %w", err)
	}
	// Asked once, in the first run that comes so far: some of it is known only when the lab is up.
	if c.Study.Environment == nil {
		c.Study.Environment = c.Rig.Environment()
		if err := c.DB.SetEnvironment(ctx, c.Study); err != nil {
			return nil, err
		}
	}
	before, err := c.Rig.State(loop)
	if err != nil {
		return nil, err
	}
	before.Rackless, before.CellLoop = c.Rackless, inCell
	r.Before = before
	for _, m := range c.Spec.Measure {
		got, err := c.Rig.Measure(ctx, m)
		samples = append(samples, got...)
		if err != nil {
			return samples, errors.Join(err, c.Rig.Rest(ctx))
		}
	}
	if r.After, err = c.Rig.State(0); err != nil {
		return samples, err
	}
	return samples, c.Rig.Rest(ctx)
}

// enter sets the rig up for the cell, and measures the noise floor there: once all that comes with
// the cell is so, and before the load begins, which alone may move it.
func (c *Conductor) enter(ctx context.Context, settings map[string]string) (loop float64, err error) {
	if err := c.Rig.Apply(ctx, settings); err != nil {
		return 0, err
	}
	if loop, err = c.Rig.Loop(ctx); err != nil {
		return 0, err
	}
	return loop, c.Rig.Load(ctx, settings)
}

// rows turns samples into those of the store, and failed ones, with what their tools had printed, into JSON. What all
// figures of an invocation have in common is kept with the first.
func rows(samples []bench.Sample) (out []store.Sample, failed []json.RawMessage) {
	seen := map[string]bool{}
	for _, s := range samples {
		x := store.Sample{Test: s.Test, Metric: s.Metric, Bytes: s.Bytes, Value: s.Value, Unit: s.Unit}
		if !seen[s.Run] || s.Error != "" {
			seen[s.Run] = true
			x.Raw, _ = json.Marshal(s) // a Sample has nothing that JSON cannot say
			x.Printed = s.Printed
		}
		if s.Error != "" {
			failed = append(failed, x.Raw)
			continue
		}
		out = append(out, x)
	}
	return out, failed
}

// addLatencies keeps the single latencies of a sample that has them.
func addLatencies(r *study.Observation, s *bench.Sample) error {
	if len(s.Latencies) == 0 {
		return nil
	}
	h := stats.NewHistogram()
	for _, us := range s.Latencies {
		if err := h.Record(us); err != nil {
			return fmt.Errorf("latencies of %s: %w", s.Test, err)
		}
	}
	data, err := h.Encode()
	r.Histograms = append(r.Histograms, study.Latencies{Test: s.Test, Bytes: s.Bytes, Data: data})
	return err
}

// A Record is a study as it is in the store.
type Record struct {
	Study *store.Study
	Data  *study.Data
	// Invocations are the first sample of each test with each command line; Emulated says whether any figure was.
	Invocations []bench.Sample
	Emulated    bool
}

// Load reads a study as it was made, for analysis.
func Load(ctx context.Context, db *store.DB, name string) (*Record, error) {
	s, err := db.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &study.Data{Spec: &study.Spec{}}
	rec := &Record{Study: s, Data: d}
	if err := json.Unmarshal(s.Spec, d.Spec); err != nil {
		return nil, fmt.Errorf("study %s: %w", name, err)
	}
	runs, err := db.Runs(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	latencies, err := db.Latencies(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	d.Runs = slices.DeleteFunc(runs, func(o study.Observation) bool {
		return o.Status == study.StatusRunning // under way, or cut off
	})
	byID := map[int64]*study.Observation{}
	for i := range d.Runs {
		o := &d.Runs[i]
		o.Histograms, o.Tools = latencies[o.Run], map[string]string{}
		byID[o.Run] = o
	}
	samples, err := db.Samples(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	for _, x := range samples {
		o := byID[x.Run]
		if o == nil {
			continue
		}
		o.Values = append(o.Values, study.Value{Test: x.Test, Metric: x.Metric, Bytes: x.Bytes, Value: x.Value,
			Unit: x.Unit})
		if x.Raw == nil {
			continue
		}
		var b bench.Sample
		if err := json.Unmarshal(x.Raw, &b); err != nil {
			return nil, fmt.Errorf("run %d: %w", x.Run, err)
		}
		rec.Emulated = rec.Emulated || b.Emulated
		if !slices.ContainsFunc(rec.Invocations, func(have bench.Sample) bool {
			return have.Test == b.Test && ports(have.Command) == ports(b.Command)
		}) {
			rec.Invocations = append(rec.Invocations, b)
		}
		o.Tools[b.Test] = strings.TrimSpace(b.Tool + " " + b.Version)
	}
	rec.versions()
	return rec, nil
}

// versions gives the first run, where an early release made it, the versions that were kept for the
// whole study then, so that what goes on with others is seen.
func (r *Record) versions() {
	if len(r.Data.Runs) == 0 || r.Data.Spec.Imported != "" {
		return
	}
	s := cmp.Or(r.Data.Runs[0].Before, r.Data.Runs[0].After)
	if s == nil || s.Rackless != "" {
		return
	}
	s.Rackless = r.Study.Rackless
	for _, f := range r.Study.Environment {
		switch f.Name {
		case study.FactKernel:
			s.Kernel = cmp.Or(s.Kernel, f.Value)
		case study.FactQEMU:
			s.QEMU = cmp.Or(s.QEMU, f.Value)
		case study.FactNodeKernel:
			s.NodeKernel = cmp.Or(s.NodeKernel, f.Value)
		}
	}
}

var portFlag = regexp.MustCompile(` -p [0-9]+`)

// ports takes the port out of a command line: it is another one in every run.
func ports(command string) string { return portFlag.ReplaceAllString(command, "") }
