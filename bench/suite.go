package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Suites: engines that belong together.
const (
	SuiteRDMA   = "rdma"
	SuiteTCP    = "tcp"
	SuiteCPU    = "cpu"
	SuiteMemory = "memory"
	SuiteGPU    = "gpu"
	SuiteMPI    = "mpi"
	SuiteApps   = "apps"
	SuiteAI     = "ai"
	SuiteAll    = "all"
)

// Suites returns the names of all suites.
func Suites() []string {
	return []string{SuiteRDMA, SuiteTCP, SuiteCPU, SuiteMemory, SuiteGPU, SuiteMPI, SuiteApps, SuiteAI, SuiteAll}
}

// variants belong to suite rdma, in addition to the engines of the catalogue: every operation with every
// transport that it supports, and GPU memory. Several queue pairs, both directions at once and a time
// limit are measured with writes only, because other operations take as long and add little.
var variants = []string{
	"ib_write_bw/uc", "ib_send_bw/uc", "ib_send_bw/ud", "ib_write_bw/imm", "ib_atomic_bw/cas",
	"ib_write_lat/uc", "ib_send_lat/uc", "ib_send_lat/ud", "ib_write_lat/imm", "ib_atomic_lat/cas",
	"ib_write_bw/q4", "ib_write_bw/bidi", "ib_write_bw/timed",
	"ib_write_bw/cuda0", "ib_write_bw/cuda0/dmabuf",
}

// Suite returns the engines of a suite, in the order to run them in. Not every node has the tools
// of all: see Runner.Fits.
func Suite(name string) ([]Engine, error) {
	if !slices.Contains(Suites(), name) {
		return nil, fmt.Errorf("find suite %q: unknown; use one of %s", name, strings.Join(Suites(), ", "))
	}
	out := slices.DeleteFunc(Catalogue(), func(e Engine) bool { return name != SuiteAll && e.Suite != name })
	if name != SuiteRDMA && name != SuiteAll {
		return out, nil
	}
	for _, v := range variants {
		e, err := EngineByName(v)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// Select returns the engines of a suite or those with these names; those of every lab where neither is given.
func Select(suite string, names []string) (out []Engine, err error) {
	switch {
	case suite != "" && len(names) > 0:
		return nil, errors.New("--suite and --tests exclude each other")
	case suite != "":
		return Suite(suite)
	case len(names) == 0:
		return Engines(), nil
	}
	for _, n := range names {
		e, err := EngineByName(strings.TrimSpace(n))
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// Fits tells why nodes cannot run an engine, or nil: a program or what it needs is not there. It
// looks, and measures nothing. Each node is looked at as the client of the one before it, as in the
// plans of Pairs, and the first as its own: what has to be between two nodes is looked for there.
func (r *Runner) Fits(ctx context.Context, e Engine, opts Options, nodes ...Endpoint) error {
	if err := r.Allowed(e, opts); err != nil {
		return &UnfitError{nodes[0].Node, err.Error()}
	}
	for i, ep := range nodes {
		if err := r.installed(ctx, e, ep.Node); err != nil {
			return err
		}
		// The first node is its own server here: engines that look between two nodes see that, and leave it out.
		var server Endpoint
		if !e.Local {
			server = nodes[max(0, i-1)]
		}
		if err := e.plugin.prepare(ctx, r.ask, ep, server, &opts); err != nil {
			return err
		}
	}
	return nil
}

// findCommand returns a command that prints the path of the first of some programs that a node has. The
// command fails if the node has none of them.
func findCommand(names string) []string {
	return []string{"sh", "-c", "command -v " + strings.Join(strings.Fields(names), " || command -v ")}
}

// installed returns an *UnfitError where a node lacks an engine's program.
func (r *Runner) installed(ctx context.Context, e Engine, node string) error {
	out, err := r.ask(ctx, node, findCommand(e.Program+" "+e.Others)...)
	if err != nil {
		return err
	}
	if out.ExitCode != 0 {
		return unfit(node, "%s is not installed: install %s", e.Program, e.Package)
	}
	return nil
}
