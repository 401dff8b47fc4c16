package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/rackless/rackless/bench"
)

const perftestTitleText = `[ \t]*(?:RDMA_(?:Write|Read)(?:_imm)?|Send(?:_imm)?|Atomic \w+|Raw Ethernet \w+)` +
	`(?: Bidirectional)?(?: Post List)? (?:BW|Latency)(?: forwarding)?(?: Multicast)? Test[ \t]*\r?$`

var (
	perftestTitle = regexp.MustCompile(`(?m)^` + perftestTitleText)
	perftestHead  = regexp.MustCompile(`(?m)^\s*#bytes\s+#iterations\b`)
	perftestJSON  = regexp.MustCompile(`^\{[^\0]{0,200}?test_info`) // up to 6.06 without quotes
	perftestLog   = regexp.MustCompile(`(?m)^(?:` + perftestTitleText + `|\s*#bytes\s+#iterations\b)`)
	// Of a program that gives up before it has a table, only its parameters may be left.
	ncclHead      = regexp.MustCompile(`(?m)^#\s+(?:size\s+count\s.*\bbusbw\b|nThread \d+ nGpus \d+ minBytes \d+ )`)
	osuHead       = regexp.MustCompile(`(?m)^(?:# Number of (?:Sender|Receiver) .*\n)*# OSU MPI\S* \S.* Test v[0-9]`)
	sysbenchHead  = regexp.MustCompile(`(?m)^(?:sysbench [0-9]|Running the test with following options:)`)
	libfabricHead = regexp.MustCompile(`(?m)^bytes\s+#sent\s+#ack\s`)
	// iperf3's --json has no name of the tool but here; the title is that of -T.
	iperf3JSON = regexp.MustCompile(`^\{\s*(?:"title"\s*:\s*"[^"\n]*"\s*,\s*)?"start"\s*:`)
	iperf3Text = regexp.MustCompile(`(?m)^(?:Connecting to host \S+, port \d+|Server listening on \d+.*)$`)
	ncclJSON   = regexp.MustCompile(`^\{\s*"version"\s*:\s*\d+\s*,\s*"start_time"\s*:`)
	imbHead    = regexp.MustCompile(`(?m)^#\s+Intel ?\(R\) MPI Benchmark|^# Benchmarking \S+ *$`)
	fioHead    = regexp.MustCompile(`(?m)^(?:\S.*: \(groupid=\d+, jobs=\d+\): err=|fio-\d[\w.-]*$|\{\s*"fio version")`)
	fioJSON    = regexp.MustCompile(`^\{\s*"fio version"`)
	stressHead = regexp.MustCompile(`(?m)^stress-ng: (?:info|metrc): +\[\d+\] `)
	nvHead     = regexp.MustCompile(
		`(?m)^nvbandwidth Version: |^Running \w+(?:memcpy|copy|latency)\w*\.\s*$|^\{\s*"nvbandwidth"`)
	nvJSON = regexp.MustCompile(`^\{\s*"nvbandwidth"\s*:`)
	// What programs print that give up before they have said what they are.
	gaveUp = []struct {
		format string
		sign   *regexp.Regexp
	}{
		{Perftest, bench.PerftestSign},
		{NCCLTests, regexp.MustCompile(`\bTest (?:NCCL|CUDA) failure\b|\bNCCL WARN `)},
		{Iperf3, iperf3GaveUp},
		{UCX, regexp.MustCompile(`\bperftest\.c:\d+ +UCX +(?:ERROR|FATAL)\b`)},
	}
	iperf3GaveUp = regexp.MustCompile(`(?m)^iperf3: error - `)
	ucxHead      = regexp.MustCompile(`(?m)^\| +(?:Stage|Test) +\| +# iterations +\|`)
)

// detect finds the format by the contents of the files. Files that no format knows do not speak
// against one that others have: a log of a tool that gave up may hold nothing that tells it. Logs
// of several tools are read together.
func detect(files []*file) (string, error) {
	if isVCPUBenchmarks(files) {
		return VCPUBenchmarks, nil
	}
	// A directory tells the suite by its file names alone, so it is asked first: each of the files by itself would be
	// taken for a log of another tool.
	var found string
	var by *file
	for _, f := range files {
		got := sniff(f.data)
		switch {
		case got == "":
		case found == "":
			found, by = got, f
		case got == found || found == Logs && isLog(got):
		case isLog(got) && isLog(found):
			found = Logs
		default:
			return "", fmt.Errorf("%s is of format %s, and %s of format %s: import them apart", by.name, sniff(by.data),
				f.name, got)
		}
	}
	if found == "" {
		return "", &Error{File: files[0].name,
			What: fmt.Sprintf("of no known format; if it is one of %s, say which with --format",
				strings.Join(Formats()[1:], ", "))}
	}
	return found, nil
}

// sniff tells a single file's format; "" where it cannot.
func sniff(data []byte) string {
	trimmed := bytes.TrimSpace(data)
	// Several objects of JSON may lie in one array; what the first one is decides.
	if rest, ok := bytes.CutPrefix(trimmed, []byte("[")); ok {
		trimmed = bytes.TrimSpace(rest)
	}
	if bytes.HasPrefix(trimmed, []byte("{")) {
		line, _, _ := bytes.Cut(trimmed, []byte("\n"))
		var head struct {
			Node *string `json:"node"`
			Run  *string `json:"run"`
			Test *string `json:"test"`
		}
		// Python writes NaN, which is no JSON.
		err := json.Unmarshal(strictJSON(line), &head)
		var wrongType *json.UnmarshalTypeError
		switch {
		case err != nil && !errors.As(err, &wrongType):
		case head.Run != nil && head.Test != nil:
			return Rackless
		case head.Node != nil:
			return SuperBench
		}
		for _, l := range logFormats {
			if l.json != nil && l.json.Match(trimmed) {
				return l.name
			}
		}
		return ""
	}
	for _, l := range logFormats {
		if l.head != nil && l.head.Match(data) {
			return l.name
		}
	}
	// A command line or remarks may stand above a tool's JSON.
	for _, at := range objectLine.FindAllIndex(data, maxObjects) {
		for _, l := range logFormats {
			if l.json != nil && l.json.Match(data[at[1]-1:]) {
				return l.name
			}
		}
	}
	for _, g := range gaveUp {
		if g.sign.Match(data) {
			return g.format
		}
	}
	return ""
}

// isVCPUBenchmarks looks for a directory with the results of the suite's first three tests, or of
// two of them: the suite can leave tests out.
func isVCPUBenchmarks(files []*file) bool {
	have := map[string]int{}
	for _, f := range files {
		if _, ok := vcpuTests[path.Base(f.rel)]; ok || path.Base(f.rel) == vcpuTopology {
			key := fmt.Sprint(f.source, " ", path.Dir(f.rel))
			if have[key]++; have[key] == 2 {
				return true
			}
		}
	}
	return false
}
