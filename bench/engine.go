package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Names of the tools, as in Sample.Tool.
const (
	toolPerftest = "perftest"
	toolIperf3   = "iperf3"
)

// An Endpoint is one side of a measurement.
type Endpoint struct {
	Node     string     // name of the node, as the Executor knows it
	Addr     netip.Addr // address the server is reached at
	Device   string     // RDMA device, e.g. "rxe0"; iperf3 does not use it
	Wire     Wire       // what the port says of its link
	GIDIndex int        // index of the device's GID for Addr: the RoCE v2 one, e.g. 1 on rxe, 3 on mlx5
}

// Options change how an engine runs. The zero value asks for the engine's own choices.
type Options struct {
	Quick bool // about one second and one size instead of about five to fifteen seconds and all sizes
	// Bytes is the one message size to measure. 0: bandwidth engines take all of 2^1 to 2^23 bytes (64 KiB with
	// Quick), latency engines 2 bytes. ib_atomic_lat works on 8 bytes in any case, and iperf3 has no size.
	Bytes int64
	// Iterations for each size, at least 5. 0 chooses as many as fit in a few seconds on nodes of the kind that
	// Accelerator names. The p99.9 of n iterations rests on its n/1000 slowest samples.
	Iterations int
	Seconds    int // how long iperf3 sends; 0 means 5, or 2 with Quick

	// Accelerator is "tcg" or "kvm", as in Sample.Accelerator; "" stands for the Runner's. It decides how many iterations are chosen, and how long a queue
	// pair waits for an answer. Nested is for nodes in an emulated host, whatever executes them there.
	Accelerator string
	Port        int // TCP port of this run, on the server. The Runner sets it.
}

// Nested stands for an accelerator in Options: the host of the nodes is emulated itself.
const Nested = "nested"

// What an iteration costs on emulated nodes, to choose how many to make: the time of a message of 2 bytes to
// the other side and back, and the bandwidth. Measured on two TCG nodes with rdma_rxe: 2 x 385 us and
// 0.23 Gb/s; and on two nodes under the KVM of the emulated host of examples/epyc-lab.yaml: 2 x 7.5 ms and 0.035 Gb/s. The figures for KVM are guesses until a machine with KVM has been measured: they only choose counts.
var costs = map[string]struct {
	perMessage    time.Duration
	bitsPerSecond float64
}{
	"tcg":  {time.Millisecond, 0.2e9},
	"kvm":  {100 * time.Microsecond, 5e9},
	Nested: {15 * time.Millisecond, 0.03e9},
}

// Limits of perftest itself, and of this package's choices.
const (
	minIterations   = 5         // "Iteration num should be between 5 and 100000000"
	maxIterations   = 100000000 // ditto
	maxBytes        = 1 << 23   // the largest size of -a, and of the buffers an emulated node has memory for
	allSizesBytes   = 1<<24 - 2 // what one iteration of -a moves: 2 + 4 + ... + 2^23
	quickBytes      = 64 << 10
	leastIterations = 20    // fewer say nothing about a bandwidth
	mostIterations  = 10000 // more do not make a figure of an emulated NIC better
)

type engineKind int

const (
	kindBandwidth engineKind = iota
	kindLatency
	kindAtomicLatency
	kindIperf3
)

// An Engine is a measuring tool with the arguments to run it and the parser of what it prints.
type Engine struct {
	Name  string // also the name of the program
	Tool  string // "perftest" or "iperf3"
	About string // what it measures, in one line
	kind  engineKind
}

var engines = []Engine{
	{"ib_write_bw", toolPerftest, "bandwidth of RDMA writes from client to server, by message size", kindBandwidth},
	{"ib_read_bw", toolPerftest, "bandwidth of RDMA reads by the client out of the server's memory, by message size", kindBandwidth},
	{"ib_send_bw", toolPerftest, "bandwidth of sends from client to server, by message size", kindBandwidth},
	{"ib_write_lat", toolPerftest, "one-way latency of RDMA writes: half of the way there and back", kindLatency},
	{"ib_send_lat", toolPerftest, "one-way latency of sends: half of the way there and back", kindLatency},
	{"ib_read_lat", toolPerftest, "latency of an RDMA read, from its post to its completion", kindLatency},
	{"ib_atomic_lat", toolPerftest, "latency of an 8-byte RDMA atomic, from its post to its completion", kindAtomicLatency},
	{"iperf3", toolIperf3, "TCP throughput from client to server, without RDMA", kindIperf3},
}

// Engines returns all engines, in the order to run them in.
func Engines() []Engine { return append([]Engine(nil), engines...) }

// EngineByName returns the engine with this name.
func EngineByName(name string) (Engine, error) {
	var names []string
	for _, e := range engines {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return Engine{}, fmt.Errorf("find engine %q: unknown; use one of %s", name, strings.Join(names, ", "))
}

// Server returns the command that the server's node runs. It ends by itself after one measurement.
func (e Engine) Server(ep Endpoint, o Options) []string {
	if e.kind == kindIperf3 {
		return []string{e.Name, "-s", "-1", "-p", strconv.Itoa(o.Port)}
	}
	return e.perftestArgs(ep, o)
}

// Client returns the command that the client's node runs.
func (e Engine) Client(client, server Endpoint, o Options) []string {
	if e.kind == kindIperf3 {
		return []string{e.Name, "-c", server.Addr.String(), "-p", strconv.Itoa(o.Port), "-t", strconv.Itoa(o.seconds()), "--json"}
	}
	return append(e.perftestArgs(client, o), server.Addr.String())
}

// slowTimeout is the time that a queue pair on a slow node waits for an acknowledgement before it sends again, as perftest's -u takes it: 4.096 us * 2^18, about 1 s.
// perftest's own 14 stands for 67 ms, and after eight of them a queue pair gives up ("Completion with error"). On nodes in an emulated host, where a ping takes 6 to
// 60 ms, acknowledgements that were not lost came later than that.
const slowTimeout = 18

// perftestArgs are the arguments both sides of a perftest run need; perftest wants them equal. -F keeps it
// from giving up over the CPU frequencies, which mean nothing on an emulated CPU.
func (e Engine) perftestArgs(ep Endpoint, o Options) []string {
	args := []string{
		e.Name, "-d", ep.Device, "-x", strconv.Itoa(ep.GIDIndex),
		"--report_gbits", "-F", "-p", strconv.Itoa(o.Port), "-n", strconv.Itoa(e.iterations(o)),
	}
	if o.Accelerator != "kvm" {
		args = append(args, "-u", strconv.Itoa(slowTimeout))
	}
	switch size := e.size(o); {
	case e.kind == kindAtomicLatency: // perftest refuses a size
	case size == 0:
		args = append(args, "-a")
	default:
		args = append(args, "-s", strconv.FormatInt(size, 10))
	}
	return args
}

// size returns the message size to measure, 0 for all sizes.
func (e Engine) size(o Options) int64 {
	switch {
	case e.kind == kindAtomicLatency:
		return 8
	case o.Bytes != 0:
		return o.Bytes
	case e.kind == kindLatency:
		return 2
	case o.Quick:
		return quickBytes
	}
	return 0
}

// iterations returns how many messages of each size to exchange.
func (e Engine) iterations(o Options) int {
	if o.Iterations != 0 {
		return o.Iterations
	}
	cost, ok := costs[o.Accelerator]
	if !ok {
		cost = costs["tcg"]
	}
	budget := 5 * time.Second
	if o.Quick {
		budget = time.Second
	}
	size := e.size(o)
	var messages, moved float64 = 1, float64(size)
	if size == 0 {
		// The 23 sizes have to share the time; most of it goes to the largest ones.
		messages, moved, budget = 23, allSizesBytes, 3*budget
	}
	if e.kind != kindBandwidth {
		moved *= 2 // there and back
	} else {
		messages /= 5 // messages of a bandwidth test overlap
	}
	perIteration := messages*cost.perMessage.Seconds() + moved*8/cost.bitsPerSecond
	n := int(budget.Seconds()/perIteration+5) / 10 * 10 // a round number
	return max(leastIterations, min(n, mostIterations))
}

func (o Options) seconds() int {
	switch {
	case o.Seconds != 0:
		return o.Seconds
	case o.Quick:
		return 2
	}
	return 5
}

// check refuses what the tools would refuse, before a server is started for nothing.
func (e Engine) check(client, server Endpoint, o Options) error {
	switch {
	case e.Name == "":
		return errors.New("no engine is given; take one of Engines")
	case client.Node == server.Node:
		return fmt.Errorf("client and server are both node %q", client.Node)
	case !server.Addr.IsValid():
		return fmt.Errorf("node %q has no address", server.Node)
	case o.Seconds < 0:
		return fmt.Errorf("duration of %d s is below zero", o.Seconds)
	}
	if e.Tool != toolPerftest {
		return nil
	}
	for _, ep := range []Endpoint{client, server} {
		if ep.Device == "" || ep.GIDIndex < 0 {
			return fmt.Errorf("node %q has no RDMA device (%q) or no GID index (%d)", ep.Node, ep.Device, ep.GIDIndex)
		}
	}
	if n := o.Iterations; n != 0 && (n < minIterations || n > maxIterations) {
		return fmt.Errorf("%d iterations; perftest takes %d to %d", n, minIterations, maxIterations)
	}
	if b := o.Bytes; b < 0 || b > maxBytes {
		return fmt.Errorf("message size %d; give 1 to %d bytes", b, maxBytes)
	}
	return nil
}

// Parse turns what the client printed into figures. It is stricter than ParsePerftest: the table must be
// complete and hold what the engine is run for, because its arguments are known.
func (e Engine) Parse(stdout []byte) ([]Figure, error) {
	if e.kind == kindIperf3 {
		res, err := ParseIperf3(bytes.NewReader(stdout))
		if err != nil {
			return nil, err
		}
		return res.Figures(), nil
	}
	res, err := ParsePerftest(bytes.NewReader(stdout))
	if err != nil {
		return nil, err
	}
	if !res.Complete {
		text, n := lastLine(stdout)
		return nil, &BadResultError{Tool: toolPerftest, Line: n, Text: text, Reason: "the table is cut off: the line that closes it is missing"}
	}
	want := []string{MetricBWAverage, MetricMessageRate}
	if e.kind != kindBandwidth {
		want = []string{MetricLatencyMin, MetricLatencyTypical, MetricLatencyAverage, MetricLatencyP99, MetricLatencyP999, MetricLatencyMax}
	}
	for _, row := range res.Rows {
		has := make(map[string]bool)
		for _, f := range row.Figures {
			has[f.Metric] = true
		}
		for _, m := range want {
			if !has[m] {
				return nil, &BadResultError{Tool: toolPerftest, Reason: fmt.Sprintf("%s printed no %s for %d bytes", e.Name, m, row.Bytes)}
			}
		}
	}
	return res.Figures(), nil
}

// versionArgs is the command that prints the tool's version.
func (e Engine) versionArgs() []string { return []string{e.Name, "--version"} }

// perftest prints "Version: 6.06" (and exits with status 1), iperf3 "iperf 3.12 (cJSON 1.7.15)".
var versionLine = regexp.MustCompile(`(?m)^\s*(?:Version:|iperf)\s+([0-9][0-9A-Za-z.+~-]*)`)

// parseVersion finds the version in what versionArgs printed, or returns "".
func parseVersion(output []byte) string {
	if m := versionLine.FindSubmatch(output); m != nil {
		return string(m[1])
	}
	return ""
}
