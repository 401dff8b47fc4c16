package bench

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A PerftestResult is what one run of a perftest tool printed. Facts that a release does not print are zero.
type PerftestResult struct {
	Test       string // e.g. "RDMA_Write BW Test"
	Device     string // RDMA device, e.g. "rxe0"
	LinkType   string // "Ethernet" or "IB"
	MTU        int    // of the path, in bytes
	GIDIndex   int    // -1 where none is printed, as on InfiniBand
	Connection string // "RC", "UC", "UD", ...
	QPs        int
	Transport  string // "IB" also for RoCE; "IW" for iWARP

	Rows []Row // in the order printed; never empty
	// Latencies are all of them in us and in the order of time, where -U has listed those of the one row.
	Latencies []float64 `json:",omitempty"`
	Warnings  []string  // lines such as "Conflicting CPU frequency values detected: ..."
	// Complete is set when the line or bracket that closes the table was there, or none is to be expected:
	// a test that runs until it is ended (--run_infinitely) prints a row of the same size again and again.
	// Without it the output was cut: rows may be missing and the last one may lack digits.
	Complete bool
}

// A Row is one row of perftest's table: all figures of one message size.
type Row struct {
	Bytes      int64 // message size
	Iterations int64
	Figures    []Figure // in the order of the columns; a figure printed as "not measured" is left out
}

// Figures returns the figures of all rows, in the order printed.
func (r *PerftestResult) Figures() []Figure {
	var figures []Figure
	for _, row := range r.Rows {
		figures = append(figures, row.Figures...)
	}
	for i := range figures {
		if figures[i].Metric == MetricLatencyTypical {
			figures[i].Latencies = r.Latencies
		}
	}
	return figures
}

// Lines that perftest prints between the header row and the rows and that do not harm the result. They go to
// stderr, and end up here where an executor joins the two streams.
var perftestWarnings = []string{
	"Conflicting CPU frequency values detected",
	"Test integrity may be harmed",
	"Warning:",
	"WARNING",
	"Requested SQ size might be too big",
	"Requested QP size might be too big",
	"deallocating GPU buffer",
	"destroying current CUDA Ctx",
}

// noCalibration is a failure that goes away by itself, where other things leave the CPU alone for a moment.
const noCalibration = "perftest could not calibrate the CPU clock and its figures mean nothing; run it again"

// Lines that mean that no figure of the run is worth anything, with the reason to give.
var perftestFailures = []struct{ text, reason string }{
	// The clock calibration failed. perftest goes on with a frequency of zero, prints 0.000 for every bandwidth
	// or "inf" and "-nan" for every latency, and exits with status 0. Seen on TCG with r^2 of 0.589.
	{"Correlation coefficient", noCalibration},
	{"Can't produce a report", "perftest found no usable CPU frequency; run it with -F"},
	{"Completion with error", "a work request failed; look at the state of the RDMA link"},
	{"Failed status", "a work request failed; look at the state of the RDMA link"},
	{"Test exited with Error", "perftest gave up"},
}

// perftestFailure returns the error for a line that spoils the whole run, or nil.
func perftestFailure(line string, number int) error {
	for _, f := range perftestFailures {
		if strings.Contains(line, f.text) {
			return &BadResultError{Tool: toolPerftest, Line: number, Text: shorten(line), Reason: f.reason}
		}
	}
	return nil
}

// ParsePerftest reads the output of any perftest bandwidth or latency tool, of the client or the
// server, as text or as the JSON of --out_json, with the list of all latencies that -U adds to the
// text. Columns are found by their titles. Bandwidth becomes Gb/s and latency us whatever the
// output used.
//
// Everything that is not a good result is a *BadResultError: a layout not known, a missing column, a cut row,
// no row, a figure that is zero without being a rounded one, a line that says that the run failed.
func ParsePerftest(r io.Reader) (*PerftestResult, error) {
	output, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read output of perftest: %w", err)
	}
	if bytes.HasPrefix(bytes.TrimSpace(output), []byte("{")) {
		return parsePerftestJSON(output)
	}
	return parsePerftestText(output)
}

func parsePerftestText(output []byte) (*PerftestResult, error) {
	output, latencies, err := splitRaw(output)
	if err != nil {
		return nil, err
	}
	res := &PerftestResult{GIDIndex: -1, Latencies: latencies}
	var cols []column // nil until the header row
	number := 0
	for line := range strings.Lines(string(output)) {
		number++
		line = strings.TrimSpace(line)
		if err := perftestFailure(line, number); err != nil {
			return nil, err
		}
		bad := func(reason error) error {
			return &BadResultError{Tool: toolPerftest, Line: number, Text: shorten(line), Reason: reason.Error()}
		}
		switch {
		case line == "":
		case isTitle(line) && len(res.Rows) > 0:
			return nil, bad(fmt.Errorf("another run begins"))
		case isRuler(line):
			// The ruler below the rows closes the table. Where client and server print to one terminal a ruler
			// also comes between the header row and the first row.
			if len(latencies) > 0 && len(res.Rows) > 1 {
				return nil, &BadResultError{Tool: toolPerftest,
					Reason: fmt.Sprintf("there are %d rows, and one list of latencies", len(res.Rows))}
			}
			res.Complete = res.Complete || len(res.Rows) > 0
		case isWarning(line):
			res.Warnings = append(res.Warnings, line)
		case strings.HasPrefix(line, "#"):
			next, err := parseHeader(line)
			if err != nil {
				return nil, bad(fmt.Errorf("unknown layout: %w", err))
			}
			// Client and server on one terminal print the same header twice; another one would leave open to
			// which of the two tables a row belongs.
			if cols != nil && !sameColumns(cols, next) {
				return nil, bad(fmt.Errorf("a second table with other columns"))
			}
			cols = next
		case cols == nil:
			res.addFacts(line)
		case res.Complete && !isRow(line, len(cols)):
			// Below the table anything may come: a shell prompt, the release of a GPU buffer.
		default:
			row, err := makeRow(cols, strings.Fields(line))
			if err != nil {
				return nil, bad(err)
			}
			res.Rows = append(res.Rows, row)
		}
	}
	if len(res.Rows) == 0 {
		text, n := lastLine(output)
		return nil, &BadResultError{Tool: toolPerftest, Line: n, Text: text,
			Reason: "the output ends without a row of figures"}
	}
	if len(latencies) > 0 && len(res.Rows) > 1 {
		return nil, &BadResultError{Tool: toolPerftest,
			Reason: fmt.Sprintf("there are %d rows, and one list of latencies", len(res.Rows))}
	}
	res.Complete = res.Complete || res.endless() && bytes.HasSuffix(output, []byte("\n"))
	return res, nil
}

// endless tells whether the rows are those of a test that runs until it is ended.
func (r *PerftestResult) endless() bool {
	for _, row := range r.Rows {
		if row.Bytes != r.Rows[0].Bytes {
			return false
		}
	}
	return len(r.Rows) > 1
}

// isTitle tells whether a line names a test, as the first line of a run does.
func isTitle(line string) bool {
	return strings.HasSuffix(line, " Test") && !strings.Contains(line, ":")
}

func isRuler(line string) bool { return len(line) >= 3 && strings.Trim(line, "-") == "" }

func isWarning(line string) bool {
	for _, w := range perftestWarnings {
		if strings.HasPrefix(line, w) {
			return true
		}
	}
	return false
}

// isRow tells whether a line below the table has the form of a row: the right count of fields, all of them
// numbers.
func isRow(line string, columns int) bool {
	fields := strings.Fields(line)
	for _, f := range fields {
		if _, _, err := parseNumber(f); err != nil {
			return false
		}
	}
	return len(fields) == columns
}

func sameColumns(a, b []column) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].title != b[i].title {
			return false
		}
	}
	return true
}

// addFacts takes the facts out of a line above the table. Most lines hold two of them, e.g.
// "Number of qps   : 1            Transport type : IB". The first value of a fact stays.
func (r *PerftestResult) addFacts(line string) {
	if r.Test == "" && isTitle(line) {
		r.Test = line
	}
	for key, set := range map[string]func(string){
		"Device":          func(v string) { setOnce(&r.Device, v) },
		"Link type":       func(v string) { setOnce(&r.LinkType, v) },
		"Connection type": func(v string) { setOnce(&r.Connection, v) },
		"Transport type":  func(v string) { setOnce(&r.Transport, v) },
		"Number of qps":   func(v string) { setNumberOnce(&r.QPs, v, 0) },
		"Mtu":             func(v string) { setNumberOnce(&r.MTU, strings.TrimSuffix(v, "[B]"), 0) },
		"GID index":       func(v string) { setNumberOnce(&r.GIDIndex, v, -1) },
	} {
		if _, after, ok := strings.Cut(line, key); ok {
			if value, ok := strings.CutPrefix(strings.TrimLeft(after, " \t"), ":"); ok {
				if fields := strings.Fields(value); len(fields) > 0 {
					set(fields[0])
				}
			}
		}
	}
}

func setOnce(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// setNumberOnce sets a number that still has its unset value. A fact that is no number stays unset: facts
// describe a run, they do not decide whether it is good.
func setNumberOnce(field *int, value string, unset int) {
	if n, err := strconv.Atoi(value); err == nil && *field == unset {
		*field = n
	}
}
