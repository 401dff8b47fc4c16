package study

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/stats"
)

// A Document is a study with its result and its environment.
type Document struct {
	Result *Result // required; from Analyse on Data
	Data   *Data   // required
	// Emulated is set if figures say nothing about hardware, because of an RDMA device in software or interpreted
	// CPUs. Every output shows it.
	Emulated bool
	// Lab has the nodes, machine and checks of the lab before the first run. It is nil if these were not recorded.
	Lab         *record.Record
	Environment []Fact    // host, kernel, versions: in display order
	Commands    []Command // distinct commands that produced the figures
	// Repeat is the command that repeats the study, such as "rackless study run pin.yaml", or "" if unknown.
	Repeat    string
	Generated time.Time // time of the report
	Rackless  string    // version that made or imported the runs
}

// A Command holds the command lines of both ends of a test.
type Command struct {
	Test   string `json:"test"`
	Client string `json:"client,omitempty"` // the exact command line
	Server string `json:"server,omitempty"` // empty if the test needs no server
	Tool   string `json:"tool,omitempty"`   // with its version if known: "perftest 24.04"
}

// SmallestEffects returns the smallest effects that a study with some blocks can show, for several spreads of a
// metric.
func SmallestEffects(s *Spec, blocks int) string {
	blocks = min(blocks, stats.MaxBlocks) // more blocks only make it smaller
	var found []string
	// The spread of the user's metric is unknown before it is measured, so show a small, a usual and a large one.
	for _, spread := range []float64{0.01, 0.05, 0.2} {
		p := stats.Power{Spread: spread, Alpha: 1 - s.Confidence, Comparisons: s.Comparisons(), Seed: s.Seed}
		if e := p.Detectable(blocks); !math.IsInf(e, 1) {
			found = append(found, fmt.Sprintf("%.1f%% where it varies by %g%% from block to block", 100*e, 100*spread))
		}
	}
	if found == nil {
		return "none, whatever its size"
	}
	return strings.Join(found, ", ")
}
