package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// An Iperf3Result is what `iperf3 --json` printed on the client.
type Iperf3Result struct {
	Version  string // e.g. "3.12"
	Protocol string // "TCP" or "UDP"
	Streams  int
	Reverse  bool      // the server sent
	Both     bool      // both sent (--bidir); the figures are those of what the client sent
	Started  time.Time // zero where the output does not say

	Throughput  float64 // Gb/s that reached the receiver
	Retransmits *int64  // segments the sender sent again; nil for UDP and where the system does not count them
}

// Figures returns the figures of the run.
func (r *Iperf3Result) Figures() []Figure {
	figures := []Figure{newFigure(MetricThroughput, 0, 0, r.Throughput)}
	if r.Retransmits != nil {
		figures = append(figures, newFigure(MetricRetransmits, 0, 0, float64(*r.Retransmits)))
	}
	return figures
}

// iperf3Output is the part of iperf3's JSON that is used, from 3.0 on.
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
		// AcceptedConnection is there in a server's output only.
		AcceptedConnection *struct{} `json:"accepted_connection"`
	} `json:"start"`
	End struct {
		Sum         *iperf3Sum `json:"sum"` // UDP only: what was sent, with what was lost of it
		SumSent     *iperf3Sum `json:"sum_sent"`
		SumReceived *iperf3Sum `json:"sum_received"` // TCP; UDP from about 3.9 on
	} `json:"end"`
	Error string `json:"error"`
}

// An iperf3Sum is one end's total over all streams.
type iperf3Sum struct {
	BitsPerSecond float64 `json:"bits_per_second"`
	Retransmits   *int64  `json:"retransmits"`
	Packets       int64   `json:"packets"`
	LostPackets   int64   `json:"lost_packets"`
}

// yearTenThousand is the first second that can be written neither as JSON nor into the file of studies.
const yearTenThousand = 253402300800

// ParseIperf3 reads the output of `iperf3 --json` on the client, TCP or UDP. The throughput is what the
// receiver counted: what the sender handed to its kernel says little on UDP. Anything that is not a good
// result is a *BadResultError; iperf3's own message is its reason where there is one.
func ParseIperf3(output []byte) (*Iperf3Result, error) {
	var out iperf3Output
	dec := json.NewDecoder(bytes.NewReader(output))
	if err := dec.Decode(&out); err != nil {
		return nil, badJSON(output, dec.InputOffset(), err)
	}
	// A file with two runs would pass for one: the figures of the second would be lost without a word.
	if _, err := dec.Token(); err != io.EOF {
		return nil, badJSON(output, dec.InputOffset(), errors.New("more follows the JSON object"))
	}
	bad := func(reason string) error { return &BadResultError{Tool: toolIperf3, Reason: reason} }
	if out.Error != "" {
		return nil, bad(Shorten(out.Error))
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
	// A clock that was never set says 0, and what is beyond the year 9999 cannot be stored.
	if at := out.Start.Timestamp.Seconds; at > 0 && at < yearTenThousand {
		res.Started = time.Unix(at, 0).UTC()
	}
	if out.Start.AcceptedConnection != nil {
		// A server does not learn what the client received.
		return nil, bad("this is a server's output; give the client's")
	}
	bits := 0.0
	switch {
	case res.Protocol != "TCP" && res.Protocol != "UDP":
		return nil, bad(fmt.Sprintf("unknown protocol %q", Shorten(res.Protocol)))
	// The receiver counts what arrived. The sender counts what its kernel took, which on UDP may never leave the host.
	case out.End.SumReceived != nil:
		bits = out.End.SumReceived.BitsPerSecond
	case res.Protocol == "UDP" && out.End.Sum != nil:
		// Early releases print for UDP only what was sent and how much of it was lost.
		s := out.End.Sum
		if s.Packets <= 0 || s.LostPackets < 0 || s.LostPackets > s.Packets {
			return nil, bad(fmt.Sprintf("%d packets lost of %d is impossible", s.LostPackets, s.Packets))
		}
		bits = s.BitsPerSecond * (1 - float64(s.LostPackets)/float64(s.Packets))
	default:
		return nil, bad("the receiver's sum is missing: the test did not end")
	}
	res.Throughput = bits / 1e9
	if err := CheckValue(MetricThroughput, res.Throughput); err != nil {
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

// badJSON makes the error for output that is not one JSON object, with the line where it stops being one.
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
	text, _ := lastLine(output[:offset])
	return &BadResultError{Tool: toolIperf3, Line: 1 + bytes.Count(output[:offset], []byte("\n")), Text: text,
		Reason: reason}
}
