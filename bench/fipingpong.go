package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var fiPingpongEngines = []Engine{{
	Name: "fi_pingpong", Tool: toolFiPingpong, About: "one-way latency of messages by libfabric over the RDMA device",
	Suite: SuiteRDMA, Program: "fi_pingpong", Package: "libfabric-bin",
	plugin: fiPingpong{},
}}

type fiPingpong struct{ noSetup }

func (fiPingpong) check(client, server Endpoint, o Options) error {
	return perftest{}.check(client, server, o)
}

// fiLargest is the largest of the six sizes that fi_pingpong takes by itself. With "-S all" there
// are 46, up to 6 MiB, and an emulated link takes minutes.
const fiLargest = 1 << 20

// size is the message size; 0 stands for the tool's own.
func (fiPingpong) size(o Options) int64 {
	if o.Bytes == 0 && o.Quick {
		return 64
	}
	return o.Bytes
}

func (f fiPingpong) iterations(o Options) int {
	if o.Bytes = f.size(o); o.Bytes == 0 {
		o.Bytes = fiLargest
	}
	return perftest{}.iterations(o)
}

func (f fiPingpong) args(ep Endpoint, o Options) []string {
	args := []string{"fi_pingpong", "-p", "verbs", "-e", "msg", "-d", ep.Device, "-I", strconv.Itoa(f.iterations(o))}
	if size := f.size(o); size != 0 {
		args = append(args, "-S", strconv.FormatInt(size, 10))
	}
	return args
}

func (f fiPingpong) server(ep Endpoint, o Options) []string {
	return append(f.args(ep, o), "-B", strconv.Itoa(o.Port))
}

func (f fiPingpong) client(client, server Endpoint, o Options) []string {
	return append(f.args(client, o), "-P", strconv.Itoa(o.Port), server.Addr.String())
}

func (fiPingpong) version() []string { return []string{"fi_info", "--version"} }
func (fiPingpong) metrics() []string { return []string{MetricLatencyAverage} }

// parse puts what was asked for in the place of what the tool shortens: it prints 1k for 1500
// iterations, and for 1100 bytes.
func (f fiPingpong) parse(out Output, o Options) ([]Figure, error) {
	figures, err := ParseFiPingpong(out.Stdout)
	if err != nil {
		return nil, err
	}
	for i := range figures {
		figures[i].Iterations = int64(f.iterations(o))
	}
	if size := f.size(o); size != 0 {
		if len(figures) != 1 {
			return nil, &BadResultError{Tool: toolFiPingpong, Reason: fmt.Sprintf("%d sizes, of one that was asked for",
				len(figures))}
		}
		figures[0].Bytes = size
	}
	return figures, nil
}

// fiTitles are the columns of fi_pingpong; "usec/xfer" is the time of one transfer, half of the way there and back.
var fiTitles = []string{"bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"}

// ParseFiPingpong reads the table of fi_pingpong. The bandwidth is not taken: it is that of one
// message at a time, with two decimals. Nor is the row of messages without content, which "-S all"
// begins with: no other tool has such a size. Sizes and iterations are as the tool prints them, cut
// off after one or two digits.
func ParseFiPingpong(output []byte) ([]Figure, error) {
	var cols map[string]int
	count := 0
	var figures []Figure
	number := 0
	for line := range strings.Lines(string(output)) {
		number++
		fields := strings.Fields(line)
		bad := func(err error) error {
			return &BadResultError{Tool: toolFiPingpong, Line: number, Text: shorten(line), Reason: err.Error()}
		}
		switch {
		case len(fields) == 0:
		case fields[0] == "bytes":
			if cols != nil {
				return nil, bad(errors.New("a second table"))
			}
			cols, count = make(map[string]int), len(fields)
			for i, title := range fields {
				if _, twice := cols[title]; twice {
					return nil, bad(fmt.Errorf("column %q appears twice", shorten(title)))
				}
				cols[title] = i
			}
			for _, title := range fiTitles {
				if _, ok := cols[title]; !ok {
					return nil, bad(fmt.Errorf("unknown layout: column %s is missing", title))
				}
			}
			if count != len(fiTitles) {
				return nil, bad(errors.New("unknown layout: there are more columns than known"))
			}
		case cols == nil:
			return nil, bad(errors.New("a line above the table"))
		case len(fields) != count:
			return nil, bad(fmt.Errorf("the row has %d fields, the header %d columns", len(fields), count))
		default:
			if fields[cols["bytes"]] == "0" {
				continue
			}
			f, err := fiRow(cols, fields)
			if err != nil {
				return nil, bad(err)
			}
			figures = append(figures, f)
		}
	}
	if len(figures) == 0 || output[len(output)-1] != '\n' {
		text, n := lastLine(output)
		return nil, &BadResultError{Tool: toolFiPingpong, Line: n, Text: text,
			Reason: "the output ends without a whole row"}
	}
	return figures, nil
}

func fiRow(cols map[string]int, fields []string) (Figure, error) {
	size, err := fiNumber(fields[cols["bytes"]], 1<<10)
	if err != nil {
		return Figure{}, fmt.Errorf("bytes: %w", err)
	}
	sent, err := fiNumber(fields[cols["#sent"]], 1000)
	if err != nil {
		return Figure{}, fmt.Errorf("#sent: %w", err)
	}
	// The equals sign says that as many came back.
	if ack := fields[cols["#ack"]]; ack != "="+fields[cols["#sent"]] {
		return Figure{}, fmt.Errorf("#ack: %q: not all messages came back", shorten(ack))
	}
	text := fields[cols["usec/xfer"]]
	v, _, err := parseNumber(text)
	if err == nil {
		err = checkValue(MetricLatencyAverage, v)
	}
	if err != nil {
		return Figure{}, fmt.Errorf("usec/xfer: value %q: %w", shorten(text), err)
	}
	return Figure{Metric: MetricLatencyAverage, Bytes: size, Iterations: sent, Value: v, Unit: UnitUsec}, nil
}

// fiNumber reads a number as fi_pingpong shortens it: 64, 1.5k, 1m. Of a size k is 1024, of a count 1000.
func fiNumber(text string, k int64) (int64, error) {
	bad := fmt.Errorf("%q is no number of this tool", shorten(text))
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
		t, err := parseCount(tenths) // not 0, which the tool leaves out
		if err != nil {
			return 0, bad
		}
		n += t * unit / 10
	}
	return n, nil
}
