package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/finding"
)

var ncclEngines = []Engine{{
	Name: "nccl_all_reduce", Tool: toolNCCLTests, About: "all-reduce over all GPUs of one node, by message size",
	Suite: SuiteGPU, Program: "all_reduce_perf",
	Package: "nccl-tests, built with the node's CUDA", Local: true, plugin: ncclTests{},
}}

type ncclTests struct{ noSetup }

// prepare counts the GPUs.
func (ncclTests) prepare(ctx context.Context, ask asker, ep, _ Endpoint, o *Options) (err error) {
	o.Threads, err = gpus(ctx, ask, ep.Node)
	if err == nil && o.Threads == 0 {
		err = unfit(ep.Node, "nvidia-smi -L finds no GPU")
	}
	return err
}

// gpus is how many GPUs a node has by nvidia-smi, which it may not have.
func gpus(ctx context.Context, ask asker, node string) (int, error) {
	out, err := ask(ctx, node, "sh", "-c", "nvidia-smi -L")
	if err != nil || out.ExitCode != 0 {
		return 0, err
	}
	n := 0
	for line := range strings.Lines(string(out.Stdout)) {
		if strings.HasPrefix(line, "GPU ") {
			n++
		}
	}
	return n, nil
}

// versions: newer releases of nccl-tests tell their version above the table, and NCCL its own where
// NCCL_DEBUG=VERSION asks for it.
func (ncclTests) versions() []versionLine {
	return []versionLine{
		{"", regexp.MustCompile(`(?m)^# nccl-tests version ([0-9][0-9A-Za-z.+-]*)`)},
		{"NCCL ", regexp.MustCompile(`(?m)^NCCL version ([0-9][0-9A-Za-z.+-]*)`)},
	}
}

func (ncclTests) client(_, _ Endpoint, o Options) []string {
	largest := "1G"
	if o.Quick {
		largest = "64M"
	}
	return []string{"env", "NCCL_DEBUG=VERSION", "all_reduce_perf", "-b", "8", "-e", largest, "-f", "2", "-g",
		strconv.Itoa(max(1, o.Threads))}
}

func (ncclTests) metrics() []string { return []string{MetricBusBandwidth, MetricCollectiveTime} }

func (ncclTests) parse(out Output, _ Options) ([]Figure, error) { return ParseNCCLTests(out.Stdout) }

// ncclColumns are the titles of nccl-tests' table. The figures come twice: first for different
// buffers ("out-of-place"), then for one ("in-place"). Releases before 2.11 have "error" in place
// of "#wrong", and no "root" where the operation has none.
var ncclColumns = map[string]bool{"size": true, "count": true, "type": true, "redop": true, "root": true, "time": true,
	"algbw": true, "busbw": true, "error": true, "#wrong": true}

// ParseNCCLTests reads the table of any program of nccl-tests, by its header row: the bus bandwidth
// (GB/s of 10^9 bytes) and the time for different buffers, of each size. A bandwidth that rounds to
// 0.00 is left out, a size of 0 bytes too. Lines of NCCL's own log may stand between the rows and
// within them.
func ParseNCCLTests(output []byte) ([]Figure, error) {
	t := ncclTable{logs: ncclLoggers(output)}
	if err := EachLine(toolNCCLTests, output, t.read); err != nil {
		return nil, err
	}
	if !t.checked || len(t.figures) == 0 {
		if err := ncclFailure(output); err != nil {
			return nil, err
		}
		return nil, BadOutput(toolNCCLTests, output, "the table is cut off or empty: the line on values out of bounds "+
			"is missing, or no row comes before it")
	}
	return t.figures, nil
}

// How a program of nccl-tests says that it gives up, and what NCCL warned of before.
var (
	ncclGaveUp  = regexp.MustCompile(`\bTest (?:NCCL|CUDA) failure\b`)
	ncclWarning = regexp.MustCompile(`\bNCCL WARN (.*)`)
)

// ncclFailure is the error for the output of a program that gave up: it quotes the first warning of NCCL, which is
// nearest to the cause, or else the line in which the program says so. It is nil for other outputs.
func ncclFailure(output []byte) error {
	if !ncclGaveUp.Match(output) {
		return nil
	}
	sign := ncclWarning
	if !sign.Match(output) {
		sign = ncclGaveUp
	}
	return EachLine(toolNCCLTests, output, func(line string) error {
		if !sign.MatchString(line) {
			return nil
		}
		reason := "the program gave up"
		for _, c := range finding.Codes(line) {
			reason += fmt.Sprintf("; %s %s is %s", c.Kind, c.Digits, c.Short)
		}
		return errors.New(reason)
	})
}

// An ncclTable is the state of reading a table.
type ncclTable struct {
	titles         []string
	columns        int // that the rows have: all, or as the first row shows those for different buffers only
	units, checked bool
	begun          []string // fields of a row that a line of NCCL's log came into
	logs           map[string]bool
	figures        []Figure
}

// read takes one line. Its error is a bare reason. Rows can be torn by lines of NCCL's log, so a line that the log
// came into is kept until the rest of its row has come.
func (t *ncclTable) read(line string) error {
	line, logged := ncclLog(line, t.logs)
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
	case len(fields) > 2 && fields[0] == "#" && fields[1] == "size":
		if t.titles != nil {
			return errors.New("a second table")
		}
		t.titles = fields[1:]
		return ncclHeader(t.titles)
	case len(fields) > 1 && fields[0] == "#" && fields[1] == "(B)" && t.titles != nil:
		if strings.Join(fields, " ") != "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)" {
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
		// A program that starts others says so above the table.
	case t.checked:
		// Below a complete table, launchers and scripts say what they like.
	case logged:
		t.begun = append(t.begun, fields...)
	default:
		fields = ncclFields(t.titles, append(t.begun, fields...))
		t.begun = nil
		if t.columns == 0 {
			t.columns = len(t.titles)
			// Some operations, and runs that measure out-of-place only, fill just the first half of the columns.
			if half := ncclHalf(t.titles); len(fields) == half {
				t.columns = half
			}
		}
		row, err := ncclRow(t.titles[:t.columns], fields)
		t.figures = append(t.figures, row...)
		return err
	}
	return nil
}

// ncclHeader refuses titles that are not known, and figures that do not come twice.
func ncclHeader(titles []string) error {
	count := make(map[string]int)
	for _, t := range titles {
		if !ncclColumns[t] {
			return fmt.Errorf("unknown layout: column %q", Shorten(t))
		}
		count[t]++
	}
	for _, t := range []string{"time", "algbw", "busbw"} {
		if count[t] != 2 {
			return fmt.Errorf("unknown layout: %d columns %s, want 2", count[t], t)
		}
	}
	if count["size"] != 1 || count["error"]+count["#wrong"] != 2 {
		return errors.New("unknown layout: size, error or #wrong is missing, or comes too often")
	}
	return nil
}

// A line of NCCL's log begins with "host:pid:tid [device] ".
var (
	ncclLogLine = regexp.MustCompile(`(?m)^(\S+?:\d+:)\d+ \[\d+\] (?:\S+ )?NCCL (?:INFO|WARN) `)
	ncclLogMark = regexp.MustCompile(`:\d+:\d+ \[\d+\] `)
)

// maxHostName is the length of the longest name of a host in Linux, in bytes.
const maxHostName = 64

// ncclLoggers returns how the lines of NCCL's log begin in an output: "host:pid:".
func ncclLoggers(output []byte) map[string]bool {
	all := make(map[string]bool)
	for _, m := range ncclLogLine.FindAllSubmatch(output, -1) {
		all[string(m[1])] = true
	}
	return all
}

// ncclLog returns what stands in a line before NCCL's log, and whether the log is in it: a row is
// printed in pieces, and where NCCL_DEBUG asks for them log lines come in between, with nothing to
// separate the host's name from the row.
func ncclLog(line string, logs map[string]bool) (rest string, logged bool) {
	if !strings.Contains(line, " NCCL INFO ") && !strings.Contains(line, " NCCL WARN ") {
		return line, false
	}
	if mark := ncclLogMark.FindStringIndex(line); mark != nil {
		pid := mark[0] + 1 + strings.IndexByte(line[mark[0]+1:], ':') + 1
		for i := mark[0] - 1; i >= max(0, mark[0]-maxHostName) && line[i] > ' '; i-- {
			if logs[line[i:pid]] {
				return line[:i], true
			}
		}
	}
	return "", true
}

// ncclFields are the fields of a row with one for redop, which programs whose operation reduces
// nothing leave empty in old releases.
func ncclFields(titles, fields []string) []string {
	if at := slices.Index(titles, "redop"); at >= 0 && at < len(fields) {
		if _, _, err := parseNumber(fields[at]); err == nil {
			return slices.Insert(slices.Clone(fields), at, "")
		}
	}
	return fields
}

// ncclHalf is the number of columns up to the end of the figures for different buffers.
func ncclHalf(titles []string) int {
	return 1 + slices.IndexFunc(titles, func(t string) bool { return t == "error" || t == "#wrong" })
}

// ncclRow reads a row, and recomputes its bandwidth from size and time. That finds columns that have moved between
// releases, which no check of a single number would.
func ncclRow(titles, fields []string) ([]Figure, error) {
	if err := checkFields(fields, len(titles)); err != nil {
		return nil, err
	}
	first := make(map[string]float64) // the first of two figures is the one for different buffers
	for i, t := range titles {
		wrong := t == "error" || t == "#wrong"
		if t == "type" || t == "redop" || t == "root" || wrong && fields[i] == "N/A" { // not checked
			continue
		}
		v, _, err := parseNumber(fields[i])
		switch {
		case err != nil:
		case v < 0 || t == "time" && v == 0:
			err = errors.New("not above zero")
		case t == "#wrong" && v != 0:
			err = errors.New("elements of the result are wrong")
		}
		if err != nil {
			return nil, fmt.Errorf("column %s: value %q: %w", t, Shorten(fields[i]), err)
		}
		if _, ok := first[t]; !ok {
			first[t] = v
		}
	}
	size, err := strconv.ParseInt(fields[0], 10, 64)
	if titles[0] != "size" || err != nil {
		return nil, fmt.Errorf("column size: value %q is no whole number", Shorten(fields[0]))
	}
	if size == 0 {
		return nil, nil
	}
	// 10^-3 of bytes a microsecond are GB/s. The printed figures are rounded to 0.01, and the time to four digits.
	duration, bandwidth := first["time"], first["algbw"]
	if computed := float64(size) / duration / 1e3; computed > bandwidth*1.02+0.01 || computed < bandwidth*0.98-0.01 {
		return nil, fmt.Errorf("%d bytes in %g us are not %g GB/s", size, duration, bandwidth)
	}
	figures := []Figure{newFigure(MetricCollectiveTime, size, 0, duration)}
	if first["busbw"] > 0 {
		figures = append(figures, newFigure(MetricBusBandwidth, size, 0, first["busbw"]))
	}
	return figures, nil
}
