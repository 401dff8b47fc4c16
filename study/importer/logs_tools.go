package importer

import (
	"bytes"
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
)

// fioDisk matches a drive that fio wrote to, in its statistics of disks.
var fioDisk = regexp.MustCompile(`(?m)^ +(nvme\w+): ios=|"name" ?: ?"(nvme\w+)"`)

// nvDevice matches a GPU in the list of nvbandwidth: "Device 0: NVIDIA H100 80GB HBM3 (00000000:19:00)".
var nvDevice = regexp.MustCompile(
	`(?m)^Device (\d{1,3}): (.*) \(0000([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\)\s*$`)

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
