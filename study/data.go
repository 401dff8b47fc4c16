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

// Began returns the start of the first run, or the zero time if there are no runs or a start is unknown, as for some
// imported runs.
func (d *Data) Began() time.Time {
	if len(d.Runs) == 0 {
		return time.Time{}
	}
	// An unknown start, the zero time, is the earliest of all.
	return slices.MinFunc(d.Runs, func(a, b Observation) int { return a.Started.Compare(b.Started) }).Started
}

// Names of facts whose change may affect figures. Each run records their values in its HostState.
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
	// Tools are the versions of tools by test, as far as known.
	Tools map[string]string `json:"tools,omitempty"`
}

// Statuses of an observation.
const (
	StatusRunning   = "running" // or interrupted, if the status is found when a study continues
	StatusDone      = "done"
	StatusFailed    = "failed"    // at least one test failed; figures of the others count
	StatusDisturbed = "disturbed" // something else affected it: none of its figures count
)

// A Value is one figure of a run.
type Value struct {
	Test   string  `json:"test"`
	Metric string  `json:"metric"`
	Bytes  int64   `json:"bytes,omitempty"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
}

// Quantity returns the quantity of the value.
func (v Value) Quantity() Quantity { return Quantity{v.Test, v.Metric, v.Bytes, v.Unit} }

// Latencies are the latencies of one measurement, as an encoded histogram.
type Latencies struct {
	Test  string
	Bytes int64
	Data  []byte
}

// A HostState is the state of the host before or after a run, as far as it may change a figure independently of any
// factor. Absent values are not known.
type HostState struct {
	At        time.Time `json:"at"`
	BootID    string    `json:"boot_id"`
	Uptime    float64   `json:"uptime_seconds,omitempty"` // since the boot, from a clock that cannot be set
	Governors []string  `json:"governors,omitempty"`      // distinct values, sorted
	MaxMHz    float64   `json:"max_mhz,omitempty"`        // highest scaling_max_freq of all CPUs
	MinMHz    float64   `json:"min_mhz,omitempty"`        // lowest scaling_max_freq of all CPUs
	// whether CPUs may exceed their nominal frequency: "on", "off", or "on some CPUs"
	Turbo     string  `json:"turbo,omitempty"`
	Throttles uint64  `json:"throttles"`     // thermal throttle events since the boot, of all cores
	Steal     float64 `json:"steal_seconds"` // CPU time taken by a hypervisor since the boot
	Busy      float64 `json:"busy_seconds"`  // CPU time not idle since the boot
	Own       float64 `json:"own_seconds"`   // part of Busy used by the nodes, the switch and the load
	CPUs      int     `json:"cpus"`          // online
	// noise floor: time of a fixed piece of arithmetic on this host with nothing of the study running, in ms
	Loop float64 `json:"loop_ms,omitempty"`
	// the same after the cell's settings were applied and before its load began: the control of every study
	CellLoop float64  `json:"cell_loop_ms,omitempty"`
	Links    []string `json:"links,omitempty"` // speed and width of the PCIe links of the lab's devices
	// CPUs assigned to each node of a lab on this host, as "vm00 2-3,8-9"
	Placed  []string `json:"placed,omitempty"`
	Devices []string `json:"nodes_numa,omitempty"` // NUMA node of each device in the nodes, as "vm00 mlx5_0 -1"
	// Versions that may have changed when a study was continued: of the host's kernel, of QEMU, of the nodes' kernel,
	// and of rackless.
	Kernel     string `json:"kernel,omitempty"`
	QEMU       string `json:"qemu,omitempty"`
	NodeKernel string `json:"node_kernel,omitempty"`
	Rackless   string `json:"rackless,omitempty"`
}

// primary returns the metrics that a test is judged by if the study names none; nil stands for all its metrics.
func primary(test string) []string {
	name, _, _ := strings.Cut(test, "/") // the rest tells how the test is run
	switch {
	case name == "iperf3":
		return []string{"throughput"}
	case name == TestIncast:
		return []string{"goodput", "fairness", "latency_p99"}
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

// elsewhere returns a warning that runs were imported, which precedes all conclusions.
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

// unseen lists properties that were not checked: the state of the machine is unknown for imported runs.
func (s *Spec) unseen() []string {
	if s.Imported == "" {
		return nil
	}
	return []string{"the order of the runs in time and the state of the machine around them are not known: load, " +
		"frequencies, heat and other versions of tools were not looked for"}
}
