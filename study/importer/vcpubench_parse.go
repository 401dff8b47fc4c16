package importer

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
)

// metricLoad is the time of one dependent load, as a pointer chase measures it.
const metricLoad = "load_latency"

// sysbench takes any number of threads: the suite starts as many as the guest has CPUs.
func sysbench(f *file) ([]bench.Figure, error) { return bench.ParseSysbenchCPU(f.data, 0) }

// streamHead is how STREAM heads its table, from 5.8 on: rates are in MB/s of 10^6 bytes.
var streamHead = regexp.MustCompile(`(?m)^Function\s+(?:Best )?Rate (?:\()?MB/s\)?\s`)

// stream reads STREAM's table of four kernels. It is good once the program has checked its arrays.
func stream(f *file) ([]bench.Figure, error) {
	kernels := []string{"Copy", "Scale", "Add", "Triad"}
	var figures []bench.Figure
	headed, valid := false, false
	lineNumber := 0
	for line := range strings.Lines(string(f.data)) {
		lineNumber++
		line = strings.TrimRight(line, "\r\n")
		name, rest, ok := strings.Cut(line, ":")
		switch {
		case streamHead.MatchString(line):
			if headed {
				return nil, f.fail(lineNumber, "a second table")
			}
			headed = true
		case strings.HasPrefix(line, "Failed Validation"), strings.Contains(line, "Expected") && strings.Contains(line,
			"Observed"):
			return nil, f.fail(lineNumber, "STREAM found its arrays wrong: %q", short(line))
		case strings.HasPrefix(line, "Solution Validates"):
			valid = true
		case headed && ok && len(figures) < len(kernels) && name == kernels[len(figures)]:
			fields := strings.Fields(rest)
			if len(fields) != 4 {
				return nil, f.fail(lineNumber, "want a rate and three times behind %s", name)
			}
			v, err := number(fields[0])
			if err != nil {
				return nil, f.fail(lineNumber, "rate of %s: %v", name, err)
			}
			figures = append(figures, bench.Figure{Metric: strings.ToLower(name), Value: v, Unit: "MB/s"})
		}
	}
	switch {
	case len(figures) < len(kernels):
		return nil, f.fail(f.lastLine(), "the table of STREAM is cut off or missing: no rate of %s in MB/s",
			kernels[len(figures)])
	case !valid:
		return nil, f.fail(f.lastLine(), "the output of STREAM is cut off: it does not say that the solution validates")
	}
	return figures, nil
}

// memLatency reads the suite's pointer chase: lines of an array's size in bytes and the time of a load in ns.
func memLatency(f *file) ([]bench.Figure, error) {
	var figures []bench.Figure
	lineNumber := 0
	last := int64(0)
	for line := range strings.Lines(string(f.data)) {
		lineNumber++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, f.fail(lineNumber, "want a size and a latency, have %q", short(line))
		}
		size, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || size <= last {
			return nil, f.fail(lineNumber, "size %q: want bytes, more than in the line before", short(fields[0]))
		}
		last = size
		v, err := number(fields[1])
		if err != nil {
			return nil, f.fail(lineNumber, "latency: %v", err)
		}
		figures = append(figures, bench.Figure{Metric: metricLoad, Bytes: size, Value: v, Unit: "ns"})
	}
	if len(figures) == 0 {
		return nil, f.fail(0, "no size was measured")
	}
	return figures, nil
}

var matmulLine = regexp.MustCompile(`^(\d+) matmuls: ([0-9.]+)s \(([0-9.]+)ms each\)$`)

// matmul reads the suite's one line of matrix products. The time of one has to agree with that of all.
func matmul(f *file) ([]bench.Figure, error) {
	lineNumber := 0
	for line := range strings.Lines(string(f.data)) {
		lineNumber++
		m := matmulLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		n, err := number(m[1])
		total, err2 := number(m[2])
		each, err3 := number(m[3])
		if err := errors.Join(err, err2, err3); err != nil {
			return nil, f.fail(lineNumber, "%v", err)
		}
		// The total is printed to 1 ms, each to 0.1 ms.
		if computed := total * 1000 / n; computed > each*1.01+0.1 || computed < each*0.99-0.1 {
			return nil, f.fail(lineNumber, "%s products in %s s are not %s ms each", m[1], m[2], m[3])
		}
		return []bench.Figure{{Metric: "matmul_time", Value: each, Unit: "ms"}}, nil
	}
	return nil, f.fail(f.lastLine(), "the line \"N matmuls: ...\" is missing: %q", short(lastText(f)))
}

func lastText(f *file) string {
	lines := strings.Split(strings.TrimRight(string(f.data), " \t\r\n"), "\n")
	return lines[len(lines)-1]
}

var (
	// copyLine is one of gpu_bandwidth_bench.py.
	copyDevice = regexp.MustCompile(`^GPU (\d+) \[`)
	copyLine   = regexp.MustCompile(`^\s+(Host-to-Device|Device-to-Host|Device-to-Device): (\S+) GB/s$`)
	// CUDA's bandwidthTest: a title, the unit in the header of the table, and rows of size and
	// bandwidth. Before CUDA 10.1 the unit is MB/s.
	cudaDevice = regexp.MustCompile(`^\s*Device (\d+): `)
	cudaTitle  = regexp.MustCompile(`^\s*(Host to Device|Device to Host|Device to Device) Bandwidth, 1 Device\(s\)\s*$`)
	cudaUnit   = regexp.MustCompile(`^\s*Transfer Size \(Bytes\)\s+Bandwidth\(([GM])B/s\)\s*$`)
	cudaRow    = regexp.MustCompile(`^\s*(\d+)\s+([0-9.]+)\s*$`)
)

var directions = map[string]string{"Host to Device": "h2d_bw", "Device to Host": "d2h_bw", "Device to Device": "d2d_bw"}

// gpuBandwidth reads the suite's copies between host and GPU, by CUDA's bandwidthTest or by
// PyTorch. It makes them five times: all count, and not the best alone.
func gpuBandwidth(f *file) ([]bench.Figure, error) {
	var figures []bench.Figure
	device, direction, scale := "", "", 0.0
	passed, cuda := 0, 0 // runs of bandwidthTest that ended well, and that began
	lineNumber := 0
	add := func(dir, value string, scale float64, size int64) error {
		if device == "" {
			return f.fail(lineNumber, "a bandwidth before any device")
		}
		v, err := number(value)
		if err != nil {
			return f.fail(lineNumber, "%s: %v", dir, err)
		}
		figures = append(figures, bench.Figure{Metric: directions[dir] + ":" + device, Bytes: size, Value: v * scale,
			Unit: bench.UnitGBps})
		return nil
	}
	for line := range strings.Lines(string(f.data)) {
		lineNumber++
		line = strings.TrimRight(line, "\r\n")
		var err error
		if m := copyDevice.FindStringSubmatch(line); m != nil {
			device = m[1]
		} else if m := copyLine.FindStringSubmatch(line); m != nil {
			err = add(strings.ReplaceAll(m[1], "-to-", " to "), m[2], 1, 0)
		} else if m := cudaDevice.FindStringSubmatch(line); m != nil {
			device, direction, scale = m[1], "", 0
			cuda++
		} else if m := cudaTitle.FindStringSubmatch(line); m != nil {
			direction, scale = m[1], 0
		} else if m := cudaUnit.FindStringSubmatch(line); m != nil {
			scale = map[string]float64{"G": 1, "M": 1e-3}[m[1]]
		} else if m := cudaRow.FindStringSubmatch(line); m != nil && direction != "" && scale > 0 {
			size, sizeErr := strconv.ParseInt(m[1], 10, 64)
			if sizeErr != nil {
				return nil, f.fail(lineNumber, "size %q is no number of bytes", short(m[1]))
			}
			err = add(direction, m[2], scale, size)
		} else if strings.HasPrefix(line, "Result = PASS") {
			passed++
		} else if strings.HasPrefix(line, "Result = ") {
			err = f.fail(lineNumber, "bandwidthTest failed: %q", short(line))
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case len(figures) == 0:
		return nil, f.fail(f.lastLine(), "no bandwidth of a known layout; rocm-bandwidth-test is not read: %q",
			short(lastText(f)))
	case cuda != passed:
		return nil, f.fail(f.lastLine(), "bandwidthTest began %d times and passed %d times", cuda, passed)
	}
	// What was cut off lacks the last directions.
	count := map[string]int{}
	for _, x := range figures {
		count[x.Metric]++
	}
	for _, x := range figures {
		_, dev, _ := strings.Cut(x.Metric, ":")
		for _, d := range directions {
			if m := d + ":" + dev; count[m] != count[x.Metric] {
				return nil, f.fail(f.lastLine(), "cut off: %d figures of %s and %d of %s", count[x.Metric], x.Metric,
					count[m], m)
			}
		}
	}
	return figures, nil
}
