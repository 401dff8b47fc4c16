package importer

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/group"
)

// logs takes the level from the source, the first directory below it, or the source's name.
func (im *importing) logs() error {
	var all []*outcome
	for _, f := range im.files {
		src := im.sources[f.source]
		level := src.Level
		if dirs := f.dir(); level == "" && len(dirs) > 0 {
			level = dirs[0]
		}
		level = cmp.Or(level, src.Base)
		format := im.Format
		if format == Logs {
			format = sniff(f.data)
		}
		l := formatOf(format)
		runs, err := f.runs(l)
		if err != nil {
			return err
		}
		for _, run := range runs {
			tests, err := run.outcomes(l, level)
			if err != nil {
				return err
			}
			all = append(all, tests...)
		}
	}
	nameSetups(all)
	type ofTest struct{ level, test string }
	var outcomes group.By[ofTest, *outcome]
	for _, o := range all {
		outcomes.Add(ofTest{o.level, o.test}, o)
	}
	for _, k := range outcomes.Keys {
		numberRepeats(outcomes.Of(k))
		im.outcomes = append(im.outcomes, outcomes.Of(k)...)
	}
	return nil
}

func (f *file) outcomes(l logFormat, level string) ([]*outcome, error) {
	switch {
	case l.name == Rackless:
		o := &outcome{level: level, test: "samples"}
		return []*outcome{o}, f.rackless(o)
	case l.read == nil:
		return []*outcome{{level: level, failures: []string{f.name + ": a log of no known tool"}}}, nil
	}
	var all []*outcome
	for _, r := range l.read(f) {
		o := &outcome{level: level, test: r.test, setup: f.setup(l), started: r.started}
		origin := f.origin(level)
		origin.Where = r.where
		o.add(r, origin)
		if r.err != nil {
			o.fail(f, r.test, r.err)
		}
		all = append(all, o)
	}
	return all, nil
}

// setup returns "" for values that the log does not report.
func (f *file) setup(l logFormat) (words []string) {
	for _, s := range l.setups {
		word := ""
		if n := len(s.line().FindAllIndex(f.data, -1)); s.counted && n > 0 {
			word = fmt.Sprint(s.word, n)
		} else if m := s.line().FindSubmatch(f.data); !s.counted && m != nil {
			word = s.word + string(m[1])
		}
		words = append(words, word)
	}
	return words
}

// nameSetups adds a setup's value to the name of a test if runs at one level differ in it. Setups that differ only
// between levels are part of the comparison.
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
				continue // failed: must not split a test
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
			if differs[place{"", test, i}] && word != "" {
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

// A series is a test with one message size.
type series struct {
	test  string
	bytes int64
}

// numberRepeats numbers the runs of a test at a level; different message sizes form one repeat. A failed run is a
// repeat, unless no size occurs twice.
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

// isSweep reports whether several runs have figures and no series occurs twice.
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

// rackless rejects samples.jsonl for a bad line, because rackless writes none.
func (f *file) rackless(o *outcome) error {
	samples, err := bench.ReadSamples(bytes.NewReader(f.data))
	if err != nil {
		return f.fail(0, "%v", err)
	}
	for _, s := range samples {
		if s.Error != "" {
			o.failures = append(o.failures, fmt.Sprintf("%s: %s: %s", f.name, s.Test, s.Error))
			continue
		}
		o.samples = append(o.samples, Sample{s, f.origin(o.level)})
		if !s.Started.IsZero() && (o.started.IsZero() || s.Started.Before(o.started)) {
			o.started = s.Started
		}
	}
	return nil
}

// add relies on bench, which derives a figure that would round to zero from another column.
func (o *outcome) add(r reading, origin Origin) {
	for _, x := range r.figures {
		o.samples = append(o.samples, Sample{bench.Sample{
			Run: r.test, Test: r.test, Metric: x.Metric, Bytes: x.Bytes, Iterations: x.Iterations, Value: x.Value,
			Unit: x.Unit, Derived: x.Derived, Latencies: x.Latencies, Tool: r.tool, Version: r.version, Attempt: 1,
		}, origin})
	}
}

func (o *outcome) fail(f *file, test string, err error) {
	o.failures = append(o.failures, fmt.Sprintf("%s: %s", test, fileText(f, err)))
}
