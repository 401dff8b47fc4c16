package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

func ucxEngine(name, about string, bandwidth bool) bench.Engine {
	return bench.Engine{Name: name, Tool: toolUCX, About: about, Suite: bench.SuiteRDMA, Program: "ucx_perftest",
		Package: "ucx-utils", Measures: ucx{bandwidth}.metrics(),
		// ucx_perftest has no version option; this program may be missing.
		VersionCommand: []string{"sh", "-c", "ucx_info -v"}, Plugin: ucx{bandwidth}}
}

// These are puts of UCX's lower layer (UCT): the same operation as ib_write_bw and ib_write_lat. The upper layer (UCP)
// gives up on nodes as slow as emulated ones ("UD endpoint: unhandled timeout error").
var ucxEngines = []bench.Engine{
	ucxEngine("ucx_put_bw", "bandwidth of puts by UCX over the RDMA device", true),
	ucxEngine("ucx_put_lat", "one-way latency of puts by UCX over the RDMA device", false),
}

type ucx struct {
	bandwidth bool
}

func (u ucx) like() perftest { return perftest{bandwidth: u.bandwidth} }

// size is never 0, because UCX cannot measure all sizes in one run.
func (u ucx) size(o bench.Options) int64 {
	switch {
	case o.Bytes != 0:
		return o.Bytes
	case u.bandwidth:
		return bench.QuickBytes
	}
	return 8 // default of the tool
}

func (u ucx) Check(client, server bench.Endpoint, o bench.Options) error {
	return u.like().Check(client, server, o)
}

// ucxMPI matches a build with MPI, like Debian 13's. It runs as one of two ranks of an MPI job unless an option forbids
// it, which other builds refuse.
var ucxMPI = lazyregexp.New(`(?m)^\s*-P\s+<0\|1>\s.*\bMPI\b`)

// Prepare asks both nodes for MPI, because client and server may be of different releases.
func (u ucx) Prepare(ctx context.Context, ask bench.AskFunc, client, server bench.Endpoint, o *bench.Options) error {
	o.WithMPI = nil
	for _, ep := range []bench.Endpoint{client, server} {
		out, err := ask(ctx, ep.Node, "ucx_perftest", "-h")
		if err != nil {
			return err
		}
		if ucxMPI().Match(out.Stdout) || ucxMPI().Match(out.Stderr) {
			o.WithMPI = append(o.WithMPI, ep.Node)
		}
	}
	return nil
}

func (u ucx) args(ep bench.Endpoint, o bench.Options) []string {
	o.Bytes = u.size(o)
	n := u.like().iterations(o)
	args := []string{"env", "UCX_IB_GID_INDEX=" + strconv.Itoa(ep.GIDIndex), "ucx_perftest"}
	if u.bandwidth {
		args = append(args, "-t", "put_bw", "-D", "zcopy")
	} else {
		args = append(args, "-t", "put_lat")
	}
	if slices.Contains(o.WithMPI, ep.Node) {
		args = append(args, "-P", "0")
	}
	return append(args, "-x", "rc_verbs", "-d", ep.Device+":1", "-p", strconv.Itoa(o.Port), "-s",
		strconv.FormatInt(o.Bytes, 10), "-n", strconv.Itoa(n), "-w", strconv.Itoa(max(1, n/10)), "-f")
}

// Traffic has RDMA writes, see ucxEngines.
func (u ucx) Traffic() bench.Traffic {
	if !u.bandwidth {
		return bench.Traffic{}
	}
	return bench.Traffic{Operation: "write"}
}

func (u ucx) Server(ep bench.Endpoint, o bench.Options) []string { return u.args(ep, o) }

func (u ucx) Client(client, server bench.Endpoint, o bench.Options) []string {
	return append(u.args(client, o), server.Addr.String())
}

func (u ucx) metrics() []string {
	if u.bandwidth {
		return []string{bench.MetricBWAverage, bench.MetricMessageRate}
	}
	return []string{bench.MetricLatencyTypical, bench.MetricLatencyAverage}
}

// Parse keeps what the test is run for: a bandwidth of messages that wait for each other says nothing of the path.
func (u ucx) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	figures, err := ParseUCX(out.Stdout, u.size(o))
	if err != nil {
		return nil, err
	}
	figures = slices.DeleteFunc(figures, func(f bench.Figure) bool { return !slices.Contains(u.metrics(), f.Metric) })
	if len(figures) != len(u.metrics()) {
		return nil, bench.BadResult(toolUCX, "the table has not all of %s", strings.Join(u.metrics(), ", "))
	}
	return figures, nil
}

// ucxColumns: overall figures are for the whole run, averages for the part after the last line; MB is 2^20 bytes,
// because 148 messages of 65536 bytes a second are printed as 9.26.
var ucxColumns = map[string]column{
	"latency (usec)/50.0%ile":      {metric: bench.MetricLatencyTypical},
	"latency (usec)/typical":       {metric: bench.MetricLatencyTypical}, // before 1.11
	"latency (usec)/99.0%ile":      {metric: bench.MetricLatencyP99},     // with -R
	"latency (usec)/99.9%ile":      {metric: bench.MetricLatencyP999},
	"latency (usec)/average":       {kind: columnOther},
	"latency (usec)/overall":       {metric: bench.MetricLatencyAverage},
	"overhead (usec)/50.0%ile":     {kind: columnOther},
	"overhead (usec)/typical":      {kind: columnOther},
	"overhead (usec)/average":      {kind: columnOther},
	"overhead (usec)/overall":      {kind: columnOther},
	"bandwidth (MB/s)/average":     {kind: columnOther},
	"bandwidth (MB/s)/overall":     {metric: bench.MetricBWAverage, scale: mibToGb, mayBeZero: true},
	"message rate (msg/s)/average": {kind: columnOther},
	"message rate (msg/s)/overall": {metric: bench.MetricMessageRate, scale: 1e-6, mayBeZero: true},
	"/# iterations":                {kind: columnIterations},
}

// ParseUCX reads the client's line "Final:", or with -f the only one. The table does not have the message size.
func ParseUCX(output []byte, size int64) ([]bench.Figure, error) {
	var cols []column
	var groups string // header row above the titles
	var row *Row
	err := bench.EachLine(toolUCX, output, func(line string) (err error) {
		line = strings.TrimRight(line, " \t\r\n")
		switch {
		case line == "" || strings.HasPrefix(line, "+"):
		case strings.HasPrefix(line, "|") && strings.Contains(line, "# iterations"):
			cols, err = ucxHeader(groups, line)
			return err
		case strings.HasPrefix(line, "|"):
			groups = line
		case cols == nil:
			// A line about the connection.
		case strings.HasPrefix(line, "[thread "):
			// A line of progress.
		case strings.HasPrefix(line, "Final:") || strings.HasPrefix(line, "   "):
			if row != nil {
				return errors.New("a second row of results")
			}
			r, err := makeRow(cols, strings.Fields(strings.TrimPrefix(line, "Final:")), Row{Bytes: size})
			row = &r
			return err
		case row == nil || ucxGaveUp().MatchString(line): // anything may follow a complete table
			return errors.New("unknown line in the table")
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case row == nil && ucxGaveUp().Match(output):
		return nil, firstSign(toolUCX, output, ucxGaveUp)
	case row == nil || len(row.Figures) == 0 || !bytes.HasSuffix(output, []byte("\n")):
		// Nothing closes the table: a line without its newline may lack digits.
		return nil, bench.BadOutput(toolUCX, output, "the output ends without a whole row of results")
	}
	return row.Figures, nil
}

var ucxGaveUp = lazyregexp.New(`\bUCX +(?:ERROR|FATAL)\b`)

func ucxHeader(groups, titles string) ([]column, error) {
	var cols []column
	seen := make(map[string]bool)
	at := 1
	for cell := range strings.SplitSeq(strings.Trim(titles, "|"), "|") {
		title, group := strings.TrimSpace(cell), ""
		// Groups are centered above several titles. A title belongs to the cell above its first letter.
		if at < len(groups) {
			begin := strings.LastIndex(groups[:at], "|") + 1
			if end := strings.Index(groups[at:], "|"); end >= 0 {
				group = strings.TrimSpace(groups[begin : at+end])
			}
		}
		at += len(cell) + 1
		if title == "Stage" || title == "Test" { // text, or empty
			continue
		}
		c, ok := ucxColumns[group+"/"+title]
		if !ok || seen[group+title] {
			return nil, fmt.Errorf("unknown layout: column %q below %q", bench.Shorten(title), bench.Shorten(group))
		}
		seen[group+title] = true
		c.title = strings.TrimSpace(group + " " + title)
		cols = append(cols, c)
	}
	return cols, nil
}
