package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

var iperf3Engines = []bench.Engine{{
	Name: "iperf3", Tool: toolIperf3, About: "TCP throughput from client to server, without RDMA",
	Suite:   bench.SuiteTCP,
	Program: "iperf3", Package: "iperf3", Measures: []string{bench.MetricThroughput, bench.MetricRetransmits},
	VersionCommand: []string{"iperf3", "--version"}, Plugin: iperf3{},
}}

type iperf3 struct{ noSetup }

// Server ends after one test (-1).
func (iperf3) Server(_ bench.Endpoint, o bench.Options) []string {
	return []string{"iperf3", "-s", "-1", "-p", strconv.Itoa(o.Port)}
}

// Client asks for JSON: the text rounds rates to three digits.
func (iperf3) Client(_, server bench.Endpoint, o bench.Options) []string {
	return []string{"iperf3", "-c", server.Addr.String(), "-p", strconv.Itoa(o.Port), "-t",
		strconv.Itoa(o.RunSeconds()), "--json"}
}

// Failure implements Explainer.
func (iperf3) Failure(exit *bench.ExitError, parseErr error) error {
	return alsoPrinted(exit, parseErr)
}

func (iperf3) Parse(out bench.Output, _ bench.Options) ([]bench.Figure, error) {
	res, err := ParseIperf3(out.Stdout)
	if err != nil {
		return nil, err
	}
	return res.Figures(), nil
}

// An Iperf3Result is the client's output of `iperf3 --json`.
type Iperf3Result struct {
	Version  string
	Protocol string // "TCP" or "UDP"
	Streams  int
	Reverse  bool      // the server sent
	Both     bool      // --bidir; the figures are the client's
	Started  time.Time // zero if unknown

	Throughput  float64 // Gb/s, as received
	Retransmits *int64  // segments sent again; nil for UDP, and if the system does not count them
}

// Figures returns the figures of the run.
func (r *Iperf3Result) Figures() []bench.Figure {
	figures := []bench.Figure{newFigure(bench.MetricThroughput, 0, 0, r.Throughput)}
	if r.Retransmits != nil {
		figures = append(figures, newFigure(bench.MetricRetransmits, 0, 0, float64(*r.Retransmits)))
	}
	return figures
}

type iperf3Output struct {
	Start struct {
		Version   string `json:"version"`
		Timestamp struct {
			Seconds int64 `json:"timesecs"`
		} `json:"timestamp"`
		TestStart *struct {
			Protocol   string `json:"protocol"`
			NumStreams int    `json:"num_streams"`
			Reverse    int    `json:"reverse"`
			Both       int    `json:"bidir"`
		} `json:"test_start"`
		// AcceptedConnection is only in a server's output.
		AcceptedConnection *struct{} `json:"accepted_connection"`
	} `json:"start"`
	End struct {
		Sum         *iperf3Sum `json:"sum"` // UDP: the sender's total, with losses
		SumSent     *iperf3Sum `json:"sum_sent"`
		SumReceived *iperf3Sum `json:"sum_received"` // TCP; UDP from about 3.9 on
	} `json:"end"`
	Error string `json:"error"`
}

type iperf3Sum struct {
	BitsPerSecond float64 `json:"bits_per_second"`
	Retransmits   *int64  `json:"retransmits"`
	Packets       int64   `json:"packets"`
	LostPackets   int64   `json:"lost_packets"`
}

// yearTenThousand is the first second that neither JSON nor the file of studies can hold.
const yearTenThousand = 253402300800

// ParseIperf3 reads `iperf3 --json`. It takes the receiver's throughput, because the sender's says little on UDP; a
// *BadResultError has iperf3's own message if there is one.
func ParseIperf3(output []byte) (*Iperf3Result, error) {
	var out iperf3Output
	dec := json.NewDecoder(bytes.NewReader(output))
	if err := dec.Decode(&out); err != nil {
		return nil, badJSON(output, dec.InputOffset(), err)
	}
	// The figures of a second run would be lost silently.
	if _, err := dec.Token(); err != io.EOF {
		return nil, badJSON(output, dec.InputOffset(), errors.New("more follows the JSON object"))
	}
	bad := func(reason string) error { return &bench.BadResultError{Tool: toolIperf3, Reason: reason} }
	if out.Error != "" {
		return nil, bad(bench.Shorten(out.Error))
	}
	if out.Start.TestStart == nil {
		return nil, bad("start.test_start is missing: the test did not begin")
	}
	res := &Iperf3Result{
		Version:  strings.TrimPrefix(out.Start.Version, "iperf "),
		Protocol: out.Start.TestStart.Protocol,
		Streams:  out.Start.TestStart.NumStreams,
		Reverse:  out.Start.TestStart.Reverse != 0,
		Both:     out.Start.TestStart.Both != 0,
	}
	// A clock that was never set says 0.
	if at := out.Start.Timestamp.Seconds; at > 0 && at < yearTenThousand {
		res.Started = time.Unix(at, 0).UTC()
	}
	if out.Start.AcceptedConnection != nil {
		// A server does not learn how much the client received.
		return nil, bad("this is a server's output; give the client's")
	}
	bits := 0.0
	switch {
	case res.Protocol != "TCP" && res.Protocol != "UDP":
		return nil, bad(fmt.Sprintf("unknown protocol %q", bench.Shorten(res.Protocol)))
	// The sender counts data accepted by its kernel, which on UDP may never leave the host.
	case out.End.SumReceived != nil:
		bits = out.End.SumReceived.BitsPerSecond
	case res.Protocol == "UDP" && out.End.Sum != nil:
		// For UDP, early releases print only the sent amount and the share that was lost.
		s := out.End.Sum
		if s.Packets <= 0 || s.LostPackets < 0 || s.LostPackets > s.Packets {
			return nil, bad(fmt.Sprintf("%d packets lost of %d is impossible", s.LostPackets, s.Packets))
		}
		bits = s.BitsPerSecond * (1 - float64(s.LostPackets)/float64(s.Packets))
	default:
		return nil, bad("the receiver's sum is missing: the test did not end")
	}
	res.Throughput = bits / 1e9
	if err := bench.CheckValue(bench.MetricThroughput, res.Throughput); err != nil {
		return nil, bad("throughput at the receiver: " + err.Error())
	}
	if s := out.End.SumSent; s != nil && res.Protocol == "TCP" {
		if s.Retransmits != nil && *s.Retransmits < 0 {
			return nil, bad(fmt.Sprintf("%d retransmits is impossible", *s.Retransmits))
		}
		res.Retransmits = s.Retransmits
	}
	return res, nil
}

func badJSON(output []byte, offset int64, err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &typ):
		offset = typ.Offset
	}
	reason := "not the JSON of iperf3: " + err.Error()
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		reason, offset = "the JSON is cut off", int64(len(output))
	}
	offset = max(0, min(offset, int64(len(output))))
	text, _ := bench.LastLine(output[:offset])
	return &bench.BadResultError{Tool: toolIperf3, Line: 1 + bytes.Count(output[:offset], []byte("\n")), Text: text,
		Reason: reason}
}

var (
	iperf3TextVersion = lazyregexp.New(`(?m)^iperf (3\.[0-9][0-9A-Za-z.+-]*)`)
	iperf3TextSent    = lazyregexp.New(`(?m)^\[ *(?:\d+|SUM)\] Sent \d+ datagrams`)
	iperf3TextHead    = lazyregexp.New(`^\[ ID\]\s+Interval\s+Transfer\s+(?:Bandwidth|Bitrate)(?:\s|$)`)
	// "[  5]   0.00-10.00  sec  1.10 GBytes   943 Mbits/sec    0             sender": TCP of a Linux client.
	iperf3TextRow = lazyregexp.New(`^\[ *(\d+|SUM)\] +(\d+\.\d+) *- *(\d+\.\d+) +sec +(.*)$`)
)

// Rates in bits use powers of 10^3, amounts in bytes powers of 2^10 (units.c).
var (
	iperf3Rates = map[string]float64{"bits/sec": 1, "Kbits/sec": 1e3, "Mbits/sec": 1e6, "Gbits/sec": 1e9,
		"Tbits/sec": 1e12}
	iperf3Amounts = map[string]float64{"Bytes": 1, "KBytes": 1 << 10, "MBytes": 1 << 20, "GBytes": 1 << 30,
		"TBytes": 1 << 40}
)

// ParseIperf3Text reads iperf3 without --json, one way. Rates have three digits there.
func ParseIperf3Text(output []byte) (*Iperf3Result, error) {
	res := &Iperf3Result{Protocol: "TCP", Reverse: bytes.Contains(output, []byte("\nReverse mode, "))}
	if m := iperf3TextVersion().FindSubmatch(output); m != nil {
		res.Version = string(m[1])
	}
	streams, sum := map[string]bool{}, false
	// For UDP, early releases print one row, and this line below.
	sent := iperf3TextSent().Match(output)
	var titles []string
	headers := 0
	err := bench.EachLine(toolIperf3, output, func(line string) error {
		line = strings.TrimSpace(line)
		m := iperf3TextRow().FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "iperf3: "):
			return errors.New("iperf3 gave up")
		case strings.HasPrefix(line, "Accepted connection from"):
			return errors.New("this is a server's output; give the client's")
		case strings.HasPrefix(line, "Connecting to host ") && headers > 0:
			return errors.New("another run begins")
		case strings.HasPrefix(line, "[ ID]"):
			headers++
			titles = strings.Fields(strings.TrimPrefix(line, "[ ID]"))
			if !iperf3TextHead().MatchString(line) {
				return errors.New("unknown layout: the columns are not those of a test one way")
			}
		// Rows of an end belong to the summary, even if the intervals above are cut off.
		case m != nil && (headers == 2 || strings.HasSuffix(line, "sender") || strings.HasSuffix(line, "receiver")):
			end, err := res.addTextRow(titles, m, sent)
			if err != nil {
				return err
			}
			if m[1] != "SUM" {
				streams[m[1]] = true
			} else if end != "sender" {
				sum = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Without the sum's row the throughput would be that of the last stream alone.
	res.Streams = len(streams)
	err = bench.CheckValue(bench.MetricThroughput, res.Throughput)
	if res.Throughput == 0 || len(streams) > 1 && !sum {
		err = errors.New("the receiver's row is missing, or has nothing in it: the test did not end")
	}
	if err != nil {
		return nil, bench.BadOutput(toolIperf3, output, err.Error())
	}
	return res, nil
}

// addTextRow returns the row's end. Rows of a sum come last, and replace those of streams.
func (r *Iperf3Result) addTextRow(titles, m []string, sent bool) (end string, err error) {
	// Amount, unit, rate, unit; then Retr, or jitter, "ms" and Lost/Total with its share; last, the end.
	fields := strings.Fields(m[4])
	if len(fields) < 4 {
		return "", errors.New("want an amount and a rate")
	}
	rate, err := iperf3Quantity(fields[2], fields[3], iperf3Rates)
	if err != nil {
		return "", err
	}
	amount, err := iperf3Quantity(fields[0], fields[1], iperf3Amounts)
	if err != nil {
		return "", err
	}
	from, err1 := strconv.ParseFloat(m[2], 64)
	to, err2 := strconv.ParseFloat(m[3], 64)
	// Amount and rate have three digits, times two decimals.
	if computed := amount * 8 / (to - from); err1 != nil || err2 != nil || rate > 0 &&
		!(computed > 0.97*rate && computed < 1.03*rate) {
		return "", fmt.Errorf("%s %s in %s to %s s are not %s %s", fields[0], fields[1], m[2], m[3], fields[2],
			fields[3])
	}
	lost := 0.0
	if slices.Contains(titles, "Lost/Total") {
		r.Protocol = "UDP"
		if lost, err = iperf3Lost(fields[4:]); err != nil {
			return "", err
		}
	}
	switch end = fields[len(fields)-1]; {
	case end == "sender" && slices.Contains(titles, "Retr"):
		n, err := strconv.ParseInt(fields[4], 10, 64)
		if err != nil || n < 0 || len(fields) != 6 {
			return "", fmt.Errorf("column Retr: value %q is no number of segments", bench.Shorten(fields[4]))
		}
		r.Retransmits = &n
	case end == "sender":
	case end == "receiver":
		r.Throughput = rate / 1e9
	case r.Protocol == "UDP" && sent:
		r.Throughput = rate * (1 - lost) / 1e9
	default:
		return "", errors.New("neither the sender's row nor the receiver's")
	}
	return end, nil
}

// iperf3Lost reads "0.604 ms 1/382 (0.26%)".
func iperf3Lost(fields []string) (float64, error) {
	if len(fields) < 3 {
		return 0, errors.New("column Lost/Total is missing")
	}
	lost, total, ok := strings.Cut(fields[2], "/")
	a, err1 := strconv.ParseInt(lost, 10, 64)
	b, err2 := strconv.ParseInt(total, 10, 64)
	if !ok || err1 != nil || err2 != nil || a < 0 || b <= 0 || a > b {
		return 0, fmt.Errorf("column Lost/Total: %q is impossible", bench.Shorten(fields[2]))
	}
	return float64(a) / float64(b), nil
}

// iperf3Quantity refuses an unknown unit: a guessed prefix would be wrong by a factor of a thousand.
func iperf3Quantity(value, unit string, units map[string]float64) (float64, error) {
	v, _, err := parseNumber(value)
	if err != nil {
		return 0, fmt.Errorf("value %q: %w", bench.Shorten(value), err)
	}
	scale, ok := units[unit]
	if !ok || v < 0 {
		return 0, fmt.Errorf("%q %q is no quantity of this column", bench.Shorten(value), bench.Shorten(unit))
	}
	return v * scale, nil
}
