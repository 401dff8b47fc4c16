package tool

import (
	"bytes"
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

// A PerftestResult is what one run of a perftest tool printed.
type PerftestResult struct {
	Test  string            // e.g. "RDMA_Write BW Test"
	Facts map[string]string // what it says of the run, by the names of perftestFacts, as far as its release does

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
	Figures    []bench.Figure // in the order of the columns; a figure printed as "not measured" is left out
}

// Figures returns the figures of all rows, in the order printed.
func (r *PerftestResult) Figures() []bench.Figure {
	figures := lists.Flat(r.Rows, func(row Row) []bench.Figure { return row.Figures })
	for i := range figures {
		if figures[i].Metric == bench.MetricLatencyTypical {
			figures[i].Latencies = r.Latencies
		}
	}
	return figures
}

// Engine is the name of the engine that runs such a test, so that runs of rackless and of others can be compared by it.
func (r *PerftestResult) Engine() string {
	p := perftest{program: PerftestProgram(r.Test), both: strings.Contains(r.Test, "Bidirectional"),
		immediate: strings.Contains(r.Test, "_imm"), compare: strings.Contains(r.Test, "CMP_AND_SWAP")}
	p.pairs, _ = strconv.Atoi(r.Facts[factPairs]) // what is no number says nothing
	if c := r.Facts[factConnection]; c != "RC" {
		p.transport = c
	}
	p.gpu, p.dmabuf = r.Facts[factCUDA], r.Facts[factDMABuf] != ""
	name := p.name()
	if gpu, ok := r.Facts[factROCm]; ok {
		name += "/rocm" + gpu
	}
	for _, w := range perftestOthers {
		always := w.fact == factSRQ && (p.transport == "XRC" || p.transport == "DC")
		if strings.Contains(r.Test, w.inTitle) && w.inTitle != "" || r.Facts[w.fact] == "ON" && !always {
			name += "/" + w.word
		}
	}
	return name
}

// perftestOthers are words of names for what no engine does: in the title, or as a fact that is ON.
var perftestOthers = []struct{ inTitle, fact, word string }{
	{"Post List", "", "postlist"}, {"Multicast", "", "multicast"}, {"forwarding", "", "forwarding"},
	{"", factSRQ, "srq"}, {"", "Dual-port", "dualport"}}

// PerftestProgram is the program that prints a title, "perftest" where it is not known.
func PerftestProgram(title string) string {
	figure := "bw"
	if strings.Contains(title, "Latency") {
		figure = "lat"
	}
	for word, program := range map[string]string{"RDMA_Write": "ib_write", "RDMA_Read": "ib_read", "Send": "ib_send",
		"Atomic": "ib_atomic", "Raw Ethernet": "raw_ethernet_send"} {
		if strings.HasPrefix(title, word) {
			return program + "_" + figure
		}
	}
	return Perftest
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
	{"Test exited with Error", "perftest gave up"},
}

// perftestSigns are lines of programs that have no result, with what to look at. A run that goes on may print them too.
var perftestSigns = []struct{ text, reason string }{
	{"Couldn't connect to", noServer}, {"Unable to init the socket connection", noServer},
	{"Unable to open file descriptor for socket connection", noServer},
	{"Failed to modify QP", "the queue pairs could not be connected: compare GID index (-x), MTU and subnet of " +
		"both ends"},
	{"Unable to find the Infiniband/RoCE device", noDevice}, {"Couldn't get context for the device", noDevice},
	{"IB device", noDevice}, {"No IB devices found", noDevice},
	{"Couldn't allocate MR", noMemory}, {"Couldn't create MR", noMemory}, {"Couldn't register MR", noMemory},
	{"Couldn't read remote address", "the other end gave up: its output says why"},
}

// Reasons for several of them.
const (
	noServer = "the server was not reached: it is to be started first, with the same options, and its port (-p, by " +
		"default 18515) to be open"
	noDevice = "there is no such RDMA device, or it cannot be opened: ibv_devices lists them (-d)"
	noMemory = "the memory could not be registered: ulimit -l; for memory of a GPU nvidia-peermem or --use_cuda_dmabuf"
)

// PerftestSign matches a line that only a program of perftest without a result prints.
var PerftestSign = lazyregexp.New(`(?m)^\s*(?:Couldn't connect to \S+:\d+$|Unable to init the socket connection|` +
	`Unable to open file descriptor for socket connection|Unable to find the Infiniband/RoCE device|` +
	`Couldn't get context for the device|IB device \S+ not found)`)

// perftestSign is the error for the line of an output that says why there is no result; nil where none does.
func perftestSign(output []byte) error {
	return bench.EachLine(Perftest, output, func(line string) error {
		for _, s := range perftestSigns {
			if strings.HasPrefix(strings.TrimSpace(line), s.text) {
				return errors.New(s.reason)
			}
		}
		return nil
	})
}

// failedStatus is the line in which perftest gives the status of a completion with error, with its number.
var failedStatus = lazyregexp.New(`Failed status (?:[a-z ]+\()?([0-9]+)\b`)

// failedCompletion explains the status of a completion with error.
func failedCompletion(status string) string {
	if n, err := strconv.Atoi(status); err == nil {
		if c, ok := finding.FindCode(finding.CompletionStatus, n); ok {
			return fmt.Sprintf("a work request failed with status %s, %s; what to look at: rackless explain %q", status,
				c.Short, "status "+status)
		}
	}
	return "a work request failed with status " + status + ", which libibverbs does not know"
}

// perftestFailure is the error for a line that spoils the whole run, or nil.
func perftestFailure(line string) error {
	if m := failedStatus.FindStringSubmatch(line); m != nil {
		return errors.New(failedCompletion(m[1]))
	}
	for _, f := range perftestFailures {
		if strings.Contains(line, f.text) {
			return errors.New(f.reason)
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
func ParsePerftest(output []byte) (*PerftestResult, error) {
	if bytes.HasPrefix(bytes.TrimSpace(output), []byte("{")) {
		return parsePerftestJSON(output)
	}
	return parsePerftestText(output)
}

// perftestText is the state of reading perftest's text.
type perftestText struct {
	res  PerftestResult
	cols []column // nil until the header row
	// listing is set within the list of single latencies that perftest prints with -U, between the header of the
	// table and the table with its header once more.
	listing bool
}

// parsePerftestText reads the table. A table counts as complete only if something closes it: a pipe that breaks
// between two digits leaves a row that looks good and is wrong.
func parsePerftestText(output []byte) (*PerftestResult, error) {
	p := perftestText{res: PerftestResult{Facts: map[string]string{}}}
	explained := failedStatus.Match(output)
	err := bench.EachLine(Perftest, output, func(line string) error {
		if explained && strings.Contains(line, "Completion with error") {
			return nil // the line with the status, which comes after it, says more
		}
		return p.read(strings.TrimSpace(line))
	})
	res := &p.res
	if sign := perftestSign(output); sign != nil && len(res.Rows) == 0 {
		return nil, sign
	}
	switch {
	case err != nil:
		return nil, err
	case p.listing:
		return nil, bench.BadOutput(Perftest, output, "the list of latencies is cut off")
	case len(res.Rows) == 0:
		return nil, bench.BadOutput(Perftest, output, "the output ends without a row of figures")
	case len(res.Latencies) > 0 && len(res.Rows) > 1:
		return nil, bench.BadResult(Perftest, "there are %d rows, and one list of latencies", len(res.Rows))
	}
	res.Complete = res.Complete || res.endless() && bytes.HasSuffix(output, []byte("\n"))
	return res, nil
}

// read takes one line. Its error is a bare reason: the caller knows the line.
func (p *perftestText) read(line string) error {
	res := &p.res
	if err := perftestFailure(line); err != nil {
		return err
	}
	switch {
	case line == "":
	case line == rawHeader && p.cols != nil:
		if p.listing || res.Latencies != nil {
			return errors.New("a second list of latencies")
		}
		p.listing = true
	case p.listing && strings.Contains(line, ", "):
		return p.addLatency(line)
	case p.listing && (len(res.Latencies) == 0 || !isRuler(line)):
		return errors.New("the list of latencies is cut off")
	case p.listing:
		p.listing = false
	case isTitle(line) && len(res.Rows) > 0:
		return errors.New("another run begins")
	case isRuler(line):
		// The ruler below the rows closes the table. Where client and server print to one terminal a ruler
		// also comes between the header row and the first row.
		res.Complete = res.Complete || len(res.Rows) > 0
	case isWarning(line):
		res.Warnings = append(res.Warnings, line)
	case strings.HasPrefix(line, "#"):
		next, err := parseHeader(line)
		if err != nil {
			return fmt.Errorf("unknown layout: %w", err)
		}
		// Client and server on one terminal print the same header twice. After another header it would be open
		// to which of the two tables a row belongs.
		if p.cols != nil && !slices.EqualFunc(p.cols, next, sameTitle) {
			return errors.New("a second table with other columns")
		}
		p.cols = next
	case p.cols == nil:
		res.addFacts(line)
	case res.Complete && !isRow(line, len(p.cols)):
		// Below the table anything may come: a shell prompt, the release of a GPU buffer.
	default:
		row, err := makeRow(p.cols, strings.Fields(line), Row{})
		if err != nil {
			return err
		}
		res.Rows = append(res.Rows, row)
	}
	return nil
}

// rawHeader begins the list of single latencies.
const rawHeader = "#, usec"

// addLatency takes one line of the list: its number and a latency in us. There is one less of them than iterations
// where perftest takes the time between posts (all but atomics and reads by an event).
func (p *perftestText) addLatency(line string) error {
	number, value, _ := strings.Cut(line, ", ")
	if next := len(p.res.Latencies) + 1; number != strconv.Itoa(next) {
		return fmt.Errorf("want latency number %d", next)
	}
	us, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return errors.New("no number")
	}
	// perftest that could not calibrate the CPU's clock prints inf. The table says so as well, and why.
	if bench.CheckValue(bench.MetricLatencyTypical, us) != nil {
		return errors.New("no latency: above 0 and finite")
	}
	p.res.Latencies = append(p.res.Latencies, us)
	return nil
}

// endless reports whether the rows are those of a test that runs until it is ended.
func (r *PerftestResult) endless() bool {
	return len(r.Rows) > 1 && !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Bytes != r.Rows[0].Bytes })
}

// isTitle reports whether a line names a test, as the first line of a run does.
func isTitle(line string) bool {
	return strings.HasSuffix(line, " Test") && !strings.Contains(line, ":")
}

func isRuler(line string) bool { return len(line) >= 3 && strings.Trim(line, "-") == "" }

func isWarning(line string) bool {
	return slices.ContainsFunc(perftestWarnings, func(w string) bool { return strings.HasPrefix(line, w) })
}

// isRow reports whether a line below the table has the form of a row: the right count of fields, all of them
// numbers.
func isRow(line string, columns int) bool {
	fields := strings.Fields(line)
	return len(fields) == columns && !slices.ContainsFunc(fields, func(f string) bool {
		_, _, err := parseNumber(f)
		return err != nil
	})
}

// perftestFacts are the facts above the table, which describe a run and do not decide whether it is good. Most lines
// hold two of them, e.g. "Number of qps   : 1            Transport type : IB", which also stands for RoCE.
var perftestFacts = []string{factConnection, factPairs, "Device", "Link type", "Transport type", "Mtu", "GID index",
	factSRQ, "Dual-port"}

// Facts that are part of the name of a test.
const (
	factConnection = "Connection type" // RC, UC, UD, ...
	factPairs      = "Number of qps"
	factSRQ        = "Using SRQ"
	factCUDA       = "CUDA device" // number of the GPU in whose memory the buffers are
	factROCm       = "ROCm device"
	factDMABuf     = "DMA-BUF" // how the card got at that memory
)

// perftestMemory are the lines that say that the buffers are not in main memory, and a word that each has: to
// search for it takes less time than the expression.
var perftestMemory = []struct {
	word string
	line *lazyregexp.Regexp
	fact string
}{
	{"Picking", lazyregexp.New(`^Picking device No\. ([0-9]+)`), factCUDA},
	{"ROCm", lazyregexp.New(`^Using ROCm Device with ID: ([0-9]+)`), factROCm},
	{"DMA-BUF", lazyregexp.New(`^using (DMA-BUF) for GPU buffer`), factDMABuf},
	// The command line above the output.
	{"--use_cuda", lazyregexp.New(`\bib_\w+ .*--use_cuda(?:=| +)([0-9]+)`), factCUDA},
	{"--use_rocm", lazyregexp.New(`\bib_\w+ .*--use_rocm(?:=| +)([0-9]+)`), factROCm},
	{"_dmabuf", lazyregexp.New(`\bib_\w+ .*--use_(?:cuda|rocm)_(dmabuf)`), factDMABuf},
}

// addFacts takes the facts out of a line above the table.
func (r *PerftestResult) addFacts(line string) {
	if r.Test == "" && isTitle(line) {
		r.Test = line
	}
	for _, m := range perftestMemory {
		if !strings.Contains(line, m.word) {
			continue
		}
		if found := m.line.FindStringSubmatch(line); found != nil && r.Facts[m.fact] == "" {
			r.Facts[m.fact] = found[1]
		}
	}
	for _, name := range perftestFacts {
		_, after, _ := strings.Cut(line, name)
		value, ok := strings.CutPrefix(strings.TrimLeft(after, " \t"), ":")
		if fields := strings.Fields(value); ok && len(fields) > 0 {
			r.setFact(name, fields[0])
		}
	}
}

// setFact sets a fact that is not set yet: of client and server on one terminal the first one counts. What is off is
// none.
func (r *PerftestResult) setFact(name, value string) {
	if value == "OFF" {
		return
	}
	if _, set := r.Facts[name]; !set && slices.Contains(perftestFacts, name) {
		r.Facts[name] = value
	}
}
