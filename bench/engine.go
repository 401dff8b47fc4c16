package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// An Endpoint is one side of a measurement.
type Endpoint struct {
	Node     string     // name of the node, as the Executor knows it
	Addr     netip.Addr // address the server is reached at
	Device   string     // RDMA device, e.g. "rxe0"; iperf3 does not use it
	Wire     Wire       // what the port says of its link
	GIDIndex int        // index of the device's GID for Addr: the RoCE v2 one, e.g. 1 on rxe, 3 on mlx5
	Place    Place      // where on the node the tool runs; the zero value stands for that of the Options
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
	// how long iperf3, sysbench and perftest with /timed run; 0 means 5, or 2 with Quick.
	// stress-ng's stream needs 5 or more, and gets them.
	Seconds int

	// Raw asks perftest's latency tests for every single latency as well: see Sample.Latencies. It takes one size.
	Raw bool

	// CPUs to run on, as taskset lists them ("0-3,8"); "": anywhere. It holds for both nodes, where
	// their Endpoint has no Place.
	CPU  string
	NUMA string // NUMA nodes whose memory is taken, as numactl lists them ("0"); "": as the kernel chooses. As CPU.

	// Accelerator is "tcg" or "kvm", as in Sample.Accelerator; "" stands for the Runner's. It
	// decides how many iterations are chosen, and how long a queue pair waits for an answer. Nested
	// is for nodes in an emulated host, whatever executes them there, and Adapter for emulated adapters.
	Accelerator string
	Port        int // TCP port of this run, on the server. The Runner sets it.
	// Threads is the number of threads of an engine that loads CPUs or GPUs, on one node. The Runner
	// sets it to the number of CPUs that the engine may use.
	Threads int
	Memory  int64 // bytes that the engines that load memory may take, on one node. The Runner sets it.
	Ranks   int   // of an engine with a Group, all together. The Runner sets it.

	// Program is the name that the node has for a program with several names, see Engine.Others. The Runner sets it.
	Program string
	// WithMPI are the nodes whose program was built with MPI, and has to be told that there is
	// none. The Runner sets it.
	WithMPI []string
	// Packets are those that the client's RDMA device sent and received meanwhile, where the engine asks for them. The
	// Runner sets them.
	Packets Packets
	// GPUs are the links that copies to and from GPUs go over. The Runner sets them, where they can be read.
	GPUs []GPULink
}

// An Engine measures one thing: it is a tool with its arguments, and the parser of the tool's output.
type Engine struct {
	Name    string // e.g. "ib_write_bw", with what differs from the plain one after slashes: "ib_send_lat/ud"
	Tool    string // e.g. "perftest"
	About   string // what it measures, in one line
	Suite   string // one of the Suite constants
	Program string // what is started on the nodes
	Others  string // other names of the program, with blanks between them: releases and packages differ
	Package string // what brings the program: a Debian package, or words that say where it is had
	Local   bool   // measures one node, or several together by a Group: see Runner.RunLocal

	Together *Group   // nil where the engine measures one node, or two
	Measures []string // those that Parse returns; [MetricOf] has their units
	// Launches is set where the client command starts a program on both nodes and pins each program itself: pinning
	// the command would pin only the launcher.
	Launches bool
	Endless  bool // its server does not end by itself
	Counted  bool // Parse wants to know Options.Packets
	// VersionCommand prints the tool's version, nil if nothing does. Versions find it there and in what the tool
	// prints when it measures; nil: as usual.
	VersionCommand []string
	Versions       []VersionLine
	Plugin         Plugin
}

// A Plugin is what an engine does with its tool; what is fixed of the tool stands in Engine.
type Plugin interface {
	// Check rejects options that the tool would reject, before anything is started. It only looks at values.
	Check(client, server Endpoint, o Options) error
	// Prepare asks the nodes whether the tool can do what is asked of it, and enters into o what the
	// tool finds there, such as GPUs.
	Prepare(ctx context.Context, ask AskFunc, client, server Endpoint, o *Options) error
	// Server and Client return the commands. A server listens on the TCP port of the options, and ends by itself after
	// one measurement, unless its engine is endless; a tool without one returns nil.
	Server(ep Endpoint, o Options) []string
	Client(client, server Endpoint, o Options) []string
	// Parse turns the client's output into figures, and rejects everything else. The caller judges the exit status.
	Parse(out Output, o Options) ([]Figure, error)
}

// A VersionLine finds a version in what programs print, in its one group. Name comes before it, for a library.
type VersionLine struct {
	Name string
	Line *lazyregexp.Regexp
}

// A FixedDuration is a plugin whose tool ignores Options.Seconds, for example because it counts messages.
type FixedDuration interface {
	// Duration estimates how long a measurement takes.
	Duration(o Options) time.Duration
}

// A Patient is a plugin whose tool fails in ways that take more tries than usual.
type Patient interface {
	// Retries returns how many more tries there are after this result; fewer than the Runner's are not counted.
	Retries(bad *BadResultError) int
}

// An Explainer is a plugin whose tool says in what it prints why it ended with another status than 0.
type Explainer interface {
	// Failure returns the error of such a measurement, whose output gave parseErr; nil if its figures are good.
	Failure(exit *ExitError, parseErr error) error
}

// An AskFunc runs a short command on a node, and caches its output.
type AskFunc func(ctx context.Context, node string, argv ...string) (Output, error)

// Server returns the command that the server's node runs, nil where there is none. It ends by
// itself after one measurement.
func (e Engine) Server(ep Endpoint, o Options) []string { return e.Plugin.Server(ep, o) }

// Client returns the command that the client's node runs, or the only node.
func (e Engine) Client(client, server Endpoint, o Options) []string {
	return e.Plugin.Client(client, server, o)
}

// startTime is about the time that a tool takes beyond its measuring time, to start, connect and end.
// Measured with iperf3 on TCG nodes: 0.1 to 0.2 s.
const startTime = 200 * time.Millisecond

// Duration estimates how long a measurement takes, to plan what fits into a budget. For tools that count
// messages it uses the usual cost of a message under the accelerator of the options, and may be wrong by a
// factor of two. Load on the machine makes a measurement longer.
func (e Engine) Duration(o Options) time.Duration {
	if l, ok := e.Plugin.(FixedDuration); ok {
		return startTime + l.Duration(o)
	}
	return startTime + time.Duration(o.RunSeconds())*time.Second
}

// Metrics returns what the engine measures, as in Sample.Metric.
func (e Engine) Metrics() []string { return slices.Clone(e.Measures) }

// RunSeconds returns the duration of a test that is limited by time. Two seconds show that a path works;
// figures for comparisons get five.
func (o Options) RunSeconds() int {
	if o.Quick {
		return cmp.Or(o.Seconds, 2)
	}
	return cmp.Or(o.Seconds, 5)
}

// Check refuses what cannot be measured, before anything is started for nothing.
func (e Engine) Check(client, server Endpoint, o Options) error {
	switch {
	case e.Plugin == nil:
		return errors.New("no engine is given; take one of Engines")
	case e.Local && server.Node != "":
		return errors.New("this engine measures one node; use RunLocal")
	case !e.Local && server.Node == "":
		return errors.New("this engine measures between two nodes; use Run")
	// It would measure the loopback device, or a NIC that sends to itself.
	case !e.Local && client.Node == server.Node:
		return fmt.Errorf("client and server are both node %q", client.Node)
	case !e.Local && !server.Addr.IsValid():
		return fmt.Errorf("node %q has no address", server.Node)
	case o.Seconds < 0:
		return fmt.Errorf("duration of %d s is below zero", o.Seconds)
	}
	for _, ep := range []Endpoint{client, server} {
		if err := o.PlaceOf(ep).Check(); err != nil {
			return err
		}
	}
	return e.Plugin.Check(client, server, o)
}

// Parse turns what the client printed on its standard output into figures.
func (e Engine) Parse(stdout []byte) ([]Figure, error) {
	return e.ParseOutput(Output{Stdout: stdout}, Options{})
}

// ParseOutput checks what a plugin returns against what it says that it measures. A figure in another unit than that
// of the table of metrics would be drawn and compared as if it were in that one.
func (e Engine) ParseOutput(out Output, o Options) ([]Figure, error) {
	figures, err := e.Plugin.Parse(out, o)
	if err != nil {
		return nil, err
	}
	for _, f := range figures {
		if !slices.Contains(e.Measures, f.Metric) || f.Unit != MetricOf(f.Metric).Unit {
			return nil, BadResult(e.Tool, "a figure %s in %s is none of %s", f.Metric, f.Unit, e.Name)
		}
	}
	return figures, nil
}

// toolVersions: perftest prints "Version: 6.06" (and exits with status 1), iperf3 "iperf 3.12 (cJSON 1.7.15)",
// UCX "# Version 1.13.1" or "# Library version: 1.17.0", and so on.
var toolVersions = []VersionLine{{"", lazyregexp.New(
	`(?m)^\s*(?:Version:|iperf|sysbench|stress-ng, version|# Version|# Library version:|libfabric:|ping from iputils|` +
		`ping utility, iputils|BusyBox)\s+v?([0-9][0-9A-Za-z.+~-]*)`)}}

// Version finds the versions in what the tool answered when it was asked for its version, and in what it printed
// when it measured. It is "" where the tool does not tell.
func (e Engine) Version(outputs ...Output) string {
	var printed []byte
	for _, out := range outputs {
		printed = slices.Concat(printed, out.Stdout, []byte("\n"), out.Stderr, []byte("\n"))
	}
	lines := e.Versions
	if lines == nil {
		lines = toolVersions
	}
	var found []string
	for _, v := range lines {
		if m := v.Line.FindSubmatch(printed); m != nil {
			found = append(found, v.Name+string(m[1]))
		}
	}
	return strings.Join(found, ", ")
}

// These stand for an accelerator in Options.
const (
	Nested  = "nested"  // the host of the nodes is emulated itself
	Adapter = "adapter" // nodes under TCG have emulated adapters, whose RDMA their CPUs do not compute
)
