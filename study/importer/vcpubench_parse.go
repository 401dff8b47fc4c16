package importer

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
)

// memLatency reads the suite's pointer chase: lines of an array's size in bytes and the time of a load in ns.
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
		// The chase goes from small arrays to large ones. A size that falls shows that two runs were written into one
		// file.
		if err != nil || size <= last {
			return fmt.Errorf("size %q: want bytes, more than in the line before", bench.Shorten(fields[0]))
		}
		last = size
		v, err := bench.ParseValue(bench.MetricLoadLatency, fields[1])
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

var matmulLine = regexp.MustCompile(`^(\d+) matmuls: ([0-9.]+)s \(([0-9.]+)ms each\)$`)

// matmul reads the suite's one line of matrix products. The time of one has to agree with that of all.
func matmul(log []byte) ([]bench.Figure, error) {
	var each float64
	err := bench.EachLine("matmul", log, func(line string) error {
		m := matmulLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || each > 0 {
			return nil
		}
		var values [3]float64
		for i, field := range m[1:] {
			var err error
			if values[i], err = bench.ParseValue("matmul_time", field); err != nil {
				return err
			}
		}
		n, total := values[0], values[1]
		each = values[2]
		// The total is printed to 1 ms, each to 0.1 ms.
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

// copies are the state of reading the suite's copies.
type copies struct {
	figures           []bench.Figure
	device, direction string
	scale             float64 // to GB/s; 0 before the header of a table
	began, passed     int     // runs of bandwidthTest
}

// gpuBandwidth reads the suite's copies between host and GPU, by CUDA's bandwidthTest or by
// PyTorch. It makes them five times: all count, and not the best alone.
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
	// A run of bandwidthTest that was broken off has good rows, and lacks the line that says how it ended.
	case c.began != c.passed:
		return bad("bandwidthTest began %d times and passed %d times", c.began, c.passed)
	}
	// What was cut off lacks the last directions.
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

// read takes one line, of either of the two programs that the suite may have called: they have no line in common.
func (c *copies) read(line string) error {
	line = strings.TrimRight(line, "\r\n")
	if m := copyDevice.FindStringSubmatch(line); m != nil {
		c.device = m[1]
	} else if m := copyLine.FindStringSubmatch(line); m != nil {
		return c.add(strings.ReplaceAll(m[1], "-to-", " to "), m[2], 1, 0)
	} else if m := cudaDevice.FindStringSubmatch(line); m != nil {
		c.device, c.direction, c.scale = m[1], "", 0
		c.began++
	} else if m := cudaTitle.FindStringSubmatch(line); m != nil {
		c.direction, c.scale = m[1], 0
	} else if m := cudaUnit.FindStringSubmatch(line); m != nil {
		c.scale = map[string]float64{"G": 1, "M": 1e-3}[m[1]]
	} else if m := cudaRow.FindStringSubmatch(line); m != nil && c.direction != "" && c.scale > 0 {
		size, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return fmt.Errorf("size %q is no number of bytes", bench.Shorten(m[1]))
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
	v, err := bench.ParseValue(metric, value)
	if err != nil {
		return fmt.Errorf("%s: %w", direction, err)
	}
	c.figures = append(c.figures, bench.Figure{Metric: metric, Bytes: size, Value: v * scale, Unit: bench.UnitGBps})
	return nil
}
