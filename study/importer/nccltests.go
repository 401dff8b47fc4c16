package importer

import (
	"bytes"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
)

// ncclFormat is of nccl-tests and of RCCL's, which are the same programs.
var ncclFormat = logFormat{name: NCCLTests, head: ncclHead, json: ncclJSON, read: (*file).ncclTests, start: ncclStart,
	sides: ncclSides, gaveUp: regexp.MustCompile(`\bTest (?:NCCL|CUDA) failure\b|\bNCCL WARN `),
	setups: []setup{{word: "gpus", line: ncclRank, counted: true}}}

var (
	// Of a program that gives up before it has a table, only its parameters may be left.
	ncclHead = regexp.MustCompile(`(?m)^#\s+(?:size\s+count\s.*\bbusbw\b|nThread \d+ nGpus \d+ minBytes \d+ )`)
	ncclJSON = regexp.MustCompile(`^\{\s*"version"\s*:\s*\d+\s*,\s*"start_time"\s*:`)
	// Newer releases say more above the line with the arguments. A command line may stand above that.
	ncclStart = regexp.MustCompile(
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
	var all []reading
	for _, k := range kinds.All {
		all = append(all, reading{test: test + k.Name, tool: tool, version: kinds.Version, figures: k.Figures,
			where: where, err: k.Err})
	}
	return all
}
