package tool

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
)

var fiPingpongEngines = []bench.Engine{{
	Name: "fi_pingpong", Tool: toolFiPingpong, About: "one-way latency of messages by libfabric over the RDMA device",
	Suite: bench.SuiteRDMA, Program: "fi_pingpong", Package: "libfabric-bin",
	Measures: []string{bench.MetricLatencyAverage}, VersionCommand: []string{"fi_info", "--version"},
	Plugin: fiPingpong{},
}}

type fiPingpong struct{ noSetup }

// Check is perftest's: both need the same of a node.
func (fiPingpong) Check(client, server bench.Endpoint, o bench.Options) error {
	return perftest{}.Check(client, server, o)
}

// fiLargest is the largest default size. "-S all" goes up to 6 MiB, which takes minutes on an emulated link.
const fiLargest = 1 << 20

func (fiPingpong) size(o bench.Options) int64 {
	if o.Bytes == 0 && o.Quick {
		return 64
	}
	return o.Bytes
}

func (f fiPingpong) iterations(o bench.Options) int {
	if o.Bytes = f.size(o); o.Bytes == 0 {
		o.Bytes = fiLargest
	}
	return perftest{}.iterations(o)
}

// args connects the endpoints (msg), like RC in the other tools.
func (f fiPingpong) args(ep bench.Endpoint, o bench.Options) []string {
	args := []string{"fi_pingpong", "-p", "verbs", "-e", "msg", "-d", ep.Device, "-I", strconv.Itoa(f.iterations(o))}
	if size := f.size(o); size != 0 {
		args = append(args, "-S", strconv.FormatInt(size, 10))
	}
	return args
}

func (f fiPingpong) Server(ep bench.Endpoint, o bench.Options) []string {
	return append(f.args(ep, o), "-B", strconv.Itoa(o.Port))
}

func (f fiPingpong) Client(client, server bench.Endpoint, o bench.Options) []string {
	return append(f.args(client, o), "-P", strconv.Itoa(o.Port), server.Addr.String())
}

// Parse puts back the requested numbers: the tool prints 1k for 1500 iterations, and for 1100 bytes.
func (f fiPingpong) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	figures, err := ParseFiPingpong(out.Stdout)
	if err != nil {
		return nil, err
	}
	for i := range figures {
		figures[i].Iterations = int64(f.iterations(o))
	}
	if size := f.size(o); size != 0 {
		if len(figures) != 1 {
			return nil, bench.BadResult(toolFiPingpong, "%d sizes, of one that was asked for", len(figures))
		}
		figures[0].Bytes = size
	}
	return figures, nil
}

// fiColumns: "usec/xfer" is half of the round trip.
var fiColumns = []column{
	{title: "bytes", read: func(row *Row, field string) (err error) {
		row.Bytes, err = fiNumber(field, 1<<10)
		return err
	}},
	{title: "#sent", read: func(row *Row, field string) (err error) {
		row.Iterations, err = fiNumber(field, 1000)
		return err
	}},
	// An equals sign means that as many came back.
	{title: "#ack", read: func(row *Row, field string) error {
		if n, err := fiNumber(strings.TrimPrefix(field, "="), 1000); err != nil || n != row.Iterations {
			return errors.New("not all messages came back")
		}
		return nil
	}},
	{title: "total", read: ignored}, {title: "time", read: ignored}, {title: "MB/sec", read: ignored},
	{title: "usec/xfer", metric: bench.MetricLatencyAverage}, {title: "Mxfers/sec", read: ignored},
}

func ignored(*Row, string) error { return nil }

// ParseFiPingpong drops the bandwidth and the first row of "-S all", of empty messages. Sizes and iterations are cut
// off after one or two digits.
func ParseFiPingpong(output []byte) ([]bench.Figure, error) {
	var cols []column
	var figures []bench.Figure
	err := bench.EachLine(toolFiPingpong, output, func(line string) (err error) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "bytes":
			if cols != nil {
				return errors.New("a second table")
			}
			if cols, err = columnsOf(fields, fiColumns); err == nil && len(cols) < len(fiColumns) {
				err = errors.New("unknown layout: a column is missing")
			}
			return err
		case cols == nil:
			return errors.New("a line above the table")
		case fields[0] == "0":
			return checkFields(fields, len(cols))
		default:
			row, err := makeRow(cols, fields, Row{})
			figures = append(figures, row.Figures...)
			return err
		}
		return nil
	})
	if err == nil && (len(figures) == 0 || !bytes.HasSuffix(output, []byte("\n"))) {
		err = bench.BadOutput(toolFiPingpong, output, "the output ends without a whole row")
	}
	return figures, err
}

// fiNumber reads 64, 1.5k, 1m. k is 1024 for a size, 1000 for a count.
func fiNumber(text string, k int64) (int64, error) {
	bad := errors.New("no number of this tool")
	unit := int64(1)
	for i, suffix := range []string{"k", "m", "g"} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text = rest
			for range i + 1 {
				unit *= k
			}
			break
		}
	}
	whole, tenths, fraction := strings.Cut(text, ".")
	n, err := parseCount(whole)
	if err != nil || n > 1<<20 || fraction && (unit == 1 || len(tenths) != 1) {
		return 0, bad
	}
	n *= unit
	if fraction {
		t, err := parseCount(tenths)
		if err != nil {
			return 0, bad
		}
		n += t * unit / 10
	}
	return n, nil
}
