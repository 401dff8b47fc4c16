package importer

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rackless/rackless/bench"
)

// streamFormat is of STREAM.
var streamFormat = logFormat{name: Stream, head: streamHead, read: plain(testStream, "STREAM", stream),
	start: regexp.MustCompile(`(?m)^STREAM version `), setups: []setup{
		{word: "threads", line: regexp.MustCompile(`(?m)^Number of Threads counted = ([0-9]+)`)},
	}}

// testStream is the test of a log of STREAM.
const testStream = "stream"

// streamHead is how STREAM heads its table, from 5.8 on: rates are in MB/s of 10^6 bytes.
var streamHead = regexp.MustCompile(`(?m)^Function\s+(?:Best )?Rate (?:\()?MB/s\)?\s`)

// stream reads STREAM's table of four kernels. It is good once the program has checked its arrays.
func stream(log []byte) ([]bench.Figure, error) {
	kernels := []string{"Copy", "Scale", "Add", "Triad"}
	var figures []bench.Figure
	headed, valid := false, false
	err := bench.EachLine("STREAM", log, func(line string) error {
		line = strings.TrimRight(line, "\r\n")
		name, rest, ok := strings.Cut(line, ":")
		switch {
		case streamHead.MatchString(line) && headed:
			return errors.New("a second table")
		case streamHead.MatchString(line):
			headed = true
		case strings.HasPrefix(line, "Failed Validation"),
			strings.Contains(line, "Expected") && strings.Contains(line, "Observed"):
			return errors.New("STREAM found its arrays wrong")
		// Printed last, after the arrays were checked. Rates without it may be of loops that a compiler removed.
		case strings.HasPrefix(line, "Solution Validates"):
			valid = true
		// In this order and no other: STREAM prints its kernels as it runs them, so that a row out of place is of
		// another table.
		case headed && ok && len(figures) < len(kernels) && name == kernels[len(figures)]:
			fields := strings.Fields(rest)
			if len(fields) != 4 {
				return fmt.Errorf("want a rate and three times behind %s", name)
			}
			metric := strings.ToLower(name)
			v, err := bench.ParseValue(metric, fields[0])
			if err != nil {
				return fmt.Errorf("rate of %s: %w", name, err)
			}
			figures = append(figures, bench.Figure{Metric: metric, Value: v, Unit: "MB/s"})
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(figures) < len(kernels):
		return nil, bench.BadOutput("STREAM", log, fmt.Sprintf("the table is cut off or missing: no rate of %s in MB/s",
			kernels[len(figures)]))
	case !valid:
		return nil, bench.BadOutput("STREAM", log, "it is cut off: it does not say that the solution validates")
	}
	return figures, nil
}
