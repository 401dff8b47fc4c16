// Package bench runs measuring tools between the nodes of a lab and turns their output into samples. An engine is a
// tool with its arguments, a plugin in package bench/tool.
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

// A Sample is one figure with all facts needed to judge and to repeat it: one line of samples.jsonl. A failed
// measurement has Error set, Metric empty and Value meaningless.
type Sample struct {
	// Run groups the samples of one invocation, unique in a result file.
	Run    string `json:"run"`
	Test   string `json:"test"`   // the engine's name, e.g. "ib_write_bw"
	Client string `json:"client"` // node that ran Command
	// Server ran ServerCommand, or answered; empty if one node was measured.
	Server     string `json:"server"`
	Metric     string `json:"metric,omitempty"`     // one of the Metric constants
	Bytes      int64  `json:"bytes,omitempty"`      // 0 if the tool has no sizes (iperf3)
	Iterations int64  `json:"iterations,omitempty"` // 0 if the tool prints no number

	Value float64 `json:"value"` // in Unit; finite and above zero, except for counts such as retransmits
	Unit  string  `json:"unit,omitempty"`
	// Limit is the payload that the wire carries with this size, in Unit, or 0 if unknown. See Wire.
	Limit float64 `json:"limit,omitempty"`

	// Derived is set if the tool printed 0, and Value was computed from another column of the row (message rate and
	// size, or bandwidth and size).
	Derived bool `json:"derived,omitempty"`

	// Latencies are in time order, in us, on the sample of the median if Options.Raw is set. They are not stored.
	Latencies []float64 `json:"-"`

	// Printed is the output of the successful attempt if Runner.KeepPrinted is set, on the first sample. It is not
	// stored.
	Printed []Stream `json:"-"`

	Tool    string `json:"tool"`
	Version string `json:"version,omitempty"`
	// Command is quoted for a shell; empty if the client was not started.
	Command       string `json:"command"`
	ServerCommand string `json:"server_command,omitempty"`
	// Placement of client and server: "not pinned", or CPUs and NUMA nodes.
	Placement string `json:"placement,omitempty"`
	// RDMAPackets by all nodes prove that a program did not fall back to TCP.
	RDMAPackets uint64 `json:"rdma_packets,omitempty"`
	// VRAM is the proof that a test of suite gpudirect used the memory of GPUs, or nil.
	VRAM        *VRAM  `json:"vram,omitempty"`
	WarmUps     int    `json:"warm_ups,omitempty"` // just before; their figures were dropped
	Accelerator string `json:"accelerator"`        // "kvm" or "tcg"
	// Emulated is set if the RDMA device or the CPU was emulated.
	Emulated bool `json:"emulated"`
	// Disturbed begins with "disturbed" if other programs kept the machine busy.
	Disturbed string    `json:"disturbed,omitempty"`
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"` // wall time of the invocation
	Attempt   int       `json:"attempt"` // 1 for the first try
	Error     string    `json:"error,omitempty"`
	// Output of each attempt, if the measurement failed. Of more than 16 KiB it holds the beginning and the end.
	Output string `json:"output,omitempty"`
}

// VRAM tells which bytes the NICs of a test moved, over all its attempts.
type VRAM struct {
	Client Moved `json:"client"`
	Server Moved `json:"server"`
}

// Moved is the traffic of a node's NIC during a test.
type Moved struct {
	// Written and read by the emulated NIC: memory of the test's GPU, or of all GPUs if the test uses main memory. The
	// emulation counts them.
	Written uint64 `json:"written"`
	Read    uint64 `json:"read"`
	// Received and sent by the driver's counters (port_rcv_data, port_xmit_data), headers included.
	Received uint64 `json:"received"`
	Sent     uint64 `json:"sent"`
}

// A Stream is the output of one program of an invocation on one stream, byte by byte.
type Stream struct {
	Name string // "client stdout", "client stderr", "server stdout" or "server stderr"
	Text []byte
}

// Metrics, with their units.
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
	MetricTPSPeak        = "tps_peak"        // Mtps; perftest prints only the average so far
	MetricTPSAverage     = "tps_average"     // Mtps: million transactions a second
	MetricThroughput     = "throughput"      // Gb/s, iperf3, at the receiver
	MetricRetransmits    = "retransmits"     // segments, iperf3 TCP

	MetricLoss            = "loss"              // %, of the echoes of ping
	MetricEventRate       = "events_per_second" // events/s, sysbench
	MetricMemoryBandwidth = "memory_bandwidth"  // GB/s read and written, all CPUs together
	MetricLoadLatency     = "load_latency"      // ns, of a load that depends on the one before
	MetricCopyBandwidth   = "copy_bandwidth"    // GB/s, of the slowest GPU
	MetricBusBandwidth    = "bus_bandwidth"     // GB/s, as nccl-tests defines it
	MetricCollectiveTime  = "collective_time"   // us, of one collective operation
	MetricStepRate        = "step_rate"         // steps/s, of a simulation
	MetricSimulated       = "simulated"         // ns/day, of molecules
	MetricFlopRate        = "flop_rate"         // Gflop/s, of Linpack

	// MetricGoodput is of an incast in a study, see docs/study.md.
	MetricGoodput    = "goodput"     // Gb/s, of all flows together
	MetricGoodputMin = "goodput_min" // Gb/s, of the slowest flow
	MetricFairness   = "fairness"    // %: Jain's index of the flows' goodputs
	MetricDrops      = "drops"       // frames that the switch dropped
	MetricMarks      = "ecn_marks"   // packets that the switch marked
	MetricPauses     = "pauses"      // of senders
	MetricPausedTime = "paused"      // %, of the senders' time
	MetricCNPs       = "cnps"        // packets handled by senders
	MetricGoBacks    = "go_backs"    // of senders after a loss
	// MetricSlowdown and the next three are of a simulation in a study.
	MetricSlowdown         = "slowdown"          // times: completion by that on an empty network, median of flows
	MetricSlowdownP99      = "slowdown_p99"      // times
	MetricCompletion       = "completion"        // us, until the last flow ended
	MetricQueueP99         = "queue_p99"         // KiB, of the longest queue while it is not empty
	MetricRating           = "rating"            // MIPS: the average of the two below
	MetricRatingCompress   = "rating_compress"   // MIPS, 7-Zip's rating of compressing
	MetricRatingDecompress = "rating_decompress" // MIPS, 7-Zip's rating of decompressing
)

// WriteSamples checks all samples first, so that a bad one does not leave half a file.
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

// ReadSamples skips members of later versions. On error it returns no samples, and names the line.
func ReadSamples(r io.Reader) ([]Sample, error) {
	var samples []Sample
	// A bufio.Scanner refuses lines over 64 KiB.
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

// check refuses a sample that would be published as a figure although it is not one.
func (s *Sample) check() error {
	if s.Test == "" {
		return errors.New("test is empty")
	}
	if err := CheckNumber(s.Seconds); err != nil {
		return fmt.Errorf("seconds %v: %w", s.Seconds, err)
	}
	if s.Error != "" {
		// Readers that average all values must not meet a figure of a failed run.
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
