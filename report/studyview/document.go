package studyview

import (
	"time"

	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/study"
)

// Schema names the form of the JSON.
const Schema = "rackless/study/v1"

// A Document is a study with its result and where it was made.
type Document struct {
	Result *study.Result // as Analyse made it of Data; required
	Data   *study.Data   // required
	// Emulated is set where a figure says nothing about hardware: an RDMA device in software, or
	// CPUs that are interpreted. Every output says so.
	Emulated bool
	// Lab has nodes, machine and checks of the lab as the first run found it; nil where that was not recorded.
	Lab         *report.Data
	Environment []study.Fact // host, kernel, versions: in the order in which they are shown
	Commands    []Command    // that made the figures, each once
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

// Options say what the terminal can do.
type Options struct {
	Color bool // use colours; the caller decides, for instance by NO_COLOR
	Width int  // columns, 0 means 100, at least 60; sentences are folded to it, tables need 80
}
