package conduct_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/store"
)

type fakeRig struct {
	at      time.Time
	applied []string
	cell    map[string]string
	spec    *study.Spec
	loading bool

	ready   func(settings map[string]string) error               // nil accepts every cell
	apply   func(n int) error                                    // n counts from 1; may be nil
	measure func(n int, m study.Measure) ([]bench.Sample, error) // nil returns one figure
	state   func(n int, s *study.HostState)
	facts   []study.Fact // nil returns its accelerator
	// loop returns the noise floor of a cell; nil returns 10.
	loop func(cell map[string]string) float64
	n    int
}

func (f *fakeRig) now() time.Time { return f.at }

func (f *fakeRig) Rest(context.Context) error { f.loading = false; return nil }

func (f *fakeRig) Loop(context.Context) (float64, error) {
	if f.loading {
		return 0, errors.New("the noise floor was measured under load")
	}
	if f.loop != nil {
		return f.loop(f.cell), nil
	}
	return 10, nil
}

func (f *fakeRig) Ready(settings map[string]string) error {
	if f.ready != nil {
		return f.ready(settings)
	}
	return nil
}

func (f *fakeRig) Apply(_ context.Context, settings map[string]string) error {
	f.n++
	f.cell = settings
	f.at = f.at.Add(2 * time.Second)
	f.applied = append(f.applied, fmt.Sprint(settings))
	if f.apply != nil {
		return f.apply(f.n)
	}
	return nil
}

func (f *fakeRig) Load(_ context.Context, settings map[string]string) error {
	if fmt.Sprint(settings) != fmt.Sprint(f.cell) {
		return errors.New("load of another cell than the one that was applied")
	}
	f.loading = true
	return nil
}

func (f *fakeRig) State(loop float64) (*study.HostState, error) {
	s := &study.HostState{At: f.at, BootID: "b", CPUs: 2, Loop: loop}
	if f.state != nil {
		f.state(f.n, s)
	}
	return s, nil
}

func (f *fakeRig) Environment() []study.Fact {
	if f.facts != nil {
		return f.facts
	}
	return []study.Fact{{Name: "accelerator", Value: "fake"}}
}

func (f *fakeRig) Measure(_ context.Context, m study.Measure) ([]bench.Sample, error) {
	f.at = f.at.Add(8 * time.Second)
	if f.measure != nil {
		if s, err := f.measure(f.n, m); s != nil || err != nil {
			return s, err
		}
	}
	v := 100.0
	if f.cell["placement"] == "pin" {
		v = 50
	}
	base := bench.Sample{Run: fmt.Sprint("r", f.n, m.Test), Test: m.Test, Bytes: m.Bytes, Unit: "us", Tool: "perftest",
		Version: "6", Command: m.Test + " -p 20001", Emulated: true}
	a, b := base, base
	a.Metric, a.Value = "latency_typical", v+float64(f.n)/100
	b.Metric, b.Value = "latency_p99", 2*v+float64(f.n)/100
	return []bench.Sample{a, b}, nil
}

const text = "name: fake\nlab: pair.yaml\nfactors:\n  placement: [default, pin]\nmeasure: [{test: ib_write_lat, " +
	"metrics: [latency_p99]}]\nblocks: 6\n"

func setUp(t *testing.T, text string) (*conduct.Conductor, *fakeRig, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.db")
	c, f := again(t, path, text)
	return c, f, path
}

func again(t *testing.T, path, text string) (*conduct.Conductor, *fakeRig) {
	t.Helper()
	spec, err := study.Parse("study.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s, err := db.Find(t.Context(), spec.Name)
	if errors.Is(err, store.ErrNoStudy) {
		j, _ := json.Marshal(spec)
		s = &store.Study{Name: spec.Name, Spec: j, Created: time.Unix(0, 0), Rackless: "test"}
		err = db.Create(t.Context(), s)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeRig{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), spec: spec}
	return &conduct.Conductor{DB: db, Study: s, Spec: spec, Rig: f, Now: f.now}, f
}

func statuses(t *testing.T, c *conduct.Conductor) string {
	t.Helper()
	runs, err := c.DB.Runs(t.Context(), c.Study.ID)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, r := range runs {
		n[r.Status]++
	}
	return fmt.Sprint(n)
}

func TestAStudyIsRunAndRead(t *testing.T) {
	t.Parallel()
	c, f, _ := setUp(t, text)
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statuses(t, c); got != "map[done:24]" || len(f.applied) != 24 {
		t.Errorf("%s, and %d cells were applied", got, len(f.applied))
	}
	c2 := *c
	if err := c2.Run(t.Context()); err != nil || len(f.applied) != 24 {
		t.Errorf("%v, %d", err, len(f.applied))
	}
	rec, err := conduct.Load(t.Context(), c.DB, "fake")
	if err != nil {
		t.Fatal(err)
	}
	if !rec.Emulated || len(rec.Invocations) != 1 || len(rec.Study.Environment) != 1 {
		t.Errorf("emulated %v, %d invocations, environment %v", rec.Emulated, len(rec.Invocations),
			rec.Study.Environment)
	}
	for _, o := range rec.Data.Runs {
		if o.Before == nil || o.Before.Loop != 10 || o.Before.CellLoop != 10 || o.After == nil ||
			!o.After.At.After(o.Before.At) {
			t.Errorf("run %d: the state of the host before it is %+v, and after it %+v", o.Run, o.Before, o.After)
		}
	}
	r, err := study.Analyse(rec.Data)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Controls) != 1 {
		t.Errorf("controls %+v, want the noise floor", r.Controls)
	}
	if len(r.Comparisons) != 1 || r.Blocks != 6 || r.Comparisons[0].Judged.Verdict != "better" {
		t.Errorf("got %d comparisons over %d blocks, %+v", len(r.Comparisons), r.Blocks, r.Comparisons[0].Judged)
	}
}

// The next start makes exactly the missing runs, in the order of the design.
func TestAStudyThatIsCutOffGoesOn(t *testing.T) {
	t.Parallel()
	for at := 1; at <= 24; at++ {
		c, f, path := setUp(t, text)
		ctx, cancel := context.WithCancel(t.Context())
		f.apply = func(n int) error {
			if n == at {
				cancel()
			}
			return nil
		}
		if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("cut at run %d: %v", at, err)
		}
		c2, f2 := again(t, path, text)
		if err := c2.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := statuses(t, c2); got != "map[done:24 failed:1]" {
			t.Errorf("cut at run %d: %s", at, got)
		}
		var want []string
		for b := 1; b <= 6; b++ {
			for _, r := range c.Spec.Block(b) {
				want = append(want, fmt.Sprint(c.Spec.Settings(r.Cell)))
			}
		}
		if got := append(f.applied[:at-1:at-1], f2.applied...); !slices.Equal(got, want) {
			t.Errorf("cut at run %d: another order than the design's", at)
		}
		rec, err := conduct.Load(t.Context(), c2.DB, "fake")
		if err != nil {
			t.Fatal(err)
		}
		values := 0
		for _, o := range rec.Data.Runs {
			values += len(o.Values)
		}
		if values != 48 {
			t.Errorf("cut at run %d: %d figures, want 48", at, values)
		}
	}
}

func TestARunThatFailsOrIsDisturbedIsMadeAgain(t *testing.T) {
	t.Parallel()
	garbage := func(n int, m study.Measure) ([]bench.Sample, error) {
		if n == 3 || n == 4 {
			return []bench.Sample{{Run: fmt.Sprint(n), Test: m.Test, Error: "line 3: no number: \"garbage\""}}, nil
		}
		return nil, nil
	}
	for _, tt := range []struct {
		name string
		set  func(*fakeRig)
		want string
	}{
		{"a tool prints garbage, twice", func(f *fakeRig) { f.measure = garbage }, "map[done:24 failed:2]"},
		{"always", func(f *fakeRig) {
			f.measure = func(n int, m study.Measure) ([]bench.Sample, error) {
				return []bench.Sample{{Run: fmt.Sprint(n), Test: m.Test, Error: "no result within 3m0s"}}, nil
			}
		}, "map[failed:72]"},
		{"a node does not answer", func(f *fakeRig) {
			f.measure = func(n int, _ study.Measure) ([]bench.Sample, error) {
				if n == 5 {
					return nil, errors.New("vm01 does not answer")
				}
				return nil, nil
			}
		}, "map[done:24 failed:1]"},
		{"a tenant woke up", func(f *fakeRig) {
			f.state = func(n int, s *study.HostState) {
				if n == 7 {
					s.Busy = float64(s.At.Second()) // grows without work of the study
				}
			}
		}, "map[disturbed:1 done:24]"},
		{"the compute loop is slower than it ever was", func(f *fakeRig) {
			f.state = func(n int, s *study.HostState) {
				if n == 7 && s.Loop > 0 {
					s.Loop = 14
				}
			}
		}, "map[disturbed:1 done:24]"},
		{"the lab cannot be had for a while", func(f *fakeRig) {
			f.apply = func(n int) error {
				if n == 2 || n == 3 {
					return errors.New("no room")
				}
				return nil
			}
		}, "map[done:24 failed:2]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, f, _ := setUp(t, text)
			tt.set(f)
			if err := c.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := statuses(t, c); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			outcomes, err := conduct.Outcomes(t.Context(), c.DB)
			done, givenUp := 24, 0
			if tt.name == "always" {
				done, givenUp = 0, 24
			}
			if got := outcomes[c.Study.ID]; err != nil || got.Done != done || got.GivenUp != givenUp {
				t.Errorf("the runs came to %+v, want %d done and %d given up (%v)", got, done, givenUp, err)
			}
		})
	}
}

// A failed run has an error instead of figures.
func TestAFailedTestLeavesNoFigure(t *testing.T) {
	t.Parallel()
	c, f, _ := setUp(t, "name: fake\nlab: pair.yaml\nfactors:\n  placement: [default, pin]\nmeasure: [{test: "+
		"ib_write_lat}, {test: iperf3}]\nblocks: 1\n")
	f.measure = func(n int, m study.Measure) ([]bench.Sample, error) {
		if m.Test == "iperf3" {
			return []bench.Sample{{Run: fmt.Sprint(n), Test: m.Test, Error: "unable to connect"}}, nil
		}
		return nil, nil
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	rec, err := conduct.Load(t.Context(), c.DB, "fake")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rec.Data.Runs {
		if o.Status != study.StatusFailed || o.Error != "iperf3: unable to connect" || len(o.Values) != 2 ||
			slices.ContainsFunc(o.Values, func(v study.Value) bool {
				return v.Test == "iperf3"
			}) {
			t.Errorf("run %d: %s, %q, %v", o.Run, o.Status, o.Error, o.Values)
		}
	}
}

func TestAStudyWhoseLabCannotBeHadEnds(t *testing.T) {
	t.Parallel()
	c, f, _ := setUp(t, text)
	f.apply = func(int) error { return errors.New("no room") }
	err := c.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "3 times in a row: set the lab up for the cell: no room") {
		t.Errorf("got %v", err)
	}
}

// Runs that need another boot wait without beginning or counting an attempt; runs of one kind are adjacent.
func TestAStudyThatTakesBootsGoesOnAfterEach(t *testing.T) {
	t.Parallel()
	const text = "name: fake\nlab: pair.yaml\nfactors:\n  isolation: [none, cpuset, isolcpus]\n  contention: [idle, " +
		"\"cpu:2\"]\nmeasure: [{test: ib_write_lat, metrics: [latency_p99]}]\nblocks: 6\n"
	path := filepath.Join(t.TempDir(), "s.db")
	other := errors.New("another boot")
	isolated, boots := false, 0
	var order []string
	for {
		c, f := again(t, path, text)
		f.ready = func(settings map[string]string) error {
			if isolated != (settings["isolation"] == "isolcpus") {
				return other
			}
			return nil
		}
		err := c.Run(t.Context())
		order = append(order, f.applied...)
		if err == nil {
			if got := statuses(t, c); got != "map[done:72]" {
				t.Errorf("got %s", got)
			}
			var want []string
			for b := 1; b <= 6; b++ {
				for _, r := range c.Spec.Block(b) {
					want = append(want, fmt.Sprint(c.Spec.Settings(r.Cell)))
				}
			}
			if !slices.Equal(order, want) {
				t.Error("another order than the design's")
			}
			break
		}
		if !errors.Is(err, other) {
			t.Fatal(err)
		}
		isolated = !isolated
		boots++
	}
	if boots < 2*6 || boots > 3*6 {
		t.Errorf("%d boots in 6 blocks", boots)
	}
}

// A later start makes only the remaining runs.
func TestFewerBlocksAreGoneOnWith(t *testing.T) {
	t.Parallel()
	c, f, path := setUp(t, text)
	c.Blocks = 2
	c.Progress = func(p conduct.Progress) {
		if p.Total != 8 {
			t.Errorf("progress says %d runs, want 8", p.Total)
		}
	}
	if err := c.Run(t.Context()); err != nil || len(f.applied) != 8 {
		t.Fatalf("%v, %d runs, want two blocks of 4", err, len(f.applied))
	}
	c2, f2 := again(t, path, text)
	c2.Blocks = 7
	if err := c2.Run(t.Context()); err != nil || len(f2.applied) != 16 {
		t.Fatalf("%v, %d runs, want the other four blocks", err, len(f2.applied))
	}
	if got := statuses(t, c2); got != "map[done:24]" {
		t.Error(got)
	}
}

func TestABudgetHoldsWholeBlocks(t *testing.T) {
	t.Parallel()
	// 10 s a run, 40 s a block.
	c, _, path := setUp(t, strings.Replace(text, "blocks: 6", "budget: 150s", 1))
	var begun []string // at the start of each run
	c.Progress = func(p conduct.Progress) {
		if p.Status == "" {
			begun = append(begun, fmt.Sprintf("%d/%d %v", p.Done, p.Total, p.Left))
		}
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"0/0 0s", "1/12 1m50s", "2/12 1m40s"}; len(begun) != 12 || !slices.Equal(begun[:3], want) ||
		begun[11] != "11/12 10s" {
		t.Errorf("progress %q, want 12 runs that begin with %q", begun, want)
	}
	if got := statuses(t, c); got != "map[done:12]" {
		t.Errorf("got %s, want three blocks of 4", got)
	}
	// A continued study counts the time that was spent before.
	c2, _ := again(t, path, strings.Replace(text, "blocks: 6", "budget: 150s", 1))
	if err := c2.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statuses(t, c2); got != "map[done:12]" {
		t.Errorf("got %s, want still three blocks of 4", got)
	}
}

// A budget ends a study in which no run succeeds.
func TestABudgetEndsWhereNoRunCounts(t *testing.T) {
	t.Parallel()
	c, f, _ := setUp(t, strings.Replace(text, "blocks: 6", "budget: 150s", 1))
	f.state = func(_ int, s *study.HostState) { s.Busy = float64(s.At.Unix()) }
	ctx, cancel := context.WithCancel(t.Context())
	f.apply = func(n int) error {
		if n > 100 {
			cancel()
		}
		return nil
	}
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	// 3 attempts at 4 runs of 10 s are 120 s a block.
	if got := statuses(t, c); got != "map[disturbed:24]" {
		t.Errorf("got %s, want two blocks", got)
	}
}

// A rig that can measure nothing ends the study, and the run is no attempt.
func TestAStudyEndsWhereItsRigSaysStop(t *testing.T) {
	t.Parallel()
	c, f, path := setUp(t, text)
	wrong := errors.New("a check failed")
	f.apply = func(int) error { return &conduct.StopError{Err: wrong} }
	if err := c.Run(t.Context()); !errors.Is(err, wrong) {
		t.Fatalf("the study ended with %v", err)
	}
	if got := statuses(t, c); got != "map[failed:1]" {
		t.Errorf("runs: %s", got)
	}
	c, _ = again(t, path, text)
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statuses(t, c); got != "map[done:24 failed:1]" {
		t.Errorf("after it went on: %s", got)
	}
}

// Each change of the machine is reported once.
func TestAStudyThatGoesOnWithOthersNamesThem(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		before func(*study.HostState)
		want   []string
	}{
		{"each run has its own", func(s *study.HostState) {
			s.Kernel, s.QEMU, s.NodeKernel = "6.1", "7.2", "6.1-cloud"
		}, []string{
			"the host's kernel is 6.12 from run 6 on, and was 6.1 before",
			"QEMU is 10.0 from run 6 on, and was 7.2 before", "rackless is v2 from run 6 on, and was v1 before",
			"the nodes' kernel is 6.12-cloud from run 6 on, and was 6.1-cloud before",
		}},
		{"early releases kept them for the first run", func(s *study.HostState) { s.Rackless = "" }, []string{
			"the host's kernel is 6.12 from run 6 on, and was 6.0 before",
			"rackless is v2 from run 6 on, and was test before",
		}},
		{"nothing has changed but the boot", func(s *study.HostState) {
			s.Kernel, s.QEMU, s.NodeKernel, s.Rackless = "6.12", "10.0", "6.12-cloud", "v2"
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "s.db")
			c, f := again(t, path, text)
			c.Rackless = "v1"
			f.facts = []study.Fact{{Name: study.FactKernel, Value: "6.0"}}
			f.state = func(_ int, s *study.HostState) { tt.before(s) }
			ctx, cancel := context.WithCancel(t.Context())
			f.apply = func(n int) error {
				if n == 5 {
					cancel()
				}
				return nil
			}
			if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if tt.name != "each run has its own" { // otherwise State sets the versions
				forget(t, c, tt.before)
			}
			c, f = again(t, path, text)
			c.Rackless = "v2"
			f.state = func(_ int, s *study.HostState) {
				s.BootID, s.Kernel, s.QEMU, s.NodeKernel = "another", "6.12", "10.0", "6.12-cloud"
			}
			if err := c.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			rec, err := conduct.Load(t.Context(), c.DB, "fake")
			if err != nil {
				t.Fatal(err)
			}
			r, err := study.Analyse(rec.Data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, r.Confounds); diff != "" {
				t.Errorf("confounds (-want +got):\n%s", diff)
			}
		})
	}
}

// forget simulates states of an older rackless.
func forget(t *testing.T, c *conduct.Conductor, change func(*study.HostState)) {
	t.Helper()
	runs, err := c.DB.Runs(t.Context(), c.Study.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if r.Before == nil {
			continue
		}
		change(r.Before)
		if err := c.DB.End(t.Context(), &r, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A side effect of a cell moves the control. The noise floor before the run is of the previous cell, and cannot show
// it.
func TestWhatComesWithACellMovesTheControl(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		c, f, _ := setUp(t, strings.Replace(text, "blocks: 6", "blocks: 8", 1))
		runs := 0
		f.loop = func(cell map[string]string) float64 {
			runs++
			ms := 10 + float64(runs*7%11)/100
			if moves && cell["placement"] == "pin" {
				ms *= 1.1 // too little to be disturbed
			}
			return ms
		}
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		rec, err := conduct.Load(t.Context(), c.DB, "fake")
		if err != nil {
			t.Fatal(err)
		}
		r, err := study.Analyse(rec.Data)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Comparisons[0].Confounded; (len(got) > 0) != moves {
			t.Errorf("what comes with the cell slows the machine: %v; confounded: %q", moves, got)
		}
	}
}
