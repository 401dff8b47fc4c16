// Package bench runs measuring tools between the nodes of a lab and turns what they print into samples.
// It knows nothing of how the nodes came to be: it needs only something that executes a command on a node.
//
// An engine is a tool with its arguments, a plugin in package bench/tool. A Runner starts the server of an engine,
// waits until it listens, runs the client, and hands what that printed to the engine's parser. Whether a figure is
// what the path and the machine should give is judged by package bench/expect.
//
// What a metric is (its unit, its label, which direction is better, whether it can be zero) stands in that table
// alone.
package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Sample is one figure with everything needed to judge and to repeat it: one line of samples.jsonl.
// A failed measurement is a Sample too: Error is set, Metric is empty and Value means nothing.
type Sample struct {
	// groups the samples of one invocation of a tool, unique in a result file
	Run    string `json:"run"`
	Test   string `json:"test"`   // the engine's name, e.g. "ib_write_bw"
	Client string `json:"client"` // node that ran Command
	// node that ran ServerCommand, or that answered; empty where one node was measured
	Server     string `json:"server"`
	Metric     string `json:"metric,omitempty"`     // one of the Metric constants
	Bytes      int64  `json:"bytes,omitempty"`      // message size in bytes; 0 where the tool has none (iperf3)
	Iterations int64  `json:"iterations,omitempty"` // as the tool printed it; 0 where it prints none

	Value float64 `json:"value"` // in Unit; finite and, but for counts of events such as retransmits, above zero
	Unit  string  `json:"unit,omitempty"`
	// Limit is what the wire carries of payload with messages of this size, in Unit; 0 where that
	// is not known, as with soft RoCE. See Wire.
	Limit float64 `json:"limit,omitempty"`

	// Derived tells that the tool printed 0 because the figure is smaller than its last decimal, and that
	// Value was computed from another column of the same row (message rate and size, or bandwidth and size).
	Derived bool `json:"derived,omitempty"`

	// Latencies are all of them, in us and in the order of time: on the sample of the median, where
	// Options.Raw asked for them. They are not part of a line of samples.jsonl.
	Latencies []float64 `json:"-"`

	// Printed is all that the programs printed in the attempt that gave the figure, where
	// Runner.KeepPrinted asks for it: on the first sample of an invocation. It is no part of a line
	// either.
	Printed []Stream `json:"-"`

	Tool    string `json:"tool"`              // e.g. "perftest", "iperf3"
	Version string `json:"version,omitempty"` // the tool's version on the client
	// the client's command line, quoted for a shell; empty where it did not come to that
	Command       string `json:"command"`
	ServerCommand string `json:"server_command,omitempty"`
	// where client and server were held: "not pinned", or CPUs and NUMA nodes
	Placement string `json:"placement,omitempty"`
	// RDMAPackets is how many packets the RDMA devices of all nodes sent meanwhile: the proof of a program that could
	// fall back to TCP that it did not.
	RDMAPackets uint64 `json:"rdma_packets,omitempty"`
	WarmUps     int    `json:"warm_ups,omitempty"` // measurements made just before, whose figures were dropped
	Accelerator string `json:"accelerator"`        // "kvm" or "tcg": what executed the nodes' CPUs
	// true if the RDMA device or the CPU was emulated: not a figure of hardware
	Emulated bool      `json:"emulated"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"` // wall time of the invocation
	Attempt  int       `json:"attempt"` // 1 for the first try
	Error    string    `json:"error,omitempty"`
	// Output is what client and server had printed in each attempt, where the measurement failed;
	// of a stream with more than 16 KiB, its beginning and its end.
	Output string `json:"output,omitempty"`
}

// A Stream is what one program of an invocation printed to one of its streams, byte by byte.
type Stream struct {
	Name string // "client stdout", "client stderr", "server stdout" or "server stderr"
	Text []byte
}

// Metrics, with the unit each is reported in.
const (
	MetricBWPeak         = "bw_peak"         // Gb/s
	MetricBWAverage      = "bw_average"      // Gb/s
	MetricMessageRate    = "message_rate"    // Mpps: million messages a second
	MetricLatencyMin     = "latency_min"     // us
	MetricLatencyMax     = "latency_max"     // us
	MetricLatencyTypical = "latency_typical" // us: perftest's median
	MetricLatencyAverage = "latency_average" // us
	MetricLatencyStdev   = "latency_stdev"   // us
	MetricLatencyP99     = "latency_p99"     // us
	MetricLatencyP999    = "latency_p99.9"   // us
	MetricTPSPeak        = "tps_peak"        // Mtps; perftest to this day prints the average only
	MetricTPSAverage     = "tps_average"     // Mtps: million transactions a second, latency tests with a duration
	MetricThroughput     = "throughput"      // Gb/s, iperf3 as the receiver saw it
	MetricRetransmits    = "retransmits"     // segments, iperf3 TCP

	MetricLoss            = "loss"              // %, of the echoes of ping
	MetricEventRate       = "events_per_second" // events/s, sysbench
	MetricMemoryBandwidth = "memory_bandwidth"  // GB/s read and written, all CPUs together
	MetricLoadLatency     = "load_latency"      // ns, of a load that waits for the one before it
	MetricCopyBandwidth   = "copy_bandwidth"    // GB/s, of the slowest GPU
	MetricBusBandwidth    = "bus_bandwidth"     // GB/s, as nccl-tests defines it
	MetricCollectiveTime  = "collective_time"   // us, of one collective operation
	MetricStepRate        = "step_rate"         // steps/s, of a simulation
	MetricSimulated       = "simulated"         // ns/day, of molecules
	MetricFlopRate        = "flop_rate"         // Gflop/s, of Linpack

	// of an incast in a study: many senders to one receiver, see docs/study.md
	MetricGoodput          = "goodput"           // Gb/s, of all flows together
	MetricGoodputMin       = "goodput_min"       // Gb/s, of the slowest flow
	MetricFairness         = "fairness"          // %: Jain's index of the flows' goodputs
	MetricDrops            = "drops"             // frames that the switch dropped
	MetricMarks            = "ecn_marks"         // packets that the switch marked
	MetricPauses           = "pauses"            // how often senders were held
	MetricPausedTime       = "paused"            // %, of the senders' time
	MetricCNPs             = "cnps"              // packets, that senders handled
	MetricGoBacks          = "go_backs"          // how often senders went back after a loss
	MetricRating           = "rating"            // MIPS: the average of the two below
	MetricRatingCompress   = "rating_compress"   // MIPS, 7-Zip's rating of compressing
	MetricRatingDecompress = "rating_decompress" // MIPS, 7-Zip's rating of decompressing
)

// WriteSamples writes one line of JSON a sample. All samples are checked before the first is written, so that
// a bad one does not leave half a file.
func WriteSamples(w io.Writer, samples []Sample) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // command lines stay readable
	for i := range samples {
		err := samples[i].check()
		if err == nil {
			err = enc.Encode(&samples[i])
		}
		if err != nil {
			return fmt.Errorf("write samples: sample %d: %w", i+1, err)
		}
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// ReadSamples reads what WriteSamples wrote. Blank lines are skipped; members of a later version are ignored.
// An error names the line, and no sample is returned with it: a result file is good or it is not.
func ReadSamples(r io.Reader) ([]Sample, error) {
	var samples []Sample
	// No bufio.Scanner, which refuses lines over 64 KiB: samples carry command lines and what a failed tool printed.
	in := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		last := err == io.EOF
		if last {
			err = nil
		}
		if err == nil && len(bytes.TrimSpace(line)) > 0 {
			var s Sample
			if err = json.Unmarshal(line, &s); err == nil {
				err = s.check()
			}
			samples = append(samples, s)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("read samples: line %d: %w", number, err)
		case last:
			return samples, nil
		}
	}
}

// check refuses a sample that says nothing, or that would be published as a figure and is none.
func (s *Sample) check() error {
	if s.Test == "" {
		return errors.New("test is empty")
	}
	if err := CheckNumber(s.Seconds); err != nil {
		return fmt.Errorf("seconds %v: %w", s.Seconds, err)
	}
	if s.Error != "" {
		// A reader that takes the mean of all values must not meet a figure of a run that failed.
		if s.Metric != "" || s.Value != 0 {
			return fmt.Errorf("a failed measurement has a metric %q and a value %v", s.Metric, s.Value)
		}
		return nil
	}
	if s.Metric == "" || s.Unit == "" {
		return errors.New("metric or unit is empty and there is no error")
	}
	if err := CheckValue(s.Metric, s.Value); err != nil {
		return fmt.Errorf("%s %v: %w", s.Metric, s.Value, err)
	}
	return nil
}
