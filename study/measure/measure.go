// Package measure runs the engines of package bench on a running lab, and collects the data of its report.
package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/mpi"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/vm/image"
)

// A Request describes a measurement.
type Request struct {
	Engines []bench.Engine
	// Suite is a name in Engines, or "" for single tests. Tests of a suite are skipped if the nodes lack their tool; a
	// named test fails.
	Suite   string
	Pairs   []bench.Pair // for engines between two nodes
	Options bench.Options
	// ServerCPU and ServerNUMA place the server's tool; if both are "", Options apply to it as well.
	ServerCPU, ServerNUMA string
	WarmUps               int           // discarded, before each
	CoolDown              time.Duration // pause before each measurement
	Repeat                int           // rounds; 0 means one
	// Images is the directory of images, for engines outside of nodes.
	Images string
	// Journal stores results until the measurement is complete; "" is none. Continue resumes from an existing one.
	Journal  string
	Continue bool
}

// mostRaw is the most iterations with every latency kept: a node's output must fit into one answer of its agent.
const mostRaw = 200_000

// Run measures a lab and returns the report. It calls verify, which takes longer, once the request is known to suit the
// nodes. A failed measurement is a sample with a reason; an error means no report.
func Run(ctx context.Context, r *rack.Rack, q Request, verify func() ([]finding.Finding, error), p *rack.Progress,
	by string) (data record.Record, err error) {
	defer func() { p.End(err) }()
	s, err := begin(ctx, r, q, p)
	if err != nil {
		return data, err
	}
	findings, err := verify()
	if err != nil {
		return data, err
	}
	known := newPaths(r, r.Emulated(), q.Options, findings)
	s.known = known
	floor := noiseOf(r.State)
	before := floor.floor(ctx)
	s.proof = newProver(r)
	samples, err := s.run(ctx, r)
	if err != nil {
		return data, err
	}
	after := floor.floor(ctx)
	busy := disturbed(before, after)
	for i := range samples {
		samples[i].Disturbed = busy
	}
	data = Describe(r, findings, samples, by)
	data.GPUPaths = modelled(s.proof.paths(), r.Lab)
	data.Judgements, data.Beside = expect.Judge(samples, known.path), expect.ComparePublished(samples)
	data.Distributions = record.Distributions(samples)
	data.Disturbed, data.NoiseBefore, data.NoiseAfter = busy, before, after
	return data, nil
}

const manyPairs = 10

type session struct {
	Request
	runner        *bench.Runner
	progress      *rack.Progress
	known         *paths
	opts          bench.Options
	engines       []bench.Engine
	single, pairs [][2]bench.Endpoint         // on each node alone, and between pairs
	byNIC         map[int][][2]bench.Endpoint // NICs other than the first
	proof         *prover
	watch         watched
}

// begin fails if the nodes cannot run an engine at all, for example with more ranks than CPUs.
func begin(ctx context.Context, r *rack.Rack, q Request, p *rack.Progress) (*session, error) {
	s := &session{Request: q, progress: p, opts: q.Options, engines: q.Engines}
	s.runner = &bench.Runner{Exec: r, FirstPort: rand.IntN(bench.Ports), Accelerator: r.State.Accel,
		Emulated: r.Emulated(), WarmUps: q.WarmUps,
		CoolDown: q.CoolDown, Progress: func(e bench.Progress) { noteFailure(p, e) }}
	launcher := mpi.ForLab(r, image.Options{Cache: q.Images, Progress: func(s string) { p.Note("%s", s) }})
	s.runner.Launcher = launcher
	// Too many ranks must not end a measurement halfway.
	for _, e := range q.Engines {
		err := s.runner.Allowed(e, q.Options)
		if g, together := e.Group(); err == nil && together {
			err = launcher.Ready(ctx, g)
		}
		if err != nil && q.Suite == "" {
			return nil, err
		}
	}
	return s, nil
}

// run measures one at a time, so that measurements do not disturb each other.
func (s *session) run(ctx context.Context, r *rack.Rack) ([]bench.Sample, error) {
	if err := s.choose(ctx, r); err != nil {
		return nil, err
	}
	what := asked(r.Lab.Name, s.engines, s.Request)
	s.engines = slices.Repeat(s.engines, max(1, s.Repeat))
	s.watch = watched{began: time.Now()}
	s.foretell()
	kept, err := s.journal(what)
	if err != nil {
		return nil, err
	}
	all, err := s.measure(ctx, kept)
	// An empty report of a suite would look like a success.
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("suite %s: the nodes of lab %s have no tool for any of its tests", s.Suite, r.Lab.Name)
	}
	return all, err
}

// choose keeps the engines of a suite that the nodes can run.
func (s *session) choose(ctx context.Context, r *rack.Rack) (err error) {
	var nodes []bench.Endpoint
	endpoints := make(map[string]bench.Endpoint)
	for _, n := range r.Lab.Nodes {
		ep, err := r.Endpoint(n.Name)
		if err != nil {
			return err
		}
		endpoints[n.Name] = ep
		nodes = append(nodes, ep)
		s.single = append(s.single, [2]bench.Endpoint{ep})
	}
	s.pairs = s.between(endpoints)
	if s.Suite == bench.SuiteGPUDirect {
		if s.engines, err = forGPUs(ctx, r, s.runner.Exec); err != nil {
			return err
		}
		s.opts.Bytes = cmp.Or(s.opts.Bytes, bench.QuickBytes) // all sizes of each GPU and NIC would take hours
	}
	if err := s.chooseNICs(r); err != nil {
		return err
	}
	// 0 is the tool's default, far below.
	s.opts.Raw = s.opts.Iterations <= mostRaw
	if r.State.EmulatedHost {
		s.opts.Accelerator = bench.Nested
	} else if r.State.Accel == "tcg" && !slices.ContainsFunc(nodes, func(ep bench.Endpoint) bool {
		return ep.Wire.Rate == 0
	}) {
		s.opts.Accelerator = bench.Adapter
	}
	if s.Suite == "" || s.Suite == bench.SuiteGPUDirect {
		return s.fit(ctx, nodes)
	}
	if s.opts.CPU == "" && s.opts.NUMA == "" {
		if s.engines, err = byNUMANode(ctx, r, s.engines); err != nil {
			return err
		}
	}
	s.engines, err = runnable(ctx, s.runner, s.engines, s.opts, nodes, s.progress)
	return err
}

func (s *session) endsOf(e bench.Engine) [][2]bench.Endpoint {
	switch _, together := e.Group(); {
	case together:
		return s.single[:1]
	case e.Local:
		return s.single
	}
	if nic, ok := e.NIC(); ok {
		return s.byNIC[nic]
	}
	return s.pairs
}

func (s *session) foretell() {
	var takes, quick time.Duration
	fast := s.opts
	fast.Quick = true
	for _, e := range s.engines {
		n := len(s.endsOf(e))
		s.watch.all += n
		takes += time.Duration(n) * e.Duration(s.opts)
		quick += time.Duration(n) * e.Duration(fast)
	}
	if len(s.pairs) > manyPairs {
		hint := ""
		if !s.opts.Quick && quick < takes/2 {
			hint = ", and with --quick " + words.About(quick)
		}
		s.progress.Note("%d measurements take %s on an idle machine%s", s.watch.all, words.About(takes), hint)
	}
}

// journal fails only with --continue: without one an interrupted measurement cannot continue.
func (s *session) journal(what string) (*journal, error) {
	kept, err := openJournal(s.Journal, what, s.Continue)
	if err != nil && s.Continue {
		return nil, err
	}
	if err != nil {
		s.unkept(err)
		kept = &journal{}
	}
	if n := len(kept.made); n > 0 {
		s.progress.Note("%d of %d measurements are there from before", n, s.watch.all)
	}
	return kept, nil
}

func (s *session) unkept(err error) {
	s.progress.Note("a measurement that is cut off cannot go on: %v", err)
}

func (s *session) measure(ctx context.Context, kept *journal) (all []bench.Sample, err error) {
	for _, e := range s.engines {
		s.progress.Begin(e.Name)
		var failed error // shown after the last attempt
		ends := s.endsOf(e)
		for i, end := range ends {
			if len(ends) > 1 {
				s.progress.Count(i, len(ends))
			}
			client, server := end[0], end[1]
			s.progress.WatchLeft(s.watch.next(client.Node, server.Node))
			if err := s.proof.look(ctx, e, client, server); err != nil {
				return nil, kept.cut(err)
			}
			samples, err := kept.next(func() ([]bench.Sample, error) {
				return s.known.observe(ctx, e, client, server, func() ([]bench.Sample, error) {
					return s.proof.observe(ctx, e, client, server, func() ([]bench.Sample, error) {
						return s.runner.Run(ctx, e, client, server, s.opts)
					})
				})
			}, s.unkept)
			all = append(all, samples...)
			if err != nil {
				return nil, kept.cut(err)
			}
			if slices.ContainsFunc(samples, func(s bench.Sample) bool { return s.Error != "" }) {
				failed = fmt.Errorf("%s failed", e.Name)
			}
		}
		s.progress.End(failed)
	}
	kept.end()
	return all, nil
}

// asked tells whether an interrupted measurement is the same.
func asked(lab string, engines []bench.Engine, q Request) string {
	names := lists.Map(engines, func(e bench.Engine) string { return e.Name })
	return fmt.Sprintf("%s: %s; %v; %+v; %d rounds, %d warm-ups, %v between; server %s %s", lab,
		strings.Join(names, ","), q.Pairs, q.Options, max(1, q.Repeat), q.WarmUps, q.CoolDown, q.ServerCPU,
		q.ServerNUMA)
}

type watched struct {
	began      time.Time
	begun, all int
}

// next returns functions for its description and the time left.
func (w *watched) next(client, server string) (look func() string, left func() time.Duration) {
	done, began := w.begun, time.Now()
	mean := began.Sub(w.began) / time.Duration(max(1, done))
	w.begun++
	what := fmt.Sprintf("%d of %d, %s", w.begun, w.all, client)
	if server != "" {
		what += " to " + server
	}
	if done == 0 {
		return func() string { return what }, nil
	}
	rest := mean * time.Duration(w.all-done)
	return func() string { return what }, func() time.Duration { return rest - time.Since(began) }
}

func noteFailure(p *rack.Progress, e bench.Progress) {
	if e.Err == nil {
		return
	}
	where := "on " + e.Client
	if e.Server != "" {
		where = "from " + e.Client + " to " + e.Server
	}
	p.Note("%s %s: attempt %d failed: %v", e.Engine, where, e.Attempt, e.Err)
}

// runnable notes the other engines by reason.
func runnable(ctx context.Context, runner *bench.Runner, engines []bench.Engine, opts bench.Options,
	nodes []bench.Endpoint, p *rack.Progress) ([]bench.Engine, error) {
	var fit []bench.Engine
	var out group.By[string, string] // names by reason
	for _, e := range engines {
		err := runner.Fits(ctx, e, opts, nodes...)
		unfit, ok := errors.AsType[*bench.UnfitError](err)
		switch {
		case err == nil:
			fit = append(fit, e)
		case !ok:
			return nil, err
		default:
			out.Add(unfit.Error(), e.Name)
		}
	}
	for _, why := range out.Keys {
		names, verb := out.Of(why), "is"
		if len(names) > 1 {
			verb = "are"
		}
		p.Note("%s %s left out: %s", strings.Join(names, ", "), verb, why)
	}
	return fit, nil
}

// byNUMANode repeats the memory engines for each NUMA node, if there are several.
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
	out := lists.Flat(engines, func(e bench.Engine) []bench.Engine { return tool.ByNUMANode(e, numaNodes(nodes)) })
	return out, nil
}

func numaNodes(nodes []*facts.Node) []int {
	have := map[int]int{}
	for _, n := range nodes {
		for _, numa := range n.NUMANodes {
			if !numa.CPUs.IsEmpty() {
				have[numa.ID]++
			}
		}
	}
	// A placement applies to both ends, which both need the node.
	maps.DeleteFunc(have, func(_, count int) bool { return count < len(nodes) })
	return lists.Keys(have)
}

// Describe collects the data of a lab's report besides the judgements.
func Describe(r *rack.Rack, findings []finding.Finding, samples []bench.Sample, by string) record.Record {
	s := r.State
	data := record.Record{
		Lab: r.Lab.Name, Generated: time.Now().UTC().Truncate(time.Second), Rackless: by,
		Findings: findings, Samples: samples, Environment: environment(s, samples), Emulated: r.Emulated(),
		EmulatedHost: s.EmulatedHost,
	}
	for i, n := range r.Lab.Nodes {
		node := reportNode(r.Lab, n)
		node.Accelerator, node.Driver = s.Nodes[i].Accelerator, s.Driver
		if ep, err := r.Endpoint(n.Name); err == nil && ep.Device != "" {
			// otherwise a finding has the reason
			node.RDMADevice, node.GIDIndex, node.IBMTU = ep.Device, ep.GIDIndex, r.Lab.Fabric.RDMAPayload()
		}
		data.Nodes = append(data.Nodes, node)
	}
	return data
}

// reportNode allows for nodes on a real host without a NIC.
func reportNode(l *lab.Lab, n lab.Node) record.Node {
	node := record.Node{Name: n.Name, CPUs: n.CPUs, Memory: int64(n.Memory)}
	if len(n.NICs) > 0 {
		node.Address, node.MAC, node.MTU = n.NICs[0].Addr.String(), n.NICs[0].MAC, l.Fabric.MTU
	}
	return node
}
