package study

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Data is a study with its runs, the input of Analyse.
type Data struct {
	Spec *Spec
	Runs []Observation // in the order of execution
}

// Began returns the start of the first run; zero without runs or if a start is unknown, as for some imported runs.
func (d *Data) Began() time.Time {
	if len(d.Runs) == 0 {
		return time.Time{}
	}
	// The zero time is the earliest.
	return slices.MinFunc(d.Runs, func(a, b Observation) int { return a.Started.Compare(b.Started) }).Started
}

// These facts may affect figures if they change. Each run records them in its HostState.
const (
	FactKernel     = "host kernel"
	FactQEMU       = "QEMU"
	FactNodeKernel = "kernel of the nodes"
)

// A Fact is one property of the environment of a study.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An Observation is one attempt at a run.
type Observation struct {
	Run        int64             `json:"run"` // number in the database
	Block      int               `json:"block"`
	Place      int               `json:"place"`
	Attempt    int               `json:"attempt"`
	Cell       map[string]string `json:"cell"`
	Status     string            `json:"status"`
	Started    time.Time         `json:"started"`
	Seconds    float64           `json:"seconds"`
	Error      string            `json:"error,omitempty"`
	Values     []Value           `json:"values"`
	Before     *HostState        `json:"before,omitempty"`
	After      *HostState        `json:"after,omitempty"`
	Histograms []Latencies       `json:"-"`
	// Tools are the known versions of tools by test.
	Tools map[string]string `json:"tools,omitempty"`
}

// Statuses of an observation.
const (
	StatusRunning   = "running" // interrupted if found when a study continues
	StatusDone      = "done"
	StatusFailed    = "failed"    // figures of other tests count
	StatusDisturbed = "disturbed" // none of its figures count
)

// A Value is one figure of a run.
type Value struct {
	Test   string  `json:"test"`
	Metric string  `json:"metric"`
	Bytes  int64   `json:"bytes,omitempty"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
}

// Quantity returns the value's quantity.
func (v Value) Quantity() Quantity { return Quantity{v.Test, v.Metric, v.Bytes, v.Unit} }

// Latencies are those of one measurement, as an encoded histogram.
type Latencies struct {
	Test  string
	Bytes int64
	Data  []byte
}

// A HostState is the state of the host before or after a run, as far as it may change figures. Absent values are
// unknown.
type HostState struct {
	At        time.Time `json:"at"`
	BootID    string    `json:"boot_id"`
	Uptime    float64   `json:"uptime_seconds,omitempty"` // since boot, by a clock that cannot be set
	Governors []string  `json:"governors,omitempty"`      // distinct values, sorted
	MaxMHz    float64   `json:"max_mhz,omitempty"`        // highest scaling_max_freq of all CPUs
	MinMHz    float64   `json:"min_mhz,omitempty"`        // lowest scaling_max_freq of all CPUs
	// may CPUs exceed their nominal frequency: "on", "off", "on some CPUs"
	Turbo     string  `json:"turbo,omitempty"`
	Throttles uint64  `json:"throttles"`     // thermal events since boot, all cores
	Steal     float64 `json:"steal_seconds"` // by a hypervisor, since boot
	Busy      float64 `json:"busy_seconds"`  // not idle, since boot
	Own       float64 `json:"own_seconds"`   // of Busy: nodes, switch and load
	CPUs      int     `json:"cpus"`          // online
	// noise floor with nothing of the study running, in ms
	Loop float64 `json:"loop_ms,omitempty"`
	// the same with the cell's settings, before its load: the control of every study
	CellLoop float64  `json:"cell_loop_ms,omitempty"`
	Links    []string `json:"links,omitempty"` // PCIe speed and width
	// CPUs of each node on this host: "vm00 2-3,8-9"
	Placed  []string `json:"placed,omitempty"`
	Devices []string `json:"nodes_numa,omitempty"` // as seen in the nodes: "vm00 mlx5_0 -1"
	// Versions that may change when a study is continued: the host's kernel, QEMU, the nodes' kernel, rackless.
	Kernel     string `json:"kernel,omitempty"`
	QEMU       string `json:"qemu,omitempty"`
	NodeKernel string `json:"node_kernel,omitempty"`
	Rackless   string `json:"rackless,omitempty"`
}

// primary returns the metrics to judge a test by if the study names none; nil means all.
func primary(test string) []string {
	name, _, _ := strings.Cut(test, "/") // the rest tells how the test is run
	switch {
	case name == "iperf3":
		return []string{"throughput"}
	case name == TestIncast:
		return []string{"goodput", "fairness", "latency_p99"}
	case name == TestSimulation:
		return []string{"slowdown_p99", "completion", "queue_p99"}
	case name == "7zip":
		return []string{"rating"}
	case slices.Contains([]string{"lammps", "gromacs", "openfoam"}, name):
		return []string{"step_rate"}
	case name == "ping":
		return []string{"latency_average"}
	case strings.HasSuffix(name, "_lat"):
		return []string{"latency_typical", "latency_p99"}
	case strings.HasSuffix(name, "_bw"), strings.HasSuffix(name, "_mbw_mr"):
		return []string{"bw_average"}
	}
	return nil
}

func (s *Spec) elsewhere() []string {
	if s.Imported == "" {
		return nil
	}
	words := []string{fmt.Sprintf("These runs were measured elsewhere and imported (%s): rackless neither "+
		"interleaved nor randomised them. Blocks are no more than the numbers of "+
		"repeats, and what drifted or differed between them looks like an effect: take the verdicts with care.",
		s.Imported)}
	if len(s.Pairings()) == 0 {
		words = append(words, fmt.Sprintf("They have one level alone, %s, so there is nothing to compare.",
			s.CellText(s.Cells()[0])))
	}
	return words
}

// unseen lists unchecked properties: the machine of imported runs is unknown.
func (s *Spec) unseen() []string {
	if s.Imported == "" {
		return nil
	}
	return []string{"the order of the runs in time and the state of the machine around them are not known: load, " +
		"frequencies, heat and other versions of tools were not looked for"}
}
