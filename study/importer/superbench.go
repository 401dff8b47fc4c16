package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

// superBench reads results-summary.jsonl of microsoft/superbenchmark: a line for each node, with
// one member for each figure, as "nccl-bw:default/allreduce_8_busbw:0". What stands behind the last
// colon is the rank of the process, which stands for a GPU or a network card of its own: ranks are
// kept apart. A node's second line is its second repeat.
func (im *importing) superBench() error {
	repeats := map[string]int{}
	figures := 0
	for _, f := range im.files {
		number := 0
		for line := range bytes.Lines(f.data) {
			number++
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			members, err := jsonMembers(strictJSON(line))
			if err != nil {
				return f.fail(number, "%v", err)
			}
			o, rounded, err := superBenchNode(f, number, members)
			if err != nil {
				return f.fail(number, "%v", err)
			}
			if figures += len(o.samples); figures > maxFigures {
				return f.fail(number, "more than %d figures: import fewer lines at a time", maxFigures)
			}
			if rounded > 0 {
				im.note("", "%s:%d: %s has %d bandwidths of nccl-tests and values of unknown meaning that are 0: "+
					"they are left out, since they may have been rounded, or be no figures.", f.name, number, o.level,
					rounded)
			}
			repeats[o.level]++
			o.repeat = repeats[o.level]
			im.outcomes = append(im.outcomes, o)
		}
	}
	im.unknownUnits()
	return nil
}

// unknownUnits tells of the metrics whose unit is not known.
func (im *importing) unknownUnits() {
	seen := map[string]bool{}
	first := ""
	for _, o := range im.outcomes {
		for _, x := range o.samples {
			if key := x.Test + "/" + x.Metric; x.Unit == UnitUnknown {
				seen[key] = true
				first = cmp.Or(first, key)
			}
		}
	}
	if len(seen) > 0 {
		im.note("", "The unit of %d metrics (the first: %s) is unknown, since SuperBench's documentation does not "+
			"name it: they are kept, and not compared.", len(seen), first)
	}
}

// superBenchNode turns a line into an outcome. left counts values of zero that are neither figures nor failures.
func superBenchNode(f *file, line int, members []member) (o *outcome, left int, err error) {
	// The node may stand anywhere in the line, and all that follows is about it.
	o = &outcome{}
	for _, m := range members {
		if m.key == "node" {
			if err := json.Unmarshal(m.value, &o.level); err != nil {
				return nil, 0, fmt.Errorf("node %s is not a name", bench.Shorten(string(m.value)))
			}
		}
	}
	if err := text("node", o.level); err != nil {
		return nil, 0, err
	}
	at := fmt.Sprintf("%s:%d", f.name, line)
	origin := f.origin(o.level)
	for _, m := range members {
		if m.key == "node" {
			continue
		}
		slash := strings.LastIndex(m.key, "/")
		if slash < 1 || slash == len(m.key)-1 || len(m.key) > 300 {
			return nil, 0, fmt.Errorf("member %q: want the names of a benchmark and a metric, as \"mem-bw/h2d_bw:0\"",
				bench.Shorten(m.key))
		}
		test, metric := m.key[:slash], m.key[slash+1:]
		v, err := jsonNumber(m.value)
		// Each benchmark has one, in the midst of its figures.
		if name, _, _ := strings.Cut(metric, ":"); name == "return_code" {
			// It says whether the benchmark went well, and is no figure.
			if err != nil || v != 0 {
				o.failures = append(o.failures,
					fmt.Sprintf("%s: %s: return code %s", test, at, bench.Shorten(string(m.value))))
			}
			continue
		}
		x := documented(test, metric)
		zero := err == nil && v == 0
		if err == nil {
			err = bench.CheckValue(x.metric, v)
		}
		switch {
		// A zero is a failure for most metrics. It is not where the tool rounds small values down, nor where nobody
		// knows what the number means.
		case zero && (x.unit == UnitUnknown || x.rounded):
			left++
		case err != nil:
			o.failures = append(o.failures, fmt.Sprintf("%s: %s: %s is %s: %v", test, at, metric,
				bench.Shorten(string(m.value)), err))
		default:
			o.samples = append(o.samples, Sample{
				Sample: bench.Sample{Run: test, Test: test, Client: o.level, Metric: x.metric, Bytes: x.bytes, Value: v,
					Unit: x.unit, Tool: "superbench", Attempt: 1}, Origin: origin,
			})
		}
	}
	return o, left, nil
}

// jsonNumber reads a number, and nothing else.
func jsonNumber(raw json.RawMessage) (float64, error) {
	v, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("no number that can be held")
	case err != nil:
		return 0, errors.New("no number")
	}
	return v, nil
}

// A member is one of a JSON object, in the order written.
type member struct {
	key   string
	value json.RawMessage
}

// jsonMembers reads an object. A key that comes twice is refused: which of two figures is right nobody knows.
func jsonMembers(line []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	// Token by token, and not into a map: a map takes a key that comes twice, and forgets the order.
	start, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("no JSON: %w", err)
	}
	if start != json.Delim('{') {
		return nil, errors.New("no JSON object: want one line for each node")
	}
	var all []member
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("no JSON: %w", err)
		}
		m := member{key: key.(string)} // the decoder lets nothing else stand before a colon
		if seen[m.key] {
			return nil, fmt.Errorf("member %q is there twice", bench.Shorten(m.key))
		}
		seen[m.key] = true
		if err := dec.Decode(&m.value); err != nil {
			return nil, fmt.Errorf("no JSON: member %q: %w", bench.Shorten(m.key), err)
		}
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("no JSON: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something stands behind the object: want one line for each node")
	}
	return all, nil
}

// strictJSON writes null where Python wrote NaN, Infinity or -Infinity, which JSON does not have.
func strictJSON(line []byte) []byte {
	return pythonNumber.ReplaceAllFunc(line, func(word []byte) []byte {
		return words.Either(word[0] == '"', word, []byte("null"))
	})
}

// pythonNumber matches those words, and strings, in which they mean nothing.
var pythonNumber = lazyregexp.New(`"(?:[^"\\]|\\.)*"|NaN|-?Infinity`)

// A rule is how SuperBench's documentation writes some metrics of a benchmark, and their unit.
type rule struct {
	form *lazyregexp.Regexp // of the metric without its rank; "bytes" is the message size, "rest" what stands behind it
	unit string
	// rounded is set where the tool prints 0.00 for what is small: that zero is no failure.
	rounded bool
}

// is makes a rule for names that match as a whole: a prefix would take metrics that later releases add.
func is(form, unit string) rule {
	return rule{form: lazyregexp.New(`^(?:` + form + `)$`), unit: unit}
}

// superBenchRules are the metrics of docs/user-tutorial/benchmarks/micro-benchmarks.md of
// SuperBench (version 0.12) whose units are named there, by benchmark. What is not here has no
// unit: names of older releases (ib-loopback/IB_write_8388608_Avg_0) stand for figures in other
// units.
var superBenchRules = map[string][]rule{
	"nccl-bw": ncclRules, "rccl-bw": ncclRules,
	"ib-loopback": {is(`(?P<metric>ib_(?:write|read|send)_bw)_(?P<bytes>\d+)`, "GB/s")},
	"ib-traffic": {
		is(`(?P<metric>ib_(?:write|read|send)_bw)_(?P<bytes>\d+)(?P<rest>_[cg]pu-to-[cg]pu_\d+_\d+.*)`, "GB/s"),
		is(`(?P<metric>ib_(?:write|read|send)_lat)_(?P<bytes>\d+)(?P<rest>_[cg]pu-to-[cg]pu_\d+_\d+.*)`, "us"),
	},
	"mem-bw":      {is(`(?:h2d|d2h|d2d)_bw`, "GB/s")},
	"gpu-copy-bw": {is(`(?:[cg]pu\w*_by_(?:sm|dma)(?:_under_numa\d+)?_bw)`, "GB/s")},
	"nvbandwidth": {is(`\w+_memcpy_(?:\w+_)?(?:ce|sm)_\w+_bw`, "GB/s"), is(`(?:all_to_one|one_to_all)_\w+_bw`,
		"GB/s")},
	"gpu-stream": {is(`STREAM_\w+_bw`, "GB/s"), is(`STREAM_\w+_time(?:_min|_max|_avg)?`, "s")},
	"cpu-stream": {is(`(?:copy|scale|add|triad)_throughput`, "MB/s"),
		is(`(?:copy|scale|add|triad)_time_(?:avg|min|max)`, "s")},
	"cpu-memory-bw-latency": {is(`mem_bandwidth_matrix_numa_\d+_\d+_lat`, "ns"), is(`mem_\w+[\w-]*_bw`, "MB/s")},
	"cpu-hpl":               {is(`time`, "s"), is(`throughput`, "GFLOPS")},
	"kernel-launch": {is(`e2e_latency_us|host_dispatch_us|device_launch_us`, "us"), is(`launch_throughput_mkps`,
		"MKPS")},
	"gemm-flops":         {is(`\w+_flops`, "GFLOPS"), is(`\w+_iops`, "GIOPS")},
	"cublaslt-gemm":      {is(`\w+_flops`, "TFLOPS")},
	"hipblaslt-gemm":     {is(`\w+_flops`, "TFLOPS")},
	"cublas-function":    {is(`name_.*_time`, "us")},
	"cudnn-function":     {is(`name_.*_time`, "us")},
	"tensorrt-inference": {is(`.+_(?:gpu|host|end_to_end)_time_(?:mean|99)`, "ms")},
	"ort-inference":      {is(`.+_time(?:_[\d.]+)?`, "ms")},
	"pytorch-matmul":     {is(`nosharding_time`, "ms")},
}

// ncclRules: nccl-tests print bandwidths with two decimals.
var ncclRules = []rule{
	is(`(?P<metric>[a-z]+)_(?P<bytes>\d+)(?P<rest>_time)`, "us"),
	{lazyregexp.New(`^(?P<metric>[a-z]+)_(?P<bytes>\d+)(?P<rest>_(?:algbw|busbw))$`), "GB/s", true},
	is(`(?P<metric>[a-z]+_\d+_\d+):(?P<bytes>\d+)(?P<rest>_time)`, "us"),
	{lazyregexp.New(`^(?P<metric>[a-z]+_\d+_\d+):(?P<bytes>\d+)(?P<rest>_(?:algbw|busbw))$`), "GB/s", true},
}

// A meaning is a metric as it is stored.
type meaning struct {
	metric  string
	bytes   int64
	unit    string
	rounded bool
}

// rank is the number of the process behind a metric.
var rank = lazyregexp.New(`:\d+$`)

// documented finds a metric in SuperBench's documentation. One that is not there keeps its whole name.
func documented(test, metric string) meaning {
	name, _, _ := strings.Cut(test, "/")
	name, _, _ = strings.Cut(name, ":") // behind the colon is what the configuration calls it
	of := rank.FindString(metric)
	plain := strings.TrimSuffix(metric, of)
	// The first rule that fits: the forms of one benchmark exclude each other.
	for _, r := range superBenchRules[name] {
		m := r.form.FindStringSubmatch(plain)
		if m == nil {
			continue
		}
		out := meaning{metric: metric, unit: r.unit, rounded: r.rounded}
		if i := r.form.SubexpIndex("bytes"); i > 0 {
			n, err := strconv.ParseInt(m[i], 10, 64)
			if err != nil {
				break // no size that a message can have
			}
			out.bytes, out.metric = n, m[r.form.SubexpIndex("metric")]
			if i := r.form.SubexpIndex("rest"); i > 0 {
				out.metric += m[i]
			}
			// The rank stays in the name: one GPU that is slow must not vanish in a mean over all of them.
			out.metric += of
		}
		return out
	}
	return meaning{metric: metric, unit: UnitUnknown}
}
