package bench

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	iperf3TextVersion = regexp.MustCompile(`(?m)^iperf (3\.[0-9][0-9A-Za-z.+-]*)`)
	iperf3TextSent    = regexp.MustCompile(`(?m)^\[ *(?:\d+|SUM)\] Sent \d+ datagrams`)
	iperf3TextHead    = regexp.MustCompile(`^\[ ID\]\s+Interval\s+Transfer\s+(?:Bandwidth|Bitrate)(?:\s|$)`)
	// "[  5]   0.00-10.00  sec  1.10 GBytes   943 Mbits/sec    0             sender": TCP of a Linux client.
	iperf3TextRow = regexp.MustCompile(`^\[ *(\d+|SUM)\] +(\d+\.\d+) *- *(\d+\.\d+) +sec +(.*)$`)
)

// Rates in bits are of 10^3, amounts of bytes of 2^10 (units.c).
var (
	iperf3Rates = map[string]float64{"bits/sec": 1, "Kbits/sec": 1e3, "Mbits/sec": 1e6, "Gbits/sec": 1e9,
		"Tbits/sec": 1e12}
	iperf3Amounts = map[string]float64{"Bytes": 1, "KBytes": 1 << 10, "MBytes": 1 << 20, "GBytes": 1 << 30,
		"TBytes": 1 << 40}
)

// ParseIperf3Text reads what iperf3 prints on the client without --json, TCP or UDP, one way: the
// rows of the receiver and the sender below the intervals, by their header row. Rates have three
// digits there.
func ParseIperf3Text(output []byte) (*Iperf3Result, error) {
	res := &Iperf3Result{Protocol: "TCP", Reverse: bytes.Contains(output, []byte("\nReverse mode, "))}
	if m := iperf3TextVersion.FindSubmatch(output); m != nil {
		res.Version = string(m[1])
	}
	streams, sum := map[string]bool{}, false
	// Early releases print for UDP one row, of what was sent and how much of it was lost, with this
	// line below. Later ones print a row of either end.
	sent := iperf3TextSent.Match(output)
	var titles []string // the second header row is that of the summary
	headers := 0
	err := EachLine(toolIperf3, output, func(line string) error {
		line = strings.TrimSpace(line)
		m := iperf3TextRow.FindStringSubmatch(line)
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
			if !iperf3TextHead.MatchString(line) {
				return errors.New("unknown layout: the columns are not those of a test one way")
			}
		case headers == 2 && m != nil:
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
	// Without the row of the sum the throughput would be that of the last stream alone.
	res.Streams = len(streams)
	err = CheckValue(MetricThroughput, res.Throughput)
	if res.Throughput == 0 || len(streams) > 1 && !sum {
		err = errors.New("the receiver's row is missing, or has nothing in it: the test did not end")
	}
	if err != nil {
		return nil, BadOutput(toolIperf3, output, err.Error())
	}
	return res, nil
}

// addTextRow takes a row of the summary in, and returns whose it is. Of several streams the rows of
// the sum come last, and take the place of theirs.
func (r *Iperf3Result) addTextRow(titles, m []string, sent bool) (end string, err error) {
	// Amount, unit, rate, unit; then Retr, or jitter, "ms" and Lost/Total with its share; last, whose row it is.
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
	// Each has three digits, the time two behind the point.
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
			return "", fmt.Errorf("column Retr: value %q is no number of segments", Shorten(fields[4]))
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

// iperf3Lost reads the share of datagrams that were lost: "0.604 ms 1/382 (0.26%)".
func iperf3Lost(fields []string) (float64, error) {
	if len(fields) < 3 {
		return 0, errors.New("column Lost/Total is missing")
	}
	lost, total, ok := strings.Cut(fields[2], "/")
	a, err1 := strconv.ParseInt(lost, 10, 64)
	b, err2 := strconv.ParseInt(total, 10, 64)
	if !ok || err1 != nil || err2 != nil || a < 0 || b <= 0 || a > b {
		return 0, fmt.Errorf("column Lost/Total: %q is impossible", Shorten(fields[2]))
	}
	return float64(a) / float64(b), nil
}

// iperf3Quantity reads an amount or a rate with its unit. A unit that is not in the table is an error: guessed
// prefixes would be wrong by a factor of a thousand.
func iperf3Quantity(value, unit string, units map[string]float64) (float64, error) {
	v, _, err := parseNumber(value)
	if err != nil {
		return 0, fmt.Errorf("value %q: %w", Shorten(value), err)
	}
	scale, ok := units[unit]
	if !ok || v < 0 {
		return 0, fmt.Errorf("%q %q is no quantity of this column", Shorten(value), Shorten(unit))
	}
	return v * scale, nil
}
