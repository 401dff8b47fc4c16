package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lazyregexp"
)

// Files of vcpu_benchmarks (https://github.com/6erun/vcpu_benchmarks) without results. summary.csv is not read: it
// takes the wrong column of newer nccl-tests for the bus bandwidth.
const (
	vcpuTopology = "numa_topology.txt" // numactl --hardware in the guest
	vcpuMetadata = "metadata.json"
)

type vcpuTest struct {
	tool  string
	parse func(log []byte) ([]bench.Figure, error)
}

// vcpuTests maps file names to tests. "local" and "remote" bind memory, but not threads, to guest nodes 0 and 1.
var vcpuTests = map[string]vcpuTest{
	"cpu_single.txt":         {"sysbench", sysbenchOfAnyThreads},
	"cpu_all.txt":            {"sysbench", sysbenchOfAnyThreads},
	"stream.txt":             {"STREAM", stream},
	"stream_numa_local.txt":  {"STREAM", stream},
	"stream_numa_remote.txt": {"STREAM", stream},
	"mem_latency.txt":        {"mem_latency", memLatency},
	"gpu_compute.txt":        {"PyTorch", matmul},
	"gpu_bandwidth.txt":      {"", gpuBandwidth},
	"nccl_allreduce.txt":     {"nccl-tests", tool.ParseNCCLTests},
}

// sysbenchOfAnyThreads ignores the number of threads, because the suite starts one per guest CPU.
func sysbenchOfAnyThreads(log []byte) ([]bench.Figure, error) {
	e, err := tool.EngineByName("sysbench_cpu")
	if err != nil {
		return nil, err
	}
	return e.Parse(log)
}

// streamHead matches STREAM 5.8 and later. Rates are in MB/s of 10^6 bytes.
var streamHead = lazyregexp.New(`(?m)^Function\s+(?:Best )?Rate (?:\()?MB/s\)?\s`)

// stream's table is valid only if the program has verified its arrays.
func stream(log []byte) ([]bench.Figure, error) {
	kernels := []string{"Copy", "Scale", "Add", "Triad"}
	var figures []bench.Figure
	headed, valid := false, false
	err := bench.EachLine("STREAM", log, func(line string) error {
		line = strings.TrimRight(line, "\r\n")
		name, rest, ok := strings.Cut(line, ":")
		switch {
		case streamHead().MatchString(line) && headed:
			return errors.New("a second table")
		case streamHead().MatchString(line):
			headed = true
		case strings.HasPrefix(line, "Failed Validation"),
			strings.Contains(line, "Expected") && strings.Contains(line, "Observed"):
			return errors.New("STREAM found its arrays wrong")
		// Printed last. Without it, a compiler may have removed the loops.
		case strings.HasPrefix(line, "Solution Validates"):
			valid = true
		// A row out of order belongs to another table.
		case headed && ok && len(figures) < len(kernels) && name == kernels[len(figures)]:
			fields := strings.Fields(rest)
			if len(fields) != 4 {
				return fmt.Errorf("want a rate and three times behind %s", name)
			}
			metric := strings.ToLower(name)
			v, err := tool.ParseValue(metric, fields[0])
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

const testD2D = "gpu_bandwidth_d2d"

// vcpuJudged lists tests as in the suite's report: the triad of STREAM, and the largest array of latencies, which is
// main memory. GPU tests are controls. STREAM bound to one node needs several nodes, so it cannot be compared.
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

var placements = []string{"default", "pin", "pin+numa", "pin+numa+smt"}

func placementOf(name string) string {
	plain := strings.NewReplacer("_", "-", "+", "-", " ", "-").Replace(strings.ToLower(name))
	plain = strings.TrimPrefix(plain, "vcpu-")
	plain = strings.ReplaceAll(plain, "pinned", "pin")
	if l := strings.ReplaceAll(plain, "-", "+"); slices.Contains(placements, l) {
		return l
	}
	return name
}

var repeatDir = lazyregexp.New(`^(?:(?:run|rep|repeat)[-_]?)?\d{1,4}$`)

// vcpuBenchmarks reads trees RESULTS/GPU/CONFIG or parts: CONFIG is the level, GPU the host. Repeats are numbered
// directories below CONFIG, or further sources.
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
			continue // a report, or other files beside the results
		}
		src := im.sources[d.source]
		group, config, err := vcpuPlace(src, d.path)
		if err != nil {
			return err
		}
		p := place{group, placementOf(config)}
		// They would be taken for repeats, but mean different settings.
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

func vcpuPlace(src Source, dir string) (group, config string, err error) {
	var parts []string
	if dir != "." {
		parts = strings.Split(dir, "/")
	}
	if n := len(parts); n > 0 && repeatDir().MatchString(parts[n-1]) {
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
	test := strings.TrimSuffix(base, ".txt")
	figures, err := t.parse(f.data)
	if err != nil {
		o.fail(f, test, err)
		return
	}
	for _, x := range figures {
		name := test
		if strings.HasPrefix(x.Metric, "d2d_bw") {
			name = testD2D
		}
		o.add(reading{test: name, tool: t.tool, figures: []bench.Figure{x}}, f.origin(config))
	}
}

// fileText has the file name once, and the line within the whole file.
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

var availableNodes = lazyregexp.New(`(?m)^available: (\d{1,4}) nodes`)

// vcpuTopology records the guest's NUMA nodes, which show whether the setting took effect.
func (im *importing) vcpuTopology(f *file, o *outcome) {
	m := availableNodes().FindSubmatch(f.data)
	if m == nil {
		return
	}
	nodes, _ := strconv.Atoi(string(m[1])) // at most four digits
	im.fact(o.group, fmt.Sprintf("guest NUMA nodes, %s, repeat %d", o.level, o.repeat), strconv.Itoa(nodes))
	if nodes < 2 && strings.Contains(o.level, "numa") {
		im.note(o.group, "%s: the guest of placement=%s had %d NUMA node: the setting did not take effect, or the "+
			"host has no more.", f.name, o.level, nodes)
	}
}

// vcpuMetadata ignores odd values, because no figure depends on them.
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
	// A clock that was never set reports about 1970.
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

// memLatency parses array sizes in bytes and load times in ns.
func memLatency(log []byte) ([]bench.Figure, error) {
	var figures []bench.Figure
	last := int64(0)
	err := bench.EachLine("mem_latency", log, func(line string) error {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			return nil
		}
		if len(fields) != 2 {
			return errors.New("want a size and a latency")
		}
		size, err := strconv.ParseInt(fields[0], 10, 64)
		// A smaller size shows two runs in one file.
		if err != nil || size <= last {
			return fmt.Errorf("size %q: want bytes, more than in the line before", bench.Shorten(fields[0]))
		}
		last = size
		v, err := tool.ParseValue(bench.MetricLoadLatency, fields[1])
		if err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		figures = append(figures, bench.Figure{Metric: bench.MetricLoadLatency, Bytes: size, Value: v,
			Unit: bench.UnitNsec})
		return nil
	})
	if err == nil && len(figures) == 0 {
		err = bench.BadOutput("mem_latency", log, "no size was measured")
	}
	return figures, err
}

var matmulLine = lazyregexp.New(`^(\d+) matmuls: ([0-9.]+)s \(([0-9.]+)ms each\)$`)

// matmul checks the time per product against the total.
func matmul(log []byte) ([]bench.Figure, error) {
	var each float64
	err := bench.EachLine("matmul", log, func(line string) error {
		m := matmulLine().FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || each > 0 {
			return nil
		}
		var values [3]float64
		for i, field := range m[1:] {
			var err error
			if values[i], err = tool.ParseValue("matmul_time", field); err != nil {
				return err
			}
		}
		n, total := values[0], values[1]
		each = values[2]
		// The total is rounded to 1 ms, each to 0.1 ms.
		if computed := total * 1000 / n; computed > each*1.01+0.1 || computed < each*0.99-0.1 {
			return fmt.Errorf("%s products in %s s are not %s ms each", m[1], m[2], m[3])
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case each == 0:
		return nil, bench.BadOutput("matmul", log, `the line "N matmuls: ..." is missing`)
	}
	return []bench.Figure{{Metric: "matmul_time", Value: each, Unit: "ms"}}, nil
}

var (
	// Lines of gpu_bandwidth_bench.py.
	copyDevice = lazyregexp.New(`^GPU (\d+) \[`)
	copyLine   = lazyregexp.New(`^\s+(Host-to-Device|Device-to-Host|Device-to-Device): (\S+) GB/s$`)
	// Lines of CUDA's bandwidthTest. Before CUDA 10.1 the unit is MB/s.
	cudaDevice = lazyregexp.New(`^\s*Device (\d+): `)
	cudaTitle  = lazyregexp.New(`^\s*(Host to Device|Device to Host|Device to Device) Bandwidth, 1 Device\(s\)\s*$`)
	cudaUnit   = lazyregexp.New(`^\s*Transfer Size \(Bytes\)\s+Bandwidth\(([GM])B/s\)\s*$`)
	cudaRow    = lazyregexp.New(`^\s*(\d+)\s+([0-9.]+)\s*$`)
)

var directions = map[string]string{"Host to Device": "h2d_bw", "Device to Host": "d2h_bw", "Device to Device": "d2d_bw"}

type copies struct {
	figures           []bench.Figure
	device, direction string
	scale             float64 // to GB/s; 0 before the header
	began, passed     int     // runs of bandwidthTest
}

// gpuBandwidth parses copies by CUDA's bandwidthTest or PyTorch. All five repeats count, not just the best.
func gpuBandwidth(log []byte) ([]bench.Figure, error) {
	var c copies
	if err := bench.EachLine("gpu_bandwidth", log, c.read); err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) ([]bench.Figure, error) {
		return nil, bench.BadOutput("gpu_bandwidth", log, fmt.Sprintf(format, args...))
	}
	switch {
	case len(c.figures) == 0:
		return bad("no bandwidth of a known layout; rocm-bandwidth-test is not read")
	// An aborted bandwidthTest lacks the line with its result.
	case c.began != c.passed:
		return bad("bandwidthTest began %d times and passed %d times", c.began, c.passed)
	}
	count := map[string]int{}
	for _, x := range c.figures {
		count[x.Metric]++
	}
	for _, x := range c.figures {
		_, dev, _ := strings.Cut(x.Metric, ":")
		for _, d := range directions {
			if m := d + ":" + dev; count[m] != count[x.Metric] {
				return bad("cut off: %d figures of %s and %d of %s", count[x.Metric], x.Metric, count[m], m)
			}
		}
	}
	return c.figures, nil
}

// read parses a line of either program; they have none in common.
func (c *copies) read(line string) error {
	line = strings.TrimRight(line, "\r\n")
	if m := copyDevice().FindStringSubmatch(line); m != nil {
		c.device = m[1]
	} else if m := copyLine().FindStringSubmatch(line); m != nil {
		return c.add(strings.ReplaceAll(m[1], "-to-", " to "), m[2], 1, 0)
	} else if m := cudaDevice().FindStringSubmatch(line); m != nil {
		c.device, c.direction, c.scale = m[1], "", 0
		c.began++
	} else if m := cudaTitle().FindStringSubmatch(line); m != nil {
		c.direction, c.scale = m[1], 0
	} else if m := cudaUnit().FindStringSubmatch(line); m != nil {
		c.scale = map[string]float64{"G": 1, "M": 1e-3}[m[1]]
	} else if m := cudaRow().FindStringSubmatch(line); m != nil && c.direction != "" && c.scale > 0 {
		size, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return fmt.Errorf("size %q is not a number of bytes", bench.Shorten(m[1]))
		}
		return c.add(c.direction, m[2], c.scale, size)
	} else if strings.HasPrefix(line, "Result = PASS") {
		c.passed++
	} else if strings.HasPrefix(line, "Result = ") {
		return errors.New("bandwidthTest failed")
	}
	return nil
}

func (c *copies) add(direction, value string, scale float64, size int64) error {
	if c.device == "" {
		return errors.New("a bandwidth before any device")
	}
	metric := directions[direction] + ":" + c.device
	v, err := tool.ParseValue(metric, value)
	if err != nil {
		return fmt.Errorf("%s: %w", direction, err)
	}
	c.figures = append(c.figures, bench.Figure{Metric: metric, Bytes: size, Value: v * scale, Unit: bench.UnitGBps})
	return nil
}
