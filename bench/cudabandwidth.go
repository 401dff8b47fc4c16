package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

const toolCUDABandwidth = "bandwidthTest"

// Its lines. Quick and range mode print a table for each direction, shmoo mode and --csv a line for each size, whose
// memory is "Paged" or "Pinned", and not said within a GPU.
var (
	cudaTitle   = lazyregexp.New(`^(Host|Device) to (Host|Device) Bandwidth, (\d+) Device\(s\)`)
	cudaColumns = lazyregexp.New(`^Transfer Size \(Bytes\)\s+Bandwidth\((\S+)\)$`)
	cudaRow     = lazyregexp.New(`^(\d+)\s+(\S+)$`)
	cudaCSV     = lazyregexp.New(`^bandwidthTest-([HD])2([HD])(-Paged)?(?:-Pinned)?, Bandwidth = (\S+) (\S+), ` +
		`Time = \S+ s, Size = (\d+) bytes, NumDevsUsed = (\d+)$`)
)

// cudaCopies is the state of reading the results of bandwidthTest.
type cudaCopies struct {
	res    Tests
	test   string // of the table; "" above the first
	unit   string // of its column; "" above it
	begun  bool   // the head of the program is there
	passed bool
}

// ParseCUDABandwidth reads what bandwidthTest of NVIDIA's CUDA samples prints: copies between the host's memory, pinned
// or pageable, and that of a GPU, and copies within a GPU, of which it counts each byte twice.
// People copy its lines alone: only what has the program's head must have its end.
func ParseCUDABandwidth(output []byte) (Tests, error) {
	var c cudaCopies
	err := EachLine(toolCUDABandwidth, output, c.read)
	if err == nil && c.begun && !c.passed {
		err = BadOutput(toolCUDABandwidth, output, "it is cut off: it does not say Result = PASS")
	}
	return c.res.checked(toolCUDABandwidth, output, err)
}

func (c *cudaCopies) read(line string) error {
	line = strings.TrimSpace(line)
	if m := cudaTitle.FindStringSubmatch(line); m != nil {
		c.test, c.unit = cudaTest(m[1], m[2], m[3]), ""
	} else if m := cudaColumns.FindStringSubmatch(line); m != nil {
		c.unit = m[1]
	} else if m := cudaCSV.FindStringSubmatch(line); m != nil {
		return c.add(cudaTest(m[1], m[2], m[7])+words.If(m[3] != "", cudaPageable), m[6], m[4], m[5])
	} else if m := cudaRow.FindStringSubmatch(line); m != nil && c.unit != "" {
		return c.add(c.test, m[1], m[2], c.unit)
	}
	switch line {
	case "[CUDA Bandwidth Test] - Starting...":
		c.begun = true
	case "PAGEABLE Memory Transfers":
		c.test += words.If(c.test != "" && !strings.HasSuffix(c.test, cudaPageable), cudaPageable)
	case "Result = PASS":
		c.passed = true
	case "Result = FAIL":
		return errors.New("the program failed")
	}
	return nil
}

const cudaPageable = "/pageable"

// cudaTest names a test by its ways: only the first letters count.
func cudaTest(from, to, devices string) string {
	return strings.ToLower("cuda_bandwidthtest_"+from[:1]+"2"+to[:1]) + words.If(devices != "1", "/gpus"+devices)
}

// cudaUnits are the printed units in GB/s. Releases up to CUDA 10 divide by 2^20 for MB/s.
var cudaUnits = map[string]float64{"GB/s": 1, "MB/s": 1 << 20 / 1e9}

// add adds the figure of a size.
func (c *cudaCopies) add(test, size, value, unit string) error {
	if cudaUnits[unit] == 0 {
		return fmt.Errorf("unknown unit %s", Shorten(unit))
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || n == 0 {
		return fmt.Errorf("size %s is no number of bytes", Shorten(size))
	}
	v, err := ParseValue(MetricCopyBandwidth, value)
	if err != nil {
		return err
	}
	c.res.add(test, Figure{Metric: MetricCopyBandwidth, Bytes: n, Value: v * cudaUnits[unit], Unit: UnitGBps})
	return nil
}
