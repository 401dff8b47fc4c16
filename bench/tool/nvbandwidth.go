package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

func nvbandwidthEngine(name, about, testcase string) bench.Engine {
	return bench.Engine{Name: name, Tool: toolNVBandwidth, About: about, Suite: bench.SuiteGPU, Program: "nvbandwidth",
		Package: "nvbandwidth, built with the node's CUDA", Local: true, Measures: []string{bench.MetricCopyBandwidth},
		Versions: []bench.VersionLine{{Name: "", Line: nvVersion}}, Plugin: nvbandwidth{testcase: testcase}}
}

var nvbandwidthEngines = []bench.Engine{
	nvbandwidthEngine("gpu_bandwidth_h2d", "copies from the node's memory to a GPU's, of the slowest GPU",
		"host_to_device_memcpy_ce"),
	nvbandwidthEngine("gpu_bandwidth_d2h", "copies from a GPU's memory to the node's, of the slowest GPU",
		"device_to_host_memcpy_ce"),
	nvbandwidthEngine("gpu_bandwidth_local", "copies within a GPU's memory, of the slowest GPU: no placement of CPUs "+
		"or memory moves it", deviceLocal),
}

const deviceLocal = "device_local_copy"

type nvbandwidth struct {
	noSetup
	testcase string
}

// Prepare needs a GPU and a release with the test case (device_local_copy came late).
func (n nvbandwidth) Prepare(ctx context.Context, ask bench.AskFunc, ep, _ bench.Endpoint, o *bench.Options) error {
	count, err := GPUs(ctx, ask, ep.Node)
	if err != nil {
		return err
	}
	if count == 0 {
		return bench.Unfit(ep.Node, "nvidia-smi -L finds no GPU")
	}
	list, err := ask(ctx, ep.Node, "nvbandwidth", "-l")
	if err != nil {
		return err
	}
	separator := func(r rune) bool { return strings.ContainsRune(" ,:\t\r\n", r) }
	if !slices.Contains(strings.FieldsFunc(string(list.Stdout), separator), n.testcase) {
		return bench.Unfit(ep.Node, "its nvbandwidth has no test case %s: it takes a later release", n.testcase)
	}
	if n.testcase != deviceLocal {
		o.GPUs, err = gpuLinks(ctx, ask, ep.Node)
	}
	return err
}

// Client asks nvbandwidth to stay in its place: by itself it moves to the CPUs that are nearest to each GPU.
func (n nvbandwidth) Client(ep, _ bench.Endpoint, o bench.Options) []string {
	args := []string{"nvbandwidth", "-t", n.testcase}
	if o.PlaceOf(ep) != (bench.Place{}) {
		args = append(args, "--disableAffinity")
	}
	return args
}

// Traffic implements Carrier.
func (n nvbandwidth) Traffic() bench.Traffic { return bench.Traffic{Copies: n.testcase != deviceLocal} }

// Parse also refuses figures that the links of the GPUs cannot carry.
func (n nvbandwidth) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	figures, err := ParseNVBandwidth(out.Stdout, n.testcase)
	if err == nil {
		err = n.checkCopies(o.GPUs, figures)
	}
	if err != nil {
		return nil, err
	}
	return figures, nil
}

// ParseNVBandwidth reads the smallest bandwidth of a test case, in GB/s of 10^9 bytes.
func ParseNVBandwidth(output []byte, testcase string) ([]bench.Figure, error) {
	all, err := ParseNVBandwidths(output)
	if err != nil {
		return nil, err
	}
	for _, t := range all.All {
		if t.Name == nvTestName(testcase) {
			return t.Figures, t.Err
		}
	}
	return nil, bench.BadOutput(toolNVBandwidth, output, "the results of "+testcase+" are cut off or missing")
}

func nvTestName(testcase string) string {
	for _, e := range nvbandwidthEngines {
		if e.Plugin == (nvbandwidth{testcase: testcase}) {
			return e.Name
		}
	}
	return "nvbandwidth_" + word(testcase)
}

// ParseNVBandwidths reads nvbandwidth 0.6 or later, as text or as JSON. It returns the lowest bandwidth, or the highest
// latency, of each test case.
func ParseNVBandwidths(output []byte) (Tests, error) {
	var m nvMatrix
	var err error
	if at := nvJSON().FindIndex(output); at != nil {
		err = m.document(output[at[0]:])
	} else {
		err = bench.EachLine(toolNVBandwidth, output, m.read)
		if err == nil && m.waived && len(m.res.All) == 0 {
			err = bench.BadResult(toolNVBandwidth,
				"all test cases were waived: the machine lacks what they take, such as a "+"second GPU")
		}
		if open := m.testcase + m.both; err == nil && open != "" {
			err = bench.BadOutput(toolNVBandwidth, output, "the results of "+open+" are cut off or missing")
		}
		// Test cases before the one that failed are valid.
		if open := cmp.Or(m.testcase, m.both); err != nil && open != "" && len(m.res.All) > 0 {
			m.res.of(nvTestName(open)).Err, err = err, nil
		}
	}
	return m.res.checked(toolNVBandwidth, output, err)
}

var nvJSON = lazyregexp.New(`(?m)^\{\s*"nvbandwidth"\s*:`)

var nvVersion = lazyregexp.New(`(?m)^nvbandwidth Version: v?([0-9][0-9A-Za-z.+-]*)`)

// nvNoTestcase is in outputs with exit status 0.
var nvNoTestcase = lazyregexp.New(`^ERROR: Testcase .* not found!`)

// nvTitle: a test case of both ways between GPUs has a matrix for each way, and a last one for their total.
var nvTitle = lazyregexp.New(
	`^(?:(?:memcpy|multicast) .*?(?: (Read1|Read2|Write1|Write2))? (?:[Tt]otal )?bandwidth \(GB/s\)|` +
		`(?:memory latency|Device to Device Latency) (SM) .*\(ns\))$`)

// In text, a matrix consists of a line "Running NAME.", a line with the kind of copy and the unit, a line with column
// numbers, the rows, and their sum.
type nvMatrix struct {
	res      Tests
	waived   bool
	testcase string
	both     string // if its total is still to come
	title    bool
	latency  bool
	oneWay   bool
	peers    bool // nothing is measured from a GPU to itself
	columns  int
	rows     int
	values   []float64
	// The printed sum is that of unrounded values.
	sum, rounding float64
}

func (m *nvMatrix) read(line string) error {
	fields := strings.Fields(line)
	if v := nvVersion().FindStringSubmatch(line); v != nil {
		m.res.Version = v[1]
	}
	switch {
	// The meaning of a line depends on the state, because the rows of a matrix are only numbers.
	case len(fields) == 2 && fields[0] == "Running" && strings.HasSuffix(fields[1], "."):
		if m.testcase != "" {
			return fmt.Errorf("the results of %s are cut off or missing", m.testcase)
		}
		m.begin(strings.TrimSuffix(fields[1], "."))
		if slices.ContainsFunc(m.res.All, func(t Test) bool { return t.Name == nvTestName(m.testcase) }) {
			return fmt.Errorf("%s comes a second time", m.testcase)
		}
	case m.testcase == "" && m.both != "" && nvTitle().MatchString(strings.TrimSpace(line)):
		m.begin(m.both)
		return m.unit(line)
	case strings.HasPrefix(line, "[CUDA_ERROR") || strings.HasPrefix(line, "CUDA_ERROR"):
		return errors.New("the program gave up")
	case nvNoTestcase().MatchString(line):
		return errors.New("the release has no such test case: nvbandwidth -l lists those that it has")
	case (m.title || m.testcase == "") && strings.HasPrefix(strings.ToLower(line), "waived"):
		// The test case does not apply to the machine. Release 0.8 does not name it.
		m.waived, m.testcase = true, ""
	case len(fields) == 0 || m.testcase == "":
	case m.title:
		return m.unit(line)
	case m.columns == 0:
		for i, f := range fields {
			if f != strconv.Itoa(i) {
				return errors.New("unknown layout: want the numbers of the columns")
			}
		}
		m.columns = len(fields)
	case fields[0] == "SUM":
		if len(fields) != 3 || fields[1] != m.testcase {
			return fmt.Errorf("unknown layout: want SUM, %s and the sum", m.testcase)
		}
		total, half, err := parseNumber(fields[2])
		if err != nil {
			return fmt.Errorf("sum: %w", err)
		}
		if len(m.values) == 0 || math.Abs(total-m.sum) > m.rounding+half+1e-9*m.sum {
			return fmt.Errorf("the rows above add up to %.2f", m.sum)
		}
		m.end()
	default:
		if len(fields) != m.columns+1 {
			return fmt.Errorf("the row has %d fields, the header %d columns", len(fields), m.columns)
		}
		return m.row(fields[1:])
	}
	return nil
}

func (m *nvMatrix) begin(testcase string) {
	*m = nvMatrix{res: m.res, waived: m.waived, testcase: testcase, title: true}
}

func (m *nvMatrix) unit(line string) error {
	line = strings.TrimSpace(line)
	m.title, m.peers = false, strings.Contains(line, "GPU(row)") && strings.Contains(line, "GPU(column)")
	t := nvTitle().FindStringSubmatch(line)
	if t == nil {
		return errors.New("unknown layout: want the line that says what is copied, in GB/s")
	}
	m.latency, m.oneWay = t[2] != "", t[1] != ""
	return nil
}

func (m *nvMatrix) metric() string {
	if m.latency {
		return bench.MetricLoadLatency
	}
	return bench.MetricCopyBandwidth
}

func (m *nvMatrix) row(fields []string) error {
	m.rows++
	for i, f := range fields {
		if m.peers && i == m.rows-1 && (f == "N/A" || f == "0.00") {
			continue
		}
		v, err := ParseValue(m.metric(), f)
		if err != nil {
			return fmt.Errorf("column %d: %w", i, err)
		}
		_, half, _ := parseNumber(f)
		m.values, m.sum, m.rounding = append(m.values, v), m.sum+v, m.rounding+half
	}
	return nil
}

// end keeps the last matrix: after one way come the other way and the total.
func (m *nvMatrix) end() {
	if m.oneWay {
		m.testcase, m.both = "", m.testcase
		return
	}
	name := nvTestName(m.testcase)
	m.res.add(name)
	if len(m.values) > 0 {
		worst := slices.Min(m.values)
		if m.latency {
			worst = slices.Max(m.values)
		}
		m.res.add(name, newFigure(m.metric(), 0, 0, worst))
	}
	m.testcase = ""
}

func (m *nvMatrix) document(document []byte) error {
	var d struct {
		Root struct {
			Version   string `json:"version"`
			Error     string `json:"error"`
			Testcases []struct {
				Name        string     `json:"name"`
				Status      string     `json:"status"`
				Error       string     `json:"error"`
				Description string     `json:"bandwidth_description"`
				Matrix      [][]string `json:"bandwidth_matrix"`
				Sum         float64    `json:"sum"`
			} `json:"testcases"`
		} `json:"nvbandwidth"`
	}
	if err := json.NewDecoder(bytes.NewReader(document)).Decode(&d); err != nil {
		return bench.BadResult(toolNVBandwidth, "the JSON is cut off or has an unknown layout: %s",
			bench.Shorten(err.Error()))
	}
	if d.Root.Error != "" && len(d.Root.Testcases) == 0 {
		return bench.BadResult(toolNVBandwidth, "%s", bench.Shorten(d.Root.Error))
	}
	m.res.Version = strings.TrimPrefix(d.Root.Version, "v")
	for _, c := range d.Root.Testcases {
		if c.Status == "Waived" {
			continue
		}
		m.begin(c.Name)
		err := m.unit(c.Description)
		if n := len(c.Matrix) / 3; n > 0 && strings.Contains(c.Description, " Total ") && len(c.Matrix[0]) == n {
			c.Matrix = c.Matrix[2*n:]
		}
		for _, row := range c.Matrix {
			err = cmp.Or(err, m.row(row))
		}
		// Values have six digits.
		if err == nil && math.Abs(c.Sum-m.sum) > 1e-4*m.sum {
			err = fmt.Errorf("the rows add up to %g, and the sum says %g", m.sum, c.Sum)
		}
		if c.Status != "Passed" {
			err = fmt.Errorf("status %q %s", bench.Shorten(c.Status), bench.Shorten(c.Error))
		}
		if err != nil {
			m.res.of(nvTestName(c.Name)).Err = bench.BadResult(toolNVBandwidth, "%s: %v", word(c.Name), err)
			continue
		}
		m.end()
	}
	return nil
}
