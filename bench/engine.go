package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// An Endpoint is one side of a measurement.
type Endpoint struct {
	Node     string
	Addr     netip.Addr
	Device   string // e.g. "rxe0"; unused by iperf3
	Wire     Wire
	GIDIndex int // the RoCE v2 GID for Addr, e.g. 1 on rxe, 3 on mlx5
	Place    Place
}

// Options change how an engine runs. The zero value leaves all choices to the engine.
type Options struct {
	Quick bool // about one second and one size instead of about five to fifteen seconds and all sizes
	// Bytes is the message size. If 0, bandwidth engines measure all from 2^1 to 2^23 (64 KiB with Quick), and latency
	// engines 2 bytes. ib_atomic_lat always uses 8 bytes, and iperf3 has no size.
	Bytes int64
	// Iterations for each size, at least 5; 0 means as many as fit in a few seconds. The p99.9 of n depends only on the
	// n/1000 slowest samples.
	Iterations int
	// Seconds is for iperf3, sysbench and perftest with /timed; 0 means 5, or 2 with Quick. stress-ng's stream has at
	// least 5.
	Seconds int

	// Raw asks perftest for every latency, see Sample.Latencies.
	Raw bool

	// CPU is a list for taskset ("0-3,8"); "" means any. An Endpoint's Place takes precedence.
	CPU  string
	NUMA string // list for numactl ("0"); applies like CPU

	// Accelerator is "tcg" or "kvm", Nested, or Adapter; "" takes the Runner's.
	Accelerator string
	Port        int // on the server; set by the Runner
	// Threads is for engines of one node. The Runner sets it to the number of usable CPUs.
	Threads int
	Memory  int64 // bytes that an engine may use; set by the Runner
	Ranks   int   // of an engine with a Group; set by the Runner

	// Program is the node's name for a program with Engine.Others. Set by the Runner.
	Program string
	// WithMPI lists nodes whose program must be told to run without MPI. Set by the Runner.
	WithMPI []string
	// Packets of the client's RDMA device during the test. Set by the Runner.
	Packets Packets
	// GPUs lists links to GPUs, if they can be read. Set by the Runner.
	GPUs []GPULink
}

// An Engine is a tool with its arguments and a parser for its output.
type Engine struct {
	Name    string // e.g. "ib_write_bw", with differences from the plain engine after slashes: "ib_send_lat/ud"
	Tool    string
	About   string
	Suite   string
	Program string
	Others  string // separated by blanks
	Package string // Debian package, or words that say how to get it
	Local   bool   // one node, or several by a Group

	Together *Group
	Measures []string
	// Launches is set if the client command starts and pins programs on both nodes itself: pinning the command would
	// pin only the launcher.
	Launches bool
	Endless  bool
	Counted  bool // Parse wants to know Options.Packets
	// VersionCommand prints the tool's version; nil if nothing does. If Versions is nil, the usual lines are searched.
	VersionCommand []string
	Versions       []VersionLine
	Plugin         Plugin
}

// A Plugin has the parts of an engine that need code.
type Plugin interface {
	// Check rejects options that the tool would reject. It only looks at values.
	Check(client, server Endpoint, o Options) error
	// Prepare asks the nodes whether the tool can run so, and enters devices such as GPUs into o.
	Prepare(ctx context.Context, ask AskFunc, client, server Endpoint, o *Options) error
	// Server and Client return the commands. A server listens on the port of the options, and ends after one
	// measurement unless its engine is endless; a tool without one returns nil.
	Server(ep Endpoint, o Options) []string
	Client(client, server Endpoint, o Options) []string
	// Parse rejects everything but figures. The caller judges the exit status.
	Parse(out Output, o Options) ([]Figure, error)
}

// A VersionLine finds a version in its one group. Name comes before it, for a library.
type VersionLine struct {
	Name string
	Line func() *regexp.Regexp
}

// A FixedDuration is a plugin whose tool ignores Options.Seconds.
type FixedDuration interface {
	// Duration estimates how long a measurement takes.
	Duration(o Options) time.Duration
}

// A Patient is a plugin whose tool needs more tries than usual.
type Patient interface {
	// Retries returns further tries, if more than the Runner's.
	Retries(bad *BadResultError) int
}

// An Explainer is a plugin whose tool prints why it failed.
type Explainer interface {
	// Failure gets the error of Parse; it returns nil if the figures are good.
	Failure(exit *ExitError, parseErr error) error
}

// An AskFunc runs a short command on a node, and caches its output.
type AskFunc func(ctx context.Context, node string, argv ...string) (Output, error)

// Server returns the server's command, or nil. It exits after one measurement.
func (e Engine) Server(ep Endpoint, o Options) []string { return e.Plugin.Server(ep, o) }

// Client returns the command for the client's node, or for the only node.
func (e Engine) Client(client, server Endpoint, o Options) []string {
	return e.Plugin.Client(client, server, o)
}

// startTime to start, connect and end was 0.1 to 0.2 s with iperf3 on TCG nodes.
const startTime = 200 * time.Millisecond

// Duration is an estimate. For tools that count messages it may be wrong by a factor of two, more on a loaded machine.
func (e Engine) Duration(o Options) time.Duration {
	if l, ok := e.Plugin.(FixedDuration); ok {
		return startTime + l.Duration(o)
	}
	return startTime + time.Duration(o.RunSeconds())*time.Second
}

// Metrics returns the engine's metrics.
func (e Engine) Metrics() []string { return slices.Clone(e.Measures) }

// RunSeconds is for tests that are limited by time. Two seconds show that a path works.
func (o Options) RunSeconds() int {
	if o.Quick {
		return cmp.Or(o.Seconds, 2)
	}
	return cmp.Or(o.Seconds, 5)
}

// Check refuses options that cannot be measured, before anything is started.
func (e Engine) Check(client, server Endpoint, o Options) error {
	switch {
	case e.Plugin == nil:
		return errors.New("no engine is given; take one of Engines")
	case e.Local && server.Node != "":
		return errors.New("this engine measures one node; use RunLocal")
	case !e.Local && server.Node == "":
		return errors.New("this engine measures between two nodes; use Run")
	// It would measure the loopback device, or a NIC sending to itself.
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

// Parse turns the client's standard output into figures.
func (e Engine) Parse(stdout []byte) ([]Figure, error) {
	return e.ParseOutput(Output{Stdout: stdout}, Options{})
}

// ParseOutput checks the units of figures: one in another unit would be drawn and compared as if it were in the
// table's.
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

// toolVersions: perftest prints "Version: 6.06" (and exits with status 1), iperf3 "iperf 3.12 (cJSON 1.7.15)", UCX "#
// Version 1.13.1" or "# Library version: 1.17.0".
var toolVersions = []VersionLine{{"", lazyregexp.New(
	`(?m)^\s*(?:Version:|iperf|sysbench|stress-ng, version|# Version|# Library version:|libfabric:|ping from iputils|` +
		`ping utility, iputils|BusyBox)\s+v?([0-9][0-9A-Za-z.+~-]*)`)}}

// Version returns "" if the tool does not tell.
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
		if m := v.Line().FindSubmatch(printed); m != nil {
			found = append(found, v.Name+string(m[1]))
		}
	}
	return strings.Join(found, ", ")
}

// Values for Options.Accelerator.
const (
	Nested  = "nested"
	Adapter = "adapter" // RDMA by emulated adapters costs nodes under TCG no CPU time
)
