package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

// costOf was measured on two TCG nodes with rdma_rxe: 2 x 385 us and 0.23 Gb/s; under the KVM of the emulated host of
// examples/epyc-lab.yaml: 2 x 7.5 ms and 0.035 Gb/s. The figures for KVM are guesses. Emulated adapters take 7 us to
// 0.5 ms for a message.
func costOf(o bench.Options) messageCost {
	return cmp.Or(map[string]messageCost{"kvm": {100 * time.Microsecond, 5e9}, bench.Nested: {15 * time.Millisecond,
		0.03e9}, bench.Adapter: {300 * time.Microsecond, 5e9}}[o.Accelerator], messageCost{time.Millisecond, 0.2e9})
}

type messageCost struct {
	perMessage    time.Duration
	bitsPerSecond float64
}

const (
	minIterations   = 5 // "Iteration num should be between 5 and 100000000"
	maxIterations   = 100000000
	maxBytes        = 1 << 23   // largest size of -a, and of the buffers that fit into an emulated node
	allSizesBytes   = 1<<24 - 2 // 2 + 4 + ... + 2^23
	leastIterations = 20        // over all queue pairs and both directions; fewer give no meaningful bandwidth
	mostIterations  = 10000     // more do not improve a figure of an emulated NIC
	maxPairs        = 16384     // perftest's limit
	maxDSCP         = 63
)

type perftest struct {
	program   string
	operation string // "write", "read", "send", "atomic"
	bandwidth bool   // latency otherwise

	transport string // "UC", "UD"; "" means RC
	pairs     int    // queue pairs; 0 means one
	both      bool
	timed     bool
	immediate bool   // which notifies the other CPU
	compare   bool   // instead of fetch and add
	events    bool   // instead of polling
	dscp      string // "" means 0
	gpu       string // that provides the memory; "" means main memory
	dmabuf    bool
	nic       string // on both sides; "" means the first
}

func perftestEngine(operation, figure, about string) bench.Engine {
	p := perftest{program: "ib_" + operation + "_" + figure, operation: operation, bandwidth: figure == "bw"}
	return bench.Engine{Name: p.program, Tool: Perftest, About: about, Suite: bench.SuiteRDMA, Program: p.program,
		Package: "perftest", Measures: p.metrics(), VersionCommand: []string{p.program, "--version"}, Plugin: p}
}

var perftestEngines = []bench.Engine{
	perftestEngine("write", "bw", "bandwidth of RDMA writes from client to server, by message size"),
	perftestEngine("read", "bw", "bandwidth of RDMA reads by the client out of the server's memory, by message size"),
	perftestEngine("send", "bw", "bandwidth of sends from client to server, by message size"),
	perftestEngine("atomic", "bw", "rate of 8-byte RDMA atomics by the client in the server's memory"),
	perftestEngine("write", "lat", "one-way latency of RDMA writes: half of the round trip"),
	perftestEngine("send", "lat", "one-way latency of sends: half of the round trip"),
	perftestEngine("read", "lat", "latency of an RDMA read, from its post to its completion"),
	perftestEngine("atomic", "lat", "latency of an 8-byte RDMA atomic, from its post to its completion"),
}

// perftestWords lists switches in the order of names and command lines.
var perftestWords = []struct {
	word    string
	of      func(p *perftest) *bool
	options []string
}{
	{"bidi", func(p *perftest) *bool { return &p.both }, []string{"-b"}},
	{"timed", func(p *perftest) *bool { return &p.timed }, nil},
	{"imm", func(p *perftest) *bool { return &p.immediate }, []string{"--write_with_imm"}},
	{"cas", func(p *perftest) *bool { return &p.compare }, []string{"-A", "CMP_AND_SWAP"}},
	{"events", func(p *perftest) *bool { return &p.events }, []string{"-e"}},
}

var numberWord = lazyregexp.New(`^(q|cuda|dscp|nic)([0-9]{1,5})$`)

func (p *perftest) apply(word string) error {
	for _, w := range perftestWords {
		if w.word == word {
			*w.of(p) = true
			return nil
		}
	}
	m := numberWord().FindStringSubmatch(word)
	switch {
	case word == "rc":
		p.transport = ""
	case word == "uc", word == "ud":
		p.transport = strings.ToUpper(word)
	case word == "dmabuf":
		p.dmabuf = true
	case m != nil && m[1] == "q":
		p.pairs, _ = strconv.Atoi(m[2])
		if p.pairs < 1 || p.pairs > maxPairs {
			return fmt.Errorf("%s queue pairs; give 1 to %d", m[2], maxPairs)
		}
	case m != nil && m[1] == "dscp":
		if n, _ := strconv.Atoi(m[2]); n > maxDSCP {
			return fmt.Errorf("DSCP %s; give 0 to %d", m[2], maxDSCP)
		}
		p.dscp = m[2]
	case m != nil && m[1] == "nic" && len(m[2]) < 3:
		p.nic = m[2]
	case m != nil && m[1] == "cuda" && len(m[2]) < 4:
		p.gpu = m[2]
	default:
		return fmt.Errorf("%q is unknown; after a slash come rc, uc or ud, qN, dscpN, bidi, timed, imm, cas, events, "+
			"cudaN, dmabuf, nicN", word)
	}
	return nil
}

// permitted refuses combinations that InfiniBand lacks (InfiniBand Architecture Specification, volume 1, table 38 in
// 9.3), or perftest.
func (p perftest) permitted() error {
	switch {
	case p.transport == "UC" && (p.operation == "read" || p.operation == "atomic"):
		return fmt.Errorf("UC has no %s: it takes send and write", p.operation)
	case p.transport == "UD" && p.operation != "send":
		return fmt.Errorf("UD has no %s: it takes send alone", p.operation)
	case p.immediate && p.operation != "write":
		return fmt.Errorf("imm is for write, not for %s", p.operation)
	case p.compare && p.operation != "atomic":
		return fmt.Errorf("cas is for atomic, not for %s", p.operation)
	case (p.both || p.pairs > 1) && !p.bandwidth:
		return errors.New("bidi and more queue pairs than one are for bandwidth")
	case p.dmabuf && p.gpu == "":
		return errors.New("dmabuf needs a GPU: add cuda0")
	case p.events && (p.timed || p.operation != "send"):
		return errors.New("events are for send, and not for timed")
	}
	return nil
}

func (p perftest) name() string {
	name := p.program
	if p.transport != "" {
		name += "/" + strings.ToLower(p.transport)
	}
	if p.pairs > 1 {
		name += "/q" + strconv.Itoa(p.pairs)
	}
	if p.dscp != "" {
		name += "/dscp" + p.dscp
	}
	for _, w := range perftestWords {
		if *w.of(&p) {
			name += "/" + w.word
		}
	}
	if p.gpu != "" {
		name += "/cuda" + p.gpu
	}
	if p.dmabuf {
		name += "/dmabuf"
	}
	if p.nic != "" {
		name += "/nic" + p.nic
	}
	return name
}

// Traffic implements Carrier.
func (p perftest) Traffic() bench.Traffic {
	t := bench.Traffic{Datagrams: p.transport == "UD", Immediate: p.immediate, Both: p.both, Pairs: p.pairs, GPU: p.gpu,
		NIC: p.nic}
	if p.bandwidth {
		t.Operation = p.operation
	}
	return t
}

// Retries is for the clock, which can be calibrated at another time.
func (perftest) Retries(bad *bench.BadResultError) int {
	if bad.Reason == noCalibration {
		return bench.CalibrationRetries
	}
	return 0
}

// Failure prefers perftest's own message to the status.
func (perftest) Failure(exit *bench.ExitError, parseErr error) error {
	if bad, ok := errors.AsType[*bench.BadResultError](parseErr); ok && perftestFailure(bad.Text) != nil {
		return bad
	}
	return exit
}

func (p perftest) Server(ep bench.Endpoint, o bench.Options) []string { return p.args(ep, o) }

// Client appends the server's address, which tells perftest's client from its server.
func (p perftest) Client(client, server bench.Endpoint, o bench.Options) []string {
	return append(p.args(client, o), server.Addr.String())
}

// metrics: with a duration (-D) perftest prints no percentiles or extremes, but adds a transaction rate.
func (p perftest) metrics() []string {
	if p.bandwidth {
		return []string{bench.MetricBWPeak, bench.MetricBWAverage, bench.MetricMessageRate}
	}
	if p.timed {
		return []string{bench.MetricLatencyAverage, bench.MetricTPSAverage, bench.MetricTPSPeak}
	}
	return []string{bench.MetricLatencyMin, bench.MetricLatencyMax, bench.MetricLatencyTypical,
		bench.MetricLatencyAverage, bench.MetricLatencyStdev, bench.MetricLatencyP99, bench.MetricLatencyP999}
}

// slowTimeout is for perftest's -u: 4.096 us * 2^18, about 1 s. The default of 14 is 67 ms, and after eight a queue
// pair fails ("Completion with error"). In an emulated host acknowledgements exceeded that without being lost.
const slowTimeout = 18

// args must be equal on both sides. -F keeps perftest from giving up over CPU frequencies.
func (p perftest) args(ep bench.Endpoint, o bench.Options) []string {
	args := []string{p.program, "-d", ep.Device, "-x", strconv.Itoa(ep.GIDIndex), "--report_gbits", "-F", "-p",
		strconv.Itoa(o.Port)}
	if p.timed {
		args = append(args, "-D", strconv.Itoa(o.RunSeconds()))
	} else {
		args = append(args, "-n", strconv.Itoa(p.iterations(o)))
	}
	if o.Accelerator != "kvm" {
		args = append(args, "-u", strconv.Itoa(slowTimeout))
	}
	size := p.size(ep, o)
	switch {
	case p.operation == "atomic": // perftest refuses a size for it
	case size == 0:
		args = append(args, "-a")
	default:
		args = append(args, "-s", strconv.FormatInt(size, 10))
	}
	if p.raw(o) {
		args = append(args, "-U")
	}
	if p.transport != "" {
		args = append(args, "-c", p.transport)
	}
	if p.pairs > 1 {
		args = append(args, "-q", strconv.Itoa(p.pairs))
	}
	if dscp, err := strconv.Atoi(p.dscp); err == nil {
		args = append(args, "--tclass="+strconv.Itoa(dscp<<2))
	}
	for _, w := range perftestWords {
		if *w.of(&p) {
			args = append(args, w.options...)
		}
	}
	if p.gpu != "" {
		args = append(args, "--use_cuda="+p.gpu)
	}
	if p.dmabuf {
		args = append(args, "--use_cuda_dmabuf")
	}
	return args
}

// datagramBytes is supported by every RDMA port.
const datagramBytes = 1024

func (p perftest) size(ep bench.Endpoint, o bench.Options) int64 {
	quick := int64(bench.QuickBytes)
	if p.transport == "UD" { // a message is one packet
		quick = int64(cmp.Or(ep.Wire.MTU, datagramBytes))
	}
	switch {
	case p.operation == "atomic":
		return 8
	case o.Bytes != 0:
		return o.Bytes
	case !p.bandwidth:
		return 2
	case o.Quick || p.timed: // perftest refuses a duration together with all sizes
		return quick
	}
	return 0
}

// iterations is per size, queue pair and direction.
func (p perftest) iterations(o bench.Options) int {
	if o.Iterations != 0 {
		return o.Iterations
	}
	// The same number of messages takes a millisecond on hardware and minutes on an emulated CPU.
	perIteration, budget := p.cost(o)
	n := int(budget.Seconds()/perIteration+5) / 10 * 10 // round number
	return max(minIterations, leastIterations/p.flows(), min(n, mostIterations))
}

func (p perftest) flows() int {
	n := max(1, p.pairs)
	if p.both {
		n *= 2
	}
	return n
}

// cost is in seconds per message of each size; budget is for all.
func (p perftest) cost(o bench.Options) (perIteration float64, budget time.Duration) {
	cost := costOf(o)
	budget = 5 * time.Second
	if o.Quick {
		budget = time.Second
	}
	size := p.size(bench.Endpoint{}, o)
	var messages, moved float64 = 1, float64(size)
	if size == 0 {
		// The largest sizes take most of the time.
		messages, moved, budget = 23, allSizesBytes, 3*budget
	}
	if !p.bandwidth {
		moved *= 2 // there and back
	} else {
		messages /= 5 // messages overlap
	}
	messages, moved = messages*float64(p.flows()), moved*float64(p.flows())
	return messages*cost.perMessage.Seconds() + moved*8/cost.bitsPerSecond, budget
}

// Duration includes a second on emulated nodes to make queue pairs and to end.
func (p perftest) Duration(o bench.Options) time.Duration {
	if p.timed {
		return time.Second + time.Duration(o.RunSeconds())*time.Second
	}
	perIteration, _ := p.cost(o)
	return time.Second + time.Duration(float64(p.iterations(o))*perIteration*float64(time.Second))
}

// Check refuses what perftest would refuse.
func (p perftest) Check(client, server bench.Endpoint, o bench.Options) error {
	for _, ep := range []bench.Endpoint{client, server} {
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
	if mtu := bench.SlowerWire(client.Wire, server.Wire).MTU; p.transport == "UD" && mtu > 0 && o.Bytes > int64(mtu) {
		return fmt.Errorf("message size %d; a datagram (UD) is one packet, of at most %d bytes here", o.Bytes, mtu)
	}
	return nil
}

// Prepare asks both programs' help about options that not all releases or builds have.
func (p perftest) Prepare(ctx context.Context, ask bench.AskFunc, client, server bench.Endpoint,
	_ *bench.Options) error {
	needs := []struct {
		needed       bool
		option, what string
	}{
		// Otherwise one perftest exits at once, and the other side would wait for it.
		{p.immediate, "--write_with_imm", "writes with immediate data need a later perftest"},
		{p.gpu != "", "--use_cuda", "memory of a GPU needs a perftest that was built with CUDA"},
		{p.dmabuf, "--use_cuda_dmabuf", "dma-buf needs a later perftest, built with CUDA"},
	}
	separator := func(r rune) bool { return strings.ContainsRune(" \t\n,=<[", r) }
	for _, ep := range []bench.Endpoint{client, server} {
		for _, need := range needs {
			if !need.needed {
				continue
			}
			out, err := ask(ctx, ep.Node, p.program, "--help")
			if err != nil {
				return err
			}
			if !slices.Contains(strings.FieldsFunc(string(out.Stdout)+string(out.Stderr), separator), need.option) {
				return bench.Unfit(ep.Node, "%s has no %s: %s", p.program, need.option, need.what)
			}
		}
		if p.gpu == "" {
			continue
		}
		n, err := GPUs(ctx, ask, ep.Node)
		if err != nil {
			return err
		}
		if number, _ := strconv.Atoi(p.gpu); number >= n { // digits only, by numberWord
			return bench.Unfit(ep.Node, "nvidia-smi -L finds %d GPUs, and the test uses number %s, from 0", n, p.gpu)
		}
	}
	return nil
}

// Parse is stricter than ParsePerftest: the table must be complete, because its arguments are known.
func (p perftest) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	// On failure perftest complains on stderr, prints zeros on stdout and exits with status 0.
	if err := bench.EachLine(Perftest, out.Stderr, perftestFailure); err != nil {
		return nil, err
	}
	res, err := ParsePerftest(out.Stdout)
	switch {
	case err != nil:
		return nil, err
	case !res.Complete:
		return nil, bench.BadOutput(Perftest, out.Stdout, "the table is cut off: the line that closes it is missing")
	case p.raw(o) && len(res.Latencies) == 0:
		return nil, bench.BadOutput(Perftest, out.Stdout, fmt.Sprintf("the list of latencies (%q) is missing",
			rawHeader))
	}
	absent := []string{bench.MetricBWPeak, bench.MetricTPSPeak, bench.MetricLatencyStdev}
	for _, row := range res.Rows {
		for _, m := range p.metrics() {
			if !slices.Contains(absent, m) &&
				!slices.ContainsFunc(row.Figures, func(f bench.Figure) bool { return f.Metric == m }) {
				return nil, bench.BadResult(Perftest, "%s printed no %s for %d bytes", p.name(), m, row.Bytes)
			}
		}
	}
	return res.Figures(), nil
}

// raw reports whether the test lists every latency.
func (p perftest) raw(o bench.Options) bool { return o.Raw && !p.bandwidth && !p.timed }
