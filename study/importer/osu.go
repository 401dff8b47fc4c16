package importer

import (
	"regexp"

	"github.com/rackless/rackless/bench"
)

// osuFormat is of the OSU micro-benchmarks.
var osuFormat = logFormat{name: OSU, head: osuHead, read: one((*file).osu), start: osuHead, setups: []setup{
	{word: "pairs", line: regexp.MustCompile(`\[ pairs: ([0-9]+) \]`)},
	{word: "window", line: regexp.MustCompile(`\[ window size: ([0-9]+) \]`)},
}}

var osuHead = regexp.MustCompile(`(?m)^(?:# Number of (?:Sender|Receiver) .*\n)*` +
	`# OSU (?:MPI|[NRX]CCL)\S* \S.* Test v[0-9]`)

// osu reads the table of one of the OSU micro-benchmarks. Nothing closes such a table: where it was
// cut off behind a row is not seen.
func (f *file) osu() (reading, error) {
	res, err := bench.ParseOSU(f.data)
	if err != nil {
		return reading{test: "osu"}, err
	}
	return reading{test: res.Program, tool: "osu", version: res.Version, figures: res.Figures}, nil
}
