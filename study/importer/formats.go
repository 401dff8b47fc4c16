package importer

import (
	"regexp"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
)

// A logFormat is a format in which a file is what one run of a tool printed, or several runs one after the other.
type logFormat struct {
	name string
	// head tells the tool of a log of text, and json of one that is JSON.
	head, json *regexp.Regexp
	// read reads a run, which may be one of several tests.
	read func(f *file) []reading
	// start matches the first line of a run, with a ruler above it that is not the one that closes the run before: a
	// run
	// that was cut off ends there. nil where a file is one in any case. What is JSON is cut into its objects.
	start *regexp.Regexp
	// sides tells whether what begins at one start and what begins at the next are one run after
	// all; nil where they never are.
	sides func(a, b []byte) bool
	// gaveUp matches what the program prints that gives up before it has said what it is; nil where nothing is known.
	gaveUp *regexp.Regexp
	setups []setup
}

// A setup is what a log says of a run beside its test. Where runs of one test differ in it they are no repeats, and the
// word and the value become part of the name.
type setup struct {
	word    string
	line    *regexp.Regexp // the value is its group
	counted bool           // or how many such lines there are
}

// logFormats are read here. The first one whose text or JSON matches is that of a log.
var logFormats = []logFormat{ncclFormat, perftestFormat, osuFormat, sysbenchFormat, libfabricFormat, streamFormat,
	iperf3Format, imbFormat, fioFormat, stressFormat, nvFormat, ucxFormat,
	{name: Rackless}, // read by the method rackless
}

// formatOf is the format with a name; one without a name where there is none.
func formatOf(name string) logFormat {
	return lists.Find(logFormats, func(l logFormat) bool { return l.name == name })
}

func isLog(format string) bool { return formatOf(format).name != "" }

// A reading is what a log says of one test of a run.
type reading struct {
	test, tool, version string
	started             time.Time // zero where the log does not say
	figures             []bench.Figure
	where               Where
	err                 error // why there are no figures, or not all
}

// one reads a log of one test. The reading names the test also where there is an error.
func one(read func(f *file) (reading, error)) func(*file) []reading {
	return func(f *file) []reading {
		r, err := read(f)
		r.err = err
		return []reading{r}
	}
}

// plain reads a log that says nothing but the figures of one test.
func plain(test, tool string, parse func([]byte) ([]bench.Figure, error)) func(*file) []reading {
	return one(func(f *file) (reading, error) {
		figures, err := parse(f.data)
		return reading{test: test, tool: tool, figures: figures}, err
	})
}

// several reads a log of a tool that runs several tests in turn; its name stands for all where none can be told. where
// says what the log tells of the machine; nil for nothing.
func several(tool string, parse func([]byte) (bench.Tests, error), where func(log []byte) Where) func(*file) []reading {
	return func(f *file) []reading {
		res, err := parse(f.data)
		if err != nil {
			return []reading{{test: tool, err: err}}
		}
		var at Where
		if where != nil {
			at = where(f.data)
		}
		var all []reading
		for _, t := range res.All {
			all = append(all, reading{test: t.Name, tool: tool, version: res.Version, started: res.Started,
				figures: t.Figures, err: t.Err, where: at})
		}
		return all
	}
}
