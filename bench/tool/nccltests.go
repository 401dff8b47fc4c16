package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
)

var ncclEngines = []bench.Engine{{
	Name: "nccl_all_reduce", Tool: toolNCCLTests, About: "all-reduce over all GPUs of one node, by message size",
	Suite: bench.SuiteGPU, Program: "all_reduce_perf",
	Package: "nccl-tests, built with the node's CUDA", Local: true, Plugin: ncclTests{},
	Measures: []string{bench.MetricBusBandwidth, bench.MetricCollectiveTime},
	// Newer releases print their version above the table, and NCCL its own with NCCL_DEBUG=VERSION.
	Versions: []bench.VersionLine{
		{Name: "", Line: lazyregexp.New(`(?m)^# nccl-tests version ([0-9][0-9A-Za-z.+-]*)`)},
		{Name: "NCCL ", Line: lazyregexp.New(`(?m)^NCCL version ([0-9][0-9A-Za-z.+-]*)`)},
	},
}}

type ncclTests struct{ noSetup }

// Prepare counts the GPUs.
func (ncclTests) Prepare(ctx context.Context, ask bench.AskFunc, ep, _ bench.Endpoint, o *bench.Options) (err error) {
	o.Threads, err = GPUs(ctx, ask, ep.Node)
	switch {
	case err != nil:
	case o.Threads == 0:
		err = bench.Unfit(ep.Node, "nvidia-smi -L finds no GPU")
	case o.Threads == 1:
		// With one GPU the program runs, but prints the time of a copy.
		err = bench.Unfit(ep.Node,
			"it has one GPU, and an all-reduce sends data between two or more: gpu_bandwidth_local "+
				"measures copies within one")
	}
	return err
}

// GPUs returns 0 on a node without nvidia-smi.
func GPUs(ctx context.Context, ask bench.AskFunc, node string) (int, error) {
	out, err := ask(ctx, node, "sh", "-c", "nvidia-smi -L")
	if err != nil || out.ExitCode != 0 {
		return 0, err
	}
	return strings.Count("\n"+string(out.Stdout), "\nGPU "), nil
}

func (ncclTests) Client(_, _ bench.Endpoint, o bench.Options) []string {
	largest := "1G"
	if o.Quick {
		largest = "64M"
	}
	return []string{"env", "NCCL_DEBUG=VERSION", "all_reduce_perf", "-b", "8", "-e", largest, "-f", "2", "-g",
		strconv.Itoa(max(1, o.Threads))}
}

func (ncclTests) Parse(out bench.Output, _ bench.Options) ([]bench.Figure, error) {
	return ParseNCCLTests(out.Stdout)
}

// ncclColumns: the figures come twice, for different buffers ("out-of-place"), which RCCL's tests can omit, and for one
// ("in-place"). Releases before 2.11 have "error" instead of "#wrong", and no "root" if the operation has none.
// "cputime" is the time of the CPU, requested by -C; i_min and the like are of single iterations.
var ncclColumns = map[string]string{"size": "(B)", "count": "(elements)", "type": "", "redop": "", "root": "",
	"time": "(us)", "cputime": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)", "error": "", "#wrong": "",
	"i_min": "(us)", "i_max": "(us)", "i_p99": "(us)", "i_cv%": "(%)", "timestamp": "%Y-%m-%d %H:%M:%S"}

// ParseNCCLTests reads the figures of any program of nccl-tests, see ParseNCCLKinds.
func ParseNCCLTests(output []byte) ([]bench.Figure, error) {
	kinds, err := ParseNCCLKinds(output)
	if err != nil {
		return nil, err
	}
	var all []bench.Figure
	for _, k := range kinds.All {
		if k.Err != nil {
			return nil, k.Err
		}
		all = append(all, k.Figures...)
	}
	return all, nil
}

// ParseNCCLKinds reads any program of nccl-tests, as a table or as the JSON of -J. For each size it returns the bus
// bandwidth (GB/s of 10^9 bytes) and the time for different buffers. It omits bandwidths that round to 0.00 and sizes
// of 0 bytes.
func ParseNCCLKinds(output []byte) (Tests, error) {
	if bytes.HasPrefix(bytes.TrimSpace(output), []byte("{")) {
		return ncclDocument(output)
	}
	return parseNCCLTable(output, false)
}

// ParseNCCLExcerpt reads the whole rows of a table whose end was cut off.
func ParseNCCLExcerpt(output []byte) (Tests, error) {
	whole, ok := WithoutLastRow(output)
	if err := ncclFailure(output); err != nil || !ok {
		return Tests{}, err
	}
	return parseNCCLTable(whole, true)
}

// WithoutLastRow removes a row of figures that ends the output, as it may be cut off within a number; ok is false if
// the last line is something else, such as an error.
func WithoutLastRow(output []byte) (above []byte, ok bool) {
	output = bytes.TrimRight(output, " \t\r\n")
	at := bytes.LastIndexByte(output, '\n') + 1
	return output[:at], figuresOnly().Match(output[at:])
}

// figuresOnly matches a row with a type and an operation, too: "1048576 262144 float sum -1 62.4".
var figuresOnly = lazyregexp.New(`^\s*\d+(?:\s+(?:-?[\d.][\d.eE+-]*|N/A|[a-z][a-z0-9_]*))*\s*$`)

// parseNCCLTable takes an excerpt without its last lines: each row has a column of wrong values.
func parseNCCLTable(output []byte, excerpt bool) (Tests, error) {
	t := ncclTable{logs: ncclLoggers(output)}
	if err := bench.EachLine(toolNCCLTests, output, t.read); err != nil {
		return Tests{}, err
	}
	if !t.checked && !excerpt || len(t.res.All) == 0 {
		if err := ncclFailure(output); err != nil {
			return Tests{}, err
		}
		return Tests{}, bench.BadOutput(toolNCCLTests, output,
			"the table is cut off or empty: the line on values out of bounds is missing, or no row comes before it")
	}
	return t.res, nil
}

func ncclKind(element, operation string) string {
	part := func(text, usual string) string {
		if text == "" || text == usual || text == "none" {
			return ""
		}
		return "/" + word(text)
	}
	return part(element, "float") + part(operation, "sum")
}

var (
	ncclGaveUp = lazyregexp.New(
		`^Invalid number of GPUs: |\bTest (?:NCCL |CUDA )?failure\b|\bNCCL WARN `)
	ncclWarning = lazyregexp.New(`\bNCCL WARN (.*)`)
)

// ncclFailure quotes NCCL's first warning, which is nearest to the cause.
func ncclFailure(output []byte) error {
	sign := ncclGaveUp
	if ncclWarning().Match(output) {
		sign = ncclWarning
	}
	return bench.EachLine(toolNCCLTests, output, func(line string) error {
		if !sign().MatchString(line) {
			return nil
		}
		reason := "the program gave up"
		for _, c := range finding.Codes(line) {
			reason += fmt.Sprintf("; %s %s is %s", c.Kind, c.Digits, c.Short)
		}
		return errors.New(reason)
	})
}

// ncclBare matches lines without "#", which web pages take for a mark of theirs.
var ncclBare = lazyregexp.New(`^[ \t]*#?[ \t]*(?:size\s+count\s+type\b|\(B\)\s+\(elements\)|` +
	`Out of bounds values :|Avg bus bandwidth|Rank\s+\d+ (?:Group|Pid)\b|nThread \d+ nGpus|Using devices\s*$|` +
	`Errors with asterisks|Collective test (?:starting|concluded):)`)

type ncclTable struct {
	titles         []string
	columns        int // all, or only for different buffers, as the first row shows
	units, checked bool
	begun          []string // of a row that was interrupted by NCCL's log
	logs           map[string]bool
	ranks          int
	hypercube      bool
	res            Tests
}

// read keeps the beginning of a row that lines of NCCL's log tear. Its error does not name the line.
func (t *ncclTable) read(line string) error {
	line, logged := ncclLog(line, t.logs)
	line = withMark(ncclBare, line)
	if m := ncclRelease().FindStringSubmatch(line); m != nil && t.titles == nil {
		t.res.Version = m[1]
	}
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
	case ncclHypercube().MatchString(line):
		t.hypercube = true
	case len(fields) > 2 && fields[0] == "#" && fields[1] == "Rank":
		t.ranks++
	case len(fields) > 2 && fields[0] == "#" && fields[1] == "size":
		if t.titles != nil {
			return errors.New("a second table")
		}
		t.titles = fields[1:]
		return ncclHeader(t.titles)
	case len(fields) > 1 && fields[0] == "#" && fields[1] == "(B)" && t.titles != nil:
		units := "#"
		for _, title := range t.titles {
			units += " " + ncclColumns[title]
		}
		if !slices.Equal(fields, strings.Fields(units)) {
			return errors.New("unknown layout: other units")
		}
		t.units = true
	case strings.HasPrefix(line, "# Out of bounds values :"):
		if len(t.begun) > 0 {
			return fmt.Errorf("the row above has %d fields, the header %d columns", len(t.begun), len(t.titles))
		}
		if fields[len(fields)-1] != "OK" {
			return errors.New("the results of the collective are wrong")
		}
		t.checked = true
	case strings.HasPrefix(line, "#"):
	case t.titles == nil || !t.units:
		// A program that starts others prints this above the table.
	case t.checked:
		// Launchers and scripts may print anything below a complete table.
	case logged:
		t.begun = append(t.begun, fields...)
	default:
		fields = ncclFields(t.titles, append(t.begun, fields...))
		t.begun = nil
		if t.columns == 0 {
			t.columns = len(t.titles)
			// Some operations, and runs that measure only out-of-place, fill just the first half of the columns.
			if half := ncclHalf(t.titles); len(fields) == half {
				t.columns = half
			}
		}
		if n := len(fields) - 2; slices.Contains(t.titles, "timestamp") && n > 0 && t.columns == len(t.titles) {
			fields = append(fields[:n:n], strings.Join(fields[n:], " ")) // date and time
		}
		kind, row, err := t.row(t.titles[:t.columns], fields)
		if len(row) > 0 {
			t.res.add(kind, row...)
		}
		return err
	}
	return nil
}

func ncclHeader(titles []string) error {
	count := make(map[string]int)
	for _, t := range titles {
		if _, known := ncclColumns[t]; !known {
			return fmt.Errorf("unknown layout: column %q", bench.Shorten(t))
		}
		count[t]++
	}
	count["time"] += count["cputime"]
	want := max(1, min(count["algbw"], 2))
	for _, t := range []string{"time", "algbw", "busbw"} {
		if count[t] != want {
			return fmt.Errorf("unknown layout: %d columns %s, want %d", count[t], t, want)
		}
	}
	if count["size"] != 1 || count["error"]+count["#wrong"] != want {
		return errors.New("unknown layout: size, error or #wrong is missing, or comes too often")
	}
	return nil
}

// A line of NCCL's log begins with "host:pid:tid [device] ".
var (
	ncclLogLine = lazyregexp.New(`(?m)^(\S+?:\d+:)\d+ \[\d+\] (?:\S+ )?NCCL (?:INFO|WARN) `)
	ncclLogMark = lazyregexp.New(`:\d+:\d+ \[\d+\] `)
)

// maxHostName is Linux's limit in bytes.
const maxHostName = 64

func ncclLoggers(output []byte) map[string]bool {
	return lists.SetOf(ncclLogLine().FindAllSubmatch(output, -1), func(m [][]byte) string { return string(m[1]) })
}

// ncclLog returns the part before NCCL's log, which comes between pieces of a row, with nothing to separate the host's
// name from the row.
func ncclLog(line string, logs map[string]bool) (rest string, logged bool) {
	if !strings.Contains(line, " NCCL INFO ") && !strings.Contains(line, " NCCL WARN ") {
		return line, false
	}
	if mark := ncclLogMark().FindStringIndex(line); mark != nil {
		pid := mark[0] + 1 + strings.IndexByte(line[mark[0]+1:], ':') + 1
		for i := mark[0] - 1; i >= max(0, mark[0]-maxHostName) && line[i] > ' '; i-- {
			if logs[line[i:pid]] {
				return line[:i], true
			}
		}
	}
	return "", true
}

// ncclFields adds redop to a row: in old releases programs that reduce nothing leave it empty.
func ncclFields(titles, fields []string) []string {
	if at := slices.Index(titles, "redop"); at >= 0 && at < len(fields) {
		if _, _, err := parseNumber(fields[at]); err == nil {
			return slices.Insert(slices.Clone(fields), at, "")
		}
	}
	return fields
}

func ncclHalf(titles []string) int {
	return 1 + slices.IndexFunc(titles, func(t string) bool { return t == "error" || t == "#wrong" })
}

// row recomputes the bandwidth from size and time, which detects columns that have moved between releases.
func (t *ncclTable) row(titles, fields []string) (kind string, figures []bench.Figure, err error) {
	if err := checkFields(fields, len(titles)); err != nil {
		return "", nil, err
	}
	first := make(map[string]float64) // the first of two figures is for different buffers
	words := map[string]string{}
	for i, title := range titles {
		wrong := title == "error" || title == "#wrong"
		if title == "type" || title == "redop" || title == "root" || title == "timestamp" ||
			wrong && fields[i] == "N/A" {
			// unchecked
			words[title] = fields[i]
			continue
		}
		if title == "cputime" {
			kind, title = "/cputime", "time"
		}
		v, _, err := parseNumber(fields[i])
		switch {
		case err != nil:
		case v < 0 || title == "time" && v == 0:
			err = errors.New("not above zero")
		case title == "#wrong" && v != 0:
			err = errors.New("elements of the result are wrong")
		}
		if err != nil {
			return "", nil, fmt.Errorf("column %s: value %q: %w", title, bench.Shorten(fields[i]), err)
		}
		if _, ok := first[title]; !ok {
			first[title] = v
		}
	}
	size, err := strconv.ParseInt(fields[0], 10, 64)
	if titles[0] != "size" || err != nil {
		return "", nil, fmt.Errorf("column size: value %q is no whole number", bench.Shorten(fields[0]))
	}
	figures, err = ncclFigures(size, t.counted(size), ncclTimes{Time: first["time"], Alg: first["algbw"],
		Bus: first["busbw"]}, kind != "")
	return ncclKind(words["type"], words["redop"]) + kind, figures, err
}

var ncclHypercube = lazyregexp.New(`^#\s*Collective test starting: hypercube_perf\b`)

// counted: hypercube_perf omits the data that a rank already has, which is all of it for one rank. Source:
// HyperCubeGetBw in src/hypercube.cu of nccl-tests 2.19.6.
func (t *ncclTable) counted(size int64) float64 {
	if t.hypercube && t.ranks > 0 {
		return float64(size) * float64(t.ranks-1) / float64(t.ranks)
	}
	return float64(size)
}

// ncclFigures takes the CPU's time if ofCPU is set, which ends before the GPUs'; bandwidths always use the latter.
func ncclFigures(size int64, counted float64, row ncclTimes, ofCPU bool) ([]bench.Figure, error) {
	if size == 0 {
		return nil, nil
	}
	// 10^-3 bytes per microsecond are GB/s. The figures are rounded to 0.01, the time to four digits.
	computed := counted / row.Time / 1e3
	if computed > row.Alg*1.02+0.01 && !ofCPU || computed < row.Alg*0.98-0.01 {
		return nil, fmt.Errorf("%d bytes in %g us are not %g GB/s", size, row.Time, row.Alg)
	}
	figures := []bench.Figure{newFigure(bench.MetricCollectiveTime, size, 0, row.Time)}
	if row.Bus > 0 {
		figures = append(figures, newFigure(bench.MetricBusBandwidth, size, 0, row.Bus))
	}
	return figures, nil
}

var ncclRelease = lazyregexp.New(`^(?:# nccl-tests version|#? ?rccl-tests: Version) (\S+)`)

// Its numbers have six decimals.
type ncclResult struct {
	Size       int64      `json:"size"`
	Type       string     `json:"type"`
	Operation  string     `json:"redop"`
	OutOfPlace *ncclTimes `json:"out_of_place"`
	InPlace    *ncclTimes `json:"in_place"`
}

// An ncclTimes is in us, and GB/s of 10^9 bytes.
type ncclTimes struct {
	Time    float64  `json:"time"`
	CPUTime float64  `json:"cpu_time"`
	Alg     float64  `json:"alg_bw"`
	Bus     float64  `json:"bus_bw"`
	Wrong   *float64 `json:"nwrong"`
}

// ncclDocument is closed even if the program gave up, but then lacks the line on values out of bounds.
func ncclDocument(document []byte) (Tests, error) {
	var d struct {
		Results []ncclResult `json:"results"`
		Bounds  *struct {
			Okay string `json:"okay"`
		} `json:"out_of_bounds"`
		Errors []string `json:"errors"`
	}
	if err := json.Unmarshal(document, &d); err != nil {
		return Tests{}, bench.BadResult(toolNCCLTests, "the JSON is cut off or has an unknown layout: %s",
			bench.Shorten(err.Error()))
	}
	switch {
	case d.Bounds == nil || len(d.Results) == 0:
		return Tests{}, bench.BadResult(toolNCCLTests,
			"the program gave up: there are no results, or nothing says whether "+"they are right; %s",
			bench.Shorten(strings.Join(d.Errors, ", ")))
	case d.Bounds.Okay != "true":
		return Tests{}, bench.BadResult(toolNCCLTests, "the results of the collective are wrong")
	}
	var t Tests
	for i, r := range d.Results {
		times, kind := cmp.Or(r.OutOfPlace, r.InPlace), ncclKind(r.Type, r.Operation)
		if times == nil || r.Size < 0 {
			return Tests{}, bench.BadResult(toolNCCLTests, "result %d has no times or no size", i+1)
		}
		ofCPU := times.CPUTime > 0
		if ofCPU {
			kind, times.Time = kind+"/cputime", times.CPUTime
		}
		figures, err := ncclFigures(r.Size, float64(r.Size), *times, ofCPU)
		for _, f := range figures {
			err = cmp.Or(err, bench.CheckValue(f.Metric, f.Value))
		}
		if times.Wrong != nil && *times.Wrong != 0 {
			err = errors.New("elements of the result are wrong")
		}
		if err != nil {
			return Tests{}, bench.BadResult(toolNCCLTests, "result %d: %v", i+1, err)
		}
		t.add(kind, figures...)
	}
	return t.checked(toolNCCLTests, document, nil)
}
