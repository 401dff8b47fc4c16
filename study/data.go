package study

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Data is a study as it was made: what Analyse reads.
type Data struct {
	Spec *Spec
	Runs []Observation // in the order in which they were made
}

// Began is when the first run was begun; zero where there is none, or that of some is not known, as of imported ones.
func (d *Data) Began() time.Time {
	if len(d.Runs) == 0 {
		return time.Time{}
	}
	// The zero time is the earliest of all.
	return slices.MinFunc(d.Runs, func(a, b Observation) int { return a.Started.Compare(b.Started) }).Started
}

// Names of facts that a change of which may move figures: what each run keeps of them is in its HostState.
const (
	FactKernel     = "host kernel"
	FactQEMU       = "QEMU"
	FactNodeKernel = "kernel of the nodes"
)

// A Fact is one thing of what a study was made on.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// An Observation is one run, or one attempt at it.
type Observation struct {
	Run        int64             `json:"run"` // number in the store
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
	// Tools are the versions by test, as far as they told.
	Tools map[string]string `json:"tools,omitempty"`
}

// Statuses of an observation, which say whether it counts.
const (
	StatusRunning   = "running" // or cut off: a run that is found running when a study goes on counts as lost
	StatusDone      = "done"
	StatusFailed    = "failed"    // at least one test of it failed; figures of the others count
	StatusDisturbed = "disturbed" // something else moved it: nothing of it counts
)

// A Value is one figure of a run.
type Value struct {
	Test   string  `json:"test"`
	Metric string  `json:"metric"`
	Bytes  int64   `json:"bytes,omitempty"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
}

// Quantity is what the value is of.
func (v Value) Quantity() Quantity { return Quantity{v.Test, v.Metric, v.Bytes, v.Unit} }

// Latencies are those of one measurement, as an encoded histogram.
type Latencies struct {
	Test  string
	Bytes int64
	Data  []byte
}

// A HostState is what of the host is looked at before and after each run: what may move a figure
// without any factor having a part in it. Absent values are not known.
type HostState struct {
	At        time.Time `json:"at"`
	BootID    string    `json:"boot_id"`
	Uptime    float64   `json:"uptime_seconds,omitempty"` // since the boot: a clock that nobody sets
	Governors []string  `json:"governors,omitempty"`      // the different ones, sorted
	MaxMHz    float64   `json:"max_mhz,omitempty"`        // highest limit of frequency among all CPUs
	MinMHz    float64   `json:"min_mhz,omitempty"`        // lowest of them
	// whether CPUs may run faster than their nominal frequency: "on", "off", or "on some CPUs"
	Turbo     string  `json:"turbo,omitempty"`
	Throttles uint64  `json:"throttles"`     // thermal throttle events since the boot, of all cores
	Steal     float64 `json:"steal_seconds"` // CPU time that a hypervisor took, since the boot
	Busy      float64 `json:"busy_seconds"`  // CPU time that was not idle, since the boot
	Own       float64 `json:"own_seconds"`   // of that, the nodes', the switch's and the load's
	CPUs      int     `json:"cpus"`          // online
	// time of a fixed piece of arithmetic on this host with nothing of the study running, in ms:
	// its noise floor
	Loop float64 `json:"loop_ms,omitempty"`
	// the same once the lab was led into the cell, before its load began: the control of every
	// study
	CellLoop float64  `json:"cell_loop_ms,omitempty"`
	Links    []string `json:"links,omitempty"` // speed and width of PCIe links of devices of the lab
	// CPUs that the plan gives each node of a lab on this host, as "vm00 2-3,8-9"
	Placed  []string `json:"placed,omitempty"`
	Devices []string `json:"nodes_numa,omitempty"` // NUMA node of each device in the nodes, as "vm00 mlx5_0 -1"
	// Versions of what a study may have been gone on with otherwise: of the host's kernel, of QEMU,
	// of the nodes' kernel, and of rackless.
	Kernel     string `json:"kernel,omitempty"`
	QEMU       string `json:"qemu,omitempty"`
	NodeKernel string `json:"node_kernel,omitempty"`
	Rackless   string `json:"rackless,omitempty"`
}

// primary are the metrics that a test is judged by, where the study does not say; nil stands for all that it has.
func primary(test string) []string {
	name, _, _ := strings.Cut(test, "/") // what comes behind says how it is run
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

// elsewhere says that runs are results of others, before anything is said about what they show.
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

// unseen says what nobody looked for: of imported runs the state of the machine is not known.
func (s *Spec) unseen() []string {
	if s.Imported == "" {
		return nil
	}
	return []string{"the order of the runs in time and the state of the machine around them are not known: load, " +
		"frequencies, heat and other versions of tools were not looked for"}
}
