package rig

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack/mpi"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/vm/image"
)

// Measure makes one test of a run.
func (r *Rig) Measure(ctx context.Context, m study.Measure) ([]bench.Sample, error) {
	if r.rack == nil {
		return nil, errors.New("measured before a cell was applied")
	}
	if word, ok := m.Incast(); ok {
		r.tell(m.Test)
		return r.incast(ctx, m, word)
	}
	e, err := tool.EngineByName(r.spec.TestName(m, r.settings))
	if err != nil {
		return nil, err
	}
	r.tell(e.Name)
	client, server, err := r.pair(r.lab)
	if err != nil {
		return nil, err
	}
	runner := r.runner(m)
	g, together := e.Group()
	if together {
		client = r.lab.Nodes[0].Name
	}
	nic, _ := e.NIC()
	from, err := r.rack.EndpointOf(client, nic)
	if err != nil {
		return nil, err
	}
	o := options(m)
	// An emulated host is many times slower than its nodes' accelerator suggests.
	if r.rack.State.EmulatedHost {
		o.Accelerator = bench.Nested
	}
	if together {
		g = study.Group(g, r.settings)
		launcher := mpi.ForLab(r.rack, image.Options{Cache: r.dirs.Images(), Progress: r.tell})
		if err := launcher.Ready(ctx, g); err != nil {
			return nil, err
		}
		// Programs outside of nodes count as the study's own.
		bare := launcher.Bare
		launcher.Bare = func(ctx context.Context, argv []string, stdin []byte) (bench.Output, error) {
			out, err := bare(ctx, argv, stdin)
			r.spent += out.CPU.Seconds()
			return out, err
		}
		runner.Launcher = launcher
		samples, err := runner.RunLocal(ctx, e.In(g), from, o)
		return named(m, samples), err
	}
	if e.Local {
		samples, err := runner.RunLocal(ctx, e, from, o)
		return named(m, samples), err
	}
	to, err := r.rack.EndpointOf(server, nic)
	if err != nil {
		return nil, err
	}
	to.Place = o.ServerPlace(m.ServerCPU, m.ServerNUMA)
	samples, err := runner.Run(ctx, e, from, to, o)
	return named(m, samples), err
}

// named gives samples the name of the study's test, without words of a cell, so that cells can be compared.
func named(m study.Measure, samples []bench.Sample) []bench.Sample {
	for i := range samples {
		samples[i].Test = m.Test
	}
	return samples
}

func (r *Rig) runner(m study.Measure) *bench.Runner {
	return &bench.Runner{Exec: r.rack, FirstPort: rand.IntN(bench.Ports), Accelerator: r.rack.State.Accel,
		Emulated:  r.rack.Emulated(),
		TimeLimit: r.limit, WarmUps: m.WarmUps, CoolDown: m.CoolDown, KeepPrinted: true}
}

func options(m study.Measure) bench.Options {
	return bench.Options{Quick: m.Bytes == 0, Bytes: m.Bytes, Iterations: m.Iterations, Seconds: m.Seconds, Raw: true,
		CPU: m.CPU, NUMA: m.NUMA}
}

// runTime is without tests: 0.7 to 1.3 s on emulated nodes in docs/studies.
const runTime = time.Second

// incastTime is a guess for the announced time; a busy machine takes longer.
const incastTime = 10 * time.Second

// Takes estimates the time of a run from its tests, as the mean over cells. Bringing labs up again takes longer, which
// is not known in advance.
func (r *Rig) Takes() (time.Duration, error) {
	accel := r.options.Accel
	if accel != "kvm" && accel != "tcg" {
		accel = r.site.accelerator()
	}
	if accel == "tcg" && !slices.ContainsFunc(r.lab.Nodes, func(n lab.Node) bool { return !n.ConnectX() }) {
		accel = bench.Adapter
	}
	tests := runTime
	for _, m := range r.spec.Measure {
		o := options(m)
		o.Accelerator = accel
		if _, ok := m.Incast(); ok { // the slowest flow is unknown
			tests += incastTime
			continue
		}
		e, err := tool.EngineByName(m.Test)
		if err != nil {
			return 0, err
		}
		tests += m.CoolDown + time.Duration(1+m.WarmUps)*e.Duration(o)
	}
	cells := r.spec.Cells()
	loaded := 0
	for _, c := range cells {
		if level := r.spec.Settings(c)[study.FactorContention]; level != "" && level != "idle" {
			loaded++
		}
	}
	return tests + settleTime*time.Duration(loaded)/time.Duration(len(cells)), nil
}
