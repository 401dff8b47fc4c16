package importer

import (
	"regexp"
	"strconv"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/words"
)

// iperf3Format is of what the client of iperf3 prints.
var iperf3Format = logFormat{name: Iperf3, head: iperf3Head, json: iperf3JSON, read: one((*file).iperf3),
	start: iperf3Text, gaveUp: iperf3GaveUp, setups: []setup{
		{word: "rate", line: regexp.MustCompile(`"target_bitrate"\s*:\s*([1-9][0-9]*)`)},
		{word: "blocks", line: regexp.MustCompile(`"blksize"\s*:\s*([0-9]+)`)},
	}}

var (
	// iperf3's --json has no name of the tool but here; the title is that of -T.
	iperf3JSON = regexp.MustCompile(`^\{\s*(?:"title"\s*:\s*"[^"\n]*"\s*,\s*)?"start"\s*:`)
	iperf3Text = regexp.MustCompile(`(?m)^(?:Connecting to host \S+, port \d+|Server listening on \d+.*)[ \t]*$`)
	// People copy the rows of the ends alone, which iperf of version 2 does not print.
	iperf3Head = regexp.MustCompile(iperf3Text.String() +
		`|(?m)^\[ *(?:\d+|SUM)\] .* [KMGT]?bits/sec .*\b(?:sender|receiver)[ \t]*$`)
	iperf3GaveUp = regexp.MustCompile(`(?m)^iperf3: error - `)
)

// iperf3 reads what the client printed, as text or with --json. The test's name says what a plain
// run has not: UDP, the way back, several streams.
func (f *file) iperf3() (reading, error) {
	var res *bench.Iperf3Result
	var err error
	if iperf3Head.Match(f.data) || iperf3GaveUp.Match(f.data) {
		res, err = bench.ParseIperf3Text(f.data)
	} else {
		res, err = bench.ParseIperf3(f.data)
	}
	if err != nil {
		return reading{test: "iperf3"}, err
	}
	test := "iperf3"
	test += words.If(res.Protocol == "UDP", "/udp")
	test += words.If(res.Reverse, "/reverse")
	test += words.If(res.Both, "/bidir")
	if res.Streams > 1 {
		test += "/streams" + strconv.Itoa(res.Streams)
	}
	return reading{test: test, tool: "iperf3", version: res.Version, started: res.Started, figures: res.Figures()}, nil
}
