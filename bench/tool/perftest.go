package tool

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
)

// A PerftestResult is the output of one run of a perftest tool.
type PerftestResult struct {
	Test  string
	Facts map[string]string // by the names of perftestFacts, as far as the release prints them

	Rows []Row // in printed order; never empty
	// Latencies of the only row are in time order, in us, if -U listed them.
	Latencies []float64 `json:",omitempty"`
	Warnings  []string  // "Conflicting CPU frequency values detected: ..."
	// Complete is set if the line or bracket that closes the table was found, or if the test has none, as with
	// --run_infinitely. Otherwise rows may be missing, and the last one may lack digits.
	Complete bool
}

// A Row is one row of perftest's table.
type Row struct {
	Bytes      int64
	Iterations int64
	Figures    []bench.Figure // without figures printed as "not measured"
}

// Figures returns the figures of all rows, in printed order.
func (r *PerftestResult) Figures() []bench.Figure {
	figures := lists.Flat(r.Rows, func(row Row) []bench.Figure { return row.Figures })
	for i := range figures {
		if figures[i].Metric == bench.MetricLatencyTypical {
			figures[i].Latencies = r.Latencies
		}
	}
	return figures
}

// Engine returns the name of the engine, so that runs by rackless and by others can be compared.
func (r *PerftestResult) Engine() string {
	p := perftest{program: PerftestProgram(r.Test), both: strings.Contains(r.Test, "Bidirectional"),
		immediate: strings.Contains(r.Test, "_imm"), compare: strings.Contains(r.Test, "CMP_AND_SWAP")}
	p.pairs, _ = strconv.Atoi(r.Facts[factPairs]) // a fact that is not a number is ignored
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

var perftestOthers = []struct{ inTitle, fact, word string }{
	{"Post List", "", "postlist"}, {"Multicast", "", "multicast"}, {"forwarding", "", "forwarding"},
	{"", factSRQ, "srq"}, {"", "Dual-port", "dualport"}}

// PerftestProgram returns the program that prints a title, or "perftest".
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

// Harmless lines between the header row and the rows. They go to stderr, unless an executor joins the two streams.
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

// noCalibration ends when other programs use less of the CPU.
const noCalibration = "perftest could not calibrate the CPU clock and its figures mean nothing; run it again"

var perftestFailures = []struct{ text, reason string }{
	// perftest continues with a frequency of zero, prints 0.000 for every bandwidth or "inf" and "-nan" for every
	// latency, and exits with status 0. Seen on TCG with r^2 of 0.589.
	{"Correlation coefficient", noCalibration},
	{"Can't produce a report", "perftest found no usable CPU frequency; run it with -F"},
	{"Completion with error", "a work request failed; look at the state of the RDMA link"},
	{"Test exited with Error", "perftest gave up"},
}

// perftestSigns are lines of programs without a result. A run that goes on may print them too.
var perftestSigns = []struct{ text, reason string }{
	{"Couldn't connect to", noServer}, {"Unable to init the socket connection", noServer},
	{"Unable to open file descriptor for socket connection", noServer},
	{"Failed to modify QP", "the queue pairs could not be connected: compare GID index (-x), MTU and subnet of " +
		"both ends"},
	{"Unable to find the Infiniband/RoCE device", noDevice}, {"Couldn't get context for the device", noDevice},
	{"IB device", noDevice}, {"No IB devices found", noDevice},
	{"Couldn't allocate MR", noMemory}, {"Couldn't create MR", noMemory}, {"Couldn't register MR", noMemory},
	{"Couldn't read remote address", "the other end gave up: its output says why"},
	{"Unable to create QP", noQP}, {"Failed to create QP", noQP}, {"Couldn't create CQ", noCQ},
	{"Failed to create CQs", noCQ}, {"Couldn't allocate PD", noResources}, {"Failed to allocate PD", noResources},
	{"Couldn't create IB resources", noResources},
	{"Unable to Connect the HCA's through the link", "the queue pairs could not be connected: the state of the port " +
		"(ibstat), GID index (-x) and subnet of both ends"},
	{"Unable to perform rdma_client function", noManager}, {"Unable to create RDMA_CM resources", noManager},
	{"Received 10 times ADDR_ERROR", noManager}, {"Unexpected CM event", noManager},
	{"Unable to set up socket connection", noServer}, {"Parser function exited with Error", "an option is not known " +
		"or does not fit the others: -h lists them"},
}

const perftestWaits = "* Waiting for client to connect... *"

const (
	noServer = "the server was not reached: it is to be started first, with the same options, and its port (-p, by " +
		"default 18515) to be open"
	noDevice = "there is no such RDMA device, or it cannot be opened: ibv_devices lists them (-d)"
	noQP     = "the device refused the queue pair: connection type (-c), inline size (-I), depth (-t), number (-q), " +
		"and locked memory (ulimit -l); an EFA adapter needs -c SRD and a perftest that was built with its extended " +
		"calls"
	noCQ        = "the device refused the completion queue: depth (-t, -r) and number of queue pairs (-q)"
	noResources = "the device refused resources: locked memory (ulimit -l), the driver's messages (dmesg), rights in " +
		"a container"
	noManager = "the connection manager (-R, -z) did not connect: the address is to be one of an RDMA NIC, with a " +
		"route there from this end's (rping tests both), and the server to run with -R too"
	noMemory = "the memory could not be registered: ulimit -l; for memory of a GPU nvidia-peermem or --use_cuda_dmabuf"
)

// PerftestSign matches lines that only a perftest program without a result prints.
var PerftestSign = lazyregexp.New(`(?m)^\s*(?:Couldn't connect to \S+:\d+$|Unable to init the socket connection|` +
	`Unable to open file descriptor for socket connection|Unable to find the Infiniband/RoCE device|` +
	`Couldn't get context for the device|IB device \S+ not found|Unable to create QP\.|Failed to create QP\.|` +
	`Couldn't create IB resources|Couldn't create CQ\b|Failed to create CQs|Couldn't (?:allocate|create|` +
	`register) MR\b|` +
	`Couldn't allocate PD|Unable to Connect the HCA's through the link|` +
	`Unable to set up socket connection|Unable to perform rdma_client function|` +
	`Unable to create RDMA_CM resources|Received 10 times ADDR_ERROR|Failed to modify QP|` +
	`\* Waiting for client to connect\.\.\. \*)`)

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

var failedStatus = lazyregexp.New(`Failed status (?:[a-z ]+\()?([0-9]+)\b`)

func failedCompletion(status string) string {
	if n, err := strconv.Atoi(status); err == nil {
		if c, ok := finding.FindCode(finding.CompletionStatus, n); ok {
			return fmt.Sprintf("a work request failed with status %s, %s; what to look at: rackless explain %q", status,
				c.Short, "status "+status)
		}
	}
	return "a work request failed with status " + status + ", which libibverbs does not know"
}

func perftestFailure(line string) error {
	if m := failedStatus().FindStringSubmatch(line); m != nil {
		return errors.New(failedCompletion(m[1]))
	}
	for _, f := range perftestFailures {
		if strings.Contains(line, f.text) {
			return errors.New(f.reason)
		}
	}
	return nil
}

// ParsePerftest reads any perftest bandwidth or latency tool, of the client or the server: as text, with the list of
// -U, or as the JSON of --out_json. It returns Gb/s and us. Anything but a good result is a *BadResultError.
func ParsePerftest(output []byte) (*PerftestResult, error) {
	if bytes.HasPrefix(bytes.TrimSpace(output), []byte("{")) {
		return parsePerftestJSON(output)
	}
	return parsePerftestText(output)
}

type perftestText struct {
	res  PerftestResult
	cols []column // nil until the header row
	// listing is set within the list of -U, which stands between the table's header and the table with its header
	// again.
	listing bool
	ruled   bool
}

// parsePerftestText needs the end of the table: a broken pipe may leave a row that looks good and is wrong.
func parsePerftestText(output []byte) (*PerftestResult, error) {
	p := perftestText{res: PerftestResult{Facts: map[string]string{}}}
	explained := failedStatus().Match(output)
	err := bench.EachLine(Perftest, output, func(line string) error {
		if explained && strings.Contains(line, "Completion with error") {
			return nil // the line with the status, which follows, says more
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
	case len(res.Rows) == 0 && bytes.Contains(output, []byte(perftestWaits)):
		return nil, bench.BadOutput(Perftest, output, "the output ends without a row of figures: it is of a server, "+
			"and "+
			"no client came, or none that measured")
	case len(res.Rows) == 0:
		return nil, bench.BadOutput(Perftest, output, "the output ends without a row of figures")
	case len(res.Latencies) > 0 && len(res.Rows) > 1:
		return nil, bench.BadResult(Perftest, "there are %d rows, and one list of latencies", len(res.Rows))
	}
	// In a copy without any ruler, the line below the table says nothing.
	res.Complete = res.Complete || (res.endless() || !p.ruled) && bytes.HasSuffix(output, []byte("\n"))
	return res, nil
}

var perftestBare = lazyregexp.New(`^#?\s*bytes\s+#?\s*iterations\b`)

func (p *perftestText) read(line string) error {
	res := &p.res
	if at := perftestBare().FindStringIndex(line); at != nil {
		line = "#bytes #iterations" + line[at[1]:]
	}
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
		p.ruled = true
		// On a terminal with client and server, a ruler may also come above the rows.
		res.Complete = res.Complete || len(res.Rows) > 0
	case isWarning(line):
		res.Warnings = append(res.Warnings, line)
	case strings.HasPrefix(line, "#"):
		next, err := parseHeader(line)
		if err != nil {
			return fmt.Errorf("unknown layout: %w", err)
		}
		// Client and server on one terminal print the same header twice.
		if p.cols != nil && !slices.EqualFunc(p.cols, next, sameTitle) {
			return errors.New("a second table with other columns")
		}
		p.cols = next
	case p.cols == nil:
		res.addFacts(line)
	case res.Complete && !isRow(line, len(p.cols)):
		// Anything may follow the table: a shell prompt, the release of a GPU buffer.
	default:
		row, err := makeRow(p.cols, strings.Fields(line), Row{})
		if err != nil {
			return err
		}
		res.Rows = append(res.Rows, row)
	}
	return nil
}

const rawHeader = "#, usec"

// addLatency reads us. There is one fewer than iterations if perftest measures the time between posts (all but atomics
// and reads by an event).
func (p *perftestText) addLatency(line string) error {
	number, value, _ := strings.Cut(line, ", ")
	if next := len(p.res.Latencies) + 1; number != strconv.Itoa(next) {
		return fmt.Errorf("want latency number %d", next)
	}
	us, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return errors.New("no number")
	}
	// perftest prints inf if it could not calibrate the CPU's clock; the table has the reason.
	if bench.CheckValue(bench.MetricLatencyTypical, us) != nil {
		return errors.New("no latency: above 0 and finite")
	}
	p.res.Latencies = append(p.res.Latencies, us)
	return nil
}

func (r *PerftestResult) endless() bool {
	return len(r.Rows) > 1 && !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Bytes != r.Rows[0].Bytes })
}

func isTitle(line string) bool {
	return strings.HasSuffix(line, " Test") && !strings.Contains(line, ":")
}

func isRuler(line string) bool { return len(line) >= 3 && strings.Trim(line, "-") == "" }

func isWarning(line string) bool {
	return slices.ContainsFunc(perftestWarnings, func(w string) bool { return strings.HasPrefix(line, w) })
}

func isRow(line string, columns int) bool {
	fields := strings.Fields(line)
	return len(fields) == columns && !slices.ContainsFunc(fields, func(f string) bool {
		_, _, err := parseNumber(f)
		return err != nil
	})
}

// perftestFacts do not affect the validity. Most lines hold two facts, e.g. "Number of qps : 1 Transport type : IB",
// which also stands for RoCE.
var perftestFacts = []string{factConnection, factPairs, "Device", "Link type", "Transport type", "Mtu", "GID index",
	factSRQ, "Dual-port"}

const (
	factConnection = "Connection type" // RC, UC, UD, ...
	factPairs      = "Number of qps"
	factSRQ        = "Using SRQ"
	factCUDA       = "CUDA device" // the GPU that holds the buffers
	factROCm       = "ROCm device"
	factDMABuf     = "DMA-BUF"
)

// Each line has a word that is faster to search for than the expression.
var perftestMemory = []struct {
	word string
	line func() *regexp.Regexp
	fact string
}{
	{"Picking", lazyregexp.New(`^Picking device No\. ([0-9]+)`), factCUDA},
	{"ROCm", lazyregexp.New(`^Using ROCm Device with ID: ([0-9]+)`), factROCm},
	{"DMA-BUF", lazyregexp.New(`^using (DMA-BUF) for GPU buffer`), factDMABuf},
	{"--use_cuda", lazyregexp.New(`\bib_\w+ .*--use_cuda(?:=| +)([0-9]+)`), factCUDA},
	{"--use_rocm", lazyregexp.New(`\bib_\w+ .*--use_rocm(?:=| +)([0-9]+)`), factROCm},
	{"_dmabuf", lazyregexp.New(`\bib_\w+ .*--use_(?:cuda|rocm)_(dmabuf)`), factDMABuf},
}

func (r *PerftestResult) addFacts(line string) {
	if r.Test == "" && isTitle(line) {
		r.Test = line
	}
	for _, m := range perftestMemory {
		if !strings.Contains(line, m.word) {
			continue
		}
		if found := m.line().FindStringSubmatch(line); found != nil && r.Facts[m.fact] == "" {
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

// setFact keeps the first fact: client and server may share a terminal. A fact that is off is ignored.
func (r *PerftestResult) setFact(name, value string) {
	if value == "OFF" {
		return
	}
	if _, set := r.Facts[name]; !set && slices.Contains(perftestFacts, name) {
		r.Facts[name] = value
	}
}
