package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/study"
)

// A Simulation is the rig of a study whose runs are simulations. Nothing on the machine disturbs them.
type Simulation struct {
	spec   *study.Spec
	file   string
	text   []byte
	prefix string // of the keys in the file
	seed   uint64 // of the first replicate
	run    study.Run
	config *simulate.Config  // of the applied cell
	files  map[string][]byte // that the file or a level names
}

// NewSimulation reads the file of a simulation, and checks it with the settings of all cells.
func NewSimulation(spec *study.Spec, file string) (*Simulation, error) {
	s := &Simulation{spec: spec, file: file, files: make(map[string][]byte)}
	var err error
	if s.text, err = userfile.Read(file, userfile.Text); err != nil {
		return nil, err
	}
	c, err := simulate.Parse(file, s.text, s.other)
	if err != nil {
		return nil, err
	}
	s.seed, s.prefix = c.Seed, c.Prefix()
	for _, cell := range spec.Cells() {
		if _, err := s.configFor(spec.Settings(cell), s.seed); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// other returns a file that the simulation names, which is read once: all runs have the same.
func (s *Simulation) other(name string) ([]byte, error) {
	if text, ok := s.files[name]; ok {
		return text, nil
	}
	text, err := userfile.Read(LabFile(s.file, name), userfile.Text)
	if err == nil {
		s.files[name] = text
	}
	return text, err
}

// Files returns the texts of the simulation's file and of those that it names, to tell whether they have changed.
func (s *Simulation) Files() [][]byte {
	all := [][]byte{s.text}
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		all = append(all, s.files[name])
	}
	return all
}

// configFor returns the simulation with the settings of a cell.
func (s *Simulation) configFor(settings map[string]string, seed uint64) (*simulate.Config, error) {
	text, name := s.text, s.file
	for _, factor := range lists.Keys(settings) {
		key, _ := study.SimulationKey(factor)
		// Traffic is not below the other keys in a lab file.
		if key != "traffic" && !strings.HasPrefix(key, "traffic.") {
			key = s.prefix + key
		}
		var err error
		if text, err = strictyaml.Edit(text, key, settings[factor]); err != nil {
			return nil, fmt.Errorf("factor %s: %w", factor, err)
		}
		// Line numbers differ from the file, so errors name keys.
		name += fmt.Sprintf(" with %s: %s", key, settings[factor])
	}
	text, err := strictyaml.Edit(text, s.prefix+"seed", fmt.Sprint(seed))
	if err != nil {
		return nil, err
	}
	return simulate.Parse(name, text, s.other)
}

// LabText returns the text of the file.
func (s *Simulation) LabText() []byte { return s.text }

// Takes cannot tell how long a run takes, and says a second.
func (s *Simulation) Takes() (time.Duration, error) { return time.Second, nil }

// Replicate sets the random numbers of the next run. Each half of a block has its own.
func (s *Simulation) Replicate(run study.Run) { s.run = run }

// replicate returns the seed of the run. All cells of a half of a block have the same, which compares them best.
func (s *Simulation) replicate() uint64 {
	half := 0
	if s.run.Place > len(s.spec.Cells()) {
		half = 1
	}
	return s.seed + uint64(max(0, s.run.Block-1)*study.RunsPerCell+half)
}

// Rest does nothing, as do Ready, Load and Close: a simulation leaves nothing behind.
func (s *Simulation) Rest(context.Context) error { return nil }

// Ready does nothing.
func (s *Simulation) Ready(map[string]string) error { return nil }

// Load does nothing.
func (s *Simulation) Load(context.Context, map[string]string) error { return nil }

// Close does nothing.
func (s *Simulation) Close() error { return nil }

// Loop returns 0: no noise of the machine changes a figure, so it is not measured.
func (s *Simulation) Loop(context.Context) (float64, error) { return 0, nil }

// Apply makes the simulation of a cell.
func (s *Simulation) Apply(_ context.Context, settings map[string]string) (err error) {
	s.config, err = s.configFor(settings, s.replicate())
	return err
}

// State returns no more than the time, because nothing else matters.
func (s *Simulation) State(float64) (*study.HostState, error) {
	return &study.HostState{At: time.Now().UTC()}, nil
}

// Environment names the file.
func (s *Simulation) Environment() []study.Fact {
	return []study.Fact{{Name: "simulation", Value: s.config.Name + ", " + filepath.Base(s.file) +
		" (virtual time: not figures of hardware)"}}
}

// Measure runs the simulation. Flows that do not end are a failure, because their time is not known.
func (s *Simulation) Measure(ctx context.Context, m study.Measure) ([]bench.Sample, error) {
	if s.config == nil {
		return nil, errors.New("measured before a cell was applied")
	}
	began := time.Now()
	r := simulate.Run(s.config, func() bool { return ctx.Err() != nil })
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	base := bench.Sample{Run: fmt.Sprintf("%s-%d", m.Test, s.config.Seed), Test: m.Test, Emulated: true,
		Command: fmt.Sprintf("rackless simulate %s # with seed: %d", filepath.Base(s.file), s.config.Seed),
		Started: began, Seconds: time.Since(began).Seconds(), Attempt: 1}
	if r.Unfinished > 0 {
		base.Error = fmt.Sprintf("%d of %s did not end within %v of the simulation", r.Unfinished,
			words.Count(len(r.Flows), "flow"), r.Time)
		return []bench.Sample{base}, nil
	}
	queue, paused := int64(0), time.Duration(0)
	for _, q := range r.Queues {
		queue, paused = max(queue, q.P99), paused+q.SenderPause
	}
	k := r.Counts
	var out []bench.Sample
	for _, f := range []struct {
		metric string
		value  float64
	}{
		{bench.MetricGoodput, r.Goodput / 1e9}, {bench.MetricSlowdown, r.Slowdown.Median},
		{bench.MetricSlowdownP99, r.Slowdown.P99},
		{bench.MetricCompletion, float64(r.Time) / float64(time.Microsecond)},
		{bench.MetricQueueP99, float64(queue) / 1024},
		{bench.MetricDrops, float64(k.Drops)}, {bench.MetricMarks, float64(k.Marks)},
		{bench.MetricPauses, float64(k.Pauses)}, {bench.MetricCNPs, float64(k.CNPsUsed)},
		{bench.MetricGoBacks, float64(k.GoBacks + k.Timeouts)},
		{bench.MetricPausedTime, 100 * paused.Seconds() / (r.Time.Seconds() * float64(r.Hosts))},
	} {
		one := base
		one.Metric, one.Value, one.Unit = f.metric, f.value, bench.MetricOf(f.metric).Unit
		out = append(out, one)
	}
	return out, nil
}
