package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/words"
)

// Files of a run of vcpu_benchmarks (https://github.com/6erun/vcpu_benchmarks) that are not results
// of a test. Its summary.csv says again what the others say, and takes the wrong column of newer
// nccl-tests for the bus bandwidth: it is not read.
const (
	vcpuTopology = "numa_topology.txt" // numactl --hardware in the guest
	vcpuMetadata = "metadata.json"
)

// A vcpuTest reads what a program of the suite printed.
type vcpuTest struct {
	tool  string
	parse func(log []byte) ([]bench.Figure, error)
}

// vcpuTests are the suite's tests by their files. They keep the suite's names: "local" and "remote"
// bind memory to guest node 0 and to node 1, and no thread.
var vcpuTests = map[string]vcpuTest{
	"cpu_single.txt":         {"sysbench", sysbenchOfAnyThreads},
	"cpu_all.txt":            {"sysbench", sysbenchOfAnyThreads},
	"stream.txt":             {"STREAM", stream},
	"stream_numa_local.txt":  {"STREAM", stream},
	"stream_numa_remote.txt": {"STREAM", stream},
	"mem_latency.txt":        {"mem_latency", memLatency},
	"gpu_compute.txt":        {"PyTorch", matmul},
	"gpu_bandwidth.txt":      {"", gpuBandwidth},
	"nccl_allreduce.txt":     {"nccl-tests", bench.ParseNCCLTests},
}

// sysbenchOfAnyThreads reads sysbench's CPU test: the suite starts as many threads as the guest has CPUs.
func sysbenchOfAnyThreads(log []byte) ([]bench.Figure, error) { return bench.ParseSysbenchCPU(log, 0) }

// testD2D is the part of gpu_bandwidth that stays inside a GPU.
const testD2D = "gpu_bandwidth_d2d"

// vcpuJudged are the tests that are compared, as the suite's own report does: of STREAM the triad,
// of latencies the largest array, which is memory. What only the GPU does is the same in every
// placement and therefore a control. STREAM bound to one node is there in guests with several
// alone, so that it cannot be compared with the default.
var vcpuJudged = map[string]struct {
	metrics []string
	largest bool
	control bool
}{
	"cpu_single":    {metrics: []string{bench.MetricEventRate}},
	"cpu_all":       {metrics: []string{bench.MetricEventRate}},
	"stream":        {metrics: []string{"triad"}},
	"mem_latency":   {metrics: []string{bench.MetricLoadLatency}, largest: true},
	"gpu_bandwidth": {},
	testD2D:         {control: true},
	"gpu_compute":   {control: true},
}

// placements are the levels of the factor placement, in order.
var placements = []string{"default", "pin", "pin+numa", "pin+numa+smt"}

// placementOf is the level that a directory of results stands for; its own name where that is none of rackless's.
func placementOf(name string) string {
	plain := strings.NewReplacer("_", "-", "+", "-", " ", "-").Replace(strings.ToLower(name))
	plain = strings.TrimPrefix(plain, "vcpu-")
	plain = strings.ReplaceAll(plain, "pinned", "pin")
	if l := strings.ReplaceAll(plain, "-", "+"); slices.Contains(placements, l) {
		return l
	}
	return name
}

// repeatDir is a directory that numbers a repeat.
var repeatDir = regexp.MustCompile(`^(?:(?:run|rep|repeat)[-_]?)?\d{1,4}$`)

// vcpuBenchmarks reads a tree RESULTS/GPU/CONFIG, a part of one, or several: CONFIG is the level,
// GPU the host. The suite itself makes one run; more are directories with numbers below CONFIG, or
// further sources.
func (im *importing) vcpuBenchmarks() error {
	type dir struct {
		source int
		path   string
	}
	var files group.By[dir, *file]
	for _, f := range im.files {
		files.Add(dir{f.source, path.Dir(f.rel)}, f)
	}
	type place struct{ group, level string }
	repeats := map[place]int{}
	named := map[place]string{}
	for _, d := range files.Keys {
		if !slices.ContainsFunc(files.Of(d), func(f *file) bool { _, ok := vcpuTests[path.Base(f.rel)]; return ok }) {
			continue // a report, or what somebody wrote beside the results
		}
		src := im.sources[d.source]
		group, config, err := vcpuPlace(src, d.path)
		if err != nil {
			return err
		}
		p := place{group, placementOf(config)}
		// Two directories of one level would be taken for repeats of the same setting, which their authors held apart.
		if other, ok := named[p]; ok && other != config {
			return &Error{File: path.Join(src.Name, d.path),
				What: fmt.Sprintf("%q and %q are both placement %s: rename one, or import them apart", other, config,
					p.level)}
		}
		named[p] = config
		repeats[p]++
		o := &outcome{group: group, level: p.level, repeat: repeats[p]}
		for _, f := range files.Of(d) {
			im.vcpuFile(f, config, o)
		}
		im.outcomes = append(im.outcomes, o)
	}
	return nil
}

// vcpuPlace tells host and configuration of a directory.
func vcpuPlace(src Source, dir string) (group, config string, err error) {
	var parts []string
	if dir != "." {
		parts = strings.Split(dir, "/")
	}
	if n := len(parts); n > 0 && repeatDir.MatchString(parts[n-1]) {
		parts = parts[:n-1]
	}
	bad := func(what string) (group, config string, err error) {
		return "", "", &Error{File: path.Join(src.Name, dir), What: what}
	}
	switch n := len(parts); {
	case n > 2:
		return bad("too deep: want RESULTS/GPU/CONFIG, and the directory RESULTS given")
	case n > 0 && src.Level != "":
		return bad(src.Level + "=... names the level of one directory, and this is below it: leave the name out")
	case n == 2:
		return parts[0], parts[1], nil
	case n == 1:
		return "", parts[0], nil
	}
	return "", cmp.Or(src.Level, src.Base), nil
}

// vcpuFile reads one file of a run.
func (im *importing) vcpuFile(f *file, config string, o *outcome) {
	base := path.Base(f.rel)
	t, ok := vcpuTests[base]
	switch {
	case base == vcpuTopology:
		im.vcpuTopology(f, o)
	case base == vcpuMetadata:
		im.vcpuMetadata(f, o)
	}
	if !ok {
		return
	}
	// The suite's own name of the test: what it measures is in no line of the file.
	test := strings.TrimSuffix(base, ".txt")
	figures, err := t.parse(f.data)
	if err != nil {
		o.fail(f, test, err)
		return
	}
	for _, x := range figures {
		name := words.Either(strings.HasPrefix(x.Metric, "d2d_bw"), testD2D, test)
		o.add(reading{test: name, tool: t.tool, figures: []bench.Figure{x}}, f.origin(config))
	}
}

// fileText is an error with the name of its file in front, once, and its line as the file counts them.
func fileText(f *file, err error) string {
	var own *Error
	if errors.As(err, &own) {
		return err.Error()
	}
	var bad *bench.BadResultError
	if errors.As(err, &bad) && bad.Line > 0 {
		bad.Line += f.above
	}
	return f.name + ": " + err.Error()
}

var availableNodes = regexp.MustCompile(`(?m)^available: (\d{1,4}) nodes`)

// vcpuTopology says how many NUMA nodes the guest had: whether the setting took effect.
func (im *importing) vcpuTopology(f *file, o *outcome) {
	m := availableNodes.FindSubmatch(f.data)
	if m == nil {
		return
	}
	nodes, _ := strconv.Atoi(string(m[1])) // digits, as matched
	im.fact(o.group, fmt.Sprintf("guest NUMA nodes, %s, repeat %d", o.level, o.repeat), strconv.Itoa(nodes))
	if nodes < 2 && strings.Contains(o.level, "numa") {
		im.note(o.group, "%s: the guest of placement=%s had %d NUMA node: the setting did not take effect, or the "+
			"host has no more.", f.name, o.level, nodes)
	}
}

// vcpuMetadata takes the time and the devices of newer runs. What is missing or odd in it stays
// unknown: no figure rests on it.
func (im *importing) vcpuMetadata(f *file, o *outcome) {
	var meta struct {
		Timestamp string   `json:"timestamp"`
		VCPUs     int      `json:"vcpus"`
		Devices   []string `json:"gpu_devices"`
	}
	if err := json.Unmarshal(f.data, &meta); err != nil {
		im.note(o.group, "%s: no metadata: %s.", f.name, bench.Shorten(err.Error()))
		return
	}
	// A machine whose clock was never set writes a time near 1970, which would put the run in front of all others.
	if t, err := time.Parse(time.RFC3339Nano, meta.Timestamp); err == nil && t.Year() > 2000 {
		o.started = t.UTC()
	}
	if meta.VCPUs > 0 {
		im.fact(o.group, fmt.Sprintf("guest vCPUs, %s, repeat %d", o.level, o.repeat), strconv.Itoa(meta.VCPUs))
	}
	if len(meta.Devices) > 0 && o.repeat == 1 {
		im.fact(o.group, fmt.Sprintf("GPUs, %s", o.level), fmt.Sprintf("%d, the first: %s", len(meta.Devices),
			bench.Shorten(meta.Devices[0])))
	}
}
