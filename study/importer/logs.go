package importer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/group"
)

// A logFormat is a format in which a file is what one run of a tool printed, or several runs one after the other.
type logFormat struct {
	name string
	// head tells the tool of a log of text, and json of one that is JSON.
	head, json *regexp.Regexp
	// read reads a run, which may be one of several tests.
	read func(f *file) []reading
	// start matches where a run begins; nil where a file is one in any case. What is JSON is cut into its objects.
	start *regexp.Regexp
	// sides tells whether what begins at one start and what begins at the next are one run after
	// all; nil where they never are.
	sides func(a, b []byte) bool
}

// A reading is what a log says of one test of a run.
type reading struct {
	test, tool, version string
	started             time.Time // zero where the log does not say
	figures             []bench.Figure
	where               Where
	err                 error // why there are no figures, or not all
}

// logFormats are read here. The first one whose text or JSON matches is that of a log.
var logFormats = []logFormat{
	{NCCLTests, ncclHead, ncclJSON, (*file).ncclTests, ncclStart, ncclSides},
	{Perftest, perftestLog, perftestJSON, one((*file).perftest), perftestStart, perftestSides},
	{OSU, osuHead, nil, one((*file).osu), osuHead, nil},
	{Sysbench, sysbenchHead, nil, one((*file).sysbench), sysbenchStart, nil},
	{Libfabric, libfabricHead, nil, plain("fi_pingpong", Libfabric, bench.ParseFiPingpong), libfabricHead, nil},
	{Stream, streamHead, nil, plain(testStream, "STREAM", stream), streamStart, nil},
	{Iperf3, iperf3Text, iperf3JSON, one((*file).iperf3), iperf3Text, nil},
	{IMB, imbHead, nil, several(IMB, bench.ParseIMB), imbStart, nil},
	{Fio, fioHead, fioJSON, several(Fio, bench.ParseFio), fioStart, fioSides},
	{StressNG, stressHead, nil, several(StressNG, bench.ParseStressNG), stressStart, nil},
	{NVBandwidth, nvHead, nvJSON, several(NVBandwidth, bench.ParseNVBandwidths), nvStart, nil},
	{UCX, ucxHead, nil, one((*file).ucx), ucxStart, ucxSides},
	{Rackless, nil, nil, nil, nil, nil}, // read by the method rackless
}

// fioDisk matches a drive that fio wrote to, in its statistics of disks.
var fioDisk = regexp.MustCompile(`(?m)^ +(nvme\w+): ios=|"name" ?: ?"(nvme\w+)"`)

// nvDevice matches a GPU in the list of nvbandwidth: "Device 0: NVIDIA H100 80GB HBM3 (00000000:19:00)".
var nvDevice = regexp.MustCompile(
	`(?m)^Device (\d{1,3}): (.*) \(0000([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\)\s*$`)

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

// several reads a log of a tool that runs several tests in turn; its name stands for all where none can be told.
func several(tool string, parse func([]byte) (bench.Tests, error)) func(*file) []reading {
	return func(f *file) []reading {
		res, err := parse(f.data)
		if err != nil {
			return []reading{{test: tool, err: err}}
		}
		var gpus []Rank
		for _, m := range nvDevice.FindAllSubmatch(f.data, maxRanks) {
			device, _ := strconv.Atoi(string(m[1])) // digits, and few of them
			gpus = append(gpus, Rank{device, strings.ToLower(string(m[3])), string(m[2])})
		}
		var all []reading
		for _, t := range res.All {
			r := reading{test: t.Name, tool: tool, version: res.Version, started: res.Started, figures: t.Figures,
				err: t.Err, where: Where{Ranks: gpus}}
			if disks := fioDisk.FindAllSubmatch(f.data, 2); tool == Fio && len(disks) == 1 {
				r.where.Device = string(disks[0][1]) + string(disks[0][2])
			}
			all = append(all, r)
		}
		return all
	}
}

// formatOf is the format with a name; one without a name where there is none.
func formatOf(name string) logFormat {
	for _, l := range logFormats {
		if l.name == name {
			return l
		}
	}
	return logFormat{}
}

func isLog(format string) bool { return formatOf(format).name != "" }

// logs reads formats in which a file is a run or several. The level of a run is that of its source,
// else the first directory below the source, else the source's own name.
func (im *importing) logs() error {
	var all []*outcome
	for _, f := range im.files {
		src := im.sources[f.source]
		level := src.Level
		// As people sort their logs: one directory for each setting that they compare.
		if dirs := f.dir(); level == "" && len(dirs) > 0 {
			level = dirs[0]
		}
		if level == "" {
			level = src.Base
		}
		format := im.Format
		// With --format logs each file is of its own tool.
		if format == Logs {
			format = sniff(f.data)
		}
		l := formatOf(format)
		runs, err := f.runs(l)
		if err != nil {
			return err
		}
		for _, run := range runs {
			tests, err := run.outcomes(l, level)
			if err != nil {
				return err
			}
			all = append(all, tests...)
		}
	}
	nameSetups(all)
	type ofTest struct{ level, test string }
	var outcomes group.By[ofTest, *outcome]
	for _, o := range all {
		outcomes.Add(ofTest{o.level, o.test}, o)
	}
	for _, k := range outcomes.Keys {
		numberRepeats(outcomes.Of(k))
		im.outcomes = append(im.outcomes, outcomes.Of(k)...)
	}
	return nil
}

// outcomes reads a run. An error ends the import.
func (f *file) outcomes(l logFormat, level string) ([]*outcome, error) {
	switch {
	case l.name == Rackless:
		o := &outcome{level: level, test: "samples"}
		return []*outcome{o}, f.rackless(o)
	case l.read == nil:
		return []*outcome{{level: level, failures: []string{f.name + ": a log of no known tool"}}}, nil
	}
	var all []*outcome
	for _, r := range l.read(f) {
		o := &outcome{level: level, test: r.test, setup: f.setup(l), started: r.started}
		origin := f.origin(level)
		origin.Where = r.where
		o.add(r, origin)
		if r.err != nil {
			o.fail(f, r.test, r.err)
		}
		all = append(all, o)
	}
	return all, nil
}

// setups are what logs say of a run beside its test. Where runs of one test differ in it they are no repeats, and the
// word and the value become part of the name.
var setups = []struct {
	format, word string
	line         *regexp.Regexp
}{
	{Perftest, "", regexp.MustCompile(`\bDevice"?\s*:\s*"?([\w-]+)`)},
	{Perftest, "mtu", regexp.MustCompile(`\bMtu"?\s*:\s*"?([0-9]+)`)},
	{Perftest, "depth", regexp.MustCompile(`\bTX depth"?\s*:\s*"?([0-9]+)`)},
	{OSU, "pairs", regexp.MustCompile(`\[ pairs: ([0-9]+) \]`)},
	{OSU, "window", regexp.MustCompile(`\[ window size: ([0-9]+) \]`)},
	{Sysbench, "threads", sysbenchCount},
	{Stream, "threads", regexp.MustCompile(`(?m)^Number of Threads counted = ([0-9]+)`)},
	{Iperf3, "rate", regexp.MustCompile(`"target_bitrate"\s*:\s*([1-9][0-9]*)`)},
	{Iperf3, "blocks", regexp.MustCompile(`"blksize"\s*:\s*([0-9]+)`)},
}

// setup returns the words of setups for a run, "" for each that it does not say or that is of another format. The first
// one is how many GPUs there were.
func (f *file) setup(l logFormat) []string {
	words := make([]string, 1, 1+len(setups))
	if n := len(ncclRank.FindAllIndex(f.data, -1)); l.name == NCCLTests && n > 0 {
		words[0] = fmt.Sprint("gpus", n)
	}
	for _, s := range setups {
		word := ""
		if m := s.line.FindSubmatch(f.data); l.name == s.format && m != nil {
			word = s.word + string(m[1])
		}
		words = append(words, word)
	}
	return words
}

// nameSetups makes tests of their own of the runs of one test and level whose setups differ. Setups that only levels
// differ in are what the levels are compared by.
func nameSetups(all []*outcome) {
	type place struct {
		level, test string
		word        int
	}
	seen, differs := map[place]string{}, map[place]bool{}
	for _, o := range all {
		for i, word := range o.setup {
			p := place{o.level, o.test, i}
			if len(o.samples) == 0 {
				continue // a failed run makes no test of the good ones
			}
			if first := seen[p]; word != "" && first != "" && first != word {
				differs[place{"", o.test, i}] = true
			}
			seen[p] = cmp.Or(seen[p], word)
		}
	}
	for _, o := range all {
		test := o.test
		for i, word := range o.setup {
			// A test of sysbench's memory has its threads in its name already.
			if differs[place{"", test, i}] && word != "" && !slices.Contains(strings.Split(o.test, "/"), word) {
				o.test += "/" + word
			}
		}
		for i := range o.samples {
			if o.test != test {
				o.samples[i].Test, o.samples[i].Run = o.test, o.test
			}
		}
	}
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
func (f *file) rackless(o *outcome) error {
	samples, err := bench.ReadSamples(bytes.NewReader(f.data))
	if err != nil {
		return f.fail(0, "%v", err)
	}
	for _, s := range samples {
		if s.Error != "" {
			o.failures = append(o.failures, fmt.Sprintf("%s: %s: %s", f.name, s.Test, s.Error))
			continue
		}
		o.samples = append(o.samples, Sample{s, f.origin(o.level)})
		if !s.Started.IsZero() && (o.started.IsZero() || s.Started.Before(o.started)) {
			o.started = s.Started
		}
	}
	return nil
}

// perftest names the test from the title of the log and what stands below it, as bench names its engines.
func (f *file) perftest() (reading, error) {
	res, err := bench.ParsePerftest(f.data)
	if err == nil && !res.Complete {
		err = bench.BadOutput("perftest", f.data,
			"the table is cut off: the line below it is missing, so rows and digits may be, too")
	}
	if err != nil {
		return reading{test: bench.PerftestProgram(string(bytes.TrimSpace(perftestTitle.Find(f.data))))}, err
	}
	r := reading{test: res.Engine(), tool: "perftest", figures: res.Figures(),
		where: Where{Device: res.Facts["Device"]}}
	// Nothing but digits is a number here: "4096[B]".
	r.where.MTU, _ = strconv.Atoi(strings.TrimSuffix(res.Facts["Mtu"], "[B]"))
	if len(r.figures) == 0 {
		err = errors.New("no row has a figure")
	}
	return r, err
}

// add enters the figures of a run. A figure may round to zero where the tool prints few decimals,
// and bench has worked it out from another column then.
func (o *outcome) add(r reading, origin Origin) {
	for _, x := range r.figures {
		o.samples = append(o.samples, Sample{bench.Sample{
			Run: r.test, Test: r.test, Metric: x.Metric, Bytes: x.Bytes, Iterations: x.Iterations, Value: x.Value,
			Unit: x.Unit, Derived: x.Derived, Latencies: x.Latencies, Tool: r.tool, Version: r.version, Attempt: 1,
		}, origin})
	}
}

// fail notes why a log is no result of a test.
func (o *outcome) fail(f *file, test string, err error) {
	o.failures = append(o.failures, fmt.Sprintf("%s: %s", test, fileText(f, err)))
}

// ncclOperations are the programs of nccl-tests, without _perf; a name comes before those that it contains.
var ncclOperations = []string{"all_reduce", "all_gather", "reduce_scatter", "alltoallv", "alltoall", "broadcast",
	"gather", "hypercube", "reduce", "scatter", "sendrecv"}

// ncclCommandText matches a command line that runs one of the tests.
const ncclCommandText = `(?:[^\n#]*[ /"'$>])?(?:all_reduce|all_gather|reduce_scatter|alltoallv?|` +
	`broadcast|gather|hypercube|reduce|scatter|sendrecv)_perf[ \t]+-.*`

// maxRanks is more than the GPUs of any machine.
const maxRanks = 65

// Lines that name the collective: newer releases of nccl-tests have one, and the JSON has the arguments. RCCL's tests
// are the same programs, for GPUs of AMD.
var (
	ncclStarting = regexp.MustCompile(`(?m)^#\s*Collective test starting:\s*(\w+)_perf\b|"args":\["[^"]*?(\w+)_perf"`)
	ncclCommand  = regexp.MustCompile(`(?m)^` + ncclCommandText)
	ncclRank     = regexp.MustCompile(`(?m)^#\s+Rank\s+\d+ .*\bon\s+(\S+) device |"hostname":"([^"]+)"`)
	ncclGPU      = regexp.MustCompile(`(?m)^#\s+Rank\s+\d+ .* device +(\d{1,3}) \[(\S+)\] (.*?)\s*$`)
	rccl         = regexp.MustCompile(`(?m)^#? ?rccl-tests: Version |^RCCL version `)
)

// ncclTests finds out which collective a log is of: older releases do not print it, so the file's name has to say it.
// Types and operations of a run are tests of their own.
func (f *file) ncclTests() []reading {
	test, tool := NCCLTests, NCCLTests
	name := path.Base(f.rel)
	if m := ncclStarting.FindSubmatch(f.data); m != nil {
		name = string(m[1]) + string(m[2])
	} else if m := ncclCommand.Find(f.data); m != nil {
		name = string(m[:bytes.LastIndex(m, []byte("_perf"))])
		name = name[strings.LastIndexAny(name, " /\"'$>")+1:]
	}
	if rccl.Match(f.data) {
		test, tool = "rccl-tests", "rccl-tests"
	}
	compact := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	// The longer names stand before those that are parts of them: reduce_scatter before reduce.
	i := slices.IndexFunc(ncclOperations, func(op string) bool {
		return strings.Contains(compact, strings.ReplaceAll(op, "_", ""))
	})
	if i >= 0 {
		test = strings.TrimSuffix(test, "-tests") + "_" + ncclOperations[i]
	}
	kinds, err := bench.ParseNCCLKinds(f.data)
	if err == nil && i < 0 && len(f.data) < f.size {
		err = f.fail(1, "which collective this run of several is, neither the log nor its name says: "+
			"all_reduce.log would")
	}
	if err != nil {
		return []reading{{test: test, err: err}}
	}
	hosts := map[string]bool{}
	for _, m := range ncclRank.FindAllSubmatch(f.data, -1) {
		hosts[string(m[1])+string(m[2])] = true
	}
	where := Where{Hosts: len(hosts)}
	for _, m := range ncclGPU.FindAllSubmatch(f.data, maxRanks) {
		device, _ := strconv.Atoi(string(m[1])) // digits, and few of them
		where.Ranks = append(where.Ranks, Rank{device, strings.ToLower(string(m[2])), string(m[3])})
	}
	if len(hosts) > 1 || len(where.Ranks) == maxRanks {
		where.Ranks = nil
	}
	var all []reading
	for _, k := range kinds.All {
		all = append(all, reading{test: test + k.Name, tool: tool, version: kinds.Version, figures: k.Figures,
			where: where, err: k.Err})
	}
	return all
}

// ucx finds out which test a log is of, and of which size.
func (f *file) ucx() (reading, error) {
	t, err := bench.ParseUCXLog(f.data, path.Base(f.rel))
	if err == nil && strings.HasPrefix(t.Name, "ucx_unnamed") && len(f.data) < f.size {
		err = f.fail(1, "which test this run of several is, neither the log nor its name says: tag_bw.log would")
	}
	if err != nil {
		t.Figures = nil
	}
	return reading{test: t.Name, tool: UCX, figures: t.Figures}, err
}

// iperf3 reads what the client printed, as text or with --json. The test's name says what a plain
// run has not: UDP, the way back, several streams.
func (f *file) iperf3() (reading, error) {
	var res *bench.Iperf3Result
	var err error
	if iperf3Text.Match(f.data) || iperf3GaveUp.Match(f.data) {
		res, err = bench.ParseIperf3Text(f.data)
	} else {
		res, err = bench.ParseIperf3(f.data)
	}
	if err != nil {
		return reading{test: "iperf3"}, err
	}
	test := "iperf3"
	if res.Protocol == "UDP" {
		test += "/udp"
	}
	if res.Reverse {
		test += "/reverse"
	}
	if res.Both {
		test += "/bidir"
	}
	if res.Streams > 1 {
		test += "/streams" + strconv.Itoa(res.Streams)
	}
	return reading{test: test, tool: "iperf3", version: res.Version, started: res.Started, figures: res.Figures()}, nil
}

// osu reads the table of one of the OSU micro-benchmarks. Nothing closes such a table: where it was
// cut off behind a row is not seen.
func (f *file) osu() (reading, error) {
	res, err := bench.ParseOSU(f.data)
	if err != nil {
		return reading{test: "osu"}, err
	}
	return reading{test: res.Program, tool: "osu", version: res.Version, figures: res.Figures}, nil
}

var (
	sysbenchVersion = regexp.MustCompile(`(?m)^sysbench ([0-9][0-9A-Za-z.-]*)`)
	sysbenchThreads = regexp.MustCompile(`(?m)^Number of threads: 1\s*$`)
	sysbenchPrimes  = regexp.MustCompile(
		`(?m)^(?:Prime numbers limit|Maximum prime number checked in CPU test): ([0-9]+)\s*$`)
	sysbenchMemory = regexp.MustCompile(`(?mi)^Running memory speed test|^Memory operations type:`)
	sysbenchCount  = regexp.MustCompile(`(?m)^Number of threads: ([0-9]+)\s*$`)
)

// sysbench reads the result of its CPU test, by one thread or by several, or of its memory test.
func (f *file) sysbench() (reading, error) {
	r := reading{test: "sysbench_cpu", tool: "sysbench"}
	if m := sysbenchVersion.FindSubmatch(f.data); m != nil {
		r.version = string(m[1])
	}
	if sysbenchMemory.Match(f.data) {
		operation, figures, err := bench.ParseSysbenchMemory(f.data)
		r.test, r.figures = "sysbench_memory/"+operation, figures
		if m := sysbenchCount.FindSubmatch(f.data); m != nil && string(m[1]) != "1" {
			r.test += "/threads" + string(m[1])
		}
		return r, err
	}
	if sysbenchThreads.Match(f.data) {
		r.test += "_single"
	}
	primes := sysbenchPrimes.FindSubmatch(f.data)
	if primes == nil {
		return reading{test: "sysbench"}, f.fail(1,
			"of sysbench its CPU and memory tests are read, and this is another")
	}
	if limit := string(primes[1]); limit != "10000" {
		// The default, which bench takes too: events with another limit take another time.
		r.test += "/primes" + limit
	}
	var err error
	r.figures, err = sysbenchOfAnyThreads(f.data)
	return r, err
}

// testStream is the test of a log of STREAM.
const testStream = "stream"
