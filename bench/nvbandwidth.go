package bench

import (
	"context"
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
		return &UnfitError{Node: ep.Node, Reason: "nvidia-smi -L finds no GPU"}
	}
	list, err := ask(ctx, ep.Node, "nvbandwidth", "-l")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.FieldsFunc(string(list.Stdout), func(r rune) bool {
		return strings.ContainsRune(" ,:\t\r\n", r)
	}), n.testcase) {
		return &UnfitError{Node: ep.Node, Reason: fmt.Sprintf("its nvbandwidth has no test case %s: it takes a "+
			"later release", n.testcase)}
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
	if o.place(ep) != (Place{}) {
		args = append(args, "--disableAffinity")
	}
	return args
}

func (nvbandwidth) metrics() []string { return []string{MetricCopyBandwidth} }

var nvbandwidthVersion = regexp.MustCompile(`(?m)^nvbandwidth Version: v?([0-9][0-9A-Za-z.+-]*)`)

// versionIn reads the first line of the output.
func (nvbandwidth) versionIn(printed, _ Output) string {
	if m := nvbandwidthVersion.FindSubmatch(printed.Stdout); m != nil {
		return string(m[1])
	}
	return ""
}

func (n nvbandwidth) parse(out Output, _ Options) ([]Figure, error) {
	return ParseNVBandwidth(out.Stdout, n.testcase)
}

// ParseNVBandwidth reads the matrix that nvbandwidth 0.6 or later prints of a test case: a line
// "Running NAME.", one with what is copied and the unit, one that numbers the columns, the rows,
// and the sum of all, which must be theirs. It returns the smallest, in GB/s of 10^9 bytes: the one
// that a GPU in a slow slot has.
func ParseNVBandwidth(output []byte, testcase string) ([]Figure, error) {
	const (
		before = iota
		title
		header
		rows
		after
	)
	state, number, columns := before, 0, 0
	least, sum, rounding := math.Inf(1), 0.0, 0.0
	for line := range strings.Lines(string(output)) {
		number++
		fields := strings.Fields(line)
		bad := func(format string, args ...any) ([]Figure, error) {
			return nil, &BadResultError{Tool: toolNVBandwidth, Line: number, Text: shorten(line),
				Reason: fmt.Sprintf(format, args...)}
		}
		switch {
		case len(fields) == 2 && fields[0] == "Running" && fields[1] == testcase+".":
			if state != before {
				return bad("%s comes a second time", testcase)
			}
			state = title
		case len(fields) == 0 || state == before || state == after:
		case state == title:
			if !strings.HasPrefix(line, "memcpy ") || !strings.HasSuffix(strings.TrimSpace(line), "bandwidth (GB/s)") {
				return bad("unknown layout: want the line that says what is copied, in GB/s")
			}
			state = header
		case state == header:
			for i, f := range fields {
				if f != strconv.Itoa(i) {
					return bad("unknown layout: want the numbers of the columns")
				}
			}
			columns, state = len(fields), rows
		case fields[0] == "SUM":
			if len(fields) != 3 || fields[1] != testcase {
				return bad("unknown layout: want SUM, %s and the sum", testcase)
			}
			total, half, err := parseNumber(fields[2])
			if err != nil {
				return bad("sum: %v", err)
			}
			// The sum is of what was measured, not of what was printed of it.
			if math.IsInf(least, 1) || math.Abs(total-sum) > rounding+half+1e-9*sum {
				return bad("the rows above add up to %.2f", sum)
			}
			state = after
		default:
			if len(fields) != columns+1 {
				return bad("the row has %d fields, the header %d columns", len(fields), columns)
			}
			for i, f := range fields[1:] {
				v, half, err := parseNumber(f)
				if err == nil {
					err = checkValue(MetricCopyBandwidth, v)
				}
				if err != nil {
					return bad("column %d: %v", i, err)
				}
				least, sum, rounding = min(least, v), sum+v, rounding+half
			}
		}
	}
	if state != after {
		text, n := lastLine(output)
		return nil, &BadResultError{Tool: toolNVBandwidth, Line: n, Text: text, Reason: "the results of " + testcase +
			" are cut off or missing"}
	}
	return []Figure{{Metric: MetricCopyBandwidth, Value: least, Unit: UnitGBps}}, nil
}
