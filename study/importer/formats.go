package importer

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
)

type logFormat struct {
	name string
	// head is for text, json for JSON.
	head, json func() *regexp.Regexp
	read       func(f *file) []reading
	// start matches the first line of a run and the ruler above, unless that ends the previous run; nil means one run
	// per file. JSON is split into its objects instead.
	start func() *regexp.Regexp
	// sides reports whether two parts in a row belong to one run; nil means never.
	sides func(a, b []byte) bool
	// gaveUp matches a program that fails before it identifies itself, or is nil.
	gaveUp func() *regexp.Regexp
	setups []setup
}

// A setup is a setting in a log that makes different tests, with word and value in their names.
type setup struct {
	word    string
	line    func() *regexp.Regexp // its group is the value
	counted bool                  // value: matching lines
}

// logFormats are tried in order: the first one whose head or json matches is used.
var logFormats = []logFormat{ncclFormat, perftestFormat, osuFormat, iperf3Format, nvFormat,
	{name: Rackless}, // read by the method rackless
}

func formatOf(name string) logFormat {
	return lists.Find(logFormats, func(l logFormat) bool { return l.name == name })
}

func isLog(format string) bool { return formatOf(format).name != "" }

type reading struct {
	test, tool, version string
	started             time.Time // zero if not told
	figures             []bench.Figure
	where               Where
	err                 error // why figures are missing
}

// one adapts a reader of one test. The reading names the test even if there is an error.
func one(read func(f *file) (reading, error)) func(*file) []reading {
	return func(f *file) []reading {
		r, err := read(f)
		r.err = err
		return []reading{r}
	}
}

// readings prefixes of to the tests' names.
func readings(of, by string, res tool.Tests, at Where) []reading {
	return lists.Map(res.All, func(t tool.Test) reading {
		return reading{test: of + t.Name, tool: by, version: res.Version, started: res.Started, figures: t.Figures,
			err: t.Err, where: at}
	})
}

var perftestFormat = logFormat{name: Perftest, head: perftestLog, json: perftestJSON, read: one((*file).perftest),
	start: perftestStart, sides: perftestSides, gaveUp: tool.PerftestSign,
	setups: []setup{
		{word: "", line: lazyregexp.New(`\bDevice"?\s*:\s*"?([\w-]+)`)},
		{word: "mtu", line: lazyregexp.New(`\bMtu"?\s*:\s*"?([0-9]+)`)},
		{word: "depth", line: lazyregexp.New(`\bTX depth"?\s*:\s*"?([0-9]+)`)},
	}}

const perftestTitleText = `[ \t]*(?:RDMA_(?:Write|Read)(?:_imm)?|Send(?:_imm)?|Atomic \w+|Raw Ethernet \w+)` +
	`(?: Bidirectional)?(?: Post List)? (?:BW|Latency)(?: forwarding)?(?: Multicast)? Test[ \t]*\r?$`

// perftestRow allows for web pages, which may have taken a "#".
const perftestRow = `\s*#?[ \t]*bytes[ \t]+#?[ \t]*iterations\b`

var (
	perftestTitle = lazyregexp.New(`(?m)^` + perftestTitleText)
	perftestHead  = lazyregexp.New(`(?m)^` + perftestRow)
	perftestJSON  = lazyregexp.New(`^\{[^\0]{0,200}?test_info`) // without quotes up to 6.06
	perftestLog   = lazyregexp.New(`(?m)^(?:` + perftestTitleText + `|` + perftestRow + `)`)
	perftestStart = lazyregexp.New(`(?m)^(?:` + perftestMemory + `)?(?:-{3,}[ \t]*\r?\n)?` + perftestTitleText)
)

// perftestMemory matches the command line, and messages about the GPU whose memory is used.
const perftestMemory = `(?:(?:.*[\s/$#]|)ib_(?:write|read|send|atomic)_(?:bw|lat)(?: .*)?\n)?` +
	`(?:(?:WARNING|Requested|Conflicting|\*|initializing|Perftest doesn't|Using ROCm|Listing|CUDA|Picking|` +
	`\[pid =|creating|making|using|Using|allocat|Calling|cu[A-Z]\w+\().*\n|[ \t]*\r?\n)*`

// perftestSides is true for client and server on one terminal: a has only its title, b the header rows of both.
func perftestSides(a, b []byte) bool {
	return len(perftestHead().FindAllIndex(a, 1)) == 0 && len(perftestHead().FindAllIndex(b, 2)) == 2
}

// cutRemark says at which line a table ends without its end.
func cutRemark(data []byte) []tool.Remark {
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return []tool.Remark{{What: "the table is cut off: only the rows above its last line are taken",
		Evidence: strings.Join(strings.Fields(lines[len(lines)-1]), " ")}}
}

// perftest names the test as bench names engines.
func (f *file) perftest() (reading, error) {
	res, err := tool.ParsePerftest(f.data)
	var remarks []tool.Remark
	if f.excerpt && (err != nil || !res.Complete) {
		if above, ok := tool.WithoutLastRow(f.data); ok {
			if rows, err2 := tool.ParsePerftest(above); err2 == nil {
				rows.Complete = true
				res, err, remarks = rows, nil, cutRemark(f.data)
			}
		}
	}
	if err == nil && !res.Complete {
		err = bench.BadOutput("perftest", f.data,
			"the table is cut off: the line below it is missing, so rows and digits may be, too")
	}
	if err != nil {
		return reading{test: tool.PerftestProgram(string(bytes.TrimSpace(perftestTitle().Find(f.data))))}, err
	}
	r := reading{test: res.Engine(), tool: "perftest", figures: res.Figures(),
		where: Where{Device: res.Facts["Device"], Link: res.Facts["Link type"], Remarks: remarks}}
	// "4096[B]"
	r.where.MTU, _ = strconv.Atoi(strings.TrimSuffix(res.Facts["Mtu"], "[B]"))
	if len(r.figures) == 0 {
		err = errors.New("no row has a figure")
	}
	return r, err
}

var iperf3Format = logFormat{name: Iperf3, head: iperf3Head, json: iperf3JSON, read: one((*file).iperf3),
	start: iperf3Text, gaveUp: iperf3GaveUp, setups: []setup{
		{word: "rate", line: lazyregexp.New(`"target_bitrate"\s*:\s*([1-9][0-9]*)`)},
		{word: "blocks", line: lazyregexp.New(`"blksize"\s*:\s*([0-9]+)`)},
	}}

var (
	// --json does not name the tool; these are its first keys. The title comes from -T.
	iperf3JSON = lazyregexp.New(`^\{\s*(?:"title"\s*:\s*"[^"\n]*"\s*,\s*)?"start"\s*:`)
	iperf3Text = lazyregexp.New(`(?m)^(?:Connecting to host \S+, port \d+|Server listening on \d+.*)[ \t]*$`)
	// Copied logs may have only the final rows, which iperf version 2 does not print.
	iperf3Head = lazyregexp.New(iperf3Text().String() +
		`|(?m)^\[ *(?:\d+|SUM)\] .* [KMGT]?bits/sec .*\b(?:sender|receiver)[ \t]*$`)
	iperf3GaveUp = lazyregexp.New(`(?m)^iperf3: error - `)
)

// iperf3 reads the client's output, text or --json. Names include UDP, reverse direction, several streams.
func (f *file) iperf3() (reading, error) {
	var res *tool.Iperf3Result
	var err error
	if iperf3Head().Match(f.data) || iperf3GaveUp().Match(f.data) {
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

// ncclFormat also covers RCCL's tests, which are the same programs.
var ncclFormat = logFormat{name: NCCLTests, head: ncclHead, json: ncclJSON, read: (*file).ncclTests, start: ncclStart,
	sides: ncclSides, gaveUp: lazyregexp.New(`\bTest (?:NCCL|CUDA) failure\b|\bNCCL (?:WARN|INFO) `),
	setups: []setup{{word: "gpus", line: ncclRank, counted: true}}}

var (
	// A program that gives up may leave only its parameters. Web pages may have taken the "#".
	ncclHead = lazyregexp.New(`(?m)^#?[ \t]*(?:size\s+count\s.*\bbusbw\b|nThread \d+ nGpus \d+ minBytes \d+ )`)
	ncclJSON = lazyregexp.New(`^\{\s*"version"\s*:\s*\d+\s*,\s*"start_time"\s*:`)
	// More may stand above the line with the arguments.
	ncclStart = lazyregexp.New(
		`(?m)^(?:#? *nccl-tests version .*\n)?(?:#? *Collective test starting: .*\n)?#? *nThread \d|` + ncclCommandText)
)

// ncclSides: a is only the command line of b.
func ncclSides(a, _ []byte) bool { return !ncclHead().Match(a) }

// ncclOperations lists longer names before names that they contain.
var ncclOperations = []string{"all_reduce", "all_gather", "reduce_scatter", "alltoallv", "alltoall", "broadcast",
	"gather", "hypercube", "reduce", "scatter", "sendrecv"}

const ncclCommandText = `(?:[^\n#]*[ /"'$>])?(?:all_reduce|all_gather|reduce_scatter|alltoallv?|` +
	`broadcast|gather|hypercube|reduce|scatter|sendrecv)_perf[ \t]+-.*`

// maxRanks exceeds the GPUs of any machine.
const maxRanks = 65

// RCCL's tests are the same programs for AMD GPUs.
var (
	ncclStarting = lazyregexp.New(`(?m)^#?[ \t]*Collective test starting:\s*(\w+)_perf\b|"args":\["[^"]*?(\w+)_perf"`)
	ncclCommand  = lazyregexp.New(`(?m)^` + ncclCommandText)
	ncclRank     = lazyregexp.New(`(?m)^#?[ \t]*Rank\s+\d+ .*\bon\s+(\S+) device |"hostname":"([^"]+)"`)
	ncclGPU      = lazyregexp.New(`(?m)^#?[ \t]*Rank\s+\d+ .* device +(\d{1,3}) \[(\S+)\] (.*?)\s*$`)
	rccl         = lazyregexp.New(`(?m)^#? ?rccl-tests: Version |^RCCL version `)
)

// ncclTests may take the collective from the file's name, because older releases do not print it. Data types and
// operations are separate tests.
func (f *file) ncclTests() []reading {
	test, by := NCCLTests, NCCLTests
	name := path.Base(f.rel)
	if m := ncclStarting().FindSubmatch(f.data); m != nil {
		name = string(m[1]) + string(m[2])
	} else if m := ncclCommand().Find(f.data); m != nil {
		name = string(m[:bytes.LastIndex(m, []byte("_perf"))])
		name = name[strings.LastIndexAny(name, " /\"'$>")+1:]
	}
	if rccl().Match(f.data) {
		test, by = "rccl-tests", "rccl-tests"
	}
	compact := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	// reduce_scatter before reduce.
	i := slices.IndexFunc(ncclOperations, func(op string) bool {
		return strings.Contains(compact, strings.ReplaceAll(op, "_", ""))
	})
	operation := ""
	if i >= 0 {
		operation = ncclOperations[i]
	}
	kinds, err := tool.ParseNCCLKinds(f.data)
	var cut []tool.Remark
	if f.excerpt && err != nil {
		if rows, err2 := tool.ParseNCCLExcerpt(f.data); err2 == nil && len(rows.All) > 0 {
			kinds, err, cut = rows, nil, cutRemark(f.data)
		}
	}
	if err == nil && operation == "" {
		operation = ncclByRatio(kinds)
	}
	if operation != "" {
		test = strings.TrimSuffix(test, "-tests") + "_" + operation
	}
	remarks := append(cut, tool.NCCLRemarks(f.data)...)
	if err == nil && operation == "" && len(f.data) < f.size {
		err = f.fail(1, "which collective this run of several is, neither the log nor its name says: "+
			"all_reduce.log would")
	}
	if err != nil {
		// A log without figures may say why.
		for _, r := range lists.Filter(remarks, func(r tool.Remark) bool { return r.Fix != "" && !r.Possible }) {
			err = fmt.Errorf("%w; it says that %s (%s): %s", err, r.What, r.Evidence, r.Fix)
		}
		return []reading{{test: test, err: err}}
	}
	var hosts []string
	where := Where{Remarks: remarks}
	for _, m := range ncclRank().FindAllSubmatch(f.data, tool.MaxNCCLRanks) {
		host := string(m[1]) + string(m[2])
		hosts = lists.Add(hosts, host)
		where.Placed = append(where.Placed, slices.Index(hosts, host))
	}
	where.Hosts = len(hosts)
	for _, m := range ncclGPU().FindAllSubmatch(f.data, maxRanks) {
		device, _ := strconv.Atoi(string(m[1])) // at most three digits
		where.Ranks = append(where.Ranks, Rank{device, strings.ToLower(string(m[2])), string(m[3])})
	}
	if len(hosts) > 1 || len(where.Ranks) == maxRanks {
		where.Ranks = nil
	}
	return readings(test, by, kinds, where)
}

// ncclByRatio returns the operation that the figures tell, or "". Only an all-reduce has a bus bandwidth above
// size/time, up to twice.
//
// Source: doc/PERFORMANCE.md of nccl-tests.
func ncclByRatio(kinds tool.Tests) string {
	const roundedAway = 1.2
	for _, t := range kinds.All {
		if strings.HasSuffix(t.Name, "/cputime") {
			continue // that time ends early
		}
		times := map[int64]float64{} // us by size
		for _, x := range t.Figures {
			switch {
			case x.Metric == bench.MetricCollectiveTime:
				times[x.Bytes] = x.Value
			case x.Metric == bench.MetricBusBandwidth && times[x.Bytes] > 0 && x.Value >= 1 &&
				x.Value > roundedAway*float64(x.Bytes)/times[x.Bytes]/1e3:
				return "all_reduce"
			}
		}
	}
	return ""
}

var osuFormat = logFormat{name: OSU, head: osuHead, read: one((*file).osu), start: osuHead, setups: []setup{
	{word: "pairs", line: lazyregexp.New(`\[ pairs: ([0-9]+) \]`)},
	{word: "window", line: lazyregexp.New(`\[ window size: ([0-9]+) \]`)},
}}

var osuHead = lazyregexp.New(`(?m)^(?:#? ?Number of (?:Sender|Receiver) .*\n)*` +
	`(?:# ?OSU (?:MPI|[NRX]CCL)\S* \S.* Test v[0-9]|OSU (?:MPI|[NRX]CCL)\S* \S.* Test v[0-9]\S*[ \t]*$)`)

var mpiDevices = lazyregexp.New(`\b(?:UCX_NET_DEVICES=|btl_openib_if_include[ =])["']?([\w.:-]+(?:,[\w.:-]+)*)`)

// devices returns the RDMA devices that the command of an MPI program names, without ports.
func (f *file) devices() (all []string) {
	m := mpiDevices().FindSubmatch(f.data)
	if m == nil || string(m[1]) == "all" {
		return nil
	}
	for name := range strings.SplitSeq(string(m[1]), ",") {
		name, _, _ = strings.Cut(name, ":")
		all = lists.Add(all, name)
	}
	return all
}

// osu reads a table without an end mark, so truncation after a complete row is not detected.
func (f *file) osu() (reading, error) {
	res, err := tool.ParseOSU(f.data)
	if err != nil {
		return reading{test: "osu"}, err
	}
	r := reading{test: res.Program, tool: "osu", version: res.Version, figures: res.Figures}
	if res.Gap != "" {
		r.where.Remarks = []tool.Remark{{What: "the table is not whole", Evidence: res.Gap}}
	}
	if names := f.devices(); len(names) > 0 {
		r.where.Device, r.where.Rails = names[0], names[1:]
	}
	return r, nil
}

var nvFormat = logFormat{name: NVBandwidth, head: nvHead, json: nvJSON, read: (*file).nvBandwidth,
	start: lazyregexp.New(`(?m)^nvbandwidth Version: |^\{\s*"nvbandwidth"`)}

var (
	nvHead = lazyregexp.New(
		`(?m)^nvbandwidth Version: |^Running \w+(?:memcpy|copy|latency)\w*\.\s*$|^\{\s*"nvbandwidth"`)
	nvJSON = lazyregexp.New(`^\{\s*"nvbandwidth"\s*:`)
	// "Device 0: NVIDIA H100 80GB HBM3 (00000000:19:00)"
	nvDevice = lazyregexp.New(
		`(?m)^Device (\d{1,3}): (.*) \(0000([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\)\s*$`)
)

func (f *file) nvBandwidth() []reading {
	tests, err := tool.ParseNVBandwidths(f.data)
	if err != nil {
		return []reading{{test: NVBandwidth, err: err}}
	}
	var where Where
	for _, m := range nvDevice().FindAllSubmatch(f.data, maxRanks) {
		device, _ := strconv.Atoi(string(m[1])) // at most three digits
		where.Ranks = append(where.Ranks, Rank{device, strings.ToLower(string(m[3])), string(m[2])})
	}
	return readings("", NVBandwidth, tests, where)
}
