package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/diagnose"
	"github.com/rackless/rackless/facts"
	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/hostview"
)

// benchFlags are the options of the verb bench.
type benchFlags struct {
	pairs string
	tests []string
	suite string
	quick bool
	opts  bench.Options
	warm  int
	// serverCPU and serverNUMA are where the server's tool runs; "" is where opts have both.
	serverCPU, serverNUMA string
	cool                  time.Duration
	anyway                bool
	all                   bool
	output                string
}

func newBenchCmd(a *app) *cobra.Command {
	f := benchFlags{pairs: bench.PairsAll}
	cmd := &cobra.Command{
		Use:   "bench NAME|LAB.yaml",
		Short: "Measure bandwidth and latency between the nodes of a running lab",
		Long: `Verifies the lab, then runs perftest's ib_write_bw, ib_read_bw, ib_send_bw over all message sizes, ib_write_lat, ib_send_lat,
ib_read_lat, ib_atomic_lat and iperf3 between every two nodes, one measurement at a time. Figures go to a result directory as JSON
lines and as one self-contained HTML page; a table is printed. Emulated figures say so: they test the way, not the hardware.

Bandwidths of hardware are held against what the way carries, with headers counted: "within 98% of the wire", or the likely causes of
a shortfall with their evidence and fix (PCIe link, IB MTU, one flow on a bond, NUMA node, contention), or that none was found.

With --suite it runs the tests of a suite: rdma (perftest, UCX, libfabric), tcp (iperf3, ping), cpu (sysbench), memory
(stress-ng, lmbench), gpu (nccl-tests), mpi (OSU micro-benchmarks), apps (7-Zip), or all. Those of cpu, memory, gpu and apps
measure one node after the other, those of mpi start one rank on each of two nodes. What the nodes have no tool for is left out,
and a line says so.
perftest's tests take words after slashes: ib_send_lat/ud, ib_write_bw/uc/q4, ib_write_bw/bidi, ib_read_bw/timed, ib_write_bw/imm,
ib_write_bw/cuda0/dmabuf. Those of memory take NUMA nodes: stress_stream/numa1, lat_mem_rd/numa0-1 (CPUs of 0, memory of 1).

Ends with status 3 if a measurement failed after its retries, or a check before it.`,
		Example: `  rackless bench pair
  rackless bench pair --quick
  rackless bench sixteen --pairs first --tests ib_write_bw,ib_write_lat
  rackless bench pair --suite tcp
  rackless bench pair --suite mpi --cpu 0-3
  rackless bench pair --tests ib_write_bw/q4,ib_send_lat/ud --cpu 0`,
		Args:              exactArgs(1, "the name of a lab or a lab file"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := labName(args[0])
			if err != nil {
				return err
			}
			return a.bench(cmd.Context(), name, f)
		},
	}
	var names []string
	for _, e := range bench.Engines() {
		names = append(names, e.Name)
	}
	var all []string
	for _, e := range bench.Catalogue() {
		all = append(all, e.Name)
	}
	fs := cmd.Flags()
	fs.StringVar(&f.pairs, "pairs", f.pairs, "which pairs of nodes: all, first (each other node to the first) or ring")
	fs.StringSliceVar(&f.tests, "tests", nil, "which tests, comma-separated (default all: "+strings.Join(names, ", ")+
		")")
	fs.StringVar(&f.suite, "suite", "", "the tests of a suite: "+strings.Join(bench.Suites(), ", "))
	fs.BoolVar(&f.quick, "quick", false, "one size and about a second a test")
	fs.Int64Var(&f.opts.Bytes, "bytes", 0, "one message size instead of all")
	fs.IntVar(&f.opts.Iterations, "iterations", 0, "iterations for each size (default: as many as take a few seconds)")
	fs.IntVar(&f.opts.Seconds, "seconds", 0, "how long the tests run that run for a time (default 5, 2 with --quick)")
	fs.StringVar(&f.opts.CPU, "cpu", "", "CPUs of the nodes to run on, as 0-3,8 (default: not pinned)")
	fs.StringVar(&f.opts.NUMA, "numa", "", "NUMA nodes of the nodes to take memory from, as 0")
	fs.StringVar(&f.serverCPU, "server-cpu", "", "CPUs of the server's node to run on (default: as --cpu)")
	fs.StringVar(&f.serverNUMA, "server-numa", "",
		"NUMA nodes of the server's node to take memory from (default: as --numa)")
	fs.IntVar(&f.warm, "warm-ups", 0, "measurements before each one, whose figures are dropped")
	fs.DurationVar(&f.cool, "cool-down", 0, "wait before each measurement")
	fs.BoolVar(&f.anyway, "anyway", false, "measure although a check failed, or a study runs on this machine")
	fs.BoolVar(&f.all, "all", false, "print all message sizes that were measured, not only the usual ones")
	outputFlag(cmd, &f.output)
	complete := func(values ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	if err := errors.Join(
		cmd.RegisterFlagCompletionFunc("pairs", complete(bench.PairsAll, bench.PairsFirst, bench.PairsRing)),
		cmd.RegisterFlagCompletionFunc("tests", complete(all...)),
		cmd.RegisterFlagCompletionFunc("suite", complete(bench.Suites()...)),
	); err != nil {
		panic(err) // a flag that this function has not defined
	}
	return cmd
}

func (a *app) bench(ctx context.Context, name string, f benchFlags) error {
	engines, err := pickEngines(f)
	if err != nil {
		return usage(err)
	}
	if f.warm < 0 || f.cool < 0 {
		return usage(fmt.Errorf("--warm-ups %d, --cool-down %v: both are 0 or more", f.warm, f.cool))
	}
	if by, err := a.studyHolder(); err != nil {
		return err
	} else if by != nil && !f.anyway {
		return fmt.Errorf("a study runs on this machine (%v): the two would measure each other, and its figures be "+
			"spoilt; wait for it, or measure with --anyway all the same", by)
	}
	d, err := a.dirs()
	if err != nil {
		return err
	}
	r, err := rack.Open(d, name)
	if err != nil {
		return err
	}
	defer r.Close()
	var nodes []string
	for _, n := range r.Lab.Nodes {
		nodes = append(nodes, n.Name)
	}
	pairs, err := bench.Pairs(nodes, f.pairs)
	if err != nil {
		return usage(err)
	}

	ui := newUI(a.err, a.env)
	defer ui.close()
	p := &rack.Progress{Report: ui.event}
	findings, err := check.Lab(ctx, r.Lab, r, nil, p.Begin)
	p.End(err)
	if err != nil {
		return err
	}
	if bad := check.NotOK(findings); len(bad) > 0 && !f.anyway {
		ui.close()
		report.Findings(a.out, bad, a.color())
		return &exitError{exitFaults, fmt.Errorf("lab %s: %d checks failed: what is measured now would not be what "+
			"it seems; --anyway measures all the same", name, len(bad))}
	}
	known := newWays(r, r.State.Emulated(), f.opts, findings)
	samples, err := measure(ctx, r, engines, pairs, f, p, known)
	p.End(err)
	ui.close()
	if err != nil {
		return err
	}
	data := reportData(ctx, r, findings, samples)
	data.Judgements, data.Beside = bench.Judge(samples, known.way), bench.BesidePublished(samples)
	data.Distributions = report.Distributions(samples)
	return a.show(d, data, f)
}

// show keeps and prints what was measured. It is printed even where it cannot be kept: on a full disk.
func (a *app) show(d rack.Dirs, data report.Data, f benchFlags) error {
	dir, unsaved := saveResults(d, data)
	if unsaved != nil {
		unsaved = fmt.Errorf("the figures above are not kept: %w", unsaved)
	}
	if f.output == "json" {
		return errors.Join(bench.WriteSamples(a.out, data.Samples), unsaved, faults(data.Samples))
	}
	if err := report.Terminal(a.out, data, report.TerminalOptions{Color: a.color(), Width: a.width(),
		AllSizes: f.all}); err != nil {
		return errors.Join(err, unsaved)
	}
	if unsaved != nil {
		return errors.Join(unsaved, faults(data.Samples))
	}
	fmt.Fprintf(a.out, "\nresults: %s\npage:    %s\n", filepath.Join(dir, samplesFile), filepath.Join(dir, pageFile))
	return faults(data.Samples)
}

// faults returns the exit status for failed measurements, which have been printed.
func faults(samples []bench.Sample) error {
	n := 0
	for _, s := range samples {
		if s.Error != "" {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return &exitError{exitFaults, fmt.Errorf("measurements that failed: %d", n)}
}

func pickEngines(f benchFlags) ([]bench.Engine, error) {
	switch {
	case f.suite != "" && len(f.tests) > 0:
		return nil, errors.New("--suite and --tests exclude each other")
	case f.suite != "":
		return bench.Suite(f.suite)
	case len(f.tests) == 0:
		return bench.Engines(), nil
	}
	var out []bench.Engine
	for _, n := range f.tests {
		e, err := bench.EngineByName(strings.TrimSpace(n))
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// mostRaw is the number of iterations up to which every latency is kept, for the distribution: what
// a node prints has to fit into one answer of its agent.
const mostRaw = 200_000

// measure runs every engine between every pair or on every node, one at a time: two at once would measure each other.
func measure(ctx context.Context, r *rack.Rack, engines []bench.Engine, pairs []bench.Pair, f benchFlags,
	p *rack.Progress, known *ways) ([]bench.Sample, error) {
	runner := &bench.Runner{Exec: r, Accelerator: r.State.Accel, Emulated: r.State.Emulated(), WarmUps: f.warm,
		CoolDown: f.cool}
	runner.Progress = func(e bench.Progress) {
		switch {
		case e.Err == nil:
		case e.Server == "":
			p.Note("%s on %s: attempt %d failed: %v", e.Engine, e.Client, e.Attempt, e.Err)
		default:
			p.Note("%s from %s to %s: attempt %d failed: %v", e.Engine, e.Client, e.Server, e.Attempt, e.Err)
		}
	}
	var nodes []bench.Endpoint
	endpoints := make(map[string]bench.Endpoint)
	for _, n := range r.Lab.Nodes {
		ep, err := r.Endpoint(n.Name)
		if err != nil {
			return nil, err
		}
		endpoints[n.Name] = ep
		nodes = append(nodes, ep)
	}
	opts := f.opts
	opts.Quick = f.quick
	opts.Raw = opts.Iterations <= mostRaw
	if r.State.EmulatedHost {
		opts.Accelerator = bench.Nested
	}
	if f.suite != "" && opts.CPU == "" && opts.NUMA == "" {
		var err error
		if engines, err = byNUMANode(ctx, r, engines); err != nil {
			return nil, err
		}
	}
	// A suite is what can be had; a test that was named fails where it cannot be.
	if f.suite != "" {
		var err error
		if engines, err = fitting(ctx, runner, engines, opts, nodes, p); err != nil {
			return nil, err
		}
	}
	var all []bench.Sample
	for _, e := range engines {
		p.Begin(e.Name)
		var failed error // the reason has been said when the last attempt ended
		count := len(pairs)
		if e.Local {
			count = len(nodes)
		}
		for i := range count {
			if count > 1 {
				p.Count(i, count)
			}
			client, server := bench.Endpoint{}, bench.Endpoint{}
			if e.Local {
				client = nodes[i]
			} else {
				client, server = endpoints[pairs[i].Client], endpoints[pairs[i].Server]
				server.Place = opts.ServerPlace(f.serverCPU, f.serverNUMA)
			}
			samples, err := known.watch(ctx, e, client, server, func() ([]bench.Sample, error) {
				return runner.Run(ctx, e, client, server, opts)
			})
			all = append(all, samples...)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(samples, func(s bench.Sample) bool { return s.Error != "" }) {
				failed = fmt.Errorf("%s failed", e.Name)
			}
		}
		p.End(failed)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("suite %s: the nodes of lab %s have no tool for any of its tests", f.suite, r.Lab.Name)
	}
	return all, nil
}

// fitting returns the engines that the nodes can run. Those that are left out for one reason are named in one note.
func fitting(ctx context.Context, runner *bench.Runner, engines []bench.Engine, opts bench.Options,
	nodes []bench.Endpoint, p *rack.Progress) ([]bench.Engine, error) {
	var fit []bench.Engine
	var reasons []string
	out := map[string][]string{} // names, by reason
	for _, e := range engines {
		err := runner.Fits(ctx, e, opts, nodes...)
		unfit, ok := errors.AsType[*bench.UnfitError](err)
		switch {
		case err == nil:
			fit = append(fit, e)
		case !ok:
			return nil, err
		default:
			why := unfit.Error()
			if out[why] == nil {
				reasons = append(reasons, why)
			}
			out[why] = append(out[why], e.Name)
		}
	}
	for _, why := range reasons {
		verb := "is"
		if len(out[why]) > 1 {
			verb = "are"
		}
		p.Note("%s %s left out: %s", strings.Join(out[why], ", "), verb, why)
	}
	return fit, nil
}

// byNUMANode has the engines of memory measure the NUMA nodes with CPUs that all nodes of the lab
// have, where those are several.
func byNUMANode(ctx context.Context, r *rack.Rack, engines []bench.Engine) ([]bench.Engine, error) {
	if !slices.ContainsFunc(engines, func(e bench.Engine) bool { return e.Suite == bench.SuiteMemory }) {
		return engines, nil
	}
	var nodes []*facts.Node
	for _, n := range r.State.Nodes {
		f, err := r.Facts(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, f)
	}
	var out []bench.Engine
	for _, e := range engines {
		out = append(out, bench.ByNUMANode(e, numaNodes(nodes))...)
	}
	return out, nil
}

// numaNodes are the NUMA nodes with CPUs that all nodes of a lab have.
func numaNodes(nodes []*facts.Node) []int {
	have := map[int]int{}
	for _, n := range nodes {
		for id, numa := range n.NUMA {
			if !numa.CPUs.IsEmpty() {
				have[id]++
			}
		}
	}
	maps.DeleteFunc(have, func(_, count int) bool { return count < len(nodes) })
	return slices.Sorted(maps.Keys(have))
}

// reportData gathers what a report shows.
func reportData(ctx context.Context, r *rack.Rack, findings []check.Finding, samples []bench.Sample) report.Data {
	s := r.State
	data := report.Data{
		Lab: r.Lab.Name, Generated: time.Now().UTC().Truncate(time.Second), Rackless: version,
		Findings: findings, Samples: samples, Environment: environment(s, samples), Emulated: s.Emulated(),
		EmulatedHost: s.EmulatedHost,
	}
	if h, err := inspect.Read(ctx, inspect.Live()); err == nil { // else the page is without the machine's picture
		var svg strings.Builder
		if hostview.NewDocument(h, diagnose.Host(h)).WriteSVG(&svg) == nil {
			data.HostPicture = svg.String()
		}
	}
	for i, n := range r.Lab.Nodes {
		node := reportNode(r.Lab, n)
		node.Accelerator, node.Driver = s.Nodes[i].Accelerator, s.Driver
		if ep, err := r.Endpoint(n.Name); err == nil && ep.Device != "" {
			// else the node is shown without an RDMA device, and a finding says why
			node.RDMADevice, node.GIDIndex, node.IBMTU = ep.Device, ep.GIDIndex, r.Lab.Fabric.RDMAPayload()
		}
		data.Nodes = append(data.Nodes, node)
	}
	return data
}

// reportNode is a node as its lab has it, known by its first NIC. One on a real host may have none.
func reportNode(l *lab.Lab, n lab.Node) report.Node {
	node := report.Node{Name: n.Name, CPUs: n.CPUs, Memory: int64(n.Memory)}
	if len(n.NICs) > 0 {
		node.Address, node.MAC, node.MTU = n.NICs[0].Addr.String(), n.NICs[0].MAC, l.Fabric.MTU
	}
	return node
}
