package study

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/stats"
)

// A Document is a study with its result and where it was made.
type Document struct {
	Result *Result // as Analyse made it of Data; required
	Data   *Data   // required
	// Emulated is set where a figure says nothing about hardware: an RDMA device in software, or
	// CPUs that are interpreted. Every output says so.
	Emulated bool
	// Lab has nodes, machine and checks of the lab as the first run found it; nil where that was not recorded.
	Lab         *record.Record
	Environment []Fact    // host, kernel, versions: in the order in which they are shown
	Commands    []Command // that made the figures, each once
	// Repeat is the command that repeats the study, such as "rackless study run pin.yaml"; empty: not known.
	Repeat    string
	Generated time.Time // when the report was made
	Rackless  string    // version that made the runs, or imported them
}

// A Command is what was run at both ends for a test.
type Command struct {
	Test   string `json:"test"`
	Client string `json:"client,omitempty"` // the exact command line
	Server string `json:"server,omitempty"` // empty where the test needs no server
	Tool   string `json:"tool,omitempty"`   // with version, as far as it told: "perftest 24.04"
}

// SmallestEffects says what a study with some blocks can show, for metrics that vary little and much.
func SmallestEffects(s *Spec, blocks int) string {
	blocks = min(blocks, stats.MaxBlocks) // with more it is smaller still
	var found []string
	// How much the user's metric varies is not known before it is measured: little, usually, much.
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
