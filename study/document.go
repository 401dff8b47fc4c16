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
	// Emulated is set if figures say nothing about hardware: an RDMA device in software, or interpreted CPUs. Every
	// output shows it.
	Emulated bool
	// Lab is of before the first run; nil if not recorded.
	Lab         *record.Record
	Environment []Fact    // in display order
	Commands    []Command // that produced the figures
	// Repeat repeats the study: "rackless study run pin.yaml", or "".
	Repeat    string
	Generated time.Time // time of the report
	Rackless  string    // that made or imported the runs
}

// A Command holds the command lines of both ends of a test.
type Command struct {
	Test   string `json:"test"`
	Client string `json:"client,omitempty"` // the exact command line
	Server string `json:"server,omitempty"` // empty without a server
	Tool   string `json:"tool,omitempty"`   // "perftest 24.04"; the version if known
}

// SmallestEffects says which effects some blocks can show, for several spreads of a metric.
func SmallestEffects(s *Spec, blocks int) string {
	blocks = min(blocks, stats.MaxBlocks) // more only make it smaller
	var found []string
	// A small, a usual and a large spread: the metric's is unknown.
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
