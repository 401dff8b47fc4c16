package importer

import (
	"regexp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/words"
)

// sysbenchFormat is of sysbench.
var sysbenchFormat = logFormat{name: Sysbench, head: sysbenchHead, read: one((*file).sysbench), start: sysbenchStart,
	setups: []setup{{word: "threads", line: sysbenchCount}}}

var (
	sysbenchHead    = regexp.MustCompile(`(?m)^(?:sysbench [0-9]|Running the test with following options:)`)
	sysbenchStart   = regexp.MustCompile(`(?m)^sysbench [0-9]`)
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
	r.test += words.If(sysbenchThreads.Match(f.data), "_single")
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
