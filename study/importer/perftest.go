package importer

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
)

// perftestFormat is of the programs of perftest, ib_write_bw and others.
var perftestFormat = logFormat{name: Perftest, head: perftestLog, json: perftestJSON, read: one((*file).perftest),
	start: perftestStart, sides: perftestSides, gaveUp: bench.PerftestSign,
	setups: []setup{
		{word: "", line: regexp.MustCompile(`\bDevice"?\s*:\s*"?([\w-]+)`)},
		{word: "mtu", line: regexp.MustCompile(`\bMtu"?\s*:\s*"?([0-9]+)`)},
		{word: "depth", line: regexp.MustCompile(`\bTX depth"?\s*:\s*"?([0-9]+)`)},
	}}

const perftestTitleText = `[ \t]*(?:RDMA_(?:Write|Read)(?:_imm)?|Send(?:_imm)?|Atomic \w+|Raw Ethernet \w+)` +
	`(?: Bidirectional)?(?: Post List)? (?:BW|Latency)(?: forwarding)?(?: Multicast)? Test[ \t]*\r?$`

var (
	perftestTitle = regexp.MustCompile(`(?m)^` + perftestTitleText)
	perftestHead  = regexp.MustCompile(`(?m)^\s*#bytes\s+#iterations\b`)
	perftestJSON  = regexp.MustCompile(`^\{[^\0]{0,200}?test_info`) // up to 6.06 without quotes
	perftestLog   = regexp.MustCompile(`(?m)^(?:` + perftestTitleText + `|\s*#bytes\s+#iterations\b)`)
	perftestStart = regexp.MustCompile(`(?m)^(?:` + perftestMemory + `)?(?:-{3,}[ \t]*\r?\n)?` + perftestTitleText)
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
