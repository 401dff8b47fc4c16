package importer

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
)

// A logFormat is a format in which a file is what one run of a tool printed, or several runs one after the other.
type logFormat struct {
	name string
	// read enters the figures of a run, or why it has none, and returns the test's name. An error ends the import.
	read func(f *file, o *outcome) (test string, err error)
	// start matches where a run begins; nil where a file is one in any case. What is JSON is cut into its objects.
	start *regexp.Regexp
	// sides tells whether what begins at one start and what begins at the next are one run after
	// all; nil where they never are.
	sides func(a, b []byte) bool
}

var logFormats = []logFormat{
	{Perftest, noError((*file).perftest), perftestStart, perftestSides},
	{NCCLTests, noError((*file).ncclTests), ncclStart, nil},
	{Iperf3, noError((*file).iperf3), iperf3Text, nil},
	{OSU, noError((*file).osu), osuHead, nil},
	{Libfabric, noError((*file).libfabric), libfabricHead, nil},
	{Sysbench, noError((*file).sysbench), sysbenchHead, nil},
	{Stream, noError((*file).stream), streamStart, nil},
	{Rackless, (*file).rackless, nil, nil},
}

var unknownLog = logFormat{read: noError(func(f *file, o *outcome) string {
	o.failures = append(o.failures, f.name+": a log of no known tool")
	return ""
})}

func noError(read func(f *file, o *outcome) string) func(*file, *outcome) (string, error) {
	return func(f *file, o *outcome) (string, error) { return read(f, o), nil }
}

func isLog(format string) bool {
	return slices.ContainsFunc(logFormats, func(l logFormat) bool { return l.name == format })
}

// logs reads formats in which a file is a run or several. The level of a run is that of its source,
// else the first directory below the source, else the source's own name.
func (im *importing) logs() error {
	type ofTest struct{ level, test string }
	var order []ofTest
	outcomes := map[ofTest][]*outcome{}
	for _, f := range im.files {
		src := im.sources[f.source]
		level := src.Level
		if dirs := f.dir(); level == "" && len(dirs) > 0 {
			level = dirs[0]
		}
		if level == "" {
			level = src.Base
		}
		format := im.Format
		if format == Logs {
			format = sniff(f.data)
		}
		l := unknownLog
		if i := slices.IndexFunc(logFormats, func(l logFormat) bool { return l.name == format }); i >= 0 {
			l = logFormats[i]
		}
		runs, err := f.runs(l)
		if err != nil {
			return err
		}
		for _, run := range runs {
			o := &outcome{level: level}
			test, err := l.read(run, o)
			if err != nil {
				return err
			}
			for i := range o.samples {
				o.samples[i].Origin = f.origin(level)
			}
			k := ofTest{level, test}
			if outcomes[k] == nil {
				order = append(order, k)
			}
			outcomes[k] = append(outcomes[k], o)
		}
	}
	for _, k := range order {
		numberRepeats(outcomes[k])
		im.outcomes = append(im.outcomes, outcomes[k]...)
	}
	return nil
}

// A series is what is compared: figures of a test with one message size.
type series struct {
	test  string
	bytes int64
}

// numberRepeats numbers the runs of a test at a level. Runs of other message sizes are parts of one
// repeat, as a script leaves them that calls the tool for each size. One that failed is a repeat
// too, unless no size came twice: then it was one of the sizes.
func numberRepeats(runs []*outcome) {
	swept := isSweep(runs)
	repeats := map[series]int{}
	last, failed := 0, 0
	for _, o := range runs {
		switch {
		case len(o.samples) > 0:
			o.repeat = failed + 1
			for _, x := range o.samples {
				o.repeat = max(o.repeat, repeats[series{x.Test, x.Bytes}]+1)
			}
			for _, x := range o.samples {
				repeats[series{x.Test, x.Bytes}] = o.repeat
			}
		case swept:
			o.repeat = 1
		default:
			o.repeat = last + 1
			failed = o.repeat
		}
		last = max(last, o.repeat)
	}
}

// isSweep tells whether several runs have figures, and no series is in two of them.
func isSweep(runs []*outcome) bool {
	in := map[series]*outcome{}
	good := 0
	for _, o := range runs {
		if len(o.samples) > 0 {
			good++
		}
		for _, x := range o.samples {
			k := series{x.Test, x.Bytes}
			if in[k] != nil && in[k] != o {
				return false
			}
			in[k] = o
		}
	}
	return good > 1
}

// rackless reads samples.jsonl. A bad line spoils the file: rackless writes none.
func (f *file) rackless(o *outcome) (string, error) {
	samples, err := bench.ReadSamples(bytes.NewReader(f.data))
	if err != nil {
		return "", f.fail(0, "%v", err)
	}
	for _, s := range samples {
		if s.Error != "" {
			o.failures = append(o.failures, fmt.Sprintf("%s: %s: %s", f.name, s.Test, s.Error))
			continue
		}
		o.samples = append(o.samples, Sample{Sample: s})
		if !s.Started.IsZero() && (o.started.IsZero() || s.Started.Before(o.started)) {
			o.started = s.Started
		}
	}
	return "samples", nil
}

// perftest reads a log and returns the test's name. A log that is no result is a failure of its test.
func (f *file) perftest(o *outcome) string {
	res, err := bench.ParsePerftest(bytes.NewReader(f.data))
	if err == nil && !res.Complete {
		err = f.fail(f.lastLine(), "the table is cut off: the line below it is missing, so rows and digits may be, too")
	}
	if err != nil {
		return o.fail(f, perftestName(string(bytes.TrimSpace(perftestTitle.Find(f.data)))), err)
	}
	test := perftestName(res.Test)
	switch res.Connection {
	case "UC", "UD":
		test += "/" + strings.ToLower(res.Connection)
	}
	if res.QPs > 1 {
		test += "/q" + strconv.Itoa(res.QPs)
	}
	if strings.Contains(res.Test, "Bidirectional") {
		test += "/bidi"
	}
	o.add(test, "perftest", "", res.Figures())
	if len(o.samples) == 0 {
		o.failures = append(o.failures, fmt.Sprintf("%s: %s: no row has a figure", test, f.name))
	}
	return test
}

// perftestName is the program whose title a log has, by the names of bench.
func perftestName(title string) string {
	suffix := "_bw"
	if strings.Contains(title, "Latency") {
		suffix = "_lat"
	}
	for word, op := range map[string]string{"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send",
		"Atomic": "atomic"} {
		if strings.HasPrefix(title, word) {
			return "ib_" + op + suffix
		}
	}
	return "perftest"
}

// add enters the figures of a tool. A figure may round to zero where the tool prints few decimals,
// and bench has worked it out from another column then.
func (o *outcome) add(test, tool, version string, figures []bench.Figure) {
	for _, x := range figures {
		o.samples = append(o.samples, Sample{Sample: bench.Sample{
			Run: test, Test: test, Metric: x.Metric, Bytes: x.Bytes, Iterations: x.Iterations, Value: x.Value,
			Unit: x.Unit, Derived: x.Derived, Latencies: x.Latencies, Tool: tool, Version: version, Attempt: 1,
		}})
	}
}

// ncclOperations are the programs of nccl-tests, without _perf.
var ncclOperations = []string{"all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "gather",
	"hypercube", "reduce", "scatter", "sendrecv"}

// ncclStarting is how newer releases name the collective.
var ncclStarting = regexp.MustCompile(`(?m)^#\s*Collective test starting:\s*(\w+)_perf\b`)

// ncclTests reads a log and returns the test's name: older releases do not print which collective
// they ran, so the file's name has to say it.
func (f *file) ncclTests(o *outcome) string {
	test := "nccl-tests"
	name := strings.ReplaceAll(strings.ToLower(path.Base(f.rel)), "-", "_")
	if m := ncclStarting.FindSubmatch(f.data); m != nil {
		name = string(m[1])
	}
	compact := strings.ReplaceAll(name, "_", "")
	if i := slices.IndexFunc(ncclOperations, func(op string) bool {
		return strings.Contains(compact, strings.ReplaceAll(op, "_", ""))
	}); i >= 0 {
		test = "nccl_" + ncclOperations[i]
	}
	figures, err := bench.ParseNCCLTests(f.data)
	if err == nil && test == "nccl-tests" && len(f.data) < f.size {
		err = f.fail(1, "which collective this run of several is, neither the log nor its name says: "+
			"all_reduce.log would")
	}
	if err != nil {
		return o.fail(f, test, err)
	}
	o.add(test, "nccl-tests", "", figures)
	return test
}

// fail notes why a log is no result of a test.
func (o *outcome) fail(f *file, test string, err error) string {
	o.failures = append(o.failures, fmt.Sprintf("%s: %s", test, fileText(f, err)))
	return test
}

// iperf3 reads what the client printed, as text or with --json. The test's name says what a plain
// run has not: UDP, the way back, several streams.
func (f *file) iperf3(o *outcome) string {
	var res *bench.Iperf3Result
	var err error
	if iperf3Text.Match(f.data) {
		res, err = bench.ParseIperf3Text(f.data)
	} else {
		res, err = bench.ParseIperf3(bytes.NewReader(f.data))
	}
	if err != nil {
		return o.fail(f, "iperf3", err)
	}
	test := "iperf3"
	if res.Protocol == "UDP" {
		test += "/udp"
	}
	if res.Reverse {
		test += "/reverse"
	}
	if res.Streams > 1 {
		test += "/streams" + strconv.Itoa(res.Streams)
	}
	o.started = res.Started
	o.add(test, "iperf3", res.Version, res.Figures())
	return test
}

// osu reads the table of one of the OSU micro-benchmarks. Nothing closes such a table: where it was
// cut off behind a row is not seen.
func (f *file) osu(o *outcome) string {
	res, err := bench.ParseOSU(f.data)
	if err != nil {
		return o.fail(f, "osu", err)
	}
	o.add(res.Program, "osu", res.Version, res.Figures)
	return res.Program
}

// libfabric reads the table of fi_pingpong.
func (f *file) libfabric(o *outcome) string {
	figures, err := bench.ParseFiPingpong(f.data)
	if err != nil {
		return o.fail(f, "fi_pingpong", err)
	}
	o.add("fi_pingpong", "libfabric", "", figures)
	return "fi_pingpong"
}

var (
	sysbenchVersion = regexp.MustCompile(`(?m)^sysbench ([0-9][0-9A-Za-z.-]*)`)
	sysbenchThreads = regexp.MustCompile(`(?m)^Number of threads: 1\s*$`)
	sysbenchPrimes  = regexp.MustCompile(`(?m)^Prime numbers limit: ([0-9]+)\s*$`)
)

// sysbench reads the result of its CPU test, by one thread or by several.
func (f *file) sysbench(o *outcome) string {
	test := "sysbench_cpu"
	if sysbenchThreads.Match(f.data) {
		test += "_single"
	}
	primes := sysbenchPrimes.FindSubmatch(f.data)
	if primes == nil {
		return o.fail(f, "sysbench", f.fail(1, "of sysbench its CPU test is read, and this is another"))
	}
	if limit := string(primes[1]); limit != "10000" {
		// the default, which bench takes too: events of others take another time
		test += "/primes" + limit
	}
	figures, err := sysbench(f)
	if err != nil {
		return o.fail(f, test, err)
	}
	version := ""
	if m := sysbenchVersion.FindSubmatch(f.data); m != nil {
		version = string(m[1])
	}
	o.add(test, "sysbench", version, figures)
	return test
}

// testStream is the test of a log of STREAM.
const testStream = "stream"

// stream reads STREAM's table.
func (f *file) stream(o *outcome) string {
	figures, err := stream(f)
	if err != nil {
		return o.fail(f, testStream, err)
	}
	o.add(testStream, "STREAM", "", figures)
	return testStream
}
