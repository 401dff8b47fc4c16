package importer

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

// A logFormat is a format in which a file is what one run of a tool printed, or several runs one after the other.
type logFormat struct {
	name string
	// head tells the tool of a log of text, and json of one that is JSON.
	head, json *lazyregexp.Regexp
	// read reads a run, which may be one of several tests.
	read func(f *file) []reading
	// start matches the first line of a run, with a ruler above it that is not the one that closes the run before: a
	// run that was cut off ends there. nil where a file is one in any case. What is JSON is cut into its objects.
	start *lazyregexp.Regexp
	// sides tells whether what begins at one start and what begins at the next are one run after
	// all; nil where they never are.
	sides func(a, b []byte) bool
	// gaveUp matches what the program prints that gives up before it has said what it is; nil where nothing is known.
	gaveUp *lazyregexp.Regexp
	setups []setup
}

// A setup is what a log says of a run beside its test. Where runs of one test differ in it they are no repeats, and the
// word and the value become part of the name.
type setup struct {
	word    string
	line    *lazyregexp.Regexp // the value is its group
	counted bool               // or how many such lines there are
}

// logFormats are read here. The first one whose text or JSON matches is that of a log.
var logFormats = []logFormat{ncclFormat, perftestFormat, osuFormat, iperf3Format, nvFormat,
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

// readings are those of all tests of a log; of is what stands before the name of each.
func readings(of, by string, res tool.Tests, at Where) []reading {
	return lists.Map(res.All, func(t tool.Test) reading {
		return reading{test: of + t.Name, tool: by, version: res.Version, started: res.Started, figures: t.Figures,
			err: t.Err, where: at}
	})
}

// perftestFormat is of the programs of perftest, ib_write_bw and others.
var perftestFormat = logFormat{name: Perftest, head: perftestLog, json: perftestJSON, read: one((*file).perftest),
	start: perftestStart, sides: perftestSides, gaveUp: tool.PerftestSign,
	setups: []setup{
		{word: "", line: lazyregexp.New(`\bDevice"?\s*:\s*"?([\w-]+)`)},
		{word: "mtu", line: lazyregexp.New(`\bMtu"?\s*:\s*"?([0-9]+)`)},
		{word: "depth", line: lazyregexp.New(`\bTX depth"?\s*:\s*"?([0-9]+)`)},
	}}

const perftestTitleText = `[ \t]*(?:RDMA_(?:Write|Read)(?:_imm)?|Send(?:_imm)?|Atomic \w+|Raw Ethernet \w+)` +
	`(?: Bidirectional)?(?: Post List)? (?:BW|Latency)(?: forwarding)?(?: Multicast)? Test[ \t]*\r?$`

var (
	perftestTitle = lazyregexp.New(`(?m)^` + perftestTitleText)
	perftestHead  = lazyregexp.New(`(?m)^\s*#bytes\s+#iterations\b`)
	perftestJSON  = lazyregexp.New(`^\{[^\0]{0,200}?test_info`) // up to 6.06 without quotes
	perftestLog   = lazyregexp.New(`(?m)^(?:` + perftestTitleText + `|\s*#bytes\s+#iterations\b)`)
	perftestStart = lazyregexp.New(`(?m)^(?:` + perftestMemory + `)?(?:-{3,}[ \t]*\r?\n)?` + perftestTitleText)
)

// perftestMemory are the lines above a run's title: the command line, and what perftest tells of
// the GPU whose memory it takes.
const perftestMemory = `(?:(?:.*[\s/$#]|)ib_(?:write|read|send|atomic)_(?:bw|lat)(?: .*)?\n)?` +
	`(?:(?:WARNING|Requested|Conflicting|\*|initializing|Perftest doesn't|Using ROCm|Listing|CUDA|Picking|` +
	`\[pid =|creating|making|using|Using|allocat|Calling|cu[A-Z]\w+\().*\n|[ \t]*\r?\n)*`

// perftestSides tells whether two parts of a log are the client and the server of one run that
// print to one terminal: the first has but its title there when the second begins, and the second
// has the header rows of both.
func perftestSides(a, b []byte) bool {
	return len(perftestHead.FindAllIndex(a, 1)) == 0 && len(perftestHead.FindAllIndex(b, 2)) == 2
}

// perftest names the test from the title of the log and what stands below it, as bench names its engines.
func (f *file) perftest() (reading, error) {
	res, err := tool.ParsePerftest(f.data)
	if err == nil && !res.Complete {
		err = bench.BadOutput("perftest", f.data,
			"the table is cut off: the line below it is missing, so rows and digits may be, too")
	}
	if err != nil {
		return reading{test: tool.PerftestProgram(string(bytes.TrimSpace(perftestTitle.Find(f.data))))}, err
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

// iperf3Format is of what the client of iperf3 prints.
var iperf3Format = logFormat{name: Iperf3, head: iperf3Head, json: iperf3JSON, read: one((*file).iperf3),
	start: iperf3Text, gaveUp: iperf3GaveUp, setups: []setup{
		{word: "rate", line: lazyregexp.New(`"target_bitrate"\s*:\s*([1-9][0-9]*)`)},
		{word: "blocks", line: lazyregexp.New(`"blksize"\s*:\s*([0-9]+)`)},
	}}

var (
	// iperf3's --json has no name of the tool but here; the title is that of -T.
	iperf3JSON = lazyregexp.New(`^\{\s*(?:"title"\s*:\s*"[^"\n]*"\s*,\s*)?"start"\s*:`)
	iperf3Text = lazyregexp.New(`(?m)^(?:Connecting to host \S+, port \d+|Server listening on \d+.*)[ \t]*$`)
	// People copy the rows of the ends alone, which iperf of version 2 does not print.
	iperf3Head = lazyregexp.New(iperf3Text.String() +
		`|(?m)^\[ *(?:\d+|SUM)\] .* [KMGT]?bits/sec .*\b(?:sender|receiver)[ \t]*$`)
	iperf3GaveUp = lazyregexp.New(`(?m)^iperf3: error - `)
)

// iperf3 reads what the client printed, as text or with --json. The test's name says what a plain
// run has not: UDP, the way back, several streams.
func (f *file) iperf3() (reading, error) {
	var res *tool.Iperf3Result
	var err error
	if iperf3Head.Match(f.data) || iperf3GaveUp.Match(f.data) {
		res, err = tool.ParseIperf3Text(f.data)
	} else {
		res, err = tool.ParseIperf3(f.data)
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

// ncclFormat is of nccl-tests and of RCCL's, which are the same programs.
var ncclFormat = logFormat{name: NCCLTests, head: ncclHead, json: ncclJSON, read: (*file).ncclTests, start: ncclStart,
	sides: ncclSides, gaveUp: lazyregexp.New(`\bTest (?:NCCL|CUDA) failure\b|\bNCCL WARN `),
	setups: []setup{{word: "gpus", line: ncclRank, counted: true}}}

var (
	// Of a program that gives up before it has a table, only its parameters may be left.
	ncclHead = lazyregexp.New(`(?m)^#\s+(?:size\s+count\s.*\bbusbw\b|nThread \d+ nGpus \d+ minBytes \d+ )`)
	ncclJSON = lazyregexp.New(`^\{\s*"version"\s*:\s*\d+\s*,\s*"start_time"\s*:`)
	// Newer releases say more above the line with the arguments. A command line may stand above that.
	ncclStart = lazyregexp.New(
		`(?m)^(?:# nccl-tests version .*\n)?(?:# Collective test starting: .*\n)?# nThread |` + ncclCommandText)
)

// ncclSides tells whether a has but the command line of the run that b is of.
func ncclSides(a, _ []byte) bool { return !ncclHead.Match(a) }

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
	ncclStarting = lazyregexp.New(`(?m)^#\s*Collective test starting:\s*(\w+)_perf\b|"args":\["[^"]*?(\w+)_perf"`)
	ncclCommand  = lazyregexp.New(`(?m)^` + ncclCommandText)
	ncclRank     = lazyregexp.New(`(?m)^#\s+Rank\s+\d+ .*\bon\s+(\S+) device |"hostname":"([^"]+)"`)
	ncclGPU      = lazyregexp.New(`(?m)^#\s+Rank\s+\d+ .* device +(\d{1,3}) \[(\S+)\] (.*?)\s*$`)
	rccl         = lazyregexp.New(`(?m)^#? ?rccl-tests: Version |^RCCL version `)
)

// ncclTests finds out which collective a log is of: older releases do not print it, so the file's name has to say it.
// Types and operations of a run are tests of their own.
func (f *file) ncclTests() []reading {
	test, by := NCCLTests, NCCLTests
	name := path.Base(f.rel)
	if m := ncclStarting.FindSubmatch(f.data); m != nil {
		name = string(m[1]) + string(m[2])
	} else if m := ncclCommand.Find(f.data); m != nil {
		name = string(m[:bytes.LastIndex(m, []byte("_perf"))])
		name = name[strings.LastIndexAny(name, " /\"'$>")+1:]
	}
	if rccl.Match(f.data) {
		test, by = "rccl-tests", "rccl-tests"
	}
	compact := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	// The longer names stand before those that are parts of them: reduce_scatter before reduce.
	i := slices.IndexFunc(ncclOperations, func(op string) bool {
		return strings.Contains(compact, strings.ReplaceAll(op, "_", ""))
	})
	if i >= 0 {
		test = strings.TrimSuffix(test, "-tests") + "_" + ncclOperations[i]
	}
	kinds, err := tool.ParseNCCLKinds(f.data)
	if err == nil && i < 0 && len(f.data) < f.size {
		err = f.fail(1, "which collective this run of several is, neither the log nor its name says: "+
			"all_reduce.log would")
	}
	if err != nil {
		return []reading{{test: test, err: err}}
	}
	hosts := lists.SetOf(ncclRank.FindAllSubmatch(f.data, -1),
		func(m [][]byte) string { return string(m[1]) + string(m[2]) })
	where := Where{Hosts: len(hosts)}
	for _, m := range ncclGPU.FindAllSubmatch(f.data, maxRanks) {
		device, _ := strconv.Atoi(string(m[1])) // digits, and few of them
		where.Ranks = append(where.Ranks, Rank{device, strings.ToLower(string(m[2])), string(m[3])})
	}
	if len(hosts) > 1 || len(where.Ranks) == maxRanks {
		where.Ranks = nil
	}
	return readings(test, by, kinds, where)
}

// osuFormat is of the OSU micro-benchmarks.
var osuFormat = logFormat{name: OSU, head: osuHead, read: one((*file).osu), start: osuHead, setups: []setup{
	{word: "pairs", line: lazyregexp.New(`\[ pairs: ([0-9]+) \]`)},
	{word: "window", line: lazyregexp.New(`\[ window size: ([0-9]+) \]`)},
}}

var osuHead = lazyregexp.New(`(?m)^(?:# Number of (?:Sender|Receiver) .*\n)*` +
	`# OSU (?:MPI|[NRX]CCL)\S* \S.* Test v[0-9]`)

// osu reads the table of one of the OSU micro-benchmarks. Nothing closes such a table: where it was
// cut off behind a row is not seen.
func (f *file) osu() (reading, error) {
	res, err := tool.ParseOSU(f.data)
	if err != nil {
		return reading{test: "osu"}, err
	}
	return reading{test: res.Program, tool: "osu", version: res.Version, figures: res.Figures}, nil
}

// nvFormat is of nvbandwidth.
var nvFormat = logFormat{name: NVBandwidth, head: nvHead, json: nvJSON, read: (*file).nvBandwidth,
	start: lazyregexp.New(`(?m)^nvbandwidth Version: |^\{\s*"nvbandwidth"`)}

var (
	nvHead = lazyregexp.New(
		`(?m)^nvbandwidth Version: |^Running \w+(?:memcpy|copy|latency)\w*\.\s*$|^\{\s*"nvbandwidth"`)
	nvJSON = lazyregexp.New(`^\{\s*"nvbandwidth"\s*:`)
	// nvDevice matches a GPU in the list of nvbandwidth: "Device 0: NVIDIA H100 80GB HBM3 (00000000:19:00)".
	nvDevice = lazyregexp.New(
		`(?m)^Device (\d{1,3}): (.*) \(0000([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\)\s*$`)
)

// nvBandwidth reads all test cases of a run, and which GPUs it had.
func (f *file) nvBandwidth() []reading {
	tests, err := tool.ParseNVBandwidths(f.data)
	if err != nil {
		return []reading{{test: NVBandwidth, err: err}}
	}
	var where Where
	for _, m := range nvDevice.FindAllSubmatch(f.data, maxRanks) {
		device, _ := strconv.Atoi(string(m[1])) // digits, and few of them
		where.Ranks = append(where.Ranks, Rank{device, strings.ToLower(string(m[3])), string(m[2])})
	}
	return readings("", NVBandwidth, tests, where)
}
