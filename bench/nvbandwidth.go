package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func nvbandwidthEngine(name, about, testcase string) Engine {
	return Engine{Name: name, Tool: toolNVBandwidth, About: about, Suite: SuiteGPU, Program: "nvbandwidth",
		Package: "nvbandwidth, built with the node's CUDA", Local: true, plugin: nvbandwidth{testcase: testcase}}
}

var nvbandwidthEngines = []Engine{
	nvbandwidthEngine("gpu_bandwidth_h2d", "copies from the node's memory to a GPU's, of the slowest GPU",
		"host_to_device_memcpy_ce"),
	nvbandwidthEngine("gpu_bandwidth_d2h", "copies from a GPU's memory to the node's, of the slowest GPU",
		"device_to_host_memcpy_ce"),
	nvbandwidthEngine("gpu_bandwidth_local", "copies within a GPU's memory, of the slowest GPU: no placement of CPUs "+
		"or memory moves it", deviceLocal),
}

// deviceLocal is the test case whose copies do not leave a GPU.
const deviceLocal = "device_local_copy"

type nvbandwidth struct {
	noSetup
	testcase string
}

// prepare looks whether there is a GPU, whether the release has the test case (device_local_copy
// came late), and over which links it copies.
func (n nvbandwidth) prepare(ctx context.Context, ask asker, ep, _ Endpoint, o *Options) error {
	count, err := gpus(ctx, ask, ep.Node)
	if err != nil {
		return err
	}
	if count == 0 {
		return unfit(ep.Node, "nvidia-smi -L finds no GPU")
	}
	list, err := ask(ctx, ep.Node, "nvbandwidth", "-l")
	if err != nil {
		return err
	}
	separator := func(r rune) bool { return strings.ContainsRune(" ,:\t\r\n", r) }
	if !slices.Contains(strings.FieldsFunc(string(list.Stdout), separator), n.testcase) {
		return unfit(ep.Node, "its nvbandwidth has no test case %s: it takes a later release", n.testcase)
	}
	if n.testcase != deviceLocal {
		o.GPUs, err = gpuLinks(ctx, ask, ep.Node)
	}
	return err
}

// client asks nvbandwidth to leave itself where it was put: by itself it moves to the CPUs that are
// nearest to each GPU.
func (n nvbandwidth) client(ep, _ Endpoint, o Options) []string {
	args := []string{"nvbandwidth", "-t", n.testcase}
	if o.PlaceOf(ep) != (Place{}) {
		args = append(args, "--disableAffinity")
	}
	return args
}

func (nvbandwidth) metrics() []string { return []string{MetricCopyBandwidth} }

func (nvbandwidth) versions() []versionLine {
	return []versionLine{{"", regexp.MustCompile(`(?m)^nvbandwidth Version: v?([0-9][0-9A-Za-z.+-]*)`)}}
}

func (n nvbandwidth) parse(out Output, _ Options) ([]Figure, error) {
	return ParseNVBandwidth(out.Stdout, n.testcase)
}

// ParseNVBandwidth reads the matrix that nvbandwidth 0.6 or later prints of a test case: a line
// "Running NAME.", one with what is copied and the unit, one that numbers the columns, the rows,
// and the sum of all, which must be theirs. It returns the smallest, in GB/s of 10^9 bytes: the one
// that a GPU in a slow slot has.
func ParseNVBandwidth(output []byte, testcase string) ([]Figure, error) {
	m := nvMatrix{testcase: testcase, least: math.Inf(1)}
	if err := EachLine(toolNVBandwidth, output, m.read); err != nil {
		return nil, err
	}
	if m.next != nvDone {
		return nil, BadOutput(toolNVBandwidth, output, "the results of "+testcase+" are cut off or missing")
	}
	return []Figure{newFigure(MetricCopyBandwidth, 0, 0, m.least)}, nil
}

// What comes next in the output of nvbandwidth.
const (
	nvBegin = iota
	nvTitle
	nvHeader
	nvRows
	nvDone
)

// An nvMatrix is the state of reading a matrix.
type nvMatrix struct {
	testcase string
	next     int
	columns  int
	least    float64
	// The sum of the rows, and by how much it may be wrong: the printed sum is of what was measured, not of what
	// was printed of it.
	sum, rounding float64
}

// read takes one line. Its error is a bare reason. Test cases before and after the one that is wanted are skipped, as
// one run of nvbandwidth may print several.
func (m *nvMatrix) read(line string) error {
	fields := strings.Fields(line)
	switch {
	// State by state: each line is known by what stands above it, since the rows of a matrix are only numbers.
	case len(fields) == 2 && fields[0] == "Running" && fields[1] == m.testcase+".":
		if m.next != nvBegin {
			return fmt.Errorf("%s comes a second time", m.testcase)
		}
		m.next = nvTitle
	case len(fields) == 0 || m.next == nvBegin || m.next == nvDone:
	case m.next == nvTitle:
		if !strings.HasPrefix(line, "memcpy ") || !strings.HasSuffix(strings.TrimSpace(line), "bandwidth (GB/s)") {
			return errors.New("unknown layout: want the line that says what is copied, in GB/s")
		}
		m.next = nvHeader
	case m.next == nvHeader:
		for i, f := range fields {
			if f != strconv.Itoa(i) {
				return errors.New("unknown layout: want the numbers of the columns")
			}
		}
		m.columns, m.next = len(fields), nvRows
	case fields[0] == "SUM":
		if len(fields) != 3 || fields[1] != m.testcase {
			return fmt.Errorf("unknown layout: want SUM, %s and the sum", m.testcase)
		}
		total, half, err := parseNumber(fields[2])
		if err != nil {
			return fmt.Errorf("sum: %w", err)
		}
		if math.IsInf(m.least, 1) || math.Abs(total-m.sum) > m.rounding+half+1e-9*m.sum {
			return fmt.Errorf("the rows above add up to %.2f", m.sum)
		}
		m.next = nvDone
	default:
		if len(fields) != m.columns+1 {
			return fmt.Errorf("the row has %d fields, the header %d columns", len(fields), m.columns)
		}
		for i, f := range fields[1:] {
			v, err := ParseValue(MetricCopyBandwidth, f)
			if err != nil {
				return fmt.Errorf("column %d: %w", i, err)
			}
			_, half, _ := parseNumber(f)
			m.least, m.sum, m.rounding = min(m.least, v), m.sum+v, m.rounding+half
		}
	}
	return nil
}
