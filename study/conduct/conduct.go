// Package conduct makes the runs of a study in the order of the design, on a machine behind the interface Rig.
//
// A run is stored as "running" before it begins, and gets its figures in one transaction when it ends. The next start
// marks a "running" one as cut off, which is no attempt. A failed or disturbed run stays stored and is repeated at
// once, so that blocks stay complete and nothing depends on the measured figures.
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
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/study/store"
)

// A Rig is the machine or lab that a study measures.
type Rig interface {
	// Rest stops everything that a run has started.
	Rest(ctx context.Context) error
	// Loop measures the noise floor at rest, in ms.
	Loop(ctx context.Context) (float64, error)
	// Ready returns an error if the machine, as booted, cannot be set up for a cell. The study then ends and can be
	// continued.
	Ready(settings map[string]string) error
	// Apply sets up a cell, except for its load.
	Apply(ctx context.Context, settings map[string]string) error
	// Load starts the load of the applied cell, if any. Rest ends it.
	Load(ctx context.Context, settings map[string]string) error
	// State reads properties of the host that may change a figure independently of any factor.
	State(loop float64) (*study.HostState, error)
	// Environment describes the machine, once a cell has been applied.
	Environment() []study.Fact
	// Measure makes one test. A failure is a sample with an error; a returned error ends the run.
	Measure(ctx context.Context, m study.Measure) ([]bench.Sample, error)
}

// A Replicator is a Rig whose figures depend on a run by its random numbers only, as those of a simulation do.
type Replicator interface {
	// Replicate is called before each attempt at a run. Runs of different cells in one half of a block share their
	// random numbers.
	Replicate(run study.Run)
}

// A StopError ends the study; other errors end only the run. Apply may return one.
type StopError struct{ Err error }

func (e *StopError) Error() string { return e.Err.Error() }
func (e *StopError) Unwrap() error { return e.Err }

// cutOff begins the error of a run that is not counted as an attempt.
const cutOff = "cut off: "

// MaxAttempts limits the attempts at one run.
const MaxAttempts = 3

// A Conductor makes the runs of a study.
type Conductor struct {
	DB    *store.DB
	Study *store.Study
	Spec  *study.Spec
	Rig   Rig
	Now   func() time.Time // nil means time.Now
	// Rackless makes the runs; another version may have begun the study.
	Rackless string
	// Blocks ends Run after this many blocks, with earlier ones; 0 means all.
	Blocks int
	// Part leaves out the runs of other parts.
	Part Part

	Progress func(Progress) // before and after each run; may be nil

	loops  []float64
	took   []float64 // seconds of the runs
	unable int       // runs in a row that could not be set up
}

// Progress reports how far a study is.
type Progress struct {
	Run     study.Run
	Cell    string
	Attempt int
	Status  string // "" when a run begins
	Error   string
	Done    int           // successful or given up
	Total   int           // all runs, or the likely number with a budget; 0 if unknown
	Left    time.Duration // estimate; 0 if unknown
}

// Digest returns the fingerprint of a study's files.
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

// A Part is the Number-th of Of shares of a study, whose runs can be made independently of each other: every Of-th run,
// starting at run Number. The zero Part is all of it.
type Part struct{ Number, Of int }

// ParsePart reads "NUMBER/OF".
func ParsePart(text string) (Part, error) {
	number, of, _ := strings.Cut(text, "/")
	k, err := strconv.Atoi(number)
	n, err2 := strconv.Atoi(of)
	if err != nil || err2 != nil || k < 1 || n < k {
		return Part{}, fmt.Errorf("part %q: want NUMBER/OF, such as 3/20", text)
	}
	return Part{k, n}, nil
}

// has reports whether a run is in the part, in a study with so many runs a block.
func (p Part) has(r study.Run, perBlock int) bool {
	return p.Of == 0 || ((r.Block-1)*perBlock+r.Place-1)%p.Of == p.Number-1
}

// of returns how many of the first runs of a study are in the part.
func (p Part) of(runs int) int {
	if p.Of == 0 {
		return runs
	}
	return (runs - p.Number + p.Of) / p.Of
}

type place struct{ block, place int }

type slot struct {
	attempts int // highest attempt number so far
	tries    int // attempts that were not cut off
	done     bool
}

func (s *slot) open() bool { return !s.done && s.tries < MaxAttempts }

// Run makes the remaining runs of the first Blocks blocks. It ends when the budget does not allow another block, or at
// an error that a repetition would not fix.
func (c *Conductor) Run(ctx context.Context) error {
	slots, spent, err := c.soFar(ctx)
	if err != nil {
		return err
	}
	settled := 0
	for _, s := range slots {
		if !s.open() {
			settled++
		}
	}
	perBlock := len(c.Spec.Block(1))
	began := c.now()
	used := func() time.Duration { return spent + c.now().Sub(began) }
	last := c.last()
	for block := 1; last == 0 || block <= last; block++ {
		left := slices.DeleteFunc(c.Spec.Block(block), func(r study.Run) bool {
			s := slots[place{r.Block, r.Place}]
			return !c.Part.has(r, perBlock) || s != nil && !s.open()
		})
		if len(left) == 0 {
			continue
		}
		// takes is 0 before the first success; then only a used-up budget ends the study.
		if b := c.Spec.Budget; b > 0 && used()+c.takes(len(left)) > b {
			return nil
		}
		for _, r := range left {
			p := place{r.Block, r.Place}
			slots[p] = cmp.Or(slots[p], &slot{})
			// A run repeated at the end would be outside its block.
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

func (c *Conductor) soFar(ctx context.Context) (slots map[place]*slot, spent time.Duration, err error) {
	runs, err := c.DB.Runs(ctx, c.Study.ID)
	if err != nil {
		return nil, 0, err
	}
	slots = map[place]*slot{}
	for i := range runs {
		r := &runs[i]
		if r.Status == study.StatusRunning {
			r.Status, r.Error = study.StatusFailed, cutOff+"rackless ended before the run did"
			if err := c.DB.End(ctx, r, nil); err != nil {
				return nil, 0, err
			}
		}
		p := place{r.Block, r.Place}
		slots[p] = cmp.Or(slots[p], &slot{})
		s := slots[p]
		// Rows of the database must not share a number.
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

// last returns the last block to make; 0 if the budget decides.
func (c *Conductor) last() int {
	if c.Blocks > 0 && (c.Spec.Blocks == 0 || c.Blocks < c.Spec.Blocks) {
		return c.Blocks
	}
	return c.Spec.Blocks
}

// takes estimates by the mean of the successful runs; 0 if there are none.
func (c *Conductor) takes(runs int) time.Duration {
	if len(c.took) == 0 {
		return 0
	}
	return seconds(float64(runs) * mean(c.took))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// total estimates the number of runs. With a budget it is the number of whole blocks that fits, or 0 if that is unknown
// and the study has no fixed number.
func (c *Conductor) total(done, perBlock int, used time.Duration) int {
	all := c.Part.of(c.last() * perBlock)
	if c.Spec.Budget == 0 || len(c.took) == 0 {
		return all
	}
	fit := done + max(0, int((c.Spec.Budget-used).Seconds()/mean(c.took)))
	// A begun block is completed.
	fit = max(fit/perBlock, (done+perBlock)/perBlock) * perBlock
	if all > 0 {
		fit = min(fit, all)
	}
	return fit
}

// Outcomes counts runs by outcome and the study's ID.
func Outcomes(ctx context.Context, db *store.DB) (map[int64]store.Outcome, error) {
	return db.Outcomes(ctx, MaxAttempts, cutOff)
}

func mean(v []float64) float64 {
	sum := 0.0
	sum += lists.Sum(v, func(x float64) float64 { return x })
	return sum / float64(len(v))
}

// one makes one attempt. An error ends the study; a failed run is in the status.
func (c *Conductor) one(ctx context.Context, run study.Run, attempt, done, total int) (status string, err error) {
	settings := c.Spec.Settings(run.Cell)
	if r, ok := c.Rig.(Replicator); ok {
		r.Replicate(run)
	}
	if err := c.Rig.Ready(settings); err != nil {
		return "", err
	}
	p := Progress{Run: run, Cell: c.Spec.CellText(run.Cell), Attempt: attempt, Done: done, Total: total,
		Left: c.takes(max(0, total-done))}
	c.tell(p)
	r := &study.Observation{Block: run.Block, Place: run.Place, Attempt: attempt, Cell: settings, Started: c.now()}
	began := c.now()
	// With nothing of the study running, the noise floor shows only other processes.
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
	// A cell that cannot be set up fails at once; without this limit, all runs would.
	if r.Before != nil {
		c.unable = 0
	} else {
		c.unable++
	}
	if ctx.Err() != nil {
		// The next start marks the run as cut off.
		return "", context.Cause(ctx)
	}
	if stop, ok := errors.AsType[*StopError](err); ok {
		r.Before, r.After = nil, nil // no part of the study for a run that was cut off
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

func verdict(samples []bench.Sample, err error, disturbed string) (status, why string) {
	if err != nil {
		return study.StatusFailed, err.Error()
	}
	failed := lists.Map(lists.Filter(samples, func(s bench.Sample) bool { return s.Error != "" }),
		func(s bench.Sample) string { return fmt.Sprintf("%s: %s", s.Test, s.Error) })
	// The text has both: the disturbance may have caused the failure.
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

func (c *Conductor) remember(r *study.Observation) {
	if r.Before != nil && r.Before.Loop > 0 {
		c.loops = append(c.loops, r.Before.Loop)
	}
}

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

// measure records the host's state in r; an error fails the run.
func (c *Conductor) measure(ctx context.Context, r *study.Observation, loop float64) (samples []bench.Sample,
	err error) {
	inCell, err := c.enter(ctx, r.Cell)
	if err != nil {
		return nil, fmt.Errorf("set the lab up for the cell: %w", err)
	}
	// Parts of the environment are known only once the lab is up.
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

// enter measures the noise floor before the load begins, which alone may change it.
func (c *Conductor) enter(ctx context.Context, settings map[string]string) (loop float64, err error) {
	if err := c.Rig.Apply(ctx, settings); err != nil {
		return 0, err
	}
	if loop, err = c.Rig.Loop(ctx); err != nil {
		return 0, err
	}
	return loop, c.Rig.Load(ctx, settings)
}

// rows returns failed samples as JSON with their tools' output. Data common to an invocation is stored once.
func rows(samples []bench.Sample) (out []store.Sample, failed []json.RawMessage) {
	seen := map[string]bool{}
	for _, s := range samples {
		x := store.Sample{Test: s.Test, Metric: s.Metric, Bytes: s.Bytes, Value: s.Value, Unit: s.Unit}
		if !seen[s.Run] || s.Error != "" {
			seen[s.Run] = true
			x.Raw, _ = json.Marshal(s) // marshaling a Sample cannot fail
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

// A Record is a study as stored in the database.
type Record struct {
	Study *store.Study
	Data  *study.Data
	// Invocations are the first sample of each test with each command line. Emulated is set if any figure was.
	Invocations []bench.Sample
	Emulated    bool
}

// Load reads a stored study for analysis.
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
		return o.Status == study.StatusRunning // in progress, or cut off
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

// versions fills in the first run, because early releases kept them only in the study.
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

// ports removes the port, which differs in every run.
func ports(command string) string { return portFlag.ReplaceAllString(command, "") }
