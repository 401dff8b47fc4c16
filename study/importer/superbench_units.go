package importer

import (
	"regexp"
	"strconv"
	"strings"
)

// A rule is how SuperBench's documentation writes some metrics of a benchmark, and their unit.
type rule struct {
	form *regexp.Regexp // of the metric without its rank; "bytes" is the message size, "rest" what stands behind it
	unit string
	// rounded is set where the tool prints 0.00 for what is small: that zero is no failure.
	rounded bool
}

// is makes a rule for names that match as a whole: a prefix would take metrics that later releases add.
func is(form, unit string) rule {
	return rule{form: regexp.MustCompile(`^(?:` + form + `)$`), unit: unit}
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
	{regexp.MustCompile(`^(?P<metric>[a-z]+)_(?P<bytes>\d+)(?P<rest>_(?:algbw|busbw))$`), "GB/s", true},
	is(`(?P<metric>[a-z]+_\d+_\d+):(?P<bytes>\d+)(?P<rest>_time)`, "us"),
	{regexp.MustCompile(`^(?P<metric>[a-z]+_\d+_\d+):(?P<bytes>\d+)(?P<rest>_(?:algbw|busbw))$`), "GB/s", true},
}

// A meaning is a metric as it is stored.
type meaning struct {
	metric  string
	bytes   int64
	unit    string
	rounded bool
}

// rank is the number of the process behind a metric.
var rank = regexp.MustCompile(`:\d+$`)

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
