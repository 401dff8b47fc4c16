package importer

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
)

// logs reads formats in which a file is one repeat: raw logs of perftest and nccl-tests, and samples.jsonl. Its level is that of its source, else the first directory below
// the source, else the source's own name. Repeats are numbered for each level and test: two tests of a level, a file each, are one run.
func (im *importing) logs() error {
	type series struct{ level, test string }
	repeats := map[series]int{}
	for _, f := range im.files {
		src := im.sources[f.source]
		o := &outcome{level: src.Level}
		if dirs := f.dir(); o.level == "" && len(dirs) > 0 {
			o.level = dirs[0]
		}
		if o.level == "" {
			o.level = src.Base
		}
		test := ""
		switch im.Format {
		case Rackless:
			if err := f.rackless(o); err != nil {
				return err
			}
			test = "samples"
		case Perftest:
			test = f.perftest(o)
		case NCCLTests:
			test = f.ncclTests(o)
		}
		for i := range o.samples {
			o.samples[i].Origin = f.origin(o.level)
		}
		repeats[series{o.level, test}]++
		o.repeat = repeats[series{o.level, test}]
		im.outcomes = append(im.outcomes, o)
	}
	return nil
}

// rackless reads samples.jsonl. A bad line spoils the file: rackless writes none.
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
		o.samples = append(o.samples, Sample{Sample: s})
		if !s.Started.IsZero() && (o.started.IsZero() || s.Started.Before(o.started)) {
			o.started = s.Started
		}
	}
	return nil
}

// perftest reads a log and returns the test's name. A log that is no result is a failure of its test.
func (f *file) perftest(o *outcome) string {
	res, err := bench.ParsePerftest(bytes.NewReader(f.data))
	if err == nil && !res.Complete {
		err = f.fail(f.lastLine(), "the table is cut off: the line below it is missing, so rows and digits may be, too")
	}
	if err != nil {
		test := perftestName(string(bytes.TrimSpace(perftestTitle.Find(f.data))))
		o.failures = append(o.failures, fmt.Sprintf("%s: %s", test, fileText(f, err)))
		return test
	}
	test := perftestName(res.Test)
	switch res.Connection {
	case "UC", "UD":
		test += "/" + strings.ToLower(res.Connection)
	}
	if res.QPs > 1 {
		test += "/q" + strconv.Itoa(res.QPs)
	}
	if strings.Contains(res.Test, "Bidirectional") {
		test += "/bidi"
	}
	o.add(test, "perftest", res.Figures())
	if len(o.samples) == 0 {
		o.failures = append(o.failures, fmt.Sprintf("%s: %s: no row has a figure", test, f.name))
	}
	return test
}

// perftestName is the program whose title a log has, by the names of bench.
func perftestName(title string) string {
	suffix := "_bw"
	if strings.Contains(title, "Latency") {
		suffix = "_lat"
	}
	for word, op := range map[string]string{"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Atomic": "atomic"} {
		if strings.HasPrefix(title, word) {
			return "ib_" + op + suffix
		}
	}
	return "perftest"
}

// add enters the figures of a tool. A figure may round to zero where the tool prints few decimals, and bench has worked it out from another column then.
func (o *outcome) add(test, tool string, figures []bench.Figure) {
	for _, x := range figures {
		o.samples = append(o.samples, Sample{Sample: bench.Sample{
			Run: test, Test: test, Metric: x.Metric, Bytes: x.Bytes, Iterations: x.Iterations, Value: x.Value, Unit: x.Unit, Derived: x.Derived, Tool: tool, Attempt: 1,
		}})
	}
}

// ncclOperations are the programs of nccl-tests, without _perf.
var ncclOperations = []string{"all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "gather", "hypercube", "reduce", "scatter", "sendrecv"}

// ncclStarting is how newer releases name the collective.
var ncclStarting = regexp.MustCompile(`(?m)^#\s*Collective test starting:\s*(\w+)_perf\b`)

// ncclTests reads a log and returns the test's name: older releases do not print which collective they ran, so the file's name has to say it.
func (f *file) ncclTests(o *outcome) string {
	test := "nccl-tests"
	name := strings.ReplaceAll(strings.ToLower(path.Base(f.rel)), "-", "_")
	if m := ncclStarting.FindSubmatch(f.data); m != nil {
		name = string(m[1])
	}
	compact := strings.ReplaceAll(name, "_", "")
	if i := slices.IndexFunc(ncclOperations, func(op string) bool { return strings.Contains(compact, strings.ReplaceAll(op, "_", "")) }); i >= 0 {
		test = "nccl_" + ncclOperations[i]
	}
	figures, err := bench.ParseNCCLTests(f.data)
	if err != nil {
		o.failures = append(o.failures, fmt.Sprintf("%s: %s: %v", test, f.name, err))
		return test
	}
	o.add(test, "nccl-tests", figures)
	return test
}
