package importer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// setups are what logs say of a run beside its test. Where runs of one test differ in it they are no repeats, and the
// word and the value become part of the name.
var setups = []struct {
	format, word string
	line         *regexp.Regexp
}{
	{Perftest, "", regexp.MustCompile(`\bDevice"?\s*:\s*"?([\w-]+)`)},
	{Perftest, "mtu", regexp.MustCompile(`\bMtu"?\s*:\s*"?([0-9]+)`)},
	{Perftest, "depth", regexp.MustCompile(`\bTX depth"?\s*:\s*"?([0-9]+)`)},
	{OSU, "pairs", regexp.MustCompile(`\[ pairs: ([0-9]+) \]`)},
	{OSU, "window", regexp.MustCompile(`\[ window size: ([0-9]+) \]`)},
	{Sysbench, "threads", sysbenchCount},
	{Stream, "threads", regexp.MustCompile(`(?m)^Number of Threads counted = ([0-9]+)`)},
	{Iperf3, "rate", regexp.MustCompile(`"target_bitrate"\s*:\s*([1-9][0-9]*)`)},
	{Iperf3, "blocks", regexp.MustCompile(`"blksize"\s*:\s*([0-9]+)`)},
}

// setup returns the words of setups for a run, "" for each that it does not say or that is of another format. The first
// one is how many GPUs there were.
func (f *file) setup(l logFormat) []string {
	words := make([]string, 1, 1+len(setups))
	if n := len(ncclRank.FindAllIndex(f.data, -1)); l.name == NCCLTests && n > 0 {
		words[0] = fmt.Sprint("gpus", n)
	}
	for _, s := range setups {
		word := ""
		if m := s.line.FindSubmatch(f.data); l.name == s.format && m != nil {
			word = s.word + string(m[1])
		}
		words = append(words, word)
	}
	return words
}

// nameSetups makes tests of their own of the runs of one test and level whose setups differ. Setups that only levels
// differ in are what the levels are compared by.
func nameSetups(all []*outcome) {
	type place struct {
		level, test string
		word        int
	}
	seen, differs := map[place]string{}, map[place]bool{}
	for _, o := range all {
		for i, word := range o.setup {
			p := place{o.level, o.test, i}
			if len(o.samples) == 0 {
				continue // a failed run makes no test of the good ones
			}
			if first := seen[p]; word != "" && first != "" && first != word {
				differs[place{"", o.test, i}] = true
			}
			seen[p] = cmp.Or(seen[p], word)
		}
	}
	for _, o := range all {
		test := o.test
		for i, word := range o.setup {
			// A test of sysbench's memory has its threads in its name already.
			if differs[place{"", test, i}] && word != "" && !slices.Contains(strings.Split(o.test, "/"), word) {
				o.test += "/" + word
			}
		}
		for i := range o.samples {
			if o.test != test {
				o.samples[i].Test, o.samples[i].Run = o.test, o.test
			}
		}
	}
}

// A series is what is compared: figures of a test with one message size.
type series struct {
	test  string
	bytes int64
}

// numberRepeats numbers the runs of a test at a level. Runs of other message sizes are parts of one
// repeat, as a script leaves them that calls the tool for each size. One that failed is a repeat
// too, unless no size came twice: then it was one of the sizes.
func numberRepeats(runs []*outcome) {
	swept := isSweep(runs)
	repeats := map[series]int{}
	last, failed := 0, 0
	for _, o := range runs {
		switch {
		case len(o.samples) > 0:
			o.repeat = failed + 1
			for _, x := range o.samples {
				o.repeat = max(o.repeat, repeats[series{x.Test, x.Bytes}]+1)
			}
			for _, x := range o.samples {
				repeats[series{x.Test, x.Bytes}] = o.repeat
			}
		case swept:
			o.repeat = 1
		default:
			o.repeat = last + 1
			failed = o.repeat
		}
		last = max(last, o.repeat)
	}
}

// isSweep tells whether several runs have figures, and no series is in two of them.
func isSweep(runs []*outcome) bool {
	in := map[series]*outcome{}
	good := 0
	for _, o := range runs {
		if len(o.samples) > 0 {
			good++
		}
		for _, x := range o.samples {
			k := series{x.Test, x.Bytes}
			if in[k] != nil && in[k] != o {
				return false
			}
			in[k] = o
		}
	}
	return good > 1
}
