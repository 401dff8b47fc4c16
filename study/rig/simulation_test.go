package rig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/study"
)

// simulation returns the rig of a study of a simulation, written to files.
func simulation(t *testing.T, text, file string) (*Simulation, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sim.yaml")
	if err := os.WriteFile(name, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := study.Parse("study.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return NewSimulation(spec, name)
}

const (
	simStudy = "name: s\nsimulation: sim.yaml\nmeasure: [{test: simulation}]\n"
	simFile  = "topology: {form: star, hosts: 5, rate: 100Gbit}\nswitch: {ecn: \"10KiB:40KiB:20%\"}\nseed: 7\n" +
		"traffic: [{pattern: incast, to: h0, senders: 4, bytes: 128KiB}]\n"
)

// Settings of a cell are keys of the file, and each half of a block has a seed that all cells share.
func TestSimulationOfACell(t *testing.T) {
	s, err := simulation(t, simStudy+"factors: {simulation.switch.alpha: [0.25, 0.5], "+
		"simulation.traffic.0.senders: [2, 3]}", simFile)
	if err != nil {
		t.Fatal(err)
	}
	cell := map[string]string{"simulation.switch.alpha": "0.5", "simulation.traffic.0.senders": "3"}
	for _, c := range []struct {
		block, place int
		seed         uint64
	}{{1, 1, 7}, {1, 4, 7}, {1, 5, 8}, {2, 4, 9}, {3, 8, 12}} {
		s.Replicate(study.Run{Block: c.block, Place: c.place})
		if err := s.Apply(t.Context(), cell); err != nil {
			t.Fatal(err)
		}
		if s.config.Seed != c.seed || s.config.Switch.Alpha != 0.5 || s.config.Traffic[0].Senders != 3 {
			t.Errorf("block %d, place %d: %+v", c.block, c.place, s.config)
		}
	}
	got, err := s.Measure(t.Context(), s.spec.Measure[0])
	if err != nil || len(got) == 0 {
		t.Fatalf("%v, %v", got, err)
	}
	by := map[string]float64{}
	for _, x := range got {
		by[x.Metric] = x.Value
		if x.Unit == "" || !x.Emulated || x.Error != "" {
			t.Errorf("%+v", x)
		}
	}
	if by[bench.MetricSlowdownP99] < by[bench.MetricSlowdown] || by[bench.MetricCompletion] <= 0 ||
		by[bench.MetricMarks] == 0 || by[bench.MetricQueueP99] <= 0 {
		t.Errorf("%v", by)
	}
	if state, err := s.State(0); err != nil || study.Disturbance(state, state, nil) == "" && state.At.IsZero() {
		t.Errorf("%+v, %v", state, err)
	}
}

// Levels that the file does not take are found before the first run, and flows that do not end fail the run.
func TestSimulationsThatFail(t *testing.T) {
	for _, c := range []struct{ factors, want string }{
		{"{simulation.switch.alpha: [0.25, 0]}", "with switch.alpha: 0"},
		{"{simulation.swich.alpha: [0.25, 1]}", `unknown key (have "swich"`},
		{"{simulation.name.x: [a, b]}", ""},
		{"{simulation.traffic.3.bytes: [1KiB, 2KiB]}", "factor simulation.traffic.3.bytes: traffic is a list of 1"},
	} {
		if _, err := simulation(t, simStudy+"factors: "+c.factors, simFile); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.factors, err, c.want)
		}
	}
	s, err := simulation(t, simStudy+"factors: {simulation.until: [1us, 2us]}", simFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Measure(t.Context(), s.spec.Measure[0]); err == nil {
		t.Error("measured without a cell")
	}
	if err := s.Apply(t.Context(), map[string]string{"simulation.until": "1us"}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Measure(t.Context(), s.spec.Measure[0])
	if err != nil || len(got) != 1 || !strings.Contains(got[0].Error, "4 of 4 flows did not end") {
		t.Errorf("%+v, %v", got, err)
	}
}

// The traffic of a lab file is beside its other keys of a simulation.
func TestSimulationOfALab(t *testing.T) {
	s, err := simulation(t, simStudy+"factors: {simulation.traffic.0.bytes: [1KiB, 2KiB], simulation.rate: [10Gbit]}",
		"name: pair\nnodes: {vm: {count: 2}}\ntraffic: [{pattern: permutation, bytes: 1MiB}]\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), map[string]string{"simulation.traffic.0.bytes": "2KiB",
		"simulation.rate": "10Gbit"}); err != nil || s.config.Traffic[0].Bytes != 2048 ||
		s.config.Topology.Rate != 10e9 {
		t.Errorf("%+v, %v", s.config, err)
	}
}
